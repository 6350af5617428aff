//! What nodes know of each other: heartbeats, surveys, leases, and the limit on the sessions of a user across all nodes.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_cluster::core::{
    CoreEvent,
    leases::LeaseChange,
    peers::{
        NodeDescription, PeerChange, PeerEffect, PeerEvent, QueryNumber, SurveyAnswers, SurveyFault, SurveyNumber,
        SurveyTarget,
    },
};
use dunlin_engine::{
    Event,
    api::{ApiAnswer, ApiResult},
    event::Ticket,
};

use crate::{
    clustered::surveys::{Membership, NodePart, NodeQuestion, RunningSurvey},
    harness::PromptWorld as _,
};

use super::{CHANNELS, ClusteredWorld, JetStream};

/// The timeout of a survey, which is the default.
const SURVEY_US: u64 = 1_000_000;
/// Additional time for the steps of the simulation and for rounding of intervals.
const SLACK_US: u64 = 50_000;
/// Nodes must know each other if messages were delivered for this long.
pub(super) const KNOWN_AFTER_US: u64 = 1_000_000;
/// Nodes must not count each other as live if messages were not delivered for this long.
pub(super) const FORGOTTEN_AFTER_US: u64 = 3_000_000;
/// A node whose connections are up for this long must have renewed its lease.
const HELD_FOR_US: u64 = 4_000_000;
/// Time after which all nodes know a session, without faults: a heartbeat and the delays before and after it.
const COUNTED_AFTER_US: u64 = 700_000;
/// Time after which a client is admitted or rejected.
const CONNECTED_AFTER_US: u64 = 300_000;

/// The origin of a request to a shard.
enum Origin {
    /// A survey of the node itself.
    Own(SurveyNumber),
    /// A query of another node.
    Other { node_index: usize, query: QueryNumber },
}

/// The state of heartbeats and surveys.
#[derive(Default)]
pub(super) struct PeersState {
    pub(super) is_on: bool,
    pub(super) numbered: u64,
    running: BTreeMap<SurveyNumber, RunningSurvey>,
    origins: BTreeMap<u64, Origin>,
    ended: Vec<(SurveyNumber, Result<SurveyAnswers, SurveyFault>)>,
    /// Delayed replies: when they are due, the node, and the event.
    slow: Vec<(u64, usize, PeerEvent)>,
    /// A wrong change of a peer or a lease that a node reported.
    pub(super) false_change: Option<String>,
    /// When each client of a user was admitted, by client id.
    pub(super) connected_us: BTreeMap<String, u64>,
}

impl PeersState {
    /// Creates the state. If `is_on` is not set, nodes have no heartbeats and surveys.
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, ..Self::default() }
    }

    /// Whether no survey is running.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Drops the surveys and queries of a node that is gone.
    pub(super) fn forget_node(&mut self, gone: usize) {
        self.running.retain(|_, survey| survey.node_index != gone);
        self.ended.retain(|(number, _)| self.running.contains_key(number));
        self.slow.retain(|(_, node_index, _)| *node_index != gone);
        self.origins.retain(|_, origin| match origin {
            Origin::Own(number) => self.running.contains_key(number),
            Origin::Other { node_index, .. } => *node_index != gone,
        });
    }
}

impl ClusteredWorld {
    /// Announces a node that started.
    pub(super) fn announce(&mut self, node_index: usize) {
        if self.peers.is_on || self.has_broadcasts {
            let about = NodeDescription { name: format!("node {node_index}").into(), ..NodeDescription::default() };
            self.send_to_core(node_index, CoreEvent::Peers(PeerEvent::Announce { about }));
        }
    }

    /// Starts a survey of all nodes on a random node.
    pub(super) fn start_survey(&mut self) -> Result<(), String> {
        let node_index = self.harness.chance.below(self.nodes.len());
        let question = self.pick_question();
        self.peers.numbered += 1;
        let number = SurveyNumber(self.peers.numbered);
        self.harness.line(|| format!("node {node_index}: survey {} of {question:?}", number.0));
        let payload = question.encode();
        let known: Vec<bool> = (0..self.nodes.len()).map(|other| self.delivers_for(other, KNOWN_AFTER_US)).collect();
        let survey = RunningSurvey {
            node_index,
            question,
            due_us: self.harness.now_us + SURVEY_US + 2 * self.thread_delay_max_us + SLACK_US,
            part: NodePart::default(),
            must_be_complete: self.is_calm && known.iter().all(|is_known| *is_known),
            present: self.membership(false, |other| other == node_index || known[node_index] && known[other]),
            possible: self.membership(true, |_| true),
        };
        self.peers.running.insert(number, survey);
        self.tickets += 1;
        self.peers.origins.insert(self.tickets, Origin::Own(number));
        let request = NodeQuestion::request_of(&payload)?;
        self.handle(node_index, Event::Api { ticket: Ticket(self.tickets), request })?;
        self.send_to_core(node_index, CoreEvent::Peers(PeerEvent::Survey { number, to: SurveyTarget::All, payload }));
        Ok(())
    }

    fn pick_question(&mut self) -> NodeQuestion {
        let channel = (*self.harness.chance.pick(&CHANNELS)).to_owned();
        let open: Vec<usize> = (0..self.clients.len()).filter(|number| self.clients[*number].is_open()).collect();
        match self.harness.chance.weighted(&[40, 10, 10, 10, if open.is_empty() { 0 } else { 6 }]) {
            0 => NodeQuestion::Presence { channel },
            1 => NodeQuestion::PresenceStats { channel },
            2 => NodeQuestion::Channels,
            3 => NodeQuestion::Info,
            _ => {
                let client = &self.clients[*self.harness.chance.pick(&open)];
                NodeQuestion::Disconnect { user: client.session.user.clone(), client: client.client_id.clone() }
            }
        }
    }

    /// Whether messages of a node were delivered for at least `time_us`.
    pub(super) fn delivers_for(&self, node_index: usize, time_us: u64) -> bool {
        self.links[node_index].delivers_since_us().is_some_and(|since_us| since_us + time_us <= self.harness.now_us)
    }

    /// The members of all channels on the selected nodes. If `include_possible` is set, it includes those that may be
    /// members.
    fn membership(&self, include_possible: bool, is_asked: impl Fn(usize) -> bool) -> Membership {
        let mut membership = Membership::new();
        for client in self.clients.iter().filter(|client| client.is_open()) {
            if client.session.at.is_none_or(|(node_index, _)| !is_asked(node_index)) {
                continue;
            }
            let channels = CHANNELS.iter().filter(|channel| {
                if include_possible { client.has_or_requested(channel) } else { client.live.contains_key(**channel) }
            });
            let names = channels.copied().chain([""]);
            membership.extend(names.map(|channel| (channel.to_owned(), client.client_id.clone())));
        }
        membership
    }

    /// Performs an effect of a node's core that concerns other nodes.
    pub(super) fn perform_peers(&mut self, node_index: usize, effect: PeerEffect) {
        let event = match effect {
            PeerEffect::Surveyed { number, outcome } => match self.keys_surveyed(number, &outcome) {
                Some(event) => event,
                None => return self.peers.ended.push((number, outcome)),
            },
            PeerEffect::Changed { node, change } => {
                self.harness.count(if change == PeerChange::Joined { "node joined" } else { "node lost" });
                if self.is_calm && change != PeerChange::Joined {
                    self.peers.false_change = Some(format!("node {node_index}: {} is {change:?}", node.node));
                }
                return;
            }
            PeerEffect::LeaseChanged(change) => return self.lease_changed(node_index, &change),
            PeerEffect::UserSessionsElsewhere { user, sessions } => Event::UserSessionsElsewhere { user, sessions },
            PeerEffect::Queried { query, payload, .. } => {
                self.tickets += 1;
                let Ok(request) = NodeQuestion::request_of(&payload) else { return };
                self.peers.origins.insert(self.tickets, Origin::Other { node_index, query });
                Event::Api { ticket: Ticket(self.tickets), request }
            }
        };
        self.send_to_shard(node_index, event);
    }

    /// Forwards a shard's reply to the survey or the query that requested it. Returns whether there was one.
    pub(super) fn on_query_reply(&mut self, ticket: Ticket, answer: &ApiResult) -> Result<bool, String> {
        let Some(origin) = self.peers.origins.remove(&ticket.0) else { return Ok(false) };
        if let (Origin::Other { node_index, query }, Ok(ApiAnswer::NewestKeys(found))) = (&origin, answer) {
            self.send_keys(*node_index, *query, found);
            return Ok(true);
        }
        let part = NodePart::of(answer)?;
        match origin {
            Origin::Own(number) => {
                if let Some(survey) = self.peers.running.get_mut(&number) {
                    survey.part = part;
                }
            }
            Origin::Other { node_index, query } => {
                let event = PeerEvent::QueryAnswered { query, payload: part.encode() };
                if !self.is_calm && self.harness.chance.percent(6) {
                    self.harness.count("slow answer");
                    let ready_us = self.harness.now_us + self.harness.chance.between(200_000, 2_000_000);
                    self.peers.slow.push((ready_us, node_index, event));
                } else {
                    self.send_to_core(node_index, CoreEvent::Peers(event));
                }
            }
        }
        Ok(true)
    }

    /// Delivers delayed replies, and checks surveys that ended or are overdue.
    pub(super) fn serve_peers(&mut self) -> Result<(), String> {
        while let Some(due) = self.peers.slow.iter().position(|(ready_us, ..)| *ready_us <= self.harness.now_us) {
            let (_, node_index, event) = self.peers.slow.remove(due);
            self.handle_core(node_index, CoreEvent::Peers(event));
        }
        if let Some(change) = self.peers.false_change.take() {
            return Err(change);
        }
        if self.peers.running.is_empty() {
            return Ok(());
        }
        let (certain, possible) = (self.membership(false, |_| true), self.membership(true, |_| true));
        self.peers.running.values_mut().for_each(|survey| survey.observe(&certain, &possible));
        for (number, outcome) in std::mem::take(&mut self.peers.ended) {
            self.survey_ended(number, outcome)?;
        }
        let mut running = self.peers.running.iter();
        match running.find(|(_, survey)| survey.due_us < self.harness.now_us) {
            Some((number, survey)) => {
                Err(format!("survey {} of {:?} does not end by its deadline", number.0, survey.question))
            }
            None => Ok(()),
        }
    }

    fn survey_ended(
        &mut self,
        number: SurveyNumber,
        outcome: Result<SurveyAnswers, SurveyFault>,
    ) -> Result<(), String> {
        let mut survey = self.peers.running.remove(&number).ok_or("the result of an unknown survey")?;
        let found = outcome.map_err(|fault| format!("survey {}: {fault:?}", number.0))?;
        for answer in &found.answers {
            survey.part.add(&answer.payload)?;
        }
        self.harness.line(|| format!("survey {}: {found:?}", number.0));
        self.harness.trace.bytes(format!("{found:?}").as_bytes());
        self.harness.count(if found.is_complete() { "survey complete" } else { "survey partial" });
        if matches!(survey.question, NodeQuestion::Disconnect { .. }) {
            self.harness.count("disconnected on all nodes");
        }
        let check = survey.check(found.is_complete());
        check.map_err(|what| {
            let RunningSurvey { node_index, question, .. } = &survey;
            format!("survey {} of node {node_index}: the result of {question:?} {what}: {found:?}", number.0)
        })
    }

    /// Checks that, without faults, all nodes agree on which nodes are live.
    pub(super) fn check_live_nodes(&self) -> Result<(), String> {
        if !self.peers.is_on {
            return Ok(());
        }
        let sound: Vec<usize> =
            (0..self.nodes.len()).filter(|node_index| self.delivers_for(*node_index, FORGOTTEN_AFTER_US)).collect();
        let running: BTreeSet<String> = self.nodes.iter().map(|node| node.name.clone()).collect();
        for node_index in &sound {
            let live: BTreeSet<String> =
                self.nodes[*node_index].core.live_nodes().into_iter().map(|live| live.node.into()).collect();
            let missing = sound.iter().map(|other| &self.nodes[*other].name).find(|name| !live.contains(*name));
            if !live.is_subset(&running) || missing.is_some() {
                return Err(format!("node {node_index} at rest: {live:?} are live for it, but {running:?} run"));
            }
        }
        Ok(())
    }
}

/// Configures the servers for nodes with leases.
pub(super) const fn prepare_leases(jetstream: &mut JetStream, seed: u64) {
    jetstream.is_single = seed.is_multiple_of(2);
    // Longer than a lease is valid.
    jetstream.election_max_us = 2_500_000;
}

impl ClusteredWorld {
    /// Checks a change of a lease that a node reports.
    pub(super) fn lease_changed(&mut self, node_index: usize, change: &LeaseChange) {
        self.harness.count(match change {
            LeaseChange::Began { .. } => "lease begun",
            LeaseChange::Lost { .. } => "lease lost",
            LeaseChange::Took { .. } => "lease taken",
            LeaseChange::Gone => "lease gone",
        });
        // Renewals are delivered, and elections take less time than a lease is valid.
        let is_safe = self.jetstream.timeouts == 0
            && !self.truncates
            && !self.loses_streams
            && self.delivers_for(node_index, HELD_FOR_US);
        let is_false = match change {
            LeaseChange::Began { .. } => false,
            LeaseChange::Gone => !self.has_lost_stream,
            LeaseChange::Lost { .. } => self.is_calm || is_safe,
            LeaseChange::Took { .. } => self.is_calm,
        };
        if is_false {
            self.peers.false_change =
                Some(format!("node {node_index}: {change:?}, although its renewals are delivered"));
        }
    }

    /// Checks that, without faults, exactly the running nodes hold a lease.
    pub(super) fn check_leases(&self) -> Result<(), String> {
        if !self.peers.is_on {
            return Ok(());
        }
        let held = self.jetstream.held_leases();
        let running: BTreeSet<String> = self.nodes.iter().map(|node| node.name.clone()).collect();
        if held != running {
            return Err(format!("the leases of {held:?} are held at rest, but {running:?} run"));
        }
        for node_index in (0..self.nodes.len()).filter(|node_index| self.delivers_for(*node_index, FORGOTTEN_AFTER_US))
        {
            let leases = self.nodes[node_index].core.counters().leases;
            if leases.term == 0 || leases.others as usize + 1 != running.len() {
                return Err(format!("node {node_index} has different leases at rest: {leases:?}"));
            }
        }
        Ok(())
    }

    /// The user of a client. Clients use it as their token.
    pub(super) const fn user_of(number: usize) -> &'static str {
        if number % 3 == 2 { "" } else { "u0" }
    }

    /// Checks the limit if a client was just admitted. Sessions on other nodes only count after a heartbeat.
    pub(super) fn check_admitted(&mut self, number: usize) -> Result<(), String> {
        let client = &self.clients[number];
        let (id, user) = (client.client_id.clone(), client.session.user.clone());
        if user.is_empty() || !client.is_open() || self.peers.connected_us.contains_key(&id) {
            return Ok(());
        }
        let is_spread =
            self.is_calm && (0..self.nodes.len()).all(|node_index| self.delivers_for(node_index, KNOWN_AFTER_US));
        let node_index = client.session.at.map(|(node_index, _)| node_index);
        let mut counted = 0;
        for other in
            self.clients.iter().filter(|other| other.is_open() && other.session.user == user && other.client_id != id)
        {
            let since_us = self.peers.connected_us.get(&other.client_id).copied().unwrap_or(self.harness.now_us);
            let is_here = other.session.at.map(|(node_index, _)| node_index) == node_index;
            counted += usize::from(is_here || is_spread && since_us + COUNTED_AFTER_US <= self.harness.now_us);
        }
        self.peers.connected_us.insert(id, self.harness.now_us);
        let sessions_max = self.options.client.user_sessions_max;
        if sessions_max > 0 && counted >= sessions_max {
            return Err(format!("client {number} is admitted, but {user} has {counted} of {sessions_max} sessions"));
        }
        Ok(())
    }

    /// Ends the connections that the server closed.
    pub(super) fn end_closed(&mut self) -> Result<(), String> {
        for number in 0..self.clients.len() {
            let session = &self.clients[number].session;
            if session.at.is_some() && self.clients[number].is_over {
                self.harness.count(if session.is_connected { "closed by server" } else { "user rejected" });
                self.hang_up(number)?;
            }
        }
        Ok(())
    }

    /// Checks that, without faults, a user is admitted exactly while it is below the limit.
    pub(super) fn check_users(&mut self) -> Result<(), String> {
        let sessions_max = self.options.client.user_sessions_max;
        let is_delivering = (0..self.nodes.len()).all(|node_index| self.delivers_for(node_index, 3 * COUNTED_AFTER_US));
        if sessions_max == 0 || !is_delivering {
            return Ok(());
        }
        for number in 0..self.clients.len() {
            let user = self.clients[number].session.user.clone();
            if user.is_empty() || self.clients[number].session.at.is_some() {
                continue;
            }
            let sessions = self.clients.iter().filter(|client| client.is_open() && client.session.user == user).count();
            self.open(number)?;
            self.run_for(CONNECTED_AFTER_US)?;
            let is_admitted = self.clients[number].is_open();
            if is_admitted != (sessions < sessions_max) {
                let what = if is_admitted { "admitted" } else { "rejected" };
                return Err(format!("client {number} is {what} at rest: {sessions} of {sessions_max} sessions"));
            }
            self.harness.count("user at rest");
            self.run_for(COUNTED_AFTER_US)?;
        }
        Ok(())
    }
}
