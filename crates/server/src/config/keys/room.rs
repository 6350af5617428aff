//! `room.*`, and the table `room` of channel options.

use super::{
    COUNT, Key,
    Kind::{Any, Duration, Int, Table, Text},
    Support, own,
};

/// Whatever counts players or objects fits 32 bits.
const COUNT_32: super::Kind = Int(1, 1 << 31);

pub(super) const TOP: &[Key] = &[Key {
    name: "room",
    kind: Table(&[ROOM_THREADS]),
    default: "",
    support: Support::Own,
    doc: "Room threads. What a room is, its namespace says: `room` in the [channel options](#channel-options).",
}];

const ROOM_THREADS: &[Key] = &[
    own("threads", Int(1, 256), "1", "Threads that tick rooms, if any namespace has them."),
    own(
        "max_rooms",
        COUNT_32,
        "10000",
        "Rooms that may be open. Each shard has an equal part of them. A join or a command of the API that would open one more is answered with error 106.",
    ),
    own(
        "lost_threads_limit",
        Int(1, 1_024),
        "4",
        "Threads that rooms of one namespace may cost because their simulation does not come back. While so many are lost, rooms of that namespace that are open go on, but joins that would open one are refused with 400.",
    ),
    own(
        "ring_messages_limit",
        Int(1, 1 << 20),
        "1024",
        "Messages in each ring between a shard and a room thread. What does not fit waits; while more than as many again wait for one shard, rooms that have something for it stand still.",
    ),
];

pub(super) const OPTIONS: &[Key] = &[Key {
    name: "room",
    kind: Table(&[ROOM]),
    default: "",
    support: Support::Own,
    doc: "Makes each channel a room.",
}];

const ROOM: &[Key] = &[
    own(
        "simulation",
        Text,
        "",
        "The simulation by whose rules each channel is a room; empty for none. Needs `history_size` and `history_ttl`.",
    ),
    own("params", Any, "", "What the simulation is made with: a table, as its description says."),
    own("ticks_per_second", Int(1, 240), "60", "Ticks in a second."),
    own("empty_timeout", Duration, "30s", "How long a room stays without players."),
    own("max_players", COUNT_32, "10000", "Players of a room. One more is answered with error 400."),
    own("max_objects", COUNT_32, "100000", "Objects of a world. The simulation is told when there are no more."),
    own("object_state_limit", Int(1, 1 << 16), "1024", "Bytes of one object's state."),
    own(
        "events_per_tick_limit",
        COUNT_32,
        "1024",
        "Events and publications of one tick. The simulation is told when there are no more.",
    ),
    own("event_size_limit", Int(1, 1 << 24), "16384", "Bytes of one event or publication."),
    own(
        "input_rate_limit",
        Int(1, 1_000_000),
        "120",
        "Inputs that a player may send in a second, and as many at once. One more is answered with error 111.",
    ),
    own(
        "input_size_limit",
        Int(1, 1 << 20),
        "1024",
        "Bytes of one input's data. A longer one is answered with error 107.",
    ),
    own(
        "inbox_limit",
        COUNT_32,
        "16384",
        "Inputs of one shard's players that may wait for a room. One more is answered with error 111.",
    ),
    own(
        "tick_stuck_timeout",
        Duration,
        "2s",
        "How long a tick may take before its room is given up together with its thread. The thread's other rooms go on on a new one.",
    ),
    own(
        "catch_up_ticks",
        Int(0, 240),
        "5",
        "Ticks that are made up for after a delay. Those before are passed over, and counted.",
    ),
    own(
        "overrun_ticks_limit",
        COUNT_32,
        "600",
        "Ticks in a row that may take longer than their interval. At that many the room ends, and its players are unsubscribed with 2510.",
    ),
    own(
        "memory_limit",
        COUNT,
        "268435456",
        "Bytes that a room may take: past it the room ends. A single call of the simulation that allocates as much again is stopped.",
    ),
    own("seed", Int(0, i64::MAX), "0", "The seed of every room, for tests; 0 for a random one each."),
    own("record_directory", Text, "", "Directory for recordings of all rooms, for `dunlin replay`; empty for none."),
];
