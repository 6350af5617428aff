//! A place for a session that is judged by the control thread, which has the request, before the client is told that it may
//! come in.

use std::{fmt, net::IpAddr, sync::Arc};

use super::sources::Source;
use crate::{
    net::{RefusalReason, Refused},
    node::shard_thread::Shared,
};

/// The place. Given back when it is dropped, unless a shard has taken it over.
pub struct Admitted {
    shared: Arc<Shared>,
    source: Option<Source>,
    is_taken_over: bool,
}

impl Admitted {
    /// Lets a client in whose connection is from `peer` and who sent `head`, or says what it is to be told.
    pub(in crate::node) fn new(shared: &Arc<Shared>, peer: Option<IpAddr>, head: &[u8]) -> Result<Self, Refused> {
        let gate = &shared.gate;
        let peer = peer.filter(|_| gate.knows_sources());
        let source = peer.map(|peer| Source::of(gate.proxies().client(peer, head)));
        let admitted = if shared.admit_session() {
            gate.admit(source, shared.clock.now().mono_us).inspect_err(|_| shared.dismiss_session())
        } else {
            Err(RefusalReason::SessionLimit)
        };
        match admitted {
            Ok(()) => Ok(Self { shared: Arc::clone(shared), source, is_taken_over: false }),
            Err(reason) => Err(Refused::later(reason, gate.retry_after_s())),
        }
    }

    /// Where the client is, if that matters.
    pub(super) fn source(&self) -> Option<Source> {
        self.source
    }

    /// Somebody else gives the place back.
    pub(super) fn take_over(mut self) {
        self.is_taken_over = true;
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if !self.is_taken_over {
            self.shared.dismiss_session();
            self.shared.gate.dismiss(self.source, self.shared.clock.now().mono_us);
        }
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").finish_non_exhaustive()
    }
}
