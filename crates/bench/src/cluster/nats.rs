//! The NATS servers of a run: processes on the loopback interface, as docs/clustering.md recommends them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::args::NatsArgs;
use crate::api;
use crate::error::Error;
use crate::folder::DataFolder;
use crate::proc;

/// The version that `scripts/need` installs.
const VERSION: &str = "2.15.2";
const START_PATIENCE: Duration = Duration::from_mins(1);
/// A replica that was away catches up in parts.
const STEP_PATIENCE: Duration = Duration::from_mins(3);
/// Maximum lag of a replica in sync, caused by messages in flight.
const LAG_MAX: u64 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The servers of a NATS cluster. They end when this is dropped.
pub struct NatsProcesses {
    servers: Vec<NatsProcess>,
    program: PathBuf,
    cores: Vec<usize>,
    /// Removed after the servers have ended.
    folder: DataFolder,
}

struct NatsProcess {
    child: Child,
    port: u16,
    monitor: SocketAddr,
    config: PathBuf,
    log: PathBuf,
}

/// The ports of a server.
struct Ports {
    clients: u16,
    routes: u16,
    monitor: u16,
}

impl NatsProcesses {
    /// Starts the servers, and waits until all have joined.
    pub fn start(args: &NatsArgs, cores: &[usize]) -> Result<Self, Error> {
        let program = args.nats_server.clone().map_or_else(installed_program, Ok)?;
        let folder = DataFolder::make(args.directory.as_deref(), "nats")?;
        let ports = free_ports(args.nats_servers)?;
        let routes: Vec<String> = ports.iter().map(|ports| format!("nats://127.0.0.1:{}", ports.routes)).collect();
        let mut all = NatsProcesses { servers: Vec::new(), program, cores: cores.to_vec(), folder };
        for (number, ports) in ports.iter().enumerate() {
            let text = configuration(number, ports, &routes, &all.folder);
            let config = all.folder.join(&format!("n{number}.conf"));
            fs::write(&config, text)
                .map_err(|source| Error::os(format!("write {}", config.display()), source, "give --directory"))?;
            let log = all.folder.join(&format!("n{number}.log"));
            let child = launch(&all.program, &config, &log, cores)?;
            let monitor = SocketAddr::from((Ipv4Addr::LOCALHOST, ports.monitor));
            all.servers.push(NatsProcess { child, port: ports.clients, monitor, config, log });
        }
        all.wait_until_healthy()?;
        Ok(all)
    }

    fn wait_until_healthy(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + START_PATIENCE;
        for server in &mut self.servers {
            while api::get(server.monitor, "/healthz").is_err() {
                let ended = server.child.try_wait().ok().flatten();
                if ended.is_some() || Instant::now() > deadline {
                    let log = fs::read_to_string(&server.log).unwrap_or_default();
                    let last: Vec<&str> = log.lines().rev().take(5).collect();
                    let did = ended.map_or("is not healthy in 60 s".into(), |status| format!("ended ({status})"));
                    return Err(Error::Nats { did, remedy: format!("its last lines were: {}", last.join(" | ")) });
                }
                thread::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }

    /// The addresses of all servers, in the format of a node's configuration.
    pub fn urls(&self) -> String {
        let urls: Vec<String> = (0..self.servers.len()).map(|number| self.url(number)).collect();
        urls.join(",")
    }

    pub fn url(&self, number: usize) -> String {
        format!("nats://127.0.0.1:{}", self.servers[number].port)
    }

    /// Number of replicas of each publication.
    pub fn replicas(&self) -> usize {
        self.servers.len()
    }

    /// Kills a server, as in a crash.
    pub fn kill(&mut self, number: usize) {
        let child = &mut self.servers[number].child;
        // Fails only if the process has already ended.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Restarts a killed server, and waits until it has caught up with the others.
    pub fn restart(&mut self, number: usize) -> Result<(), Error> {
        let server = &mut self.servers[number];
        server.child = launch(&self.program, &server.config, &server.log, &self.cores)?;
        self.wait_until_healthy()
    }

    /// Waits until each stream has a leader and all other replicas are in sync, so that the cluster tolerates a
    /// failure.
    pub fn wait_until_in_step(&self) -> Result<(), Error> {
        let deadline = Instant::now() + STEP_PATIENCE;
        let others = self.servers.len() as u64 - 1;
        loop {
            let mut in_step = 0;
            for (number, server) in self.servers.iter().enumerate() {
                let page = page(server, "/jsz?streams=true")?;
                in_step += streams(&page).filter(|stream| is_in_step(&stream["cluster"], number, others)).count();
            }
            if in_step == streams(&page(&self.servers[0], "/jsz?streams=true")?).count() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let did = "has copies of streams that are not in step in 3 minutes".into();
                return Err(Error::Nats { did, remedy: "give fewer --partitions".into() });
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// The number of the server that leads each stream.
    pub fn leaders(&self) -> Result<BTreeMap<String, usize>, Error> {
        let page = page(&self.servers[0], "/jsz?streams=true")?;
        let leader = |stream: &Value| {
            let leader = stream["cluster"]["leader"].as_str()?.strip_prefix('n')?.parse().ok()?;
            Some((stream["name"].as_str()?.to_owned(), leader))
        };
        Ok(streams(&page).filter_map(leader).collect())
    }

    /// Processor time of all servers.
    pub fn cpu_ns(&self) -> Result<u64, Error> {
        self.servers.iter().map(|server| proc::cpu_ns(server.child.id())).sum()
    }

    /// Messages that were sent to subscriptions of this subject, from the servers' own counters.
    pub fn messages_of(&self, subject: &str) -> Result<u64, Error> {
        let mut messages = 0;
        for server in &self.servers {
            let page = page(server, "/connz?subs=detail&limit=1024")?;
            let subscriptions = items(&page["connections"])
                .iter()
                .flat_map(|connection| items(&connection["subscriptions_list_detail"]));
            messages += subscriptions
                .filter(|subscription| subscription["subject"] == subject)
                .filter_map(|subscription| subscription["msgs"].as_u64())
                .sum::<u64>();
        }
        Ok(messages)
    }

    /// The server with a connection of this name.
    pub fn server_of(&self, connection: &str) -> Result<usize, Error> {
        for (number, server) in self.servers.iter().enumerate() {
            let page = page(server, "/connz?limit=1024")?;
            if items(&page["connections"]).iter().any(|found| found["name"] == connection) {
                return Ok(number);
            }
        }
        let did = format!("has no connection {connection:?}");
        Err(Error::Nats { did, remedy: "check the log of the node".into() })
    }
}

impl Drop for NatsProcesses {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // Fails only if the process has already ended.
            let _ = server.child.kill();
            let _ = server.child.wait();
        }
    }
}

/// Reads a page of the server's monitoring endpoint.
fn page(server: &NatsProcess, path: &str) -> Result<Value, Error> {
    let text = api::get(server.monitor, path)?;
    serde_json::from_str(&text).map_err(|error| {
        let did = format!("answers {path} with something else than JSON ({error})");
        Error::Nats { did, remedy: format!("use version {VERSION}") }
    })
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn streams(page: &Value) -> impl Iterator<Item = &Value> {
    items(&page["account_details"]).iter().flat_map(|account| items(&account["stream_detail"]))
}

/// Whether the server with this number reports that it leads the stream, and that this number of other replicas is in
/// sync.
fn is_in_step(cluster: &Value, number: usize, others: u64) -> bool {
    let current = items(&cluster["replicas"])
        .iter()
        .filter(|copy| copy["current"] == true && copy["lag"].as_u64().unwrap_or(0) <= LAG_MAX);
    cluster["leader"] == format!("n{number}") && current.count() as u64 == others
}

fn installed_program() -> Result<PathBuf, Error> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).unwrap_or_default();
    let program = cache.join(format!("dunlin/nats-server-{VERSION}/nats-server"));
    if program.is_file() {
        return Ok(program);
    }
    let remedy = "run `scripts/need nats` in Dunlin's repository, or give the path of a NATS server".into();
    Err(Error::Setting { name: "nats-server", value: program.display().to_string(), remedy })
}

/// Free ports for this number of servers.
fn free_ports(servers: usize) -> Result<Vec<Ports>, Error> {
    let failed = |source| Error::os("find free ports", source, "end other programs");
    let ports = dunlin_processes::free_ports(servers * 3).map_err(failed)?;
    let of_server = |three: &[u16]| Ports { clients: three[0], routes: three[1], monitor: three[2] };
    Ok(ports.chunks_exact(3).map(of_server).collect())
}

fn configuration(number: usize, ports: &Ports, routes: &[String], folder: &DataFolder) -> String {
    let store = folder.join(&format!("n{number}"));
    let mut text = format!(
        "server_name: n{number}\nlisten: \"127.0.0.1:{}\"\nhttp: \"127.0.0.1:{}\"\nwrite_deadline: \"2s\"\n\
         max_pending: 16MB\nping_interval: \"5s\"\nlogtime_utc: true\n\
         jetstream {{ store_dir: \"{}\", sync_interval: always, max_file_store: 4GB }}\n",
        ports.clients,
        ports.monitor,
        store.display()
    );
    if routes.len() > 1 {
        let (listen, routes) = (ports.routes, routes.join(", "));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "cluster {{ name: bench, listen: \"127.0.0.1:{listen}\", routes: [{routes}] }}");
    }
    text
}

fn launch(program: &Path, config: &Path, log: &Path, cores: &[usize]) -> Result<Child, Error> {
    let failed = |source| {
        Error::os(format!("start {}", program.display()), source, "give --nats-server the path of a NATS server")
    };
    let log = File::options().create(true).append(true).open(log).map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("-c").arg(config).stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log);
    let cores = cores.to_vec();
    dunlin_processes::end_with_this(&mut command, libc::SIGKILL);
    // SAFETY: between fork and exec only one system call is made; nothing is allocated or locked.
    unsafe { command.pre_exec(move || proc::pin_self(&cores)) };
    command.spawn().map_err(failed)
}
