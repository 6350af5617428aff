//! What shards ask other nodes about a channel: presence, for clients, the newest publications of keys, and its room.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::{
    Event,
    event::{ClusterPresence, PresenceKind},
};
use dunlin_protocol::{ClientInfo, ErrorCode, Payload};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc};

use super::{super::ApiCommand, PeerService};
use crate::node::{ChannelQuestion, QuestionKind};

/// Maximum number of concurrent surveys for each queue of shards. The rest of `surveys_limit` is for the server API.
const QUESTIONS_AT_ONCE: usize = 64;

impl PeerService {
    /// Answers the requests of this node's shards in a queue.
    pub(super) async fn serve_shards(service: &Arc<Self>, mut questions: mpsc::Receiver<ChannelQuestion>) {
        let permits = Arc::new(Semaphore::new(QUESTIONS_AT_ONCE));
        while let Some(question) = questions.recv().await {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            let service = Arc::clone(service);
            tokio::spawn(async move {
                let ChannelQuestion { shard, channel, kind } = question;
                let answer = match kind {
                    QuestionKind::Presence { query, kind } => {
                        let outcome = service.find_presence(&channel, kind).await;
                        Event::PeersAnswered { query, outcome }
                    }
                    QuestionKind::Keys => {
                        let found = service.find_keys(&channel).await;
                        Event::KeysAnswered { channel, found }
                    }
                    QuestionKind::Room => {
                        let found = service.find_room(&channel).await;
                        Event::RoomQueried { channel, found }
                    }
                };
                service.cluster.answer_shard(shard, answer);
                drop(permit);
            });
        }
    }

    /// Returns the results that have arrived at the deadline. The client protocol cannot mark a result as partial.
    async fn find_presence(&self, channel: &str, kind: PresenceKind) -> Result<ClusterPresence, ErrorCode> {
        let channel = Box::from(channel);
        let command = match kind {
            PresenceKind::Clients => ApiCommand::Presence { channel },
            PresenceKind::Stats => ApiCommand::PresenceStats { channel },
        };
        let result = self.executor.carry_out(command).await.map_err(|_| ErrorCode::Internal)?;
        read(kind, result.get()).ok_or(ErrorCode::Internal)
    }
}

fn read(kind: PresenceKind, json: &str) -> Option<ClusterPresence> {
    match kind {
        PresenceKind::Clients => {
            let body: ClientsBody = serde_json::from_str(json).ok()?;
            let clients = body.presence.into_values().map(ClientBody::into_info).collect::<Option<Vec<_>>>()?;
            Some(ClusterPresence::Clients(clients))
        }
        PresenceKind::Stats => {
            let StatsBody { num_clients, num_users } = serde_json::from_str(json).ok()?;
            Some(ClusterPresence::Stats { num_clients, num_users })
        }
    }
}

#[derive(Deserialize)]
struct ClientsBody {
    presence: BTreeMap<Box<str>, ClientBody>,
}

#[derive(Deserialize)]
struct StatsBody {
    num_clients: u32,
    num_users: u32,
}

/// A session in the JSON of the server API.
#[derive(Deserialize)]
struct ClientBody {
    user: Box<str>,
    client: Box<str>,
    #[serde(default, deserialize_with = "raw")]
    conn_info: Option<Box<RawValue>>,
    b64conn_info: Option<Box<str>>,
    #[serde(default, deserialize_with = "raw")]
    chan_info: Option<Box<RawValue>>,
    b64chan_info: Option<Box<str>>,
}

impl ClientBody {
    fn into_info(self) -> Option<Arc<ClientInfo>> {
        Some(Arc::new(ClientInfo {
            user: Arc::from(self.user),
            client: Arc::from(self.client),
            conn_info: payload(self.conn_info, self.b64conn_info)?,
            chan_info: payload(self.chan_info, self.b64chan_info)?,
        }))
    }
}

/// The payload of a pair of fields; `None` if it is invalid.
#[allow(clippy::option_option, reason = "there may be none, which is no mistake")]
fn payload(json: Option<Box<RawValue>>, base64: Option<Box<str>>) -> Option<Option<Payload>> {
    match (json, base64) {
        (Some(json), _) => Some(Some(Payload::from_json(Bytes::from(Box::<str>::from(json).into_string())))),
        (None, Some(base64)) => Some(Some(Payload::from_opaque(STANDARD.decode(&*base64).ok()?.into()))),
        (None, None) => Some(None),
    }
}

/// Keeps `null`, which is a valid payload.
fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presence_clients_round_trip() {
        let json = r#"{"presence":{"a":{"user":"u","client":"a","conn_info":{ "x":1 },"b64chan_info":"/wA="},
            "b":{"user":"","client":"b","chan_info":null}},"partial":true}"#;
        let Some(ClusterPresence::Clients(clients)) = read(PresenceKind::Clients, json) else { panic!("it is read") };
        let bytes = |payload: &Option<Payload>| payload.as_ref().map(|payload| payload.bytes().to_vec());
        let parts: Vec<_> = clients
            .iter()
            .map(|info| (&*info.user, &*info.client, bytes(&info.conn_info), bytes(&info.chan_info)))
            .collect();
        let expected = [
            ("u", "a", Some(b"{ \"x\":1 }".to_vec()), Some(b"\xff\0".to_vec())),
            ("", "b", None, Some(b"null".to_vec())),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn invalid_presence_replies_are_refused() {
        for json in
            ["[]", "{}", r#"{"presence":[]}"#, r#"{"presence":{"a":{"user":"u","client":"a","b64conn_info":"?"}}}"#]
        {
            assert!(read(PresenceKind::Clients, json).is_none(), "{json}");
            assert!(read(PresenceKind::Stats, json).is_none(), "{json}");
        }
    }
}
