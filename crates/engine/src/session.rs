//! A session: one client connection, on its shard.

mod paused;
mod table;

use core::net::IpAddr;
use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use dunlin_protocol::{ClientInfo, Encoding, Payload, UnsubscribeCode};

use crate::{
    FrameClass, Now, RefillRate, SessionKey, ShardIndex, SourceKey, Wire,
    backend::ProxyRequestId,
    channel_creators::ChannelCreator,
    filters::FilterPlace,
    hub::{ListKey, LocalChannelId},
    message::{Subscriber, SubscriptionRequest},
    options::ClientOptions,
    pace::UpdatePace,
    session_seats::SeatIndex,
    shard::hash_of,
    timers::Scheduled,
};

pub(crate) use paused::{
    ConnectGrant, ConnectParams, Paused, PausedOn, PendingConnect, ProxiedCommand, ProxyCall, Share,
    SubscriptionParams, UnparsedCommands,
};
pub(crate) use table::SessionTable;

/// The phase of a session's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Opened; only `connect` is allowed.
    Fresh,
    /// `connect` was answered with an error; no command is allowed any more.
    Refused,
    /// Authenticated; its `connect` is not answered yet, because server-side subscriptions are pending.
    Connecting,
    /// `connect` was answered.
    Live,
    /// The last frame is queued.
    Closing,
}

/// One client connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) wire: Wire,
    /// The client's address, if known.
    pub(crate) source: Option<SourceKey>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) phase: Phase,
    /// The client's identity; set by `connect`.
    pub(crate) info: Option<Arc<ClientInfo>>,
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) paused: Option<Box<Paused>>,
    pub(crate) deadlines: Deadlines,
    pub(crate) awaits_pong: bool,
    /// Further pongs that may arrive: to pings sent to a paused session while earlier ones were unanswered.
    pub(crate) late_pongs: u8,
    /// The time from a ping to the last pong.
    pub(crate) round_trip: RoundTrip,
    /// The token bucket of its commands; see [`crate::token_bucket::RefillRate`].
    pub(crate) commands_full_at_ns: u64,
    /// Commands that owners have not answered yet.
    pub(crate) requests_in_flight: u32,
    /// Whether one of them may have a large answer.
    pub(crate) awaits_large_reply: bool,
    /// While closing: which ends have sent a close frame.
    pub(crate) close_handshake: CloseHandshake,
    /// The token bucket of its records; see [`crate::record::RecordOptions`].
    pub(crate) records_full_at_ns: u64,
    pub(crate) scheduled: Scheduled,
    /// The session's index among the sessions of its user.
    pub(crate) user_place: u32,
    /// Fields that few sessions need.
    pub(crate) extra: Option<Box<SessionExtra>>,
}

/// A duration in one byte: idle sessions pay for each. It is at most an eighth below the exact one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundTrip(u8);

impl RoundTrip {
    pub(crate) const UNKNOWN: Self = Self(0);

    /// The exponent and three further bits of the microseconds, as in a floating-point number.
    fn of(duration_us: u64) -> Self {
        let duration_us = duration_us.max(8);
        let exponent = duration_us.ilog2();
        let class = u64::from(exponent - 3) * 8 + (duration_us >> (exponent - 3)) % 8 + 1;
        Self(u8::try_from(class).unwrap_or(u8::MAX))
    }

    /// The duration; `None` if it is unknown.
    pub(crate) fn us(self) -> Option<u64> {
        let class = self.0.checked_sub(1)?;
        Some((8 + u64::from(class % 8)) << (class / 8))
    }
}

/// Which ends of a closing session have sent a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseHandshake {
    Neither,
    /// The peer.
    Received,
    /// The session has sent it, and the caller closes the socket.
    Sent,
    Both,
}

/// Fields of emulated and unidirectional sessions, of those authorized by a backend, of those that webhooks tell of, and of
/// those with joins that waited for other nodes.
#[derive(Debug, Default)]
pub(crate) struct SessionExtra {
    /// The id that only the client knows; empty for none.
    pub(crate) secret: Box<str>,
    /// The session's meta in requests to backends: JSON.
    pub(crate) meta: Option<Payload>,
    /// The pending refresh request.
    pub(crate) refresh: Option<ProxyRequestId>,
    /// When the session was admitted, if its end will be an event for the backend.
    pub(crate) connected_us: Option<u64>,
    /// Joins whose rooms are open, and whose answers do not fit into the session's queue now, in the order of their ends.
    pub(crate) due_joins: VecDeque<DueJoin>,
    /// When its latest lane and its rooms may be sent to again, if it has been sent the bytes that its pace allows.
    pub(crate) held_until_us: Option<u64>,
}

/// A join that waits until its answer fits into the session's queue.
#[derive(Debug)]
pub(crate) struct DueJoin {
    pub(crate) request: Box<SubscriptionRequest>,
    /// When it is refused: its room stays open for it until then.
    pub(crate) until_us: u64,
}

/// A session's deadlines on the monotonic clock; `u64::MAX` for never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// When the session is ended unless it has authenticated or, while closing, hung up.
    pub(crate) end_us: u64,
    pub(crate) ping_us: u64,
    /// When the pong to the last ping is overdue.
    pub(crate) pong_us: u64,
    /// The connection's expiry, including the grace period.
    pub(crate) expiry_us: u64,
    /// The earliest expiry of a subscription, including the grace period.
    pub(crate) subscriptions_us: u64,
}

/// A session's subscription to one channel.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) channel: LocalChannelId,
    /// The subscription's index in the hub's list; `None` until the owner has answered.
    pub(crate) place: Option<u32>,
    pub(crate) flags: SubscriptionFlags,
    pub(crate) filter: Option<FilterPlace>,
    /// Expiry including the grace period, on the monotonic clock; `u64::MAX` for never.
    pub(crate) expiry_us: u64,
    /// Fields that few subscriptions need.
    pub(crate) extra: Option<Box<SubscriptionExtra>>,
}

/// Options of a subscription.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SubscriptionFlags {
    pub(crate) join_leave: bool,
    pub(crate) positioned: bool,
    pub(crate) recoverable: bool,
    /// Pushes carry the channel's number.
    pub(crate) compact: bool,
    /// Data may be sent as patches.
    pub(crate) delta: bool,
    /// The server subscribed the session.
    pub(crate) server_side: bool,
    /// The connection token lists the subscription.
    pub(crate) from_token: bool,
    /// The session is in the channel's presence.
    pub(crate) presence: bool,
    /// Other subscribers receive joins and leaves of the session.
    pub(crate) announced: bool,
}

/// Fields for subscription tokens, for pending answers of the owner, and for rooms.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubscriptionExtra {
    /// The session's info with the channel info of the token.
    pub(crate) info: Option<Arc<ClientInfo>>,
    /// Seconds until the expiry, for the reply.
    pub(crate) ttl_s: Option<u32>,
    /// Application bytes for the reply.
    pub(crate) data: Option<dunlin_protocol::Payload>,
    /// Set when the subscription ended before the owner answered.
    pub(crate) ending: Option<Ending>,
    /// The session's seat in the channel's room.
    pub(crate) seat: Option<SeatIndex>,
    /// The pending refresh request.
    pub(crate) refresh: Option<ProxyRequestId>,
    pub(crate) pace: Option<UpdatePace>,
}

/// Why a subscription ended before its owner answered. It is removed when the answer arrives.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// The client unsubscribed; the command is answered then.
    Asked { command_id: u32 },
    /// The server API, the room or its game; the client receives a push.
    Forced { code: UnsubscribeCode, reason: Box<str> },
}

impl SessionExtra {
    /// A join that has waited longer for its room than one before it ends before that one.
    pub(crate) fn hold_join(&mut self, join: DueJoin) {
        let at = self.due_joins.partition_point(|other| other.until_us <= join.until_us);
        self.due_joins.insert(at, join);
    }
}

impl Session {
    /// A session that has just been opened and must authenticate before `end_us`.
    pub(crate) fn new(
        key: SessionKey,
        wire: Wire,
        (source, address): (Option<SourceKey>, Option<IpAddr>),
        end_us: u64,
    ) -> Self {
        Self {
            key,
            wire,
            source,
            address,
            phase: Phase::Fresh,
            info: None,
            subscriptions: Vec::new(),
            paused: None,
            deadlines: Deadlines { end_us, ..Deadlines::NEVER },
            awaits_pong: false,
            late_pongs: 0,
            round_trip: RoundTrip::UNKNOWN,
            commands_full_at_ns: 0,
            records_full_at_ns: 0,
            requests_in_flight: 0,
            awaits_large_reply: false,
            close_handshake: CloseHandshake::Neither,
            scheduled: Scheduled::default(),
            user_place: 0,
            extra: None,
        }
    }

    /// The encoding of its messages.
    pub(crate) const fn encoding(&self) -> Encoding {
        self.wire.encoding()
    }

    /// The frame class of a subscription with these flags.
    pub(crate) const fn class(&self, flags: SubscriptionFlags) -> FrameClass {
        FrameClass { wire: self.wire, compact: flags.compact, delta: flags.delta }
    }

    /// The list in the hub of a subscription with this pace. The players of a room are in one list: their seats have the
    /// paces.
    pub(crate) fn list_key(&self, subscription: &Subscription, pace: Option<UpdatePace>) -> ListKey {
        let is_paced = pace.is_some() && subscription.seat().is_none();
        ListKey::new(self.class(subscription.flags), subscription.filter, is_paced)
    }

    /// The time of its next deadline; `u64::MAX` for never.
    pub(crate) fn next_us(&self) -> u64 {
        let Some(extra) = &self.extra else { return self.deadlines.next_us() };
        let join_until_us = extra.due_joins.front().map(|join| join.until_us);
        let next_us = extra.held_until_us.into_iter().chain(join_until_us).min();
        self.deadlines.next_us().min(next_us.unwrap_or(u64::MAX))
    }

    /// Removes the first of the joins that wait until their answers fit, if it has waited too long.
    pub(crate) fn take_overdue_join(&mut self, now_us: u64) -> Option<Box<SubscriptionRequest>> {
        let joins = &mut self.extra.as_mut()?.due_joins;
        joins.pop_front_if(|join| join.until_us <= now_us).map(|join| join.request)
    }

    /// The session's subscription to `channel`.
    pub(crate) fn subscription(&self, channel: LocalChannelId) -> Option<&Subscription> {
        self.subscriptions.iter().find(|subscription| subscription.channel == channel)
    }

    /// The session's subscription to `channel`.
    pub(crate) fn subscription_mut(&mut self, channel: LocalChannelId) -> Option<&mut Subscription> {
        self.subscriptions.iter_mut().find(|subscription| subscription.channel == channel)
    }

    /// Removes its subscription to `channel`.
    pub(crate) fn remove_subscription(&mut self, channel: LocalChannelId) -> Option<Subscription> {
        let place = self.subscriptions.iter().position(|subscription| subscription.channel == channel)?;
        Some(self.subscriptions.swap_remove(place))
    }

    /// Records a pong. Returns whether one was expected.
    pub(crate) fn take_pong(&mut self) -> bool {
        if std::mem::take(&mut self.awaits_pong) {
            return true;
        }
        let fewer = self.late_pongs.checked_sub(1);
        self.late_pongs = fewer.unwrap_or(0);
        fewer.is_some()
    }

    /// After a pong: keeps the time since the last ping. `None` if the pong may answer an earlier ping.
    pub(crate) fn measure_pong(&mut self, client: &ClientOptions, now: Now) -> Option<u64> {
        let pinged_us = self.pinged_us(client).filter(|_| !self.awaits_pong && self.late_pongs == 0)?;
        let round_trip_us = now.mono_us.checked_sub(pinged_us)?;
        self.round_trip = RoundTrip::of(round_trip_us);
        Some(round_trip_us)
    }

    /// When the last ping was sent, if one was. It is one interval before the next, because the interval of a
    /// running node stays as it is.
    pub(crate) fn pinged_us(&self, client: &ClientOptions) -> Option<u64> {
        let next_us = Some(self.deadlines.ping_us).filter(|next_us| *next_us != u64::MAX)?;
        next_us.checked_sub(client.ping_interval_ms.saturating_mul(1_000))
    }

    /// A ping is sent now: sets the times of the next ping and of the pong.
    pub(crate) fn expect_pong(&mut self, client: &ClientOptions, now: Now) {
        self.deadlines.ping_us = now.after_ms(client.ping_interval_ms);
        self.late_pongs = self.late_pongs.saturating_add(u8::from(self.awaits_pong));
        // A pong may arrive even if none is required, except on unidirectional transports.
        self.awaits_pong = !self.wire.is_unidirectional();
        if client.pong_timeout_ms > 0 && self.awaits_pong {
            self.deadlines.pong_us = now.after_ms(client.pong_timeout_ms);
        }
    }

    /// Takes a token for one more command.
    pub(crate) fn try_take_command(&mut self, rate: RefillRate, now_us: u64) -> bool {
        let then_ns = rate.take(self.commands_full_at_ns, now_us);
        self.commands_full_at_ns = then_ns.unwrap_or(self.commands_full_at_ns);
        then_ns.is_some()
    }

    /// The client's bytes as a payload of its encoding; `None` if empty.
    pub(crate) fn payload(&self, data: &[u8]) -> Option<Payload> {
        let bytes = || Bytes::copy_from_slice(data);
        match self.encoding() {
            _ if data.is_empty() => None,
            Encoding::Json => Some(Payload::from_json(bytes())),
            Encoding::Protobuf => Some(Payload::from_opaque(bytes())),
        }
    }

    /// Its user; empty for the anonymous one.
    pub(crate) fn user(&self) -> Arc<str> {
        self.info.as_ref().map_or_else(|| Arc::from(""), |info| Arc::clone(&info.user))
    }

    /// Its identity for the limits on channels.
    pub(crate) fn creator(&self, shard: ShardIndex, node_seed: u64) -> ChannelCreator {
        let hash = |what: &(u8, u64, u64)| hash_of(what, node_seed) | 1;
        let user = self.info.as_ref().map(|info| &*info.user).filter(|user| !user.is_empty());
        let SessionKey { index, generation } = self.key;
        ChannelCreator {
            session: hash(&(0, u64::from(shard.0), u64::from(index) << 32 | u64::from(generation))),
            user: user.map_or(0, |user| hash(&(1, hash_of(user, node_seed), 0))),
            source: self.source.map_or(0, |source| hash(&(2, source.0.get(), 0))),
        }
    }

    /// What the owner of its channel stores of an accepted subscription.
    pub(crate) fn subscriber(&self, subscription: &Subscription) -> Subscriber {
        let info = self.info.as_ref().filter(|_| subscription.flags.needs_client_info());
        Subscriber {
            class: self.class(subscription.flags),
            join_leave: subscription.flags.join_leave,
            info: info.map(|info| Arc::clone(subscription.info(info))),
            presence: subscription.flags.presence,
            announced: subscription.flags.announced,
        }
    }

    /// Whether the session is paused until earlier commands are answered and their replies are written.
    pub(crate) fn is_paused_for_pace(&self) -> bool {
        self.paused.as_ref().is_some_and(|paused| matches!(paused.paused_on, PausedOn::Pace(_)))
    }

    /// Whether joins wait until their answers fit into the session's queue.
    pub(crate) fn has_due_joins(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| !extra.due_joins.is_empty())
    }

    /// Whether something waits until earlier commands are answered and their replies are written.
    pub(crate) fn waits_for_pace(&self) -> bool {
        self.is_paused_for_pace() || self.has_due_joins()
    }

    /// The share of its queue limits that must not be exceeded before what waits for that goes on.
    pub(crate) fn awaited_share(&self) -> Option<Share> {
        match self.paused.as_ref().map(|paused| &paused.paused_on) {
            Some(PausedOn::Pace(share)) => Some(*share),
            _ => self.has_due_joins().then_some(Share::Quarter),
        }
    }

    /// Whether it is authenticated, so that it is in its user's list.
    pub(crate) const fn is_authenticated(&self) -> bool {
        matches!(self.phase, Phase::Connecting | Phase::Live)
    }

    /// Who it is, if the backend may know of it: its `connect` was answered, and it goes on.
    pub(crate) fn told_info(&self) -> Option<Arc<ClientInfo>> {
        self.info.as_ref().filter(|_| self.phase == Phase::Live).map(Arc::clone)
    }

    /// Whether it belongs to the anonymous user.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.info.as_ref().is_none_or(|info| info.user.is_empty())
    }
}

impl Subscription {
    /// Whether the subscription ended before the owner answered.
    pub(crate) fn is_ending(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.ending.is_some())
    }

    /// The session's seat in the channel's room.
    pub(crate) fn seat(&self) -> Option<SeatIndex> {
        self.extra.as_ref().and_then(|extra| extra.seat)
    }

    pub(crate) fn pace(&self) -> Option<UpdatePace> {
        self.extra.as_ref().and_then(|extra| extra.pace)
    }

    pub(crate) fn set_pace(&mut self, pace: Option<UpdatePace>) {
        if pace.is_some() || self.extra.is_some() {
            self.extra.get_or_insert_default().pace = pace;
        }
    }

    /// The session's info in this channel.
    pub(crate) fn info<'a>(&'a self, of_session: &'a Arc<ClientInfo>) -> &'a Arc<ClientInfo> {
        self.extra.as_ref().and_then(|extra| extra.info.as_ref()).unwrap_or(of_session)
    }
}

impl SubscriptionExtra {
    /// Whether any field is still needed after the owner's answer.
    pub(crate) const fn outlives_answer(&self) -> bool {
        self.info.is_some() || self.seat.is_some() || self.refresh.is_some() || self.pace.is_some()
    }
}

impl SubscriptionFlags {
    /// Whether the owner needs the client's info.
    pub(crate) const fn needs_client_info(self) -> bool {
        self.presence || self.announced
    }
}

impl CloseHandshake {
    /// Records the peer's close frame. Returns whether it is the first one.
    pub(crate) fn set_received(&mut self) -> bool {
        let (first, next) = match self {
            Self::Neither => (true, Self::Received),
            Self::Sent => (true, Self::Both),
            Self::Received | Self::Both => (false, *self),
        };
        *self = next;
        first
    }

    /// Records that the caller was asked to send a close frame. Returns whether it is the first time.
    pub(crate) fn set_sent(&mut self) -> bool {
        let (first, next) = match self {
            Self::Neither => (true, Self::Sent),
            Self::Received => (true, Self::Both),
            Self::Sent | Self::Both => (false, *self),
        };
        *self = next;
        first
    }

    /// Whether the peer has sent a close frame.
    pub(crate) const fn is_received(self) -> bool {
        matches!(self, Self::Received | Self::Both)
    }

    /// Whether the session has sent its close frame.
    pub(crate) const fn is_sent(self) -> bool {
        matches!(self, Self::Sent | Self::Both)
    }
}

impl Deadlines {
    /// No deadline.
    pub(crate) const NEVER: Self = Self {
        end_us: u64::MAX,
        ping_us: u64::MAX,
        pong_us: u64::MAX,
        expiry_us: u64::MAX,
        subscriptions_us: u64::MAX,
    };

    /// The earliest deadline.
    pub(crate) fn next_us(&self) -> u64 {
        self.end_us.min(self.ping_us).min(self.pong_us).min(self.expiry_us).min(self.subscriptions_us)
    }
}
