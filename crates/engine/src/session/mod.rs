//! A session: one client connection, as its shard knows it.

mod table;

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{ClientInfo, Encoding, UnsubscribeCode};

use crate::{FrameClass, SessionKey, Wire, hub::LocalChannelId, seats::SeatIndex, timers::Scheduled};

pub(crate) use table::SessionTable;

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Opened; nothing but `connect` is allowed.
    Fresh,
    /// Its `connect` was answered with an error; nothing is allowed any more.
    Refused,
    /// Authenticated.
    Live,
    /// Its last frame is queued.
    Closing,
}

/// What a session waits for, and what it does after that. It is paused meanwhile.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) waiting: Waiting,
    /// The commands of the frame that come next.
    pub(crate) rest: Vec<u8>,
    /// How many they may be.
    pub(crate) commands_max: usize,
}

/// What a session waits for.
#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    /// A connection token, presented by `connect`.
    Connect { command_id: u32 },
    /// A connection token, presented by `refresh`.
    Refresh { command_id: u32 },
    /// A subscription token, presented by `subscribe`.
    Subscribe { command_id: u32, wish: Box<SubscribeWish> },
    /// A subscription token, presented by `sub_refresh`.
    SubRefresh { command_id: u32, channel: Box<str> },
    /// The owner's answer to a subscription that is over already, before it may subscribe to the same channel again.
    Ending { channel: LocalChannelId },
}

/// What of a subscribe command outlives its frame.
#[derive(Clone, Debug)]
pub(crate) struct SubscribeWish {
    pub(crate) channel: Box<str>,
    pub(crate) recover: bool,
    pub(crate) epoch: Box<str>,
    pub(crate) offset: u64,
    pub(crate) positioned: bool,
    pub(crate) recoverable: bool,
    pub(crate) join_leave: bool,
    pub(crate) reject_unrecoverable: bool,
    /// Pushes may carry the channel's number.
    pub(crate) compact: bool,
    /// Data may be sent as differences.
    pub(crate) delta: bool,
    /// For the game, where the channel has a room.
    pub(crate) data: Bytes,
}

/// One client connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) wire: Wire,
    pub(crate) phase: Phase,
    /// Who it is; set by `connect`.
    pub(crate) info: Option<Arc<ClientInfo>>,
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) held: Option<Box<Held>>,
    pub(crate) deadlines: Deadlines,
    pub(crate) awaits_pong: bool,
    /// Closing: whether the peer has said goodbye, and whether the caller was told to finish.
    pub(crate) peer_closed: bool,
    pub(crate) finished: bool,
    pub(crate) scheduled: Scheduled,
    /// Its place among its user's sessions.
    pub(crate) user_place: u32,
}

/// When something is due for a session, on the monotonic clock; `u64::MAX` for never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// Not authenticated, or not hung up, by then: over.
    pub(crate) end_us: u64,
    /// The next ping.
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
}

/// Who ended a subscription that its owner has not answered yet. It is dropped when the answer comes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// The client, by the command that is answered then.
    Asked { command_id: u32 },
    /// The server API; the client is told then.
    Forced(UnsubscribeCode),
}

impl Session {
    /// A session that has just been opened and has until `end_us` to authenticate.
    pub(crate) fn new(key: SessionKey, wire: Wire, end_us: u64) -> Self {
        Self {
            key,
            wire,
            phase: Phase::Fresh,
            info: None,
            subscriptions: Vec::new(),
            held: None,
            deadlines: Deadlines { end_us, ..Deadlines::NEVER },
            awaits_pong: false,
            peer_closed: false,
            finished: false,
            scheduled: Scheduled::default(),
            user_place: 0,
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

    /// Whether it belongs to `user`.
    pub(crate) fn is_of_user(&self, user: &str) -> bool {
        self.info.as_ref().is_some_and(|info| *info.user == *user)
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
