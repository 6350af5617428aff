//! Body of the fuzz target for what nodes send each other about rooms.

use std::sync::Arc;

use dunlin_engine::{
    ShardIndex,
    room::{FromRoom, RoomKey, RoomSite, RoomThreadIndex, ToRoom},
};
use dunlin_relay::{
    Relay, RelayEffect, RelayOptions,
    format::{FrameHead, FrameKind, VERSION},
    frame,
};
use dunlin_rooms::{Base, Mirror, SnapshotFormat};

const ROOM: RoomKey = RoomKey { owner: ShardIndex(0), number: 7 };

/// Any bytes as a frame, and as a batch of messages of a room's node: a mirror can show whatever the relay lets through.
pub fn frames(bytes: &[u8]) {
    let options = RelayOptions { node: "edge".into(), shard_count: 2, room_threads: 1 };
    let mut relay = Relay::new(options);
    let site = Box::new(RoomSite { node: "host".into(), room: ROOM, thread: RoomThreadIndex(0), sends_changes: true });
    relay.take_to_room(1, ToRoom::OpenRemote { room: ROOM, channel: "arena".into(), site });
    relay.receive(1, bytes);
    let kind = FrameKind::Part { number: 0, is_last: true };
    relay.receive(1, &frame(&FrameHead { version: VERSION, from: "host", sent_us: 1, epoch: 1, kind }, bytes));
    relay.wake(2);
    let mut mirrors: [Option<(Mirror, usize)>; 2] = [None, None];
    for effect in relay.take_effects(2) {
        let RelayEffect::ToShard { shard, message } = effect else { continue };
        let mirror = &mut mirrors[usize::from(shard.0)];
        match message {
            FromRoom::Keyframe { grid, ticks_per_second, keyframe, .. } => {
                let cells = grid.len();
                *mirror = Some((Mirror::new(grid, ticks_per_second, keyframe, [b"", b""]), cells));
            }
            FromRoom::Tick { update, changes, .. } => {
                let Some((mirror, cells)) = mirror else { continue };
                let update = Arc::clone(&update);
                mirror.apply(update);
                for change in changes {
                    assert!((change.view.0 as usize) < *cells, "the view is on the map");
                    let ticks = [0, 1, 2, 9].map(|age| mirror.tick().saturating_sub(age));
                    for (format, tick) in SnapshotFormat::ALL.into_iter().flat_map(|of| ticks.map(|tick| (of, tick))) {
                        mirror.body(format, change.view, Base::default());
                        mirror.body(format, change.view, Base { tick, view: change.view });
                    }
                }
            }
            _ => {}
        }
    }
}
