//! ARCHITECTURE.md lists every folder and crate, and no others.

use std::collections::BTreeSet;

use crate::{files, read, root};

/// Unspecific names of modules and crates.
const EMPTY_WORDS: [&str; 5] = ["common", "utils", "helpers", "manager", "misc"];

/// The folders that must be on the map: all top-level folders, and the second level of folders that only group others.
fn folders() -> BTreeSet<String> {
    let grouping = ["crates", "docs", "schema", "tests", "web", "bench"];
    files()
        .iter()
        .filter_map(|name| {
            let parts: Vec<&str> = name.split('/').collect();
            match parts.as_slice() {
                [_file] => None,
                [top, _file] if grouping.contains(top) => None,
                [top, next, _, ..] if grouping.contains(top) => Some(format!("{top}/{next}")),
                [top, ..] => Some((*top).to_owned()),
                [] => None,
            }
        })
        .collect()
}

/// The folders in the map's tables: the first cell of each row, in backquotes, ending with a slash.
pub fn mapped() -> BTreeSet<String> {
    let map = read("ARCHITECTURE.md");
    let cells = map.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("/` |"));
    cells.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn the_map_names_exactly_the_existing_folders() {
    let (folders, mapped) = (folders(), mapped());
    let unmapped: Vec<_> = folders.difference(&mapped).collect();
    let gone: Vec<_> = mapped
        .difference(&folders)
        .filter(|name| !folders.iter().any(|f| f.starts_with(&format!("{name}/"))))
        .collect();
    assert!(unmapped.is_empty(), "not on the map in ARCHITECTURE.md: {unmapped:?}");
    assert!(gone.is_empty(), "on the map in ARCHITECTURE.md, but not in the tree: {gone:?}");
}

#[test]
fn the_readme_promises_only_targets_that_exist() {
    let (readme, makefile) = (read("README.md"), read("Makefile"));
    for target in readme.lines().filter_map(|line| line.trim().strip_prefix("make ")) {
        let target = target.split_whitespace().next().unwrap_or_default();
        assert!(makefile.contains(&format!("\n{target}:")), "README.md names `make {target}`, which does not exist");
    }
}

#[test]
fn ci_runs_the_readmes_test_command() {
    assert!(read(".ci/run").contains("make test"));
}

#[test]
fn names_are_specific() {
    for name in files() {
        for part in name.split('/') {
            let stem = part.split('.').next().unwrap_or(part);
            assert!(!EMPTY_WORDS.contains(&stem), "{name}: call it by what it does, not `{stem}`");
        }
    }
}

#[test]
fn no_file_holds_the_markers_of_a_conflict() {
    for name in files() {
        let Ok(text) = std::fs::read_to_string(root().join(&name)) else { continue };
        let is_marker = |line: &str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
        assert!(!text.lines().any(is_marker), "{name} holds the markers of a conflict");
    }
}
