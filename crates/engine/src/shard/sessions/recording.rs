//! Makes records of session events. If nothing is recorded, this costs one comparison.

use crate::{
    record::{RecordLevel, RecordOptions, SessionIncident, SessionRecord},
    session::Session,
    token_bucket::{Bucket, RefillRate},
};

use super::Context;

/// Rate limits on records.
pub(super) struct Recording {
    /// This shard's share of the rate limit, by level.
    buckets: [Bucket; 3],
    of_session: Option<RefillRate>,
    suppressed: u64,
}

impl Recording {
    pub(super) fn new(options: RecordOptions, shards: u16) -> Self {
        let bucket = Bucket::full(RefillRate::share(options.node_per_second, shards));
        Self { buckets: [bucket; 3], of_session: RefillRate::new(options.session_per_second), suppressed: 0 }
    }

    /// Makes a record of an event of a session, unless a rate limit suppresses it. The caller has looked at the level.
    pub(super) fn record(&mut self, context: &mut Context, session: &mut Session, what: SessionIncident) {
        let level = what.level();
        let of_session = self.of_session.filter(|_| level == RecordLevel::Refusals);
        let then_ns = of_session.map(|rate| rate.take(session.records_full_at_ns, context.now.mono_us));
        let bucket = &mut self.buckets[level as usize - 1];
        if then_ns == Some(None) || !bucket.try_take(context.now.mono_us) {
            self.suppressed += 1;
            context.counters.records_suppressed += 1;
            return;
        }
        session.records_full_at_ns = then_ns.flatten().unwrap_or(session.records_full_at_ns);
        let (info, suppressed) = (session.info.clone(), std::mem::take(&mut self.suppressed));
        context.effects.records.push(SessionRecord { session: session.key, info, what, suppressed });
    }
}
