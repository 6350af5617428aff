use super::*;
use crate::{
    core::{
        CoreEvent, CoreLimits,
        channel::FollowedChannel,
        rig::{FENCE, Rig, SHARD},
    },
    link::LinkEvent,
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
