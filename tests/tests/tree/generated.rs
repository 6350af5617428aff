//! `make generate` writes every generated file, and tests prove that the files are fresh.

use std::collections::BTreeSet;

use crate::{files, read, targets};

const SCRIPT: &str = "scripts/generate";

/// The pages, lists and sources that the script writes.
fn written() -> BTreeSet<String> {
    let text = read(SCRIPT);
    text.split([' ', '\n', ',', '"'])
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| may_be_generated(word))
        .map(str::to_owned)
        .collect()
}

fn may_be_generated(name: &str) -> bool {
    let is_source = std::path::Path::new(name).extension().is_some_and(|extension| extension == "ts");
    name.starts_with("docs/") || name.starts_with("schema/") || name.starts_with("web/") && is_source
}

#[test]
fn every_generated_file_has_a_test_that_proves_it_fresh() {
    let known: BTreeSet<String> = files().into_iter().collect();
    let tests: Vec<String> = targets::test_files()
        .iter()
        .filter(|name| *name != "tests/tests/tree/generated.rs")
        .map(|name| read(name))
        .filter(|text| !targets::test_functions(text).is_empty())
        .collect();
    let written = written();
    assert!(!written.is_empty(), "{SCRIPT} names the files that it writes");
    for name in written {
        assert!(known.contains(&name), "{SCRIPT} names {name}, which does not exist");
        let is_compared = tests.iter().any(|text| text.contains(&format!("\"{name}\"")));
        assert!(is_compared, "no test compares {name} with its source");
    }
}

#[test]
fn every_file_marked_as_generated_is_written_by_the_script() {
    let written = written();
    for name in files().into_iter().filter(|name| may_be_generated(name)) {
        if std::path::Path::new(&name).extension().is_some_and(|extension| extension == "png") {
            continue;
        }
        let text = read(&name);
        let is_marked = text
            .lines()
            .take(5)
            .any(|line| line.contains("Written by `dunlin") || line.contains("written from the code"));
        assert!(!is_marked || written.contains(&name), "{name} is marked as generated, but {SCRIPT} does not write it");
    }
}
