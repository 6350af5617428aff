//! `docs/glossary.md` defines each term once, and its table "Where is …" names files and symbols that exist.

use std::collections::BTreeSet;

use crate::{files, map, read};

const PAGE: &str = "docs/glossary.md";
/// Words before the name of a Rust or TypeScript item.
const DEFINING_WORDS: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "class", "function"];

/// A row of the table "Where is …".
struct Place {
    file: String,
    symbol: String,
}

#[test]
fn each_term_has_one_definition() {
    let text = read(PAGE);
    let mut terms = BTreeSet::new();
    for row in text.lines().filter_map(|line| line.strip_prefix("| **")) {
        let (term, meaning) =
            row.split_once("** | ").unwrap_or_else(|| panic!("{PAGE}: a term without a meaning: {row}"));
        assert!(meaning.len() > 10, "{PAGE} does not define {term}");
        assert!(terms.insert(term), "{PAGE} defines {term} twice");
    }
    for term in
        ["node", "shard", "session", "channel", "publication", "offset", "epoch", "owner", "room", "world", "tick"]
    {
        assert!(terms.contains(term), "{PAGE} does not define {term}");
    }
}

#[test]
fn each_place_names_a_file_and_a_symbol_that_it_defines() {
    let files = files();
    let places = places();
    assert!(!places.is_empty(), "{PAGE} has a table of places");
    for Place { file, symbol } in places {
        assert!(files.contains(&file), "{PAGE} names {file}, which does not exist");
        assert!(defines(&read(&file), &symbol), "{PAGE}: {file} does not define {symbol}");
    }
}

#[test]
fn each_place_is_in_a_folder_of_the_map() {
    let mapped = map::mapped();
    for Place { file, .. } in places() {
        let is_mapped = mapped.iter().any(|folder| file.starts_with(&format!("{folder}/")));
        assert!(is_mapped, "{file} is in no folder of the map in ARCHITECTURE.md");
    }
}

fn places() -> Vec<Place> {
    let text = read(PAGE);
    let table = text.split("\n## Where is …\n").nth(1).unwrap_or_else(|| panic!("{PAGE} has no table of places"));
    let place = |line: &str| {
        let mut quoted = line.split('`').skip(1).step_by(2).map(str::to_owned);
        Some(Place { file: quoted.next()?, symbol: quoted.next()? })
    };
    table.lines().filter(|line| line.starts_with("| ")).filter_map(place).collect()
}

/// Whether the text defines an item of that name: the name follows a defining word, and no longer name begins with it.
fn defines(text: &str, symbol: &str) -> bool {
    DEFINING_WORDS.iter().any(|word| {
        text.split(&format!("{word} {symbol}"))
            .skip(1)
            .any(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
    })
}

#[test]
fn definitions_are_distinguished_from_uses() {
    let text = "pub(crate) struct Hub {\n}\nimpl Hub {\n    fn find_all(&self) {}\n}\n";
    assert!(defines(text, "Hub"));
    assert!(defines(text, "find_all"));
    assert!(!defines(text, "find"));
    assert!(!defines(text, "impl"));
}
