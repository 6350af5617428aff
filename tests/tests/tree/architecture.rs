//! Checks the statements of ARCHITECTURE.md about bounds and files.

use std::collections::{BTreeMap, BTreeSet};

use crate::{files, is_rust, read};

/// The texts in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The cells of all rows of the tables of bounds, without the table heads.
fn bounds(text: &str) -> Vec<Vec<&str>> {
    let section = text.split("\n## Bounds\n").nth(1).expect("there is a section about bounds");
    let section = section.split("\n## ").next().unwrap_or(section);
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.map(|row| row.split(" | ").collect()).filter(|row: &Vec<&str>| row.get(2) != Some(&"key")).collect()
}

#[test]
fn each_limit_is_listed_once() {
    let text = read("ARCHITECTURE.md");
    let (mut names, mut keys): (BTreeMap<&str, usize>, BTreeMap<&str, usize>) = Default::default();
    for row in bounds(&text) {
        assert_eq!(row.len(), 4, "a bound has a name, a default, a key and a policy: {row:?}");
        *names.entry(row[0]).or_default() += 1;
        for key in quoted(row[2]) {
            *keys.entry(key).or_default() += 1;
        }
    }
    assert!(!names.is_empty(), "the tables were found");
    let twice: Vec<_> = names.iter().chain(&keys).filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "ARCHITECTURE.md states these bounds more than once: {twice:?}");
}

#[test]
fn the_keys_of_bounds_are_keys_of_the_configuration() {
    let (text, reference) = (read("ARCHITECTURE.md"), read("docs/configuration.md"));
    let paths: BTreeSet<&str> =
        reference.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    for row in bounds(&text) {
        for key in quoted(row[2]) {
            let is_known = paths.iter().any(|path| *path == key || path.ends_with(&format!("].{key}")));
            assert!(is_known, "ARCHITECTURE.md: {key} is no key in docs/configuration.md");
        }
    }
}

#[test]
fn the_files_it_names_exist() {
    let (text, known) = (read("ARCHITECTURE.md"), files());
    for name in quoted(&text).filter(|name| is_rust(name) && !name.contains(['*', ' '])) {
        let is_there = known.iter().any(|file| file == name || file.ends_with(&format!("/{name}")));
        assert!(is_there, "ARCHITECTURE.md names {name}, which does not exist");
    }
}
