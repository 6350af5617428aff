//! What happens before the thread runs: the first connection, and the streams.

use std::time::{Duration, Instant};

use crate::{
    core::{Core, CoreOptions, StreamedNamespace},
    links::{NatsClient, open_once},
    names::PartitionNames,
    streams::{StreamDifference, StreamFault, StreamTerms, ensure, partitions_there},
};

use super::{ClusterFault, ClusterNamespace, ClusterOptions};

/// Headers of a publication, in addition to its body.
pub(crate) const HEADER_BYTES: usize = 4_096;
/// Pause between attempts to connect at the start.
const PAUSE: Duration = Duration::from_millis(100);
/// Streams keep messages for longer than positions are valid, so that clocks may differ by as much.
const AGE_MARGIN_MS: u64 = 60_000;

/// What the start of a cluster's thread has led to.
pub(super) struct Prepared {
    pub(super) core: Core,
    pub(super) differences: Vec<StreamDifference>,
    /// The largest message that the servers take.
    pub(super) payload_bytes_max: usize,
}

/// Makes and checks the streams.
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
    let core = Core::new(CoreOptions {
        prefix: options.prefix.clone(),
        node: options.node.clone(),
        namespaces,
        broadcasts: options.broadcasts.clone(),
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

/// Makes and checks the streams of a namespace. Their number is what the first one says.
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
        let ensured = ensure(client, &terms, &epoch_of(&options.node, &terms.name), patience).await;
        differences.extend(ensured.map_err(ClusterFault::Stream)?.differences);
    }
    Ok((partitions, differences))
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

/// An epoch that no other run and no other stream has: a node's name is random for each run.
fn epoch_of(node: &str, stream: &str) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let bytes = node.bytes().chain([0]).chain(stream.bytes());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mixed = (hash ^ (hash >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..8).map(|place| char::from(ALPHABET[usize::try_from(mixed >> (24 + 5 * place) & 31).unwrap_or(0)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_eight_characters_and_differ() {
        let epochs = [epoch_of("a", "s_0"), epoch_of("a", "s_1"), epoch_of("b", "s_0")];
        assert!(epochs.iter().all(|epoch| epoch.len() == 8), "{epochs:?}");
        assert!(epochs[0] != epochs[1] && epochs[0] != epochs[2] && epochs[1] != epochs[2], "{epochs:?}");
    }
}
