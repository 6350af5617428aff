//! The walls: what the pure crates may know, and that no crate looks back.

use std::collections::BTreeMap;

use crate::{production_files, read, without_tests};

/// What each crate may depend on, outside tests. `server` may know all.
const ALLOWED: [(&str, &[&str]); 5] = [
    ("websocket", &["base64", "flate2", "sha1"]),
    ("rooms", &["base64", "bytes", "dunlin-protocol", "foldhash", "hashbrown", "rand_chacha", "serde", "serde_json"]),
    ("games", &["dunlin-rooms", "serde_json"]),
    ("protocol", &["bytes", "memchr", "serde", "serde_json"]),
    (
        "engine",
        &[
            "bytes",
            "dunlin-protocol",
            "dunlin-rooms",
            "dunlin-websocket",
            "flate2",
            "foldhash",
            "hashbrown",
            "rand_chacha",
            "regex",
        ],
    ),
];

/// What pure code does not say, and why.
const BANNED: [(&str, &str); 11] = [
    ("Instant::now", "time is an argument"),
    ("SystemTime", "time is an argument"),
    ("std::net", "bytes come as events"),
    ("std::fs", "bytes come as events"),
    ("std::thread", "a shard is one state machine"),
    ("std::env", "options are an argument"),
    ("Mutex", "nothing is shared"),
    ("RwLock", "nothing is shared"),
    ("Atomic", "nothing is shared"),
    ("std::collections::HashMap", "its order is random; hashbrown with a seed"),
    ("println!", "output is an effect"),
];

#[test]
fn pure_crates_depend_on_what_is_listed() {
    for (name, allowed) in ALLOWED {
        for dependency in dependencies(&read(&format!("crates/{name}/Cargo.toml"))) {
            assert!(allowed.contains(&dependency.as_str()), "crates/{name} may not depend on {dependency}");
        }
    }
}

#[test]
fn pure_crates_read_no_clock_and_share_nothing() {
    let pure = |name: &String| ALLOWED.iter().any(|(krate, _)| name.starts_with(&format!("crates/{krate}/")));
    let mut found = BTreeMap::new();
    for name in production_files().into_iter().filter(pure) {
        let text = read(&name);
        for line in without_tests(&text).lines().filter(|line| !line.trim_start().starts_with("//")) {
            for (word, reason) in BANNED {
                if line.contains(word) {
                    found.insert(format!("{name}: {word}"), reason);
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn unsafe_code_stays_where_it_is_forbidden_nowhere() {
    for (name, _) in ALLOWED {
        let root = read(&format!("crates/{name}/src/lib.rs"));
        assert!(root.contains("#![forbid(unsafe_code)]"), "crates/{name} forbids unsafe code");
    }
}

fn dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let names = section.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| !name.is_empty() && !name.starts_with('#')).map(str::to_owned).collect()
}
