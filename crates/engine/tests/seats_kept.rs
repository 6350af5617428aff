//! A room of another node is lost and goes on elsewhere: its players keep their subscriptions.

use std::sync::Arc;

use dunlin_engine::{
    Event, ShardIndex,
    host::{Checkpoint, HostOptions, RoomHost, RoomOrigin, Runner},
    room::{FromRoom, NotJoined, RoomElsewhere, RoomKey, RoomSite, RoomThreadIndex, ToRoom},
};
use dunlin_protocol::{Encoding, UnsubscribeCode};
use dunlin_rooms::{PlayerId, Room, RoomOptions};
use serde_json::{Value, json};

use crate::{
    hall::{Hall, TERMS, options},
    node,
};

const ROOM: &str = "arena:1";
/// The inputs of one shard that may wait for a room.
const INBOX: u32 = 4;

/// A node with players of a room that another node has.
struct Edge {
    hall: Hall,
    /// The room on this node, now or before it was lost.
    key: RoomKey,
}

impl Edge {
    /// Ann and Ben play, on different shards.
    fn new(moves: bool) -> Self {
        let mut options = options();
        options.log.peer_queries_max = 10;
        let limits = options.namespaces[0].room.as_mut().expect("rooms");
        (limits.moves, limits.gives_seat_tokens, limits.inbox_inputs_max, limits.inputs_per_second) =
            (moves, true, INBOX, 1_000);
        let mut hall = Hall::new(2, options);
        hall.seat_grace_ticks = 1_000;
        hall.open("ann", Encoding::Json, 0);
        hall.open("ben", Encoding::Json, 1);
        let key = RoomKey { owner: ShardIndex(0), number: 0 };
        let mut edge = Self { hall, key };
        for name in ["ann", "ben"] {
            edge.hall.join(name, ROOM, &json!({}));
        }
        edge.answer(&here_or_there(true));
        let world = Room::new(RoomOptions::default(), 1, Box::new(edge.hall.meadow)).expect("a map");
        edge.open_there(Runner::new(world), false);
        edge
    }

    /// Answers the question for the room.
    fn answer(&mut self, found: &RoomElsewhere) {
        let queries = std::mem::take(&mut self.hall.node.room_queries);
        let [(shard, channel)] = &queries[..] else { panic!("{queries:?}") };
        self.hall.node.handle(*shard, Event::RoomQueried { channel: Arc::clone(channel), found: found.clone() });
        self.hall.pass();
        self.hall.look();
    }

    /// The other node has the room, which goes on with `runner`, and has run two ticks with the joins of this node.
    fn open_there(&mut self, runner: Runner, is_restored: bool) {
        self.take_over(runner, is_restored);
        self.hall.tick();
        self.hall.tick();
    }

    /// The other node has the room, which goes on with `runner`, and receives the joins of this node.
    fn take_over(&mut self, runner: Runner, is_restored: bool) {
        let host = self.host_there(&runner, is_restored);
        self.hall.rooms.insert(self.key, (host, runner));
    }

    /// The other node's host of `runner`, with the joins of this node.
    fn host_there(&mut self, runner: &Runner, is_restored: bool) -> RoomHost {
        let mut strays = std::mem::take(&mut self.hall.strays).into_iter();
        let Some(ToRoom::OpenRemote { room, channel, .. }) = strays.next() else { panic!("no room is opened") };
        self.key = room;
        let terms = HostOptions { shard_count: 2, node_seed: node::NODE_SEED, seat_grace_ticks: 1_000, ..TERMS };
        let mut host = RoomHost::new(room, channel, runner.room().grid().clone(), terms);
        if is_restored {
            host.restored(1_000);
        }
        strays.for_each(|message| host.take(message));
        host
    }

    /// The link to the node of the room is lost.
    fn lose(&mut self) -> Runner {
        self.hall.pass();
        let (_, runner) = self.hall.rooms.remove(&self.key).expect("the room");
        self.report_lost();
        runner
    }

    fn report_lost(&mut self) {
        let failed = FromRoom::Failed { room: self.key, channel: ROOM.into(), refusal: None };
        self.hall.on_message(self.key.owner.0, failed);
        self.hall.pass();
        self.hall.look();
    }

    /// Sends an input. Returns the code of its refusal.
    fn input(&mut self, name: &str, number: u32) -> Option<u64> {
        self.hall.seen(name).messages.clear();
        self.hall.publish(name, ROOM, number, &[10, number as u8]);
        self.hall.look();
        let reply: Value = serde_json::from_str(&self.hall.seen[name].messages[0]).expect("JSON");
        reply["error"]["code"].as_u64()
    }

    /// The numbers of the inputs on their way to the room.
    fn on_their_way(&self) -> Vec<u32> {
        let numbers = self.hall.node.to_rooms.iter().filter_map(|(_, message)| match message {
            ToRoom::Input { number, .. } => Some(*number),
            _ => None,
        });
        numbers.collect()
    }

    fn ack(&self, name: &str) -> u32 {
        self.hall.seen[name].replicas[ROOM].ack()
    }

    /// The code with which the subscription has ended.
    fn ended(&self, name: &str) -> Option<u64> {
        let messages = self.hall.seen[name].messages.iter();
        let mut messages = messages.map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
        messages.find_map(|message| message["push"]["unsubscribe"]["code"].as_u64())
    }

    fn count(&self, of: fn(&dunlin_engine::counters::NamespaceRoomCounters) -> u64) -> u64 {
        self.hall.node.shards.iter().map(|shard| of(&shard.counters().namespaces[1].rooms)).sum()
    }
}

/// What other nodes say: one has the room, or none.
fn here_or_there(is_there: bool) -> RoomElsewhere {
    if !is_there {
        return RoomElsewhere::Nowhere { is_contended: false };
    }
    let room = RoomKey { owner: ShardIndex(0), number: 70 };
    let site = RoomSite { node: "n2".into(), room, thread: RoomThreadIndex(0), sends_changes: true };
    RoomElsewhere::Open { node: "n2".into(), site: Some(Box::new(site)) }
}

const ROOM_FAILED: u64 = UnsubscribeCode::ROOM_FAILED.0 as u64;

#[test]
fn players_keep_their_subscription_and_their_inputs() {
    // Whether the room has applied the inputs under way in a tick that nobody has seen.
    for has_unseen_tick in [false, true] {
        let mut edge = Edge::new(true);
        let avatar = edge.hall.seen["ann"].replicas[ROOM].avatar();
        assert_eq!(edge.input("ann", 1), None);
        edge.hall.tick();
        assert_eq!(edge.ack("ann"), 1);
        assert_eq!((edge.input("ann", 2), edge.input("ann", 3)), (None, None));
        if has_unseen_tick {
            edge.hall.run_rooms();
        }
        let runner = edge.lose();
        assert_eq!(edge.input("ann", 4), None, "it is held");
        assert_eq!(edge.on_their_way(), Vec::<u32>::new());

        edge.answer(&here_or_there(true));
        let (before, world_tick) = (edge.hall.seen["ann"].snapshots, runner.room().tick_number());
        edge.open_there(runner, true);
        for name in ["ann", "ben"] {
            assert_eq!(edge.ended(name), None);
            assert!(edge.hall.seen[name].replicas[ROOM].tick() > world_tick);
            edge.hall.check(name, ROOM);
        }
        assert!(edge.hall.seen["ann"].snapshots > before);
        assert_eq!(edge.hall.seen["ann"].replicas[ROOM].avatar(), avatar);
        edge.hall.tick();
        assert_eq!((edge.ack("ann"), edge.ack("ben")), (4, 0));
        assert_eq!(edge.hall.rooms[&edge.key].1.undecodable_inputs(), 0);
        assert_eq!((edge.count(|rooms| rooms.seats_kept), edge.count(|rooms| rooms.inputs_unsure)), (2, 0));
    }
}

/// The room goes on on a host that the test plays, for two ticks. Returns the numbers of the inputs that it receives. `knows_inputs`:
/// whether it knows which inputs it has applied.
fn inputs_of_next_ticks(edge: &mut Edge, mut runner: Runner, knows_inputs: bool) -> Vec<u32> {
    let mut host = edge.host_there(&runner, true);
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let mut outgoing = Vec::new();
        let batch = host.begin();
        host.finish(runner.run(&batch, 1_000_000), &mut outgoing);
        for (shard, mut message) in outgoing {
            if let (FromRoom::Tick { changes, .. }, false) = (&mut message, knows_inputs) {
                for change in changes {
                    change.ack = 0;
                }
            }
            edge.hall.on_message(shard.0, message);
        }
        numbers.extend(edge.on_their_way());
        while let Some((_, message)) = edge.hall.node.to_rooms.pop_front() {
            host.take(message);
        }
    }
    numbers
}

#[test]
fn inputs_under_way_are_sent_again_unless_the_room_may_have_applied_them() {
    for (has_unseen_tick, knows_inputs, expected, unsure) in [
        (false, true, vec![2, 3, 4], 0),
        (true, true, vec![4], 0),
        (false, false, vec![4], 2),
        (true, false, vec![4], 2),
    ] {
        let mut edge = Edge::new(true);
        edge.input("ann", 1);
        edge.hall.tick();
        edge.input("ann", 2);
        edge.input("ann", 3);
        if has_unseen_tick {
            edge.hall.run_rooms();
        }
        let runner = edge.lose();
        edge.input("ann", 4);
        edge.answer(&here_or_there(true));
        assert_eq!(edge.on_their_way(), Vec::<u32>::new(), "no tick has said what the room has applied");
        assert_eq!(inputs_of_next_ticks(&mut edge, runner, knows_inputs), expected);
        assert_eq!(edge.count(|rooms| rooms.inputs_unsure), unsure);
    }
}

#[test]
fn a_restored_room_knows_the_inputs_that_it_has_applied() {
    let mut edge = Edge::new(true);
    edge.input("ann", 7);
    edge.hall.tick();
    let runner = edge.lose();
    let origin = RoomOrigin { simulation: "meadow".into(), params: "{}".into(), options: RoomOptions::default() };
    let mut saved = Vec::new();
    runner.save(&origin, &mut saved);
    let saved = Checkpoint::read(&saved).expect("it was just written");
    let restored = saved.restore(RoomOptions::default(), Box::new(edge.hall.meadow)).expect("the same game");
    assert_eq!(restored.room().last_input(PlayerId(1)), 7);
}

#[test]
fn a_keyframe_that_comes_late_brings_no_lost_room_back() {
    let mut edge = Edge::new(true);
    let lost = edge.key;
    let runner = edge.lose();
    let room = runner.room();
    let (grid, keyframe) = (room.grid().clone(), room.keyframe(room.formats()));
    let late = FromRoom::Keyframe {
        room: lost,
        channel: ROOM.into(),
        grid,
        ticks_per_second: 60,
        keyframe,
        is_recorded: false,
    };
    edge.hall.on_message(0, late);
    assert_eq!(edge.hall.node.shards[0].room_holdings(), [1, 0], "one seat, and no room");
    edge.answer(&here_or_there(true));
    edge.open_there(runner, true);
    assert_eq!(edge.hall.node.shards[0].room_holdings(), [1, 1]);
    edge.hall.check("ann", ROOM);
}

#[test]
fn held_inputs_have_the_limit_of_the_inbox() {
    let mut edge = Edge::new(true);
    assert_eq!(edge.input("ann", 1), None, "it is under way");
    let runner = edge.lose();
    for number in 2..=INBOX {
        assert_eq!(edge.input("ann", number), None, "at the limit");
    }
    assert_eq!(edge.input("ann", INBOX + 1), Some(111), "past it");
    assert_eq!(edge.input("ben", 1), None, "the limit is for each shard");
    edge.answer(&here_or_there(true));
    edge.open_there(runner, true);
    edge.hall.tick();
    assert_eq!((edge.ack("ann"), edge.ack("ben")), (INBOX, 1));
    assert_eq!(edge.input("ann", INBOX + 2), None, "the place of the others is free");
}

#[test]
fn the_room_may_go_on_on_the_node_of_its_players() {
    let mut edge = Edge::new(true);
    edge.input("ann", 1);
    let runner = edge.lose();
    edge.input("ann", 2);
    edge.answer(&here_or_there(false));
    // The hall has opened a new world, and its survival is that of the old one.
    let key = *edge.hall.rooms.keys().next().expect("it is open here");
    let (host, fresh) = edge.hall.rooms.get_mut(&key).expect("it is open here");
    *fresh = runner;
    let batch_of_joins = host.arrived_len();
    assert_eq!(batch_of_joins, 2);
    edge.hall.tick();
    edge.hall.tick();
    edge.hall.tick();
    assert_eq!((edge.ended("ann"), edge.ended("ben"), edge.ack("ann")), (None, None, 2));
    edge.hall.check("ann", ROOM);
}

/// The join of a client opens a room with the parameters that it names.
#[test]
fn seats_that_are_kept_only_continue_a_room() {
    let mut edge = Edge::new(true);
    edge.lose();
    for continues in [true, false] {
        let queries = std::mem::take(&mut edge.hall.node.room_queries);
        let [(shard, channel)] = &queries[..] else { panic!("{queries:?}") };
        let found = here_or_there(false);
        edge.hall.node.handle(*shard, Event::RoomQueried { channel: Arc::clone(channel), found });
        let sent: Vec<ToRoom> = edge.hall.node.to_rooms.drain(..).map(|(_, message)| message).collect();
        let Some(ToRoom::Open { room, overrides, .. }) = sent.first() else { panic!("{sent:?}") };
        assert_eq!((overrides.continues, edge.key != *room), (continues, true));
        edge.key = *room;
        if continues {
            for message in sent.into_iter().skip(1) {
                let ToRoom::Join { room, request } = message else { panic!("{message:?}") };
                edge.hall.on_message(room.owner.0, FromRoom::Joined { room, request, outcome: Err(NotJoined::Gone) });
            }
            edge.report_lost();
            assert_eq!((edge.ended("ann"), edge.ended("ben")), (Some(ROOM_FAILED), Some(ROOM_FAILED)));
            assert_eq!(edge.count(|rooms| rooms.seats_not_kept), 2);
            edge.hall.join("ann", ROOM, &json!({}));
        }
    }
}

#[test]
fn a_player_whom_the_room_does_not_know_is_unsubscribed() {
    let mut edge = Edge::new(true);
    edge.lose();
    edge.answer(&here_or_there(true));
    let world = Room::new(RoomOptions::default(), 2, Box::new(edge.hall.meadow)).expect("a map");
    edge.open_there(Runner::new(world), true);
    for name in ["ann", "ben"] {
        assert_eq!(edge.ended(name), Some(ROOM_FAILED));
    }
    let (_, runner) = &edge.hall.rooms[&edge.key];
    assert_eq!(runner.room().player_count(), 0, "no player was made");
    assert_eq!(edge.count(|rooms| rooms.seats_not_kept), 2);
}

#[test]
fn without_survival_players_are_unsubscribed_at_once() {
    let mut edge = Edge::new(false);
    edge.lose();
    assert_eq!((edge.ended("ann"), edge.ended("ben")), (Some(ROOM_FAILED), Some(ROOM_FAILED)));
    assert!(edge.hall.node.room_queries.is_empty());
}

#[test]
fn the_wait_for_a_room_ends() {
    let mut edge = Edge::new(true);
    edge.lose();
    let begun_us = edge.hall.node.now.mono_us;
    while edge.ended("ann").is_none() {
        if edge.hall.node.room_queries.is_empty() {
            edge.hall.node.wait(1);
            edge.hall.look();
        } else {
            edge.answer(&RoomElsewhere::Unanswered);
        }
    }
    let waited_us = edge.hall.node.now.mono_us - begun_us;
    assert!((3_000_000..3_500_000).contains(&waited_us), "three seconds, not {waited_us} µs");
    assert_eq!((edge.ended("ann"), edge.ended("ben")), (Some(ROOM_FAILED), Some(ROOM_FAILED)));
}

#[test]
fn sessions_that_end_meanwhile_leave_nothing_behind() {
    for is_answered_before in [false, true] {
        for unsubscribes in [false, true] {
            let mut edge = Edge::new(true);
            let runner = edge.lose();
            edge.input("ann", 1);
            if is_answered_before {
                edge.answer(&here_or_there(true));
            }
            for name in ["ann", "ben"] {
                if unsubscribes { edge.hall.unsubscribe(name, ROOM) } else { edge.hall.leave(name) }
            }
            if unsubscribes && !is_answered_before {
                // Their joins go on waiting for the room, which learns that they have left.
                edge.answer(&here_or_there(true));
            }
            if is_answered_before || unsubscribes {
                edge.open_there(runner, true);
                let (_, runner) = &edge.hall.rooms[&edge.key];
                let here = if unsubscribes { 0 } else { 2 };
                assert_eq!(runner.room().player_count(), here, "who has lost the connection may come back");
                edge.hall.pass();
                let idle = FromRoom::Idle { room: edge.key, channel: ROOM.into() };
                edge.hall.on_message(edge.key.owner.0, idle);
                edge.hall.pass();
                assert!(edge.hall.rooms.is_empty(), "the owner counts nobody");
            } else {
                edge.answer(&RoomElsewhere::Unanswered);
            }
            assert_eq!(edge.hall.holdings(), [0, 0]);
        }
    }
}

#[test]
fn a_room_that_is_lost_again_keeps_the_inputs_that_were_held() {
    let mut edge = Edge::new(true);
    edge.input("ann", 1);
    let runner = edge.lose();
    edge.input("ann", 2);
    edge.answer(&here_or_there(true));
    // The second node is lost before it has answered the joins.
    let mut strays = std::mem::take(&mut edge.hall.strays).into_iter();
    let Some(ToRoom::OpenRemote { room, .. }) = strays.next() else { panic!("no room is opened") };
    edge.key = room;
    for message in strays {
        let ToRoom::Join { room, request } = message else { panic!("{message:?}") };
        let outcome = Err(NotJoined::Unavailable);
        edge.hall.on_message(room.owner.0, FromRoom::Joined { room, request, outcome });
    }
    edge.report_lost();
    while edge.hall.node.room_queries.is_empty() {
        edge.hall.node.wait(1);
    }
    edge.answer(&here_or_there(true));
    edge.open_there(runner, true);
    edge.hall.tick();
    assert_eq!((edge.ended("ann"), edge.ack("ann")), (None, 2));
}

#[test]
fn who_unsubscribes_meanwhile_may_join_again() {
    let mut edge = Edge::new(true);
    let token = edge.hall.seen["ann"].messages.iter().find_map(|text| {
        let reply: Value = serde_json::from_str(text).expect("JSON");
        reply["subscribe"]["data"]["seat_token"].as_str().map(str::to_owned)
    });
    let runner = edge.lose();
    edge.hall.unsubscribe("ann", ROOM);
    edge.hall.join("ann", ROOM, &json!({"seat_token": token.expect("a token")}));
    edge.answer(&here_or_there(true));
    edge.take_over(runner, true);
    let mut outgoing = edge.hall.run_rooms();
    // It goes straight to the shard of the session, and the answers to joins go by the owner.
    outgoing.sort_by_key(|(_, message)| !matches!(message, FromRoom::Unseated { .. }));
    assert!(matches!(outgoing[0].1, FromRoom::Unseated { .. }), "the new seat takes over the kept one");
    edge.hall.deliver(outgoing);
    edge.hall.tick();
    edge.hall.tick();
    assert_eq!((edge.ended("ann"), edge.ended("ben")), (None, None));
    let (_, runner) = &edge.hall.rooms[&edge.key];
    assert_eq!(runner.room().player_count(), 2);
    edge.hall.check("ann", ROOM);
}
