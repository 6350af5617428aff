//! Executes the requests of other nodes.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::api::{ApiAnswer, ApiRequest};
use dunlin_queues::CountedReceiver;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{
    super::{ApiCommand, ApiError, Executor, JsonResult, Method, RequestLimits, result::to_outcome},
    calls::{
        CHANNEL_ROOMS, EMULATE, EmulateBody, EmulateResult, NEWEST_KEYS, PRESENCE_USERS, PeerCall, PeerReply,
        ROOM_STATE,
    },
    merge::{ChannelRooms, PresenceUsers},
};
use crate::node::{ClusterInbox, Emulated, NodeCluster, NodeQuery};

/// Executes the requests of other nodes on the sessions and rooms of this node.
pub struct PeerService {
    pub(super) executor: Executor,
    pub(super) cluster: Arc<NodeCluster>,
}

impl PeerService {
    /// A service that uses the executor's node.
    pub const fn new(executor: Executor, cluster: Arc<NodeCluster>) -> Self {
        Self { executor, cluster }
    }

    /// Serves requests until the node ends. The cluster limits the number of concurrent requests.
    pub async fn serve(self, ClusterInbox { queries, questions, rooms }: ClusterInbox) {
        let service = Arc::new(self);
        tokio::join!(
            Self::serve_nodes(&service, queries),
            Self::serve_shards(&service, questions),
            Self::serve_shards(&service, rooms),
        );
    }

    async fn serve_nodes(service: &Arc<Self>, mut queries: CountedReceiver<NodeQuery>) {
        while let Some(NodeQuery { number, payload, timeout_ms }) = queries.recv().await {
            let service = Arc::clone(service);
            tokio::spawn(async move {
                // After this timeout, the other node no longer waits for the answer.
                let timeout = Duration::from_millis(timeout_ms);
                if let Ok(answer) = tokio::time::timeout(timeout, service.answer(&payload, timeout_ms)).await {
                    service.cluster.answer(number, answer);
                }
            });
        }
    }

    async fn answer(&self, payload: &Bytes, wait_ms: u64) -> Bytes {
        let reply = match PeerCall::decode(payload) {
            Some(call) => PeerReply::new(self.carry_out(&call, wait_ms).await),
            None => PeerReply::not_understood(),
        };
        reply.encode()
    }

    async fn carry_out(&self, call: &PeerCall, wait_ms: u64) -> JsonResult {
        let params = call.params.get().as_bytes();
        if &*call.method == PRESENCE_USERS {
            let ChannelBody { channel } = serde_json::from_slice(params).map_err(ApiError::bad_request)?;
            return self.executor.presence_users(channel).await;
        }
        if &*call.method == CHANNEL_ROOMS {
            let ChannelBody { channel } = serde_json::from_slice(params).map_err(ApiError::bad_request)?;
            return self.executor.channel_rooms(&channel);
        }
        if &*call.method == ROOM_STATE {
            let ChannelBody { channel } = serde_json::from_slice(params).map_err(ApiError::bad_request)?;
            return self.room_state_here(channel, wait_ms).await;
        }
        if &*call.method == NEWEST_KEYS {
            let ChannelBody { channel } = serde_json::from_slice(params).map_err(ApiError::bad_request)?;
            return self.keys_here(channel).await;
        }
        if &*call.method == EMULATE {
            let EmulateBody { session, b64data } = serde_json::from_slice(params).map_err(ApiError::bad_request)?;
            let commands = STANDARD.decode(&*b64data).map_err(ApiError::bad_request)?;
            let outcome = self.executor.node().emulate(&session, commands).await.map_err(|_| ApiError::INTERNAL)?;
            return to_outcome(&EmulateResult { taken: outcome != Emulated::Busy });
        }
        let method = Method::by_name(&call.method).filter(|method| is_shared(*method)).ok_or(ApiError::NOT_FOUND)?;
        let command = ApiCommand::parse(method, params, &RequestLimits::default()).map_err(ApiError::bad_request)?;
        self.executor.carry_out_here(command?).await
    }
}

#[derive(Deserialize)]
struct ChannelBody {
    channel: Box<str>,
}

/// Whether other nodes may request this method.
const fn is_shared(method: Method) -> bool {
    matches!(
        method,
        Method::Presence
            | Method::Channels
            | Method::Info
            | Method::Rooms
            | Method::RoomList
            | Method::Disconnect
            | Method::Unsubscribe
            | Method::Subscribe
            | Method::Refresh
    )
}

impl Executor {
    /// The users of a channel's presence on this node.
    pub(super) async fn presence_users(&self, channel: Box<str>) -> JsonResult {
        let request = ApiRequest::Presence { channel: channel.clone() };
        let ApiAnswer::Presence(clients) = self.ask(&channel, request).await? else {
            return Err(ApiError::INTERNAL);
        };
        let num_clients = u32::try_from(clients.len()).unwrap_or(u32::MAX);
        let users = clients.iter().map(|client| user_number(&client.user)).collect();
        to_outcome(&PresenceUsers { num_clients, users })
    }

    /// The room of a channel on this node, if there is one.
    pub(super) fn channel_rooms(&self, channel: &str) -> JsonResult {
        to_outcome(&ChannelRooms { rooms: self.room_here(channel)?.into_iter().collect() })
    }
}

/// A hash of the user's id that is the same on all nodes. Different users get different numbers.
fn user_number(user: &str) -> u64 {
    let digest = Sha256::digest(user.as_bytes());
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}
