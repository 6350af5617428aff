//! From a frame to commands, and from a command to the method that carries it out (client protocol, dispatch rules).

use dunlin_protocol::{Command, Commands, Disconnect, ErrorCode, NotJson, Push, Reply, Request};

use crate::{
    Effect, Effects, Now, SessionKey,
    counters::COMMAND_KINDS,
    frame::{FrameRef, build_frame, encode_push_on, reply_frame},
    pace::Pace,
    session::{Held, Phase, Rest, Waiting},
};

use super::Shard;

impl Shard {
    /// Carries out the commands of one frame, up to the first that has to wait.
    pub(super) fn receive(&mut self, now: Now, key: SessionKey, frame: &[u8], effects: &mut Effects) {
        if self.sessions.get(key).is_some_and(|session| session.wire.is_unidirectional()) {
            return self.receive_connect(now, key, frame, effects);
        }
        let commands_max = self.options.client.commands_per_frame_max;
        self.carry_out_all(now, key, frame, commands_max, effects);
    }

    fn carry_out_all(&mut self, now: Now, key: SessionKey, frame: &[u8], commands_max: usize, effects: &mut Effects) {
        let Some(session) = self.sessions.get(key) else { return };
        debug_assert!(session.held.is_none(), "nothing is received while a session is paused");
        if session.phase == Phase::Closing {
            return;
        }
        let mut commands = Commands::new(session.encoding(), frame).within(self.shape_limits());
        let mut left = commands_max;
        loop {
            let (before, allowed) = (commands.rest(), left);
            let Some(command) = commands.next() else { return };
            let (Ok(command), Some(fewer)) = (command, left.checked_sub(1)) else {
                self.counters.malformed_frames += 1;
                return self.close(now, key, &Disconnect::BAD_REQUEST, effects);
            };
            left = fewer;
            if let Some(waiting) = self.has_to_wait(key, &command) {
                self.hold(key, waiting, effects);
                return self.keep_rest(key, before, allowed);
            }
            if let Err(disconnect) = self.dispatch(now, key, &command, effects) {
                return self.close(now, key, &disconnect, effects);
            }
            // Before the next command, so that what this shard answers itself is answered in the order of the commands.
            self.settle(now, effects);
            let Some(session) = self.sessions.get(key) else { return };
            if session.phase == Phase::Closing {
                return;
            }
            if session.held.is_some() {
                return self.keep_rest(key, commands.rest(), left);
            }
        }
    }

    fn keep_rest(&mut self, key: SessionKey, rest: &[u8], commands_max: usize) {
        if let Some(held) = self.sessions.get_mut(key).and_then(|session| session.held.as_mut()) {
            held.rest = Rest { commands: rest.to_vec(), commands_max };
        }
    }

    /// Goes on where the session was held, now that what it waited for is there. If there is something else to wait for,
    /// the rest waits for that.
    pub(super) fn resume(&mut self, now: Now, key: SessionKey, rest: Rest, effects: &mut Effects) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let Some(held) = &mut session.held {
            held.rest = rest;
            return;
        }
        if !rest.commands.is_empty() {
            self.carry_out_all(now, key, &rest.commands, rest.commands_max, effects);
        }
        let is_held = self.sessions.get(key).is_none_or(|session| session.held.is_some());
        if !is_held {
            effects.list.push(Effect::Resume { session: key });
        }
    }

    /// A subscribe command waits until an earlier subscription to the channel, which is over, is answered by its owner:
    /// so their answers, joins and leaves keep their order.
    fn has_to_wait(&self, key: SessionKey, command: &Command<'_>) -> Option<Waiting> {
        let Some(Request::Subscribe(subscribe)) = &command.request else { return None };
        let channel = self.hub.find(&subscribe.channel)?;
        let is_ending = self.sessions.get(key)?.subscription(channel)?.is_ending();
        (is_ending && command.id > 0).then_some(Waiting::Ending { channel })
    }

    /// Carries out one command, or says with which code the session ends.
    fn dispatch(
        &mut self,
        now: Now,
        key: SessionKey,
        command: &Command<'_>,
        effects: &mut Effects,
    ) -> Result<(), Disconnect> {
        let Some(session) = self.sessions.get_mut(key) else { return Ok(()) };
        let is_connect = matches!(command.request, Some(Request::Connect(_)));
        let allowed = match session.phase {
            Phase::Fresh => is_connect,
            Phase::Live => true,
            Phase::Refused | Phase::Connecting | Phase::Closing => false,
        };
        if !allowed {
            return Err(Disconnect::BAD_REQUEST);
        }
        let is_send = matches!(command.request, Some(Request::Send { .. }));
        if command.id == 0 && !is_send {
            self.counters.commands[COMMAND_KINDS.len() - 1] += 1;
            return if std::mem::take(&mut session.awaits_pong) { Ok(()) } else { Err(Disconnect::BAD_REQUEST) };
        }
        let Some(request) = &command.request else { return Err(Disconnect::BAD_REQUEST) };
        self.counters.commands[kind(request)] += 1;
        if !self.takes_command(now, key, request) {
            self.counters.commands_refused += 1;
            self.reply(now, key, command.id, &Reply::Error(ErrorCode::TooManyRequests), effects);
            return Ok(());
        }
        let answer = self.carry_out(now, key, command.id, request, effects)?;
        if let Some(reply) = answer {
            self.reply(now, key, command.id, &reply, effects);
        }
        Ok(())
    }

    /// Whether the session may have one more command carried out now. What begins it, what gives something back, and what
    /// has no answer (inputs of rooms have a rate of their own) always may.
    fn takes_command(&mut self, now: Now, key: SessionKey, request: &Request<'_>) -> bool {
        if matches!(request, Request::Connect(_) | Request::Unsubscribe { .. } | Request::Send { .. }) {
            return true;
        }
        let Some(pace) = Pace::new(self.options.client.commands_per_second) else { return true };
        let Some(session) = self.sessions.get_mut(key) else { return true };
        let then_ns = pace.take(session.commands_full_at_ns, now.mono_us);
        session.commands_full_at_ns = then_ns.unwrap_or(session.commands_full_at_ns);
        then_ns.is_some()
    }

    /// Does what `request` asks. An answer that is there at once is returned, one that another shard gives comes later.
    fn carry_out(
        &mut self,
        now: Now,
        key: SessionKey,
        command_id: u32,
        request: &Request<'_>,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Disconnect> {
        let outcome = match request {
            Request::Connect(connect) => {
                return self.connect(now, key, command_id, connect, effects).map(|()| None);
            }
            Request::Subscribe(subscribe) => return self.subscribe(now, key, command_id, subscribe, effects),
            Request::Unsubscribe { channel } => return self.unsubscribe(key, command_id, channel, effects),
            Request::Refresh { token } => return self.refresh(key, command_id, token, effects).map(|()| None),
            Request::SubRefresh(refresh) => return self.sub_refresh(key, command_id, refresh, effects),
            Request::Publish(publish) => return self.publish(now, key, command_id, publish, effects),
            Request::Presence { channel } => return self.ask_presence(key, command_id, channel, effects),
            Request::PresenceStats { channel } => return self.ask_presence_stats(key, command_id, channel, effects),
            Request::History(history) => return self.ask_history(key, command_id, history, effects),
            Request::Send { data } => return self.send_input(now, key, *data, effects).map(|()| None),
            Request::Rpc(rpc) => return Ok(self.call(key, command_id, rpc, effects)),
            Request::Ping => Reply::Error(ErrorCode::NotAvailable),
        };
        Ok(Some(outcome))
    }

    /// Pauses the session until its token is verified.
    pub(super) fn wait_for_token(&mut self, key: SessionKey, waiting: Waiting, token: &str, effects: &mut Effects) {
        let is_subscription = matches!(waiting, Waiting::Subscribe { .. } | Waiting::SubRefresh { .. });
        self.hold(key, waiting, effects);
        let token = token.into();
        effects.list.push(if is_subscription {
            Effect::AuthorizeSubscription { session: key, token }
        } else {
            Effect::Authenticate { session: key, token }
        });
    }

    /// Pauses the session until it has what it waits for.
    pub(super) fn hold(&mut self, key: SessionKey, waiting: Waiting, effects: &mut Effects) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.held = Some(Box::new(Held { waiting, rest: Rest::default() }));
        effects.list.push(Effect::Pause { session: key });
    }

    /// Queues the reply to a command.
    pub(super) fn reply(&mut self, now: Now, key: SessionKey, id: u32, reply: &Reply, effects: &mut Effects) {
        if let Reply::Error(code) = reply {
            self.counters.error_replies[code.code() as usize - 100] += 1;
        }
        let Some(session) = self.sessions.get(key) else { return };
        let frame = reply_frame(session.wire, id, reply, &mut self.scratch, now.mono_us);
        self.queue_encoded(now, key, frame, effects);
    }

    /// Queues a push to one session.
    pub(super) fn push(&mut self, now: Now, key: SessionKey, push: &Push<'_>, effects: &mut Effects) {
        let Some(session) = self.sessions.get(key) else { return };
        let wire = session.wire;
        let frame = build_frame(wire, &mut self.scratch, |out| encode_push_on(wire, push, out));
        self.queue_encoded(now, key, frame.map(|bytes| FrameRef::own(bytes, now.mono_us)), effects);
    }

    /// Queues a frame, or closes a session that cannot be sent what it would carry.
    fn queue_encoded(&mut self, now: Now, key: SessionKey, frame: Result<FrameRef, NotJson>, effects: &mut Effects) {
        match frame {
            Ok(frame) => self.queue_frame(now, key, frame, effects),
            Err(NotJson) => self.close(now, key, &Disconnect::INAPPROPRIATE_PROTOCOL, effects),
        }
    }

    /// Puts a frame into the reliable lane of a session that is not closing; one that is too far behind is closed.
    pub(super) fn queue_frame(&mut self, now: Now, key: SessionKey, frame: FrameRef, effects: &mut Effects) {
        let is_open = self.sessions.get(key).is_some_and(|session| session.phase != Phase::Closing);
        if !is_open {
            return;
        }
        let outbox = self.sessions.outbox(key.index);
        outbox.push(frame);
        if !std::mem::replace(&mut outbox.listed, true) {
            effects.dirty.push(key);
        }
        if self.is_too_far_behind(key.index) {
            self.close_slow(now, key, effects);
        }
    }

    /// Whether more waits for the session than may.
    pub(super) fn is_too_far_behind(&mut self, index: u32) -> bool {
        self.sessions.outbox(index).is_too_far_behind(&self.options.client)
    }
}

/// The place of a request among [`COMMAND_KINDS`].
fn kind(request: &Request<'_>) -> usize {
    match request {
        Request::Connect(_) => 0,
        Request::Subscribe(_) => 1,
        Request::Unsubscribe { .. } => 2,
        Request::Publish(_) => 3,
        Request::Presence { .. } => 4,
        Request::PresenceStats { .. } => 5,
        Request::History(_) => 6,
        Request::Ping => 7,
        Request::Send { .. } => 8,
        Request::Rpc(_) => 9,
        Request::Refresh { .. } => 10,
        Request::SubRefresh(_) => 11,
    }
}
