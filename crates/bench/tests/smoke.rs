//! Runs the real program with few sockets and rounds. Only counts decide whether a test passes.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dunlin-bench")).args(arguments).output().expect("the program starts")
}

#[test]
fn a_roofline_sends_each_frame_to_each_socket() {
    let arguments =
        ["roofline", "--sockets", "10", "--rounds", "7", "--rate", "1000", "--frame-bytes", "200", "--json"];
    let output = bench(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("stdout is the JSON report");
    for part in ["paced", "saturated"] {
        assert_eq!(report[part]["rounds"], 7, "{report:#}");
        assert_eq!(report[part]["sends"], 70, "{report:#}");
        assert_eq!(report[part]["would_block"], 0, "{report:#}");
        assert!(report[part]["cpu_ns"].as_u64() > Some(0), "{report:#}");
    }
    assert_eq!(report["frame_bytes"], 200);
}

#[test]
fn a_quiet_run_prints_nothing_but_its_report() {
    let quiet = ["roofline", "--sockets", "1", "--rounds", "1", "--quiet"];
    for (json, is_printed) in [(&[][..], false), (&["--json"], true)] {
        let output = bench(&[&quiet[..], json].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(output.stdout.starts_with(b"{"), is_printed, "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn the_result_is_a_table_unless_json_is_asked_for() {
    let run = |json: &[&str]| {
        let output = bench(&[&["roofline", "--sockets", "1", "--rounds", "1"], json].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr))
    };
    let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    let (table, _) = run(&[]);
    assert!(table.contains("saturated") && !table.contains('{'), "{table}");
    let (json, beside) = run(&["--json"]);
    assert!(is_json(&json) && beside.contains("saturated"), "{json}\n{beside}");
    let file = std::env::temp_dir().join(format!("dunlin-bench-{}.json", std::process::id()));
    let (table, _) = run(&["--json", file.to_str().expect("a name")]);
    let written = std::fs::read_to_string(&file).expect("it is written");
    std::fs::remove_file(&file).expect("it is there");
    assert!(is_json(&written) && table.contains("saturated"), "{table}\n{written}");
}

#[test]
fn a_setting_out_of_range_is_reported_with_its_value_and_range() {
    let output = bench(&["roofline", "--sockets", "0"]);
    assert!(!output.status.success());
    assert!(output.stdout.is_empty());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "dunlin-bench: --sockets 0: give 1 to 19000\n");
}

#[test]
fn a_server_that_ends_at_once_is_reported_with_its_output() {
    let output = bench(&["fanout", "--spawn", "/bin/sh", "--spawn-args", "{config}", "--quiet"]);
    assert!(!output.status.success());
    let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output_text.contains("the server under test ended at once"), "{output_text}");
    assert!(output_text.contains("config.json"), "{output_text}");
}

#[test]
fn a_drain_is_a_scenario_of_its_own() {
    for command in [&["drain"][..], &["cluster", "drain"]] {
        let output = bench(&[command, &["--sessions", "0", "--quiet"]].concat());
        assert!(!output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "dunlin-bench: --sessions 0: give 3 to 30000\n");
    }
}

#[test]
fn a_cluster_reports_invalid_options() {
    let cases: [(&[&str], &str); 7] = [
        (&["latency", "--nats-servers", "2"], "--nats-servers 2: give 1 or 3"),
        (&["latency", "--saturate", "1025"], "--saturate 1025: give 1 to 1024"),
        (&["fanout", "--nats-server", "/none/nats-server"], "could not start /none/nats-server"),
        (&["recovery", "--publications", "101"], "--publications 101: give 1 to 100"),
        (&["failover", "--nats-servers", "1"], "--nats-servers 1: give 3 to 3"),
        (&["failover", "--partitions", "65"], "--partitions 65: give 1 to 64"),
        (&["recovery", "--positions", "21"], "--positions 21: give 1 to 20"),
    ];
    for (arguments, expected) in cases {
        let output = bench(&[&["cluster"], arguments, &["--quiet"]].concat());
        assert!(!output.status.success() && output.stdout.is_empty());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.starts_with(&format!("dunlin-bench: {expected}")), "{text}");
    }
}

#[test]
fn a_nats_server_that_ends_at_once_is_reported() {
    let output = bench(&["cluster", "latency", "--quiet", "--nats-server", "/bin/false"]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.starts_with("dunlin-bench: NATS ended (exit status: 1)"), "{text}");
}
