use bytes::Bytes;

use super::*;
use crate::{
    core::{
        CoreEffect, CoreEvent, CoreLimits,
        rig::{FENCE, Rig, SHARD, stored},
    },
    link::{LinkEvent, MessageHeaders, ReadAnswer},
    record::{EXPECTED_LAST, OPERATION, PURGE},
};
use dunlin_engine::{
    Event,
    log::{LoadNumber, LoadQuery, LogError},
};

const SUBJECT: &str = "dn.p.chat.0.a";

fn message(sequence: u64, follows: &str) -> StoredMessage {
    let headers = MessageHeaders::new();
    let headers = if follows.is_empty() { headers } else { headers.with(FOLLOWS, follows) };
    StoredMessage { headers, ..stored(SUBJECT, sequence) }
}

fn purge(sequence: u64, follows: &str) -> StoredMessage {
    let message = message(sequence, follows);
    let headers = message.headers.with(OPERATION, PURGE).with(EXPECTED_LAST, (sequence - 1).to_string());
    StoredMessage { headers, ..message }
}

#[test]
fn a_message_names_those_that_no_known_message_names() {
    let mut unnamed = Unnamed::default();
    assert_eq!(unnamed.header("e"), None);
    for (arrived, header) in [
        (message(3, ""), "3 e"),
        (message(5, "3 e"), "5 e"),
        // Two nodes published at the same time.
        (message(6, "3 e"), "5,6 e"),
        (message(9, "5,6 e"), "9 e"),
        (purge(12, "9 e"), "12 e"),
        (message(14, "x,,-1 e"), "12,14 e"),
    ] {
        unnamed.push(&arrived);
        let mut first = Unnamed { sequences: unnamed.sequences.clone(), named_through: 0 };
        assert_eq!(first.header("e").as_deref(), Some(header), "{arrived:?}");
    }
}

#[test]
fn a_message_names_a_few_and_the_next_one_others() {
    let mut unnamed = Unnamed::default();
    (1..=NAMED_MAX as u64 + 1).for_each(|sequence| unnamed.push(&message(sequence, "")));
    let named = |unnamed: &mut Unnamed| unnamed.header("e").unwrap();
    let first = named(&mut unnamed);
    assert_eq!(first, "1,2,3,4,5,6,7,8 e");
    // None of them has come back.
    assert_eq!((named(&mut unnamed), named(&mut unnamed)), ("9 e".to_owned(), first.clone()));
    unnamed.push(&message(20, &first));
    assert_eq!(named(&mut unnamed), "9,20 e");
}

#[test]
fn messages_without_a_name_are_limited() {
    let mut unnamed = Unnamed::default();
    (1..=UNNAMED_MAX as u64).for_each(|sequence| unnamed.push(&message(sequence, "")));
    assert_eq!((unnamed.sequences.len(), unnamed.sequences.first()), (UNNAMED_MAX, Some(&1)));
    unnamed.push(&message(5_000, ""));
    assert_eq!(
        (unnamed.sequences.len(), unnamed.sequences.first()),
        (UNNAMED_MAX, Some(&2)),
        "the oldest is forgotten"
    );
}

#[test]
fn a_named_message_that_is_missing_is_found() {
    for (messages, floor, missing) in [
        (vec![message(5, "3 e"), message(6, "3 e"), message(9, "5,6 e")], 3, None),
        (vec![message(5, "3 e"), message(9, "5,6 e")], 3, Some(6)),
        (vec![message(9, "5,6 e")], 3, Some(5)),
        // Nothing is claimed up to the floor.
        (vec![message(9, "5,6 e")], 6, None),
        (vec![message(9, "5,6 e")], 5, Some(6)),
        // Names of another epoch are of other messages.
        (vec![message(9, "5,6 before")], 3, None),
        // A purge removes what comes before it.
        (vec![purge(9, "5,6 e"), message(10, "9 e")], 3, None),
        (vec![message(8, "5,6 e"), purge(9, "8 e"), message(12, "9,11 e")], 3, Some(11)),
        // The stream assigned sequences again.
        (vec![message(9, "20 e")], 3, Some(20)),
        (vec![message(9, ""), message(10, "e"), message(11, "x e"), message(12, " ")], 3, None),
    ] {
        assert_eq!(missing_among(&messages, floor, "e", std::iter::empty()), missing, "{messages:?}");
    }
}

#[test]
fn a_name_of_another_epoch_ends_what_is_proven() {
    for (messages, floor, proven) in [
        (vec![message(5, "3 x"), message(9, "5 x")], 3, None),
        (vec![message(5, "3 e"), message(9, "7 e")], 3, None),
        (vec![message(5, "3 x"), message(9, "5,7 x")], 3, Some(7)),
        (vec![message(5, "4 x"), message(9, "5,7 x")], 3, Some(7)),
        (vec![message(9, "7 x")], 7, None),
        (vec![message(9, "")], 3, None),
    ] {
        assert_eq!(named_elsewhere(&messages, floor, "e", None), proven, "{messages:?}");
    }
    // The epoch `x` has ended, and the stream has assigned the sequence 7 again.
    let ended = Some(EndedEpoch { epoch: "x", lost_from: 7 });
    for (names, proven) in [("7,8 x", None), ("6,7 x", Some(6)), ("7 y", Some(7))] {
        let messages = [message(9, names)];
        assert_eq!(named_elsewhere(&messages, 3, "e", ended), proven, "{names}");
    }
}

#[test]
fn an_acknowledged_message_that_is_missing_is_found() {
    let messages = [message(5, ""), message(9, "5 e")];
    for (acknowledged, floor, missing) in [
        (vec![], 3, None),
        (vec![5, 9], 3, None),
        (vec![7], 3, Some(7)),
        (vec![7], 7, None),
        // The read does not reach it.
        (vec![10], 3, None),
    ] {
        assert_eq!(missing_among(&messages, floor, "e", acknowledged.clone().into_iter()), missing, "{acknowledged:?}");
    }
}

/// A channel whose newest message is at 10, with a load of everything after 3 that is read.
fn reading() -> Rig {
    let mut rig = Rig::new(CoreLimits::default());
    let channel: std::sync::Arc<str> = "a".into();
    rig.handle(CoreEvent::Follow { shard: SHARD, channel: channel.clone(), namespace: 1 });
    let query = LoadQuery { after: Some(3), below: u64::MAX, publications_max: 10, bytes_max: usize::MAX };
    rig.handle(CoreEvent::Load { shard: SHARD, channel, load: LoadNumber(1), query });
    rig.effects.clear();
    rig
}

fn answer(rig: &mut Rig, messages: Vec<StoredMessage>) {
    let (request, _) = rig.ranges.pop().expect("the stream is read");
    let outcome = Ok(ReadAnswer { messages, ..ReadAnswer::default() });
    rig.handle(CoreEvent::Link(LinkEvent::Answered { request, outcome }));
}

/// Delivers a message of the channel.
fn deliver(rig: &mut Rig, sequence: u64, last_sequence: u64, follows: &str) {
    let headers = MessageHeaders::new()
        .with(FOLLOWS, follows)
        .with("Nats-Subject", SUBJECT)
        .with("Nats-Sequence", sequence.to_string())
        .with("Nats-Last-Sequence", last_sequence.to_string());
    let (subject, payload) = (SUBJECT.replace(".p.", ".r.").into(), Bytes::new());
    let event = LinkEvent::Delivered { subject, reply: None, headers, payload, is_by_wildcard: false };
    rig.handle(CoreEvent::Link(event));
}

#[test]
fn a_read_with_a_hole_is_refused_and_begins_an_epoch() {
    let mut rig = reading();
    answer(&mut rig, vec![message(5, "3 e"), message(10, "5,7 e")]);
    let is_refused = |effect: &CoreEffect| {
        matches!(
            effect,
            CoreEffect::ToShard {
                event: Event::Loaded { outcome: Err(LogError::Unavailable), load: LoadNumber(1), .. },
                ..
            }
        )
    };
    assert!(rig.effects.iter().any(is_refused), "{:?}", rig.effects);
    assert!(
        rig.effects.iter().any(|effect| matches!(effect, CoreEffect::ToShard { event: Event::Interrupted { .. }, .. })),
        "{:?}",
        rig.effects
    );
    assert_eq!((rig.core.counters().holes, rig.core.counters().truncations), (1, 1));
}

#[test]
fn a_read_without_a_hole_is_answered() {
    let mut rig = reading();
    answer(&mut rig, vec![message(5, "3 e"), message(7, "3 e"), message(10, "5,7 e")]);
    let is_answered = |effect: &CoreEffect| match effect {
        CoreEffect::ToShard { event: Event::Loaded { outcome: Ok(page), .. }, .. } => page.floor == 3,
        _ => false,
    };
    assert!(rig.effects.iter().any(is_answered), "{:?}", rig.effects);
    assert_eq!(rig.core.counters().holes, 0);
}

#[test]
fn a_live_message_shows_that_the_stream_has_lost_its_predecessor() {
    for (sequence, last_sequence, follows, holes) in [
        (FENCE + 9, 10, "10 e", 0),
        // It follows a message that this node has not received and that the stream has: a gap.
        (FENCE + 9, FENCE + 5, "10,105 e", 0),
        (FENCE + 9, 10, "10,105 e", 1),
        (FENCE + 9, 10, "10,105 before", 0),
        // Only what comes after the position was missed.
        (FENCE + 9, 10, "7 e", 0),
    ] {
        let mut rig = reading();
        deliver(&mut rig, sequence, last_sequence, follows);
        assert_eq!(rig.core.counters().holes, holes, "{follows}, behind {last_sequence}");
    }
}

/// A channel without a message when it was attached: its position is the fence.
fn attached_without_a_message() -> Rig {
    let mut rig = Rig::new(CoreLimits::default());
    rig.has_no_messages = true;
    rig.handle(CoreEvent::Follow { shard: SHARD, channel: "a".into(), namespace: 1 });
    rig.has_no_messages = false;
    rig
}

#[test]
fn an_audit_finds_the_message_that_the_replica_of_the_attach_had_lost() {
    let mut rig = attached_without_a_message();
    assert_eq!(rig.core.counters().holes, 0);
    rig.handle(CoreEvent::Link(LinkEvent::SlowConsumer));
    assert_eq!(rig.core.counters().holes, 1, "the stream has a message at 10");
}

#[test]
fn a_gap_shows_the_message_that_the_replica_of_the_attach_had_lost() {
    for (age_ms, holes) in [(0, 1), (49_999, 1), (50_000, 0)] {
        let mut rig = attached_without_a_message();
        let id = rig.core.partitions.ids().next().expect("the namespace has one");
        let facts = rig.core.partitions[id].stream.facts.as_mut();
        facts.expect("the stream is described").age_max_ms = Some(60_000);
        deliver(&mut rig, FENCE + 9, 10, "");
        let time_ms = crate::core::rig::NOW.unix_ms - age_ms;
        answer(&mut rig, vec![StoredMessage { time_ms, ..message(10, "") }]);
        assert_eq!(rig.core.counters().holes, holes, "stored {age_ms} ms before, and kept for 60 s");
    }
}

#[test]
fn a_gap_whose_end_is_missing_is_a_hole() {
    for (messages, holes) in [(vec![message(60, ""), message(70, "")], 0), (vec![message(70, "")], 1)] {
        let mut rig = Rig::new(CoreLimits::default());
        rig.handle(CoreEvent::Follow { shard: SHARD, channel: "a".into(), namespace: 1 });
        // It follows a message at 60, which the stream had when it stored this one.
        deliver(&mut rig, FENCE + 9, 60, "");
        answer(&mut rig, messages.clone());
        assert_eq!(rig.core.counters().holes, holes, "{messages:?}");
    }
}
