//! Nodes on a NATS that delivers at once.

use std::collections::BTreeSet;

use bytes::Bytes;
use dunlin_engine::Now;

use super::*;
use crate::{
    core::{Core, CoreEffect, CoreEvent, CoreLimits, CoreOptions},
    link::{LinkEvent, LinkName},
};

const VERSION: &str = "0.2.0";
const PAYLOAD_BYTES_MAX: usize = 8_192;

struct Member {
    core: Core,
    subjects: BTreeSet<Box<str>>,
    /// Whether it ignores all events.
    is_paused: bool,
    outcomes: Vec<PeerEffect>,
}

impl Member {
    fn new(node: &str, limits: &PeerLimits) -> Self {
        let core = Core::new(CoreOptions {
            prefix: "dn".into(),
            node: node.into(),
            namespaces: vec![None],
            has_leases: false,
            has_room_logs: false,
            creatable: Vec::new(),
            broadcasts: vec![None],
            limits: CoreLimits { peers: limits.clone(), ..CoreLimits::default() },
        });
        Self { core, subjects: BTreeSet::new(), is_paused: false, outcomes: Vec::new() }
    }
}

/// Several cores, on one clock.
struct Network {
    members: Vec<Member>,
    now: Now,
}

impl Network {
    fn new(names: &[&str]) -> Self {
        Self::with_limits(names, &PeerLimits::default())
    }

    fn with_limits(names: &[&str], limits: &PeerLimits) -> Self {
        let mut network = Self { members: Vec::new(), now: Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 } };
        network.members.extend(names.iter().map(|node| Member::new(node, limits)));
        for place in 0..names.len() {
            network.connect(place);
            network.announce(place, VERSION);
        }
        network
    }

    /// Starts another node.
    fn start(&mut self, node: &str) {
        self.members.push(Member::new(node, &PeerLimits::default()));
        let place = self.members.len() - 1;
        self.connect(place);
        self.announce(place, VERSION);
    }

    fn connect(&mut self, place: usize) {
        for link in LinkName::ALL {
            self.handle(place, CoreEvent::Link(LinkEvent::Connected { link, max_payload: PAYLOAD_BYTES_MAX }));
        }
    }

    fn announce(&mut self, place: usize, version: &str) {
        let about = NodeDescription {
            name: format!("n{place}").into(),
            version: version.into(),
            started_ms: place as u64,
            session_tag_key: None,
        };
        self.handle(place, CoreEvent::Peers(PeerEvent::Announce { about }));
    }

    /// Handles an event, and delivers the published messages.
    fn handle(&mut self, place: usize, event: CoreEvent) {
        let mut events = vec![(place, event)];
        while let Some((place, event)) = events.pop() {
            let mut effects = Vec::new();
            let Some(member) = self.members.get_mut(place).filter(|member| !member.is_paused) else { continue };
            member.core.handle(self.now, event, &mut effects);
            for effect in effects {
                match effect {
                    CoreEffect::Link(LinkEffect::Subscribe { subject }) => {
                        self.members[place].subjects.insert(subject);
                    }
                    CoreEffect::Link(LinkEffect::Publish { subject, headers, payload, .. }) => {
                        for (to, member) in self.members.iter().enumerate() {
                            let takes = member.subjects.iter().any(|wanted| match wanted.strip_suffix('*') {
                                Some(start) => subject.starts_with(start),
                                None => *wanted == subject,
                            });
                            if takes {
                                let (subject, headers, payload) = (subject.clone(), headers.clone(), payload.clone());
                                let delivered = LinkEvent::Delivered {
                                    subject,
                                    reply: None,
                                    headers,
                                    payload,
                                    is_by_wildcard: false,
                                };
                                events.push((to, CoreEvent::Link(delivered)));
                            }
                        }
                    }
                    CoreEffect::Peers(effect) => self.members[place].outcomes.push(effect),
                    _ => {}
                }
            }
        }
    }

    /// Advances the time in small steps; every core wakes at its deadlines.
    fn pass_ms(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(50) {
            self.now = Now { mono_us: self.now.mono_us + 50_000, unix_ms: self.now.unix_ms + 50 };
            for place in 0..self.members.len() {
                let due_us = self.members[place].core.next_deadline_us();
                if due_us.is_some_and(|due_us| due_us <= self.now.mono_us) {
                    self.handle(place, CoreEvent::Woke);
                }
            }
        }
    }

    fn survey(&mut self, place: usize, number: u64, to: SurveyTarget, payload: &'static [u8]) {
        let (number, payload) = (SurveyNumber(number), Bytes::from_static(payload));
        self.handle(place, CoreEvent::Peers(PeerEvent::Survey { number, to, payload }));
    }

    /// Answers the queries that a node has received.
    fn answer(&mut self, place: usize, answer: &[u8]) -> usize {
        let asked = self.queries(place);
        for query in &asked {
            let payload = Bytes::copy_from_slice(answer);
            self.handle(place, CoreEvent::Peers(PeerEvent::QueryAnswered { query: *query, payload }));
        }
        asked.len()
    }

    fn queries(&mut self, place: usize) -> Vec<QueryNumber> {
        let is_query = |effect: &mut PeerEffect| matches!(effect, PeerEffect::Queried { .. });
        let asked: Vec<PeerEffect> = self.members[place].outcomes.extract_if(.., is_query).collect();
        let number = |effect| match effect {
            PeerEffect::Queried { query, .. } => query,
            effect => unreachable!("{effect:?}"),
        };
        asked.into_iter().map(number).collect()
    }

    fn surveyed(&mut self, place: usize) -> Option<Result<SurveyAnswers, SurveyFault>> {
        let is_answer = |effect: &PeerEffect| matches!(effect, PeerEffect::Surveyed { .. });
        let at = self.members[place].outcomes.iter().position(is_answer)?;
        match self.members[place].outcomes.remove(at) {
            PeerEffect::Surveyed { outcome, .. } => Some(outcome),
            effect => unreachable!("{effect:?}"),
        }
    }

    fn found(&mut self, place: usize) -> SurveyAnswers {
        self.surveyed(place).expect("the survey has ended").expect("it was not refused")
    }

    fn changes(&mut self, place: usize) -> Vec<(Box<str>, PeerChange)> {
        let is_change = |effect: &mut PeerEffect| matches!(effect, PeerEffect::Changed { .. });
        let changes = self.members[place].outcomes.extract_if(.., is_change);
        let parts = |effect| match effect {
            PeerEffect::Changed { node, change } => (node.node, change),
            effect => unreachable!("{effect:?}"),
        };
        changes.map(parts).collect()
    }

    fn live(&self, place: usize) -> Vec<Box<str>> {
        self.members[place].core.live_nodes().into_iter().map(|live| live.node).collect()
    }

    fn counters(&self, place: usize) -> PeerCounters {
        self.members[place].core.counters().peers
    }
}

fn nodes(answers: &SurveyAnswers) -> Vec<&str> {
    answers.answers.iter().map(|answer| &*answer.node).collect()
}

fn missing(answers: &SurveyAnswers) -> Vec<(&str, QueryFault)> {
    answers.missing.iter().map(|missing| (&*missing.node, missing.fault)).collect()
}

#[test]
fn the_node_that_started_first_is_the_most_senior() {
    let node = |node: &str, started_ms| LiveNode {
        node: node.into(),
        about: NodeDescription { started_ms, ..NodeDescription::default() },
    };
    let mut nodes = [node("a", 3), node("d", 2), node("b", 1), node("c", 2)];
    nodes.sort_by(|one, other| one.seniority().cmp(&other.seniority()));
    assert_eq!(nodes.map(|live| live.node), ["b", "c", "d", "a"].map(Box::from), "of the same age, the id decides");
}

#[test]
fn nodes_discover_each_other_and_drop_silent_ones() {
    let mut network = Network::new(&["b", "a", "c"]);
    for place in 0..3 {
        assert_eq!(network.live(place), ["a".into(), "b".into(), "c".into()]);
    }
    assert_eq!(network.changes(2), [("a".into(), PeerChange::Joined), ("b".into(), PeerChange::Joined)]);
    network.pass_ms(10_000);
    assert_eq!(network.live(0).len(), 3, "heartbeats keep nodes live");
    network.members[1].is_paused = true;
    network.pass_ms(1_400);
    assert_eq!(network.live(0).len(), 3);
    network.pass_ms(200);
    assert_eq!(network.live(0), ["b".into(), "c".into()]);
    assert_eq!(network.changes(2), [("a".into(), PeerChange::Lost)]);
    assert_eq!((network.counters(0).live, network.counters(0).lost), (1, 1));
    // The paused node resumes and finds the others, although no heartbeat has arrived for a long time.
    network.members[1].is_paused = false;
    network.pass_ms(1_000);
    assert_eq!(network.live(0).len(), 3);
    assert_eq!(network.live(1).len(), 3);
    assert_eq!(network.counters(1).lost, 0, "the paused node loses no other node");
}

#[test]
fn a_node_counts_how_often_others_may_have_lost_it() {
    for (paused_ms, silences) in [(1_250, 0), (1_300, 1), (20_000, 1)] {
        let mut network = Network::new(&["a", "b"]);
        network.pass_ms(2_000);
        let sent = |network: &Network| network.members[1].core.next_deadline_us();
        // Until the moment after a heartbeat.
        let due = sent(&network);
        while sent(&network) == due {
            network.pass_ms(50);
        }
        network.members[1].is_paused = true;
        network.pass_ms(paused_ms - 50);
        network.members[1].is_paused = false;
        network.pass_ms(5_000);
        assert_eq!(
            (network.counters(0).own_silences, network.counters(1).own_silences),
            (0, silences),
            "{paused_ms} ms"
        );
    }
}

#[test]
fn a_connection_that_was_down_for_so_long_counts_once() {
    for (outage_ms, silences) in [(700, 0), (5_000, 1)] {
        let mut network = Network::new(&["a", "b"]);
        network.pass_ms(2_000);
        network.handle(1, CoreEvent::Link(LinkEvent::Disconnected { link: LinkName::Publish }));
        network.pass_ms(outage_ms);
        assert_eq!(network.counters(1).own_silences, 0, "it may come back in time");
        network.connect(1);
        network.pass_ms(2_000);
        assert_eq!(network.counters(1).own_silences, silences, "{outage_ms} ms");
    }
}

#[test]
fn a_node_that_stops_cleanly_is_dropped_at_once() {
    let mut network = Network::new(&["a", "b"]);
    network.changes(0);
    network.handle(1, CoreEvent::Peers(PeerEvent::Depart));
    assert!(network.members[1].core.has_departed());
    assert_eq!(network.changes(0), [("b".into(), PeerChange::Left)]);
    assert_eq!(network.live(0), ["a".into()]);
    assert_eq!(network.counters(0).lost, 0);
    assert_eq!(network.live(1), [] as [Box<str>; 0]);
}

#[test]
fn other_versions_and_duplicate_names_are_reported_once() {
    let mut network = Network::new(&["a"]);
    let heartbeat = |node: &str, version: &str, network: &Network| {
        let about = NodeDescription { name: "x".into(), version: version.into(), started_ms: 5, session_tag_key: None };
        Heartbeat { node: node.into(), about, time_ms: network.now.unix_ms, is_leaving: false, unusable_streams: 0 }
            .encode()
    };
    for _ in 0..3 {
        for (node, version) in [("b", "9.9.9"), ("a", VERSION)] {
            let payload = heartbeat(node, version, &network);
            let (reply, headers) = (None, MessageHeaders::new());
            let event = LinkEvent::Delivered { subject: "dn.n".into(), reply, headers, payload, is_by_wildcard: false };
            network.handle(0, CoreEvent::Link(event));
        }
    }
    let expected =
        [("b".into(), PeerChange::Joined), ("b".into(), PeerChange::OtherVersion), ("a".into(), PeerChange::SameId)];
    assert_eq!(network.changes(0), expected);
    let PeerCounters { live, other_version, same_id, .. } = network.counters(0);
    assert_eq!((live, other_version, same_id), (1, 1, true));
    network.pass_ms(2_000);
    assert!(!network.counters(0).same_id);
}

#[test]
fn a_clock_offset_is_reported() {
    let mut network = Network::new(&["a"]);
    let send = |network: &mut Network, offset_ms: i64| {
        let time_ms = network.now.unix_ms.saturating_add_signed(offset_ms);
        let about = NodeDescription { version: VERSION.into(), ..NodeDescription::default() };
        let payload = Heartbeat { node: "b".into(), about, time_ms, is_leaving: false, unusable_streams: 0 }.encode();
        let (reply, headers) = (None, MessageHeaders::new());
        let event = LinkEvent::Delivered { subject: "dn.n".into(), reply, headers, payload, is_by_wildcard: false };
        network.handle(0, CoreEvent::Link(event));
    };
    send(&mut network, 0);
    network.changes(0);
    // Heartbeats that were delayed for minutes arrive in a burst: the sender's clock was right.
    for late_ms in [-300_000, -299_500, -299_000] {
        send(&mut network, late_ms);
        assert_eq!(network.changes(0), []);
    }
    for (offset_ms, expected) in [
        (0, vec![]),
        (60_000, vec![]),
        (60_001, vec![PeerChange::ClockOff { offset_ms: 60_001 }]),
        (60_001, vec![]),
        (60_000, vec![PeerChange::ClockRight]),
        (-60_000, vec![]),
    ] {
        network.pass_ms(500);
        send(&mut network, offset_ms);
        // After a step of the clock, the second heartbeat is evaluated.
        network.pass_ms(500);
        send(&mut network, offset_ms);
        let changes: Vec<PeerChange> = network.changes(0).into_iter().map(|(_, change)| change).collect();
        assert_eq!(changes, expected, "{offset_ms}");
    }
}

#[test]
fn all_live_nodes_answer_a_survey() {
    let mut network = Network::new(&["a", "b", "c"]);
    network.pass_ms(1_000);
    network.survey(0, 7, SurveyTarget::All, b"?");
    assert_eq!(network.answer(2, b"C"), 1);
    assert!(network.surveyed(0).is_none(), "the survey waits for the other node");
    assert_eq!(network.answer(1, b"B"), 1);
    let found = network.found(0);
    assert!(found.is_complete());
    let answers: Vec<(&str, &[u8])> = found.answers.iter().map(|answer| (&*answer.node, &*answer.payload)).collect();
    assert_eq!(answers, [("b", &b"B"[..]), ("c", b"C")]);
    // A single node has no other node to query.
    let mut alone = Network::new(&["a"]);
    alone.pass_ms(1_000);
    alone.survey(0, 1, SurveyTarget::All, b"?");
    assert!(alone.found(0).is_complete());
}

#[test]
fn a_survey_can_address_one_node() {
    let mut network = Network::new(&["a", "b", "c"]);
    network.survey(0, 1, SurveyTarget::Node("c".into()), b"?");
    assert_eq!((network.answer(1, b"B"), network.answer(2, b"C")), (0, 1));
    assert_eq!(nodes(&network.found(0)), ["c"]);
    network.survey(0, 2, SurveyTarget::Node("x".into()), b"?");
    assert_eq!(missing(&network.found(0)), [("x", QueryFault::NotLive)]);
}

#[test]
fn a_silent_node_is_missing_at_the_deadline() {
    let mut network = Network::new(&["a", "b", "c"]);
    network.pass_ms(1_000);
    network.survey(0, 1, SurveyTarget::All, b"?");
    network.answer(1, b"B");
    network.pass_ms(950);
    assert!(network.surveyed(0).is_none());
    network.pass_ms(50);
    let found = network.found(0);
    assert_eq!((nodes(&found), missing(&found)), (vec!["b"], vec![("c", QueryFault::Silent)]));
    assert_eq!(network.counters(0).incomplete, 1);
    // A late answer changes nothing, and the other node has dropped the query.
    network.answer(2, b"C");
    assert!(network.surveyed(0).is_none());
}

#[test]
fn nodes_that_stop_or_become_silent_are_not_waited_for() {
    let mut network = Network::new(&["a", "b", "c"]);
    network.pass_ms(1_000);
    network.members[2].is_paused = true;
    network.pass_ms(1_000);
    network.survey(0, 1, SurveyTarget::All, b"?");
    network.handle(1, CoreEvent::Peers(PeerEvent::Depart));
    assert!(network.surveyed(0).is_none());
    network.pass_ms(600);
    assert_eq!(missing(&network.found(0)), [("c", QueryFault::NotLive)], "a node that has stopped is not missing");
}

#[test]
fn a_node_that_has_just_connected_waits_for_nodes_that_it_does_not_know() {
    let mut network = Network::new(&["a"]);
    network.survey(0, 1, SurveyTarget::All, b"?");
    assert!(network.surveyed(0).is_none());
    network.pass_ms(450);
    assert!(network.surveyed(0).is_none());
    network.pass_ms(50);
    assert!(network.found(0).is_complete());
}

#[test]
fn a_survey_waits_for_a_node_that_becomes_known_after_its_start() {
    for has_answered in [true, false] {
        let mut network = Network::new(&["a"]);
        let deliver = |network: &mut Network, subject: &str, headers, payload| {
            let (subject, reply) = (subject.into(), None);
            let event = LinkEvent::Delivered { subject, reply, headers, payload, is_by_wildcard: false };
            network.handle(0, CoreEvent::Link(event));
        };
        network.survey(0, 1, SurveyTarget::All, b"?");
        if has_answered {
            deliver(&mut network, "dn.s.a.1", MessageHeaders::new().with(NODE, "b"), Bytes::from_static(b"B"));
        }
        let (about, time_ms) = (NodeDescription::default(), network.now.unix_ms);
        let heartbeat = Heartbeat { node: "b".into(), about, time_ms, is_leaving: false, unusable_streams: 0 };
        deliver(&mut network, "dn.n", MessageHeaders::new(), heartbeat.encode());
        network.pass_ms(500);
        if has_answered {
            let found = network.found(0);
            assert!(found.is_complete() && nodes(&found) == ["b"], "{found:?}");
            continue;
        }
        assert!(network.surveyed(0).is_none());
        network.pass_ms(500);
        assert_eq!(missing(&network.found(0)), [("b", QueryFault::Silent)]);
    }
}

#[test]
fn a_survey_of_a_new_node_asks_a_node_that_starts_after_it() {
    for (wait_ms, is_asked) in [(0, true), (450, true), (500, false)] {
        let mut network = Network::new(&["a"]);
        network.pass_ms(wait_ms);
        network.survey(0, 1, SurveyTarget::All, b"?");
        network.start("b");
        assert_eq!(network.answer(1, b"B"), usize::from(is_asked), "after {wait_ms} ms");
        network.pass_ms(500);
        let found = network.found(0);
        assert!(found.is_complete(), "{found:?}");
        assert_eq!(nodes(&found).len(), usize::from(is_asked));
    }
}

#[test]
fn a_node_that_does_not_hear_itself_does_not_answer_for_the_cluster() {
    let mut network = Network::new(&["a", "b"]);
    // The connection is open, and delivers nothing: neither the heartbeats of others nor its own.
    let subjects = std::mem::take(&mut network.members[0].subjects);
    network.pass_ms(10_000);
    assert_eq!(network.live(0).len(), 1);
    network.survey(0, 1, SurveyTarget::All, b"?");
    network.pass_ms(1_000);
    assert!(network.found(0).is_cut_off, "an empty table proves nothing");
    network.members[0].subjects = subjects;
    network.pass_ms(1_500);
    network.survey(0, 2, SurveyTarget::All, b"?");
    assert_eq!(network.answer(1, b"b"), 1);
    assert!(network.found(0).is_complete());
    // It becomes deaf later.
    network.members[0].subjects.clear();
    network.pass_ms(1_400);
    assert_eq!(network.live(0).len(), 2);
    network.pass_ms(1_000);
    assert_eq!(network.live(0).len(), 1);
    network.survey(0, 3, SurveyTarget::All, b"?");
    network.pass_ms(1_000);
    assert!(network.found(0).is_cut_off);
}

#[test]
fn without_nats_an_answer_is_incomplete() {
    let mut network = Network::new(&["a", "b"]);
    network.pass_ms(1_000);
    for link in [LinkName::Publish, LinkName::Live] {
        network.handle(0, CoreEvent::Link(LinkEvent::Disconnected { link }));
        network.survey(0, 1, SurveyTarget::All, b"?");
        let found = network.found(0);
        assert!(found.is_cut_off && !found.is_complete());
        network.connect(0);
    }
    // No node is lost during the time without connections.
    network.handle(0, CoreEvent::Link(LinkEvent::Disconnected { link: LinkName::Live }));
    network.pass_ms(60_000);
    assert_eq!(network.live(0).len(), 2);
    network.connect(0);
    network.pass_ms(1_000);
    assert_eq!((network.live(0).len(), network.counters(0).lost), (2, 0));
}

#[test]
fn surveys_and_queries_are_limited() {
    let limits = PeerLimits { surveys_max: 2, queries_max: 3, ..PeerLimits::default() };
    let mut network = Network::with_limits(&["a", "b", "c"], &limits);
    network.pass_ms(1_000);
    network.survey(0, 1, SurveyTarget::All, b"?");
    network.survey(0, 2, SurveyTarget::All, b"?");
    assert!(network.surveyed(0).is_none(), "two are at the limit");
    network.survey(0, 3, SurveyTarget::All, b"?");
    assert_eq!(network.surveyed(0), Some(Err(SurveyFault::Busy)));
    assert_eq!(network.counters(0).surveys_refused, 1);
    // The third query is at the other nodes' limit, the fourth one past it.
    network.survey(1, 1, SurveyTarget::Node("c".into()), b"?");
    network.survey(1, 2, SurveyTarget::Node("c".into()), b"?");
    assert_eq!(missing(&network.found(1)), [("c", QueryFault::Busy)]);
    assert_eq!((network.counters(2).queries, network.counters(2).queries_refused), (4, 1));
    // Queries that are never answered are dropped at their deadline.
    network.queries(2);
    network.pass_ms(1_000);
    network.survey(1, 3, SurveyTarget::Node("c".into()), b"?");
    assert_eq!(network.answer(2, b"C"), 1);
}

#[test]
fn answers_are_limited() {
    let limits = PeerLimits { survey_bytes_max: 8, ..PeerLimits::default() };
    let mut network = Network::with_limits(&["a", "b", "c"], &limits);
    network.pass_ms(1_000);
    for (of_b, of_c, expected) in [(4, 4, vec![]), (4, 5, vec![("c", QueryFault::TooLarge)])] {
        network.survey(0, 1, SurveyTarget::All, b"?");
        network.answer(1, &vec![0; of_b]);
        network.answer(2, &vec![0; of_c]);
        assert_eq!(missing(&network.found(0)), expected);
    }
    let mut network = Network::new(&["a", "b"]);
    network.pass_ms(1_000);
    let largest = PAYLOAD_BYTES_MAX - 1_024;
    for (bytes, expected) in [(largest, vec![]), (largest + 1, vec![("b", QueryFault::TooLarge)])] {
        network.survey(0, 1, SurveyTarget::All, b"?");
        network.answer(1, &vec![0; bytes]);
        assert_eq!(missing(&network.found(0)), expected);
    }
    network.survey(0, 1, SurveyTarget::All, &[0; PAYLOAD_BYTES_MAX]);
    assert_eq!(network.surveyed(0), Some(Err(SurveyFault::TooLarge)));
}

#[test]
fn the_table_is_limited() {
    let limits = PeerLimits { nodes_max: 2, ..PeerLimits::default() };
    let network = Network::with_limits(&["a", "b", "c", "d"], &limits);
    assert_eq!(network.live(0), ["a".into(), "b".into(), "c".into()]);
    assert_eq!(network.counters(0).live, 2);
    assert!(network.counters(0).dropped > 0);
}

#[test]
fn malformed_messages_are_counted() {
    let mut network = Network::new(&["a"]);
    let node = || MessageHeaders::new().with(NODE, "b");
    let cases = [
        ("dn.n", MessageHeaders::new(), 1),
        ("dn.q", MessageHeaders::new(), 1),
        ("dn.q", node(), 1),
        ("dn.n.a", node().with("Dn-Survey", "x"), 1),
        ("dn.s.a.x", node(), 1),
        ("dn.s.a.7", MessageHeaders::new(), 1),
        ("dn.s.a.7", node(), 0),
    ];
    for (subject, headers, expected) in cases {
        let before = network.counters(0).dropped;
        let payload = Bytes::from_static(b"\xff");
        let event =
            LinkEvent::Delivered { subject: subject.into(), reply: None, headers, payload, is_by_wildcard: false };
        network.handle(0, CoreEvent::Link(event));
        assert_eq!(network.counters(0).dropped - before, expected, "{subject}");
    }
    assert_eq!(network.queries(0), []);
}

#[test]
fn nodes_share_session_counts_of_users() {
    let mut network = Network::new(&["a", "b", "c"]);
    let elsewhere = |network: &mut Network, place: usize| {
        let is_count = |effect: &mut PeerEffect| matches!(effect, PeerEffect::UserSessionsElsewhere { .. });
        let counts = network.members[place].outcomes.extract_if(.., is_count).map(|effect| match effect {
            PeerEffect::UserSessionsElsewhere { user, sessions } => (user.to_string(), sessions),
            effect => unreachable!("{effect:?}"),
        });
        counts.last()
    };
    let set = |network: &mut Network, place: usize, sessions: u32| {
        network.handle(place, CoreEvent::Peers(PeerEvent::UserSessions { user: "ann".into(), sessions }));
    };
    set(&mut network, 0, 2);
    set(&mut network, 1, 1);
    assert_eq!(elsewhere(&mut network, 2), None);
    // Counts are delayed by up to one heartbeat.
    network.pass_ms(500);
    assert_eq!(elsewhere(&mut network, 2), Some(("ann".to_owned(), 3)));
    assert_eq!(elsewhere(&mut network, 0), Some(("ann".to_owned(), 1)));
    assert_eq!(network.counters(2).users_elsewhere, 1);
    network.pass_ms(5_000);
    assert_eq!(elsewhere(&mut network, 2), None, "repetitions change nothing");
    // The sessions of a node that is silent or stops have ended.
    network.members[0].is_paused = true;
    network.pass_ms(1_600);
    assert_eq!(elsewhere(&mut network, 2), Some(("ann".to_owned(), 1)));
    network.handle(1, CoreEvent::Peers(PeerEvent::Depart));
    assert_eq!(elsewhere(&mut network, 2), Some(("ann".to_owned(), 0)));
    // The first node resumes, and its counts arrive with its next heartbeats.
    network.members[0].is_paused = false;
    network.pass_ms(1_100);
    assert_eq!(elsewhere(&mut network, 2), Some(("ann".to_owned(), 2)));
}
