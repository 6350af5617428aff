//! Rate limits of a shard's sessions.

use crate::{
    Options,
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
        self.connects.set_pace(RefillRate::share(options.client.connects_per_second, shards));
        self.recoveries.set_pace(RefillRate::share(options.client.recoveries_per_second, shards));
        self.openings.set_limits(options.room_openings, shards);
    }
}
