//! The interface that a game implements.

use core::net::IpAddr;
use std::fmt;

use crate::{CallError, CallId, GridShape, PlayerId, World};

/// The code of a message to a game that takes none.
const NO_MESSAGES_CODE: u16 = 400;

/// A game: the rules of a world. Its methods are called one at a time, by one thread, in an order that a recording
/// repeats; whatever they do has to follow from their arguments, the world and what they did before. So a simulation
/// reads no clock, draws its chance from [`World::random`], and iterates over nothing whose order is not fixed.
pub trait Simulation: Send {
    /// The map. Asked once, before anything else.
    fn grid(&self) -> GridShape;

    /// For how many ticks [`World::rewind`] goes back. The world keeps what each of them has changed. Asked once,
    /// when the room is made: one that is restored goes on with the number that it was made with.
    fn rewind_ticks(&self) -> u8 {
        0
    }

    /// Fills the new world.
    fn start(&mut self, world: &mut World);

    /// A player wants to join with `data`, which its client gave. When this returns `Ok`, it is in the room.
    ///
    /// # Errors
    /// [`Refusal`]: the client's subscription fails with it.
    fn join(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>, data: &[u8]) -> Result<(), Refusal>;

    /// A player has left, for whatever reason. Not called for spectators.
    fn leave(&mut self, world: &mut World, player: PlayerId);

    /// A player's connection was lost. The player stays in the room for the seat grace: until [`Simulation::back`], or
    /// until [`Simulation::leave`].
    fn away(&mut self, world: &mut World, player: PlayerId) {
        let _ = (world, player);
    }

    /// A player has a connection again. Its client starts from the whole view, and numbers its inputs from 1.
    ///
    /// Also called without [`Simulation::away`] before it, if the client connected again before the server noticed that the
    /// first connection was lost.
    fn back(&mut self, world: &mut World, player: PlayerId, visitor: &Visitor<'_>) {
        let _ = (world, player, visitor);
    }

    /// A spectator wants to watch: it has a viewpoint ([`World::set_viewpoint`]) but no seat, and sends no inputs. By
    /// default it may, and watches from the corner of the map.
    ///
    /// # Errors
    /// [`Refusal`]: the client's subscription fails with it.
    fn spectate(
        &mut self,
        world: &mut World,
        spectator: PlayerId,
        visitor: &Visitor<'_>,
        data: &[u8],
    ) -> Result<(), Refusal> {
        let _ = (world, spectator, visitor, data);
        Ok(())
    }

    /// A spectator has left.
    fn spectator_left(&mut self, world: &mut World, spectator: PlayerId) {
        let _ = (world, spectator);
    }

    /// A player's input.
    ///
    /// # Errors
    /// [`InputError`]: counted; nothing else happens.
    fn input(&mut self, world: &mut World, player: PlayerId, data: &[u8]) -> Result<(), InputError>;

    /// A message of the application's backend (`room_send` of the server API). What is returned is its answer.
    ///
    /// # Errors
    /// [`Refusal`]: the backend's request fails with it. By default every message is refused.
    fn message(&mut self, _world: &mut World, _data: &[u8]) -> Result<Vec<u8>, Refusal> {
        Err(Refusal { code: NO_MESSAGES_CODE, message: "this game takes no messages".into() })
    }

    /// The backend's answer to a call ([`World::call`]), or why there is none. Comes once for each call, before a tick: the
    /// timeout in the very tick that was named.
    fn answer(&mut self, world: &mut World, call: CallId, outcome: Result<&[u8], CallError>) {
        let _ = (world, call, outcome);
    }

    /// One step of time.
    fn tick(&mut self, world: &mut World);

    /// Appends everything that is not in the world, so that [`Simulation::restore`] can go on from it.
    fn save(&self, out: &mut Vec<u8>);

    /// Takes over what [`Simulation::save`] wrote. Called instead of [`Simulation::start`]; the world is as it was then.
    ///
    /// # Errors
    /// [`RestoreError`]
    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError>;
}

/// Who wants to join, or has come back.
///
/// ```
/// use dunlin_rooms::Visitor;
///
/// fn name_of(visitor: &Visitor<'_>) -> String {
///     if visitor.user.is_empty() { "Guest".to_owned() } else { visitor.user.to_owned() }
/// }
/// assert_eq!(name_of(&Visitor::of_user("ada")), "ada");
/// assert_eq!(name_of(&Visitor::default()), "Guest");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visitor<'a> {
    /// The user's id; empty for an anonymous one.
    pub user: &'a str,
    /// The id of the connection, as presence shows it. A client that comes back has another one.
    pub client: &'a str,
    /// The info of the subscription token or of the backend's answer, otherwise that of the connection: a JSON document, or
    /// other bytes. Empty without one.
    pub info: &'a [u8],
    /// Whether it only watches.
    pub is_spectator: bool,
    /// The client's address: behind a trusted proxy, the one that the proxy names. `None` unless the namespace has
    /// `room.visitor_address`, because recordings and logs contain what the game learns.
    pub address: Option<IpAddr>,
}

impl<'a> Visitor<'a> {
    /// A player with this user id, of whom nothing else is known.
    pub fn of_user(user: &'a str) -> Self {
        Self { user, ..Self::default() }
    }
}

/// Why a player may not join, or a message is not carried out, in the game's own words and numbers.
///
/// ```
/// use dunlin_rooms::Refusal;
///
/// fn check_team(data: &[u8]) -> Result<bool, Refusal> {
///     match data {
///         b"red" => Ok(true),
///         b"blue" => Ok(false),
///         _ => Err(Refusal { code: 422, message: "the team is `red` or `blue`".into() }),
///     }
/// }
/// assert_eq!(check_team(b"green").map_err(|refusal| refusal.code), Err(422));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code of the error reply: 400 to 1,999. Of a backend: 100 to 1,999.
    pub code: u16,
    /// Human-readable; the client or the backend receives it with the code.
    pub message: Box<str>,
}

/// An input that the game can't make sense of.
///
/// ```
/// use dunlin_rooms::InputError;
///
/// /// Two signed bytes: the direction of a step.
/// fn step_of(data: &[u8]) -> Result<(i8, i8), InputError> {
///     let &[x, y] = data else { return Err(InputError) };
///     Ok((x.cast_signed(), y.cast_signed()))
/// }
/// assert_eq!(step_of(&[255, 1]), Ok((-1, 1)));
/// assert_eq!(step_of(&[]), Err(InputError));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputError;

/// What was saved cannot be restored.
///
/// ```
/// use dunlin_rooms::RestoreError;
///
/// /// The counterpart of `out.extend(round.to_le_bytes())` in `save`.
/// fn read_round(saved: &[u8]) -> Result<u32, RestoreError> {
///     Ok(u32::from_le_bytes(saved.try_into().map_err(|_| RestoreError)?))
/// }
/// assert_eq!(read_round(&[3, 0, 0, 0]), Ok(3));
/// assert_eq!(read_round(&[3]), Err(RestoreError));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreError;

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what was saved is not of this simulation")
    }
}

impl std::error::Error for RestoreError {}
