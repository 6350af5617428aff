//! `dunlin dev`, with a Cargo that this test writes. `make guides` follows the guide with the real one.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Folder, dunlin, stderr};

const TIMEOUT: Duration = Duration::from_mins(1);

/// A game whose program is `dunlin` itself. While there is a file `broken`, it does not compile.
fn game(name: &str) -> Folder {
    let folder = Folder::new(name);
    for path in ["bin", "page"] {
        fs::create_dir(folder.0.join(path)).expect("a folder");
    }
    folder.file("Cargo.toml", "[dependencies]\ndunlin-game = \"1\"\n");
    folder.file("config.json", r#"{"http_server": {"address": "127.0.0.1", "port": 0}}"#);
    folder.file("page/index.html", "<head></head>");
    let cargo = format!(
        "#!/bin/sh\n\
         [ \"$*\" = 'build --message-format=json' ] || exit 1\n\
         if [ -e broken ]; then\n  \
           printf '%s\\n' '{}'\n  \
           exit 101\n\
         fi\n\
         printf '%s\\n' '{}'\n",
        r#"{"reason":"compiler-message","message":{"level":"error","rendered":"error: it is broken\n"}}"#,
        format_args!(r#"{{"reason":"compiler-artifact","executable":"{}"}}"#, env!("CARGO_BIN_EXE_dunlin")),
    );
    let cargo = folder.file("bin/cargo", &cargo);
    fs::set_permissions(cargo, fs::Permissions::from_mode(0o755)).expect("it may be run");
    folder
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

    fn wait_for_phase(&self, phase: &str) -> Value {
        let begun = Instant::now();
        loop {
            let state: Value = serde_json::from_str(&self.get("/dunlin-dev/state")).expect("JSON");
            if state["phase"] == phase {
                return state;
            }
            assert!(begun.elapsed() < TIMEOUT, "{state} is not {phase:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait_for_line(&self, part: &str) {
        let begun = Instant::now();
        while !self.lines.recv_timeout(TIMEOUT).expect("a line").contains(part) {
            assert!(begun.elapsed() < TIMEOUT, "no line contains {part:?}");
        }
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
    let folder = game("dev");
    let mut dev = Dev::start(&folder);
    dev.wait_for_line("dunlin is listening");
    dev.wait_for_phase("running");
    assert!(dev.get("/").contains("/dunlin-dev/dev.js"), "the page gets the script");
    assert_eq!(fs::read_to_string(folder.0.join("page/index.html")).ok().as_deref(), Some("<head></head>"));

    // A failed build leaves the server alone: its end would be the next line.
    folder.file("broken", "");
    let state = dev.wait_for_phase("failed");
    assert_eq!(state["text"], "error: it is broken\n");
    dev.wait_for_line("error: it is broken");
    fs::remove_file(folder.0.join("broken")).expect("it is there");
    dev.wait_for_line("closing sessions");
    dev.wait_for_line("dunlin is listening");
    let version = dev.wait_for_phase("running")["version"].clone();

    // The page alone is loaded again.
    folder.file("page/index.html", "<head><title></title></head>");
    let begun = Instant::now();
    while dev.wait_for_phase("running")["version"] == version {
        assert!(begun.elapsed() < TIMEOUT, "no other version");
        thread::sleep(Duration::from_millis(1));
    }

    // SAFETY: a system call without pointers, for a child that has not been waited for.
    let sent = unsafe { libc::kill(dev.child.id().cast_signed(), libc::SIGTERM) };
    assert_eq!(sent, 0);
    assert!(dev.child.wait().expect("it ends").success());
    let rest: Vec<String> = dev.lines.iter().collect();
    assert!(rest.iter().any(|line| line.contains("all sessions are closed")), "{rest:?}");
}

#[test]
fn a_server_that_ends_is_shown() {
    let folder = game("dev-ends");
    folder.file("config.json", r#"{"http_server": {"address": "127.0.0.1", "port": "none"}}"#);
    let dev = Dev::start(&folder);
    let state = dev.wait_for_phase("ended");
    assert!(state["text"].as_str().is_some_and(|text| text.contains("invalid configuration")), "{state}");
    folder.file("config.json", r#"{"http_server": {"address": "127.0.0.1", "port": 0}}"#);
    dev.wait_for_phase("running");
}

#[test]
fn what_is_missing_is_named() {
    let folder = Folder::new("dev-nothing");
    let refused = dunlin(&folder, &["dev"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("this is not the folder of a game"), "{}", stderr(&refused));

    let folder = game("dev-no-cargo");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    command.args(["dev", "--page-port", "0"]).env_clear().env("PATH", "/nowhere").current_dir(&folder.0);
    let refused = command.output().expect("it runs");
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("cargo is not in PATH"), "{}", stderr(&refused));
}
