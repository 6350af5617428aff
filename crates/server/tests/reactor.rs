//! The reactor that the real binary selects, with and without `io_uring` in the kernel.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use serde_json::Value;

/// Maximum time that a test waits. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(20);

struct Server {
    child: Child,
    listening: Value,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `dunlin serve` with these arguments. If `forbidden`, `io_uring_setup` fails with EPERM.
fn command(args: &[&str], forbidden: bool) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    command.args(["serve", "--port", "0", "--address", "127.0.0.1"]).args(args).env_clear();
    command.env("DUNLIN_HTTP_API_KEY", "k3y").env("DUNLIN_PROMETHEUS_ENABLED", "true");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    if forbidden {
        // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
        unsafe { command.pre_exec(forbid_io_uring) };
    }
    command
}

/// Forbids `io_uring` with a seccomp filter, as container runtimes do.
fn forbid_io_uring() -> std::io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let setup = libc::SYS_io_uring_setup as u32;
    let mut filter = [
        // The number of the system call is the first field of the filter's input.
        libc::sock_filter { code: LOAD, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 1, k: setup },
        libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32 },
        libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program outlives both calls, which copy it.
    let is_set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if is_set { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn start(args: &[&str], forbidden: bool) -> Server {
    let mut child = command(args, forbidden).spawn().expect("it starts");
    let mut log = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut reactor_of = String::new();
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).expect("a log") > 0, "the log ended:\n{reactor_of}");
        match serde_json::from_str::<Value>(&line) {
            Ok(event) if event["message"] == "dunlin is listening" => {
                // Keep reading the log, so that the server's writes do not fail.
                std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
                return Server { child, listening: event };
            }
            _ => reactor_of.push_str(&line),
        }
    }
}

fn ask(server: &Server, request: &str) -> String {
    let address: SocketAddr = server.listening["address"].as_str().expect("an address").parse().expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The reactor, which the log, the API and the metrics must report consistently, and the reason in the log.
fn reactor_of(server: &Server) -> (String, String) {
    let kind = server.listening["reactor"].as_str().expect("a kind").to_owned();
    let info =
        "POST /api/info HTTP/1.1\r\nHost: here\r\nConnection: close\r\nX-API-Key: k3y\r\nContent-Length: 2\r\n\r\n{}";
    let answer = ask(server, info);
    assert!(answer.contains(&format!(r#""reactor":"{kind}""#)), "{answer}");
    let metrics = ask(server, "GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    assert!(metrics.contains(&format!(r#"reactor="{kind}"}} 1"#)), "{metrics}");
    (kind, server.listening["reactor_reason"].as_str().expect("a reason").to_owned())
}

fn fails(args: &[&str], forbidden: bool) -> (ExitStatus, String) {
    let mut child = command(args, forbidden).spawn().expect("it starts");
    let mut errors = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut errors).expect("a log");
    (child.wait().expect("a child"), errors)
}

#[test]
fn io_uring_is_used_where_it_is_allowed() {
    for args in [&[][..], &["--reactor", "auto"], &["--reactor", "io_uring"]] {
        let (kind, reason) = reactor_of(&start(args, false));
        assert_eq!(kind, "io_uring", "{reason}");
        assert_eq!(reason.starts_with("configured"), args.last() == Some(&"io_uring"), "{reason}");
    }
}

#[test]
fn epoll_is_used_when_configured() {
    assert_eq!(reactor_of(&start(&["--reactor", "epoll"], false)), ("epoll".to_owned(), "configured".to_owned()));
}

#[test]
fn epoll_is_used_where_io_uring_is_forbidden() {
    let (kind, reason) = reactor_of(&start(&[], true));
    assert_eq!(kind, "epoll");
    assert!(reason.starts_with("io_uring is unavailable: io_uring_setup failed: "), "{reason}");
    assert!(reason.contains("seccomp"), "{reason}");
}

#[test]
fn a_required_but_forbidden_io_uring_is_an_error_with_a_remedy() {
    let (status, errors) = fails(&["--reactor", "io_uring"], true);
    assert_eq!(status.code(), Some(1), "{errors}");
    for part in [r#"reactor is "io_uring""#, "io_uring_setup", "seccomp", r#"set reactor to "auto""#] {
        assert!(errors.contains(part), "no {part:?} in: {errors}");
    }
}

#[test]
fn an_unknown_reactor_is_refused() {
    let (status, errors) = fails(&["--reactor", "kqueue"], false);
    assert_eq!(status.code(), Some(3), "{errors}");
    assert!(errors.contains("kqueue") && errors.contains("io_uring"), "{errors}");
}
