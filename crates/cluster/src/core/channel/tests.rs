use super::*;
use crate::core::{StreamedNamespace, rig::stored};

const FENCE: u64 = 100;

/// A channel, and what it is called with.
struct Rig {
    channel: FollowedChannel,
    stream: KnownStream,
    limits: CoreLimits,
}

impl Rig {
    fn new(buffered_max: usize) -> Self {
        let namespace = StreamedNamespace {
            name: "chat".into(),
            partitions: 1,
            history_ttl_ms: 60_000,
            history_bytes_max: usize::MAX,
        };
        let id = PartitionId { namespace: 1, part: 0 };
        Self {
            channel: FollowedChannel::new(ShardIndex(0), id),
            stream: KnownStream::new("dn", &namespace, id),
            limits: CoreLimits { buffered_max, ..CoreLimits::default() },
        }
    }

    fn on(&mut self, event: ChannelEvent<'_>) -> ChannelAction {
        let now = Now { mono_us: 5, unix_ms: 1_700_000_000_000 };
        self.channel.on(event, &ChannelContext { now, stream: &self.stream, limits: &self.limits })
    }

    /// The newest message of the stream is at `head`, and one behind it is at the position.
    fn attached(head: u64) -> Self {
        let mut rig = Self::new(10);
        rig.on(ChannelEvent::SyncBegan { sync: 7 });
        let head = stored("s", head);
        let action = rig.on(ChannelEvent::HeadRead { head: Some(&head), fence: FENCE });
        assert!(matches!(action, ChannelAction::Resume(_)), "{action:?}");
        rig
    }
}

fn message(sequence: u64, last_sequence: u64) -> StoredMessage {
    StoredMessage { last_sequence, ..stored("s", sequence) }
}

fn sequences(buffered: BufferedMessages) -> Vec<u64> {
    buffered.into_messages().map(|message| message.sequence).collect()
}

#[test]
fn what_arrives_during_the_attach_waits_for_the_newest_message() {
    let mut rig = Rig::new(2);
    for sequence in 101..=103 {
        assert!(matches!(rig.on(ChannelEvent::Arrived(message(sequence, sequence - 1))), ChannelAction::Nothing));
    }
    assert!(!rig.channel.is_attached_by(7), "no sync has begun");
    rig.on(ChannelEvent::SyncBegan { sync: 7 });
    assert!(rig.channel.is_attached_by(7) && !rig.channel.is_attached_by(6));
    let ChannelAction::Resume(waiting) = rig.on(ChannelEvent::HeadRead { head: None, fence: FENCE }) else { panic!() };
    assert_eq!(sequences(waiting.buffered), [101, 102], "the limit is two");
    assert!(rig.channel.is_attached() && !rig.channel.is_attached_by(7));
    assert_eq!((rig.channel.position, rig.channel.newest.sequence), (FENCE, 0));
}

#[test]
fn a_new_epoch_forgets_what_has_arrived_during_the_attach() {
    let mut rig = Rig::new(2);
    rig.on(ChannelEvent::Arrived(message(101, 100)));
    rig.on(ChannelEvent::EpochBegan);
    let ChannelAction::Resume(waiting) = rig.on(ChannelEvent::HeadRead { head: None, fence: FENCE }) else { panic!() };
    assert!(sequences(waiting.buffered).is_empty());
}

#[test]
fn a_message_is_delivered_behind_its_predecessor_only() {
    let mut rig = Rig::attached(10);
    assert!(matches!(rig.on(ChannelEvent::Arrived(message(10, 9))), ChannelAction::CountLate));
    assert!(
        matches!(rig.on(ChannelEvent::Arrived(message(12, 10))), ChannelAction::Deliver(next) if next.sequence == 12)
    );
    assert!(rig.channel.gap().is_none());
}

#[test]
fn a_gap_ends_at_the_last_message_that_is_known_to_be_missing() {
    let mut rig = Rig::attached(10);
    assert!(matches!(rig.on(ChannelEvent::Arrived(message(14, 12))), ChannelAction::ReadGap));
    let through = |rig: &Rig| rig.channel.gap().map(|gap| gap.through);
    assert_eq!(through(&rig), Some(12));
    // Its predecessor is buffered.
    rig.on(ChannelEvent::Arrived(message(16, 14)));
    assert_eq!(through(&rig), Some(12));
    rig.on(ChannelEvent::Arrived(message(20, 18)));
    assert_eq!(through(&rig), Some(18));
    // One read is in flight, and goes on.
    assert!(matches!(rig.on(ChannelEvent::FoundMissing { through: 19 }), ChannelAction::Nothing));
    assert_eq!(through(&rig), Some(19));
    assert!(matches!(rig.on(ChannelEvent::Arrived(message(9, 8))), ChannelAction::CountLate));
    let ChannelAction::Replay(buffered) = rig.on(ChannelEvent::GapRead) else { panic!() };
    assert_eq!(sequences(buffered), [14, 16, 20]);
    assert_eq!((rig.channel.position, rig.channel.gap().is_none()), (19, true));
}

#[test]
fn a_message_that_does_not_fit_into_the_buffer_is_read_with_the_gap() {
    let mut rig = Rig::attached(10);
    rig.limits.buffered_max = 1;
    assert!(matches!(rig.on(ChannelEvent::FoundMissing { through: 12 }), ChannelAction::ReadGap));
    rig.on(ChannelEvent::Arrived(message(13, 12)));
    rig.on(ChannelEvent::Arrived(message(14, 13)));
    assert_eq!(rig.channel.gap().map(|gap| gap.through), Some(14));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "there is no such transition")]
fn a_gap_cannot_be_read_without_one() {
    Rig::attached(10).on(ChannelEvent::GapRead);
}
