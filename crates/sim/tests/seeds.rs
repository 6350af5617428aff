//! Runs under seeds: always the same ones, and the same one twice. `make simulated` runs fresh ones.

use std::{collections::BTreeMap, process::Command};

use dunlin_sim::{RunOutcome, run, run_kept, run_logged};

const FIXED_SEEDS: u64 = 1_000;

/// Fewer, because a world with a kept room runs for longer.
const FIXED_KEPT_SEEDS: u64 = 300;

/// Seeds of fresh runs that failed once.
const FOUND_SEEDS: [u64; 9] = [
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

fn assert_all_pass(seeds: impl Iterator<Item = u64>) -> Vec<RunOutcome> {
    let outcomes: Vec<RunOutcome> = seeds.map(|seed| run(seed, false, &|_| {})).collect();
    let failures: Vec<(u64, &String)> =
        outcomes.iter().filter_map(|outcome| Some((outcome.seed, outcome.failure.as_ref()?))).collect();
    assert!(failures.is_empty(), "replay with `cargo run -p dunlin-sim -- --seed SEED --trace`: {failures:#?}");
    outcomes
}

/// What the fixed seeds must come to, often enough for the checks about it to mean something.
const REACHED: [&str; 108] = [
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
    "event heard",
    "events not missed",
    "events recovered",
    "history of a room",
    "input",
    "input of nobody",
    "input refused as bad",
    "input refused as too fast",
    "input without sense",
    "join",
    "join refused by the game",
    "join to a room that is gone",
    "leave",
    "room",
    "room closed",
    "room failed",
    "snapshot in JSON",
    "snapshot in Protobuf",
    "snapshot: caught up",
    "snapshot: first",
    "snapshot: from far behind",
    "snapshot: next tick",
    "seat: back",
    "seat: back over a half-open connection",
    "seat: displaced",
    "seat: grace over",
    "seat: kicked",
    "seat: kicked while away",
    "seat: unknown token",
    "filtered",
    "recovered as another",
    "close 3006",
    "token put off",
    "told of another expiry",
    "answered when nobody waited",
    "asked about a call",
    "asked to connect",
    "asked to publish",
    "asked to refresh",
    "asked to refresh a subscription",
    "asked to subscribe",
    "ended by the backend",
    "extended by the backend",
    "published once",
    "left out as old",
    "left out by a filter",
    "number for a channel",
    "passed a filter",
    "patch applied",
    "patch made",
    "recovered as a patch",
];
const REACHED_MIN: u64 = 10;

#[test]
fn seeds_that_failed_once_pass() {
    assert_all_pass(FOUND_SEEDS.into_iter());
}

#[test]
fn the_fixed_seeds_pass_and_reach_what_they_are_for() {
    let mut reached = BTreeMap::new();
    let outcomes = assert_all_pass(0..FIXED_SEEDS);
    for (what, times) in outcomes.into_iter().flat_map(|outcome| outcome.reached) {
        *reached.entry(what).or_insert(0) += times;
    }
    for what in REACHED {
        let times = reached.get(what).copied().unwrap_or(0);
        assert!(times >= REACHED_MIN, "{what}: {times} times");
    }
}

/// What the fixed seeds of worlds with a log must come to.
const REACHED_WITH_LOG: [&str; 15] = [
    "log: crash",
    "log: history",
    "log: keys restored",
    "log: newest page",
    "log: night",
    "log: not recovered",
    "log: older page",
    "log: proposal",
    "log: publication refused",
    "log: published elsewhere",
    "log: published once",
    "log: published once across a crash",
    "log: recovered",
    "log: request refused",
    "log: unfollowed",
];

#[test]
fn the_fixed_seeds_with_a_log_pass_and_reach_what_they_are_for() {
    let mut reached = BTreeMap::new();
    let outcomes: Vec<RunOutcome> = (0..FIXED_SEEDS).map(|seed| run_logged(seed, false, &|_| {})).collect();
    let failures: Vec<(u64, &String)> =
        outcomes.iter().filter_map(|outcome| Some((outcome.seed, outcome.failure.as_ref()?))).collect();
    assert!(
        failures.is_empty(),
        "replay with `cargo run -p dunlin-sim -- --seed SEED --world logged --trace`: {failures:#?}"
    );
    for (what, times) in outcomes.iter().flat_map(|outcome| &outcome.reached) {
        *reached.entry(what.clone()).or_insert(0) += times;
    }
    for what in REACHED_WITH_LOG {
        let times = reached.get(what).copied().unwrap_or(0);
        assert!(times >= REACHED_MIN, "{what}: {times} times");
    }
}

/// What the fixed seeds of worlds with a kept room must come to.
const REACHED_WITH_KEPT_ROOM: [&str; 6] = [
    "kept: came back",
    "kept: crash with a log",
    "kept: crash with checkpoints",
    "kept: rest",
    "kept: restored",
    "kept: stop",
];

#[test]
fn the_fixed_seeds_with_a_kept_room_pass_and_reach_what_they_are_for() {
    let mut reached = BTreeMap::new();
    let outcomes: Vec<RunOutcome> = (0..FIXED_KEPT_SEEDS).map(|seed| run_kept(seed, false, &|_| {}, None)).collect();
    let failures: Vec<(u64, &String)> =
        outcomes.iter().filter_map(|outcome| Some((outcome.seed, outcome.failure.as_ref()?))).collect();
    assert!(
        failures.is_empty(),
        "replay with `cargo run -p dunlin-sim -- --seed SEED --world kept --trace`: {failures:#?}"
    );
    for (what, times) in outcomes.iter().flat_map(|outcome| &outcome.reached) {
        *reached.entry(what.clone()).or_insert(0) += times;
    }
    for what in REACHED_WITH_KEPT_ROOM {
        let times = reached.get(what).copied().unwrap_or(0);
        assert!(times >= REACHED_MIN, "{what}: {times} times");
    }
}

#[test]
fn a_run_follows_from_its_seed() {
    let mut hashes = std::collections::HashSet::new();
    for seed in 0..20 {
        let (first, second) = (run(seed, false, &|_| {}), run(seed, false, &|_| {}));
        assert_eq!(first, second);
        assert_eq!(run_logged(seed, false, &|_| {}), run_logged(seed, false, &|_| {}));
        assert_eq!(run_kept(seed, false, &|_| {}, None), run_kept(seed, false, &|_| {}, None));
        assert!(hashes.insert(first.trace_hash), "two seeds led to the same run");
    }
}

#[test]
fn a_run_is_the_same_in_another_process() {
    let once = || {
        let output = Command::new(env!("CARGO_BIN_EXE_dunlin-sim")).args(["--seed", "7"]).output();
        String::from_utf8(output.expect("the program is there").stdout).expect("it prints text")
    };
    let first = once();
    assert!(first.contains(&format!("trace hash {:016x}", run(7, false, &|_| {}).trace_hash)), "{first}");
    assert_eq!(first, once());
}
