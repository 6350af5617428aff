//! The node that is queried for its window of a channel, and the subject.

use bytes::Bytes;

use crate::{core::Context, link::MessageHeaders, names::encode_token};

use super::Peers;

impl Peers {
    /// The subject of a query to a node with a recent heartbeat, round-robin.
    pub(in crate::core) fn window_subject(&self, now_us: u64, number: u64) -> Option<Box<str>> {
        if !self.is_connected() || !self.is_member() {
            return None;
        }
        // A node that is gone would cost every recovery the timeout of a query.
        let since_us = now_us.saturating_sub(self.limits.heartbeat_interval_ms * 1_500);
        let nodes = self.table.alike_since(since_us);
        let place = usize::try_from(number).unwrap_or(0).checked_rem(nodes.len())?;
        nodes.get(place).map(|node| self.window_subject_of(node))
    }

    /// The subject of an answer to a node, if the node is known.
    pub(in crate::core) fn window_answer_subject(&self, node: &str) -> Option<Box<str>> {
        self.table.is_known(node).then(|| self.window_subject_of(node))
    }

    /// The subject of messages about windows and keys to a node.
    pub(in crate::core) fn window_subject_of(&self, node: &str) -> Box<str> {
        format!("{}{}", self.subjects.window_prefix, encode_token(node)).into()
    }

    /// Whether a message is about windows and addressed to this node.
    pub(in crate::core) fn is_about_windows(&self, subject: &str) -> bool {
        let token = subject.strip_prefix(&*self.subjects.window_prefix);
        token.is_some_and(|token| *token == *encode_token(&self.node))
    }

    #[allow(clippy::unused_self, reason = "reads as what this node does")]
    pub(in crate::core) fn send_window_message(&self, context: &mut Context, subject: Box<str>, payload: Bytes) {
        context.link(Self::message(subject, MessageHeaders::new(), payload));
    }
}
