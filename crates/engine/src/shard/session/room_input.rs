//! Players' inputs: checks them and sends them to the room's thread.

use bytes::Bytes;
use dunlin_protocol::{Disconnect, Reply};
use dunlin_rooms::wire::{Input, decode_input};

use crate::{
    Effect, SessionKey, counters::InputRefusal, refused::RefusedCommand, room::ToRoom, seats::SeatIndex,
    session::Subscription,
};

use super::{Context, Sessions, commands::CommandOutcome};

impl Sessions {
    /// Handles an input sent by `publish`, which names the room by its channel.
    pub(super) fn publish_input(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        channel: &str,
        data: &[u8],
    ) -> CommandOutcome {
        let encoding = self.table.at(key.index).encoding();
        let outcome = match (self.seat_in(key, channel), decode_input(encoding, data)) {
            (None, _) => Err(InputRefusal::NotSeated),
            (Some(_), Err(_)) => Err(InputRefusal::Malformed),
            (Some(seat), Ok(input)) => self.pass_on(context, seat, &input),
        };
        match outcome {
            Ok(()) => Ok(Some(Reply::Publish)),
            Err(refusal) => {
                context.count_refusal(refusal);
                Err(refusal.error_code().into())
            }
        }
    }

    /// Handles an input sent by `send`, which is not answered.
    pub(super) fn send_input(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        data: Option<&[u8]>,
    ) -> Result<(), RefusedCommand> {
        let options = &context.options;
        if options.without_namespace.room.is_none() && options.namespaces.iter().all(|known| known.room.is_none()) {
            let why = "send is for rooms, and no namespace has one";
            return Err(RefusedCommand::close(Disconnect::NOT_AVAILABLE, why));
        }
        let encoding = self.table.at(key.index).encoding();
        let outcome = match decode_input(encoding, data.unwrap_or_default()) {
            Err(_) => Err(InputRefusal::Malformed),
            Ok(input) => {
                let seat = if input.room.is_empty() { self.only_seat(key) } else { self.seat_in(key, &input.room) };
                match seat {
                    Some(seat) => self.pass_on(context, seat, &input),
                    None => Err(InputRefusal::NotSeated),
                }
            }
        };
        if let Err(refusal) = outcome {
            context.count_refusal(refusal);
        }
        Ok(())
    }

    /// The session's seat in the room of `channel`.
    fn seat_in(&self, key: SessionKey, channel: &str) -> Option<SeatIndex> {
        let id = self.hub.find(channel)?;
        let seat = self.table.get(key)?.subscription(id)?.seat()?;
        self.seats.at(seat).room.map(|_| seat)
    }

    /// The session's seat, if it has exactly one.
    fn only_seat(&self, key: SessionKey) -> Option<SeatIndex> {
        let subscriptions = self.table.get(key)?.subscriptions.iter();
        let seats = subscriptions.filter_map(Subscription::seat);
        let mut seats = seats.filter(|seat| self.seats.at(*seat).room.is_some());
        seats.next().filter(|_| seats.next().is_none())
    }

    /// Checks an input and sends it to its room.
    fn pass_on(&mut self, context: &mut Context, seat: SeatIndex, input: &Input<'_>) -> Result<(), InputRefusal> {
        let route = self.seats.at(seat).room.ok_or(InputRefusal::NotSeated)?;
        let place = self.seats.room_place(route.key).ok_or(InputRefusal::NotSeated)?;
        let namespace = self.seats.room_mut(place).namespace;
        let limits = context.namespace(namespace).room.clone().ok_or(InputRefusal::NotSeated)?;
        if input.data.len() > limits.input_bytes_max {
            return Err(InputRefusal::TooLong);
        }
        if input.number <= self.seats.at(seat).inputs.last_number {
            return Err(InputRefusal::OldNumber);
        }
        if self.seats.room_mut(place).inbox_inputs >= limits.inbox_inputs_max {
            return Err(InputRefusal::Inbox);
        }
        let gate = &mut self.seats.at_mut(seat).inputs;
        if !gate.try_take(context.now.mono_us, limits.inputs_per_second) {
            return Err(InputRefusal::Rate);
        }
        gate.last_number = input.number;
        self.seats.room_mut(place).inbox_inputs += 1;
        context.count(namespace).rooms.inputs += 1;
        let message = ToRoom::Input {
            room: route.key,
            seat: self.seats.key(context.identity.index, seat),
            number: input.number,
            data: Bytes::copy_from_slice(&input.data),
        };
        context.effects.list.push(Effect::ToRoom { thread: route.thread, message });
        Ok(())
    }
}
impl Context {
    fn count_refusal(&mut self, refusal: InputRefusal) {
        self.counters.inputs_refused[refusal as usize] += 1;
    }
}
