//! Presence of a channel on a node.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ::base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_protocol::{ClientInfo, Payload};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::json_members::{json_or_base64, raw};

/// See [`super::Received::Presence`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PresenceQuestion {
    /// The channel.
    pub channel: Box<str>,
}

/// See [`super::Received::PresenceUsers`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PresenceUsersQuestion {
    /// The channel.
    pub channel: Box<str>,
}

/// The sessions in a channel's presence, by the id of the client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Presence {
    presence: BTreeMap<Box<str>, Session>,
}

#[derive(Clone, Debug, PartialEq)]
struct Session(Arc<ClientInfo>);

impl Presence {
    /// The sessions.
    pub fn clients(&self) -> impl Iterator<Item = &Arc<ClientInfo>> {
        self.presence.values().map(|Session(info)| info)
    }

    /// Adds the sessions of another node.
    pub fn merge(&mut self, mut other: Self) {
        self.presence.append(&mut other.presence);
    }
}

impl FromIterator<Arc<ClientInfo>> for Presence {
    fn from_iter<I: IntoIterator<Item = Arc<ClientInfo>>>(clients: I) -> Self {
        Self { presence: clients.into_iter().map(|info| (Box::from(&*info.client), Session(info))).collect() }
    }
}

/// The users of a channel's presence on one node. Each user is counted once, regardless of the number of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PresenceUsers {
    /// The number of sessions.
    pub num_clients: u32,
    /// A hash of each user's id, the same on all nodes.
    pub users: BTreeSet<u64>,
}

impl PresenceUsers {
    /// The users of these sessions.
    pub fn of(clients: &[Arc<ClientInfo>]) -> Self {
        let num_clients = u32::try_from(clients.len()).unwrap_or(u32::MAX);
        Self { num_clients, users: clients.iter().map(|client| user_number(&client.user)).collect() }
    }

    /// The number of users.
    pub fn num_users(&self) -> u32 {
        u32::try_from(self.users.len()).unwrap_or(u32::MAX)
    }

    /// Adds the users of another node.
    pub fn merge(&mut self, mut other: Self) {
        self.num_clients = self.num_clients.saturating_add(other.num_clients);
        self.users.append(&mut other.users);
    }
}

/// A hash of the user's id that is the same on all nodes. Different users get different numbers.
fn user_number(user: &str) -> u64 {
    let digest = Sha256::digest(user.as_bytes());
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A session as it is written.
#[derive(Serialize)]
struct WrittenSession<'a> {
    user: &'a str,
    client: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    conn_info: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64conn_info: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chan_info: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64chan_info: Option<String>,
}

/// A session as it is read.
#[derive(Deserialize)]
struct ReadSession {
    user: Box<str>,
    client: Box<str>,
    #[serde(default, deserialize_with = "raw")]
    conn_info: Option<Box<RawValue>>,
    b64conn_info: Option<Box<str>>,
    #[serde(default, deserialize_with = "raw")]
    chan_info: Option<Box<RawValue>>,
    b64chan_info: Option<Box<str>>,
}

impl Serialize for Session {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(info) = self;
        let (conn_info, b64conn_info) = json_or_base64(info.conn_info.as_ref());
        let (chan_info, b64chan_info) = json_or_base64(info.chan_info.as_ref());
        let (user, client) = (&*info.user, &*info.client);
        WrittenSession { user, client, conn_info, b64conn_info, chan_info, b64chan_info }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Session {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ReadSession { user, client, conn_info, b64conn_info, chan_info, b64chan_info } =
            ReadSession::deserialize(deserializer)?;
        Ok(Self(Arc::new(ClientInfo {
            user: Arc::from(user),
            client: Arc::from(client),
            conn_info: read(conn_info, b64conn_info)?,
            chan_info: read(chan_info, b64chan_info)?,
        })))
    }
}

/// The payload in a pair of fields, if any.
pub(super) fn read<E: serde::de::Error>(
    json: Option<Box<RawValue>>,
    base64: Option<Box<str>>,
) -> Result<Option<Payload>, E> {
    match (json, base64) {
        (Some(json), _) => Ok(Some(Payload::from_json(Bytes::from(Box::<str>::from(json).into_string())))),
        (None, Some(base64)) => {
            STANDARD.decode(&*base64).map(|bytes| Some(Payload::from_opaque(bytes.into()))).map_err(E::custom)
        }
        (None, None) => Ok(None),
    }
}

/// For `with`: bytes in base64.
pub(super) mod base64 {
    use ::base64::Engine as _;

    use super::{Deserialize, Deserializer, STANDARD, Serializer};

    pub(in crate::peers) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(in crate::peers) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
