//! Nodes, and a stream that stores their leases.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_engine::Now;

use super::{LeaseChange, LeaseNames, record::LeaseStatus};
use crate::{
    core::{
        Core, CoreEffect, CoreEvent, CoreLimits, CoreOptions,
        leases::record::LeaseRecord,
        peers::{NodeDescription, PeerEffect, PeerEvent, PeerLimits},
    },
    link::{
        LinkEffect, LinkEvent, LinkName, MessageHeaders, PublishAck, PublishFault, ReadAnswer, ReadFault,
        RequestNumber, StoredMessage,
    },
    record::{EXPECTED_LAST, MESSAGE_ID},
};

const STEP_US: u64 = 10_000;

struct Stream {
    newest: BTreeMap<Box<str>, StoredMessage>,
    ids: BTreeMap<Box<str>, u64>,
    last: u64,
    stored: u64,
    has_leader: bool,
    /// With one replica, conditions are checked before duplicates are detected.
    is_single: bool,
    acknowledges: bool,
    republishes: bool,
    refuses_reads: bool,
    answers_reads: bool,
    reads_of_all: u32,
}

struct Rig {
    nodes: Vec<Core>,
    /// Nodes that have stopped.
    ended: BTreeSet<usize>,
    stream: Stream,
    now_us: u64,
    changes: Vec<(usize, LeaseChange)>,
    /// Reconnects of the connection for reads.
    reconnects: u32,
}

impl Rig {
    fn new(nodes: usize) -> Self {
        Self::with(nodes, &CoreLimits::default())
    }

    fn with(nodes: usize, limits: &CoreLimits) -> Self {
        let stream = Stream {
            newest: BTreeMap::new(),
            ids: BTreeMap::new(),
            last: 0,
            stored: 0,
            has_leader: true,
            is_single: false,
            acknowledges: true,
            republishes: true,
            refuses_reads: false,
            answers_reads: true,
            reads_of_all: 0,
        };
        let mut rig = Self {
            nodes: Vec::new(),
            ended: BTreeSet::new(),
            stream,
            now_us: 1_000_000,
            changes: Vec::new(),
            reconnects: 0,
        };
        for _ in 0..nodes {
            rig.start(limits);
        }
        rig
    }

    fn start(&mut self, limits: &CoreLimits) {
        let place = self.nodes.len();
        self.nodes.push(Core::new(CoreOptions {
            prefix: "dn".into(),
            node: name(place),
            namespaces: vec![None],
            broadcasts: vec![None],
            has_leases: true,
            has_room_logs: false,
            creatable: Vec::new(),
            limits: limits.clone(),
        }));
        for link in LinkName::ALL {
            self.handle(place, CoreEvent::Link(LinkEvent::Connected { link, max_payload: 1 << 20 }));
        }
        self.handle(place, CoreEvent::Peers(PeerEvent::Announce { about: NodeDescription::default() }));
    }

    fn pass_ms(&mut self, time_ms: u64) {
        let until_us = self.now_us + time_ms * 1_000;
        while self.now_us < until_us {
            self.now_us += STEP_US;
            for place in (0..self.nodes.len()).filter(|place| !self.ended.contains(place)).collect::<Vec<_>>() {
                if self.nodes[place].next_deadline_us().is_some_and(|due_us| due_us <= self.now_us) {
                    self.handle(place, CoreEvent::Woke);
                }
            }
        }
    }

    fn handle(&mut self, place: usize, event: CoreEvent) {
        let mut events = vec![(place, event)];
        while let Some((place, event)) = events.pop() {
            if self.ended.contains(&place) {
                continue;
            }
            let now = Now { mono_us: self.now_us, unix_ms: 1_700_000_000_000 + self.now_us / 1_000 };
            let mut effects = Vec::new();
            self.nodes[place].handle(now, event, &mut effects);
            for effect in effects {
                match effect {
                    CoreEffect::Peers(PeerEffect::LeaseChanged(change)) => self.changes.push((place, change)),
                    CoreEffect::Link(effect) => self.perform(place, effect, &mut events),
                    _ => {}
                }
            }
        }
    }

    fn perform(&mut self, place: usize, effect: LinkEffect, events: &mut Vec<(usize, CoreEvent)>) {
        match effect {
            LinkEffect::Publish { request, subject, headers, .. } if subject.starts_with("dn.l.") => {
                let outcome = self.store(&subject, &headers, events);
                let outcome = if self.stream.acknowledges { outcome } else { Err(PublishFault::TimedOut) };
                events.extend(request.map(|request| acknowledged(place, request, outcome)));
            }
            LinkEffect::LastOf { request, subjects, .. } => {
                let start = subjects[0].trim_end_matches('*');
                let is_wide = subjects[0].ends_with('*');
                let is_asked = |subject: &str| if is_wide { subject.starts_with(start) } else { subject == start };
                let found = self.stream.newest.iter().filter(|(subject, _)| is_asked(subject));
                let messages = found.map(|(_, message)| message.clone()).collect();
                let read = ReadAnswer { messages, ..ReadAnswer::default() };
                self.stream.reads_of_all += u32::from(is_wide);
                let description = "too many messages".into();
                let refused = ReadFault::Refused { code: 413, error_code: 0, description };
                let outcome = match &self.stream {
                    stream if !stream.answers_reads => Err(ReadFault::TimedOut),
                    stream if stream.refuses_reads && is_wide => Err(refused),
                    _ => Ok(read),
                };
                events.push((place, CoreEvent::Link(LinkEvent::Answered { request, outcome })));
            }
            LinkEffect::Reconnect { link: LinkName::Read } => self.reconnects += 1,
            _ => {}
        }
    }

    fn store(
        &mut self,
        subject: &str,
        headers: &MessageHeaders,
        events: &mut Vec<(usize, CoreEvent)>,
    ) -> Result<PublishAck, PublishFault> {
        let stream = &mut self.stream;
        if !stream.has_leader {
            return Err(PublishFault::NoResponders);
        }
        let id = headers.get(MESSAGE_ID).expect("each message has an id");
        let newest = stream.newest.get(subject).map_or(0, |message| message.sequence);
        let is_expected = headers.number(EXPECTED_LAST) == Some(newest);
        let known = stream.ids.get(id).copied().filter(|_| !stream.is_single || is_expected);
        if let Some(sequence) = known {
            return Ok(PublishAck { stream: "dn_LEASE".into(), sequence, is_duplicate: true });
        }
        if !is_expected {
            return Err(PublishFault::Refused { code: 400, error_code: 10_071, description: "wrong".into() });
        }
        stream.last += 1;
        stream.stored += 1;
        let sequence = stream.last;
        stream.ids.insert(id.into(), sequence);
        let message = StoredMessage {
            subject: subject.into(),
            sequence,
            last_sequence: newest,
            time_ms: 0,
            headers: headers.clone(),
            payload: bytes::Bytes::new(),
        };
        stream.newest.insert(subject.into(), message);
        if stream.republishes {
            for place in 0..self.nodes.len() {
                events.push((place, republished(subject, headers, sequence)));
            }
        }
        Ok(PublishAck { stream: "dn_LEASE".into(), sequence, is_duplicate: false })
    }

    fn term(&self, place: usize) -> u64 {
        self.nodes[place].counters().leases.term
    }

    fn terms(&self) -> Vec<u64> {
        (0..self.nodes.len()).map(|place| self.term(place)).collect()
    }

    fn status(&self, place: usize) -> LeaseStatus {
        let message = &self.stream.newest[&LeaseNames::new("dn").subject_of(&name(place))];
        LeaseRecord::of(&message.headers).expect("it is a lease").status
    }
}

fn name(place: usize) -> Box<str> {
    format!("n.{place}").into()
}

fn acknowledged(place: usize, request: RequestNumber, outcome: Result<PublishAck, PublishFault>) -> (usize, CoreEvent) {
    (place, CoreEvent::Link(LinkEvent::Acknowledged { request, outcome }))
}

fn republished(subject: &str, headers: &MessageHeaders, sequence: u64) -> CoreEvent {
    CoreEvent::Link(LinkEvent::Delivered {
        subject: subject.replacen("dn.l.", "dn.lw.", 1).into(),
        reply: None,
        headers: headers.clone().with("Nats-Sequence", sequence.to_string()),
        payload: bytes::Bytes::new(),
        is_by_wildcard: true,
    })
}

#[test]
fn each_node_holds_its_lease_with_one_message_per_interval() {
    let mut rig = Rig::new(3);
    let terms = rig.terms();
    assert!(terms.iter().all(|term| *term > 0), "{terms:?}");
    rig.stream.stored = 0;
    rig.pass_ms(20_000);
    assert_eq!((rig.terms(), rig.stream.stored), (terms, 3 * 40));
    assert_eq!(rig.changes.len(), 3, "{:?}", rig.changes);
    assert!(rig.nodes.iter().all(|node| node.counters().leases.others == 2));
}

#[test]
fn an_expired_lease_is_taken_once() {
    let mut rig = Rig::new(3);
    rig.pass_ms(5_000);
    rig.ended.insert(0);
    rig.pass_ms(1_480);
    assert_eq!(rig.status(0), LeaseStatus::Held);
    rig.pass_ms(520);
    assert!(matches!(rig.status(0), LeaseStatus::Taken { .. }));
    let taken: u64 = rig.nodes.iter().map(|node| node.counters().leases.taken).sum();
    assert_eq!(taken, 1);
    rig.pass_ms(10_000);
    assert_eq!(rig.changes.len(), 4, "{:?}", rig.changes);
    assert!((1..3).all(|place| rig.nodes[place].counters().leases.others == 1));
}

#[test]
fn a_lease_is_kept_while_the_stream_has_no_leader() {
    let mut rig = Rig::new(3);
    rig.pass_ms(5_000);
    let terms = rig.terms();
    for outage_ms in [400, 1_500, 8_000] {
        rig.stream.has_leader = false;
        rig.pass_ms(outage_ms);
        assert_eq!(rig.terms(), terms);
        rig.stream.has_leader = true;
        rig.pass_ms(10_000);
        assert_eq!(rig.terms(), terms);
    }
    assert_eq!(rig.changes.len(), 3, "{:?}", rig.changes);
}

#[test]
fn a_lost_node_is_detected_after_an_election() {
    let mut rig = Rig::new(2);
    rig.stream.has_leader = false;
    rig.ended.insert(0);
    rig.pass_ms(6_000);
    rig.stream.has_leader = true;
    rig.pass_ms(1_400);
    assert_eq!(rig.status(0), LeaseStatus::Held);
    rig.pass_ms(1_000);
    assert_eq!(rig.status(0), LeaseStatus::Taken { by: name(1) });
}

#[test]
fn a_renewal_with_a_lost_reply_counts() {
    for is_single in [false, true] {
        let mut rig = Rig::new(2);
        rig.stream.is_single = is_single;
        rig.pass_ms(3_000);
        let terms = rig.terms();
        rig.stream.acknowledges = false;
        rig.pass_ms(1_200);
        rig.stream.acknowledges = true;
        rig.pass_ms(3_000);
        assert_eq!((rig.terms(), rig.changes.len()), (terms, 2), "{is_single} {:?}", rig.changes);
    }
}

#[test]
fn a_takeover_with_a_lost_reply_counts() {
    for is_single in [false, true] {
        let mut rig = Rig::new(2);
        rig.stream.is_single = is_single;
        rig.pass_ms(3_000);
        rig.ended.insert(0);
        rig.pass_ms(1_450);
        rig.stream.acknowledges = false;
        rig.pass_ms(600);
        assert_eq!(rig.status(0), LeaseStatus::Taken { by: name(1) });
        rig.stream.acknowledges = true;
        rig.pass_ms(2_000);
        let leases = rig.nodes[1].counters().leases;
        assert_eq!(leases.others, 0, "{is_single} {leases:?}");
        assert_eq!(rig.term(1), 2, "{is_single}");
    }
}

#[test]
fn a_node_whose_lease_was_taken_begins_a_higher_term() {
    let mut rig = Rig::new(2);
    rig.pass_ms(3_000);
    let before = rig.term(0);
    // The node is paused for long enough, and continues.
    rig.ended.insert(0);
    rig.pass_ms(3_000);
    rig.ended.remove(&0);
    rig.pass_ms(2_000);
    assert!(rig.changes.contains(&(0, LeaseChange::Lost { by: name(1) })), "{:?}", rig.changes);
    assert!(rig.term(0) > before, "{} after {before}", rig.term(0));
    assert_eq!((rig.status(0), rig.nodes[1].counters().leases.others), (LeaseStatus::Held, 1));
    // The paused node does not take leases that were renewed during the pause.
    assert_eq!(rig.nodes[0].counters().leases.taken, 0);
}

#[test]
fn a_lease_whose_renewals_are_not_republished_is_not_taken() {
    let mut rig = Rig::new(2);
    rig.pass_ms(3_000);
    let terms = rig.terms();
    rig.stream.republishes = false;
    rig.pass_ms(10_000);
    assert_eq!((rig.terms(), rig.changes.len()), (terms, 2), "{:?}", rig.changes);
}

#[test]
fn a_node_that_stops_cleanly_releases_its_lease() {
    let mut rig = Rig::new(2);
    rig.pass_ms(3_000);
    rig.handle(0, CoreEvent::Peers(PeerEvent::Depart));
    assert_eq!(rig.status(0), LeaseStatus::Released);
    rig.pass_ms(5_000);
    assert_eq!((rig.status(0), rig.changes.len()), (LeaseStatus::Released, 2));
    assert_eq!(rig.nodes[1].counters().leases.others, 0);
}

#[test]
fn a_node_that_stops_with_a_renewal_in_doubt_releases_its_lease_when_it_is_answered() {
    for (is_first, is_answered) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut rig = Rig::new(0);
        rig.stream.acknowledges = !is_first;
        for _ in 0..2 {
            rig.start(&CoreLimits::default());
        }
        rig.pass_ms(3_000);
        // The next renewals are stored, and the node does not hear of it.
        rig.stream.acknowledges = false;
        rig.pass_ms(1_200);
        rig.handle(0, CoreEvent::Peers(PeerEvent::Depart));
        assert_eq!((rig.status(0), rig.nodes[0].has_departed()), (LeaseStatus::Held, false));
        rig.stream.acknowledges = is_answered;
        rig.pass_ms(1_990);
        let released = if is_answered { LeaseStatus::Released } else { LeaseStatus::Held };
        assert_eq!((rig.status(0), rig.nodes[0].has_departed()), (released.clone(), is_answered));
        rig.pass_ms(20);
        assert!(rig.nodes[0].has_departed(), "after two seconds at most");
        assert_eq!(rig.status(0), released);
    }
}

#[test]
fn a_release_that_the_stream_does_not_answer_is_sent_again() {
    let mut rig = Rig::new(2);
    rig.pass_ms(3_000);
    rig.stream.has_leader = false;
    rig.handle(0, CoreEvent::Peers(PeerEvent::Depart));
    rig.pass_ms(1_000);
    assert_eq!((rig.status(0), rig.nodes[0].has_departed()), (LeaseStatus::Held, false));
    // It is stored now, and the answer is lost.
    (rig.stream.has_leader, rig.stream.acknowledges) = (true, false);
    rig.pass_ms(300);
    assert_eq!((rig.status(0), rig.nodes[0].has_departed()), (LeaseStatus::Released, false));
    rig.stream.acknowledges = true;
    rig.pass_ms(300);
    assert_eq!((rig.status(0), rig.nodes[0].has_departed()), (LeaseStatus::Released, true));
}

#[test]
fn a_starting_node_finds_the_lease_of_a_lost_one() {
    let mut rig = Rig::new(1);
    rig.pass_ms(2_000);
    rig.ended.insert(0);
    rig.pass_ms(60_000);
    rig.start(&CoreLimits::default());
    rig.pass_ms(2_200);
    assert_eq!(rig.status(0), LeaseStatus::Taken { by: name(1) });
}

#[test]
fn a_truncated_stream_gives_new_terms() {
    let mut rig = Rig::new(2);
    rig.pass_ms(3_000);
    rig.stream.newest.clear();
    rig.stream.ids.clear();
    rig.stream.last = 0;
    rig.pass_ms(6_000);
    assert_eq!((rig.status(0), rig.status(1)), (LeaseStatus::Held, LeaseStatus::Held));
    assert!(rig.terms().iter().all(|term| *term > 0 && *term <= rig.stream.last), "{:?}", rig.terms());
    assert!(rig.nodes.iter().all(|node| node.counters().leases.others == 1));
}

#[test]
fn observed_leases_are_limited() {
    let peers = PeerLimits { nodes_max: 2, ..PeerLimits::default() };
    let mut rig = Rig::with(3, &CoreLimits { peers: peers.clone(), ..CoreLimits::default() });
    rig.pass_ms(2_000);
    let counters = |rig: &Rig| rig.nodes[0].counters().leases;
    assert_eq!((counters(&rig).others, counters(&rig).dropped), (2, 0));
    rig.start(&CoreLimits { peers, ..CoreLimits::default() });
    rig.pass_ms(2_000);
    assert_eq!(counters(&rig).others, 2);
    assert!(counters(&rig).dropped > 0);
}

#[test]
fn invalid_lease_messages_are_counted_and_ignored() {
    let mut rig = Rig::new(1);
    let headers = |node: &str, status: &str| MessageHeaders::new().with("Dn-Lease", status).with("Dn-Node", node);
    for (headers, subject) in [
        (MessageHeaders::new(), "dn.l.node.x"),
        (headers("x", "given"), "dn.l.node.x"),
        (headers("x", "taken"), "dn.l.node.x"),
        (headers("y", "held"), "dn.l.node.x"),
    ] {
        let before = rig.nodes[0].counters().leases.dropped;
        rig.handle(0, republished(subject, &headers, 900));
        let leases = rig.nodes[0].counters().leases;
        assert_eq!((leases.dropped, leases.others), (before + 1, 0), "{headers:?}");
    }
}

#[test]
fn a_server_that_answers_no_read_of_leases_is_left() {
    let limits = CoreLimits { audit_interval_ms: 1_000, silence_timeout_ms: 5_000, ..CoreLimits::default() };
    let mut rig = Rig::with(1, &limits);
    rig.pass_ms(30_000);
    assert_eq!(rig.reconnects, 0);
    rig.stream.answers_reads = false;
    rig.pass_ms(1_000 + 5_000);
    assert!(rig.reconnects <= 1);
    rig.pass_ms(1_000);
    assert_eq!(rig.reconnects, 1, "no other read notices that the connection is broken");
    rig.stream.answers_reads = true;
    rig.pass_ms(30_000);
    assert_eq!(rig.reconnects, 1);
}

#[test]
fn a_refused_read_of_all_leases_waits_for_the_next_audit() {
    let mut rig = Rig::new(1);
    rig.pass_ms(1_000);
    (rig.stream.refuses_reads, rig.stream.reads_of_all) = (true, 0);
    rig.pass_ms(65_000);
    assert_eq!(rig.stream.reads_of_all, 2, "one read in 30 s");
}
