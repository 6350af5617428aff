//! What a subscription asks for, in the engine's terms.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, FilterError, SubscribeRequest, TagsFilter};

use crate::{
    SessionKey,
    message::RecoverFrom,
    options::{NamespaceOptions, RecoveryMode},
    session::{SubscribeWish, SubscriptionFlags},
};

use super::Shard;

impl Shard {
    /// The filter that the client asks for, if it does: an error where it makes no sense or is too large.
    pub(super) fn tags_filter(
        &self,
        key: SessionKey,
        request: &SubscribeRequest<'_>,
    ) -> Result<Result<Option<Arc<TagsFilter>>, FilterError>, Disconnect> {
        let Some(bytes) = request.tags_filter else { return Ok(Ok(None)) };
        let encoding = self.sessions.at(key.index).encoding();
        match TagsFilter::parse(encoding, bytes, &self.options.channel.tags_filter) {
            Err(FilterError::Malformed) => Err(Disconnect::BAD_REQUEST),
            filter => Ok(filter.map(|filter| Some(Arc::new(filter)))),
        }
    }
}

/// Where a subscription is to be recovered from, if it is: a cache is also where nobody asked, if the namespace says so.
pub(super) fn recover_from(
    wish: &SubscribeWish,
    flags: SubscriptionFlags,
    options: &NamespaceOptions,
) -> Option<RecoverFrom> {
    let is_auto = options.auto_cache_recover && options.recovery_mode == RecoveryMode::Cache;
    if !flags.recoverable || !wish.recover && !is_auto {
        return None;
    }
    let (offset, epoch) = if wish.recover { (wish.offset, wish.epoch.clone()) } else { Default::default() };
    Some(RecoverFrom { offset, epoch, reject_unrecoverable: wish.reject_unrecoverable })
}
