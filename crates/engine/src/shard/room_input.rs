//! Players' inputs: checked here, and sent to the room's thread.

use bytes::Bytes;
use dunlin_protocol::{Disconnect, ErrorCode, Reply};
use dunlin_rooms::wire::{Input, decode_input};

use crate::{Effect, Effects, Now, SessionKey, room::ToRoom, seats::SeatIndex, session::Subscription};

use super::Shard;

/// Why an input is not passed on. The numbers are places in [`crate::counters::INPUT_REFUSALS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputRefusal {
    Malformed = 0,
    TooLong = 1,
    OldNumber = 2,
    Rate = 3,
    Inbox = 4,
    NotSeated = 5,
}

impl InputRefusal {
    /// What a `publish` is answered with.
    fn error(self) -> ErrorCode {
        match self {
            Self::Malformed | Self::TooLong | Self::OldNumber => ErrorCode::BadRequest,
            Self::Rate | Self::Inbox => ErrorCode::TooManyRequests,
            Self::NotSeated => ErrorCode::PermissionDenied,
        }
    }
}

impl Shard {
    /// An input that came by `publish`, which names the room by its channel.
    pub(super) fn publish_input(
        &mut self,
        now: Now,
        key: SessionKey,
        channel: &str,
        data: &[u8],
        effects: &mut Effects,
    ) -> Reply {
        let encoding = self.sessions.at(key.index).encoding();
        let outcome = match (self.seat_in(key, channel), decode_input(encoding, data)) {
            (None, _) => Err(InputRefusal::NotSeated),
            (Some(_), Err(_)) => Err(InputRefusal::Malformed),
            (Some(seat), Ok(input)) => self.pass_on(now, seat, &input, effects),
        };
        match outcome {
            Ok(()) => Reply::Publish,
            Err(refusal) => {
                self.count_refusal(refusal);
                Reply::Error(refusal.error())
            }
        }
    }

    /// An input that came by `send`, which is not answered.
    pub(super) fn send_input(
        &mut self,
        now: Now,
        key: SessionKey,
        data: Option<&[u8]>,
        effects: &mut Effects,
    ) -> Result<(), Disconnect> {
        let options = &self.options;
        if options.without_namespace.room.is_none() && options.namespaces.iter().all(|known| known.room.is_none()) {
            return Err(Disconnect::NOT_AVAILABLE);
        }
        let encoding = self.sessions.at(key.index).encoding();
        let Ok(input) = decode_input(encoding, data.unwrap_or_default()) else {
            self.count_refusal(InputRefusal::Malformed);
            return Err(Disconnect::BAD_REQUEST);
        };
        let seat = if input.room.is_empty() { self.only_seat(key) } else { self.seat_in(key, &input.room) };
        let outcome = match seat {
            Some(seat) => self.pass_on(now, seat, &input, effects),
            None => Err(InputRefusal::NotSeated),
        };
        if let Err(refusal) = outcome {
            self.count_refusal(refusal);
        }
        Ok(())
    }

    fn count_refusal(&mut self, refusal: InputRefusal) {
        self.counters.inputs_refused[refusal as usize] += 1;
    }

    /// The session's seat in the room of `channel`.
    fn seat_in(&self, key: SessionKey, channel: &str) -> Option<SeatIndex> {
        let id = self.hub.find(channel)?;
        let seat = self.sessions.get(key)?.subscription(id)?.seat()?;
        self.seats.at(seat).room.map(|_| seat)
    }

    /// The session's seat, if it has exactly one.
    fn only_seat(&self, key: SessionKey) -> Option<SeatIndex> {
        let subscriptions = self.sessions.get(key)?.subscriptions.iter();
        let seats = subscriptions.filter_map(Subscription::seat);
        let mut seats = seats.filter(|seat| self.seats.at(*seat).room.is_some());
        seats.next().filter(|_| seats.next().is_none())
    }

    /// Sends an input to its room, if it may.
    fn pass_on(
        &mut self,
        now: Now,
        seat: SeatIndex,
        input: &Input<'_>,
        effects: &mut Effects,
    ) -> Result<(), InputRefusal> {
        let road = self.seats.at(seat).room.ok_or(InputRefusal::NotSeated)?;
        let place = self.seats.room_place(road.key).ok_or(InputRefusal::NotSeated)?;
        let namespace = self.seats.room_mut(place).namespace;
        let limits = self.namespace(namespace).room.clone().ok_or(InputRefusal::NotSeated)?;
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
        if !gate.takes(now.mono_us, limits.inputs_per_second) {
            return Err(InputRefusal::Rate);
        }
        gate.last_number = input.number;
        self.seats.room_mut(place).inbox_inputs += 1;
        self.count(namespace).rooms.inputs += 1;
        let message = ToRoom::Input {
            room: road.key,
            seat: self.seats.key(self.identity.index, seat),
            number: input.number,
            data: Bytes::copy_from_slice(&input.data),
        };
        effects.list.push(Effect::ToRoom { thread: road.thread, message });
        Ok(())
    }
}
