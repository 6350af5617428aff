//! The on-disk formats of a room: checkpoints, and the log of the ticks after them.
//!
//! A *checkpoint* is a room's state directly after a tick: its origin, its saved state with the state hash, and the
//! clients that may take over its players. A *log record* contains the steps of a tick and, periodically, the state
//! hash before it.
//!
//! Both begin with a version byte. Numbers are varints with 7 bits per byte, the lowest first; the top bit is set if
//! more bytes follow. Strings and bytes are prefixed with their length. A state hash has 8 bytes and a seat token 16,
//! little-endian.

mod call_outcome;
mod rules;
mod step_format;

use dunlin_rooms::{
    Migrated, Migration, MigrationError, NotMigrated, PlayerId, Room, RoomOptions, SAVED_ROOM_VERSION, Simulation,
};

use super::{
    NotRestored, Runner, Step,
    absent_players::{AbsentPlayers, LeavesAt, SeatEntry},
    seated_players::SeatedPlayers,
};
use crate::room::{SeatKey, SeatToken};
use rules::{SavedRules, SavedSchema};
use step_format::{RecordReader, put_bytes, put_number, put_options, put_seat, put_step, put_token};

/// The version of both formats that is written. Version 1 has no spectators, backend messages or calls, and stores only
/// the user of a client. Before version 3, a player has one seat token. Before version 4, a client has no address. Before
/// version 5, a checkpoint has neither the version of its game nor its schema.
pub const CHECKPOINT_VERSION: u8 = 5;

/// The origin of a room. A room with another origin cannot continue from the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomOrigin {
    /// The simulation's name.
    pub simulation: String,
    /// The room's parameters, a JSON document.
    pub params: String,
    /// The room's options.
    pub options: RoomOptions,
}

/// A checkpoint that has been parsed. Its room is not restored yet.
#[derive(Clone, Debug)]
pub struct Checkpoint<'a> {
    origin: RoomOrigin,
    rules: SavedRules,
    ticks_run: u64,
    state_hash: u64,
    players: Vec<(SeatKey, PlayerId)>,
    absent_players: AbsentPlayers,
    room: &'a [u8],
}

/// A room that was restored for a game that may have changed since.
#[derive(Debug)]
pub struct Continued {
    /// The room.
    pub runner: Runner,
    /// Whether the state is another one than in the checkpoint, so that the log behind it cannot be replayed.
    pub has_new_state: bool,
}

/// The input of one tick.
#[derive(Clone, Debug)]
pub struct TickRecord {
    /// The state hash before the tick, if recorded.
    pub state_hash: Option<u64>,
    /// In order.
    pub steps: Vec<Step>,
}

/// Appends what a checkpoint has before its players. [`Runner::save`] appends a whole checkpoint.
pub(super) fn put_begin(origin: &RoomOrigin, ticks_run: u64, room: &Room, out: &mut Vec<u8>) {
    out.push(CHECKPOINT_VERSION);
    put_bytes(origin.simulation.as_bytes(), out);
    put_bytes(origin.params.as_bytes(), out);
    put_options(&origin.options, out);
    put_number(room.game_version().into(), out);
    put_bytes(room.schema().document().as_bytes(), out);
    put_number(ticks_run, out);
    out.extend_from_slice(&room.state_hash().to_le_bytes());
}

pub(super) fn put_players(seated_players: &SeatedPlayers, absent_players: &AbsentPlayers, out: &mut Vec<u8>) {
    let mut players: Vec<_> = seated_players.iter().map(|(seat, player)| (player, seat)).collect();
    players.sort_unstable();
    put_number(players.len() as u64, out);
    for (player, seat) in players {
        put_number(player.0.into(), out);
        put_seat(seat, out);
    }
    put_number(absent_players.iter().len() as u64, out);
    for (player, seat, away) in absent_players.iter() {
        put_number(player.0.into(), out);
        put_bytes(seat.user.as_bytes(), out);
        out.extend_from_slice(&seat.token.0.to_le_bytes());
        put_token(seat.returned, out);
        // 0 means that the client is connected.
        put_number(away.map_or(0, |LeavesAt(tick)| tick.saturating_add(1)), out);
    }
}

impl<'a> Checkpoint<'a> {
    /// Parses what [`Runner::save`] wrote.
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
        let rules = SavedRules::read(&mut reader, version)?;
        let (ticks_run, state_hash) = (reader.number()?, u64::from_le_bytes(reader.array()?));
        let mut players = Vec::new();
        for _ in 0..reader.count()? {
            let player = PlayerId(reader.number_of()?);
            players.push((reader.seat()?, player));
        }
        let mut absent_players = AbsentPlayers::default();
        for _ in 0..reader.count()? {
            let player = PlayerId(reader.number_of()?);
            let (user, token) = (reader.text()?.into(), SeatToken(u128::from_le_bytes(reader.array()?)));
            let returned = if version >= 3 { reader.token()? } else { None };
            absent_players.insert(player, SeatEntry { user, token, returned });
            if let Some(tick) = reader.number()?.checked_sub(1) {
                absent_players.set_away(player, LeavesAt(tick));
            }
        }
        match reader.0.first() {
            Some(version) if *version > SAVED_ROOM_VERSION => Err(NotRestored::NewerState(*version)),
            _ => Ok(Self { origin, rules, ticks_run, state_hash, players, absent_players, room: reader.0 }),
        }
    }

    /// The room's origin.
    pub fn origin(&self) -> &RoomOrigin {
        &self.origin
    }

    /// The parameters of the room's simulation, a JSON document. They differ from those of the origin if the room was
    /// opened with overrides.
    pub fn params(&self) -> &str {
        Room::saved_params(self.room).unwrap_or(&self.origin.params)
    }

    /// The version of the game that saved the room.
    pub fn game_version(&self) -> u32 {
        self.rules.version
    }

    /// The number of ticks that the room had run.
    pub fn ticks_run(&self) -> u64 {
        self.ticks_run
    }

    /// Whether a room with this origin can continue from the checkpoint. The limits may differ.
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

    /// Restores the room; its limits may differ. All players still have their former clients:
    /// [`super::RoomHost::restored`] marks them as away.
    ///
    /// # Errors
    /// [`NotRestored::Refused`], [`NotRestored::OtherState`]
    pub fn restore(self, options: RoomOptions, simulation: Box<dyn Simulation>) -> Result<Runner, NotRestored> {
        let room = Room::restore(options, self.room, simulation).map_err(|_| NotRestored::Refused)?;
        let state_hash = self.state_hash;
        let runner = self.runner_of(room);
        runner.check_state(state_hash)?;
        Ok(runner)
    }

    /// Why only the game can take the room over, if so: its version, or `difference`, which [`Checkpoint::check_origin`]
    /// has reported.
    pub fn reason_to_migrate(
        &self,
        difference: Option<NotRestored>,
        simulation: &dyn Simulation,
    ) -> Option<NotRestored> {
        let (was, is) = (self.rules.version, simulation.version());
        if was == is { difference } else { Some(NotRestored::OtherVersion { was, is }) }
    }

    /// Restores the room for a game that may have changed since: with states of other fields, and for `reason` only if the
    /// game takes it over. `params` are those that the simulation was created from.
    ///
    /// # Errors
    /// `reason`, if the game has no migration; [`NotRestored::OtherStates`], [`NotRestored::NotMigrated`],
    /// [`NotRestored::Refused`], [`NotRestored::OtherState`]
    pub fn migrate(
        self,
        options: RoomOptions,
        params: &str,
        simulation: Box<dyn Simulation>,
        reason: Option<NotRestored>,
    ) -> Result<Continued, NotRestored> {
        let schema = match &self.rules.schema {
            SavedSchema::Known(schema) => schema.clone(),
            SavedSchema::Unknown => simulation.schema(),
        };
        let migration = Migration {
            version: self.rules.version,
            schema: &schema,
            ticks_per_second: self.origin.options.ticks_per_second,
            state_hash: self.state_hash,
            old_params: self.params(),
            params,
            is_for_game: reason.is_some(),
        };
        let migrated = Room::migrate(options, self.room, simulation, &migration);
        let Migrated { room, converted_states, is_by_game } = migrated.map_err(|error| match (error, reason) {
            (MigrationError::Game(NotMigrated::Unsupported), Some(reason)) => reason,
            (MigrationError::Game(refused), _) => NotRestored::NotMigrated(refused.to_string().into()),
            (MigrationError::States(difference), _) => NotRestored::OtherStates(difference),
            (MigrationError::StatesLeft(left), _) => {
                NotRestored::NotMigrated(format!("it has left states as they were: {left}").into())
            }
            (MigrationError::OtherState { tick, actual }, _) => {
                NotRestored::OtherState { tick, expected: self.state_hash, actual }
            }
            (MigrationError::Unreadable | MigrationError::StateTooLong, _) => NotRestored::Refused,
        })?;
        let (state_hash, has_new_state) = (self.state_hash, is_by_game || converted_states > 0);
        let runner = self.runner_of(room);
        if !has_new_state {
            runner.check_state(state_hash)?;
        }
        Ok(Continued { runner, has_new_state })
    }

    fn runner_of(self, room: Room) -> Runner {
        let mut seated_players = SeatedPlayers::default();
        for (seat, player) in self.players {
            seated_players.put(seat, player);
        }
        Runner::continued(room, self.ticks_run, seated_players, self.absent_players)
    }
}

impl TickRecord {
    /// Appends the record of a tick with these steps.
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

    /// Parses what [`TickRecord::write`] wrote.
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
