//! Messages from the server that are not replies.

use std::sync::Arc;

use crate::{ConnectResult, Payload, SubscribeResult, UnsubscribeCode};

/// The identity of a session in presence, joins, leaves and publications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// The user's id; empty for an anonymous session.
    pub user: Arc<str>,
    /// The session's id, unique on the node.
    pub client: Arc<str>,
    /// Connection info, from the connection token.
    pub conn_info: Option<Payload>,
    /// Channel info, from the subscription token.
    pub chan_info: Option<Payload>,
}

impl ClientInfo {
    /// A session of this user without any other information.
    pub fn of_user(user: &str) -> Self {
        Self { user: user.into(), client: Arc::from(""), conn_info: None, chan_info: None }
    }

    /// The same session with other channel info.
    #[must_use]
    pub fn with_chan_info(&self, chan_info: Payload) -> Self {
        Self { chan_info: Some(chan_info), ..self.clone() }
    }
}

/// Key/value pairs of a publication, in the order in which they are written.
pub type Tags = Vec<(Box<str>, Box<str>)>;

/// One message in a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The application's bytes.
    pub data: Payload,
    /// The publisher; `None` if it was published through the server API.
    pub info: Option<Arc<ClientInfo>>,
    /// Position in the channel's stream, from 1; 0 when the channel has no stream.
    pub offset: u64,
    /// Key-value pairs that filters and conflation keys use; not part of the payload.
    pub tags: Tags,
    /// Unix time in milliseconds; 0 if unknown.
    pub time_ms: i64,
    /// The stream's epoch in its first publication, for clients that subscribed before the stream existed; otherwise
    /// empty.
    pub epoch: Box<str>,
    /// The version that the publisher gave; 0 for none.
    pub version: u64,
}

/// How a push identifies its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelRef<'a> {
    /// By its name.
    Name(&'a str),
    /// By the number from the reply to `subscribe`, above 0.
    Number(u64),
}

impl<'a> From<&'a str> for ChannelRef<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

/// The form in which a publication's data is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataForm<'a> {
    /// Unchanged.
    #[default]
    Plain,
    /// The whole data, for a subscription with deltas. In JSON, a string with the text.
    Whole,
    /// A patch of the previous data, in the Fossil format. In JSON, a string, so the patch must be UTF-8.
    Patch(&'a [u8]),
}

/// An asynchronous message to a session (a Reply with id 0 on a bidirectional transport).
#[derive(Clone, Debug)]
pub enum Push<'a> {
    /// A publication of `channel`. `skipped` is the number of older publications of its latest-lane slot that this
    /// session did not receive. If it is above 0, it is written as the additional tag `skipped`.
    Publication {
        /// Written as a name, or as a number for compacting clients.
        channel: ChannelRef<'a>,
        /// Shared by all sessions that receive it.
        publication: &'a Publication,
        /// How its data is written.
        data: DataForm<'a>,
        /// Publications replaced before they were written.
        skipped: u32,
    },
    /// A session subscribed to `channel`.
    Join {
        /// Written as a name, or as a number for compacting clients.
        channel: ChannelRef<'a>,
        /// The client that joined or left.
        info: &'a ClientInfo,
    },
    /// A session left `channel`.
    Leave {
        /// Written as a name, or as a number for compacting clients.
        channel: ChannelRef<'a>,
        /// The client that joined or left.
        info: &'a ClientInfo,
    },
    /// The server ended the session's subscription to `channel`.
    Unsubscribe {
        /// Always written as a name, never as a number.
        channel: &'a str,
        /// Determines whether SDKs resubscribe.
        code: UnsubscribeCode,
        /// Human-readable form of `code`.
        reason: &'a str,
    },
    /// A message to this session only.
    Message {
        /// The application's bytes.
        data: &'a Payload,
    },
    /// The server subscribed the session to `channel`.
    Subscribe {
        /// Always written as a name, never as a number.
        channel: &'a str,
        /// The same fields as the reply to `subscribe`.
        result: &'a SubscribeResult,
    },
    /// The session is authenticated; replaces the reply on unidirectional transports.
    Connect {
        /// The same fields as the reply on bidirectional transports.
        result: &'a ConnectResult,
    },
    /// The server closes the session; only for transports without close frames.
    Disconnect {
        /// The code, which determines whether SDKs reconnect, and the reason.
        disconnect: &'a crate::Disconnect,
    },
    /// The session's expiry changed.
    Refresh {
        /// Seconds until it expires; `None` if it does not expire.
        ttl_s: Option<u32>,
    },
}

/// The tag with the number of earlier publications that the session did not receive.
pub(crate) const SKIPPED_TAG: &str = "skipped";

impl Publication {
    /// The tags to write in addition to `skipped`: all, except one with that name if `skipped` is written.
    pub(crate) fn tags_beside(&self, skipped: u32) -> impl Iterator<Item = (&str, &str)> {
        self.tags
            .iter()
            .map(|(key, value)| (&**key, &**value))
            .filter(move |(key, _)| skipped == 0 || *key != SKIPPED_TAG)
    }
}
