//! Heartbeats and surveys: nodes know each other, and ask each other.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_cluster::core::{
    CoreEvent,
    peers::{
        NodeDescription, PeerChange, PeerEffect, PeerEvent, QueryNumber, SurveyAnswers, SurveyFault, SurveyNumber,
        SurveyTarget,
    },
};
use dunlin_engine::{Event, api::ApiResult, event::Ticket};

use crate::clustered::surveys::{Attendance, NodePart, NodeQuestion, RunningQuestion};

use super::{CHANNELS, ClusteredWorld};

/// So long a survey waits, which is the default.
const SURVEY_US: u64 = 1_000_000;
/// Steps of the simulation, and the ends of other intervals.
const SLACK_US: u64 = 50_000;
/// When messages get through for so long, nodes have a heartbeat of each other.
pub(super) const KNOWN_AFTER_US: u64 = 1_000_000;
/// When they do not for so long, nodes no longer count each other as live.
pub(super) const FORGOTTEN_AFTER_US: u64 = 3_000_000;

/// Who waits for a shard's answer.
enum Asker {
    /// The node itself, for its part.
    Own(SurveyNumber),
    /// Another node.
    Other { place: usize, query: QueryNumber },
}

/// What nodes ask each other.
#[derive(Default)]
pub(super) struct PlayedPeers {
    pub(super) is_on: bool,
    numbered: u64,
    running: BTreeMap<SurveyNumber, RunningQuestion>,
    askers: BTreeMap<u64, Asker>,
    ended: Vec<(SurveyNumber, Result<SurveyAnswers, SurveyFault>)>,
    /// Answers of nodes that take their time, by the node.
    slow: Vec<(u64, usize, PeerEvent)>,
    /// What a node has wrongly said of another.
    pub(super) false_change: Option<String>,
    /// Connections of users, and since when they are there.
    pub(super) connected_us: BTreeMap<String, u64>,
}

impl PlayedPeers {
    /// Nodes that know each other, or nodes that do not.
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, ..Self::default() }
    }

    /// Whether no question waits for its answer.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// A node is gone, and what it has asked.
    pub(super) fn forget_node(&mut self, gone: usize) {
        self.running.retain(|_, survey| survey.place != gone);
        self.ended.retain(|(number, _)| self.running.contains_key(number));
        self.slow.retain(|(_, place, _)| *place != gone);
        self.askers.retain(|_, asker| match asker {
            Asker::Own(number) => self.running.contains_key(number),
            Asker::Other { place, .. } => *place != gone,
        });
    }
}

impl ClusteredWorld<'_> {
    /// A node has started.
    pub(super) fn announce(&mut self, place: usize) {
        if self.peers.is_on || self.has_broadcasts {
            let about = NodeDescription { name: format!("node {place}").into(), ..NodeDescription::default() };
            let ready_us = self.now_us + self.thread_delay_us();
            let event = CoreEvent::Peers(PeerEvent::Announce { about });
            self.nodes[place].to_core.push_back((ready_us, event));
        }
    }

    /// The application asks a node something that concerns all of them.
    pub(super) fn ask_all_nodes(&mut self) -> Result<(), String> {
        let place = self.chance.below(self.nodes.len());
        let question = self.pick_question();
        self.peers.numbered += 1;
        let number = SurveyNumber(self.peers.numbered);
        self.trace.line(self.now_us, || format!("node {place}: survey {} of {question:?}", number.0));
        let payload = question.encode();
        let known: Vec<bool> = (0..self.nodes.len()).map(|other| self.is_sound_for(other, KNOWN_AFTER_US)).collect();
        let survey = RunningQuestion {
            place,
            question,
            due_us: self.now_us + SURVEY_US + 2 * self.thread_delay_max_us + SLACK_US,
            part: NodePart::default(),
            must_be_complete: self.is_calm && known.iter().all(|is_known| *is_known),
            present: self.attendance(false, |other| other == place || known[place] && known[other]),
            possible: self.attendance(true, |_| true),
        };
        self.peers.running.insert(number, survey);
        self.tickets += 1;
        self.peers.askers.insert(self.tickets, Asker::Own(number));
        let request = NodeQuestion::request_of(&payload)?;
        self.handle(place, Event::Api { ticket: Ticket(self.tickets), request })?;
        let ready_us = self.now_us + self.thread_delay_us();
        let event = CoreEvent::Peers(PeerEvent::Survey { number, to: SurveyTarget::All, payload });
        self.nodes[place].to_core.push_back((ready_us, event));
        Ok(())
    }

    fn pick_question(&mut self) -> NodeQuestion {
        let channel = (*self.chance.pick(&CHANNELS)).to_owned();
        let open: Vec<usize> = (0..self.clients.len()).filter(|number| self.clients[*number].is_open()).collect();
        match self.chance.weighted(&[40, 10, 10, 10, if open.is_empty() { 0 } else { 6 }]) {
            0 => NodeQuestion::Presence { channel },
            1 => NodeQuestion::PresenceStats { channel },
            2 => NodeQuestion::Channels,
            3 => NodeQuestion::Info,
            _ => {
                let client = &self.clients[*self.chance.pick(&open)];
                NodeQuestion::Disconnect { user: client.user.clone(), client: client.client_id.clone() }
            }
        }
    }

    /// Whether a node's messages get through for so long.
    pub(super) fn is_sound_for(&self, place: usize, time_us: u64) -> bool {
        self.links[place].sound_since_us().is_some_and(|since_us| since_us + time_us <= self.now_us)
    }

    /// Who is in which channel on these nodes: surely, or perhaps.
    fn attendance(&self, perhaps: bool, is_asked: impl Fn(usize) -> bool) -> Attendance {
        let mut attendance = Attendance::new();
        for client in self.clients.iter().filter(|client| client.is_open()) {
            if client.session.is_none_or(|(place, _)| !is_asked(place)) {
                continue;
            }
            let channels = CHANNELS
                .iter()
                .filter(|channel| if perhaps { client.knows(channel) } else { client.live.contains_key(**channel) });
            let names = channels.copied().chain([""]);
            attendance.extend(names.map(|channel| (channel.to_owned(), client.client_id.clone())));
        }
        attendance
    }

    /// A node's protocol has something about other nodes.
    pub(super) fn perform_peers(&mut self, place: usize, effect: PeerEffect) {
        let event = match effect {
            PeerEffect::Surveyed { number, outcome } => return self.peers.ended.push((number, outcome)),
            PeerEffect::Changed { node, change } => {
                self.count(if change == PeerChange::Joined { "node joined" } else { "node lost" });
                if self.is_calm && change != PeerChange::Joined {
                    self.peers.false_change = Some(format!("node {place}: {} is {change:?}", node.node));
                }
                return;
            }
            PeerEffect::LeaseChanged(change) => return self.lease_changed(place, &change),
            PeerEffect::UserSessionsElsewhere { user, sessions } => Event::UserSessionsElsewhere { user, sessions },
            PeerEffect::Queried { query, payload, .. } => {
                self.tickets += 1;
                let Ok(request) = NodeQuestion::request_of(&payload) else { return };
                self.peers.askers.insert(self.tickets, Asker::Other { place, query });
                Event::Api { ticket: Ticket(self.tickets), request }
            }
        };
        let ready_us = self.now_us + self.thread_delay_us();
        self.nodes[place].to_shard.push_back((ready_us, event));
    }

    /// A shard has answered a node's question. Returns whether it was one.
    pub(super) fn answered_node(&mut self, ticket: Ticket, answer: &ApiResult) -> Result<bool, String> {
        let Some(asker) = self.peers.askers.remove(&ticket.0) else { return Ok(false) };
        let part = NodePart::of(answer)?;
        match asker {
            Asker::Own(number) => {
                if let Some(survey) = self.peers.running.get_mut(&number) {
                    survey.part = part;
                }
            }
            Asker::Other { place, query } => {
                let event = PeerEvent::QueryAnswered { query, payload: part.encode() };
                if !self.is_calm && self.chance.percent(6) {
                    self.count("slow answer");
                    let ready_us = self.now_us + self.chance.between(200_000, 2_000_000);
                    self.peers.slow.push((ready_us, place, event));
                } else {
                    let ready_us = self.now_us + self.thread_delay_us();
                    self.nodes[place].to_core.push_back((ready_us, CoreEvent::Peers(event)));
                }
            }
        }
        Ok(true)
    }

    /// Slow answers arrive, and surveys end that have to.
    pub(super) fn serve_peers(&mut self) -> Result<(), String> {
        while let Some(due) = self.peers.slow.iter().position(|(ready_us, ..)| *ready_us <= self.now_us) {
            let (_, place, event) = self.peers.slow.remove(due);
            self.handle_core(place, CoreEvent::Peers(event));
        }
        if let Some(change) = self.peers.false_change.take() {
            return Err(change);
        }
        if self.peers.running.is_empty() {
            return Ok(());
        }
        let (certain, possible) = (self.attendance(false, |_| true), self.attendance(true, |_| true));
        self.peers.running.values_mut().for_each(|survey| survey.observe(&certain, &possible));
        for (number, outcome) in std::mem::take(&mut self.peers.ended) {
            self.survey_ended(number, outcome)?;
        }
        let mut running = self.peers.running.iter();
        match running.find(|(_, survey)| survey.due_us < self.now_us) {
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
        let mut survey = self.peers.running.remove(&number).ok_or("a survey ends that nobody has begun")?;
        let found = outcome.map_err(|fault| format!("survey {}: {fault:?}", number.0))?;
        for answer in &found.answers {
            survey.part.add(&answer.payload)?;
        }
        self.trace.line(self.now_us, || format!("survey {}: {found:?}", number.0));
        self.trace.bytes(format!("{found:?}").as_bytes());
        self.count(if found.is_complete() { "survey complete" } else { "survey partial" });
        if matches!(survey.question, NodeQuestion::Disconnect { .. }) {
            self.count("disconnected on all nodes");
        }
        let check = survey.check(found.is_complete());
        check.map_err(|what| {
            let RunningQuestion { place, question, .. } = &survey;
            format!("survey {} of node {place}: the answer to {question:?} {what}: {found:?}", number.0)
        })
    }

    /// Nothing fails any more: all nodes agree which of them are live.
    pub(super) fn check_live_nodes(&self) -> Result<(), String> {
        if !self.peers.is_on {
            return Ok(());
        }
        let sound: Vec<usize> =
            (0..self.nodes.len()).filter(|place| self.is_sound_for(*place, FORGOTTEN_AFTER_US)).collect();
        let running: BTreeSet<String> = self.nodes.iter().map(|node| node.name.clone()).collect();
        for place in &sound {
            let live: BTreeSet<String> =
                self.nodes[*place].core.live_nodes().into_iter().map(|live| live.node.into()).collect();
            let missing = sound.iter().map(|other| &self.nodes[*other].name).find(|name| !live.contains(*name));
            if !live.is_subset(&running) || missing.is_some() {
                return Err(format!("node {place} at rest: {live:?} are live for it, and {running:?} run"));
            }
        }
        Ok(())
    }
}
