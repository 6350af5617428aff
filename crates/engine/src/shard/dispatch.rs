//! Dispatches messages: a request to the channel's owner, a notice to the sessions, a message of a room thread to the
//! half that it concerns. Also runs commands, and handles the shard's messages to itself between two commands.

use crate::{
    Effect, SessionKey,
    message::ShardMessage,
    room::{FromRoom, RoomThreadIndex},
    session::UnparsedCommands,
};

use super::{
    Shard,
    sessions::{CommandProgress, CommandsLeft},
};

impl Shard {
    pub(super) fn take_message(&mut self, message: ShardMessage) {
        let Self { context, owner, sessions } = self;
        match message {
            ShardMessage::Request(request) => owner.serve(context, request),
            ShardMessage::Notice(notice) => sessions.take_notice(context, notice),
        }
    }

    /// Handles a message of a room thread.
    pub(super) fn take_room_message(&mut self, from: RoomThreadIndex, message: FromRoom) {
        let Self { context, owner, sessions } = self;
        match message {
            FromRoom::Made { room, channel } => owner.rooms(context).on_room_made(room, &channel),
            FromRoom::Joined { room, request, outcome } => owner.rooms(context).joined(room, request, outcome),
            FromRoom::Answered { room, channel, id, answer } => {
                owner.rooms(context).room_has_answered(room, &channel, id, answer);
            }
            FromRoom::Event { room, channel, data, audience } => {
                owner.rooms(context).take_event(room, &channel, data, audience);
            }
            FromRoom::Publish { channel, data } => owner.rooms(context).take_publication(&channel, data),
            FromRoom::Idle { room, channel } => owner.rooms(context).room_is_idle(room, &channel),
            FromRoom::Closing { room, channel, reason } => {
                owner.rooms(context).close_room(&channel, room, Some(reason));
            }
            FromRoom::Failed { room, channel, refusal } => {
                owner.rooms(context).room_has_failed(room, &channel, refusal);
            }
            FromRoom::Keyframe { room, channel, grid, ticks_per_second, keyframe, is_recorded } => {
                let world = (grid, ticks_per_second, keyframe);
                sessions.room_messages(context).see_room(room, &channel, world, is_recorded.then_some(from));
            }
            FromRoom::Tick { room, update, changes, inputs_taken } => {
                sessions.room_messages(context).take_tick(room, update, changes, inputs_taken);
            }
            FromRoom::Over { room, code, reason } => {
                sessions.room_messages(context).room_thread_ended_room(room, (code, reason));
            }
            FromRoom::Unseated { room: _, seat, code, reason } => {
                sessions.room_messages(context).unseat(seat, (code, reason));
            }
            FromRoom::Load { permille, rooms: _ } => owner.rooms(context).thread_reports(from, permille),
        }
    }

    /// Runs the commands of one frame, up to the first that has to wait.
    pub(super) fn receive(&mut self, key: SessionKey, frame: &[u8]) {
        let Some(commands_max) = self.sessions.executing(&mut self.context, key).begin_frame(frame) else { return };
        if let Some(left) = self.carry_out_all(key, frame, commands_max) {
            let commands = frame[frame.len() - left.bytes..].to_vec();
            self.sessions
                .all
                .table
                .keep_unparsed(key, UnparsedCommands { commands, done_bytes: 0, commands_max: left.commands_max });
        }
    }

    /// Continues a session whose wait has ended. If another command has to wait, the rest waits with it.
    pub(super) fn resume(&mut self, key: SessionKey, unparsed: UnparsedCommands) {
        let Some(unparsed) = self.sessions.all.table.unparsed_to_carry_out(key, unparsed) else { return };
        if !unparsed.left().is_empty()
            && let Some(left) = self.carry_out_all(key, unparsed.left(), unparsed.commands_max)
        {
            let done_bytes = unparsed.commands.len() - left.bytes;
            self.sessions
                .all
                .table
                .keep_unparsed(key, UnparsedCommands { done_bytes, commands_max: left.commands_max, ..unparsed });
        }
        if !self.sessions.all.table.is_paused_or_gone(key) {
            self.context.effects.list.push(Effect::Resume { session: key });
        }
    }

    /// Runs commands until one has to wait. Returns the rest. Between two commands, the shard handles its messages to
    /// itself, so that its own answers are in the order of the commands.
    fn carry_out_all(&mut self, key: SessionKey, frame: &[u8], commands_max: usize) -> Option<CommandsLeft> {
        let mut left = CommandsLeft { bytes: frame.len(), commands_max };
        loop {
            let unparsed = &frame[frame.len() - left.bytes..];
            match self.sessions.executing(&mut self.context, key).carry_out_next(unparsed, left.commands_max) {
                CommandProgress::Over => return None,
                CommandProgress::Waits => return Some(left),
                CommandProgress::Done(then) => left = then,
            }
            self.settle();
            if self.sessions.all.table.is_paused_or_gone(key) {
                return self.sessions.all.table.is_paused(key).then_some(left);
            }
            if left.bytes == 0 {
                return None;
            }
        }
    }
}
