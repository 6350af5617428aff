//! The server under test: a running one, or one that is started with a configuration and stopped afterwards.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustls::StreamOwned;
use serde_json::{Value, json};

use crate::args::{ServerArgs, parse_url};
use crate::control::MessageContent;
use crate::error::Error;
use crate::folder::DataFolder;
use crate::peer::PeerProtocol;
use crate::proc::{self, Cores};
use crate::scenario::secrets::shown_url;
use crate::tls;

/// The file name of Dunlin's server.
const SERVER: &str = "dunlin";
/// The variable with which `dunlin bench` names itself.
const CALLER: &str = "CALLER_OF_DUNLIN_BENCH";
/// The file with the output of a started server, in its folder.
const LOG: &str = "server.log";
/// Maximum time for a server to become healthy.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// Time after which a server that does not end is killed.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The server under test. A started one ends when this is dropped.
pub struct ServerProcess {
    /// Its process id.
    pub pid: u32,
    /// The address of its listener.
    pub address: SocketAddr,
    /// The address of its health check and its API.
    pub operators: SocketAddr,
    /// Path of its WebSocket endpoint.
    pub path: String,
    /// Whether it uses TLS.
    pub tls: bool,
    /// What its WebSocket messages contain.
    pub content: MessageContent,
    /// A description for the report.
    pub name: String,
    started: Option<Started>,
}

struct Started {
    child: Child,
    /// Removed after the process has ended, because `Drop` of the process comes before that of its fields.
    folder: DataFolder,
}

impl ServerProcess {
    /// Finds or starts the server, and pins it to its cores.
    pub fn start(args: &ServerArgs, cores: &Cores) -> Result<Self, Error> {
        match (&args.url, args.server_pid) {
            (Some(url), Some(pid)) => {
                let (address, path) = parse_url(url)?;
                proc::pin_process(pid, &cores.server)?;
                Ok(ServerProcess {
                    pid,
                    address,
                    operators: address,
                    path,
                    tls: false,
                    content: args.content(),
                    name: shown_url(url),
                    started: None,
                })
            }
            _ => spawn(args, cores),
        }
    }
}

impl ServerProcess {
    /// Kills the server, as in a crash.
    pub fn kill(mut self) {
        if let Some(started) = &mut self.started {
            // Fails only if the process has already ended. The drop waits for the process.
            let _ = started.child.kill();
        }
    }

    /// How the process has ended; none if it runs, or was not started here.
    pub fn end(&self) -> Option<String> {
        let pid = self.started.as_ref()?.child.id();
        // SAFETY: zero is a valid siginfo.
        let mut end: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: the place for the answer is valid for the call. The process stays as it is for its child's own wait.
        let is_known = unsafe { libc::waitid(libc::P_PID, pid, &raw mut end, options) } == 0;
        // SAFETY: waitid has filled the fields of a child's end, or left zeros.
        let (ended, status) = unsafe { (end.si_pid() != 0, end.si_status()) };
        let how = if end.si_code == libc::CLD_EXITED { "exit code" } else { "signal" };
        (is_known && ended).then(|| format!("{how} {status}"))
    }

    /// The last lines that it has written, if it was started here.
    pub fn last_output(&self) -> String {
        let log = self.started.as_ref().map(|started| started.folder.join(LOG));
        let text = log.and_then(|log| fs::read_to_string(log).ok()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(10)..).unwrap_or_default().join("\n")
    }

    /// Shuts the server down, and waits for its end. Returns the duration.
    pub fn stop(mut self, patience: Duration) -> Result<Duration, Error> {
        let began = Instant::now();
        let Some(started) = &mut self.started else { return Ok(Duration::ZERO) };
        // SAFETY: the child has not been waited for, so its pid is still its own.
        unsafe { libc::kill(started.child.id().cast_signed(), libc::SIGTERM) };
        while matches!(started.child.try_wait(), Ok(None)) {
            if began.elapsed() > patience {
                let did = format!("has not ended {} s after SIGTERM", patience.as_secs());
                return Err(Error::Server { did, remedy: "check shutdown.timeout".into() });
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(began.elapsed())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let Some(started) = &mut self.started else { return };
        if matches!(started.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // SAFETY: the child has not been waited for, so its pid is still its own.
        unsafe { libc::kill(started.child.id().cast_signed(), libc::SIGTERM) };
        let deadline = Instant::now() + END_PATIENCE;
        while Instant::now() < deadline && matches!(started.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
        // Fails only if the process has already ended.
        let _ = started.child.kill();
        let _ = started.child.wait();
    }
}

fn spawn(args: &ServerArgs, cores: &Cores) -> Result<ServerProcess, Error> {
    let program = args.start.spawn.clone().unwrap_or_else(default_program);
    let port = args.start.port.map_or_else(free_port, Ok)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let folder = DataFolder::make(None, "server")?;
    let config_path = folder.join("config.json");
    // Other servers do not know this key, so it is only set if requested.
    let reactor = args.start.reactor.iter().map(|kind| format!("reactor={kind}"));
    let tls = args.tls.then(tls::server_settings).into_iter().flatten();
    let internal = args.internal_port.map(|port| format!("http_server.internal_port={port}"));
    // Files of the server go where they are removed with it.
    let set = args.set.iter().map(|setting| setting.replace("{folder}", &folder.path().to_string_lossy()));
    let settings: Vec<String> = reactor.chain(tls).chain(internal).chain(set).collect();
    write(&config_path, &config(port, &args.start.api_key, &settings)?)?;
    let child = start_process(&program, args, &config_path, &folder.join(LOG), cores)?;
    let name = program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut server = ServerProcess {
        pid: child.id(),
        address,
        operators: args.internal_port.map_or(address, |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        path: args.speaks.map_or("/connection/websocket", PeerProtocol::path).into(),
        tls: args.tls,
        content: args.content(),
        name,
        started: Some(Started { child, folder }),
    };
    wait_until_healthy(&mut server)?;
    Ok(server)
}

/// The server that is measured by default: the one that called this program as `dunlin bench` and names itself in a variable, as cargo
/// does for its subcommands. If this program was started by itself, `dunlin` beside it, otherwise the one that the system finds in `PATH`.
fn default_program() -> PathBuf {
    let caller = env::var_os(CALLER).map(PathBuf::from);
    let beside = || env::current_exe().ok().map(|this| this.with_file_name(SERVER)).filter(|file| file.is_file());
    caller.or_else(beside).unwrap_or_else(|| SERVER.into())
}

/// A setting of a started server, for `--set`.
pub fn setting(key: &str, value: impl std::fmt::Display) -> String {
    format!("{key}={value}")
}

/// A free port.
pub fn free_port() -> Result<u16, Error> {
    dunlin_processes::free_port().map_err(|source| Error::os("find a free port", source, "give --port"))
}

fn write(path: &Path, config: &Value) -> Result<(), Error> {
    fs::write(path, format!("{config:#}\n"))
        .map_err(|source| Error::os(format!("write {}", path.display()), source, "set TMPDIR to a folder with space"))
}

/// A configuration with one shard and one namespace without history, which permits all actions of the load. The keys
/// are Centrifugo's (v6), except for `shards`.
fn config(port: u16, api_key: &str, settings: &[String]) -> Result<Value, Error> {
    let mut config = json!({
        "shards": 1,
        "http_server": { "address": "127.0.0.1", "port": port },
        "http_api": { "key": api_key },
        "health": { "enabled": true },
        "client": { "allowed_origins": ["*"], "allow_anonymous_connect_without_token": true },
        "channel": { "without_namespace": {
            "allow_subscribe_for_client": true,
            "allow_subscribe_for_anonymous": true,
            "allow_publish_for_client": true,
            "allow_publish_for_anonymous": true,
        } },
    });
    for setting in settings {
        set(&mut config, setting)?;
    }
    Ok(config)
}

fn set(config: &mut Value, setting: &str) -> Result<(), Error> {
    let bad = |remedy: &str| Error::Setting { name: "set", value: setting.to_owned(), remedy: remedy.to_owned() };
    let (key, text) = setting.split_once('=').ok_or_else(|| bad("give KEY=VALUE"))?;
    let mut place = config;
    for part in key.split('.') {
        if place.is_null() {
            *place = json!({});
        }
        let object = place.as_object_mut().ok_or_else(|| bad("a part of this key is a value, not a section"))?;
        place = object.entry(part).or_insert(Value::Null);
    }
    *place = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    Ok(())
}

fn start_process(program: &Path, args: &ServerArgs, config: &Path, log: &Path, cores: &Cores) -> Result<Child, Error> {
    let failed =
        |source| Error::os(format!("start {}", program.display()), source, "give --spawn the path of a server program");
    let log = File::create(log).map_err(failed)?;
    let config = config.to_string_lossy();
    let mut command = Command::new(program);
    command
        .args(args.start.spawn_args.iter().map(|arg| arg.replace("{config}", &config)))
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log);
    let cores = cores.server.clone();
    dunlin_processes::end_with_this(&mut command, libc::SIGTERM);
    // Ctrl-C in a terminal ends the run, which then ends the server.
    command.process_group(0);
    // SAFETY: between fork and exec only one system call is made; nothing is allocated or locked.
    unsafe { command.pre_exec(move || proc::pin_self(&cores)) };
    command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound if program.parent() == Some(Path::new("")) => Error::Server {
            did: format!("({}) is neither beside this program nor in PATH", program.display()),
            remedy: "give --spawn PROGRAM, or build it with `cargo build --release --package dunlin`".to_owned(),
        },
        _ => failed(source),
    })
}

fn wait_until_healthy(server: &mut ServerProcess) -> Result<(), Error> {
    let deadline = Instant::now() + START_PATIENCE;
    let did = loop {
        if is_healthy(server) {
            return Ok(());
        }
        let ended = server.started.as_mut().and_then(|started| started.child.try_wait().ok().flatten());
        if let Some(status) = ended {
            break format!("ended at once ({status})");
        }
        if Instant::now() > deadline {
            break format!("did not answer /health on {} within 20 s", server.operators);
        }
        thread::sleep(Duration::from_millis(20));
    };
    Err(Error::Server { did, remedy: format!("its output was:\n{}", server.last_output()) })
}

fn is_healthy(server: &ServerProcess) -> bool {
    let address = server.operators;
    let ask = || -> io::Result<bool> {
        let socket = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        // An internal port has no TLS.
        if !server.tls || server.operators != server.address {
            return answers_health(socket, address);
        }
        let client = tls::client_config().and_then(tls::client).map_err(io::Error::other)?;
        answers_health(StreamOwned::new(client, socket), address)
    };
    ask().unwrap_or(false)
}

fn answers_health(mut stream: impl Read + Write, address: SocketAddr) -> io::Result<bool> {
    write!(stream, "GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut status_line = [0; 12];
    stream.read_exact(&mut status_line)?;
    Ok(status_line.ends_with(b" 200"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_set_at_their_path() {
        let settings = ["client.queue_max_size=65536", "log.level=error", "channel.namespaces=[]"].map(String::from);
        let config = config(20_100, "k", &settings).unwrap();
        assert_eq!(config["client"]["queue_max_size"], 65_536);
        assert_eq!(config["client"]["allowed_origins"], json!(["*"]));
        assert_eq!(config["log"]["level"], "error");
        assert_eq!(config["channel"]["namespaces"], json!([]));
        assert_eq!(config["http_server"]["port"], 20_100);
    }

    #[test]
    fn invalid_settings_are_reported() {
        for setting in ["shards", "shards.deep=1"] {
            let error = config(1, "k", &[setting.to_owned()]).unwrap_err();
            assert!(error.to_string().contains(setting), "{error}");
        }
    }
}
