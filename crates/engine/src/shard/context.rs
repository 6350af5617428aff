//! The state that the owner and the sessions of a shard share: identity, options, counters, timers and randomness.

use std::{collections::VecDeque, sync::Arc};

use dunlin_protocol::{Disconnect, ErrorCode, ShapeLimits};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

use crate::{
    Effect, Effects, Now, Options, SessionKey, ShardIndex,
    access_rules::{AccessLimits, AccessRules},
    api::{ApiAnswer, ApiResult},
    broadcast::BroadcastMessage,
    counters::{Counters, NamespaceCounters},
    event::{Ticket, TokenIdentity},
    frame::Scratch,
    lifecycle::{Lifecycle, LifecycleEvent, LifecycleKind},
    log::{LogError, PublicationLog},
    log_in_flight::ReplyTo,
    message::{Asker, HistoryPart, Notice, ShardMessage, ShardRequest, Subscriber},
    names::{Names, NamespaceIndex, namespace_options},
    options::NamespaceOptions,
    record::RecordLevel,
    refused::Refused,
    room::{Departure, LeftSeat, SeatKey},
    timers::Timers,
};

use super::{Seed, ShardIdentity, owner_of};

/// Lent to the owner and to the sessions, one after the other.
pub(super) struct Context {
    pub(super) identity: ShardIdentity,
    pub(super) options: Arc<Options>,
    pub(super) node_seed: u64,
    /// The time of the current event.
    pub(super) now: Now,
    pub(super) names: Names,
    /// Who may not connect.
    pub(super) access: AccessRules,
    pub(super) random: ChaCha8Rng,
    pub(super) timers: Timers,
    pub(super) counters: Counters,
    /// Publications until one is followed, unless none is.
    pub(super) until_followed: u32,
    /// Buffers that the encoders reuse.
    pub(super) scratch: Scratch,
    /// Messages of this shard to itself, handled before the current event ends.
    pub(super) local: VecDeque<ShardMessage>,
    /// The effects of the current event. Those of the caller, which lends them to [`super::Shard::handle`].
    pub(super) effects: Effects,
}

impl Context {
    pub(super) fn new(identity: ShardIdentity, options: Arc<Options>, seed: Seed) -> Self {
        Self {
            identity,
            node_seed: seed.node,
            // Replaced by the first event.
            now: Now { mono_us: 0, unix_ms: 0 },
            names: Names::new(&options, seed.node),
            access: first_rules(&options),
            random: ChaCha8Rng::from_seed(seed.shard),
            timers: Timers::default(),
            counters: Counters::new(options.namespaces.len() + 1),
            until_followed: 0,
            scratch: Scratch::new(options.client.compression),
            local: VecDeque::new(),
            effects: Effects::default(),
            options,
        }
    }

    /// Whether the publication that is accepted now is followed through its stages.
    pub(super) fn follows_next(&mut self) -> bool {
        let interval = self.options.following.publication_interval;
        if interval == 0 {
            return false;
        }
        let is_followed = self.until_followed == 0;
        self.until_followed = if is_followed { interval - 1 } else { self.until_followed - 1 };
        is_followed
    }

    /// Applies new options, made by [`Options::succeeded_by`] from the current ones; returns the former ones.
    pub(super) fn reconfigure(&mut self, options: Arc<Options>) -> Arc<Options> {
        let before = std::mem::replace(&mut self.options, options);
        let options = &self.options;
        assert!(
            before.namespaces.len() <= options.namespaces.len()
                && before.namespaces.iter().zip(&options.namespaces).all(|(old, new)| old.name == new.name),
            "a namespace keeps its number"
        );
        self.names = Names::new(options, self.node_seed);
        self.counters.namespaces.resize(options.namespaces.len() + 1, NamespaceCounters::default());
        before
    }

    /// The shard that owns `channel`, or the home of a user with that name.
    pub(super) fn owner(&self, channel: &str) -> ShardIndex {
        owner_of(channel, self.identity.count, self.node_seed)
    }

    pub(super) fn namespace(&self, namespace: NamespaceIndex) -> &NamespaceOptions {
        namespace_options(&self.options, namespace)
    }

    pub(super) fn count(&mut self, namespace: NamespaceIndex) -> &mut NamespaceCounters {
        &mut self.counters.namespaces[usize::from(namespace.0)]
    }

    /// Sends a request to a channel's owner or a user's home.
    pub(super) fn request(&mut self, owner: ShardIndex, request: ShardRequest) {
        self.send(owner, ShardMessage::Request(request));
    }

    /// Sends a notice to a shard with subscribers, or to one that sent a request.
    pub(super) fn notify(&mut self, to: ShardIndex, notice: Notice) {
        self.send(to, ShardMessage::Notice(notice));
    }

    fn send(&mut self, to: ShardIndex, message: ShardMessage) {
        if to == self.identity.index {
            self.local.push_back(message);
        } else {
            self.effects.list.push(Effect::Send { to, message });
        }
    }

    /// Sends a message to the other nodes that follow the channel.
    pub(super) fn broadcast(&mut self, name: &Arc<str>, message: BroadcastMessage) {
        self.effects.list.push(Effect::Broadcast { channel: Arc::clone(name), message });
    }

    /// Where the answer to a command of a session of this shard goes.
    pub(super) fn asker(&self, session: SessionKey, command_id: u32) -> Asker {
        Asker { shard: self.identity.index, session, command_id }
    }

    pub(super) fn answer_api(&mut self, ticket: Ticket, answer: ApiResult) {
        self.effects.list.push(Effect::Answer { ticket, answer });
    }

    /// Sends the publisher the outcome of its publication.
    pub(super) fn answer_publication(
        &mut self,
        name: &Arc<str>,
        reply_to: ReplyTo,
        outcome: Result<(u64, Box<str>), Refused>,
    ) {
        match reply_to {
            ReplyTo::Session(asker) => {
                let (channel, outcome) = (Arc::clone(name), outcome.map(|_| ()));
                self.notify(asker.shard, Notice::Published { channel, asker, outcome });
            }
            ReplyTo::Api(ticket) => {
                let answer = outcome.map(|(offset, epoch)| ApiAnswer::Published { offset, epoch });
                self.answer_api(ticket, answer);
            }
            ReplyTo::Room => self.counters.room_publications_refused += u64::from(outcome.is_err()),
            ReplyTo::Nobody => {}
        }
    }

    /// Sends the reader a part of a history.
    pub(super) fn answer_history(&mut self, name: &Arc<str>, reply_to: ReplyTo, outcome: Result<HistoryPart, Refused>) {
        match reply_to {
            ReplyTo::Session(asker) => {
                let notice = Notice::History { channel: Arc::clone(name), asker, outcome: outcome.map(Box::new) };
                self.notify(asker.shard, notice);
            }
            ReplyTo::Api(ticket) => {
                let answer = outcome.map(|part| ApiAnswer::History {
                    publications: part.publications,
                    epoch: part.epoch,
                    offset: part.offset,
                    is_cut: part.is_cut,
                });
                self.answer_api(ticket, answer);
            }
            ReplyTo::Room | ReplyTo::Nobody => {}
        }
    }

    /// Answers the removal of a history: only what is stored stays removed after a crash.
    pub(super) fn answer_trim(&mut self, ticket: Ticket, outcome: Result<(), LogError>) {
        self.answer_api(ticket, outcome.map(|()| ApiAnswer::Done { sessions: 0 }).map_err(Refused::from));
    }

    /// Whether records of this level are enabled.
    pub(super) fn records(&self, level: RecordLevel) -> bool {
        self.options.records.level >= level
    }

    /// Whether the backend receives this event about channels of the namespace.
    pub(super) fn tells(&self, kind: LifecycleKind, namespace: NamespaceIndex) -> bool {
        self.namespace(namespace).channel_events && self.options.lifecycle.contains(kind)
    }

    /// Tells the backend what happened. The caller has checked that it wants to know.
    pub(super) fn tell(&mut self, what: Lifecycle) {
        self.effects.lifecycle.push(LifecycleEvent { unix_ms: self.now.unix_ms, what });
    }

    /// As [`Self::tell`], if the backend wants this kind of event, whatever the namespace says.
    pub(super) fn tell_if_wanted(&mut self, what: Lifecycle) {
        let event = LifecycleEvent { unix_ms: self.now.unix_ms, what };
        if self.options.lifecycle.contains(event.kind()) {
            self.effects.lifecycle.push(event);
        }
    }

    /// The namespace of the channel that a request names.
    pub(super) fn resolve(&self, channel: &str) -> Result<NamespaceIndex, Refused> {
        self.names.resolve(channel).map_err(|code| {
            let why = match code {
                ErrorCode::UnknownChannel => "the namespace of the channel is not configured",
                _ if channel.len() > self.options.channel.name_bytes_max => {
                    "the name of the channel is longer than channel.max_length"
                }
                _ => "the name of the channel is not ASCII, or does not match channel_regex of its namespace",
            };
            Refused::new(code, why)
        })
    }

    /// Refuses a user's token that is revoked, which is counted.
    pub(super) fn check_revoked(&mut self, user: &str, token: &TokenIdentity) -> Result<(), Disconnect> {
        if self.access.is_revoked(user, token, self.now.unix_ms) {
            self.counters.revoked_tokens += 1;
            return Err(Disconnect::INVALID_TOKEN);
        }
        Ok(())
    }

    /// Checks that the namespace of a channel has what a request needs; `off` says that it has not.
    pub(super) fn require(
        &self,
        channel: &str,
        has: impl FnOnce(&NamespaceOptions) -> bool,
        off: &'static str,
    ) -> Result<(), Refused> {
        let namespace = self.resolve(channel)?;
        if has(self.namespace(namespace)) { Ok(()) } else { Err(Refused::new(ErrorCode::NotAvailable, off)) }
    }

    /// Whether the channel is a room. Its history contains only the game's events, in the order of its ticks.
    pub(super) fn is_room(&self, channel: &str) -> bool {
        self.names.resolve(channel).is_ok_and(|namespace| self.namespace(namespace).room.is_some())
    }

    /// Whether deliveries without an offset are broadcast to other nodes.
    pub(super) fn is_shared(&self, namespace: NamespaceIndex) -> bool {
        let options = self.namespace(namespace);
        options.is_clustered && options.room.is_none()
    }

    /// Whether the channel's publications are stored in a log.
    pub(super) fn is_logged(&self, namespace: NamespaceIndex) -> bool {
        let options = self.namespace(namespace);
        options.log != PublicationLog::Memory && options.has_stream()
    }

    /// The same by name; false for a name that new options no longer allow.
    pub(super) fn is_logged_name(&self, name: &str) -> bool {
        self.names.resolve(name).is_ok_and(|namespace| self.is_logged(namespace))
    }

    /// Whether other nodes may have keys of the namespace's channels, and no log has them.
    pub(super) fn has_keys_on_peers(&self, namespace: NamespaceIndex) -> bool {
        self.is_shared(namespace) && !self.is_logged(namespace) && self.options.log.has_peers()
    }

    /// Whether a channel of the namespace may have older keys than those in memory.
    pub(super) fn may_lack_keys(&self, namespace: NamespaceIndex) -> bool {
        self.is_logged(namespace) || self.has_keys_on_peers(namespace)
    }

    /// Whether the user's sessions on the node are counted.
    pub(super) fn counts_sessions_of(&self, user: &str) -> bool {
        !user.is_empty() && self.has_homes()
    }

    /// Whether users have homes.
    pub(super) fn has_homes(&self) -> bool {
        self.options.client.user_sessions_max > 0 || self.ends_older_sessions()
    }

    pub(super) fn ends_older_sessions(&self) -> bool {
        self.options.client.personal_channel.as_ref().is_some_and(|personal| personal.single_connection)
    }

    /// An id in the form of a UUID, version 4 (RFC 9562).
    pub(super) fn new_client_id(&mut self) -> Arc<str> {
        let (high, low) = (self.random.next_u64(), self.random.next_u64());
        let high = (high & !0xf000) | 0x4000;
        let low = (low & !(0b11 << 62)) | (0b10 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
        .into()
    }

    /// Limits on the nesting depth and the width of a client's message.
    pub(super) fn shape_limits(&self) -> ShapeLimits {
        let client = &self.options.client;
        ShapeLimits { json_depth_max: client.json_depth_max, object_keys_max: client.object_keys_max }
    }

    /// Tells the home of a user that a session has ended.
    pub(super) fn send_depart(&mut self, user: &Arc<str>, session: SessionKey) {
        let request = ShardRequest::Depart { user: Arc::clone(user), shard: self.identity.index, session };
        self.request(self.owner(user), request);
    }

    /// Tells the owner of a channel that a subscription has ended.
    pub(super) fn leave_owner(&mut self, channel: Arc<str>, subscriber: Subscriber, seat: Option<LeftSeat>) {
        let owner = self.owner(&channel);
        let request = ShardRequest::Unsubscribe { channel, shard: self.identity.index, subscriber, seat };
        self.request(owner, request);
    }

    /// Tells the owner that a seat which its room has just taken back is free.
    pub(super) fn leave_room(&mut self, channel: Arc<str>, seat: LeftSeat) {
        let owner = self.owner(&channel);
        self.request(owner, ShardRequest::LeaveRoom { channel, seat });
    }

    /// Tells the owner that nobody waits for a join any more.
    pub(super) fn abandon_join(&mut self, channel: Arc<str>, seat: SeatKey, departure: Departure) {
        // Without other nodes, no join asks again, and the room needs to know only of a client that may come back.
        if departure == Departure::Lost || self.options.log.has_peers() {
            let owner = self.owner(&channel);
            self.request(owner, ShardRequest::AbandonJoin { channel, seat, departure });
        }
    }

    /// Tells the owner that a join that it has sent to the session ([`Notice::JoinDue`]) does not come back.
    pub(super) fn drop_due_join(&mut self, channel: Arc<str>, seat: SeatKey) {
        let owner = self.owner(&channel);
        self.request(owner, ShardRequest::AbandonJoin { channel, seat, departure: Departure::Left });
    }
}

/// The rules of the start. Those that have ended in the meantime refuse nobody, and leave with the first request.
fn first_rules(options: &Options) -> AccessRules {
    let mut rules = AccessRules::new(AccessLimits::NONE);
    for rule in options.access_rules.iter().flat_map(|rules| rules.iter()) {
        rules.apply(rule.clone(), 0);
    }
    rules
}
