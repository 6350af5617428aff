//! The one gate of a node, which all shards and the control thread let sessions in by.
//!
//! Bounds are the node's, not each shard's: the kernel gives a shard its connections by chance, and one client's all to
//! different shards, so equal shares would refuse some too early and others too late. The node's rate is one atomic bucket.
//! Places are kept behind locks, by parts, that are held for as long as a look into a table takes; that is once for a
//! handshake and once for the end of a session, never on the way of a publication.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use dunlin_engine::Pace;

use super::sources::{Source, SourceLimits, SourceRefusal, Sources};
use crate::{net::TrustedProxies, node::RefusalReason};

/// Who may come in, and how fast.
#[derive(Clone, Debug)]
pub struct AdmissionOptions {
    /// Handshakes of the node in a second; one more is answered with 503. 0 for any number.
    pub handshakes_per_second: u32,
    /// Sessions of one IPv4 address or IPv6 /64 at a time; one more is answered with 429. 0 for any number.
    pub source_sessions_max: u32,
    /// Handshakes of one such place in a second; one more is answered with 429. 0 for any number.
    pub source_handshakes_per_second: u32,
    /// Such places without a session that are remembered for their rate.
    pub idle_sources_max: usize,
    /// Whose word about a client's address counts.
    pub trusted_proxies: TrustedProxies,
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        Self {
            handshakes_per_second: 0,
            source_sessions_max: 0,
            source_handshakes_per_second: 0,
            idle_sources_max: 65_536,
            trusted_proxies: TrustedProxies::default(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(in crate::node) struct Gate {
    handshakes: Option<Pace>,
    /// State of the bucket of handshakes.
    full_at_ns: AtomicU64,
    source_limits: SourceLimits,
    /// Empty when places have no bounds.
    sources: Box<[Mutex<Sources>]>,
    proxies: TrustedProxies,
    is_over_memory: AtomicBool,
    refusals: AtomicU32,
}

/// Parts of the table of places, so that shards seldom meet at one.
const PARTS: usize = 16;

/// Clients are asked to come back within so many seconds.
const RETRY_AFTER_MAX_S: u32 = 5;

impl Gate {
    pub(in crate::node) fn new(options: &AdmissionOptions) -> Self {
        let knows_sources = options.source_sessions_max > 0 || options.source_handshakes_per_second > 0;
        Self {
            handshakes: Pace::new(options.handshakes_per_second),
            full_at_ns: AtomicU64::new(0),
            source_limits: SourceLimits {
                sessions_max: options.source_sessions_max,
                handshakes: Pace::new(options.source_handshakes_per_second),
                idle_max: options.idle_sources_max.div_ceil(PARTS),
            },
            sources: if knows_sources { (0..PARTS).map(|_| Mutex::default()).collect() } else { Box::default() },
            proxies: options.trusted_proxies.clone(),
            is_over_memory: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
        }
    }

    /// Whether it matters where a connection comes from.
    pub(in crate::node) fn knows_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    pub(in crate::node) fn proxies(&self) -> &TrustedProxies {
        &self.proxies
    }

    /// Lets one in, or says why not. The node's own rate comes last: whoever is refused for their own takes nothing from the
    /// others.
    pub(in crate::node) fn admit(&self, source: Option<Source>, now_us: u64) -> Result<(), RefusalReason> {
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
        let Some(pace) = self.handshakes else { return Ok(()) };
        let taken = self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full| pace.take(full, now_us));
        taken.map(drop).map_err(|_| {
            self.dismiss(source, now_us);
            RefusalReason::HandshakeRate
        })
    }

    /// One that was let in has gone.
    pub(in crate::node) fn dismiss(&self, source: Option<Source>, now_us: u64) {
        if let Some(source) = source
            && let Some(mut sources) = self.part_of(source)
        {
            sources.dismiss(source, &self.source_limits, now_us);
        }
    }

    /// Nobody is let in while the process has more memory than it may.
    pub(in crate::node) fn set_over_memory(&self, is_over: bool) {
        self.is_over_memory.store(is_over, Ordering::Relaxed);
    }

    /// When a refused client should come back: one after another in another second, so that they do not come back as one.
    pub(in crate::node) fn retry_after_s(&self) -> u32 {
        1 + self.refusals.fetch_add(1, Ordering::Relaxed) % RETRY_AFTER_MAX_S
    }

    fn part_of(&self, source: Source) -> Option<MutexGuard<'_, Sources>> {
        let part = self.sources.get(source.part(PARTS))?;
        // Whoever panicked within left a table that is at worst a session off.
        Some(part.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> Source {
        Source::of([192, 0, 2, last].into())
    }

    #[test]
    fn the_node_lets_in_as_many_as_it_may_and_not_one_more() {
        let gate = Gate::new(&AdmissionOptions { handshakes_per_second: 10, ..AdmissionOptions::default() });
        assert!(!gate.knows_sources());
        assert!((0..10).all(|last| gate.admit(Some(source(last)), 5).is_ok()));
        assert_eq!(gate.admit(Some(source(0)), 5), Err(RefusalReason::HandshakeRate));
        assert_eq!(gate.admit(None, 100_005), Ok(()), "a tenth of a second later");
    }

    #[test]
    fn who_is_refused_for_their_own_rate_takes_nothing_from_the_others() {
        let gate = Gate::new(&AdmissionOptions {
            handshakes_per_second: 3,
            source_handshakes_per_second: 1,
            ..AdmissionOptions::default()
        });
        assert_eq!(gate.admit(Some(source(1)), 0), Ok(()));
        for _ in 0..100 {
            assert_eq!(gate.admit(Some(source(1)), 0), Err(RefusalReason::SourceRate));
        }
        assert_eq!((gate.admit(Some(source(2)), 0), gate.admit(Some(source(3)), 0)), (Ok(()), Ok(())));
        assert_eq!(gate.admit(Some(source(4)), 0), Err(RefusalReason::HandshakeRate));
    }

    #[test]
    fn who_is_refused_for_the_rate_of_all_has_no_session() {
        let gate = Gate::new(&AdmissionOptions {
            handshakes_per_second: 1,
            source_sessions_max: 1,
            ..AdmissionOptions::default()
        });
        assert_eq!(gate.admit(Some(source(1)), 0), Ok(()));
        assert_eq!(gate.admit(Some(source(2)), 0), Err(RefusalReason::HandshakeRate));
        assert_eq!(gate.admit(Some(source(2)), 1_000_000), Ok(()));
        assert_eq!(gate.admit(Some(source(1)), 2_000_000), Err(RefusalReason::SourceSessions));
        gate.dismiss(Some(source(1)), 2_000_000);
        assert_eq!(gate.admit(Some(source(1)), 2_000_000), Ok(()));
    }

    #[test]
    fn nobody_comes_in_while_memory_is_short() {
        let gate = Gate::new(&AdmissionOptions::default());
        gate.set_over_memory(true);
        assert_eq!(gate.admit(None, 0), Err(RefusalReason::Memory));
        gate.set_over_memory(false);
        assert_eq!(gate.admit(None, 0), Ok(()));
    }

    #[test]
    fn refused_clients_are_spread_over_some_seconds() {
        let gate = Gate::new(&AdmissionOptions::default());
        let seconds: Vec<u32> = (0..10).map(|_| gate.retry_after_s()).collect();
        assert_eq!(seconds, [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]);
    }
}
