//! Backups of a running node's storage, restores of them, and the commands for storages.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    cli::{Folder, dunlin, stderr, stdout},
    each_reactor,
    http::server::{Answer, Client, KEY, Server, metric_on},
};

const BACKUP: &str = "/-/backup";

/// A folder for one test on one reactor.
fn scratch(name: &str) -> Folder {
    Folder::new(&format!("{name}-{}", each_reactor::current_name()))
}

/// A node with a storage in `folder`.
struct DurableNode {
    server: Server,
    internal: SocketAddr,
}

impl DurableNode {
    fn start(folder: &Folder, backup: &Value) -> Self {
        Self::on(&json!({ "path": folder.0.join("storage"), "backup": backup }))
    }

    fn on(storage: &Value) -> Self {
        let internal = dunlin_processes::free_address().expect("a free port");
        let server = Server::start(&json!({
            "http_server": { "internal_port": internal.port().to_string() },
            "storage": storage,
            "channel": { "namespaces": [
                { "name": "chat", "history_size": 100, "history_ttl": "1h", "durability": "disk" },
            ] },
        }));
        Self { server, internal }
    }

    fn ask(&self, key: &str, path: &str, body: &str) -> Answer {
        let mut client = Client::new(TcpStream::connect(self.internal).expect("it listens"));
        let length = body.len();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        client.answer()
    }

    /// Publishes into `chat:a`. Returns the offset.
    fn publish(&self, data: u32) -> Value {
        let answer = self.ask(KEY, "/api/publish", &json!({ "channel": "chat:a", "data": data }).to_string());
        answer.json()["result"]["offset"].clone()
    }

    /// The value of a sample on the metrics page, which is on the internal port.
    fn metric(&self, name: &str) -> f64 {
        let mut client = Client::new(TcpStream::connect(self.internal).expect("it listens"));
        metric_on(&client.ask("GET", "/metrics", "").text(), name)
    }

    /// Kills the node, and waits for its end.
    fn kill(mut self) {
        self.server.signal("KILL");
        self.server.wait();
    }
}

/// Runs a command with paths in the folder. Returns its exit code and its output.
fn run(folder: &Folder, args: &[&str]) -> (Option<i32>, String) {
    let output = dunlin(folder, args);
    (output.status.code(), stdout(&output).to_owned() + stderr(&output))
}

fn succeeds(folder: &Folder, args: &[&str]) -> String {
    let (code, text) = run(folder, args);
    assert_eq!(code, Some(0), "{args:?}: {text}");
    text
}

fn fails(folder: &Folder, args: &[&str], expected: &str) {
    let (code, text) = run(folder, args);
    assert_eq!(code, Some(1), "{args:?}: {text}");
    assert!(text.contains(expected), "{args:?}: {text}");
}

#[test]
fn the_line_about_the_start_says_what_the_storage_has() {
    let folder = scratch("recovered");
    let node = DurableNode::start(&folder, &json!({}));
    assert_eq!(node.server.started["storage"], "it is new");
    for data in 1..=3 {
        assert_eq!(node.publish(data), data);
    }
    node.kill();
    let has = "about 3 publications, 1 channels and 0 checkpoints of rooms";
    let mut node = DurableNode::start(&folder, &json!({}));
    assert_eq!(node.server.started["storage"], format!("{has}; the last run was killed"));
    assert!(node.server.terminate().success());
    let node = DurableNode::start(&folder, &json!({}));
    assert_eq!(node.server.started["storage"], format!("{has}; the last run closed it"));
}

#[test]
fn a_backup_of_a_running_node_is_restored_elsewhere() {
    let folder = scratch("backup");
    let node = DurableNode::start(&folder, &json!({ "path": folder.0.join("backups"), "keep": 2 }));
    for data in 1..=3 {
        assert_eq!(node.publish(data), data);
    }
    assert_eq!(node.ask("wrong", BACKUP, "").status, 401);
    assert!(!folder.0.join("backups").exists());

    let ran = node.server.run("backup");
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert!(ran.text.contains("backups: backup 1: 20"), "{}", ran.text);
    assert_eq!(node.publish(4), 4);
    for number in 2..=3 {
        let answer = node.ask(KEY, BACKUP, "");
        assert_eq!(answer.status, 200, "{answer:?}");
        let made = answer.json();
        assert_eq!((&made["outcome"], &made["number"]), (&json!("made"), &json!(number)), "{made}");
    }
    assert!((node.metric("dunlin_storage_backups_total{outcome=\"made\"}") - 3.0).abs() < 0.5);
    assert!(node.metric("dunlin_storage_last_backup_timestamp_seconds") > 1e9);
    let listed = succeeds(&folder, &["backups", "backups", "--verify"]);
    assert!(listed.starts_with("backup 2: 20") && listed.contains("\nbackup 3: 20"), "{listed}");
    fails(&folder, &["storage", "check", "storage"], "another process has it open");
    fails(&folder, &["restore", "backups", "storage"], "the directory is not empty");
    fails(&folder, &["restore", "backups", "elsewhere", "--number", "1"], "there is no backup");
    node.kill();

    let checked = succeeds(&folder, &["storage", "check", "storage"]);
    assert!(checked.contains("1 channels, 4 publications"), "{checked}");
    let restored = succeeds(&folder, &["restore", "backups", "elsewhere"]);
    assert!(restored.starts_with("restored into elsewhere: backup 3: 20"), "{restored}");
    assert!(restored.contains("all checksums match"), "{restored}");
    let exported = succeeds(&folder, &["storage", "export", "storage"]);
    assert_eq!(exported.lines().count(), 4);
    assert_eq!(succeeds(&folder, &["storage", "export", "elsewhere"]), exported);
    assert_eq!(succeeds(&folder, &["storage", "export", "elsewhere", "--channel", "chat:b"]), "");
    assert!(succeeds(&folder, &["storage", "stats", "elsewhere"]).contains("\npublications "));
    assert!(succeeds(&folder, &["storage", "compact", "elsewhere"]).contains(" bytes of tables before, "));
}

#[test]
fn a_damaged_backup_is_not_restored_and_a_damaged_storage_is_named() {
    let folder = scratch("damage");
    let node = DurableNode::start(&folder, &json!({ "path": folder.0.join("backups") }));
    assert_eq!(node.publish(1), 1);
    assert_eq!(node.server.run("backup").code, Some(0));
    node.kill();
    let tables: Vec<PathBuf> = fs::read_dir(folder.0.join("backups/shared_checksum"))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert!(!tables.is_empty());
    for table in &tables {
        flip_bit(table);
    }
    fails(&folder, &["backups", "backups", "--verify"], "its checksum is not that of the backup");
    fails(&folder, &["restore", "backups", "elsewhere"], "stored bytes are damaged");
    fails(&folder, &["storage", "check", "elsewhere"], "elsewhere");

    let state = folder.0.join("storage/STORAGE");
    let newer = fs::read_to_string(&state).expect("a state").replace("format 1\n", "format 99\n");
    fs::write(&state, newer).expect("it is written");
    fails(&folder, &["storage", "check", "storage"], "its format has version 99");
    fails(&folder, &["storage", "stats", "nowhere"], "there is no storage in this directory");
    fails(&folder, &["backups", "storage"], "there is no backup");
}

fn flip_bit(path: &Path) {
    let mut bytes = fs::read(path).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).expect("it is written");
}

#[test]
fn backups_are_made_on_schedule() {
    let folder = scratch("schedule");
    let mut node =
        DurableNode::start(&folder, &json!({ "path": folder.0.join("backups"), "interval": "100ms", "keep": 1 }));
    for number in 1..=3 {
        assert_eq!(node.server.logged("backup made")["number"], number);
    }
    node.kill();
    let listed = succeeds(&folder, &["backups", "backups"]);
    assert!(!listed.contains("backup 1:"), "{listed}");
}

#[test]
fn a_failed_backup_is_logged_with_a_remedy_and_publications_continue() {
    let folder = scratch("unwritable");
    let a_file = folder.file("a-file", "");
    let mut node = DurableNode::start(&folder, &json!({ "path": format!("{a_file}/backups") }));
    let ran = node.server.run("backup");
    assert_eq!(ran.code, Some(1), "{}", ran.text);
    assert!(ran.text.contains("cannot make a backup in"), "{}", ran.text);
    let event = node.server.logged("backup failed");
    assert!((node.metric("dunlin_storage_backups_total{outcome=\"failed\"}") - 1.0).abs() < 0.5);
    assert!(event["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{event}");
    assert_eq!(node.publish(1), 1);
}

#[test]
fn a_node_without_a_directory_for_backups_makes_none() {
    let folder = scratch("no-backup");
    let node = DurableNode::start(&folder, &json!({}));
    assert_eq!(node.ask(KEY, BACKUP, "").status, 404);
    let ran = node.server.run("backup");
    assert_eq!(ran.code, Some(2), "{}", ran.text);
    node.server.rewrite(|config| config["storage"]["backup"] = json!({ "path": folder.0.join("backups") }));
    let ran = node.server.run("backup");
    assert_eq!(ran.code, Some(1), "{}", ran.text);
    assert!(ran.text.contains("started without `storage.backup.path`"), "{}", ran.text);
}

#[test]
fn invalid_backup_directories_are_refused() {
    let folder = scratch("separate");
    for (storage, key) in [
        (json!({ "backup": { "path": "/b" } }), "storage.backup.path: there is no storage"),
        (json!({ "path": "/s", "backup": { "path": "/s/backups" } }), "storage.backup.path: one of this directory"),
        (json!({ "path": "/s/storage", "backup": { "path": "/s" } }), "storage.backup.path: one of this directory"),
        (json!({ "path": "/s", "backup": { "interval": "1h" } }), "storage.backup.interval: needs a directory"),
    ] {
        let file = folder.file("dunlin.json", &json!({ "storage": storage }).to_string());
        let (code, text) = run(&folder, &["check-config", "-c", &file]);
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains(key), "{text}");
    }
}

on_io_uring![
    a_backup_of_a_running_node_is_restored_elsewhere,
    a_damaged_backup_is_not_restored_and_a_damaged_storage_is_named,
    the_line_about_the_start_says_what_the_storage_has,
    backups_are_made_on_schedule,
    a_failed_backup_is_logged_with_a_remedy_and_publications_continue,
    a_node_without_a_directory_for_backups_makes_none,
    invalid_backup_directories_are_refused,
    a_clock_far_ahead_is_accepted_with_a_flag_and_reading_needs_none,
    a_storage_without_its_log_is_refused_at_each_start,
];

impl DurableNode {
    /// Kills the node, and keeps its configuration for commands.
    fn kill_here(&mut self) {
        self.server.signal("KILL");
        self.server.wait();
    }

    fn refuses(&self, command: &[&str], texts: &[&str]) {
        let ran = self.server.run_with(command);
        assert!(ran.code.is_some_and(|code| code > 0), "{command:?}: {}", ran.text);
        for text in texts {
            assert!(ran.text.contains(text), "{command:?} does not say {text}: {}", ran.text);
        }
    }
}

/// What a clean-up of logs deletes is not taken for nothing.
#[test]
fn a_storage_without_its_log_is_refused_at_each_start() {
    let folder = scratch("no-log");
    let mut node = DurableNode::start(&folder, &json!({}));
    assert_eq!(node.publish(1), 1);
    node.kill_here();
    let entries = fs::read_dir(folder.0.join("storage")).expect("a directory");
    let logs: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    let logs: Vec<_> = logs.iter().filter(|path| path.extension().is_some_and(|found| found == "log")).collect();
    for log in &logs {
        fs::rename(log, log.with_extension("aside")).expect("it is there");
    }
    let refusal = ["storage", ".log is missing", "restore a backup"];
    for command in [&["serve"][..], &["serve"], &["storage", "check"], &["storage", "export"], &["storage", "compact"]]
    {
        node.refuses(command, &refusal);
    }
    for log in &logs {
        fs::rename(log.with_extension("aside"), log).expect("it is there");
    }
    let ran = node.server.run_with(&["storage", "check"]);
    assert!(ran.code == Some(0) && ran.text.contains("1 channels, 1 publications"), "{}", ran.text);
}

#[test]
fn a_clock_far_ahead_is_accepted_with_a_flag_and_reading_needs_none() {
    let folder = scratch("clock");
    let mut node = DurableNode::on(&json!({ "path": folder.0.join("storage"), "clock_ahead_limit": "1ms" }));
    assert_eq!(node.publish(1), 1);
    node.kill_here();
    let refusal = ["--accept-clock", "storage.clock_ahead_limit"];
    for command in [&["serve"][..], &["storage", "compact"], &["storage", "prune"]] {
        node.refuses(command, &refusal);
    }
    for command in [
        &["storage", "check"][..],
        &["storage", "stats"],
        &["storage", "export"],
        &["storage", "compact", "--accept-clock"],
    ] {
        let ran = node.server.run_with(command);
        assert_eq!(ran.code, Some(0), "{command:?}: {}", ran.text);
    }
}
