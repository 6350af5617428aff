//! Rate limits of a shard's sessions.

use dunlin_protocol::ErrorCode;

use crate::{
    Options,
    event::ServerSubscription,
    refused::RefusedCommand,
    shard::ShardIdentity,
    token_bucket::{Bucket, RefillRate},
};

use super::{Context, openers::Openers};

/// This shard's share of the node's rate limits.
pub(super) struct Rates {
    pub(super) connects: Bucket,
    pub(super) recoveries: Bucket,
    pub(super) openings: Openers,
}

impl Rates {
    pub(super) fn new(identity: ShardIdentity, options: &Options) -> Self {
        Self {
            connects: identity.share(options.client.connects_per_second),
            recoveries: identity.share(options.client.recoveries_per_second),
            openings: Openers::new(options.room_openings, identity.count),
        }
    }

    /// Applies new options.
    pub(super) fn set(&mut self, context: &Context) {
        let (options, shards) = (&context.options, context.identity.count);
        self.connects.set_rate(RefillRate::share(options.client.connects_per_second, shards));
        self.recoveries.set_rate(RefillRate::share(options.client.recoveries_per_second, shards));
        self.openings.set_limits(options.room_openings, shards);
    }

    /// Takes a token for the recovery of a server-side subscription from this shard's rate limit.
    pub(super) fn take_recovery(
        &mut self,
        context: &mut Context,
        subscription: &ServerSubscription,
    ) -> Result<(), RefusedCommand> {
        if subscription.recover_since.is_none() {
            return Ok(());
        }
        let forced = subscription.grant.overrides.force_recovery;
        let namespace = context.names.resolve(&subscription.channel)?;
        let recovers = forced.unwrap_or(context.namespace(namespace).force_recovery);
        if recovers && !self.recoveries.try_take(context.now.mono_us) {
            context.counters.recoveries_refused += 1;
            return Err(ErrorCode::TooManyRequests.into());
        }
        Ok(())
    }
}
