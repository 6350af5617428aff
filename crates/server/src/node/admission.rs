//! Decides which connections of a shard may stay and become sessions, by their addresses and the limits of the node.

mod admitted;
mod entrants;
mod handshake_limits;
mod pending;
mod session_limit;
mod source_networks;

use std::{net::IpAddr, sync::Arc};

use dunlin_engine::SourceKey;
use dunlin_net::{ConnectionKey, RefusalReason, Refused};

pub use admitted::Admitted;
pub use source_networks::SourceNetwork;

pub(super) use handshake_limits::Gate;

use super::shard_thread::Shared;
use entrants::Entrants;
use pending::PendingConnections;

/// The addresses of a shard's connections, and the limits on them.
pub(super) struct Admission {
    shared: Arc<Shared>,
    entrants: Entrants,
    pending: PendingConnections,
}

impl Admission {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let pending = PendingConnections::new(
            shared.net.pending_address_connections_max,
            shared.net.admission.trusted_proxies.clone(),
        );
        Self { shared, entrants: Entrants::default(), pending }
    }

    /// Stores the peer's address of a new connection, if it is known.
    pub(super) fn came_from(&mut self, connection: ConnectionKey, peer: Option<IpAddr>) {
        self.entrants.came_from(connection, peer);
    }

    /// Stores the client's address of a connection, if it was determined before.
    pub(super) fn was_found(&mut self, connection: ConnectionKey, address: Option<IpAddr>) {
        self.entrants.was_found(connection, address);
    }

    /// Determines the client's address from the request's head.
    pub(super) fn find_source(&mut self, connection: ConnectionKey, head: &[u8]) {
        self.entrants.find_source(connection, self.shared.gate.proxies(), head);
    }

    /// The address of the connection's client.
    pub(super) fn address(&self, connection: ConnectionKey) -> Option<IpAddr> {
        self.entrants.address(connection)
    }

    /// The address of the connection's client, or that of the peer as long as the request's head has not come.
    pub(super) fn address_so_far(&self, connection: ConnectionKey) -> Option<IpAddr> {
        self.entrants.address_so_far(connection)
    }

    /// The key of the source of the connection's client.
    pub(super) fn source_key(&self, connection: ConnectionKey) -> Option<SourceKey> {
        self.entrants.source(connection).map(SourceNetwork::key)
    }

    /// Adds a connection without a session. If its address has too many now, returns the oldest one, which the caller
    /// must close.
    pub(super) fn add_pending(&mut self, connection: ConnectionKey, peer: IpAddr) -> Option<ConnectionKey> {
        self.pending.insert(connection, peer)
    }

    /// Removes a connection that is no longer pending.
    pub(super) fn remove_pending(&mut self, connection: ConnectionKey) {
        self.pending.remove(connection);
    }

    /// Admits a connection as a session and counts it, or returns the response. Must be called before the handshake is
    /// processed.
    pub(super) fn admit(&self, connection: ConnectionKey, now_us: u64) -> Result<(), Refused> {
        let admitted = self.shared.gate.admit(self.entrants.source(connection), now_us);
        admitted.map_err(|reason| self.refused_for_now(reason))
    }

    /// The response to a client that may come back later.
    pub(super) fn refused_for_now(&self, reason: RefusalReason) -> Refused {
        Refused::later(reason, self.shared.gate.retry_after_s())
    }

    /// Reverts the counting of [`Self::admit`].
    pub(super) fn dismiss(&self, connection: ConnectionKey, now_us: u64) {
        self.shared.gate.dismiss(self.entrants.source(connection), now_us);
    }
}
