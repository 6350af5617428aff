//! Which Rust files `cargo test` compiles, and which functions in them are tests.

use std::{
    collections::{BTreeSet, VecDeque},
    fs,
};

use crate::{files, is_rust, read, root};

/// Conditions under which a module is compiled by `cargo test`.
const MET: [&str; 5] =
    ["test", "unix", "target_os = \"linux\"", "feature = \"rocksdb\"", "any(test, not(feature = \"rocksdb\"))"];

/// The files of all targets of the workspace: their roots, and the modules that these declare.
pub fn test_files() -> BTreeSet<String> {
    let known: BTreeSet<String> = files().into_iter().collect();
    let mut waiting: VecDeque<String> = known.iter().filter(|name| is_root(name)).cloned().collect();
    let mut found = BTreeSet::new();
    while let Some(file) = waiting.pop_front() {
        let text = read(&file);
        for candidates in declared_modules(&text, &file) {
            waiting.extend(candidates.into_iter().find(|name| known.contains(name) && !found.contains(name)));
        }
        found.insert(file);
    }
    found
}

/// Whether Cargo discovers the file as a target: `src/lib.rs`, `src/main.rs`, `src/bin/*.rs`, `tests/*.rs` and
/// `tests/*/main.rs`. In a crate that disables the last two, `tests/suite.rs` is the only test binary.
fn is_root(name: &str) -> bool {
    let parts: Vec<&str> = match name.split('/').collect::<Vec<_>>().as_slice() {
        ["crates", krate, "tests", rest @ ..] if has_suite(krate) => return *rest == ["suite.rs"],
        ["crates", _krate, rest @ ..] => rest.to_vec(),
        ["tests", rest @ ..] => rest.to_vec(),
        _ => return false,
    };
    match parts.as_slice() {
        ["src", "lib.rs" | "main.rs"] | ["tests", _, "main.rs"] => true,
        ["src", "bin", file] | ["tests", file] => is_rust(file),
        _ => false,
    }
}

fn has_suite(krate: &str) -> bool {
    let manifest = fs::read_to_string(root().join("crates").join(krate).join("Cargo.toml"));
    manifest.is_ok_and(|manifest| manifest.lines().any(|line| line == "autotests = false"))
}

/// For each `mod name;` of a file, the possible paths of the module.
fn declared_modules(text: &str, file: &str) -> Vec<Vec<String>> {
    let (folder, name) = file.rsplit_once('/').expect("no target lies at the root");
    let own_folder = match name {
        "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
        _ if is_root(file) => folder.to_owned(),
        _ => file.trim_end_matches(".rs").to_owned(),
    };
    let (mut modules, mut path, mut is_met) = (Vec::new(), None, true);
    for line in text.lines().map(str::trim) {
        if let Some(given) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            path = Some(given);
        } else if let Some(condition) = line.strip_prefix("#[cfg(").and_then(|rest| rest.strip_suffix(")]")) {
            is_met &= MET.contains(&condition);
        } else if let Some(module) = module_name(line) {
            if is_met {
                modules.push(match path {
                    Some(given) => vec![resolved(folder, given)],
                    None => vec![format!("{own_folder}/{module}.rs"), format!("{own_folder}/{module}/mod.rs")],
                });
            }
            (path, is_met) = (None, true);
        } else if !line.starts_with("//") && !line.starts_with("#[") {
            (path, is_met) = (None, true);
        }
    }
    modules
}

/// The name in `mod name;`, with or without visibility.
fn module_name(line: &str) -> Option<&str> {
    let (before, name) = line.strip_suffix(';')?.rsplit_once("mod ")?;
    let is_declaration = before.is_empty() || before.starts_with("pub");
    (is_declaration && name.chars().all(|c| c.is_alphanumeric() || c == '_')).then_some(name)
}

/// A path relative to a folder, without `..`.
fn resolved(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// The functions of a file with `#[test]` and without `#[ignore]`.
pub fn test_functions(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut attributes: Vec<&str> = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            attributes.push(line);
        } else if !line.starts_with("//") {
            let is_test = attributes.iter().any(|attribute| ["#[test]", "#[tokio::test]"].contains(attribute));
            let is_left_out = attributes.iter().any(|attribute| attribute.starts_with("#[ignore"));
            let name = line.split_once("fn ").and_then(|(_, rest)| rest.split(['(', '<']).next());
            if let (true, false, Some(name)) = (is_test, is_left_out, name) {
                found.insert(name.to_owned());
            }
            attributes.clear();
        }
    }
    found
}

#[test]
fn functions_that_run_are_distinguished_from_others() {
    let text = "fn plain() {}\n#[test]\nfn runs() {\n#[test]\n#[ignore = \"slow\"]\nfn left_out() {\n#[test]\n// Why.\n\
        #[cfg(unix)]\nasync fn runs_too() {\n//#[test]\nfn commented() {\n";
    assert_eq!(test_functions(text), BTreeSet::from(["runs".to_owned(), "runs_too".to_owned()]));
}

#[test]
fn modules_are_followed_as_the_compiler_does() {
    let text = "mod one;\n#[cfg(loom)]\nmod two;\n#[cfg(test)]\npub(crate) mod three;\n#[path = \"../x/four.rs\"]\nmod four;\n\
        // mod five;\nmod six {\n";
    let candidates = |name: &str| vec![format!("crates/a/src/b/{name}.rs"), format!("crates/a/src/b/{name}/mod.rs")];
    let expected = vec![candidates("one"), candidates("three"), vec!["crates/a/x/four.rs".to_owned()]];
    assert_eq!(declared_modules(text, "crates/a/src/b.rs"), expected);
    let at_root = declared_modules("mod one;\n", "crates/a/tests/b.rs");
    assert_eq!(at_root[0][0], "crates/a/tests/one.rs");
}

#[test]
fn tests_over_sockets_run_on_both_reactors() {
    let folders = ["crates/server/tests/node/", "crates/server/tests/http/"];
    for file in files().into_iter().filter(|name| folders.iter().any(|folder| name.starts_with(folder))) {
        let text = if is_rust(&file) { read(&file) } else { continue };
        let list = text.split_once("\non_io_uring![").map_or("", |(_, list)| list.split(']').next().unwrap_or(list));
        let listed: BTreeSet<String> =
            list.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
        assert_eq!(listed, test_functions(&text), "{file}: `on_io_uring!` names every test");
    }
}

#[test]
fn every_test_file_belongs_to_a_target() {
    let compiled = test_files();
    let forgotten: Vec<String> = files()
        .into_iter()
        .filter(|name| name.starts_with("crates/") && is_rust(name))
        .filter(|name| !compiled.contains(name) && !test_functions(&read(name)).is_empty())
        .collect();
    assert!(forgotten.is_empty(), "`cargo test` compiles none of these: {forgotten:#?}");
}
