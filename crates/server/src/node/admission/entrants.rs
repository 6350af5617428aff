//! Where the connections of a shard came from, as far as that matters.

use std::net::IpAddr;

use super::sources::Source;
use crate::net::{ConnectionKey, TrustedProxies};

/// By the index of connections; empty as long as nobody asks.
#[derive(Debug, Default)]
pub(in crate::node) struct Entrants(Vec<Entrant>);

#[derive(Clone, Copy, Debug, Default)]
enum Entrant {
    #[default]
    Unknown,
    /// The other end of the socket.
    Peer(IpAddr),
    /// The client, which may be behind a proxy.
    Found(Source),
}

impl Entrants {
    /// A connection has this other end, if it still has one.
    pub(super) fn came_from(&mut self, connection: ConnectionKey, peer: Option<IpAddr>) {
        self.set(connection, peer.map_or(Entrant::Unknown, Entrant::Peer));
    }

    /// A connection comes from somebody who has been found already, if that could be.
    pub(super) fn was_found(&mut self, connection: ConnectionKey, source: Option<Source>) {
        self.set(connection, source.map_or(Entrant::Unknown, Entrant::Found));
    }

    fn set(&mut self, connection: ConnectionKey, entrant: Entrant) {
        let place = connection.index as usize;
        if self.0.len() <= place {
            self.0.resize(place + 1, Entrant::Unknown);
        }
        self.0[place] = entrant;
    }

    /// The connection's request is there: it tells who is behind a proxy.
    pub(super) fn find_source(&mut self, connection: ConnectionKey, proxies: &TrustedProxies, head: &[u8]) {
        if let Some(entrant) = self.0.get_mut(connection.index as usize)
            && let Entrant::Peer(peer) = *entrant
        {
            *entrant = Entrant::Found(Source::of(proxies.client(peer, head)));
        }
    }

    /// Where the client of the connection is.
    pub(super) fn source(&self, connection: ConnectionKey) -> Option<Source> {
        match self.0.get(connection.index as usize) {
            Some(Entrant::Found(source)) => Some(*source),
            _ => None,
        }
    }
}
