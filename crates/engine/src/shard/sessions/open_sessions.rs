//! What the sessions of a shard hold, and what is queued for them: replies, pushes and the close; how subscriptions and sessions
//! end, and which of the queued frames are still written.

use std::{borrow::Cow, sync::Arc};

use dunlin_protocol::{ClientInfo, Disconnect, NotJson, Push, Reply, Request, UnsubscribeCode};
use dunlin_websocket::{close::append_close_reply, header::append_pong};

use crate::{
    Effect, Effects, Options, SessionKey,
    api::{ApiAnswer, SessionFilter, Survey},
    backend::{ProxyIndex, ProxyRequest, ProxyRequestId, ProxyRequestKind, ProxySession},
    counters::CommandKind,
    event::SubscriptionClaims,
    frame::{FrameRef, build_frame, close_frame, encode_push_on, reply_frame},
    hub::{Hub, HubEntry, ListKey, LocalChannelId},
    lifecycle::{ABNORMAL, BY_DISCONNECT, Lifecycle, LifecycleKind, NO_STATUS},
    message::{Asker, Notice, ShardRequest},
    names::NamespaceIndex,
    outbox::{Outgoing, Slots},
    record::{CommandSubject, RecordLevel, SessionIncident},
    refused::{Refused, RefusedCommand},
    room::{Departure, LeftSeat, RoomKey, SeatKey},
    session::{
        Deadlines, DueJoin, Ending, PausedOn, Phase, ProxiedCommand, ProxyCall, SessionTable, Subscription,
        SubscriptionFlags, UnparsedCommands,
    },
    session_seats::{LocalRoom, SeatIndex, Seats},
    shard::{NamespaceChange, ShardIdentity, hash_of},
};

use super::{
    Context,
    commands::{CommandOutcome, CommandRef, channel_of, error_number},
    connect::read_place,
    pacing::Pacing,
    permission::Permission,
    recording::Recording,
    users::UserSessions,
};

/// Whether queued frames are sent before the close frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QueuedFrames {
    Send,
    Discard,
}

/// What led to the end of a session, for its record.
#[derive(Clone, Copy, Default)]
pub(super) struct Cause<'a> {
    /// The command that is not carried out.
    pub(super) command: Option<CommandRef<'a>>,
    /// The reason, if that of the disconnect does not determine it.
    pub(super) why: Option<&'static str>,
}

/// Lower bounds of the classes of [`Survey::behind_sessions`], in microseconds.
const BEHIND_BOUNDS_US: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// The sessions of a shard, from [`crate::Event::Opened`] to [`crate::Event::Gone`], with what each of them holds: its place
/// in its user's list, its subscriptions and its seats. An end is here, because anything queued may end a session that is too
/// far behind, and an end releases all it holds. What begins is in `Connecting` and `Subscribing`.
pub(in crate::shard) struct OpenSessions {
    pub(in crate::shard) table: SessionTable,
    pub(super) users: UserSessions,
    pub(in crate::shard) hub: Hub,
    pub(in crate::shard) seats: Seats,
    /// The number of proxy requests sent so far, which is the number of the next one.
    proxy_requests_sent: u64,
    /// Rate limits on log records.
    recording: Recording,
    /// A session whose commands are resumed after the current event or message.
    resumed: Option<(SessionKey, UnparsedCommands)>,
}

impl OpenSessions {
    pub(super) fn new(identity: ShardIdentity, options: &Options, node_seed: u64) -> Self {
        Self {
            table: SessionTable::default(),
            users: UserSessions::new(node_seed),
            hub: Hub::new(node_seed),
            seats: Seats::default(),
            proxy_requests_sent: 0,
            recording: Recording::new(options.records, identity.count),
            resumed: None,
        }
    }

    /// Ends a session: its subscriptions end at once, queued frames are sent, followed by a close frame.
    pub(super) fn close(&mut self, context: &mut Context, key: SessionKey, disconnect: &Disconnect) {
        self.close_for(context, key, disconnect, Cause::default());
    }

    /// As [`OpenSessions::close`], with the cause.
    pub(super) fn close_for(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        disconnect: &Disconnect,
        cause: Cause<'_>,
    ) {
        self.close_with(context, key, disconnect, cause, QueuedFrames::Send);
    }

    fn close_with(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        disconnect: &Disconnect,
        cause: Cause<'_>,
        queued: QueuedFrames,
    ) {
        // As in Centrifugo, the client gets neither frames nor a reason: it is to see a lost connection.
        let is_cut = disconnect.code == Disconnect::CONNECTION_CLOSED.code;
        let is_open = self.table.get(key).is_some_and(|session| session.phase != Phase::Closing);
        if is_open {
            self.record_disconnect(context, key, disconnect, cause);
            if queued == QueuedFrames::Send && !is_cut {
                Pacing { context, sessions: self }.queue_last_turns(key);
            }
        }
        // A session that must not reconnect leaves its rooms at once.
        let departure = if disconnect.reconnects() { Departure::Lost } else { Departure::Left };
        if !self.begin_close(context, key, departure) {
            return;
        }
        self.tell_disconnected(context, key, (disconnect.code, &disconnect.reason));
        context.counters.count_close(disconnect.code);
        if is_cut {
            self.table.outbox(key.index).discard_unbegun();
            context.effects.list.push(Effect::HangUp { session: key });
            return;
        }
        let wire = self.table.at(key.index).wire;
        let close_frame = close_frame(wire, disconnect, context.options.client.uni_websocket, &mut context.scratch);
        self.send_close_frame(context, key, close_frame, queued);
    }

    /// Ends a session that is too far behind, and drops its queue.
    pub(super) fn close_slow(&mut self, context: &mut Context, key: SessionKey) {
        let outbox = self.table.outbox(key.index);
        if outbox.has_too_many_bytes(&context.options.client) {
            context.counters.slow_bytes += 1;
        } else {
            context.counters.slow_frames += 1;
        }
        self.close_with(context, key, &Disconnect::SLOW, Cause::default(), QueuedFrames::Discard);
    }

    /// The peer has sent a close frame. Replies to it, then closes the socket.
    pub(in crate::shard) fn peer_closes(&mut self, context: &mut Context, key: SessionKey, code: Option<u16>) {
        if !self.begin_close(context, key, Departure::Lost) {
            if let Some(session) = self.table.get_mut(key) {
                let is_first = session.close_handshake.set_received();
                if is_first && session.close_handshake.is_sent() {
                    context.effects.list.push(Effect::HangUp { session: key });
                }
            }
            return;
        }
        self.record(context, key, SessionIncident::Left { code });
        let code_told = code.unwrap_or(NO_STATUS);
        self.tell_disconnected(context, key, (code_told, &Cow::Borrowed("closed by the client")));
        self.table.at_mut(key.index).close_handshake.set_received();
        let mut close_frame = Vec::new();
        append_close_reply(code, &mut close_frame);
        self.send_close_frame(context, key, close_frame, QueuedFrames::Discard);
    }

    /// The peer violated the WebSocket protocol.
    pub(in crate::shard) fn peer_violates(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        code: u16,
        what: &'static str,
    ) {
        context.counters.violations += 1;
        self.close(context, key, &Disconnect { code, reason: Cow::Borrowed(what) });
    }

    /// Removes the session from all indices except the table. Returns whether it was open.
    fn begin_close(&mut self, context: &mut Context, key: SessionKey, departure: Departure) -> bool {
        let Some(session) = self.table.get_mut(key) else { return false };
        if session.phase == Phase::Closing {
            return false;
        }
        session.deadlines =
            Deadlines { end_us: context.now.after_ms(context.options.client.close_timeout_ms), ..Deadlines::NEVER };
        if session.paused.take().is_some() {
            // The session must read on to receive the peer's close frame.
            context.effects.list.push(Effect::Resume { session: key });
        }
        self.leave_everything(context, key, departure);
        self.table.at_mut(key.index).phase = Phase::Closing;
        self.table.schedule(key, &mut context.timers);
        let outbox = self.table.outbox(key.index);
        outbox.end_pace();
        outbox.set_byte_pace(None, context.now.mono_us);
        if let Some(before_cork) = outbox.uncork() {
            // The queued frames would have followed an answer that is not sent any more.
            outbox.discard_latest_and_behind(before_cork);
        }
        true
    }

    fn send_close_frame(&mut self, context: &mut Context, key: SessionKey, close_frame: Vec<u8>, queued: QueuedFrames) {
        if queued == QueuedFrames::Send {
            self.tag_skipped(context, key, Slots::All);
        }
        let outbox = self.table.outbox(key.index);
        match queued {
            QueuedFrames::Send => outbox.settle_latest(),
            QueuedFrames::Discard => outbox.discard_unbegun(),
        }
        outbox.closing = true;
        if !close_frame.is_empty() {
            outbox.push(FrameRef::own(close_frame.into_boxed_slice(), context.now.mono_us));
        } else if outbox.is_empty() {
            return self.on_close_frame_sent(key, &mut context.effects);
        }
        outbox.list(key.index, &mut context.effects);
    }

    /// Ends all subscriptions and removes the session from its user's list.
    pub(super) fn leave_everything(&mut self, context: &mut Context, key: SessionKey, departure: Departure) {
        let session = self.table.at_mut(key.index);
        let was_authenticated = session.is_authenticated();
        let place = session.user_place;
        for subscription in std::mem::take(&mut session.subscriptions) {
            self.tell_unsubscribed(context, key, &subscription, BY_DISCONNECT);
            self.detach(context, key, &subscription, departure);
        }
        if was_authenticated && let Some(info) = self.table.at(key.index).info.clone() {
            self.remove_from_user(context, key, &info.user, place);
        }
    }

    /// The kernel has accepted `bytes` bytes.
    pub(in crate::shard) fn wrote(&mut self, context: &mut Context, key: SessionKey, bytes: usize) {
        let Self { table: sessions, seats, .. } = self;
        let Context { counters, .. } = context;
        let Some(outbox) = sessions.outbox_of(key) else { return };
        let mut left = outbox.wrote(bytes);
        if left > 0 {
            let now_us = context.now.mono_us;
            left = outbox.wrote_room_frames(left, now_us, seats, |written| counters.count_room_frame(written));
        }
        counters.written_bytes += bytes as u64;
        if left > 0 {
            // It is unknown which bytes the peer has received, so nothing more can be sent to it.
            counters.writes_beyond_offer += 1;
            context.effects.list.push(Effect::HangUp { session: key });
            return;
        }
        let held_until_us = outbox.spend(bytes, context.now.mono_us);
        let commands_wait = outbox.on_socket_progress();
        let is_over = !outbox.is_writable();
        let is_closing = outbox.closing;
        if is_over {
            outbox.unlist();
            outbox.trim_after_burst();
        }
        if let Some(held_until_us) = held_until_us {
            self.hold(context, key, held_until_us);
        }
        if commands_wait {
            self.table.pace_progresses(key, &context.options.client, &mut context.effects);
        }
        if is_over && is_closing {
            self.on_close_frame_sent(key, &mut context.effects);
        }
    }

    /// The session has been sent the bytes that its pace allows.
    fn hold(&mut self, context: &mut Context, key: SessionKey, until_us: u64) {
        context.counters.sessions_held += 1;
        self.set_hold(context, key, Some(until_us));
    }

    pub(super) fn set_hold(&mut self, context: &mut Context, key: SessionKey, until_us: Option<u64>) {
        let Some(session) = self.table.get_mut(key) else { return };
        session.extra.get_or_insert_default().held_until_us = until_us;
        self.table.schedule(key, &mut context.timers);
    }

    /// The kernel has accepted all frames of a closing session.
    fn on_close_frame_sent(&mut self, key: SessionKey, effects: &mut Effects) {
        let session = self.table.at_mut(key.index);
        if session.close_handshake.set_sent() {
            effects.list.push(if session.close_handshake.is_received() {
                Effect::HangUp { session: key }
            } else {
                Effect::Finish { session: key }
            });
        }
    }

    /// The transport has ended.
    pub(in crate::shard) fn forget_session(&mut self, context: &mut Context, key: SessionKey) {
        if self.table.get(key).is_none() {
            return;
        }
        self.record(context, key, SessionIncident::Gone);
        self.leave_everything(context, key, Departure::Lost);
        self.tell_disconnected(context, key, (ABNORMAL, &Cow::Borrowed("connection lost")));
        if let Some(session) = self.table.remove(key) {
            context.timers.abandon(session.scheduled);
        }
    }

    pub(in crate::shard) fn answer_websocket_ping(&mut self, context: &mut Context, key: SessionKey, payload: &[u8]) {
        let mut pong = Vec::with_capacity(payload.len() + 2);
        append_pong(payload, &mut pong);
        self.queue_frame(context, key, FrameRef::own(pong.into_boxed_slice(), context.now.mono_us));
    }

    /// See [`crate::Shard::outgoing`].
    pub(in crate::shard) fn outgoing(&mut self, context: &mut Context, session: SessionKey) -> Outgoing<'_> {
        let Some(outbox) = self.table.outbox_of(session) else { return Outgoing::default() };
        outbox.refill(context.now.mono_us);
        if !outbox.is_held() {
            // The slots of a session that is held are not offered, and may be replaced before they are.
            self.tag_skipped(context, session, Slots::OfNextWrite);
        }
        let Self { table, seats, hub, .. } = self;
        let Some(outbox) = table.outbox_of(session) else { return Outgoing::default() };
        outbox.offer_room_frames(|seat| seats.offer(seat, |channel| &hub.channel(channel).name));
        if !outbox.is_writable() {
            // The room of its due seats has moved since it was listed. No write will say that it is over.
            outbox.unlist();
        }
        outbox.outgoing(seats)
    }

    /// Writes the tag `skipped` into the publications of the session's latest lane that follow skipped ones.
    fn tag_skipped(&mut self, context: &mut Context, session: SessionKey, which: Slots) {
        let Self { table: sessions, .. } = self;
        let Context { scratch, counters, .. } = context;
        let Some(outbox) = sessions.outbox_of(session).filter(|outbox| !outbox.is_corked()) else { return };
        outbox.tag_skipped(which, |frame, skipped| {
            let namespace = frame.delivery()?.namespace;
            counters.namespaces[usize::from(namespace.0)].encodes_skipped += 1;
            frame.with_skipped(skipped, scratch)
        });
    }

    pub(in crate::shard) fn survey(&mut self, context: &Context, survey: &mut Survey) {
        survey.sessions = self.table.iter().filter(|session| session.phase == Phase::Live).count() as u32;
        let namespaces = context.counters.namespaces.iter();
        survey.subscriptions = namespaces.map(|counters| counters.subscriptions).sum::<u64>() as u32;
        [survey.seats, survey.rooms] = self.seats.holdings().map(|count| count as u32);
        survey.users = self.users.ids().map(|user| hash_of(user, context.node_seed)).collect();
        for outbox in self.table.outboxes() {
            survey.queued_bytes += outbox.queued_bytes() as u64;
            survey.queued_frames += outbox.queued_frames() as u64;
            let age_us = outbox.oldest_us().map_or(0, |oldest_us| context.now.mono_us.saturating_sub(oldest_us));
            survey.queue_age_ms_max = survey.queue_age_ms_max.max(age_us / 1_000);
            for (class, bound_us) in survey.behind_sessions.iter_mut().zip(BEHIND_BOUNDS_US) {
                *class += u32::from(age_us > bound_us);
            }
        }
    }

    /// The authenticated sessions of `user` that match `only`, except the `spared` ones.
    pub(super) fn sessions_of(&self, user: &str, only: &SessionFilter, spared: &[Box<str>]) -> Vec<SessionKey> {
        let passes = |key: &SessionKey| {
            let Some(session) = self.table.get(*key) else { return false };
            let Some(info) = &session.info else { return false };
            let secret = session.extra.as_ref().map_or("", |extra| &extra.secret);
            only.client.as_ref().is_none_or(|client| **client == *info.client)
                && only.session.as_ref().is_none_or(|wanted| !secret.is_empty() && **wanted == *secret)
                && !spared.iter().any(|spared| **spared == *info.client)
        };
        self.users.of(user).iter().copied().filter(passes).collect()
    }

    /// Answers a command with its outcome, if that is known: replies, or closes the session.
    pub(super) fn answer(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command: CommandRef<'_>,
        outcome: CommandOutcome,
    ) {
        match outcome {
            Ok(Some(reply)) => self.reply(context, key, command.id, &reply),
            Ok(None) => {}
            Err(refused) => self.refuse(context, key, command, refused),
        }
    }

    /// Answers a command with an error, or closes the session.
    pub(super) fn refuse(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command: CommandRef<'_>,
        refused: RefusedCommand,
    ) {
        let (why, reply) = match refused {
            RefusedCommand::Error(Refused { code, why }) => {
                context.counters.error_replies[code.code() as usize - 100] += 1;
                (why, Reply::Error(code))
            }
            RefusedCommand::Explained { code, message } => {
                context.counters.error_replies[code.code() as usize - 100] += 1;
                (None, Reply::Refused { code: code.code() as u16, message, temporary: false })
            }
            RefusedCommand::Own { code, message, temporary } => (None, Reply::Refused { code, message, temporary }),
            RefusedCommand::Disconnect { disconnect, why } => {
                return self.close_for(context, key, &disconnect, Cause { command: Some(command), why });
            }
        };
        self.record_refusal(context, key, command, (error_number(&reply), why));
        self.reply(context, key, command.id, &reply);
    }

    /// Queues the reply to a command. A reply never closes a session as slow: commands wait for the replies to earlier
    /// ones, so a client that reads receives everything that it requested.
    pub(in crate::shard) fn reply(&mut self, context: &mut Context, key: SessionKey, id: u32, reply: &Reply) {
        let Some(session) = self.table.get(key) else { return };
        let frame = reply_frame(session.wire, id, reply, &mut context.scratch, context.now.mono_us);
        let Ok(frame) = frame else {
            return self.close(context, key, &Disconnect::INAPPROPRIATE_PROTOCOL);
        };
        self.table.queue_reply(key, frame, &mut context.effects);
    }

    /// Queues a push to one session.
    pub(super) fn push(&mut self, context: &mut Context, key: SessionKey, push: &Push<'_>) {
        let Some(session) = self.table.get(key) else { return };
        let wire = session.wire;
        let frame = build_frame(wire, &mut context.scratch, |out| encode_push_on(wire, push, out));
        self.queue_encoded(context, key, frame.map(|bytes| FrameRef::own(bytes, context.now.mono_us)));
    }

    /// Queues a frame, or closes a session whose encoding cannot carry the payload.
    fn queue_encoded(&mut self, context: &mut Context, key: SessionKey, frame: Result<FrameRef, NotJson>) {
        match frame {
            Ok(frame) => self.queue_frame(context, key, frame),
            Err(NotJson) => self.close(context, key, &Disconnect::INAPPROPRIATE_PROTOCOL),
        }
    }

    /// Appends a frame to the reliable lane of a session that is not closing; closes a session that is too far behind.
    pub(super) fn queue_frame(&mut self, context: &mut Context, key: SessionKey, frame: FrameRef) {
        let is_open = self.table.get(key).is_some_and(|session| session.phase != Phase::Closing);
        if !is_open {
            return;
        }
        let outbox = self.table.outbox(key.index);
        outbox.push(frame);
        outbox.list(key.index, &mut context.effects);
        if self.table.outbox(key.index).is_too_far_behind(&context.options.client) {
            self.close_slow(context, key);
        }
    }

    /// Resumes the commands of a session that waited for replies.
    pub(super) fn resume_paced(&mut self, key: SessionKey) {
        let Some(session) = self.table.get_mut(key).filter(|session| session.is_paused_for_pace()) else { return };
        let Some(paused) = session.paused.take() else { return };
        self.resume(key, paused.unparsed);
    }

    /// Resumes a session's commands when its wait has ended. The shard runs them after the current event or message, so
    /// this call must be the last action of a handler.
    pub(super) fn resume(&mut self, key: SessionKey, unparsed: UnparsedCommands) {
        debug_assert!(self.resumed.is_none(), "one session waits for one thing");
        self.resumed = Some((key, unparsed));
    }

    /// Records a command.
    pub(super) fn record_command(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        request: &Request<'_>,
    ) {
        if context.records(RecordLevel::Commands) {
            let channel = channel_of(request).map(|channel| self.channel_name(channel));
            let subject = CommandSubject { command: CommandKind::of(request).name(), channel };
            self.record(context, key, SessionIncident::CommandReceived { subject, command_id });
        }
    }

    /// Records that a command is answered with an error.
    pub(super) fn record_refusal(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command: CommandRef<'_>,
        (code, why): (u32, Option<&'static str>),
    ) {
        if context.records(RecordLevel::Refusals) {
            let (subject, command_id) = (self.subject(command), command.id);
            self.record(context, key, SessionIncident::CommandRefused { subject, command_id, code, why });
        }
    }

    /// Records that the server closes a session. Call it before the session's queue is dropped.
    pub(super) fn record_disconnect(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        disconnect: &Disconnect,
        Cause { command, why }: Cause<'_>,
    ) {
        if context.records(RecordLevel::Refusals) {
            let subject = command.map(|command| self.subject(command));
            let outbox = self.table.outbox(key.index);
            let queued = (outbox.queued_bytes(), outbox.queued_frames());
            let (code, reason) = (disconnect.code, disconnect.reason.clone());
            self.record(context, key, SessionIncident::Disconnected { subject, code, reason, why, queued });
        }
    }

    fn subject(&self, CommandRef { command, channel, .. }: CommandRef<'_>) -> CommandSubject {
        CommandSubject { command, channel: channel.map(|channel| self.channel_name(channel)) }
    }

    /// Records an event of a session.
    pub(super) fn record(&mut self, context: &mut Context, key: SessionKey, what: SessionIncident) {
        if context.records(what.level())
            && let Some(session) = self.table.get_mut(key)
        {
            self.recording.record(context, session, what);
        }
    }

    /// Tells the backend of an admitted session, and of the subscriptions with which it begins.
    pub(super) fn tell_connected(&mut self, context: &mut Context, key: SessionKey) {
        let kinds = context.options.lifecycle;
        if kinds.is_empty() {
            return;
        }
        let session = self.table.at_mut(key.index);
        let Some(info) = session.info.clone() else { return };
        if kinds.contains(LifecycleKind::Disconnected) {
            session.extra.get_or_insert_default().connected_us = Some(context.now.mono_us);
        }
        if kinds.contains(LifecycleKind::Connected) {
            context.tell(Lifecycle::Connected { info, wire: session.wire });
        }
        let accepted = |subscription: &&Subscription| subscription.place.is_some();
        let session = self.table.at(key.index);
        for subscription in session.subscriptions.iter().filter(accepted) {
            self.tell_subscribed(context, key, subscription.channel);
        }
    }

    /// Tells the backend of a session that has ended.
    fn tell_disconnected(&mut self, context: &mut Context, key: SessionKey, (code, reason): (u16, &Cow<'static, str>)) {
        let Some(session) = self.table.get_mut(key) else { return };
        let connected_us = session.extra.as_mut().and_then(|extra| extra.connected_us.take());
        if let (Some(connected_us), Some(info)) = (connected_us, &session.info) {
            let duration_ms = context.now.mono_us.saturating_sub(connected_us) / 1_000;
            let (info, reason) = (Arc::clone(info), reason.clone());
            context.tell(Lifecycle::Disconnected { session: key, info, code, reason, duration_ms });
        }
    }

    /// Tells the backend of an accepted subscription. Those of a session whose `connect` is not answered yet follow its
    /// own event.
    pub(super) fn tell_subscribed(&self, context: &mut Context, key: SessionKey, id: LocalChannelId) {
        let channel = self.hub.channel(id);
        if context.tells(LifecycleKind::Subscribed, channel.namespace)
            && let Some(info) = self.table.at(key.index).told_info()
        {
            context.tell(Lifecycle::Subscribed { info, channel: Arc::clone(&channel.name) });
        }
    }

    /// Tells the backend of the end of a subscription, if it knows it.
    fn tell_unsubscribed(
        &self,
        context: &mut Context,
        key: SessionKey,
        subscription: &Subscription,
        code: UnsubscribeCode,
    ) {
        let channel = self.hub.channel(subscription.channel);
        if context.tells(LifecycleKind::Unsubscribed, channel.namespace)
            && subscription.place.is_some()
            && let Some(info) = self.table.at(key.index).told_info()
        {
            context.tell(Lifecycle::Unsubscribed { info, channel: Arc::clone(&channel.name), code });
        }
    }

    /// Whether the session has the permission in `channel`, which belongs to `namespace`.
    pub(super) fn permits(
        &self,
        context: &Context,
        key: SessionKey,
        channel: &str,
        namespace: NamespaceIndex,
        permission: Permission,
    ) -> bool {
        let Some(session) = self.table.get(key) else { return false };
        // A pending subscription counts, because the owner handles it before later requests.
        let subscription = || self.hub.find(channel).and_then(|id| session.subscription(id));
        let subscribes = || subscription().is_some_and(|subscription| !subscription.is_ending());
        permission.is_given(context, session, (channel, namespace), subscribes)
    }

    /// The session's info in `channel`.
    pub(super) fn info_in_channel(&self, key: SessionKey, channel: &str) -> Option<Arc<ClientInfo>> {
        let session = self.table.get(key)?;
        let info = session.info.as_ref()?;
        let subscription = self.hub.find(channel).and_then(|id| session.subscription(id));
        Some(Arc::clone(subscription.map_or(info, |subscription| subscription.info(info))))
    }

    /// The shared copy of a channel's name, if this shard has one.
    pub(super) fn channel_name(&self, channel: &str) -> Arc<str> {
        match self.hub.find(channel) {
            Some(id) => Arc::clone(&self.hub.channel(id).name),
            None => Arc::from(Cow::Borrowed(channel)),
        }
    }

    /// Sends a request about a command, which waits for the response.
    pub(super) fn send_proxy_request(
        &mut self,
        key: SessionKey,
        command_id: u32,
        (proxy, kind): (ProxyIndex, ProxyRequestKind),
        about: ProxiedCommand,
        effects: &mut Effects,
    ) {
        let client = match &about {
            ProxiedCommand::Connect(params) => params.client.clone(),
            ProxiedCommand::Subscribe(_) | ProxiedCommand::Publish { .. } | ProxiedCommand::Rpc => None,
        };
        let request_id = ProxyRequestId(self.proxy_requests_sent);
        self.table.pause(key, PausedOn::Backend(Box::new(ProxyCall { request_id, command_id, about })), effects);
        self.push_proxy_request(key, client, proxy, kind, effects);
    }

    /// Sends a request. `client` is the session's future id, if it has none yet.
    pub(super) fn push_proxy_request(
        &mut self,
        key: SessionKey,
        client: Option<Arc<str>>,
        proxy: ProxyIndex,
        kind: ProxyRequestKind,
        effects: &mut Effects,
    ) -> ProxyRequestId {
        let id = ProxyRequestId(self.proxy_requests_sent);
        self.proxy_requests_sent += 1;
        let session = self.table.at(key.index);
        let info = session.info.as_ref();
        let asker = ProxySession {
            client: client.or_else(|| info.map(|info| Arc::clone(&info.client))).unwrap_or_default(),
            wire: session.wire,
            user: info.map(|info| Arc::clone(&info.user)),
            meta: session.extra.as_ref().and_then(|extra| extra.meta.clone()),
        };
        effects.list.push(Effect::SendProxyRequest {
            session: key,
            request: Box::new(ProxyRequest { id, proxy, asker, kind }),
        });
        id
    }

    /// Ends a subscription and informs the client. Does nothing if the session no longer has it: the push about an
    /// earlier one may have closed the session.
    pub(super) fn end_subscription(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        id: LocalChannelId,
        code: UnsubscribeCode,
    ) {
        self.end_subscription_with(context, key, id, code, code.reason());
    }

    /// As [`OpenSessions::end_subscription`], with another reason.
    pub(super) fn end_subscription_with(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        id: LocalChannelId,
        code: UnsubscribeCode,
        reason: &str,
    ) {
        let session = self.table.get_mut(key);
        let Some(subscription) = session.and_then(|session| session.subscription_mut(id)) else { return };
        if subscription.place.is_none() {
            // The owner has not answered yet. If the client has unsubscribed already, that takes precedence.
            subscription
                .extra
                .get_or_insert_default()
                .ending
                .get_or_insert_with(|| Ending::Forced { code, reason: reason.into() });
            return;
        }
        let channel = Arc::clone(&self.hub.channel(id).name);
        self.drop_subscription(context, key, id, code);
        if context.records(RecordLevel::Sessions) {
            let what = SessionIncident::Unsubscribed { channel: Arc::clone(&channel), code: code.0 };
            self.record(context, key, what);
        }
        let push = Push::Unsubscribe { channel: &channel, code, reason };
        self.push(context, key, &push);
    }

    /// Ends a subscription: removes it from the session, from the hub and from its owner. `code` is for the backend.
    pub(super) fn drop_subscription(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        id: LocalChannelId,
        code: UnsubscribeCode,
    ) {
        let session = self.table.at_mut(key.index);
        let Some(subscription) = session.remove_subscription(id) else { return };
        self.tell_unsubscribed(context, key, &subscription, code);
        self.table.outbox(key.index).discard_latest(id);
        self.detach(context, key, &subscription, Departure::Left);
    }

    /// Removes a subscription, which its session no longer lists, from the hub and from its owner. A pending one is
    /// handled when the owner answers.
    pub(super) fn detach(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        subscription: &Subscription,
        departure: Departure,
    ) {
        let id = subscription.channel;
        if let Some(place) = subscription.place {
            let session = self.table.at(key.index);
            let subscriber = session.subscriber(subscription);
            let seat = subscription.seat();
            let room = seat.and_then(|seat| self.room_of(context, seat));
            let left = room.map(|(room, seat)| LeftSeat { room, seat, departure });
            let list = session.list_key(subscription, subscription.pace());
            self.remove_from_list(context, id, (list, place));
            let channel = self.hub.channel(id);
            let (name, namespace) = (Arc::clone(&channel.name), channel.namespace);
            let counters = context.count(namespace);
            counters.subscriptions -= 1;
            counters.paced_subscriptions -= u64::from(subscription.pace().is_some());
            context.leave_owner(name, subscriber, left);
            match seat {
                // The owner will answer its join.
                Some(seat) if self.seats.awaits_room(seat) => {
                    self.seats.at_mut(seat).departure = Some(departure);
                    // Who leaves does so when the room is there: otherwise its player would stand in it.
                    if departure != Departure::Left {
                        self.abandon_join(context, id, seat, departure);
                    }
                }
                Some(seat) => self.free_seat(context, seat),
                None => {}
            }
        } else if let Some(seat) = subscription.seat() {
            let is_ending = subscription.is_ending();
            let departure = if is_ending { Departure::Left } else { departure };
            self.seats.at_mut(seat).departure = Some(departure);
            self.abandon_join(context, id, seat, departure);
        }
        self.release(subscription);
    }

    /// Removes a subscriber from its list in the hub, and returns its entry.
    pub(super) fn remove_from_list(
        &mut self,
        context: &mut Context,
        id: LocalChannelId,
        (list, place): (ListKey, u32),
    ) -> HubEntry {
        let (removed, moved) = self.hub.remove(id, (list, place), &mut context.timers);
        if let Some(moved) = moved {
            let moved = self.table.at_mut(moved.session).subscription_mut(id);
            moved.expect("the index and the sessions agree").place = Some(place);
        }
        removed
    }

    /// Nobody waits for the answer to a join any more. It may take long, and the client may come back before.
    pub(super) fn abandon_join(
        &mut self,
        context: &mut Context,
        channel: LocalChannelId,
        seat: SeatIndex,
        departure: Departure,
    ) {
        let seat_key = self.seats.key(context.identity.index, seat);
        let session = self.table.get_mut(self.seats.at(seat).session);
        let due_joins = session.and_then(|session| session.extra.as_mut()).map(|extra| &mut extra.due_joins);
        let is_it = |due: &DueJoin| due.request.join.as_ref().is_some_and(|join| join.seat == seat_key);
        let held = due_joins.and_then(|joins| joins.remove(joins.iter().position(is_it)?));
        match held {
            // It is refused when the current event has been handled: the session does not wait for it any more.
            Some(DueJoin { request, .. }) => context.notify(context.identity.index, Notice::JoinDue { request }),
            None => context.abandon_join(Arc::clone(&self.hub.channel(channel).name), seat_key, departure),
        }
    }

    /// Releases a subscription's channel and filter in the hub.
    pub(super) fn release(&mut self, subscription: &Subscription) {
        if let Some(filter) = subscription.filter {
            self.hub.release_filter(subscription.channel, filter);
        }
        self.hub.release(subscription.channel);
    }

    /// Ends the subscriptions to a channel that cannot continue, so that their clients resubscribe.
    pub(in crate::shard) fn end_stale(
        &mut self,
        context: &mut Context,
        channel: &str,
        is_stale: fn(&SubscriptionFlags) -> bool,
    ) {
        let Some(id) = context.counters.found_or_late(self.hub.find(channel)) else { return };
        let entries = self.hub.channel(id).subscribers();
        let keys: Vec<SessionKey> = entries.map(|entry| self.table.at(entry.session).key).collect();
        for key in keys {
            let subscription = self.table.get(key).and_then(|session| session.subscription(id));
            match subscription.map(|subscription| subscription.flags).filter(is_stale) {
                Some(flags) if flags.server_side => {
                    self.close(context, key, &Disconnect::INSUFFICIENT_STATE);
                }
                Some(_) => self.end_subscription(context, key, id, UnsubscribeCode::INSUFFICIENT_STATE),
                None => {}
            }
        }
    }

    /// Ends subscriptions whose channels became unknown, or whose positions became invalid.
    pub(in crate::shard) fn end_subscriptions_of(&mut self, context: &mut Context, changes: &[NamespaceChange]) {
        let mut ended: Vec<(SessionKey, LocalChannelId, UnsubscribeCode)> = Vec::new();
        for session in self.table.iter() {
            for subscription in &session.subscriptions {
                let namespace = self.hub.channel(subscription.channel).namespace;
                let code = match changes.get(usize::from(namespace.0)) {
                    Some(NamespaceChange::Retired) => UnsubscribeCode::SERVER,
                    // A client cannot resubscribe where it did not subscribe itself: such a subscription continues
                    // without a position.
                    Some(NamespaceChange::StreamGone)
                        if subscription.flags.positioned && !subscription.flags.server_side =>
                    {
                        UnsubscribeCode::INSUFFICIENT_STATE
                    }
                    _ => continue,
                };
                ended.push((session.key, subscription.channel, code));
            }
        }
        for (key, id, code) in ended {
            self.end_subscription(context, key, id, code);
        }
    }

    pub(super) fn unsubscribe_all(
        &mut self,
        context: &mut Context,
        keys: &[SessionKey],
        channel: &str,
        code: UnsubscribeCode,
    ) -> ApiAnswer {
        let mut sessions = 0;
        for &key in keys {
            let Some(session) = self.table.get_mut(key) else { continue };
            let asked_for = session.paused.as_mut().and_then(|paused| paused.subscription_params());
            let asked_for = asked_for.filter(|params| channel.is_empty() || *params.channel == *channel);
            let is_asked_for = asked_for.map(|params| params.ended.get_or_insert(code)).is_some();
            let going_on = session.subscriptions.iter().filter(|subscription| !subscription.is_ending());
            let of_channel: Vec<LocalChannelId> = going_on
                .map(|subscription| subscription.channel)
                .filter(|id| channel.is_empty() || *self.hub.channel(*id).name == *channel)
                .collect();
            sessions += u32::from(is_asked_for || !of_channel.is_empty());
            for id in of_channel {
                self.end_subscription(context, key, id, code);
            }
        }
        ApiAnswer::Done { sessions }
    }

    pub(super) fn disconnect_all(
        &mut self,
        context: &mut Context,
        keys: &[SessionKey],
        disconnect: &Disconnect,
    ) -> ApiAnswer {
        for key in keys {
            self.close(context, *key, disconnect);
        }
        ApiAnswer::Done { sessions: keys.len() as u32 }
    }

    /// Removes the session from its user's list.
    pub(super) fn remove_from_user(&mut self, context: &mut Context, key: SessionKey, user: &Arc<str>, place: u32) {
        if let Some(moved) = self.users.remove(user, place) {
            self.table.at_mut(moved.index).user_place = place;
        }
        if context.counts_sessions_of(user) {
            context.send_depart(user, key);
        }
    }

    /// The session with this secret id, if it belongs to this shard and is open.
    pub(in crate::shard) fn find_session(&self, context: &Context, secret: &str) -> Option<SessionKey> {
        let (shard, key) = read_place(secret)?;
        let session = self.table.get(key).filter(|session| session.is_authenticated())?;
        let known = &session.extra.as_ref()?.secret;
        // Compares all bytes, so that the duration does not reveal how many match.
        let is_same = known.len() == secret.len()
            && known.bytes().zip(secret.bytes()).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0;
        (shard == context.identity.index && is_same).then_some(key)
    }

    pub(super) fn free_seat(&mut self, context: &mut Context, index: SeatIndex) {
        if let Some((thread, message)) = self.seats.tell_of_leaving(index) {
            context.effects.list.push(Effect::ToRoom { thread, message });
        }
        let given_back = self.seats.give_back(index);
        if let Some(outbox) = self.table.outbox_of(given_back.session) {
            outbox.remove_seat(index, given_back.was_due);
        }
        for mut room in given_back.rooms {
            count_room(context, &mut room);
        }
        self.hub.release(given_back.channel);
    }

    /// The room of a seat, and the seat's key there.
    pub(super) fn room_of(&self, context: &Context, seat: SeatIndex) -> Option<(RoomKey, SeatKey)> {
        let route = self.seats.at(seat).room?;
        Some((route.key, self.seats.key(context.identity.index, seat)))
    }

    /// Sends the session's info in presence to the owner. The message arrives after the subscription.
    pub(super) fn show_in_presence(&mut self, context: &mut Context, key: SessionKey, id: LocalChannelId) {
        let session = self.table.at(key.index);
        let Some(subscription) = session.subscription(id).filter(|subscription| subscription.flags.presence) else {
            return;
        };
        let Some(info) = session.info.as_ref().map(|of_session| Arc::clone(subscription.info(of_session))) else {
            return;
        };
        let channel = Arc::clone(&self.hub.channel(id).name);
        let owner = context.owner(&channel);
        context.request(owner, ShardRequest::ShowAs { channel, info });
    }

    /// Whether the token was issued for this session and channel.
    pub(super) fn check_claims(
        &self,
        key: SessionKey,
        channel: &str,
        claims: &SubscriptionClaims,
    ) -> Result<(), Disconnect> {
        let info = self.table.get(key).and_then(|session| session.info.as_ref());
        let is_ours = info.is_some_and(|info| {
            *info.user == *claims.user && (claims.client.is_empty() || *info.client == *claims.client)
        });
        if is_ours && claims.channel == channel { Ok(()) } else { Err(Disconnect::INVALID_TOKEN) }
    }

    /// Takes the session whose commands have to be resumed, if any.
    pub(in crate::shard) fn take_resumed(&mut self) -> Option<(SessionKey, UnparsedCommands)> {
        // Most events resume nothing. Copying the empty value costs more than the test, and this runs after each write.
        self.resumed.as_ref()?;
        self.resumed.take()
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
}

pub(super) fn count_room(context: &mut Context, room: &mut LocalRoom) {
    context.counters.count_bodies(room.namespace, room.newly_counted());
}
