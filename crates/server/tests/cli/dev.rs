//! `dunlin dev`, with a Cargo that this test writes. `make guides` follows the guide with the real one.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Folder, dunlin, stderr};

const TIMEOUT: Duration = Duration::from_mins(1);

const CONFIG: &str = r#"{"http_server": {"address": "127.0.0.1", "port": 0}}"#;

/// A program that is `dunlin` itself. Another number is another program.
fn program(number: u32) -> String {
    format!("#!/bin/sh\nexec {} \"$@\" # {number}\n", env!("CARGO_BIN_EXE_dunlin"))
}

/// A program that is no server, but says that it listens.
fn fake(rest: &str) -> String {
    format!("#!/bin/sh\necho 'dunlin dev: listening'\n{rest}\n")
}

/// A game whose source is its program, a script. While there is a file `broken`, it does not compile. Each build adds a
/// line to `.builds`.
fn game(name: &str, source: &str) -> Folder {
    let folder = Folder::new(name);
    for path in ["bin", "page", "src", "target"] {
        fs::create_dir(folder.0.join(path)).expect("a folder");
    }
    folder.file("Cargo.toml", "[dependencies]\ndunlin-game = \"1\"\n");
    folder.file("config.json", CONFIG);
    folder.file("page/index.html", "<head></head>");
    executable(&folder, "src/main.rs", source);
    let cargo = format!(
        "#!/bin/sh\n\
         [ \"$*\" = 'build --message-format=json' ] || exit 1\n\
         echo >> .builds\n\
         if [ -e daemon ]; then setsid sleep 1000 & echo $! > .daemon; fi\n\
         if [ -e broken ]; then\n  \
           printf '%s\\n' '{}'\n  \
           exit 101\n\
         fi\n\
         cmp -s src/main.rs target/game || {{ cp src/main.rs target/new && mv target/new target/game; }}\n\
         printf '%s\\n' '{}'\n",
        r#"{"reason":"compiler-message","message":{"level":"error","rendered":"error: it is broken\n"}}"#,
        r#"{"reason":"compiler-artifact","target":{"name":"game"},"executable":"target/game"}"#,
    );
    executable(&folder, "bin/cargo", &cargo);
    folder
}

fn executable(folder: &Folder, name: &str, text: &str) {
    let path = folder.file(name, text);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it may be run");
}

fn builds(folder: &Folder) -> usize {
    fs::read_to_string(folder.0.join(".builds")).unwrap_or_default().lines().count()
}

struct Dev {
    child: Child,
    port: u16,
    lines: Receiver<String>,
}

impl Dev {
    fn start(folder: &Folder) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dunlin"))
            .args(["dev", "--page-port", "0"])
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", folder.0.join("bin").display()))
            .current_dir(&folder.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        stdout.read_line(&mut line).expect("text");
        let (_, address) = line.split_once("localhost:").expect("an address");
        let port = address.split('/').next().expect("a port").parse().expect("a number");
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let (sender, lines) = channel();
        thread::spawn(move || errors.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, port, lines }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\r\n", self.port);
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("text");
        response.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let state: Value = serde_json::from_str(&self.get("/dunlin-dev/state")).expect("JSON");
            if is_so(&state) {
                return state;
            }
            assert!(begun.elapsed() < TIMEOUT, "{state} is not {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait_for_phase(&self, phase: &str) -> Value {
        self.wait_for(phase, |state| state["phase"] == phase)
    }

    /// Changes a file of the page, and waits until that is seen.
    fn change_page(&self, folder: &Folder) -> Value {
        let version = self.wait_for("anything", |_| true)["version"].clone();
        let page = folder.0.join("page/index.html");
        let longer = format!("{} ", fs::read_to_string(&page).expect("a page"));
        fs::write(page, longer).expect("a page");
        self.wait_for("another version", |state| state["version"] != version)
    }

    fn wait_for_line(&self, part: &str) -> Vec<String> {
        let (begun, mut before) = (Instant::now(), Vec::new());
        loop {
            let Ok(line) = self.lines.recv_timeout(TIMEOUT.saturating_sub(begun.elapsed())) else {
                panic!("no line contains {part:?}: {before:?}")
            };
            if line.contains(part) {
                return before;
            }
            before.push(line);
        }
    }

    fn signal(&self) {
        // SAFETY: a system call without pointers, for a child that has not been waited for.
        let sent = unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        assert_eq!(sent, 0);
    }

    fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                return status;
            }
            assert!(begun.elapsed() < TIMEOUT, "it has not ended");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it with a signal, and returns the remaining lines.
    fn end(mut self) -> Vec<String> {
        self.signal();
        assert!(self.wait().success());
        self.lines.iter().collect()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_server_is_replaced_after_each_build_that_succeeds() {
    let folder = game("dev", &program(1));
    let dev = Dev::start(&folder);
    dev.wait_for_line("dunlin is listening");
    dev.wait_for_phase("running");
    assert!(dev.get("/").contains("/dunlin-dev/dev.js"), "the page gets the script");
    assert_eq!(fs::read_to_string(folder.0.join("page/index.html")).ok().as_deref(), Some("<head></head>"));

    // A failed build leaves the server alone: its end would be the next line.
    folder.file("broken", "");
    let state = dev.wait_for_phase("failed");
    assert_eq!(state["text"], "error: it is broken\n");
    assert_eq!(state["title"], "The build has failed. The server of the last build goes on.");
    dev.wait_for_line("error: it is broken");
    fs::remove_file(folder.0.join("broken")).expect("it is there");
    // The build is that of the server that runs.
    let lines = dev.wait_for_line("its server goes on");
    assert!(lines.is_empty(), "{lines:?}");
    dev.wait_for_phase("running");

    folder.file("src/main.rs", &program(2));
    dev.wait_for_line("closing sessions");
    dev.wait_for_line("dunlin is listening");
    dev.wait_for_phase("running");
    folder.file("config.json", &CONFIG.replace("127.0.0.1", "127.0.0.2"));
    dev.wait_for_line("closing sessions");
    dev.wait_for_line("dunlin is listening");
    dev.wait_for_phase("running");

    // The page alone is loaded again.
    let count = builds(&folder);
    assert_eq!(dev.change_page(&folder)["phase"], "running");
    assert_eq!(builds(&folder), count);

    let rest = dev.end();
    assert!(rest.iter().any(|line| line.contains("all sessions are closed")), "{rest:?}");
}

#[test]
fn what_the_server_writes_into_the_folder_builds_nothing() {
    let folder = game("dev-writes", &program(1));
    let config = r#"{
        "http_server": {"address": "127.0.0.1", "port": 0}, "pid_file": "game.pid", "log": {"file": "logs/game.log"}
    }"#;
    folder.file("config.json", config);
    fs::create_dir(folder.0.join("logs")).expect("a folder");
    let dev = Dev::start(&folder);
    dev.wait_for_phase("running");
    assert!(folder.0.join("game.pid").exists());
    // What the server has written is seen with the first change of the page, and would be built with the second one.
    for _ in 0..2 {
        assert_eq!(dev.change_page(&folder)["phase"], "running");
    }
    assert_eq!(builds(&folder), 1);

    // A file that nobody has named is built, but its server would be the same.
    folder.file("notes.txt", "");
    dev.wait_for_line("its server goes on");
    assert_eq!(builds(&folder), 2);
    let rest = dev.end();
    assert!(!rest.iter().any(|line| line.contains("the server has ended")), "{rest:?}");
    let log = fs::read_to_string(folder.0.join("logs/game.log")).expect("a log");
    assert_eq!(log.matches("dunlin is listening").count(), 1, "{log}");
}

#[test]
fn a_server_that_ends_is_shown() {
    let folder = game("dev-ends", &program(1));
    folder.file("config.json", r#"{"http_server": {"address": "127.0.0.1", "port": "none"}}"#);
    let dev = Dev::start(&folder);
    let state = dev.wait_for_phase("ended");
    assert!(state["text"].as_str().is_some_and(|text| text.contains("invalid configuration")), "{state}");
    folder.file("config.json", CONFIG);
    dev.wait_for_line("dunlin is listening");
    dev.wait_for_phase("running");
}

#[test]
fn the_configured_delay_is_for_balancers() {
    let folder = game("dev-delay", &program(1));
    folder.file("config.json", &CONFIG.replacen('{', r#"{"shutdown": {"delay": "10m"}, "#, 1));
    let dev = Dev::start(&folder);
    dev.wait_for_line("dunlin is listening");
    dev.wait_for_phase("running");
    folder.file("src/main.rs", &program(2));
    dev.wait_for_line("all sessions are closed");
    dev.wait_for_line("dunlin is listening");
    dev.end();
}

#[test]
fn a_server_that_is_replaced_is_told_to_end_once() {
    // It needs as long as the test wants.
    let slow = "trap 'echo told' TERM\nwhile [ -d page ] && [ ! -e .may-end ]; do sleep 0.01; done\necho saved";
    let folder = game("dev-once", &fake(slow));
    let dev = Dev::start(&folder);
    dev.wait_for_phase("running");
    folder.file("src/main.rs", &fake("# another\n"));
    dev.wait_for_phase("ending");
    dev.wait_for_line("told");
    dev.signal();
    dev.wait_for_line("ends with its server");
    folder.file(".may-end", "");
    let lines = dev.wait_for_line("saved");
    // A shell may say that the signal has ended its `sleep`.
    let is_told_again = lines.iter().any(|line| line.contains("told"));
    assert!(!is_told_again, "a second signal would have it end without saving its rooms: {lines:?}");
}

#[test]
fn a_second_signal_ends_everything_at_once() {
    let folder = game("dev-twice", &fake("trap '' TERM\nwhile [ -d page ]; do sleep 0.01; done"));
    let mut dev = Dev::start(&folder);
    dev.wait_for_phase("running");
    dev.signal();
    dev.wait_for_line("another Ctrl-C ends both at once");
    let begun = Instant::now();
    // A second signal that comes at the same time may be that of the terminal.
    while dev.child.try_wait().expect("it is a child").is_none() {
        assert!(begun.elapsed() < TIMEOUT, "it has not ended");
        dev.signal();
        thread::sleep(Duration::from_millis(1));
    }
}

/// A process that a build has left, such as a compiler cache.
struct Daemon(Folder);

impl Drop for Daemon {
    fn drop(&mut self) {
        let number = fs::read_to_string(self.0.0.join(".daemon")).unwrap_or_default();
        if let Ok(number) = number.trim().parse::<libc::pid_t>() {
            // SAFETY: a system call without pointers. Nobody has waited for this process, which runs until now.
            unsafe { libc::kill(number, libc::SIGKILL) };
        }
    }
}

#[test]
fn a_process_that_a_build_leaves_delays_nothing() {
    let folder = Daemon(game("dev-daemon", &program(1)));
    folder.0.file("daemon", "");
    let dev = Dev::start(&folder.0);
    dev.wait_for_line("dunlin is listening");
    dev.end();
}

#[test]
fn what_fails_for_a_while_is_tried_again() {
    let folder = game("dev-again", &program(1));
    let path = folder.0.join("src/main.rs");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it may not be run");
    let dev = Dev::start(&folder);
    let state = dev.wait_for_phase("ended");
    assert_eq!(state["title"], "The game's server cannot be started.");
    assert!(state["text"].as_str().is_some_and(|text| text.starts_with("target/game: ")), "{state}");
    dev.wait_for_line("the server cannot be started");
    let program = folder.0.join("target/game");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("it may be run");
    dev.wait_for_line("dunlin is listening");
    dev.wait_for_phase("running");

    let many = folder.0.join("many");
    fs::create_dir(&many).expect("a folder");
    for number in 0..10_000 {
        fs::write(many.join(number.to_string()), "").expect("a file");
    }
    let state = dev.wait_for("a problem", |state| state["title"] == "Changes are not seen.");
    assert!(state["text"].as_str().is_some_and(|text| text.contains("more than 10000 files")), "{state}");
    fs::remove_dir_all(many).expect("it is there");
    dev.wait_for_phase("running");
    dev.end();
}

#[test]
fn what_is_missing_is_named() {
    let folder = Folder::new("dev-nothing");
    let refused = dunlin(&folder, &["dev"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("this is not the folder of a game"), "{}", stderr(&refused));

    let folder = game("dev-no-cargo", &program(1));
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    command.args(["dev", "--page-port", "0"]).env_clear().env("PATH", "/nowhere").current_dir(&folder.0);
    let refused = command.output().expect("it runs");
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("cargo is not in PATH"), "{}", stderr(&refused));
}
