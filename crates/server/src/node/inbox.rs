//! What arrives at a shard from other threads: requests of the control thread, whose results have receivers, and events.

use std::{net::TcpStream, sync::Arc};

use dunlin_engine::{
    Event,
    api::{ApiRequest, ApiResult},
    event::Ticket,
    insight::SessionsQuery,
};
use tokio::sync::{mpsc, oneshot};

use super::{
    Adoption, DrainPlan, Emulated, NetCounters, ShardReport, ShardSessions,
    event_queue::{EventQueue, EventSender},
    shard_waker::ShardWaker,
};

/// A request to a shard. It is not printed, because it may contain the secret id of a session.
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

/// A request for what a shard reports of itself. It causes no message.
pub(super) enum ReportRequest {
    /// Its counters.
    Counters(oneshot::Sender<Box<ShardReport>>),
    /// Nothing but that it reacts.
    Reaction(oneshot::Sender<()>),
    /// A part of its sessions.
    Sessions { query: Arc<SessionsQuery>, reply: oneshot::Sender<Box<ShardSessions>> },
}

/// The requester of a ticket's result.
#[derive(Debug)]
pub(super) enum Asker {
    /// A caller that receives the result unchanged.
    Api(oneshot::Sender<ApiResult>),
    /// A request for a report to which each shard contributes.
    Report(oneshot::Sender<Box<ShardReport>>),
    /// A request for sessions with their sockets.
    Sessions(oneshot::Sender<Box<ShardSessions>>),
}

/// The receiving ends of a shard's queues.
pub(super) struct Inbox {
    requests: mpsc::Receiver<ToShard>,
    report_requests: mpsc::Receiver<ReportRequest>,
    events: EventQueue,
    tickets: Tickets,
    shard_waker: Arc<ShardWaker>,
}

impl Inbox {
    pub(super) fn new(
        requests: mpsc::Receiver<ToShard>,
        report_requests: mpsc::Receiver<ReportRequest>,
        events: EventQueue,
        shard_waker: Arc<ShardWaker>,
    ) -> Self {
        Self { requests, report_requests, events, tickets: Tickets::default(), shard_waker }
    }

    /// Sends events to this inbox.
    pub(super) fn event_sender(&self) -> EventSender {
        self.events.sender()
    }

    /// The next request of the control thread; `None` also while too many are in progress.
    pub(super) fn next_request(&mut self) -> Option<ToShard> {
        if self.tickets.is_full() { None } else { self.requests.try_recv().ok() }
    }

    /// The next request for a report; read even while an overflow waits.
    pub(super) fn next_report_request(&mut self) -> Option<ReportRequest> {
        self.report_requests.try_recv().ok()
    }

    pub(super) fn next_event(&mut self) -> Option<Event<'static>> {
        self.events.next()
    }

    /// The ticket with which [`Inbox::redeem`] returns `asker`.
    pub(super) fn issue(&mut self, asker: Asker) -> Ticket {
        self.tickets.issue(asker)
    }

    pub(super) fn redeem(&mut self, ticket: Ticket) -> Asker {
        self.tickets.redeem(ticket)
    }

    /// Makes threads that add something wake the shard. The shard must then check once more what has arrived.
    pub(super) fn arm(&self) {
        self.shard_waker.sleeping.arm();
    }

    pub(super) fn disarm(&self) {
        self.shard_waker.sleeping.disarm();
    }

    /// Whether there are requests or events to read now.
    pub(super) fn has_input(&self) -> bool {
        // While too many requests are in progress, those in the queue are no reason to stay awake: the answer that makes room
        // comes with an event or a message.
        (!self.tickets.is_full() && !self.requests.is_empty()) || !self.events.is_empty()
    }

    pub(super) fn has_report_requests(&self) -> bool {
        !self.report_requests.is_empty()
    }

    pub(super) fn count_into(&self, net: &mut NetCounters) {
        net.events_queued = self.events.len();
        net.events_refused = self.events.refused();
    }
}

/// Maximum number of requests in progress; beyond it the shard does not read its inbox.
const TICKETS_MAX: usize = 1_024;

/// The requests in progress, by ticket.
#[derive(Debug, Default)]
struct Tickets {
    askers: Vec<Option<Asker>>,
    free: Vec<usize>,
}

impl Tickets {
    fn issue(&mut self, asker: Asker) -> Ticket {
        let place = self.free.pop().unwrap_or_else(|| {
            self.askers.push(None);
            self.askers.len() - 1
        });
        self.askers[place] = Some(asker);
        Ticket(place as u64)
    }

    fn redeem(&mut self, ticket: Ticket) -> Asker {
        let place = ticket.0 as usize;
        let asker = self.askers[place].take().expect("a ticket is answered once");
        self.free.push(place);
        asker
    }

    fn is_full(&self) -> bool {
        self.askers.len() - self.free.len() >= TICKETS_MAX
    }
}
