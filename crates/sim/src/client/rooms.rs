//! A client's actions in rooms.

use crate::{
    plan::{INPUT_BYTES_MAX, RoomPlan},
    rooms::InputFault,
    wire::{ClientCommand, encode_input},
};
use dunlin_protocol::Encoding;

use super::{ActContext, Client, Pending, act::pending_of};

impl Client {
    /// Adds a random command for a room.
    pub(super) fn add_room_command(&mut self, context: &mut ActContext<'_>, rooms: &RoomPlan) {
        let channel = context.chance.pick(&rooms.channels).clone();
        let has_seat = self.subscriptions.contains_key(&channel) && !self.is_unsubscribing(&channel);
        // While a join is pending, the player that an input belongs to is not known.
        if self.is_subscribing(&channel) {
            return;
        }
        if !has_seat && !context.chance.percent(15) {
            return self.add_subscribe(context, &channel);
        }
        match context.chance.weighted(&[70, 20, 3, 5, 2]) {
            0 => self.add_input(context, &channel),
            1 if has_seat => self.add_send(context, &channel),
            2 => self.add_unsubscribe_from(context, &channel),
            3 => {
                let command = self.history(context, &channel);
                let command = pending_of(context, command, &channel);
                self.add(command);
            }
            _ => self.add_subscribe(context, &channel),
        }
    }

    /// The join data of a subscribe command and the number of the join. Both are empty if the channel has no room.
    pub(super) fn join_data(&self, context: &mut ActContext<'_>, channel: &str) -> (Vec<u8>, Option<u64>) {
        let is_room =
            context.plan.rooms.as_ref().is_some_and(|rooms| rooms.channels.iter().any(|name| name == channel));
        if !is_room {
            return (Vec::new(), None);
        }
        let join = context.model.rooms.lock().begin_join(channel, &self.profile.user, context.now_us);
        let has_seats = context.plan.rooms.as_ref().is_some_and(|rooms| rooms.seat_grace_ticks > 0);
        let token = if has_seats { self.seat_token(context, channel) } else { String::new() };
        let is_typed = join.is_multiple_of(3);
        let snapshots = if is_typed { r#""snapshots":"typed","# } else { "" };
        let data = match context.chance.below(100) {
            // The model could not record a player who resumes without a join number.
            0..3 if !has_seats => String::new(),
            3..8 => format!(r#"{{"join":{join},{token}{snapshots}"want":"out"}}"#),
            _ => format!(r#"{{"join":{join},{token}{snapshots}"want":"in"}}"#),
        };
        context.model.rooms.lock().joins[join as usize].is_typed = is_typed && !data.is_empty();
        (data.into_bytes(), Some(join))
    }

    /// The JSON member with the client's seat token: mostly the last one, otherwise an earlier one, a random one, or
    /// none.
    fn seat_token(&self, context: &mut ActContext<'_>, channel: &str) -> String {
        let own = self.seat_tokens.get(channel).map_or(&[][..], Vec::as_slice);
        let token = match context.chance.below(100) {
            0..5 => Some(format!("{:032x}", context.chance.number())),
            5..15 if !own.is_empty() => Some(context.chance.pick(own).clone()),
            15..20 => None,
            _ => own.last().cloned(),
        };
        token.map_or_else(String::new, |token| format!(r#""seat_token":"{token}","#))
    }

    /// Adds an input as a publish command, which gets a reply.
    fn add_input(&mut self, context: &mut ActContext<'_>, channel: &str) {
        let (number, data) = self.input(context, channel, "");
        let command = ClientCommand::Publish { channel: channel.to_owned(), data };
        let (command, pending) = pending_of(context, command, channel);
        self.add((command, Pending { input: Some(number), ..pending }));
    }

    /// Adds an input as a send command, which gets no reply.
    fn add_send(&mut self, context: &mut ActContext<'_>, channel: &str) {
        let seats = self.subscriptions.values().filter(|subscription| subscription.seat.is_some()).count();
        // With a single seat, the input need not name the room.
        let is_only = seats == 1 && self.pending.values().all(|pending| pending.join.is_none());
        let room = if is_only && context.chance.percent(50) { "" } else { channel };
        let (number, data) = self.input(context, channel, room);
        // The server can only reject a malformed one by closing the session.
        self.close_reasons.broke_protocol |=
            context.model.rooms.lock().inputs[number as usize].fault == InputFault::Malformed;
        let command = pending_of(context, ClientCommand::Send { data }, channel);
        self.add(command);
    }

    /// A random input, mostly valid, and its number in the model.
    fn input(&mut self, context: &mut ActContext<'_>, channel: &str, room: &str) -> (u64, Vec<u8>) {
        let ActContext { chance, model, .. } = context;
        let mut seat = self.subscriptions.get_mut(channel).and_then(|subscription| subscription.seat.as_deref_mut());
        let last = seat.as_ref().map_or(0, |seat| seat.last_number);
        let fault = match chance.below(100) {
            0..4 if last > 0 => InputFault::Stale,
            4..7 => InputFault::TooLong,
            7..10 => InputFault::Malformed,
            10..15 => InputFault::RejectedByGame,
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
        let input_number = model.rooms.lock().begin_input(seat.map(|seat| seat.join), number, fault);
        let mut data = format!("i{input_number} ").into_bytes();
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
        (input_number, input)
    }
}
