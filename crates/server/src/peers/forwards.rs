//! The limits on requests that are forwarded to other nodes, in total and per address, so that one client cannot take
//! the place of all others, nor of the node's surveys.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::node::SourceNetwork;

/// An address may have this share of all forwards.
const ADDRESS_SHARE: usize = 8;

/// Clients' commands about tickets may have this share of the node's surveys.
const TICKET_SHARE: usize = 16;

/// The forwards in progress.
#[derive(Debug)]
pub struct Forwards {
    forwards_max: usize,
    counts: Mutex<ForwardCounts>,
}

#[derive(Debug, Default)]
struct ForwardCounts {
    all: usize,
    by_source: HashMap<SourceNetwork, usize>,
}

impl Forwards {
    /// At most `forwards_max` in progress.
    pub fn new(forwards_max: usize) -> Arc<Self> {
        Arc::new(Self { forwards_max, counts: Mutex::default() })
    }

    /// Clients' commands about tickets, of a node that may have so many surveys.
    pub fn of_tickets(surveys_limit: usize) -> Arc<Self> {
        Self::new((surveys_limit / TICKET_SHARE).max(1))
    }

    /// A place for one more forward; `None` at a limit. A client whose address is unknown counts in total only.
    pub fn begin(self: &Arc<Self>, source: Option<SourceNetwork>) -> Option<Forward> {
        let source_max = self.forwards_max.div_ceil(ADDRESS_SHARE);
        let mut counts = self.counts();
        let of_source = source.and_then(|source| counts.by_source.get(&source)).copied().unwrap_or(0);
        if counts.all >= self.forwards_max || of_source >= source_max {
            return None;
        }
        counts.all += 1;
        if let Some(source) = source {
            *counts.by_source.entry(source).or_default() += 1;
        }
        drop(counts);
        Some(Forward { forwards: Arc::clone(self), source })
    }

    fn counts(&self) -> MutexGuard<'_, ForwardCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A forward in progress. Its place is released on drop.
#[derive(Debug)]
pub struct Forward {
    forwards: Arc<Forwards>,
    source: Option<SourceNetwork>,
}

impl Drop for Forward {
    fn drop(&mut self) {
        let mut counts = self.forwards.counts();
        counts.all -= 1;
        if let Some(source) = self.source
            && let Some(count) = counts.by_source.get_mut(&source)
        {
            *count -= 1;
            if *count == 0 {
                counts.by_source.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn source(last: u8) -> SourceNetwork {
        SourceNetwork::of(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn an_address_gets_an_eighth_and_all_get_the_whole() {
        let forwards = Forwards::new(16);
        let mut held: Vec<Forward> = (0..2).map(|_| forwards.begin(Some(source(1))).expect("room")).collect();
        assert!(forwards.begin(Some(source(1))).is_none(), "one past the share");
        held.extend(
            (2..9).flat_map(|last| [source(last), source(last)]).map(|one| forwards.begin(Some(one)).expect("room")),
        );
        assert!(forwards.begin(Some(source(9))).is_none() && forwards.begin(None).is_none(), "one past the total");
        held.clear();
        assert!(forwards.begin(Some(source(1))).is_some());
        assert!(forwards.counts().by_source.is_empty(), "ended ones leave nothing");
    }

    #[test]
    fn commands_about_tickets_get_a_sixteenth_of_the_surveys() {
        let forwards = Forwards::of_tickets(256);
        let held: Vec<Forward> = (0..8)
            .flat_map(|last| {
                let of_source: Vec<_> = std::iter::from_fn(|| forwards.begin(Some(source(last)))).collect();
                assert_eq!(of_source.len(), 2, "an eighth for an address");
                of_source
            })
            .collect();
        assert_eq!(held.len(), 16);
        assert!(forwards.begin(None).is_none(), "one past the total");
        assert_eq!([0, 15, 32].map(|surveys| Forwards::of_tickets(surveys).forwards_max), [1, 1, 2]);
    }

    #[test]
    fn the_smallest_limit_admits_one() {
        let forwards = Forwards::new(1);
        let one = forwards.begin(Some(source(1)));
        assert!(one.is_some() && forwards.begin(Some(source(2))).is_none());
    }
}
