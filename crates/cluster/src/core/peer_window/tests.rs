use serde_json::{Value, json};

use dunlin_engine::{
    Event,
    log::{LoadNumber, LoadQuery},
};

use super::*;
use crate::{
    core::{
        CoreEffect, CoreEvent, CoreLimits,
        peers::{NodeDescription, PeerEvent},
        rig::{FENCE, Rig, SHARD},
    },
    link::LinkEvent,
};

/// The newest message, which an attach reads; the window of this node begins with it.
const NEWEST: u64 = FENCE / 10;
const AFTER: u64 = 5;

impl Rig {
    /// A node that follows a channel and knows another node.
    fn with_peer(limits: CoreLimits) -> Self {
        let mut rig = Self::new(limits);
        rig.handle(CoreEvent::Peers(PeerEvent::Announce { about: NodeDescription::default() }));
        rig.deliver("dn.n", r#"{"v":1,"node":"n2"}"#);
        rig.follow("chat:1");
        rig.unstored.clear();
        rig
    }

    fn follow(&mut self, channel: &str) {
        self.handle(CoreEvent::Follow { shard: SHARD, channel: channel.into(), namespace: 1 });
    }

    fn deliver(&mut self, subject: &str, payload: &str) {
        let payload = Bytes::copy_from_slice(payload.as_bytes());
        let (headers, reply, is_by_wildcard) = (MessageHeaders::new(), None, false);
        let subject = subject.into();
        self.handle(CoreEvent::Link(LinkEvent::Delivered { subject, reply, headers, payload, is_by_wildcard }));
    }

    fn load(&mut self, channel: &str, after: u64) {
        let query = LoadQuery::after(after, 100);
        self.handle(CoreEvent::Load { shard: SHARD, channel: channel.into(), load: LoadNumber(1), query });
    }

    /// The query that was sent to the other node.
    fn take_question(&mut self) -> Option<Value> {
        let is_question = |message: &mut (Box<str>, Bytes)| *message.0 == *"dn.w.n2";
        let (_, payload) = self.unstored.extract_if(.., is_question).next()?;
        let message: Value = serde_json::from_slice(&payload).expect("it is JSON");
        Some(message["Question"].clone()).filter(Value::is_object)
    }

    fn answer_with(&mut self, number: &Value, epoch: &Value, records: &Value) {
        let answer = json!({ "number": number, "channel": "chat:1", "epoch": epoch, "records": records });
        self.deliver("dn.w.n1", &json!({ "Answer": answer }).to_string());
    }

    /// The offsets of the page, if the load is answered.
    fn take_page(&mut self) -> Option<Vec<u64>> {
        self.effects.drain(..).find_map(|effect| match effect {
            CoreEffect::ToShard { event: Event::Loaded { outcome, .. }, .. } => {
                let page = outcome.expect("the load is not refused");
                assert_eq!(page.floor, AFTER, "the missing publications are in the page");
                Some(page.records.iter().map(|record| record.publication.offset).collect())
            }
            _ => None,
        })
    }

    /// This node's answer to a query of the other one.
    fn ask(&mut self, node: &str, epoch: &str, after: u64, through: u64) -> Option<Value> {
        let question = json!({ "number": 7, "node": node, "channel": "chat:1", "epoch": epoch, "after": after, "through": through });
        self.deliver("dn.w.n1", &json!({ "Question": question }).to_string());
        let (subject, payload) = self.unstored.pop()?;
        assert_eq!(&*subject, "dn.w.n2");
        let message: Value = serde_json::from_slice(&payload).expect("it is JSON");
        assert_eq!(message["Answer"]["number"], 7);
        Some(message["Answer"]["records"].clone())
    }
}

fn record(sequence: u64) -> Value {
    json!({ "sequence": sequence, "time_ms": 1_700_000_000_000_u64, "headers": [["Dn-Json", "1"]], "data": "{%20}" })
}

/// The default of `window_timeout_ms`.
const WINDOW_TIMEOUT_MS: u64 = 100;

#[test]
fn publications_of_a_peer_window_are_not_read_from_the_stream() {
    let mut rig = Rig::with_peer(CoreLimits::default());
    rig.load("chat:1", AFTER);
    let question = rig.take_question().expect("the other node is queried");
    assert_eq!((&question["after"], &question["through"]), (&json!(AFTER), &json!(NEWEST)));
    rig.load("chat:1", AFTER + 1);
    assert_eq!(rig.take_question(), None, "one query per channel");
    rig.answer_with(&question["number"], &question["epoch"], &json!([record(6), record(8), record(NEWEST)]));
    assert_eq!(rig.take_page(), Some(vec![6, 8, NEWEST]));
    assert!(rig.ranges.is_empty(), "the stream is not read");
    assert_eq!(rig.core.counters().peer_windows, 1);
    rig.load("chat:1", AFTER);
    assert_eq!(rig.take_page(), Some(vec![6, 8, NEWEST]), "the publications are in the window now");
}

#[test]
fn an_incomplete_peer_reply_falls_back_to_the_stream() {
    let all = json!([record(6), record(NEWEST)]);
    for (epoch, records) in [
        (Some("another"), &all),
        (None, &Value::Null),
        (None, &json!([record(AFTER), record(NEWEST)])),
        (None, &json!([record(6), record(NEWEST + 1)])),
        (None, &json!([record(8), record(6), record(NEWEST)])),
        (None, &json!([record(6), record(6), record(NEWEST)])),
        (None, &json!([record(6)])),
        (None, &json!([])),
        (None, &json!([record(6), { "sequence": NEWEST, "time_ms": 9, "headers": [], "data": "" }])),
        (None, &json!([{ "sequence": 6, "time_ms": 1, "headers": [], "data": "%zz" }, record(NEWEST)])),
        (None, &json!([{ "sequence": 6, "time_ms": 1, "headers": [["Dn-Op", "purge"]], "data": "" }, record(NEWEST)])),
    ] {
        let mut rig = Rig::with_peer(CoreLimits::default());
        rig.load("chat:1", AFTER);
        let question = rig.take_question().expect("the other node is queried");
        let epoch = epoch.map_or_else(|| question["epoch"].clone(), |epoch| json!(epoch));
        rig.answer_with(&question["number"], &epoch, records);
        assert_eq!((rig.take_page(), rig.ranges.len()), (None, 1), "{epoch} {records}");
        assert_eq!(rig.core.counters().peer_windows, 0);
        assert_eq!(rig.take_question(), None, "the other node is queried once");
    }
}

#[test]
fn malformed_and_unmatched_peer_replies_are_ignored() {
    let mut rig = Rig::with_peer(CoreLimits::default());
    rig.load("chat:1", AFTER);
    let question = rig.take_question().expect("the other node is queried");
    for bytes in ["", "{}", "[]", r#"{"Answer":{}}"#, r#"{"Question":{"number":-1}}"#, "\u{0}"] {
        rig.deliver("dn.w.n1", bytes);
    }
    rig.answer_with(&json!(1_000_000), &question["epoch"], &json!([record(6)]));
    assert_eq!((rig.take_page(), rig.ranges.len()), (None, 0));
}

#[test]
fn a_missing_peer_reply_falls_back_to_the_stream() {
    let mut rig = Rig::with_peer(CoreLimits::default());
    rig.load("chat:1", AFTER);
    rig.wait(WINDOW_TIMEOUT_MS * 1_000 - 1);
    assert_eq!(rig.ranges.len(), 0);
    rig.wait(WINDOW_TIMEOUT_MS * 1_000);
    assert_eq!(rig.ranges.len(), 1);
}

#[test]
fn silent_peers_and_other_versions_are_not_queried() {
    let mut rig = Rig::new(CoreLimits::default());
    rig.handle(CoreEvent::Peers(PeerEvent::Announce { about: NodeDescription::default() }));
    rig.deliver("dn.n", r#"{"v":1,"node":"n2","version":"9"}"#);
    rig.follow("chat:1");
    rig.load("chat:1", AFTER);
    assert_eq!((rig.take_question(), rig.ranges.len()), (None, 1));

    let mut rig = Rig::with_peer(CoreLimits::default());
    rig.wait(500_000);
    rig.wait(1_000_000);
    rig.load("chat:1", AFTER);
    assert_eq!((rig.take_question(), rig.ranges.len()), (None, 1));
}

#[test]
fn loads_of_an_unfollowed_channel_are_refused() {
    let mut rig = Rig::with_peer(CoreLimits { linger_ms: 10, ..CoreLimits::default() });
    rig.load("chat:1", AFTER);
    rig.handle(CoreEvent::Unfollow { channel: "chat:1".into(), only_user: 0 });
    rig.wait(20_000);
    let is_refused = |effect: &CoreEffect| {
        matches!(effect, CoreEffect::ToShard { event: Event::Loaded { outcome: Err(_), .. }, .. })
    };
    assert_eq!(rig.effects.iter().filter(|effect| is_refused(effect)).count(), 1);
    assert_eq!(rig.core.window_questions.loads, 0);
}

#[test]
fn loads_and_peer_requests_are_limited() {
    const WINDOWS_MAX: usize = 20;
    const LOADS_MAX: usize = 16 * WINDOWS_MAX;
    let limits = CoreLimits { windows_max: WINDOWS_MAX, ..CoreLimits::default() };
    let mut rig = Rig::with_peer(limits.clone());
    for _ in 0..LOADS_MAX {
        rig.load("chat:1", AFTER);
    }
    assert_eq!((rig.core.window_questions.loads, rig.ranges.len()), (LOADS_MAX, 0));
    rig.load("chat:1", AFTER);
    assert_eq!((rig.core.window_questions.loads, rig.ranges.len()), (LOADS_MAX, 1));

    let mut rig = Rig::with_peer(limits);
    for number in 2..WINDOWS_MAX + 3 {
        rig.follow(&format!("chat:{number}"));
    }
    rig.unstored.clear();
    for number in 2..WINDOWS_MAX + 2 {
        rig.load(&format!("chat:{number}"), AFTER);
    }
    assert_eq!((rig.unstored.len(), rig.ranges.len()), (WINDOWS_MAX, 0));
    rig.load(&format!("chat:{}", WINDOWS_MAX + 2), AFTER);
    assert_eq!((rig.unstored.len(), rig.ranges.len()), (WINDOWS_MAX, 1));
}

#[test]
fn an_answer_that_is_too_large_for_nats_is_not_sent() {
    // The answer with its one publication, which has no data.
    let answer = |bytes_less: usize| {
        let mut rig = Rig::with_peer(CoreLimits::default());
        let id = rig.core.partitions.ids().next().expect("there is one");
        let epoch: Box<str> = rig.core.partitions[id].stream.current_epoch().into();
        rig.ask("n2", &epoch, NEWEST - 1, NEWEST);
        let (node, channel): (Box<str>, Box<str>) = ("n2".into(), "chat:1".into());
        let request = WindowRequest {
            number: 7,
            node,
            channel: channel.clone(),
            epoch: epoch.clone(),
            after: NEWEST - 1,
            through: NEWEST,
        };
        let followed = rig.core.channels.get("chat:1").expect("it is followed");
        let records = request.records(&rig.core.context, followed, &rig.core.partitions[id].stream);
        let answer = WindowAnswer { number: 7, channel, epoch: epoch.clone(), records };
        rig.core.context.payload_bytes_max = WindowMessage::Answer(answer).encode().len() + OVERHEAD_BYTES - bytes_less;
        rig.ask("n2", &epoch, NEWEST - 1, NEWEST).expect("it answers").is_null()
    };
    assert_eq!((answer(0), answer(1)), (false, true));
}

#[test]
fn a_node_replies_only_with_a_complete_window() {
    let mut rig = Rig::with_peer(CoreLimits::default());
    rig.load("chat:1", AFTER);
    let epoch = rig.take_question().expect("the other node is queried")["epoch"].clone();
    let epoch = epoch.as_str().expect("a text");
    let has = |records: &Value| records.as_array().map(Vec::len);
    assert_eq!(rig.ask("n2", epoch, NEWEST - 1, NEWEST).as_ref().and_then(has), Some(1));
    assert_eq!(rig.ask("n2", epoch, NEWEST - 2, NEWEST), Some(Value::Null), "the window begins later");
    assert_eq!(rig.ask("n2", epoch, NEWEST - 1, NEWEST + 1), Some(Value::Null), "it has not come that far");
    assert_eq!(rig.ask("n2", "another", NEWEST - 1, NEWEST), Some(Value::Null));
    assert_eq!(rig.ask("n9", epoch, NEWEST - 1, NEWEST), None, "the node is not known");
}
