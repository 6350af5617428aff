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
use dunlin_engine::{Event, ShardIndex};

use crate::{
    link::{LinkEffect, LinkName, MessageHeaders},
    names::encode_token,
    record,
};

use super::{Context, CoreEffect, Timer, broadcast::Broadcasts, peers::Peers};

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

/// What the checks are about: the subscriptions, and the nodes that must know them.
pub(super) struct Nodes<'a> {
    pub(super) broadcasts: &'a mut Broadcasts,
    pub(super) peers: &'a Peers,
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

impl InterestChecks {
    /// Answers a follow, at once if there is nothing to wait for.
    pub(super) fn confirm_follow(
        &mut self,
        context: &mut Context,
        nodes: &mut Nodes<'_>,
        shard: ShardIndex,
        name: &Arc<str>,
    ) {
        if !nodes.broadcasts.is_unconfirmed(name) {
            return followed(context, shard, name);
        }
        if !nodes.peers.is_connected_member() {
            context.counters.follows_unconfirmed += 1;
            return followed(context, shard, name);
        }
        let due_us = context.now.after_ms(context.options.limits.follow_timeout_ms);
        self.unanswered.insert(Arc::clone(name), UnansweredFollow { shard, due_us });
        self.waiting.insert(Arc::clone(name));
        context.set_timer(due_us, Timer::Follow(Arc::clone(name)));
        self.schedule(context);
    }

    fn schedule(&mut self, context: &mut Context) {
        if self.current.is_none() && !self.waiting.is_empty() {
            context.set_timer(self.next_us.max(context.now.mono_us + GATHER_US), Timer::InterestCheck);
        }
    }

    /// Starts the check that is due, or continues the one in flight.
    pub(super) fn run(&mut self, context: &mut Context, nodes: &mut Nodes<'_>) {
        let now_us = context.now.mono_us;
        self.review(context, nodes);
        let Some(check) = &mut self.current else {
            if now_us >= self.next_us && !self.waiting.is_empty() {
                self.begin(context, nodes);
            }
            return;
        };
        if check.ends_us <= now_us {
            return self.end(context, nodes, false);
        }
        if check.ask_due_us <= now_us {
            check.pause_us = (check.pause_us * 2).min(PAUSE_MAX_US);
            self.ask_nodes(context);
        }
    }

    fn begin(&mut self, context: &mut Context, nodes: &mut Nodes<'_>) {
        let now_us = context.now.mono_us;
        let number = context.next_number();
        let ends_us = context.now.after_ms(context.options.limits.follow_timeout_ms);
        context.link(LinkEffect::Subscribe { subject: self.check_subject(number) });
        self.next_us = now_us + CHECK_INTERVAL_US;
        self.current = Some(InterestCheck {
            number,
            channels: std::mem::take(&mut self.waiting),
            confirmed_by: BTreeSet::new(),
            ends_us,
            ask_due_us: now_us,
            pause_us: PAUSE_MIN_US,
            nodes_version: nodes.peers.table_version(),
        });
        context.set_timer(ends_us, Timer::InterestCheck);
        self.ask_nodes(context);
    }

    fn check_subject(&self, number: u64) -> Box<str> {
        format!("{}{number}", self.own_answers).into()
    }

    fn ask_nodes(&mut self, context: &mut Context) {
        let check = context.strays.expected(self.current.as_mut(), "nodes are asked for a check");
        let Some(check) = check else { return };
        check.ask_due_us = context.now.mono_us + check.pause_us;
        let (due_us, number) = (check.ask_due_us, check.number.to_string());
        let headers = MessageHeaders::new().with(record::NODE, context.options.node.clone()).with(CHECK, number);
        let (subject, payload) = (self.questions.clone(), Bytes::new());
        context.link(LinkEffect::Publish { link: LinkName::Live, request: None, subject, headers, payload });
        context.set_timer(due_us, Timer::InterestCheck);
    }

    /// Handles a request or an answer of a node. Returns whether it is one.
    pub(super) fn arrived(
        &mut self,
        context: &mut Context,
        nodes: &mut Nodes<'_>,
        subject: &str,
        headers: &MessageHeaders,
    ) -> bool {
        let node = headers.get(record::NODE).filter(|node| node.len() <= NODE_BYTES_MAX);
        if *subject == *self.questions {
            if let (Some(node), Some(number)) = (node, headers.number(CHECK)) {
                self.answer_check(context, nodes.peers, node, number);
            }
            return true;
        }
        let Some(number) = subject.strip_prefix(&*self.own_answers) else { return false };
        let is_known = node.is_some_and(|node| *node == *context.options.node || nodes.peers.is_known(node));
        let of_current = |check: &&mut InterestCheck| is_known && number.parse() == Ok(check.number);
        // It may answer an earlier check, or come from a node without a heartbeat.
        let check = self.current.as_mut().filter(of_current);
        if let (Some(check), Some(node)) = (context.strays.found_or_late(check), node) {
            check.confirmed_by.insert(node.into());
            self.review(context, nodes);
        }
        true
    }

    fn answer_check(&self, context: &mut Context, peers: &Peers, node: &str, number: u64) {
        if !peers.is_connected_member() {
            return;
        }
        let subject = format!("{}{number}", answer_prefix(&self.questions, node)).into();
        let headers = MessageHeaders::new().with(record::NODE, context.options.node.clone());
        let payload = Bytes::new();
        context.link(LinkEffect::Publish { link: LinkName::Publish, request: None, subject, headers, payload });
    }

    /// Re-evaluates the check if the table of nodes has changed.
    pub(super) fn review_nodes(&mut self, context: &mut Context, nodes: &mut Nodes<'_>) {
        let version = nodes.peers.table_version();
        if let Some(check) = &mut self.current
            && std::mem::replace(&mut check.nodes_version, version) != version
        {
            self.review(context, nodes);
        }
    }

    fn review(&mut self, context: &mut Context, nodes: &mut Nodes<'_>) {
        let Some(check) = &self.current else { return };
        let has_all = check.confirmed_by.contains(&context.options.node)
            && nodes.peers.known_nodes().all(|node| check.confirmed_by.contains(node));
        // Nodes that are not known yet have not been waited for.
        match nodes.peers.settled_us() {
            _ if !has_all => {}
            settled_us if settled_us <= context.now.mono_us => self.end(context, nodes, true),
            // The table of nodes changes when the time is known.
            u64::MAX => {}
            settled_us => context.set_timer(settled_us, Timer::InterestCheck),
        }
    }

    fn end(&mut self, context: &mut Context, nodes: &mut Nodes<'_>, is_confirmed: bool) {
        let Some(check) = self.current.take() else { return };
        context.link(LinkEffect::Unsubscribe { subject: self.check_subject(check.number) });
        if is_confirmed {
            for name in check.channels {
                nodes.broadcasts.confirm(&name, check.number);
                // The channel may have been subscribed to again, after the subscription of the check.
                if !nodes.broadcasts.is_unconfirmed(&name)
                    && let Some(follow) = self.unanswered.remove(&name)
                {
                    followed(context, follow.shard, &name);
                }
            }
        }
        self.schedule(context);
    }

    /// Answers a follow that was not confirmed in time.
    pub(super) fn follow_overdue(&mut self, context: &mut Context, name: &Arc<str>) {
        let is_due = |follow: &UnansweredFollow| follow.due_us <= context.now.mono_us;
        if self.unanswered.get(name).is_some_and(is_due) {
            self.answer_unconfirmed(context, name);
        }
    }

    /// A connection is down, or the node stops, so no follow can be confirmed.
    pub(super) fn give_up(&mut self, context: &mut Context, nodes: &mut Nodes<'_>) {
        if nodes.peers.is_connected_member() {
            return;
        }
        self.waiting.clear();
        self.end(context, nodes, false);
        let names: Vec<Arc<str>> = self.unanswered.keys().cloned().collect();
        for name in names {
            self.answer_unconfirmed(context, &name);
        }
    }

    fn answer_unconfirmed(&mut self, context: &mut Context, name: &Arc<str>) {
        if let Some(follow) = self.unanswered.remove(name) {
            context.counters.follows_unconfirmed += 1;
            followed(context, follow.shard, name);
        }
    }
}

fn followed(context: &mut Context, shard: ShardIndex, name: &Arc<str>) {
    let event = Event::Followed { channel: Arc::clone(name) };
    context.effects.push(CoreEffect::ToShard { shard, event });
}

#[cfg(test)]
mod tests;
