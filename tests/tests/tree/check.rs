//! `scripts/check` finds what changed files ask for, also those outside all crates.

use std::{collections::BTreeSet, process::Command};

use crate::{files, read, root};

/// The crates and the targets of the Makefile that check these files.
fn asked_for(files: &[&str]) -> [BTreeSet<String>; 2] {
    let output =
        Command::new(root().join("scripts/check")).arg("--list").args(files).output().expect("Python is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("it prints text");
    ["crates:", "commands:"].map(|kind| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind)).expect("a line for each");
        line.split_whitespace().map(str::to_owned).collect()
    })
}

#[test]
fn a_change_outside_the_crates_asks_for_those_that_read_the_file() {
    for (file, crates, commands) in [
        ("schema/openapi.json", "dunlin dunlin-tests", "vectors clients sdk docs"),
        ("tests/commands/run", "dunlin-tests", "docs guides"),
        ("docs/metrics.md", "dunlin dunlin-config dunlin-tests", "docs"),
        ("site/index.md", "dunlin-tests", "docs vectors"),
        ("docs/own-game.md", "dunlin dunlin-config dunlin-tests", "docs guides"),
        ("docs/from-pusher.md", "dunlin dunlin-config dunlin-tests", "docs guides"),
        ("docs/migrating-from-centrifugo.md", "dunlin dunlin-config dunlin-tests", "docs api"),
        ("demo/config.json", "dunlin dunlin-demo dunlin-tests", "browser"),
        ("fuzz/bodies/token.rs", "dunlin-token dunlin-tests", "fuzz"),
        ("platform/render/render.go", "dunlin-tests", "platform watching"),
        ("platform/operator/webhook.go", "dunlin-tests", "platform watching operator"),
        ("tests/api/run", "dunlin-tests", "api"),
        ("Dockerfile", "dunlin-tests", "packaged"),
        ("bench/peers/feed-go/client.go", "dunlin-tests", "workflows vectors"),
        (".yamllint", "dunlin-tests", "workflows"),
        ("crates/storage/src/lib.rs", "dunlin-storage dunlin-tests", ""),
    ] {
        let wanted = [crates, commands].map(|names| names.split_whitespace().map(str::to_owned).collect());
        assert_eq!(asked_for(&[file]), wanted, "{file}");
    }
    let [seeds, _] = asked_for(&["fuzz/corpus/token/one"]);
    assert!(
        seeds.contains("dunlin-token") && seeds.contains("dunlin-engine") && !seeds.contains("dunlin-sim"),
        "{seeds:?}"
    );
    for file in ["Cargo.lock", "Cargo.toml"] {
        let [crates, commands] = asked_for(&[file]);
        assert!(crates.contains("dunlin-sim"), "{file}");
        assert_eq!(commands, BTreeSet::from(["deny".to_owned()]), "{file}");
    }
}

#[test]
fn every_command_is_a_target_of_the_makefile() {
    let (all, makefile) = (files(), read("Makefile"));
    let [_, commands] = asked_for(&all.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!commands.is_empty());
    for command in commands {
        assert!(
            makefile.contains(&format!("\n{command}:")),
            "scripts/check names `make {command}`, which does not exist"
        );
    }
}
