//! The source addresses of a shard's connections.

use std::net::IpAddr;

use dunlin_net::{ConnectionKey, TrustedProxies};

use super::source_networks::SourceNetwork;

/// Indexed by connection.
#[derive(Debug, Default)]
pub(super) struct Entrants(Vec<Entrant>);

#[derive(Clone, Copy, Debug, Default)]
enum Entrant {
    #[default]
    Unknown,
    /// The peer's address.
    Peer(IpAddr),
    /// The client's address, which may differ behind a proxy.
    Found(IpAddr),
}

impl Entrants {
    /// Stores the peer's address, if it is known.
    pub(super) fn came_from(&mut self, connection: ConnectionKey, peer: Option<IpAddr>) {
        self.set(connection, peer.map_or(Entrant::Unknown, Entrant::Peer));
    }

    /// Stores the client's address, if it was determined before.
    pub(super) fn was_found(&mut self, connection: ConnectionKey, address: Option<IpAddr>) {
        self.set(connection, address.map_or(Entrant::Unknown, Entrant::Found));
    }

    fn set(&mut self, connection: ConnectionKey, entrant: Entrant) {
        let place = connection.index as usize;
        if self.0.len() <= place {
            self.0.resize(place + 1, Entrant::Unknown);
        }
        self.0[place] = entrant;
    }

    /// Determines the client's address from the request's head.
    pub(super) fn find_source(&mut self, connection: ConnectionKey, proxies: &TrustedProxies, head: &[u8]) {
        if let Some(entrant) = self.0.get_mut(connection.index as usize)
            && let Entrant::Peer(peer) = *entrant
        {
            *entrant = Entrant::Found(proxies.client(peer, head));
        }
    }

    /// The address of the connection's client.
    pub(super) fn address(&self, connection: ConnectionKey) -> Option<IpAddr> {
        match self.0.get(connection.index as usize) {
            Some(Entrant::Found(address)) => Some(*address),
            _ => None,
        }
    }

    /// As [`Self::address`], or the peer's address before the client's is determined.
    pub(super) fn address_so_far(&self, connection: ConnectionKey) -> Option<IpAddr> {
        match self.0.get(connection.index as usize) {
            Some(Entrant::Found(address) | Entrant::Peer(address)) => Some(*address),
            _ => None,
        }
    }

    /// The source of the connection's client.
    pub(super) fn source(&self, connection: ConnectionKey) -> Option<SourceNetwork> {
        self.address(connection).map(SourceNetwork::of)
    }
}
