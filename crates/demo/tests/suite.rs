//! The program with the real server and the configuration of `make run`.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_dunlin-demo");
const PATIENCE: Duration = Duration::from_mins(1);
const KEY: &str = "demo-test-key";
const BOTS: u64 = 3;

/// The demo, as `make run` starts it.
struct Demo {
    process: Child,
    folder: PathBuf,
    port: u16,
}

impl Demo {
    /// Starts it with changed settings, in a folder of this name.
    fn start(name: &str, change: impl FnOnce(&mut Value)) -> Self {
        let folder = std::env::temp_dir().join(format!("dunlin-demo-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary directory");
        let port = dunlin_processes::free_port().expect("a free port");
        let mut settings: Value = serde_json::from_str(include_str!("../../../demo/config.json")).expect("JSON");
        settings["http_server"]["port"] = port.into();
        settings["storage"]["path"] = json!(folder.join("storage"));
        change(&mut settings);
        let config = folder.join("config.json");
        fs::write(&config, settings.to_string()).expect("a configuration");
        let mut demo = Self { process: Self::spawn(&folder, port, &config), folder, port };
        demo.until("the server is healthy", |demo| demo.request("GET /health", "").split(' ').nth(1) == Some("200"));
        demo
    }

    fn spawn(folder: &Path, port: u16, config: &Path) -> Child {
        let server = dunlin_proof::programs::beside(Path::new(PROGRAM), "dunlin");
        Command::new(PROGRAM)
            .args([format!("--node=127.0.0.1:{port}"), format!("--bots={BOTS}"), "--seats".to_owned()])
            .args([&folder.join("seats.json"), Path::new("--"), &server, Path::new("serve"), Path::new("-c"), config])
            .env_clear()
            .env("DUNLIN_HTTP_API_KEY", KEY)
            .stdin(Stdio::null())
            .spawn()
            .expect("it starts")
    }

    /// A response, whole.
    fn request(&self, request: &str, body: &str) -> String {
        let ask = || -> std::io::Result<String> {
            let mut socket = TcpStream::connect(("127.0.0.1", self.port))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            let length = body.len();
            write!(
                socket,
                "{request} HTTP/1.0\r\nHost: a\r\nX-API-Key: {KEY}\r\nContent-Length: {length}\r\n\r\n{body}"
            )?;
            let mut response = String::new();
            socket.read_to_string(&mut response)?;
            Ok(response)
        };
        ask().unwrap_or_default()
    }

    fn call(&self, method: &str, body: &Value) -> Value {
        let response = self.request(&format!("POST /api/{method}"), &body.to_string());
        let (_, body) = response.split_once("\r\n\r\n").unwrap_or_default();
        serde_json::from_str(body).unwrap_or_default()
    }

    fn history(&self) -> Vec<Value> {
        let answer = self.call("history", &json!({ "channel": "ticker:ACME", "limit": 100 }));
        answer["result"]["publications"].as_array().cloned().unwrap_or_default()
    }

    /// The number of players in the arena.
    fn players(&self) -> Option<u64> {
        let answer = self.call("room_list", &json!({ "namespace": "arena" }));
        answer["result"]["rooms"][0]["num_players"].as_u64()
    }

    fn until(&mut self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(self) {
            assert_eq!(self.process.try_wait().expect("it can be waited for"), None, "the server has ended");
            assert!(Instant::now() < deadline, "not in {} s: {what}", PATIENCE.as_secs());
            thread::sleep(Duration::from_millis(20)); // between two looks
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn prices_move_and_bots_play_beside_the_server_and_end_with_it() {
    let mut demo = Demo::start("life", |_| {});
    demo.until("prices are published", |demo| demo.history().len() > 2);
    for (index, publication) in demo.history().iter().enumerate() {
        assert_eq!(publication["data"]["symbol"], "ACME");
        assert_eq!(publication["data"]["number"], index + 1, "{publication}");
        assert_eq!(publication["offset"], index + 1, "{publication}");
    }
    let quotes = quotes(demo.port);
    assert_eq!(quotes["data"]["quotes"].as_object().map(serde_json::Map::len), Some(12));
    assert!(quotes["offset"].is_null(), "{quotes}");
    demo.until("all bots play", |demo| demo.players() == Some(BOTS));

    // The client process is a child of the process that became the server.
    let client = demo.client();
    let program = fs::read_to_string(format!("/proc/{}/comm", demo.process.id()));
    assert_eq!(program.expect("it runs").trim(), "dunlin");
    demo.process.kill().expect("it runs");
    demo.process.wait().expect("it has ended");
    let deadline = Instant::now() + PATIENCE;
    while fs::read_to_string(format!("/proc/{client}/comm")).is_ok_and(|name| name.trim() == "dunlin-demo") {
        assert!(Instant::now() < deadline, "the client process outlives the server");
        thread::sleep(Duration::from_millis(20)); // between two looks
    }

    // The next run continues the numbers.
    let before = demo.history_of_next_run();
    assert!(before.windows(2).all(|pair| pair[1] == pair[0] + 1), "{before:?}");
}

/// `make run` before `RocksDB` is compiled.
#[test]
fn the_demo_runs_without_a_storage() {
    let printed = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/in-memory")).output().expect("it runs");
    let mut in_memory: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    assert!(in_memory["storage"].is_null());
    let mut demo = Demo::start("memory", |settings| {
        in_memory["http_server"] = settings["http_server"].take();
        *settings = in_memory;
    });
    demo.until("prices are published", |demo| demo.history().len() > 2);
    demo.until("all bots play", |demo| demo.players() == Some(BOTS));
    assert!(!demo.folder.join("storage").exists());
}

/// Without the namespaces, all of it is refused. The server goes on, and keeps no trace of the client process.
#[test]
fn a_client_process_that_has_ended_is_no_zombie() {
    let mut demo = Demo::start("refused", |settings| settings["channel"]["namespaces"] = json!([]));
    demo.until("the client process is gone", |demo| demo.client().is_empty());
    assert!(demo.request("GET /health", "").starts_with("HTTP/1.0 200"), "the server goes on");
}

fn run(port: u16, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(PROGRAM);
    command.arg(format!("--node=127.0.0.1:{port}")).env_clear().envs(variables.iter().copied());
    let output = command.output().expect("it starts");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn a_program_that_is_refused_says_why_and_fails() {
    let demo = Demo::start("errors", |settings| settings["channel"]["namespaces"] = json!([]));
    let node = format!("--node 127.0.0.1:{}", demo.port);
    for (variables, words) in [
        (&[][..], "set DUNLIN_HTTP_API_KEY, or DUNLIN_HTTP_API_KEY_FILE, to http_api.key"),
        (&[("DUNLIN_HTTP_API_KEY", ""), ("DUNLIN_HTTP_API_KEY_FILE", "/none")], "DUNLIN_HTTP_API_KEY_FILE /none: "),
        (
            &[("DUNLIN_HTTP_API_KEY", "another")],
            "does not accept the key (HTTP 401): set DUNLIN_HTTP_API_KEY to http_api.key of its configuration",
        ),
        (&[("DUNLIN_HTTP_API_KEY", KEY)], "its configuration needs the namespace \"ticker\" of demo/config.json"),
    ] {
        let (code, printed) = run(demo.port, variables);
        assert_eq!(code, Some(1), "{printed}");
        assert!(printed.contains(words), "{printed}");
        assert!(!printed.contains("refused") || printed.contains(&node), "{printed}");
    }
}

impl Demo {
    /// The id of the client process; empty if it has ended.
    fn client(&self) -> String {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.process.id()));
        children.expect("the kernel lists children").trim().to_owned()
    }

    /// Starts the demo again. Returns the numbers of the history once the new run has published.
    fn history_of_next_run(&mut self) -> Vec<u64> {
        self.process = Self::spawn(&self.folder, self.port, &self.folder.join("config.json"));
        self.until("the history is read", |demo| !demo.history().is_empty());
        let newest = self.history().last().and_then(|publication| publication["offset"].as_u64());
        self.until("prices go on", |demo| {
            demo.history().last().and_then(|publication| publication["offset"].as_u64())
                > newest.map(|offset| offset + 2)
        });
        self.history().iter().filter_map(|publication| publication["data"]["number"].as_u64()).collect()
    }
}

/// The first publication of all prices, in a session of the page.
fn quotes(port: u16) -> Value {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    let upgrade = "GET /connection/websocket HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ZHVubGluLWRlbW8tYm90cw==\r\n\r\n";
    let commands = "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"quotes:all\"}}";
    socket.write_all(upgrade.as_bytes()).expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    // A text frame with a mask of zeros.
    let mut frame = vec![0x81, 0x80 | u8::try_from(commands.len()).expect("short")];
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(commands.as_bytes());
    socket.write_all(&frame).expect("sent");
    loop {
        let mut start = [0; 2];
        socket.read_exact(&mut start).expect("a frame");
        let mut length = usize::from(start[1]);
        if length == 126 {
            let mut long = [0; 2];
            socket.read_exact(&mut long).expect("a length");
            length = usize::from(u16::from_be_bytes(long));
        }
        let mut payload = vec![0; length];
        socket.read_exact(&mut payload).expect("a payload");
        for line in String::from_utf8(payload).expect("text").lines() {
            let message: Value = serde_json::from_str(line).expect("JSON");
            if message["push"]["channel"] == "quotes:all" && message["push"]["pub"].is_object() {
                return message["push"]["pub"].clone();
            }
        }
    }
}
