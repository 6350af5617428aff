//! Scenarios that a profile describes: each planted fault of a target is found by its check, mistakes are reported, and
//! the built-in profiles run against the real server.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::faulty_target::{Fault, OwnProcess, start, start_counting, start_process};

/// 100 publications in two channels, to three clients of both.
const PROFILE: &str = r#"
about = "test"
interval = "100ms"
[channels]
count = 2
[[crew]]
name = "publisher"
publish = 200
[[crew]]
name = "readers"
connections = 3
subscribe = "all"
workers = 2
[[phase]]
name = "hold"
duration = "500ms"
"#;

/// A folder for the files of a test. It is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dunlin-bench-test-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for temporary files");
        Folder(path)
    }

    /// Writes a profile and returns its path.
    fn profile(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    fn read(&self, name: &str) -> Value {
        let text = fs::read_to_string(self.0.join(name)).expect("the run has written its result");
        serde_json::from_str(&text).expect("a result is JSON")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Fails only if the folder is already gone.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn bench(arguments: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_dunlin-bench"));
    Command::new(program).args(arguments).output().expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the profile against a target with the fault. Returns the result, the exit code and stderr.
fn run(fault: Fault, gates: &str) -> (Value, Option<i32>, String) {
    run_at(start(fault), gates)
}

fn run_at(target: SocketAddr, gates: &str) -> (Value, Option<i32>, String) {
    let folder = Folder::make();
    let profile = folder.profile("test.toml", PROFILE);
    let (url, json) = (format!("ws://{target}"), folder.0.join("run.json").display().to_string());
    let output = bench(&["run", &profile, "--target", &url, "--gate", gates, "--json", &json, "--quiet", "--no-pin"]);
    let text = stderr(&output);
    assert!(folder.0.join("run.json").exists(), "{text}");
    (folder.read("run.json"), output.status.code(), text)
}

fn figure(result: &Value, name: &str) -> u64 {
    let value = result["figures"][name]["value"].as_f64();
    format!("{}", value.unwrap_or_else(|| panic!("no {name} in {result:#}"))).parse().expect("a whole number")
}

/// The gates about the sequence of publications.
const SEQUENCE: &str = "lost=0,duplicated=0,reordered=0,stray=0,refused=0,closed=0,unanswered=0,unsent=0";

#[test]
fn a_faultless_target_breaks_no_gate() {
    let (result, code, text) = run(Fault::None, &format!("{SEQUENCE},delivered=300,published=100,accepted=100"));
    assert_eq!((code, text.as_str()), (Some(0), ""), "{result:#}");
    assert_eq!(result["partial"], Value::Null);
    let delivered: u64 =
        result["latency"].as_array().expect("pairs").iter().map(|pair| pair[1].as_u64().unwrap()).sum();
    assert_eq!(delivered, 300, "each delivery has a latency");
    let of_intervals = result["intervals"].as_array().expect("a list").iter().map(|one| one["count"].as_u64().unwrap());
    assert_eq!(of_intervals.sum::<u64>(), 300);
}

#[test]
fn each_planted_fault_breaks_its_gate_alone() {
    for (fault, gate, name, value) in [
        (Fault::DropEvery(10), "lost=0", "lost", 30),
        (Fault::Duplicate(50), "duplicated=0", "duplicated", 3),
        (Fault::RefuseEvery(25), "refused=0", "refused", 4),
        // Clients of both channels cannot see from which one it came: to them it is there twice.
        (Fault::Leak(50), "duplicated=0", "duplicated", 3),
    ] {
        let (result, code, text) = run(fault, SEQUENCE);
        assert_eq!(code, Some(3), "{fault:?}: {text}");
        assert_eq!(figure(&result, name), value, "{fault:?}: {result:#}");
        assert_eq!(result["broken"].as_array().map(Vec::len), Some(1), "{fault:?}: {result:#}");
        assert_eq!(result["broken"][0]["gate"], gate);
        assert!(text.contains(&format!("{gate} is broken: {name} was {value}")), "{text}");
    }
}

/// A profile whose connections are opened, and whose first publications are sent, in a phase that is not measured.
const WARM: &str = r#"
about = "test"
[[crew]]
name = "publisher"
publish = 200
[[crew]]
name = "readers"
connections = 3
subscribe = "all"
[[phase]]
name = "warm-up"
duration = "200ms"
measure = false
[[phase]]
name = "hold"
duration = "300ms"
"#;

#[test]
fn what_goes_wrong_before_the_first_measured_phase_breaks_its_gate() {
    let folder = Folder::make();
    let profile = folder.profile("warm.toml", WARM);
    let json = folder.0.join("run.json").display().to_string();
    let gates = format!("{SEQUENCE},connect_failed=0,published<100");
    for (fault, gate, name, value) in [
        (Fault::RefuseSubscription(1), "connect_failed=0", "connect_failed", 1),
        (Fault::Drop(5), "lost=0", "lost", 3),
        (Fault::Duplicate(5), "duplicated=0", "duplicated", 3),
    ] {
        let url = format!("ws://{}", start(fault));
        let output =
            bench(&["run", &profile, "--target", &url, "--gate", &gates, "--json", &json, "--quiet", "--no-pin"]);
        let result = folder.read("run.json");
        assert_eq!(output.status.code(), Some(3), "{fault:?}: {result:#}");
        assert_eq!(figure(&result, name), value, "{fault:?}: {result:#}");
        assert_eq!(result["broken"].as_array().map(Vec::len), Some(1), "{fault:?}: {result:#}");
        assert_eq!(result["broken"][0]["gate"], gate);
        // The 40 publications of the warm-up are not among them.
        assert_eq!(figure(&result, "published"), 60, "{fault:?}: {result:#}");
    }
}

/// The end of a program, or its kill if it takes longer.
fn wait_within(child: &mut Child, patience: Duration) -> Option<i32> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().expect("the program can be waited for") {
            return status.code();
        }
        if Instant::now() > deadline {
            child.kill().expect("the program can be killed");
            child.wait().expect("the program can be waited for");
            panic!("the program has not ended");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn pings_do_not_prolong_the_wait_for_what_is_lost() {
    let folder = Folder::make();
    let profile = folder.profile("test.toml", PROFILE);
    let (url, json) = (format!("ws://{}", start(Fault::DropAndPing(50))), folder.0.join("run.json"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_dunlin-bench"))
        .args(["run", &profile, "--target", &url, "--gate", SEQUENCE, "--quiet", "--no-pin", "--json"])
        .arg(&json)
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    assert_eq!(wait_within(&mut child, Duration::from_mins(1)), Some(3));
    assert_eq!(figure(&folder.read("run.json"), "lost"), 3);
}

#[test]
fn a_refused_publication_that_is_delivered_does_not_hide_a_loss() {
    let (result, code, text) = run(Fault::RefuseAndDrop(20, 60), "lost=0");
    assert_eq!(code, Some(3), "{text}");
    assert_eq!((figure(&result, "refused"), figure(&result, "lost")), (1, 3), "{result:#}");
}

#[test]
fn a_profile_that_fails_does_not_take_the_others_with_it() {
    let folder = Folder::make();
    let bad = folder.profile("bad.toml", &PROFILE.replace("connections = 3", "connections = 900000"));
    let good = folder.profile("good.toml", PROFILE);
    let url = format!("ws://{}", start(Fault::None));
    let (runs, page) = (folder.0.join("runs"), folder.0.join("page.html"));
    let paths = [runs.to_str().expect("it is UTF-8"), page.to_str().expect("it is UTF-8")];
    let output =
        bench(&["run", &bad, &good, "--target", &url, "--runs", paths[0], "--page", paths[1], "--quiet", "--no-pin"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("bad: crew.readers needs 900000 open files") && !text.contains("good: "), "{text}");
    let mut partial = Vec::new();
    for file in fs::read_dir(&runs).expect("the results are there") {
        let result: Value = serde_json::from_slice(&fs::read(file.unwrap().path()).unwrap()).expect("JSON");
        partial.push((result["profile"].as_str().unwrap().to_owned(), result["partial"].is_string()));
    }
    partial.sort();
    assert_eq!(partial, [("bad".to_owned(), true), ("good".to_owned(), false)]);
    let html = fs::read_to_string(&page).expect("the page is written");
    assert!(html.contains("The run ended early: crew.readers needs 900000 open files"), "{html}");
    assert!(html.contains("<h2 id=\"good\">") && html.contains("Latency over time"), "{html}");
}

#[test]
fn a_target_whose_process_ends_makes_the_result_partial() {
    let folder = Folder::make();
    let more = "[[phase]]\nname = \"long\"\nduration = \"10m\"\n[[phase]]\nname = \"third\"\nduration = \"10m\"\n";
    let profile = folder.profile("test.toml", &format!("{PROFILE}{more}"));
    let json = folder.0.join("run.json").display().to_string();
    let url = format!("ws://{}", start(Fault::None));
    // It stands for the process of the target.
    let mut process = Command::new("sleep").arg("1").spawn().expect("it starts");
    let pid = process.id().to_string();
    let reaper = std::thread::spawn(move || process.wait());
    let output =
        bench(&["run", &profile, "--target", &url, "--server-pid", &pid, "--json", &json, "--quiet", "--no-pin"]);
    reaper.join().expect("it does not panic").expect("it has ended");
    let (result, text) = (folder.read("run.json"), stderr(&output));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("test: the server under test ended during the run; read its log"), "{text}");
    assert!(result["partial"].is_string(), "{result:#}");
    assert!(result["phases"].as_array().map(Vec::len) < Some(3), "{result:#}");
}

#[test]
fn an_interrupted_run_writes_what_it_has_and_says_that_it_is_partial() {
    let folder = Folder::make();
    let profile = folder.profile("test.toml", &format!("{PROFILE}[[phase]]\nname = \"long\"\nduration = \"10m\"\n"));
    let (address, published) = start_counting(Fault::None);
    let (url, json) = (format!("ws://{address}"), folder.0.join("run.json"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_dunlin-bench"))
        .args(["run", &profile, "--target", &url, "--no-pin", "--json"])
        .arg(&json)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("hold: ")), "the first phase ends");
    let deadline = Instant::now() + Duration::from_mins(1);
    while published() <= 100 {
        assert!(Instant::now() < deadline, "the second phase does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill starts");
    assert!(killed.success());
    let rest: Vec<String> = lines.collect();
    assert_eq!(wait_within(&mut child, Duration::from_secs(30)), Some(1), "{rest:?}");
    let result = folder.read("run.json");
    assert_eq!(result["partial"], "the run was interrupted");
    // What the second phase has done until then is there as well.
    assert_eq!(result["phases"].as_array().map(Vec::len), Some(2), "{result:#}");
    assert!(figure(&result, "published") > 100, "{result:#}");
    // The last publications may still be on their way, and those of the second phase may be the last ones.
    assert!((300..=3 * figure(&result, "published")).contains(&figure(&result, "delivered")), "{result:#}");
    assert_eq!(figure(&result, "lost"), 0, "{result:#}");
    assert!(rest.iter().any(|line| line.contains("the run was interrupted")), "{rest:?}");
}

/// The port of the server that a run has started; its files are in this folder.
fn port_of_server_in(folder: &Path, child: &mut Child) -> u16 {
    loop {
        let configs = fs::read_dir(folder).expect("a folder").map(|entry| entry.unwrap().path().join("config.json"));
        let texts = configs.filter_map(|config| fs::read_to_string(config).ok());
        let ports = texts.filter_map(|text| serde_json::from_str::<Value>(&text).ok()?["http_server"]["port"].as_u64());
        let mut ports = ports.map(|port| u16::try_from(port).expect("a port"));
        if let Some(port) = ports.find(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok()) {
            return port;
        }
        assert!(child.try_wait().expect("the program can be waited for").is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_interrupted_leaves_nothing_behind() {
    let program = Path::new(env!("CARGO_BIN_EXE_dunlin-bench"));
    dunlin_proof::programs::beside(program, "dunlin");
    let signals_and_arguments: [(u32, &[&str]); 5] = [
        (1, &["compare", "fanout", "fanout", "--short", "--rounds", "1", "--quiet"]),
        (1, &["plan", "--connections", "10", "--publications", "1", "--quiet"]),
        (1, &["idle", "--sessions", "10,20,30,40", "--quiet"]),
        (1, &["fanout", "--subscribers", "5", "--duration", "1m", "--quiet"]),
        // The second one comes while the first one ends the run.
        (2, &["run", "fanout", "--short", "--quiet"]),
    ];
    for (signals, arguments) in signals_and_arguments {
        let (folder, runs) = (Folder::make(), Folder::make());
        let mut child = Command::new(program)
            .args(arguments)
            .args(["--no-pin"])
            .env("TMPDIR", &folder.0)
            .current_dir(&runs.0)
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let port = port_of_server_in(&folder.0, &mut child);
        for _ in 0..signals {
            let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill starts");
            assert!(killed.success());
        }
        assert_eq!(wait_within(&mut child, Duration::from_secs(30)), Some(1), "{arguments:?}");
        // A server that ends with the program may take a moment longer.
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
            assert!(Instant::now() < deadline, "{arguments:?}: the server has not ended");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(fs::read_dir(&folder.0).expect("a folder").count(), 0, "{arguments:?}: its files are gone");
    }
}

#[test]
fn a_server_that_does_not_start_leaves_no_folder() {
    let folder = Folder::make();
    let output = Command::new(env!("CARGO_BIN_EXE_dunlin-bench"))
        .args(["idle", "--sessions", "10,20", "--spawn", "/nonexistent/dunlin", "--quiet", "--no-pin"])
        .env("TMPDIR", &folder.0)
        .output()
        .expect("the program starts");
    assert!(stderr(&output).contains("/nonexistent/dunlin"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(&folder.0).expect("a folder").count(), 0);
}

#[test]
fn publications_in_another_order_are_found() {
    // With one channel, the next publication is of the same stream.
    let folder = Folder::make();
    let profile = folder.profile("test.toml", PROFILE);
    let (url, json) = (format!("ws://{}", start(Fault::Swap(50))), folder.0.join("run.json").display().to_string());
    let one = ["run", &profile, "--target", &url, "--set", "channels.count=1", "--json", &json, "--quiet", "--no-pin"];
    let output = bench(&[&one[..], &["--gate", SEQUENCE]].concat());
    let result = folder.read("run.json");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!((figure(&result, "reordered"), figure(&result, "lost")), (3, 0), "{result:#}");
    assert_eq!((figure(&result, "duplicated"), figure(&result, "delivered")), (0, 300), "{result:#}");
}

#[test]
fn a_client_of_one_channel_finds_publications_of_another() {
    let folder = Folder::make();
    let profile = folder.profile("test.toml", PROFILE);
    let (url, json) = (format!("ws://{}", start(Fault::Leak(50))), folder.0.join("run.json").display().to_string());
    let one = ["run", &profile, "--target", &url, "--set", "crew.readers.subscribe=single", "--json", &json];
    let output = bench(&[&one[..], &["--quiet", "--no-pin", "--gate", SEQUENCE]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let result = folder.read("run.json");
    // Two clients are in channel 0 and one in channel 1.
    assert_eq!((figure(&result, "stray"), figure(&result, "delivered")), (1, 150), "{result:#}");
}

#[test]
fn a_delay_counts_from_the_intended_time() {
    let (result, code, text) = run(Fault::Delay(20, Duration::from_millis(300)), "max<250ms,lost=0");
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("max<250ms is broken: max was"), "{text}");
    // The target stands still for 300 ms, in which 60 publications are due. None of them hides its wait.
    let late = result["latency"].as_array().expect("pairs").iter().filter(|pair| pair[0].as_u64() > Some(100_000));
    let late: u64 = late.map(|pair| pair[1].as_u64().unwrap()).sum();
    assert!(late >= 3 * 30, "{late} deliveries are late: {result:#}");
}

#[test]
fn a_target_that_ends_is_a_broken_gate() {
    // Early, so that a generator that is late has publications left.
    let (result, code, text) = run(Fault::End(2), "closed=0");
    assert_eq!(code, Some(3), "{text}");
    assert_eq!(figure(&result, "closed"), 4, "three readers and the publisher: {result:#}");
    assert!(figure(&result, "unsent") > 0);
}

#[test]
fn neither_a_result_nor_its_page_has_a_secret() {
    let folder = Folder::make();
    let secrets = "[server]\nhttp_api.key = \"s3cret\"\nclient.token.hmac_secret_key = \"s3cret\"\n";
    let profile = folder.profile("test.toml", &format!("{PROFILE}{secrets}"));
    let url = format!("ws://{}/?token=s3cret", start(Fault::None));
    let [json, page] = ["run.json", "page.html"].map(|name| folder.0.join(name).display().to_string());
    let of = ["run", &profile, "--target", &url, "--api-key", "s3cret", "--set", "server.admin.password=s3cret"];
    let output = bench(&[&of[..], &["--json", &json, "--page", &page, "--no-pin"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    for name in ["run.json", "page.html"] {
        let text = fs::read_to_string(folder.0.join(name)).expect("it is written");
        assert!(!text.contains("s3cret") && text.contains("hmac_secret_key"), "{name}: {text}");
    }
    assert!(!stderr(&output).contains("s3cret") && !String::from_utf8_lossy(&output.stdout).contains("s3cret"));
}

#[test]
fn mistakes_are_reported_before_anything_is_started() {
    let folder = Folder::make();
    let wrong = folder.profile("wrong.toml", &PROFILE.replace("workers", "wrokers"));
    let right = folder.profile("right.toml", PROFILE);
    let runs = folder.0.join("runs");
    let runs = runs.to_str().expect("it is UTF-8");
    let cases: [(&[&str], &str); 8] = [
        (&["run", &wrong], "crew.readers.wrokers is unknown; did you mean workers?"),
        (&["run", &right, "--set", "phase.hold.duraton=1s"], "phase.hold.duraton is unknown; did you mean duration?"),
        (&["run", &right, "--gate", "p98<5ms"], "there is no figure p98; did you mean p99?"),
        (&["run", &right, "--gate", ""], "gate \"\": write FIGURE<VALUE"),
        (&["run", "capasity"], "there is no profile capasity; did you mean capacity?"),
        (&["run", &right, "--target", "ws://192.0.2.1:9"], "give --i-own-this-target as well if it is yours to load"),
        (&["run", &right, "--set", "crew.readers.connections=900000"], "crew.readers needs 900000 open files"),
        (&["compare", &right, "dunlin"], "give two of the same kind"),
    ];
    for (arguments, expected) in cases {
        let url = format!("ws://{}", start(Fault::None));
        let more: &[&str] = if arguments.contains(&"--target") { &[] } else { &["--target", &url] };
        let output = bench(&[arguments, more, &["--quiet", "--runs", runs]].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}

#[test]
fn an_unreachable_target_is_reported() {
    let folder = Folder::make();
    let profile = folder.profile("test.toml", PROFILE);
    // Nothing listens at this port of a loopback address.
    let json = folder.0.join("run.json").display().to_string();
    let output = bench(&["run", &profile, "--target", "ws://127.0.0.9:9", "--json", &json, "--quiet"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("refused 1 publishers") && text.contains("connection refused"), "{text}");
    let result = folder.read("run.json");
    assert!(result["partial"].as_str().is_some_and(|why| why.contains("check its address")), "{result:#}");
    assert_eq!(result["figures"], serde_json::json!({}), "nothing was measured");
}

#[test]
fn two_profiles_are_compared_in_turns_and_a_page_is_made() {
    let folder = Folder::make();
    let (a, b) = (folder.profile("a.toml", PROFILE), folder.profile("b.toml", PROFILE));
    let url = format!("ws://{}", start(Fault::None));
    let (json, runs) = (folder.0.join("compare.json").display().to_string(), folder.0.join("runs"));
    let pair = ["compare", &a, &b, "--rounds", "2", "--target", &url, "--json", &json, "--quiet", "--no-pin", "--runs"];
    let output = bench(&[&pair[..], &[runs.to_str().expect("it is UTF-8")]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let comparison = folder.read("compare.json");
    let rate = &comparison["ratios"]["deliveries_per_second"];
    assert_eq!((rate["a"].as_array().map(Vec::len), rate["b"].as_array().map(Vec::len)), (Some(2), Some(2)));
    assert_eq!(comparison["order"], "ABBA");
    assert!(rate["interval"][0].as_f64() <= rate["ratio"].as_f64(), "{comparison:#}");
    let files: Vec<_> = fs::read_dir(&runs).expect("the results are there").map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    let page = folder.0.join("page.html");
    let page_text = page.to_str().expect("it is UTF-8");
    let output = bench(&["report", files[0].to_str().expect("it is UTF-8"), "--output", page_text]);
    assert!(output.status.success(), "{}", stderr(&output));
    let html = fs::read_to_string(&page).expect("the page is written");
    assert!(html.contains("<svg") && html.contains("Latency over time"), "{html}");
    let is_alone = ["src=\"", "<link", "<script", "http://", "https://"].iter().all(|outside| !html.contains(outside));
    assert!(is_alone, "the page needs no other file");
}

/// Runs a built-in profile against a fresh server.
fn built_in(arguments: &[&str]) -> (Value, Output) {
    let program = Path::new(env!("CARGO_BIN_EXE_dunlin-bench"));
    // A run starts the server beside the load generator.
    dunlin_proof::programs::beside(program, "dunlin");
    let folder = Folder::make();
    let json = folder.0.join("run.json").display().to_string();
    let output = bench(&[&["run"], arguments, &["--short", "--json", &json, "--quiet", "--no-pin"]].concat());
    assert!(folder.0.join("run.json").exists(), "{}", stderr(&output));
    (folder.read("run.json"), output)
}

#[test]
fn publications_of_clients_and_of_the_api_are_accepted_and_delivered() {
    let durations = ["--set", "phase.warm-up.duration=100ms", "--set", "phase.hold.duration=300ms"];
    let gates = ["--gate", "lost=0,duplicated=0,reordered=0,refused=0,unanswered=0,unsent=0,closed=0"];
    let (result, output) = built_in(&[&["publish"], &durations[..], &gates[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    // 2 × 300 ms of 2,000 publications a second, in ten channels with five readers each.
    assert_eq!((figure(&result, "published"), figure(&result, "accepted")), (1_200, 1_200), "{result:#}");
    assert_eq!(figure(&result, "delivered"), 6_000);
    assert!(result["counts"]["dunlin_publications_total"].as_f64() > Some(0.0), "{}", result["counts"]);
    // Sockets of sessions that io_uring keeps in its tables are no open files.
    assert!(figure(&result, "open_files") > 10, "{result:#}");
}

#[test]
fn a_capacity_run_stops_at_the_first_broken_gate() {
    let steps = ["stability=100", "realistic=200", "high=300", "ultimate=400"].map(|step| {
        let (phase, connections) = step.split_once('=').expect("a phase and its connections");
        [
            "--set".to_owned(),
            format!("phase.{phase}.connections.clients={connections}"),
            "--set".to_owned(),
            format!("phase.{phase}.duration=100ms"),
        ]
    });
    let steps: Vec<&str> = steps.iter().flatten().map(String::as_str).collect();
    let (result, output) = built_in(&[&["capacity", "--gate", "connections<250,lost=0"], &steps[..]].concat());
    assert_eq!(output.status.code(), Some(3));
    let phases: Vec<_> = result["phases"].as_array().expect("a list").iter().map(|phase| &phase["name"]).collect();
    assert_eq!(phases, ["stability", "realistic", "high"], "{result:#}");
    assert_eq!(result["stopped_after"], "high");
    let text = stderr(&output);
    assert!(text.contains("connections<250 is broken in phase high: connections was 301"), "{text}");
    assert_eq!(result["points"].as_array().map(Vec::len), Some(3));
    assert!(result["figures"]["bytes_per_connection"].is_object(), "{result:#}");
}

#[test]
fn clients_that_come_and_go_miss_nothing() {
    let durations = ["--set", "phase.warm-up.duration=100ms", "--set", "phase.hold.duration=500ms"];
    let sizes = ["--set", "crew.clients.connections=100", "--gate", "lost=0,duplicated=0,reordered=0,connect_failed=0"];
    let (result, output) = built_in(&[&["churn"], &durations[..], &sizes[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    // 200 are due. While no client is ready, none leaves.
    assert!((100..=200).contains(&figure(&result, "churned")), "{result:#}");
    assert_eq!(figure(&result, "connections"), 101);
}

/// Whether the run says that the kernel cannot do it.
fn has_no_direct_sockets(output: &Output) -> bool {
    stderr(output).contains("clients has file descriptors, because")
}

#[test]
fn clients_with_direct_sockets_come_and_go_and_miss_nothing() {
    let durations = ["--set", "phase.warm-up.duration=100ms", "--set", "phase.hold.duration=500ms"];
    let sizes = ["--set", "crew.clients.connections=100", "--gate", "lost=0,duplicated=0,reordered=0,connect_failed=0"];
    let direct = ["--set", "crew.clients.sockets=direct"];
    let (result, output) = built_in(&[&["churn"], &durations[..], &sizes[..], &direct[..]].concat());
    assert!(output.status.success() || has_no_direct_sockets(&output), "{}", stderr(&output));
    assert!((100..=200).contains(&figure(&result, "churned")), "{result:#}");
    assert_eq!(figure(&result, "connections"), 101);
    assert!(figure(&result, "delivered") > 500, "{result:#}");
}

#[test]
fn one_process_has_more_clients_with_direct_sockets_than_it_may_have_open_files() {
    let program = Path::new(env!("CARGO_BIN_EXE_dunlin-bench"));
    dunlin_proof::programs::beside(program, "dunlin");
    let folder = Folder::make();
    let json = folder.0.join("run.json").display().to_string();
    // The hard limit, which a process cannot raise.
    let line = r#"ulimit -n 2500 && exec "$0" "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", line]).arg(program).args(["run", "idle-million", "--short", "--json", &json, "--no-pin"]);
    let output = command.args(["--quiet", "--set", "crew.clients.workers=1"]).output().expect("there is a shell");
    if has_no_direct_sockets(&output) {
        assert!(stderr(&output).contains("crew.clients needs 4000 open files in 1 processes"), "{}", stderr(&output));
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let result = folder.read("run.json");
    // One publication at each size.
    assert_eq!((figure(&result, "connections"), figure(&result, "delivered")), (4_001, 10_000), "{result:#}");
    assert_eq!((figure(&result, "lost"), figure(&result, "connect_failed")), (0, 0));
}

/// Runs a built-in profile with changes against a target that is already there.
fn built_in_at(url: &str, profile: &str, changes: &[&str], more: &[&str]) -> (Value, Output) {
    let folder = Folder::make();
    let json = folder.0.join("run.json").display().to_string();
    let mut arguments = vec!["run", profile, "--short", "--target", url, "--json", &json, "--quiet", "--no-pin"];
    arguments.extend(changes.iter().flat_map(|change| ["--set", *change]));
    arguments.extend(more);
    let output = bench(&arguments);
    assert!(folder.0.join("run.json").exists(), "{}", stderr(&output));
    (folder.read("run.json"), output)
}

/// The messages of the gates that a run broke.
fn broken(result: &Value) -> Vec<String> {
    let list = result["broken"].as_array().expect("a list");
    list.iter().map(|broken| broken["gate"].as_str().expect("a text").to_owned()).collect()
}

const SHORT_FANOUT: [&str; 3] = ["phase.warm-up.duration=100ms", "phase.hold.duration=2s", "phase.hold.repeat=1"];

#[test]
fn fanout_finds_that_every_ten_thousandth_publication_is_dropped() {
    let url = format!("ws://{}", start(Fault::DropEvery(10_000)));
    let load = ["crew.publisher.publish=10000", "crew.subscribers.connections=1", "gates=lost=0,duplicated=0"];
    let (result, output) = built_in_at(&url, "fanout", &[&SHORT_FANOUT[..], &load].concat(), &[]);
    assert_eq!((output.status.code(), broken(&result)), (Some(3), vec!["lost=0".to_owned()]), "{result:#}");
    // There are 1,000 in the warm-up and 20,000 afterwards.
    assert_eq!((figure(&result, "lost"), figure(&result, "accepted")), (2, 20_000), "{result:#}");
}

#[test]
fn fanout_finds_two_publications_that_are_swapped() {
    let url = format!("ws://{}", start(Fault::Swap(40)));
    let load = ["crew.subscribers.connections=5", "gates=lost=0,duplicated=0,reordered=0"];
    let (result, output) = built_in_at(&url, "fanout", &[&SHORT_FANOUT[..], &load].concat(), &[]);
    assert_eq!((output.status.code(), broken(&result)), (Some(3), vec!["reordered=0".to_owned()]), "{result:#}");
    assert_eq!(figure(&result, "reordered"), 5, "{result:#}");
}

#[test]
fn fanout_finds_the_one_connection_that_is_always_50_ms_late() {
    let load = ["crew.publisher.publish=30", "crew.subscribers.connections=100", "gates=slowest_client<50ms,lost=0"];
    let run = |fault| {
        let url = format!("ws://{}", start(fault));
        built_in_at(&url, "fanout", &[&SHORT_FANOUT[..], &load].concat(), &[])
    };
    let (result, output) = run(Fault::SlowSubscription(7, Duration::from_millis(50)));
    assert_eq!(output.status.code(), Some(3), "{result:#}");
    assert_eq!(broken(&result), ["slowest_client<50ms"], "{result:#}");
    let (result, output) = run(Fault::None);
    assert_eq!(output.status.code(), Some(0), "{result:#}");
}

#[test]
fn soak_finds_1_kib_that_each_connection_leaves_behind() {
    // 200 connections a second, so 200 KiB a second or 703 MiB an hour.
    let load = [
        "crew.clients.connections=20",
        "crew.visitors.churn=200",
        "phase.hold.duration=5s",
        "interval=50ms",
        "gates=memory_growth<350MiB,memory_growth_floor<350MiB,closed=0,connect_failed=0",
    ];
    let run = |target: &OwnProcess| {
        built_in_at(&format!("ws://{}", target.address), "soak", &load, &["--server-pid", &target.pid()])
    };
    let (result, output) = run(&start_process(1024));
    assert_eq!(broken(&result), ["memory_growth<350MiB"], "{}", result["figures"]);
    assert_eq!(output.status.code(), Some(3));
    // A machine without time to spare queues for seconds, and gives that memory back. What leaks shows each time.
    let results: Vec<Value> =
        (0..3).map(|_| run(&start_process(0)).0).take_while(|result| !broken(result).is_empty()).collect();
    assert!(results.len() < 3, "{:#?}", results.iter().map(|result| &result["figures"]).collect::<Vec<_>>());
}

#[test]
fn idle_measures_what_each_further_session_takes() {
    const LEAKED_BYTES: usize = 200 << 10;
    let (target, folder) = (start_process(LEAKED_BYTES), Folder::make());
    let (url, json) = (format!("ws://{}", target.address), folder.0.join("idle.json").display().to_string());
    let sessions = ["idle", "--sessions", "10,30,60", "--url", &url, "--server-pid", &target.pid()];
    let output = bench(&[&sessions[..], &["--json", &json, "--quiet", "--no-pin"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let report = folder.read("idle.json");
    let points = report["points"].as_array().expect("a list").iter().map(|point| point["sessions"].as_u64());
    assert_eq!(points.collect::<Vec<_>>(), [Some(10), Some(30), Some(60)], "{report:#}");
    for slope in ["anon_bytes_per_session", "rss_bytes_per_session"] {
        let bytes = report[slope].as_f64().expect("it was measured");
        assert!((0.9..2.0).contains(&(bytes / LEAKED_BYTES as f64)), "{slope}: {report:#}");
    }
}

#[test]
fn bots_play_a_room_and_what_they_expect_is_checked() {
    let durations = ["--set", "phase.warm-up.duration=300ms", "--set", "phase.play.duration=500ms"];
    let sizes = ["--set", "crew.bots.connections=10", "--set", "crew.bots.inputs=100", "--set", "phase.play.repeat=1"];
    let (result, output) = built_in(&[&["own-game"], &durations[..], &sizes[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!((figure(&result, "players"), figure(&result, "inputs")), (10, 50), "{}", result["figures"]);
    assert!(figure(&result, "snapshots") > 10, "{}", result["figures"]);
    let more = ["--set", "crew.bots.expect=[\"welcome\", \"a dragon\"]", "--gate", "expectations_missed=0,closed=0"];
    let (result, output) = built_in(&[&["own-game"], &durations[..], &sizes[..], &more[..]].concat());
    assert_eq!((output.status.code(), broken(&result)), (Some(3), vec!["expectations_missed=0".to_owned()]));
    assert_eq!(figure(&result, "expectations_missed"), 10, "no bot has met one: {}", result["figures"]);
}

#[test]
fn publications_on_disk_are_accepted_and_delivered() {
    let durations = ["--set", "phase.warm-up.duration=100ms", "--set", "phase.hold.duration=300ms"];
    let gates = ["--gate", "lost=0,duplicated=0,reordered=0,refused=0,unanswered=0,unsent=0,closed=0"];
    let (result, output) = built_in(&[&["durable-disk"], &durations[..], &gates[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    // 2 × 300 ms of 500 publications a second, in ten channels with ten readers each.
    assert_eq!((figure(&result, "accepted"), figure(&result, "delivered")), (300, 3_000), "{result:#}");
}

#[test]
fn the_spike_comes_on_top_of_another_load() {
    let folder = Folder::make();
    let profile = folder.profile("test.toml", PROFILE);
    let phases = ["warm-up", "calm", "spike", "after"].map(|phase| format!("phase.{phase}.duration=600ms"));
    let mut changes = vec!["crew.publisher.publish=50", "gates=lost=0,spike.published>150,calm.published<40"];
    changes.extend(phases.iter().map(String::as_str));
    let url = format!("ws://{}", start(Fault::None));
    let (result, output) = built_in_at(&url, "spike", &changes, &["--on", &profile]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(result["profile"], "spike-on-test");
    // 30 in calm; 50/s to 500/s within 500 ms and 100 ms of 500/s; back to 50/s within 500 ms.
    assert_eq!(figure(&result, "published"), 30 + 188 + 143, "{result:#}");
}

#[test]
fn a_plan_agrees_with_a_larger_run() {
    dunlin_proof::programs::beside(Path::new(env!("CARGO_BIN_EXE_dunlin-bench")), "dunlin");
    let folder = Folder::make();
    let prices = "unit = \"EUR a month\"\n[[machine]]\nname = \"small\"\ncores = 2\nmemory_gib = 4\nnetwork_mbit = 1000\nprice = 8\n";
    let prices = folder.profile("prices.toml", prices);
    let json = folder.0.join("plan.json").display().to_string();
    let load = ["--connections", "4000", "--publications", "8", "--prices", &prices];
    let output = bench(&[&["plan"], &load[..], &["--json", &json, "--no-pin"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let plan = folder.read("plan.json");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("32,000 deliveries/s") && table.contains("EUR a month: "), "{table}");
    let larger = r#"
about = "twice as many connections as in the calibration"
[[crew]]
name = "publisher"
publish = 8
[[crew]]
name = "readers"
connections = 4000
connect_rate = 2000
subscribe = "all"
[[phase]]
name = "warm-up"
duration = "500ms"
measure = false
[[phase]]
name = "hold"
duration = "2s"
"#;
    let (profile, json) = (folder.profile("larger.toml", larger), folder.0.join("run.json").display().to_string());
    let output = bench(&["run", &profile, "--json", &json, "--quiet", "--no-pin"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let figures = &folder.read("run.json")["figures"];
    let within = |name: &str, key: &str, slack: (f64, f64)| {
        let measured = figures[name]["value"].as_f64().expect("it was measured");
        let end = |end: &str| plan[key][end].as_f64().expect("it is estimated");
        let is_within = end("low") * slack.0 <= measured && measured <= end("high") * slack.1;
        assert!(is_within, "{name} was {measured}, planned {:#}\n{figures:#}", plan[key]);
    };
    within("memory", "memory_bytes", (0.8, 1.2));
    // The larger run may batch more, if other programs keep the server from running.
    within("cpu_cores", "cores", (0.4, 1.2));
}

#[test]
fn a_plan_that_cannot_be_made_says_why() {
    let folder = Folder::make();
    let prices = folder.profile("prices.toml", "unit = \"EUR\"\n[[machine]]\nname = \"small\"\ncoers = 2\n");
    let load = ["plan", "--connections", "10", "--publications", "1"];
    for (more, expected) in [
        (&["--prices", &prices][..], "unknown field `coers`"),
        (&["--share", "2"], "--share 2: give more than 0, at most 1"),
        (&["--history-size", "16777217"], "--history-size 16777217: give 0 to 16777216"),
        (&["--history-size", "9", "--target", "ws://127.0.0.1:9"], "--history-size 9: leave out --target"),
        (&["--bytes", "10"], "message.bytes = 10: give a whole number from 74"),
        (&["--spawn", "/nonexistent/dunlin"], "the calibration plan-publications ended early: could not start"),
    ] {
        let output = bench(&[&load[..], more, &["--quiet"]].concat());
        assert_eq!(output.status.code(), Some(1), "{more:?}");
        assert!(stderr(&output).contains(expected), "{more:?}: {}", stderr(&output));
    }
}
