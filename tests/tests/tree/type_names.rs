//! A public type name occurs once in the workspace, so that it has one meaning.

use std::collections::BTreeMap;

use crate::{production_files, read, without_tests};

#[test]
fn a_public_type_name_occurs_once() {
    let duplicates: BTreeMap<String, Vec<String>> =
        files_by_type_name().into_iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(duplicates.is_empty(), "these public type names occur more than once; rename all but one: {duplicates:#?}");
}

/// The files that define a public type of each name, one entry for each definition.
fn files_by_type_name() -> BTreeMap<String, Vec<String>> {
    let mut files = BTreeMap::<String, Vec<String>>::new();
    for file in production_files() {
        for name in public_type_names(without_tests(&read(&file))) {
            files.entry(name).or_default().push(file.clone());
        }
    }
    files
}

fn public_type_names(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let (keyword, rest) = line.trim_start().strip_prefix("pub ")?.split_once(' ')?;
        let is_type = ["struct", "enum", "trait", "type", "union"].contains(&keyword);
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        is_type.then(|| rest[..end].to_owned())
    };
    text.lines().filter_map(name).collect()
}

#[test]
fn public_types_are_recognised() {
    let text =
        "pub struct One<T>(T);\nstruct Two;\n    pub enum Three {\npub(crate) type Four = u8;\npub fn five() {}\n";
    assert_eq!(public_type_names(text), ["One", "Three"]);
}
