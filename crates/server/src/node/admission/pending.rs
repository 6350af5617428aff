//! The connections of a shard that have no session, by the address of their peer.
//!
//! A connection is *pending* from its accept until it becomes a session, is handed over, or ends; after a refusal it is
//! pending until the client closes it. Each occupies a file, and a client pays nothing for it. So an address may have a
//! limited number of them, and when it opens one more, its oldest is closed. A client that finishes its handshake
//! at once is not affected by others behind the same address that do not.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use dunlin_net::{ConnectionKey, TrustedProxies};

use super::source_networks::SourceNetwork;

/// The pending connections of a shard; see the module's documentation.
#[derive(Debug)]
pub(super) struct PendingConnections {
    /// Maximum number of connections per address; 0 for no limit.
    address_max: usize,
    /// Trusted proxies, which open connections for many clients and have no limit.
    proxies: TrustedProxies,
    /// The connections of each address by serial number, the oldest first.
    by_source: HashMap<SourceNetwork, BTreeMap<u64, ConnectionKey>>,
    /// The address and serial number of each counted connection.
    by_connection: HashMap<ConnectionKey, (SourceNetwork, u64)>,
    next_number: u64,
}

impl PendingConnections {
    pub(super) fn new(address_max: u32, proxies: TrustedProxies) -> Self {
        Self {
            address_max: address_max as usize,
            proxies,
            by_source: HashMap::new(),
            by_connection: HashMap::new(),
            next_number: 0,
        }
    }

    /// Adds an accepted connection. If its address has too many now, returns the oldest one, which the caller must
    /// close.
    pub(super) fn insert(&mut self, connection: ConnectionKey, peer: IpAddr) -> Option<ConnectionKey> {
        if self.address_max == 0 || self.proxies.contain(peer) {
            return None;
        }
        let source = SourceNetwork::of(peer);
        let number = self.next_number;
        self.next_number += 1;
        let own = self.by_source.entry(source).or_default();
        own.insert(number, connection);
        let oldest = own.first_key_value().filter(|_| own.len() > self.address_max).map(|(_, oldest)| *oldest);
        self.by_connection.insert(connection, (source, number));
        oldest
    }

    /// Removes a connection that is no longer pending. Has no effect on other connections.
    pub(super) fn remove(&mut self, connection: ConnectionKey) {
        let Some((source, number)) = self.by_connection.remove(&connection) else { return };
        if let Some(own) = self.by_source.get_mut(&source) {
            own.remove(&number);
            if own.is_empty() {
                self.by_source.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u32) -> ConnectionKey {
        ConnectionKey { index, generation: 0 }
    }

    fn peer(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn an_address_past_its_limit_closes_its_own_oldest() {
        let mut pending = PendingConnections::new(2, TrustedProxies::default());
        assert_eq!(pending.insert(key(1), peer(1)), None);
        assert_eq!(pending.insert(key(2), peer(1)), None);
        assert_eq!(pending.insert(key(3), peer(2)), None, "another address");
        assert_eq!(pending.insert(key(4), peer(1)), Some(key(1)));
        pending.remove(key(1));
        pending.remove(key(2));
        assert_eq!(pending.insert(key(5), peer(1)), None, "one has become a session in the meantime");
    }

    #[test]
    fn trusted_proxies_and_a_limit_of_0_are_not_counted() {
        let proxies = TrustedProxies::parse(["192.0.2.9"]).expect("an address");
        let mut pending = PendingConnections::new(1, proxies);
        assert!((0..100).all(|index| pending.insert(key(index), peer(9)).is_none()));
        let mut pending = PendingConnections::new(0, TrustedProxies::default());
        assert!((0..100).all(|index| pending.insert(key(index), peer(1)).is_none()));
        assert!(pending.by_connection.is_empty() && pending.by_source.is_empty());
    }

    #[test]
    fn removed_connections_leave_no_entries() {
        let mut pending = PendingConnections::new(3, TrustedProxies::default());
        for index in 0..1_000 {
            if let Some(oldest) = pending.insert(key(index), peer((index % 7) as u8)) {
                pending.remove(oldest);
            }
        }
        assert_eq!(pending.by_connection.len(), 7 * 3);
        (0..1_000).for_each(|index| pending.remove(key(index)));
        assert!(pending.by_connection.is_empty() && pending.by_source.is_empty());
    }
}
