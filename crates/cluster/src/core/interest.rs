//! Follows of channels without a stream are answered when the servers of all nodes know the subscription.
//!
//! A server forwards the subscriptions of its clients to the other servers, in order. So the node subscribes to a new
//! subject, after the subscriptions of the channels, and asks all live nodes, including itself, to publish to it on
//! their connection for broadcasts. When a node's answer arrives, its server knows all these subscriptions. An answer
//! that is sent too early is lost, so the request is repeated. Only one check is in flight at a time; channels that are
//! followed during a check share the next one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use dunlin_engine::ShardIndex;

use crate::{
    link::{LinkEffect, LinkName, MessageHeaders},
    names::encode_token,
    planted::CoreBug,
    record,
};

use super::{Context, Core, CoreEffect, Timer};

/// The header with the number of a check.
const CHECK: &str = "Dn-Check";
/// Maximum length of a node id that is answered.
const NODE_BYTES_MAX: usize = 256;
/// Time during which follows are collected for a check.
const GATHER_US: u64 = 1_000;
/// Minimum time between the starts of two checks.
const CHECK_INTERVAL_US: u64 = 10_000;
/// The first pause before a request is repeated; it doubles up to the maximum.
const PAUSE_MIN_US: u64 = 4_000;
const PAUSE_MAX_US: u64 = 250_000;

/// Channels whose subscriptions are being checked.
#[derive(Debug)]
struct InterestCheck {
    number: u64,
    channels: BTreeSet<Arc<str>>,
    /// Nodes that have answered.
    confirmed_by: BTreeSet<Box<str>>,
    ends_us: u64,
    ask_due_us: u64,
    pause_us: u64,
    /// The version of the table of nodes at the last comparison.
    nodes_version: u64,
}

/// Follows that are not answered yet.
#[derive(Debug)]
pub(super) struct InterestChecks {
    /// The subject of requests.
    questions: Box<str>,
    /// The subject prefix of answers to this node; the number of the check follows.
    own_answers: Box<str>,
    /// The channels of the next check.
    waiting: BTreeSet<Arc<str>>,
    /// Follows to answer, by channel, with their deadlines.
    unanswered: BTreeMap<Arc<str>, UnansweredFollow>,
    current: Option<InterestCheck>,
    next_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct UnansweredFollow {
    shard: ShardIndex,
    due_us: u64,
}

impl InterestChecks {
    pub(super) fn new(prefix: &str, node: &str) -> Self {
        let questions = interest_subject(prefix);
        Self {
            own_answers: answer_prefix(&questions, node),
            questions,
            waiting: BTreeSet::new(),
            unanswered: BTreeMap::new(),
            current: None,
            next_us: 0,
        }
    }
}

/// The subject on which nodes ask each other to confirm subscriptions.
pub(super) fn interest_subject(prefix: &str) -> Box<str> {
    format!("{prefix}.i").into()
}

fn answer_prefix(questions: &str, node: &str) -> Box<str> {
    format!("{questions}.{}.", encode_token(node)).into()
}

impl Core {
    /// Answers a follow, at once if there is nothing to wait for.
    pub(super) fn confirm_follow(&mut self, shard: ShardIndex, name: &Arc<str>, number: u16) {
        let is_streamed = self.context.options.namespaces.get(usize::from(number)).is_some_and(Option::is_some);
        if is_streamed {
            // The page that the engine loads is the answer.
            return;
        }
        if !self.broadcasts.is_unconfirmed(name) || self.context.planted.is(CoreBug::FollowNotConfirmed) {
            return followed(&mut self.context, shard, name);
        }
        if !self.peers.is_connected_member() {
            self.context.counters.follows_unconfirmed += 1;
            return followed(&mut self.context, shard, name);
        }
        let due_us = self.context.now.after_ms(self.context.options.limits.follow_timeout_ms);
        self.interest.unanswered.insert(Arc::clone(name), UnansweredFollow { shard, due_us });
        self.interest.waiting.insert(Arc::clone(name));
        self.context.set_timer(due_us, Timer::Follow(Arc::clone(name)));
        self.schedule_check();
    }

    fn schedule_check(&mut self) {
        if self.interest.current.is_none() && !self.interest.waiting.is_empty() {
            self.context
                .set_timer(self.interest.next_us.max(self.context.now.mono_us + GATHER_US), Timer::InterestCheck);
        }
    }

    /// Starts the check that is due, or continues the one in flight.
    pub(super) fn run_check(&mut self) {
        let now_us = self.context.now.mono_us;
        self.review_check();
        let Some(check) = &mut self.interest.current else {
            if now_us >= self.interest.next_us && !self.interest.waiting.is_empty() {
                self.begin_check();
            }
            return;
        };
        if check.ends_us <= now_us {
            return self.end_check(false);
        }
        if check.ask_due_us <= now_us {
            check.pause_us = (check.pause_us * 2).min(PAUSE_MAX_US);
            self.ask_nodes();
        }
    }

    fn begin_check(&mut self) {
        let now_us = self.context.now.mono_us;
        let number = self.context.next_number();
        let ends_us = self.context.now.after_ms(self.context.options.limits.follow_timeout_ms);
        self.context.link(LinkEffect::Subscribe { subject: self.check_subject(number) });
        self.interest.next_us = now_us + CHECK_INTERVAL_US;
        self.interest.current = Some(InterestCheck {
            number,
            channels: std::mem::take(&mut self.interest.waiting),
            confirmed_by: BTreeSet::new(),
            ends_us,
            ask_due_us: now_us,
            pause_us: PAUSE_MIN_US,
            nodes_version: self.peers.table_version(),
        });
        self.context.set_timer(ends_us, Timer::InterestCheck);
        let settled_us = self.peers.settled_us();
        if settled_us > now_us {
            self.context.set_timer(settled_us, Timer::InterestCheck);
        }
        self.ask_nodes();
    }

    fn check_subject(&self, number: u64) -> Box<str> {
        format!("{}{number}", self.interest.own_answers).into()
    }

    fn ask_nodes(&mut self) {
        let Some(check) = &mut self.interest.current else { return };
        check.ask_due_us = self.context.now.mono_us + check.pause_us;
        let (due_us, number) = (check.ask_due_us, check.number.to_string());
        let headers = MessageHeaders::new().with(record::NODE, self.context.options.node.clone()).with(CHECK, number);
        let (subject, payload) = (self.interest.questions.clone(), Bytes::new());
        self.context.link(LinkEffect::Publish { link: LinkName::Live, request: None, subject, headers, payload });
        self.context.set_timer(due_us, Timer::InterestCheck);
    }

    /// Handles a request or an answer of a node. Returns whether it is one.
    pub(super) fn interest_arrived(&mut self, subject: &str, headers: &MessageHeaders) -> bool {
        let node = headers.get(record::NODE).filter(|node| node.len() <= NODE_BYTES_MAX);
        if *subject == *self.interest.questions {
            if let (Some(node), Some(number)) = (node, headers.number(CHECK)) {
                self.answer_check(node, number);
            }
            return true;
        }
        let Some(number) = subject.strip_prefix(&*self.interest.own_answers) else { return false };
        let is_known = node.is_some_and(|node| *node == *self.context.options.node || self.peers.is_known(node));
        if let (Some(check), Some(node), Ok(number)) = (&mut self.interest.current, node, number.parse::<u64>())
            && is_known
            && check.number == number
        {
            check.confirmed_by.insert(node.into());
            self.review_check();
        }
        true
    }

    fn answer_check(&mut self, node: &str, number: u64) {
        if !self.peers.is_connected_member() {
            return;
        }
        let subject = format!("{}{number}", answer_prefix(&self.interest.questions, node)).into();
        let headers = MessageHeaders::new().with(record::NODE, self.context.options.node.clone());
        let payload = Bytes::new();
        self.context.link(LinkEffect::Publish { link: LinkName::Publish, request: None, subject, headers, payload });
    }

    /// Re-evaluates the check if the table of nodes has changed.
    pub(super) fn review_check_of_nodes(&mut self) {
        let version = self.peers.table_version();
        if let Some(check) = &mut self.interest.current
            && std::mem::replace(&mut check.nodes_version, version) != version
        {
            self.review_check();
        }
    }

    fn review_check(&mut self) {
        let Some(check) = &self.interest.current else { return };
        let has_all = check.confirmed_by.contains(&self.context.options.node)
            && self.peers.known_nodes().all(|node| check.confirmed_by.contains(node));
        // Nodes that are not known yet have not been waited for.
        if has_all && self.peers.settled_us() <= self.context.now.mono_us {
            self.end_check(true);
        }
    }

    fn end_check(&mut self, is_confirmed: bool) {
        let Some(check) = self.interest.current.take() else { return };
        self.context.link(LinkEffect::Unsubscribe { subject: self.check_subject(check.number) });
        if is_confirmed {
            for name in check.channels {
                self.broadcasts.confirm(&name, check.number);
                // The channel may have been subscribed to again, after the subscription of the check.
                if !self.broadcasts.is_unconfirmed(&name)
                    && let Some(follow) = self.interest.unanswered.remove(&name)
                {
                    followed(&mut self.context, follow.shard, &name);
                }
            }
        }
        self.schedule_check();
    }

    /// Answers a follow that was not confirmed in time.
    pub(super) fn follow_overdue(&mut self, name: &Arc<str>) {
        let is_due = |follow: &UnansweredFollow| follow.due_us <= self.context.now.mono_us;
        if self.interest.unanswered.get(name).is_some_and(is_due) {
            self.answer_unconfirmed(name);
        }
    }

    /// A connection is down, or the node stops, so no follow can be confirmed.
    pub(super) fn give_up_checks(&mut self) {
        if self.peers.is_connected_member() {
            return;
        }
        self.interest.waiting.clear();
        self.end_check(false);
        let names: Vec<Arc<str>> = self.interest.unanswered.keys().cloned().collect();
        for name in names {
            self.answer_unconfirmed(&name);
        }
    }

    fn answer_unconfirmed(&mut self, name: &Arc<str>) {
        if let Some(follow) = self.interest.unanswered.remove(name) {
            self.context.counters.follows_unconfirmed += 1;
            followed(&mut self.context, follow.shard, name);
        }
    }
}

fn followed(context: &mut Context, shard: ShardIndex, name: &Arc<str>) {
    context.effects.push(CoreEffect::Followed { shard, channel: Arc::clone(name) });
}

#[cfg(test)]
mod tests;
