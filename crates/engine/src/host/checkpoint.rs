//! The formats of what a room keeps on disk: checkpoints, and the log of what happened after them.
//!
//! A *checkpoint* is a room right after a tick: what it was made of, its state with the state hash, and who may come back as
//! which player. A *log record* contains the steps that a tick began with, and from time to time the state hash before it.
//!
//! Both begin with a version byte. Numbers are varints with 7 bits per byte, the lowest first, the top bit set if more bytes
//! follow. Texts and bytes follow their length; a state hash has 8 bytes and a seat token 16, the lowest first.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{ClientInfo, Encoding, Payload};
use dunlin_rooms::{ListingChange, PlayerId, Room, RoomOptions, SAVED_ROOM_VERSION, Simulation};

use super::{
    AwayTerms, NotRestored, Runner, Step,
    runner::visitor_of,
    seat_book::{LeavesAt, SeatBook},
};
use crate::{
    ShardIndex,
    room::{SeatClaim, SeatKey, SeatToken},
};

/// The version of both formats that is written. Version 1 has no spectators and no messages of the backend, and knows of a
/// client only its user.
pub const CHECKPOINT_VERSION: u8 = 2;

/// What a room is made of. One that is made of something else does not go on from a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomOrigin {
    /// The simulation's name.
    pub simulation: String,
    /// Its parameters, a JSON document.
    pub params: String,
    /// The room's options.
    pub options: RoomOptions,
}

/// A checkpoint that was read. Its room is not restored yet.
#[derive(Clone, Debug)]
pub struct Checkpoint<'a> {
    origin: RoomOrigin,
    ticks_run: u64,
    state_hash: u64,
    players: Vec<(SeatKey, PlayerId)>,
    book: SeatBook,
    room: &'a [u8],
}

/// What a tick began with.
#[derive(Clone, Debug)]
pub struct TickRecord {
    /// The state hash before the tick, if it is noted.
    pub state_hash: Option<u64>,
    /// In order.
    pub steps: Vec<Step>,
}

impl Runner {
    /// Appends a checkpoint. Best right after a tick, as [`Room::save`].
    pub fn save(&self, origin: &RoomOrigin, out: &mut Vec<u8>) {
        out.push(CHECKPOINT_VERSION);
        put_bytes(origin.simulation.as_bytes(), out);
        put_bytes(origin.params.as_bytes(), out);
        put_options(&origin.options, out);
        put_number(self.ticks_run, out);
        out.extend_from_slice(&self.room.state_hash().to_le_bytes());
        let mut players: Vec<_> = self.seating.iter().map(|(seat, player)| (player, seat)).collect();
        players.sort_unstable();
        put_number(players.len() as u64, out);
        for (player, seat) in players {
            put_number(player.0.into(), out);
            put_seat(seat, out);
        }
        put_number(self.book.iter().len() as u64, out);
        for (player, seat, away) in self.book.iter() {
            put_number(player.0.into(), out);
            put_bytes(seat.user.as_bytes(), out);
            out.extend_from_slice(&seat.token.0.to_le_bytes());
            // 0: its client is here.
            put_number(away.map_or(0, |LeavesAt(tick)| tick.saturating_add(1)), out);
        }
        self.room.save(out);
    }

    /// Goes through a tick again. `tick_count` is the count of the tick that the record is of.
    ///
    /// # Errors
    /// [`NotRestored::MissingRecord`], [`NotRestored::OtherState`]; nothing has happened.
    pub fn replay(&mut self, tick_count: u64, record: TickRecord) -> Result<(), NotRestored> {
        let expected = self.ticks_run + 1;
        if tick_count != expected {
            return Err(NotRestored::MissingRecord { expected, found: tick_count });
        }
        if let Some(state_hash) = record.state_hash {
            self.check_state(state_hash)?;
        }
        self.apply(record.steps);
        let removals = self.room.tick_without_update();
        self.on_removals(&removals);
        Ok(())
    }

    fn check_state(&self, expected: u64) -> Result<(), NotRestored> {
        let (tick, actual) = (self.room.tick_number(), self.room.state_hash());
        if expected == actual { Ok(()) } else { Err(NotRestored::OtherState { tick, expected, actual }) }
    }
}

impl<'a> Checkpoint<'a> {
    /// Reads what [`Runner::save`] wrote.
    ///
    /// # Errors
    /// [`NotRestored::NewerVersion`], [`NotRestored::NewerState`], [`NotRestored::Malformed`]
    pub fn read(bytes: &'a [u8]) -> Result<Self, NotRestored> {
        let (version, mut reader) = RecordReader::versioned(bytes)?;
        let origin = RoomOrigin {
            simulation: reader.text()?.to_owned(),
            params: reader.text()?.to_owned(),
            options: reader.options(version)?,
        };
        let (ticks_run, state_hash) = (reader.number()?, u64::from_le_bytes(reader.array()?));
        let mut players = Vec::new();
        for _ in 0..reader.count()? {
            let player = PlayerId(reader.number_of()?);
            players.push((reader.seat()?, player));
        }
        let mut book = SeatBook::default();
        for _ in 0..reader.count()? {
            let player = PlayerId(reader.number_of()?);
            book.book(player, reader.text()?.into(), SeatToken(u128::from_le_bytes(reader.array()?)));
            if let Some(tick) = reader.number()?.checked_sub(1) {
                book.set_away(player, LeavesAt(tick));
            }
        }
        match reader.0.first() {
            Some(version) if *version > SAVED_ROOM_VERSION => Err(NotRestored::NewerState(*version)),
            _ => Ok(Self { origin, ticks_run, state_hash, players, book, room: reader.0 }),
        }
    }

    /// What the room was made of.
    pub fn origin(&self) -> &RoomOrigin {
        &self.origin
    }

    /// The parameters of the room's simulation, a JSON document: it may have been opened with others than its origin.
    pub fn params(&self) -> &str {
        Room::saved_params(self.room).unwrap_or(&self.origin.params)
    }

    /// Ticks that the room had run.
    pub fn ticks_run(&self) -> u64 {
        self.ticks_run
    }

    /// Whether the room can go on as one that is made of `origin`. Its limits may be others.
    ///
    /// # Errors
    /// [`NotRestored::OtherSimulation`], [`NotRestored::OtherParams`], [`NotRestored::OtherTickRate`]
    pub fn check_origin(&self, origin: &RoomOrigin) -> Result<(), NotRestored> {
        let was = &self.origin;
        if was.simulation != origin.simulation {
            return Err(NotRestored::OtherSimulation(was.simulation.clone()));
        }
        if was.params != origin.params {
            return Err(NotRestored::OtherParams(was.params.clone()));
        }
        if was.options.ticks_per_second != origin.options.ticks_per_second {
            return Err(NotRestored::OtherTickRate(was.options.ticks_per_second));
        }
        Ok(())
    }

    /// The room as it was, with limits that may be others. All players still have the clients that they had:
    /// [`super::RoomHost::restored`] says that those are gone.
    ///
    /// # Errors
    /// [`NotRestored::Refused`], [`NotRestored::OtherState`]
    pub fn restore(self, options: RoomOptions, simulation: Box<dyn Simulation>) -> Result<Runner, NotRestored> {
        let room = Room::restore(options, self.room, simulation).map_err(|_| NotRestored::Refused)?;
        let mut runner = Runner::new(room);
        runner.ticks_run = self.ticks_run;
        for (seat, player) in self.players {
            runner.seating.put(seat, player);
        }
        runner.book = self.book;
        runner.check_state(self.state_hash)?;
        Ok(runner)
    }
}

impl TickRecord {
    /// Appends the record of a tick that begins with these steps.
    pub fn write(steps: &[Step], state_hash: Option<u64>, out: &mut Vec<u8>) {
        out.push(CHECKPOINT_VERSION);
        out.push(state_hash.is_some().into());
        if let Some(state_hash) = state_hash {
            out.extend_from_slice(&state_hash.to_le_bytes());
        }
        put_number(steps.len() as u64, out);
        for step in steps {
            put_step(step, out);
        }
    }

    /// Reads what [`TickRecord::write`] wrote.
    ///
    /// # Errors
    /// [`NotRestored::NewerVersion`], [`NotRestored::Malformed`]
    pub fn read(bytes: &[u8]) -> Result<Self, NotRestored> {
        let (_, mut reader) = RecordReader::versioned(bytes)?;
        let state_hash = if reader.flag()? { Some(u64::from_le_bytes(reader.array()?)) } else { None };
        let steps = (0..reader.count()?).map(|_| reader.step()).collect::<Result<_, _>>()?;
        if reader.0.is_empty() { Ok(Self { state_hash, steps }) } else { Err(NotRestored::Malformed) }
    }
}

fn put_step(step: &Step, out: &mut Vec<u8>) {
    match step {
        Step::Join { seat, info, is_spectator, encoding, data, claim } => {
            out.push(6);
            put_seat(*seat, out);
            let visitor = visitor_of(info, *is_spectator);
            put_bytes(visitor.user.as_bytes(), out);
            put_bytes(visitor.client.as_bytes(), out);
            put_bytes(visitor.info, out);
            out.extend_from_slice(&[(*is_spectator).into(), claim.is_one_per_user.into(), encoding.index() as u8]);
            put_bytes(data, out);
            put_token(claim.given, out);
            put_token(claim.returned, out);
        }
        Step::Leave { seat } => {
            out.push(2);
            put_seat(*seat, out);
        }
        Step::Input { seat, number, data } => {
            out.push(3);
            put_seat(*seat, out);
            put_number((*number).into(), out);
            put_bytes(data, out);
        }
        Step::Away { seat, stay } => {
            out.push(if stay.is_some() { 7 } else { 4 });
            put_seat(*seat, out);
            if let Some(AwayTerms { grace_ticks, per_user_max }) = stay {
                put_number((*grace_ticks).into(), out);
                put_number((*per_user_max).into(), out);
            }
        }
        Step::AllAway { grace_ticks } => {
            out.push(5);
            put_number((*grace_ticks).into(), out);
        }
        Step::ChangeListing { id, change } => {
            out.push(16);
            put_number(*id, out);
            let mut written = Vec::new();
            change.write(&mut written);
            put_bytes(&written, out);
        }
        Step::Message { id, data } => {
            out.push(8);
            put_number(*id, out);
            put_bytes(data, out);
        }
    }
}

fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_seat(seat: SeatKey, out: &mut Vec<u8>) {
    for number in [seat.shard.0.into(), seat.index.into(), seat.generation.into()] {
        put_number(number, out);
    }
}

fn put_token(token: Option<SeatToken>, out: &mut Vec<u8>) {
    out.push(token.is_some().into());
    if let Some(SeatToken(token)) = token {
        out.extend_from_slice(&token.to_le_bytes());
    }
}

fn put_options(options: &RoomOptions, out: &mut Vec<u8>) {
    put_number(options.ticks_per_second.into(), out);
    for limit in [
        options.objects_max,
        options.state_bytes_max,
        options.players_max,
        options.events_per_tick_max,
        options.event_bytes_max,
        options.spectators_max,
        options.metadata_bytes_max,
    ] {
        put_number(limit as u64, out);
    }
}

/// Reads what the functions above wrote.
struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    fn versioned(bytes: &'a [u8]) -> Result<(u8, Self), NotRestored> {
        let mut reader = Self(bytes);
        match reader.byte()? {
            version @ 1..=CHECKPOINT_VERSION => Ok((version, reader)),
            0 => Err(NotRestored::Malformed),
            version => Err(NotRestored::NewerVersion(version)),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], NotRestored> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(NotRestored::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], NotRestored> {
        let (array, rest) = self.0.split_first_chunk().ok_or(NotRestored::Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    fn byte(&mut self) -> Result<u8, NotRestored> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Result<bool, NotRestored> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(NotRestored::Malformed),
        }
    }

    fn number(&mut self) -> Result<u64, NotRestored> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(NotRestored::Malformed)
    }

    fn number_of<T: TryFrom<u64>>(&mut self) -> Result<T, NotRestored> {
        T::try_from(self.number()?).map_err(|_| NotRestored::Malformed)
    }

    /// How many things follow, each of at least one byte.
    fn count(&mut self) -> Result<usize, NotRestored> {
        self.number_of().ok().filter(|count| *count <= self.0.len()).ok_or(NotRestored::Malformed)
    }

    fn bytes(&mut self) -> Result<&'a [u8], NotRestored> {
        let count = self.count()?;
        self.take(count)
    }

    fn text(&mut self) -> Result<&'a str, NotRestored> {
        std::str::from_utf8(self.bytes()?).map_err(|_| NotRestored::Malformed)
    }

    fn seat(&mut self) -> Result<SeatKey, NotRestored> {
        let shard = ShardIndex(self.number_of()?);
        Ok(SeatKey { shard, index: self.number_of()?, generation: self.number_of()? })
    }

    fn encoding(&mut self) -> Result<Encoding, NotRestored> {
        Encoding::ALL.get(usize::from(self.byte()?)).copied().ok_or(NotRestored::Malformed)
    }

    /// The info that the game learns; whose it was does not matter.
    fn client_info(&mut self) -> Result<Arc<ClientInfo>, NotRestored> {
        let (user, client) = (Arc::from(self.text()?), Arc::from(self.text()?));
        let info = self.bytes()?;
        let conn_info = (!info.is_empty()).then(|| Payload::from_opaque(Bytes::copy_from_slice(info)));
        Ok(Arc::new(ClientInfo { user, client, conn_info, chan_info: None }))
    }

    fn token(&mut self) -> Result<Option<SeatToken>, NotRestored> {
        let is_there = self.flag()?;
        is_there.then(|| Ok(SeatToken(u128::from_le_bytes(self.array()?)))).transpose()
    }

    fn options(&mut self, version: u8) -> Result<RoomOptions, NotRestored> {
        Ok(RoomOptions {
            ticks_per_second: self.number_of()?,
            objects_max: self.number_of()?,
            state_bytes_max: self.number_of()?,
            players_max: self.number_of()?,
            events_per_tick_max: self.number_of()?,
            event_bytes_max: self.number_of()?,
            spectators_max: if version >= 2 { self.number_of()? } else { 0 },
            metadata_bytes_max: if version >= 2 { self.number_of()? } else { 0 },
        })
    }

    fn step(&mut self) -> Result<Step, NotRestored> {
        Ok(match self.byte()? {
            // Of version 1.
            1 => Step::Join {
                seat: self.seat()?,
                info: Arc::new(ClientInfo::of_user(self.text()?)),
                is_spectator: false,
                encoding: self.encoding()?,
                data: Bytes::copy_from_slice(self.bytes()?),
                claim: SeatClaim { given: self.token()?, returned: self.token()?, is_one_per_user: false },
            },
            6 => {
                let (seat, info) = (self.seat()?, self.client_info()?);
                let (is_spectator, is_one_per_user) = (self.flag()?, self.flag()?);
                let encoding = self.encoding()?;
                let data = Bytes::copy_from_slice(self.bytes()?);
                let claim = SeatClaim { given: self.token()?, returned: self.token()?, is_one_per_user };
                Step::Join { seat, info, is_spectator, encoding, data, claim }
            }
            2 => Step::Leave { seat: self.seat()? },
            3 => Step::Input {
                seat: self.seat()?,
                number: self.number_of()?,
                data: Bytes::copy_from_slice(self.bytes()?),
            },
            4 => Step::Away { seat: self.seat()?, stay: None },
            7 => {
                let seat = self.seat()?;
                let stay = AwayTerms { grace_ticks: self.number_of()?, per_user_max: self.number_of()? };
                Step::Away { seat, stay: Some(stay) }
            }
            5 => Step::AllAway { grace_ticks: self.number_of()? },
            16 => {
                let (id, written) = (self.number()?, self.bytes()?);
                Step::ChangeListing { id, change: ListingChange::read(written).ok_or(NotRestored::Malformed)?.into() }
            }
            8 => Step::Message { id: self.number()?, data: Bytes::copy_from_slice(self.bytes()?) },
            _ => return Err(NotRestored::Malformed),
        })
    }
}
