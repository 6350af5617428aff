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
        CoreEffect, CoreEvent, CoreLimits,
        peers::{NodeDescription, PeerEvent},
        rig::{FENCE, NOW, Rig, SHARD, stored},
    },
    link::{LinkEvent, LinkName, MessageHeaders},
    record::MESSAGE_ID,
};

const CHANNEL: &str = "chat:1";
/// The newest message, which an attach reads.
const NEWEST: u64 = FENCE / 10;
const WINDOW_US: u64 = 300_000_000;
/// The number of keys in an answer of several parts.
const KEYS: u64 = 5_000;
const SURVEY_TIMEOUT_US: u64 = 1_000_000;
/// After the announcement, when each other node has had time to send a heartbeat.
const SETTLED_US: u64 = 500_000;

impl Rig {
    /// A member of a cluster with these other nodes.
    fn with_nodes(nodes: &[&str]) -> Self {
        let mut rig = Self::new(CoreLimits::default());
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
        let data = Payload::from_json(Bytes::from_static(b"1"));
        let (tags, epoch) = (Vec::new(), Box::default());
        let publication = Arc::new(Publication { data, info: None, offset: 0, tags, time_ms: 0, epoch, version: 0 });
        let idempotency_key = key.map(Into::into);
        let record = Box::new(LogRecord { publication, version_epoch: Box::default(), idempotency_key });
        let (channel, proposal) = (CHANNEL.into(), ProposalNumber(proposal));
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

    fn answer_keys(&mut self, node: &str, question: &Value, keys: &Value, is_last: bool) {
        let answer = json!({ "number": question["number"], "node": node, "channel": CHANNEL, "epoch": question["epoch"],
            "keys": keys, "is_last": is_last });
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
    rig.answer_keys("n3", question, &json!([]), true);
    rig.answer_keys("n2", question, &json!([seen("other", 3)]), false);
    assert_eq!((rig.committed(), rig.sent_ids().len()), (vec![], 1), "the answer of n2 has another part");
    rig.answer_keys("n2", question, &json!([seen("k", 7)]), true);
    assert_eq!(rig.committed(), [(2, 7)]);
    assert_eq!(rig.sent_ids().len(), 2, "the one behind it is sent");
    rig.publish_with(4, Some("new"));
    rig.publish_with(5, Some("other"));
    assert_eq!((rig.take_questions(), rig.committed()), (vec![], vec![(5, 3)]), "all is known now");
    assert_eq!(rig.sent_ids()[2], format!("{}new", key_prefix(CHANNEL)));
}

#[test]
fn a_node_that_does_not_answer_is_awaited_for_a_second() {
    let mut rig = Rig::with_nodes(&["n2", "n3"]);
    rig.publish_with(1, Some("k"));
    let question = rig.take_questions().remove(0).1;
    rig.answer_keys("n2", &question, &json!([]), true);
    rig.wait(SETTLED_US + SURVEY_TIMEOUT_US - 1);
    assert_eq!((rig.sent_ids().len(), rig.core.counters().keys_unanswered), (0, 0));
    rig.wait(SETTLED_US + SURVEY_TIMEOUT_US);
    assert_eq!((rig.sent_ids().len(), rig.core.counters().keys_unanswered), (1, 1));
    // Its answer is still true.
    rig.answer_keys("n3", &question, &json!([seen("late", 4)]), true);
    rig.publish_with(2, Some("late"));
    assert_eq!(rig.committed(), [(2, 4)]);
}

#[test]
fn nobody_is_asked_alone_and_after_the_whole_window() {
    let mut rig = Rig::with_nodes(&[]);
    rig.publish_with(1, Some("k"));
    assert_eq!((rig.take_questions().len(), rig.sent_ids().len()), (0, 1));
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
    assert_eq!((rig.take_questions().len(), rig.sent_ids().len()), (1, 0));
}

#[test]
fn a_question_that_a_lost_connection_may_have_cost_is_asked_again() {
    let mut rig = Rig::with_nodes(&["n2"]);
    rig.publish_with(1, Some("k"));
    rig.take_questions();
    rig.handle(CoreEvent::Link(LinkEvent::Disconnected { link: LinkName::Live }));
    rig.wait(SETTLED_US + SURVEY_TIMEOUT_US);
    assert_eq!((rig.take_questions().len(), rig.sent_ids().len()), (0, 0));
    rig.handle(CoreEvent::Link(LinkEvent::Connected { link: LinkName::Live, max_payload: 1 << 20 }));
    rig.wait(2 * SETTLED_US + SURVEY_TIMEOUT_US);
    let questions = rig.take_questions();
    assert_eq!(questions.len(), 1);
    rig.answer_keys("n2", &questions[0].1, &json!([seen("k", NEWEST)]), true);
    assert_eq!(rig.committed(), [(1, NEWEST)]);
}

#[test]
fn keys_of_another_epoch_are_neither_believed_nor_told() {
    let mut rig = Rig::with_nodes(&["n2"]);
    rig.publish_with(1, Some("k"));
    let mut question = rig.take_questions().remove(0).1;
    question["epoch"] = json!("other");
    rig.answer_keys("n2", &question, &json!([seen("k", 7)]), true);
    assert_eq!((rig.committed(), rig.sent_ids().len()), (vec![], 1));

    for (epoch, count) in [("e", 1), ("other", 0)] {
        let mut rig = Rig::with_nodes(&["n2"]);
        let id = format!("{}a", key_prefix(CHANNEL));
        let headers = MessageHeaders::new().with(MESSAGE_ID, id);
        let partition = rig.core.partitions.ids().next().expect("there is one");
        let now = NOW;
        let message = crate::link::StoredMessage { headers, ..stored("dn.p.chat.0.x", 9) };
        rig.core.note_key(now, partition, &message);
        let stream = rig.core.partitions[partition].names.stream.clone();
        let question = json!({ "number": 5, "node": "n2", "channel": CHANNEL, "stream": stream, "epoch": epoch });
        rig.receive_at("dn.w.n1", &json!({ "KeyQuestion": question }));
        let (subject, payload) = rig.unstored.pop().expect("an answer");
        let answer: Value = serde_json::from_slice(&payload).expect("JSON");
        let answer = &answer["KeyAnswer"];
        assert_eq!((&*subject, &answer["number"], &answer["is_last"]), ("dn.w.n2", &json!(5), &json!(true)));
        assert_eq!(answer["keys"].as_array().map(Vec::len), Some(count), "{epoch}");
    }
}

#[test]
fn many_keys_are_answered_in_parts() {
    let mut rig = Rig::with_nodes(&["n2"]);
    let partition = rig.core.partitions.ids().next().expect("there is one");
    for number in 0..KEYS {
        let seen = SeenKey { partition, sequence: number, until_ms: NOW.unix_ms };
        rig.core.seen_keys.insert(format!("{}{number:036}", key_prefix(CHANNEL)).into(), seen, usize::MAX);
        rig.core.seen_keys.insert(format!("{}{number:036}", key_prefix("chat:11")).into(), seen, usize::MAX);
    }
    let stream = rig.core.partitions[partition].names.stream.clone();
    let question = json!({ "number": 5, "node": "n2", "channel": CHANNEL, "stream": stream, "epoch": "e" });
    rig.receive_at("dn.w.n1", &json!({ "KeyQuestion": question }));
    let answers: Vec<Value> = rig
        .unstored
        .drain(..)
        .inspect(|(_, payload)| assert!(payload.len() < 4 * ANSWER_BYTES_MAX))
        .map(|(_, payload)| serde_json::from_slice::<Value>(&payload).expect("JSON")["KeyAnswer"].clone())
        .collect();
    assert!(answers.len() > 1);
    let counts = answers.iter().map(|answer| answer["keys"].as_array().map_or(0, Vec::len) as u64);
    assert_eq!(counts.sum::<u64>(), KEYS);
    let last = |answer: &Value| answer["is_last"] == json!(true);
    assert_eq!(answers.iter().position(last), Some(answers.len() - 1));
}
