//! Limits on what nodes send each other about rooms.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_engine::{
    ShardIndex,
    event::NodeSlot,
    room::{FromRoom, NotJoined, SeatChange, SeatKey},
};
use dunlin_relay::{
    LinkLoss, RelayLimit,
    format::{BATCH_FULL_BYTES, FrameHead, FrameKind, Message, ToEdge, UPDATE_BYTES_MAX},
};
use dunlin_rooms::{CellIndex, ClockRate, FormatSet, Grid, GridShape, Schema, SnapshotFormat, UpdateWriter};

use crate::nodes::{EDGE_SHARDS, Nodes, ROOM, encoding_of};

const LOCAL_PLAYERS: usize = 2;

fn seat(shard: u16, index: u32) -> SeatKey {
    SeatKey { shard: ShardIndex(shard), index, generation: 1 }
}

/// A room with these players on another node.
fn joined(seats: &[SeatKey]) -> Nodes {
    let mut nodes = Nodes::new(1);
    nodes.open(0);
    for seat in seats {
        nodes.join(0, *seat, b"", encoding_of(*seat));
    }
    step(&mut nodes);
    nodes
}

/// Delivers everything, and runs a tick.
fn step(nodes: &mut Nodes) {
    nodes.settle(|_| true);
    nodes.tick();
    nodes.settle(|_| true);
}

/// The messages of frames that each have a whole batch.
fn messages(frames: &[Vec<u8>]) -> Vec<Message> {
    let mut messages = Vec::new();
    for frame in frames {
        let (head, mut batch) = postcard::take_from_bytes::<FrameHead<'_>>(frame).expect("a head");
        assert!(matches!(head.kind, FrameKind::Part { is_last: true, .. }), "{head:?}");
        while !batch.is_empty() {
            let (message, rest) = postcard::take_from_bytes(batch).expect("a message");
            messages.push(message);
            batch = rest;
        }
    }
    messages
}

/// Runs a tick. Returns what the room's node sends about it.
fn tick(nodes: &mut Nodes) -> Vec<Message> {
    nodes.tick();
    let mut frames = Vec::new();
    nodes.settle(|frame| {
        frames.push(frame.to_vec());
        true
    });
    messages(&frames)
}

fn times(nodes: &Nodes, limit: RelayLimit) -> u64 {
    nodes.host.relay.counters().limits[limit as usize]
}

/// A tick of the room for a player on the other node, whose message has this many bytes.
fn tick_of(nodes: &mut Nodes, seat_there: SeatKey, bytes: usize) {
    nodes.tick();
    nodes.settle(|_| true);
    let update = nodes.host.updates.last().expect("a tick for each shard").clone();
    let shard = NodeSlot(1).shard(seat_there.shard.0).expect("a shard");
    // A change has sixteen bytes beside what is for the player alone.
    let own_bytes = bytes - update.to_bytes().len() - 16;
    let own = Some(Bytes::from(vec![b'x'; own_bytes]));
    let change = SeatChange { seat: SeatKey { shard, ..seat_there }, view: CellIndex(0), ack: 0, avatar: 0, own };
    let message = FromRoom::Tick { room: ROOM, update, changes: vec![change], inputs_taken: 0 };
    nodes.host.relay.take_from_room(nodes.now_us, shard, message);
    nodes.settle(|_| true);
}

#[test]
fn a_world_that_is_too_large_for_other_nodes_ends_for_their_players_alone() {
    let player = seat(0, 0);
    let mut nodes = joined(&[player]);
    let ticks = nodes.edges[0].ticks.len();
    tick_of(&mut nodes, player, UPDATE_BYTES_MAX);
    assert_eq!(nodes.edges[0].ticks.len(), ticks + 2, "at the limit");
    assert_eq!((nodes.edges[0].ended.len(), times(&nodes, RelayLimit::Update)), (0, 0));
    tick_of(&mut nodes, player, UPDATE_BYTES_MAX + 1);
    assert_eq!((&nodes.edges[0].ended[..], times(&nodes, RelayLimit::Update)), (&["closing"][..], 1), "past it");
    assert_eq!(tick(&mut nodes), [], "nothing more is sent there");
    assert_eq!(nodes.host.host.player_count(), LOCAL_PLAYERS, "the room goes on for the others");
    let losses = nodes.host.relay.counters().losses;
    assert_eq!((losses, nodes.edges[0].relay.counters().losses), ([0; LinkLoss::ALL.len()], losses));
}

#[test]
fn an_update_that_is_too_large_with_changes_travels_without_them() {
    let player = seat(0, 3);
    let mut nodes = joined(&[player]);
    nodes.tick();
    let update = nodes.host.updates.last().expect("a tick for each shard");
    let changes_bytes = update.to_bytes_with_changes().len() - update.to_bytes().len();
    assert!(changes_bytes > 0);
    let mut received = |bytes| {
        nodes.settle(|_| true);
        nodes.received.clear();
        tick_of(&mut nodes, player, bytes);
        (nodes.received["edge0"].1, nodes.edges[0].ended.len())
    };
    let (with_changes, _) = received(UPDATE_BYTES_MAX - changes_bytes);
    assert_eq!(received(UPDATE_BYTES_MAX - changes_bytes + 1), (with_changes + 1 - changes_bytes, 0), "past the limit");
    assert_eq!(received(UPDATE_BYTES_MAX + 1).1, 1, "it is too large without them as well");
}

#[test]
fn shards_of_a_node_share_a_keyframe() {
    let mut nodes = Nodes::new(1);
    nodes.open(0);
    for shard in 0..EDGE_SHARDS {
        nodes.join(0, seat(shard, 0), b"", encoding_of(seat(shard, 0)));
    }
    nodes.settle(|_| true);
    let sent = tick(&mut nodes);
    let keyframes: Vec<_> = sent
        .iter()
        .filter_map(|message| match message {
            Message::ToEdge(ToEdge::Keyframe { shards, .. }) => Some(shards.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(keyframes, [[0, 1]]);
    nodes.check_views();
}

#[test]
fn players_on_other_nodes_learn_the_rate_of_the_clock() {
    let mut nodes = joined(&[seat(0, 0), seat(0, 2)]);
    for permille in [250, 251, 999, 1_000] {
        nodes.rate = ClockRate::from_permille(permille).expect("a rate");
        step(&mut nodes);
        let rate_at = |shard: usize| nodes.edges[0].mirrors[shard].as_ref().map(dunlin_rooms::Mirror::rate);
        assert_eq!(rate_at(0), Some(nodes.rate));
        nodes.check_views();
    }
    // A keyframe has the rate as well.
    nodes.rate = ClockRate::from_permille(100).expect("a rate");
    nodes.tick();
    nodes.join(0, seat(1, 0), b"", encoding_of(seat(1, 0)));
    step(&mut nodes);
    assert_eq!(nodes.edges[0].mirrors[1].as_ref().map(dunlin_rooms::Mirror::rate), Some(nodes.rate));
    nodes.check_views();
}

#[test]
fn the_map_of_a_room_does_not_change() {
    for (columns, cell_units, is_taken) in [(8, 10, true), (9, 10, false), (8, 11, false)] {
        let mut nodes = joined(&[seat(0, 0)]);
        step(&mut nodes);
        let keyframe = nodes.keyframe();
        let shape = GridShape { columns, rows: 1, cell_units, near_cells: 1, far_cells: 0, far_interval_ticks: 1 };
        let (channel, grid) = ("arena".into(), Grid::new(shape).expect("a map"));
        let message =
            FromRoom::Keyframe { room: ROOM, channel, grid, ticks_per_second: 60, keyframe, is_recorded: true };
        let shard = NodeSlot(1).shard(0).expect("a shard");
        nodes.host.relay.take_from_room(nodes.now_us, shard, message);
        nodes.settle(|_| true);
        let malformed = nodes.edges[0].relay.counters().losses[LinkLoss::Malformed as usize];
        assert_eq!(malformed, u64::from(!is_taken), "{columns} columns of {cell_units} units");
    }
}

/// Shards that have the world read changes with the schema that it came with.
#[test]
fn the_schema_of_a_room_does_not_change() {
    let mut nodes = joined(&[seat(0, 0)]);
    let mut writer = UpdateWriter::new(Arc::new(Schema::new()), 10);
    writer.begin(9, 9, FormatSet::default().with(SnapshotFormat::Json), true);
    let shape = GridShape { columns: 8, rows: 1, cell_units: 10, near_cells: 1, far_cells: 0, far_interval_ticks: 1 };
    let (channel, grid) = ("arena".into(), Grid::new(shape).expect("a map"));
    let keyframe = Arc::new(writer.finish(&grid));
    let message = FromRoom::Keyframe { room: ROOM, channel, grid, ticks_per_second: 60, keyframe, is_recorded: false };
    nodes.host.relay.take_from_room(nodes.now_us, NodeSlot(1).shard(0).expect("a shard"), message);
    nodes.settle(|_| true);
    assert_eq!(nodes.edges[0].relay.counters().losses[LinkLoss::Malformed as usize], 1);
}

#[test]
fn a_node_whose_last_player_has_left_gets_no_update() {
    let player = seat(0, 0);
    let mut nodes = joined(&[player]);
    nodes.input(0, player, 1, vec![40]);
    nodes.leave(0, player);
    nodes.settle(|_| true);
    assert_eq!(tick(&mut nodes), [], "only the place of the input in the inbox is left");
}

#[test]
fn an_input_after_its_player_has_left_returns_its_place_in_the_inbox() {
    let (left, stays) = (seat(0, 0), seat(0, 2));
    let mut nodes = joined(&[left, stays]);
    nodes.leave(0, left);
    // The shards of the player and of the channel's owner have rings of their own.
    nodes.input(0, left, 1, vec![40]);
    nodes.settle(|_| true);
    nodes.tick();
    nodes.settle(|_| true);
    assert_eq!(nodes.edges[0].inputs_taken, 1);
}

#[test]
fn many_messages_are_sent_in_the_middle_of_a_turn() {
    let player = seat(0, 0);
    let mut nodes = joined(&[player]);
    let input_bytes = BATCH_FULL_BYTES / 8;
    let full_times = |nodes: &Nodes| nodes.edges[0].relay.counters().limits[RelayLimit::Batch as usize];
    for number in 0..7 {
        nodes.input(0, player, 1 + number, vec![1; input_bytes]);
    }
    assert!(!nodes.edges[0].relay.is_full(), "below the mark");
    nodes.perform();
    assert_eq!(full_times(&nodes), 0);
    for number in 7..15 {
        nodes.input(0, player, 1 + number, vec![1; input_bytes]);
    }
    assert!(nodes.edges[0].relay.is_full(), "the numbers of the messages reach it");
    nodes.perform();
    assert_eq!((full_times(&nodes), nodes.edges[0].relay.is_full()), (1, false));
    nodes.settle(|_| true);
    assert_eq!(nodes.host.relay.counters().losses, [0; LinkLoss::ALL.len()]);
}

#[test]
fn frames_are_as_short_as_the_servers_demand() {
    const PAYLOAD_BYTES_MAX: usize = 64 << 10;
    let player = seat(0, 0);
    let mut nodes = joined(&[player]);
    nodes.edges[0].relay.set_payload_bytes_max(PAYLOAD_BYTES_MAX);
    nodes.input(0, player, 1, vec![1; 10 * PAYLOAD_BYTES_MAX]);
    let mut longest = 0;
    let mut frames = 0;
    nodes.settle(|frame| {
        (longest, frames) = (longest.max(frame.len()), frames + 1);
        true
    });
    assert!(longest <= PAYLOAD_BYTES_MAX && frames == 11, "{frames} frames, the longest of {longest} bytes");
    nodes.tick();
    nodes.settle(|_| true);
    assert_eq!(nodes.edges[0].inputs_taken, 1);
}

#[test]
fn a_frame_that_was_held_back_for_two_seconds_is_not_played() {
    let player = seat(0, 0);
    for (late_us, is_played) in [(2_000_000, true), (2_000_001, false)] {
        let mut nodes = joined(&[player]);
        nodes.input(0, player, 1, vec![40]);
        nodes.perform();
        nodes.now_us += late_us;
        nodes.settle(|_| true);
        let lost = nodes.host.relay.counters().losses[LinkLoss::Late as usize];
        assert_eq!((lost, nodes.edges[0].ended.is_empty()), (u64::from(!is_played), is_played), "{late_us}");
        nodes.tick();
        assert_eq!(nodes.host.host.player_count(), LOCAL_PLAYERS + usize::from(is_played));
    }
}

#[test]
fn clients_of_255_other_nodes_play_here() {
    const NODES: usize = 255;
    let player = seat(0, 0);
    let mut nodes = Nodes::new(NODES + 1);
    for edge in 0..=NODES {
        nodes.open(edge);
        nodes.join(edge, player, b"", encoding_of(player));
    }
    step(&mut nodes);
    for edge in 0..NODES {
        assert_eq!(nodes.edges[edge].answers.last(), Some(&Ok(player)), "node {edge}");
    }
    assert_eq!(nodes.edges[NODES].answers.last(), Some(&Err((player, NotJoined::Gone))), "past the limit");
    assert_eq!(nodes.host.host.player_count(), LOCAL_PLAYERS + NODES);
    assert_eq!(nodes.host.relay.counters().losses, [0; LinkLoss::ALL.len()]);
}

#[test]
fn nodes_that_are_gone_leave_no_trace() {
    let mut nodes = Nodes::new(1);
    // More than there are slots for other nodes.
    for run in 0..600 {
        nodes.restart(0, run);
        nodes.open(0);
        nodes.join(0, seat(0, 0), b"", encoding_of(seat(0, 0)));
        step(&mut nodes);
        assert_eq!(nodes.edges[0].answers.last(), Some(&Ok(seat(0, 0))), "run {run}");
        nodes.leave(0, seat(0, 0));
        // A tick is a wake of the relays.
        nodes.wait(250_000, |_| true);
    }
    assert_eq!(nodes.host.relay.counters().losses, [0; LinkLoss::ALL.len()], "nodes without players are not missed");
    nodes.wait(61_000_000, |_| true);
    assert_eq!(nodes.host.relay.counters().players_here, 0);
}
