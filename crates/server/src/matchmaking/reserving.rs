//! Reservations on their way to rooms, and the users who are told when they have arrived. A node that is slow delays its own
//! rooms alone.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use dunlin_engine::api::{ApiRequest, PlaceReservation};
use dunlin_matchmaking::TicketId;
use futures_util::{StreamExt as _, stream};
use tokio::task::JoinSet;

use crate::{
    node::Node,
    peers::{self, ReserveOrder},
};

/// Rooms of a node that receive reservations at a time. Each on another node is a survey.
const ROOMS_AT_ONCE: usize = 16;

/// Maximum number of reservations that wait for a node. Further ones are not sent: users get places as if there were none.
const WAITING_MAX: usize = 16_384;

/// The node of a room; `None` for this one.
pub(super) type Host = Option<Box<str>>;

/// A ticket that was placed. Its users are told when their places are reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    /// The index of the queue.
    pub(super) queue: usize,
    pub(super) ticket: TicketId,
    pub(super) users: Vec<Arc<str>>,
    pub(super) channel: Arc<str>,
}

/// Reservations that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostReservations {
    /// Because [`WAITING_MAX`] waited for the node of the room.
    pub full: u64,
    /// Because that node did not answer, or the room was closed.
    pub failed: u64,
}

/// Sends reservations. Those of a room arrive in their order.
pub(super) struct Reserving {
    node: Node,
    outboxes: Outboxes,
    in_flight: JoinSet<Sent>,
    pub(super) lost: LostReservations,
}

/// What waits for each node. At most one batch of a node is on its way, so that no reservation overtakes another one.
#[derive(Default)]
struct Outboxes {
    by_host: BTreeMap<Host, Outbox>,
    /// The rooms of tickets that were placed, and whose users have not been told.
    placed: HashMap<(usize, TicketId), Arc<str>>,
}

#[derive(Default)]
struct Outbox {
    /// By room and by number. A later reservation of a number replaces an earlier one that has not left.
    rooms: BTreeMap<Arc<str>, BTreeMap<u64, PlaceReservation>>,
    count: usize,
    placements: Vec<Placement>,
    is_sending: bool,
}

struct Batch {
    host: Host,
    rooms: BTreeMap<Arc<str>, BTreeMap<u64, PlaceReservation>>,
    placements: Vec<Placement>,
}

/// A batch that has arrived, or is lost.
pub(super) struct Sent {
    host: Host,
    placements: Vec<Placement>,
    failed: u64,
}

impl Reserving {
    pub(super) fn new(node: Node) -> Self {
        Self { node, outboxes: Outboxes::default(), in_flight: JoinSet::new(), lost: LostReservations::default() }
    }

    /// Reserves places in the room of a channel, or releases them.
    pub(super) fn push(&mut self, host: Host, channel: &Arc<str>, reservation: PlaceReservation) {
        let has_space = self.outboxes.push(host, channel, reservation);
        self.lost.full += u64::from(!has_space);
    }

    /// Returns a placement, when what was pushed before has arrived.
    pub(super) fn announce(&mut self, host: Host, placement: Placement) {
        self.outboxes.announce(host, placement);
    }

    /// Whether the users of a ticket are to be told that it was placed in the room of a channel.
    pub(super) fn has_placed(&self, queue: usize, ticket: TicketId, channel: &str) -> bool {
        self.outboxes.placed.get(&(queue, ticket)).is_some_and(|placed| **placed == *channel)
    }

    /// Sends what waits for nodes to which nothing is on its way.
    pub(super) fn send(&mut self) {
        while let Some(batch) = self.outboxes.next_batch() {
            self.in_flight.spawn(send(self.node.clone(), batch));
        }
    }

    /// Waits for the next batch; forever if nothing is in flight.
    pub(super) async fn next(&mut self) -> Sent {
        match self.in_flight.join_next().await {
            Some(Ok(sent)) => sent,
            Some(Err(failure)) => std::panic::resume_unwind(failure.into_panic()),
            None => std::future::pending().await,
        }
    }

    /// A batch has arrived. Returns its placements, and sends what has come since.
    pub(super) fn on_sent(&mut self, Sent { host, placements, failed }: Sent) -> Vec<Placement> {
        self.lost.failed += failed;
        self.outboxes.on_sent(&host, &placements);
        self.send();
        placements
    }
}

impl Outboxes {
    /// Returns false if there is no space.
    fn push(&mut self, host: Host, channel: &Arc<str>, reservation: PlaceReservation) -> bool {
        let outbox = self.by_host.entry(host).or_default();
        if outbox.count >= WAITING_MAX {
            return false;
        }
        let before = outbox.rooms.entry(Arc::clone(channel)).or_default().insert(reservation.number, reservation);
        outbox.count += usize::from(before.is_none());
        true
    }

    fn announce(&mut self, host: Host, placement: Placement) {
        self.placed.insert((placement.queue, placement.ticket), Arc::clone(&placement.channel));
        self.by_host.entry(host).or_default().placements.push(placement);
    }

    fn next_batch(&mut self) -> Option<Batch> {
        let (host, outbox) = self.by_host.iter_mut().find(|(_, outbox)| !outbox.is_sending && !outbox.is_empty())?;
        let Outbox { rooms, placements, .. } =
            std::mem::replace(outbox, Outbox { is_sending: true, ..Outbox::default() });
        Some(Batch { host: host.clone(), rooms, placements })
    }

    fn on_sent(&mut self, host: &Host, placements: &[Placement]) {
        for Placement { queue, ticket, channel, .. } in placements {
            // The ticket may have been placed in another room since.
            if self.placed.get(&(*queue, *ticket)) == Some(channel) {
                self.placed.remove(&(*queue, *ticket));
            }
        }
        match self.by_host.get_mut(host) {
            Some(outbox) if outbox.is_empty() => drop(self.by_host.remove(host)),
            Some(outbox) => outbox.is_sending = false,
            None => unreachable!("a batch leaves its outbox behind"),
        }
    }
}

impl Outbox {
    fn is_empty(&self) -> bool {
        self.rooms.is_empty() && self.placements.is_empty()
    }
}

async fn send(node: Node, Batch { host, rooms, placements }: Batch) -> Sent {
    let (to, node) = (host.as_deref(), &node);
    let sent = stream::iter(rooms).map(|(channel, reservations)| async move {
        let count = reservations.len() as u64;
        let has_arrived = reserve(node, to, &channel, reservations.into_values().collect()).await;
        if has_arrived { 0 } else { count }
    });
    let failed = sent.buffer_unordered(ROOMS_AT_ONCE).fold(0, |all, failed| async move { all + failed }).await;
    Sent { host, placements, failed }
}

/// If the room has closed in the meantime, it is missing in the next report, and its tickets wait again.
async fn reserve(node: &Node, host: Option<&str>, channel: &str, reservations: Vec<PlaceReservation>) -> bool {
    if let Some((host, cluster)) = host.zip(node.cluster()) {
        peers::ask_node(cluster, host, &ReserveOrder::new(channel, &reservations)).await.is_ok()
    } else {
        let request = ApiRequest::ReservePlaces { channel: channel.into(), reservations: reservations.into() };
        matches!(node.ask_owner(channel, request).await, Ok(Ok(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reservation(number: u64, users: &[&str]) -> PlaceReservation {
        PlaceReservation { number, users: users.iter().map(|user| Arc::from(*user)).collect(), timeout_ms: 1_000 }
    }

    fn placement(ticket: u64, channel: &str) -> Placement {
        Placement { queue: 0, ticket: TicketId(ticket), users: vec!["u".into()], channel: channel.into() }
    }

    /// The numbers of the reservations, each with its number of users, by room.
    fn numbers(batch: &Batch) -> Vec<(&str, Vec<(u64, usize)>)> {
        let of_room = |reservations: &BTreeMap<u64, PlaceReservation>| {
            reservations.values().map(|one| (one.number, one.users.len())).collect()
        };
        batch.rooms.iter().map(|(channel, reservations)| (&**channel, of_room(reservations))).collect()
    }

    #[test]
    fn a_node_that_does_not_answer_delays_its_own_rooms_alone() {
        let mut outboxes = Outboxes::default();
        outboxes.push(Some("slow".into()), &"a".into(), reservation(1, &["u"]));
        outboxes.announce(Some("slow".into()), placement(1, "a"));
        let first = outboxes.next_batch().expect("the first");
        assert_eq!((numbers(&first), first.placements.len()), (vec![("a", vec![(1, 1)])], 1));
        outboxes.push(Some("slow".into()), &"a".into(), reservation(2, &["v"]));
        assert!(outboxes.next_batch().is_none(), "nothing overtakes the first");
        for number in 3..5 {
            outboxes.push(None, &"b".into(), reservation(number, &["w"]));
            let other = outboxes.next_batch().expect("another node");
            assert_eq!((other.host.clone(), numbers(&other)), (None, vec![("b", vec![(number, 1)])]));
            outboxes.on_sent(&other.host, &other.placements);
        }
        assert_eq!(outboxes.placed.len(), 1);
        outboxes.on_sent(&first.host, &first.placements);
        assert!(outboxes.placed.is_empty());
        let second = outboxes.next_batch().expect("the second");
        assert_eq!(numbers(&second), [("a", vec![(2, 1)])]);
        outboxes.on_sent(&second.host, &second.placements);
        assert!(outboxes.by_host.is_empty(), "nothing is kept of nodes");
    }

    #[test]
    fn what_waits_for_a_node_leaves_at_once_and_the_newest_counts() {
        let mut outboxes = Outboxes::default();
        outboxes.push(None, &"a".into(), reservation(1, &["u"]));
        outboxes.push(None, &"b".into(), reservation(2, &["v", "w"]));
        outboxes.push(None, &"a".into(), reservation(1, &[]));
        let batch = outboxes.next_batch().expect("all");
        assert_eq!(numbers(&batch), [("a", vec![(1, 0)]), ("b", vec![(2, 2)])]);
    }

    #[test]
    fn a_ticket_that_is_placed_again_waits_for_its_new_room() {
        let mut outboxes = Outboxes::default();
        outboxes.announce(Some("slow".into()), placement(1, "a"));
        let first = outboxes.next_batch().expect("the first room");
        outboxes.announce(None, placement(1, "b"));
        outboxes.on_sent(&first.host, &first.placements);
        assert_eq!(outboxes.placed.get(&(0, TicketId(1))).map(|channel| &**channel), Some("b"));
    }

    #[test]
    fn reservations_past_the_limit_are_not_sent() {
        let mut outboxes = Outboxes::default();
        let channel = Arc::from("a");
        let limit = WAITING_MAX as u64;
        assert!((0..limit).all(|number| outboxes.push(Some("slow".into()), &channel, reservation(number, &["u"]))));
        assert!(!outboxes.push(Some("slow".into()), &channel, reservation(limit, &["u"])), "one past the limit");
        assert!(outboxes.push(None, &channel, reservation(limit, &["u"])), "of another node");
        let batch = outboxes.next_batch().into_iter().chain(outboxes.next_batch());
        assert_eq!(batch.map(|batch| batch.rooms[&channel].len()).collect::<Vec<_>>(), [1, WAITING_MAX]);
        assert!(outboxes.push(Some("slow".into()), &channel, reservation(limit, &["u"])));
    }
}
