//! The setup of all room scenarios: a server, and players in its rooms.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::figures::ServerStats;
use super::observation;
use super::player_commands::{Played, PlayerBehavior, PlayersCommand, PlayersReply, PlayersRole};
use super::verify::{self, Verified};
use crate::commands::EncodingOption;
use crate::control::{Connected, MessageContent, Role, Target, WorkerCommand, WorkerReply};
use crate::error::Error;
use crate::folder::DataFolder;
use crate::proc::{self, Cores, Memory, Ticks};
use crate::progress::Progress;
use crate::spawn::ServerProcess;
use crate::tally::{Tally, WORKERS_MAX};
use crate::worker_process::{Worker, source_address};

/// Number of players per process, well below 20,000 open files.
const PLAYERS_PER_WORKER: usize = 4_000;
const HANDSHAKES_MAX: usize = 64;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The channel name before the room's number.
pub const CHANNEL: &str = "room:bench";

/// The configuration of the players.
#[derive(Clone)]
pub struct RoomSetup {
    pub players: usize,
    /// Number of players per room.
    pub players_per_room: usize,
    /// Number of players that can be paused.
    pub slow: usize,
    /// Share of the players that use JSON.
    pub json_share: f64,
    /// The behavior of the players.
    pub play: PlayerBehavior,
    /// Whether the viewpoint of a player is its own object.
    pub looks_from_own: bool,
    /// One in this number of players decodes each snapshot completely.
    pub full_every: u32,
    /// The content of the server's WebSocket messages.
    pub content: MessageContent,
    /// The data of the joins.
    pub join: Option<String>,
    /// Number of worker processes.
    pub workers: Option<usize>,
    /// Receive buffer of slow players.
    pub slow_receive_bytes: usize,
    /// The cores of all processes.
    pub cores: Cores,
    /// Whether to record observations.
    pub keeps_observations: bool,
}

/// A folder for the files of a run, removed on drop.
pub struct Scratch(DataFolder);

impl Scratch {
    /// Creates the folder.
    pub fn create() -> Result<Self, Error> {
        DataFolder::make(None, "room").map(Scratch)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The room's setting with which the server writes recordings into this folder.
    pub fn recording(&self) -> (&'static str, serde_json::Value) {
        ("record_directory", self.path().display().to_string().into())
    }

    /// The recordings of the room with this number, the earliest first.
    pub fn recordings(&self, room: u32) -> Vec<PathBuf> {
        // The file name contains the channel's name with special characters replaced.
        let prefix = format!("{CHANNEL}{room}-").replace(':', "_");
        let entries = fs::read_dir(self.path()).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        let is_of_room = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix))
        };
        paths.retain(is_of_room);
        paths.sort_unstable();
        paths
    }
}

/// A server and its players.
pub struct RoomRig {
    // Dropped in this order, so that players disconnect before the server ends.
    workers: Vec<Worker>,
    /// The server under test.
    pub server: ServerProcess,
    tally: Tally,
    content: MessageContent,
    players: usize,
    observations: Vec<PathBuf>,
}

/// The measurements of one phase.
#[derive(Default)]
pub struct RoomPhase {
    /// The sum of all players.
    pub played: Played,
    /// The server's own figures.
    pub server_stats: ServerStats,
    /// Processor time of the server.
    pub server_cpu_ns: u64,
    /// The same in ticks of user and kernel mode.
    pub server_split: Ticks,
    /// Duration of the phase.
    pub wall_ns: u64,
    /// Samples of the server's memory.
    pub memory: Vec<Memory>,
}

impl RoomPhase {
    /// Adds a later phase of the same kind.
    pub fn add(&mut self, later: RoomPhase) {
        self.played.add(&later.played);
        self.server_stats.add(later.server_stats);
        self.server_cpu_ns += later.server_cpu_ns;
        self.server_split.user += later.server_split.user;
        self.server_split.system += later.server_split.system;
        self.wall_ns += later.wall_ns;
        self.memory.extend(later.memory);
    }

    /// Processor time of the server per received snapshot, in nanoseconds.
    pub fn cpu_ns_per_snapshot(&self) -> f64 {
        crate::report::ratio(self.server_cpu_ns as f64, self.played.snapshots as f64)
    }
}

impl RoomRig {
    /// Starts the players' processes, and joins all players.
    pub fn start(
        server: ServerProcess,
        setup: &RoomSetup,
        scratch: &Scratch,
        progress: &Progress,
    ) -> Result<Self, Error> {
        let tally = Tally::create()?;
        let count = setup.workers.unwrap_or_else(|| setup.players.div_ceil(PLAYERS_PER_WORKER));
        if !(1..=WORKERS_MAX).contains(&count) {
            let remedy = format!("give 1 to {WORKERS_MAX}");
            return Err(Error::Setting { name: "workers", value: count.to_string(), remedy });
        }
        let mut rig = RoomRig {
            workers: Vec::new(),
            tally,
            content: setup.content,
            players: setup.players,
            observations: Vec::new(),
            server,
        };
        let mut parts = Vec::new();
        let mut first_player = 0;
        for worker in 0..count {
            let part = setup.players / count + usize::from(worker < setup.players % count);
            let role = rig.role(setup, scratch, worker, first_player);
            rig.observations.extend(role.observations.clone());
            rig.workers.push(Worker::start(&Role::Players(Box::new(role)))?);
            first_player += part as u32;
            parts.push(part);
        }
        rig.connect(&parts, setup.slow, progress)?;
        Ok(rig)
    }

    fn role(&self, setup: &RoomSetup, scratch: &Scratch, worker: usize, first_player: u32) -> PlayersRole {
        let observations = scratch.path().join(format!("seen-{}-{worker}", self.server.pid));
        PlayersRole {
            target: Target {
                address: self.server.address,
                path: self.server.path.clone(),
                encoding: EncodingOption::Protobuf,
                channel: CHANNEL.into(),
                join: setup.join.clone(),
                content: setup.content,
                tls: false,
            },
            worker,
            first_player,
            players_per_room: setup.players_per_room as u32,
            json_share: setup.json_share,
            play: setup.play,
            looks_from_own: setup.looks_from_own,
            full_every: setup.full_every,
            source: source_address(worker),
            handshakes_max: HANDSHAKES_MAX,
            slow_receive_bytes: setup.slow_receive_bytes,
            observations: setup.keeps_observations.then_some(observations),
            tally: self.tally.path(),
            cores: setup.cores.clients.clone(),
        }
    }

    /// Joins all players. The slow players are all in the first process.
    fn connect(&mut self, parts: &[usize], slow: usize, progress: &Progress) -> Result<(), Error> {
        progress.counting("joining".into(), self.players as u64);
        for (number, (worker, &sessions)) in self.workers.iter_mut().zip(parts).enumerate() {
            let slow = if number == 0 { slow.min(sessions) } else { 0 };
            worker.send_command(&WorkerCommand::Connect { sessions, slow })?;
        }
        let mut all = Connected::default();
        for worker in &self.workers {
            let connected = loop {
                progress.at(self.tally.ready());
                match worker.answer_within(LOOK_EVERY)? {
                    Some(WorkerReply::Connected(connected)) => break connected,
                    Some(other) => return Err(worker.unexpected(&other)),
                    None => {}
                }
            };
            all.ready += connected.ready;
            for (why, count) in connected.failed {
                *all.failed.entry(why).or_default() += count;
            }
        }
        if all.failed.is_empty() && all.ready == self.players {
            return Ok(());
        }
        let did = format!("refused players ({} of {} joined): {:?}", all.ready, self.players, all.failed);
        Err(Error::Server { did, remedy: "check its log, and its limits of connections and players".into() })
    }

    /// Makes the players play at this rate for a time, and measures.
    pub fn phase(
        &mut self,
        inputs_per_second: f64,
        duration: Duration,
        label: &str,
        progress: &Progress,
    ) -> Result<RoomPhase, Error> {
        let watch = self.begin(inputs_per_second)?;
        self.watch(watch, duration, label, progress)
    }

    /// Begins a phase that [`Self::watch`] measures.
    pub fn begin(&mut self, inputs_per_second: f64) -> Result<Watch, Error> {
        self.play_all(&PlayersCommand::Begin { inputs_per_second })?;
        Ok(Watch {
            before: ServerStats::ask(self.content, self.server.address)?,
            cpu_before_ns: proc::cpu_ns(self.server.pid)?,
            split_before: proc::ticks(self.server.pid)?,
            start: Instant::now(),
            memory: vec![proc::memory(self.server.pid)?],
        })
    }

    /// Waits for a time, and ends the phase.
    pub fn watch(
        &mut self,
        mut watch: Watch,
        duration: Duration,
        label: &str,
        progress: &Progress,
    ) -> Result<RoomPhase, Error> {
        self.wait(&mut watch, duration, label, progress)?;
        let cpu_ns = proc::cpu_ns(self.server.pid)?;
        let split = proc::ticks(self.server.pid)?;
        let wall_ns = watch.start.elapsed().as_nanos() as u64;
        let played = self.report_played()?;
        Ok(RoomPhase {
            played,
            server_stats: ServerStats::ask(self.content, self.server.address)?.since(&watch.before),
            server_cpu_ns: cpu_ns - watch.cpu_before_ns,
            server_split: Ticks {
                user: split.user.saturating_sub(watch.split_before.user),
                system: split.system.saturating_sub(watch.split_before.system),
            },
            wall_ns,
            memory: watch.memory,
        })
    }

    /// Waits for a time, and samples the server's memory.
    pub fn wait(&self, watch: &mut Watch, duration: Duration, label: &str, progress: &Progress) -> Result<(), Error> {
        progress.counting(label.to_owned(), duration.as_millis() as u64);
        let start = Instant::now();
        while let Some(left) = duration.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
            progress.at(start.elapsed().as_millis() as u64);
            thread::sleep(left.min(LOOK_EVERY));
            watch.memory.push(proc::memory(self.server.pid)?);
        }
        Ok(())
    }

    /// The server's own figures of the whole run.
    pub fn server_stats(&self) -> Result<ServerStats, Error> {
        ServerStats::ask(self.content, self.server.address)
    }

    /// The measurements of the players since the phase began.
    pub fn report_played(&mut self) -> Result<Played, Error> {
        let mut all = Played::default();
        for played in self.play_all(&PlayersCommand::Report)? {
            match played {
                PlayersReply::Played(played) => all.add(&played),
                PlayersReply::Done => {}
            }
        }
        Ok(all)
    }

    /// Sends a command to all players.
    pub fn play_all(&mut self, command: &PlayersCommand) -> Result<Vec<PlayersReply>, Error> {
        for worker in &mut self.workers {
            worker.send_command(&WorkerCommand::Play(command.clone()))?;
        }
        let answer = |worker: &Worker| match worker.answer()? {
            WorkerReply::Play(answer) => Ok(answer),
            other => Err(worker.unexpected(&other)),
        };
        self.workers.iter().map(answer).collect()
    }

    /// Ends the players and the server, and compares the observations with the recordings.
    pub fn verify(mut self, scratch: &Scratch, progress: &Progress) -> Result<Verified, Error> {
        self.play_all(&PlayersCommand::Flush)?;
        let files = std::mem::take(&mut self.observations);
        progress.doing("ending the server".into());
        // Players disconnect first, so that the recording contains everything that they saw. The server writes the rest
        // when it ends.
        drop(self);
        let mut seen = Vec::new();
        for path in files {
            seen.append(&mut observation::read(&path)?);
        }
        let rooms = verify::by_room(seen);
        let mut verified = Verified::default();
        for (number, (room, by_tick)) in rooms.iter().enumerate() {
            progress.doing(format!("replaying room {} of {}", number + 1, rooms.len()));
            match scratch.recordings(*room).as_slice() {
                [recording] => verified.check(&verify::read_recording(recording)?, by_tick),
                others => {
                    let fault = format!("there are {} recordings of room {room}, not one", others.len());
                    verified.recording_faults.push(fault);
                }
            }
        }
        Ok(verified)
    }
}

/// A phase in progress.
pub struct Watch {
    before: ServerStats,
    cpu_before_ns: u64,
    split_before: Ticks,
    start: Instant,
    memory: Vec<Memory>,
}

impl Watch {
    /// Private memory of the server in the last sample.
    pub fn anon_bytes(&self) -> u64 {
        self.memory.last().map_or(0, |memory| memory.anon_bytes)
    }
}

/// The server's settings for rooms of this simulation, for [`crate::args::ServerArgs::set`].
pub fn room_settings(simulation: &str, params: &serde_json::Value, more: &[(&str, serde_json::Value)]) -> Vec<String> {
    let mut room = serde_json::Map::new();
    room.insert("simulation".into(), simulation.into());
    room.insert("params".into(), params.clone());
    for (key, value) in more {
        room.insert((*key).into(), value.clone());
    }
    let namespace: BTreeMap<&str, serde_json::Value> = BTreeMap::from([
        ("name", "room".into()),
        ("room", room.into()),
        ("history_size", 100.into()),
        ("history_ttl", "60s".into()),
        ("allow_subscribe_for_client", true.into()),
        ("allow_subscribe_for_anonymous", true.into()),
        ("allow_publish_for_subscriber", true.into()),
        ("allow_publish_for_anonymous", true.into()),
    ]);
    vec![
        format!("channel.namespaces={}", serde_json::json!([namespace])),
        "prometheus.enabled=true".into(),
        "prometheus.survey_max_age=0s".into(),
    ]
}
