//! Which channels a client subscribes to, and from which address it connects.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

/// A local address for a connection, among those of its process.
pub fn source_address(sources: &Range<u32>, number: usize) -> IpAddr {
    let own = sources.start + number as u32 % sources.len() as u32;
    // The first ones of 127.0.0.0/8 are used by servers.
    IpAddr::V4(Ipv4Addr::from(0x7f00_0100 + own))
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
    fn addresses_are_in_127_and_those_of_the_process() {
        let addresses = |sources: Range<u32>| (0..16).map(|of| source_address(&sources, of)).collect::<Vec<_>>();
        let (one, other) = (addresses(0..8), addresses(8..700));
        assert!(one.iter().chain(&other).all(IpAddr::is_loopback));
        assert!(one[0] == one[8] && one[0] != one[7] && !other.iter().any(|address| one.contains(address)));
        assert_eq!(source_address(&(0..700), 699), IpAddr::from([127, 0, 3, 187]));
    }
}
