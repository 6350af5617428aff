//! Every queue between threads is created from a declaration of `crates/queues`, which has its bounds in messages and in
//! bytes.

use std::collections::BTreeMap;

use crate::{production_files, read, without_tests};

const DECLARATIONS: &str = "crates/queues/src/declared.rs";

/// Crates and folders that are not part of a node: the load generator, the demo's clients, the simulator, and what tests use.
const OTHER_PROGRAMS: [&str; 4] = ["crates/bench/", "crates/demo/", "crates/sim/", "crates/proof/"];

/// Calls that create a queue, and the only files that may use them, because they create it from a declaration.
const CREATIONS: [(&str, &[&str]); 17] = [
    ("mpsc::channel(", &["crates/queues/src/lib.rs"]),
    ("mpsc::channel::<", &[]),
    ("sync_channel(", &["crates/queues/src/lib.rs"]),
    ("sync_channel::<", &[]),
    ("unbounded_channel(", &["crates/queues/src/counted.rs", "crates/queues/src/lib.rs"]),
    ("unbounded_channel::<", &[]),
    ("broadcast::channel", &[]),
    ("sync::broadcast", &[]),
    ("RingBuffer::new(", &["crates/server/src/ring.rs"]),
    ("RingBuffer::<", &[]),
    ("mpsc::unbounded(", &[]),
    ("crossbeam", &[]),
    ("flume", &[]),
    ("SegQueue", &[]),
    ("ArrayQueue", &[]),
    // Of the NATS client.
    (".client_capacity(", &["crates/cluster/src/links/connecting.rs"]),
    (".subscription_capacity(", &["crates/cluster/src/links/connecting.rs"]),
];

/// Names that a file must not import, because a call of them would not name their module.
const HIDING: [&str; 5] = ["channel", "sync_channel", "unbounded_channel", "unbounded", "RingBuffer"];

/// The queues whose channel has no bound of its own: the file that creates it, and the check of its senders.
const ADMITTED: [(&str, &str, &str); 5] = [
    ("BACKEND_CALLS", "crates/server/src/backend.rs", "counters.admit(proxy.options.requests_max)"),
    ("CLUSTER_REQUESTS", "crates/cluster/src/thread.rs", "self.limits.fits("),
    ("MADE_ROOMS", "crates/server/src/rooms.rs", "room.opening_limit"),
    ("ROOM_TASKS", "crates/server/src/rooms.rs", "room.opening_limit"),
    ("TOKENS", "crates/token/src/verification_thread.rs", "counters.admit(token.len(), &self.queue)"),
];

/// The constructors of a declared queue.
const CONSTRUCTORS: [&str; 6] = [
    ".tokio_channel()",
    ".std_channel()",
    ".counted_channel()",
    ".admitted_channel()",
    ".admitted_std_channel()",
    "_capacity(",
];

/// Calls of `text` that create a queue without a declaration, and imports that hide such calls.
fn undeclared(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let code = without_tests(text).lines().map(str::trim).filter(|line| !line.starts_with("//"));
    for line in code {
        let creates = |(call, allowed): &&(&str, &[&str])| !allowed.contains(&name) && is_called(line, call);
        if CREATIONS.iter().any(|creation| creates(&creation)) {
            found.push(format!("{name}: {line}"));
        }
    }
    if !name.starts_with("crates/queues/") {
        found.extend(hidden(text).into_iter().map(|import| format!("{name}: {import}")));
    }
    found
}

/// Whether the line calls exactly this function, not one whose name ends with it.
fn is_called(line: &str, call: &str) -> bool {
    line.match_indices(call).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        call.starts_with('.') || !before.is_some_and(|last| last.is_alphanumeric() || last == '_')
    })
}

/// Imports of the file that would hide a creation.
fn hidden(text: &str) -> Vec<String> {
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code: String = code.split_whitespace().collect();
    let mut found = Vec::new();
    for module in ["mpsc::", "rtrb::"] {
        for (at, _) in code.match_indices(module) {
            let rest = &code[at + module.len()..];
            let names = match rest.strip_prefix('{') {
                Some(list) => code_until(list, '}'),
                None => code_until(rest, ';'),
            };
            let is_hiding = if rest.starts_with('{') {
                names.split(',').any(|name| HIDING.contains(&name))
            } else {
                HIDING.contains(&names)
            };
            found.extend(is_hiding.then(|| format!("{module}{names}")));
        }
    }
    found.extend(code.contains("::mpscas").then(|| "mpsc as".to_owned()));
    found
}

fn code_until(code: &str, end: char) -> &str {
    code.split(end).next().unwrap_or(code)
}

fn node_files() -> Vec<String> {
    let is_of_node = |name: &String| !OTHER_PROGRAMS.iter().any(|folder| name.starts_with(folder));
    let is_program = |name: &String| !name.contains("/examples/") && name.contains("/src/");
    production_files().into_iter().filter(is_of_node).filter(is_program).collect()
}

#[test]
fn every_queue_is_created_from_a_declaration() {
    let found: Vec<String> = node_files().iter().flat_map(|name| undeclared(name, &read(name))).collect();
    assert!(found.is_empty(), "no declaration in {DECLARATIONS} bounds these queues in messages and bytes: {found:#?}");
}

#[test]
fn queues_without_a_declaration_are_found() {
    let planted = [
        "let (sender, receiver) = mpsc::channel(16);",
        "let (sender, receiver) = std::sync::mpsc::channel();",
        "let (sender, receiver) = sync_channel(1);",
        "let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();",
        "let (sender, receiver) = broadcast::channel(16);",
        "let (producer, consumer) = rtrb::RingBuffer::new(16);",
        "use std::sync::mpsc::{Receiver, channel};",
        "use std::sync::{Arc, mpsc::{\n    Receiver,\n    channel,\n}};",
        "use std::sync::mpsc::channel;",
        "use std::sync::mpsc as threads;",
        "use tokio::sync::broadcast;",
        ".subscription_capacity(65_536)",
    ];
    for line in planted {
        let text = format!("mod one;\n\n{line}\n\nfn two() {{}}\n");
        assert_eq!(undeclared("crates/server/src/node.rs", &text).len(), 1, "{line}");
    }
    let allowed = [
        "let (sender, receiver) = oneshot::channel();",
        "let (sender, receiver) = watch::channel(false);",
        "let (sender, receiver) = LOG_LINES.std_channel();",
        "// Not mpsc::channel(16).",
        "let channel = Market::channel(index);",
        "use tokio::sync::mpsc;",
        "use tokio::sync::{mpsc, oneshot};",
        "use dunlin_engine::{ShardIndex, broadcast::BroadcastMessage};",
    ];
    for line in allowed {
        assert_eq!(undeclared("crates/server/src/node.rs", &format!("{line}\n")), Vec::<String>::new());
    }
}

/// Types and functions of channels without bounds. Other names with this word are not about queues.
const UNBOUNDED: [&str; 4] = ["unbounded_channel", "UnboundedSender", "UnboundedReceiver", "mpsc::unbounded"];

fn has_unbounded(text: &str) -> bool {
    without_tests(text).lines().any(|line| UNBOUNDED.iter().any(|name| line.contains(name)))
}

#[test]
fn only_the_crate_of_queues_names_unbounded_channels() {
    let named: Vec<String> = node_files().into_iter().filter(|name| has_unbounded(&read(name))).collect();
    assert_eq!(named, ["crates/queues/src/counted.rs", "crates/queues/src/lib.rs"], "declare the queue instead");
    assert!(has_unbounded("sender: mpsc::UnboundedSender<u32>,\n"));
    assert!(!has_unbounded("(Bound::Unbounded, Bound::Excluded(1))\n"));
}

/// The names of the declarations.
fn declared() -> Vec<String> {
    let text = read(DECLARATIONS);
    let (_, table) = text.split_once("\nqueues! {\n").expect("the table was found");
    let (table, _) = table.split_once("\n}\n").expect("the table ends");
    let names = table.lines().filter_map(|line| line.trim().split_once(" = "));
    let is_constant = |name: &&str| name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    names.map(|(name, _)| name).filter(is_constant).map(str::to_owned).collect()
}

#[test]
fn every_declaration_has_a_queue() {
    let mut uses: BTreeMap<String, usize> = declared().into_iter().map(|name| (name, 0)).collect();
    assert!(uses.len() > 20, "the declarations were found: {uses:?}");
    for file in node_files().iter().filter(|name| !name.starts_with("crates/queues/")) {
        let text = read(file);
        let text = without_tests(&text);
        let is_creation =
            |line: &&str| CONSTRUCTORS.iter().any(|call| line.contains(call)) || line.contains(".with_messages(");
        let is_ring = |line: &&str| line.contains("connect(");
        for line in text.lines().filter(|line| is_creation(line) || is_ring(line)) {
            for (name, count) in &mut uses {
                *count += usize::from(line.contains(name.as_str()));
            }
        }
    }
    let unused: Vec<_> = uses.iter().filter(|(_, count)| **count == 0).collect();
    assert!(unused.is_empty(), "{DECLARATIONS} declares queues that are not created: {unused:?}");
}

#[test]
fn senders_check_the_bounds_of_channels_without_bounds() {
    let mut expected = BTreeMap::new();
    for (queue, file, check) in ADMITTED {
        assert!(read(file).contains(check), "{file} checks the bounds of {queue} by {check}");
        *expected.entry(file.to_owned()).or_insert(0) += 1;
    }
    let admitting = node_files().into_iter().filter(|name| !name.starts_with("crates/queues/"));
    let found = admitting.map(|name| {
        let count = without_tests(&read(&name)).matches(".admitted_").count();
        (name, count)
    });
    let found: BTreeMap<String, usize> = found.filter(|(_, count)| *count > 0).collect();
    assert_eq!(found, expected, "these files create channels without bounds");
}

/// The default of each key in docs/configuration.md.
fn defaults() -> BTreeMap<String, String> {
    let reference = read("docs/configuration.md");
    let rows = reference.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let defaults = rows.filter_map(|(path, rest)| Some((path, rest.split(" | ").nth(2)?)));
    defaults.map(|(path, default)| (path.to_owned(), default.trim_matches('`').to_owned())).collect()
}

#[test]
fn the_declared_defaults_are_those_of_the_configuration() {
    let (text, defaults) = (read(DECLARATIONS), defaults());
    let mut checked = 0;
    for call in ["keyed(", "counted_by_key("] {
        for (at, _) in text.match_indices(call) {
            let arguments = text[at + call.len()..].split(')').next().unwrap_or_default();
            let Some((max, key)) = arguments.split_once(", \"") else { continue };
            let key = key.trim_end_matches('"').split(' ').next().unwrap_or_default();
            let max = number(max);
            let of_key = defaults.iter().filter(|(path, _)| **path == key || path.ends_with(&format!("].{key}")));
            let of_key: Vec<_> = of_key.collect();
            assert!(!of_key.is_empty(), "{key} is no key in docs/configuration.md");
            for (path, default) in of_key {
                assert_eq!(*default, max.to_string(), "{DECLARATIONS} states another default of {path}");
            }
            checked += 1;
        }
    }
    assert!(checked > 10, "the bounds with keys were found: {checked}");
}

/// The value of `1_024` or `16 * MIB`.
fn number(text: &str) -> usize {
    let factor = |part: &str| match part.trim() {
        "MIB" => 1 << 20,
        "KIB" => 1 << 10,
        digits => digits.replace('_', "").parse().unwrap_or_else(|_| panic!("{digits} is no number")),
    };
    text.split('*').map(factor).product()
}
