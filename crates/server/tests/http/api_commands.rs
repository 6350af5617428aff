//! `dunlin publish` and `dunlin sessions`, on the port that has the API.

use serde_json::{Value, json};

use crate::http::server::{Client, Server};

/// A node whose API is on the public port, on the internal one, or on the public one beside an internal one.
fn start(internal: bool, external: bool) -> Server {
    let [public, operators] = [(); 2].map(|()| dunlin_processes::free_address().expect("a free port").port());
    let mut settings = json!({
        "http_server": { "port": public },
        "http_api": { "external": external },
        "channel": { "namespaces": [
            { "name": "chat", "history_size": 10, "history_ttl": "1m", "presence": true,
              "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true },
            { "name": "plain" },
        ] },
    });
    if internal {
        settings["http_server"]["internal_port"] = operators.into();
    }
    Server::start(&settings)
}

fn subscribe(session: &mut Client, channel: &str) {
    session.send_text(&json!({ "id": 2, "subscribe": { "channel": channel } }).to_string());
    session.frame();
}

/// Runs a command, which succeeds. Returns its output.
fn run(server: &Server, command: &[&str]) -> String {
    let ran = server.run_with(command);
    assert_eq!(ran.code, Some(0), "{command:?}: {}", ran.text);
    ran.text
}

#[test]
fn publications_and_sessions_are_commands_on_each_port_of_the_api() {
    for (internal, external) in [(false, false), (true, false), (true, true)] {
        let server = start(internal, external);
        let mut session = server.open_session();
        subscribe(&mut session, "chat:a");
        let published = run(&server, &["publish", "chat:a", r#"{"text": "hello"}"#, "--tag", "kind=note"]);
        assert!(published.starts_with("published in chat:a: offset 1, epoch "), "{published}");
        let pushed: Value = serde_json::from_slice(&session.frame().1).expect("JSON");
        let publication = &pushed["push"]["pub"];
        assert_eq!((&publication["data"]["text"], &publication["tags"]["kind"]), (&json!("hello"), &json!("note")));
        assert_eq!(run(&server, &["publish", "plain:a", "1"]), "published in plain:a, which has no history\n");
        let once = ["publish", "chat:a", "2", "--idempotency-key", "order-7"];
        assert_eq!(run(&server, &once), run(&server, &once));

        let counted = run(&server, &["sessions"]);
        let line: Vec<_> = counted.lines().nth(1).expect("a node").split_whitespace().skip(1).collect();
        let [sessions, _, subscriptions, channels] = line[..] else { panic!("{counted}") };
        assert_eq!((sessions, subscriptions, channels), ("1", "1", "1"), "{counted}");
        let listed = run(&server, &["sessions", "chat:a"]);
        assert!(listed.starts_with("user  client\n-     ") && listed.lines().count() == 2, "{listed}");
        let json: Value = serde_json::from_str(&run(&server, &["sessions", "--json"])).expect("JSON");
        assert_eq!(json["nodes"][0]["num_clients"], 1);
    }
}

#[test]
fn a_refused_command_says_why() {
    let server = start(true, false);
    for (command, code, expected) in [
        (&["publish", "none:a", "1"][..], 1, "error 102: unknown channel"),
        (&["sessions", "plain:a"], 1, "error 108: not available"),
        (&["publish", "chat:a", "hello"], 2, "the data is not JSON"),
        (&["publish", "chat:a", "1", "--tag", "kind"], 2, "write NAME=VALUE"),
    ] {
        let ran = server.run_with(command);
        assert_eq!(ran.code, Some(code), "{command:?}: {}", ran.text);
        assert!(ran.text.contains(expected), "{command:?}: {}", ran.text);
    }
    server.rewrite(|config| config["http_api"]["key"] = json!("another-key-than-that-of-the-node"));
    let ran = server.run_with(&["sessions"]);
    assert!(ran.code == Some(1) && ran.text.contains("knows none of the keys"), "{}", ran.text);
    server.rewrite(|config| config["http_api"]["previous_key"] = json!(crate::http::server::KEY));
    run(&server, &["sessions"]);
    server.rewrite(|config| config["http_server"]["internal_port"] = json!(1));
    let ran = server.run_with(&["sessions"]);
    assert!(ran.code == Some(1) && ran.text.contains("cannot reach the node"), "{}", ran.text);
}

on_io_uring![publications_and_sessions_are_commands_on_each_port_of_the_api, a_refused_command_says_why,];
