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

use crate::{names::encode_token, planted::CoreBug};

use super::{
    Core, Timer,
    peer_window::WindowMessage,
    publish::{KeyCheck, PublishingKey},
    seen_idempotency_keys::SeenKey,
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

/// The questions that wait for answers, by channel. Each of them has messages of this node that wait.
#[derive(Debug, Default)]
pub(super) struct KeyQuestions {
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

impl Core {
    /// Whether a message with an idempotency key may be sent to a channel. If not, other nodes are being asked, and the
    /// channel's messages are sent after that.
    pub(super) fn is_key_checked(&mut self, name: &Arc<str>, key: PublishingKey) -> bool {
        let (Some(channel), Some(publishing)) = (self.channels.get(name), self.outgoing.by_key.get(&key)) else {
            return true;
        };
        if publishing.key_check != KeyCheck::Needed {
            return publishing.key_check != KeyCheck::Asking;
        }
        let facts = self.partitions[channel.partition].stream.facts.as_ref();
        let window_us = facts.map_or(u64::MAX, |facts| facts.duplicate_window_ms.saturating_mul(1_000));
        let is_known_here = self.context.now.mono_us >= channel.attached_us.saturating_add(window_us)
            || self.sequence_of_key(&publishing.id, self.context.now).is_some();
        // Nobody knows of a node that is not a member yet, or any more.
        if is_known_here || !self.peers.is_member() || self.context.planted.is(CoreBug::KeysNotAsked) {
            return true;
        }
        if self.key_questions.pending.contains_key(name) {
            return false;
        }
        let messages = self.messages_to_check(name);
        for key in &messages {
            if let Some(publishing) = self.outgoing.by_key.get_mut(key) {
                publishing.key_check = KeyCheck::Asking;
            }
        }
        let (number, give_up_us) = (self.context.next_number(), self.key_answers_due_us());
        let (asked, unanswered) = (BTreeSet::new(), BTreeSet::new());
        let question = PendingQuestion { number, messages, asked, unanswered, give_up_us, due_us: 0 };
        self.advance_key_question(name, question)
    }

    fn key_answers_due_us(&self) -> u64 {
        self.context.now.after_ms(self.context.options.limits.peers.survey_timeout_ms)
    }

    /// Asks the nodes that a question has not reached. Returns whether the question has ended, so that its messages may be
    /// sent: all nodes have answered, or the time is over.
    fn advance_key_question(&mut self, name: &Arc<str>, mut question: PendingQuestion) -> bool {
        let now_us = self.context.now.mono_us;
        // Until it is known which nodes there are, this is tried again.
        let retry_us = self.context.now.after_ms(self.context.options.limits.peers.heartbeat_interval_ms / 2);
        let due_us = if self.peers.is_connected_member() {
            let nodes = self.nodes_with_keys();
            let new = nodes.difference(&question.asked).cloned().collect::<BTreeSet<_>>();
            if !new.is_empty() {
                self.ask_nodes_for_keys(name, &question, &new);
                question.give_up_us = self.key_answers_due_us();
                question.unanswered.extend(new.iter().cloned());
                question.asked.extend(new);
            }
            let may_miss_nodes = self.peers.may_miss_nodes(now_us) || !self.leases.are_known();
            let in_row = &self.key_questions.unanswered_in_row;
            let awaited = question.unanswered.intersection(&nodes).any(|node| is_awaited(in_row, node));
            let is_answered = !awaited && !may_miss_nodes;
            // A connection that delivers nothing must not keep this node from publishing.
            if is_answered || question.give_up_us <= now_us {
                self.context.counters.keys_unanswered += u64::from(!is_answered || !question.unanswered.is_empty());
                if !may_miss_nodes {
                    self.note_unanswered(question.unanswered.intersection(&nodes));
                }
                self.mark_checked(&question.messages);
                return true;
            }
            if may_miss_nodes { question.give_up_us.min(retry_us) } else { question.give_up_us }
        } else if self.peers.is_member() {
            // Questions and answers may be lost with a connection. All nodes are asked when it is back.
            question.asked.clear();
            question.unanswered.clear();
            question.give_up_us = self.key_answers_due_us();
            retry_us
        } else {
            self.mark_checked(&question.messages);
            return true;
        };
        if question.due_us != due_us {
            question.due_us = due_us;
            self.context.set_timer(due_us, Timer::PeerKeys(Arc::clone(name)));
        }
        self.key_questions.pending.insert(Arc::clone(name), question);
        false
    }

    /// The nodes that may have seen a key: those that send heartbeats, and those that hold a lease although no heartbeat of
    /// theirs has arrived. The stream of leases still names a node whose messages are lost between two servers.
    fn nodes_with_keys(&self) -> BTreeSet<Box<str>> {
        let mut nodes = self.peers.nodes_alike();
        nodes.extend(self.leases.holders().filter(|node| !self.peers.is_known(node)).map(Box::from));
        nodes
    }

    /// Notes the nodes that did not answer, unless it is this node that nothing reaches.
    fn note_unanswered<'a>(&mut self, nodes: impl Iterator<Item = &'a Box<str>>) {
        let (now_us, period_us) =
            (self.context.now.mono_us, self.context.options.limits.peers.survey_timeout_ms * 1_000);
        for node in nodes {
            let unanswered = self.key_questions.unanswered_in_row.entry(node.clone()).or_default();
            if unanswered.periods == 0 || now_us >= unanswered.counted_us + period_us {
                *unanswered = Unanswered { periods: unanswered.periods + 1, counted_us: now_us };
            }
        }
    }

    /// The messages of a channel with keys that no node was asked for, as many as fit into a question.
    fn messages_to_check(&self, name: &str) -> Vec<PublishingKey> {
        let Some(channel) = self.channels.get(name) else { return Vec::new() };
        let mut bytes = 0;
        let of_channel = channel.outbox.unsent.iter().filter_map(|key| Some((*key, self.outgoing.by_key.get(key)?)));
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

    fn ask_nodes_for_keys(&mut self, name: &Arc<str>, question: &PendingQuestion, nodes: &BTreeSet<Box<str>>) {
        let channel = self.context.strays.expected(self.channels.get(name), "a detached channel drops its question");
        let Some(channel) = channel else { return };
        let partition = &self.partitions[channel.partition];
        let prefix = key_prefix(name);
        let messages = question.messages.iter().filter_map(|key| self.outgoing.by_key.get(key));
        let keys = messages.filter_map(|publishing| publishing.id.strip_prefix(&*prefix));
        let question = KeyQuestion {
            number: question.number,
            node: self.context.options.node.clone(),
            channel: Box::from(&**name),
            stream: partition.stream.names.stream.clone(),
            epoch: partition.stream.current_epoch().into(),
            keys: keys.map(Box::from).collect(),
        };
        let body = WindowMessage::KeyQuestion(question).encode();
        for node in nodes {
            let subject = self.peers.window_subject_of(node);
            self.peers.send_window_message(&mut self.context, subject, body.clone());
        }
    }

    /// Answers with the keys of a question that this node has seen in the epoch of the other node. In another epoch, the
    /// publications may be lost.
    pub(super) fn answer_key_question(&mut self, question: KeyQuestion) {
        let KeyQuestion { number, node, channel, stream, epoch, keys } = question;
        // The node may be unknown here: it asks whoever holds a lease, also while no heartbeat arrives.
        let subject = self.peers.window_subject_of(&node);
        let of_stream = self.partitions.ids().find(|id| self.partitions[*id].stream.names.stream == stream);
        let of_epoch = of_stream.filter(|id| *self.partitions[*id].stream.current_epoch() == *epoch);
        let prefix = key_prefix(&channel);
        let seen = |key: Box<str>| {
            let seen = self.seen_keys.get(&format!("{prefix}{key}"), self.context.now)?;
            let is_of_epoch = Some(seen.partition) == of_epoch;
            is_of_epoch.then_some(AnsweredKey { key, sequence: seen.sequence, until_ms: seen.until_ms })
        };
        let seen = keys.into_iter().take(KEYS_MAX).filter_map(seen).collect();
        let node = self.context.options.node.clone();
        let body = WindowMessage::KeyAnswer(KeyAnswer { number, node, channel, epoch, seen }).encode();
        self.peers.send_window_message(&mut self.context, subject, body);
    }

    pub(super) fn on_key_answer(&mut self, answer: KeyAnswer) {
        let KeyAnswer { number, node, channel, epoch, seen } = answer;
        let name: &Arc<str> = &Arc::from(channel);
        // An answer that comes after its time is still true.
        let of_channel = self.channels.get(name).map(|channel| channel.partition);
        if let Some(partition) = of_channel.filter(|id| *self.partitions[*id].stream.current_epoch() == *epoch) {
            let prefix = key_prefix(name);
            for AnsweredKey { key, sequence, until_ms } in seen.into_iter().take(KEYS_MAX) {
                self.remember_key(format!("{prefix}{key}").into(), SeenKey { partition, sequence, until_ms });
            }
        }
        self.key_questions.unanswered_in_row.remove(&node);
        let question = self.key_questions.pending.get_mut(name).filter(|question| question.number == number);
        let Some(question) = self.context.strays.found_or_late(question) else { return };
        question.unanswered.remove(&node);
        // A node that is gone in the meantime has changed the table, and with it the question.
        let in_row = &self.key_questions.unanswered_in_row;
        if !question.unanswered.iter().any(|node| is_awaited(in_row, node)) {
            self.review_key_question(name);
        }
    }

    /// A question is due: it was not answered, or it is not known yet which nodes there are.
    pub(super) fn keys_overdue(&mut self, name: &Arc<str>) {
        let now_us = self.context.now.mono_us;
        if self.key_questions.pending.get(name).is_some_and(|question| question.due_us <= now_us) {
            self.review_key_question(name);
        }
    }

    /// Handles a change of the table of nodes, or of the connections: other nodes are to be asked, and no answer is expected
    /// of nodes that are gone.
    pub(super) fn review_key_questions(&mut self) {
        let now = (self.peers.table_version(), self.peers.is_connected_member());
        if std::mem::replace(&mut self.key_questions.reviewed, now) == now {
            return;
        }
        if now.1 {
            let nodes = self.nodes_with_keys();
            self.key_questions.unanswered_in_row.retain(|node, _| nodes.contains(node));
        } else {
            // What was lost with the connection says nothing of the nodes.
            self.key_questions.unanswered_in_row.clear();
        }
        let names: Vec<Arc<str>> = self.key_questions.pending.keys().cloned().collect();
        for name in names {
            self.review_key_question(&name);
        }
    }

    fn review_key_question(&mut self, name: &Arc<str>) {
        let Some(mut question) = self.key_questions.pending.remove(name) else { return };
        // Messages that have waited for longer than a publication may, such as without a connection, have ended.
        question.messages.retain(|key| self.outgoing.by_key.contains_key(key));
        if question.messages.is_empty() || self.advance_key_question(name, question) {
            self.send_of_channel(name);
        }
    }

    /// A channel is detached, and its messages have ended.
    pub(super) fn drop_key_question(&mut self, name: &str) {
        self.key_questions.pending.remove(name);
    }

    fn mark_checked(&mut self, messages: &[PublishingKey]) {
        for key in messages {
            if let Some(publishing) = self.outgoing.by_key.get_mut(key) {
                publishing.key_check = KeyCheck::Done;
            }
        }
    }
}

/// How the ids of a channel's keys begin. A token contains no dot, so the ids of two channels differ.
pub(super) fn key_prefix(channel: &str) -> String {
    format!("{}.", encode_token(channel))
}

#[cfg(test)]
mod tests;
