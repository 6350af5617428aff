//! Presence of a channel on all nodes of a cluster. Commands about the same channel share queries to the other nodes.
//! Only one query is in flight at a time. Commands that arrive during it wait for the next one, because its answers may
//! be older than the commands.

use std::{collections::BTreeMap, sync::Arc};

use dunlin_protocol::{ClientInfo, ErrorCode};

use crate::{
    Effect, Effects,
    channel::OwnedChannel,
    event::{ClusterPresence, PeerQueryNumber, PresenceKind},
    history_stream::present_bytes_max,
    message::{Asker, Notice},
    refused::Refused,
};

use super::Context;

const TOO_MANY: &str =
    "broker.nats.peers.presence_limit requests for presence wait for other nodes; raise it, or send fewer at once";
const TOO_LONG: &str = "the presence is larger than client.presence_reply_size_limit; raise it (at most client.queue_max_size), or use presence_stats";

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
pub(in crate::shard) struct PresenceQueries {
    by_number: BTreeMap<PeerQueryNumber, ChannelQueries>,
    by_channel: BTreeMap<(Arc<str>, PresenceKind), PeerQueryNumber>,
    numbered: u64,
    waiting: usize,
}

/// A command that asks for a channel's presence.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct PresenceCommand {
    pub(in crate::shard) kind: PresenceKind,
    /// The limit of the reply.
    pub(in crate::shard) bytes_max: usize,
    pub(in crate::shard) asker: Asker,
}

impl PresenceQueries {
    /// Answers a presence command, at once or when the other nodes have answered. `owned` is the channel, if it exists
    /// on this node.
    pub(super) fn serve(
        &mut self,
        context: &mut Context,
        channel: Arc<str>,
        owned: Option<&OwnedChannel>,
        command: PresenceCommand,
    ) {
        let PresenceCommand { kind, bytes_max, asker } = command;
        if !context.options.log.has_peers() {
            let outcome = match kind {
                PresenceKind::Clients => presence_within(context, owned, bytes_max).map(ClusterPresence::Clients),
                PresenceKind::Stats => {
                    let (num_clients, num_users) = owned.map_or((0, 0), OwnedChannel::presence_stats);
                    Ok(ClusterPresence::Stats { num_clients, num_users })
                }
            };
            return answer(context, channel, kind, asker, outcome);
        }
        if self.waiting >= context.options.log.peer_queries_max {
            return answer(context, channel, kind, asker, Err(Refused::new(ErrorCode::TooManyRequests, TOO_MANY)));
        }
        self.waiting += 1;
        let under_way = self.by_channel.get(&(Arc::clone(&channel), kind));
        if let Some(query) = under_way.and_then(|number| self.by_number.get_mut(number)) {
            query.next.push((asker, bytes_max));
        } else {
            self.ask_peers(channel, kind, vec![(asker, bytes_max)], &mut context.effects);
        }
    }

    fn ask_peers(&mut self, channel: Arc<str>, kind: PresenceKind, asked: Vec<Waiting>, effects: &mut Effects) {
        self.numbered += 1;
        let query = PeerQueryNumber(self.numbered);
        self.by_channel.insert((Arc::clone(&channel), kind), query);
        let of_channel = ChannelQueries { channel: Arc::clone(&channel), kind, asked, next: Vec::new() };
        self.by_number.insert(query, of_channel);
        effects.list.push(Effect::QueryPeers { query, channel, kind });
    }

    /// Answers the commands that waited for the other nodes.
    pub(in crate::shard) fn peers_answered(
        &mut self,
        context: &mut Context,
        query: PeerQueryNumber,
        outcome: &Result<ClusterPresence, ErrorCode>,
    ) {
        let Some(ChannelQueries { channel, kind, asked, next }) = self.by_number.remove(&query) else { return };
        self.by_channel.remove(&(Arc::clone(&channel), kind));
        self.waiting -= asked.len();
        for (asker, bytes_max) in asked {
            let fits = match outcome {
                Ok(ClusterPresence::Clients(clients)) => {
                    clients.iter().try_fold(bytes_max, |left, info| left.checked_sub(present_bytes_max(info))).is_some()
                }
                _ => true,
            };
            let reply = if fits {
                outcome.clone().map_err(Refused::from)
            } else {
                Err(Refused::new(ErrorCode::LimitExceeded, TOO_LONG))
            };
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
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }
}

/// The sessions in a channel's presence, unless the reply exceeds its limit. A truncated list would look complete.
fn presence_within(
    context: &mut Context,
    channel: Option<&OwnedChannel>,
    bytes_max: usize,
) -> Result<Vec<Arc<ClientInfo>>, Refused> {
    let Some(channel) = channel else { return Ok(Vec::new()) };
    if channel.clients_fit(bytes_max) {
        return Ok(channel.clients());
    }
    context.count(channel.namespace).presences_refused += 1;
    Err(Refused::new(ErrorCode::LimitExceeded, TOO_LONG))
}

fn answer(
    context: &mut Context,
    channel: Arc<str>,
    kind: PresenceKind,
    asker: Asker,
    outcome: Result<ClusterPresence, Refused>,
) {
    let notice = match kind {
        PresenceKind::Clients => {
            let outcome = outcome.and_then(|presence| match presence {
                ClusterPresence::Clients(clients) => Ok(clients),
                ClusterPresence::Stats { .. } => Err(ErrorCode::Internal.into()),
            });
            Notice::Presence { channel, asker, outcome }
        }
        PresenceKind::Stats => {
            let outcome = outcome.and_then(|presence| match presence {
                ClusterPresence::Stats { num_clients, num_users } => Ok((num_clients, num_users)),
                ClusterPresence::Clients(_) => Err(ErrorCode::Internal.into()),
            });
            Notice::PresenceStats { channel, asker, outcome }
        }
    };
    context.notify(asker.shard, notice);
}
