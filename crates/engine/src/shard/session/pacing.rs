//! Pauses a session between commands until its socket has accepted most of the earlier replies, and until owners have
//! sent those that may be large. A client that reads receives all replies, however many commands it sends at once, and
//! the queued replies of a session stay within its limit.

use dunlin_protocol::{Command, Request, SubscribeResult};

use crate::{
    Effect, Effects, SessionKey,
    history_stream::encoded_bytes_max,
    hub::LocalChannelId,
    message::Asker,
    planted::Bug,
    session::{Paused, PausedOn, Phase, Share, Subscription},
};

use super::{Context, Sessions};

impl Sessions {
    /// If the command has to wait for the socket, or for the replies of owners, returns the share of the queue limits
    /// that must not be exceeded before it can run.
    pub(super) fn waits_for_pace(
        &mut self,
        context: &Context,
        key: SessionKey,
        command: &Command<'_>,
    ) -> Option<Share> {
        if context.planted.is(Bug::RepliesAreNotPaced) {
            return None;
        }
        let session = self.table.get(key).filter(|session| session.phase == Phase::Live)?;
        let channels_max = context.options.client.channel_limit;
        let (share, waits_for_owners) = match command.request.as_ref()? {
            // `send` has no reply.
            Request::Send { .. } => return None,
            // An ending subscription stops counting when its owner has answered.
            Request::Subscribe(_) if session.subscriptions.len() >= channels_max => {
                let is_ending = session.subscriptions.iter().any(Subscription::is_ending);
                (Share::Quarter, session.awaits_large_reply || is_ending)
            }
            Request::Subscribe(_) | Request::History(_) | Request::Presence { .. } => {
                (Share::Quarter, session.awaits_large_reply)
            }
            Request::Rpc(_) => (Share::Quarter, false),
            _ => (Share::ThreeQuarters, false),
        };
        let frames_to_come = session.requests_in_flight as usize;
        let is_over = self.table.outbox(key.index).is_over_pace(&context.options.client, share, frames_to_come);
        (waits_for_owners || is_over).then_some(share)
    }

    /// The socket of a session with waiting commands has accepted bytes.
    pub(super) fn pace_progresses(&mut self, context: &mut Context, key: SessionKey) {
        let paused = self.table.get(key).and_then(|session| session.paused.as_deref());
        let Some(Paused { paused_on: PausedOn::Pace(share), .. }) = paused else { return };
        let share = *share;
        let outbox = self.table.outbox(key.index);
        if !outbox.is_over_pace(&context.options.client, share, 0) {
            outbox.end_pace();
            context.effects.list.push(Effect::Recall { session: key });
        }
    }

    /// Registers a request to an owner that answers the session. `is_reply_large`: the answer may be large.
    pub(super) fn register_request(
        &mut self,
        context: &Context,
        key: SessionKey,
        command_id: u32,
        is_reply_large: bool,
    ) -> Asker {
        if let Some(session) = self.table.get_mut(key) {
            session.requests_in_flight += 1;
            session.awaits_large_reply |= is_reply_large;
        }
        context.asker(key, command_id)
    }

    /// An owner has answered a command.
    pub(in crate::shard) fn on_owner_reply(&mut self, key: SessionKey, was_reply_large: bool, effects: &mut Effects) {
        let Some(session) = self.table.get_mut(key) else { return };
        session.requests_in_flight -= 1;
        session.awaits_large_reply &= !was_reply_large;
        if session.is_paused_for_pace() {
            effects.list.push(Effect::Recall { session: key });
        }
    }

    /// Resumes a session that waits to subscribe again to a channel, after its former subscription has ended.
    pub(super) fn recall_after_ending(&mut self, key: SessionKey, id: LocalChannelId, effects: &mut Effects) {
        let paused = self.table.get_mut(key).and_then(|session| session.paused.as_mut());
        let waits_for =
            |paused: &&mut Box<Paused>| matches!(paused.paused_on, PausedOn::Ending { channel } if channel == id);
        if let Some(paused) = paused.filter(waits_for) {
            paused.paused_on = PausedOn::Pace(Share::Quarter);
            effects.list.push(Effect::Recall { session: key });
        }
    }

    /// Resumes the commands of a session that waited for replies.
    pub(in crate::shard) fn recalled(&mut self, key: SessionKey) {
        let Some(session) = self.table.get_mut(key).filter(|session| session.is_paused_for_pace()) else { return };
        let Some(paused) = session.paused.take() else { return };
        self.table.outbox(key.index).end_pace();
        self.resume(key, paused.unparsed);
    }
}
impl Context {
    /// Removes the publications of a recovery that does not fit next to `other_bytes`. Returns the bytes of the
    /// recovery.
    pub(super) fn cut_recovery(&mut self, result: &mut SubscribeResult, other_bytes: usize) -> usize {
        let bytes = match &result.encoded {
            Some(encoded) => encoded.bytes().len(),
            None => result.publications.iter().map(|publication| encoded_bytes_max(publication)).sum(),
        };
        if bytes == 0 || other_bytes == 0 || other_bytes + bytes <= self.options.client.recovery_bytes_max() {
            return bytes;
        }
        // The client continues from the top, as after any incomplete recovery.
        if result.recovered {
            result.offset = result.publications.last().map_or(result.offset, |newest| newest.offset);
        }
        result.publications.clear();
        (result.patches, result.encoded, result.recovered) = (Vec::new(), None, false);
        self.counters.recoveries_cut += 1;
        0
    }
}
