//! Sessions by index. Their outboxes, which every delivery touches, are stored densely in a table of their own.

use crate::{
    Effect, Effects, SessionKey,
    frame::FrameRef,
    hub::LocalChannelId,
    options::ClientOptions,
    outbox::Outbox,
    timers::{TimerOwner, Timers},
};

use super::{Paused, PausedOn, Phase, Session, Share, UnparsedCommands};

/// All sessions of a shard.
#[derive(Default)]
pub(crate) struct SessionTable {
    sessions: Vec<Option<Box<Session>>>,
    outboxes: Vec<Outbox>,
    count: usize,
}

impl SessionTable {
    /// Adds a session at the index of its key, which is free.
    pub(crate) fn insert(&mut self, session: Session) {
        let index = session.key.index as usize;
        if index >= self.sessions.len() {
            self.sessions.resize_with(index + 1, || None);
            self.outboxes.resize_with(index + 1, Outbox::default);
        }
        assert!(self.sessions[index].is_none(), "an index is used again only after Event::Gone");
        let outbox = &mut self.outboxes[index];
        (outbox.generation, outbox.in_use) = (session.key.generation, true);
        self.sessions[index] = Some(Box::new(session));
        self.count += 1;
    }

    /// Removes a session and its outbox.
    pub(crate) fn remove(&mut self, key: SessionKey) -> Option<Box<Session>> {
        self.get(key)?;
        self.outboxes[key.index as usize] = Outbox::default();
        self.count -= 1;
        self.sessions[key.index as usize].take()
    }

    /// The session, if it still exists.
    pub(crate) fn get(&self, key: SessionKey) -> Option<&Session> {
        self.sessions.get(key.index as usize)?.as_deref().filter(|session| session.key == key)
    }

    /// The session, if it still exists.
    pub(crate) fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.sessions.get_mut(key.index as usize)?.as_deref_mut().filter(|session| session.key == key)
    }

    /// The session at `index`. It must exist, as it does if the hub or the user index contains it.
    pub(crate) fn at(&self, index: u32) -> &Session {
        self.sessions[index as usize].as_deref().expect("indices drop a session before it ends")
    }

    /// The session at `index`. It must exist, as it does if the hub or the user index contains it.
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut Session {
        self.sessions[index as usize].as_deref_mut().expect("indices drop a session before it ends")
    }

    /// Ends the wait of a session, if it waits for this.
    pub(crate) fn take_paused(&mut self, key: SessionKey, waits: impl Fn(&PausedOn) -> bool) -> Option<Paused> {
        let paused = self.get_mut(key)?.paused.take_if(|paused| waits(&paused.paused_on))?;
        Some(*paused)
    }

    /// The outbox of the session, if it still exists.
    pub(crate) fn outbox_of(&mut self, key: SessionKey) -> Option<&mut Outbox> {
        let outbox = self.outboxes.get_mut(key.index as usize)?;
        (outbox.in_use && outbox.generation == key.generation).then_some(outbox)
    }

    /// The outbox of the session at `index`.
    pub(crate) fn outbox(&mut self, index: u32) -> &mut Outbox {
        &mut self.outboxes[index as usize]
    }

    /// The outbox of the session at `index`, to read it.
    pub(crate) fn outbox_at(&self, index: u32) -> &Outbox {
        &self.outboxes[index as usize]
    }

    /// All outboxes, by index.
    pub(crate) fn outboxes(&mut self) -> &mut [Outbox] {
        &mut self.outboxes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter().flatten().map(|session| &**session)
    }

    /// The first session at or after `index`.
    pub(crate) fn next_from(&self, index: u32) -> Option<SessionKey> {
        let rest = self.sessions.get(index as usize..)?;
        rest.iter().find_map(|session| Some(session.as_ref()?.key))
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Pauses the session.
    pub(crate) fn pause(&mut self, key: SessionKey, paused_on: PausedOn, effects: &mut Effects) {
        if matches!(paused_on, PausedOn::Pace(_)) {
            self.outbox(key.index).pace();
        }
        let Some(session) = self.get_mut(key) else { return };
        session.paused = Some(Box::new(Paused { paused_on, unparsed: UnparsedCommands::default() }));
        effects.list.push(Effect::Pause { session: key });
    }

    /// Pauses the session until its token is verified.
    pub(crate) fn wait_for_token(&mut self, key: SessionKey, paused_on: PausedOn, token: &str, effects: &mut Effects) {
        let is_subscription = matches!(paused_on, PausedOn::Subscribe { .. } | PausedOn::SubRefresh { .. });
        self.pause(key, paused_on, effects);
        let token = token.into();
        effects.list.push(if is_subscription {
            Effect::AuthorizeSubscription { session: key, token }
        } else {
            Effect::Authenticate { session: key, token }
        });
    }

    /// Stores the commands after the one that waits.
    pub(crate) fn keep_unparsed(&mut self, key: SessionKey, unparsed: UnparsedCommands) {
        if let Some(paused) = self.get_mut(key).and_then(|session| session.paused.as_mut()) {
            paused.unparsed = unparsed;
        }
    }

    /// The commands to resume, unless the session has ended or waits for something else.
    pub(crate) fn unparsed_to_carry_out(
        &mut self,
        key: SessionKey,
        unparsed: UnparsedCommands,
    ) -> Option<UnparsedCommands> {
        match &mut self.get_mut(key)?.paused {
            Some(paused) => {
                paused.unparsed = unparsed;
                None
            }
            None => Some(unparsed),
        }
    }

    pub(crate) fn is_gone(&self, key: SessionKey) -> bool {
        self.get(key).is_none()
    }

    pub(crate) fn is_paused(&self, key: SessionKey) -> bool {
        self.get(key).is_some_and(|session| session.phase != Phase::Closing && session.paused.is_some())
    }

    pub(crate) fn is_paused_or_gone(&self, key: SessionKey) -> bool {
        self.get(key).is_none_or(|session| session.paused.is_some())
    }

    /// The socket of a session with waiting commands has accepted bytes.
    pub(crate) fn pace_progresses(&mut self, key: SessionKey, client: &ClientOptions, effects: &mut Effects) {
        let Some(share) = self.get(key).and_then(Session::awaited_share) else { return };
        let outbox = self.outbox(key.index);
        if !outbox.is_over_pace(client, share, 0) {
            outbox.end_pace();
            effects.list.push(Effect::Recall { session: key });
        }
    }

    /// An owner has answered a command.
    pub(crate) fn owner_replied(&mut self, key: SessionKey, was_reply_large: bool, effects: &mut Effects) {
        let Some(session) = self.get_mut(key) else { return };
        session.requests_in_flight -= 1;
        session.awaits_large_reply &= !was_reply_large;
        if session.waits_for_pace() {
            effects.list.push(Effect::Recall { session: key });
        }
    }

    /// The large answer that a session awaits takes longer than its other commands wait.
    pub(crate) fn large_reply_is_late(&mut self, key: SessionKey, effects: &mut Effects) {
        let Some(session) = self.get_mut(key) else { return };
        session.awaits_large_reply = false;
        if session.waits_for_pace() {
            effects.list.push(Effect::Recall { session: key });
        }
    }

    /// Resumes a session that waits to subscribe again to a channel, after its former subscription has ended.
    pub(crate) fn recall_after_ending(&mut self, key: SessionKey, id: LocalChannelId, effects: &mut Effects) {
        let paused = self.get_mut(key).and_then(|session| session.paused.as_mut());
        let waits_for =
            |paused: &&mut Box<Paused>| matches!(paused.paused_on, PausedOn::Ending { channel } if channel == id);
        if let Some(paused) = paused.filter(waits_for) {
            paused.paused_on = PausedOn::Pace(Share::Quarter);
            effects.list.push(Effect::Recall { session: key });
        }
    }

    pub(crate) fn is_due_at(&self, key: SessionKey, due_us: u64) -> bool {
        self.get(key).is_some_and(|session| session.scheduled.is_at(due_us))
    }

    /// Schedules the session's next deadline.
    pub(crate) fn schedule(&mut self, key: SessionKey, timers: &mut Timers) {
        let Some(session) = self.get_mut(key) else { return };
        let due_us = session.next_us();
        if due_us != u64::MAX {
            timers.schedule(&mut session.scheduled, due_us, || TimerOwner::Session(key));
        }
    }

    /// Appends a reply to the outbox of a session that is not closing.
    pub(crate) fn queue_reply(&mut self, key: SessionKey, frame: FrameRef, effects: &mut Effects) {
        let is_open = self.get(key).is_some_and(|session| session.phase != Phase::Closing);
        if is_open {
            let outbox = self.outbox(key.index);
            outbox.push(frame);
            outbox.list(key.index, effects);
        }
    }

    /// Bytes and frames queued for the session's socket; `None` if there is no such session.
    pub(crate) fn queued(&self, key: SessionKey) -> Option<(usize, usize)> {
        self.get(key)?;
        let outbox = &self.outboxes[key.index as usize];
        Some((outbox.queued_bytes(), outbox.queued_frames()))
    }

    /// Whether there is anything to write to the session's socket.
    pub(crate) fn has_outgoing(&self, key: SessionKey) -> bool {
        self.get(key).is_some_and(|_| self.outboxes[key.index as usize].is_writable())
    }
}
