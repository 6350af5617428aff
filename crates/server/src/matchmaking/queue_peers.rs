//! What the queues know of the other nodes of the cluster, and what they have asked them.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use dunlin_matchmaking::{CRITERIA_MAX, CRITERION_BYTES_MAX, MatchRefusal, MatchRules, USER_BYTES_MAX};
use tokio::task::JoinSet;

use super::{
    Asker, MatchHandle, QueuePeerCounts, Reply, TicketAnswer, TicketCommand, TicketFault, Verdicts,
    cluster_rooms::{self, ClusterRooms, Round},
    hand_over::{Arrived, Batch, HandOver},
    queue_site::{QueueNodes, QueueSite},
};
use crate::{
    node::{Node, NodeCluster},
    peers::{self, Forwards, HandOverOrder, HandOverReply, TicketOrder, TicketReply},
};

/// Maximum number of tickets in one message, and their bytes: half of what NATS takes by default.
const HANDED_MAX: usize = 32;
const HANDED_BYTES_MAX: usize = 512 << 10;

pub(super) struct QueuePeers {
    nodes: QueueNodes,
    site: QueueSite,
    /// Clients' commands that are being passed on.
    forwards: Arc<Forwards>,
    /// What the other nodes hear with the next questions about the tickets that they remember.
    verdicts: BTreeMap<Box<str>, Verdicts>,
    pub(super) rooms: ClusterRooms,
    /// The questions about rooms that are in flight: at most one round.
    round: JoinSet<Round>,
    hand_over: HandOver,
    /// The answer to its batch; `None` if there is none.
    hand_over_reply: JoinSet<Option<HandOverReply>>,
    pub(super) counts: QueuePeerCounts,
}

impl QueuePeers {
    pub(super) fn new(node: Node, own: Box<str>, region: &str, forwards: Arc<Forwards>) -> Self {
        let nodes = QueueNodes::new(node, own);
        Self {
            site: nodes.site(),
            forwards,
            verdicts: BTreeMap::new(),
            nodes,
            rooms: ClusterRooms::new(region.into()),
            round: JoinSet::new(),
            hand_over: HandOver::new(Instant::now()),
            hand_over_reply: JoinSet::new(),
            counts: QueuePeerCounts::default(),
        }
    }

    pub(super) fn is_here(&self) -> bool {
        self.site == QueueSite::Here
    }

    /// Looks for the node that runs the queues. Returns whether this one was it before.
    pub(super) fn find_site(&mut self) -> bool {
        let site = self.nodes.site();
        let before = std::mem::replace(&mut self.site, site);
        self.counts.is_here = self.is_here();
        before == QueueSite::Here
    }

    /// Another node is about to leave the cluster.
    pub(super) fn note_leaving(&mut self, node: Box<str>) {
        self.nodes.note_leaving(node);
    }

    /// Passes a command on whose ticket is not here. A ticket that has a room stays on the node that ran the queues when it was
    /// placed, so that all nodes are asked for a ticket that the node that runs them now does not know.
    pub(super) fn forward(&mut self, command: TicketCommand, asker: Asker, reply: Reply, handle: &MatchHandle) {
        let is_new = matches!(command, TicketCommand::Submit { .. });
        let Some(cluster) = self.nodes.cluster().cloned() else {
            return reply(Err(TicketFault::Refused(MatchRefusal::UnknownTicket)));
        };
        let at = match &self.site {
            QueueSite::At(node) => Some(node.clone()),
            QueueSite::Here => None,
            QueueSite::Unknown => return reply(Err(TicketFault::Unreachable)),
        };
        // `broker.nats.peers.surveys_limit` bounds how many of the API wait: further ones fail at once.
        let place = match asker {
            Asker::Client(source) => {
                let place = self.forwards.begin(source);
                if place.is_none() {
                    self.counts.forwards_refused += 1;
                    return reply(Err(TicketFault::Busy));
                }
                place
            }
            Asker::Backend | Asker::Node => None,
        };
        self.counts.forwarded += 1;
        let handle = handle.clone();
        tokio::spawn(async move {
            let order = TicketOrder::new(&command);
            let unknown = Err(TicketFault::Refused(MatchRefusal::UnknownTicket));
            let mut outcome = match at {
                Some(node) => {
                    let answer = peers::ask_node(&cluster, &node, &order).await;
                    let outcome = answer.map_or(Err(TicketFault::Unreachable), TicketReply::outcome);
                    handle.remember(command, &outcome, node);
                    outcome
                }
                None => unknown.clone(),
            };
            // The node may just have left the cluster, and its tickets are on the next one. A new ticket is not sent twice: its
            // user could be in two rooms.
            if !is_new && (outcome == unknown || outcome == Err(TicketFault::Unreachable)) {
                outcome = ask_others(&cluster, &order).await;
            }
            if let Ok(answer) = &outcome {
                handle.remembered().on_answered(answer);
            }
            drop(place);
            reply(outcome);
        });
    }

    /// Asks all other nodes for their rooms, unless they are being asked.
    pub(super) fn begin_round(&mut self) {
        let Some(cluster) = self.nodes.cluster() else { return };
        if self.round.is_empty() {
            let mut verdicts = std::mem::take(&mut self.verdicts);
            let nodes = self.nodes.others().into_iter();
            let nodes = nodes.map(|node| {
                let verdicts = verdicts.remove(&node).unwrap_or_default();
                (node, verdicts)
            });
            self.round.spawn(cluster_rooms::ask(Arc::clone(cluster), nodes.collect()));
        }
    }

    /// What a node hears with the next question.
    pub(super) fn tell(&mut self, node: Box<str>, verdicts: Verdicts) {
        self.verdicts.insert(node, verdicts);
    }

    pub(super) fn has_cluster(&self) -> bool {
        self.nodes.cluster().is_some()
    }

    /// The node that the tickets of this one go to now; `None` if there is none, or the last ones are on their way.
    pub(super) fn successor(&self) -> Option<Box<str>> {
        match &self.site {
            QueueSite::At(node) if self.hand_over.may_begin(Instant::now()) => Some(node.clone()),
            _ => None,
        }
    }

    /// Whether tickets are on their way, or wait for the next attempt.
    pub(super) fn is_handing_over(&self) -> bool {
        matches!(self.site, QueueSite::At(_)) && self.successor().is_none()
    }

    pub(super) fn begin_hand_over(&mut self, to: Box<str>, batch: Batch) {
        let order = HandOverOrder::new(self.nodes.leaving(), &batch.namespace, &batch.tickets);
        self.hand_over.begin(batch);
        self.send_hand_over(to, order);
    }

    /// Sends the batch again whose answer is missing. The other node knows the names of those that it has taken.
    pub(super) fn repeat_hand_over(&mut self) {
        let QueueSite::At(node) = &self.site else { return };
        let (to, leaving) = (node.clone(), self.nodes.leaving());
        if let Some(batch) = self.hand_over.repeat(Instant::now()) {
            let order = HandOverOrder::new(leaving, &batch.namespace, &batch.tickets);
            self.send_hand_over(to, order);
        }
    }

    /// Whether a command is about a ticket that is on its way to another node.
    pub(super) fn is_moving(&self, command: &TicketCommand) -> bool {
        self.hand_over.concerns(command)
    }

    /// Tickets on their way with which this node goes on.
    pub(super) fn recalled(&mut self) -> Option<Batch> {
        self.hand_over.recall(Instant::now(), self.is_here())
    }

    /// Takes note of an answer.
    pub(super) fn handed_over(&mut self, reply: Option<&HandOverReply>) -> Arrived {
        let arrived = self.hand_over.on_reply(Instant::now(), reply);
        if let Arrived::Answered { taken, .. } = &arrived {
            self.counts.handed_over += *taken as u64;
        }
        arrived
    }

    fn send_hand_over(&mut self, to: Box<str>, order: HandOverOrder) {
        let cluster = self.nodes.cluster().cloned();
        self.hand_over_reply.spawn(async move {
            // Without a cluster, no other node is known.
            peers::ask_node(&*cluster?, &to, &order).await.ok()
        });
    }

    /// Waits until nodes have answered.
    pub(super) async fn next(&mut self) -> PeerAnswer {
        let answer = tokio::select! {
            Some(round) = self.round.join_next() => round.map(PeerAnswer::Rooms),
            Some(reply) = self.hand_over_reply.join_next() => reply.map(PeerAnswer::HandedOver),
            else => std::future::pending().await,
        };
        answer.unwrap_or_else(|failure| std::panic::resume_unwind(failure.into_panic()))
    }
}

/// How many tickets of a queue fit into one message, whatever texts they have.
pub(super) fn handed_at_once(rules: &MatchRules) -> usize {
    // A character of an id or of a criterion takes up to six bytes as JSON.
    let user_bytes = 6 * USER_BYTES_MAX + 16;
    let wishes_bytes = (2 * CRITERIA_MAX + 1) * (6 * CRITERION_BYTES_MAX + 4) + 256;
    let ticket_bytes = user_bytes.saturating_mul(rules.party_max as usize) + wishes_bytes;
    (HANDED_BYTES_MAX / ticket_bytes).clamp(1, HANDED_MAX)
}

/// What other nodes have answered.
pub(super) enum PeerAnswer {
    Rooms(Round),
    HandedOver(Option<HandOverReply>),
}

/// The answer of the node that knows the ticket.
async fn ask_others(cluster: &NodeCluster, order: &TicketOrder) -> Result<TicketAnswer, TicketFault> {
    let answers = peers::ask_all(cluster, order).await.map_err(|_| TicketFault::Unreachable)?;
    let is_partial = answers.is_partial();
    let found = best_of(answers.results.into_iter().map(TicketReply::outcome));
    let unknown = Err(TicketFault::Refused(MatchRefusal::UnknownTicket));
    if is_partial && found == unknown { Err(TicketFault::Unreachable) } else { found }
}

/// The answer of the node that has the ticket. One that is handing it over says so, and does not know whether it has arrived.
fn best_of(outcomes: impl Iterator<Item = Result<TicketAnswer, TicketFault>>) -> Result<TicketAnswer, TicketFault> {
    let unknown = Err(TicketFault::Refused(MatchRefusal::UnknownTicket));
    outcomes.fold(unknown.clone(), |best, next| if best == unknown || next.is_ok() { next } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_that_has_a_ticket_answers_for_all() {
        let unknown = || Err(TicketFault::Refused(MatchRefusal::UnknownTicket));
        let moving = || Err(TicketFault::Unreachable);
        let known = || Ok(TicketAnswer::of_backend("arena:1".into()));
        for outcomes in [[unknown(), moving(), known()], [known(), moving(), unknown()], [moving(), known(), moving()]]
        {
            assert_eq!(best_of(outcomes.into_iter()), known());
        }
        assert_eq!(best_of([unknown(), moving(), unknown()].into_iter()), moving());
        assert_eq!(best_of([unknown(), unknown()].into_iter()), unknown());
        assert_eq!(best_of(std::iter::empty()), unknown());
    }

    #[test]
    fn a_message_has_fewer_tickets_if_they_are_large() {
        let of_parties = |party_max| handed_at_once(&MatchRules { party_max, ..MatchRules::default() });
        assert_eq!([1, 5, 8, 100, u32::MAX].map(of_parties), [32, 32, 27, 3, 1]);
    }
}
