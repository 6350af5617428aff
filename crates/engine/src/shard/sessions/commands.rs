//! Splits a frame into commands, runs each by its method (client protocol, dispatch rules) and answers it. Here are the
//! commands that a channel's owner or a backend answers; subscriptions and connects have files of their own.
//!
//! A session is paused between commands until its socket has accepted most of the earlier replies, and until owners have
//! sent those that may be large. A client that reads receives all replies, however many commands it sends at once, and
//! the queued replies of a session stay within its limit.
//!
//! A session is also paused until a backend has answered its command. A request about an expiry pauses nothing. A response
//! for a session or subscription that has ended is counted and dropped.

use std::{ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::{
    Command, Commands, Disconnect, ErrorCode, HistoryRequest, Payload, PublishRequest, Reply, Request, RpcRequest,
    RpcResult,
};

use crate::{
    SessionKey,
    api::HistoryQuery,
    backend::{ProxyIndex, ProxyRequestId, ProxyRequestKind, ProxyResponse, ProxyResult},
    counters::CommandKind,
    event::{ConnectionClaims, PresenceKind, SubscriptionClaims, TokenError},
    message::ShardRequest,
    options::DataFormat,
    refused::{Refused, RefusedCommand},
    session::{Paused, PausedOn, Phase, ProxiedCommand, ProxyCall, Share, Subscription, SubscriptionParams},
    shard::{HISTORY_OFF, PRESENCE_OFF},
    token_bucket::RefillRate,
};

use super::{
    Context,
    connect::Connecting,
    inputs::PlayerInput,
    node_rates::Rates,
    open_sessions::{Cause, OpenSessions},
    pacing::Pacing,
    permission::{self, Permission},
    refresh::Refreshing,
    subscribe::Subscribing,
};

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

/// A command that is carried out for one session, or an answer that one waited for.
pub(in crate::shard) struct Executing<'s> {
    pub(super) context: &'s mut Context,
    pub(super) sessions: &'s mut OpenSessions,
    pub(super) rates: &'s mut Rates,
    pub(super) key: SessionKey,
}

impl Executing<'_> {
    fn connecting(&mut self) -> Connecting<'_> {
        Connecting { context: self.context, sessions: self.sessions, rates: self.rates, key: self.key }
    }

    fn subscribing(&mut self) -> Subscribing<'_> {
        Subscribing { context: self.context, sessions: self.sessions, rates: self.rates, key: self.key }
    }

    fn refreshing(&mut self) -> Refreshing<'_> {
        Refreshing { context: self.context, sessions: self.sessions, key: self.key }
    }

    fn pacing(&mut self) -> Pacing<'_> {
        Pacing { context: self.context, sessions: self.sessions }
    }

    fn input(&mut self) -> PlayerInput<'_> {
        PlayerInput { context: self.context, sessions: self.sessions, key: self.key }
    }

    /// Begins a frame. Returns the maximum number of its commands, or `None` if there are none to run. On a
    /// unidirectional transport, the frame is a connect request.
    pub(in crate::shard) fn begin_frame(&mut self, frame: &[u8]) -> Option<usize> {
        if self.sessions.table.get(self.key).is_some_and(|session| session.wire.is_unidirectional()) {
            self.connecting().receive_connect(frame);
            return None;
        }
        let session = self.sessions.table.get(self.key)?;
        debug_assert!(session.paused.is_none(), "nothing is received while a session is paused");
        Some(self.context.options.client.commands_per_frame_max)
    }

    /// Runs the first command of `unparsed`.
    pub(in crate::shard) fn carry_out_next(&mut self, unparsed: &[u8], commands_max: usize) -> CommandProgress {
        let Some(session) = self.sessions.table.get(self.key).filter(|session| session.phase != Phase::Closing) else {
            return CommandProgress::Over;
        };
        let mut commands = Commands::new(session.encoding(), unparsed).within(self.context.shape_limits());
        let Some(command) = commands.next() else { return CommandProgress::Over };
        let (Ok(command), Some(commands_left)) = (command, commands_max.checked_sub(1)) else {
            self.context.counters.malformed_frames += 1;
            let why = if commands_max == 0 {
                "more commands in one frame than client.commands_per_frame_limit"
            } else {
                "a command that cannot be decoded, or that is deeper or wider than allowed"
            };
            self.sessions.close_for(
                self.context,
                self.key,
                &Disconnect::BAD_REQUEST,
                Cause { command: None, why: Some(why) },
            );
            return CommandProgress::Over;
        };
        if let Some(paused_on) = self.has_to_wait(&command) {
            self.sessions.table.pause(self.key, paused_on, &mut self.context.effects);
            return CommandProgress::Waits;
        }
        if self.dispatch(&command).is_break() {
            return CommandProgress::Over;
        }
        CommandProgress::Done(CommandsLeft { bytes: commands.rest().len(), commands_max: commands_left })
    }

    /// Whether a command has to wait. A subscribe command waits until the owner has answered an earlier, ended
    /// subscription to the channel, so that answers, joins and leaves keep their order. All commands wait for the
    /// replies to earlier ones.
    fn has_to_wait(&mut self, command: &Command<'_>) -> Option<PausedOn> {
        if command.id == 0 {
            return None;
        }
        if let Some(Request::Subscribe(subscribe)) = &command.request
            && let Some(channel) = self.sessions.hub.find(&subscribe.channel)
            && self.sessions.table.get(self.key)?.subscription(channel).is_some_and(Subscription::is_ending)
        {
            return Some(PausedOn::Ending { channel });
        }
        self.waits_for_pace(command).map(PausedOn::Pace)
    }

    /// Runs one command, and answers it if the answer is available at once. Breaks if it closes the session.
    fn dispatch(&mut self, command: &Command<'_>) -> ControlFlow<()> {
        let request = match self.check_order(command) {
            Ok(Some(request)) => request,
            Ok(None) => return ControlFlow::Continue(()),
            Err(why) => {
                self.sessions.close_for(
                    self.context,
                    self.key,
                    &Disconnect::BAD_REQUEST,
                    Cause { command: None, why: Some(why) },
                );
                return ControlFlow::Break(());
            }
        };
        let kind = CommandKind::of(request);
        self.context.counters.commands[kind as usize] += 1;
        self.sessions.record_command(self.context, self.key, command.id, request);
        let outcome = if self.try_take_command(request) {
            self.carry_out(command.id, request)
        } else {
            self.context.counters.commands_refused += 1;
            Err(Refused::new(ErrorCode::TooManyRequests, TOO_MANY_COMMANDS).into())
        };
        let closes = matches!(outcome, Err(RefusedCommand::Disconnect { .. }));
        let command = CommandRef { id: command.id, command: kind.name(), channel: channel_of(request) };
        self.sessions.answer(self.context, self.key, command, outcome);
        if closes { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The request of a command that the session may send now; `None` for a pong. The error is the reason to close the
    /// session.
    fn check_order<'r, 'a>(&mut self, command: &'r Command<'a>) -> Result<Option<&'r Request<'a>>, &'static str> {
        let Some(session) = self.sessions.table.get_mut(self.key) else { return Ok(None) };
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
            self.context.counters.commands[CommandKind::Pong as usize] += 1;
            let is_expected = session.take_pong();
            let client = &self.context.options.client;
            if is_expected && let Some(round_trip_us) = session.measure_pong(client, self.context.now) {
                self.context.counters.ping_round_trip.observe(round_trip_us);
            }
            return if is_expected { Ok(None) } else { Err("a command without an id that answers no ping") };
        }
        let request = command.request.as_ref();
        request.map(Some).ok_or("a command without a method that the server knows")
    }

    /// Takes a token for one more command. Not needed for commands that begin the session, free something, or have no
    /// answer (inputs of rooms have their own rate limit).
    fn try_take_command(&mut self, request: &Request<'_>) -> bool {
        if matches!(request, Request::Connect(_) | Request::Unsubscribe { .. } | Request::Send { .. }) {
            return true;
        }
        let rate = RefillRate::new(self.context.options.client.commands_per_second);
        let session = self.sessions.table.get_mut(self.key);
        rate.zip(session).is_none_or(|(rate, session)| session.try_take_command(rate, self.context.now.mono_us))
    }

    /// Runs `request`. Returns the answer if it is available at once; the answer of another shard arrives later.
    fn carry_out(&mut self, command_id: u32, request: &Request<'_>) -> CommandOutcome {
        match request {
            Request::Connect(connect) => self.connecting().connect(command_id, connect).map(|()| None),
            Request::Subscribe(subscribe) => self.subscribing().subscribe(command_id, subscribe),
            Request::Unsubscribe { channel } => self.subscribing().unsubscribe(command_id, channel),
            Request::Refresh { token } => self.refreshing().refresh(command_id, token).map(|()| None),
            Request::SubRefresh(refresh) => self.refreshing().sub_refresh(command_id, refresh),
            Request::Publish(publish) => self.publish(command_id, publish),
            Request::Presence { channel } => self.ask_presence(command_id, channel, PresenceKind::Clients),
            Request::PresenceStats { channel } => self.ask_presence(command_id, channel, PresenceKind::Stats),
            Request::History(history) => self.ask_history(command_id, history),
            Request::Send { data } => self.input().send_input(*data).map(|()| None),
            Request::Rpc(rpc) => self.call(command_id, rpc),
            Request::Ping => {
                Err(Refused::new(ErrorCode::NotAvailable, "a ping of the protocol's first version").into())
            }
        }
    }

    pub(super) fn publish(&mut self, command_id: u32, request: &PublishRequest<'_>) -> CommandOutcome {
        let channel = &*request.channel;
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        let data = request.data.unwrap_or_default();
        let namespace = self.context.resolve(channel)?;
        let options = self.context.namespace(namespace);
        if options.room.is_some() {
            return self.input().publish_input(channel, data);
        }
        if data.is_empty() && options.publication_data_format != DataFormat::Binary {
            return Err(Refused::new(ErrorCode::BadRequest, "a publication without data").into());
        }
        let proxy = options.publish_proxy;
        let is_allowed = proxy.is_some()
            || self.sessions.permits(self.context, self.key, channel, namespace, Permission::publish(options));
        if request.kind != 0 {
            return Err(permission::of_other_type().into());
        }
        if !is_allowed {
            let session = self.sessions.table.at(self.key.index);
            return Err(Permission::publish(options).refused(session).into());
        }
        let data =
            self.sessions.table.at(self.key.index).payload(data).unwrap_or_else(|| Payload::from_opaque(Bytes::new()));
        if let Some(proxy) = proxy {
            let channel = self.sessions.channel_name(channel);
            let kind = ProxyRequestKind::Publish { channel: Arc::clone(&channel), data: data.clone() };
            self.sessions.send_proxy_request(
                self.key,
                command_id,
                (proxy, kind),
                ProxiedCommand::Publish { channel, data },
                &mut self.context.effects,
            );
            return Ok(None);
        }
        let Some(info) = self.sessions.info_in_channel(self.key, channel) else {
            return Err(Disconnect::BAD_REQUEST.into());
        };
        let asker = self.sessions.register_request(self.context, self.key, command_id, false);
        let creator =
            self.sessions.table.at(self.key.index).creator(self.context.identity.index, self.context.node_seed);
        let channel_name = self.sessions.channel_name(channel);
        let request = ShardRequest::Publish { channel: channel_name, data, info, how: Box::default(), creator, asker };
        self.context.request(self.context.owner(channel), request);
        Ok(None)
    }

    fn ask_presence(&mut self, command_id: u32, channel: &str, kind: PresenceKind) -> CommandOutcome {
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        self.check_read(channel, ReadKind::Presence)?;
        let owner = self.context.owner(channel);
        let channel = self.sessions.channel_name(channel);
        let asker = self.sessions.register_request(self.context, self.key, command_id, kind == PresenceKind::Clients);
        let bytes_max = self.context.options.client.presence_bytes_max;
        let request = match kind {
            PresenceKind::Clients => ShardRequest::Presence { channel, bytes_max, asker },
            PresenceKind::Stats => ShardRequest::PresenceStats { channel, asker },
        };
        self.context.request(owner, request);
        Ok(None)
    }

    pub(super) fn ask_history(&mut self, command_id: u32, request: &HistoryRequest<'_>) -> CommandOutcome {
        let channel = &*request.channel;
        if channel.is_empty() {
            return Err(RefusedCommand::bad_request(NO_CHANNEL));
        }
        self.check_read(channel, ReadKind::History)?;
        let limit_max = i32::try_from(self.context.options.client.history_publications_max).unwrap_or(i32::MAX);
        let limit = if (0..=limit_max).contains(&request.limit) { request.limit } else { limit_max };
        let since = request.since.as_ref().map(|since| (since.offset, Box::from(&*since.epoch)));
        let bytes_max = Some(self.context.options.client.history_bytes_max);
        let query = HistoryQuery { limit, since, reverse: request.reverse, bytes_max };
        let (channel_name, asker) = (
            self.sessions.channel_name(channel),
            self.sessions.register_request(self.context, self.key, command_id, true),
        );
        let request = ShardRequest::History {
            channel: channel_name,
            query,
            reader: self.sessions.table.at(self.key.index).user(),
            asker,
        };
        self.context.request(self.context.owner(channel), request);
        Ok(None)
    }

    /// Checks that the namespace of `channel` stores the requested data, and that the session may read it.
    fn check_read(&self, channel: &str, kind: ReadKind) -> Result<(), Refused> {
        let namespace = self.context.resolve(channel)?;
        let options = self.context.namespace(namespace);
        let (is_on, off_reason, permission) = match kind {
            ReadKind::Presence => (options.presence, PRESENCE_OFF, Permission::presence(options)),
            ReadKind::History => (options.has_stream(), HISTORY_OFF, Permission::history(options)),
        };
        if !is_on {
            return Err(Refused::new(ErrorCode::NotAvailable, off_reason));
        }
        if self.sessions.permits(self.context, self.key, channel, namespace, permission) {
            Ok(())
        } else {
            Err(permission.refused(self.sessions.table.at(self.key.index)))
        }
    }

    /// A backend has responded, or failed.
    pub(in crate::shard) fn backend_answered(&mut self, request_id: ProxyRequestId, outcome: ProxyResult) {
        let Some(session) = self.context.counters.found_or_late(self.sessions.table.get_mut(self.key)) else { return };
        let is_it =
            |paused: &Paused| matches!(&paused.paused_on, PausedOn::Backend(asked) if asked.request_id == request_id);
        if let Some(paused) = session.paused.take_if(|paused| is_it(paused)) {
            let Paused { paused_on, unparsed } = *paused;
            let PausedOn::Backend(asked) = paused_on else { unreachable!("looked at above") };
            self.command_answered(*asked, outcome);
            return self.sessions.resume(self.key, unparsed);
        }
        let refresh = session.extra.as_mut().and_then(|extra| extra.refresh.take_if(|asked| *asked == request_id));
        if refresh.is_some() {
            if session.is_authenticated() {
                self.refreshing().session_refreshed(outcome);
            } else {
                self.context.counters.late_messages += 1;
            }
            return;
        }
        let of_subscription = session.subscriptions.iter_mut().find_map(|subscription| {
            let asked = &mut subscription.extra.as_mut()?.refresh;
            asked.take_if(|asked| *asked == request_id).map(|_| subscription.channel)
        });
        match of_subscription {
            Some(channel) => self.refreshing().subscription_refreshed(channel, outcome),
            None => self.context.counters.late_messages += 1,
        }
    }

    fn command_answered(&mut self, asked: ProxyCall, outcome: ProxyResult) {
        let ProxyCall { request_id: _, command_id, about } = asked;
        let mut command = CommandRef { id: command_id, command: "rpc", channel: None };
        let outcome = match &about {
            ProxiedCommand::Connect(params) => {
                return self.connecting().connect_by_backend(command_id, params, outcome);
            }
            ProxiedCommand::Subscribe(params) => {
                (command.command, command.channel) = ("subscribe", Some(&*params.channel));
                self.subscribe_by_backend(command_id, params, outcome)
            }
            ProxiedCommand::Publish { channel, data } => {
                (command.command, command.channel) = ("publish", Some(&**channel));
                self.publish_by_backend(command_id, (channel, data), outcome)
            }
            ProxiedCommand::Rpc => called(outcome).map(Some),
        };
        self.sessions.answer(self.context, self.key, command, outcome);
    }

    fn subscribe_by_backend(
        &mut self,
        command_id: u32,
        params: &SubscriptionParams,
        outcome: ProxyResult,
    ) -> CommandOutcome {
        let grant = match outcome {
            Ok(ProxyResponse::Subscribe(grant)) => *grant,
            Ok(_) => return Err(ErrorCode::Internal.into()),
            Err(error) => return Err(error.into()),
        };
        self.subscribing().request_subscription(command_id, params, grant)?;
        Ok(None)
    }

    fn publish_by_backend(
        &mut self,
        command_id: u32,
        (channel, data): (&Arc<str>, &Payload),
        outcome: ProxyResult,
    ) -> CommandOutcome {
        let answer = match outcome {
            Ok(ProxyResponse::Publish(answer)) => *answer,
            Ok(_) => return Err(ErrorCode::Internal.into()),
            Err(error) => return Err(error.into()),
        };
        let Some(info) = self.sessions.info_in_channel(self.key, channel) else {
            return Err(Disconnect::BAD_REQUEST.into());
        };
        let owner = self.context.owner(channel);
        let request = ShardRequest::Publish {
            channel: Arc::clone(channel),
            data: answer.data.unwrap_or_else(|| data.clone()),
            info,
            how: Box::new(answer.how),
            creator: self
                .sessions
                .table
                .at(self.key.index)
                .creator(self.context.identity.index, self.context.node_seed),
            asker: self.sessions.register_request(self.context, self.key, command_id, false),
        };
        self.context.request(owner, request);
        Ok(None)
    }

    /// Sends a call to the backend of its method.
    pub(super) fn call(&mut self, command_id: u32, request: &RpcRequest<'_>) -> CommandOutcome {
        let method = &*request.method;
        let key = self.key;
        if let Some(outcome) = self.pacing().call(key, method, request.data.unwrap_or_default()) {
            return outcome;
        }
        let backend = &self.context.options.backend;
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
            data: request.data.and_then(|data| self.sessions.table.at(self.key.index).payload(data)),
        };
        self.sessions.send_proxy_request(
            self.key,
            command_id,
            (proxy, kind),
            ProxiedCommand::Rpc,
            &mut self.context.effects,
        );
        Ok(None)
    }

    /// A connection token of `connect` or `refresh` was verified.
    pub(in crate::shard) fn token_verified(&mut self, outcome: Result<ConnectionClaims, TokenError>) {
        let waits = |paused_on: &PausedOn| matches!(paused_on, PausedOn::Connect { .. } | PausedOn::Refresh { .. });
        let Some(Paused { paused_on, unparsed }) = self.sessions.table.take_paused(self.key, waits) else { return };
        match paused_on {
            PausedOn::Connect { command_id, params } => {
                self.connecting().connect_with_token(command_id, &params, outcome);
            }
            PausedOn::Refresh { command_id } => {
                let outcome = self.refreshing().refresh_with_token(outcome).map(Some);
                let command = CommandRef { id: command_id, command: "refresh", channel: None };
                self.sessions.answer(self.context, self.key, command, outcome);
            }
            _ => unreachable!("looked at above"),
        }
        self.sessions.resume(self.key, unparsed);
    }

    /// The token of a `subscribe` or `sub_refresh` was verified.
    pub(in crate::shard) fn subscription_token_verified(&mut self, outcome: Result<SubscriptionClaims, TokenError>) {
        let waits =
            |paused_on: &PausedOn| matches!(paused_on, PausedOn::Subscribe { .. } | PausedOn::SubRefresh { .. });
        let Some(Paused { paused_on, unparsed }) = self.sessions.table.take_paused(self.key, waits) else { return };
        match paused_on {
            PausedOn::Subscribe { command_id, params } => {
                let outcome = self.subscribing().subscribe_with_token(command_id, &params, outcome);
                let command = CommandRef { id: command_id, command: "subscribe", channel: Some(&params.channel) };
                self.sessions.answer(self.context, self.key, command, outcome);
            }
            PausedOn::SubRefresh { command_id, channel } => {
                let outcome = self.refreshing().sub_refresh_with_token(&channel, outcome).map(Some);
                let command = CommandRef { id: command_id, command: "sub_refresh", channel: Some(&channel) };
                self.sessions.answer(self.context, self.key, command, outcome);
            }
            _ => unreachable!("looked at above"),
        }
        self.sessions.resume(self.key, unparsed);
    }

    /// If the command has to wait for the socket, or for the replies of owners, returns the share of the queue limits
    /// that must not be exceeded before it can run.
    fn waits_for_pace(&self, command: &Command<'_>) -> Option<Share> {
        let session = self.sessions.table.get(self.key).filter(|session| session.phase == Phase::Live)?;
        let channels_max = self.context.options.client.channel_limit;
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
        let is_over = self.sessions.table.outbox_at(self.key.index).is_over_pace(
            &self.context.options.client,
            share,
            frames_to_come,
        );
        (waits_for_owners || is_over).then_some(share)
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
