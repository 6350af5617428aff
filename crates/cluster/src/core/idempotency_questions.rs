//! Idempotency keys that other nodes have seen.
//!
//! A node sees the keys of a channel from its attach on ([`super::seen_idempotency_keys`]). A key that was used before, and whose
//! publication has left the history, is known only to nodes that followed the channel then. NATS servers know it as
//! well, until they restart. So during the duplicate window after an attach, a node asks the other nodes for each key
//! before it publishes with it. The channel's messages wait meanwhile, because they are sent in order. Those with keys
//! that wait at the same time share a question, and a channel has one in flight.
//!
//! The alternative, all keys of the channel at the first one, is one question instead of many. But its answer grows with
//! the use of the channel, not with what is asked: a part of it can be lost unnoticed, and it displaces newer keys of
//! other channels here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{link::MessageHeaders, names::encode_token};

use super::{
    Context, Timer,
    channels::Channels,
    leases::Leases,
    partition::Partitions,
    peer_window::WindowMessage,
    peers::Peers,
    publish::{KeyCheck, Messages, PublishingKey},
    seen_idempotency_keys::{SeenKey, SeenKeys},
};

/// Maximum number and bytes of the keys in a question. The others wait for the next one.
const KEYS_MAX: usize = 256;
const KEY_BYTES_MAX: usize = 16 << 10;

/// A node that has left questions of this number of periods in a row unanswered is asked, but not awaited, until it answers
/// one. Otherwise it would delay each key of each channel. A period is the time for an answer: what is lost at one moment,
/// of any number of channels, counts once, because it says nothing of a node.
const UNANSWERED_MAX: u32 = 3;

/// A question to all other nodes.
#[derive(Debug)]
struct PendingQuestion {
    number: u64,
    /// The messages whose keys are asked for.
    messages: Vec<PublishingKey>,
    /// The nodes that were asked since this node has its connections.
    asked: BTreeSet<Box<str>>,
    /// Those of them that have not answered.
    unanswered: BTreeSet<Box<str>>,
    /// When the messages are sent without an answer.
    give_up_us: u64,
    due_us: u64,
}

/// The keys that this node has seen, and its questions for those that other nodes have seen.
#[derive(Debug, Default)]
pub(super) struct KeyQuestions {
    pub(super) seen: SeenKeys,
    /// The questions that wait for answers, by channel. Each of them has messages of this node that wait.
    pending: BTreeMap<Arc<str>, PendingQuestion>,
    unanswered_in_row: BTreeMap<Box<str>, Unanswered>,
    /// The version of the table of nodes, and whether this node was connected, at the last review.
    reviewed: (u64, bool),
}

/// Periods in a row in which a node left a question unanswered.
#[derive(Debug, Default)]
struct Unanswered {
    periods: u32,
    counted_us: u64,
}

/// Whether a question waits for the answer of a node.
fn is_awaited(unanswered_in_row: &BTreeMap<Box<str>, Unanswered>, node: &str) -> bool {
    unanswered_in_row.get(node).is_none_or(|unanswered| unanswered.periods < UNANSWERED_MAX)
}

/// What questions are about, and whom they go to.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    pub(super) channels: &'a Channels,
    pub(super) partitions: &'a Partitions,
    pub(super) messages: &'a mut Messages,
    pub(super) peers: &'a Peers,
    pub(super) leases: &'a Leases,
}

#[derive(Serialize, Deserialize)]
pub(super) struct KeyQuestion {
    number: u64,
    node: Box<str>,
    channel: Box<str>,
    stream: Box<str>,
    epoch: Box<str>,
    /// The ids of messages, without the channel.
    keys: Vec<Box<str>>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct KeyAnswer {
    number: u64,
    node: Box<str>,
    channel: Box<str>,
    epoch: Box<str>,
    /// The keys of the question that the node has seen.
    seen: Vec<AnsweredKey>,
}

#[derive(Serialize, Deserialize)]
struct AnsweredKey {
    key: Box<str>,
    sequence: u64,
    until_ms: u64,
}

impl KeyQuestions {
    /// Whether a message with an idempotency key may be sent to a channel. If not, other nodes are being asked, and the
    /// channel's messages are sent after that.
    pub(super) fn is_checked(
        &mut self,
        context: &mut Context,
        asking: &mut Asking<'_>,
        name: &Arc<str>,
        key: PublishingKey,
    ) -> bool {
        let (Some(channel), Some(publishing)) = (asking.channels.get(name), asking.messages.get(key)) else {
            return true;
        };
        if publishing.key_check != KeyCheck::Needed {
            return publishing.key_check != KeyCheck::Asking;
        }
        let facts = asking.partitions[channel.partition].stream.facts.as_ref();
        let window_us = facts.map_or(u64::MAX, |facts| facts.duplicate_window_ms.saturating_mul(1_000));
        let is_known_here = context.now.mono_us >= channel.attached_us.saturating_add(window_us)
            || self.seen.sequence_of(&publishing.id, context.now).is_some();
        // Nobody knows of a node that is not a member yet, or any more.
        if is_known_here || !asking.peers.is_member() {
            return true;
        }
        if self.pending.contains_key(name) {
            return false;
        }
        let messages = asking.messages_to_check(name);
        asking.messages.set_key_checks(&messages, KeyCheck::Asking);
        let (number, give_up_us) = (context.next_number(), answers_due_us(context));
        let (asked, unanswered) = (BTreeSet::new(), BTreeSet::new());
        let question = PendingQuestion { number, messages, asked, unanswered, give_up_us, due_us: 0 };
        self.advance(context, asking, name, question)
    }

    /// Asks the nodes that a question has not reached. Returns whether the question has ended, so that its messages may be
    /// sent: all nodes have answered, or the time is over.
    fn advance(
        &mut self,
        context: &mut Context,
        asking: &mut Asking<'_>,
        name: &Arc<str>,
        mut question: PendingQuestion,
    ) -> bool {
        let now_us = context.now.mono_us;
        // Until it is known which nodes there are, this is tried again.
        let retry_us = context.now.after_ms(context.options.limits.peers.heartbeat_interval_ms / 2);
        let due_us = if asking.peers.is_connected_member() {
            let nodes = asking.nodes_with_keys();
            let new = nodes.difference(&question.asked).cloned().collect::<BTreeSet<_>>();
            if !new.is_empty() {
                asking.ask(context, name, &question, &new);
                question.give_up_us = answers_due_us(context);
                question.unanswered.extend(new.iter().cloned());
                question.asked.extend(new);
            }
            let may_miss_nodes = asking.peers.may_miss_nodes(now_us) || !asking.leases.are_known();
            let in_row = &self.unanswered_in_row;
            let awaited = question.unanswered.intersection(&nodes).any(|node| is_awaited(in_row, node));
            let is_answered = !awaited && !may_miss_nodes;
            // A connection that delivers nothing must not keep this node from publishing.
            if is_answered || question.give_up_us <= now_us {
                context.counters.keys_unanswered += u64::from(!is_answered || !question.unanswered.is_empty());
                if !may_miss_nodes {
                    self.note_unanswered(context, question.unanswered.intersection(&nodes));
                }
                asking.messages.set_key_checks(&question.messages, KeyCheck::Done);
                return true;
            }
            if may_miss_nodes { question.give_up_us.min(retry_us) } else { question.give_up_us }
        } else if asking.peers.is_member() {
            // Questions and answers may be lost with a connection. All nodes are asked when it is back.
            question.asked.clear();
            question.unanswered.clear();
            question.give_up_us = answers_due_us(context);
            retry_us
        } else {
            asking.messages.set_key_checks(&question.messages, KeyCheck::Done);
            return true;
        };
        if question.due_us != due_us {
            question.due_us = due_us;
            context.set_timer(due_us, Timer::PeerKeys(Arc::clone(name)));
        }
        self.pending.insert(Arc::clone(name), question);
        false
    }

    /// Notes the nodes that did not answer, unless it is this node that nothing reaches.
    fn note_unanswered<'a>(&mut self, context: &Context, nodes: impl Iterator<Item = &'a Box<str>>) {
        let (now_us, period_us) = (context.now.mono_us, context.options.limits.peers.survey_timeout_ms * 1_000);
        for node in nodes {
            let unanswered = self.unanswered_in_row.entry(node.clone()).or_default();
            if unanswered.periods == 0 || now_us >= unanswered.counted_us + period_us {
                *unanswered = Unanswered { periods: unanswered.periods + 1, counted_us: now_us };
            }
        }
    }

    /// Answers with the keys of a question that this node has seen in the epoch of the other node. In another epoch, the
    /// publications may be lost.
    pub(super) fn answer(&self, context: &mut Context, peers: &Peers, partitions: &Partitions, question: KeyQuestion) {
        let KeyQuestion { number, node, channel, stream, epoch, keys } = question;
        // The node may be unknown here: it asks whoever holds a lease, also while no heartbeat arrives.
        let subject = peers.window_subject_of(&node);
        let of_stream = partitions.iter().map(|partition| &partition.stream).find(|one| one.names.stream == stream);
        let of_epoch = of_stream.filter(|stream| *stream.current_epoch() == *epoch).map(|stream| stream.id);
        let prefix = key_prefix(&channel);
        let seen = |key: Box<str>| {
            let seen = self.seen.get(&format!("{prefix}{key}"), context.now)?;
            let is_of_epoch = Some(seen.partition) == of_epoch;
            is_of_epoch.then_some(AnsweredKey { key, sequence: seen.sequence, until_ms: seen.until_ms })
        };
        let seen = keys.into_iter().take(KEYS_MAX).filter_map(seen).collect();
        let node = context.options.node.clone();
        let body = WindowMessage::KeyAnswer(KeyAnswer { number, node, channel, epoch, seen }).encode();
        context.publish(subject, MessageHeaders::new(), body);
    }

    /// Takes the answer of another node. Returns the channel whose question it ends, if any.
    pub(super) fn take_answer(
        &mut self,
        context: &mut Context,
        asking: &mut Asking<'_>,
        answer: KeyAnswer,
    ) -> Option<Arc<str>> {
        let KeyAnswer { number, node, channel, epoch, seen } = answer;
        let name: Arc<str> = Arc::from(channel);
        // An answer that comes after its time is still true.
        let of_channel = asking.channels.get(&name).map(|channel| &asking.partitions[channel.partition].stream);
        if let Some(stream) = of_channel.filter(|stream| *stream.current_epoch() == *epoch) {
            let prefix = key_prefix(&name);
            for AnsweredKey { key, sequence, until_ms } in seen.into_iter().take(KEYS_MAX) {
                let seen = SeenKey { partition: stream.id, sequence, until_ms };
                self.seen.remember(context, format!("{prefix}{key}").into(), seen);
            }
        }
        self.unanswered_in_row.remove(&node);
        let question = self.pending.get_mut(&name).filter(|question| question.number == number);
        let question = context.strays.found_or_late(question)?;
        question.unanswered.remove(&node);
        // A node that sent heartbeats changes the table when it is gone, and with it the question. One that only held a
        // lease changes nothing.
        let (in_row, peers, leases) = (&self.unanswered_in_row, asking.peers, asking.leases);
        let is_there = |node: &str| peers.is_known(node) || leases.is_holder(node);
        let is_last = !question.unanswered.iter().any(|node| is_there(node) && is_awaited(in_row, node));
        (is_last && self.review(context, asking, &name)).then_some(name)
    }

    /// A question is due: it was not answered, or it is not known yet which nodes there are. Returns whether it ends.
    pub(super) fn overdue(&mut self, context: &mut Context, asking: &mut Asking<'_>, name: &Arc<str>) -> bool {
        let now_us = context.now.mono_us;
        let is_due = self.pending.get(name).is_some_and(|question| question.due_us <= now_us);
        is_due && self.review(context, asking, name)
    }

    /// Notes the table of nodes and the connections. If they have changed, other nodes are to be asked, and no answer is
    /// expected of nodes that are gone. Returns the channels whose questions must be reviewed.
    pub(super) fn note_nodes(&mut self, asking: &Asking<'_>) -> Vec<Arc<str>> {
        let now = (asking.peers.table_version(), asking.peers.is_connected_member());
        if std::mem::replace(&mut self.reviewed, now) == now {
            return Vec::new();
        }
        if now.1 {
            let nodes = asking.nodes_with_keys();
            self.unanswered_in_row.retain(|node, _| nodes.contains(node));
        } else {
            // What was lost with the connection says nothing of the nodes.
            self.unanswered_in_row.clear();
        }
        self.pending.keys().cloned().collect()
    }

    /// Continues a question. Returns whether it ends, so that the channel's messages may be sent.
    pub(super) fn review(&mut self, context: &mut Context, asking: &mut Asking<'_>, name: &Arc<str>) -> bool {
        let Some(mut question) = self.pending.remove(name) else { return false };
        // Messages that have waited for longer than a publication may, such as without a connection, have ended.
        question.messages.retain(|key| asking.messages.get(*key).is_some());
        question.messages.is_empty() || self.advance(context, asking, name, question)
    }

    /// A channel is detached, and its messages have ended.
    pub(super) fn drop_channel(&mut self, name: &str) {
        self.pending.remove(name);
    }
}

impl Asking<'_> {
    /// The nodes that may have seen a key: those that send heartbeats, and those that hold a lease although no heartbeat of
    /// theirs has arrived. The stream of leases still names a node whose messages are lost between two servers.
    fn nodes_with_keys(&self) -> BTreeSet<Box<str>> {
        let mut nodes = self.peers.nodes_alike();
        nodes.extend(self.leases.holders().filter(|node| !self.peers.is_known(node)).map(Box::from));
        nodes
    }

    /// The messages of a channel with keys that no node was asked for, as many as fit into a question.
    fn messages_to_check(&self, name: &str) -> Vec<PublishingKey> {
        let Some(channel) = self.channels.get(name) else { return Vec::new() };
        let mut bytes = 0;
        let of_channel = channel.outbox.unsent.iter().filter_map(|key| Some((*key, self.messages.get(*key)?)));
        of_channel
            .filter(|(_, publishing)| publishing.key_check == KeyCheck::Needed)
            .take_while(|(_, publishing)| {
                bytes += publishing.id.len();
                // One key fits, whatever its length.
                bytes <= KEY_BYTES_MAX.max(publishing.id.len())
            })
            .map(|(key, _)| key)
            .take(KEYS_MAX)
            .collect()
    }

    fn ask(&self, context: &mut Context, name: &Arc<str>, question: &PendingQuestion, nodes: &BTreeSet<Box<str>>) {
        let channel = context.strays.expected(self.channels.get(name), "a detached channel drops its question");
        let Some(channel) = channel else { return };
        let stream = &self.partitions[channel.partition].stream;
        let prefix = key_prefix(name);
        let messages = question.messages.iter().filter_map(|key| self.messages.get(*key));
        let keys = messages.filter_map(|publishing| publishing.id.strip_prefix(&*prefix));
        let question = KeyQuestion {
            number: question.number,
            node: context.options.node.clone(),
            channel: Box::from(&**name),
            stream: stream.names.stream.clone(),
            epoch: stream.current_epoch().into(),
            keys: keys.map(Box::from).collect(),
        };
        let body = WindowMessage::KeyQuestion(question).encode();
        for node in nodes {
            let subject = self.peers.window_subject_of(node);
            context.publish(subject, MessageHeaders::new(), body.clone());
        }
    }
}

/// When the messages of a question that is asked now are sent without an answer.
fn answers_due_us(context: &Context) -> u64 {
    context.now.after_ms(context.options.limits.peers.survey_timeout_ms)
}

/// How the ids of a channel's keys begin. A token contains no dot, so the ids of two channels differ.
pub(super) fn key_prefix(channel: &str) -> String {
    format!("{}.", encode_token(channel))
}

#[cfg(test)]
mod tests;
