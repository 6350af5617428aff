//! The admission control of a node, shared by all shards and the control thread.
//!
//! Limits apply to the node rather than to each shard. The kernel distributes connections at random, and those of one
//! client over all shards, so equal shares would refuse some clients too early and others too late. The node's rate is
//! one atomic token bucket. Per-address counts are in a sharded table behind mutexes, each held for one table look-up.
//! Admission takes place once per handshake and once at the end of a session, never on the path of a publication.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use dunlin_config::AdmissionOptions;
use dunlin_engine::RefillRate;
use dunlin_net::{RefusalReason, TrustedProxies};

use super::{
    session_limit::SessionLimit,
    source_networks::{SourceLimits, SourceNetwork, SourceRefusal, Sources},
};

/// Admission control of a node; see the module's documentation.
#[derive(Debug)]
pub(in crate::node) struct Gate {
    pub(in crate::node) sessions: SessionLimit,
    /// Handshakes per second and node; 0 for no limit.
    handshakes_per_second: AtomicU32,
    /// State of the token bucket for handshakes.
    full_at_ns: AtomicU64,
    source_limits: SourceLimits,
    /// Empty if there are no limits per address.
    sources: Box<[Mutex<Sources>]>,
    proxies: TrustedProxies,
    is_over_memory: AtomicBool,
    refusals: AtomicU32,
}

/// Number of parts of the address table, so that shards rarely contend for a lock.
const PARTS: usize = 16;

/// Maximum value of `Retry-After` in seconds.
const RETRY_AFTER_MAX_S: u32 = 5;

impl Gate {
    /// `sessions_max`: 0 for no limit.
    pub(in crate::node) fn new(options: &AdmissionOptions, sessions_max: u32) -> Self {
        let knows_sources = options.source_sessions_max > 0 || options.source_handshakes_per_second > 0;
        Self {
            sessions: SessionLimit::new(sessions_max),
            handshakes_per_second: AtomicU32::new(options.handshakes_per_second),
            full_at_ns: AtomicU64::new(0),
            source_limits: SourceLimits {
                sessions_max: options.source_sessions_max,
                handshakes: RefillRate::new(options.source_handshakes_per_second),
                idle_max: options.idle_sources_max.div_ceil(PARTS),
            },
            sources: if knows_sources { (0..PARTS).map(|_| Mutex::default()).collect() } else { Box::default() },
            proxies: options.trusted_proxies.clone(),
            is_over_memory: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
        }
    }

    pub(in crate::node) fn proxies(&self) -> &TrustedProxies {
        &self.proxies
    }

    /// Admits a session, or returns the reason for a refusal.
    pub(in crate::node) fn admit(&self, source: Option<SourceNetwork>, now_us: u64) -> Result<(), RefusalReason> {
        if !self.sessions.admit() {
            return Err(RefusalReason::SessionLimit);
        }
        self.admit_source(source, now_us).inspect_err(|_| self.sessions.dismiss())
    }

    /// The node's own rate is checked last, so that a client refused by its own limit uses nothing of the others' rate.
    fn admit_source(&self, source: Option<SourceNetwork>, now_us: u64) -> Result<(), RefusalReason> {
        if self.is_over_memory.load(Ordering::Relaxed) {
            return Err(RefusalReason::Memory);
        }
        if let Some(source) = source
            && let Some(mut sources) = self.part_of(source)
        {
            sources.admit(source, &self.source_limits, now_us).map_err(|refusal| match refusal {
                SourceRefusal::Sessions => RefusalReason::SourceSessions,
                SourceRefusal::Rate => RefusalReason::SourceRate,
            })?;
        }
        let Some(pace) = RefillRate::new(self.handshakes_per_second.load(Ordering::Relaxed)) else { return Ok(()) };
        let taken = self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full| pace.take(full, now_us));
        taken.map(drop).map_err(|_| {
            self.dismiss_source(source, now_us);
            RefusalReason::HandshakeRate
        })
    }

    /// Removes an admitted session.
    pub(in crate::node) fn dismiss(&self, source: Option<SourceNetwork>, now_us: u64) {
        self.sessions.dismiss();
        self.dismiss_source(source, now_us);
    }

    fn dismiss_source(&self, source: Option<SourceNetwork>, now_us: u64) {
        if let Some(source) = source
            && let Some(mut sources) = self.part_of(source)
        {
            sources.dismiss(source, &self.source_limits, now_us);
        }
    }

    /// Changes the node's rate of handshakes.
    pub(in crate::node) fn set_handshake_rate(&self, handshakes_per_second: u32) {
        self.handshakes_per_second.store(handshakes_per_second, Ordering::Relaxed);
    }

    /// Refuses new sessions while the process is above its memory limit.
    pub(in crate::node) fn set_over_memory(&self, is_over: bool) {
        self.is_over_memory.store(is_over, Ordering::Relaxed);
    }

    /// The value for `Retry-After`. Consecutive clients get different values, so that they do not return together.
    pub(in crate::node) fn retry_after_s(&self) -> u32 {
        1 + self.refusals.fetch_add(1, Ordering::Relaxed) % RETRY_AFTER_MAX_S
    }

    fn part_of(&self, source: SourceNetwork) -> Option<MutexGuard<'_, Sources>> {
        let part = self.sources.get(source.part(PARTS))?;
        // After a panic, the counts are at most wrong by one session.
        Some(part.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> SourceNetwork {
        SourceNetwork::of([192, 0, 2, last].into())
    }

    #[test]
    fn the_node_admits_up_to_its_handshake_rate() {
        let gate = Gate::new(&AdmissionOptions { handshakes_per_second: 10, ..AdmissionOptions::default() }, 0);
        assert!((0..10).all(|last| gate.admit(Some(source(last)), 5).is_ok()));
        assert_eq!(gate.admit(Some(source(0)), 5), Err(RefusalReason::HandshakeRate));
        assert_eq!(gate.admit(None, 100_005), Ok(()), "a tenth of a second later");
    }

    #[test]
    fn a_source_over_its_rate_uses_nothing_of_the_node_rate() {
        let gate = Gate::new(
            &AdmissionOptions {
                handshakes_per_second: 3,
                source_handshakes_per_second: 1,
                ..AdmissionOptions::default()
            },
            0,
        );
        assert_eq!(gate.admit(Some(source(1)), 0), Ok(()));
        for _ in 0..100 {
            assert_eq!(gate.admit(Some(source(1)), 0), Err(RefusalReason::SourceRate));
        }
        assert_eq!((gate.admit(Some(source(2)), 0), gate.admit(Some(source(3)), 0)), (Ok(()), Ok(())));
        assert_eq!(gate.admit(Some(source(4)), 0), Err(RefusalReason::HandshakeRate));
    }

    #[test]
    fn a_handshake_refused_by_the_node_rate_counts_no_session() {
        let gate = Gate::new(
            &AdmissionOptions { handshakes_per_second: 1, source_sessions_max: 1, ..AdmissionOptions::default() },
            0,
        );
        assert_eq!(gate.admit(Some(source(1)), 0), Ok(()));
        assert_eq!(gate.admit(Some(source(2)), 0), Err(RefusalReason::HandshakeRate));
        assert_eq!(gate.admit(Some(source(2)), 1_000_000), Ok(()));
        assert_eq!(gate.admit(Some(source(1)), 2_000_000), Err(RefusalReason::SourceSessions));
        gate.dismiss(Some(source(1)), 2_000_000);
        assert_eq!(gate.admit(Some(source(1)), 2_000_000), Ok(()));
    }

    #[test]
    fn a_refused_handshake_counts_no_session() {
        let gate = Gate::new(&AdmissionOptions { handshakes_per_second: 1, ..AdmissionOptions::default() }, 2);
        assert_eq!(gate.admit(None, 0), Ok(()));
        assert_eq!(gate.admit(None, 0), Err(RefusalReason::HandshakeRate));
        assert_eq!(gate.sessions.count(), 1);
        assert_eq!(gate.admit(None, 1_000_000), Ok(()));
        assert_eq!(gate.admit(None, 2_000_000), Err(RefusalReason::SessionLimit));
        gate.dismiss(None, 2_000_000);
        assert_eq!(gate.admit(None, 2_000_000), Ok(()));
    }

    #[test]
    fn handshakes_are_refused_over_the_memory_limit() {
        let gate = Gate::new(&AdmissionOptions::default(), 0);
        gate.set_over_memory(true);
        assert_eq!(gate.admit(None, 0), Err(RefusalReason::Memory));
        gate.set_over_memory(false);
        assert_eq!(gate.admit(None, 0), Ok(()));
    }

    #[test]
    fn retry_after_of_refused_clients_is_spread() {
        let gate = Gate::new(&AdmissionOptions::default(), 0);
        let seconds: Vec<u32> = (0..10).map(|_| gate.retry_after_s()).collect();
        assert_eq!(seconds, [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]);
    }
}
