//! Rooms of the real server: checks that every player sees exactly the state of the world.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn bench(arguments: &[&str]) -> Value {
    let bench = Path::new(env!("CARGO_BIN_EXE_dunlin-bench"));
    // A run starts the server beside the load generator.
    dunlin_proof::programs::beside(bench, "dunlin");
    let output = Command::new(bench)
        .arg("room")
        .args(arguments)
        .args(["--no-pin", "--quiet", "--json"])
        .output()
        .expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("stdout is the JSON report")
}

/// Asserts that snapshots were compared, and that none differs from the replayed world.
fn assert_verified(report: &Value) {
    let verified = &report["verified"];
    assert_eq!(verified["mismatches"], 0, "{report:#}");
    assert_eq!(verified["unknown_ticks"], 0, "{report:#}");
    assert_eq!(verified["recording_faults"], serde_json::json!([]), "{report:#}");
    assert!(verified["snapshots"].as_u64() > Some(0), "{report:#}");
}

#[test]
fn all_players_see_all_objects_in_both_encodings() {
    let load = ["--players", "20", "--json-share", "0.3", "--seconds", "0.5", "--warm-up-seconds", "0", "--turns", "1"];
    let report = bench(&[&["everyone", "--no-peer", "--verify-seconds", "2"], &load[..]].concat());
    assert_verified(&report);
    assert!(report["sides"][0]["acknowledged"].as_u64() > Some(0), "{report:#}");
}

#[test]
fn replays_of_a_hunt_are_equal_and_a_changed_input_is_found() {
    let report = bench(&["record", "--players", "10", "--inputs-per-second", "5", "--minutes", "0.05"]);
    assert_verified(&report);
    assert!(report["tampered"]["changed_tick"].is_u64(), "{report:#}");
    assert_eq!(report["tampered"]["found_tick"], report["tampered"]["changed_tick"], "{report:#}");
}
