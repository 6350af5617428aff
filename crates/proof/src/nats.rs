//! Real NATS servers for tests, one or a cluster of several on the loopback interface.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use crate::repository;

/// As `scripts/need` installs it.
const VERSION: &str = "2.15.2";
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Servers that know each other. Dropping them ends their processes and deletes their files.
#[derive(Debug)]
pub struct NatsServers {
    servers: Vec<NatsServer>,
    dir: PathBuf,
}

#[derive(Debug)]
struct NatsServer {
    child: Option<Child>,
    port: u16,
    config: PathBuf,
}

impl NatsServers {
    /// Starts so many servers, and waits until they take connections. `settings` is added to each configuration.
    ///
    /// # Panics
    /// If `scripts/need nats` cannot install the server, or it does not start.
    pub fn start(count: usize, settings: &str) -> Self {
        let binary = binary();
        let dir = fresh_dir();
        let ports = dunlin_processes::free_ports(count * 2).expect("there are free ports");
        let (ports, route_ports) = ports.split_at(count);
        let routes: Vec<String> = route_ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        let servers = (0..count)
            .map(|index| {
                let config = dir.join(format!("n{index}.conf"));
                let listeners = Listeners { clients: ports[index], routes: route_ports[index] };
                let text = configuration(index, listeners, &routes, &dir, settings);
                fs::write(&config, text).expect("the folder takes files");
                NatsServer { child: None, port: ports[index], config }
            })
            .collect();
        let mut all = Self { servers, dir };
        for index in 0..count {
            all.launch(&binary, index);
        }
        for index in 0..count {
            all.wait_until_ready(index);
        }
        all
    }

    /// The addresses of all servers, as a client takes them.
    pub fn urls(&self) -> String {
        let urls: Vec<String> = (0..self.servers.len()).map(|index| self.url(index)).collect();
        urls.join(",")
    }

    /// The address of one server.
    pub fn url(&self, index: usize) -> String {
        format!("nats://127.0.0.1:{}", self.servers[index].port)
    }

    /// Which server has a host and port.
    pub fn index_of(&self, host_and_port: &str) -> Option<usize> {
        self.servers.iter().position(|server| host_and_port.ends_with(&format!(":{}", server.port)))
    }

    /// Ends a server as a crash does.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.servers[index].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The id of a server's process, for signals; `None` if it was killed.
    pub fn process_id(&self, index: usize) -> Option<u32> {
        self.servers[index].child.as_ref().map(Child::id)
    }

    /// Starts a killed server again, and waits until it takes connections.
    pub fn restart(&mut self, index: usize) {
        self.launch(&binary(), index);
        self.wait_until_ready(index);
    }

    fn launch(&mut self, binary: &Path, index: usize) {
        let server = &mut self.servers[index];
        let log = fs::File::options().create(true).append(true).open(self.dir.join(format!("n{index}.log")));
        let log = log.expect("the folder takes files");
        let command = Command::new(binary)
            .arg("-c")
            .arg(&server.config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        server.child = Some(command.expect("nats-server starts"));
    }

    fn wait_until_ready(&self, index: usize) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.servers[index].port));
        let give_up = Instant::now() + READY_TIMEOUT;
        while !greets(address) {
            let log = || fs::read_to_string(self.dir.join(format!("n{index}.log"))).unwrap_or_default();
            assert!(Instant::now() < give_up, "nats-server {index} takes no connection:\n{}", log());
            // Between two attempts to connect to a process that starts.
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

impl Drop for NatsServers {
    fn drop(&mut self) {
        for index in 0..self.servers.len() {
            self.kill(index);
        }
        if std::thread::panicking() {
            eprintln!("the servers' logs are in {}", self.dir.display());
        } else {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

fn greets(address: SocketAddr) -> bool {
    let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else { return false };
    if stream.set_read_timeout(Some(Duration::from_secs(1))).is_err() {
        return false;
    }
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("INFO ")
}

/// The ports of a server.
#[derive(Clone, Copy)]
struct Listeners {
    clients: u16,
    routes: u16,
}

fn configuration(index: usize, listeners: Listeners, routes: &[String], dir: &Path, settings: &str) -> String {
    let Listeners { clients: port, routes: route_port } = listeners;
    let store = dir.join(format!("n{index}"));
    let mut text = format!(
        "server_name: n{index}\nlisten: \"127.0.0.1:{port}\"\nwrite_deadline: \"2s\"\nmax_pending: 16MB\n\
         jetstream {{ store_dir: \"{}\", max_file_store: 4GB, max_memory_store: 1GB }}\n{settings}\n",
        store.display()
    );
    if routes.len() > 1 {
        let routes = routes.join(", ");
        // A text takes everything that is written to it.
        let _ = writeln!(text, "cluster {{ name: test, listen: \"127.0.0.1:{route_port}\", routes: [{routes}] }}");
    }
    text
}

fn fresh_dir() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("dunlin-nats-{}-{number}", std::process::id()));
    fs::create_dir_all(&dir).expect("the folder for temporary files takes one");
    dir
}

/// The server's binary, installed if it is missing.
fn binary() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let binary = cache.expect("HOME is set").join(format!("dunlin/nats-server-{VERSION}/nats-server"));
    if !binary.exists() {
        let need = repository().join("scripts/need");
        let status = Command::new(need).arg("nats").status().expect("scripts/need runs");
        assert!(status.success() && binary.exists(), "scripts/need nats has not installed {}", binary.display());
    }
    binary
}
