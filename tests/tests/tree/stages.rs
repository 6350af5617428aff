//! `make test` runs the stages of `tests/stages` with `scripts/stages`, and its output ends with the failed stages.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use crate::{read, root};

#[test]
fn every_stage_is_a_target_of_the_makefile() {
    let (plan, makefile) = (read("tests/stages"), read("Makefile"));
    let stages = plan.lines().filter(|line| !line.starts_with('#'));
    let targets: Vec<&str> = stages.filter_map(|line| line.split_once("make ")?.1.split(' ').next()).collect();
    for target in &targets {
        assert!(makefile.contains(&format!("\n{target}:")), "tests/stages names `make {target}`, which does not exist");
    }
    for needed in [
        "lint", "unit", "deny", "vectors", "oracle", "api", "hostile", "crash", "web", "sdk", "browser", "guides",
        "fuzz",
    ] {
        assert!(targets.contains(&needed), "tests/stages leaves out `make {needed}`");
    }
}

#[test]
fn the_table_of_times_has_every_stage() {
    let (plan, page) = (read("tests/stages"), read("CONTRIBUTING.md"));
    let mut stages: Vec<&str> =
        plan.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(' ').next()).collect();
    let table = page.split("\n| stage |").nth(1).expect("there is a table");
    let rows = table.lines().take_while(|line| !line.is_empty());
    let mut rows: Vec<&str> = rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    stages.sort_unstable();
    rows.sort_unstable();
    assert_eq!(rows, stages, "`make times` prints the table");
}

#[test]
fn the_times_of_stages_are_appended() {
    let folder = std::env::temp_dir().join(format!("dunlin-stage-times-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let times = folder.join("new/times");
    let path = times.display().to_string();
    let plan = "left a - false\nalone a left true\n";
    let (passed, printed) = run_with(&["--without", "left", "--times", &path], plan);
    assert!(passed && printed.ends_with("\nstages: 1 passed, 0 failed\n"), "{printed}");
    assert!(!run_with(&["--times", &path], plan).0, "`left` fails");
    assert!(!run_with(&["--without", "unknown"], plan).0, "a stage that does not exist is an error");
    for _ in 0..2 {
        assert!(run_with(&["--times", &path], "alone a - true\n").0);
    }

    let appended = std::fs::read_to_string(&times).expect("lines");
    let results: Vec<(&str, &str)> = appended
        .lines()
        .map(|line| line.split('\t').collect::<Vec<&str>>())
        .map(|fields| (fields[2], fields[fields.len() - 1]))
        .collect();
    let failed = [("left", "FAILED"), ("alone", "left out"), ("all", "FAILED")];
    let whole = [("alone", "passed"), ("all", "passed")];
    assert_eq!(results, [&[("alone", "passed"), ("all", "partial")][..], &failed, &whole, &whole].concat());

    let (_, table) = run_with(&["--table", &path], "");
    let rows: Vec<&str> = table.lines().filter_map(|row| row.strip_prefix("| ")?.split(' ').next()).collect();
    assert_eq!(rows, ["stage", "`alone`", "all"], "{table}");

    // A folder takes no lines.
    let (passed, printed) = run_with(&["--times", &folder.display().to_string()], "alone a - true\n");
    assert!(!passed && printed.ends_with("\nstages: 1 passed, 0 failed\n"), "the report comes first: {printed}");
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn the_table_has_the_last_whole_run_that_passed_and_the_dearest_of_ten() {
    let file = std::env::temp_dir().join(format!("dunlin-stage-table-{}", std::process::id()));
    let run = |number: usize, cpu_s: usize, result: &str| {
        format!(
            "{number}\tabc\tone\t0\t{number}\t{cpu_s}\tpassed\n{number}\tabc\tall\t0\t{number}\t{cpu_s}\t{result}\n"
        )
    };
    let table = |runs: &[String]| {
        std::fs::write(&file, runs.concat()).expect("a file");
        run_with(&["--table", &file.display().to_string()], "")
    };
    let two = [run(1, 300, "passed"), run(2, 20, "passed"), run(3, 4000, "partial"), run(4, 5000, "FAILED")];
    let (passed, printed) = table(&two);
    assert!(
        passed && printed.ends_with("|---|---|---|\n| `one` | 1 (300) | 2 (20) |\n| all | 1 (300) | 2 (20) |\n"),
        "{printed}"
    );
    let eleven: Vec<String> = (1..=11).map(|number| run(number, 1000 / number, "passed")).collect();
    let (_, printed) = table(&eleven);
    assert!(printed.ends_with("\n| all | 2 (500) | 11 (90) |\n"), "{printed}");
    assert!(!table(&two[2..]).0, "no whole run has passed");
    std::fs::remove_file(&file).expect("it is ours");
}

/// Runs a plan. Returns whether the stages passed, and the output.
fn run(plan: &str) -> (bool, String) {
    run_with(&[], plan)
}

fn run_with(arguments: &[&str], plan: &str) -> (bool, String) {
    let mut stages = Command::new(root().join("scripts/stages"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python is there");
    stages.stdin.take().expect("a pipe").write_all(plan.as_bytes()).expect("it reads the plan");
    let output = stages.wait_with_output().expect("it ends");
    (output.status.success(), String::from_utf8(output.stdout).expect("it prints text"))
}

#[test]
fn a_failed_stage_ends_no_other_and_is_named_last() {
    let plan =
        "first a - echo 'test one ... FAILED'; seq 30; exit 3\nsecond a - echo second\nthird b first echo third\n";
    let (passed, printed) = run(plan);
    assert!(!passed, "{printed}");
    assert!(printed.contains("== second: passed") && printed.contains("== third: left out"), "{printed}");
    let lines: Vec<&str> = printed.lines().collect();
    let end = lines[lines.len() - 20..].join("\n");
    assert!(end.contains("== first failed:\ntest one ... FAILED\n21\n"), "{end}");
    assert!(end.ends_with("failed: first\nstages: 1 passed, 2 failed"), "{end}");
}

#[test]
fn stages_wait_for_their_dependencies() {
    let folder = std::env::temp_dir().join(format!("dunlin-stages-{}", std::process::id()));
    let path = folder.display();
    let (passed, printed) = run(&format!("made a - mkdir {path}\n# A comment.\nseen b made rmdir {path}\n"));
    assert!(passed && printed.ends_with("\nstages: 2 passed, 0 failed\n"), "{printed}");
    let table = printed.split("\nstage ").nth(1).expect("there is a table");
    assert!(table.lines().nth(1).is_some_and(|row| row.starts_with("made ") && row.ends_with("passed")), "{table}");
}

#[test]
fn a_stage_of_any_lane_runs_where_nothing_is_left() {
    let folder = std::env::temp_dir().join(format!("dunlin-stages-any-{}", std::process::id()));
    let path = folder.display();
    // The first lane waits for what only the free stages write, so they have to run in the second, one after the other.
    let plan = format!(
        "long a - until [ -e {path}/second ]; do sleep 0.01; done\nshort b - mkdir {path}\n\
         one any short touch {path}/first\ntwo any one mv {path}/first {path}/second\nend a long rm -r {path}\n"
    );
    let (passed, printed) = run_with(&["--limit-s", "20"], &plan);
    assert!(passed && printed.ends_with("\nstages: 5 passed, 0 failed\n"), "{printed}");
    assert!(run("alone any - true\n").0, "there need not be another lane");
}

#[test]
fn a_stage_may_wait_for_the_end_of_another_one_alone() {
    let (passed, printed) = run("made a - true\nfails a - false\nlast b made,fails? true\nneeds b fails true\n");
    assert!(!passed && printed.contains("== last: passed") && printed.contains("== needs: left out"), "{printed}");
    assert!(run_with(&["--without", "fails"], "fails a - false\nlast b fails? true\n").0, "nobody waits for it then");
}

#[test]
fn the_plan_of_make_test_can_be_run() {
    let plan = read("tests/stages");
    let stages = plan.lines().filter(|line| !line.starts_with('#'));
    let lines: Vec<String> = stages
        .map(|line| [line.split_whitespace().take(3).collect::<Vec<_>>().as_slice(), &["true\n"]].concat().join(" "))
        .collect();
    let (passed, printed) = run(&lines.concat());
    assert!(passed, "{printed}");
}

#[test]
fn a_stage_that_hangs_is_ended_and_named() {
    let (passed, printed) = run_with(&["--limit-s", "1"], "hangs a - sleep 1000\nlater a - echo later\n");
    assert!(!passed, "{printed}");
    assert!(printed.contains("the limit of 1 s is over; still running: hangs"), "{printed}");
    assert!(printed.contains("== later: left out"), "{printed}");
    assert!(printed.ends_with("failed: hangs\nstages: 0 passed, 2 failed\n"), "{printed}");
}
