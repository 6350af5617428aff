//! A reserved place for a session whose request is on the control thread. It is reserved before the client receives its
//! handshake response.

use std::{fmt, net::IpAddr, sync::Arc};

use dunlin_net::Refused;

use super::source_networks::SourceNetwork;
use crate::node::shard_thread::Shared;

/// A reserved place. Released on drop, unless a shard has taken it over.
pub struct Admitted {
    shared: Arc<Shared>,
    address: Option<IpAddr>,
    is_taken_over: bool,
}

impl Admitted {
    /// Admits a client whose connection is from `peer` and who sent `head`, or returns the response.
    pub(in crate::node) fn new(shared: &Arc<Shared>, peer: Option<IpAddr>, head: &[u8]) -> Result<Self, Refused> {
        let gate = &shared.gate;
        let address = peer.map(|peer| gate.proxies().client(peer, head));
        let source = address.map(SourceNetwork::of);
        match gate.admit(source, shared.clock.now().mono_us) {
            Ok(()) => Ok(Self { shared: Arc::clone(shared), address, is_taken_over: false }),
            Err(reason) => Err(Refused::later(reason, gate.retry_after_s())),
        }
    }

    /// The client's address, if it is known.
    pub(in crate::node) fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Transfers the duty to release the place to the caller.
    pub(in crate::node) fn take_over(mut self) {
        self.is_taken_over = true;
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if !self.is_taken_over {
            let source = self.address.map(SourceNetwork::of);
            self.shared.gate.dismiss(source, self.shared.clock.now().mono_us);
        }
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").finish_non_exhaustive()
    }
}
