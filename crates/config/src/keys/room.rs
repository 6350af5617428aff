//! `room.*`, and the table `room` of channel options.

use super::{
    Key, Support,
    ValueKind::{Any, Bool, Choice, Duration, Int, Table, Text, Texts},
    own,
};

/// A number of players or objects, which fits 32 bits.
const COUNT_32: super::ValueKind = Int(1, 1 << 31);

pub(super) const TOP: &[Key] = &[Key {
    name: "room",
    kind: Table(&[ROOM_THREADS]),
    default: "",
    support: Support::Own,
    doc: "Limits and threads of all rooms. A namespace defines its rooms with the table `room` of the [channel options](#channel-options).",
}];

const ROOM_THREADS: &[Key] = &[
    own("threads", Int(1, 256), "1", "Number of threads that tick rooms, if a namespace has rooms."),
    own(
        "max_rooms",
        COUNT_32,
        "10000",
        "Maximum number of open rooms, divided equally between the shards. Beyond it, a join or API command that would open a room gets error 106.",
    ),
    own(
        "open_rate_limit",
        Int(0, 1_000_000),
        "500",
        "Maximum number of rooms that the node opens per second, divided equally between the shards. Beyond it, a join or API command that would open a room gets error 111; in a cluster, a join first waits for up to 3 seconds. 0: no limit.",
    ),
    own(
        "session_open_rate_limit",
        Int(0, 1_000_000),
        "5",
        "Maximum number of rooms that joins of one session open per second. Joins to open rooms do not count. Beyond it, a join that would open a room gets error 111. 0: no limit.",
    ),
    own(
        "address_open_rate_limit",
        Int(0, 1_000_000),
        "20",
        "Maximum number of rooms that joins from one IPv4 address or IPv6 /64 open per second, divided equally between the shards. Clients behind a proxy share its address unless `http_server.trusted_proxies` names the proxy. Beyond it, a join that would open a room gets error 111. 0: no limit.",
    ),
    own(
        "opening_limit",
        COUNT_32,
        "256",
        "Maximum number of rooms whose world is not made yet, divided equally between the shards. Beyond it, a join or API command that would open a room gets error 111; in a cluster, a join first waits for up to 3 seconds.",
    ),
    own(
        "total_memory_limit",
        Int(1 << 20, 1 << 50),
        "4294967296",
        "Maximum memory of all rooms together in bytes, counted as in `memory_limit` of a namespace. At this size, open rooms continue, but a join that would open a room is refused with error 106.",
    ),
    own(
        "lost_threads_limit",
        Int(1, 1_024),
        "4",
        "Maximum number of threads that rooms of one namespace may block because their simulation does not return. At this number, open rooms of the namespace continue, but no new ones are opened (error 400).",
    ),
    own(
        "ring_messages_limit",
        Int(1, 1 << 20),
        "1024",
        "Capacity in messages of each ring buffer between a shard and a room thread. If twice as many wait for one shard, the rooms that have messages for it pause.",
    ),
    own(
        "paths_queue_limit",
        COUNT_32,
        "16384",
        "Maximum number of blocks of players' paths, of up to 4 KiB each, that wait for the storage. Beyond it, blocks are dropped and counted.",
    ),
];

pub(super) const OPTIONS: &[Key] = &[Key {
    name: "room",
    kind: Table(&[ROOM]),
    default: "",
    support: Support::Own,
    doc: "Make each channel of the namespace a room.",
}];

const ROOM: &[Key] = &[
    own(
        "simulation",
        Text,
        "",
        "Name of the simulation that runs in each channel of the namespace. Empty: the channels are not rooms. Needs `history_size` and `history_ttl`.",
    ),
    own("params", Any, "", "Parameters of the simulation: a table, as described by the simulation."),
    own(
        "join_params",
        Texts,
        "",
        "Names of the parameters that a client may set for the room that its join opens, with the member `room_params` of the join's data. A join with others gets error 400. `room_open` of the API may set all.",
    ),
    own(
        "params_size_limit",
        Int(1, 1 << 20),
        "16384",
        "Maximum size in bytes of the parameters with which a join or `room_open` of the API opens a room. Beyond it a join gets error 400, and `room_open` error 107.",
    ),
    own("ticks_per_second", Int(1, 240), "60", "Ticks per second."),
    own("empty_timeout", Duration, "30s", "How long a room without players stays open."),
    own("max_players", COUNT_32, "10000", "Maximum number of players of a room. Beyond it a join gets error 400."),
    own(
        "max_spectators",
        Int(0, u32::MAX as i64),
        "10000",
        "Maximum number of spectators of a room. Beyond it a join of a spectator gets error 400. 0: no spectators.",
    ),
    own(
        "max_objects",
        COUNT_32,
        "100000",
        "Maximum number of objects in a room. Beyond it the simulation gets an error.",
    ),
    own("object_state_limit", Int(1, 1 << 16), "1024", "Maximum size in bytes of the state of one object."),
    own(
        "events_per_tick_limit",
        COUNT_32,
        "1024",
        "Maximum number of events and publications in one tick. Beyond it the simulation gets an error.",
    ),
    own("event_size_limit", Int(1, 1 << 24), "16384", "Maximum size in bytes of one event or publication."),
    own(
        "input_rate_limit",
        Int(1, 1_000_000),
        "120",
        "Maximum number of inputs per second of one player; the burst size is the same. Beyond it an input gets error 111.",
    ),
    own(
        "input_size_limit",
        Int(1, 1 << 20),
        "1024",
        "Maximum size in bytes of one input. A larger one gets error 107.",
    ),
    own(
        "inbox_limit",
        COUNT_32,
        "16384",
        "Maximum number of inputs from the players of one shard that are queued for a room. Beyond it an input gets error 111.",
    ),
    own(
        "player_bandwidth_limit",
        Int(0, 1 << 30),
        "0",
        "Maximum bytes of snapshots per second of one player; the burst size is the same. When less than half of the burst is left, cells that are not next to the player are updated less often, the more distant the less; beyond the limit ticks are skipped. Should be larger than a full snapshot. 0: no limit.",
    ),
    own(
        "metadata_size_limit",
        Int(0, 1 << 16),
        "4096",
        "Maximum size in bytes of the metadata of a room. Beyond it the simulation gets an error, and `room_update` of the API error 107.",
    ),
    own(
        "messages_limit",
        COUNT_32,
        "256",
        "Maximum number of messages of the backend (`room_send` of the API) that wait for the answer of a room. Beyond it a message gets error 111.",
    ),
    own(
        "message_size_limit",
        Int(1, 1 << 20),
        "16384",
        "Maximum size in bytes of a message of the backend, and of the game's answer. A larger message gets error 107.",
    ),
    own("call_proxy_enabled", Bool, "false", "Let games call a backend."),
    own(
        "call_proxy_name",
        Text,
        "default",
        "The backend that games call: a name from `proxies`, or `default` for `rpc.proxy`.",
    ),
    own(
        "calls_limit",
        Int(1, 1 << 16),
        "64",
        "Maximum number of calls of a room that wait for the answer of the backend. Beyond it the simulation gets an error.",
    ),
    own(
        "call_size_limit",
        Int(1, 1 << 20),
        "16384",
        "Maximum size in bytes of a call of the game, method and data together, and of its answer. Beyond it the simulation gets an error.",
    ),
    own(
        "tick_stuck_timeout",
        Duration,
        "2s",
        "How long a tick may take before the room ends and its thread is abandoned. The thread's other rooms continue on a new thread.",
    ),
    own(
        "catch_up_ticks",
        Int(0, 240),
        "5",
        "Maximum number of ticks that are run late after a delay. Earlier ticks are skipped and counted.",
    ),
    own(
        "overrun",
        Choice(&["skip", "dilate"]),
        "skip",
        "What happens while ticks take longer than their interval. `skip`: ticks are skipped and counted. `dilate`: the room's clock runs slower instead; clients learn its rate, and the clock returns to full rate when ticks are short enough again.",
    ),
    own(
        "min_rate_permille",
        Int(1, 1_000),
        "100",
        "With `overrun: dilate`: the lowest rate of a room's clock, in thousandths of real time. If ticks take longer even then, they are skipped.",
    ),
    own(
        "overrun_ticks_limit",
        COUNT_32,
        "600",
        "Number of consecutive ticks that take longer than their interval at which the room ends. Its players are unsubscribed with code 2510.",
    ),
    own(
        "memory_limit",
        Int(1 << 20, 1 << 40),
        "268435456",
        "Maximum memory of a room in bytes: its world, and what the simulation reports (`Simulation::memory_bytes`). A room that is beyond it after a tick ends.",
    ),
    own("seed", Int(0, i64::MAX), "0", "The random seed of every room, for tests. 0: a random seed for each room."),
    own(
        "record_directory",
        Text,
        "",
        "Directory where all rooms are recorded, for `dunlin replay`. Empty: no recordings. A room that goes on after a restart (`survival`) is not recorded any more.",
    ),
    own(
        "record_bytes_max",
        Int(0, i64::MAX),
        "10737418240",
        "Maximum bytes of all recordings in `record_directory`. Before a recording would exceed it, those that ended first are deleted, but none that is written or replayed. If the running ones alone would exceed it, the one that is about to be written ends, and its room goes on. 0: no limit. Namespaces with the same directory share the limit.",
    ),
    own(
        "record_ttl",
        Duration,
        "0s",
        "How long a recording is kept after its end. Looked at once a minute. `0s`: no limit.",
    ),
    own(
        "survival",
        Choice(&["none", "checkpoint", "exact"]),
        "none",
        "What of a room is kept when the process ends. `none`: nothing. `checkpoint`: its last checkpoint, from which it goes on after the restart. `exact`: everything that its players have seen, because the inputs of each tick are in the write-ahead log of `storage.path` before its snapshots and events are sent. On one node, both need `storage.path`. In a cluster, what is kept is in NATS instead, and another node continues the room when its node stops or dies.",
    ),
    own("checkpoint_interval", Duration, "10s", "Time between two checkpoints of a room with `survival`."),
    own(
        "checkpoint_size_limit",
        Int(1_024, 1 << 30),
        "16777216",
        "Maximum size in bytes of a checkpoint, and of the logged inputs of one tick. A larger checkpoint is not written; with `survival: exact` the room ends. At most half of `storage.queue_bytes_limit`, or in a cluster of `broker.nats.jetstream.requests_size_limit`.",
    ),
    own(
        "held_ticks_limit",
        Int(1, 1_000),
        "30",
        "With `survival: exact`: maximum number of ticks whose snapshots and events wait until their inputs are logged. Beyond it the room does not tick.",
    ),
    own(
        "seat_grace",
        Duration,
        "30s",
        "How long a player stays in its room without its client: after a lost connection and, with `survival`, after a restart. A client comes back with its seat token or the same user id. `0s`: players leave with their connections.",
    ),
    own(
        "max_away_per_user",
        COUNT_32,
        "4",
        "Maximum number of players of one user that stay in a room without their clients. Beyond it, the one that has been away for longest leaves. Users without an id are not affected: `max_players` bounds them.",
    ),
    own(
        "one_seat_per_user",
        Bool,
        "false",
        "Whether a user has at most one player in a room. A join takes over the user's player, and the connection that had it is unsubscribed with code 2011. Users without an id are not affected. Needs `seat_grace` or `survival`.",
    ),
    own(
        "visitor_address",
        Bool,
        "false",
        "Whether simulations learn the addresses of clients (`Visitor::address`), as the server determines them with `http_server.trusted_proxies`. The logs of rooms with `survival: exact` and recordings contain the addresses then.",
    ),
    Key {
        name: "paths",
        kind: Table(&[PATHS]),
        default: "",
        support: Support::Own,
        doc: "Store where the players of the rooms went, for the API method `room_paths`.",
    },
    own(
        "lobby_channel",
        Text,
        "",
        "Channel in which the node publishes listings of the namespace's rooms. Empty: none. Its namespace needs `delivery: latest`, `conflation_key: room` and `cache_keys`, and has no rooms.",
    ),
    own("lobby_interval", Duration, "1s", "Minimum time between two listings of a room in `lobby_channel`."),
    own(
        "lobby_publications_limit",
        Int(1, 1 << 20),
        "1000",
        "Maximum number of listings that the node publishes in `lobby_channel` per half second. The others follow.",
    ),
    Key {
        name: "match",
        kind: Table(&[MATCH]),
        default: "",
        support: Support::Own,
        doc: "Matchmaking: the node places tickets of users in rooms of the namespace ([matchmaking](matchmaking.md)).",
    },
];

const MATCH: &[Key] = &[
    own("enabled", Bool, "false", "Accept tickets for the namespace. In a cluster, one node runs the queues of all."),
    own("min_players", COUNT_32, "2", "A room is opened for at least this many users."),
    own("max_players", COUNT_32, "8", "A room gets at most this many users. At most `room.max_players`."),
    own(
        "fill_wait",
        Duration,
        "5s",
        "How long the oldest ticket of a new room waits for `max_players` users. Then `min_players` suffice.",
    ),
    own(
        "skill_window",
        Int(0, 1 << 31),
        "0",
        "Maximum difference in skill between the oldest ticket of a room and the others, at the beginning. 0: skill does not matter.",
    ),
    own("skill_window_growth", Int(0, 1 << 31), "10", "By how much `skill_window` widens per second of waiting."),
    own("skill_window_limit", Int(0, 1 << 31), "0", "Maximum width of the widened `skill_window`. 0: no limit."),
    own(
        "region_wait",
        Duration,
        "10s",
        "How long a ticket waits for a room of its region. Then it accepts rooms of any region. 0: regions do not matter.",
    ),
    own("ticket_timeout", Duration, "60s", "How long a ticket waits for a room. Then it ends as `timed_out`."),
    own(
        "confirm_timeout",
        Duration,
        "15s",
        "How long the ticket of a party waits until all users have confirmed. Then it ends as `unconfirmed`.",
    ),
    own(
        "reserve_timeout",
        Duration,
        "15s",
        "How long places in a room are reserved for users who have not joined; at most `room.empty_timeout`. Then their ticket ends as `not_joined`.",
    ),
    own(
        "bind_places",
        Bool,
        "true",
        "Reserved places are for the users of the tickets: while all free places of a room are reserved, joins of other users and of clients without a user get error 409. Turn it off if users have other ids in tickets than in their sessions. Then anybody may take a reserved place.",
    ),
    own(
        "queue_limit",
        Int(1, 1 << 20),
        "10000",
        "Maximum number of tickets that wait or are unconfirmed. Beyond it a request gets error 111. As many ended tickets are kept for `match_status`.",
    ),
    own(
        "criteria_params",
        Texts,
        "",
        "Names of the criteria that a room of matchmaking gets as parameters of the same name, as text. The simulation checks them.",
    ),
    own(
        "region_param",
        Text,
        "",
        "Name of the parameter with which a room of matchmaking gets the region of its oldest ticket. Empty: none.",
    ),
    own(
        "fill_opened_rooms",
        Bool,
        "false",
        "Place tickets also in rooms that clients or `room_open` of the API have opened, or that were restored, if they are neither locked nor unlisted. Their parameters named in `criteria_params` and `region_param` are their criteria and their region.",
    ),
    own("party_limit", Int(1, 1_000), "8", "Maximum number of users of a ticket. At most `max_players`."),
    own("opening_limit", Int(1, 10_000), "64", "Maximum number of rooms that matchmaking opens at a time."),
    own(
        "allow_for_client",
        Bool,
        "false",
        "Clients of a user may request tickets with the RPC method `dunlin.match`. Without it, only the server API may.",
    ),
    own(
        "user_rate_limit",
        Int(0, 1_000_000),
        "2",
        "Maximum number of tickets that the clients of a user request per second. Beyond it a request gets error 111. 0: no limit.",
    ),
    own(
        "address_users_limit",
        Int(0, 1_000_000),
        "1024",
        "Maximum number of users of a client address who wait with a ticket that they requested, or requested one in the last second. Beyond it `dunlin.match` of another user gets error 111. Addresses of an IPv6 /64 network count together. Tickets of the server API do not count. 0: no limit.",
    ),
    own(
        "trust_client_skill",
        Bool,
        "false",
        "Take `skill` from clients' requests. Otherwise a request with `skill` gets error 107, because clients can claim any skill.",
    ),
    own(
        "proxy_enabled",
        Bool,
        "false",
        "Send each `dunlin.match` of a client to a backend first, which decides about it.",
    ),
    own("proxy_name", Text, "default", "The entry of `proxies` for `proxy_enabled`. `default`: `rpc.proxy`."),
    own(
        "notify_namespace",
        Text,
        "",
        "Namespace of the users' channels in which the node publishes what happens to tickets: for user `42` and namespace `user` in `user:#42`. Empty: nothing is published.",
    ),
];

const PATHS: &[Key] = &[
    own("enabled", Bool, "false", "Store the paths of all players. Needs `storage.path`."),
    own(
        "interval_ticks",
        Int(1, 1 << 16),
        "1",
        "Ticks between two points of a moving player. A player that stands has no points.",
    ),
    own(
        "block_interval",
        Duration,
        "5s",
        "Maximum time that a block of a path spans. A crash loses at most this much of a path. Longer blocks take less space.",
    ),
    own("retention", Duration, "24h", "How long paths are stored."),
];
