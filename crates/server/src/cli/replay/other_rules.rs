//! `dunlin replay FILE --with SIMULATION`: what other rules make of the same joins and inputs, and what their ticks cost.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use dunlin_games::Registry;
use dunlin_rooms::recording::{Difference, Header, Replay, ReplayError, replay};
use serde_json::{Value, json};

use super::{Failure, Format, RECORDING_BYTES_MAX, film::object_of, make, make_named, output, read};

/// Objects of the difference that the text has. JSON has all of them.
const OBJECTS_SHOWN: usize = 20;

/// Replays a recording with its own simulation and with another one. If players would see something else, prints it and
/// fails.
pub(super) fn run(path: &Path, other: &str, format: Format, registry: &Registry) -> Result<(), Failure> {
    let failed = |text: String| Failure::Replay(path.to_owned(), text);
    let recording = read(path, RECORDING_BYTES_MAX)?;
    let header = Header::read(&recording.bytes).map_err(|error| failed(error.to_string()))?;
    let outcome = Outcome::of(&recording.bytes, &header, other, registry).map_err(failed)?;
    let names = [header.simulation.as_str(), other];
    match format {
        Format::Json => output::line(outcome.in_json(names))?,
        Format::Text => outcome.print(names)?,
    }
    match outcome.seen {
        None => Ok(()),
        Some(Seen { difference, .. }) => {
            Err(failed(format!("with {other:?}, players see something else after tick {}", difference.tick)))
        }
    }
}

/// How a room with other rules differs from the one that was recorded.
#[derive(Debug)]
struct Outcome {
    ticks: u32,
    /// The first tick after which anything differs, such as the games' own states.
    state_differs_after: Option<u32>,
    seen: Option<Seen>,
    /// Of the recorded simulation, and of the other one.
    costs: [Cost; 2],
}

/// The first difference that players see.
#[derive(Debug)]
struct Seen {
    difference: Difference,
    /// The objects that differ, with their fields.
    objects: Vec<[Option<Value>; 2]>,
}

/// How long ticks take, with the steps before them.
#[derive(Debug, Default)]
struct Cost {
    total: Duration,
    longest: Duration,
}

impl Outcome {
    fn of(recording: &[u8], header: &Header, other: &str, registry: &Registry) -> Result<Self, String> {
        let simulations = [make(header, registry)?, make_named(other, header, registry)?];
        let mut replays = Vec::with_capacity(2);
        for simulation in simulations {
            replays.push(replay(recording, |_| simulation).map_err(|error| error.to_string())?);
        }
        let [recorded, changed] = &mut replays[..] else { unreachable!("there are two simulations") };
        recorded.watch();
        changed.watch();
        let mut outcome = Self { ticks: 0, state_differs_after: None, seen: None, costs: Default::default() };
        // Both read the same bytes, so they end together.
        while let Some(tick) = outcome.costs[0].next_tick(recorded) {
            let tick = match tick {
                Ok(tick) => tick,
                Err(ReplayError::BreaksOff) => break,
                Err(error) => return Err(error.to_string()),
            };
            // The recording has the state hashes of its own rules. Those of other rules may differ from them.
            match outcome.costs[1].next_tick(changed) {
                Some(Ok(_) | Err(ReplayError::Divergence { .. })) => {}
                Some(Err(error)) => return Err(error.to_string()),
                None => return Err(ReplayError::BreaksOff.to_string()),
            }
            outcome.ticks = tick;
            outcome.compare(recorded, changed);
        }
        Ok(outcome)
    }

    fn compare(&mut self, recorded: &Replay<'_>, changed: &Replay<'_>) {
        if self.seen.is_some() {
            return;
        }
        let Some(difference) = Difference::between(recorded, changed) else { return };
        self.state_differs_after.get_or_insert(difference.tick);
        if difference.is_in_world() {
            let objects = difference.objects.iter().map(|(id, [one, other])| {
                let one = one.as_ref().map(|object| object_of(recorded, *id, object));
                [one, other.as_ref().map(|object| object_of(changed, *id, object))]
            });
            let objects = objects.collect();
            self.seen = Some(Seen { difference, objects });
        }
    }

    /// How many times as long the ticks of the other rules take; `None` without ticks.
    fn cost_ratio(&self) -> Option<f64> {
        let [recorded, changed] = &self.costs;
        let ratio = changed.total.as_secs_f64() / recorded.total.as_secs_f64();
        ratio.is_finite().then_some(ratio)
    }

    fn in_json(&self, names: [&str; 2]) -> Value {
        let seen = self.seen.as_ref().map(|Seen { difference, objects }| {
            let Difference { tick, steps, players, .. } = difference;
            let players = players.each_ref().map(|players| players.iter().map(|player| player.0).collect::<Vec<_>>());
            json!({ "tick": tick, "steps": steps, "players": players, "objects": objects })
        });
        let us = |pick: fn(&Cost) -> Duration| self.costs.each_ref().map(|cost| pick(cost).as_micros() as u64);
        json!({
            "simulations": names, "ticks": self.ticks, "state_differs_after": self.state_differs_after, "seen": seen,
            "ticks_us": us(|cost| cost.total), "longest_tick_us": us(|cost| cost.longest),
        })
    }

    fn print(&self, names: [&str; 2]) -> Result<(), Failure> {
        match (&self.seen, self.state_differs_after) {
            (Some(seen), _) => seen.print(names)?,
            (None, Some(tick)) => output::line(format_args!(
                "no player and no object differs in {} ticks; what the games keep for themselves differs after tick {tick}",
                self.ticks
            ))?,
            (None, None) => output::line(format_args!("nothing differs in {} ticks", self.ticks))?,
        }
        for (name, cost) in names.iter().zip(&self.costs) {
            let mean_us = cost.total.as_secs_f64() * 1e6 / f64::from(self.ticks.max(1));
            let longest_us = cost.longest.as_micros();
            output::line(format_args!("{name}: {mean_us:.1} µs a tick, {longest_us} µs the longest"))?;
        }
        match self.cost_ratio() {
            Some(ratio) => output::line(format_args!(
                "the ticks of {} take {ratio:.2} times as long as those of {}",
                names[1], names[0]
            )),
            None => Ok(()),
        }
    }
}

impl Cost {
    fn next_tick(&mut self, replay: &mut Replay<'_>) -> Option<Result<u32, ReplayError>> {
        let began = Instant::now();
        let tick = replay.next_tick();
        let took = began.elapsed();
        if tick.is_some() {
            self.total += took;
            self.longest = self.longest.max(took);
        }
        tick
    }
}

impl Seen {
    fn print(&self, names: [&str; 2]) -> Result<(), Failure> {
        let Self { difference, objects } = self;
        output::line(format_args!("after tick {}, players see something else:", difference.tick))?;
        for ((name, steps), players) in names.iter().zip(&difference.steps).zip(&difference.players) {
            for step in steps {
                output::line(format_args!("only with {name}: {step}"))?;
            }
            for player in players {
                output::line(format_args!("only with {name}: player {} is in the room", player.0))?;
            }
        }
        for ((id, _), objects) in difference.objects.iter().zip(objects).take(OBJECTS_SHOWN) {
            match objects {
                [Some(recorded), Some(changed)] => {
                    let members = changes("", recorded, changed).join(", ");
                    output::line(format_args!("object {}: {members}", id.0))?;
                }
                [Some(object), None] => {
                    output::line(format_args!("only with {}: object {}: {object}", names[0], id.0))?;
                }
                [None, object] => {
                    let object = object.as_ref().unwrap_or(&Value::Null);
                    output::line(format_args!("only with {}: object {}: {object}", names[1], id.0))?;
                }
            }
        }
        match objects.len().checked_sub(OBJECTS_SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => output::line(format_args!("{more} more objects differ: -o json has them")),
        }
    }
}

/// The members of an object that differ, and those of its fields.
fn changes(prefix: &str, recorded: &Value, changed: &Value) -> Vec<String> {
    let (Some(one), Some(other)) = (recorded.as_object(), changed.as_object()) else {
        return vec![format!("{prefix} {recorded} → {changed}")];
    };
    // An object whose state does not have the form of its kind has `state` in the place of `fields`.
    let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
    let different = names.map(|name| (name, &recorded[name], &changed[name])).filter(|(_, one, other)| one != other);
    different
        .flat_map(|(name, one, other)| {
            let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            changes(&name, one, other)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use dunlin_protocol::Encoding;
    use dunlin_rooms::{
        GridShape, InputError, NewObject, PlayerId, Position, Refusal, RestoreError, Room, RoomOptions, Simulation,
        Visibility, Visitor, World, recording::Recorder,
    };

    use super::*;

    /// A game that keeps a number for itself, and shows another one from a tick on.
    #[derive(Debug)]
    struct Counting {
        own: u8,
        shown_after: u32,
    }

    impl Simulation for Counting {
        fn grid(&self) -> GridShape {
            GridShape { columns: 1, rows: 1, cell_units: 256, near_cells: 1, far_cells: 0, far_interval_ticks: 1 }
        }

        fn start(&mut self, world: &mut World) {
            let position = Position { x: 1, y: 1 };
            let object = NewObject { position, kind: 1, visibility: Visibility::Everyone, state: &[0] };
            world.spawn(object).expect("one object");
        }

        fn join(&mut self, _: &mut World, _: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
            Ok(())
        }

        fn leave(&mut self, _: &mut World, _: PlayerId) {}

        fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
            Ok(())
        }

        fn tick(&mut self, world: &mut World) {
            if world.tick() > self.shown_after {
                let (id, _) = world.objects().next().expect("the object");
                world.set_state(id, &[9]).expect("a byte");
            }
        }

        fn save(&self, out: &mut Vec<u8>) {
            out.push(self.own);
        }

        fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
            self.own = saved[0];
            Ok(())
        }
    }

    const TICKS: u32 = 30;

    fn registry() -> Registry {
        Registry::default()
            .with("now", |_| Ok(Box::new(Counting { own: 1, shown_after: TICKS })))
            .with("same", |_| Ok(Box::new(Counting { own: 1, shown_after: TICKS })))
            .with("inside", |_| Ok(Box::new(Counting { own: 2, shown_after: TICKS })))
            .with("outside", |_| Ok(Box::new(Counting { own: 1, shown_after: 20 })))
    }

    fn outcome(other: &str) -> Result<Outcome, String> {
        let header = Header {
            simulation: "now".to_owned(),
            params: "{}".to_owned(),
            seed: 1,
            channel: String::new(),
            options: RoomOptions::default(),
        };
        let mut room = Room::open(header.options.clone(), header.info(), make(&header, &registry())?).expect("a map");
        let mut recorder = Recorder::new(&header, Vec::new());
        for tick in 1..=TICKS {
            if tick == 3 {
                let visitor = Visitor::of_user("ada");
                recorder.join(&visitor, Encoding::Json, b"");
                let joined = room.join(&visitor, Encoding::Json, b"").map(|joined| joined.player);
                assert_eq!(joined.ok(), Some(PlayerId(1)));
            }
            room.tick_without_update();
            recorder.tick(&room);
        }
        Outcome::of(recorder.written(), &header, other, &registry())
    }

    #[test]
    fn the_same_rules_differ_in_nothing() {
        let outcome = outcome("same").expect("a recording");
        assert_eq!((outcome.ticks, outcome.state_differs_after), (TICKS, None));
        assert!(outcome.seen.is_none());
        assert!(outcome.costs.iter().all(|cost| cost.longest <= cost.total && !cost.total.is_zero()), "{outcome:?}");
    }

    #[test]
    fn what_a_game_keeps_for_itself_is_no_difference_for_players() {
        let outcome = outcome("inside").expect("a recording");
        assert_eq!((outcome.ticks, outcome.state_differs_after), (TICKS, Some(1)));
        assert!(outcome.seen.is_none());
    }

    #[test]
    fn the_first_tick_that_players_see_is_named_with_the_objects() {
        let outcome = outcome("outside").expect("a recording");
        assert_eq!(outcome.ticks, TICKS, "the cost is that of the whole recording");
        let seen = outcome.seen.as_ref().expect("a difference");
        assert_eq!((seen.difference.tick, seen.objects.len()), (21, 1));
        let [Some(one), Some(other)] = &seen.objects[0] else { panic!("{seen:?}") };
        let [state] = &changes("", one, other)[..] else { panic!("{one} {other}") };
        assert!(state.starts_with("state "), "{state}");
        let json = outcome.in_json(["now", "outside"]);
        assert_eq!((&json["seen"]["tick"], &json["ticks"]), (&json!(21), &json!(TICKS)));
    }

    #[test]
    fn an_unknown_simulation_is_refused_with_those_that_are_known() {
        let error = outcome("next").expect_err("it is unknown");
        assert_eq!(error, r#"unknown simulation "next": this program has inside, now, outside, same"#);
    }
}
