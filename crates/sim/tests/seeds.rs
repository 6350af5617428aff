//! Runs fixed seeds, and checks that a run is reproducible. `make sim` runs fresh seeds.

mod pass;

use std::process::Command;

use dunlin_sim::{run, run_kept, run_logged};

use pass::{assert_all_pass, assert_reached};

const FIXED_SEEDS: u64 = 1_000;

/// Fewer than [`FIXED_SEEDS`], because a run of this world takes longer.
const FIXED_KEPT_SEEDS: u64 = 300;

/// Seeds that failed in earlier versions.
const FOUND_SEEDS: [u64; 14] = [
    4_102_305,
    4_110_049,
    4_112_124,
    4_117_036,
    4_124_312,
    1_795_377_657_914,
    1_795_378_189_469,
    1_795_378_191_663,
    1_795_378_656_942,
    1_795_698_203_678,
    1_795_700_010_783,
    1_795_700_021_232,
    1_795_710_011_416,
    1_795_710_020_664,
];

/// Cases that the fixed seeds must reach at least [`REACHED_MIN`] times.
const REACHED: [&str; 126] = [
    "connected on WebSocketJson",
    "connected on WebSocketProtobuf",
    "connected on WebSocketDeflateJson",
    "connected on WebSocketDeflateProtobuf",
    "connected on HttpStreamJson",
    "connected on HttpStreamProtobuf",
    "connected on Sse",
    "connected on UniWebSocket",
    "connected on UniWebSocketDeflate",
    "connected on UniHttpStream",
    "connected on UniSse",
    "reconfigured",
    "close 3001",
    "close 3005",
    "close 3008",
    "close 3011",
    "close 3012",
    "close 3500",
    "close 3501",
    "close 3502",
    "close 3503",
    "close 3506",
    "close 3508",
    "close other",
    "command history",
    "command presence",
    "command presence_stats",
    "command publish",
    "command refresh",
    "command sub_refresh",
    "command subscribe",
    "command unsubscribe",
    "delivery",
    "encoded with skipped",
    "error 102",
    "error 103",
    "error 105",
    "error 106",
    "error 107",
    "error 108",
    "error 109",
    "error 112",
    "join or leave delivered",
    "late message",
    "newest of each key",
    "not recovered",
    "publication",
    "recovered",
    "session opened",
    "skipped",
    "slow by bytes",
    "slow by frames",
    "command pong",
    "command rpc",
    "command send",
    "error 100",
    "error 111",
    "event received",
    "events not missed",
    "events recovered",
    "history of a room",
    "input",
    "input without a seat",
    "input rejected as invalid",
    "input rejected by the rate limit",
    "input rejected by the game",
    "join",
    "join given up: its client does not read",
    "join rejected by the game",
    "join to an ended room",
    "leave",
    "other nodes asked",
    "room",
    "room closed",
    "room failed",
    "room goes on elsewhere",
    "room goes on here",
    "room goes on there",
    "room left to another node",
    "room moves",
    "tick of whole states between nodes",
    "tick that nobody has seen",
    "tick with changes between nodes",
    "room with near kinds",
    "room with weights",
    "snapshot in JSON",
    "snapshot in JSON with fields",
    "snapshot in Protobuf",
    "snapshot in Protobuf with fields",
    "snapshot: caught up",
    "snapshot: first",
    "snapshot: from an expired base",
    "snapshot: next tick",
    "snapshot: a zone waits",
    "snapshot: skipped by the limit",
    "snapshot: the room has moved",
    "seat: kept",
    "seat: resumed",
    "seat: resumed over a half-open connection",
    "seat: displaced",
    "seat: grace period ended",
    "seat: kicked",
    "seat: kicked while away",
    "seat: unknown token",
    "filtered",
    "recovery reply shared",
    "close 3006",
    "token verification unavailable",
    "refresh push",
    "backend response after the session ended",
    "proxy rpc",
    "proxy connect",
    "proxy publish",
    "proxy refresh",
    "proxy sub_refresh",
    "proxy subscribe",
    "expired by the backend",
    "extended by the backend",
    "suppressed by key",
    "suppressed by version",
    "skipped by a filter",
    "channel number used",
    "passed a filter",
    "delta applied",
    "delta encoded",
    "recovered as a delta",
];
const REACHED_MIN: u64 = 10;

#[test]
fn seeds_that_failed_before_pass() {
    assert_all_pass("whole", FOUND_SEEDS, |seed| run(seed, false));
}

#[test]
fn fixed_seeds_pass_and_reach_all_cases() {
    let reached = assert_all_pass("whole", 0..FIXED_SEEDS, |seed| run(seed, false));
    assert_reached(&reached, &REACHED, REACHED_MIN);
}

/// Cases that the fixed seeds of worlds with a log must reach.
const REACHED_WITH_LOG: [&str; 16] = [
    "log: crash",
    "log: history",
    "log: page cut above",
    "log: page cut below",
    "log: newest page",
    "log: long pause",
    "log: not recovered",
    "log: older page",
    "log: proposal",
    "log: publication rejected",
    "log: published by another node",
    "log: published once",
    "log: published once across a crash",
    "log: recovered",
    "log: request rejected",
    "log: unfollowed",
];

#[test]
fn fixed_seeds_with_a_log_pass_and_reach_all_cases() {
    let reached = assert_all_pass("logged", 0..FIXED_SEEDS, |seed| run_logged(seed, false));
    assert_reached(&reached, &REACHED_WITH_LOG, REACHED_MIN);
}

/// Cases that the fixed seeds of worlds with a stored room must reach.
const REACHED_WITH_KEPT_ROOM: [&str; 6] = [
    "kept: resumed",
    "kept: crash with a log",
    "kept: crash with checkpoints",
    "kept: at rest",
    "kept: restored",
    "kept: stop",
];

#[test]
fn fixed_seeds_with_a_stored_room_pass_and_reach_all_cases() {
    let reached = assert_all_pass("kept", 0..FIXED_KEPT_SEEDS, |seed| run_kept(seed, false, None));
    assert_reached(&reached, &REACHED_WITH_KEPT_ROOM, REACHED_MIN);
}

#[test]
fn a_seed_determines_the_run() {
    let mut hashes = std::collections::HashSet::new();
    for seed in 0..20 {
        let (first, second) = (run(seed, false), run(seed, false));
        assert_eq!(first, second);
        assert_eq!(run_logged(seed, false), run_logged(seed, false));
        assert_eq!(run_kept(seed, false, None), run_kept(seed, false, None));
        assert!(hashes.insert(first.trace_hash), "two seeds have the same trace hash");
    }
}

#[test]
fn another_process_gets_the_same_trace_hash() {
    let once = || {
        let output = Command::new(env!("CARGO_BIN_EXE_dunlin-sim")).args(["--seed", "7"]).output();
        String::from_utf8(output.expect("the program starts").stdout).expect("the output is UTF-8")
    };
    let first = once();
    assert!(first.contains(&format!("trace hash {:016x}", run(7, false).trace_hash)), "{first}");
    assert_eq!(first, once());
}
