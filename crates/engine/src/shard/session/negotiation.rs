//! Negotiates a subscription's features: positioning, recovery, deltas, compaction, filters.

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, FilterError, SubscribeRequest, TagsFilter};

use crate::{
    SessionKey,
    backend::Overrides,
    message::RecoverFrom,
    names::NamespaceIndex,
    options::{Lane, NamespaceOptions, RecoveryMode},
    refused::RefusedCommand,
    session::{SubscriptionFlags, SubscriptionParams},
};

use super::{
    Context, Sessions,
    permission::Permission,
    refresh::{TimeToLive, expiry_us},
};

impl Sessions {
    /// The filter that the client requests, if any.
    pub(super) fn tags_filter(
        &self,
        context: &Context,
        key: SessionKey,
        request: &SubscribeRequest<'_>,
    ) -> Result<Option<Arc<TagsFilter>>, RefusedCommand> {
        let Some(bytes) = request.tags_filter else { return Ok(None) };
        let encoding = self.table.at(key.index).encoding();
        match TagsFilter::parse(encoding, bytes, &context.options.channel.tags_filter) {
            Ok(filter) => Ok(Some(Arc::new(filter))),
            Err(FilterError::Malformed) => Err(RefusedCommand::bad_request("a tags filter that cannot be decoded")),
            Err(_) => Err(ErrorCode::BadRequest.into()),
        }
    }

    /// The options of a subscription: those that its namespace or its overrides force, and those that the client
    /// requests and may have.
    pub(super) fn subscription_flags(
        &self,
        context: &Context,
        key: SessionKey,
        params: Option<&SubscriptionParams>,
        namespace: NamespaceIndex,
        overrides: Overrides,
    ) -> SubscriptionFlags {
        let options = context.namespace(namespace);
        // The session counts as a subscriber here, because all other checks have passed.
        let session = self.table.at(key.index);
        let sees_history = || context.permits_subscriber(session, Permission::history(options));
        let sees_presence = || context.permits_subscriber(session, Permission::presence(options));
        let requests = |what: fn(&SubscriptionParams) -> bool| params.is_some_and(what);
        let announced = overrides.join_leave.unwrap_or(options.join_leave);
        let recoverable = overrides.force_recovery.unwrap_or(options.force_recovery)
            || requests(|params| params.recoverable) && (options.allow_recovery || sees_history());
        let positioned = recoverable
            || overrides.force_positioning.unwrap_or(options.force_positioning)
            || requests(|params| params.positioned) && (options.allow_positioning || sees_history());
        let join_leave = overrides.force_push_join_leave.unwrap_or(options.force_push_join_leave)
            || requests(|params| params.join_leave) && options.join_leave && sees_presence();
        SubscriptionFlags {
            join_leave,
            positioned: positioned && options.has_positions(),
            recoverable: recoverable && options.has_positions(),
            // In a room, the session itself encodes the snapshots, for plain classes.
            compact: requests(|params| params.compact) && options.allow_channel_compaction && options.room.is_none(),
            // The latest lane skips publications, so a patch might have no base.
            delta: requests(|params| params.delta)
                && options.allow_delta
                && options.room.is_none()
                && options.delivery == Lane::Reliable,
            server_side: false,
            from_token: false,
            presence: overrides.presence.unwrap_or(options.presence),
            announced,
        }
    }
}

impl Context {
    /// The deadline of a subscription with this time to live. A backend is asked at the expiry; without one, the client
    /// has a grace period to refresh.
    pub(super) fn subscription_expiry_us(&self, namespace: NamespaceIndex, ttl: Option<TimeToLive>) -> u64 {
        let asks = self.namespace(namespace).sub_refresh_proxy.is_some();
        expiry_us(self.now, ttl, if asks { 0 } else { self.options.client.expired_sub_close_delay_ms })
    }
}

/// The position to recover a subscription from. Cache recovery also applies without a request, if the namespace enables
/// it.
pub(super) fn recover_from(
    params: &SubscriptionParams,
    flags: SubscriptionFlags,
    options: &NamespaceOptions,
) -> Option<RecoverFrom> {
    let is_auto = options.auto_cache_recover && options.recovery_mode == RecoveryMode::Cache;
    if !flags.recoverable || !params.recover && !is_auto {
        return None;
    }
    let (offset, epoch) = if params.recover { (params.offset, params.epoch.clone()) } else { Default::default() };
    Some(RecoverFrom { offset, epoch, reject_unrecoverable: params.reject_unrecoverable })
}
