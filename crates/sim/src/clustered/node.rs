//! A node of a cluster: one shard and the protocol core, each with the state of its thread.

use std::{collections::VecDeque, sync::Arc};

use dunlin_cluster::{
    core::{
        BroadcastNamespace, Core, CoreEffect, CoreEvent, CoreLimits, CoreOptions, StreamedNamespace, leases::LeaseNames,
    },
    names::PartitionNames,
    streams::StreamTerms,
};
use dunlin_engine::{Event, Now, Options, Seed, ShardIdentity, ShardIndex};

use crate::harness::ShardThread;

/// Maximum error of a node's clock. Nodes tolerate a difference of 10 seconds.
const CLOCK_OFF_MAX_MS: i64 = 4_000;

/// A running node.
pub struct ClusterNode {
    /// Its unique id.
    pub name: String,
    /// The number of its start, from which the id is made.
    pub run: u64,
    pub thread: ShardThread,
    pub core: Core,
    pub core_effects: Vec<CoreEffect>,
    /// The error of its clock.
    clock_off_ms: i64,
    /// Events in flight from the shard to the core.
    pub to_core: VecDeque<(u64, CoreEvent)>,
    /// Events in flight from the core to the shard.
    pub to_shard: VecDeque<(u64, Event<'static>)>,
}

/// How a node takes part in the cluster.
pub struct NodeTerms {
    pub partitions: u16,
    pub limits: CoreLimits,
    pub has_leases: bool,
}

impl ClusterNode {
    /// Starts a node. Its id is derived from `run`.
    pub fn new(options: &Arc<Options>, run: u64, seed: Seed, terms: NodeTerms) -> Self {
        let NodeTerms { partitions, limits, has_leases } = terms;
        let name = format!("n{run}");
        let thread = ShardThread::new(ShardIdentity { index: ShardIndex(0), count: 1 }, options, seed);
        let namespace = &options.namespaces[0];
        let core_options = CoreOptions {
            prefix: "dn".into(),
            node: name.as_str().into(),
            namespaces: vec![
                None,
                Some(StreamedNamespace {
                    name: namespace.name.as_str().into(),
                    partitions,
                    history_ttl_ms: namespace.history_ttl_ms,
                    history_bytes_max: limits.window_bytes_max / 2,
                }),
                None,
                None,
            ],
            broadcasts: broadcasts(namespace.is_clustered),
            has_leases,
            has_room_logs: false,
            creatable: creatable(&namespace.name, partitions),
            limits,
        };
        let core = Core::new(core_options);
        Self {
            name,
            run,
            thread,
            core,
            core_effects: Vec::new(),
            clock_off_ms: (run.cast_signed() * 1_733) % (2 * CLOCK_OFF_MAX_MS) - CLOCK_OFF_MAX_MS,
            to_core: VecDeque::new(),
            to_shard: VecDeque::new(),
        }
    }

    /// The time on the clock of this node. The clocks of nodes and of NATS servers differ.
    pub const fn on_own_clock(&self, now: Now) -> Now {
        Now { unix_ms: now.unix_ms.saturating_add_signed(self.clock_off_ms), ..now }
    }

    /// Passes an event to the core, which appends its effects to `core_effects`.
    pub fn handle_core(&mut self, now: Now, event: CoreEvent) {
        self.core.handle(now, event, &mut self.core_effects);
    }
}

/// The streams that a node creates when they are gone.
fn creatable(namespace: &str, partitions: u16) -> Vec<StreamTerms> {
    let leases = LeaseNames::new("dn");
    let of_partitions = (0..partitions).map(|part| {
        let names = PartitionNames::new("dn", namespace, part);
        (names.stored_subjects(), names.republished_subjects(), names.stream)
    });
    let of_leases = (leases.stored_subjects(), leases.live_subjects(), leases.stream);
    let terms = |(source, destination, name)| StreamTerms {
        name,
        source,
        destination,
        replicas: 1,
        is_in_memory: false,
        messages_per_subject_max: 1,
        age_max_ms: 1,
        duplicate_window_ms: 1,
        partitions,
    };
    of_partitions.chain([of_leases]).map(terms).collect()
}

/// Namespace 1 has a stream, and 2 and 3 have no history.
fn broadcasts(is_clustered: bool) -> Vec<Option<BroadcastNamespace>> {
    let shared = |name: &str, is_wide| is_clustered.then(|| BroadcastNamespace { name: name.into(), is_wide });
    vec![None, shared("log", true), shared("live", false), shared("kept", false)]
}
