//! Presence of a channel on all nodes of a cluster. Commands about the same channel share queries to the other nodes.
//! Only one query is in flight at a time. Commands that arrive during it wait for the next one, because its answers may
//! be older than the commands.

use std::{collections::BTreeMap, sync::Arc};

use dunlin_protocol::ErrorCode;

use crate::{
    Effect, Effects,
    event::{ClusterPresence, PeerQueryNumber, PresenceKind},
    history_stream::present_bytes_max,
    message::{Asker, Notice},
};

use super::{Context, Owner};

/// A waiting command, with the size limit of its reply.
type Waiting = (Asker, usize);

/// The queries about one channel.
#[derive(Debug)]
struct ChannelQueries {
    channel: Arc<str>,
    kind: PresenceKind,
    /// Commands that the query in flight answers.
    asked: Vec<Waiting>,
    /// Commands that arrived later.
    next: Vec<Waiting>,
}

/// Queries to other nodes.
#[derive(Debug, Default)]
pub(super) struct PeerQueries {
    by_number: BTreeMap<PeerQueryNumber, ChannelQueries>,
    by_channel: BTreeMap<(Arc<str>, PresenceKind), PeerQueryNumber>,
    numbered: u64,
    waiting: usize,
}

impl PeerQueries {
    fn next_number(&mut self) -> PeerQueryNumber {
        self.numbered += 1;
        PeerQueryNumber(self.numbered)
    }
}

impl Owner {
    /// Answers a presence command, at once or when the other nodes have answered.
    pub(in crate::shard) fn serve_presence(
        &mut self,
        context: &mut Context,
        channel: Arc<str>,
        kind: PresenceKind,
        bytes_max: usize,
        asker: Asker,
    ) {
        if context.options.log.peer_queries_max == 0 {
            let outcome = match kind {
                PresenceKind::Clients => {
                    self.presence_within(context, &channel, bytes_max).map(ClusterPresence::Clients)
                }
                PresenceKind::Stats => {
                    let (num_clients, num_users) = self.presence_stats(&channel);
                    Ok(ClusterPresence::Stats { num_clients, num_users })
                }
            };
            return answer(context, channel, kind, asker, outcome);
        }
        let queries = &mut self.peer_queries;
        if queries.waiting >= context.options.log.peer_queries_max {
            return answer(context, channel, kind, asker, Err(ErrorCode::TooManyRequests));
        }
        queries.waiting += 1;
        let under_way = queries.by_channel.get(&(Arc::clone(&channel), kind));
        if let Some(query) = under_way.and_then(|number| queries.by_number.get_mut(number)) {
            query.next.push((asker, bytes_max));
        } else {
            self.ask_peers(channel, kind, vec![(asker, bytes_max)], &mut context.effects);
        }
    }

    fn ask_peers(&mut self, channel: Arc<str>, kind: PresenceKind, asked: Vec<Waiting>, effects: &mut Effects) {
        let queries = &mut self.peer_queries;
        let query = queries.next_number();
        queries.by_channel.insert((Arc::clone(&channel), kind), query);
        let of_channel = ChannelQueries { channel: Arc::clone(&channel), kind, asked, next: Vec::new() };
        queries.by_number.insert(query, of_channel);
        effects.list.push(Effect::QueryPeers { query, channel, kind });
    }

    /// Answers the commands that waited for the other nodes.
    pub(in crate::shard) fn peers_answered(
        &mut self,
        context: &mut Context,
        query: PeerQueryNumber,
        outcome: &Result<ClusterPresence, ErrorCode>,
    ) {
        let queries = &mut self.peer_queries;
        let Some(ChannelQueries { channel, kind, asked, next }) = queries.by_number.remove(&query) else { return };
        queries.by_channel.remove(&(Arc::clone(&channel), kind));
        queries.waiting -= asked.len();
        for (asker, bytes_max) in asked {
            let fits = match outcome {
                Ok(ClusterPresence::Clients(clients)) => {
                    clients.iter().try_fold(bytes_max, |left, info| left.checked_sub(present_bytes_max(info))).is_some()
                }
                _ => true,
            };
            let reply = if fits { outcome.clone() } else { Err(ErrorCode::LimitExceeded) };
            if !fits && let Ok(namespace) = context.names.resolve(&channel) {
                context.count(namespace).presences_refused += 1;
            }
            answer(context, Arc::clone(&channel), kind, asker, reply);
        }
        if !next.is_empty() {
            self.ask_peers(channel, kind, next, &mut context.effects);
        }
    }

    /// The number of commands that wait for other nodes.
    pub(in crate::shard) const fn peer_queries_waiting(&self) -> usize {
        self.peer_queries.waiting
    }
}

fn answer(
    context: &mut Context,
    channel: Arc<str>,
    kind: PresenceKind,
    asker: Asker,
    outcome: Result<ClusterPresence, ErrorCode>,
) {
    let notice = match kind {
        PresenceKind::Clients => {
            let outcome = outcome.and_then(|presence| match presence {
                ClusterPresence::Clients(clients) => Ok(clients),
                ClusterPresence::Stats { .. } => Err(ErrorCode::Internal),
            });
            Notice::Presence { channel, asker, outcome }
        }
        PresenceKind::Stats => {
            let outcome = outcome.and_then(|presence| match presence {
                ClusterPresence::Stats { num_clients, num_users } => Ok((num_clients, num_users)),
                ClusterPresence::Clients(_) => Err(ErrorCode::Internal),
            });
            Notice::PresenceStats { channel, asker, outcome }
        }
    };
    context.notify(asker.shard, notice);
}
