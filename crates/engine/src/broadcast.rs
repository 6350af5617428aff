//! What the nodes of a cluster send each other at most once: publications without an offset, joins and leaves.
//!
//! The owner delivers such a message to its own node at once and emits [`crate::Effect::Broadcast`]. On other nodes that
//! follow the channel it comes as [`crate::Event::Broadcasted`]. It goes to local subscribers only: it is never broadcast
//! again, and nobody is answered.

use std::sync::Arc;

use dunlin_protocol::{ClientInfo, Publication};

use crate::log_in_flight::Draft;

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

/// What a byte outside the data takes in the coding of the cluster, at the most.
const ESCAPED_BYTES: usize = 3;

/// Names and separators of one tag or info in that coding.
const FIELD_BYTES: usize = 24;

/// The most bytes that a publication takes in the coding of the cluster.
pub(crate) fn broadcast_bytes(draft: &Draft) -> usize {
    let tags = draft.how.tags.iter().map(|(name, value)| name.len() + value.len());
    let infos = draft.info.iter().flat_map(|info| {
        let payloads = [&info.conn_info, &info.chan_info]
            .map(|payload| payload.as_ref().map_or(0, |payload| payload.bytes().len()));
        [info.user.len(), info.client.len(), payloads[0], payloads[1]]
    });
    let fields = tags.chain(infos).map(|bytes| bytes * ESCAPED_BYTES + FIELD_BYTES);
    draft.data.bytes().len() + fields.sum::<usize>()
}
