//! Random access to the ticks of a recording, for a page.
//!
//! The recording is replayed once. On the way, states of the room are kept at intervals, from which any tick can be reached
//! with few others, and what the timeline marks is collected.

use std::{cell::Cell, collections::BTreeMap};

use dunlin_rooms::{
    CellIndex, GridShape, Object, ObjectId, ObjectView, PlayerId, SnapshotFormat, Visibility,
    recording::{Checkpoint, Header, RecordedStep, Replay, ReplayError, replay, tells_of_connections},
    wire::encode_own,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Simulation, connections::Connections, state, steps};

/// Ticks between two checkpoints, as long as these need little memory.
const CHECKPOINT_TICKS: u32 = 240;

/// Maximum memory of the checkpoints of a page on the machine of its user. With more, every second one is dropped.
pub(super) const CHECKPOINT_BYTES_MAX: usize = 256 << 20;

/// Maximum marks of the timeline, and players of the list. A page cannot show more.
const MARKS_MAX: usize = 20_000;
const PLAYERS_MAX: usize = 10_000;

/// Maximum ticks of an answer.
const TICKS_MAX: u32 = 120;

/// Maximum objects of an answer, counted once per tick, if it has more than one tick. The page keeps two dozen answers.
const OBJECTS_MAX: usize = 20_000;

/// Maximum steps, and maximum events, of a tick in an answer: the page shows no more.
const LINES_MAX: usize = 200;

/// Maximum bytes of all steps and events of an answer, in JSON. Inputs have their data in hexadecimal digits.
const LINE_BYTES_MAX: usize = 8 << 20;

type Make<'a> = &'a (dyn Fn() -> Result<Box<dyn Simulation>, String> + Sync);

/// The ticks that a page asks for.
#[derive(Debug, Deserialize)]
pub(super) struct Ticks {
    pub(super) from: u32,
    pub(super) count: u32,
}

/// A recording that has been replayed once.
pub(super) struct Film<'a> {
    header: &'a Header,
    make: Make<'a>,
    checkpoints: Vec<Checkpoint<'a>>,
    /// After the last answer: a page that plays asks for the ticks that follow.
    next: Cell<Option<Replay<'a>>>,
    connections: Connections,
    pub(super) index: Index,
}

/// What the page shows at once.
#[derive(Debug, Serialize)]
pub(super) struct Index {
    simulation: String,
    channel: String,
    /// As a text: JavaScript has no integers of 64 bits in JSON.
    seed: String,
    ticks_per_second: u32,
    grid: Value,
    kinds: BTreeMap<u16, String>,
    /// Maximum ticks of an answer.
    piece_ticks: u32,
    /// The last tick that can be shown.
    pub(super) ticks: u32,
    /// Why it is the last one, if the recording does not end there.
    end: Option<String>,
    marks: Vec<Mark>,
    marks_left_out: usize,
    players: Vec<Player>,
    players_left_out: usize,
    /// Whether the recording has what connections carried.
    tells_of_connections: bool,
    /// What they carried, and is not shown.
    carried_left_out: usize,
    /// Places in `players` by id.
    #[serde(skip)]
    places: BTreeMap<PlayerId, usize>,
}

/// Something on the timeline.
#[derive(Debug, Serialize)]
struct Mark {
    tick: u32,
    what: &'static str,
    player: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Player {
    id: u32,
    user: String,
    /// The id of its last connection, by which the node knows the session; empty if unknown.
    client: String,
    spectator: bool,
    /// After this tick, it may have been behind until the recording ends: that is told with the next snapshot.
    told_until: u32,
}

impl<'a> Film<'a> {
    /// Replays the recording; `progress` is told each tick. The checkpoints take at most `checkpoint_bytes_max`.
    pub(super) fn new(
        recording: &'a [u8],
        header: &'a Header,
        make: Make<'a>,
        checkpoint_bytes_max: usize,
        mut progress: impl FnMut(u32),
    ) -> Result<Self, String> {
        let simulation = make()?;
        let mut replay = replay(recording, |_| simulation).map_err(|error| error.to_string())?;
        replay.watch();
        let (checkpoints, index) = (vec![replay.checkpoint()], Index::of(header, &replay));
        let connections = Connections::default();
        let mut film = Self { header, make, checkpoints, next: Cell::default(), connections, index };
        film.index.tells_of_connections = tells_of_connections(recording);
        let (mut interval, mut objects_max) = (CHECKPOINT_TICKS, 0);
        let mut checkpoint_bytes = film.checkpoint_bytes();
        while let Some(tick) = replay.next_tick() {
            let tick = match tick {
                Ok(tick) => tick,
                Err(error) => {
                    film.index.end = Some(end_of(&error));
                    break;
                }
            };
            film.index.note(tick, &replay);
            film.connections.note(tick, &replay);
            objects_max = replay.room().object_count().max(objects_max);
            if tick.is_multiple_of(interval) {
                let checkpoint = replay.checkpoint();
                checkpoint_bytes += checkpoint.memory_bytes();
                film.checkpoints.push(checkpoint);
                if checkpoint_bytes > checkpoint_bytes_max {
                    interval *= 2;
                    film.checkpoints.retain(|checkpoint| checkpoint.tick().is_multiple_of(interval));
                    checkpoint_bytes = film.checkpoint_bytes();
                }
            }
            progress(tick);
        }
        film.index.piece_ticks = piece_ticks(objects_max);
        film.index.carried_left_out = film.connections.left_out;
        for player in film.index.players.iter_mut().filter(|player| player.told_until == 0) {
            player.told_until = film.connections.told_until(PlayerId(player.id));
        }
        // What a connection has carried is told later.
        film.index.marks.sort_by_key(|mark| mark.tick);
        Ok(film)
    }

    fn checkpoint_bytes(&self) -> usize {
        self.checkpoints.iter().map(Checkpoint::memory_bytes).sum()
    }

    /// The ticks from `from` on, in JSON: at most `count` of them, and at most [`Index::piece_ticks`]. The first has all
    /// objects, the others those that have changed. `progress` is told each tick that is replayed for it, also those before.
    pub(super) fn ticks(&self, from: u32, count: u32, mut progress: impl FnMut(u32)) -> Result<Value, String> {
        let count = count.min(self.index.piece_ticks);
        let last = from.saturating_add(count).saturating_sub(1).min(self.index.ticks);
        let follows = |replay: &Replay<'_>| replay.room().tick_number() + 1 == from;
        let mut replay = match self.next.take().filter(follows) {
            Some(replay) => replay,
            None => self.replay_before(from, &mut progress)?,
        };
        let mut shown = Shown { objects: BTreeMap::new(), line_bytes_left: LINE_BYTES_MAX };
        let mut frames = Vec::new();
        for _ in from..=last {
            match replay.next_tick() {
                Some(Ok(tick)) => {
                    frames.push(shown.frame(tick, &replay, &self.connections));
                    progress(tick);
                }
                Some(Err(error)) => return Err(error.to_string()),
                None => break,
            }
        }
        self.next.set(Some(replay));
        Ok(json!({ "from": from, "frames": frames }))
    }

    /// A replay whose next tick is `tick`.
    fn replay_before(&self, tick: u32, progress: &mut impl FnMut(u32)) -> Result<Replay<'a>, String> {
        let after = self.checkpoints.partition_point(|checkpoint| checkpoint.tick() < tick.max(1));
        let checkpoint =
            after.checked_sub(1).and_then(|place| self.checkpoints.get(place)).ok_or("there is no such tick")?;
        let mut replay = Replay::resume(self.header, checkpoint, (self.make)()?).map_err(|error| error.to_string())?;
        while replay.room().tick_number() + 1 < tick {
            progress(replay.next_tick().ok_or("there is no such tick")?.map_err(|error| error.to_string())?);
        }
        replay.watch();
        Ok(replay)
    }
}

fn piece_ticks(objects: usize) -> u32 {
    u32::try_from(OBJECTS_MAX / objects.max(1)).unwrap_or(TICKS_MAX).clamp(1, TICKS_MAX)
}

fn end_of(error: &ReplayError) -> String {
    match error {
        ReplayError::BreaksOff => "The recording is cut off here.".to_owned(),
        ReplayError::Divergence { .. } => format!("From here on, this build of the game plays differently: {error}."),
        error => format!("The recording cannot be replayed any further: {error}."),
    }
}

impl Index {
    fn of(header: &Header, replay: &Replay<'_>) -> Self {
        let GridShape { columns, rows, cell_units, near_cells, far_cells, far_interval_ticks } =
            *replay.room().grid().shape();
        let schema = replay.room().schema();
        let kinds = schema.kinds();
        let near_kind = |&(kind, units): &(u16, u32)| {
            (kind.to_string(), json!({ "units": units, "cells": units.div_ceil(cell_units) }))
        };
        Self {
            simulation: header.simulation.clone(),
            channel: header.channel.clone(),
            seed: header.seed.to_string(),
            ticks_per_second: header.options.ticks_per_second,
            grid: json!({
                "columns": columns, "rows": rows, "cellUnits": cell_units, "nearCells": near_cells, "farCells": far_cells,
                "farIntervalTicks": far_interval_ticks,
                "nearKinds": schema.ranges().iter().map(near_kind).collect::<serde_json::Map<_, _>>(),
            }),
            kinds: kinds.iter().map(|kind| (kind.number, kind.name.to_string())).collect(),
            piece_ticks: TICKS_MAX,
            ticks: 0,
            end: None,
            marks: Vec::new(),
            marks_left_out: 0,
            players: Vec::new(),
            players_left_out: 0,
            tells_of_connections: false,
            carried_left_out: 0,
            places: BTreeMap::new(),
        }
    }

    fn note(&mut self, tick: u32, replay: &Replay<'_>) {
        self.ticks = tick;
        for (player, carried) in replay.carried() {
            // A pace is what the client has asked for.
            let late_ticks = carried.limited_ticks + carried.waited_ticks;
            if late_ticks >= (self.ticks_per_second / 2).max(1) {
                self.mark(carried.tick - late_ticks, "behind", Some(*player));
            }
        }
        for step in replay.steps() {
            let (what, player) = match (step.step, &step.joined) {
                (RecordedStep::Join { visitor, .. }, Some(Ok(player))) => {
                    if self.players.len() < PLAYERS_MAX {
                        let (user, client) = (visitor.user.to_owned(), visitor.client.to_owned());
                        self.places.insert(*player, self.players.len());
                        self.players.push(Player {
                            id: player.0,
                            user,
                            client,
                            spectator: visitor.is_spectator,
                            told_until: 0,
                        });
                    } else {
                        self.players_left_out += 1;
                    }
                    ("join", Some(*player))
                }
                (RecordedStep::Join { .. }, _) => ("refused", None),
                (RecordedStep::Leave { player }, _) => {
                    // Who leaves behind the room is told of. Who is removed is not: the room has forgotten it.
                    if let Some(known) = self.known(player) {
                        known.told_until = u32::MAX;
                    }
                    ("leave", Some(player))
                }
                (RecordedStep::Away { player }, _) => ("away", Some(player)),
                (RecordedStep::Back { player, visitor, .. }, _) => {
                    if let Some(known) = self.known(player) {
                        visitor.client.clone_into(&mut known.client);
                    }
                    ("back", Some(player))
                }
                (RecordedStep::Kick { player, .. }, _) => ("kick", Some(player)),
                (RecordedStep::Message { .. }, _) => ("message", None),
                _ => continue,
            };
            self.mark(tick, what, player);
        }
    }

    fn known(&mut self, player: PlayerId) -> Option<&mut Player> {
        let place = self.places.get(&player).copied();
        place.and_then(|place| self.players.get_mut(place))
    }

    fn mark(&mut self, tick: u32, what: &'static str, player: Option<PlayerId>) {
        if self.marks.len() < MARKS_MAX {
            self.marks.push(Mark { tick, what, player: player.map(|player| player.0) });
        } else {
            self.marks_left_out += 1;
        }
    }
}

/// What the frames of an answer have so far.
struct Shown {
    /// The objects of the last frame.
    objects: BTreeMap<ObjectId, Object>,
    /// The bytes that steps and events may still have.
    line_bytes_left: usize,
}

impl Shown {
    fn frame(&mut self, tick: u32, replay: &Replay<'_>, connections: &Connections) -> Value {
        let world = replay.room().world();
        let mut left = std::mem::take(&mut self.objects);
        let mut changed = Vec::new();
        for (id, object) in world.objects() {
            let unchanged = left.remove(&id).filter(|before| before == object);
            if unchanged.is_none() {
                changed.push((id, object));
            }
            self.objects.insert(id, unchanged.unwrap_or_else(|| object.clone()));
        }
        let removed: Vec<u32> = left.keys().map(|id| id.0).collect();
        let objects: Vec<Value> = changed.into_iter().map(|(id, object)| object_of(replay, id, object)).collect();
        let players: Vec<Value> =
            world.players().map(|player| player_of(replay, player, connections.at(player, tick))).collect();
        let (steps, steps_left_out) = self.lines(replay.steps().iter().map(|step| steps::in_json(tick, step)));
        let (events, events_left_out) = self.lines(replay.events().iter().map(|scoped| state::event(tick, scoped)));
        json!({
            "tick": tick, "objects": objects, "removed": removed, "players": players, "steps": steps,
            "steps_left_out": steps_left_out, "events": events, "events_left_out": events_left_out,
        })
    }

    /// The first steps or events of a tick, and the number of those that are left out.
    fn lines(&mut self, all: impl ExactSizeIterator<Item = Value>) -> (Vec<Value>, usize) {
        let count = all.len();
        let mut lines = Vec::new();
        for line in all.take(LINES_MAX) {
            let Some(left) = self.line_bytes_left.checked_sub(line.to_string().len()) else { break };
            self.line_bytes_left = left;
            lines.push(line);
        }
        let left_out = count - lines.len();
        (lines, left_out)
    }
}

/// `had`: what its connection had carried, if that was not this tick with everything.
fn player_of(replay: &Replay<'_>, player: PlayerId, had: Option<Value>) -> Value {
    let world = replay.room().world();
    let CellIndex(view) = world.view_of(player).unwrap_or_default();
    let mut of_player =
        json!({ "id": player.0, "view": view, "avatar": world.avatar_of(player).map(|avatar| avatar.0) });
    if let Some(had) = had {
        of_player["had"] = had;
    }
    of_player
}

/// An object as a client sees it, with its place on the map, and who may see it.
pub(super) fn object_of(replay: &Replay<'_>, id: ObjectId, object: &Object) -> Value {
    let (x, y) = (object.position.x, object.position.y);
    let view = ObjectView { id, kind: object.kind, x, y, state: &object.state };
    let mut written = Vec::new();
    encode_own(SnapshotFormat::TypedJson, replay.room().schema(), [view].into_iter(), &mut written);
    let mut written: Value = serde_json::from_slice(&written).unwrap_or_default();
    let mut one = written["objects"][0].take();
    // Clients take 0 for what is missing; the page need not know this.
    (one["x"], one["y"]) = (x.into(), y.into());
    one["cell"] = replay.room().grid().cell_of(object.position).0.into();
    one["owner"] = match object.visibility {
        Visibility::Everyone => Value::Null,
        Visibility::Nobody => 0.into(),
        Visibility::Owner(player) => player.0.into(),
    };
    one
}

#[cfg(test)]
mod tests {
    use dunlin_games::Registry;
    use dunlin_protocol::Encoding;
    use dunlin_rooms::{
        Room, RoomOptions, Visitor,
        recording::{Carried, Recorder},
    };

    use super::{super::make, *};

    const TICKS: u32 = 700;

    /// A game of tag with bots, a player who comes and goes, and another one who is refused.
    fn recording() -> Vec<u8> {
        let options = RoomOptions { players_max: 1, ..RoomOptions::default() };
        let params = r#"{"bots":5,"columns":8,"rows":8}"#.to_owned();
        let header = Header { simulation: "tag".to_owned(), params, seed: 7, channel: "tag:1".to_owned(), options };
        let game = make(&header, &Registry::built_in()).expect("tag");
        let mut room = Room::open(header.options.clone(), header.info(), game).expect("a map");
        let mut recorder = Recorder::new(&header, Vec::new());
        for tick in 1..=TICKS {
            let visitor = Visitor { user: "ada", client: "c", ..Visitor::default() };
            if tick == 10 || tick == 20 {
                let _ = room.join(&visitor, Encoding::Json, b"");
                recorder.join(&visitor, Encoding::Json, b"");
            }
            if tick == 300 {
                // A long gap, and one that is too short for a mark.
                for (had_tick, waited_ticks) in [(200, 30), (240, 29)] {
                    let tick = had_tick + waited_ticks + 1;
                    let gap = Carried { had_tick, tick, waited_ticks, is_sent: true, ..Carried::default() };
                    recorder.carried(PlayerId(1), gap);
                }
            }
            if tick == 400 {
                let visitor = Visitor { user: "ada", client: "d", ..Visitor::default() };
                room.back(PlayerId(1), &visitor, Encoding::Json);
                recorder.back(PlayerId(1), &visitor, Encoding::Json);
            }
            if tick == 500 {
                room.leave(PlayerId(1));
                recorder.leave(PlayerId(1));
            }
            room.tick_without_update();
            recorder.tick(&room);
        }
        std::mem::take(recorder.written())
    }

    fn with_film<T>(recording: &[u8], test: impl FnOnce(&Film<'_>) -> T) -> T {
        let header = Header::read(recording).expect("a header");
        let registry = Registry::built_in();
        let new_game = || make(&header, &registry);
        test(&Film::new(recording, &header, &new_game, CHECKPOINT_BYTES_MAX, |_| {}).expect("a film"))
    }

    #[test]
    fn the_page_knows_which_kinds_are_visible_only_near() {
        let params = r#"{"near_permille":500,"near_units":300}"#.to_owned();
        let (simulation, channel) = ("crowd".to_owned(), "crowd:1".to_owned());
        let header = Header { simulation, params, seed: 7, channel, options: RoomOptions::default() };
        let game = make(&header, &Registry::built_in()).expect("a crowd");
        let mut room = Room::open(header.options.clone(), header.info(), game).expect("a map");
        let mut recorder = Recorder::new(&header, Vec::new());
        room.tick_without_update();
        recorder.tick(&room);
        with_film(recorder.written(), |film| {
            assert_eq!(film.index.grid["nearKinds"], json!({"2": {"units": 300, "cells": 2}}));
        });
    }

    /// The objects after `tick`, put together from an answer that begins at `from`.
    fn objects_at(film: &Film<'_>, from: u32, tick: u32) -> BTreeMap<u64, Value> {
        let piece = film.ticks(from, TICKS_MAX, |_| {}).expect("ticks");
        let mut objects = BTreeMap::new();
        for frame in piece["frames"].as_array().expect("frames") {
            if frame["tick"].as_u64() > Some(tick.into()) {
                break;
            }
            for object in frame["objects"].as_array().expect("objects") {
                objects.insert(object["id"].as_u64().expect("an id"), object.clone());
            }
            for id in frame["removed"].as_array().expect("ids") {
                objects.remove(&id.as_u64().expect("an id"));
            }
        }
        objects
    }

    #[test]
    fn a_tick_is_the_same_whichever_tick_an_answer_begins_with() {
        with_film(&recording(), |film| {
            assert_eq!((film.index.ticks, &film.index.end), (TICKS, &None));
            for tick in [1, 2, 239, 240, 241, 480, 481, TICKS] {
                let expected = objects_at(film, tick, tick);
                assert!(expected.len() >= 10, "five bots and their labels: {expected:?}");
                for from in [tick.saturating_sub(1), tick.saturating_sub(100), tick.saturating_sub(TICKS_MAX - 1)] {
                    assert_eq!(objects_at(film, from.max(1), tick), expected, "tick {tick} from {from}");
                }
            }
        });
    }

    #[test]
    fn an_answer_that_follows_the_last_one_is_the_same() {
        with_film(&recording(), |film| {
            let ticks = |from| film.ticks(from, 100, |_| {}).expect("ticks");
            ticks(101);
            let following = ticks(201);
            ticks(1);
            assert_eq!(ticks(201), following);
            assert_eq!(ticks(201), following, "not the ticks after it");
        });
    }

    #[test]
    fn an_answer_with_many_objects_has_few_ticks() {
        let ticks = [0, 12, 166, 167, 1_000, 20_000, 100_000].map(piece_ticks);
        assert_eq!(ticks, [TICKS_MAX, TICKS_MAX, TICKS_MAX, 119, 20, 1, 1]);
    }

    #[test]
    fn the_index_has_what_happened() {
        with_film(&recording(), |film| {
            let marks: Vec<_> = film.index.marks.iter().map(|mark| (mark.tick, mark.what, mark.player)).collect();
            assert_eq!(
                marks,
                [
                    (10, "join", Some(1)),
                    (20, "refused", None),
                    (201, "behind", Some(1)),
                    (400, "back", Some(1)),
                    (500, "leave", Some(1))
                ]
            );
            let [ada] = &film.index.players[..] else { panic!("{:?}", film.index.players) };
            assert_eq!((ada.id, ada.user.as_str(), ada.client.as_str()), (1, "ada", "d"), "the last connection");
            assert_eq!(ada.told_until, u32::MAX, "it has left, and was not behind");
            assert_eq!(film.index.kinds.get(&1).map(String::as_str), Some("Runner"));
            let had =
                |tick: u32| film.ticks(tick, 1, |_| {}).expect("a tick")["frames"][0]["players"][0]["had"].clone();
            assert_eq!((had(200), had(231)), (Value::Null, Value::Null));
            assert_eq!(had(201), json!({ "tick": 200, "why": "connection", "from": 201, "to": 230 }));
            assert_eq!((film.index.tells_of_connections, film.index.carried_left_out), (true, 0));
            let frame = &film.ticks(10, 1, |_| {}).expect("a tick")["frames"][0];
            assert_eq!(frame["players"][0]["id"], 1);
            assert_eq!(frame["steps"][0]["visitor"]["user"], "ada");
            for object in frame["objects"].as_array().expect("objects") {
                assert!(object["fields"].is_object() && object["x"].is_u64() && object["y"].is_u64(), "{object}");
            }
        });
    }

    #[test]
    fn checkpoints_take_no_more_memory_than_they_may() {
        let recording = recording();
        let header = Header::read(&recording).expect("a header");
        let registry = Registry::built_in();
        let new_game = || make(&header, &registry);
        let film = |bytes_max| Film::new(&recording, &header, &new_game, bytes_max, |_| {}).expect("a film");
        let whole = film(usize::MAX);
        let ticks = |film: &Film<'_>| film.checkpoints.iter().map(Checkpoint::tick).collect::<Vec<_>>();
        assert_eq!(ticks(&whole), [0, 240, 480]);
        let bytes = whole.checkpoint_bytes();
        assert_eq!(ticks(&film(bytes)), [0, 240, 480]);
        let thinned = film(bytes - 1);
        assert_eq!(ticks(&thinned), [0, 480]);
        assert_eq!(objects_at(&thinned, 300, 300), objects_at(&whole, 300, 300));
    }

    #[test]
    fn steps_and_events_of_an_answer_are_bounded() {
        let line = json!("x".repeat(998)); // 1,000 bytes with its quotes
        let mut shown = Shown { objects: BTreeMap::new(), line_bytes_left: LINE_BYTES_MAX };
        let many: Vec<Value> = vec![line.clone(); LINES_MAX + 1];
        assert_eq!(shown.lines(many[..LINES_MAX].iter().cloned()).1, 0);
        let (lines, left_out) = shown.lines(many.iter().cloned());
        assert_eq!((lines.len(), left_out), (LINES_MAX, 1));
        shown.line_bytes_left = 1_999;
        let (lines, left_out) = shown.lines([line.clone(), line.clone()].into_iter());
        assert_eq!((lines.len(), left_out, shown.line_bytes_left), (1, 1, 999));
        shown.line_bytes_left = 1_000;
        assert_eq!(shown.lines([line].into_iter()).1, 0);
    }

    #[test]
    fn progress_is_told_of_the_ticks_before_those_that_are_asked_for() {
        with_film(&recording(), |film| {
            let told = |from, count| {
                let mut ticks = Vec::new();
                film.ticks(from, count, |tick| ticks.push(tick)).expect("there are such ticks");
                ticks
            };
            assert_eq!(told(479, 2), (241..=480).collect::<Vec<_>>(), "from the last state that was kept");
            assert_eq!(told(481, 2), [481, 482], "it goes on");
        });
    }

    #[test]
    fn answers_are_bounded_and_other_ticks_are_refused() {
        with_film(&recording(), |film| {
            let count =
                |from, count| film.ticks(from, count, |_| {}).map(|piece| piece["frames"].as_array().map(Vec::len));
            assert_eq!(count(1, TICKS_MAX), Ok(Some(TICKS_MAX as usize)));
            assert_eq!(count(1, TICKS_MAX + 1), Ok(Some(TICKS_MAX as usize)));
            assert_eq!(count(TICKS, 2), Ok(Some(1)));
            assert_eq!(count(TICKS + 1, 1), Ok(Some(0)));
            assert!(count(TICKS + 2, 1).is_err());
            assert_eq!(count(1, 0), Ok(Some(0)));
        });
    }

    #[test]
    fn a_recording_that_is_cut_or_differs_is_shown_up_to_there() {
        let whole = recording();
        with_film(&whole[..whole.len() - 1], |film| {
            assert_eq!(film.index.ticks, TICKS - 1);
            assert_eq!(film.index.end.as_deref(), Some("The recording is cut off here."));
        });
        let mut other = whole;
        // The last byte of the last hash.
        *other.last_mut().expect("bytes") ^= 1;
        with_film(&other, |film| {
            assert_eq!(film.index.ticks, TICKS - 1);
            assert!(
                film.index.end.as_ref().is_some_and(|end| end.contains("tick 700 differs")),
                "{:?}",
                film.index.end
            );
            let frames = &film.ticks(TICKS - 1, 2, |_| {}).expect("the last tick")["frames"];
            assert_eq!(frames.as_array().map(Vec::len), Some(1), "what differs is not shown");
        });
    }
}
