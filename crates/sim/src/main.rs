//! `dunlin-sim`: runs simulated worlds and prints the seeds that failed.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use clap::{Parser, ValueEnum};
use dunlin_sim::RunOutcome;

/// Failures after which the program stops.
const FAILURES_MAX: usize = 10;
/// Seeds between two progress lines.
const PROGRESS_SEEDS: u64 = 500;

/// Simulates nodes and clients from seeds, and checks what clients receive.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// Start at a seed from the current time.
    #[arg(long, conflicts_with = "start")]
    fresh: bool,
    /// Run only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// The world to run. Defaults to `whole` for a single seed, and to all worlds otherwise.
    #[arg(long)]
    world: Option<SimWorld>,
    /// Print the trace of a single seed.
    #[arg(long, requires = "seed")]
    trace: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum SimWorld {
    /// A node without a log
    Whole,
    /// Channels with a log
    Logged,
    /// A room that is stored on disk
    Kept,
    /// A cluster of nodes
    Clustered,
}

impl SimWorld {
    const ALL: [Self; 4] = [Self::Whole, Self::Logged, Self::Kept, Self::Clustered];

    fn run(self, seed: u64, prints: bool) -> RunOutcome {
        match self {
            Self::Whole => dunlin_sim::run(seed, prints),
            Self::Logged => dunlin_sim::run_logged(seed, prints),
            Self::Kept => dunlin_sim::run_kept(seed, prints, None),
            Self::Clustered => dunlin_sim::run_clustered(seed, prints),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Logged => "logged",
            Self::Kept => "kept",
            Self::Clustered => "clustered",
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(seed) = cli.seed {
        let world = cli.world.unwrap_or(SimWorld::Whole);
        let outcome = world.run(seed, cli.trace);
        println!("seed {seed}: {} steps, trace hash {:016x}", outcome.steps, outcome.trace_hash);
        return report(&outcome, world);
    }
    let start = if cli.fresh { clock() } else { cli.start };
    println!("{} seeds from {start}", cli.seeds);
    let worlds = cli.world.map_or(SimWorld::ALL.to_vec(), |world| vec![world]);
    run_all(&worlds, start, cli.seeds)
}

fn run_all(worlds: &[SimWorld], start: u64, count: u64) -> ExitCode {
    let begun = Instant::now();
    let (mut steps, mut failures, mut hash) = (0, 0, 0_u64);
    let mut reached = BTreeMap::new();
    for done in 0..count {
        for world in worlds {
            let outcome = world.run(start.wrapping_add(done), false);
            steps += outcome.steps;
            hash = hash.rotate_left(7) ^ outcome.trace_hash;
            for (what, times) in &outcome.reached {
                *reached.entry(what.clone()).or_insert(0) += times;
            }
            if outcome.failure.is_some() {
                report(&outcome, *world);
                failures += 1;
            }
        }
        if failures >= FAILURES_MAX {
            break;
        }
        if (done + 1) % PROGRESS_SEEDS == 0 {
            eprintln!("{} of {count} seeds, {steps} steps", done + 1);
        }
    }
    let reached = reached.iter().filter(|(_, times)| **times > 0).map(|(what, times)| format!("{what}: {times}"));
    println!("{}", reached.collect::<Vec<_>>().join(" · "));
    let seconds = begun.elapsed().as_secs_f64();
    println!("{steps} steps in {seconds:.1} s, {:.0} steps/s, trace hash {hash:016x}", steps as f64 / seconds);
    if failures == 0 {
        println!("all {count} seeds passed");
        ExitCode::SUCCESS
    } else {
        println!("{failures} seeds failed");
        ExitCode::FAILURE
    }
}

fn report(outcome: &RunOutcome, world: SimWorld) -> ExitCode {
    let Some(failure) = &outcome.failure else { return ExitCode::SUCCESS };
    println!("seed {} failed after {} steps: {failure}", outcome.seed, outcome.steps);
    println!("  replay: cargo run --release -p dunlin-sim -- --seed {} --world {} --trace", outcome.seed, world.name());
    ExitCode::FAILURE
}

/// A seed from the current time, which no earlier run used.
fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
