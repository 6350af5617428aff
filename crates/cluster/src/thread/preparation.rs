//! The preparation before the thread runs: the first connection, and the streams.

use std::time::{Duration, Instant};

use crate::{
    core::{Core, CoreOptions, StreamedNamespace, epoch_of, leases::LeaseNames},
    links::{NatsClient, open_once},
    names::PartitionNames,
    streams::{StreamDifference, StreamFault, StreamTerms, ensure, partitions_there},
};

use super::{ClusterFault, ClusterNamespace, ClusterOptions};

/// Bytes reserved for the headers of a publication, besides its body.
pub(crate) const HEADER_BYTES: usize = 4_096;
/// Pause between connection attempts at the start.
const PAUSE: Duration = Duration::from_millis(100);
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
    let give_up = Instant::now() + options.start_timeout;
    let client = open_patiently(options, give_up).await?;
    let (there, wanted) = (client.max_payload(), options.publication_bytes_max + HEADER_BYTES);
    if there < wanted {
        return Err(ClusterFault::MaxPayload { there, wanted });
    }
    let mut differences = Vec::new();
    let mut namespaces = Vec::new();
    for namespace in &options.namespaces {
        let Some(namespace) = namespace else {
            namespaces.push(None);
            continue;
        };
        let (partitions, found) = prepare_namespace(&client, options, namespace, give_up).await?;
        differences.extend(found);
        namespaces.push(Some(StreamedNamespace {
            name: namespace.name.clone(),
            partitions,
            history_ttl_ms: namespace.history_ttl_ms,
        }));
    }
    let has_leases = namespaces.iter().any(Option::is_some);
    if has_leases {
        let terms = lease_terms(options);
        let patience = give_up.saturating_duration_since(Instant::now());
        let ensured = ensure(&client, &terms, &epoch_of(&options.node, &terms.name, 0), patience).await;
        differences.extend(ensured.map_err(ClusterFault::Stream)?.differences);
    }
    let core = Core::new(CoreOptions {
        prefix: options.prefix.clone(),
        node: options.node.clone(),
        namespaces,
        broadcasts: options.broadcasts.clone(),
        has_leases,
        limits: options.limits.clone(),
    });
    Ok(Prepared { core, differences, payload_bytes_max: there })
}

async fn open_patiently(options: &ClusterOptions, give_up: Instant) -> Result<NatsClient, ClusterFault> {
    loop {
        match open_once(&options.links).await {
            Ok(client) => return Ok(client),
            Err(faults) if faults.is_refused || Instant::now() >= give_up => return Err(ClusterFault::Connect(faults)),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Creates and checks the streams of a namespace. The first stream determines their number.
async fn prepare_namespace(
    client: &NatsClient,
    options: &ClusterOptions,
    namespace: &ClusterNamespace,
    give_up: Instant,
) -> Result<(u16, Vec<StreamDifference>), ClusterFault> {
    let first = PartitionNames::new(&options.prefix, &namespace.name, 0);
    let there = loop {
        match partitions_there(client, &first.stream).await {
            Ok(there) => break there,
            Err(StreamFault::Silent { .. } | StreamFault::JetStreamOff { .. }) if Instant::now() < give_up => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(fault) => return Err(ClusterFault::Stream(fault)),
        }
    };
    let partitions = there.unwrap_or(options.partitions).max(1);
    let mut differences = Vec::new();
    for part in 0..partitions {
        let terms = terms_of(options, namespace, part, partitions);
        let patience = give_up.saturating_duration_since(Instant::now());
        let ensured = ensure(client, &terms, &epoch_of(&options.node, &terms.name, 0), patience).await;
        differences.extend(ensured.map_err(ClusterFault::Stream)?.differences);
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
