//! What the control thread puts into a shard's inbox, and who waits for the answers.

use std::net::TcpStream;

use dunlin_engine::{
    api::{Answer, ApiRequest},
    event::Ticket,
};
use tokio::sync::oneshot;

use super::{Adoption, DrainPlan, Emulated, ShardReport};

/// Something for a shard to do.
#[derive(Debug)]
pub(super) enum ToShard {
    /// Answer a request of the server API.
    Api { request: ApiRequest, reply: oneshot::Sender<Answer> },
    /// Tell all that is counted.
    Report { reply: oneshot::Sender<Box<ShardReport>> },
    /// Take over a socket that another shard accepted.
    Accepted { stream: TcpStream },
    /// Take over a connection that becomes a session.
    Adopt { stream: TcpStream, adoption: Box<Adoption> },
    /// Carry out commands of a session that came by a request of their own.
    Emulate { secret: Box<str>, commands: Vec<u8>, reply: oneshot::Sender<Emulated> },
    /// Take no more connections, close all sessions as the plan says, and say when they are gone.
    Drain { plan: DrainPlan, gone: oneshot::Sender<()> },
}

/// Who waits for the answer to a ticket.
#[derive(Debug)]
pub(super) enum Asker {
    /// Somebody who wants it as it is.
    Api(oneshot::Sender<Answer>),
    /// Somebody who wants a report, of which the answer is a part.
    Report(oneshot::Sender<Box<ShardReport>>),
}

/// Requests in flight that a shard may have; its inbox waits beyond that.
pub(super) const TICKETS_MAX: usize = 1_024;

/// The requests in flight, by ticket.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    askers: Vec<Option<Asker>>,
    free: Vec<usize>,
}

impl Tickets {
    pub(super) fn issue(&mut self, asker: Asker) -> Ticket {
        let place = self.free.pop().unwrap_or_else(|| {
            self.askers.push(None);
            self.askers.len() - 1
        });
        self.askers[place] = Some(asker);
        Ticket(place as u64)
    }

    pub(super) fn redeem(&mut self, ticket: Ticket) -> Asker {
        let place = ticket.0 as usize;
        let asker = self.askers[place].take().expect("a ticket is answered once");
        self.free.push(place);
        asker
    }

    pub(super) fn is_full(&self) -> bool {
        self.askers.len() - self.free.len() >= TICKETS_MAX
    }
}
