//! Metrics of the cluster.

use dunlin_cluster::{core::BroadcastDrop, link::LinkName, thread::ClusterState};

use super::{Page, m};
use crate::peers::{QuestionCounts, QuestionQueue};

/// Reads a value of the state.
type Pick = fn(&ClusterState) -> u64;

/// Adds the families; without a cluster they have no samples.
pub(super) fn cluster(page: &mut Page, state: Option<&ClusterState>, peers: Option<&QuestionCounts>) {
    page.family(&m::CLUSTER_READY, |samples| {
        if let Some(state) = state {
            samples.add(&[], u8::from(state.is_ready));
        }
    });
    page.family(&m::CLUSTER_STREAMS_UNUSABLE, |samples| {
        if let Some(state) = state {
            samples.add(&[], state.unusable_streams.len());
        }
    });
    page.family(&m::CLUSTER_CONNECTIONS_OPENED, |samples| {
        if let Some(state) = state {
            for (link, opened) in LinkName::ALL.into_iter().zip(state.counters.links_opened) {
                samples.add(&[link.label()], opened);
            }
        }
    });
    channels(page, state);
    broadcasts(page, state);
    nodes(page, state);
    questions(page, peers);
}

/// Adds the families of questions between nodes.
fn questions(page: &mut Page, peers: Option<&QuestionCounts>) {
    page.family(&m::CLUSTER_QUESTIONS_REFUSED, |samples| {
        if let Some(peers) = peers {
            for (queue, refused) in QuestionQueue::ALL.into_iter().zip(peers.questions_refused) {
                samples.add(&[queue.label()], refused);
            }
        }
    });
    page.family(&m::CLUSTER_NOT_UNDERSTOOD, |samples| {
        if let Some(peers) = peers {
            samples.add(&["question"], peers.questions_not_understood);
            samples.add(&["answer"], peers.answers_not_understood);
        }
    });
}

/// Adds the families of messages with an offset.
fn channels(page: &mut Page, state: Option<&ClusterState>) {
    singles(
        page,
        state,
        &[
            (&m::CLUSTER_FOLLOWED, |state| state.counters.followed),
            (&m::CLUSTER_LINGERING, |state| state.counters.lingering),
            (&m::CLUSTER_ATTACHED, |state| state.counters.attached),
            (&m::CLUSTER_IN_FLIGHT, |state| state.counters.in_flight),
            (&m::CLUSTER_WINDOW_BYTES, |state| state.counters.window_bytes),
            (&m::CLUSTER_SEEN_KEYS, |state| state.counters.seen_keys),
            (&m::CLUSTER_SEEN_KEYS_BYTES, |state| state.counters.seen_keys_bytes),
            (&m::CLUSTER_KEYS_ANSWERED, |state| state.counters.keys_answered),
            (&m::CLUSTER_KEYS_UNANSWERED, |state| state.counters.keys_unanswered),
            (&m::CLUSTER_RETRIES, |state| state.counters.retries),
            (&m::CLUSTER_ABANDONED, |state| state.counters.abandoned),
            (&m::CLUSTER_RECEIVED, |state| state.counters.delivered),
            (&m::CLUSTER_KNOWN, |state| state.counters.late),
            (&m::CLUSTER_GAPS, |state| state.counters.gaps),
            (&m::CLUSTER_LOST_TAILS, |state| state.counters.lost_tails),
            (&m::CLUSTER_TRUNCATIONS, |state| state.counters.truncations),
            (&m::CLUSTER_HOLES, |state| state.counters.holes),
            (&m::CLUSTER_STREAMS_ABSENT, |state| state.counters.streams_absent),
            (&m::CLUSTER_STREAMS_CREATED, |state| state.counters.streams_created),
            (&m::CLUSTER_FILLED, |state| state.counters.filled),
            (&m::CLUSTER_INTERRUPTED, |state| state.counters.interrupted),
            (&m::CLUSTER_UNDELIVERED, |state| state.counters.undelivered),
            (&m::CLUSTER_OVERFLOWS, |state| state.counters.overflows),
            (&m::CLUSTER_AUDITS, |state| state.counters.audits),
            (&m::CLUSTER_AHEAD, |state| state.counters.ahead),
            (&m::CLUSTER_READS, |state| state.counters.reads),
            (&m::CLUSTER_SHARED_READS, |state| state.counters.shared_reads),
            (&m::CLUSTER_PEER_WINDOWS, |state| state.counters.peer_windows),
            (&m::CLUSTER_STALE_ANSWERS, |state| state.counters.stale_answers),
            (&m::CLUSTER_DAMAGED, |state| state.counters.damaged_messages),
            (&m::CLUSTER_LATE, |state| state.counters.strays.late),
            (&m::CLUSTER_IMPOSSIBLE, |state| state.counters.strays.impossible),
        ],
    );
}

/// Adds the families of connections, queues and other nodes.
fn nodes(page: &mut Page, state: Option<&ClusterState>) {
    singles(
        page,
        state,
        &[
            (&m::CLUSTER_SILENCES, |state| state.counters.silences),
            (&m::CLUSTER_REQUESTS_QUEUED, |state| state.requests_queued as u64),
            (&m::CLUSTER_REQUESTS_REFUSED, |state| state.requests_refused as u64),
            (&m::CLUSTER_EFFECTS_WAITING, |state| state.effects_waiting as u64),
            (&m::CLUSTER_PEERS, |state| state.counters.peers.live),
            (&m::CLUSTER_PEERS_OTHER_VERSION, |state| state.counters.peers.other_version),
            (&m::CLUSTER_PEERS_CLOCK_OFF, |state| state.counters.peers.clock_off),
            (&m::CLUSTER_SAME_ID, |state| u64::from(state.counters.peers.same_id)),
            (&m::CLUSTER_PEERS_LOST, |state| state.counters.peers.lost),
            (&m::CLUSTER_LEASE_HELD, |state| u64::from(state.counters.leases.term > 0)),
            (&m::CLUSTER_LEASES_ELSEWHERE, |state| state.counters.leases.others),
            (&m::CLUSTER_LEASES_LOST, |state| state.counters.leases.lost),
            (&m::CLUSTER_LEASES_TAKEN, |state| state.counters.leases.taken),
            (&m::CLUSTER_SURVEYS, |state| state.counters.peers.surveys),
            (&m::CLUSTER_SURVEYS_PARTIAL, |state| state.counters.peers.incomplete),
            (&m::CLUSTER_SURVEYS_REFUSED, |state| state.counters.peers.surveys_refused),
            (&m::CLUSTER_QUERIES, |state| state.counters.peers.queries),
            (&m::CLUSTER_QUERIES_REFUSED, |state| state.counters.peers.queries_refused),
            (&m::CLUSTER_USERS_ELSEWHERE, |state| state.counters.peers.users_elsewhere),
            (&m::CLUSTER_USERS_UNCOUNTED, |state| state.counters.peers.users_uncounted),
            (&m::CLUSTER_PEER_MESSAGES_DROPPED, |state| state.counters.peers.dropped + state.counters.leases.dropped),
        ],
    );
}

/// Adds the families of messages without an offset.
fn broadcasts(page: &mut Page, state: Option<&ClusterState>) {
    singles(
        page,
        state,
        &[
            (&m::CLUSTER_BROADCAST_CHANNELS, |state| state.counters.broadcast_channels),
            (&m::CLUSTER_FOLLOWS_UNCONFIRMED, |state| state.counters.follows_unconfirmed),
            (&m::CLUSTER_BROADCASTS_SENT, |state| state.counters.broadcasts_sent),
            (&m::CLUSTER_BROADCASTS_RECEIVED, |state| state.counters.broadcasts_received),
        ],
    );
    page.family(&m::CLUSTER_BROADCASTS_DROPPED, |samples| {
        if let Some(state) = state {
            for (why, dropped) in BroadcastDrop::ALL.into_iter().zip(state.counters.broadcasts_dropped) {
                samples.add(&[why.label()], dropped);
            }
        }
    });
}

/// Adds families without labels.
fn singles(page: &mut Page, state: Option<&ClusterState>, families: &[(&'static m::Family, Pick)]) {
    for (family, pick) in families {
        page.family(family, |samples| state.iter().for_each(|state| samples.add(&[], pick(state))));
    }
}
