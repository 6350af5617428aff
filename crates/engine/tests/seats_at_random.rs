//! Cuts connections of players at random times: before and after a join is answered, with and without the server's
//! knowledge, and by a restart from a checkpoint. A model predicts which player each join gets.

use dunlin_engine::{
    host::{Checkpoint, RoomOrigin, Step, TickRecord},
    options::RoomLimits,
};
use dunlin_protocol::Encoding;
use dunlin_rooms::{ObjectId, PlayerId, RoomOptions};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use serde_json::{Value, json};

use crate::hall::{Hall, Meadow, Seen, options};

const ARENA: &str = "arena:a";
const GRACE_TICKS: u32 = 5;
/// Per seed and setting. More than 10,000 in total.
const CUTS: u32 = 1_500;
/// Users of the clients. Anonymous clients have a token or nothing.
const USERS: [&str; 10] = ["", "", "", "", "ann", "ann", "ann", "ben", "ben", "cat"];

/// A player in the model.
#[derive(Debug)]
struct ModelPlayer {
    player: PlayerId,
    user: &'static str,
    /// The client whose token is valid for the player.
    client: Option<usize>,
    /// The connection whose join was the last to get the player.
    last_join: String,
    /// The player's connection.
    connection: Option<String>,
    /// The tick in which the player leaves unless it comes back.
    leaves_at: Option<u64>,
}

#[derive(Default)]
struct Wanderer {
    /// The client's connection.
    connection: Option<String>,
    /// The last token that the client has read.
    token: Option<Value>,
    inputs: u32,
}

/// What happens to a connection after its join.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The client reads the answer.
    Answered,
    /// The connection is cut before the game has seen the join.
    CutBefore,
    /// The connection is cut after the game has seen the join, before its shard has the answer.
    CutBetween,
    /// The connection is cut after the room has answered and before the client has read the answer.
    CutAfter,
}

struct Join {
    client: usize,
    connection: String,
    fate: Fate,
    /// The expected player, and whether it was in the room before.
    player: PlayerId,
    is_back: bool,
}

#[derive(Debug, Default)]
struct Seats {
    resumed: u32,
    made: u32,
    /// Joins that got a player with a connection.
    taken_over: u32,
    /// Answers that no client read.
    lost: u32,
    /// Players that another client of the user got because it had no token.
    by_user: u32,
    expired: u32,
    restarts: u32,
}

struct Walk {
    hall: Hall,
    chance: ChaCha8Rng,
    is_one_per_user: bool,
    wanderers: Vec<Wanderer>,
    /// In the order of their ids, as in the room.
    players: Vec<ModelPlayer>,
    last_player: PlayerId,
    /// Connections that are lost without the server's knowledge.
    half_open: Vec<String>,
    connections: u32,
    cuts: u32,
    seats: Seats,
}

impl Walk {
    fn new(seed: u64, is_one_per_user: bool) -> Self {
        let mut options = options();
        let limits: &mut RoomLimits = options.namespaces[0].room.as_mut().expect("rooms");
        limits.gives_seat_tokens = true;
        limits.is_one_seat_per_user = is_one_per_user;
        let mut hall = Hall::new(2, options);
        (hall.seat_grace_ticks, hall.away_per_user_max) = (GRACE_TICKS, 100);
        // Another client opens the room and leaves.
        hall.gather(&[("opener", Encoding::Json, 0)], ARENA);
        hall.unsubscribe("opener", ARENA);
        hall.tick();
        Self {
            hall,
            chance: ChaCha8Rng::seed_from_u64(seed),
            is_one_per_user,
            wanderers: USERS.iter().map(|_| Wanderer::default()).collect(),
            players: Vec::new(),
            last_player: PlayerId(1),
            half_open: Vec::new(),
            connections: 0,
            cuts: 0,
            seats: Seats::default(),
        }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.chance.next_u32() % bound
    }

    /// The tick that handles the current operations.
    fn next_tick(&self) -> u64 {
        self.hall.only_room().1.ticks_run() + 1
    }

    fn run(&mut self) {
        while self.cuts < CUTS {
            if self.below(200) == 0 {
                self.restart();
            }
            self.expire();
            let joins = self.act();
            let outgoing = self.hall.run_rooms();
            for join in joins.iter().filter(|join| join.fate == Fate::CutBetween) {
                self.cuts += 1;
                self.hall.forget(&join.connection);
            }
            self.hall.deliver(outgoing);
            self.settle(&joins);
            self.check();
        }
    }

    /// Players that are not back in time leave before anything else happens in a tick.
    fn expire(&mut self) {
        let (tick, before) = (self.next_tick(), self.players.len());
        self.players.retain(|player| player.leaves_at.is_none_or(|leaves_at| leaves_at > tick));
        self.seats.expired += (before - self.players.len()) as u32;
    }

    /// Performs the operations before a tick.
    fn act(&mut self) -> Vec<Join> {
        let mut joins = Vec::new();
        for client in 0..USERS.len() {
            let choice = self.below(6);
            match self.wanderers[client].connection.take() {
                Some(connection) if choice < 2 => {
                    self.cut(&connection);
                    // Rejoin immediately, in the same tick.
                    if self.below(2) == 0 {
                        joins.extend(self.join(client));
                    }
                }
                Some(connection) if choice == 2 => {
                    self.half_open.push(connection);
                    joins.extend(self.join(client));
                }
                None if choice == 0 => joins.extend(self.join(client)),
                here => self.wanderers[client].connection = here,
            }
        }
        for connection in std::mem::take(&mut self.half_open) {
            // The server notices before, in or after the tick of the join.
            if self.below(2) == 0 {
                self.cut(&connection);
            } else {
                self.half_open.push(connection);
            }
        }
        joins
    }

    /// The server detects the end of a connection.
    fn cut(&mut self, connection: &str) {
        self.cuts += 1;
        self.hall.forget(connection);
        self.is_lost(connection);
    }

    fn is_lost(&mut self, connection: &str) {
        let leaves_at = self.next_tick() + u64::from(GRACE_TICKS);
        let of_player = |player: &&mut ModelPlayer| player.connection.as_deref() == Some(connection);
        if let Some(player) = self.players.iter_mut().find(of_player) {
            (player.connection, player.leaves_at) = (None, Some(leaves_at));
        }
    }

    /// A client joins. It joins again if its connection is cut before the game has seen the join, unless it is patient.
    fn join(&mut self, client: usize) -> Option<Join> {
        for _ in 0..3 {
            let join = self.join_once(client);
            if join.is_some() || self.below(2) == 0 {
                return join;
            }
        }
        None
    }

    fn join_once(&mut self, client: usize) -> Option<Join> {
        self.connections += 1;
        let (connection, user) = (format!("w{}", self.connections), USERS[client]);
        self.hall.node.open(&connection, Encoding::Json, (self.connections % 2) as u16);
        let connect = json!({"id": 1, "connect": {"token": format!("user={user}")}});
        self.hall.send_json(&connection, &connect);
        self.hall.seen.insert(connection.clone(), Seen::default());
        self.hall.join(&connection, ARENA, self.wanderers[client].token.as_ref().unwrap_or(&json!({})));
        let fate = match self.below(8) {
            0 | 1 => Fate::CutAfter,
            2 => Fate::CutBefore,
            3 => Fate::CutBetween,
            _ => Fate::Answered,
        };
        if fate == Fate::CutBefore {
            self.cuts += 1;
            self.hall.forget(&connection);
            return None;
        }
        let taken = self.take_over(client, &connection);
        let player = taken.unwrap_or_else(|| self.make(client, &connection));
        self.seats.lost += u32::from(fate != Fate::Answered);
        Some(Join { client, connection, fate, player, is_back: taken.is_some() })
    }

    fn make(&mut self, client: usize, connection: &str) -> PlayerId {
        self.last_player.0 += 1;
        self.seats.made += 1;
        let (player, user, last_join) = (self.last_player, USERS[client], connection.to_owned());
        let connection = Some(last_join.clone());
        self.players.push(ModelPlayer { player, user, client: None, last_join, connection, leaves_at: None });
        player
    }

    /// The existing player that a join gets, if any.
    fn take_over(&mut self, client: usize, connection: &str) -> Option<PlayerId> {
        let is_one_per_user = self.is_one_per_user;
        let own = self.players.iter().position(|player| player.client == Some(client));
        let may_be_claimed = |player: &ModelPlayer| {
            let is_of_user = !player.user.is_empty() && player.user == USERS[client];
            is_of_user && (is_one_per_user || player.leaves_at.is_some())
        };
        let place = own.or_else(|| self.players.iter().position(may_be_claimed))?;
        let player = &mut self.players[place];
        self.seats.resumed += 1;
        self.seats.taken_over += u32::from(player.connection.is_some());
        if own.is_none() {
            // By the user only: the token that another client has for the player becomes invalid.
            self.seats.by_user += 1;
            player.client = None;
        }
        (player.connection, player.leaves_at) = (Some(connection.to_owned()), None);
        connection.clone_into(&mut player.last_join);
        Some(player.player)
    }

    /// Joins are answered, and clients read their messages.
    fn settle(&mut self, joins: &[Join]) {
        for join in joins {
            match join.fate {
                Fate::Answered => self.read_answer(join),
                Fate::CutAfter => self.cut(&join.connection),
                // The documented case: nothing identifies the client, so the player leaves.
                Fate::CutBetween if !join.is_back && USERS[join.client].is_empty() => {
                    let tick = self.next_tick();
                    let of_player = self.players.iter_mut().find(|known| known.player == join.player);
                    let of_player = of_player.expect("it has just come");
                    (of_player.connection, of_player.leaves_at) = (None, Some(tick));
                }
                Fate::CutBetween => self.is_lost(&join.connection),
                Fate::CutBefore => unreachable!("the game does not see it"),
            }
        }
    }

    fn read_answer(&mut self, join: &Join) {
        let messages = std::mem::take(&mut self.hall.seen(&join.connection).messages);
        let replies = messages.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let reply = replies.into_iter().find(|reply| reply["id"] == 2).expect("an answer");
        let data = &reply["subscribe"]["data"];
        assert_eq!(data["seat_resumed"], join.is_back, "{}: {reply}", join.connection);
        let wanderer = &mut self.wanderers[join.client];
        wanderer.token = Some(json!({"seat_token": data["seat_token"]}));
        for known in &mut self.players {
            if known.player == join.player && known.last_join == join.connection {
                known.client = Some(join.client);
            } else if known.client == Some(join.client) {
                known.client = None;
            }
        }
        let is_seated = self.players.iter().any(|known| known.connection.as_ref() == Some(&join.connection));
        if !is_seated {
            // Another client of the user has taken the seat in the same tick.
            self.half_open.push(join.connection.clone());
            return;
        }
        wanderer.connection = Some(join.connection.clone());
        wanderer.inputs = 0;
        assert_eq!(self.avatar(&join.connection), self.avatar_of(join.player), "{} is mixed up", join.connection);
    }

    fn avatar(&self, connection: &str) -> Option<ObjectId> {
        self.hall.seen[connection].replicas.get(ARENA)?.avatar()
    }

    fn avatar_of(&self, player: PlayerId) -> Option<ObjectId> {
        self.hall.only_room().1.room().world().avatar_of(player)
    }

    fn check(&mut self) {
        let world = self.hall.only_room().1.room().world();
        let (here, expected): (Vec<_>, Vec<_>) =
            (world.players().collect(), self.players.iter().map(|player| player.player).collect());
        assert_eq!(here, expected, "tick {}", self.next_tick() - 1);
        for client in 0..USERS.len() {
            let Some(connection) = self.wanderers[client].connection.clone() else { continue };
            let held = self.players.iter().find(|player| player.connection.as_ref() == Some(&connection));
            let Some(held) = held else {
                // Another client of the user has taken the seat.
                let messages = &self.hall.seen[&connection].messages;
                assert!(messages.iter().any(|line| line.contains(r#""code":2011"#)), "{messages:?}");
                self.wanderers[client].connection = None;
                self.half_open.push(connection);
                continue;
            };
            assert_eq!(self.avatar(&connection), self.avatar_of(held.player), "{connection} is mixed up");
            self.hall.check(&connection, ARENA);
            if self.below(4) == 0 {
                self.wanderers[client].inputs += 1;
                let number = self.wanderers[client].inputs;
                self.hall.publish(&connection, ARENA, number, &[number as u8, 9]);
            }
        }
    }

    /// All connections are lost, and the room continues from a checkpoint.
    fn restart(&mut self) {
        self.expire();
        let held = self.wanderers.iter_mut().filter_map(|wanderer| wanderer.connection.take());
        for connection in held.collect::<Vec<_>>().into_iter().chain(std::mem::take(&mut self.half_open)) {
            self.cut(&connection);
        }
        self.hall.tick();
        self.expire();
        let (_, runner) = self.hall.rooms.values_mut().next().expect("a room");
        let origin = RoomOrigin { simulation: String::new(), params: String::new(), options: RoomOptions::default() };
        let mut saved = Vec::new();
        runner.save(&origin, &mut saved);
        let saved = Checkpoint::read(&saved).expect("it is read");
        *runner = saved.restore(RoomOptions::default(), Box::<Meadow>::default()).expect("it is restored");
        let steps = vec![Step::AllAway { grace_ticks: GRACE_TICKS }];
        let tick = runner.ticks_run() + 1;
        runner.replay(tick, &TickRecord { state_hash: None, steps }).expect("it follows");
        for player in &mut self.players {
            player.leaves_at = Some(tick + u64::from(GRACE_TICKS));
        }
        self.seats.restarts += 1;
    }
}

#[test]
fn ten_thousand_disconnects_keep_each_player_unique() {
    for seed in 0..4 {
        for is_one_per_user in [false, true] {
            let mut walk = Walk::new(seed, is_one_per_user);
            walk.run();
            let seats = &walk.seats;
            let is_enough = seats.resumed > 500 && seats.made > 30 && seats.taken_over > 100 && seats.lost > 200;
            assert!(is_enough && seats.by_user > 20 && seats.expired > 30 && seats.restarts > 0, "{seats:?}");
        }
    }
}
