//! The preparation before the thread runs: the first connection, and the streams.

use std::{
    fmt,
    time::{Duration, Instant},
};

use crate::{
    core::{Core, CoreOptions, StreamedNamespace, epoch_of, leases::LeaseNames, room_logs::RoomLogNames},
    links::{LinkReport, NatsClient, open_once},
    names::PartitionNames,
    streams::{StreamDifference, StreamTerms, ensure, partitions_there},
};

use super::{ClusterFault, ClusterNamespace, ClusterOptions};

/// Bytes reserved for the headers of a publication, besides its body.
pub(crate) const HEADER_BYTES: usize = 4_096;
/// Pause between attempts at the start.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between reports of what the start waits for.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// A lease that is neither renewed nor taken for this long expires.
const LEASE_AGE_MAX_MS: u64 = 3_600_000;
/// Copies of a renewal are sent for some seconds.
const LEASE_DUPLICATE_WINDOW_MS: u64 = 60_000;
/// Streams keep messages for this much longer than positions are valid, which allows for differences between clocks.
const AGE_MARGIN_MS: u64 = 60_000;

/// The result of the preparation.
pub(super) struct Prepared {
    pub(super) core: Core,
    pub(super) differences: Vec<StreamDifference>,
    /// Maximum message size of the servers.
    pub(super) payload_bytes_max: usize,
}

/// Creates and checks the streams.
pub(super) async fn prepare(options: &ClusterOptions) -> Result<Prepared, ClusterFault> {
    let patience = &mut Patience::new(options);
    let client = open_patiently(options, patience).await?;
    let (there, wanted) = (client.max_payload(), options.publication_bytes_max + HEADER_BYTES);
    if there < wanted {
        return Err(ClusterFault::MaxPayload { there, wanted });
    }
    let mut differences = Vec::new();
    let mut namespaces = Vec::new();
    let mut creatable = Vec::new();
    for namespace in &options.namespaces {
        let Some(namespace) = namespace else {
            namespaces.push(None);
            continue;
        };
        let (partitions, found) = prepare_namespace(&client, options, namespace, patience).await?;
        creatable.extend((0..partitions).map(|part| terms_of(options, namespace, part, partitions)));
        differences.extend(found);
        namespaces.push(Some(StreamedNamespace {
            name: namespace.name.clone(),
            partitions,
            history_ttl_ms: namespace.history_ttl_ms,
            history_bytes_max: namespace.history_bytes_max,
        }));
    }
    let has_room_logs = options.keeps_rooms;
    let has_leases = has_room_logs || namespaces.iter().any(Option::is_some);
    if has_leases {
        let terms = lease_terms(options);
        differences.extend(ensure_patiently(&client, options, &terms, patience).await?);
        creatable.push(terms);
    }
    if has_room_logs {
        let terms = room_log_terms(options);
        differences.extend(ensure_patiently(&client, options, &terms, patience).await?);
        creatable.push(terms);
    }
    let core = Core::new(CoreOptions {
        prefix: options.prefix.clone(),
        node: options.node.clone(),
        namespaces,
        broadcasts: options.broadcasts.clone(),
        has_leases,
        has_room_logs,
        creatable,
        limits: options.limits.clone(),
    });
    Ok(Prepared { core, differences, payload_bytes_max: there })
}

/// How long the start may wait for the servers, and when it says what it waits for.
struct Patience<'a> {
    give_up: Instant,
    next_report: Instant,
    options: &'a ClusterOptions,
}

impl<'a> Patience<'a> {
    fn new(options: &'a ClusterOptions) -> Self {
        let now = Instant::now();
        Self { give_up: now + options.start_timeout, next_report: now, options }
    }

    /// Pauses before another attempt. Returns whether there is time for one.
    async fn wait(&mut self, why: &dyn fmt::Display) -> bool {
        let now = Instant::now();
        if now >= self.give_up {
            return false;
        }
        if now >= self.next_report {
            self.next_report = now + REPORT_INTERVAL;
            let left_s = (self.give_up - now).as_secs();
            (self.options.links.report)(LinkReport::Waiting { why: why.to_string(), left_s });
        }
        tokio::time::sleep(PAUSE).await;
        true
    }
}

/// Creates or checks a stream. Waits while the servers have no leader.
async fn ensure_patiently(
    client: &NatsClient,
    options: &ClusterOptions,
    terms: &StreamTerms,
    patience: &mut Patience<'_>,
) -> Result<Vec<StreamDifference>, ClusterFault> {
    loop {
        match ensure(client, terms, &epoch_of(&options.node, &terms.name, 0), Duration::ZERO).await {
            Ok(ensured) => return Ok(ensured.differences),
            Err(fault) if fault.can_pass() && patience.wait(&fault).await => {}
            Err(fault) => return Err(ClusterFault::Stream(fault)),
        }
    }
}

async fn open_patiently(options: &ClusterOptions, patience: &mut Patience<'_>) -> Result<NatsClient, ClusterFault> {
    loop {
        match open_once(&options.links).await {
            Ok(client) => return Ok(client),
            Err(faults) if !faults.is_refused && patience.wait(&faults).await => {}
            Err(faults) => return Err(ClusterFault::Connect(faults)),
        }
    }
}

/// Creates and checks the streams of a namespace. The first stream determines their number.
async fn prepare_namespace(
    client: &NatsClient,
    options: &ClusterOptions,
    namespace: &ClusterNamespace,
    patience: &mut Patience<'_>,
) -> Result<(u16, Vec<StreamDifference>), ClusterFault> {
    let first = PartitionNames::new(&options.prefix, &namespace.name, 0);
    let there = loop {
        match partitions_there(client, &first.stream).await {
            Ok(there) => break there,
            Err(fault) if fault.can_pass() && patience.wait(&fault).await => {}
            Err(fault) => return Err(ClusterFault::Stream(fault)),
        }
    };
    let partitions = there.unwrap_or(options.partitions).max(1);
    let mut differences = Vec::new();
    for part in 0..partitions {
        let terms = terms_of(options, namespace, part, partitions);
        differences.extend(ensure_patiently(client, options, &terms, patience).await?);
    }
    Ok((partitions, differences))
}

/// The configuration of the stream of leases.
pub(crate) fn lease_terms(options: &ClusterOptions) -> StreamTerms {
    let names = LeaseNames::new(&options.prefix);
    StreamTerms {
        source: names.stored_subjects(),
        destination: names.live_subjects(),
        name: names.stream,
        replicas: options.replicas,
        is_in_memory: options.is_in_memory,
        messages_per_subject_max: 1,
        age_max_ms: LEASE_AGE_MAX_MS,
        duplicate_window_ms: LEASE_DUPLICATE_WINDOW_MS,
        partitions: 1,
    }
}

/// The configuration of the stream of rooms' logs. A room that waits for its players is kept until somebody gives it up, so
/// its messages have no maximum age.
pub(crate) fn room_log_terms(options: &ClusterOptions) -> StreamTerms {
    let names = RoomLogNames::new(&options.prefix);
    StreamTerms {
        source: names.stored_subjects(),
        destination: Box::default(),
        name: names.stream,
        replicas: options.replicas,
        is_in_memory: options.is_in_memory,
        messages_per_subject_max: u64::MAX,
        age_max_ms: 0,
        duplicate_window_ms: LEASE_DUPLICATE_WINDOW_MS,
        partitions: 1,
    }
}

pub(crate) fn terms_of(
    options: &ClusterOptions,
    namespace: &ClusterNamespace,
    part: u16,
    partitions: u16,
) -> StreamTerms {
    let names = PartitionNames::new(&options.prefix, &namespace.name, part);
    StreamTerms {
        source: names.stored_subjects(),
        destination: names.republished_subjects(),
        name: names.stream,
        replicas: options.replicas,
        is_in_memory: options.is_in_memory,
        messages_per_subject_max: namespace.history_size as u64 + 1,
        age_max_ms: namespace.history_ttl_ms.max(namespace.meta_ttl_ms).saturating_add(AGE_MARGIN_MS),
        duplicate_window_ms: options.duplicate_window_ms,
        partitions,
    }
}
