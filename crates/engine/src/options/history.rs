//! What a namespace stores of its channels, and for how long.

use dunlin_protocol::Tags;

use crate::{
    idempotency::RESULT_TTL_MS,
    log::{LogRetention, LogTerms, PublicationLog},
};

use super::{Lane, NamespaceOptions};

/// How long a channel that other nodes publish to stays in memory without subscribers, in milliseconds.
const REPLICA_IDLE_MS: u64 = 30_000;

impl NamespaceOptions {
    /// Whether channels have a stream: offsets, an epoch and history.
    pub const fn has_stream(&self) -> bool {
        self.history_size > 0 && self.history_ttl_ms > 0
    }

    /// How long a channel without subscribers stays in memory after its last publication. A channel that other nodes
    /// publish to leaves memory early: following it has a cost, and loading it again is cheap.
    pub(crate) fn remembered_ms(&self) -> u64 {
        match self.log {
            PublicationLog::OrderedByLog => self.history_meta_ttl_ms.min(REPLICA_IDLE_MS),
            PublicationLog::Memory | PublicationLog::OrderedByOwner => self.history_meta_ttl_ms,
        }
    }

    /// How a log stores the channels.
    pub const fn log_terms(&self) -> LogTerms {
        LogTerms {
            retention: LogRetention { publications_max: self.history_size, ttl_ms: self.history_ttl_ms },
            meta_ttl_ms: self.history_meta_ttl_ms,
            result_ttl_ms: RESULT_TTL_MS,
            is_synced: self.is_log_synced,
        }
    }

    /// Whether publications are kept, in a stream or as the newest of each key.
    pub const fn keeps_publications(&self) -> bool {
        self.has_stream() || self.cache_keys_max > 0
    }

    /// Whether a publication with these tags removes its key from the key cache.
    pub(crate) fn is_removal(&self, tags: &Tags) -> bool {
        self.removal_tag.as_deref().is_some_and(|removal| tags.iter().any(|(tag, _)| **tag == *removal))
    }

    /// The key of a publication with these tags; `None` without the tag that has the key.
    pub(crate) fn conflation_key_of<'a>(&self, tags: &'a Tags) -> Option<&'a str> {
        let key = self.conflation_key.as_deref()?;
        tags.iter().find(|(tag, _)| **tag == *key).map(|(_, value)| &**value)
    }

    /// Whether a session's last offset determines what it has received.
    pub const fn has_positions(&self) -> bool {
        let in_order = matches!(self.delivery, Lane::Reliable) || self.conflation_key.is_none();
        self.has_stream() && in_order
    }
}
