//! The pure crates use no I/O, and crates depend on each other in one direction only.

use std::collections::BTreeMap;

use crate::{production_files, read, without_tests};

/// The third-party crates on which each crate may depend, outside tests. `server` may use all.
const ALLOWED: [(&str, &[&str]); 8] = [
    ("codegen", &["dunlin-rooms"]),
    ("websocket", &["base64", "flate2", "sha1"]),
    ("rooms", &["base64", "bytes", "dunlin-protocol", "foldhash", "hashbrown", "rand_chacha", "serde", "serde_json"]),
    ("games", &["dunlin-protocol", "dunlin-rooms", "serde_json"]),
    ("matchmaking", &[]),
    ("relay", &["bytes", "dunlin-engine", "dunlin-protocol", "dunlin-rooms", "postcard", "serde", "serde_bytes"]),
    ("protocol", &["bytes", "memchr", "serde", "serde_json"]),
    (
        "engine",
        &[
            "bytes",
            "dunlin-protocol",
            "dunlin-rooms",
            "dunlin-websocket",
            "foldhash",
            "hashbrown",
            "hmac",
            "rand_chacha",
            "regex",
            "sha2",
        ],
    ),
];

/// The crates of the workspace on which the others may depend, outside tests. The product's binary has no program but its own: `server`
/// depends neither on `bench` nor on `demo`.
const KNOWN: [(&str, &[&str]); 10] = [
    ("cluster", &["dunlin-engine", "dunlin-protocol", "dunlin-queues"]),
    (
        "config",
        &[
            "dunlin-cluster",
            "dunlin-engine",
            "dunlin-games",
            "dunlin-matchmaking",
            "dunlin-net",
            "dunlin-protocol",
            "dunlin-rooms",
            "dunlin-storage",
            "dunlin-token",
            "dunlin-websocket",
        ],
    ),
    (
        "bench",
        &[
            "dunlin-cluster",
            "dunlin-engine",
            "dunlin-games",
            "dunlin-net",
            "dunlin-processes",
            "dunlin-protocol",
            "dunlin-rooms",
            "dunlin-storage",
        ],
    ),
    ("demo", &["dunlin-processes", "dunlin-protocol", "dunlin-rooms"]),
    ("net", &["dunlin-engine", "dunlin-websocket"]),
    ("processes", &[]),
    ("profiles", &[]),
    ("queues", &[]),
    (
        "server",
        &[
            "dunlin-cluster",
            "dunlin-codegen",
            "dunlin-config",
            "dunlin-engine",
            "dunlin-games",
            "dunlin-matchmaking",
            "dunlin-net",
            "dunlin-processes",
            "dunlin-profiles",
            "dunlin-protocol",
            "dunlin-queues",
            "dunlin-relay",
            "dunlin-rooms",
            "dunlin-storage",
            "dunlin-token",
            "dunlin-websocket",
        ],
    ),
    ("token", &["dunlin-engine", "dunlin-protocol", "dunlin-queues"]),
];

/// Names that pure code must not use, and the reason.
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
fn pure_crates_have_only_listed_dependencies() {
    for (name, allowed) in ALLOWED {
        for dependency in dependencies(&read(&format!("crates/{name}/Cargo.toml"))) {
            assert!(allowed.contains(&dependency.as_str()), "crates/{name} may not depend on {dependency}");
        }
    }
}

#[test]
fn dependencies_point_one_way() {
    for (name, known) in KNOWN {
        let dependencies = dependencies(&read(&format!("crates/{name}/Cargo.toml")));
        for dependency in dependencies.iter().filter(|name| *name == "dunlin" || name.starts_with("dunlin-")) {
            assert!(known.contains(&dependency.as_str()), "crates/{name} may not depend on {dependency}");
        }
    }
}

/// The part of `cluster` that must also be pure.
const PURE_IN_CLUSTER: [&str; 4] = ["core/", "core.rs", "names.rs", "record.rs"];

#[test]
fn pure_crates_read_no_clock_and_share_nothing() {
    let pure = |name: &String| {
        let of_cluster = name.strip_prefix("crates/cluster/src/").unwrap_or_default();
        ALLOWED.iter().any(|(krate, _)| name.starts_with(&format!("crates/{krate}/")))
            || PURE_IN_CLUSTER.iter().any(|part| of_cluster.starts_with(part))
    };
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
fn pure_crates_forbid_unsafe_code() {
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

/// The halves of a shard, and the names of the other half that each must not use, because they exchange only requests
/// and notices. Private fields enforce the same; this test gives the reason if a field becomes public.
const HALVES: [(&str, [&str; 2]); 2] = [("owner", ["Sessions", "session::"]), ("session", ["Owner", "owner::"])];

#[test]
fn the_halves_of_a_shard_do_not_name_each_other() {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    for (half, foreign) in HALVES {
        let folder = format!("crates/engine/src/shard/{half}");
        let files = production_files();
        let own: Vec<_> = files.iter().filter(|file| file.starts_with(&folder)).collect();
        assert!(!own.is_empty(), "the files of {folder} are elsewhere by now");
        for file in own {
            let text = read(file);
            let text = without_tests(&text);
            let named: Vec<_> =
                text.lines().filter(is_code).filter(|line| foreign.iter().any(|name| names(line, name))).collect();
            assert!(named.is_empty(), "{file} names the other half of the shard: {named:?}");
        }
    }
}

/// Whether a word of the line begins with `name`.
fn names(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + name.len()..].chars().next();
        let ends = name.ends_with([':', '.']) || !after.is_some_and(|next| next.is_alphanumeric() || next == '_');
        ends && !before.is_some_and(|last| last.is_alphanumeric() || last == '_' || last == '.')
    })
}
