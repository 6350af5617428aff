use bytes::Bytes;
use serde_json::{Value, json};

use dunlin_engine::{
    Event,
    log::{LogRecord, ProposalNumber},
};
use dunlin_protocol::{Payload, Publication};

use super::*;
use crate::{
    core::{
        Core, CoreEffect, CoreEvent, CoreLimits,
        peers::{NodeDescription, PeerEvent},
        rig::{NOW, Rig, SHARD, stored},
    },
    link::{LinkEvent, LinkName, MessageHeaders},
    record::MESSAGE_ID,
};

const CHANNEL: &str = "chat:1";
const WINDOW_US: u64 = 300_000_000;
const SURVEY_TIMEOUT_US: u64 = 1_000_000;
/// After the announcement, when each other node has had time to send a heartbeat.
const SETTLED_US: u64 = 500_000;

impl Rig {
    /// A member of a cluster with these other nodes.
    fn with_nodes(nodes: &[&str]) -> Self {
        Self::new(CoreLimits::default()).joined(nodes)
    }

    fn joined(self, nodes: &[&str]) -> Self {
        let mut rig = self;
        rig.handle(CoreEvent::Peers(PeerEvent::Announce { about: NodeDescription::default() }));
        for node in nodes {
            rig.receive_at("dn.n", &json!({ "v": 1, "node": node }));
        }
        rig.wait(SETTLED_US);
        rig.handle(CoreEvent::Follow { shard: SHARD, channel: CHANNEL.into(), namespace: 1 });
        rig.unstored.clear();
        rig
    }

    fn receive_at(&mut self, subject: &str, message: &Value) {
        let payload = Bytes::from(message.to_string());
        let (headers, reply, is_by_wildcard) = (MessageHeaders::new(), None, false);
        let subject = subject.into();
        self.handle(CoreEvent::Link(LinkEvent::Delivered { subject, reply, headers, payload, is_by_wildcard }));
    }

    fn publish_with(&mut self, proposal: u64, key: Option<&str>) {
        self.publish_to(CHANNEL, proposal, key);
    }

    fn publish_to(&mut self, channel: &str, proposal: u64, key: Option<&str>) {
        let data = Payload::from_json(Bytes::from_static(b"1"));
        let (tags, epoch) = (Vec::new(), Box::default());
        let publication = Arc::new(Publication { data, info: None, offset: 0, tags, time_ms: 0, epoch, version: 0 });
        let idempotency_key = key.map(Into::into);
        let record = Box::new(LogRecord { publication, version_epoch: Box::default(), idempotency_key });
        let (channel, proposal) = (channel.into(), ProposalNumber(proposal));
        self.handle(CoreEvent::Propose { shard: SHARD, channel, namespace: 1, proposal, record });
    }

    /// The questions for keys, with the subjects they were sent to.
    fn take_questions(&mut self) -> Vec<(Box<str>, Value)> {
        let messages = self.unstored.drain(..).filter(|(subject, _)| subject.starts_with("dn.w."));
        let decoded = messages.map(|(subject, payload)| (subject, serde_json::from_slice(&payload).expect("JSON")));
        decoded
            .filter_map(|(subject, mut message): (_, Value)| Some((subject, message.get_mut("KeyQuestion")?.take())))
            .collect()
    }

    /// The keys of the only question, which was sent to `n2`.
    fn take_asked(&mut self) -> (Value, Vec<String>) {
        let mut questions = self.take_questions();
        assert_eq!(questions.len(), 1, "{questions:?}");
        let (subject, question) = questions.remove(0);
        assert_eq!(&*subject, "dn.w.n2");
        let keys =
            question["keys"].as_array().expect("a list").iter().map(|key| key.as_str().expect("a text").to_owned());
        let keys = keys.collect();
        (question, keys)
    }

    fn answer_keys(&mut self, node: &str, question: &Value, seen: &Value) {
        let answer = json!({ "number": question["number"], "node": node, "channel": CHANNEL, "epoch": question["epoch"],
            "seen": seen });
        self.receive_at("dn.w.n1", &json!({ "KeyAnswer": answer }));
    }

    fn sent_ids(&self) -> Vec<&str> {
        self.sent.iter().map(|(_, id)| &**id).collect()
    }

    fn committed(&mut self) -> Vec<(u64, u64)> {
        let offset = |effect| match effect {
            CoreEffect::ToShard { event: Event::Committed { proposal, outcome, .. }, .. } => {
                Some((proposal.0, outcome.expect("it is stored")))
            }
            _ => None,
        };
        self.effects.drain(..).filter_map(offset).collect()
    }

    fn unanswered(&self) -> u64 {
        self.core.counters().keys_unanswered
    }
}

impl Rig {
    fn connection(&mut self, is_up: bool) {
        let link = LinkName::Publish;
        let event =
            if is_up { LinkEvent::Connected { link, max_payload: 1 << 20 } } else { LinkEvent::Disconnected { link } };
        self.handle(CoreEvent::Link(event));
    }

    /// The stream of leases republishes a renewal.
    fn renewed(&mut self, node: &str, sequence: u64) {
        self.lease_stored(node, "held", sequence);
    }

    fn lease_stored(&mut self, node: &str, status: &str, sequence: u64) {
        let headers = MessageHeaders::new()
            .with("Dn-Lease", status)
            .with("Dn-Node", node)
            .with("Nats-Sequence", sequence.to_string());
        let subject = format!("dn.lw.node.{node}").into();
        let (reply, payload, is_by_wildcard) = (None, Bytes::new(), false);
        self.handle(CoreEvent::Link(LinkEvent::Delivered { subject, reply, headers, payload, is_by_wildcard }));
    }
}

fn seen(key: &str, sequence: u64) -> Value {
    json!({ "key": key, "sequence": sequence, "until_ms": NOW.unix_ms + 1_000 })
}

#[test]
fn a_key_that_another_node_has_seen_is_not_published_again() {
    let mut rig = Rig::with_nodes(&["n2", "n3"]);
    rig.publish_with(1, None);
    assert_eq!(rig.sent_ids().len(), 1, "a publication without a key does not wait");
    rig.publish_with(2, Some("k"));
    rig.publish_with(3, None);
    let questions = rig.take_questions();
    assert_eq!(questions.iter().map(|(subject, _)| &**subject).collect::<Vec<_>>(), ["dn.w.n2", "dn.w.n3"]);
    assert_eq!(rig.sent_ids().len(), 1, "they wait, in order");
    let question = &questions[0].1;
    assert_eq!((&question["channel"], &question["epoch"]), (&json!(CHANNEL), &json!("e")));
    assert_eq!(question["keys"], json!(["k"]));
    rig.answer_keys("n3", question, &json!([]));
    assert_eq!((rig.committed(), rig.sent_ids().len()), (vec![], 1));
    rig.answer_keys("n2", question, &json!([seen("k", 7)]));
    assert_eq!(rig.committed(), [(2, 7)]);
    assert_eq!(rig.sent_ids().len(), 2, "the one behind it is sent");
    rig.publish_with(4, Some("k"));
    assert_eq!((rig.take_questions(), rig.committed()), (vec![], vec![(4, 7)]), "this node knows the key now");
}

#[test]
fn keys_that_wait_at_the_same_time_share_a_question() {
    let mut rig = Rig::with_nodes(&["n2"]);
    rig.publish_with(1, Some("a"));
    let (first, keys) = rig.take_asked();
    assert_eq!(keys, ["a"]);
    for number in 0..=KEYS_MAX as u64 {
        rig.publish_with(2 + number, Some(&format!("k{number}")));
    }
    assert_eq!(rig.take_questions(), [], "a channel has one question in flight");
    rig.answer_keys("n2", &first, &json!([]));
    let (second, keys) = rig.take_asked();
    assert_eq!((rig.sent_ids().len(), keys.len()), (1, KEYS_MAX), "at the limit");
    rig.answer_keys("n2", &second, &json!([seen("k0", 3)]));
    let (third, keys) = rig.take_asked();
    assert_eq!((rig.committed(), rig.sent_ids().len()), (vec![(2, 3)], KEYS_MAX));
    assert_eq!(keys, [format!("k{KEYS_MAX}")], "past it");
    rig.answer_keys("n2", &third, &json!([]));
    assert_eq!(rig.sent_ids().len(), KEYS_MAX + 1);
}

#[test]
fn the_keys_of_a_question_are_limited_in_bytes() {
    let mut rig = Rig::with_nodes(&["n2"]);
    let long = |number: u64| format!("{number:0>width$}", width = KEY_BYTES_MAX * 2 / 3);
    rig.publish_with(1, Some("a"));
    let (first, _) = rig.take_asked();
    rig.publish_with(2, Some(&long(1)));
    rig.publish_with(3, Some(&long(2)));
    rig.answer_keys("n2", &first, &json!([]));
    let (second, keys) = rig.take_asked();
    assert_eq!(keys, [long(1)]);
    rig.answer_keys("n2", &second, &json!([]));
    assert_eq!(rig.take_asked().1, [long(2)]);
}

#[test]
fn a_node_that_does_not_answer_is_awaited_for_a_second() {
    let mut rig = Rig::with_nodes(&["n2", "n3"]);
    rig.publish_with(1, Some("k"));
    let question = rig.take_questions().remove(0).1;
    rig.answer_keys("n2", &question, &json!([]));
    rig.wait(SETTLED_US + SURVEY_TIMEOUT_US - 1);
    for node in ["n2", "n3"] {
        rig.receive_at("dn.n", &json!({ "v": 1, "node": node }));
    }
    assert_eq!((rig.sent_ids().len(), rig.unanswered()), (0, 0));
    rig.wait(SETTLED_US + SURVEY_TIMEOUT_US);
    assert_eq!((rig.sent_ids().len(), rig.unanswered()), (1, 1));
    // It is asked again for the next key, and its late answer is still true.
    rig.publish_with(2, Some("late"));
    assert_eq!(rig.take_questions().len(), 2);
    rig.answer_keys("n3", &question, &json!([seen("late", 4)]));
    rig.wait(SETTLED_US + 2 * SURVEY_TIMEOUT_US);
    assert_eq!((rig.committed(), rig.sent_ids().len(), rig.unanswered()), (vec![(2, 4)], 1, 2));
}

#[test]
fn a_node_that_is_gone_is_not_awaited() {
    let mut rig = Rig::with_nodes(&["n2"]);
    rig.publish_with(1, Some("k"));
    rig.take_asked();
    rig.receive_at("dn.n", &json!({ "v": 1, "node": "n2", "leaving": true }));
    assert_eq!((rig.sent_ids().len(), rig.unanswered()), (1, 1), "it did not answer");
    rig.publish_with(2, Some("alone"));
    assert_eq!((rig.take_questions().len(), rig.sent_ids().len()), (0, 2), "there is nobody to ask");
    rig.receive_at("dn.n", &json!({ "v": 1, "node": "n2" }));
    rig.publish_with(3, Some("again"));
    assert_eq!(rig.take_asked().1, ["again"]);
}

#[test]
fn nobody_is_asked_after_the_whole_window() {
    for (after_us, questions) in [(SETTLED_US + WINDOW_US - 1, 1), (SETTLED_US + WINDOW_US, 0)] {
        let mut rig = Rig::with_nodes(&[]);
        rig.wait(after_us);
        rig.receive_at("dn.n", &json!({ "v": 1, "node": "n2" }));
        rig.publish_with(1, Some("k"));
        assert_eq!((rig.take_questions().len(), rig.sent_ids().len()), (questions, 1 - questions), "{after_us}");
    }
}

#[test]
fn until_the_table_of_nodes_is_complete_a_key_waits() {
    let mut rig = Rig::new(CoreLimits::default());
    rig.handle(CoreEvent::Peers(PeerEvent::Announce { about: NodeDescription::default() }));
    rig.handle(CoreEvent::Follow { shard: SHARD, channel: CHANNEL.into(), namespace: 1 });
    rig.publish_with(1, Some("k"));
    assert_eq!((rig.take_questions().len(), rig.sent_ids().len()), (0, 0));
    rig.receive_at("dn.n", &json!({ "v": 1, "node": "n2" }));
    rig.wait(SETTLED_US);
    assert_eq!((rig.take_asked().1, rig.sent_ids().len()), (vec!["k".to_owned()], 0));
}

#[test]
fn a_connection_that_delivers_nothing_delays_a_key_by_a_second() {
    let mut rig = Rig::with_nodes(&["n2"]);
    // Its own heartbeats do not arrive any more, so others may be missing.
    rig.is_deaf = true;
    for step in 1..=5 {
        rig.wait(SETTLED_US + step * 400_000);
    }
    rig.publish_with(1, Some("k"));
    rig.publish_with(2, None);
    for after_us in [2_400_000, 2_800_000, 2_999_999] {
        rig.wait(SETTLED_US + after_us);
        assert_eq!((rig.take_questions().len(), rig.sent_ids().len(), rig.unanswered()), (0, 0, 0));
    }
    rig.wait(SETTLED_US + 3_000_000);
    assert_eq!((rig.sent_ids().len(), rig.unanswered()), (2, 1));
}

#[test]
fn keys_of_another_epoch_are_neither_believed_nor_told() {
    let mut rig = Rig::with_nodes(&["n2"]);
    rig.publish_with(1, Some("k"));
    let (mut question, _) = rig.take_asked();
    question["epoch"] = json!("other");
    rig.answer_keys("n2", &question, &json!([seen("k", 7)]));
    assert_eq!((rig.committed(), rig.sent_ids().len()), (vec![], 1));

    for (epoch, told) in [("e", vec!["a"]), ("other", vec![])] {
        let mut rig = Rig::with_nodes(&["n2"]);
        let partition = rig.core.partitions.ids().next().expect("there is one");
        for (key, place) in [("a", 1), ("b", 2)] {
            let headers = MessageHeaders::new().with(MESSAGE_ID, format!("{}{key}", key_prefix(CHANNEL)));
            let message = crate::link::StoredMessage { headers, ..stored("dn.p.chat.0.x", place) };
            let Core { key_questions, context, partitions, .. } = &mut rig.core;
            key_questions.seen.note_message(context, &partitions[partition].stream, &message);
        }
        let stream = rig.core.partitions[partition].stream.names.stream.clone();
        let question = json!({ "number": 5, "node": "n2", "channel": CHANNEL, "stream": stream, "epoch": epoch,
            "keys": ["a", "unknown"] });
        rig.receive_at("dn.w.n1", &json!({ "KeyQuestion": question }));
        let (subject, payload) = rig.unstored.pop().expect("an answer");
        let answer: Value = serde_json::from_slice(&payload).expect("JSON");
        let answer = &answer["KeyAnswer"];
        assert_eq!((&*subject, &answer["number"]), ("dn.w.n2", &json!(5)));
        let keys: Vec<&Value> = answer["seen"].as_array().expect("a list").iter().map(|seen| &seen["key"]).collect();
        assert_eq!(keys, told, "{epoch}");
    }
}

#[test]
fn a_channel_that_is_detached_while_it_asks_asks_again() {
    let mut rig = Rig::with_nodes(&["n2"]);
    rig.publish_with(1, Some("k"));
    let (old, _) = rig.take_asked();
    rig.handle(CoreEvent::Undelivered { channel: CHANNEL.into() });
    rig.effects.clear();
    rig.handle(CoreEvent::Follow { shard: SHARD, channel: CHANNEL.into(), namespace: 1 });
    rig.publish_with(2, Some("k"));
    let (new, _) = rig.take_asked();
    rig.answer_keys("n2", &old, &json!([]));
    assert_eq!(rig.sent_ids().len(), 0, "the answer to the earlier question ends no other");
    rig.answer_keys("n2", &new, &json!([]));
    assert_eq!(rig.sent_ids().len(), 1);
}

#[test]
fn a_lost_connection_answers_nothing_and_all_nodes_are_asked_again() {
    let mut rig = Rig::with_nodes(&["n2"]);
    rig.publish_with(1, Some("k"));
    let (question, _) = rig.take_asked();
    rig.connection(false);
    for step in 1..=6 {
        rig.wait(SETTLED_US + step * SURVEY_TIMEOUT_US / 2);
    }
    assert_eq!((rig.sent_ids().len(), rig.unanswered()), (0, 0), "its time does not pass meanwhile");
    rig.connection(true);
    assert_eq!(rig.take_asked().0["number"], question["number"]);
    rig.answer_keys("n2", &question, &json!([]));
    assert_eq!(rig.sent_ids().len(), 0, "others may not have been heard yet");
    rig.wait(2 * SETTLED_US + 3 * SURVEY_TIMEOUT_US);
    assert_eq!((rig.sent_ids().len(), rig.unanswered()), (1, 0));
}

#[test]
fn a_node_that_becomes_known_is_asked_as_well() {
    let mut rig = Rig::with_nodes(&["n2"]);
    rig.publish_with(1, Some("k"));
    let (question, _) = rig.take_asked();
    rig.receive_at("dn.n", &json!({ "v": 1, "node": "n3" }));
    let questions = rig.take_questions();
    assert_eq!(questions.iter().map(|(subject, _)| &**subject).collect::<Vec<_>>(), ["dn.w.n3"]);
    rig.answer_keys("n2", &question, &json!([]));
    assert_eq!(rig.sent_ids().len(), 0);
    rig.answer_keys("n3", &question, &json!([seen("k", 7)]));
    assert_eq!(rig.committed(), [(1, 7)]);
}

#[test]
fn a_node_that_holds_a_lease_is_asked_although_it_is_not_heard() {
    let mut rig = Rig::with_leases(CoreLimits::default(), true).joined(&["n2"]);
    rig.renewed("n2", 5);
    rig.renewed("n4", 6);
    rig.publish_with(1, Some("k"));
    let questions = rig.take_questions();
    assert_eq!(questions.iter().map(|(subject, _)| &**subject).collect::<Vec<_>>(), ["dn.w.n2", "dn.w.n4"]);
    rig.answer_keys("n2", &questions[0].1, &json!([]));
    assert_eq!(rig.sent_ids().len(), 0);
    rig.answer_keys("n4", &questions[0].1, &json!([seen("k", 7)]));
    assert_eq!((rig.committed(), rig.unanswered()), (vec![(1, 7)], 0));
}

#[test]
fn a_node_that_has_released_its_lease_is_not_awaited() {
    let mut rig = Rig::with_leases(CoreLimits::default(), true).joined(&["n2"]);
    rig.renewed("n4", 6);
    rig.publish_with(1, Some("k"));
    let questions = rig.take_questions();
    assert_eq!(questions.iter().map(|(subject, _)| &**subject).collect::<Vec<_>>(), ["dn.w.n2", "dn.w.n4"]);
    rig.lease_stored("n4", "released", 7);
    rig.answer_keys("n2", &questions[0].1, &json!([]));
    assert_eq!(rig.sent_ids().len(), 1);
}

#[test]
fn a_node_that_never_answers_is_not_awaited_each_time() {
    let mut rig = Rig::with_nodes(&["n2"]);
    let mut now_us = SETTLED_US;
    for number in 1..=u64::from(UNANSWERED_MAX) {
        rig.publish_with(number, Some(&format!("k{number}")));
        rig.receive_at("dn.n", &json!({ "v": 1, "node": "n2" }));
        assert_eq!(rig.sent_ids().len() as u64, number - 1, "it is awaited");
        now_us += SURVEY_TIMEOUT_US;
        rig.wait(now_us);
        assert_eq!(rig.sent_ids().len() as u64, number);
    }
    rig.take_questions();
    rig.publish_with(8, Some("next"));
    let (question, keys) = rig.take_asked();
    assert_eq!((keys, rig.sent_ids().len(), rig.unanswered()), (vec!["next".to_owned()], 4, 4), "it is asked");
    rig.answer_keys("n2", &question, &json!([]));
    rig.publish_with(9, Some("last"));
    rig.take_asked();
    assert_eq!(rig.sent_ids().len(), 4, "it is awaited again");
}

#[test]
fn a_node_is_not_blamed_for_what_does_not_reach_this_one() {
    let mut rig = Rig::with_nodes(&["n2"]);
    let mut now_us = SETTLED_US;
    rig.is_deaf = true;
    for step in 1..=7 {
        now_us = SETTLED_US + step * 400_000;
        rig.wait(now_us);
        rig.receive_at("dn.n", &json!({ "v": 1, "node": "n2" }));
    }
    for number in 1..=u64::from(UNANSWERED_MAX) {
        rig.publish_with(number, Some(&format!("k{number}")));
        now_us += SURVEY_TIMEOUT_US;
        rig.receive_at("dn.n", &json!({ "v": 1, "node": "n2" }));
        rig.wait(now_us);
        assert_eq!(rig.unanswered(), number);
    }
    rig.is_deaf = false;
    for _ in 0..4 {
        now_us += 400_000;
        rig.receive_at("dn.n", &json!({ "v": 1, "node": "n2" }));
        rig.wait(now_us);
    }
    rig.take_questions();
    rig.publish_with(9, Some("heard"));
    assert_eq!(rig.take_asked().1, ["heard"]);
    assert_eq!(rig.sent_ids().len() as u64, u64::from(UNANSWERED_MAX), "it is awaited");
}

#[test]
fn what_is_lost_at_one_moment_counts_once() {
    let mut rig = Rig::with_nodes(&["n2"]);
    let channels: Vec<String> = (2..5).map(|number| format!("chat:{number}")).collect();
    for (proposal, channel) in (1..).zip(&channels) {
        rig.handle(CoreEvent::Follow { shard: SHARD, channel: channel.as_str().into(), namespace: 1 });
        rig.publish_to(channel, proposal, Some("k"));
    }
    rig.wait(SETTLED_US + SURVEY_TIMEOUT_US - 1);
    rig.receive_at("dn.n", &json!({ "v": 1, "node": "n2" }));
    rig.wait(SETTLED_US + SURVEY_TIMEOUT_US);
    assert_eq!((rig.sent_ids().len(), rig.unanswered()), (3, 3));
    rig.take_questions();
    rig.publish_with(9, Some("next"));
    assert_eq!((rig.take_asked().1, rig.sent_ids().len()), (vec!["next".to_owned()], 3), "it is awaited");
}

#[test]
fn a_question_whose_messages_have_ended_ends() {
    let mut rig = Rig::with_nodes(&["n2"]);
    rig.publish_with(1, Some("old"));
    rig.take_asked();
    rig.connection(false);
    let mut now_us = SETTLED_US;
    for _ in 0..24 {
        now_us += SURVEY_TIMEOUT_US / 2;
        rig.wait(now_us);
    }
    rig.publish_with(2, Some("new"));
    assert_eq!(rig.take_questions(), [], "there is no connection");
    rig.connection(true);
    assert_eq!(rig.take_asked().1, ["new"]);
}

#[test]
fn a_stream_that_refuses_to_list_leases_delays_no_key() {
    let mut rig = Rig::with_leases(CoreLimits::default(), true);
    rig.refuses_lists = true;
    let mut rig = rig.joined(&["n2"]);
    rig.publish_with(1, Some("k"));
    let (question, _) = rig.take_asked();
    rig.answer_keys("n2", &question, &json!([]));
    assert_eq!((rig.sent_ids().len(), rig.unanswered()), (1, 0));
}
