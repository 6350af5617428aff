//! Checks of the source tree: map, names of files, dependencies between crates, and third-party dependencies.
//!
//! ARCHITECTURE.md and CONTRIBUTING.md contain the rules.

mod architecture;
mod check;
mod examples;
mod generated;
mod glossary;
mod map;
mod pictures;
mod purity;
mod queues;
mod security;
mod servers;
mod stages;
mod supply;
mod targets;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the tests lie inside the repository")
}

/// The files that git tracks or would add, relative to the root.
fn files() -> Vec<String> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root()).output().expect("git is there");
    assert!(output.status.success(), "git ls-files failed");
    let names = String::from_utf8(output.stdout).expect("names are UTF-8");
    names.lines().filter(|name| root().join(name).is_file()).map(str::to_owned).collect()
}

/// The text of a file of the repository.
fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Whether a file contains Rust, by its name.
fn is_rust(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "rs")
}

/// Rust files of the crates, without their tests.
fn production_files() -> Vec<String> {
    let is_production = |name: &String| {
        is_rust(name)
            && name.starts_with("crates/")
            && !name.contains("/tests/")
            && !name.contains("/benches/")
            && !name.ends_with("/tests.rs")
    };
    files().into_iter().filter(is_production).collect()
}

/// The text of a Rust file up to its unit tests, which are last. A declaration of tests in another file does not end
/// the text, because it is among the declarations of other modules.
fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

#[test]
fn only_unit_tests_in_the_file_are_cut_off() {
    let (code, tests) = ("mod one;\n\nfn two() {}\n", "\n#[cfg(test)]\nmod tests {\n    fn three() {}\n}\n");
    assert_eq!(without_tests(&format!("{code}{tests}")), code);
    let declared = format!("\n#[cfg(test)]\nmod tests;\n\n{code}");
    assert_eq!(without_tests(&declared), declared);
    assert_eq!(without_tests(&format!("{declared}{tests}")), declared);
}
