//! The newest publications of a channel's keys on other nodes.

use dunlin_cluster::keys;
use dunlin_engine::{
    api::{ApiAnswer, ApiRequest},
    event::PeerKeys,
};

use super::{
    super::{ApiError, JsonResult},
    PeerService, ask_all,
    calls::{NEWEST_KEYS, PeerCall},
};

impl PeerService {
    /// Returns what has arrived at the deadline of a survey.
    pub(super) async fn find_keys(&self, channel: &str) -> PeerKeys {
        let Ok(answers) = ask_all(&self.cluster, &PeerCall::of_channel(NEWEST_KEYS, channel)).await else {
            return PeerKeys::UNKNOWN;
        };
        let is_partial = answers.is_cut_off || !answers.missing.is_empty();
        let mut found = PeerKeys { keys: Vec::new(), is_partial };
        for answer in &answers.results {
            let PeerKeys { mut keys, is_partial } = keys::decode(answer.get()).unwrap_or(PeerKeys::UNKNOWN);
            found.keys.append(&mut keys);
            found.is_partial |= is_partial;
        }
        found
    }

    /// The keys of this node, for another one.
    pub(super) async fn keys_here(&self, channel: Box<str>) -> JsonResult {
        let request = ApiRequest::NewestKeys { channel: channel.clone() };
        let ApiAnswer::NewestKeys(found) = self.executor.ask(&channel, request).await? else {
            return Err(ApiError::INTERNAL);
        };
        // An answer has the same limit as a broadcast: one message of NATS.
        Ok(keys::encode(&found, self.cluster.broadcast_bytes_max()))
    }
}
