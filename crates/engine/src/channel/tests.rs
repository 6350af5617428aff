use dunlin_protocol::Encoding;

use super::*;
use crate::slab::Slab;

fn subscriber(encoding: Encoding, join_leave: bool) -> Subscriber {
    let class = FrameClass::plain(encoding.into());
    Subscriber { class, join_leave, info: None, presence: false, announced: false }
}

fn listens(channel: &OwnedChannel, audience: Audience) -> (Vec<FrameClass>, Vec<ShardIndex>) {
    (channel.classes(audience).collect(), channel.listening_shards(audience).collect())
}

/// Without subscribers, nothing is encoded for a class or sent to a shard.
#[test]
fn removed_subscribers_leave_no_frame_class() {
    let mut channel =
        OwnedChannel::new(ChannelKey(Slab::default().insert_with(|_| ())), "news".into(), NamespaceIndex(0));
    let [json, protobuf] = [Encoding::Json, Encoding::Protobuf].map(|encoding| FrameClass::plain(encoding.into()));
    let [near, far] = [ShardIndex(0), ShardIndex(1)];
    let (notices, plain, other) =
        (subscriber(Encoding::Json, true), subscriber(Encoding::Json, false), subscriber(Encoding::Protobuf, false));
    for (shard, subscriber) in [(near, &notices), (near, &plain), (near, &other), (far, &other)] {
        channel.add(shard, subscriber);
    }
    assert_eq!(listens(&channel, Audience::Publications), (vec![json, protobuf, protobuf], vec![near, far]));
    assert_eq!(listens(&channel, Audience::JoinLeaves), (vec![json], vec![near]));

    channel.remove(near, &notices);
    assert_eq!(listens(&channel, Audience::Publications), (vec![json, protobuf, protobuf], vec![near, far]));
    assert_eq!(listens(&channel, Audience::JoinLeaves), (vec![], vec![]));
    channel.remove(near, &plain);
    assert_eq!(listens(&channel, Audience::Publications), (vec![protobuf, protobuf], vec![near, far]));
    channel.remove(near, &other);
    assert_eq!(listens(&channel, Audience::Publications), (vec![protobuf], vec![far]));
    assert!(!channel.is_forgettable());
    channel.remove(far, &other);
    assert_eq!(listens(&channel, Audience::Publications), (vec![], vec![]));
    assert!(channel.is_forgettable());
}
