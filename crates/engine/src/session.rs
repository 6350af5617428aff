//! A session: one client connection, on its shard.

mod paused;
mod table;

use core::net::IpAddr;
use std::sync::Arc;

use dunlin_protocol::{ClientInfo, Encoding, Payload, UnsubscribeCode};

use crate::{
    FrameClass, SessionKey, SourceKey, Wire, backend::ProxyRequestId, filters::FilterPlace, hub::LocalChannelId,
    seats::SeatIndex, timers::Scheduled,
};

pub(crate) use paused::{
    ConnectGrant, ConnectParams, Paused, PausedOn, PendingConnect, ProxiedCommand, ProxyCall, RefusedConnect, Share,
    SubscriptionParams, UnparsedCommands,
};
pub(crate) use table::SessionTable;

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Opened; nothing but `connect` is allowed.
    Fresh,
    /// Its `connect` was answered with an error; nothing is allowed any more.
    Refused,
    /// Authenticated; its server-side subscriptions are not all answered, and so its `connect` is not.
    Connecting,
    /// Its `connect` was answered.
    Live,
    /// Its last frame is queued.
    Closing,
}

/// One client connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) wire: Wire,
    /// The client's address, where it is known.
    pub(crate) source: Option<SourceKey>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) phase: Phase,
    /// Who it is; set by `connect`.
    pub(crate) info: Option<Arc<ClientInfo>>,
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) paused: Option<Box<Paused>>,
    pub(crate) deadlines: Deadlines,
    pub(crate) awaits_pong: bool,
    /// Pongs that may come beside that one: to pings that a paused session was sent while earlier ones were unanswered.
    pub(crate) late_pongs: u8,
    /// The bucket of its commands; see [`crate::pace::Pace`].
    pub(crate) commands_full_at_ns: u64,
    /// Commands that owners have yet to answer.
    pub(crate) requests_in_flight: u32,
    /// Whether one of them may have a large answer.
    pub(crate) awaits_large_reply: bool,
    /// Closing: who has sent a close frame.
    pub(crate) close_handshake: CloseHandshake,
    /// The bucket of its records; see [`crate::record::RecordOptions`].
    pub(crate) records_full_at_ns: u64,
    pub(crate) scheduled: Scheduled,
    /// Its place among its user's sessions.
    pub(crate) user_place: u32,
    /// The parts that few sessions have.
    pub(crate) extra: Option<Box<SessionExtra>>,
}

/// Which ends of a closing session have sent a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseHandshake {
    Neither,
    /// The peer.
    Received,
    /// The session has, and the caller closes the socket.
    Sent,
    Both,
}

/// What emulated and unidirectional sessions have, and those about which backends are asked.
#[derive(Debug, Default)]
pub(crate) struct SessionExtra {
    /// The id that the client alone knows; empty for none.
    pub(crate) secret: Box<str>,
    /// The meta of the session in requests to backends: JSON.
    pub(crate) meta: Option<Payload>,
    /// The question, unanswered so far, whether the session goes on.
    pub(crate) refresh: Option<ProxyRequestId>,
}

/// When something is due for a session, on the monotonic clock; `u64::MAX` for never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// Not authenticated, or not hung up, by then: over.
    pub(crate) end_us: u64,
    pub(crate) ping_us: u64,
    /// The pong to the last ping.
    pub(crate) pong_us: u64,
    /// The connection's expiry, grace included.
    pub(crate) expiry_us: u64,
    /// The earliest expiry of a subscription, grace included.
    pub(crate) subscriptions_us: u64,
}

/// A session's subscription to one channel.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) channel: LocalChannelId,
    /// Its place in the hub's list; `None` until the owner has answered.
    pub(crate) place: Option<u32>,
    pub(crate) flags: SubscriptionFlags,
    pub(crate) filter: Option<FilterPlace>,
    /// Expiry, grace included, on the monotonic clock; `u64::MAX` for never.
    pub(crate) expiry_us: u64,
    /// The parts that few subscriptions have.
    pub(crate) extra: Option<Box<SubscriptionExtra>>,
}

/// What a subscription gets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SubscriptionFlags {
    pub(crate) join_leave: bool,
    pub(crate) positioned: bool,
    pub(crate) recoverable: bool,
    /// Pushes carry the channel's number.
    pub(crate) compact: bool,
    /// Data is sent as differences.
    pub(crate) delta: bool,
    /// The server subscribed the session.
    pub(crate) server_side: bool,
    /// The connection token did.
    pub(crate) from_token: bool,
    /// The session is in the channel's presence.
    pub(crate) presence: bool,
    /// Other subscribers receive joins and leaves of the session.
    pub(crate) announced: bool,
}

/// What comes with a subscription token, waits for the owner's answer, or belongs to a room.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubscriptionExtra {
    /// The session's info with the channel info of the token.
    pub(crate) info: Option<Arc<ClientInfo>>,
    /// Seconds to live, for the reply.
    pub(crate) ttl_s: Option<u32>,
    /// Application bytes for the reply.
    pub(crate) data: Option<dunlin_protocol::Payload>,
    /// Set when the subscription was ended before the owner answered.
    pub(crate) ending: Option<Ending>,
    /// Its place in the channel's room.
    pub(crate) seat: Option<SeatIndex>,
    /// The question, unanswered so far, whether the subscription goes on.
    pub(crate) refresh: Option<ProxyRequestId>,
}

/// Who ended a subscription that its owner has not answered yet. It is dropped when the answer comes.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// The client, by the command that is answered then.
    Asked { command_id: u32 },
    /// The server API, the room or its game; the client receives a push.
    Forced { code: UnsubscribeCode, reason: Box<str> },
}

impl Session {
    /// A session that has just been opened and has until `end_us` to authenticate.
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

    /// What its messages are written in.
    pub(crate) const fn encoding(&self) -> Encoding {
        self.wire.encoding()
    }

    /// Which frames the subscription shares with others.
    pub(crate) const fn class(&self, flags: SubscriptionFlags) -> FrameClass {
        FrameClass { wire: self.wire, compact: flags.compact, delta: flags.delta }
    }

    /// Its subscription to `channel`.
    pub(crate) fn subscription(&self, channel: LocalChannelId) -> Option<&Subscription> {
        self.subscriptions.iter().find(|subscription| subscription.channel == channel)
    }

    /// Its subscription to `channel`.
    pub(crate) fn subscription_mut(&mut self, channel: LocalChannelId) -> Option<&mut Subscription> {
        self.subscriptions.iter_mut().find(|subscription| subscription.channel == channel)
    }

    /// Takes its subscription to `channel` off the list.
    pub(crate) fn remove_subscription(&mut self, channel: LocalChannelId) -> Option<Subscription> {
        let place = self.subscriptions.iter().position(|subscription| subscription.channel == channel)?;
        Some(self.subscriptions.swap_remove(place))
    }

    /// Takes note of a pong. Returns whether one was due.
    pub(crate) fn take_pong(&mut self) -> bool {
        if std::mem::take(&mut self.awaits_pong) {
            return true;
        }
        let fewer = self.late_pongs.checked_sub(1);
        self.late_pongs = fewer.unwrap_or(0);
        fewer.is_some()
    }

    /// Whether it is paused until earlier commands are answered and their replies are written.
    pub(crate) fn is_paused_for_pace(&self) -> bool {
        self.paused.as_ref().is_some_and(|paused| matches!(paused.paused_on, PausedOn::Pace(_)))
    }

    /// Whether it has a user, so that it is in that user's list.
    pub(crate) const fn is_authenticated(&self) -> bool {
        matches!(self.phase, Phase::Connecting | Phase::Live)
    }

    /// Whether it belongs to the anonymous user.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.info.as_ref().is_none_or(|info| info.user.is_empty())
    }
}

impl Subscription {
    /// Whether it was ended before the owner answered.
    pub(crate) fn is_ending(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.ending.is_some())
    }

    /// Its place in the channel's room.
    pub(crate) fn seat(&self) -> Option<SeatIndex> {
        self.extra.as_ref().and_then(|extra| extra.seat)
    }

    /// The session's info as this channel shows it.
    pub(crate) fn info<'a>(&'a self, of_session: &'a Arc<ClientInfo>) -> &'a Arc<ClientInfo> {
        self.extra.as_ref().and_then(|extra| extra.info.as_ref()).unwrap_or(of_session)
    }
}

impl SubscriptionExtra {
    /// Whether any of it is of use once the owner has answered.
    pub(crate) const fn outlives_answer(&self) -> bool {
        self.info.is_some() || self.seat.is_some() || self.refresh.is_some()
    }
}

impl SubscriptionFlags {
    /// Whether the owner has to know who it is.
    pub(crate) const fn needs_client_info(self) -> bool {
        self.presence || self.announced
    }
}

impl CloseHandshake {
    /// The peer has sent a close frame. Returns whether it is the first one.
    pub(crate) fn set_received(&mut self) -> bool {
        let (first, next) = match self {
            Self::Neither => (true, Self::Received),
            Self::Sent => (true, Self::Both),
            Self::Received | Self::Both => (false, *self),
        };
        *self = next;
        first
    }

    /// The caller was asked to send a close frame. Returns whether it is the first time.
    pub(crate) fn set_sent(&mut self) -> bool {
        let (first, next) = match self {
            Self::Neither => (true, Self::Sent),
            Self::Received => (true, Self::Both),
            Self::Sent | Self::Both => (false, *self),
        };
        *self = next;
        first
    }

    /// Whether the peer has.
    pub(crate) const fn is_received(self) -> bool {
        matches!(self, Self::Received | Self::Both)
    }

    /// Whether the session has sent its close frame.
    pub(crate) const fn is_sent(self) -> bool {
        matches!(self, Self::Sent | Self::Both)
    }
}

impl Deadlines {
    /// Nothing is ever due.
    pub(crate) const NEVER: Self = Self {
        end_us: u64::MAX,
        ping_us: u64::MAX,
        pong_us: u64::MAX,
        expiry_us: u64::MAX,
        subscriptions_us: u64::MAX,
    };

    /// The earliest.
    pub(crate) fn next_us(&self) -> u64 {
        self.end_us.min(self.ping_us).min(self.pong_us).min(self.expiry_us).min(self.subscriptions_us)
    }
}
