//! `docs/security.md` says of each line of its checklist whether it is done, and names the tests that say so.

use std::{collections::BTreeSet, path::Path};

use crate::{files, read};

const PAGE: &str = "docs/security.md";

#[test]
fn every_line_is_done_with_a_test_or_open_with_a_reason() {
    let text = read(PAGE);
    let mut lines = 0;
    for [what, state, how] in rows(&text) {
        lines += 1;
        match state.as_str() {
            "done" => assert!(!named(&how).is_empty(), "{PAGE}: which test says so? {what}"),
            "open" | "in part" => assert!(how.len() > 20, "{PAGE}: why is it open? {what}"),
            other => panic!("{PAGE}: {other} is neither done, in part nor open: {what}"),
        }
    }
    assert!(lines >= 20, "{PAGE} has {lines} lines of a checklist");
}

#[test]
fn the_tests_that_are_named_are_there() {
    let (known, files) = (known_tests(), files());
    let text = read(PAGE);
    for [what, _, how] in rows(&text) {
        for name in named(&how) {
            let is_there = known.contains(&name) || files.contains(&name);
            assert!(is_there, "{PAGE}: there is no test `{name}`, named for: {what}");
        }
    }
}

/// The rows of the checklist's tables, without their heads.
fn rows(text: &str) -> Vec<[String; 3]> {
    let cells = |line: &str| {
        let mut cells = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
        let row = [cells.next()?, cells.next()?, cells.next()?];
        (cells.next().is_none() && row[1] != "state" && !row[1].starts_with("---")).then_some(row)
    };
    text.lines().filter(|line| line.starts_with("| ")).filter_map(cells).collect()
}

/// What stands behind "Tests:" in backticks.
fn named(how: &str) -> Vec<String> {
    let tests = how.split_once("Tests: ").map_or("", |(_, tests)| tests);
    tests.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Functions in Rust, rows of the table of bad inputs, and headings of the engine's scripts and of the configuration's messages.
fn known_tests() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for file in files() {
        let is_rust = Path::new(&file).extension().is_some_and(|extension| extension == "rs");
        if file.starts_with("crates/") && is_rust {
            let text = read(&file);
            let functions = text.split("fn ").skip(1).filter_map(|rest| rest.split_once("()"));
            known.extend(functions.map(|(name, _)| name.to_owned()));
        } else if file.starts_with("tests/hostile/cases/") {
            let rows: Vec<serde_json::Value> = serde_json::from_str(&read(&file)).expect("a list of rows");
            known.extend(rows.iter().filter_map(|row| row["name"].as_str().map(str::to_owned)));
        } else if file.starts_with("crates/engine/tests/scripts/") {
            known.extend(read(&file).lines().filter_map(|line| line.strip_prefix("== ")).map(str::to_owned));
        } else if file == "crates/server/tests/config/messages.txt" {
            known.extend(read(&file).lines().filter_map(|line| line.strip_prefix("=== ")).map(str::to_owned));
        }
    }
    known
}
