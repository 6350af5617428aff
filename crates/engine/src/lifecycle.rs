//! Who came and went: events of sessions, channels and rooms for the application's backend, as values. The caller sends
//! them.

#![allow(missing_docs, reason = "a field whose name says all has no comment")]

use std::{borrow::Cow, sync::Arc};

use dunlin_protocol::{ClientInfo, UnsubscribeCode};

use crate::{event::SessionKey, wire::Wire};

/// The kind of a lifecycle event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleKind {
    Connected,
    Disconnected,
    Subscribed,
    Unsubscribed,
    Occupied,
    Vacated,
    RoomOpened,
    RoomEnded,
}

impl LifecycleKind {
    pub const ALL: [Self; 8] = [
        Self::Connected,
        Self::Disconnected,
        Self::Subscribed,
        Self::Unsubscribed,
        Self::Occupied,
        Self::Vacated,
        Self::RoomOpened,
        Self::RoomEnded,
    ];

    /// The kind in the configuration and in messages to the backend.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::Subscribed => "subscribed",
            Self::Unsubscribed => "unsubscribed",
            Self::Occupied => "occupied",
            Self::Vacated => "vacated",
            Self::RoomOpened => "room_opened",
            Self::RoomEnded => "room_ended",
        }
    }

    /// Whether the namespace of the channel decides as well, with `channel_events`.
    pub const fn is_of_channel(self) -> bool {
        !matches!(self, Self::Connected | Self::Disconnected)
    }
}

/// The kinds of events that a shard makes. Without any, an event costs one comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifecycleKinds(u8);

impl LifecycleKinds {
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn contains(self, kind: LifecycleKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }
}

impl FromIterator<LifecycleKind> for LifecycleKinds {
    fn from_iter<I: IntoIterator<Item = LifecycleKind>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |bits, kind| bits | 1 << kind as u8))
    }
}

/// A lifecycle event, and when it happened. Those of one session are in order, and those of one channel's subscribers,
/// `occupied` and `vacated`, as well: each comes from one shard.
#[derive(Clone, Debug)]
pub struct LifecycleEvent {
    pub unix_ms: u64,
    pub what: Lifecycle,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Lifecycle {
    /// The session was authenticated and admitted. Its subscriptions follow.
    Connected {
        info: Arc<ClientInfo>,
        wire: Wire,
    },
    /// The session has ended, after its subscriptions. What is queued for it may still be sent.
    Disconnected {
        session: SessionKey,
        info: Arc<ClientInfo>,
        /// The code with which the server closed it, that of the client's close frame, [`NO_STATUS`] or [`ABNORMAL`].
        code: u16,
        reason: Cow<'static, str>,
        duration_ms: u64,
    },
    Subscribed {
        info: Arc<ClientInfo>,
        channel: Arc<str>,
    },
    Unsubscribed {
        info: Arc<ClientInfo>,
        channel: Arc<str>,
        /// That of the push, or [`BY_CLIENT`] or [`BY_DISCONNECT`], as in Centrifugo.
        code: UnsubscribeCode,
    },
    /// The node has its first subscriber of the channel.
    Occupied {
        channel: Arc<str>,
    },
    /// The node's last subscriber of the channel has left.
    Vacated {
        channel: Arc<str>,
    },
    /// The world of the channel's room is created.
    RoomOpened {
        channel: Arc<str>,
    },
    /// The room was closed, or has failed.
    RoomEnded {
        channel: Arc<str>,
        code: UnsubscribeCode,
        /// For its clients; `None` for the default reason of the code.
        reason: Option<Arc<str>>,
    },
}

/// The client closed the session without a code (RFC 6455, section 7.4.1).
pub const NO_STATUS: u16 = 1005;

/// The connection ended without a close frame (RFC 6455, section 7.4.1).
pub const ABNORMAL: u16 = 1006;

/// The client unsubscribed.
pub const BY_CLIENT: UnsubscribeCode = UnsubscribeCode(0);

/// The session ended.
pub const BY_DISCONNECT: UnsubscribeCode = UnsubscribeCode(1);

impl LifecycleEvent {
    pub const fn kind(&self) -> LifecycleKind {
        match &self.what {
            Lifecycle::Connected { .. } => LifecycleKind::Connected,
            Lifecycle::Disconnected { .. } => LifecycleKind::Disconnected,
            Lifecycle::Subscribed { .. } => LifecycleKind::Subscribed,
            Lifecycle::Unsubscribed { .. } => LifecycleKind::Unsubscribed,
            Lifecycle::Occupied { .. } => LifecycleKind::Occupied,
            Lifecycle::Vacated { .. } => LifecycleKind::Vacated,
            Lifecycle::RoomOpened { .. } => LifecycleKind::RoomOpened,
            Lifecycle::RoomEnded { .. } => LifecycleKind::RoomEnded,
        }
    }

    /// Bytes that it keeps in memory. Texts that others share count in full.
    pub fn kept_bytes(&self) -> usize {
        let of_session = |info: &ClientInfo| size_of::<ClientInfo>() + info.user.len() + info.client.len();
        let texts = match &self.what {
            Lifecycle::Connected { info, .. } => of_session(info),
            Lifecycle::Disconnected { info, reason, .. } => of_session(info) + reason.len(),
            Lifecycle::Subscribed { info, channel } | Lifecycle::Unsubscribed { info, channel, .. } => {
                of_session(info) + channel.len()
            }
            Lifecycle::Occupied { channel } | Lifecycle::Vacated { channel } | Lifecycle::RoomOpened { channel } => {
                channel.len()
            }
            Lifecycle::RoomEnded { channel, reason, .. } => {
                channel.len() + reason.as_ref().map_or(0, |reason| reason.len())
            }
        };
        size_of::<Self>() + texts
    }
}
