//! The server API on two nodes with one NATS server.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
};

use dunlin_proof::nats::NatsServers;
use serde_json::{Value, json};

use crate::{
    cli::Folder,
    each_reactor,
    http::{
        console,
        emulation::open,
        observation::until,
        replays::replay_only_recording,
        server::{Client, Server, handshake, request},
    },
};

/// Of the consoles.
const PASSWORD: &str = "of-operators";

/// Two live nodes of one cluster. A paused node stays live.
struct Pair {
    nodes: [Server; 2],
    /// Has a directory with recordings for each node.
    folder: Folder,
    _nats: NatsServers,
}

impl Pair {
    fn start(survey_timeout: &str) -> Self {
        static PAIRS: AtomicU32 = AtomicU32::new(0);
        let nats = NatsServers::start(1, "");
        let pair = PAIRS.fetch_add(1, Ordering::Relaxed);
        let folder = Folder::new(&format!("cluster-pair-{pair}-{}", each_reactor::current_name()));
        let nodes = ["one", "two"].map(|name| {
            Server::start(&json!({
                "node": { "name": name },
                "http_stream": { "enabled": true },
                "admin": { "enabled": true, "password": PASSWORD, "secret": "of both nodes" },
                "broker": { "enabled": true, "type": "nats", "nats": {
                    "url": nats.urls(),
                    "jetstream": { "replicas": 1, "storage": "memory" },
                    "peers": { "silence_timeout": "10m", "survey_timeout": survey_timeout },
                } },
                "channel": { "namespaces": [{
                    "name": "chat", "presence": true,
                    "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
                    "allow_presence_for_client": true, "allow_presence_for_anonymous": true,
                }, {
                    "name": "game", "history_size": 10, "history_ttl": "1m",
                    "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
                    "room": {
                        "simulation": "crowd", "params": { "objects": 1 }, "empty_timeout": "10m",
                        "record_directory": folder.0.join(name),
                    },
                }] },
            }))
        });
        for node in &nodes {
            until(|| node.metric("dunlin_cluster_peers") > 0.5);
        }
        Self { nodes, folder, _nats: nats }
    }
}

fn call(node: &Server, method: &str, params: &Value) -> Value {
    node.ask("POST", &format!("/api/{method}"), &params.to_string()).json()
}

fn result(node: &Server, method: &str, params: &Value) -> Value {
    let answer = call(node, method, params);
    assert!(answer.get("error").is_none(), "{method} {params}: {answer}");
    answer["result"].clone()
}

/// Opens a session on a node, and subscribes to a channel. Returns the session and its client id.
fn join(node: &Server, channel: &str) -> (Client, String) {
    let mut session = node.connect();
    session.send(handshake(""));
    assert_eq!(session.answer().status, 101);
    session.send_text(r#"{"id":1,"connect":{}}"#);
    let reply = read(&mut session);
    let client = reply["connect"]["client"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned();
    session.send_text(&json!({ "id": 2, "subscribe": { "channel": channel } }).to_string());
    let reply = read(&mut session);
    assert!(reply.get("subscribe").is_some(), "{reply}");
    (session, client)
}

fn read(session: &mut Client) -> Value {
    let (opcode, text) = session.frame();
    assert_eq!(opcode, 0x81, "{text:?}");
    serde_json::from_slice(&text).expect("a reply in JSON")
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn api_reads_cover_all_nodes() {
    let pair = Pair::start("15s");
    let [one, two] = &pair.nodes;
    let (_here, here) = join(one, "chat:1");
    let (_there, there) = join(two, "chat:1");
    let (_other, _) = join(two, "chat:2");
    for node in [one, two] {
        let presence = result(node, "presence", &json!({ "channel": "chat:1" }));
        let mut expected = [here.as_str(), there.as_str()];
        expected.sort_unstable();
        assert_eq!(keys(&presence["presence"]), expected);
        assert_eq!(presence.get("partial"), None);
        // Both sessions belong to the anonymous user.
        let stats = result(node, "presence_stats", &json!({ "channel": "chat:1" }));
        assert_eq!(stats, json!({ "num_clients": 2, "num_users": 1 }));
        let channels = result(node, "channels", &json!({}));
        assert_eq!(channels, json!({ "channels": { "chat:1": { "num_clients": 2 }, "chat:2": { "num_clients": 1 } } }));
        let some = result(node, "channels", &json!({ "pattern": "*:2" }));
        assert_eq!(keys(&some["channels"]), ["chat:2"]);
        let info = result(node, "info", &json!({}));
        let nodes = info["nodes"].as_array().expect("a list");
        let mut counts: Vec<_> =
            nodes.iter().map(|node| (node["name"].as_str(), node["num_clients"].as_u64())).collect();
        counts.sort_unstable();
        assert_eq!(counts, [(Some("one"), Some(1)), (Some("two"), Some(2))]);
        assert_eq!(result(node, "rooms", &json!({})), json!({ "rooms": {} }));
    }
    // An unknown channel is an error on any node.
    assert_eq!(call(one, "presence", &json!({ "channel": "none:1" }))["error"]["code"], 102);
    assert!((0.5..1.5).contains(&one.metric("dunlin_cluster_peers")));
}

#[test]
fn rooms_of_all_nodes_are_listed_in_one_order() {
    let pair = Pair::start("15s");
    let [one, two] = &pair.nodes;
    for (node, channels) in [(one, [1, 3, 4]), (two, [2, 5, 6])] {
        for number in channels {
            let body = json!({ "channel": format!("game:{number}"), "max_players": number });
            assert_eq!(result(node, "room_open", &body), json!({}));
        }
    }
    // A room is open on one node.
    let refused = call(two, "room_open", &json!({ "channel": "game:3" }));
    assert_eq!(refused["error"]["code"], 107, "{refused}");
    for node in [one, two] {
        let (mut cursor, mut seen, mut pages) = (json!(""), Vec::new(), 0);
        while !cursor.is_null() {
            let page = result(node, "room_list", &json!({ "namespace": "game", "limit": 2, "cursor": cursor }));
            assert_eq!(page.get("partial"), None);
            for room in page["rooms"].as_array().expect("a list") {
                seen.push((room["max_players"].as_u64().expect("a number"), room["node"]["name"].clone()));
            }
            (cursor, pages) = (page["more"].clone(), pages + 1);
        }
        let numbers: Vec<_> = seen.iter().map(|(number, _)| *number).collect();
        assert_eq!((&numbers[..], pages), (&[1, 2, 3, 4, 5, 6][..], 3));
        assert_ne!(seen[2].1, seen[4].1, "the rooms are on two nodes");
        let filtered = result(node, "room_list", &json!({ "pattern": "game:*", "min_free_places": 4 }));
        assert_eq!(filtered["rooms"].as_array().map(Vec::len), Some(3), "{filtered}");
        let info = |channel: &str| result(node, "room_info", &json!({ "channel": channel }));
        assert_eq!((&info("game:5")["node"]["name"], &info("game:1")["node"]["name"]), (&json!("two"), &json!("one")));
        assert_eq!(info("game:3").get("further_rooms"), None);
        assert_eq!(call(node, "room_info", &json!({ "channel": "game:9" }))["error"]["code"], 104);
        assert_eq!(call(node, "room_info", &json!({ "channel": "chat:1" }))["error"]["code"], 108);
        assert_eq!(call(node, "room_info", &json!({ "channel": "none:1" }))["error"]["code"], 102);
    }
}

#[test]
fn clients_see_the_presence_of_all_nodes() {
    let pair = Pair::start("15s");
    let [one, two] = &pair.nodes;
    let (mut session, here) = join(one, "chat:1");
    let (_there, there) = join(two, "chat:1");
    session.send_text(r#"{"id":3,"presence":{"channel":"chat:1"}}"#);
    let reply = read(&mut session);
    let mut expected = [here.as_str(), there.as_str()];
    expected.sort_unstable();
    assert_eq!(keys(&reply["presence"]["presence"]), expected, "{reply}");
    session.send_text(r#"{"id":4,"presence_stats":{"channel":"chat:1"}}"#);
    assert_eq!(read(&mut session), json!({ "id": 4, "presence_stats": { "num_clients": 2, "num_users": 1 } }));
}

#[test]
fn a_request_reaches_the_session_of_another_node() {
    let pair = Pair::start("15s");
    let [one, two] = &pair.nodes;
    let (mut stream, reply) = open(two);
    let connect = &reply["connect"];
    let emulate = |node: &str, session: &Value| {
        let body = json!({ "node": node, "session": session, "data": r#"{"id":2,"presence":{"channel":"chat:1"}}"# });
        one.ask("POST", "/emulation", &body.to_string()).status
    };
    let node = connect["node"].as_str().expect("a node");
    assert_eq!(emulate(node, &connect["session"]), 204);
    until(|| stream.line().contains(r#"{"id":2,"#));
    assert_eq!(emulate(node, &json!("nobody")), 204, "it may have ended");
    assert_eq!(emulate("another", &connect["session"]), 404);
}

#[test]
fn nothing_is_forwarded_for_a_session_that_the_other_node_has_not_issued() {
    let pair = Pair::start("15s");
    let [one, two] = &pair.nodes;
    let (_stream, reply) = open(two);
    let connect = &reply["connect"];
    let (node, session) = (connect["node"].as_str().expect("a node"), connect["session"].as_str().expect("a session"));
    let (id, tag) = session.rsplit_once('-').expect("a tag");
    let surveys = one.metric("dunlin_cluster_surveys_total");
    for made_up in [id.to_owned(), format!("1{id}-{tag}"), format!("{id}-{}", "0".repeat(tag.len())), "0-1-0-a".into()]
    {
        let body = json!({ "node": node, "session": made_up, "data": "{}" });
        assert_eq!(one.ask("POST", "/emulation", &body.to_string()).status, 204, "{made_up}");
    }
    assert_eq!(one.metric("dunlin_cluster_surveys_total").to_bits(), surveys.to_bits(), "no survey was sent");
}

#[test]
fn an_address_at_its_limit_of_forwards_leaves_surveys_to_others() {
    let mut pair = Pair::start("15s");
    let [one, two] = &mut pair.nodes;
    let (_stream, reply) = open(two);
    let connect = &reply["connect"];
    let body = json!({ "node": connect["node"], "session": connect["session"], "data": "{}" }).to_string();
    two.signal("STOP");
    // An eighth of the limit of 128 waits for the node that does not answer.
    let waiting: Vec<Client> = (0..16)
        .map(|_| {
            let mut client = one.connect();
            client.send(request("POST", "/emulation", &body));
            client
        })
        .collect();
    until(|| one.ask("POST", "/emulation", &body).status == 503);
    two.signal("CONT");
    for mut client in waiting {
        assert!([204, 503].contains(&client.status()));
    }
    until(|| one.ask("POST", "/emulation", &body).status == 204);
    let refused = r#"dunlin_http_refused_total{reason="forwards"}"#;
    assert!(one.metric(refused) > 0.5);
    assert_eq!(result(one, "info", &json!({})).get("partial"), None);
}

#[test]
fn commands_about_sessions_reach_all_nodes() {
    let pair = Pair::start("15s");
    let [one, two] = &pair.nodes;
    let (mut session, client) = join(two, "chat:1");
    let only = |more: Value| {
        let mut params = json!({ "user": "", "client": client });
        params.as_object_mut().expect("an object").append(&mut more.as_object().expect("an object").clone());
        params
    };
    assert_eq!(result(one, "subscribe", &only(json!({ "channel": "chat:2", "data": { "x": 1 } }))), json!({}));
    let push = read(&mut session);
    assert_eq!((&push["push"]["channel"], &push["push"]["subscribe"]["data"]), (&json!("chat:2"), &json!({ "x": 1 })));
    assert_eq!(result(one, "unsubscribe", &only(json!({ "channel": "chat:1" }))), json!({}));
    let push = read(&mut session);
    assert_eq!((&push["push"]["channel"], &push["push"]["unsubscribe"]["code"]), (&json!("chat:1"), &json!(2000)));
    assert_eq!(result(one, "refresh", &only(json!({ "expire_at": 4_000_000_000_u64 }))), json!({}));
    assert_eq!(read(&mut session)["push"]["refresh"]["expires"], json!(true));
    let close = json!({ "disconnect": { "code": 4001, "reason": "out" } });
    assert_eq!(result(one, "disconnect", &only(close)), json!({}));
    let (opcode, body) = session.frame();
    assert_eq!((opcode, &body[..2], &body[2..]), (0x88, &4001_u16.to_be_bytes()[..], &b"out"[..]));
    assert_eq!(result(two, "channels", &json!({})), json!({ "channels": {} }));
}

#[test]
fn a_silent_node_is_reported_as_missing() {
    let mut pair = Pair::start("200ms");
    let [one, two] = &mut pair.nodes;
    let (_here, here) = join(one, "chat:1");
    let (_there, _) = join(two, "chat:1");
    two.signal("STOP");
    let presence = result(one, "presence", &json!({ "channel": "chat:1" }));
    assert_eq!((keys(&presence["presence"]), &presence["partial"]), (vec![here.as_str()], &json!(true)));
    for (method, params) in [
        ("presence_stats", json!({ "channel": "chat:1" })),
        ("channels", json!({})),
        ("info", json!({})),
        ("rooms", json!({})),
        ("room_list", json!({})),
    ] {
        assert_eq!(result(one, method, &params)["partial"], json!(true), "{method}");
    }
    for method in ["disconnect", "unsubscribe", "refresh", "subscribe", "room_info"] {
        let answer = call(one, method, &json!({ "user": "nobody", "channel": "chat:1" }));
        assert_eq!(answer["error"]["code"], 100, "{method}: {answer}");
        let message = answer["error"]["message"].as_str().expect("a text");
        assert!(message.contains("node two does not answer"), "{message}");
    }
    // On a busy machine, the paused node may no longer be live during the last surveys. They do not wait for it, and
    // are not counted as partial.
    assert!(one.metric("dunlin_cluster_surveys_partial_total") >= 1.0);
    two.signal("CONT");
    until(|| result(one, "presence", &json!({ "channel": "chat:1" })).get("partial").is_none());
    // Surveys do not wait for a node that has shut down.
    two.signal("TERM");
    one.logged("another node has stopped");
    let presence = result(one, "presence", &json!({ "channel": "chat:1" }));
    assert_eq!((keys(&presence["presence"]), presence.get("partial")), (vec![here.as_str()], None));
}

#[test]
fn the_console_of_a_node_shows_all_nodes_and_names_those_without_an_answer() {
    let mut pair = Pair::start("200ms");
    let [one, two] = &mut pair.nodes;
    let (_session, _) = join(two, "chat:1");
    let fields = console::sign_in(one, PASSWORD);
    let status = |node: &Server| console::ask(node, "GET", "data/status", &fields, "").json()["result"].clone();
    let found = |node: &Server| {
        console::ask(node, "POST", "data/channels", &fields, r#"{"find":"chat"}"#).json()["result"].clone()
    };
    for node in [&*one, two] {
        let all = status(node);
        let mut names: Vec<_> = all["nodes"].as_array().expect("nodes").iter().map(|node| &node["name"]).collect();
        names.sort_by_key(ToString::to_string);
        assert_eq!(
            (names, &all["missing"]),
            (vec![&json!("one"), &json!("two")], &json!([])),
            "the sign-in holds on both"
        );
        assert_eq!(found(node)["channels"], json!([{ "channel": "chat:1", "num_clients": 1 }]));
    }
    two.signal("STOP");
    let some = status(one);
    assert_eq!((&some["nodes"][0]["name"], &some["nodes"][1]), (&json!("one"), &Value::Null));
    assert_eq!(some["missing"], json!([{ "node": "two", "why": "does not answer" }]));
    assert_eq!((&found(one)["total"], &found(one)["missing"][0]["node"]), (&json!(0), &json!("two")));
    two.signal("CONT");
    until(|| status(one)["missing"] == json!([]));
}

#[test]
fn a_recording_says_which_players_are_connected_to_another_node() {
    let pair = Pair::start("2s");
    let [one, two] = &pair.nodes;
    assert_eq!(result(two, "room_open", &json!({ "channel": "game:9" })), json!({}));
    let _here = join(two, "game:9");
    let _elsewhere = join(one, "game:9");
    let info = || result(two, "room_info", &json!({ "channel": "game:9" }));
    until(|| info()["num_players"] == 2);
    assert_eq!(result(two, "room_close", &json!({ "channel": "game:9" }))["num_players"], 2);
    let directory = pair.folder.0.join("two");
    let bytes = || fs::read_dir(&directory).ok()?.next()?.ok()?.metadata().ok().map(|metadata| metadata.len());
    until(|| bytes().is_some_and(|bytes| bytes > 0));
    // Another thread writes the file.
    let mut steps = String::new();
    until(|| {
        steps = replay_only_recording(&directory, &["--steps", "-o", "json"]);
        steps.contains("connected_elsewhere")
    });
    let lines = steps.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let elsewhere: Vec<Value> = lines.filter(|line| line["step"] == "connected_elsewhere").collect();
    let [only] = &elsewhere[..] else { panic!("{steps}") };
    assert_eq!(only["player"], 2);
}

#[test]
fn a_recording_of_another_node_is_replayed_here_and_a_node_without_an_answer_is_named() {
    let mut pair = Pair::start("2s");
    let [one, two] = &mut pair.nodes;
    assert_eq!(result(two, "room_open", &json!({ "channel": "game:7" })), json!({}));
    let fields = console::sign_in(one, PASSWORD);
    let post = |path: &str, body: &Value| console::ask(one, "POST", path, &fields, &body.to_string());
    let get = |path: &str| console::ask(one, "GET", path, &fields, "");
    let listed = || post("data/recordings", &json!({ "channel": "game:7" })).json();
    until(|| listed()["recordings"][0]["bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    let recording = listed()["recordings"][0].clone();
    assert_eq!((&recording["node"]["name"], &recording["simulation"]), (&json!("two"), &json!("crowd")));
    assert_eq!((&listed()["directories"], &listed()["missing"]), (&json!(2), &json!([])));

    // More than one part: behind its ticks there is nonsense, at which the replay ends.
    let file = recording["file"].as_str().expect("a name");
    assert_eq!(result(two, "room_close", &json!({ "channel": "game:7" }))["num_players"], 0);
    let path = pair.folder.0.join("two").join(file);
    let mut bytes = fs::read(&path).expect("a recording");
    bytes.resize(bytes.len() + (300 << 10), 0xff);
    fs::write(&path, bytes).expect("the file");
    let by_name = json!({ "file": file, "node": "two" });
    let opened = post("data/replay", &by_name);
    assert_eq!(opened.status, 200, "{opened:?}");
    let id = opened.json()["replay"].as_str().expect("an id").to_owned();
    until(|| get(&format!("data/replay?id={id}")).status != 202);
    let index = get(&format!("data/replay?id={id}")).json();
    assert_eq!(index["channel"], "game:7", "{index}");
    assert!(index["end"].is_string(), "{index}");
    let ticks = get(&format!("data/replay_ticks?id={id}&from=1&count=1")).json();
    assert_eq!(ticks["frames"][0]["tick"], 1, "{ticks}");
    let touched = get(&format!("data/replay_touch?id={id}"));
    assert_eq!((touched.status, touched.text()), (200, "{}".to_owned()), "and not the index");

    for (node, file, why) in [
        ("two", "none-1.dunlin-room", "node two answers with error 104: not found: this node has no such recording"),
        ("two", "../two", "node two answers with error 104: not found: this node has no such recording"),
        ("three", file, "no live node is called three: open the list of recordings again"),
    ] {
        let refused = post("data/replay", &json!({ "file": file, "node": node }));
        assert_eq!((refused.status, &refused.json()["refused"]), (404, &json!(why)));
    }
    two.signal("STOP");
    assert_eq!(listed()["missing"], json!([{ "node": "two", "why": "does not answer" }]));
    let refused = post("data/replay", &by_name);
    assert_eq!((refused.status, &refused.json()["refused"]), (404, &json!("node two does not answer")));
    two.signal("CONT");
    let logged = one.logged("console: action");
    assert_eq!(logged["target"], format!("file={} node=\"two\"", json!(file)), "the first");
}

on_io_uring![
    a_recording_of_another_node_is_replayed_here_and_a_node_without_an_answer_is_named,
    a_recording_says_which_players_are_connected_to_another_node,
    the_console_of_a_node_shows_all_nodes_and_names_those_without_an_answer,
    rooms_of_all_nodes_are_listed_in_one_order,
    api_reads_cover_all_nodes,
    clients_see_the_presence_of_all_nodes,
    a_request_reaches_the_session_of_another_node,
    nothing_is_forwarded_for_a_session_that_the_other_node_has_not_issued,
    an_address_at_its_limit_of_forwards_leaves_surveys_to_others,
    commands_about_sessions_reach_all_nodes,
    a_silent_node_is_reported_as_missing,
];
