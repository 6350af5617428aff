//! A `dunlin` process, and a client that writes bytes and reads complete responses.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::each_reactor;

/// Maximum time that a test waits for a condition. Only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const KEY: &str = "a-key-of-the-tests-with-32-bytes!";

pub struct Server {
    child: Child,
    log: BufReader<ChildStderr>,
    pub address: SocketAddr,
    /// The log line about the start.
    pub started: Value,
    folder: PathBuf,
    config: Mutex<Value>,
}

/// The result of a command.
pub struct Ran {
    pub code: Option<i32>,
    /// All of its output.
    pub text: String,
}

impl Server {
    /// Starts a node with these settings, which override the defaults of the tests.
    pub fn start(settings: &Value) -> Self {
        Self::start_with(settings, &[])
    }

    /// The same, with these environment variables.
    pub fn start_with(settings: &Value, environment: &[(&str, &str)]) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_dunlin")), settings, environment)
    }

    /// The same, under limits of a shell.
    pub fn start_below(limits: &str, settings: &Value) -> Self {
        let mut shell = Command::new("/bin/bash");
        shell.args(["-c", &format!("{limits} && exec \"$@\""), "bash", env!("CARGO_BIN_EXE_dunlin")]);
        Self::start_by(shell, settings, &[])
    }

    fn start_by(mut command: Command, settings: &Value, environment: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("dunlin-http-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary directory");
        let mut config = serde_json::json!({
            "http_server": { "address": "127.0.0.1", "port": 0 },
            "shards": 2,
            "reactor": each_reactor::current_name(),
            "health": { "enabled": true },
            "prometheus": { "enabled": true, "survey_max_age": "0s" },
            "http_api": { "key": KEY },
            "client": { "allow_anonymous_connect_without_token": true, "allowed_origins": ["http://good.example"] },
            "channel": { "namespaces": [{
                "name": "open", "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true
            }] },
        });
        merge(&mut config, settings);
        let path = folder.join("config.json");
        fs::write(&path, config.to_string()).expect("a temporary file");
        let mut child = command
            .args(["serve", "--config"])
            .arg(&path)
            .env_clear()
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut log = BufReader::new(child.stderr.take().expect("it is piped"));
        let started = next_event(&mut log, "dunlin is listening");
        let address = started["address"].as_str().expect("an address").parse().expect("an address");
        Self { child, log, address, started, folder, config: Mutex::new(config) }
    }

    /// Changes the configuration file. The node does not reload it by itself.
    pub fn rewrite(&self, change: impl FnOnce(&mut Value)) {
        let mut config = self.config.lock().expect("not poisoned");
        change(&mut config);
        fs::write(self.folder.join("config.json"), config.to_string()).expect("a temporary file");
    }

    /// Replaces the text of the configuration file.
    pub fn write_config(&self, text: &str) {
        fs::write(self.folder.join("config.json"), text).expect("a temporary file");
    }

    /// Runs a command of the binary with the node's configuration.
    pub fn run(&self, command: &str) -> Ran {
        self.run_with(&[command])
    }

    /// The same, with arguments.
    pub fn run_with(&self, command: &[&str]) -> Ran {
        let mut run = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        let run = run.args(command).arg("--config").arg(self.folder.join("config.json")).env_clear();
        let output = run.output().expect("it starts");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text")).concat();
        Ran { code: output.status.code(), text }
    }

    /// Starts a command that reads from its input.
    pub fn spawn_with(&self, command: &[&str]) -> Child {
        let mut run = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        let run = run.args(command).arg("--config").arg(self.folder.join("config.json")).env_clear();
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts")
    }

    /// The process id.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    pub fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).expect("it listens"))
    }

    /// Opens a WebSocket session. Returns it after the reply to its `connect`.
    pub fn open_session(&self) -> Client {
        let mut session = self.connect();
        session.send(handshake(""));
        assert_eq!(session.answer().status, 101);
        session.send_text(r#"{"id":1,"connect":{}}"#);
        session.frame();
        session
    }

    /// Sends one request on a new connection.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        self.connect().ask(method, path, body)
    }

    pub fn metric(&self, name: &str) -> f64 {
        metric_on(&self.ask("GET", "/metrics", "").text(), name)
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.expect("kill(1)").success());
    }

    /// Shuts the node down. One signal only: a second one, after some time, makes it exit at once.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Sends the signal repeatedly until the process ends, because the node ignores a signal that closely follows
    /// another one.
    pub fn signal_until_it_ends(&mut self, name: &str) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < deadline, "the process does not end");
            self.signal(name);
        }
    }

    /// The next log line with this message.
    pub fn logged(&mut self, message: &str) -> Value {
        next_event(&mut self.log, message)
    }

    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        // The log ends when the process ends.
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).expect("a log");
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                // Tests assert that the end was a success, which says nothing of the reason.
                if !status.success() {
                    eprintln!("the server ended with {status}:\n{rest}");
                }
                return status;
            }
            assert!(Instant::now() < deadline, "the process does not end after its log");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The value of a sample on a page of metrics.
pub fn metric_on(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().expect("a number")
}

fn next_event(log: &mut BufReader<ChildStderr>, message: &str) -> Value {
    let mut log_text = String::new();
    loop {
        let mut line = String::new();
        let len = log.read_line(&mut line).expect("a log");
        assert!(len > 0, "the log ended without {message:?}:\n{log_text}");
        match serde_json::from_str::<Value>(&line) {
            Ok(event) if event["message"] == message => return event,
            _ => log_text.push_str(&line),
        }
    }
}

fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

/// A connection.
pub struct Client {
    pub stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Client {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self { stream: BufReader::new(stream) }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).expect("it takes bytes");
    }

    pub fn ask(&mut self, method: &str, path: &str, body: &str) -> Answer {
        self.send(request(method, path, body));
        self.answer()
    }

    /// Reads one response.
    pub fn answer(&mut self) -> Answer {
        let status = self.status();
        let mut fields = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("a field");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut answer = Answer { status, fields, body: Vec::new() };
        if status != 101 {
            let length = answer.field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            answer.body.resize(length, 0);
            self.stream.read_exact(&mut answer.body).expect("a body");
        }
        answer
    }

    /// Reads the first line of a response.
    pub fn status(&mut self) -> u16 {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("an answer");
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no status in {line:?}"))
    }

    /// Reads one line.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Whether the server closes the connection without another byte.
    pub fn is_ended(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(len) => len == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// Sends a text frame with a zero mask.
    pub fn send_text(&mut self, text: &str) {
        let mask = [0; 4];
        let frame = match u8::try_from(text.len()) {
            Ok(len) if len < 126 => [&[0x81, 0x80 | len], &mask[..], text.as_bytes()].concat(),
            _ => {
                let len = u16::try_from(text.len()).expect("a text below 64 KiB").to_be_bytes();
                [&[0x81, 0xfe], &len[..], &mask, text.as_bytes()].concat()
            }
        };
        self.send(frame);
    }

    /// Reads one short frame: its first byte, and its payload.
    pub fn frame(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).expect("a frame");
        let [first, len] = head;
        let len = if len == 126 {
            let mut long = [0; 2];
            self.stream.read_exact(&mut long).expect("a length");
            u16::from_be_bytes(long).into()
        } else {
            assert!(len < 126);
            usize::from(len)
        };
        let mut payload = vec![0; len];
        self.stream.read_exact(&mut payload).expect("a payload");
        (first, payload)
    }
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub fn request(method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: dunlin.example\r\nX-API-Key: {KEY}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A handshake with additional fields.
pub fn handshake(more: &str) -> String {
    format!(
        "GET /connection/websocket HTTP/1.1\r\nHost: dunlin.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}
