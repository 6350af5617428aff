//! Recordings in the console: they are listed, opened, replayed in a process of their own, and closed.
//! `tests/browser/console.test.mjs` looks at the page.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    cli::Folder,
    each_reactor,
    http::{
        console::{ask, sign_in},
        observation::until,
        server::{Answer, Server},
    },
};

const PASSWORD: &str = "of-operators";
const READ_ONLY: &str = "of-readers";

/// A quarter of the least memory that a replay may have.
const RECORDING_BYTES_MAX: u64 = 16 << 20;

/// A node whose rooms are recorded, with one room that is open and somebody who may look.
struct Recorded {
    server: Server,
    recordings: PathBuf,
    reader: String,
    _folder: Folder,
}

impl Recorded {
    fn start(name: &str, admin: &Value) -> Self {
        Self::start_with(name, admin, 0)
    }

    /// `bytes_max` limits the recordings; 0: nothing does.
    fn start_with(name: &str, admin: &Value, bytes_max: u64) -> Self {
        let folder = Folder::new(&format!("console-replays-{name}-{}", each_reactor::current_name()));
        let recordings = folder.0.join("recordings");
        let mut keys = json!({ "enabled": true, "password": PASSWORD, "read_only_password": READ_ONLY });
        keys.as_object_mut().expect("an object").extend(admin.as_object().expect("an object").clone());
        let room = json!({
            "simulation": "crowd", "params": { "objects": 3, "columns": 4 }, "record_directory": recordings,
            "record_bytes_max": bytes_max,
        });
        let server = Server::start(&json!({
            "admin": keys,
            "channel": { "namespaces": [{ "name": "arena", "room": room, "history_size": 10, "history_ttl": "1m" }] },
        }));
        let opened = server.ask("POST", "/api/room_open", &json!({ "channel": "arena:1" }).to_string()).json();
        assert_eq!(opened, json!({ "result": {} }));
        let reader = sign_in(&server, READ_ONLY);
        Self { server, recordings, reader, _folder: folder }
    }

    fn get(&self, path: &str) -> Answer {
        ask(&self.server, "GET", &format!("data/{path}"), &self.reader, "")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        ask(&self.server, "POST", &format!("data/{path}"), &self.reader, &body.to_string())
    }

    /// The name of the recording of the room.
    fn file(&self) -> String {
        let mut listed = json!(null);
        until(|| {
            listed = self.post("recordings", &json!({ "channel": "arena:1" })).json();
            listed["recordings"][0]["bytes"].as_u64().is_some_and(|bytes| bytes > 0)
        });
        assert_eq!(listed["recordings"][0]["simulation"], "crowd", "{listed}");
        listed["recordings"][0]["file"].as_str().expect("a name").to_owned()
    }

    fn open(&self, file: &str) -> Answer {
        self.post("replay", &json!({ "file": file }))
    }

    /// Opens a recording and waits until it has been replayed; its id, and the last answer about it.
    fn replay(&self, file: &str) -> (String, Answer) {
        let opened = self.open(file);
        assert_eq!(opened.status, 200, "{opened:?}");
        let id = opened.json()["replay"].as_str().expect("an id").to_owned();
        let mut answer = self.get(&format!("replay?id={id}"));
        until(|| {
            answer = self.get(&format!("replay?id={id}"));
            answer.status != 202
        });
        (id, answer)
    }

    /// Why a file cannot be replayed. Closes it again.
    fn fault(&self, name: &str, bytes: &[u8]) -> String {
        fs::write(self.recordings.join(name), bytes).expect("a file");
        let (id, answer) = self.replay(name);
        assert_eq!(answer.status, 422, "{answer:?}");
        self.close(&id);
        answer.json()["refused"].as_str().expect("a reason").to_owned()
    }

    fn close(&self, id: &str) {
        assert_eq!(self.post("replay_close", &json!({ "id": id })).status, 200);
        until(|| self.get(&format!("replay?id={id}")).status == 404);
    }

    fn call(&self, method: &str, channel: &str) -> Value {
        let body = json!({ "channel": channel }).to_string();
        self.server.ask("POST", &format!("/api/{method}"), &body).json()["result"].take()
    }

    /// Opens a room, and closes it when it has been recorded a little.
    fn record(&self, channel: &str) {
        assert_eq!(self.call("room_open", channel), json!({}));
        until(|| self.call("room_info", channel)["tick"].as_u64().is_some_and(|tick| tick > 2));
        assert_eq!(self.call("room_close", channel)["num_players"], 0);
    }

    fn is_one_open(&self) -> bool {
        self.server.metric("dunlin_console_replays") > 0.5
    }
}

#[test]
fn a_running_room_is_replayed_up_to_now_and_the_log_says_for_whom() {
    let mut recorded = Recorded::start("running", &json!({}));
    let file = recorded.file();
    let (id, answer) = recorded.replay(&file);
    let index = answer.json();
    assert_eq!((&index["channel"], &index["simulation"]), (&json!("arena:1"), &json!("crowd")), "{index}");
    let ticks = index["ticks"].as_u64().expect("a number");
    assert!(ticks > 0, "{index}");
    assert!(recorded.is_one_open());

    let ticks_of = |query: &str| recorded.get(&format!("replay_ticks?id={id}&{query}"));
    let frames = ticks_of(&format!("from={ticks}&count=2")).json()["frames"].clone();
    assert_eq!((frames.as_array().map(Vec::len), &frames[0]["tick"]), (Some(1), &json!(ticks)), "the last tick");
    assert_eq!(frames[0]["objects"].as_array().map(Vec::len), Some(3));
    assert_eq!(ticks_of("from=4000000000&count=1").status, 422);
    for nonsense in ["from=1", "from=-1&count=1", "from=x&count=1"] {
        assert_eq!(ticks_of(nonsense).status, 400, "{nonsense}");
    }

    recorded.close(&id);
    until(|| !recorded.is_one_open());
    assert_eq!(recorded.get(&format!("replay_ticks?id={id}&from=1&count=1")).status, 404);
    let logged = recorded.server.logged("console: action");
    assert_eq!(
        (&logged["action"], &logged["role"], &logged["outcome"]),
        (&json!("replay"), &json!("reader"), &json!("done"))
    );
    assert_eq!(logged["target"], format!("file={}", json!(file)));
}

#[test]
fn as_many_are_open_as_may_be_and_one_more_waits_for_its_place() {
    let recorded = Recorded::start("limit", &json!({ "replays_limit": 2 }));
    let file = recorded.file();
    let ids = [recorded.replay(&file).0, recorded.replay(&file).0];
    let refused = recorded.open(&file);
    assert_eq!(refused.status, 503);
    let why = "2 recordings are open already (admin.replays_limit): close one of them";
    assert_eq!(refused.json()["refused"], why);
    assert!(recorded.server.metric("dunlin_http_refused_total{reason=\"replays\"}") > 0.5);
    recorded.close(&ids[0]);
    assert_eq!(recorded.open(&file).status, 200);
    assert_eq!(recorded.get(&format!("replay?id={}", ids[1])).status, 200, "the other one is as it was");
}

#[test]
fn a_sign_in_leaves_places_to_others_and_ends_its_replays_when_it_signs_out() {
    let recorded = Recorded::start("sign-ins", &json!({ "replays_limit": 3, "sign_in_replays_limit": 1 }));
    let file = recorded.file();
    recorded.replay(&file);
    let refused = recorded.open(&file);
    let why = "your limit of 1 open recordings is reached (admin.sign_in_replays_limit): close one of them";
    assert_eq!((refused.status, &refused.json()["refused"]), (503, &json!(why)));
    let other = sign_in(&recorded.server, PASSWORD);
    let body = json!({ "file": file }).to_string();
    assert_eq!(ask(&recorded.server, "POST", "data/replay", &other, &body).status, 200);
    assert!(recorded.server.metric("dunlin_console_replays") > 1.5);
    assert_eq!(recorded.post("sign_out", &json!({})).status, 200);
    until(|| recorded.server.metric("dunlin_console_replays") < 1.5);
}

#[test]
fn a_page_that_asks_for_nothing_says_so_without_the_index() {
    let recorded = Recorded::start("touch", &json!({}));
    let (id, _) = recorded.replay(&recorded.file());
    let touched = recorded.get(&format!("replay_touch?id={id}"));
    assert_eq!((touched.status, touched.text()), (200, "{}".to_owned()));
    recorded.close(&id);
    assert_eq!(recorded.get(&format!("replay_touch?id={id}")).status, 404);
}

#[test]
fn a_node_may_open_none() {
    let recorded = Recorded::start("none", &json!({ "replays_limit": 0 }));
    let refused = recorded.open(&recorded.file());
    assert_eq!(
        (refused.status, &refused.json()["refused"]),
        (503, &json!("this node replays no recordings (admin.replays_limit)"))
    );
}

#[test]
fn the_oldest_recordings_give_way_but_not_one_that_is_replayed() {
    const BYTES_MAX: u64 = 8_000;
    let recorded = Recorded::start_with("retention", &json!({}), BYTES_MAX);
    let file = recorded.file();
    assert_eq!(recorded.call("room_close", "arena:1")["num_players"], 0);
    let (id, _) = recorded.replay(&file);
    let deleted = || recorded.server.metric("dunlin_room_recordings_deleted_total{outcome=\"size\"}");
    let mut rooms = (2..).map(|number| format!("arena:{number}"));
    while deleted() < 1.5 {
        recorded.record(&rooms.next().expect("there is no end"));
    }
    let oldest = recorded.recordings.join(&file);
    assert!(oldest.exists(), "younger ones were deleted");
    assert!(recorded.server.metric("dunlin_room_recordings_bytes") < BYTES_MAX as f64 + 0.5);
    recorded.close(&id);
    while oldest.exists() {
        recorded.record(&rooms.next().expect("there is no end"));
    }
    let on_disk = fs::read_dir(&recorded.recordings).expect("a directory");
    let bytes: u64 = on_disk.map(|file| file.and_then(|file| file.metadata()).map_or(0, |about| about.len())).sum();
    assert!(bytes <= BYTES_MAX, "{bytes}");
}

#[test]
fn what_cannot_be_replayed_says_why() {
    let recorded = Recorded::start("faults", &json!({ "replay_memory_limit": 4 * RECORDING_BYTES_MAX }));
    let whole = fs::read(recorded.recordings.join(recorded.file())).expect("a recording");
    assert_eq!(recorded.fault("a-1.dunlin-room", b"nonsense"), "this is no recording");
    let mut other_version = whole.clone();
    other_version[8] = 200;
    let why = recorded.fault("a-2.dunlin-room", &other_version);
    assert_eq!(why, "recordings of version 200 are not known here");
    assert_eq!(recorded.fault("a-3.dunlin-room", &whole[..20]), "the recording breaks off");
    let unknown = String::from_utf8_lossy(&whole[..60]).into_owned();
    assert!(unknown.contains("crowd"), "{unknown}");
    let place = whole.windows(5).position(|bytes| bytes == b"crowd").expect("its name");
    let mut other_game = whole.clone();
    other_game[place..place + 5].copy_from_slice(b"crows");
    let why = recorded.fault("a-4.dunlin-room", &other_game);
    assert_eq!(why, "unknown simulation \"crows\": this program has crowd, tag, treasure_hunt");

    // Not larger than it may be, and one byte more.
    let large = recorded.recordings.join("a-5.dunlin-room");
    let size = |bytes| {
        fs::File::create(&large).and_then(|file| file.set_len(bytes)).expect("a file");
        let (id, answer) = recorded.replay("a-5.dunlin-room");
        recorded.close(&id);
        answer.json()["refused"].as_str().expect("a reason").to_owned()
    };
    assert_eq!(size(RECORDING_BYTES_MAX), "this is no recording");
    let why = "the recording is larger than 16777216 bytes, the limit of this command";
    assert_eq!(size(RECORDING_BYTES_MAX + 1), why);
}

#[test]
fn only_recordings_are_opened_and_only_for_those_who_have_signed_in() {
    let recorded = Recorded::start("access", &json!({}));
    let file = recorded.file();
    for other in ["../config.json", "/etc/passwd", "a-1.dunlin-room", "", "."] {
        let refused = recorded.open(other);
        assert_eq!(
            (refused.status, &refused.json()["refused"]),
            (404, &json!("this node has no such recording")),
            "{other}"
        );
    }
    let stranger = "X-Dunlin-Console: 1\r\n";
    let body = json!({ "file": file }).to_string();
    for (method, path) in [
        ("POST", "data/recordings"),
        ("POST", "data/replay"),
        ("GET", "data/replay?id=1"),
        ("GET", "data/replay_touch?id=1"),
        ("GET", "data/replay_ticks?id=1&from=1&count=1"),
        ("POST", "data/replay_close"),
    ] {
        assert_eq!(ask(&recorded.server, method, path, stranger, &body).status, 401, "{path}");
    }
    assert_eq!(recorded.get("replay?id=1").status, 404);
    assert_eq!(recorded.get("replay?id=nonsense").status, 404);
    assert_eq!(recorded.get("recordings").status, 405);
}

#[test]
fn a_replay_has_the_lowest_priority_and_none_of_the_node_s_variables_and_ends_with_the_node() {
    let mut recorded = Recorded::start("process", &json!({}));
    recorded.replay(&recorded.file());
    let process = children_of(recorded.server.process()).pop().expect("a process");
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let nice = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().nth(16));
    assert_eq!(nice, Some("19"), "{stat}");
    assert_eq!(fs::read(format!("/proc/{process}/environ")).expect("it runs"), b"");
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).expect("it runs");
    assert!(limits.lines().any(|line| line.starts_with("Max data size") && line.contains("536870912")), "{limits}");
    recorded.server.signal_until_it_ends("KILL");
    until(|| has_ended(process));
}

/// Maybe nobody has waited for it yet.
fn has_ended(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, fields)| fields.trim_start().starts_with('Z'))
}

fn children_of(process: u32) -> Vec<u32> {
    let of_threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let texts = of_threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    texts.flat_map(|text| text.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
}

on_io_uring![
    a_running_room_is_replayed_up_to_now_and_the_log_says_for_whom,
    as_many_are_open_as_may_be_and_one_more_waits_for_its_place,
    a_sign_in_leaves_places_to_others_and_ends_its_replays_when_it_signs_out,
    a_page_that_asks_for_nothing_says_so_without_the_index,
    a_node_may_open_none,
    the_oldest_recordings_give_way_but_not_one_that_is_replayed,
    what_cannot_be_replayed_says_why,
    only_recordings_are_opened_and_only_for_those_who_have_signed_in,
    a_replay_has_the_lowest_priority_and_none_of_the_node_s_variables_and_ends_with_the_node,
];
