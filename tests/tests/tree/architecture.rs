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

/// The parts of a cell that has several.
fn parts(cell: &str) -> Vec<&str> {
    cell.split("; ").flat_map(|part| part.split(", ")).collect()
}

/// A default as the configuration writes it: a number, or a duration in quotes. `None` if it is stated in words.
fn as_configured(default: &str) -> Option<String> {
    if default == "none" {
        return Some("0".to_owned());
    }
    let number = default.strip_suffix(" each").unwrap_or(default).replace(',', "");
    let (number, unit) = number.split_once(' ').unwrap_or((&number, ""));
    let number: u64 = number.parse().ok()?;
    match unit {
        "" | "bytes" => Some(number.to_string()),
        "KiB" => Some((number << 10).to_string()),
        "MiB" => Some((number << 20).to_string()),
        "GiB" => Some((number << 30).to_string()),
        "s" | "ms" => Some(format!("\"{number}{unit}\"")),
        _ => None,
    }
}

#[test]
fn the_defaults_of_bounds_are_those_of_the_configuration() {
    let (text, reference) = (read("ARCHITECTURE.md"), read("docs/configuration.md"));
    let mut defaults: Vec<(&str, &str)> = Vec::new();
    for row in reference.lines().filter_map(|line| line.strip_prefix("| `")) {
        if let (Some((path, _)), Some(default)) = (row.split_once('`'), row.split(" | ").nth(2)) {
            defaults.push((path, default.trim_matches('`')));
        }
    }
    let mut compared = 0;
    for row in bounds(&text) {
        let (stated, keys) = (parts(row[1]), parts(row[2]));
        for (place, key) in keys.iter().enumerate() {
            // One default may be that of several keys. Where the numbers differ otherwise, only the first are a pair.
            let stated = match stated.len() {
                1 => stated[0],
                count if count == keys.len() || place == 0 => stated[place],
                _ => continue,
            };
            let (Some(key), Some(stated)) = (quoted(key).next(), as_configured(stated)) else { continue };
            let is_it = |path: &str| path == key || path.ends_with(&format!("].{key}"));
            for (path, default) in defaults.iter().filter(|(path, _)| is_it(path)) {
                assert_eq!(stated, *default, "ARCHITECTURE.md: the default of {path}");
                compared += 1;
            }
        }
    }
    assert!(compared > 0, "some are stated as numbers");
}
