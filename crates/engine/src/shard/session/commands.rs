//! Splits a frame into commands and dispatches each to its method (client protocol, dispatch rules).

use std::ops::ControlFlow;

use dunlin_protocol::{Command, Commands, Disconnect, ErrorCode, NotJson, Push, Reply, Request};

use crate::{
    Effect, Effects, SessionKey,
    counters::CommandKind,
    frame::{FrameRef, build_frame, encode_push_on, reply_frame},
    pace::Pace,
    planted::Bug,
    refused::{Refused, RefusedCommand},
    session::{Paused, PausedOn, Phase, Subscription, UnparsedCommands},
};

use super::{Context, Sessions, close::Cause, recording::channel_of};

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
        let Some(pace) = Pace::new(context.options.client.commands_per_second) else { return true };
        let Some(session) = self.table.get_mut(key) else { return true };
        let then_ns = pace.take(session.commands_full_at_ns, context.now.mono_us);
        session.commands_full_at_ns = then_ns.unwrap_or(session.commands_full_at_ns);
        then_ns.is_some()
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
            Request::Presence { channel } => self.ask_presence(context, key, command_id, channel),
            Request::PresenceStats { channel } => self.ask_presence_stats(context, key, command_id, channel),
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
}

/// The number of an error reply.
pub(super) const fn error_number(reply: &Reply) -> u32 {
    match reply {
        Reply::Error(code) => code.code(),
        Reply::Refused { code, .. } => *code as u32,
        _ => ErrorCode::Internal.code(),
    }
}
