//! Scenarios that a profile describes, on one rig: a target, crews of clients, phases, samples of the server, gates and
//! a result. A new scenario is a file in `bench/scenarios`, and no code.
//!
//! - `profile`, `document`, `quantity`: reading a profile. `gate`, `figures`: what is measured, and what must hold.
//! - `course`, `rig`, `target`, `sampler`: a run. `crew_commands`, `streams`, `stamp`: what it shares with `worker::crew`.
//! - `result`, `machine`, `secrets`: what a run writes, and what it does not. `compare`, `page`, `plan`: what is made of it.

pub mod args;
pub mod compare;
mod course;
pub mod crew_commands;
mod document;
mod figures;
mod gate;
mod machine;
mod page;
pub mod plan;
mod profile;
mod quantity;
pub mod rate_curve;
mod result;
mod rig;
mod sampler;
pub mod secrets;
pub mod stamp;
pub mod streams;
mod target;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use self::args::{ReportArgs, RunProfileArgs, ScenarioArgs};
use self::course::{Course, Log};
use self::figures::FIGURES;
use self::gate::Gate;
pub use self::profile::Profile;
use self::result::Origin;
pub use self::result::RunResult;
use self::rig::ScenarioRig;
use self::target::ScenarioTarget;
use crate::error::Error;
use crate::interrupt;
use crate::proc::Cores;
use crate::progress::Progress;
use crate::report;

/// Runs profiles one after the other. What goes wrong in one does not keep the others from running; broken gates and
/// partial results are an error after all of them.
pub fn run(args: &RunProfileArgs) -> Result<(), Error> {
    if args.list {
        return print_list();
    }
    if args.json.is_some() && args.profiles.len() > 1 {
        let remedy = "give one profile, or --runs FOLDER for the results of several".to_owned();
        return Err(Error::Setting { name: "json", value: args.profiles.join(" "), remedy });
    }
    interrupt::watch()?;
    // A mistake in the last profile is found before the first one has run.
    let profiles = args.profiles.iter().map(|source| load(source, &args.common)).collect::<Result<Vec<_>, _>>()?;
    let mut results = Vec::new();
    for profile in &profiles {
        let result = run_once(profile, &args.common);
        let path = match &args.json {
            Some(path) => path.clone(),
            None => result::make_file_in(&args.common.runs, &stem_of(&result))?,
        };
        result.write(&path)?;
        if !args.common.quiet {
            report::print(&result.lines());
            note(&format!("result: {}\n", path.display()));
        }
        results.push(result);
        if interrupt::check().is_err() {
            break;
        }
    }
    if let Some(path) = &args.page {
        result::write_file(path, &page::page(&results))?;
        if !args.common.quiet {
            note(&format!("page: {}", path.display()));
        }
    }
    verdict(&results)
}

/// The error of all runs together.
fn verdict(results: &[RunResult]) -> Result<(), Error> {
    let of = |result: &RunResult, what: &str| format!("{}: {what}", result.scenario.profile);
    let partial: Vec<_> = results.iter().filter_map(|result| Some(of(result, result.partial.as_deref()?))).collect();
    let broken: Vec<_> = results
        .iter()
        .flat_map(|result| result.outcome.broken.iter().map(|broken| of(result, &broken.message)))
        .collect();
    match (partial.is_empty(), broken.is_empty()) {
        (false, _) => Err(Error::Partial { why: partial, broken }),
        (true, false) => Err(Error::Gates(broken)),
        (true, true) => Ok(()),
    }
}

/// Makes a page of results.
pub fn report(args: &ReportArgs) -> Result<(), Error> {
    let results = args.runs.iter().map(|path| RunResult::read(path)).collect::<Result<Vec<_>, _>>()?;
    let first = args.runs.first().map_or(Path::new("run.json"), PathBuf::as_path);
    let path = args.output.clone().unwrap_or_else(|| first.with_extension("html"));
    result::write_file(&path, &page::page(&results))?;
    note(&format!("page: {}", path.display()));
    Ok(())
}

fn print_list() -> Result<(), Error> {
    let mut text = String::from("Profiles:\n");
    for name in profile::built_in_names() {
        let about = Profile::load(name, false, &[]).map_err(Error::Scenario)?.about;
        let _ = writeln!(text, "  {name:14} {about}");
    }
    text.push_str("\nFigures:\n");
    for figure in FIGURES {
        let _ = writeln!(text, "  {:28} {}", figure.name, figure.meaning);
    }
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|source| Error::os("write the list to stdout", source, "open stdout"))
}

fn note(line: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A profile with the gates of the command line.
fn load(source: &str, args: &ScenarioArgs) -> Result<Profile, Error> {
    let profile = match &args.on {
        Some(load) => Profile::load_on(source, load, args.short, &args.set),
        None => Profile::load(source, args.short, &args.set),
    };
    let mut profile = profile.map_err(Error::Scenario)?;
    if let Some(gates) = &args.gate {
        profile.gates = Gate::parse_all(gates).map_err(Error::Scenario)?;
        for gate in &profile.gates {
            profile.check_gate(gate).map_err(Error::Scenario)?;
        }
    }
    Ok(profile)
}

/// The name of a result's file without its end.
fn stem_of(result: &RunResult) -> String {
    let time = result.origin.started_at.replace([':', '-'], "");
    format!("{time}-{}", result.scenario.profile)
}

/// Runs a profile once. If the run ends early, the result is partial: it has what was measured until then.
pub fn run_once(profile: &Profile, args: &ScenarioArgs) -> RunResult {
    let progress = Progress::new(args.quiet);
    let cores = if args.target.target.is_some() && args.target.server_pid.is_none() {
        Cores::unpinned()
    } else {
        args.pin.cores()
    };
    let origin = Origin::now(cores);
    progress.doing("starting the target".into());
    let mut course = Course::default();
    let measured = measure(profile, args, (&origin.cores, &progress), &mut course);
    progress.finish();
    let partial = measured.err().map(|error| error.to_string());
    let mut result = course.result(profile, origin, partial);
    result.origin.machine.end();
    result
}

fn measure(
    profile: &Profile,
    args: &ScenarioArgs,
    (cores, progress): (&Cores, &Progress),
    course: &mut Course,
) -> Result<(), Error> {
    let target = ScenarioTarget::start(&args.target, profile, cores)?;
    course.meets(&target);
    let mut rig = ScenarioRig::start(profile, target, &args.target.start.api_key, cores, progress)?;
    let ended = course.run(profile, &mut rig, &Log { progress, is_quiet: args.quiet });
    course.sampled(&rig);
    ended
}
