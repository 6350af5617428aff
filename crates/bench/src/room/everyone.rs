//! One room in which every player sees everything: Dunlin and an equivalent Go server, alternately.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::args::{EveryoneArgs, in_range};
use super::player_commands::PlayerBehavior;
use super::rig::{RoomPhase, RoomRig, RoomSetup, Scratch, room_settings};
use super::side::Side;
use super::verify::Verified;
use super::{Found, finish};
use crate::args::{ServerArgs, StartArgs};
use crate::control::MessageContent;
use crate::error::Error;
use crate::goal::Goal;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::{Line, ratio};
use crate::spawn::ServerProcess;

/// The result of `room everyone`.
#[derive(Debug, Serialize)]
struct Report {
    scenario: &'static str,
    machine: String,
    cores: Cores,
    players: usize,
    objects: u32,
    ticks_per_second: u32,
    inputs_per_second: f64,
    sides: Vec<Side>,
    /// Processor time per snapshot of Dunlin, divided by that of the other server, by turn.
    cpu_ratio_to_shared_by_turn: Vec<f64>,
    verified: Option<Verified>,
    goals: Vec<Goal>,
}

const DUNLIN: &str = "Dunlin";
/// The same, to clients that ask for the fields of states.
const TYPED: &str = "Dunlin, fields";
const SHARED: &str = "Go, shared";
const NAIVE: &str = "Go, naive";

/// A server in the comparison.
struct Contender {
    name: &'static str,
    args: ServerArgs,
    setup: RoomSetup,
    phase: RoomPhase,
    cpu_by_turn: Vec<f64>,
}

/// Runs the scenario.
pub fn run(args: &EveryoneArgs) -> Result<(), Error> {
    args.play.check()?;
    in_range("objects", args.objects.into(), 1.0, 100_000.0)?;
    in_range("turns", args.turns.into(), 1.0, 100.0)?;
    in_range("verify-seconds", args.verify_seconds, 0.0, 3_600.0)?;
    let cores = args.run.pin.cores();
    let progress = Progress::new(args.run.output.quiet);
    let verified =
        if args.verify_seconds > 0.0 && !args.only_peer { Some(verify(args, &cores, &progress)?) } else { None };
    let mut contenders = contenders(args, &cores)?;
    for turn in 1..=args.turns {
        // The order alternates, so that a drift of the machine affects all servers equally.
        if turn % 2 == 0 {
            contenders.reverse();
        }
        for contender in &mut contenders {
            contender.run_once(args, &cores, &format!("turn {turn} of {}", args.turns), &progress)?;
        }
        if turn % 2 == 0 {
            contenders.reverse();
        }
    }
    progress.finish();
    let report = report(args, cores, &contenders, verified);
    let found = Found { is_right: report.is_right(), lines: report.lines() };
    finish(&report, &found, &args.run.output)
}

fn params(args: &EveryoneArgs) -> Value {
    // With 10 bytes of state, an object takes 24 bytes, so a hundred objects result in a snapshot of 2.4 KB.
    let mut params = json!({"objects": args.objects, "everyone_sees_everything": true, "state_bytes": 10});
    if args.typed {
        params["typed"] = true.into();
    }
    params
}

fn dunlin(args: &EveryoneArgs, more: &[(&str, Value)]) -> ServerArgs {
    let mut server = args.run.server.clone();
    let rate = ("ticks_per_second", json!(args.play.ticks_per_second));
    let more: Vec<_> = more.iter().cloned().chain([rate]).collect();
    server.set.splice(0..0, room_settings("crowd", &params(args), &more));
    server
}

/// A separate run with a recording, because recording adds a hash of the world to every tick.
fn verify(args: &EveryoneArgs, cores: &Cores, progress: &Progress) -> Result<Verified, Error> {
    let scratch = Scratch::create()?;
    let server = ServerProcess::start(&dunlin(args, &[scratch.recording()]), cores)?;
    let setup = RoomSetup { keeps_observations: true, full_every: 1, ..args.play.setup(cores) };
    let mut rig = RoomRig::start(server, &setup, &scratch, progress)?;
    let duration = Duration::from_secs_f64(args.verify_seconds);
    rig.phase(args.play.inputs_per_second, duration, "a run to verify", progress)?;
    rig.verify(&scratch, progress)
}

fn contenders(args: &EveryoneArgs, cores: &Cores) -> Result<Vec<Contender>, Error> {
    let setup = args.play.setup(cores);
    let contender =
        |name, args, setup| Contender { name, args, setup, phase: RoomPhase::default(), cpu_by_turn: Vec::new() };
    let mut all = Vec::new();
    if !args.only_peer {
        all.push(contender(DUNLIN, dunlin(args, &[]), setup.clone()));
        if args.typed {
            let join = Some(r#"{"snapshots":"typed"}"#.to_owned());
            all.push(contender(TYPED, dunlin(args, &[]), RoomSetup { join, ..setup.clone() }));
        }
    }
    if args.no_peer {
        return Ok(all);
    }
    let peer = peer(args)?;
    for (name, mode) in [(SHARED, "shared"), (NAIVE, "naive")] {
        let program_args =
            format!("-c {{config}} -mode {mode} -objects {} -rate {}", args.objects, args.play.ticks_per_second);
        let server = ServerArgs {
            url: None,
            server_pid: None,
            start: StartArgs {
                spawn: Some(peer.clone()),
                spawn_args: program_args.split(' ').map(str::to_owned).collect(),
                reactor: None,
                ..args.run.server.start.clone()
            },
            set: Vec::new(),
            ..args.run.server.clone()
        };
        let play = PlayerBehavior::Stamp { shared_objects: Some(args.objects) };
        all.push(contender(
            name,
            server,
            RoomSetup { play, content: MessageContent::Bare, json_share: 0.0, ..setup.clone() },
        ));
    }
    Ok(all)
}

fn peer(args: &EveryoneArgs) -> Result<PathBuf, Error> {
    let cache = || {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).unwrap_or_default()
    };
    let path = args.peer.clone().unwrap_or_else(|| cache().join("dunlin/peers/room-go"));
    if path.is_file() {
        return Ok(path);
    }
    let remedy = "build it with bench/peers/build, or give --no-peer".into();
    Err(Error::Setting { name: "peer", value: path.display().to_string(), remedy })
}

impl Contender {
    fn run_once(&mut self, args: &EveryoneArgs, cores: &Cores, turn: &str, progress: &Progress) -> Result<(), Error> {
        progress.doing(format!("{turn}: starting {}", self.name));
        let scratch = Scratch::create()?;
        let server = ServerProcess::start(&self.args, cores)?;
        let mut rig = RoomRig::start(server, &self.setup, &scratch, progress)?;
        let pace = args.play.inputs_per_second;
        rig.phase(pace, args.play.warm_up(), "warming up", progress)?;
        let phase = rig.phase(pace, args.play.duration(), &format!("{turn}: {}", self.name), progress)?;
        self.cpu_by_turn.push(phase.cpu_ns_per_snapshot());
        self.phase.add(phase);
        Ok(())
    }
}

fn report(args: &EveryoneArgs, cores: Cores, contenders: &[Contender], verified: Option<Verified>) -> Report {
    let sides: Vec<Side> = contenders.iter().map(|contender| Side::new(contender.name, &contender.phase)).collect();
    let by_turn = |name| {
        contenders.iter().filter(move |contender| contender.name == name).flat_map(|contender| &contender.cpu_by_turn)
    };
    Report {
        scenario: "room everyone",
        machine: proc::machine(),
        cores,
        players: args.play.players,
        objects: args.objects,
        ticks_per_second: args.play.ticks_per_second,
        inputs_per_second: args.play.inputs_per_second,
        goals: goals(&sides, args.play.json_share),
        cpu_ratio_to_shared_by_turn: by_turn(DUNLIN).zip(by_turn(SHARED)).map(|(own, go)| ratio(*own, *go)).collect(),
        sides,
        verified,
    }
}

fn goals(sides: &[Side], json_share: f64) -> Vec<Goal> {
    let side = |name| sides.iter().find(|side| side.name == name);
    let Some(dunlin) = side(DUNLIN) else { return Vec::new() };
    let ms = |us: Option<f64>| us.map(|us| us / 1e3);
    let against =
        |name| side(name).map(|other| ratio(dunlin.server_cpu_us_per_snapshot, other.server_cpu_us_per_snapshot));
    let encodings = if json_share > 0.0 && json_share < 1.0 { 2.0 } else { 1.0 };
    vec![
        Goal::at_most("tick p99", ms(dunlin.server.tick_p99_us), 0.3, "ms"),
        Goal::at_most("tick begun late, p99", ms(dunlin.server.late_p99_us), 1.0, "ms"),
        Goal::at_most("age of a snapshot, p99", Some(dunlin.age.p99_us as f64 / 1e3), 8.0, "ms"),
        Goal::at_most("processor time a snapshot, against Go", against(SHARED), 0.6, "×"),
        Goal::at_most("the same, against naive Go", against(NAIVE), 1.0, "×"),
        Goal::at_most("bodies put together each tick", dunlin.server.encodes_per_tick, encodings, ""),
    ]
}

impl Report {
    fn is_right(&self) -> bool {
        self.verified.as_ref().is_none_or(Verified::is_good) && self.sides.iter().all(Side::is_sound)
    }

    fn lines(&self) -> Vec<Line> {
        let load = format!(
            "{} players, {} objects, {} ticks/s, {} inputs/s each",
            self.players, self.objects, self.ticks_per_second, self.inputs_per_second
        );
        let mut lines = vec![Line::new("machine", &self.machine), Line::new("load", load)];
        lines.extend(self.sides.iter().flat_map(Side::lines));
        let turns: Vec<String> = self.cpu_ratio_to_shared_by_turn.iter().map(|ratio| format!("{ratio:.2}")).collect();
        if !turns.is_empty() {
            lines.push(Line::new("against Go, by turn", turns.join(", ")));
        }
        lines.extend(self.verified.as_ref().map(Verified::line));
        lines.extend(self.goals.iter().map(Goal::line));
        lines
    }
}
