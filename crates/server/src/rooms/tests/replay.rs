//! Tests of rooms that continue from a checkpoint and a log, without threads.

use std::{collections::BTreeMap, sync::Arc};

use dunlin_engine::{
    ShardIndex,
    api::{KickOrder, KickTarget},
    host::{Checkpoint, HostOptions, NotRestored, RoomHost, RoomOrigin, Runner, TickRecord},
    room::{Departure, FromRoom, RoomKey, SeatClaim, SeatKey, SeatToken, ToRoom},
};
use dunlin_games::Registry;
use dunlin_rooms::{PlayerId, Room, RoomOptions, Simulation};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use serde_json::{Value, json};

use super::rig::join_request;

const ROOM: RoomKey = RoomKey { owner: ShardIndex(0), number: 1 };
const GRACE_TICKS: u32 = 20;

/// A room whose players join, leave and send inputs at random.
struct Played {
    origin: RoomOrigin,
    host: RoomHost,
    runner: Runner,
    chance: ChaCha8Rng,
    next_seat: u32,
    /// The seats with a client, and their tokens.
    here: BTreeMap<SeatKey, SeatToken>,
    checkpoint: Vec<u8>,
    log: Vec<(u64, Vec<u8>)>,
}

fn simulation(origin: &RoomOrigin) -> Box<dyn Simulation> {
    let params: Value = serde_json::from_str(&origin.params).expect("params");
    Registry::built_in().make(&origin.simulation, &params).expect("it is known").expect("its params are good")
}

impl Played {
    fn new(simulation_name: &str, params: &Value, seed: u64) -> Self {
        let options = RoomOptions { players_max: 12, ..RoomOptions::default() };
        let origin = RoomOrigin { simulation: simulation_name.to_owned(), params: params.to_string(), options };
        let room = Room::new(origin.options.clone(), seed, simulation(&origin)).expect("a map");
        let runner = Runner::new(room);
        let mut played = Self {
            host: host(&runner),
            origin,
            runner,
            chance: ChaCha8Rng::seed_from_u64(seed),
            next_seat: 0,
            here: BTreeMap::new(),
            checkpoint: Vec::new(),
            log: Vec::new(),
        };
        played.save();
        played
    }

    fn save(&mut self) {
        self.checkpoint.clear();
        self.log.clear();
        self.runner.save(&self.origin, &mut self.checkpoint);
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.chance.next_u64() % bound
    }

    fn join(&mut self, user: &str, returned: Option<SeatToken>) -> SeatKey {
        let seat = SeatKey { shard: ShardIndex(0), index: self.next_seat % 16, generation: self.next_seat };
        self.next_seat += 1;
        let token = SeatToken(u128::from(self.chance.next_u64()));
        let claim = SeatClaim { given: Some(token), returned, is_one_per_user: false, keeps_returned: true };
        let request = Box::new(join_request(seat, user, claim));
        self.host.take(ToRoom::Join { room: ROOM, request });
        self.here.insert(seat, token);
        seat
    }

    fn input(&mut self, seat: SeatKey, number: u32) {
        // The bytes are a stamp in the simulation `crowd`; in the hunt, they are a walk, a dig or nothing.
        let data = self.chance.next_u64().to_le_bytes();
        let data = bytes::Bytes::copy_from_slice(if self.origin.simulation == "crowd" { &data } else { &data[..3] });
        self.host.take(ToRoom::Input { room: ROOM, seat, number, data });
    }

    /// The backend kicks a random target: a user, who may be away, a client or a player.
    fn kick(&mut self) {
        let target = match self.below(3) {
            0 => KickTarget::User("ada".into()),
            1 => KickTarget::Client("c".into()),
            _ => KickTarget::Player(PlayerId(self.below(20) as u32)),
        };
        let order = KickOrder { target, reason: "by chance".into() };
        self.host.take(ToRoom::Kick { room: ROOM, id: 1, order: order.into() });
    }

    /// Passes random actions of players to the host.
    fn happen(&mut self) {
        if self.below(30) == 0 {
            self.kick();
        }
        if self.below(5) == 0 {
            let user = ["", "ada", "bob"][self.below(3) as usize];
            self.join(user, None);
        }
        let seats: Vec<SeatKey> = self.here.keys().copied().collect();
        for seat in seats {
            match self.below(20) {
                0 => {
                    self.here.remove(&seat);
                    self.host.take(ToRoom::Leave { room: ROOM, seat, departure: Departure::Left });
                }
                1..8 => {
                    let number = self.runner.ticks_run() as u32 + 1;
                    self.input(seat, number);
                }
                _ => {}
            }
        }
    }

    /// Logs and runs one tick.
    fn tick(&mut self) {
        let batch = self.host.begin();
        let hash = self.runner.ticks_run().is_multiple_of(7).then(|| self.runner.room().state_hash());
        let mut record = Vec::new();
        TickRecord::write(&batch.steps, hash, &mut record);
        self.log.push((self.runner.ticks_run() + 1, record));
        let done = self.runner.run(&batch, 1);
        let mut outgoing = Vec::new();
        self.host.finish(done, &mut outgoing);
        for (_, message) in outgoing {
            if let FromRoom::Joined { request, outcome: Err(_), .. } = message {
                self.here.remove(&request.join.expect("a join").seat);
            } else if let FromRoom::Unseated { seat, .. } = message {
                self.here.remove(&seat);
            }
        }
    }

    /// The room that a restart after a crash restores.
    fn restored(&self) -> Result<Runner, NotRestored> {
        let checkpoint = Checkpoint::read(&self.checkpoint)?;
        checkpoint.check_origin(&self.origin)?;
        let mut runner = checkpoint.restore(self.origin.options.clone(), simulation(&self.origin))?;
        for (tick, record) in &self.log {
            runner.replay(*tick, &TickRecord::read(record)?)?;
        }
        Ok(runner)
    }

    /// Simulates a crash and a restart. Returns the tokens of the players that had clients.
    fn crash(&mut self) -> Vec<SeatToken> {
        let restored = self.restored().expect("what was kept is good");
        assert_eq!(restored.ticks_run(), self.runner.ticks_run());
        assert_eq!(restored.room().state_hash(), self.runner.room().state_hash());
        self.runner = restored;
        self.host = host(&self.runner);
        self.host.restored(GRACE_TICKS);
        std::mem::take(&mut self.here).into_values().collect()
    }

    fn players(&self) -> Vec<PlayerId> {
        self.runner.room().world().players().collect()
    }
}

fn host(runner: &Runner) -> RoomHost {
    let options = HostOptions {
        shard_count: 1,
        node_seed: 1,
        empty_ticks_max: 1_000,
        ticks_per_second: 60,
        seat_grace_ticks: 0,
        away_per_user_max: 8,
        call_bytes_max: 1_024,
        is_recorded: true,
    };
    RoomHost::new(ROOM, Arc::from("arena:1"), runner.room().grid().clone(), options)
}

fn games() -> [(&'static str, Value); 2] {
    let map = json!({"columns": 8, "rows": 8, "treasures": 40, "obstacles": 20, "clue_interval_s": 1});
    [("treasure_hunt", map), ("crowd", json!({"objects": 10, "player_objects": true}))]
}

#[test]
fn repeated_restarts_restore_the_exact_tick() {
    for (game, params) in games() {
        for seed in 1..=4 {
            let mut played = Played::new(game, &params, seed);
            for _ in 0..12 {
                for _ in 0..played.below(60) {
                    played.happen();
                    played.tick();
                    if played.below(25) == 0 {
                        played.save();
                    }
                }
                let was_in = played.players();
                let tokens = played.crash();
                assert_eq!(played.players(), was_in);
                // Some players return, one after another.
                for token in tokens {
                    if played.below(3) > 0 {
                        played.join("", Some(token));
                    }
                    if played.below(2) == 0 {
                        played.happen();
                        played.tick();
                    }
                }
            }
        }
    }
}

#[test]
fn restored_players_reconnect_or_expire_at_their_tick() {
    for (game, params) in games() {
        let mut played = Played::new(game, &params, 9);
        let seats: Vec<SeatKey> = ["", "ada", "", "bob"].map(|user| played.join(user, None)).to_vec();
        played.tick();
        let players = played.players();
        let avatar = |played: &Played, player| played.runner.room().world().avatar_of(player);
        let avatars: Vec<_> = players.iter().map(|player| avatar(&played, *player)).collect();
        assert!(avatars.iter().all(Option::is_some));
        let tokens: Vec<SeatToken> = seats.iter().map(|seat| played.here[seat]).collect();
        played.crash();
        // One client returns by token and one by user; one has an unknown token; the others do not return.
        played.join("", Some(tokens[0]));
        played.join("ada", None);
        played.join("", Some(SeatToken(1)));
        played.tick();
        let new = PlayerId(5);
        assert_eq!(played.players(), [players.clone(), vec![new]].concat(), "{game}: one new player");
        // A second crash during the grace period restarts it for all players.
        let before = played.runner.ticks_run();
        played.crash();
        let back = |played: &mut Played, index: usize| played.join("", Some(tokens[index]));
        back(&mut played, 2);
        for _ in 0..GRACE_TICKS {
            played.tick();
            assert_eq!(played.players().len(), 5, "{game} {}", played.runner.ticks_run() - before);
        }
        assert_eq!(avatar(&played, players[2]), avatars[2]);
        played.tick();
        assert_eq!(played.players(), [players[2]], "{game}");
        assert_eq!(avatar(&played, players[2]), avatars[2]);
        played.crash();
    }
}

#[test]
fn players_survive_a_drain_until_they_reconnect() {
    let (game, params) = &games()[0];
    let mut played = Played::new(game, params, 3);
    let seat = played.join("ada", None);
    played.tick();
    let players = played.players();
    played.host.begin_drain();
    played.host.take(ToRoom::Leave { room: ROOM, seat, departure: Departure::Left });
    (0..3 * GRACE_TICKS).for_each(|_| played.tick());
    assert_eq!(played.players(), players);
    played.save();
    played.crash();
    played.join("ada", None);
    (0..3 * GRACE_TICKS).for_each(|_| played.tick());
    assert_eq!(played.players(), players);
}

#[test]
fn a_mismatched_checkpoint_or_log_is_reported() {
    let (game, params) = &games()[0];
    let mut played = Played::new(game, params, 3);
    played.join("ada", None);
    (0..20).for_each(|_| played.tick());
    let error = |played: &Played| played.restored().map(|runner| runner.ticks_run()).expect_err("it is of no use");

    let log = played.log.clone();
    played.log.remove(4);
    assert_eq!(error(&played), NotRestored::MissingRecord { expected: 5, found: 6 });
    played.log.clone_from(&log);
    // Without the join, the state differs at the next recorded hash.
    let mut record = Vec::new();
    TickRecord::write(&[], None, &mut record);
    played.log[0].1 = record;
    assert!(matches!(error(&played), NotRestored::OtherState { tick: 7, .. }), "{:?}", error(&played));
    played.log.clone_from(&log);
    played.log[3].1[0] = CHECKPOINT_AFTER_NEXT;
    assert_eq!(error(&played), NotRestored::NewerVersion(CHECKPOINT_AFTER_NEXT));
    played.log[3].1 = vec![1, 0, 1, 9];
    assert_eq!(error(&played), NotRestored::Malformed);

    let good = (played.origin.clone(), played.checkpoint.clone());
    played.log.clear();
    played.origin.simulation = "crowd".to_owned();
    assert_eq!(error(&played), NotRestored::OtherSimulation("treasure_hunt".to_owned()));
    played.origin = RoomOrigin { params: "{}".to_owned(), ..good.0.clone() };
    assert_eq!(error(&played), NotRestored::OtherParams(good.0.params.clone()));
    played.origin.clone_from(&good.0);
    played.origin.options.ticks_per_second = 30;
    assert_eq!(error(&played), NotRestored::OtherTickRate(60));
    played.origin.clone_from(&good.0);
    played.checkpoint.truncate(good.1.len() - 1);
    assert_eq!(error(&played), NotRestored::Refused);
    played.checkpoint = vec![CHECKPOINT_AFTER_NEXT];
    assert_eq!(error(&played), NotRestored::NewerVersion(CHECKPOINT_AFTER_NEXT));
    for length in 0..good.1.len() {
        played.checkpoint = good.1[..length].to_vec();
        let _ = error(&played);
    }
    played.checkpoint = good.1;
    assert!(played.restored().is_ok());
}

/// An unknown version.
const CHECKPOINT_AFTER_NEXT: u8 = dunlin_engine::host::CHECKPOINT_VERSION + 1;
