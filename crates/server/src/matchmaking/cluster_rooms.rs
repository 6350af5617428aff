//! The rooms of all nodes, for the node that runs the queues.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use futures_util::future::join_all;

use super::{RoomSummary, TicketName, Verdicts};
use crate::{
    node::NodeCluster,
    peers::{self, MatchRooms, MatchRoomsQuestion},
};

/// What a node returns at once, in bytes of JSON, if more fits into a message of NATS.
const PAGE_BYTES_MAX: usize = 256 << 10;

/// The rooms of this node, and those of the other nodes as of their last answers.
#[derive(Default)]
pub(super) struct ClusterRooms {
    own: NodeRooms,
    by_node: BTreeMap<Box<str>, NodeRooms>,
    /// The other node of each room.
    nodes: HashMap<Arc<str>, Box<str>>,
    /// The other nodes of rooms that were opened there and are in no answer yet, and the number of answers since.
    expected: HashMap<Arc<str>, (Box<str>, u32)>,
    /// Rooms that may be on their way to another node, and the number of rounds without them.
    vanished: BTreeMap<Arc<str>, (RoomSummary, u32)>,
    /// Whether all nodes have answered in the last round.
    is_whole: bool,
}

/// A node's answer may be from before a room was opened or continued there. A room that is missing in so many is not there.
const ANSWERS_WITHOUT_MAX: u32 = 4;

#[derive(Default)]
struct NodeRooms {
    /// The region of the node; empty if it has none.
    region: Box<str>,
    /// Whether rooms may be opened there: it has answered, and is not about to leave.
    takes_rooms: bool,
    rooms: Vec<RoomSummary>,
    /// Rooms that were opened there since it has listed them.
    opened: u32,
}

/// The answers of nodes to one round of questions.
pub(super) type Round = Vec<(Box<str>, Option<NodeAnswer>)>;

/// What a node says about itself and its rooms.
#[derive(Clone, Debug)]
pub(super) struct NodeAnswer {
    pub(super) region: Box<str>,
    pub(super) takes_rooms: bool,
    pub(super) rooms: Vec<RoomSummary>,
    /// The tickets that it remembers.
    pub(super) waiting: Vec<TicketName>,
}

/// A room that tickets may be in.
pub(super) struct KnownRoom<'r> {
    pub(super) room: &'r RoomSummary,
    /// Whether a node has it now. Otherwise it may be on its way to another one.
    pub(super) is_present: bool,
}

impl ClusterRooms {
    /// For a node in this region; empty for none.
    pub(super) fn new(own_region: Box<str>) -> Self {
        let own = NodeRooms { region: own_region, takes_rooms: true, ..NodeRooms::default() };
        Self { own, is_whole: true, ..Self::default() }
    }

    /// Takes over the rooms of this node, and whether it takes further ones.
    pub(super) fn take_own(&mut self, (rooms, takes_rooms): (Vec<RoomSummary>, bool)) {
        (self.own.rooms, self.own.takes_rooms, self.own.opened) = (rooms, takes_rooms, 0);
    }

    /// Takes over the rooms of all nodes. A node that has not answered keeps the rooms of its last answer as long as it is live,
    /// because its tickets would otherwise lose their rooms whenever it is slow. It gets no new ones.
    pub(super) fn take(&mut self, round: Round, own: (Vec<RoomSummary>, bool)) {
        let mut before = std::mem::take(&mut self.by_node);
        // Rooms leave a node only if it drains or is gone. On other nodes, a room that is missing has closed.
        let mut moving = if own.1 { Vec::new() } else { std::mem::take(&mut self.own.rooms) };
        self.take_own(own);
        self.is_whole = round.iter().all(|(_, answer)| answer.is_some());
        for (node, answer) in round {
            let known = before.remove(&node).unwrap_or_default();
            let of_node = match answer {
                None => NodeRooms { takes_rooms: false, opened: 0, ..known },
                Some(NodeAnswer { region, takes_rooms, rooms, waiting: _ }) => {
                    if !takes_rooms {
                        moving.extend(known.rooms);
                    }
                    NodeRooms { region, takes_rooms, rooms, opened: 0 }
                }
            };
            self.by_node.insert(node, of_node);
        }
        moving.extend(before.into_values().flat_map(|of_node| of_node.rooms));
        self.nodes = self
            .by_node
            .iter()
            .flat_map(|(node, of_node)| of_node.rooms.iter().map(|room| (Arc::clone(&room.channel), node.clone())))
            .collect();
        let Self { by_node, nodes, expected, .. } = self;
        expected.retain(|channel, (node, answers)| {
            *answers += 1;
            by_node.contains_key(node) && !nodes.contains_key(channel) && *answers <= ANSWERS_WITHOUT_MAX
        });
        self.keep_vanished(moving);
    }

    /// Keeps rooms that no node has any more for some rounds: between two nodes, a room is on neither.
    fn keep_vanished(&mut self, moving: Vec<RoomSummary>) {
        let mut vanished = std::mem::take(&mut self.vanished);
        for (_, rounds) in vanished.values_mut() {
            *rounds += 1;
        }
        vanished.extend(moving.into_iter().map(|room| (Arc::clone(&room.channel), (room, 1))));
        let present: HashSet<&str> = self.present().map(|room| &*room.channel).collect();
        vanished.retain(|channel, (_, rounds)| *rounds <= ANSWERS_WITHOUT_MAX && !present.contains(&**channel));
        self.vanished = vanished;
    }

    /// Whether the rooms are those of all nodes.
    pub(super) const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// All rooms. Only one node has a room, unless it has just moved.
    pub(super) fn all(&self) -> impl Iterator<Item = &RoomSummary> {
        self.present().chain(self.vanished.values().map(|(room, _)| room))
    }

    /// The rooms of a namespace.
    pub(super) fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = KnownRoom<'_>> {
        let present = self.present().map(|room| KnownRoom { room, is_present: true });
        let vanished = self.vanished.values().map(|(room, _)| KnownRoom { room, is_present: false });
        present.chain(vanished).filter(move |known| *known.room.namespace == *namespace)
    }

    fn present(&self) -> impl Iterator<Item = &RoomSummary> {
        std::iter::once(&self.own).chain(self.by_node.values()).flat_map(|of_node| &of_node.rooms)
    }

    /// The other node that has the room of a channel.
    pub(super) fn node_of(&self, channel: &str) -> Option<&str> {
        let expected = || self.expected.get(channel).map(|(node, _)| node);
        self.nodes.get(channel).or_else(expected).map(|node| &**node)
    }

    /// Where a room is opened: of the nodes that take rooms, and that are in the region, if there are any, the one with the fewest
    /// players in its rooms, and among those with equally many, with the fewest rooms; `None` for this one. The players of a room
    /// that is opened come later, so the room counts at once.
    pub(super) fn node_for(&self, region: Option<&str>) -> Option<Box<str>> {
        let others = self.by_node.iter().map(|(node, of_node)| (Some(node), of_node));
        let nodes = std::iter::once((None, &self.own)).chain(others).filter(|(_, of_node)| of_node.takes_rooms);
        let is_elsewhere = |of_node: &NodeRooms| region.is_some_and(|region| *of_node.region != *region);
        // Of nodes with equal loads, this one is the first.
        let chosen = nodes.min_by_key(|(_, of_node)| (is_elsewhere(of_node), of_node.load()));
        chosen.and_then(|(node, _)| node.cloned())
    }

    /// A room is about to be opened on another node, or on this one (`None`).
    pub(super) fn note_opening(&mut self, node: Option<&str>, channel: Arc<str>) {
        match node {
            None => self.own.opened += 1,
            Some(node) => {
                self.expected.insert(channel, (node.into(), 0));
                if let Some(of_node) = self.by_node.get_mut(node) {
                    of_node.opened += 1;
                }
            }
        }
    }

    /// The other node has not taken a room, which was opened on this one instead.
    pub(super) fn note_opened_here(&mut self, channel: &str) {
        self.own.opened += 1;
        let chosen = self.expected.remove(channel);
        if let Some(of_node) = chosen.and_then(|(node, _)| self.by_node.get_mut(&node)) {
            // It may have listed its rooms since.
            of_node.opened = of_node.opened.saturating_sub(1);
        }
    }
}

impl NodeRooms {
    fn load(&self) -> (u64, u64) {
        let players = self.rooms.iter().map(|room| u64::from(room.players)).sum();
        (players, self.rooms.len() as u64 + u64::from(self.opened))
    }
}

/// Asks nodes for their rooms, and says what is known of the tickets that they remember.
pub(super) async fn ask(cluster: Arc<NodeCluster>, nodes: Vec<(Box<str>, Verdicts)>) -> Round {
    let asked = nodes.into_iter().map(|(node, verdicts)| {
        let cluster = &cluster;
        async move {
            let rooms = rooms_of(cluster, &node, &verdicts).await;
            (node, rooms)
        }
    });
    join_all(asked).await
}

async fn rooms_of(cluster: &NodeCluster, node: &str, verdicts: &Verdicts) -> Option<NodeAnswer> {
    let (mut rooms, mut waiting): (Vec<RoomSummary>, _) = (Vec::new(), Vec::new());
    loop {
        let question = match rooms.last() {
            None => MatchRoomsQuestion::first(verdicts),
            Some(room) => MatchRoomsQuestion::after(&room.channel),
        };
        let answer = peers::ask_node(cluster, node, &question).await.ok()?;
        waiting.extend(answer.waiting());
        let MatchRooms { rooms: page, more, region, takes_rooms, .. } = answer;
        // A page is behind the one before, so this ends whatever the node answers.
        let is_behind = page.first().zip(rooms.last()).is_none_or(|(first, last)| first.channel > last.channel);
        if !page.is_sorted_by(|one, next| one.channel < next.channel) || !is_behind || more && page.is_empty() {
            return None;
        }
        rooms.extend(page);
        if !more {
            return Some(NodeAnswer { region, takes_rooms, rooms, waiting });
        }
    }
}

/// The first of these rooms behind a channel, as many as fit, and whether more follow.
pub(super) fn page(mut rooms: Vec<RoomSummary>, after: &str, answer_bytes_max: usize) -> (Vec<RoomSummary>, bool) {
    rooms.retain(|room| *room.channel > *after);
    rooms.sort_unstable_by(|one, next| one.channel.cmp(&next.channel));
    let mut left = answer_bytes_max.min(PAGE_BYTES_MAX);
    let fits = |room: &&RoomSummary| {
        let bytes = serde_json::to_vec(room).map_or(usize::MAX, |json| json.len() + 1);
        let is_small = bytes <= left;
        left = left.saturating_sub(bytes);
        is_small
    };
    // A room that is larger than a page is sent alone, if NATS takes it.
    let count = rooms.iter().take_while(fits).count().max(1).min(rooms.len());
    let more = count < rooms.len();
    rooms.truncate(count);
    (rooms, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(channel: &str, players: u32) -> RoomSummary {
        RoomSummary {
            channel: channel.into(),
            namespace: "arena".into(),
            players,
            players_joined: players.into(),
            players_max: 8,
            reservations: Box::default(),
            is_made: true,
            is_public: true,
            metadata: "".into(),
            params: "".into(),
        }
    }

    fn answer(node: &str, region: &str, rooms: &[RoomSummary]) -> (Box<str>, Option<NodeAnswer>) {
        (
            node.into(),
            Some(NodeAnswer { region: region.into(), takes_rooms: true, rooms: rooms.to_vec(), waiting: Vec::new() }),
        )
    }

    /// The answer of a node that drains.
    fn last_answer(node: &str, rooms: &[RoomSummary]) -> (Box<str>, Option<NodeAnswer>) {
        (
            node.into(),
            Some(NodeAnswer { region: "".into(), takes_rooms: false, rooms: rooms.to_vec(), waiting: Vec::new() }),
        )
    }

    fn alone() -> ClusterRooms {
        ClusterRooms::new("".into())
    }

    /// A node without rooms.
    fn no_own() -> (Vec<RoomSummary>, bool) {
        (Vec::new(), true)
    }

    fn channels(rooms: &ClusterRooms) -> Vec<&str> {
        rooms.all().map(|room| &*room.channel).collect()
    }

    #[test]
    fn a_node_without_an_answer_keeps_its_rooms_while_it_is_live() {
        let mut rooms = alone();
        rooms.take(vec![answer("a", "", &[room("1", 0)]), answer("b", "", &[room("2", 0)])], no_own());
        assert!(rooms.is_whole());
        rooms.take(vec![("a".into(), None), answer("b", "", &[])], no_own());
        assert_eq!(channels(&rooms), ["1"], "a room that is missing in the answer of its node has closed");
        assert_eq!((rooms.node_of("1"), rooms.node_of("2")), (Some("a"), None));
        assert!(!rooms.is_whole());
    }

    #[test]
    fn a_room_that_moves_is_kept_for_some_rounds() {
        let is_present =
            |rooms: &ClusterRooms| rooms.of_namespace("arena").map(|known| known.is_present).collect::<Vec<_>>();
        let mut rooms = alone();
        rooms.take(vec![answer("a", "", &[room("1", 0)]), answer("b", "", &[room("2", 0)])], no_own());
        // One node drains, the other is gone.
        for _ in 0..ANSWERS_WITHOUT_MAX {
            rooms.take(vec![last_answer("a", &[])], no_own());
            assert_eq!(channels(&rooms), ["1", "2"]);
            assert_eq!((is_present(&rooms), rooms.node_of("1")), (vec![false, false], None));
        }
        rooms.take(vec![last_answer("a", &[]), answer("c", "", &[room("1", 3)])], no_own());
        assert_eq!((channels(&rooms), is_present(&rooms), rooms.node_of("1")), (vec!["1"], vec![true], Some("c")));

        // Rooms of this node move as well.
        rooms.take(Vec::new(), (vec![room("3", 0)], true));
        rooms.take(Vec::new(), (Vec::new(), true));
        assert_eq!(channels(&rooms), ["1"], "this node does not drain, so the room has closed");
        rooms.take(Vec::new(), (vec![room("3", 0)], true));
        rooms.take(Vec::new(), (Vec::new(), false));
        assert_eq!(channels(&rooms), ["1", "3"]);
    }

    #[test]
    fn a_queue_knows_the_rooms_of_its_namespace_alone() {
        let mut rooms = alone();
        let other = RoomSummary { namespace: "other".into(), ..room("other:1", 0) };
        rooms.take(vec![answer("a", "", &[room("1", 0), other.clone()])], (vec![other], true));
        let of_namespace = |name| rooms.of_namespace(name).map(|known| &*known.room.channel).collect::<Vec<_>>();
        assert_eq!((of_namespace("arena"), of_namespace("other").len(), of_namespace("")), (vec!["1"], 2, Vec::new()));
    }

    #[test]
    fn a_room_that_was_just_opened_may_miss_in_answers() {
        let mut rooms = alone();
        let answer = |channels: &[&str]| {
            let of_node: Vec<_> = channels.iter().map(|channel| room(channel, 0)).collect();
            vec![answer("a", "", &of_node)]
        };
        rooms.take(answer(&[]), no_own());
        rooms.note_opening(Some("a"), "1".into());
        rooms.note_opening(Some("a"), "2".into());
        rooms.take(answer(&[]), no_own());
        assert_eq!((rooms.node_of("1"), rooms.node_of("2")), (Some("a"), Some("a")));
        (1..ANSWERS_WITHOUT_MAX).for_each(|_| rooms.take(answer(&["1"]), no_own()));
        assert_eq!((rooms.node_of("1"), rooms.node_of("2")), (Some("a"), Some("a")));
        rooms.take(answer(&[]), no_own());
        assert_eq!((rooms.node_of("1"), rooms.node_of("2")), (None, None));
    }

    #[test]
    fn rooms_are_opened_where_the_fewest_players_are() {
        let mut rooms = alone();
        assert_eq!(rooms.node_for(None), None, "this node is alone");
        rooms.take(vec![answer("a", "", &[room("1", 3)]), answer("b", "", &[])], no_own());
        assert_eq!(rooms.node_for(None), None, "this one has as few as b");
        rooms.note_opening(None, "2".into());
        assert_eq!(rooms.node_for(None).as_deref(), Some("b"));
        rooms.note_opening(Some("b"), "3".into());
        assert_eq!((rooms.node_for(None), rooms.node_of("3"), rooms.node_of("2")), (None, Some("b"), None));
        rooms.take_own((vec![room("2", 4)], true));
        assert_eq!(rooms.node_for(None).as_deref(), Some("b"));
        rooms.note_opening(Some("b"), "4".into());
        assert_eq!(rooms.node_for(None).as_deref(), Some("b"), "it still has no players");
    }

    #[test]
    fn a_room_that_another_node_has_not_taken_is_here() {
        let mut rooms = alone();
        rooms.take(vec![answer("a", "", &[])], (vec![room("0", 0)], true));
        rooms.note_opening(Some("a"), "1".into());
        rooms.note_opened_here("1");
        assert_eq!(rooms.node_of("1"), None);
        assert_eq!(rooms.node_for(None).as_deref(), Some("a"), "it has no room");
        rooms.note_opening(Some("a"), "2".into());
        assert_eq!(rooms.node_for(None).as_deref(), Some("a"), "it has one room, and this node has two");
    }

    #[test]
    fn nodes_that_drain_or_are_silent_get_no_rooms() {
        let mut rooms = alone();
        let full = || (vec![room("0", 9)], true);
        rooms.take(vec![answer("a", "eu", &[]), answer("b", "", &[room("1", 1)])], full());
        assert_eq!(rooms.node_for(Some("eu")).as_deref(), Some("a"));
        rooms.take(vec![("a".into(), None), answer("b", "", &[room("1", 1)])], full());
        assert_eq!(rooms.node_for(Some("eu")).as_deref(), Some("b"), "a is silent");
        rooms.take(vec![("a".into(), None), last_answer("b", &[room("1", 1)])], full());
        assert_eq!(rooms.node_for(Some("eu")), None, "b drains");
        rooms.take(vec![answer("a", "eu", &[room("2", 8)]), last_answer("b", &[])], (Vec::new(), false));
        assert_eq!(rooms.node_for(None).as_deref(), Some("a"), "this one drains as well");
        rooms.take(vec![("c".into(), None)], full());
        assert_eq!(rooms.node_for(None), None, "a new node is not known yet");
    }

    #[test]
    fn rooms_are_opened_in_their_region_if_it_has_a_node() {
        let mut rooms = ClusterRooms::new("eu".into());
        let own = (vec![room("0", 7)], true);
        rooms.take(
            vec![answer("a", "us", &[room("1", 9)]), answer("b", "us", &[room("2", 8)]), answer("c", "", &[])],
            own,
        );
        assert_eq!(rooms.node_for(Some("us")).as_deref(), Some("b"));
        assert_eq!(rooms.node_for(Some("eu")), None);
        assert_eq!(rooms.node_for(Some("asia")).as_deref(), Some("c"));
        assert_eq!(rooms.node_for(None).as_deref(), Some("c"));
    }

    #[test]
    fn pages_have_what_fits_and_at_least_one_room() {
        let rooms: Vec<_> = ["3", "1", "2"].map(|channel| room(channel, 0)).to_vec();
        let bytes = serde_json::to_vec(&rooms[0]).expect("it is JSON").len() + 1;
        let of_page = |after: &str, bytes_max| {
            let (page, more) = page(rooms.clone(), after, bytes_max);
            (page.iter().map(|room| room.channel.to_string()).collect::<String>(), more)
        };
        assert_eq!(of_page("", 3 * bytes), ("123".to_owned(), false));
        assert_eq!(of_page("", 3 * bytes - 1), ("12".to_owned(), true));
        assert_eq!(of_page("2", 0), ("3".to_owned(), false));
        assert_eq!(of_page("3", 0), (String::new(), false));
    }
}
