//! The allocations of a publication do not depend on the number of subscribers.

use std::{num::NonZeroU32, sync::Arc};

use bytes::Bytes;
use dunlin_engine::{
    Effect, Effects, Event, Now, Options, Seed, SessionKey, Shard, ShardIdentity, ShardIndex,
    api::ApiRequest,
    backend::PublishHow,
    counters::NamespaceRoomCounters,
    event::Ticket,
    message::ShardMessage,
    options::{ClientOptions, Lane, NamespaceOptions, RoomLimits},
    owner_of,
    room::{FromRoom, JoinedAs, RoomKey, RoomThreadIndex, SeatChange, SeatKey, ToRoom},
};
use dunlin_proof::allocations::{allocations_of, in_use};
use dunlin_protocol::{Encoding, Payload};
use dunlin_rooms::{CellIndex, FormatSet, Grid, GridShape, ObjectId, ObjectView, TickUpdate, UpdateWriter};

const CHANNEL: &str = "prices";
const NODE_SEED: u64 = 7;

/// The wires of the subscribed sessions.
#[derive(Clone, Copy, Debug)]
enum Crowd {
    Json,
    Protobuf,
    Mixed,
}

impl Crowd {
    const ALL: [Self; 3] = [Self::Json, Self::Protobuf, Self::Mixed];

    fn encoding(self, index: u32) -> Encoding {
        match self {
            Self::Json => Encoding::Json,
            Self::Protobuf => Encoding::Protobuf,
            Self::Mixed => Encoding::ALL[(index % 2) as usize],
        }
    }
}

/// A shard, and its effects, whose memory is reused.
struct Rig {
    shard: Shard,
    effects: Effects,
    now: Now,
    deliveries: usize,
}

impl Rig {
    fn new(index: u16, count: u16, lane: Lane, history_size: usize) -> Self {
        Self::with_rooms(index, count, lane, history_size, None)
    }

    fn with_rooms(index: u16, count: u16, lane: Lane, history_size: usize, room: Option<RoomLimits>) -> Self {
        let room_threads = u16::from(room.is_some());
        let namespace = NamespaceOptions {
            allow_subscribe_for_client: true,
            allow_subscribe_for_anonymous: true,
            allow_publish_for_client: true,
            allow_publish_for_anonymous: true,
            history_size,
            history_ttl_ms: 60_000,
            history_meta_ttl_ms: 600_000,
            force_recovery: history_size > 0,
            delivery: lane,
            allow_channel_compaction: true,
            allow_delta: true,
            delta_publish: true,
            allow_tags_filter: true,
            room,
            ..NamespaceOptions::default()
        };
        let client = ClientOptions { allow_anonymous_connect_without_token: true, ..ClientOptions::default() };
        let options = Arc::new(Options { client, without_namespace: namespace, room_threads, ..Options::default() });
        let identity = ShardIdentity { index: ShardIndex(index), count };
        Self {
            shard: Shard::new(identity, options, Seed { node: NODE_SEED, shard: [3; 32] }),
            effects: Effects::default(),
            now: Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 },
            deliveries: 0,
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        self.shard.handle(self.now, event, &mut self.effects);
    }

    /// Ends a turn: writes to every dirty session.
    fn write_all(&mut self) {
        let Self { shard, effects, now, deliveries } = self;
        let mut dirty = std::mem::take(&mut effects.dirty);
        for session in dirty.drain(..) {
            let bytes = shard.outgoing(session).map(<[u8]>::len).sum();
            *deliveries += 1;
            shard.handle(*now, Event::Wrote { session, bytes }, effects);
        }
        effects.dirty = dirty;
        self.handle(Event::TurnEnded);
    }

    /// Makes sessions join the room of a channel; returns their seats.
    fn enter_room(&mut self, sessions: u32) -> (RoomKey, Vec<SeatKey>) {
        let mut room = None;
        let mut seats = Vec::new();
        for index in 0..sessions {
            let session = SessionKey { index, generation: 1 };
            let encoding = Crowd::Mixed.encoding(index);
            self.handle(Event::Opened { session, wire: encoding.into(), source: None, address: None });
            let frame: &[u8] = match encoding {
                Encoding::Json => {
                    br#"{"id":1,"connect":{}}
{"id":2,"subscribe":{"channel":"prices"}}"#
                }
                Encoding::Protobuf => b"\x04\x08\x01\x22\x00\x0c\x08\x02\x2a\x08\x0a\x06prices",
            };
            self.handle(Event::Received { session, frame });
            for effect in std::mem::take(&mut self.effects.list) {
                let Effect::ToRoom { thread, message: ToRoom::Join { room: key, request } } = effect else { continue };
                room = Some(key);
                seats.push(request.join.as_ref().expect("a seat").seat);
                let message = FromRoom::Joined { room: key, request, outcome: Ok(JoinedAs { is_back: false }) };
                self.handle(Event::FromRoom { from: thread, message });
            }
            self.write_all();
        }
        (room.expect("a room"), seats)
    }

    fn join(&mut self, crowd: Crowd, sessions: u32, mut forward: impl FnMut(&mut Self)) {
        for index in 0..sessions {
            let session = SessionKey { index, generation: 1 };
            let encoding = crowd.encoding(index);
            self.handle(Event::Opened { session, wire: encoding.into(), source: None, address: None });
            let frame: &[u8] = match encoding {
                Encoding::Json => {
                    br#"{"id":1,"connect":{}}
{"id":2,"subscribe":{"channel":"prices"}}"#
                }
                // {id: 1, connect: {}}, {id: 2, subscribe: {channel: "prices"}}
                Encoding::Protobuf => b"\x04\x08\x01\x22\x00\x0c\x08\x02\x2a\x08\x0a\x06prices",
            };
            self.handle(Event::Received { session, frame });
            forward(self);
            self.write_all();
        }
    }
}

fn api_publish() -> Event<'static> {
    let data = Payload::from_json(Bytes::from_static(br#"{"bid":101.25,"ask":101.5,"volume":12000}"#));
    let request = ApiRequest::Publish { channel: CHANNEL.into(), data, how: PublishHow::default() };
    Event::Api { ticket: Ticket(1), request }
}

/// Allocations per publication in the steady state, where all buffers have grown: the same for each publication.
fn steady(rig: &mut Rig, mut publication: impl FnMut(&mut Rig) -> usize) -> usize {
    for _ in 0..64 {
        publication(rig);
    }
    let counts: Vec<usize> = (0..64).map(|_| publication(rig)).collect();
    assert!(counts.iter().all(|count| *count == counts[0]), "allocations differ: {counts:?}");
    counts[0]
}

#[test]
fn a_publication_through_the_api_allocates_the_same_for_any_number_of_subscribers() {
    for (lane, history_size) in [(Lane::Reliable, 0), (Lane::Reliable, 10), (Lane::Latest, 0), (Lane::Latest, 10)] {
        for crowd in Crowd::ALL {
            let counts = [10, 100, 1_000].map(|sessions| {
                let mut rig = Rig::new(0, 1, lane, history_size);
                rig.join(crowd, sessions, |_| {});
                steady(&mut rig, |rig| {
                    let event = api_publish();
                    rig.deliveries = 0;
                    let (count, ()) = allocations_of(|| {
                        rig.handle(event);
                        rig.write_all();
                    });
                    rig.effects.list.clear();
                    assert_eq!(rig.deliveries, sessions as usize);
                    count
                })
            });
            println!(
                "{lane:?}, history of {history_size}, {crowd:?}: {counts:?} allocations for 10, 100, 1,000 sessions"
            );
            assert!(counts.iter().all(|count| *count == counts[0]), "{lane:?} {crowd:?}: {counts:?}");
            assert!(counts[0] <= 10, "{lane:?} {crowd:?}: {counts:?}");
        }
    }
}

/// Features that a subscription may negotiate, and whether the publication reaches it then.
const AGREEMENTS: [(&str, bool); 5] = [
    (r#""flag":1"#, true),
    (r#""delta":"fossil""#, true),
    (r#""flag":1,"delta":"fossil""#, true),
    (r#""tf":{"key":"symbol","cmp":"nex"},"delta":"fossil""#, true),
    (r#""tf":{"key":"symbol","cmp":"ex"}"#, false),
];

#[test]
fn negotiated_features_allocate_the_same_for_any_number_of_subscribers() {
    for (fields, is_reached) in AGREEMENTS {
        let counts = [10, 100, 1_000].map(|sessions| {
            let mut rig = Rig::new(0, 1, Lane::Reliable, 10);
            let frame = format!(
                "{}\n{{\"id\":2,\"subscribe\":{{\"channel\":\"{CHANNEL}\",{fields}}}}}",
                r#"{"id":1,"connect":{}}"#
            );
            for index in 0..sessions {
                let session = SessionKey { index, generation: 1 };
                rig.handle(Event::Opened { session, wire: Encoding::Json.into(), source: None, address: None });
                rig.handle(Event::Received { session, frame: frame.as_bytes() });
                rig.write_all();
            }
            steady(&mut rig, |rig| {
                let event = api_publish();
                rig.deliveries = 0;
                let (count, ()) = allocations_of(|| {
                    rig.handle(event);
                    rig.write_all();
                });
                rig.effects.list.clear();
                assert_eq!(rig.deliveries, if is_reached { sessions as usize } else { 0 }, "{fields}");
                count
            })
        });
        println!("{fields}: {counts:?} allocations for 10, 100, 1,000 sessions");
        assert!(counts.iter().all(|count| *count == counts[0]), "{fields}: {counts:?}");
        assert!(counts[0] <= 20, "{fields}: {counts:?}");
    }
}

#[test]
fn a_publication_of_a_session_allocates_the_same_for_any_number_of_subscribers() {
    for crowd in Crowd::ALL {
        let counts = [10, 100, 1_000].map(|sessions| {
            let mut rig = Rig::new(0, 1, Lane::Reliable, 10);
            rig.join(crowd, sessions, |_| {});
            let session = SessionKey { index: 0, generation: 1 };
            let frame: &[u8] = match crowd {
                Crowd::Protobuf => b"\x12\x08\x03\x3a\x0e\x0a\x06prices\x12\x04true",
                Crowd::Json | Crowd::Mixed => br#"{"id":3,"publish":{"channel":"prices","data":true}}"#,
            };
            steady(&mut rig, |rig| {
                rig.deliveries = 0;
                let (count, ()) = allocations_of(|| {
                    rig.handle(Event::Received { session, frame });
                    rig.write_all();
                });
                assert_eq!(rig.deliveries, sessions as usize);
                count
            })
        });
        println!("published by a session, {crowd:?}: {counts:?} allocations for 10, 100, 1,000 sessions");
        assert!(counts.iter().all(|count| *count == counts[0]), "{crowd:?}: {counts:?}");
        assert!(counts[0] <= 14, "{crowd:?}: {counts:?}");
    }
}

#[test]
fn a_shard_that_only_listens_allocates_one_reference_for_each_encoding() {
    let owner_index = owner_of(CHANNEL, 2, NODE_SEED).0;
    let listener_index = 1 - owner_index;
    for lane in [Lane::Reliable, Lane::Latest] {
        for crowd in Crowd::ALL {
            for sessions in [10, 1_000] {
                let mut owner = Rig::new(owner_index, 2, lane, 10);
                let mut listener = Rig::new(listener_index, 2, lane, 10);
                listener.join(crowd, sessions, |listener| {
                    pass(&mut listener.effects, listener_index, &mut owner);
                    pass(&mut owner.effects, owner_index, listener);
                });
                let count = steady(&mut listener, |listener| {
                    owner.handle(api_publish());
                    let message = owner.effects.list.drain(..).find_map(sent).expect("a delivery");
                    listener.deliveries = 0;
                    let (count, ()) = allocations_of(|| {
                        listener.handle(Event::Message { from: ShardIndex(owner_index), message });
                        listener.write_all();
                    });
                    assert_eq!(listener.deliveries, sessions as usize);
                    count
                });
                println!("listening, {lane:?}, {crowd:?}, {sessions} sessions: {count} allocations");
                let encodings = if matches!(crowd, Crowd::Mixed) { 2 } else { 1 };
                assert_eq!(count, encodings, "{lane:?} {crowd:?} {sessions}");
            }
        }
    }
}

fn sent(effect: Effect) -> Option<ShardMessage> {
    match effect {
        Effect::Send { message, .. } => Some(message),
        _ => None,
    }
}

fn pass(effects: &mut Effects, from: u16, to: &mut Rig) {
    for message in effects.list.drain(..).filter_map(sent) {
        to.handle(Event::Message { from: ShardIndex(from), message });
    }
}

#[test]
fn pings_allocate_nothing() {
    let mut rig = Rig::new(0, 1, Lane::Reliable, 0);
    rig.join(Crowd::Mixed, 1_000, |_| {});
    let (mut total, mut pings) = (0, 0);
    for second in 0..200 {
        rig.now.mono_us += 1_000_000;
        let (of_pings, ()) = allocations_of(|| rig.handle(Event::Woke));
        let pinged = rig.effects.dirty.clone();
        rig.deliveries = 0;
        let (of_writes, ()) = allocations_of(|| rig.write_all());
        for session in pinged {
            let is_json = Crowd::Mixed.encoding(session.index) == Encoding::Json;
            rig.handle(Event::Received { session, frame: if is_json { b"{}" } else { b"\x00" } });
        }
        // From here on, each session has been pinged and has its timer entry.
        if second >= 50 {
            pings += rig.deliveries;
            total += of_pings + of_writes;
        }
    }
    assert_eq!(rig.shard.holdings()[0], 1_000, "no session has ended");
    assert!(pings >= 5_000, "{pings} pings");
    assert_eq!(total, 0);
}

#[test]
fn simultaneous_recoveries_share_their_memory() {
    const SESSIONS: u32 = 1_000;
    for encoding in Encoding::ALL {
        let mut rig = Rig::new(0, 1, Lane::Reliable, 100);
        for _ in 0..100 {
            rig.handle(api_publish());
        }
        let frame: &[u8] = match encoding {
            Encoding::Json => br#"{"id":2,"subscribe":{"channel":"prices","recover":true}}"#,
            // {id: 2, subscribe: {channel: "prices", recover: true}}
            Encoding::Protobuf => b"\x0e\x08\x02\x2a\x0a\x0a\x06prices\x18\x01",
        };
        let connect: &[u8] =
            if encoding == Encoding::Json { br#"{"id":1,"connect":{}}"# } else { b"\x04\x08\x01\x22\x00" };
        for index in 0..SESSIONS {
            let session = SessionKey { index, generation: 1 };
            rig.handle(Event::Opened { session, wire: encoding.into(), source: None, address: None });
            rig.handle(Event::Received { session, frame: connect });
        }
        rig.write_all();
        let before = in_use().bytes;
        let (count, ()) = allocations_of(|| {
            for index in 0..SESSIONS {
                let session = SessionKey { index, generation: 1 };
                rig.handle(Event::Received { session, frame });
            }
        });
        let held = usize::try_from(in_use().bytes - before).expect("more than before");
        let queued = rig.shard.queued(SessionKey { index: 7, generation: 1 }).expect("a session").0;
        let sessions = SESSIONS as usize;
        let (each, allocations) = (held / sessions, count / sessions);
        println!("{encoding:?}: {queued} bytes wait for each; {each} held and {allocations} allocations for each");
        let counters = &rig.shard.counters().namespaces[0];
        assert_eq!((counters.answers_encoded, counters.answers_shared), (1, 999));
        assert!(queued > 4_000, "{queued}");
        assert!(each < 1_000 && allocations <= 25, "{encoding:?}: {each} bytes, {allocations} allocations");
    }
}

/// A tick of a world in which ten objects move, one in each of ten cells.
fn tick_update(writer: &mut UpdateWriter, grid: &Grid, tick: u32, is_keyframe: bool) -> Arc<TickUpdate> {
    let encodings = FormatSet::default().with(Encoding::Json).with(Encoding::Protobuf);
    writer.begin(tick, u64::from(tick) * 16_667, encodings, is_keyframe);
    for cell in 0..10 {
        let moved =
            || std::iter::once(ObjectView { id: ObjectId(cell + 1), kind: 1, x: 50 + tick % 10, y: 7, state: b"s" });
        writer.cell(CellIndex(cell), moved(), std::iter::empty(), moved());
    }
    Arc::new(writer.finish(grid))
}

/// Ticks of a room; a limited player has spent by half of them what it had saved.
const TICKS: u32 = 300;

/// Runs ticks with four views in two encodings; returns the allocations of the last hundred, and the counts.
fn allocations_of_ticks(sessions: u32, limit: Option<u32>, is_recorded: bool) -> (usize, NamespaceRoomCounters) {
    let shape = GridShape { columns: 4, rows: 4, cell_units: 100, near_cells: 3, far_cells: 0, far_interval_ticks: 1 };
    let grid = Grid::new(shape).expect("a map");
    let limits = RoomLimits { frame_bytes_per_second: limit.and_then(NonZeroU32::new), ..RoomLimits::default() };
    let mut rig = Rig::with_rooms(0, 1, Lane::Reliable, 10, Some(limits));
    let (room, seats) = rig.enter_room(sessions);
    let mut writer = UpdateWriter::default();
    let keyframe = FromRoom::Keyframe {
        room,
        channel: CHANNEL.into(),
        grid: grid.clone(),
        ticks_per_second: 60,
        keyframe: tick_update(&mut writer, &grid, 1, true),
        is_recorded,
    };
    rig.handle(Event::FromRoom { from: RoomThreadIndex(0), message: keyframe });
    let mut changes: Vec<SeatChange> = (0..)
        .zip(seats)
        .map(|(index, seat)| SeatChange { seat, view: CellIndex(index / 2 % 4), ack: index, avatar: 0, own: None })
        .collect();
    let mut total = 0;
    for tick in 2..2 + TICKS {
        rig.now.mono_us += 16_667;
        let update = tick_update(&mut writer, &grid, tick, false);
        let changes = std::mem::take(&mut changes);
        let message = FromRoom::Tick { room, update, changes, inputs_taken: 0 };
        rig.deliveries = 0;
        let (count, ()) = allocations_of(|| {
            rig.handle(Event::FromRoom { from: RoomThreadIndex(0), message });
            rig.write_all();
        });
        assert_eq!(rig.deliveries, sessions as usize);
        total += if tick < TICKS - 100 { 0 } else { count };
    }
    (total, rig.shard.counters().namespaces[0].rooms)
}

#[test]
fn a_tick_allocates_nothing_per_player() {
    for limit in [None, Some(36_000)] {
        let totals = [10, 100, 1_000].map(|sessions| {
            let (total, rooms) = allocations_of_ticks(sessions, limit, false);
            println!("{sessions} players, limit {limit:?}: {} frames, {} bodies", rooms.frames, rooms.assemblies);
            assert_eq!(rooms.frames, u64::from(TICKS * sessions), "no tick is skipped");
            assert_eq!(limit.is_some(), rooms.near_postponed > 0);
            // Players with a limit share a body while what they have of the zones is equal.
            assert!(
                rooms.assemblies <= u64::from(TICKS) * 8,
                "{} bodies for four views in two encodings",
                rooms.assemblies
            );
            total
        });
        println!("{totals:?} allocations in a hundred ticks for 10, 100, 1,000 players");
        assert_eq!(totals, [totals[0]; 3]);
        assert!(totals[0] <= 100, "{totals:?}");
    }
}

#[test]
fn a_recorded_room_allocates_nothing_more_for_players_who_get_each_tick() {
    for sessions in [10, 1_000] {
        let [(total, rooms), (recorded_total, recorded_rooms)] =
            [false, true].map(|is_recorded| allocations_of_ticks(sessions, None, is_recorded));
        assert_eq!((recorded_total, recorded_rooms.frames), (total, rooms.frames), "{sessions} players");
    }
}
