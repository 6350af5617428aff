//! Which channels a client subscribes to, and from which address it connects.

use std::net::{IpAddr, Ipv4Addr};

/// Source addresses of one process. Closed connections hold their ports for a minute, and one address has 28,000.
const SOURCES: u64 = 8;

/// An address of the loopback interface for a connection. Each process has its own.
pub fn source_address(worker: u64, connection: u64) -> IpAddr {
    let number = 256 + worker * SOURCES + connection % SOURCES;
    IpAddr::V4(Ipv4Addr::from(0x7f00_0000 | number as u32))
}

/// Different channels, chosen by the connection's number alone.
pub fn chosen(connection: u64, count: u32, channels: u32) -> Vec<u32> {
    let mut state = connection;
    let mut found: Vec<u32> = Vec::with_capacity(count as usize);
    while found.len() < count.min(channels) as usize {
        let channel = (next_random(&mut state) % u64::from(channels)) as u32;
        if !found.contains(&channel) {
            found.push(channel);
        }
    }
    found
}

/// splitmix64: statistically even, and repeatable from a seed.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_channels_differ_and_are_repeatable() {
        let channels = chosen(7, 10, 12);
        assert_eq!(channels, chosen(7, 10, 12));
        let distinct: std::collections::BTreeSet<_> = channels.iter().collect();
        assert_eq!(distinct.len(), 10);
        assert!(channels.iter().all(|&channel| channel < 12));
        assert_eq!(chosen(7, 10, 3).len(), 3, "there are no more");
        let firsts: std::collections::BTreeSet<u32> = (0..1_000).flat_map(|of| chosen(of, 1, 100)).collect();
        assert!(firsts.len() > 95, "a thousand choices cover nearly all of a hundred channels");
    }

    #[test]
    fn processes_have_different_addresses_in_127() {
        let mut seen = std::collections::BTreeSet::new();
        for (worker, connection) in (0..64).flat_map(|worker| (0..16).map(move |connection| (worker, connection))) {
            let IpAddr::V4(address) = source_address(worker, connection) else { panic!("it is IPv4") };
            assert!(address.is_loopback());
            seen.insert((worker, address));
        }
        let addresses: std::collections::BTreeSet<_> = seen.iter().map(|(_, address)| address).collect();
        assert_eq!(seen.len(), addresses.len(), "no two processes share an address");
    }
}
