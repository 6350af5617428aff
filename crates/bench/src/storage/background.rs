//! Fan-out of a channel in memory during backups and compactions of the same server's storage, alternating with the
//! same load without them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use super::args::BackgroundArgs;
use super::disk::Compactions;
use super::fill::{Fill, channel, fill};
use crate::api;
use crate::error::Error;
use crate::fanout::{LoadFigures, Settings};
use crate::folder::DataFolder;
use crate::goal::Goal;
use crate::proc;
use crate::progress::Progress;
use crate::report::{self, Line, ratio, size};
use crate::rig::{FanoutPhase, FanoutRig, FanoutSetup};
use crate::spawn::{ServerProcess, free_port, setting};

/// Minimum ratio of deliveries per second with backups and compactions to those without.
const SPEED_RATIO_GOAL: f64 = 0.97;
const CHANNELS: u64 = 1_000;
/// Number of channels of a broadcast. They are far apart in the storage, so the resulting compaction rewrites all of
/// it.
const BROADCAST_CHANNELS: u64 = 40;
const BROADCAST_BYTES: usize = 20_000;
const BROADCAST_EVERY: Duration = Duration::from_millis(500);
const IDLE_PATIENCE: Duration = Duration::from_mins(2);

#[derive(Debug, Serialize)]
struct BackgroundReport {
    scenario: &'static str,
    machine: String,
    server: String,
    settings: Settings,
    alone: LoadFigures,
    beside: LoadFigures,
    /// Number of backups, in the turns with backups.
    backups: u64,
    backup_bytes: u64,
    compactions: Compactions,
    /// Ratio of deliveries per second, over all turns.
    speed_ratio: f64,
    speed_ratio_by_pair: Vec<f64>,
    /// Ratio of the p99 of the latency.
    latency_ratio: f64,
    goals: Vec<Goal>,
}

/// Runs the scenario. The order alternates, so that a drift of the machine affects both sides equally.
pub fn run(args: &BackgroundArgs) -> Result<(), Error> {
    args.check()?;
    let progress = Progress::new(args.run.output.quiet);
    let folder = DataFolder::make(args.data.directory.as_deref(), "storage")?;
    let storage = folder.join("storage");
    fill(&storage, Fill { publications: args.publications, channels: CHANNELS, payload_bytes: 400 }, &progress)?;
    let mut rig = start(args, &folder, &progress)?;
    let name = rig.server.name.clone();
    let pace = args.load.pace(0);
    let closed = rig.phase(pace, args.load.warm_up, "warming up", &progress)?.received.closed;
    let turn = args.load.duration / args.load.turns;
    let (mut alone, mut beside) = (FanoutPhase::default(), FanoutPhase::default());
    let (mut by_pair, mut done) = (Vec::new(), Background::default());
    for number in 0..args.load.turns {
        let label = format!("turn {} of {}", number + 1, args.load.turns);
        let mut pair = [0.0; 2];
        for is_beside in [number % 2 == 0, number % 2 == 1] {
            wait_until_idle(&storage, &progress)?;
            let work = is_beside.then(|| BackgroundWork::start(&rig.server, args, storage.clone()));
            let phase = rig.phase(pace, turn, &label, &progress)?;
            if let Some(work) = work {
                done.add(&work.end()?);
            }
            pair[usize::from(is_beside)] = ratio(phase.received.deliveries as f64, phase.wall_ns as f64);
            if is_beside { &mut beside } else { &mut alone }.add(&phase);
        }
        by_pair.push(ratio(pair[1], pair[0]));
    }
    progress.finish();
    let figures = [LoadFigures::new(&alone, &closed), LoadFigures::new(&beside, &closed)];
    let report = BackgroundReport::new(args, name, figures, by_pair, &done);
    report::publish(&report, &report.lines(), &args.run.output)
}

fn start(args: &BackgroundArgs, folder: &DataFolder, progress: &Progress) -> Result<FanoutRig, Error> {
    progress.doing("starting the server".into());
    let mut server = args.run.server.clone();
    let namespace = json!([{ "name": "disk", "durability": "disk", "history_size": 1_000_000, "history_ttl": "24h" }]);
    server.internal_port = Some(free_port()?);
    server.set.extend([
        setting("storage.path", folder.join("storage").display()),
        setting("storage.memtable_size", 1 << 20),
        setting("storage.backup.path", folder.join("backups").display()),
        setting("storage.backup.keep", 2),
        setting("channel.namespaces", namespace),
    ]);
    let cores = args.run.pin.cores();
    let process = ServerProcess::start(&server, &cores)?;
    FanoutRig::start(process, &FanoutSetup::of(&args.load, &cores))?.ready(
        &args.load,
        0,
        &args.run.server.start.api_key,
        progress,
    )
}

/// Waits for the end of all compactions, so that they do not affect the next turn.
fn wait_until_idle(storage: &std::path::Path, progress: &Progress) -> Result<(), Error> {
    progress.doing("waiting for compactions to end".into());
    let (began, mut busy_at) = (Instant::now(), Instant::now());
    while busy_at.elapsed() < Duration::from_secs(1) {
        if began.elapsed() > IDLE_PATIENCE {
            let did = format!("still compacts after {} s", IDLE_PATIENCE.as_secs());
            return Err(Error::Server { did, remedy: "give fewer --publications".into() });
        }
        thread::sleep(Duration::from_millis(100));
        if !Compactions::since(storage, proc::unix_us()).is_idle() {
            busy_at = Instant::now();
        }
    }
    Ok(())
}

/// The background work of a turn.
#[derive(Debug, Default, Clone, Copy)]
struct Background {
    backups: u64,
    backup_bytes: u64,
    compactions: Compactions,
}

impl Background {
    fn add(&mut self, other: &Self) {
        self.backups += other.backups;
        self.backup_bytes += other.backup_bytes;
        self.compactions.add(&other.compactions);
    }
}

/// Two threads: one requests consecutive backups, and one publishes to cause compactions.
struct BackgroundWork {
    ends: Arc<AtomicBool>,
    backups: JoinHandle<Result<(u64, u64), Error>>,
    broadcasts: JoinHandle<Result<(), Error>>,
    storage: PathBuf,
    began_unix_us: u64,
}

impl BackgroundWork {
    fn start(server: &ServerProcess, args: &BackgroundArgs, storage: PathBuf) -> Self {
        let (address, api_key) = (server.operators, args.run.server.start.api_key.clone());
        let ends = Arc::new(AtomicBool::new(false));
        let (until, key) = (Arc::clone(&ends), api_key.clone());
        let backups = thread::spawn(move || {
            let (mut made, mut bytes) = (0, 0);
            while !until.load(Ordering::Relaxed) {
                let answer = api::post(address, "/-/backup", &key, "")?;
                let found: Value = serde_json::from_str(&answer).unwrap_or_default();
                if found["outcome"] != "made" {
                    let did = format!("made no backup: {answer}");
                    return Err(Error::Server { did, remedy: "check its log".into() });
                }
                made += 1;
                bytes += found["bytes"].as_u64().unwrap_or(0);
            }
            Ok((made, bytes))
        });
        let until = Arc::clone(&ends);
        let broadcasts = thread::spawn(move || {
            let mut number = 0_u64;
            while !until.load(Ordering::Relaxed) {
                let channels = (0..BROADCAST_CHANNELS)
                    .map(|at| channel((at * (CHANNELS / BROADCAST_CHANNELS) + number) % CHANNELS));
                let data = "x".repeat(BROADCAST_BYTES);
                let body = json!({ "channels": channels.collect::<Vec<_>>(), "data": data }).to_string();
                api::post(address, "/api/broadcast", &api_key, &body)?;
                number += 1;
                thread::sleep(BROADCAST_EVERY);
            }
            Ok(())
        });
        Self { ends, backups, broadcasts, storage, began_unix_us: proc::unix_us() }
    }

    fn end(self) -> Result<Background, Error> {
        self.ends.store(true, Ordering::Relaxed);
        // Covers the duration of the turn.
        let compactions = Compactions::since(&self.storage, self.began_unix_us);
        let ended = || Error::Worker { role: "background", message: "it ended early".into() };
        let (backups, backup_bytes) = self.backups.join().map_err(|_| ended())??;
        self.broadcasts.join().map_err(|_| ended())??;
        Ok(Background { backups, backup_bytes, compactions })
    }
}

impl BackgroundReport {
    fn new(
        args: &BackgroundArgs,
        server: String,
        [alone, beside]: [LoadFigures; 2],
        speed_ratio_by_pair: Vec<f64>,
        done: &Background,
    ) -> Self {
        let speed_ratio = ratio(beside.deliveries_per_second(), alone.deliveries_per_second());
        let latency_ratio = ratio(beside.p99_us() as f64, alone.p99_us() as f64);
        let missed = (alone.missed() + beside.missed()) as f64;
        let compactions = done.compactions.started as f64;
        let goals = vec![
            Goal::at_most("lost or duplicated", Some(missed), 0.0, ""),
            Goal::at_least("backups meanwhile", Some(done.backups as f64), 1.0, ""),
            Goal::at_least("compactions meanwhile", Some(compactions), 1.0, ""),
            Goal::at_least("deliveries per second, with against without", Some(speed_ratio), SPEED_RATIO_GOAL, "×"),
        ];
        BackgroundReport {
            scenario: "storage background",
            machine: proc::machine(),
            server,
            settings: Settings::new(&args.load, &args.run.pin.cores()),
            alone,
            beside,
            backups: done.backups,
            backup_bytes: done.backup_bytes,
            compactions: done.compactions,
            speed_ratio,
            speed_ratio_by_pair,
            latency_ratio,
            goals,
        }
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::new("machine", &self.machine), self.settings.line(), Line::new("alone", "")];
        lines.extend(self.alone.lines());
        lines.push(Line::new("beside backups and compactions", ""));
        lines.extend(self.beside.lines());
        let work = format!(
            "{} backups ({}), {} compactions begun, {} ended within the turn ({} written)",
            self.backups,
            size(self.backup_bytes),
            self.compactions.started,
            self.compactions.finished,
            size(self.compactions.output_bytes)
        );
        lines.push(Line::new("meanwhile", work));
        let pairs: Vec<String> = self.speed_ratio_by_pair.iter().map(|ratio| format!("{ratio:.3}")).collect();
        lines.push(Line::new("deliveries per second by pair", pairs.join(", ")));
        lines.push(Line::new("latency, p99", format!("{:.2} × that alone", self.latency_ratio)));
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
