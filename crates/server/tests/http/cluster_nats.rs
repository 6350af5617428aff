//! Nodes with a real NATS server: removed histories, a lost server, and TLS.

use std::{path::PathBuf, process::Command};

use dunlin_proof::nats::NatsServers;
use serde_json::{Value, json};

use crate::http::{
    observation::until,
    server::{Client, Server, handshake},
};

/// The key that signed [`TOKEN`].
const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// A connection token of the user `ann` without an expiry.
const TOKEN: &str =
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4ifQ.rElYakT50DyBJITDRWeKwnRTnj3mrkK_BVgHQzuQHu0";
const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../net/src/tls/session/cert.pem");
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../net/src/tls/session/key.pem");
const OTHER_CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/tls/next_cert.pem");
const CLIENT_CA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/tls/client_ca.pem");
const CLIENT_CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/tls/client_cert.pem");
const CLIENT_KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/tls/client_key.pem");

fn settings(name: &str, url: &str, requires_cluster: bool) -> Value {
    json!({
        "node": { "name": name },
        "health": { "requires_cluster": requires_cluster },
        "broker": { "enabled": true, "type": "nats", "nats": {
            "url": url,
            "jetstream": { "replicas": 1, "publish_timeout": "1s" },
        } },
        "channel": { "namespaces": [
            {
                "name": "chat", "history_size": 10, "history_ttl": "1h", "force_recovery": true,
                "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
            },
            { "name": "typing", "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true },
        ] },
    })
}

fn call(node: &Server, method: &str, params: &Value) -> Value {
    node.ask("POST", &format!("/api/{method}"), &params.to_string()).json()
}

/// Publishes a number, and returns its offset after the stream has stored it.
fn publish(node: &Server, number: u64) -> u64 {
    let answer = call(node, "publish", &json!({ "channel": "chat:1", "data": number }));
    answer["result"]["offset"].as_u64().unwrap_or_else(|| panic!("{answer}"))
}

fn history(node: &Server) -> Vec<u64> {
    let answer = call(node, "history", &json!({ "channel": "chat:1", "limit": -1 }));
    let publications = answer["result"]["publications"].as_array().unwrap_or_else(|| panic!("{answer}"));
    publications.iter().map(|publication| publication["offset"].as_u64().expect("an offset")).collect()
}

fn read(session: &mut Client) -> Value {
    let (opcode, text) = session.frame();
    assert_eq!(opcode, 0x81, "{text:?}");
    serde_json::from_slice(&text).expect("a reply in JSON")
}

/// Opens a session, and subscribes it, with recovery if a position is given. Returns the session and the reply.
fn subscribe(node: &Server, position: Option<(u64, &str)>) -> (Client, Value) {
    let mut session = node.connect();
    session.send(handshake(""));
    assert_eq!(session.answer().status, 101);
    session.send_text(r#"{"id":1,"connect":{}}"#);
    read(&mut session);
    let mut subscribe = json!({ "channel": "chat:1" });
    if let Some((offset, epoch)) = position {
        subscribe = json!({ "channel": "chat:1", "recover": true, "offset": offset, "epoch": epoch });
    }
    session.send_text(&json!({ "id": 2, "subscribe": subscribe }).to_string());
    let reply = read(&mut session)["subscribe"].take();
    assert!(reply.is_object(), "{reply}");
    (session, reply)
}

#[test]
fn history_is_removed_on_all_nodes_and_offsets_continue() {
    let nats = NatsServers::start(1, "");
    let [one, two] = ["one", "two"].map(|name| Server::start(&settings(name, &nats.urls(), false)));
    let (mut there, reply) = subscribe(&two, None);
    let epoch = reply["epoch"].as_str().expect("an epoch").to_owned();
    let offsets = [1, 2, 3].map(|number| publish(&one, number));
    for offset in offsets {
        assert_eq!(read(&mut there)["push"]["pub"]["offset"], offset);
    }
    until(|| [&one, &two].map(history) == [offsets, offsets]);

    assert_eq!(call(&one, "history_remove", &json!({ "channel": "chat:1" })), json!({ "result": {} }));
    until(|| [&one, &two].iter().all(|node| history(node).is_empty()));
    let next = publish(&two, 4);
    assert!(next > offsets[2], "{next} behind {offsets:?}");
    // The removal sends nothing to subscribers.
    assert_eq!(read(&mut there)["push"]["pub"]["offset"], next);
    until(|| [&one, &two].map(history) == [[next], [next]]);

    for node in [&one, &two] {
        // A client that received everything before the removal has missed one publication, which is recovered.
        let (_session, reply) = subscribe(node, Some((offsets[2], &epoch)));
        assert_eq!((&reply["recovered"], &reply["publications"][0]["offset"]), (&json!(true), &json!(next)), "{reply}");
        // A client with an older position cannot recover the removed publications.
        let (_session, reply) = subscribe(node, Some((offsets[1], &epoch)));
        assert_eq!((reply.get("recovered"), &reply["epoch"]), (None, &json!(epoch)), "{reply}");
    }
}

#[test]
fn a_node_without_nats_keeps_its_sessions_and_its_health_is_configurable() {
    let mut nats = NatsServers::start(1, "");
    let by_status = Server::start(&settings("one", &nats.urls(), true));
    let by_body = Server::start(&settings("two", &nats.urls(), false));
    let health = |node: &Server| {
        let answer = node.ask("GET", "/health", "");
        (answer.status, answer.text())
    };
    until(|| [&by_status, &by_body].iter().all(|node| health(node) == (200, "{}".to_owned())));
    let (mut session, _) = subscribe(&by_status, None);
    let first = publish(&by_body, 1);
    assert_eq!(read(&mut session)["push"]["pub"]["offset"], first);

    nats.kill(0);
    let not_ready = r#"{"cluster":{"ready":false}}"#;
    until(|| health(&by_status) == (503, not_ready.to_owned()));
    until(|| health(&by_body) == (200, not_ready.to_owned()));
    let refused = call(&by_body, "publish", &json!({ "channel": "chat:1", "data": 2 }));
    assert_eq!(refused["error"]["code"], 100, "{refused}");
    // Features that do not need NATS continue to work.
    session.send_text(r#"{"id":3,"subscribe":{"channel":"typing:1"}}"#);
    assert!(read(&mut session).get("subscribe").is_some());
    call(&by_status, "publish", &json!({ "channel": "typing:1", "data": "local" }));
    assert_eq!(read(&mut session)["push"]["pub"]["data"], "local");

    nats.restart(0);
    until(|| [&by_status, &by_body].iter().all(|node| health(node) == (200, "{}".to_owned())));
    let next = publish(&by_body, 3);
    assert!(next > first);
    assert_eq!(read(&mut session)["push"]["pub"]["offset"], next);
}

#[test]
fn the_limit_of_user_sessions_covers_all_nodes() {
    let nats = NatsServers::start(1, "");
    let [one, two] = ["one", "two"].map(|name| {
        let mut settings = settings(name, &nats.urls(), false);
        settings["client"] = json!({ "user_connection_limit": 2, "token": { "hmac_secret_key": SECRET } });
        settings["broker"]["nats"]["peers"] = json!({ "silence_timeout": "10m" });
        Server::start(&settings)
    });
    until(|| [&one, &two].iter().all(|node| node.metric("dunlin_cluster_peers") > 0.5));
    let counted =
        |node: &Server, users: f64| until(|| (node.metric("dunlin_cluster_users_elsewhere") - users).abs() < 0.1);
    let connect = |node: &Server| {
        let mut session = node.connect();
        session.send(handshake(""));
        assert_eq!(session.answer().status, 101);
        session.send_text(&json!({ "id": 1, "connect": { "token": TOKEN } }).to_string());
        let (opcode, payload) = session.frame();
        let reply: Value = if opcode == 0x81 { serde_json::from_slice(&payload).expect("JSON") } else { Value::Null };
        (session, reply)
    };
    let (here, reply) = connect(&one);
    assert!(reply["connect"].is_object(), "{reply}");
    counted(&two, 1.0);
    let (_there, reply) = connect(&two);
    assert!(reply["connect"].is_object(), "{reply}");
    counted(&one, 1.0);
    // The user has reached the limit, with one session on each node.
    for node in [&one, &two] {
        let (_session, reply) = connect(node);
        assert_eq!((&reply["error"]["code"], &reply["error"]["temporary"]), (&json!(111), &json!(true)), "{reply}");
    }
    drop(here);
    counted(&two, 0.0);
    let (_there_too, reply) = connect(&two);
    assert!(reply["connect"].is_object(), "{reply}");
    // A third session on the node that has both is closed, instead of a temporary error.
    let (_session, reply) = connect(&two);
    assert_eq!(reply, Value::Null, "the connection is closed");
}

/// Starts a node that must fail, and returns its output.
fn refusal(url: &str, tls: &Value) -> String {
    let mut config = settings("one", url, false);
    config["broker"]["nats"]["tls"] = tls.clone();
    // The short timeout limits the retries.
    config["broker"]["nats"]["jetstream"]["start_timeout"] = json!("2s");
    config["http_server"] = json!({ "address": "127.0.0.1", "port": 0 });
    let file = format!("dunlin-refused-{}-{:?}.json", std::process::id(), std::thread::current().id());
    let file: PathBuf = std::env::temp_dir().join(file);
    std::fs::write(&file, config.to_string()).expect("a temporary file");
    // A node that unexpectedly starts would run forever.
    let mut command = Command::new("timeout");
    let command = command.args(["60", env!("CARGO_BIN_EXE_dunlin"), "serve", "--config"]).arg(&file).env_clear();
    let output = command.env("PATH", std::env::var_os("PATH").expect("a PATH")).output().expect("it runs");
    std::fs::remove_file(&file).expect("it is there");
    let printed = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{printed}");
    printed
}

#[test]
fn connections_to_nats_are_encrypted_as_configured() {
    let tls = format!("tls {{ cert_file: \"{CERTIFICATE}\", key_file: \"{KEY}\" }}");
    let nats = NatsServers::start(1, &format!("{tls}\nauthorization {{ user: node, password: s3cret }}"));
    let url = |password: &str| nats.url(0).replace("nats://", &format!("nats://node:{password}@"));
    let right = json!({ "enabled": true, "server_ca_pem": CERTIFICATE });
    let mut good = settings("one", &url("s3cret"), true);
    good["broker"]["nats"]["tls"] = right.clone();
    let node = Server::start(&good);
    publish(&node, 1);
    assert_eq!(history(&node).len(), 1);

    let printed = refusal(&url("s3cret"), &json!({ "enabled": true, "server_ca_pem": OTHER_CERTIFICATE }));
    for part in ["no NATS server takes a connection: 127.0.0.1:", "certificate", "`broker.nats.url`"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let printed = refusal(&url("wr0ng"), &right);
    assert!(printed.contains("authorization violation") && !printed.contains("wr0ng"), "{printed}");
}

#[test]
fn the_client_certificate_is_sent_to_nats() {
    let tls = format!("cert_file: \"{CERTIFICATE}\", key_file: \"{KEY}\", ca_file: \"{CLIENT_CA}\", verify: true");
    let nats = NatsServers::start(1, &format!("tls {{ {tls} }}"));
    let authority = json!({ "enabled": true, "server_ca_pem": CERTIFICATE });
    let mut identified = authority.clone();
    identified["cert_pem"] = json!(CLIENT_CERTIFICATE);
    identified["key_pem"] = json!(CLIENT_KEY);
    let mut good = settings("one", &nats.url(0), false);
    good["broker"]["nats"]["tls"] = identified;
    publish(&Server::start(&good), 1);

    // The server's reason may be lost when it closes the connection.
    let printed = refusal(&nats.url(0), &authority);
    for part in ["no NATS server takes a connection: 127.0.0.1:", "`broker.nats.tls`"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}

on_io_uring![
    history_is_removed_on_all_nodes_and_offsets_continue,
    a_node_without_nats_keeps_its_sessions_and_its_health_is_configurable,
    the_limit_of_user_sessions_covers_all_nodes,
    connections_to_nats_are_encrypted_as_configured,
    the_client_certificate_is_sent_to_nats,
];
