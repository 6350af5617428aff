//! The requests of the control thread to a shard, and the receivers of the results.

use std::{net::TcpStream, sync::Arc};

use dunlin_engine::{
    api::{ApiRequest, ApiResult},
    event::Ticket,
};
use tokio::sync::oneshot;

use super::{Adoption, DrainPlan, Emulated, ShardReport};

/// A request to a shard.
#[derive(Debug)]
pub(super) enum ToShard {
    /// Execute a request of the server API.
    Api { request: ApiRequest, reply: oneshot::Sender<ApiResult> },
    /// Take over a socket that another shard accepted.
    Accepted { stream: TcpStream },
    /// Take over a connection that becomes a session.
    Adopt { stream: TcpStream, adoption: Box<Adoption> },
    /// Execute commands from a separate HTTP request.
    Emulate { secret: Box<str>, commands: Vec<u8>, reply: oneshot::Sender<Emulated> },
    /// Use new options, and notify `done`.
    Reconfigure { options: Arc<dunlin_engine::Options>, done: oneshot::Sender<()> },
    /// Accept no more connections, close all sessions according to the plan, and notify `gone` after the last one.
    Drain { plan: DrainPlan, gone: oneshot::Sender<()> },
}

/// A request for a shard's report.
pub(super) type ReportRequest = oneshot::Sender<Box<ShardReport>>;

/// The requester of a ticket's result.
#[derive(Debug)]
pub(super) enum Asker {
    /// A caller that receives the result unchanged.
    Api(oneshot::Sender<ApiResult>),
    /// A request for a report to which each shard contributes.
    Report(ReportRequest),
}

/// Maximum number of requests in progress; beyond it the shard does not read its inbox.
pub(super) const TICKETS_MAX: usize = 1_024;

/// The requests in progress, by ticket.
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
