//! A client's actions in rooms.

use crate::{
    plan::{INPUT_BYTES_MAX, RoomPlan},
    rooms::InputFault,
    wire::{ClientCommand, encode_input},
};
use dunlin_protocol::Encoding;

use super::{Client, Initiative, Pending, initiative::pending_of};

impl Client {
    /// Joins, or plays.
    pub(super) fn add_room_command(&mut self, initiative: &mut Initiative<'_>, rooms: &RoomPlan) {
        let channel = initiative.chance.pick(&rooms.channels).clone();
        let has_seat = self.subscriptions.contains_key(&channel) && !self.leaves(&channel);
        // Whose an input would be is not known as long as an answer is on its way.
        if self.asks_for(&channel) {
            return;
        }
        if !has_seat && !initiative.chance.percent(15) {
            return self.add_subscribe(initiative, &channel);
        }
        match initiative.chance.weighted(&[70, 20, 3, 5, 2]) {
            0 => self.add_input(initiative, &channel),
            1 if has_seat => self.add_send(initiative, &channel),
            2 => self.add_unsubscribe_from(initiative, &channel),
            3 => {
                let command = self.history(initiative, &channel);
                let command = pending_of(initiative, command, &channel);
                self.add(command);
            }
            _ => self.add_subscribe(initiative, &channel),
        }
    }

    /// What a client gives for the game, and the number of its attempt to join; nothing where there is no room.
    pub(super) fn join_data(&self, initiative: &mut Initiative<'_>, channel: &str) -> (Vec<u8>, Option<u64>) {
        let is_room =
            initiative.plan.rooms.as_ref().is_some_and(|rooms| rooms.channels.iter().any(|name| name == channel));
        if !is_room {
            return (Vec::new(), None);
        }
        let join = initiative.model.rooms.pages().begin_join(channel, &self.profile.user);
        let has_seats = initiative.plan.rooms.as_ref().is_some_and(|rooms| rooms.seat_grace_ticks > 0);
        let token = if has_seats { self.seat_token(initiative, channel) } else { String::new() };
        let data = match initiative.chance.below(100) {
            // Whoever comes back without a number could not be noted.
            0..3 if !has_seats => String::new(),
            3..8 => format!(r#"{{"join":{join},{token}"want":"out"}}"#),
            _ => format!(r#"{{"join":{join},{token}"want":"in"}}"#),
        };
        (data.into_bytes(), Some(join))
    }

    /// The member with the client's seat token: mostly the last one that it was given; otherwise an earlier one, one that
    /// nobody gave, or none.
    fn seat_token(&self, initiative: &mut Initiative<'_>, channel: &str) -> String {
        let own = self.seat_tokens.get(channel).map_or(&[][..], Vec::as_slice);
        let token = match initiative.chance.below(100) {
            0..5 => Some(format!("{:032x}", initiative.chance.number())),
            5..15 if !own.is_empty() => Some(initiative.chance.pick(own).clone()),
            15..20 => None,
            _ => own.last().cloned(),
        };
        token.map_or_else(String::new, |token| format!(r#""seat_token":"{token}","#))
    }

    /// An input by `publish`, which is answered.
    fn add_input(&mut self, initiative: &mut Initiative<'_>, channel: &str) {
        let (number, data) = self.input(initiative, channel, "");
        let command = ClientCommand::Publish { channel: channel.to_owned(), data };
        let (command, pending) = pending_of(initiative, command, channel);
        self.add((command, Pending { input: Some(number), ..pending }));
    }

    /// An input by `send`, which is not.
    fn add_send(&mut self, initiative: &mut Initiative<'_>, channel: &str) {
        let seats = self.subscriptions.values().filter(|subscription| subscription.seat.is_some()).count();
        // Where there is only one it need not be named.
        let is_only = seats == 1 && self.pending.values().all(|pending| pending.join.is_none());
        let room = if is_only && initiative.chance.percent(50) { "" } else { channel };
        let (number, data) = self.input(initiative, channel, room);
        // There is no other way to say that it was bad.
        self.misdeeds.broke_protocol |=
            initiative.model.rooms.pages().inputs[number as usize].fault == InputFault::Malformed;
        let command = pending_of(initiative, ClientCommand::Send { data }, channel);
        self.add(command);
    }

    /// An input, mostly a good one, and its number in the book.
    fn input(&mut self, initiative: &mut Initiative<'_>, channel: &str, room: &str) -> (u64, Vec<u8>) {
        let Initiative { chance, model, .. } = initiative;
        let mut seat = self.subscriptions.get_mut(channel).and_then(|subscription| subscription.seat.as_deref_mut());
        let last = seat.as_ref().map_or(0, |seat| seat.last_number);
        let fault = match chance.below(100) {
            0..4 if last > 0 => InputFault::Stale,
            4..7 => InputFault::TooLong,
            7..10 => InputFault::Malformed,
            10..15 => InputFault::Senseless,
            _ => InputFault::None,
        };
        let number = match fault {
            InputFault::Stale => chance.between(1, last.into()) as u32,
            _ => last + 1 + chance.below(3) as u32,
        };
        if let Some(seat) = &mut seat {
            seat.last_number = number.max(last);
            seat.inputs_sent += 1;
        }
        let of_book = model.rooms.pages().begin_input(seat.map(|seat| seat.join), number, fault);
        let mut data = format!("i{of_book} ").into_bytes();
        match (fault, chance.below(20)) {
            (InputFault::TooLong, _) => data.resize(INPUT_BYTES_MAX + 1 + chance.below(30), b'.'),
            (_, 0) => data.resize(INPUT_BYTES_MAX, b'.'),
            _ => {}
        }
        let encoding = self.profile.encoding;
        let input = match (fault, encoding) {
            (InputFault::Malformed, Encoding::Json) => (*chance.pick(&["[]", r#"{"number":"one"}"#, "7"])).into(),
            (InputFault::Malformed, Encoding::Protobuf) => vec![0xff; chance.between(1, 9) as usize],
            _ => encode_input(encoding, number, &data, room),
        };
        (of_book, input)
    }
}
