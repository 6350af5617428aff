//! `dunlin replay`: ticks, objects, events and differences of recordings. The tests create the recordings.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::ExitStatusExt as _,
    process::{Command, Stdio},
};

use dunlin_games::Registry;
use dunlin_protocol::Encoding;
use dunlin_rooms::{
    PlayerId, Room, RoomOptions, Visitor,
    recording::{Carried, Header, Recorder},
};
use serde_json::{Value, json};

use super::{Folder, dunlin, stderr, stdout};

const PARAMS: &str = r#"{"columns":4,"rows":4,"treasures":5,"obstacles":5,"leaderboard_channel":"leaders"}"#;
const SEED: u64 = 77;

/// Records a hunt of `ticks` ticks. Ada joins, and sends `walk` in tick 4.
fn record(folder: &Folder, name: &str, ticks: u32, walk: [u8; 3]) -> String {
    let options = RoomOptions::default();
    let header = Header {
        simulation: "treasure_hunt".to_owned(),
        params: PARAMS.to_owned(),
        seed: SEED,
        channel: String::new(),
        options,
    };
    let params = serde_json::from_str(PARAMS).expect("parameters");
    let hunt = Registry::built_in().make("treasure_hunt", &params).expect("it is known").expect("good parameters");
    let mut room = Room::new(header.options.clone(), SEED, hunt).expect("a map");
    let mut recorder = Recorder::new(&header, Vec::new());
    for tick in 1..=ticks {
        if tick == 1 {
            let (visitor, data) = (Visitor::of_user("ada"), br#"{"name":"Ada"}"#);
            recorder.join(&visitor, Encoding::Json, data);
            room.join(&visitor, Encoding::Json, data).expect("there is room");
        }
        if tick == 4 {
            recorder.input(PlayerId(1), 1, &walk);
            room.input(PlayerId(1), 1, &walk);
        }
        room.tick(0);
        recorder.tick(&room);
    }
    let path = folder.0.join(name);
    fs::write(&path, recorder.written()).expect("a temporary file");
    path.display().to_string()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_tick_its_objects_and_its_events_are_printed() {
    let folder = Folder::new("replay-state");
    let file = record(&folder, "a", 10, [0, 127, 0]);
    let whole = dunlin(&folder, &["replay", &file]);
    let end = "10 ticks, 10 hashes compared, all equal; 1 players and 13 objects at the end\n";
    assert_eq!(stdout(&whole), format!("{file}: \"treasure_hunt\" with seed 77\n{end}"), "{}", stderr(&whole));

    let run = |args: &[&str]| {
        let output = dunlin(&folder, &[&["replay", &file, "-o", "json"], args].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        lines(stdout(&output))
    };
    let walked = |tick: &str| {
        let [end] = &run(&["--tick", tick, "--objects"])[..] else { panic!("one line") };
        assert_eq!((end["tick"].to_string().as_str(), end["seed"].as_u64()), (tick, Some(SEED)));
        let objects = end["objects"].as_array().expect("objects");
        assert_eq!((objects.len() as u64, end["object_count"].as_u64()), (13, Some(13)));
        let avatar = objects.iter().find(|object| object["kind"] == 1).expect("an avatar");
        assert_eq!(avatar["visibility"], "everyone");
        (avatar["x"].as_u64().expect("x"), avatar["state"].as_str().expect("a state").to_owned())
    };
    let (before, after) = (walked("3"), walked("4"));
    assert_eq!((before.1.get(2..6), after.1.get(2..6)), (Some("0000"), Some("7f00")));
    assert!(after.0 > before.0, "{before:?} {after:?}");

    let events = run(&["--events"]);
    assert!(events.iter().any(|line| line["players"] == json!([1]) && line["event"]["welcome"]["name"] == "Ada"));
    assert!(events.iter().any(|line| line["channel"] == "leaders" && line["tick"] == 1));
    assert_eq!(run(&["--events", "--tick", "2"]).len(), 1, "the summary alone");
    let text = dunlin(&folder, &["replay", &file, "--tick", "1", "--events", "--objects"]);
    for part in
        ["tick 1: event for players [1]: {\"welcome\":", "tick 1: publication in \"leaders\": {", "object 1: kind "]
    {
        assert!(stdout(&text).contains(part), "{part}: {}", stdout(&text));
    }
}

#[test]
fn the_steps_of_all_ticks_or_of_one_are_printed() {
    let folder = Folder::new("replay-steps");
    let file = record(&folder, "a", 6, [0, 127, 0]);
    let text = dunlin(&folder, &["replay", &file, "--steps"]);
    let text: Vec<&str> = stdout(&text).lines().filter(|line| line.starts_with("tick ")).collect();
    let join = r#"tick 1: user "ada" joins as a player with data 7b226e616d65223a22416461227d: is player 1"#;
    assert_eq!(text, [join, "tick 4: player 1 sends input 1: 007f00"]);
    let in_json = |args: &[&str]| {
        let output = dunlin(&folder, &[&["replay", &file, "--steps", "-o", "json"], args].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        lines(stdout(&output)).into_iter().filter(|line| line["step"].is_string()).collect::<Vec<_>>()
    };
    let visitor = json!({
        "user": "ada", "client": "", "info": "", "spectator": false, "address": null, "encoding": "json",
    });
    let joins = json!({
        "tick": 1, "step": "join", "visitor": visitor, "data": "7b226e616d65223a22416461227d", "player": 1,
    });
    let walks = json!({ "tick": 4, "step": "input", "player": 1, "number": 1, "data": "007f00" });
    assert_eq!(in_json(&[]), [joins, walks.clone()]);
    assert_eq!(in_json(&["--tick", "4"]), [walks]);
    assert_eq!(in_json(&["--tick", "5"]), Vec::<Value>::new());
}

/// Records a hunt as [`record`] does, and what Ada's connection has carried.
fn record_connection(folder: &Folder) -> String {
    let plain = record(folder, "plain", 10, [0, 127, 0]);
    let mut bytes = fs::read(plain).expect("a recording");
    let header = Header::read(&bytes).expect("a header");
    let mut told = Recorder::new(&header, Vec::new());
    let header_bytes = told.written().len();
    let sent = Carried { is_sent: true, ..Carried::default() };
    told.carried(PlayerId(1), Carried { had_tick: 3, tick: 8, waited_ticks: 4, ..sent });
    told.carried(PlayerId(1), Carried { had_tick: 8, tick: 9, zone_ages_ticks: [0, 0, 2, 6], ..sent });
    // Before the last tick: a record of a tick has nine bytes.
    let at = bytes.len() - 9;
    bytes.splice(at..at, told.written()[header_bytes..].iter().copied());
    let path = folder.0.join("told");
    fs::write(&path, bytes).expect("a temporary file");
    path.display().to_string()
}

#[test]
fn what_a_connection_carried_is_printed_and_answered() {
    let folder = Folder::new("replay-carried");
    let file = record_connection(&folder);
    let text = dunlin(&folder, &["replay", &file, "--steps", "--tick", "10"]);
    let told: Vec<&str> = stdout(&text).lines().filter(|line| line.contains(": player 1 ")).collect();
    assert_eq!(
        told,
        [
            "tick 10: player 1 was sent tick 8 after tick 3, 4 ticks skipped because its connection had not taken the \
             last snapshot",
            "tick 10: player 1 was sent tick 9 after tick 8, zone 2 waits since tick 7 for its bandwidth limit, zone 3 \
             waits since tick 3 for its bandwidth limit",
        ],
        "{}",
        stdout(&text)
    );
    let text = dunlin(&folder, &["replay", &file, "--steps", "-o", "json"]);
    let told: Vec<Value> = lines(stdout(&text)).into_iter().filter(|line| line["step"] == "carried").collect();
    let gap = json!({
        "tick": 10, "step": "carried", "player": 1, "had_tick": 3, "sent_tick": 8, "paced_ticks": 0, "limited_ticks": 0,
        "waited_ticks": 4, "waited_for": "connection", "zones_wait_since": [null, null, null, null],
    });
    let zones = json!({
        "tick": 10, "step": "carried", "player": 1, "had_tick": 8, "sent_tick": 9, "paced_ticks": 0, "limited_ticks": 0,
        "waited_ticks": 0, "waited_for": null, "zones_wait_since": [null, null, 7, 3],
    });
    assert_eq!(told, [gap, zones]);

    // It is no difference of the rooms.
    let plain = folder.0.join("plain").display().to_string();
    let equal = dunlin(&folder, &["replay", &plain, "--diff", &file]);
    assert_eq!(stdout(&equal), "no tick differs; the recordings have 10 and 10 ticks\n", "{}", stderr(&equal));

    // The answers for a page have what the player had at each tick.
    let mut child = Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .args(["replay", &file, "--answers", "67108864"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(b"{\"from\":1,\"count\":10}\n").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let [index, ticks] = &lines(stdout(&output))[..] else { panic!("{output:?}") };
    assert_eq!(index["index"]["tells_of_connections"], true);
    let frames = ticks["ticks"]["frames"].as_array().expect("ticks");
    let had: Vec<_> = frames.iter().map(|frame| frame["players"][0]["had"].clone()).collect();
    let behind = json!({ "tick": 3, "why": "connection", "from": 4, "to": 7 });
    let waiting = json!({ "tick": 9, "zones": [null, null, 7, 3] });
    assert_eq!(had[3..7], [behind.clone(), behind.clone(), behind.clone(), behind]);
    assert_eq!((&had[2], &had[7], &had[8], &had[9]), (&Value::Null, &Value::Null, &waiting, &Value::Null));
}

#[test]
fn a_tick_past_the_end_is_an_error() {
    let folder = Folder::new("replay-end");
    let file = record(&folder, "a", 3, [0, 1, 0]);
    assert!(dunlin(&folder, &["replay", &file, "--tick", "3"]).status.success());
    let past = dunlin(&folder, &["replay", &file, "--tick", "4"]);
    assert_eq!((past.status.code(), stdout(&past).lines().count()), (Some(1), 1));
    assert!(stderr(&past).contains("has no tick 4: the last one is 3"), "{}", stderr(&past));
}

#[test]
fn the_first_difference_of_two_recordings_is_shown() {
    let folder = Folder::new("replay-diff");
    let [one, longer] = [("a", 8), ("b", 20)].map(|(name, ticks)| record(&folder, name, ticks, [0, 127, 0]));
    let other = record(&folder, "c", 8, [0, 0, 127]);
    let equal = dunlin(&folder, &["replay", &one, "--diff", &longer]);
    assert_eq!(stdout(&equal), "no tick differs; the recordings have 8 and 20 ticks\n", "{}", stderr(&equal));

    let different = dunlin(&folder, &["replay", &one, "--diff", &other]);
    assert_eq!(different.status.code(), Some(1));
    for part in [
        "tick 4 is the first that differs: ",
        "only in the first: player 1 sends input 1: 007f00",
        "only in the second: player 1 sends input 1: 00007f",
        ", first: kind 1 at ",
    ] {
        assert!(stdout(&different).contains(part), "{part}: {}", stdout(&different));
    }
    assert!(stderr(&different).contains("after tick 4"), "{}", stderr(&different));

    let json = dunlin(&folder, &["replay", &one, "--diff", &other, "-o", "json"]);
    let [difference] = &lines(stdout(&json))[..] else { panic!("one line") };
    assert_eq!((&difference["tick"], &difference["equal"]), (&json!(4), &json!(false)));
    assert_eq!(difference["players"], json!([[], []]));
    let objects = difference["objects"].as_array().expect("objects");
    assert!(!objects.is_empty() && objects.iter().all(|object| object["objects"][0] != object["objects"][1]));
    let unusable = dunlin(&folder, &["replay", &one, "--diff", "/dev/zero"]);
    assert!(stderr(&unusable).contains("/dev/zero: is not a regular file"), "{}", stderr(&unusable));
}

#[test]
fn a_recording_is_played_to_another_simulation() {
    let folder = Folder::new("replay-with");
    let file = record(&folder, "a", 10, [0, 127, 0]);
    let same = dunlin(&folder, &["replay", &file, "--with", "treasure_hunt"]);
    assert!(same.status.success(), "{}", stderr(&same));
    let printed: Vec<&str> = stdout(&same).lines().collect();
    assert_eq!((printed.len(), printed[0]), (4, "nothing differs in 10 ticks"), "{printed:?}");
    for (name, expected) in [
        ("chess", r#"unknown simulation "chess": this program has crowd, tag, treasure_hunt"#),
        ("tag", r#"simulation "tag": "#),
    ] {
        let refused = dunlin(&folder, &["replay", &file, "--with", name]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(stderr(&refused).contains(expected), "{}", stderr(&refused));
    }
}

#[test]
fn a_recording_is_locked_while_it_is_replayed() {
    let folder = Folder::new("replay-lock");
    let file = record(&folder, "a", 10, [0, 127, 0]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .args(["replay", &file, "--answers", "67108864"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut index = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut index).expect("an index");
    let recording = fs::File::open(&file).expect("the recording");
    assert!(matches!(recording.try_lock(), Err(fs::TryLockError::WouldBlock)), "{index}");
    drop(child.stdin.take());
    child.wait().expect("it ends");
    recording.try_lock().expect("nobody replays it");
}

/// What the console of a node starts.
#[test]
fn questions_are_answered_within_the_memory_that_is_given() {
    let folder = Folder::new("replay-answers");
    let file = record(&folder, "a", 10, [0, 127, 0]);
    let answers = |file: &str, memory: &str, questions: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dunlin"))
            .args(["replay", file, "--answers", memory])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        // It reads nothing if it has no memory.
        let _ = child.stdin.take().expect("a pipe").write_all(questions.as_bytes());
        child.wait_with_output().expect("it ends")
    };
    let output = answers(&file, "67108864", "{\"from\":9,\"count\":5}\n{\"from\":12,\"count\":1}\nnonsense\n");
    let [index, ticks, beyond, nonsense] = &lines(stdout(&output))[..] else { panic!("{output:?}") };
    assert_eq!((&index["index"]["ticks"], &index["index"]["end"]), (&json!(10), &Value::Null));
    let frames = ticks["ticks"]["frames"].as_array().expect("ticks");
    assert_eq!(frames.iter().map(|frame| frame["tick"].clone()).collect::<Vec<_>>(), [9, 10]);
    assert_eq!(beyond["error"], "there is no such tick");
    assert!(nonsense["error"].as_str().is_some_and(|why| why.starts_with("expected")), "{nonsense}");

    // The same from standard input, and a file that nobody deletes meanwhile.
    let bytes = fs::read(&file).expect("the recording");
    let mut child = Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .args(["replay", "-", "--answers", "67108864", "--recording-bytes", &bytes.len().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&bytes).and_then(|()| stdin.write_all(b"{\"from\":9,\"count\":1}\n")).expect("it reads");
    drop(stdin);
    let fed = child.wait_with_output().expect("it ends");
    let [fed_index, fed_ticks] = &lines(stdout(&fed))[..] else { panic!("{fed:?}") };
    assert_eq!((fed_index, &fed_ticks["ticks"]["frames"][0]), (index, &frames[0]));

    let crowd = Header {
        simulation: "crowd".to_owned(),
        params: r#"{"objects":100000}"#.to_owned(),
        seed: SEED,
        channel: String::new(),
        options: RoomOptions::default(),
    };
    let crowd_file = folder.0.join("crowd");
    fs::write(&crowd_file, Recorder::new(&crowd, Vec::new()).written()).expect("a temporary file");
    let answers = |memory: &str| answers(&crowd_file.display().to_string(), memory, "");
    let [index] = &lines(stdout(&answers("1073741824")))[..] else { panic!("one line") };
    assert_eq!(index["index"]["ticks"], 0);
    let starved = answers("4194304");
    assert_eq!(starved.status.signal(), Some(libc::SIGABRT), "{starved:?}");
    assert_eq!(stdout(&starved), "");
}
