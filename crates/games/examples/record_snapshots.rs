//! Writes snapshots of simulated rooms to standard output, and what `dunlin_rooms::Replica` shows after each:
//!
//! ```text
//! record_snapshots COUNT [SEED]
//! ```
//!
//! `schema/vectors/room/README.md` describes the format. Half of the rooms are treasure hunts with clients that walk,
//! dig, leave and join. The others are the random worlds of the tests of `crates/rooms`, whose objects and views jump.
//! Some clients skip ticks, some lose a snapshot and join again, and some rooms send everything again. A third of the
//! clients receives far cells late half of the time, as with a bandwidth limit. In most of the random worlds, some kinds are
//! visible only near.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fmt::Write as _,
    io::{self, BufWriter, Write},
    sync::Arc,
};

use bytes::Bytes;
use dunlin_games::Registry;
use dunlin_protocol::Encoding;
use dunlin_rooms::{
    Base, CellIndex, FormatSet, Grid, GridShape, Mirror, PlayerId, Position, Replica, Room, RoomOptions, Schema,
    TickUpdate, Visitor, ZONES, Zones, wire,
};
use model::{Chance, Thing, World};
use serde_json::json;

#[path = "../../rooms/tests/kinds.rs"]
#[allow(unreachable_pub, reason = "a module of the tests of `crates/rooms`")]
mod kinds;

#[path = "../../rooms/tests/picture/model.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests of `crates/rooms` use more of it")]
mod model;

const MAGIC: &[u8] = b"dunlin-snapshots-1\n";
const TICKS_PER_ROOM: u32 = 120;
const CLIENTS: u32 = 12;
/// Zones of a view wait for this number of ticks, which is longer than their maximum delay, and then do not wait for the
/// same number.
const POSTPONED_TICKS: u32 = 20;
const START_US: u64 = 1_763_762_400_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [count] => record(count.parse()?, 1),
        [count, seed] => record(count.parse()?, seed.parse()?),
        _ => Err("usage: record_snapshots COUNT [SEED]".into()),
    }
}

fn record(count: u64, seed: u64) -> Result<(), Box<dyn Error>> {
    let mut log = SnapshotLog { out: BufWriter::new(io::stdout().lock()), left: count };
    let mut chance = Chance(seed);
    log.out.write_all(MAGIC)?;
    while log.left > 0 {
        play_hunt(&mut chance, &mut log)?;
        play_model(&mut chance, &mut log)?;
    }
    Ok(log.out.flush()?)
}

/// The output file, and the number of snapshots that are left to write.
struct SnapshotLog<W> {
    out: W,
    left: u64,
}

impl<W: Write> SnapshotLog<W> {
    fn join(&mut self, client: u32) -> io::Result<()> {
        self.entry(client, 0, true, &[], &Replica::default())
    }

    fn entry(&mut self, client: u32, kind: u8, is_applied: bool, data: &[u8], replica: &Replica) -> io::Result<()> {
        self.out.write_all(&client.to_le_bytes())?;
        self.out.write_all(&[kind, is_applied.into()])?;
        self.out.write_all(&u32::try_from(data.len()).map_err(io::Error::other)?.to_le_bytes())?;
        self.out.write_all(data)?;
        self.out.write_all(&crc32(picture(replica).as_bytes()).to_le_bytes())
    }
}

/// The content of a replica as text: a line for the replica, and one for each object in ascending order of ids.
fn picture(replica: &Replica) -> String {
    let mut text = String::new();
    let avatar = replica.avatar().map_or(0, |id| id.0);
    let (tick, time_us, ack, view) = (replica.tick(), replica.time_us(), replica.ack(), replica.view().0);
    let _ = writeln!(text, "{tick} {time_us} {ack} {avatar} {view}");
    let mut objects: Vec<_> = replica.objects().collect();
    objects.sort_unstable_by_key(|(id, _)| *id);
    for (id, seen) in objects {
        let Position { x, y } = seen.position;
        let _ = write!(text, "{} {} {x} {y} ", id.0, seen.kind);
        let _ = match seen.cell {
            Some(cell) => write!(text, "{} ", cell.0),
            None => write!(text, "- "),
        };
        for byte in &seen.state {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
    }
    text
}

/// CRC-32 of IEEE 802.3, which the libraries of most languages contain.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    let table: [u32; 256] = std::array::from_fn(|byte| (0..8).fold(byte as u32, |crc, _| step(crc)));
    !bytes.iter().fold(!0, |crc, byte| crc >> 8 ^ table[(crc as u8 ^ byte) as usize])
}

/// A client of a room, with the server's state for it.
struct FollowedClient {
    number: u32,
    encoding: Encoding,
    replica: Replica,
    base: Base,
    view: CellIndex,
    ack: u32,
    avatar: u32,
    own: Bytes,
    is_own_news: bool,
    absent_ticks: u32,
    /// The ticks of the zones that it has received; `None` before its first snapshot.
    zone_ticks: Option<[u32; ZONES]>,
}

impl FollowedClient {
    fn new(number: u32, encoding: Encoding) -> Self {
        let mut own = Vec::new();
        wire::encode_own(encoding, &Schema::new(), std::iter::empty(), &mut own);
        Self {
            number,
            encoding,
            replica: Replica::default(),
            base: Base::default(),
            view: CellIndex(0),
            ack: 0,
            avatar: 0,
            own: own.into(),
            is_own_news: true,
            absent_ticks: 0,
            zone_ticks: None,
        }
    }

    /// Sends the changes to the client, unless its socket is full for a while.
    fn receive<W: Write>(
        &mut self,
        mirror: &mut Mirror,
        chance: &mut Chance,
        log: &mut SnapshotLog<W>,
    ) -> io::Result<()> {
        if self.absent_ticks == 0 && chance.below(12) == 0 {
            self.absent_ticks = chance.below(25);
        }
        if self.absent_ticks > 0 || log.left == 0 {
            self.absent_ticks = self.absent_ticks.saturating_sub(1);
            return Ok(());
        }
        let snapshot = self.next_snapshot(mirror);
        if chance.below(200) == 0 {
            return Ok(()); // Lost, so the next snapshot does not fit.
        }
        let is_applied = self.replica.apply(self.encoding, &snapshot).is_ok();
        let kind = 1 + self.encoding.index() as u8;
        log.entry(self.number, kind, is_applied, &snapshot, &self.replica)?;
        log.left -= 1;
        if !is_applied {
            self.rejoin();
            log.join(self.number)?;
        }
        Ok(())
    }

    fn next_snapshot(&mut self, mirror: &mut Mirror) -> Vec<u8> {
        let is_postponed = mirror.tick() / POSTPONED_TICKS % 2 == 1;
        let waiting = [false, is_postponed, is_postponed && !mirror.tick().is_multiple_of(3), is_postponed];
        let zones = self.zone_ticks.map(|known_ticks| Zones { known_ticks, waiting });
        let is_limited = self.number.is_multiple_of(3);
        let body = mirror.body_of_zones(self.encoding, self.view, self.base, zones.filter(|_| is_limited));
        let has_own = self.is_own_news || body.base_tick == 0;
        let mut snapshot = Vec::new();
        let own = has_own.then_some(self.own.as_ref());
        wire::write_player_header(self.encoding, self.ack, self.avatar, own, &mut snapshot);
        snapshot.extend_from_slice(&body.bytes[..body.data_bytes]);
        self.is_own_news = false;
        self.base = Base { tick: body.tick, view: self.view };
        self.zone_ticks = Some(body.zone_ticks);
        snapshot
    }

    fn rejoin(&mut self) {
        self.replica = Replica::default();
        self.base = Base::default();
        self.zone_ticks = None;
        self.is_own_news = true;
    }
}

fn both_encodings() -> FormatSet {
    Encoding::ALL.into_iter().fold(FormatSet::default(), FormatSet::with)
}

fn mirror_of(grid: &Grid, keyframe: Arc<TickUpdate>) -> Mirror {
    Mirror::new(grid.clone(), 60, keyframe, [b"", b""])
}

fn play_hunt<W: Write>(chance: &mut Chance, log: &mut SnapshotLog<W>) -> Result<(), Box<dyn Error>> {
    let params = json!({
        "columns": 4 + chance.below(8), "rows": 4 + chance.below(8), "cell_units": 256, "near_cells": 1 + chance.below(3),
        "far_cells": chance.below(3), "treasures": 60, "obstacles": 60, "clue_interval_s": 1,
    });
    let simulation = Registry::built_in().make("treasure_hunt", &params).ok_or("no treasure hunt")??;
    let mut room = Room::new(RoomOptions::default(), chance.next(), simulation)?;
    let mut mirror = mirror_of(&room.grid().clone(), room.keyframe(both_encodings()));
    let mut clients = BTreeMap::new();
    for number in 0..CLIENTS {
        join_hunt(&mut room, &mut clients, number, log)?;
    }
    let mut inputs = 0;
    for _ in 0..TICKS_PER_ROOM {
        for player in clients.keys().copied().collect::<Vec<_>>() {
            inputs += 1;
            let [dx, dy, act] = [chance.next(), chance.next(), chance.next()].map(|number| number as u8);
            match chance.below(40) {
                0..4 => drop(room.input(player, inputs, &[0, dx, dy])),
                4 => drop(room.input(player, inputs, &[1])),
                5 => drop(room.input(player, inputs, &[2, act % 8])),
                // The first two clients stay, so that the room always writes both encodings.
                6 if player.0 > 2 && chance.below(8) == 0 => {
                    room.leave(player);
                    let Some(gone) = clients.remove(&player) else { continue };
                    join_hunt(&mut room, &mut clients, gone.number, log)?;
                }
                _ => {}
            }
        }
        let outcome = room.tick(START_US + u64::from(room.tick_number()) * 16_667);
        mirror.apply(outcome.update);
        if chance.below(60) == 0 {
            mirror.apply(room.keyframe(both_encodings()));
        }
        for change in outcome.players {
            let Some(client) = clients.get_mut(&change.player) else { continue };
            (client.view, client.ack, client.avatar) = (change.view, change.ack, change.avatar);
            if let Some(own) = change.own {
                (client.own, client.is_own_news) = (own, true);
            }
        }
        for client in clients.values_mut() {
            client.receive(&mut mirror, chance, log)?;
        }
    }
    Ok(())
}

fn join_hunt<W: Write>(
    room: &mut Room,
    clients: &mut BTreeMap<PlayerId, FollowedClient>,
    number: u32,
    log: &mut SnapshotLog<W>,
) -> Result<(), Box<dyn Error>> {
    let encoding = Encoding::ALL[number as usize % Encoding::ALL.len()];
    let joined = room.join(&Visitor::of_user(""), encoding, b"").map_err(|refusal| String::from(refusal.message))?;
    log.join(number)?;
    clients.insert(joined.player, FollowedClient::new(number, encoding));
    Ok(())
}

fn play_model<W: Write>(chance: &mut Chance, log: &mut SnapshotLog<W>) -> Result<(), Box<dyn Error>> {
    let grid = Grid::new(GridShape {
        columns: 1 + chance.below(8) as u16,
        rows: 1 + chance.below(8) as u16,
        cell_units: 1 + chance.below(40),
        near_cells: chance.below(3) as u16,
        far_cells: chance.below(3) as u16,
        far_interval_ticks: 1 + chance.below(15) as u16,
    })?;
    let mut world = World::new(grid.clone(), chance);
    let mut mirror = mirror_of(&grid, world.keyframe());
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|number| FollowedClient::new(number, Encoding::ALL[number as usize % Encoding::ALL.len()]))
        .collect();
    for client in &clients {
        log.join(client.number)?;
    }
    for _ in 0..TICKS_PER_ROOM {
        mirror.apply(world.step(chance));
        if chance.below(40) == 0 {
            mirror.apply(world.keyframe());
        }
        for client in &mut clients {
            wander(client, &grid, chance);
            client.receive(&mut mirror, chance, log)?;
        }
    }
    Ok(())
}

/// Changes the view and the private objects of a client, and adds inputs.
fn wander(client: &mut FollowedClient, grid: &Grid, chance: &mut Chance) {
    let (width, height) = grid.size_units();
    if chance.below(5) == 0 {
        client.view = grid.cell_of(Position { x: chance.below(width), y: chance.below(height) });
    }
    if chance.below(6) == 0 {
        let things: Vec<_> = (0..chance.below(3)).map(|index| (900_000 + index, Thing::any(chance, grid))).collect();
        let mut own = Vec::new();
        wire::encode_own(
            client.encoding,
            &Schema::new(),
            things.iter().map(|(id, thing)| thing.view(*id, Position::default())),
            &mut own,
        );
        (client.own, client.is_own_news) = (own.into(), true);
    }
    client.ack += chance.below(3);
    client.avatar = chance.below(3);
}
