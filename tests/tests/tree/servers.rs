//! Tests start a server in one way per language, so that all wait for it, end it and show its log alike. CONTRIBUTING.md names the ways.

use std::{fs, path::Path};

use crate::{files, root};

/// A language: the ends of its files' names, or the interpreter of a script without one; how a program is started in it; the one
/// file that starts a server so.
struct Way {
    extensions: &'static [&'static str],
    interpreter: &'static str,
    calls: &'static [&'static str],
    file: &'static str,
}

const WAYS: [Way; 3] = [
    Way { extensions: &["py"], interpreter: "python3", calls: &["Popen("], file: "tests/process/process.py" },
    Way { extensions: &["go"], interpreter: "", calls: &["exec.Command"], file: "platform/dunlintest/dunlintest.go" },
    Way {
        extensions: &["mjs", "js", "ts"],
        interpreter: "node",
        calls: &["spawn("],
        file: "tests/browser/survival.test.mjs",
    },
];

impl Way {
    fn is_for(&self, name: &str, text: &str) -> bool {
        let shebang = text.lines().next().unwrap_or_default();
        match Path::new(name).extension().and_then(|extension| extension.to_str()) {
            Some(extension) => self.extensions.contains(&extension),
            None => shebang.starts_with("#!") && !self.interpreter.is_empty() && shebang.ends_with(self.interpreter),
        }
    }

    fn starts_a_server(&self, text: &str) -> bool {
        // The server's subcommand, as a word of a command.
        let has_subcommand = text.contains("\"serve\"") || text.contains("'serve'");
        has_subcommand && self.calls.iter().any(|call| text.contains(call))
    }
}

#[test]
fn each_language_starts_servers_in_one_file() {
    let folders = ["tests/", "web/", "clients/", "platform/", "bench/"];
    let mut found = Vec::new();
    for name in files().into_iter().filter(|name| folders.iter().any(|folder| name.starts_with(folder))) {
        // Pictures and such are no text.
        let Ok(text) = fs::read_to_string(root().join(&name)) else { continue };
        found.extend(
            WAYS.iter().filter(|way| way.is_for(&name, &text) && way.starts_a_server(&text)).map(|_| name.clone()),
        );
    }
    let mut wanted: Vec<_> = WAYS.iter().map(|way| way.file).collect();
    wanted.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, wanted, "see \"One way to start a server\" in CONTRIBUTING.md");
}
