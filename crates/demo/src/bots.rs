//! Bots in the arena, so that a visitor is not alone: ordinary clients on one thread.

mod connection;
mod hunter;
mod seats;
pub mod watcher;

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};

use self::{
    connection::{BotConnection, BotUpdate, Lost},
    hunter::Hunter,
    seats::BotSeats,
};
use crate::{
    reachable_nodes::{Nodes, Refusal},
    report,
    retry::{Backoff, is_temporary, next_step},
};

/// The bots' room.
const ROOM: &str = "arena:hunt";

/// Interval at which a bot reads its socket and decides. Snapshots that arrive in between stay in the socket.
const TURN: Duration = Duration::from_millis(50);

/// Number of groups that act in turn, so that not all bots compute at once.
const GROUPS: usize = 10;

/// A bot acts in one of this number of its turns.
const TURNS_PER_ACT: u32 = 5;

/// Number of bots per group that connect in one turn.
const CONNECTS_PER_TURN: usize = 2;

/// Bounds of the delay before a bot reconnects.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(15);

/// What is refused, in reports.
const JOINS: &str = "the join of the bots";

/// Codes of joins that may succeed later: the room is full or ends, the node has as many rooms as it may, or the room is on
/// another node, which may stop.
const JOINS_LATER: [u32; 3] = [400, 106, 421];

/// Size of a read.
const BUFFER_BYTES: usize = 64 << 10;

/// Starts the bots, which spread over the nodes and go on to the next one when theirs is gone. They play until the process ends, or
/// until the server refuses them for good.
///
/// # Errors
/// The thread could not be started.
pub fn start(nodes: Arc<Nodes>, seats: Option<PathBuf>, bots: usize, seed: [u8; 32]) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("demo-bots".to_owned()).spawn(move || BotGroup::new(nodes, seats, bots, seed).play())
}

/// The state of all bots.
struct BotGroup {
    nodes: Arc<Nodes>,
    bots: Vec<Bot>,
    seats: BotSeats,
    /// The codes of refusals that were reported and may pass.
    reported: BTreeSet<u32>,
    random: ChaCha8Rng,
    buffer: Vec<u8>,
}

/// A bot with its connection, if it has one.
struct Bot {
    number: usize,
    /// How often it has gone on to the next node.
    moves: usize,
    playing: Option<(BotConnection, Hunter)>,
    turn: u32,
    retry: Option<Instant>,
    backoff: Backoff,
}

impl BotGroup {
    fn new(nodes: Arc<Nodes>, seats: Option<PathBuf>, bots: usize, seed: [u8; 32]) -> Self {
        let mut random = ChaCha8Rng::from_seed(seed);
        let seats = BotSeats::read(seats, bots);
        let bots = (0..bots)
            .map(|number| Bot {
                number,
                moves: 0,
                playing: None,
                turn: random.next_u32() % TURNS_PER_ACT,
                retry: None,
                backoff: Backoff::new(RETRY_MIN, RETRY_MAX),
            })
            .collect();
        Self { nodes, bots, seats, reported: BTreeSet::new(), random, buffer: vec![0; BUFFER_BYTES] }
    }

    fn play(mut self) {
        let mut next = Instant::now();
        for group in (0..GROUPS).cycle() {
            if let Err(refusal) = self.turn(group) {
                refusal.report(JOINS, ROOM);
                return;
            }
            self.seats.write_changed(Instant::now());
            next = next_step(next, TURN / GROUPS as u32, Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    /// Runs a turn of one group. Returns a refusal that does not pass.
    fn turn(&mut self, group: usize) -> Result<(), Refusal> {
        let Self { nodes, bots, seats, reported, random, buffer } = self;
        let mut connects = CONNECTS_PER_TURN;
        for bot in bots.iter_mut().skip(group).step_by(GROUPS) {
            let Some(node) = bot.node(nodes) else { return Ok(()) };
            if bot.playing.is_none() && connects > 0 {
                connects -= usize::from(bot.connect(nodes, node, random));
            }
            let Err(lost) = bot.turn(nodes, buffer, seats) else { continue };
            bot.retry_later();
            match lost {
                Lost::Closed => nodes.failed(node, &"it closed the connection of a bot"),
                Lost::Refused { code, message } if !may_join_later(code) => {
                    return Err(Refusal { node, code, message });
                }
                Lost::Refused { code, message } => {
                    nodes.succeeded();
                    if reported.insert(code) {
                        report(format_args!(
                            "{JOINS} in {ROOM} waits: --node {node} answers {message:?} ({code}); trying again"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

fn may_join_later(code: u32) -> bool {
    is_temporary(code) || JOINS_LATER.contains(&code)
}

impl Bot {
    fn node(&self, nodes: &Nodes) -> Option<SocketAddr> {
        let at = self.number.wrapping_add(self.moves).checked_rem(nodes.addresses.len())?;
        nodes.addresses.get(at).copied()
    }

    /// Returns whether it tried to connect.
    fn connect(&mut self, nodes: &Nodes, node: SocketAddr, random: &mut ChaCha8Rng) -> bool {
        if self.retry.is_some_and(|retry| Instant::now() < retry) {
            return false;
        }
        match BotConnection::open(node) {
            // A connection is no answer yet: what listens there may close it, or be something else.
            Ok(connection) => self.playing = Some((connection, Hunter::new(random.next_u64()))),
            Err(error) => {
                nodes.failed(node, &error);
                self.retry_later();
            }
        }
        true
    }

    fn retry_later(&mut self) {
        self.playing = None;
        self.moves = self.moves.wrapping_add(1);
        self.retry = Some(Instant::now() + self.backoff.pause());
    }

    fn turn(&mut self, nodes: &Nodes, buffer: &mut [u8], seats: &mut BotSeats) -> Result<(), Lost> {
        let Some((connection, hunter)) = &mut self.playing else { return Ok(()) };
        let (number, backoff) = (self.number, &mut self.backoff);
        let join = join_data(number, seats.token(number));
        let on_update = |update: BotUpdate<'_>| {
            // It is in the room.
            backoff.reset();
            nodes.succeeded();
            match update {
                BotUpdate::Snapshot(snapshot) => return hunter.see(snapshot),
                BotUpdate::Event(event) => hunter.on_event(event),
                BotUpdate::Joined(answer) => seats.joined(number, answer),
            }
            Ok(())
        };
        connection.read(ROOM, &join, buffer, on_update)?;
        self.turn = (self.turn + 1) % TURNS_PER_ACT;
        if self.turn == 0
            && let Some(input) = hunter.act()
        {
            connection.input(&input)?;
        }
        Ok(())
    }
}

/// Names of shorebirds, like the symbols of the ticker.
const NAMES: [&str; 16] = [
    "Avocet",
    "Curlew",
    "Dotterel",
    "Dunlin",
    "Godwit",
    "Greenshank",
    "Knot",
    "Lapwing",
    "Oystercatcher",
    "Plover",
    "Redshank",
    "Ruff",
    "Sanderling",
    "Snipe",
    "Turnstone",
    "Whimbrel",
];

fn join_data(number: usize, seat_token: Option<&str>) -> String {
    let name = NAMES.get(number % NAMES.len()).copied().unwrap_or_default();
    let colour = number % 12;
    let seat = seat_token.map(|token| format!(r#","seat_token":"{token}""#)).unwrap_or_default();
    format!(r#"{{"name":"{name} {}","colour":{colour}{seat}}}"#, number / NAMES.len() + 1)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A port that closes each connection is not a server that answers.
    #[test]
    fn a_connection_that_is_closed_does_not_end_the_silence() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let nodes = Arc::new(Nodes::new(&[listener.local_addr().expect("it is bound")]));
        let mut group = BotGroup::new(Arc::clone(&nodes), None, 1, [0; 32]);
        for attempt in 1..=2 {
            group.bots[0].retry = None;
            assert!(group.turn(0).is_ok());
            drop(listener.accept().expect("the bot connects"));
            let deadline = Instant::now() + Duration::from_mins(1);
            while group.bots[0].playing.is_some() {
                assert!(Instant::now() < deadline, "the bot does not see that its connection is closed");
                assert!(group.turn(0).is_ok());
                thread::sleep(Duration::from_millis(1)); // between two looks
            }
            assert!(nodes.is_silent(), "after attempt {attempt}");
        }
    }

    #[test]
    fn joins_that_may_succeed_later_are_tried_again() {
        for (code, may) in [(106, true), (400, true), (421, true), (100, true), (103, false), (401, false)] {
            assert_eq!(may_join_later(code), may, "{code}");
        }
    }

    #[test]
    fn bots_have_names() {
        assert_eq!(join_data(0, None), r#"{"name":"Avocet 1","colour":0}"#);
        assert_eq!(join_data(35, Some("ab")), r#"{"name":"Dunlin 3","colour":11,"seat_token":"ab"}"#);
    }
}
