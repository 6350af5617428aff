//! The rooms of all nodes, for the node that runs the queues.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures_util::future::join_all;

use super::RoomSummary;
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
}

/// A node's answer may be from before a room was opened there. A room that is missing in so many is not there.
const ANSWERS_WITHOUT_MAX: u32 = 4;

#[derive(Default)]
struct NodeRooms {
    /// The region of the node; empty if it has none.
    region: Box<str>,
    rooms: Vec<RoomSummary>,
    /// Rooms that were opened there since it has listed them.
    opened: u32,
}

/// The answers of nodes to one round of questions.
pub(super) type Round = Vec<(Box<str>, Option<NodeAnswer>)>;

/// The region of a node and its rooms.
pub(super) type NodeAnswer = (Box<str>, Vec<RoomSummary>);

impl ClusterRooms {
    /// For a node in this region; empty for none.
    pub(super) fn new(own_region: Box<str>) -> Self {
        Self { own: NodeRooms { region: own_region, ..NodeRooms::default() }, ..Self::default() }
    }

    /// Takes over the rooms of this node.
    pub(super) fn take_own(&mut self, rooms: Vec<RoomSummary>) {
        (self.own.rooms, self.own.opened) = (rooms, 0);
    }

    /// Takes over answers. A node that has not answered keeps the rooms of its last answer as long as it is live, because
    /// its tickets would otherwise lose their rooms whenever it is slow.
    pub(super) fn take(&mut self, round: Round) {
        let mut before = std::mem::take(&mut self.by_node);
        for (node, answer) in round {
            let known = || before.remove(&node).map(|known| (known.region, known.rooms));
            let (region, rooms) = answer.or_else(known).unwrap_or_default();
            self.by_node.insert(node, NodeRooms { region, rooms, opened: 0 });
        }
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
    }

    /// All rooms. Only one node has a room, unless it has just moved.
    pub(super) fn all(&self) -> impl Iterator<Item = &RoomSummary> {
        std::iter::once(&self.own).chain(self.by_node.values()).flat_map(|of_node| &of_node.rooms)
    }

    /// The other node that has the room of a channel.
    pub(super) fn node_of(&self, channel: &str) -> Option<&str> {
        let expected = || self.expected.get(channel).map(|(node, _)| node);
        self.nodes.get(channel).or_else(expected).map(|node| &**node)
    }

    /// Where a room is opened: of the nodes in the region, if there are any, the one with the fewest players in its rooms, and
    /// among those with equally many, with the fewest rooms; `None` for this one. The players of a room that is opened come
    /// later, so the room counts at once.
    pub(super) fn node_for(&self, region: Option<&str>) -> Option<Box<str>> {
        let others = self.by_node.iter().map(|(node, of_node)| (Some(node), of_node));
        let nodes = std::iter::once((None, &self.own)).chain(others);
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
}

impl NodeRooms {
    fn load(&self) -> (u64, u64) {
        let players = self.rooms.iter().map(|room| u64::from(room.players)).sum();
        (players, self.rooms.len() as u64 + u64::from(self.opened))
    }
}

/// Asks nodes for their rooms.
pub(super) async fn ask(cluster: Arc<NodeCluster>, nodes: Vec<Box<str>>) -> Round {
    let asked = nodes.into_iter().map(|node| {
        let cluster = &cluster;
        async move {
            let rooms = rooms_of(cluster, &node).await;
            (node, rooms)
        }
    });
    join_all(asked).await
}

async fn rooms_of(cluster: &NodeCluster, node: &str) -> Option<NodeAnswer> {
    let mut rooms: Vec<RoomSummary> = Vec::new();
    loop {
        let after = rooms.last().map(|room| Box::from(&*room.channel)).unwrap_or_default();
        let answer = peers::ask_node(cluster, node, &MatchRoomsQuestion { after }).await;
        let MatchRooms { rooms: page, more, region } = answer.ok()?;
        // A page is behind the one before, so this ends whatever the node answers.
        let is_behind = page.first().zip(rooms.last()).is_none_or(|(first, last)| first.channel > last.channel);
        if !page.is_sorted_by(|one, next| one.channel < next.channel) || !is_behind || more && page.is_empty() {
            return None;
        }
        rooms.extend(page);
        if !more {
            return Some((region, rooms));
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
            number: 1,
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
        (node.into(), Some((region.into(), rooms.to_vec())))
    }

    fn channels(rooms: &ClusterRooms) -> Vec<&str> {
        rooms.all().map(|room| &*room.channel).collect()
    }

    #[test]
    fn a_node_without_an_answer_keeps_its_rooms_until_it_is_gone() {
        let mut rooms = ClusterRooms::default();
        rooms.take(vec![answer("a", "", &[room("1", 0)]), answer("b", "", &[room("2", 0)])]);
        rooms.take(vec![("a".into(), None), answer("b", "", &[])]);
        assert_eq!(channels(&rooms), ["1"]);
        assert_eq!((rooms.node_of("1"), rooms.node_of("2")), (Some("a"), None));
        rooms.take(vec![("b".into(), None)]);
        assert!(channels(&rooms).is_empty());
    }

    #[test]
    fn a_room_that_was_just_opened_may_miss_in_answers() {
        let mut rooms = ClusterRooms::default();
        let answer = |channels: &[&str]| {
            let of_node: Vec<_> = channels.iter().map(|channel| room(channel, 0)).collect();
            vec![answer("a", "", &of_node)]
        };
        rooms.take(answer(&[]));
        rooms.note_opening(Some("a"), "1".into());
        rooms.note_opening(Some("a"), "2".into());
        rooms.take(answer(&[]));
        assert_eq!((rooms.node_of("1"), rooms.node_of("2")), (Some("a"), Some("a")));
        (1..ANSWERS_WITHOUT_MAX).for_each(|_| rooms.take(answer(&["1"])));
        assert_eq!((rooms.node_of("1"), rooms.node_of("2")), (Some("a"), Some("a")));
        rooms.take(answer(&[]));
        assert_eq!((rooms.node_of("1"), rooms.node_of("2")), (None, None));
    }

    #[test]
    fn rooms_are_opened_where_the_fewest_players_are() {
        let mut rooms = ClusterRooms::default();
        assert_eq!(rooms.node_for(None), None, "this node is alone");
        rooms.take(vec![answer("a", "", &[room("1", 3)]), answer("b", "", &[])]);
        assert_eq!(rooms.node_for(None), None, "this one has as few as b");
        rooms.note_opening(None, "2".into());
        assert_eq!(rooms.node_for(None).as_deref(), Some("b"));
        rooms.note_opening(Some("b"), "3".into());
        assert_eq!((rooms.node_for(None), rooms.node_of("3"), rooms.node_of("2")), (None, Some("b"), None));
        rooms.take_own(vec![room("2", 4)]);
        assert_eq!(rooms.node_for(None).as_deref(), Some("b"));
        rooms.note_opening(Some("b"), "4".into());
        assert_eq!(rooms.node_for(None).as_deref(), Some("b"), "it still has no players");
    }

    #[test]
    fn rooms_are_opened_in_their_region_if_it_has_a_node() {
        let mut rooms = ClusterRooms::new("eu".into());
        rooms.take(vec![answer("a", "us", &[room("1", 9)]), answer("b", "us", &[room("2", 8)]), answer("c", "", &[])]);
        rooms.take_own(vec![room("0", 7)]);
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
