//! Scripts: sessions' commands to a node, and the node's complete output. Each file of `tests/scripts` holds cases.
//! Each case holds the lines to play and, after each, the expected output lines (`<`). `DUNLIN_BLESS=1` writes the
//! actual output instead; review the difference. `tests/node/script.rs` lists the commands.

use std::{fs, path::PathBuf};

use crate::node::{options, script};

fn files() -> Vec<PathBuf> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts");
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

#[test]
fn every_script_passes() {
    let blesses = std::env::var_os("DUNLIN_BLESS").is_some();
    let mut failures = Vec::new();
    for file in files() {
        let expected = fs::read_to_string(&file).expect("a script");
        let mut played = String::new();
        for case in script::cases(&expected) {
            let now = script::play(case);
            if now != case {
                failures.push(format!("{}: {}", file.display(), script::difference(case, &now)));
            }
            played += &now;
        }
        if blesses {
            fs::write(&file, played).expect("a writable script");
        }
    }
    assert!(failures.is_empty() || blesses, "{}", failures.join("\n"));
}

/// Options that the engine only carries for the storage, whose tests set them.
const OPTIONS_OF_THE_STORAGE: [&str; 3] =
    ["channel.history_disk_bytes_max", "namespace.history_disk_bytes_max", "namespace.history_disk_total_bytes_max"];

#[test]
fn every_option_is_covered_by_a_script() {
    let scripts: String = files().iter().map(|file| fs::read_to_string(file).expect("a script")).collect();
    let set = |option: &str| {
        scripts.lines().filter(|line| line.starts_with("options ")).any(|line| {
            line.split_whitespace()
                .any(|word| word.split_once('=').is_some_and(|(name, _)| options::plain(name) == option))
        })
    };
    let is_of_engine = |option: &String| !OPTIONS_OF_THE_STORAGE.contains(&option.as_str());
    let unused: Vec<String> = options::names().into_iter().filter(is_of_engine).filter(|option| !set(option)).collect();
    assert!(unused.is_empty(), "no script sets {unused:?}");
}
