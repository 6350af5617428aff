use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SECOND_US: u64 = 1_000_000;

fn limits(sessions_max: u32, per_second: u32, idle_max: usize) -> SourceLimits {
    SourceLimits { sessions_max, handshakes: RefillRate::new(per_second), idle_max }
}

fn source(text: &str) -> SourceNetwork {
    SourceNetwork::of(text.parse().expect("an address"))
}

#[test]
fn a_source_is_an_address_or_a_prefix() {
    assert_eq!(source("192.0.2.7"), source("::ffff:192.0.2.7"));
    assert_ne!(source("192.0.2.7"), source("192.0.2.8"));
    assert_eq!(source("2001:db8:1:2::1"), source("2001:db8:1:2:ffff:ffff:ffff:ffff"));
    assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
    assert_eq!(source("192.0.2.7"), source("2002:c000:0207::9"), "its 6to4 prefix");
}

#[test]
fn sessions_per_source_are_limited() {
    let (limits, mut sources) = (limits(2, 0, 8), Sources::default());
    let (here, there) = (source("192.0.2.7"), source("192.0.2.8"));
    assert_eq!(sources.admit(here, &limits, 0), Ok(()));
    assert_eq!(sources.admit(here, &limits, 0), Ok(()));
    assert_eq!(sources.admit(here, &limits, 0), Err(SourceRefusal::Sessions));
    assert_eq!(sources.admit(there, &limits, 0), Ok(()));
    sources.dismiss(here, &limits, 0);
    assert_eq!(sources.admit(here, &limits, 0), Ok(()));
    for gone in [here, here, there] {
        sources.dismiss(gone, &limits, 0);
    }
    assert!(sources.entries.is_empty() && sources.idle.is_empty(), "{sources:?}");
}

#[test]
fn handshakes_per_source_are_limited() {
    let (limits, mut sources) = (limits(0, 3, 8), Sources::default());
    let here = source("2001:db8::1");
    for _ in 0..3 {
        assert_eq!(sources.admit(here, &limits, SECOND_US), Ok(()));
        sources.dismiss(here, &limits, SECOND_US);
    }
    assert_eq!(sources.admit(source("2001:db8::2"), &limits, SECOND_US), Err(SourceRefusal::Rate), "same prefix");
    assert_eq!(sources.admit(source("2001:db8:1::"), &limits, SECOND_US), Ok(()));
    assert_eq!(sources.admit(here, &limits, SECOND_US + 333_334), Ok(()));
    assert_eq!(sources.admit(here, &limits, SECOND_US + 333_334), Err(SourceRefusal::Rate));
}

#[test]
fn the_oldest_idle_source_is_evicted_at_the_limit() {
    let (limits, mut sources) = (limits(0, 1, 100), Sources::default());
    let address = |number: u32| SourceNetwork::of(IpAddr::from(number.to_be_bytes()));
    assert_eq!(sources.admit(address(0), &limits, 0), Ok(()), "it stays");
    for number in 1..=100 {
        assert_eq!(sources.admit(address(number), &limits, 0), Ok(()));
        sources.dismiss(address(number), &limits, 0);
    }
    assert_eq!(sources.admit(address(1), &limits, 0), Err(SourceRefusal::Rate), "all are remembered");
    for number in 101..=100_000 {
        assert_eq!(sources.admit(address(number), &limits, 0), Ok(()));
        sources.dismiss(address(number), &limits, 0);
        assert!(sources.entries.len() <= 102 && sources.idle.len() <= 101);
    }
    assert_eq!(
        sources.admit(address(0), &limits, 0),
        Err(SourceRefusal::Rate),
        "a source with a session is never evicted"
    );
    assert_eq!(sources.admit(address(1), &limits, 0), Ok(()), "long forgotten");
}

/// All sources that ever connected, each with its sessions and the state of its token bucket.
#[derive(Default)]
struct Ledger(BTreeMap<u8, (u32, u64, u64)>);

/// The time in nanoseconds in which an empty bucket of three tokens per second fills up.
const ALL_NS: u64 = 3 * 333_333_334;

impl Ledger {
    fn admit(&mut self, who: u8, now_us: u64) -> Result<(), SourceRefusal> {
        let (sessions, holds_ns, at_us) = self.0.entry(who).or_insert((0, ALL_NS, 0));
        if *sessions >= 4 {
            return Err(SourceRefusal::Sessions);
        }
        *holds_ns = (*holds_ns + (now_us - *at_us) * 1_000).min(ALL_NS);
        *at_us = now_us;
        *holds_ns = holds_ns.checked_sub(ALL_NS / 3).ok_or(SourceRefusal::Rate)?;
        *sessions += 1;
        Ok(())
    }
}

proptest! {
    #[test]
    fn evictions_do_not_change_the_limits_of_other_sources(
        steps in prop::collection::vec((0_u8..6, any::<bool>(), prop_oneof![Just(0), 0_u64..900_000]), 1..500),
    ) {
        let (limits, mut sources, mut ledger) = (limits(4, 3, 100), Sources::default(), Ledger::default());
        let mut now_us = 0;
        for (who, comes, pause_us) in steps {
            now_us += pause_us;
            let source = SourceNetwork::of(IpAddr::from([192, 0, 2, who]));
            if comes {
                prop_assert_eq!(sources.admit(source, &limits, now_us), ledger.admit(who, now_us));
            } else if let Some((sessions, ..)) = ledger.0.get_mut(&who).filter(|(sessions, ..)| *sessions > 0) {
                *sessions -= 1;
                sources.dismiss(source, &limits, now_us);
            }
            let queued = sources.entries.values().filter(|entry| entry.queued).count();
            prop_assert_eq!(queued, sources.idle.len());
        }
    }
}
