//! The inputs of players, which are checked here and sent to the room's thread.

use bytes::Bytes;
use dunlin_protocol::{Disconnect, Reply};
use dunlin_rooms::wire::{Input, decode_input};

use crate::{
    Effect, SessionKey,
    counters::InputRefusal,
    options::RoomLimits,
    refused::RefusedCommand,
    room::ToRoom,
    session::Subscription,
    session_seats::{NumberedInput, RoomRoute, SeatIndex, Seats},
};

use super::{Context, commands::CommandOutcome, open_sessions::OpenSessions};

/// Where an input waits.
#[derive(Clone, Copy)]
enum Inbox {
    Room {
        place: u32,
        route: RoomRoute,
    },
    /// The room is between two nodes.
    Held,
}

/// An input of one session, on its way to a room.
pub(super) struct PlayerInput<'s> {
    pub(super) context: &'s mut Context,
    pub(super) sessions: &'s mut OpenSessions,
    pub(super) key: SessionKey,
}

impl PlayerInput<'_> {
    /// Handles an input sent by `publish`, which names the room by its channel.
    pub(super) fn publish_input(&mut self, channel: &str, data: &[u8]) -> CommandOutcome {
        let encoding = self.sessions.table.at(self.key.index).encoding();
        let outcome = match (self.seat_in(channel), decode_input(encoding, data)) {
            (None, _) => Err(InputRefusal::NotSeated),
            (Some(_), Err(_)) => Err(InputRefusal::Malformed),
            (Some(seat), Ok(input)) => self.pass_on(seat, &input),
        };
        match outcome {
            Ok(()) => Ok(Some(Reply::Publish)),
            Err(refusal) => {
                count_refusal(self.context, refusal);
                Err(refusal.refused().into())
            }
        }
    }

    /// Handles an input sent by `send`, which is not answered.
    pub(super) fn send_input(&mut self, data: Option<&[u8]>) -> Result<(), RefusedCommand> {
        let options = &self.context.options;
        if options.without_namespace.room.is_none() && options.namespaces.iter().all(|known| known.room.is_none()) {
            let why = "send is for rooms, and no namespace has one";
            return Err(RefusedCommand::close(Disconnect::NOT_AVAILABLE, why));
        }
        let encoding = self.sessions.table.at(self.key.index).encoding();
        let outcome = match decode_input(encoding, data.unwrap_or_default()) {
            Err(_) => Err(InputRefusal::Malformed),
            Ok(input) => {
                let seat = if input.room.is_empty() { self.only_seat() } else { self.seat_in(&input.room) };
                match seat {
                    Some(seat) => self.pass_on(seat, &input),
                    None => Err(InputRefusal::NotSeated),
                }
            }
        };
        if let Err(refusal) = outcome {
            count_refusal(self.context, refusal);
        }
        Ok(())
    }

    /// The session's seat in the room of `channel`.
    fn seat_in(&self, channel: &str) -> Option<SeatIndex> {
        let id = self.sessions.hub.find(channel)?;
        let seat = self.sessions.table.get(self.key)?.subscription(id)?.seat()?;
        self.takes_inputs(seat).then_some(seat)
    }

    /// Whether the seat has a room, or is kept until it has one again.
    fn takes_inputs(&self, seat: SeatIndex) -> bool {
        self.sessions.seats.at(seat).room.is_some() || self.sessions.seats.holds_inputs(seat)
    }

    /// The session's seat, if it has exactly one.
    fn only_seat(&self) -> Option<SeatIndex> {
        let subscriptions = self.sessions.table.get(self.key)?.subscriptions.iter();
        let seats = subscriptions.filter_map(Subscription::seat);
        let mut seats = seats.filter(|seat| self.takes_inputs(*seat));
        seats.next().filter(|_| seats.next().is_none())
    }

    /// Checks an input and sends it to its room.
    fn pass_on(&mut self, seat: SeatIndex, input: &Input<'_>) -> Result<(), InputRefusal> {
        let namespace = self.sessions.hub.channel(self.sessions.seats.at(seat).channel).namespace;
        let limits = self.context.namespace(namespace).room.as_ref().ok_or(InputRefusal::NotSeated)?;
        // Not a clone of all limits, which have texts.
        let &RoomLimits { input_bytes_max, inbox_inputs_max, inputs_per_second, moves, .. } = limits;
        if input.data.len() > input_bytes_max {
            return Err(InputRefusal::TooLong);
        }
        if input.number <= self.sessions.seats.at(seat).inputs.last_number {
            return Err(InputRefusal::OldNumber);
        }
        let inbox = self.inbox_of(seat)?;
        let waiting = match inbox {
            Inbox::Room { place, .. } => self.sessions.seats.room_mut(place).inbox_inputs,
            Inbox::Held => self.sessions.seats.held_inputs(seat),
        };
        if waiting >= inbox_inputs_max {
            return Err(InputRefusal::Inbox);
        }
        let gate = &mut self.sessions.seats.at_mut(seat).inputs;
        if !gate.try_take(self.context.now.mono_us, inputs_per_second) {
            return Err(InputRefusal::Rate);
        }
        gate.last_number = input.number;
        self.context.count(namespace).rooms.inputs += 1;
        let input = (input.number, Bytes::copy_from_slice(&input.data));
        match inbox {
            Inbox::Held => self.sessions.seats.hold_input(seat, input),
            Inbox::Room { place, route } => {
                send(self.context, &mut self.sessions.seats, (place, route, moves), seat, input);
            }
        }
        Ok(())
    }

    fn inbox_of(&self, seat: SeatIndex) -> Result<Inbox, InputRefusal> {
        if self.sessions.seats.holds_inputs(seat) {
            return Ok(Inbox::Held);
        }
        let route = self.sessions.seats.at(seat).room.ok_or(InputRefusal::NotSeated)?;
        let place = self.sessions.seats.room_place(route.key).ok_or(InputRefusal::NotSeated)?;
        Ok(Inbox::Room { place, route })
    }
}

/// The first tick that names a seat since its room was lost has told which inputs the room has applied: sends the others. With
/// those of seats that have their room already, the inbox may have twice its limit for a moment: those that are held have the
/// same one.
pub(super) fn send_kept(context: &mut Context, seats: &mut Seats, seat: SeatIndex) {
    let released = seats.release_inputs(seat);
    let Some(route) = seats.at(seat).room.filter(|_| !released.is_empty()) else { return };
    let place = seats.room_place(route.key).expect("a seat that receives frames has its room here");
    let namespace = seats.room_mut(place).namespace;
    let moves = context.namespace(namespace).room.as_ref().is_some_and(|limits| limits.moves);
    context.count(namespace).rooms.inputs_unsure += released.dropped as u64;
    for input in released.inputs {
        send(context, seats, (place, route, moves), seat, input);
    }
}

/// Sends an input to its room. If the room may move, it is kept until the room has taken it.
fn send(
    context: &mut Context,
    seats: &mut Seats,
    (place, route, moves): (u32, RoomRoute, bool),
    seat: SeatIndex,
    (number, data): NumberedInput,
) {
    seats.room_mut(place).inbox_inputs += 1;
    // Behind the room threads comes the relay.
    if moves && route.thread.0 == context.options.room_threads {
        seats.note_sent(place, seat, (number, data.clone()));
    }
    let message = ToRoom::Input { room: route.key, seat: seats.key(context.identity.index, seat), number, data };
    context.effects.list.push(Effect::ToRoom { thread: route.thread, message });
}

fn count_refusal(context: &mut Context, refusal: InputRefusal) {
    context.counters.inputs_refused[refusal as usize] += 1;
}
