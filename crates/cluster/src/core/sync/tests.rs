use super::*;
use crate::{
    core::{
        CoreEvent, CoreLimits,
        channel::FollowedChannel,
        rig::{FENCE, Rig, SHARD},
    },
    link::LinkEvent,
    record::BYTES,
};

/// Delivers a message of the channel `a`.
fn deliver(rig: &mut Rig, sequence: u64, last_sequence: u64) {
    let headers = MessageHeaders::new()
        .with("Nats-Subject", "dn.p.chat.0.a")
        .with("Nats-Sequence", sequence.to_string())
        .with("Nats-Last-Sequence", last_sequence.to_string());
    let subject = "dn.r.chat.0.a".into();
    let event = LinkEvent::Delivered { subject, reply: None, headers, payload: Bytes::new(), is_by_wildcard: false };
    rig.handle(CoreEvent::Link(event));
}

fn attached(rig: &Rig) -> [bool; 2] {
    ["a", "b"].map(|name| rig.core.channels.get(name).is_some_and(FollowedChannel::is_attached))
}

/// The newest message of `a` is at 10. One behind it that follows an earlier one shows that the stream was truncated.
#[test]
fn heads_of_before_a_truncation_attach_nothing() {
    for (last_sequence, attached_at_once) in [(FENCE / 10, [true, true]), (FENCE / 10 - 1, [false, false])] {
        let mut rig = Rig::new(CoreLimits::default());
        rig.held_heads = Some(Vec::new());
        for name in ["first", "a", "b"] {
            rig.handle(CoreEvent::Follow { shard: SHARD, channel: name.into(), namespace: 1 });
        }
        // The channels `a` and `b` wait for the attach of the first one, and are attached together.
        rig.release_heads();
        assert_eq!(attached(&rig), [false, false]);
        deliver(&mut rig, FENCE + 20, last_sequence);
        rig.release_heads();
        assert_eq!(attached(&rig), attached_at_once);
        assert_eq!(rig.core.counters().truncations, u64::from(!attached_at_once[0]));
    }
}

/// The newest message of `a`, as a replica gives it that has damaged it: its data is not as long as its publisher said.
fn damage_head(rig: &mut Rig) {
    let held = rig.held_heads.as_mut().and_then(|held| held.first_mut());
    let Some(LinkEvent::Answered { outcome: Ok(answer), .. }) = held else {
        panic!("no answer is held back: {held:?}")
    };
    let newest = answer.messages.iter_mut().find(|message| message.subject.ends_with(".a")).unwrap();
    newest.headers.push(BYTES, "5");
}

#[test]
fn a_damaged_head_is_read_again_from_another_replica() {
    for damaged in 0..=DAMAGED_ANSWERS_MAX + 1 {
        let mut rig = Rig::new(CoreLimits::default());
        rig.held_heads = Some(Vec::new());
        rig.handle(CoreEvent::Follow { shard: SHARD, channel: "a".into(), namespace: 1 });
        for count in 0..damaged {
            damage_head(&mut rig);
            rig.release_heads();
            rig.wait((count as u64 + 1) * STALE_PAUSE_MAX_US);
        }
        let is_read_again = !rig.held_heads.as_ref().unwrap().is_empty();
        assert_eq!(is_read_again, damaged <= DAMAGED_ANSWERS_MAX, "the last damaged answer is taken");
        if is_read_again {
            rig.release_heads();
        }
        let newest =
            rig.core.channels.get("a").filter(|channel| channel.is_attached()).map(|channel| channel.newest.sequence);
        let known = if damaged <= DAMAGED_ANSWERS_MAX { FENCE / 10 } else { 0 };
        assert_eq!(newest, Some(known), "{damaged} damaged answers");
        assert_eq!(rig.core.counters().damaged_messages, damaged as u64);
        assert_eq!(rig.core.counters().stale_answers, 0);
    }
}
