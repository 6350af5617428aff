//! Matchmaking and lobbies on the control thread. `dunlin_matchmaking` makes the decisions. This module supplies the
//! clock, opens the rooms, notifies the users and publishes listings. Requests come from the server API and, as RPC,
//! from clients.

mod client;
mod command;
mod lobby;
mod openings;
mod queue;
mod report;
mod ticket_requesters;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use dunlin_config::{LobbySettings, MatchSettings};
use dunlin_matchmaking::TicketId;
use dunlin_queues::{CountedReceiver, CountedSender, Refused, declared::MATCH_REQUESTS};
use tokio::sync::oneshot;

use crate::node::Node;
use ticket_requesters::Requesters;

pub use client::NodeMethods;
pub use command::{TicketAnswer, TicketCommand, TicketFault, TicketName, TicketParams, TicketTarget};
pub use report::{LobbyReport, MatchReport, MatchmakingReport};
pub use ticket_requesters::TicketRequester;

/// Maximum number of publications and of requests to rooms that a queue or a lobby has in flight.
const PUBLICATIONS_AT_ONCE: usize = 64;

/// Called once with the result of a request.
type Reply = Box<dyn FnOnce(Result<TicketAnswer, TicketFault>) + Send>;

/// A request and its callback.
struct MatchRequest {
    command: TicketCommand,
    reply: Reply,
}

/// Sends requests to the matchmaking of a node. Cheap to clone.
#[derive(Clone)]
pub struct MatchHandle {
    requests: CountedSender<MatchRequest>,
    settings: Arc<[MatchSettings]>,
    /// The users who request tickets, in the order of `settings`. Shards check this when a client requests a ticket,
    /// before any backend request.
    requesters: Arc<[Mutex<Requesters>]>,
    started: Instant,
    report: Arc<Mutex<MatchmakingReport>>,
}

/// The task that runs after the node has started.
pub struct MatchTask {
    requests: CountedReceiver<MatchRequest>,
    handle: MatchHandle,
    lobbies: Vec<LobbySettings>,
    boot: u32,
}

/// Prepares matchmaking with these settings; `None` if there are none. `boot` differs between two starts of the node.
pub fn prepare(matchmaking: &[MatchSettings], lobbies: &[LobbySettings], boot: u32) -> Option<MatchTask> {
    if matchmaking.is_empty() && lobbies.is_empty() {
        return None;
    }
    let (sender, requests) = MATCH_REQUESTS.counted_channel();
    let requesters = matchmaking.iter().map(|settings| Mutex::new(Requesters::new(settings)));
    let handle = MatchHandle {
        requests: sender,
        settings: matchmaking.into(),
        requesters: requesters.collect(),
        started: Instant::now(),
        report: Arc::default(),
    };
    Some(MatchTask { requests, handle, lobbies: lobbies.to_vec(), boot })
}

impl MatchTask {
    /// A handle that sends requests to this task.
    pub fn handle(&self) -> MatchHandle {
        self.handle.clone()
    }

    /// Runs until the node stops.
    pub async fn run(self, node: Node) {
        queue::run(self, node).await;
    }
}

impl MatchHandle {
    /// Carries out a command.
    ///
    /// # Errors
    /// [`TicketFault`]
    pub async fn ask(&self, command: TicketCommand) -> Result<TicketAnswer, TicketFault> {
        let (sender, answer) = oneshot::channel();
        self.send(command, Box::new(move |outcome| drop(sender.send(outcome))));
        answer.await.unwrap_or(Err(TicketFault::Stopped))
    }

    /// The counters and sizes.
    pub fn report(&self) -> MatchmakingReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Passes a command on without waiting, so that shards can call it.
    fn send(&self, command: TicketCommand, reply: Reply) {
        let bytes = size_of::<MatchRequest>() + command.bytes();
        match self.requests.try_send(MatchRequest { command, reply }, bytes) {
            Ok(()) => {}
            Err(Refused::Full(request)) => (request.reply)(Err(TicketFault::Busy)),
            Err(Refused::Closed(request)) => (request.reply)(Err(TicketFault::Stopped)),
        }
    }

    fn index_of(&self, namespace: &str) -> Option<usize> {
        self.settings.iter().position(|settings| settings.namespace == namespace)
    }

    /// Counts a request of a user for a ticket.
    fn try_take(&self, index: usize, requester: &TicketRequester) -> Result<(), TicketFault> {
        let now_us = self.now_us();
        self.requesters_of(index).map_or(Ok(()), |mut requesters| requesters.try_take(requester, now_us))
    }

    /// Removes the entries of users who have requested no ticket for a while and have no waiting ticket.
    fn sweep(&self, index: usize, waits: impl Fn(TicketId) -> bool) {
        let now_us = self.now_us();
        if let Some(mut requesters) = self.requesters_of(index) {
            requesters.sweep(now_us, waits);
        }
    }

    fn requesters_of(&self, index: usize) -> Option<MutexGuard<'_, Requesters>> {
        self.requesters.get(index).map(|requesters| requesters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
