//! A game as in a separate crate, which uses only `dunlin_game`. The tests are one binary, because each binary links
//! the server.

use std::collections::BTreeMap;

use dunlin_game::{
    BadParams, CallError, CallId, GridShape, InputError, NewObject, ObjectId, Params, PlayerId, Position, Refusal,
    Registry, RestoreError, RoomInfo, Saved, Saving, Scope, Simulation, Visibility, Visitor, World,
    room_internals::{
        Encoding,
        recording::{Header, Recorder, ReplayError, replay},
    },
    serde_json::{Value, json},
    testing::{RoomOptions, ScopedEvent, Script, events},
};

/// The library leaves the choice of the allocator to the game.
#[global_allocator]
static HEAP: std::alloc::System = std::alloc::System;

/// Timeout for the backend's answer in ticks.
const ANSWER_TICKS: u32 = 30;
const LATE_CODE: u16 = 460;

/// Players walk. After `goal` steps, the game requests a prize from the backend, and removes the player with it.
struct Walk {
    goal: u32,
    walkers: BTreeMap<PlayerId, Walker>,
}

struct Walker {
    /// Stored here, because `World::avatar_of` returns `None` when the player has left.
    avatar: ObjectId,
    steps: u32,
    is_away: bool,
    asked: Option<CallId>,
}

fn walk(params: &Value) -> Result<Box<dyn Simulation>, BadParams> {
    let mut params = Params::new(params)?;
    let goal = params.number("goal", 3, 1..=100)?;
    params.finish()?;
    Ok(Box::new(Walk { goal, walkers: BTreeMap::new() }))
}

impl Walk {
    /// Shows a walker's state to the other players.
    fn show(&self, world: &mut World, player: PlayerId) {
        let (Some(avatar), Some(walker)) = (world.avatar_of(player), self.walkers.get(&player)) else { return };
        let _ = world.set_state(avatar, &[walker.steps as u8, walker.is_away.into()]);
    }
}

impl Simulation for Walk {
    fn grid(&self) -> GridShape {
        GridShape { columns: 4, rows: 4, cell_units: 256, near_cells: 4, far_cells: 0, far_interval_ticks: 1 }
    }

    fn start(&mut self, world: &mut World) {
        let _ = world.set_metadata(&json!({ "goal": self.goal }).to_string());
    }

    fn join(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
        if visitor.user == "late" {
            return Err(Refusal { code: LATE_CODE, message: "the gates are closed".into() });
        }
        let position = Position { x: world.random_below(1_024), y: world.random_below(1_024) };
        let full = |_| Refusal { code: 409, message: "the map is full".into() };
        let object = NewObject { position, kind: 1, visibility: Visibility::Everyone, state: &[0, 0] };
        let avatar = world.spawn(object).map_err(full)?;
        world.set_avatar(player, Some(avatar));
        world.set_viewpoint(player, position);
        self.walkers.insert(player, Walker { avatar, steps: 0, is_away: false, asked: None });
        Ok(())
    }

    fn leave(&mut self, world: &mut World, player: PlayerId) {
        self.walkers.remove(&player).map(|walker| world.despawn(walker.avatar));
    }

    fn away(&mut self, world: &mut World, player: PlayerId) {
        self.walkers.entry(player).and_modify(|walker| walker.is_away = true);
        self.show(world, player);
    }

    fn back(&mut self, world: &mut World, player: PlayerId, _: &Visitor<'_>) {
        self.walkers.entry(player).and_modify(|walker| walker.is_away = false);
        self.show(world, player);
        let steps = self.walkers.get(&player).map(|walker| walker.steps);
        let _ = world.emit(Scope::Player(player), &json!({ "welcome_back": steps }).to_string());
    }

    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError> {
        let walker = self.walkers.get_mut(&player).ok_or(InputError)?;
        let &[steps @ 1..=3] = data else { return Err(InputError) };
        walker.steps = (walker.steps + u32::from(steps)).min(self.goal);
        if walker.steps == self.goal && walker.asked.is_none() {
            let data = json!({ "player": player.0 }).to_string();
            walker.asked = world.call("prize", data.as_bytes(), ANSWER_TICKS).ok();
        }
        self.show(world, player);
        Ok(())
    }

    fn answer(&mut self, world: &mut World, call: CallId, outcome: Result<&[u8], CallError>) {
        let asked = self.walkers.iter_mut().find(|(_, walker)| walker.asked == Some(call));
        let Some((player, walker)) = asked else { return };
        walker.asked = None;
        match outcome {
            Ok(prize) => world.kick(*player, &String::from_utf8_lossy(prize)),
            Err(error) => {
                // The next step repeats the request.
                let _ = world.emit(Scope::Player(*player), &json!({ "no_prize": error.name() }).to_string());
            }
        }
    }

    fn tick(&mut self, world: &mut World) {
        // Random numbers, because a replay must reproduce them.
        let players: Vec<_> = self.walkers.iter().filter(|(_, walker)| !walker.is_away).map(|(id, _)| *id).collect();
        for player in players {
            let to = Position { x: world.random_below(1_024), y: world.random_below(1_024) };
            if let Some(avatar) = world.avatar_of(player) {
                world.move_to(avatar, to);
            }
        }
    }

    fn save(&self, out: &mut Vec<u8>) {
        Saving::new(out).list(&self.walkers, |saving, (player, walker)| {
            let asked = walker.asked.map_or(0, |call| call.0);
            saving.player(*player).object(walker.avatar).u32(walker.steps).flag(walker.is_away).u32(asked);
        });
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        let mut saved = Saved::new(saved);
        self.walkers = saved.list(|saved| {
            let (player, avatar) = (saved.player()?, saved.object()?);
            let (steps, is_away, asked) = (saved.u32()?, saved.flag()?, saved.u32()?);
            Ok((player, Walker { avatar, steps, is_away, asked: (asked != 0).then_some(CallId(asked)) }))
        })?;
        saved.finish()
    }
}

fn registry() -> Registry {
    Registry::built_in().with("walk", walk)
}

fn game(params: &Value) -> Box<dyn Simulation> {
    registry().make("walk", params).expect("its name").expect("good parameters")
}

fn script(params: &Value) -> Script {
    let info = RoomInfo { channel: "walk:1".into(), params: params.to_string().into(), seed: 7 };
    Script::with_info(RoomOptions::default(), info, game(params))
}

fn state(script: &Script, player: PlayerId) -> &[u8] {
    &script.object(script.avatar(player)).state
}

/// The only call of the next tick.
fn call_of(script: &mut Script) -> CallId {
    let calls = script.tick().calls;
    assert_eq!((calls.sent.len(), calls.refused), (1, 0));
    assert_eq!(&*calls.sent[0].method, "prize");
    calls.sent[0].id
}

#[test]
fn parameters_are_read_and_bad_ones_are_refused() {
    let script = script(&json!({ "goal": 5 }));
    assert_eq!(&*script.world().listing().metadata, r#"{"goal":5}"#);
    assert_eq!(&*script.world().info().params, r#"{"goal":5}"#);
    for bad in [json!({ "goal": 0 }), json!({ "goal": 101 }), json!({ "aim": 5 }), json!([5])] {
        let made = registry().make("walk", &bad).expect("its name");
        assert!(made.is_err(), "{bad}");
    }
}

#[test]
fn the_backend_s_answer_kicks_a_player_with_its_reason() {
    let mut script = script(&json!({ "goal": 3 }));
    let (ada, ben) = (script.join(""), script.join(""));
    assert!(script.input(ada, &[2]) && script.input(ben, &[1]));
    assert!(script.tick().calls.sent.is_empty(), "no player has reached the goal");
    assert!(script.input(ada, &[2]));
    let call = call_of(&mut script);
    assert!(script.answer(call, Ok(b"a medal")));
    assert!(!script.answer(call, Ok(b"a medal")), "the second answer");
    let expected: Vec<(PlayerId, Box<str>)> = vec![(ada, "a medal".into())];
    assert_eq!(script.tick().removals.kicked, expected);
    assert!(!script.world().is_player(ada) && script.world().is_player(ben));
    assert!(!script.input(ada, &[1]), "an input of a removed player");
    assert_eq!(script.of_kind(1).len(), 1, "its object is gone as well");
}

#[test]
fn a_call_without_an_answer_times_out_in_its_tick_and_can_be_repeated() {
    let mut script = script(&json!({ "goal": 1 }));
    let ada = script.join("");
    assert!(script.input(ada, &[1]));
    let call = call_of(&mut script);
    assert!(script.ticks(ANSWER_TICKS - 1).is_empty(), "the answer may still come");
    let expected: ScopedEvent = (Some(vec![ada]), json!({ "no_prize": "timeout" }));
    assert_eq!(script.ticks(1), [expected]);
    assert!(!script.answer(call, Ok(b"a medal")), "too late");
    assert!(script.input(ada, &[1]));
    assert_ne!(call_of(&mut script), call);
}

#[test]
fn a_seat_outlasts_a_lost_connection_and_refusals_have_the_game_s_code() {
    let mut script = script(&Value::Null);
    let ada = script.join("");
    assert!(script.input(ada, &[2]));
    script.ticks(1);
    script.away(ada);
    assert_eq!(state(&script, ada), [2, 1]);
    let place = script.place(ada);
    script.ticks(10);
    assert_eq!(script.place(ada), place, "a player who is away does not move");
    script.back(ada);
    assert_eq!(state(&script, ada), [2, 0]);
    assert_eq!(events(script.tick()), [(Some(vec![ada]), json!({ "welcome_back": 2 }))]);
    let refused = script.join_as(&Visitor::of_user("late"), "").expect_err("late");
    assert_eq!((refused.code, &*refused.message), (LATE_CODE, "the gates are closed"));
    assert!(!script.input(ada, &[4]) && !script.input(ada, &[]), "no inputs of this game");
}

#[test]
fn a_saved_room_goes_on_as_the_room_itself() {
    let params = json!({ "goal": 4 });
    let mut script = script(&params);
    let (ada, ben) = (script.join(""), script.join(""));
    assert!(script.input(ada, &[3]) && script.input(ada, &[1]));
    script.away(ben);
    let call = call_of(&mut script);
    let mut copy = script.restored(game(&params));
    for room in [&mut script, &mut copy] {
        room.ticks(5);
        room.back(ben);
        assert!(room.input(ben, &[2]));
        assert!(room.answer(call, Ok(b"a medal")), "the call is still open");
        assert_eq!(room.tick().removals.kicked.len(), 1);
        room.ticks(5);
    }
    assert_eq!(script.state_hash(), copy.state_hash());
    script.input(ben, &[1]);
    script.ticks(1);
    copy.ticks(1);
    assert_ne!(script.state_hash(), copy.state_hash(), "the hash contains the game's own state");
    assert!(Walk { goal: 1, walkers: BTreeMap::new() }.restore(&[1, 0, 0, 0]).is_err(), "cut off");
}

/// Records a walk to the goal with a lost connection, a call and a kick. Returns the recording and the last state hash.
fn recorded(params: &Value) -> (Vec<u8>, u64) {
    let mut script = script(params);
    let header = Header {
        simulation: "walk".into(),
        params: params.to_string(),
        seed: 7,
        channel: "walk:1".into(),
        options: script.room.options().clone(),
    };
    let mut recorder = Recorder::new(&header, Vec::new());
    let visitor = Visitor::of_user("ada");
    recorder.join(&visitor, Encoding::Protobuf, b"");
    let ada = script.join_as(&visitor, "").expect("let in");
    for number in 1..=4 {
        recorder.input(ada, number, &[1]);
        script.input(ada, &[1]);
        let calls = script.tick().calls.sent;
        recorder.tick(&script.room);
        for call in calls {
            recorder.answer(call.id, Ok(b"a medal"));
            assert!(script.answer(call.id, Ok(b"a medal")));
        }
        if number == 2 {
            recorder.away(ada);
            script.away(ada);
            script.ticks(1);
            recorder.tick(&script.room);
            let visitor = Visitor::of_user("");
            recorder.back(ada, &visitor, Encoding::Protobuf);
            script.back(ada);
        }
    }
    script.ticks(1);
    recorder.tick(&script.room);
    assert!(!script.world().is_player(ada), "kicked");
    (recorder.written().clone(), script.state_hash())
}

#[test]
fn a_replay_is_equal_and_other_rules_diverge() {
    let (recording, hash) = recorded(&json!({ "goal": 4 }));
    let of_header = |header: &Header| {
        let params = dunlin_game::serde_json::from_str(&header.params).expect("JSON");
        registry().make(&header.simulation, &params).expect("its name").expect("good parameters")
    };
    let mut same = replay(&recording, of_header).expect("a recording");
    assert_eq!((same.finish(), same.room().state_hash()), (Ok(6), hash));
    let mut other = replay(&recording, |_| game(&json!({ "goal": 2 }))).expect("a recording");
    assert!(matches!(other.finish(), Err(ReplayError::Divergence { .. })));
}
