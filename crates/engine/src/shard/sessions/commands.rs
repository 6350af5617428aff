//! Splits a frame into commands, runs each by its method (client protocol, dispatch rules) and answers it. Here are the
//! commands that a channel's owner or a backend answers; subscriptions and connects have files of their own.
//!
//! A session is paused between commands until its socket has accepted most of the earlier replies, and until owners have
//! sent those that may be large. A client that reads receives all replies, however many commands it sends at once, and
//! the queued replies of a session stay within its limit.
//!
//! A session is also paused until a backend has answered its command. A request about an expiry pauses nothing. A response
//! for a session or subscription that has ended is counted and dropped.

use std::{borrow::Cow, ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::{
    ClientInfo, Command, Commands, Disconnect, ErrorCode, HistoryRequest, HistoryResult, NotJson, Payload,
    PresenceResult, PresenceStatsResult, PublishRequest, Push, Reply, Request, RpcRequest, RpcResult,
};

use crate::{
    Effect, Effects, SessionKey,
    api::HistoryQuery,
    backend::{ProxyIndex, ProxyRequest, ProxyRequestId, ProxyRequestKind, ProxyResponse, ProxyResult, ProxySession},
    counters::CommandKind,
    event::PresenceKind,
    frame::{FrameRef, build_frame, encode_push_on, reply_frame},
    hub::LocalChannelId,
    message::{Asker, Notice, ShardRequest},
    names::NamespaceIndex,
    options::DataFormat,
    planted::Bug,
    record::{CommandSubject, RecordLevel, SessionIncident},
    refused::{Refused, RefusedCommand},
    session::{
        Paused, PausedOn, Phase, ProxiedCommand, ProxyCall, Share, Subscription, SubscriptionParams, UnparsedCommands,
    },
    shard::{HISTORY_OFF, PRESENCE_OFF},
    token_bucket::RefillRate,
};

use super::{Context, Sessions, close::Cause, permission::Permission};

/// Why a command without the name of a channel closes the session.
pub(super) const NO_CHANNEL: &str = "no channel is named";
const TOO_MANY_COMMANDS: &str = "more commands in a second than client.command_rate_limit";

/// The outcome of a command: its reply, if it is available at once, or why it is refused.
pub(super) type CommandOutcome = Result<Option<Reply>, RefusedCommand>;

/// A command of a session, for its answer and its records.
#[derive(Clone, Copy)]
pub(super) struct CommandRef<'a> {
    pub(super) id: u32,
    /// The command's name, as in metrics.
    pub(super) command: &'static str,
    pub(super) channel: Option<&'a str>,
}

/// The rest of a frame when a command has to wait.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct CommandsLeft {
    pub(in crate::shard) bytes: usize,
    /// Maximum number of commands in the rest.
    pub(in crate::shard) commands_max: usize,
}

/// The result of running the next command of a frame.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) enum CommandProgress {
    /// There was no command, or the session is closed.
    Over,
    /// The command has to wait, and is still in the rest.
    Waits,
    /// The command has run, and this is the rest.
    Done(CommandsLeft),
}

/// What a command reads from a channel's owner.
#[derive(Clone, Copy)]
enum ReadKind {
    Presence,
    History,
}

impl Sessions {
    /// Begins a frame. Returns the maximum number of its commands, or `None` if there are none to run. On a
    /// unidirectional transport, the frame is a connect request.
    pub(in crate::shard) fn begin_frame(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        frame: &[u8],
    ) -> Option<usize> {
        if self.table.get(key).is_some_and(|session| session.wire.is_unidirectional()) {
            self.receive_connect(context, key, frame);
            return None;
        }
        let session = self.table.get(key)?;
        debug_assert!(session.paused.is_none(), "nothing is received while a session is paused");
        Some(context.options.client.commands_per_frame_max)
    }

    /// Runs the first command of `unparsed`.
    pub(in crate::shard) fn carry_out_next(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        unparsed: &[u8],
        commands_max: usize,
    ) -> CommandProgress {
        let Some(session) = self.table.get(key).filter(|session| session.phase != Phase::Closing) else {
            return CommandProgress::Over;
        };
        let mut commands = Commands::new(session.encoding(), unparsed).within(context.shape_limits());
        let Some(command) = commands.next() else { return CommandProgress::Over };
        let (Ok(command), Some(commands_left)) = (command, commands_max.checked_sub(1)) else {
            context.counters.malformed_frames += 1;
            let why = if commands_max == 0 {
                "more commands in one frame than client.commands_per_frame_limit"
            } else {
                "a command that cannot be decoded, or that is deeper or wider than allowed"
            };
            self.close_for(context, key, &Disconnect::BAD_REQUEST, Cause { command: None, why: Some(why) });
            return CommandProgress::Over;
        };
        if let Some(paused_on) = self.has_to_wait(context, key, &command) {
            self.pause(key, paused_on, &mut context.effects);
            return CommandProgress::Waits;
        }
        if self.dispatch(context, key, &command).is_break() {
            return CommandProgress::Over;
        }
        CommandProgress::Done(CommandsLeft { bytes: commands.rest().len(), commands_max: commands_left })
    }

    /// Stores the commands after the one that waits.
    pub(in crate::shard) fn keep_unparsed(&mut self, key: SessionKey, unparsed: UnparsedCommands) {
        if let Some(paused) = self.table.get_mut(key).and_then(|session| session.paused.as_mut()) {
            paused.unparsed = unparsed;
        }
    }

    /// Resumes a session's commands when its wait has ended. The shard runs them after the current event or message, so
    /// this call must be the last action of a handler.
    pub(super) fn resume(&mut self, key: SessionKey, unparsed: UnparsedCommands) {
        debug_assert!(self.resumed.is_none(), "one session waits for one thing");
        self.resumed = Some((key, unparsed));
    }

    /// The commands to resume, unless the session has ended or waits for something else.
    pub(in crate::shard) fn unparsed_to_carry_out(
        &mut self,
        key: SessionKey,
        unparsed: UnparsedCommands,
    ) -> Option<UnparsedCommands> {
        match &mut self.table.get_mut(key)?.paused {
            Some(paused) => {
                paused.unparsed = unparsed;
                None
            }
            None => Some(unparsed),
        }
    }

    pub(in crate::shard) fn is_gone(&self, key: SessionKey) -> bool {
        self.table.get(key).is_none()
    }

    pub(in crate::shard) fn is_paused(&self, key: SessionKey) -> bool {
        self.table.get(key).is_some_and(|session| session.phase != Phase::Closing && session.paused.is_some())
    }

    pub(in crate::shard) fn is_paused_or_gone(&self, key: SessionKey) -> bool {
        self.table.get(key).is_none_or(|session| session.paused.is_some())
    }

    /// Whether a command has to wait. A subscribe command waits until the owner has answered an earlier, ended
    /// subscription to the channel, so that answers, joins and leaves keep their order. All commands wait for the
    /// replies to earlier ones.
    fn has_to_wait(&mut self, context: &Context, key: SessionKey, command: &Command<'_>) -> Option<PausedOn> {
        if command.id == 0 {
            return None;
        }
        if let Some(Request::Subscribe(subscribe)) = &command.request
            && let Some(channel) = self.hub.find(&subscribe.channel)
            && self.table.get(key)?.subscription(channel).is_some_and(Subscription::is_ending)
        {
            return Some(PausedOn::Ending { channel });
        }
        self.waits_for_pace(context, key, command).map(PausedOn::Pace)
    }

    /// Runs one command, and answers it if the answer is available at once. Breaks if it closes the session.
    fn dispatch(&mut self, context: &mut Context, key: SessionKey, command: &Command<'_>) -> ControlFlow<()> {
        let request = match self.check_order(context, key, command) {
            Ok(Some(request)) => request,
            Ok(None) => return ControlFlow::Continue(()),
            Err(why) => {
                self.close_for(context, key, &Disconnect::BAD_REQUEST, Cause { command: None, why: Some(why) });
                return ControlFlow::Break(());
            }
        };
        let kind = CommandKind::of(request);
        context.counters.commands[kind as usize] += 1;
        self.record_command(context, key, command.id, request);
        let outcome = if self.try_take_command(context, key, request) {
            self.carry_out(context, key, command.id, request)
        } else {
            context.counters.commands_refused += 1;
            Err(Refused::new(ErrorCode::TooManyRequests, TOO_MANY_COMMANDS).into())
        };
        let closes = matches!(outcome, Err(RefusedCommand::Disconnect { .. }));
        let command = CommandRef { id: command.id, command: kind.name(), channel: channel_of(request) };
        self.answer(context, key, command, outcome);
        if closes { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The request of a command that the session may send now; `None` for a pong. The error is the reason to close the
    /// session.
    fn check_order<'r, 'a>(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command: &'r Command<'a>,
    ) -> Result<Option<&'r Request<'a>>, &'static str> {
        let Some(session) = self.table.get_mut(key) else { return Ok(None) };
        let is_connect = matches!(command.request, Some(Request::Connect(_)));
        let allowed = match session.phase {
            Phase::Fresh => is_connect,
            Phase::Live => true,
            Phase::Refused | Phase::Connecting | Phase::Closing => false,
        };
        if !allowed {
            return Err(if is_connect { "a second connect" } else { "a command before connect was answered" });
        }
        let is_send = matches!(command.request, Some(Request::Send { .. }));
        if command.id == 0 && !is_send {
            context.counters.commands[CommandKind::Pong as usize] += 1;
            let is_expected = session.take_pong();
            return if is_expected { Ok(None) } else { Err("a command without an id that answers no ping") };
        }
        let request = command.request.as_ref();
        request.map(Some).ok_or("a command without a method that the server knows")
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
            RefusedCommand::Own { code, message, temporary } => (None, Reply::Refused { code, message, temporary }),
            RefusedCommand::Disconnect { disconnect, why } => {
                return self.close_for(context, key, &disconnect, Cause { command: Some(command), why });
            }
        };
        self.record_refusal(context, key, command, (error_number(&reply), why));
        self.reply(context, key, command.id, &reply);
    }

    /// Takes a token for one more command. Not needed for commands that begin the session, free something, or have no
    /// answer (inputs of rooms have their own rate limit).
    fn try_take_command(&mut self, context: &Context, key: SessionKey, request: &Request<'_>) -> bool {
        if matches!(request, Request::Connect(_) | Request::Unsubscribe { .. } | Request::Send { .. }) {
            return true;
        }
        let pace = RefillRate::new(context.options.client.commands_per_second);
        let session = self.table.get_mut(key);
        pace.zip(session).is_none_or(|(pace, session)| session.try_take_command(pace, context.now.mono_us))
    }

    /// Runs `request`. Returns the answer if it is available at once; the answer of another shard arrives later.
    fn carry_out(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        request: &Request<'_>,
    ) -> CommandOutcome {
        match request {
            Request::Connect(connect) => self.connect(context, key, command_id, connect).map(|()| None),
            Request::Subscribe(subscribe) => self.subscribe(context, key, command_id, subscribe),
            Request::Unsubscribe { channel } => self.unsubscribe(context, key, command_id, channel),
            Request::Refresh { token } => self.refresh(context, key, command_id, token).map(|()| None),
            Request::SubRefresh(refresh) => self.sub_refresh(context, key, command_id, refresh),
            Request::Publish(publish) => self.publish(context, key, command_id, publish),
            Request::Presence { channel } => {
                self.ask_presence(context, key, command_id, channel, PresenceKind::Clients)
            }
            Request::PresenceStats { channel } => {
                self.ask_presence(context, key, command_id, channel, PresenceKind::Stats)
            }
            Request::History(history) => self.ask_history(context, key, command_id, history),
            Request::Send { data } => self.send_input(context, key, *data).map(|()| None),
            Request::Rpc(rpc) => self.call(context, key, command_id, rpc),
            Request::Ping => {
                Err(Refused::new(ErrorCode::NotAvailable, "a ping of the protocol's first version").into())
            }
        }
    }

    /// Pauses the session until its token is verified.
    pub(super) fn wait_for_token(&mut self, key: SessionKey, paused_on: PausedOn, token: &str, effects: &mut Effects) {
        let is_subscription = matches!(paused_on, PausedOn::Subscribe { .. } | PausedOn::SubRefresh { .. });
        self.pause(key, paused_on, effects);
        let token = token.into();
        effects.list.push(if is_subscription {
            Effect::AuthorizeSubscription { session: key, token }
        } else {
            Effect::Authenticate { session: key, token }
        });
    }

    /// Pauses the session.
    pub(super) fn pause(&mut self, key: SessionKey, paused_on: PausedOn, effects: &mut Effects) {
        if matches!(paused_on, PausedOn::Pace(_)) {
            self.table.outbox(key.index).pace();
        }
        let Some(session) = self.table.get_mut(key) else { return };
        session.paused = Some(Box::new(Paused { paused_on, unparsed: UnparsedCommands::default() }));
        effects.list.push(Effect::Pause { session: key });
    }

    /// Queues the reply to a command. A reply never closes a session as slow: commands wait for the replies to earlier
    /// ones, so a client that reads receives everything that it requested.
    pub(in crate::shard) fn reply(&mut self, context: &mut Context, key: SessionKey, id: u32, reply: &Reply) {
        let Some(session) = self.table.get(key) else { return };
        let frame = reply_frame(session.wire, id, reply, &mut context.scratch, context.now.mono_us);
        let Ok(frame) = frame else {
            return self.close(context, key, &Disconnect::INAPPROPRIATE_PROTOCOL);
        };
        self.queue_reply(key, frame, &mut context.effects);
        if context.planted.is(Bug::RepliesAreNotPaced) && self.is_too_far_behind(context, key.index) {
            self.close_slow(context, key);
        }
    }

    fn queue_reply(&mut self, key: SessionKey, frame: FrameRef, effects: &mut Effects) {
        let is_open = self.table.get(key).is_some_and(|session| session.phase != Phase::Closing);
        if is_open {
            let outbox = self.table.outbox(key.index);
            outbox.push(frame);
            outbox.list(key.index, effects);
        }
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
        if self.is_too_far_behind(context, key.index) {
            self.close_slow(context, key);
        }
    }

    /// Whether the session exceeds its queue limits.
    pub(super) fn is_too_far_behind(&mut self, context: &Context, index: u32) -> bool {
        self.table.outbox(index).is_too_far_behind(&context.options.client)
    }

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
        context.permits(session, (channel, namespace), permission, subscribes)
    }

    pub(super) fn publish(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        request: &PublishRequest<'_>,
    ) -> CommandOutcome {
        let channel = &*request.channel;
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        let data = request.data.unwrap_or_default();
        let namespace = context.resolve(channel)?;
        let options = context.namespace(namespace);
        if options.room.is_some() {
            return self.publish_input(context, key, channel, data);
        }
        if data.is_empty() && options.publication_data_format != DataFormat::Binary {
            return Err(Refused::new(ErrorCode::BadRequest, "a publication without data").into());
        }
        let proxy = options.publish_proxy;
        let is_allowed =
            proxy.is_some() || self.permits(context, key, channel, namespace, Permission::publish(options));
        if request.kind != 0 || !is_allowed {
            return Err(ErrorCode::PermissionDenied.into());
        }
        let data = self.table.at(key.index).payload(data).unwrap_or_else(|| Payload::from_opaque(Bytes::new()));
        if let Some(proxy) = proxy {
            let channel = self.channel_name(channel);
            let kind = ProxyRequestKind::Publish { channel: Arc::clone(&channel), data: data.clone() };
            self.send_proxy_request(
                key,
                command_id,
                (proxy, kind),
                ProxiedCommand::Publish { channel, data },
                &mut context.effects,
            );
            return Ok(None);
        }
        let Some(info) = self.info_in_channel(key, channel) else { return Err(Disconnect::BAD_REQUEST.into()) };
        let asker = self.register_request(context, key, command_id, false);
        let creator = self.table.at(key.index).creator(context.identity.index, context.node_seed);
        let channel_name = self.channel_name(channel);
        let request = ShardRequest::Publish { channel: channel_name, data, info, how: Box::default(), creator, asker };
        context.request(context.owner(channel), request);
        Ok(None)
    }

    fn ask_presence(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        channel: &str,
        kind: PresenceKind,
    ) -> CommandOutcome {
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        self.check_read(context, key, channel, ReadKind::Presence)?;
        let owner = context.owner(channel);
        let channel = self.channel_name(channel);
        let asker = self.register_request(context, key, command_id, kind == PresenceKind::Clients);
        let bytes_max = context.options.client.presence_bytes_max;
        let request = match kind {
            PresenceKind::Clients => ShardRequest::Presence { channel, bytes_max, asker },
            PresenceKind::Stats => ShardRequest::PresenceStats { channel, asker },
        };
        context.request(owner, request);
        Ok(None)
    }

    pub(super) fn ask_history(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        request: &HistoryRequest<'_>,
    ) -> CommandOutcome {
        let channel = &*request.channel;
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        self.check_read(context, key, channel, ReadKind::History)?;
        let limit_max = i32::try_from(context.options.client.history_publications_max).unwrap_or(i32::MAX);
        let limit = if (0..=limit_max).contains(&request.limit) { request.limit } else { limit_max };
        let since = request.since.as_ref().map(|since| (since.offset, Box::from(&*since.epoch)));
        let bytes_max = Some(context.options.client.history_bytes_max);
        let query = HistoryQuery { limit, since, reverse: request.reverse, bytes_max };
        let (channel_name, asker) = (self.channel_name(channel), self.register_request(context, key, command_id, true));
        let request =
            ShardRequest::History { channel: channel_name, query, reader: self.table.at(key.index).user(), asker };
        context.request(context.owner(channel), request);
        Ok(None)
    }

    /// Passes the owner's answer on to the session that sent the request.
    pub(in crate::shard) fn take_notice(&mut self, context: &mut Context, notice: Notice) {
        let is_reply_large = matches!(notice, Notice::Presence { .. } | Notice::History { .. });
        let (command, channel, asker, reply) = match notice {
            Notice::Deliver(delivery) => return self.deliver(context, &delivery),
            Notice::RoomOver { channel, room, code, reason } => {
                return self.room_is_over(context, &channel, room, (code, reason));
            }
            Notice::Subscribed { request, outcome } => {
                return self.subscribed(context, *request, outcome);
            }
            Notice::PositionLost { channel } => {
                return self.end_stale(context, &channel, |flags| flags.positioned);
            }
            Notice::FollowingLost { channel } => return self.end_stale(context, &channel, |_| true),
            Notice::Arrived { user, asker, admission } => {
                return self.arrived(context, &user, asker, admission);
            }
            Notice::Superseded { session } => return self.superseded(context, session),
            Notice::Published { channel, asker, outcome } => {
                ("publish", channel, asker, outcome.map(|()| Reply::Publish))
            }
            Notice::Presence { channel, asker, outcome } => {
                ("presence", channel, asker, outcome.map(|clients| Reply::Presence(PresenceResult { clients })))
            }
            Notice::PresenceStats { channel, asker, outcome } => (
                "presence_stats",
                channel,
                asker,
                outcome.map(|(num_clients, num_users)| {
                    Reply::PresenceStats(PresenceStatsResult { num_clients, num_users })
                }),
            ),
            Notice::History { channel, asker, outcome } => (
                "history",
                channel,
                asker,
                outcome.map(|part| {
                    let part = *part;
                    Reply::History(HistoryResult {
                        publications: part.publications,
                        epoch: part.epoch,
                        offset: part.offset,
                    })
                }),
            ),
        };
        if self.is_gone(asker.session) {
            context.counters.late_messages += 1;
            return;
        }
        let outcome = reply.map(Some).map_err(RefusedCommand::from);
        let command = CommandRef { id: asker.command_id, command, channel: Some(&channel) };
        self.answer(context, asker.session, command, outcome);
        self.on_owner_reply(asker.session, is_reply_large, &mut context.effects);
    }

    /// Checks that the namespace of `channel` stores the requested data, and that the session may read it.
    fn check_read(&self, context: &Context, key: SessionKey, channel: &str, kind: ReadKind) -> Result<(), Refused> {
        let namespace = context.resolve(channel)?;
        let options = context.namespace(namespace);
        let (is_on, off_reason, permission) = match kind {
            ReadKind::Presence => (options.presence, PRESENCE_OFF, Permission::presence(options)),
            ReadKind::History => (options.has_stream(), HISTORY_OFF, Permission::history(options)),
        };
        if !is_on {
            return Err(Refused::new(ErrorCode::NotAvailable, off_reason));
        }
        if self.permits(context, key, channel, namespace, permission) {
            Ok(())
        } else {
            Err(ErrorCode::PermissionDenied.into())
        }
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
        self.pause(key, PausedOn::Backend(Box::new(ProxyCall { request_id, command_id, about })), effects);
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

    /// A backend has responded, or failed.
    pub(in crate::shard) fn backend_answered(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        request_id: ProxyRequestId,
        outcome: ProxyResult,
    ) {
        let Some(session) = context.counters.found_or_late(self.table.get_mut(key)) else { return };
        let is_it =
            |paused: &Paused| matches!(&paused.paused_on, PausedOn::Backend(asked) if asked.request_id == request_id);
        if let Some(paused) = session.paused.take_if(|paused| is_it(paused)) {
            let Paused { paused_on, unparsed } = *paused;
            let PausedOn::Backend(asked) = paused_on else { unreachable!("looked at above") };
            self.command_answered(context, key, *asked, outcome);
            return self.resume(key, unparsed);
        }
        let refresh = session.extra.as_mut().and_then(|extra| extra.refresh.take_if(|asked| *asked == request_id));
        if refresh.is_some() {
            if session.is_authenticated() {
                self.session_refreshed(context, key, outcome);
            } else {
                context.counters.late_messages += 1;
            }
            return;
        }
        let of_subscription = session.subscriptions.iter_mut().find_map(|subscription| {
            let asked = &mut subscription.extra.as_mut()?.refresh;
            asked.take_if(|asked| *asked == request_id).map(|_| subscription.channel)
        });
        match of_subscription {
            Some(channel) => self.subscription_refreshed(context, key, channel, outcome),
            None => context.counters.late_messages += 1,
        }
    }

    fn command_answered(&mut self, context: &mut Context, key: SessionKey, asked: ProxyCall, outcome: ProxyResult) {
        let ProxyCall { request_id: _, command_id, about } = asked;
        let mut command = CommandRef { id: command_id, command: "rpc", channel: None };
        let outcome = match &about {
            ProxiedCommand::Connect(params) => {
                return self.connect_by_backend(context, key, command_id, params, outcome);
            }
            ProxiedCommand::Subscribe(params) => {
                (command.command, command.channel) = ("subscribe", Some(&*params.channel));
                self.subscribe_by_backend(context, key, command_id, params, outcome)
            }
            ProxiedCommand::Publish { channel, data } => {
                (command.command, command.channel) = ("publish", Some(&**channel));
                self.publish_by_backend(context, key, command_id, (channel, data), outcome)
            }
            ProxiedCommand::Rpc => called(outcome).map(Some),
        };
        self.answer(context, key, command, outcome);
    }

    fn subscribe_by_backend(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        params: &SubscriptionParams,
        outcome: ProxyResult,
    ) -> CommandOutcome {
        let grant = match outcome {
            Ok(ProxyResponse::Subscribe(grant)) => *grant,
            Ok(_) => return Err(ErrorCode::Internal.into()),
            Err(error) => return Err(error.into()),
        };
        self.request_subscription(context, key, command_id, params, grant)?;
        Ok(None)
    }

    fn publish_by_backend(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        (channel, data): (&Arc<str>, &Payload),
        outcome: ProxyResult,
    ) -> CommandOutcome {
        let answer = match outcome {
            Ok(ProxyResponse::Publish(answer)) => *answer,
            Ok(_) => return Err(ErrorCode::Internal.into()),
            Err(error) => return Err(error.into()),
        };
        let Some(info) = self.info_in_channel(key, channel) else { return Err(Disconnect::BAD_REQUEST.into()) };
        let owner = context.owner(channel);
        let request = ShardRequest::Publish {
            channel: Arc::clone(channel),
            data: answer.data.unwrap_or_else(|| data.clone()),
            info,
            how: Box::new(answer.how),
            creator: self.table.at(key.index).creator(context.identity.index, context.node_seed),
            asker: self.register_request(context, key, command_id, false),
        };
        context.request(owner, request);
        Ok(None)
    }

    /// Sends a call to the backend of its method.
    pub(super) fn call(
        &mut self,
        context: &mut Context,
        key: SessionKey,
        command_id: u32,
        request: &RpcRequest<'_>,
    ) -> CommandOutcome {
        let method = &*request.method;
        let backend = &context.options.backend;
        if backend.rpc_ping_method.as_deref() == Some(method) {
            return Ok(Some(Reply::Rpc(RpcResult { data: None })));
        }
        let has_proxies =
            backend.rpc_without_namespace.is_some() || backend.rpc_namespaces.iter().any(|(_, proxy)| proxy.is_some());
        let proxy = match method.split_once(backend.rpc_namespace_boundary) {
            _ if backend.has_node_methods && method.starts_with(crate::backend::NODE_METHODS) => Some(ProxyIndex::NODE),
            _ if !has_proxies && backend.rpc_ping_method.is_none() => {
                return Err(Refused::new(ErrorCode::NotAvailable, "no RPC proxy is enabled").into());
            }
            _ if !has_proxies => return Err(ErrorCode::MethodNotFound.into()),
            None => backend.rpc_without_namespace,
            Some((namespace, _)) => {
                let known = backend.rpc_namespaces.iter().find(|(name, _)| **name == *namespace);
                let Some((_, proxy)) = known else { return Err(ErrorCode::MethodNotFound.into()) };
                *proxy
            }
        };
        let Some(proxy) = proxy else {
            let why = "the RPC namespace of the method has no proxy";
            return Err(Refused::new(ErrorCode::NotAvailable, why).into());
        };
        let kind = ProxyRequestKind::Rpc {
            method: method.into(),
            data: request.data.and_then(|data| self.table.at(key.index).payload(data)),
        };
        self.send_proxy_request(key, command_id, (proxy, kind), ProxiedCommand::Rpc, &mut context.effects);
        Ok(None)
    }
}

/// The number of an error reply.
pub(super) const fn error_number(reply: &Reply) -> u32 {
    match reply {
        Reply::Error(code) => code.code(),
        Reply::Refused { code, .. } => *code as u32,
        _ => ErrorCode::Internal.code(),
    }
}

/// The channel that a command names.
pub(super) fn channel_of<'a>(request: &'a Request<'_>) -> Option<&'a str> {
    match request {
        Request::Subscribe(subscribe) => Some(&subscribe.channel),
        Request::Unsubscribe { channel } | Request::Presence { channel } | Request::PresenceStats { channel } => {
            Some(channel)
        }
        Request::Publish(publish) => Some(&publish.channel),
        Request::History(history) => Some(&history.channel),
        Request::SubRefresh(refresh) => Some(&refresh.channel),
        Request::Connect(_) | Request::Ping | Request::Send { .. } | Request::Rpc(_) | Request::Refresh { .. } => None,
    }
}

fn called(outcome: ProxyResult) -> Result<Reply, RefusedCommand> {
    match outcome {
        Ok(ProxyResponse::Rpc { data }) => Ok(Reply::Rpc(RpcResult { data })),
        Ok(_) => Err(ErrorCode::Internal.into()),
        Err(error) => Err(error.into()),
    }
}
