//! A seat whose room is between two nodes: the session keeps its subscription, and the seat joins the room again.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::{SeatIndex, Seats};

/// An input of a player, with the client's number.
pub(crate) type NumberedInput = (u32, Bytes);

/// Inputs that a room of another node has not taken, in the order in which they were sent. Its length is that of the inbox.
#[derive(Debug, Default)]
pub(crate) struct SentInputs(VecDeque<SentInput>);

#[derive(Debug)]
struct SentInput {
    seat: SeatIndex,
    /// Of the seat: its index may belong to another session by now.
    generation: u32,
    input: NumberedInput,
}

impl SentInputs {
    /// The room has taken the first `count` inputs.
    pub(super) fn taken(&mut self, count: u32) {
        self.0.drain(..self.0.len().min(count as usize));
    }

    /// The inputs of each seat.
    pub(crate) fn by_seat(self) -> BTreeMap<(u32, u32), Vec<NumberedInput>> {
        let mut by_seat = BTreeMap::<_, Vec<_>>::new();
        for SentInput { seat, generation, input } in self.0 {
            by_seat.entry((seat.0, generation)).or_default().push(input);
        }
        by_seat
    }
}

/// The inputs of a player without a room.
#[derive(Debug, Default)]
pub(super) struct KeptSeat {
    /// The number of the last input that the player knows to be applied.
    ack: u32,
    /// Sent to a room that has not acknowledged them. It may have applied them.
    under_way: Vec<NumberedInput>,
    /// Sent to no room.
    held: Vec<NumberedInput>,
}

impl KeptSeat {
    fn len(&self) -> u32 {
        u32::try_from(self.under_way.len() + self.held.len()).expect("the inbox has a limit of this type")
    }
}

/// The inputs of a seat whose room is there again.
#[derive(Debug, Default)]
pub(crate) struct ReleasedInputs {
    /// What the room has not applied, in order.
    pub(crate) inputs: Vec<NumberedInput>,
    /// Inputs that it may have applied, and that are dropped.
    pub(crate) dropped: usize,
}

impl ReleasedInputs {
    pub(crate) fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.dropped == 0
    }
}

impl Seats {
    /// Notes an input that was sent to a room of another node.
    pub(crate) fn note_sent(&mut self, place: u32, seat: SeatIndex, input: NumberedInput) {
        let generation = self.at(seat).generation;
        self.room_mut(place).sent.0.push_back(SentInput { seat, generation, input });
    }

    /// The room of a seat is gone and may go on elsewhere: keeps the seat with its inputs that are `under_way`.
    pub(crate) fn keep(&mut self, index: SeatIndex, under_way: Vec<NumberedInput>) {
        let seat = self.at_mut(index);
        let channel = seat.channel;
        seat.room = None;
        let kept = seat.kept.get_or_insert_with(|| Box::new(KeptSeat { ack: seat.ack, ..KeptSeat::default() }));
        let before = kept.len();
        // If it was kept already, the room before this one had none of its inputs.
        kept.under_way.extend(under_way);
        let added = kept.len() - before;
        (seat.base, seat.own, seat.allowance) = Default::default();
        seat.has_moved = true;
        self.channels.get_mut(&channel).expect("a channel with a seat is known").kept_inputs += added;
    }

    /// Whether a seat is kept and waits for the answer to its join.
    pub(crate) fn awaits_room(&self, index: SeatIndex) -> bool {
        let seat = self.at(index);
        seat.kept.is_some() && seat.room.is_none()
    }

    /// Whether the inputs of a seat are held now.
    pub(crate) fn holds_inputs(&self, index: SeatIndex) -> bool {
        self.at(index).kept.is_some()
    }

    /// Inputs of the channel's players that are held.
    pub(crate) fn held_inputs(&self, index: SeatIndex) -> u32 {
        self.channels.get(&self.at(index).channel).map_or(0, |of_channel| of_channel.kept_inputs)
    }

    /// Holds an input until the seat has its room again.
    pub(crate) fn hold_input(&mut self, index: SeatIndex, input: NumberedInput) {
        let seat = self.at_mut(index);
        let channel = seat.channel;
        seat.kept.as_mut().expect("the caller has asked whether inputs are held").held.push(input);
        self.channels.get_mut(&channel).expect("a channel with a seat is known").kept_inputs += 1;
    }

    /// The seat is not kept any more: its room is there, and a tick has said which inputs are applied, or it ends.
    pub(crate) fn release_inputs(&mut self, index: SeatIndex) -> ReleasedInputs {
        let seat = self.at_mut(index);
        let Some(kept) = seat.kept.take() else { return ReleasedInputs::default() };
        let (channel, count, ack) = (seat.channel, kept.len(), seat.ack);
        self.channels.get_mut(&channel).expect("a channel with a seat is known").kept_inputs -= count;
        let KeptSeat { ack: seen_ack, under_way, held } = *kept;
        // The room has gone back, or its host is of a version that forgets the number when a client joins again.
        let is_unsure = ack < seen_ack;
        let dropped = if is_unsure { under_way.len() } else { 0 };
        let sent_again = under_way.into_iter().filter(|(number, _)| !is_unsure && *number > ack);
        ReleasedInputs { inputs: sent_again.chain(held).collect(), dropped }
    }
}
