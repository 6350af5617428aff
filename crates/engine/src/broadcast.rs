//! Messages between the nodes of a cluster with at-most-once delivery: publications without an offset, joins and
//! leaves.
//!
//! The owner delivers such a message to its own node at once and emits [`crate::Effect::Broadcast`]. Other nodes that
//! follow the channel receive it as [`crate::Event::BroadcastReceived`] and deliver it to local subscribers only. They
//! neither forward nor acknowledge it.

use std::sync::Arc;

use dunlin_protocol::{ClientInfo, Publication};

use crate::{
    event::payload_bytes,
    history_stream::{kept_bytes, present_bytes_max},
    log_in_flight::Draft,
};

/// A message to the subscribers of a channel on other nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum BroadcastMessage {
    /// A publication without an offset.
    Publication(Arc<Publication>),
    /// A client has subscribed.
    Join(Arc<ClientInfo>),
    /// A client has left.
    Leave(Arc<ClientInfo>),
}

impl BroadcastMessage {
    /// The bytes that it takes in memory, counted as for a history.
    pub fn kept_bytes(&self) -> usize {
        match self {
            Self::Publication(publication) => kept_bytes(publication),
            Self::Join(info) | Self::Leave(info) => present_bytes_max(info),
        }
    }
}

/// Maximum encoded size of one byte outside the data, in the cluster encoding.
const ESCAPED_BYTES: usize = 3;

/// Bytes of field names and separators per tag or info, in the cluster encoding.
const FIELD_BYTES: usize = 24;

/// Maximum size of a publication in the cluster encoding.
pub(crate) fn broadcast_bytes(draft: &Draft) -> usize {
    let tags = draft.how.tags.iter().map(|(name, value)| name.len() + value.len());
    let infos = draft.info.iter().flat_map(|info| {
        let payloads = [&info.conn_info, &info.chan_info].map(|payload| payload_bytes(payload.as_ref()));
        [info.user.len(), info.client.len(), payloads[0], payloads[1]]
    });
    let fields = tags.chain(infos).map(|bytes| bytes * ESCAPED_BYTES + FIELD_BYTES);
    draft.data.bytes().len() + fields.sum::<usize>()
}
