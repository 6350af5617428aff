//! What a reload takes away: only with `force` if it is everything, and what is stored only by `dunlin storage prune`.

use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::{
    cli::{Folder, dunlin, stderr, stdout},
    each_reactor,
    http::server::{Answer, Client, Server},
};

const RELOAD: &str = "/-/reload";
const FORCED: &str = "/-/reload?force=true";

/// A change of the configuration file.
type Change = fn(&mut Value);

/// A node with an internal port, a storage and two durable namespaces.
struct Node {
    server: Server,
    internal: SocketAddr,
    folder: Folder,
}

fn namespace(name: &str) -> Value {
    json!({ "name": name, "history_size": 100, "history_ttl": "1h", "durability": "disk" })
}

impl Node {
    fn start(name: &str) -> Self {
        let folder = Folder::new(&format!("{name}-{}", each_reactor::current_name()));
        let internal = dunlin_processes::free_address().expect("a free port");
        let server = Server::start(&json!({
            "http_server": { "internal_port": internal.port().to_string() },
            "storage": { "path": folder.0.join("storage") },
            "admin": { "enabled": true, "password": "of-operators" },
            "client": { "token": { "hmac_secret_key": "0123456789abcdef0123456789abcdef" } },
            "channel": { "namespaces": [namespace("chat"), namespace("old")] },
        }));
        Self { server, internal, folder }
    }

    fn ask(&self, path: &str, body: &str) -> Answer {
        let mut client = Client::new(TcpStream::connect(self.internal).expect("it listens"));
        client.ask("POST", path, body)
    }

    fn api(&self, method: &str, body: &Value) -> Value {
        let answer = self.ask(&format!("/api/{method}"), &body.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    fn publish(&self, channel: &str) {
        let published = self.api("publish", &json!({ "channel": channel, "data": { "a": 1 } }));
        assert!(published["result"]["offset"].is_u64(), "{published}");
    }

    fn history(&self, channel: &str) -> Value {
        self.api("history", &json!({ "channel": channel, "limit": 10 }))
    }

    /// Reloads. Returns the errors of a refusal, and whether it can be forced.
    fn is_refused(&self, path: &str) -> (String, bool) {
        let answer = self.ask(path, "");
        assert_eq!(answer.status, 422, "{answer:?}");
        let outcome = answer.json();
        assert_eq!(outcome["outcome"], "refused", "{outcome}");
        (outcome["errors"].to_string(), outcome["needs_force"] == true)
    }
}

#[test]
fn a_file_without_content_changes_nothing_even_with_force() {
    let mut node = Node::start("empty");
    node.publish("chat:a");
    let before = node.history("chat:a");
    for text in ["", " \n\t", "null", "{}", r#"{"channel": {}, "client": {"token": null}}"#] {
        node.server.write_config(text);
        for path in [RELOAD, FORCED] {
            let (errors, needs_force) = node.is_refused(path);
            let is_named = errors.contains("has no content") || errors.contains("sets nothing any more");
            assert!(is_named && !needs_force, "{text:?}: {errors}");
            node.server.logged("configuration reload refused; nothing has changed");
        }
    }
    assert_eq!(node.history("chat:a"), before);
    // As written by a configuration management that has lost its template: the process gets only a signal.
    node.server.signal("HUP");
    let line = node.server.logged("configuration reload refused; nothing has changed");
    assert!(line["error"].as_str().is_some_and(|error| error.contains("sets nothing")), "{line}");
    assert_eq!(node.history("chat:a"), before);
}

#[test]
fn what_takes_away_everything_of_a_kind_needs_force() {
    let mut node = Node::start("force");
    node.publish("chat:a");
    let before = node.history("chat:a");
    let changes: [(Change, &str); 6] = [
        (|config| config["channel"]["namespaces"] = json!([]), "every namespace of the node (chat, old)"),
        (
            |config| config["channel"]["namespaces"] = json!([{ "name": "new" }]),
            "every namespace of the node (chat, old)",
        ),
        (|config| drop(config["http_api"].as_object_mut().map(|api| api.remove("key"))), "http_api.key"),
        (|config| config["client"]["token"] = json!({}), "client.token: every key"),
        (|config| config["admin"] = json!({ "enabled": true }), "admin.password: every password"),
        (|config| config["storage"] = json!({}), "storage.path"),
    ];
    for (change, expected) in changes {
        let mut kept = Value::Null;
        node.server.rewrite(|config| {
            kept = config.clone();
            change(config);
            // Durable namespaces need a storage.
            if config["storage"] == json!({}) {
                config["channel"]["namespaces"] = json!([{ "name": "chat" }, { "name": "old" }]);
            }
        });
        let (errors, needs_force) = node.is_refused(RELOAD);
        assert!(errors.contains(expected) && needs_force, "{errors}");
        let line = node.server.logged("configuration reload refused; nothing has changed");
        assert!(line["remedy"].as_str().is_some_and(|remedy| remedy.contains("--force")), "{line}");
        node.server.rewrite(|config| *config = kept);
    }
    node.server.rewrite(|config| config["channel"]["namespaces"] = json!([]));
    let ran = node.server.run("reload");
    assert_eq!(ran.code, Some(1), "{}", ran.text);
    assert!(ran.text.contains("every namespace") && ran.text.contains("--force"), "{}", ran.text);
    assert_eq!(node.history("chat:a"), before, "nothing has changed");
    assert_eq!(node.ask("/-/reload?force=yes", "").status, 400);
    assert_eq!(node.ask("/-/reload?force=false", "").status, 422);

    let ran = node.server.run_with(&["reload", "--force"]);
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert!(ran.text.contains("changed: channel.namespaces[chat]"), "{}", ran.text);
    assert_eq!(node.history("chat:a")["error"]["code"], 102);
    // What is stored comes back with its namespace, at the same position.
    node.server.rewrite(|config| config["channel"]["namespaces"] = json!([namespace("chat"), namespace("old")]));
    assert_eq!(node.ask(RELOAD, "").status, 200);
    assert_eq!(node.history("chat:a"), before);
    node.publish("chat:a");
}

#[test]
fn removed_namespaces_stay_stored_until_they_are_pruned() {
    let mut node = Node::start("prune");
    for channel in ["chat:a", "old:a", "old:b", "$old:c"] {
        node.publish(channel);
    }
    node.server.rewrite(|config| config["channel"]["namespaces"] = json!([namespace("chat")]));
    assert_eq!(node.ask(RELOAD, "").status, 200);
    let ran = node.server.run_with(&["storage", "prune"]);
    assert!(ran.code == Some(1) && ran.text.contains("another process has it open"), "{}", ran.text);
    node.server.signal("KILL");
    node.server.wait();

    let export = || {
        let exported = dunlin(&node.folder, &["storage", "export", "storage"]);
        assert!(exported.status.success(), "{}", stderr(&exported));
        stdout(&exported).lines().count()
    };
    assert_eq!(export(), 4, "nothing was removed");
    let listed = node.server.run_with(&["storage", "prune"]);
    assert_eq!(listed.code, Some(0), "{}", listed.text);
    assert!(listed.text.starts_with("old: 3 channels, "), "{}", listed.text);
    assert!(listed.text.contains("heads 3, publications 3") && listed.text.contains("--yes"), "{}", listed.text);
    assert_eq!(export(), 4, "it was only listed");
    let pruned = node.server.run_with(&["storage", "prune", "--yes"]);
    assert!(pruned.code == Some(0) && pruned.text.contains("removed 3 channels"), "{}", pruned.text);
    assert_eq!(export(), 1, "the other namespace stays");
    let checked = dunlin(&node.folder, &["storage", "check", "storage"]);
    let left = "4 channels, 1 publications, 0 idempotency results, 0 path blocks, 0 room checkpoints";
    assert!(stdout(&checked).contains(left), "only the heads are left of three channels: {}", stdout(&checked));
    let again = node.server.run_with(&["storage", "prune"]);
    assert!(again.text.contains("everything belongs to namespaces of the configuration"), "{}", again.text);
}

on_io_uring![
    a_file_without_content_changes_nothing_even_with_force,
    what_takes_away_everything_of_a_kind_needs_force,
    removed_namespaces_stay_stored_until_they_are_pruned,
];
