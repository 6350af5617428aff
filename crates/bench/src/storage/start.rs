//! Compares starts of a server with a full storage and with a storage of a tenth of its size.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use serde_json::{Value, json};

use super::args::StorageStartArgs;
use super::fill::{Fill, channel, fill};
use crate::api;
use crate::error::Error;
use crate::folder::DataFolder;
use crate::goal::Goal;
use crate::proc::{self, Memory};
use crate::progress::Progress;
use crate::report::{self, Line, ratio, size, time};
use crate::spawn::{ServerProcess, setting};

/// Time from the start of the process to the first response with stored publications.
const SERVING_S_GOAL: f64 = 2.0;
/// Largest ratio of the memory with the full storage to the memory with the small one.
const MEMORY_RATIO_GOAL: f64 = 1.1;
/// How many times larger the full storage is.
const PART: u64 = 10;

#[derive(Debug, Serialize)]
struct StartReport {
    scenario: &'static str,
    machine: String,
    server: String,
    publications: u64,
    channels: u64,
    payload_bytes: usize,
    channels_read: u64,
    full: Vec<Started>,
    small: Vec<Started>,
    /// Ratio of the anonymous memory after the same reads: full storage over small storage, without the first start.
    memory_ratio: f64,
    goals: Vec<Goal>,
}

/// One start.
#[derive(Debug, Clone, Copy, Serialize)]
struct Started {
    /// Time until `/health` responded.
    healthy_us: u64,
    /// Time until the first history was read from disk.
    serving_us: u64,
    /// Memory when it serves.
    memory: Memory,
    /// Memory after the histories of some channels were read.
    memory_after_reads: Memory,
}

/// Runs the scenario.
pub fn run(args: &StorageStartArgs) -> Result<(), Error> {
    args.check()?;
    let progress = Progress::new(args.run.output.quiet);
    let folder = DataFolder::make(args.data.directory.as_deref(), "storage")?;
    let Fill { publications, channels, payload_bytes } =
        Fill { publications: args.publications, channels: args.channels, payload_bytes: args.payload_bytes };
    let small = Fill { publications: publications / PART, channels: channels / PART, payload_bytes };
    fill(&folder.join("full"), Fill { publications, channels, payload_bytes }, &progress)?;
    fill(&folder.join("small"), small, &progress)?;
    let (mut starts_full, mut starts_small, mut name) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..args.turns {
        starts_full.push(start(args, &folder.join("full"), channels, &mut name, &progress)?);
        starts_small.push(start(args, &folder.join("small"), small.channels, &mut name, &progress)?);
    }
    progress.finish();
    let report = StartReport::new(args, name, starts_full, starts_small);
    report::publish(&report, &report.lines(), &args.run.output)
}

fn start(
    args: &StorageStartArgs,
    storage: &Path,
    channels: u64,
    name: &mut String,
    progress: &Progress,
) -> Result<Started, Error> {
    progress.doing(format!("starting with {}", storage.display()));
    let mut server = args.run.server.clone();
    let namespace = json!([{
        "name": "disk", "durability": "disk", "history_size": 1_000_000, "history_ttl": "24h",
    }]);
    server.set.extend([
        setting("storage.path", storage.display()),
        setting("storage.block_cache_size", args.block_cache_bytes),
        setting("channel.namespaces", namespace),
    ]);
    let began = Instant::now();
    let process = ServerProcess::start(&server, &args.run.pin.cores())?;
    let healthy_us = began.elapsed().as_micros() as u64;
    read(&process, &args.run.server.start.api_key, 0)?;
    let serving_us = began.elapsed().as_micros() as u64;
    let memory = proc::memory(process.pid)?;
    for number in 0..args.channels_read {
        read(&process, &args.run.server.start.api_key, number * (channels / args.channels_read))?;
    }
    name.clone_from(&process.name);
    Ok(Started { healthy_us, serving_us, memory, memory_after_reads: proc::memory(process.pid)? })
}

/// Reads the history of a channel, which must not be empty.
fn read(server: &ServerProcess, api_key: &str, number: u64) -> Result<(), Error> {
    let body = json!({ "channel": channel(number), "limit": 100 }).to_string();
    let answer = api::post(server.operators, "/api/history", api_key, &body)?;
    let found: Value = serde_json::from_str(&answer).unwrap_or_default();
    let is_there = found["result"]["publications"].as_array().is_some_and(|publications| !publications.is_empty());
    if is_there {
        return Ok(());
    }
    let did = format!("has no history of {}: {}", channel(number), answer.chars().take(200).collect::<String>());
    Err(Error::Server { did, remedy: "check its log".into() })
}

impl StartReport {
    fn new(args: &StorageStartArgs, server: String, full: Vec<Started>, small: Vec<Started>) -> Self {
        let later_bytes = |starts: &[Started]| {
            let bytes: u64 = starts.iter().skip(1).map(|start| start.memory_after_reads.anon_bytes).sum();
            ratio(bytes as f64, starts.len().saturating_sub(1) as f64)
        };
        let memory_ratio = ratio(later_bytes(&full), later_bytes(&small));
        let slowest_us = full.iter().map(|start| start.serving_us).max();
        let goals = vec![
            Goal::at_most(
                "slowest start until a history is read",
                slowest_us.map(|us| us as f64 / 1e6),
                SERVING_S_GOAL,
                "s",
            ),
            Goal::at_most("private memory with ten times as much on disk", Some(memory_ratio), MEMORY_RATIO_GOAL, "×"),
        ];
        StartReport {
            scenario: "storage start",
            machine: proc::machine(),
            server,
            publications: args.publications,
            channels: args.channels,
            payload_bytes: args.payload_bytes,
            channels_read: args.channels_read,
            full,
            small,
            memory_ratio,
            goals,
        }
    }

    fn lines(&self) -> Vec<Line> {
        let load = format!(
            "{} publications of {} bytes in {} channels; {} channels read after each start",
            self.publications, self.payload_bytes, self.channels, self.channels_read
        );
        let mut lines = vec![Line::new("machine", &self.machine), Line::new("storage", load)];
        for (name, starts) in [("full", &self.full), ("a tenth", &self.small)] {
            for (number, start) in starts.iter().enumerate() {
                let text = format!(
                    "healthy after {}, history after {}; private memory {}, {} after the reads",
                    time(start.healthy_us),
                    time(start.serving_us),
                    size(start.memory.anon_bytes),
                    size(start.memory_after_reads.anon_bytes)
                );
                lines.push(Line::new(format!("{name}, start {}", number + 1), text));
            }
        }
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
