//! Players for the arena, so that a visitor is not alone: clients like any other, on the loopback interface and a thread of
//! their own.

mod connection;
mod hunter;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};

use self::{
    connection::{Connection, Heard, Lost},
    hunter::Hunter,
};
use crate::telemetry::events;

/// The room that they play in.
const ROOM: &str = "arena:hunt";

/// A bot looks at its socket and thinks this often. The kernel keeps the few snapshots that come meanwhile.
const TURN: Duration = Duration::from_millis(50);

/// The bots take turns in so many groups, so that they do not all think at once.
const GROUPS: usize = 10;

/// A bot acts in every so many of its turns.
const TURNS_PER_ACT: u32 = 5;

/// How many bots of a group connect in one turn.
const CONNECTS_PER_TURN: usize = 2;

/// A bot that lost its connection tries again after this.
const RETRY: Duration = Duration::from_secs(5);

/// Bytes read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Where the bots connect to.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where the node listens.
    pub address: SocketAddr,
    /// The WebSocket endpoint's path.
    pub path: String,
}

/// Starts the bots. They play until the process ends, or until they are refused.
///
/// # Errors
/// There can be no more threads.
pub fn start(place: Place, bots: usize, seed: [u8; 32]) -> io::Result<()> {
    let address = SocketAddr::new(loopback(place.address.ip()), place.address.port());
    let place = Place { address, ..place };
    thread::Builder::new().name("demo-bots".to_owned()).spawn(move || Troop::new(place, bots, seed).play()).map(|_| ())
}

/// Where a node is reached from its own machine that listens on this.
fn loopback(listens: IpAddr) -> IpAddr {
    match listens {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}

/// All bots.
struct Troop {
    place: Place,
    bots: Vec<Bot>,
    random: ChaCha8Rng,
    buffer: Vec<u8>,
}

/// A bot, and its connection while it has one.
struct Bot {
    number: usize,
    playing: Option<(Connection, Hunter)>,
    turn: u32,
    retry: Option<Instant>,
}

impl Troop {
    fn new(place: Place, bots: usize, seed: [u8; 32]) -> Self {
        let mut random = ChaCha8Rng::from_seed(seed);
        let bots = (0..bots)
            .map(|number| Bot { number, playing: None, turn: random.next_u32() % TURNS_PER_ACT, retry: None })
            .collect();
        Self { place, bots, random, buffer: vec![0; BUFFER_BYTES] }
    }

    fn play(mut self) {
        let mut next = Instant::now();
        for group in (0..GROUPS).cycle() {
            if let Err(code) = self.turn(group) {
                events::DemoBotsRefused { room: ROOM, code }.emit();
                return;
            }
            // What was missed while the machine slept is not made up for.
            next = (next + TURN / GROUPS as u32).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    /// One group's turn. Fails with the code of the error if the room does not want bots.
    fn turn(&mut self, group: usize) -> Result<(), u32> {
        let Self { place, bots, random, buffer } = self;
        let mut connects = CONNECTS_PER_TURN;
        for bot in bots.iter_mut().skip(group).step_by(GROUPS) {
            if bot.playing.is_none() && connects > 0 {
                connects -= usize::from(bot.connect(place, random));
            }
            match bot.turn(buffer) {
                Ok(()) => {}
                Err(Lost::Refused(code)) => return Err(code),
                Err(Lost::Closed) => {
                    bot.playing = None;
                    bot.retry = Some(Instant::now() + RETRY);
                }
            }
        }
        Ok(())
    }
}

impl Bot {
    /// Returns whether it tried.
    fn connect(&mut self, place: &Place, random: &mut ChaCha8Rng) -> bool {
        if self.retry.is_some_and(|retry| Instant::now() < retry) {
            return false;
        }
        match Connection::open(place) {
            Ok(connection) => self.playing = Some((connection, Hunter::new(random.next_u64()))),
            Err(_) => self.retry = Some(Instant::now() + RETRY),
        }
        true
    }

    fn turn(&mut self, buffer: &mut [u8]) -> Result<(), Lost> {
        let Some((connection, hunter)) = &mut self.playing else { return Ok(()) };
        let number = self.number;
        let hear = |heard: Heard<'_>| match heard {
            Heard::Snapshot(snapshot) => hunter.see(snapshot),
            Heard::Event(event) => {
                hunter.hear(event);
                Ok(())
            }
        };
        connection.read(ROOM, &join_data(number), buffer, hear)?;
        self.turn = (self.turn + 1) % TURNS_PER_ACT;
        if self.turn == 0
            && let Some(input) = hunter.act()
        {
            connection.input(&input)?;
        }
        Ok(())
    }
}

/// Names of waders, as the demonstration's shares have.
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

fn join_data(number: usize) -> String {
    let name = NAMES.get(number % NAMES.len()).copied().unwrap_or_default();
    let colour = number % 12;
    format!(r#"{{"name":"{name} {}","colour":{colour}}}"#, number / NAMES.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bots_go_where_the_node_listens() {
        for (listens, reached) in
            [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("127.0.0.1", "127.0.0.1"), ("10.1.2.3", "10.1.2.3")]
        {
            let parse = |text: &str| text.parse::<IpAddr>().expect("an address");
            assert_eq!(loopback(parse(listens)), parse(reached));
        }
    }

    #[test]
    fn bots_have_names() {
        assert_eq!(join_data(0), r#"{"name":"Avocet 1","colour":0}"#);
        assert_eq!(join_data(35), r#"{"name":"Dunlin 3","colour":11}"#);
    }
}
