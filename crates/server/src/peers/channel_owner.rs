//! Asks the shard of this node that owns a channel.

use std::sync::Arc;

use dunlin_engine::api::{ApiAnswer, ApiRequest};
use dunlin_protocol::ClientInfo;

use super::message::PeerError;
use crate::node::Node;

pub(super) async fn ask_owner(node: &Node, channel: &str, request: ApiRequest) -> Result<ApiAnswer, PeerError> {
    let answer = node.ask_owner(channel, request).await.map_err(|_| PeerError::INTERNAL)?;
    answer.map_err(|refused| PeerError::of_channel(channel, refused))
}

/// The sessions in a channel's presence on this node.
pub(super) async fn presence(node: &Node, channel: &str) -> Result<Vec<Arc<ClientInfo>>, PeerError> {
    match ask_owner(node, channel, ApiRequest::Presence { channel: channel.into() }).await? {
        ApiAnswer::Presence(clients) => Ok(clients),
        _ => Err(PeerError::INTERNAL),
    }
}
