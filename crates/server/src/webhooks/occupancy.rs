//! Which channels of a cluster have subscribers, on any of its nodes.
//!
//! A node keeps the changes of its own channels in order ([`NodeChannels`]). Each node asks the others again and again for
//! their changes since the last answer, and adds them up ([`ClusterChannels`]). So all nodes know the same within a round,
//! and one of them, the *teller*, tells the backend: the node that has run for longest. Another one that takes its place
//! tells the changes of the last seconds again, because the former one may not have told them. A node that has left has no
//! subscribers. Times are milliseconds on the caller's monotonic clock.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

/// How long a channel must be without subscribers, so that clients that move to another node change nothing.
pub const VACANT_MS: u64 = 2_000;

/// How long the changes that another node has told are remembered. It must have told them within this time.
const RECENT_MS: u64 = 10_000;

/// Maximum number of channels that are remembered because they were vacated. A node that has not asked for longer gets all
/// occupied channels.
const VACATED_MAX: usize = 100_000;

/// Bytes of the names in one answer, so that shards do not wait for it.
pub const CHANGES_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of occupied channels, counted once for each node. Further ones are not told.
const CHANNELS_MAX: usize = 1_000_000;

/// Whether a channel has subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// It has some.
    Occupied,
    /// It has none any more.
    Vacated,
}

/// The changes of a node's channels since a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// What was known before is void, because the changes since that version are not known any more.
    pub is_reset: bool,
    /// The version after these changes.
    pub version: u64,
    /// Channels with subscribers.
    pub occupied: Vec<Arc<str>>,
    /// Channels without subscribers.
    pub vacated: Vec<Arc<str>>,
    /// Whether there are more changes.
    pub has_more: bool,
}

/// The channels of this node: the last change of each, by version. Each change takes logarithmic time, because shards wait
/// for it.
#[derive(Debug, Default)]
pub struct NodeChannels {
    versions: HashMap<Arc<str>, u64>,
    log: BTreeMap<u64, (Arc<str>, ChannelState)>,
    version: u64,
    /// The versions of the vacated channels.
    vacated: BTreeSet<u64>,
    /// Vacated channels up to this version are forgotten.
    forgotten: u64,
}

impl NodeChannels {
    /// This node has its first subscriber of a channel, or has lost its last one.
    pub fn set(&mut self, channel: &Arc<str>, state: ChannelState) {
        let before = self.versions.get(channel).copied();
        match (before, state) {
            // Beyond the limit, nobody is told.
            (None, ChannelState::Occupied) if self.versions.len() - self.vacated.len() >= CHANNELS_MAX => return,
            (None, ChannelState::Vacated) => return,
            _ => {}
        }
        if let Some(version) = before {
            self.log.remove(&version);
            self.vacated.remove(&version);
        }
        self.version += 1;
        self.versions.insert(Arc::clone(channel), self.version);
        self.log.insert(self.version, (Arc::clone(channel), state));
        if state == ChannelState::Vacated {
            self.vacated.insert(self.version);
        }
        if self.vacated.len() > VACATED_MAX
            && let Some(oldest) = self.vacated.pop_first()
            && let Some((channel, _)) = self.log.remove(&oldest)
        {
            self.versions.remove(&channel);
            self.forgotten = oldest;
        }
    }

    /// The changes after a version, as many as fit into `bytes_max` bytes of names, and at least one.
    pub fn since(&self, version: u64, bytes_max: usize) -> Changes {
        let is_reset = version < self.forgotten;
        let from = if is_reset { 0 } else { version };
        let mut changes = Changes { is_reset, version: from, ..Changes::default() };
        let mut bytes = 0;
        for (version, (channel, state)) in self.log.range(from + 1..) {
            // With quotes and a comma; a name is ASCII and may have characters that are escaped.
            bytes += 2 * channel.len() + 3;
            if bytes > bytes_max && changes.version > from {
                changes.has_more = true;
                break;
            }
            changes.version = *version;
            match state {
                ChannelState::Occupied => changes.occupied.push(Arc::clone(channel)),
                ChannelState::Vacated if is_reset => {}
                ChannelState::Vacated => changes.vacated.push(Arc::clone(channel)),
            }
        }
        changes
    }
}

/// What is known of a node.
#[derive(Debug, Default)]
struct View {
    version: u64,
    channels: HashSet<Arc<str>>,
}

/// The channels of all nodes.
#[derive(Debug, Default)]
pub struct ClusterChannels {
    views: BTreeMap<Box<str>, View>,
    /// On how many nodes a channel has subscribers.
    counts: HashMap<Arc<str>, u32>,
    /// The sum of the counts.
    total: usize,
    /// Channels whose counts have changed since the last round.
    changed: BTreeSet<Arc<str>>,
    /// Channels that the backend believes occupied.
    told: HashSet<Arc<str>>,
    /// Of these, channels that have no subscribers, and since when.
    vacant: HashMap<Arc<str>, u64>,
    /// Changes of the last seconds that this node has not told.
    recent: VecDeque<(u64, Arc<str>)>,
}

impl ClusterChannels {
    /// The version of each known node's channels.
    pub fn versions(&self) -> BTreeMap<Box<str>, u64> {
        self.views.iter().map(|(node, view)| (node.clone(), view.version)).collect()
    }

    /// The version of a node's channels; 0 if nothing is known.
    pub fn version(&self, node: &str) -> u64 {
        self.views.get(node).map_or(0, |view| view.version)
    }

    /// Whether the node has answered.
    pub fn knows(&self, node: &str) -> bool {
        self.views.contains_key(node)
    }

    /// A node has answered.
    pub fn apply(&mut self, node: &str, changes: Changes) {
        if changes.is_reset {
            self.remove(node);
        }
        let mut view = self.views.remove(node).unwrap_or_default();
        view.version = changes.version;
        for channel in changes.occupied {
            if self.total < CHANNELS_MAX && view.channels.insert(Arc::clone(&channel)) {
                *self.counts.entry(Arc::clone(&channel)).or_insert(0) += 1;
                self.total += 1;
                self.changed.insert(channel);
            }
        }
        for channel in changes.vacated {
            if view.channels.remove(&channel) {
                self.count_down(channel);
            }
        }
        self.views.insert(node.into(), view);
    }

    /// Removes the nodes that have left.
    pub fn retain(&mut self, is_live: impl Fn(&str) -> bool) {
        let left: Vec<Box<str>> = self.views.keys().filter(|node| !is_live(node)).cloned().collect();
        for node in left {
            self.remove(&node);
        }
    }

    /// Ends a round. Returns the changes that this node tells if it is the teller: those that are new, and, if it has just
    /// become it, those of the last seconds. `vacant_ms`: how long a channel must be without subscribers.
    pub fn settle(&mut self, now_ms: u64, vacant_ms: u64, is_teller: bool) -> Vec<(Arc<str>, ChannelState)> {
        let mut untold: Vec<Arc<str>> = Vec::new();
        for channel in std::mem::take(&mut self.changed) {
            match (self.counts.contains_key(&channel), self.told.contains(&channel)) {
                (true, false) => {
                    self.told.insert(Arc::clone(&channel));
                    untold.push(channel);
                }
                (true, true) => drop(self.vacant.remove(&channel)),
                (false, true) => drop(self.vacant.entry(channel).or_insert(now_ms)),
                (false, false) => {}
            }
        }
        let over = self.vacant.iter().filter(|(_, since_ms)| now_ms.saturating_sub(**since_ms) >= vacant_ms);
        let mut over: Vec<Arc<str>> = over.map(|(channel, _)| Arc::clone(channel)).collect();
        over.sort_unstable();
        for channel in over {
            self.vacant.remove(&channel);
            self.told.remove(&channel);
            untold.push(channel);
        }
        if is_teller {
            let recent = std::mem::take(&mut self.recent).into_iter().map(|(_, channel)| channel);
            let changes: BTreeSet<Arc<str>> = recent.chain(untold).collect();
            return changes.into_iter().map(|channel| (Arc::clone(&channel), self.state_told(&channel))).collect();
        }
        self.recent.extend(untold.into_iter().map(|channel| (now_ms, channel)));
        while self.recent.front().is_some_and(|(time_ms, _)| now_ms.saturating_sub(*time_ms) > RECENT_MS)
            || self.recent.len() > CHANNELS_MAX
        {
            self.recent.pop_front();
        }
        Vec::new()
    }

    fn state_told(&self, channel: &Arc<str>) -> ChannelState {
        if self.told.contains(channel) { ChannelState::Occupied } else { ChannelState::Vacated }
    }

    fn remove(&mut self, node: &str) {
        let Some(view) = self.views.remove(node) else { return };
        for channel in view.channels {
            self.count_down(channel);
        }
    }

    fn count_down(&mut self, channel: Arc<str>) {
        if let Some(count) = self.counts.get_mut(&channel) {
            *count -= 1;
            self.total -= 1;
            if *count == 0 {
                self.counts.remove(&channel);
            }
            self.changed.insert(channel);
        }
    }
}

#[cfg(test)]
mod tests {
    use ChannelState::{Occupied, Vacated};
    use proptest::prelude::*;

    use super::*;

    const NODES: [&str; 3] = ["a", "b", "c"];
    const ROUND_MS: u64 = 1_000;

    fn names(channels: &[Arc<str>]) -> Vec<&str> {
        channels.iter().map(|channel| &**channel).collect()
    }

    #[test]
    fn a_node_answers_with_the_last_change_of_each_channel() {
        let mut node = NodeChannels::default();
        let mut set = |name: &str, state| node.set(&name.into(), state);
        set("a", Occupied);
        set("b", Occupied);
        set("a", Vacated);
        set("c", Occupied);
        set("c", Vacated);
        set("c", Occupied);
        // Nobody has heard of it.
        set("d", Vacated);
        let all = node.since(0, 1_000);
        assert_eq!((names(&all.occupied), names(&all.vacated)), (vec!["b", "c"], vec!["a"]));
        assert!(!all.is_reset && !all.has_more);
        assert_eq!(node.since(all.version, 1_000), Changes { version: all.version, ..Changes::default() });
        let first = node.since(0, 5);
        assert_eq!((names(&first.occupied), first.has_more), (vec!["b"], true), "one at least");
        let second = node.since(first.version, 5);
        assert_eq!((names(&second.vacated), second.has_more), (vec!["a"], true));
        assert_eq!(node.since(second.version, 5).version, all.version);
    }

    #[test]
    fn forgotten_changes_reset_what_is_known_of_a_node() {
        let (mut node, mut cluster) = (NodeChannels::default(), ClusterChannels::default());
        let name = |number: usize| -> Arc<str> { number.to_string().into() };
        node.set(&"stays".into(), Occupied);
        node.set(&name(0), Occupied);
        cluster.apply("a", node.since(0, usize::MAX));
        for number in 0..=VACATED_MAX {
            node.set(&name(number), Occupied);
            node.set(&name(number), Vacated);
        }
        assert_eq!(node.vacated.len(), VACATED_MAX, "one past the limit");
        let changes = node.since(cluster.versions()["a"], usize::MAX);
        assert!(changes.is_reset && changes.vacated.is_empty());
        cluster.apply("a", changes);
        assert_eq!(cluster.settle(0, 0, true), [("stays".into(), Occupied)]);
        assert_eq!(cluster.total, 1);
    }

    /// Nodes that ask each other, and what the backend was told.
    struct World {
        own: [NodeChannels; 3],
        known: [ClusterChannels; 3],
        /// Nodes that run, and whether each has subscribers.
        runs: [bool; 3],
        has_subscribers: [bool; 3],
        now_ms: u64,
        told: Vec<(u64, ChannelState)>,
    }

    impl World {
        fn new() -> Self {
            Self {
                own: Default::default(),
                known: Default::default(),
                runs: [true; 3],
                has_subscribers: [false; 3],
                now_ms: 0,
                told: Vec::new(),
            }
        }

        /// The first subscriber of a node comes, or the last one leaves.
        fn toggle(&mut self, node: usize) {
            if self.runs[node] {
                self.has_subscribers[node] = !self.has_subscribers[node];
                self.own[node].set(&"x".into(), if self.has_subscribers[node] { Occupied } else { Vacated });
            }
        }

        fn end(&mut self, node: usize) {
            (self.runs[node], self.has_subscribers[node]) = (false, false);
        }

        /// A round of one node. The first one that runs is the teller.
        fn round(&mut self, node: usize) {
            let runs = self.runs;
            for other in (0..NODES.len()).filter(|other| runs[*other]) {
                let version = self.known[node].versions().get(NODES[other]).copied().unwrap_or(0);
                self.known[node].apply(NODES[other], self.own[other].since(version, 1_000));
            }
            self.known[node].retain(|name| NODES.iter().position(|node| *node == name).is_some_and(|node| runs[node]));
            let is_teller = !runs[..node].contains(&true);
            let told = self.known[node].settle(self.now_ms, VACANT_MS, is_teller);
            self.told.extend(told.into_iter().map(|(_, state)| (self.now_ms, state)));
        }

        /// Nodes ask at different times of each second.
        fn pass(&mut self, time_ms: u64) {
            let until_ms = self.now_ms + time_ms;
            while self.now_ms < until_ms {
                self.now_ms += 50;
                for node in 0..NODES.len() {
                    if self.runs[node] && (self.now_ms + 300 * node as u64).is_multiple_of(ROUND_MS) {
                        self.round(node);
                    }
                }
            }
        }

        fn states(&self) -> Vec<ChannelState> {
            self.told.iter().map(|(_, state)| *state).collect()
        }
    }

    #[test]
    fn the_cluster_has_a_channel_from_its_first_subscriber_to_its_last() {
        let mut world = World::new();
        for node in [1, 0, 2] {
            world.toggle(node);
            world.pass(700);
        }
        world.pass(5_000);
        assert_eq!(world.told, [(ROUND_MS, Occupied)]);
        for node in [0, 2, 1] {
            world.toggle(node);
            world.pass(700);
        }
        let last_ms = world.now_ms - 700;
        world.pass(10_000);
        assert_eq!(world.states(), [Occupied, Vacated]);
        assert!(world.told[1].0 <= last_ms + VACANT_MS + 2 * ROUND_MS, "{:?} after {last_ms}", world.told);
    }

    #[test]
    fn subscribers_that_move_to_another_node_change_nothing() {
        let mut world = World::new();
        world.toggle(0);
        world.pass(5_000);
        for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2)] {
            world.toggle(from);
            world.pass(1_000);
            world.toggle(to);
            world.pass(3_000);
        }
        world.pass(10_000);
        assert_eq!(world.states(), [Occupied]);
    }

    #[test]
    fn a_node_that_ends_has_no_subscribers_and_another_one_tells() {
        let mut world = World::new();
        world.toggle(0);
        world.pass(20_000);
        world.end(0);
        world.pass(10_000);
        assert_eq!(world.states(), [Occupied, Vacated]);
        // The teller ends before it has told.
        world.toggle(2);
        world.pass(300);
        world.end(1);
        world.pass(10_000);
        assert_eq!(world.states(), [Occupied, Vacated, Occupied]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever comes and goes, what is told alternates while no teller ends, and in the end it is what is so.
        #[test]
        fn the_backend_learns_the_truth_in_the_end(
            steps in prop::collection::vec((0_usize..4, 0_u64..100), 1..60),
            ended in prop::sample::subsequence(vec![0_usize, 1], 0..=2),
        ) {
            let mut world = World::new();
            let mut ended = ended.into_iter();
            let mut has_teller_ended = false;
            for (step, time) in steps {
                if step == 3 {
                    if let Some(node) = ended.next() {
                        world.end(node);
                        has_teller_ended = true;
                    }
                } else {
                    world.toggle(step);
                }
                world.pass(50 * time);
            }
            world.pass(20_000);
            let states = world.states();
            let alternates = states.iter().enumerate().all(|(index, state)| (index % 2 == 0) == (*state == Occupied));
            prop_assert!(alternates || has_teller_ended, "{:?}", states);
            let is_occupied = world.has_subscribers.contains(&true);
            prop_assert_eq!(states.last().is_some_and(|last| *last == Occupied), is_occupied, "{:?}", states);
        }
    }
}
