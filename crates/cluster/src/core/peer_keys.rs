//! Idempotency keys that other nodes have seen.
//!
//! A node sees the keys of a channel from its attach on ([`super::seen_keys`]). A key that was used before, and whose
//! publication has left the history, is known only to nodes that followed the channel then. NATS servers know it as
//! well, until they restart. So before a node publishes with the first key after an attach, it asks the other nodes for
//! the keys of the channel. The channel's messages wait meanwhile, because they are sent in order. Once a channel has
//! been attached for the whole duplicate window, there is nothing to ask.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    names::{PartitionId, encode_token},
    planted::CoreBug,
};

use super::{Core, Timer, peer_window::WindowMessage, seen_keys::SeenKey};

/// Bytes of the keys in one message. A larger answer has several.
const ANSWER_BYTES_MAX: usize = 128 << 10;

/// What this node knows of a channel's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKnowledge {
    /// The keys of the messages since then.
    Since { mono_us: u64 },
    /// Other nodes are being asked for the rest.
    Asking,
    /// All that any reachable node knows.
    Complete,
}

/// A question to all other nodes.
#[derive(Debug)]
struct PendingQuestion {
    number: u64,
    /// The nodes that have not answered.
    nodes: BTreeSet<Box<str>>,
    due_us: u64,
}

/// The questions that wait for answers, by channel. Each of them has a message of its channel that waits, so the limits
/// of messages in flight bound them.
#[derive(Debug, Default)]
pub(super) struct KeyQuestions {
    pending: BTreeMap<Arc<str>, PendingQuestion>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct KeyQuestion {
    number: u64,
    node: Box<str>,
    channel: Box<str>,
    stream: Box<str>,
    epoch: Box<str>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct KeyAnswer {
    number: u64,
    node: Box<str>,
    channel: Box<str>,
    epoch: Box<str>,
    keys: Vec<AnsweredKey>,
    is_last: bool,
}

#[derive(Serialize, Deserialize)]
struct AnsweredKey {
    /// The id of the message, without the channel.
    key: Box<str>,
    sequence: u64,
    until_ms: u64,
}

impl Core {
    /// Whether a message with an idempotency key may be sent to a channel. If not, the other nodes are being asked, and
    /// the channel's messages are sent after that.
    pub(super) fn knows_keys(&mut self, name: &Arc<str>) -> bool {
        let Some(channel) = self.channels.get(name) else { return true };
        let KeyKnowledge::Since { mono_us } = channel.keys else { return channel.keys == KeyKnowledge::Complete };
        let facts = self.partitions[channel.partition].facts.as_ref();
        let window_us = facts.map_or(u64::MAX, |facts| facts.duplicate_window_ms.saturating_mul(1_000));
        if self.context.now.mono_us >= mono_us.saturating_add(window_us)
            || self.context.planted.is(CoreBug::KeysNotAsked)
        {
            return self.complete_keys(name);
        }
        if !self.peers.is_member() {
            // Nobody else knows of this node yet, or any more.
            return true;
        }
        if !self.peers.is_connected_member() {
            self.queue_to_send(name);
            return false;
        }
        self.ask_for_keys(name)
    }

    /// Asks all other nodes for the keys of a channel. Returns whether there is nobody to ask.
    fn ask_for_keys(&mut self, name: &Arc<str>) -> bool {
        let number = self.context.next_number();
        let Some(channel) = self.channels.get(name) else { return true };
        let partition = &self.partitions[channel.partition];
        // If a node may be missing in the table, nobody is asked yet.
        let is_early = self.peers.may_miss_nodes(self.context.now.mono_us);
        let nodes = if is_early { BTreeSet::new() } else { self.peers.nodes_alike() };
        if nodes.is_empty() && !is_early {
            return self.complete_keys(name);
        }
        let limits = &self.context.options.limits.peers;
        let due_us =
            self.context.now.after_ms(if is_early { limits.heartbeat_interval_ms } else { limits.survey_timeout_ms });
        for node in &nodes {
            let question = KeyQuestion {
                number,
                node: self.context.options.node.clone(),
                channel: Box::from(&**name),
                stream: partition.names.stream.clone(),
                epoch: partition.current_epoch().into(),
            };
            if let Some(subject) = self.peers.window_answer_subject(node) {
                self.peers.send_window_message(
                    &mut self.context,
                    subject,
                    WindowMessage::KeyQuestion(question).encode(),
                );
            }
        }
        self.set_keys(name, KeyKnowledge::Asking);
        self.key_questions.pending.insert(Arc::clone(name), PendingQuestion { number, nodes, due_us });
        self.context.set_timer(due_us, Timer::PeerKeys(Arc::clone(name)));
        false
    }

    /// Answers with all keys of a channel that this node has seen, in the epoch of the other node. In another epoch, the
    /// publications may be lost.
    pub(super) fn answer_key_question(&mut self, question: &KeyQuestion) {
        let Some(subject) = self.peers.window_answer_subject(&question.node) else {
            self.peers.count_dropped();
            return;
        };
        let of_stream = self.partitions.ids().find(|id| self.partitions[*id].names.stream == question.stream);
        let of_epoch = of_stream.filter(|id| *self.partitions[*id].current_epoch() == *question.epoch);
        let keys = of_epoch.map(|id| self.keys_of_channel(&question.channel, id)).unwrap_or_default();
        let own_node = self.context.options.node.clone();
        let answer = |keys, is_last| {
            let KeyQuestion { number, channel, epoch, .. } = question;
            let (node, channel, epoch) = (own_node.clone(), channel.clone(), epoch.clone());
            WindowMessage::KeyAnswer(KeyAnswer { number: *number, node, channel, epoch, keys, is_last }).encode()
        };
        let (mut part, mut bytes) = (Vec::new(), 0);
        for key in keys {
            bytes += key.key.len() + size_of::<AnsweredKey>();
            part.push(key);
            if bytes >= ANSWER_BYTES_MAX {
                let body = answer(std::mem::take(&mut part), false);
                self.peers.send_window_message(&mut self.context, subject.clone(), body);
                bytes = 0;
            }
        }
        self.peers.send_window_message(&mut self.context, subject, answer(part, true));
    }

    fn keys_of_channel(&self, channel: &str, id: PartitionId) -> Vec<AnsweredKey> {
        let prefix = key_prefix(channel);
        let seen = self.seen_keys.with_prefix(&prefix, self.context.now).filter(|(_, seen)| seen.partition == id);
        let answered = |(key, seen): (&str, SeenKey)| AnsweredKey {
            key: key.into(),
            sequence: seen.sequence,
            until_ms: seen.until_ms,
        };
        seen.map(answered).collect()
    }

    pub(super) fn on_key_answer(&mut self, answer: KeyAnswer) {
        let KeyAnswer { number, node, channel, epoch, keys, is_last } = answer;
        let name: &Arc<str> = &Arc::from(channel);
        // An answer that comes after its time is still true.
        let of_channel = self.channels.get(name).map(|channel| channel.partition);
        let is_of_epoch = |id: &PartitionId| *self.partitions[*id].current_epoch() == *epoch;
        if let Some(id) = of_channel.filter(is_of_epoch) {
            let prefix = key_prefix(name);
            let bytes_max = self.context.options.limits.seen_keys_bytes_max;
            for AnsweredKey { key, sequence, until_ms } in keys {
                let seen = SeenKey { partition: id, sequence, until_ms };
                self.seen_keys.insert(format!("{prefix}{key}").into(), seen, bytes_max);
            }
        }
        let question = self.key_questions.pending.get_mut(name).filter(|question| question.number == number);
        let Some(question) = question.filter(|_| is_last) else { return };
        question.nodes.remove(&node);
        if question.nodes.is_empty() {
            self.key_questions.pending.remove(name);
            self.complete_keys(name);
            self.send_of_channel(name);
        }
    }

    /// The time for answers is over, or the table of nodes is complete.
    pub(super) fn keys_overdue(&mut self, name: &Arc<str>) {
        let is_over = |question: &PendingQuestion| question.due_us <= self.context.now.mono_us;
        if !self.key_questions.pending.get(name).is_some_and(is_over) {
            return;
        }
        let question = self.key_questions.pending.remove(name).expect("it was found");
        // Without a connection, answers may be lost. A question without nodes was waiting for the table of nodes.
        if question.nodes.is_empty() || !self.peers.is_connected_member() {
            self.forget_key_knowledge(name);
        } else {
            self.context.counters.keys_unanswered += 1;
            self.complete_keys(name);
        }
        self.send_of_channel(name);
    }

    /// Messages of a channel may have passed without this node.
    pub(super) fn forget_key_knowledge(&mut self, name: &Arc<str>) {
        self.key_questions.pending.remove(name);
        self.set_keys(name, KeyKnowledge::Since { mono_us: self.context.now.mono_us });
    }

    /// A channel is not followed any more.
    pub(super) fn end_key_question(&mut self, name: &str) {
        self.key_questions.pending.remove(name);
    }

    fn complete_keys(&mut self, name: &str) -> bool {
        self.set_keys(name, KeyKnowledge::Complete);
        true
    }

    fn set_keys(&mut self, name: &str, keys: KeyKnowledge) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.keys = keys;
        }
    }
}

/// How the ids of a channel's keys begin. A token contains no dot, so the ids of two channels differ.
pub(super) fn key_prefix(channel: &str) -> String {
    format!("{}.", encode_token(channel))
}

#[cfg(test)]
mod tests;
