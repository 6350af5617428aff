//! Idempotency keys that other nodes have seen.
//!
//! A node sees the keys of a channel from its attach on ([`super::seen_keys`]). A key that was used before, and whose
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
    seen_keys::SeenKey,
};

/// Maximum number and bytes of the keys in a question. The others wait for the next one.
const KEYS_MAX: usize = 256;
const KEY_BYTES_MAX: usize = 16 << 10;

/// A question to all other nodes.
#[derive(Debug)]
struct PendingQuestion {
    number: u64,
    /// The messages whose keys are asked for.
    messages: Vec<PublishingKey>,
    /// The nodes that have not answered. Empty while it is not known which nodes there are: then nobody was asked yet.
    nodes: BTreeSet<Box<str>>,
    /// When the messages are sent without an answer.
    give_up_us: u64,
    due_us: u64,
}

/// The questions that wait for answers, by channel. Each of them has messages of this node that wait.
#[derive(Debug, Default)]
pub(super) struct KeyQuestions {
    pending: BTreeMap<Arc<str>, PendingQuestion>,
    /// The version of the table of nodes at the last review.
    nodes_version: u64,
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
        let facts = self.partitions[channel.partition].facts.as_ref();
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
        let give_up_us = self.context.now.after_ms(self.context.options.limits.peers.survey_timeout_ms);
        !self.begin_key_question(name, give_up_us)
    }

    /// Asks all other nodes for the keys of the messages that wait in a channel. Returns whether there is one to ask.
    fn begin_key_question(&mut self, name: &Arc<str>, give_up_us: u64) -> bool {
        let is_table_complete =
            self.peers.is_connected_member() && !self.peers.may_miss_nodes(self.context.now.mono_us);
        let nodes = if is_table_complete { self.peers.nodes_alike() } else { BTreeSet::new() };
        let messages = self.messages_to_check(name);
        if is_table_complete && nodes.is_empty() {
            self.mark_checked(&messages);
            return false;
        }
        let number = self.context.next_number();
        self.ask_nodes_for_keys(name, number, &nodes, &messages);
        for key in &messages {
            if let Some(publishing) = self.outgoing.by_key.get_mut(key) {
                publishing.key_check = KeyCheck::Asking;
            }
        }
        // Until it is known which nodes there are, this is tried again.
        let retry_us = self.context.now.after_ms(self.context.options.limits.peers.heartbeat_interval_ms / 2);
        let due_us = if is_table_complete { give_up_us } else { give_up_us.min(retry_us) };
        let question = PendingQuestion { number, messages, nodes, give_up_us, due_us };
        self.key_questions.pending.insert(Arc::clone(name), question);
        self.context.set_timer(due_us, Timer::PeerKeys(Arc::clone(name)));
        true
    }

    /// The messages of a channel with keys that no node was asked for, as many as fit into a question.
    fn messages_to_check(&self, name: &str) -> Vec<PublishingKey> {
        let Some(channel) = self.channels.get(name) else { return Vec::new() };
        let mut bytes = 0;
        let of_channel = channel.outbox.unsent.iter().filter_map(|key| Some((*key, self.outgoing.by_key.get(key)?)));
        of_channel
            .filter(|(_, publishing)| matches!(publishing.key_check, KeyCheck::Needed | KeyCheck::Asking))
            .take_while(|(_, publishing)| {
                bytes += publishing.id.len();
                // One key fits, whatever its length.
                bytes <= KEY_BYTES_MAX.max(publishing.id.len())
            })
            .map(|(key, _)| key)
            .take(KEYS_MAX)
            .collect()
    }

    fn ask_nodes_for_keys(
        &mut self,
        name: &Arc<str>,
        number: u64,
        nodes: &BTreeSet<Box<str>>,
        messages: &[PublishingKey],
    ) {
        let Some(channel) = self.channels.get(name) else { return };
        let partition = &self.partitions[channel.partition];
        let prefix = key_prefix(name);
        let keys = messages.iter().filter_map(|key| self.outgoing.by_key.get(key)?.id.strip_prefix(&*prefix));
        let question = KeyQuestion {
            number,
            node: self.context.options.node.clone(),
            channel: Box::from(&**name),
            stream: partition.names.stream.clone(),
            epoch: partition.current_epoch().into(),
            keys: keys.map(Box::from).collect(),
        };
        let body = WindowMessage::KeyQuestion(question).encode();
        for node in nodes {
            if let Some(subject) = self.peers.window_answer_subject(node) {
                self.peers.send_window_message(&mut self.context, subject, body.clone());
            }
        }
    }

    /// Answers with the keys of a question that this node has seen in the epoch of the other node. In another epoch, the
    /// publications may be lost.
    pub(super) fn answer_key_question(&mut self, question: KeyQuestion) {
        let KeyQuestion { number, node, channel, stream, epoch, keys } = question;
        let Some(subject) = self.peers.window_answer_subject(&node) else {
            self.peers.count_dropped();
            return;
        };
        let of_stream = self.partitions.ids().find(|id| self.partitions[*id].names.stream == stream);
        let of_epoch = of_stream.filter(|id| *self.partitions[*id].current_epoch() == *epoch);
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
        if let Some(partition) = of_channel.filter(|id| *self.partitions[*id].current_epoch() == *epoch) {
            let prefix = key_prefix(name);
            for AnsweredKey { key, sequence, until_ms } in seen.into_iter().take(KEYS_MAX) {
                self.remember_key(format!("{prefix}{key}").into(), SeenKey { partition, sequence, until_ms });
            }
        }
        let question = self.key_questions.pending.get_mut(name).filter(|question| question.number == number);
        let Some(question) = self.context.strays.found_or_late(question) else { return };
        question.nodes.remove(&node);
        if question.nodes.is_empty() {
            self.end_key_question(name);
        }
    }

    /// A question is due: it was not answered, or nobody could be asked yet.
    pub(super) fn keys_overdue(&mut self, name: &Arc<str>) {
        let now_us = self.context.now.mono_us;
        let Some(question) = self.key_questions.pending.get(name).filter(|question| question.due_us <= now_us) else {
            return;
        };
        let give_up_us = question.give_up_us;
        if give_up_us <= now_us {
            // A connection that delivers nothing must not keep this node from publishing.
            self.context.counters.keys_unanswered += 1;
            self.end_key_question(name);
        } else {
            self.key_questions.pending.remove(name);
            if !self.begin_key_question(name, give_up_us) {
                self.send_of_channel(name);
            }
        }
    }

    /// The table of nodes has changed: no answer is expected of nodes that are gone.
    pub(super) fn review_key_questions(&mut self) {
        let version = self.peers.table_version();
        if std::mem::replace(&mut self.key_questions.nodes_version, version) == version {
            return;
        }
        let mut answered = Vec::new();
        for (name, question) in &mut self.key_questions.pending {
            let was_asked = !question.nodes.is_empty();
            question.nodes.retain(|node| self.peers.is_known(node));
            if was_asked && question.nodes.is_empty() {
                answered.push(Arc::clone(name));
            }
        }
        for name in answered {
            self.end_key_question(&name);
        }
    }

    fn end_key_question(&mut self, name: &Arc<str>) {
        let question = self.key_questions.pending.remove(name);
        let question = self.context.strays.expected(question, "a question ends once");
        self.mark_checked(&question.map(|question| question.messages).unwrap_or_default());
        self.send_of_channel(name);
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
