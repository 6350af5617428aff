//! Matchmaking and lobbies on the control thread. `dunlin_matchmaking` makes the decisions. This module supplies the
//! clock, opens the rooms, notifies the users and publishes listings. Requests come from the server API and, as RPC,
//! from clients.
//!
//! One node of a cluster runs the queues and the lobbies of all ([`queue_site`]). The others pass the requests of their clients
//! and of their API to it, and open rooms for it.

mod client;
mod cluster_rooms;
mod command;
mod hand_over;
mod lobby;
mod openings;
mod queue;
mod queue_peers;
mod queue_site;
mod remembered;
mod report;
mod reservation_number;
mod reserving;
mod room_summary;
mod ticket_names;
mod ticket_requesters;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use dunlin_config::{LobbySettings, MatchSettings};
use dunlin_matchmaking::TicketId;
use dunlin_queues::{CountedReceiver, CountedSender, Refused, declared::MATCH_REQUESTS};
use tokio::sync::oneshot;

use crate::{
    node::{Node, SourceNetwork},
    peers::{Forwards, MatchRooms, MatchRoomsQuestion},
    rooms::RoomReport,
};
use remembered::RememberedTickets;
use ticket_requesters::Requesters;

pub use client::NodeMethods;
pub use command::{
    HandedTickets, NamedTicket, TakenTickets, TicketAnswer, TicketCommand, TicketFault, TicketName, TicketParams,
    TicketTarget,
};
pub(crate) use openings::open;
pub use remembered::Verdicts;
pub use report::{LobbyReport, MatchReport, MatchmakingReport, QueuePeerCounts};
pub use reserving::LostReservations;
pub use room_summary::RoomSummary;
pub use ticket_requesters::TicketRequester;

/// Maximum number of publications that a queue or a lobby has in flight.
const PUBLICATIONS_AT_ONCE: usize = 64;

/// The name of a ticket in a message: at most 36 bytes, two quotes and a comma.
const TICKET_NAME_BYTES: usize = 39;

/// How long a node that has stopped waits until another one has taken its tickets.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Called once with the result of a request.
type Reply = Box<dyn FnOnce(Result<TicketAnswer, TicketFault>) + Send>;

/// A request and its callback.
enum MatchRequest {
    Command {
        command: TicketCommand,
        asker: Asker,
        reply: Reply,
    },
    HandOver {
        /// The id of the node that hands the tickets over, if it is about to leave the cluster.
        leaving: Option<Box<str>>,
        handed: HandedTickets,
        /// Receives the tickets that were taken.
        reply: oneshot::Sender<TakenTickets>,
    },
    /// Tickets of this node whose queue is gone.
    Enter {
        lost: HandedTickets,
    },
    /// The node has stopped, and is about to leave its cluster.
    Leave {
        /// Called when no waiting ticket is left.
        reply: oneshot::Sender<()>,
    },
}

/// Where a command comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    /// From a client of this node, in this network if its address is known.
    Client(Option<SourceNetwork>),
    /// From the API of this node.
    Backend,
    /// From another node, which has found this one. It is never passed on, so it cannot go round in circles.
    Node,
}

/// The rooms that queues and lobbies know.
#[derive(Debug)]
struct ListedRooms {
    namespaces: Vec<String>,
    lobbies: Vec<LobbySettings>,
}

impl ListedRooms {
    fn has(&self, room: &RoomReport) -> bool {
        self.namespaces.iter().any(|namespace| **namespace == *room.namespace)
            || self.lobbies.iter().any(|lobby| lobby.has(&room.channel))
    }
}

/// Sends requests to the matchmaking of a node. Cheap to clone.
#[derive(Clone)]
pub struct MatchHandle {
    requests: CountedSender<MatchRequest>,
    settings: Arc<[MatchSettings]>,
    /// The users who request tickets, in the order of `settings`. Shards check this when a client requests a ticket,
    /// before any backend request.
    requesters: Arc<[Mutex<Requesters>]>,
    listed: Arc<ListedRooms>,
    /// The region of this node; empty if it has none.
    region: Arc<str>,
    started: Instant,
    report: Arc<Mutex<MatchmakingReport>>,
    /// The tickets of this node that wait on another one.
    remembered: Arc<Mutex<RememberedTickets>>,
}

/// The task that runs after the node has started.
pub struct MatchTask {
    requests: CountedReceiver<MatchRequest>,
    handle: MatchHandle,
    lobbies: Vec<LobbySettings>,
    boot: u32,
    /// Clients' commands that are passed to other nodes.
    forwards: Arc<Forwards>,
}

/// Prepares matchmaking with these settings for a node in a region; `None` if there are none. `boot` differs between two starts
/// of the node, which may have `surveys_limit` surveys.
pub fn prepare(
    matchmaking: &[MatchSettings],
    lobbies: &[LobbySettings],
    boot: u32,
    region: &str,
    surveys_limit: usize,
) -> Option<MatchTask> {
    if matchmaking.is_empty() && lobbies.is_empty() {
        return None;
    }
    let (sender, requests) = MATCH_REQUESTS.counted_channel();
    let requesters = matchmaking.iter().map(|settings| Mutex::new(Requesters::new(settings)));
    let handle = MatchHandle {
        requests: sender,
        settings: matchmaking.into(),
        requesters: requesters.collect(),
        listed: Arc::new(ListedRooms {
            namespaces: matchmaking.iter().map(|settings| settings.namespace.clone()).collect(),
            lobbies: lobbies.to_vec(),
        }),
        region: region.into(),
        started: Instant::now(),
        report: Arc::default(),
        remembered: Arc::new(Mutex::new(RememberedTickets::new(matchmaking))),
    };
    Some(MatchTask { requests, handle, lobbies: lobbies.to_vec(), boot, forwards: Forwards::of_tickets(surveys_limit) })
}

impl MatchTask {
    /// A handle that sends requests to this task.
    pub fn handle(&self) -> MatchHandle {
        self.handle.clone()
    }

    /// Runs until the node, which has this id in its cluster, stops.
    pub async fn run(self, node: Node, own: Box<str>) {
        queue::run(self, node, own).await;
    }
}

impl MatchHandle {
    /// Carries out a command of the API.
    ///
    /// # Errors
    /// [`TicketFault`]
    pub async fn ask(&self, command: TicketCommand) -> Result<TicketAnswer, TicketFault> {
        self.asked(command, Asker::Backend).await
    }

    /// Carries out a command of another node, which takes this one for the node that runs the queues.
    ///
    /// # Errors
    /// [`TicketFault`]
    pub async fn ask_for_node(&self, command: TicketCommand) -> Result<TicketAnswer, TicketFault> {
        self.asked(command, Asker::Node).await
    }

    /// Goes on with tickets that another node hands over, `leaving` if it is about to leave the cluster. Returns those that it has
    /// taken, now or before.
    ///
    /// # Errors
    /// [`TicketFault`]: none was taken.
    pub async fn take_over(
        &self,
        leaving: Option<Box<str>>,
        handed: HandedTickets,
    ) -> Result<TakenTickets, TicketFault> {
        let (reply, taken) = oneshot::channel();
        let bytes = handed.tickets.iter().map(NamedTicket::bytes).sum();
        let sent = self.requests.try_send(MatchRequest::HandOver { leaving, handed, reply }, bytes);
        sent.map_err(|refused| match refused {
            Refused::Full(_) => TicketFault::Busy,
            Refused::Closed(_) => TicketFault::Stopped,
        })?;
        taken.await.map_err(|_| TicketFault::Stopped)
    }

    /// Ends the queues of a node that has stopped, when they have handed over the tickets that wait; at the latest after
    /// [`LEAVE_TIMEOUT`].
    pub async fn leave(&self) {
        let (reply, has_left) = oneshot::channel();
        let sent = self.requests.try_send(MatchRequest::Leave { reply }, size_of::<MatchRequest>());
        if sent.is_ok() {
            // Whether it is late or the task has ended, what is left is lost.
            let _ = tokio::time::timeout(LEAVE_TIMEOUT, has_left).await;
        }
    }

    /// A page of this node's rooms, for the node that runs the queues, and the tickets that wait there.
    pub fn rooms_page(&self, node: &Node, question: &MatchRoomsQuestion, answer_bytes_max: usize) -> MatchRooms {
        let is_first = question.after.is_empty();
        if is_first {
            self.follow(node, &question.verdicts());
        }
        let waiting = if is_first { self.remembered().names(Instant::now()) } else { Vec::new() };
        let page_bytes_max = answer_bytes_max.saturating_sub(waiting.len() * TICKET_NAME_BYTES);
        let (rooms, takes_rooms) = self.own_rooms(node);
        let page = cluster_rooms::page(rooms, &question.after, page_bytes_max);
        MatchRooms::new(page, self.region.as_ref().into(), takes_rooms).with_waiting(&waiting)
    }

    /// Enters the tickets again whose queue is gone. If the queue's task is busy, they follow with a later question.
    fn follow(&self, node: &Node, verdicts: &Verdicts) {
        let nodes = node.cluster().map(|cluster| cluster.live_nodes());
        let is_live = |node: &str| nodes.iter().flat_map(|nodes| nodes.iter()).any(|live| *live.node == *node);
        for lost in self.remembered().follow(Instant::now(), verdicts, is_live) {
            let bytes = lost.tickets.iter().map(NamedTicket::bytes).sum();
            drop(self.requests.try_send(MatchRequest::Enter { lost }, bytes));
        }
    }

    /// Remembers a ticket that the node `at` has accepted, and that waits there.
    fn remember(&self, command: TicketCommand, outcome: &Result<TicketAnswer, TicketFault>, at: Box<str>) {
        if let (TicketCommand::Submit { namespace, request, .. }, Ok(answer)) = (command, outcome) {
            self.remembered().on_submitted(Instant::now(), (namespace, request), answer, at);
        }
    }

    fn remembered(&self) -> MutexGuard<'_, RememberedTickets> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This node's rooms that queues and lobbies know, and whether it takes further ones.
    fn own_rooms(&self, node: &Node) -> (Vec<RoomSummary>, bool) {
        let rooms = node.rooms().iter().filter(|room| self.listed.has(room)).map(RoomSummary::of).collect();
        // Asked after the rooms: a room that has left the node would otherwise look like one that has closed.
        (rooms, !node.is_draining())
    }

    async fn asked(&self, command: TicketCommand, asker: Asker) -> Result<TicketAnswer, TicketFault> {
        let (sender, answer) = oneshot::channel();
        self.send_from(asker, command, Box::new(move |outcome| drop(sender.send(outcome))));
        answer.await.unwrap_or(Err(TicketFault::Stopped))
    }

    /// The counters and sizes.
    pub fn report(&self) -> MatchmakingReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Carries out a command of a client without waiting, so that shards can call it.
    fn send(&self, source: Option<SourceNetwork>, command: TicketCommand, reply: Reply) {
        self.send_from(Asker::Client(source), command, reply);
    }

    fn send_from(&self, asker: Asker, command: TicketCommand, reply: Reply) {
        let bytes = size_of::<MatchRequest>() + command.bytes();
        let (request, fault) = match self.requests.try_send(MatchRequest::Command { command, asker, reply }, bytes) {
            Ok(()) => return,
            Err(Refused::Full(request)) => (request, TicketFault::Busy),
            Err(Refused::Closed(request)) => (request, TicketFault::Stopped),
        };
        if let MatchRequest::Command { reply, .. } = request {
            reply(Err(fault));
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
