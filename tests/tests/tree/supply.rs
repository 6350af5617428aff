//! Dependencies are few, and each has a documented reason. Lock files name packages, not locations.

use crate::{files, read};

#[test]
fn every_dependency_has_a_documented_reason() {
    let reasons = read("docs/dependencies.md");
    let manifest = read("Cargo.toml");
    let section = manifest.split("\n[workspace.dependencies]\n").nth(1).expect("the workspace has dependencies");
    for line in section.split("\n[").next().unwrap_or_default().lines() {
        let Some(name) = line.split([' ', '=', '.']).next().filter(|name| !name.is_empty() && !name.starts_with('#'))
        else {
            continue;
        };
        if name != "dunlin" && !name.starts_with("dunlin-") {
            assert!(reasons.contains(&format!("| `{name}` |")), "docs/dependencies.md does not say why {name} is here");
        }
    }
    for package in files().iter().filter(|name| name.ends_with("package.json")) {
        let package: serde_json::Value = serde_json::from_str(&read(package)).expect("package.json is JSON");
        for section in ["dependencies", "devDependencies"] {
            for name in package[section].as_object().into_iter().flat_map(|entries| entries.keys()) {
                assert!(
                    reasons.contains(&format!("| `{name}` |")),
                    "docs/dependencies.md does not say why {name} is here"
                );
            }
        }
    }
}

#[test]
fn npm_lock_files_name_no_registry() {
    for lock in files().iter().filter(|name| name.ends_with("package-lock.json")) {
        assert!(!read(lock).contains("\"resolved\": \"http"), "{lock} names where its packages were fetched");
    }
}

#[test]
fn every_dependency_of_the_workspace_is_used() {
    let manifests: String = files().iter().filter(|name| name.ends_with("Cargo.toml")).map(|name| read(name)).collect();
    let root = read("Cargo.toml");
    let section = root.split("\n[workspace.dependencies]\n").nth(1).expect("the workspace has dependencies");
    for line in section.split("\n[").next().unwrap_or_default().lines().filter(|line| line.contains('=')) {
        let name = line.split([' ', '=']).next().unwrap_or_default();
        let is_used = manifests.lines().any(|line| {
            line.starts_with(&format!("{name}.workspace")) || line.starts_with(&format!("{name} = {{ workspace"))
        });
        assert!(is_used, "no crate uses {name}");
    }
}
