//! `docs/security.md` states for each line of its checklist whether it is done, and names the tests that prove it.

use std::collections::BTreeSet;

use crate::{files, read, targets};

const PAGE: &str = "docs/security.md";

#[test]
fn every_line_is_done_with_a_test_or_open_with_a_reason() {
    let text = read(PAGE);
    let rows = rows(&text);
    assert!(!rows.is_empty(), "{PAGE} has a checklist");
    for [what, state, how] in rows {
        match state.as_str() {
            "done" => assert!(!named(&how).is_empty(), "{PAGE}: name the test that proves it: {what}"),
            "open" | "in part" => assert!(how.len() > 20, "{PAGE}: why is it open? {what}"),
            other => panic!("{PAGE}: {other} is neither done, in part nor open: {what}"),
        }
    }
}

#[test]
fn the_tests_that_are_named_run() {
    let known = known_tests();
    let text = read(PAGE);
    for [what, _, how] in rows(&text) {
        for name in named(&how) {
            let runs = known.contains(&name) || is_script_that_runs(&name);
            assert!(runs, "{PAGE}: no test `{name}` runs, named for: {what}");
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

/// The names in backticks after "Tests:".
fn named(how: &str) -> Vec<String> {
    let tests = how.split_once("Tests: ").map_or("", |(_, tests)| tests);
    tests.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Functions with `#[test]` in files that `cargo test` compiles, rows of the table of bad inputs, and headings of the
/// engine's scripts and of the configuration's messages.
fn known_tests() -> BTreeSet<String> {
    let mut known: BTreeSet<String> =
        targets::test_files().iter().flat_map(|file| targets::test_functions(&read(file))).collect();
    for file in files() {
        if file.starts_with("tests/hostile/cases/") {
            let rows: Vec<serde_json::Value> = serde_json::from_str(&read(&file)).expect("a list of rows");
            known.extend(rows.iter().filter_map(|row| row["name"].as_str().map(str::to_owned)));
        } else if file.starts_with("crates/engine/tests/scripts/") {
            known.extend(read(&file).lines().filter_map(|line| line.strip_prefix("== ")).map(str::to_owned));
        } else if file == "crates/config/tests/messages.txt" {
            known.extend(read(&file).lines().filter_map(|line| line.strip_prefix("=== ")).map(str::to_owned));
        }
    }
    known
}

/// Whether the Makefile runs this file, or a script that the Makefile runs does.
fn is_script_that_runs(name: &str) -> bool {
    let Some((folder, file)) = name.rsplit_once('/') else { return false };
    // The end of a line also ends a word.
    let makefile = read("Makefile").replace('\n', " \n");
    files().iter().any(|known| known == name)
        && (makefile.contains(&format!("\t{name} "))
            || files().iter().any(|script| {
                script.rsplit_once('/').is_some_and(|(beside, _)| beside == folder)
                    && makefile.contains(&format!("\t{script} "))
                    && read(script).lines().any(|line| line.trim_start().starts_with(&format!("./{file} ")))
            }))
}
