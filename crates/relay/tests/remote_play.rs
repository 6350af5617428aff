//! Players of other nodes see and do what players on the room's node see and do; after a loss they are gone on both sides.

use dunlin_engine::{
    ShardIndex,
    room::{Departure, NotJoined, SeatKey, ToRoom},
};
use dunlin_proof::chance::Xorshift;
use dunlin_protocol::UnsubscribeCode;
use dunlin_relay::{
    LinkLoss, SILENCE_US_MAX,
    format::{FrameHead, Message, ToEdge, ToHost},
};
use dunlin_rooms::SnapshotFormat;

use crate::nodes::{EDGE_SHARDS, Nodes, REMOTE, encoding_of};

const LOCAL_PLAYERS: usize = 2;

fn seat(shard: u16, index: u32) -> SeatKey {
    SeatKey { shard: ShardIndex(shard), index, generation: 1 }
}

/// A room with one player on each shard of two other nodes.
fn joined() -> Nodes {
    let mut nodes = Nodes::new(2);
    for edge in 0..2 {
        nodes.open(edge);
        for shard in 0..EDGE_SHARDS {
            let seat = seat(shard, u32::from(shard));
            nodes.join(edge, seat, b"", encoding_of(seat));
        }
    }
    nodes.settle(|_| true);
    nodes.tick();
    nodes.settle(|_| true);
    nodes
}

#[test]
fn players_of_other_nodes_see_what_players_here_see() {
    for seed in 0..40 {
        let mut chance = Xorshift::new(seed);
        let mut nodes = joined();
        nodes.check_views();
        let mut number = 0;
        for step in 0..120_u32 {
            let edge = chance.below(2) as usize;
            let shard = chance.below(EDGE_SHARDS.into()) as u16;
            match chance.below(6) {
                0 => {
                    if nodes.edges[edge].seats.is_empty() && nodes.edges[edge].ended.contains(&"idle") {
                        nodes.edges[edge].ended.clear();
                        nodes.send_to_room(
                            edge,
                            ToRoom::Close { room: REMOTE, code: UnsubscribeCode::ROOM_CLOSED, reason: None },
                        );
                        nodes.open(edge);
                    }
                    let seat = seat(shard, 10 + step);
                    nodes.join(edge, seat, b"", encoding_of(seat));
                }
                1 => {
                    if let Some(seat) = nodes.edges[edge].seats.keys().next().copied() {
                        nodes.leave(edge, seat);
                    }
                }
                _ => {
                    if let Some(seat) = nodes.edges[edge].seats.keys().next_back().copied() {
                        number += 1;
                        nodes.input(edge, seat, number, vec![chance.below(80) as u8]);
                    }
                }
            }
            nodes.settle(|_| true);
            nodes.tick();
            nodes.settle(|_| true);
            nodes.check_views();
            let there: usize = nodes.edges.iter().map(|edge| edge.seats.len()).sum();
            assert_eq!(nodes.host.host.player_count(), LOCAL_PLAYERS + there, "seed {seed}, step {step}");
        }
        let taken: u32 = nodes.edges.iter().map(|edge| edge.inputs_taken).sum();
        assert_eq!(taken, number, "the room's inbox has credit for every input");
    }
}

#[test]
fn one_update_a_tick_travels_to_each_node() {
    let mut nodes = joined();
    nodes.received.clear();
    let few = {
        nodes.input(0, seat(0, 0), 1, vec![40]);
        nodes.settle(|_| true);
        nodes.received.clear();
        nodes.tick();
        nodes.settle(|_| true);
        nodes.received.clone()
    };
    assert!(few.values().all(|(frames, _)| *frames == 1), "{few:?}");
    assert_eq!(nodes.edges[0].ticks.iter().rev().take(2).map(|(shard, _)| *shard).collect::<Vec<_>>(), [1, 0]);
    for index in 0..40 {
        nodes.join(0, seat(0, 100 + 2 * index), b"", encoding_of(seat(0, 100 + 2 * index)));
    }
    nodes.settle(|_| true);
    nodes.tick();
    nodes.settle(|_| true);
    nodes.received.clear();
    nodes.tick();
    nodes.settle(|_| true);
    let many = nodes.received["edge0"];
    assert!(many.0 == 1 && many.1 <= few["edge0"].1, "a still tick costs no byte per player: {many:?}, {few:?}");
}

/// The messages of a frame with a whole batch.
fn messages_of(frame: &[u8]) -> Vec<Message> {
    let (_, mut batch) = postcard::take_from_bytes::<FrameHead<'_>>(frame).expect("a frame has a head");
    let mut messages = Vec::new();
    while !batch.is_empty() {
        let (message, rest) = postcard::take_from_bytes(batch).expect("a message");
        messages.push(message);
        batch = rest;
    }
    messages
}

/// Bytes of a tick in which a player walks, for each of two nodes.
fn tick_bytes(nodes: &mut Nodes, number: u32) -> [usize; 2] {
    nodes.input(1, seat(0, 0), number, vec![number as u8 * 3]);
    nodes.settle(|_| true);
    nodes.received.clear();
    nodes.tick();
    nodes.settle(|_| true);
    nodes.check_views();
    ["edge0", "edge1"].map(|edge| nodes.received[edge].1)
}

#[test]
fn a_node_receives_changes_while_a_player_there_does() {
    let mut nodes = joined();
    let typed = seat(1, 3);
    let [before, _] = tick_bytes(&mut nodes, 1);
    let has_changes = |nodes: &Nodes| nodes.host.updates[0].formats().contains(SnapshotFormat::TypedProtobuf);
    assert!(has_changes(&nodes), "a player on the room's node receives changes");
    nodes.join(0, typed, b"", encoding_of(typed));
    nodes.settle(|_| true);
    nodes.tick();
    nodes.settle(|_| true);
    let [with_changes, without] = tick_bytes(&mut nodes, 2);
    assert!(with_changes > without, "{with_changes} {without}");
    for number in 3..20 {
        tick_bytes(&mut nodes, number);
    }
    nodes.leave(0, typed);
    nodes.settle(|_| true);
    nodes.tick();
    nodes.settle(|_| true);
    let [after, _] = tick_bytes(&mut nodes, 1);
    assert_eq!(after, before, "the same walk again");
}

/// A host of an earlier version says nothing of changes, so no join asks it for them. To the host, the edge is one of an
/// earlier version, which would not ask.
#[test]
fn nodes_of_an_earlier_version_get_what_they_read() {
    let mut nodes = Nodes::new(2);
    nodes.edges[0].knows_changes = false;
    let typed = seat(1, 3);
    for edge in 0..2 {
        nodes.open(edge);
        nodes.join(edge, seat(0, 0), b"", encoding_of(seat(0, 0)));
        nodes.join(edge, typed, b"", encoding_of(typed));
    }
    let mut joins = Vec::new();
    nodes.settle(|frame| {
        joins.extend(messages_of(frame));
        true
    });
    let is_typed: Vec<bool> = joins.iter().map(|join| matches!(join, Message::ToHost(ToHost::TypedJoin(_)))).collect();
    assert_eq!(is_typed, [false, false, false, true], "{joins:?}");
    nodes.tick();
    nodes.settle(|_| true);
    for number in 1..20 {
        tick_bytes(&mut nodes, number);
        nodes.received.clear();
        let mut updates = Vec::new();
        nodes.tick();
        nodes.settle(|frame| {
            updates.extend(messages_of(frame).into_iter().filter_map(|message| match message {
                Message::ToEdge(ToEdge::Tick { update, .. }) => Some(update.0),
                _ => None,
            }));
            true
        });
        // The bits of the first byte: plain JSON and Protobuf, and changes.
        let mut firsts: Vec<u8> = updates.iter().map(|update| update[0]).collect();
        firsts.sort_unstable();
        assert_eq!(firsts, [0b0_0110, 0b1_0110]);
    }
}

#[test]
fn events_reach_each_node_once_and_name_its_players() {
    let mut nodes = joined();
    nodes.input(0, seat(0, 0), 1, b"shout".to_vec());
    nodes.input(0, seat(1, 1), 2, b"whisper".to_vec());
    nodes.settle(|_| true);
    nodes.tick();
    nodes.settle(|_| true);
    let shout = (r#"{"tick":3,"event":"shout"}"#.to_owned(), None);
    let whisper = (r#"{"tick":3,"event":"whisper"}"#.to_owned(), Some(vec![seat(1, 1)]));
    assert_eq!(nodes.edges[0].events, [shout.clone(), whisper]);
    assert_eq!(nodes.edges[1].events, [shout]);
    assert_eq!(nodes.host.events, 2, "the owner on the room's node has both in its history");
}

#[test]
fn a_refused_join_and_one_to_a_room_that_is_gone_are_answered() {
    let mut nodes = joined();
    nodes.join(0, seat(0, 50), b"no", encoding_of(seat(0, 50)));
    nodes.settle(|_| true);
    nodes.tick();
    nodes.settle(|_| true);
    let refused = nodes.edges[0].answers.last();
    assert!(matches!(refused, Some(Err((_, NotJoined::Refused(refusal)))) if refusal.code == 450), "{refused:?}");
    nodes.fail();
    nodes.settle(|_| true);
    assert_eq!(nodes.edges[0].ended, ["failed"]);
    nodes.join(0, seat(0, 51), b"", encoding_of(seat(0, 51)));
    nodes.settle(|_| true);
    assert_eq!(nodes.edges[0].answers.last(), Some(&Err((seat(0, 51), NotJoined::Unavailable))));
}

#[test]
fn a_join_that_waits_when_its_room_is_closed_leaves_no_player_behind() {
    let mut nodes = Nodes::new(1);
    let player = seat(0, 0);
    nodes.open(0);
    nodes.join(0, player, b"", encoding_of(player));
    nodes.settle(|_| true);
    nodes.send_to_room(0, ToRoom::Close { room: REMOTE, code: UnsubscribeCode::ROOM_CLOSED, reason: None });
    nodes.settle(|_| true);
    nodes.tick();
    nodes.settle(|_| true);
    assert_eq!(nodes.edges[0].answers.last(), Some(&Err((player, NotJoined::Unavailable))));
    assert_eq!(nodes.host.host.player_count(), LOCAL_PLAYERS);
    assert_eq!(nodes.host.relay.counters().players_here, 0);
}

#[test]
fn a_join_whose_session_has_ended_is_answered_at_once() {
    // The room has not seen it yet, or has accepted it, and its answer is on the way.
    for is_accepted in [false, true] {
        let mut nodes = Nodes::new(1);
        let player = seat(0, 0);
        nodes.open(0);
        nodes.join(0, player, b"", encoding_of(player));
        nodes.settle(|_| true);
        if is_accepted {
            nodes.tick();
        }
        nodes.send_to_room(0, ToRoom::Leave { room: REMOTE, seat: player, departure: Departure::Unanswered });
        nodes.perform();
        assert_eq!(nodes.edges[0].answers, [Err((player, NotJoined::Gone))], "accepted: {is_accepted}");
        assert_eq!(nodes.edges[0].ended, ["idle"], "nothing holds the room any more");
        for _ in 0..2 {
            nodes.settle(|_| true);
            nodes.tick();
        }
        assert_eq!(nodes.edges[0].answers.len(), 1, "it is answered once");
        assert_eq!(nodes.host.host.player_count(), LOCAL_PLAYERS);
        assert_eq!(nodes.host.relay.counters().players_here, 0);
        assert_eq!(nodes.edges[0].relay.counters().players_away, 0);
    }
}

#[test]
fn a_room_that_its_node_does_not_have_ends() {
    let mut nodes = Nodes::new(1);
    let players = [seat(0, 0), seat(1, 1)];
    nodes.open(0);
    for player in players {
        nodes.join(0, player, b"", encoding_of(player));
    }
    nodes.settle(|_| true);
    nodes.fail_with(&NotJoined::Unavailable);
    nodes.settle(|_| true);
    assert_eq!(nodes.edges[0].ended, ["failed"], "the owner asks for it again with the next join");
    let mut answered: Vec<SeatKey> = Vec::new();
    for answer in &nodes.edges[0].answers {
        let Err((player, NotJoined::Unavailable)) = answer else { panic!("{answer:?}") };
        answered.push(*player);
    }
    answered.sort_unstable();
    assert_eq!(answered, players);
    assert_eq!(nodes.edges[0].relay.counters().rooms, 0);
}

#[test]
fn joins_to_a_room_that_its_game_closes_are_answered_behind_its_end() {
    let mut nodes = joined();
    let late = seat(0, 50);
    nodes.join(0, late, b"", encoding_of(late));
    let (code, mut outgoing) = (UnsubscribeCode::ROOM_CLOSED, Vec::new());
    nodes.host.host.end(code, None, &NotJoined::Gone, &mut outgoing);
    for (shard, message) in outgoing.into_iter().filter(|(shard, _)| shard.0 > 0) {
        nodes.host.relay.take_from_room(nodes.now_us, shard, message);
    }
    nodes.settle(|_| true);
    assert_eq!(nodes.edges[0].ended, ["closing"]);
    let of_late = |answer: &Result<SeatKey, (SeatKey, NotJoined)>| matches!(answer, Err((seat, _)) if *seat == late);
    assert!(!nodes.edges[0].answers.iter().any(of_late), "the owner would ask for another room");
    nodes.send_to_room(0, ToRoom::Close { room: REMOTE, code, reason: None });
    nodes.settle(|_| true);
    assert!(nodes.edges[0].answers.last().is_some_and(of_late));
}

#[test]
fn a_tick_from_before_a_room_was_opened_again_changes_nothing() {
    let mut nodes = joined();
    nodes.input(0, seat(0, 0), 1, vec![40]);
    nodes.settle(|_| true);
    nodes.tick();
    // The tick with the player's move is on its way from here on.
    nodes.perform();
    nodes.leave(0, seat(0, 0));
    nodes.leave(0, seat(1, 1));
    nodes.send_to_room(0, ToRoom::Close { room: REMOTE, code: UnsubscribeCode::ROOM_CLOSED, reason: None });
    nodes.open(0);
    nodes.join(0, seat(0, 2), b"", encoding_of(seat(0, 2)));
    nodes.settle(|_| true);
    nodes.tick();
    nodes.settle(|_| true);
    assert_eq!(nodes.edges[0].relay.counters().losses, [0; LinkLoss::ALL.len()]);
    assert_eq!(nodes.edges[0].answers.last(), Some(&Ok(seat(0, 2))));
    assert_eq!(nodes.edges[0].inputs_taken, 0, "the inbox of the new room has had no input");
    nodes.check_views();
}

#[test]
fn the_owner_of_each_node_ends_a_room_that_its_game_closes() {
    let mut nodes = joined();
    let (code, reason) = (UnsubscribeCode::ROOM_CLOSED, Some(std::sync::Arc::from("the sheep sleep")));
    let mut outgoing = Vec::new();
    nodes.host.host.end(code, reason.as_ref(), &NotJoined::Gone, &mut outgoing);
    for (shard, message) in outgoing.into_iter().filter(|(shard, _)| shard.0 > 0) {
        nodes.host.relay.take_from_room(nodes.now_us, shard, message);
    }
    nodes.settle(|_| true);
    for edge in 0..2 {
        assert_eq!(nodes.edges[edge].ended, ["closing"]);
        nodes.send_to_room(edge, ToRoom::Close { room: REMOTE, code, reason: reason.clone() });
        nodes.settle(|_| true);
        assert_eq!(nodes.edges[edge].relay.counters().rooms, 0);
    }
    assert_eq!(nodes.host.relay.counters().players_here, 0);
}

#[test]
fn a_lost_frame_ends_what_two_nodes_have_in_common_on_both_sides() {
    for seed in 0..60 {
        let mut chance = Xorshift::new(seed);
        let mut nodes = joined();
        let drops = 1 + chance.below(4);
        let mut left = drops;
        nodes.input(0, seat(0, 0), 1, vec![1]);
        nodes.input(1, seat(0, 0), 1, vec![2]);
        nodes.wait(SILENCE_US_MAX, |_| {
            let is_dropped = left > 0 && chance.below(2) == 0;
            left -= u64::from(is_dropped);
            !is_dropped
        });
        assert!(left < drops, "seed {seed}: frames were dropped");
        nodes.wait(2 * SILENCE_US_MAX, |_| true);
        let here = nodes.host.relay.counters();
        let there: u64 = nodes.edges.iter().map(|edge| edge.relay.counters().players_away).sum();
        assert_eq!(here.players_here, there, "seed {seed}");
        assert_eq!(nodes.host.host.player_count() as u64, LOCAL_PLAYERS as u64 + there, "seed {seed}");
        assert!(here.losses.iter().sum::<u64>() > 0, "seed {seed}");
        nodes.check_views();
        for edge in 0..2 {
            if nodes.edges[edge].ended.contains(&"failed") {
                nodes.open(edge);
                nodes.join(edge, seat(0, 200), b"", encoding_of(seat(0, 200)));
            }
        }
        nodes.settle(|_| true);
        nodes.tick();
        nodes.settle(|_| true);
        nodes.check_views();
        assert!(nodes.edges.iter().all(|edge| !edge.seats.is_empty()), "seed {seed}: all play again");
    }
}

#[test]
fn a_node_that_falls_silent_is_lost_after_three_seconds() {
    let mut nodes = joined();
    nodes.wait(SILENCE_US_MAX, |_| true);
    assert_eq!(nodes.host.relay.counters().losses, [0; LinkLoss::ALL.len()]);
    nodes.wait(SILENCE_US_MAX, |_| false);
    assert_eq!(nodes.edges[0].ended, [] as [&str; 0]);
    nodes.wait(SILENCE_US_MAX / 2, |_| false);
    assert_eq!(nodes.edges[0].ended, ["failed"]);
    assert_eq!(nodes.host.relay.counters().players_here, 0);
    nodes.tick();
    assert_eq!(nodes.host.host.player_count(), LOCAL_PLAYERS);
    assert!(nodes.host.relay.counters().losses[LinkLoss::Silence as usize] > 0);
}

#[test]
fn bytes_that_are_no_frame_change_nothing() {
    let mut nodes = joined();
    let mut frames = Vec::new();
    nodes.input(0, seat(0, 0), 1, vec![40]);
    nodes.settle(|frame| {
        frames.push(frame.to_vec());
        true
    });
    nodes.tick();
    nodes.settle(|frame| {
        frames.push(frame.to_vec());
        true
    });
    let mut chance = Xorshift::new(1);
    for frame in frames {
        for length in 0..frame.len() {
            nodes.edges[1].relay.receive(nodes.now_us, &frame[..length]);
            nodes.host.relay.receive(nodes.now_us, &frame[..length]);
        }
        for _ in 0..200 {
            let mut changed = frame.clone();
            let place = chance.below(changed.len() as u64) as usize;
            changed[place] = chance.draw() as u8;
            nodes.edges[1].relay.receive(nodes.now_us, &changed);
            nodes.host.relay.receive(nodes.now_us, &changed);
            nodes.settle(|_| true);
        }
    }
}
