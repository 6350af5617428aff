//! Which channels of a cluster have subscribers, on any of its nodes.
//!
//! A node keeps the changes of its own channels in order ([`NodeChannels`](super::node_channels::NodeChannels)). Each node
//! asks the others again and again for their changes since the last answer, and adds them up ([`ClusterChannels`]). So all
//! nodes know the same within a round, and one of them, the *reporter*, tells the backend: the node that has run for longest.
//! Another one that takes its place tells the changes of the last seconds again, and those before them that the backend had
//! not taken yet, because the former one may not have told them. A node that has left has no subscribers. Times are
//! milliseconds on the caller's monotonic clock.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::{
    node_channels::{Changes, ChannelLimits, ChannelState, Cursor},
    shared::HEARD_WAIT_MS,
    untold::Untold,
};

/// How long a channel must be without subscribers, so that clients that move to another node change nothing.
pub(super) const VACANT_MS: u64 = 2_000;

/// How long the changes that another node has told are remembered: it has sent them within this time, if its backend takes
/// them.
const RECENT_MS: u64 = 10_000;

/// What is known of a node.
#[derive(Debug, Default)]
struct View {
    cursor: Cursor,
    channels: HashSet<Arc<str>>,
    /// The channels of a full report whose last page has not come yet. Until then, the earlier ones count as well.
    reported: Option<HashSet<Arc<str>>>,
    /// Whether a limit has left out channels of the node.
    is_cut: bool,
}

/// The channels of all nodes.
#[derive(Debug, Default)]
pub(super) struct ClusterChannels {
    limits: ChannelLimits,
    views: BTreeMap<Box<str>, View>,
    /// On how many nodes a channel has subscribers.
    counts: HashMap<Arc<str>, u32>,
    /// The sum of the counts, and the bytes of these names.
    total: usize,
    bytes: usize,
    /// Channels whose counts have changed since the last round.
    changed: BTreeSet<Arc<str>>,
    /// Channels that count as occupied.
    occupied: HashSet<Arc<str>>,
    /// Channels with subscribers that other nodes did not know of, and since when.
    unheard: HashMap<Arc<str>, u64>,
    /// Of the occupied channels, those that have no subscribers, and since when.
    vacant: HashMap<Arc<str>, u64>,
    untold: Untold,
    /// Occupied channels that a limit has left out, since the last call of [`Self::take_ignored`].
    ignored: u64,
}

impl ClusterChannels {
    /// How far each known node is known.
    pub(super) fn cursors(&self) -> BTreeMap<Box<str>, Cursor> {
        self.views.iter().map(|(node, view)| (node.clone(), view.cursor)).collect()
    }

    /// How far a node is known.
    pub(super) fn cursor(&self, node: &str) -> Cursor {
        self.views.get(node).map_or_else(Cursor::default, |view| view.cursor)
    }

    /// Whether the node has answered.
    pub(super) fn knows(&self, node: &str) -> bool {
        self.views.contains_key(node)
    }

    /// A node has answered.
    pub(super) fn apply(&mut self, node: &str, changes: Changes) {
        let Changes { is_reset, begun, version, occupied, vacated, has_more } = changes;
        let mut view = self.views.remove(node).unwrap_or_default();
        view.cursor.version = version;
        if is_reset {
            view.cursor.begun = begun;
            view.reported = Some(HashSet::new());
        }
        for channel in occupied {
            self.add(&mut view, channel);
        }
        for channel in vacated {
            if let Some(reported) = &mut view.reported {
                reported.remove(&channel);
            }
            if view.channels.remove(&channel) {
                self.count_down(channel);
            }
        }
        if !has_more {
            view.cursor.begun = 0;
            if let Some(reported) = view.reported.take() {
                let gone = view.channels.difference(&reported).cloned().collect::<Vec<_>>();
                view.channels = reported;
                for channel in gone {
                    self.count_down(channel);
                }
            }
        }
        self.views.insert(node.into(), view);
    }

    /// Removes the nodes that have left.
    pub(super) fn retain(&mut self, is_live: impl Fn(&str) -> bool) {
        let left: Vec<Box<str>> = self.views.keys().filter(|node| !is_live(node)).cloned().collect();
        for node in left {
            let Some(view) = self.views.remove(&node) else { continue };
            view.channels.into_iter().for_each(|channel| self.count_down(channel));
        }
    }

    /// Ends a round. `vacant_ms`: how long a channel must be without subscribers. `is_known`: whether the other nodes know that a
    /// channel has subscribers on this one.
    pub(super) fn settle(&mut self, now_ms: u64, vacant_ms: u64, is_known: impl Fn(&str) -> bool) {
        for channel in std::mem::take(&mut self.changed) {
            match (self.counts.get(&channel).copied().unwrap_or(0), self.occupied.contains(&channel)) {
                // If this node told the backend and ended, no other one would tell that the channel is vacated. A channel that the
                // backend knows already does not wait, so that clients that move here change nothing.
                (1, false) if !is_known(&channel) && self.waits_to_be_heard(now_ms, &channel) => {
                    self.changed.insert(channel);
                }
                (1.., false) => {
                    self.occupied.insert(Arc::clone(&channel));
                    self.untold.push(now_ms, channel);
                }
                (1.., true) => drop(self.vacant.remove(&channel)),
                (0, true) => drop(self.vacant.entry(channel).or_insert(now_ms)),
                (0, false) => {}
            }
        }
        self.unheard.retain(|channel, since_ms| {
            !self.occupied.contains(channel) && now_ms.saturating_sub(*since_ms) < RECENT_MS
        });
        let over = self.vacant.iter().filter(|(_, since_ms)| now_ms.saturating_sub(**since_ms) >= vacant_ms);
        let mut over: Vec<Arc<str>> = over.map(|(channel, _)| Arc::clone(channel)).collect();
        over.sort_unstable();
        for channel in over {
            self.vacant.remove(&channel);
            self.occupied.remove(&channel);
            self.untold.push(now_ms, channel);
        }
        self.ask_again_for_cut_views();
    }

    /// Whether a channel that the other nodes do not know has begun to wait for them only lately. One that gets and loses subscribers
    /// again and again is always new to them, and has to be told as well.
    fn waits_to_be_heard(&mut self, now_ms: u64, channel: &Arc<str>) -> bool {
        let since_ms = *self.unheard.entry(Arc::clone(channel)).or_insert(now_ms);
        now_ms.saturating_sub(since_ms) < HEARD_WAIT_MS
    }

    /// The oldest change that the backend may not know, and its time. The caller, which is the reporter, tells it.
    pub(super) fn next_untold(&mut self) -> Option<(u64, Arc<str>, ChannelState)> {
        let (time_ms, channel) = self.untold.pop()?;
        let is_occupied = self.occupied.contains(&channel);
        Some((time_ms, channel, if is_occupied { ChannelState::Occupied } else { ChannelState::Vacated }))
    }

    /// The backend has not taken what it was told of a channel. The change keeps its time, because the other nodes have to
    /// remember it for as long. A newer change is told anyway, as the newer one that it is.
    pub(super) fn tell_again(&mut self, time_ms: u64, channel: Arc<str>) {
        if !self.untold.contains(&channel) {
            self.untold.push(time_ms, channel);
        }
    }

    /// The backend may have been told that any channel is vacated. Changes that were not told before keep their time.
    pub(super) fn tell_occupied_again(&mut self, now_ms: u64) {
        for channel in &self.occupied {
            if !self.untold.contains(channel) {
                self.untold.push(now_ms, Arc::clone(channel));
            }
        }
    }

    /// Forgets what another node has told: the backend has taken all its changes that are older than `behind_ms`.
    pub(super) fn forget_told(&mut self, now_ms: u64, behind_ms: u64) {
        let kept_ms = RECENT_MS.saturating_add(behind_ms);
        self.untold.forget_until(now_ms.saturating_sub(kept_ms));
    }

    /// The number of changes that the backend may not know, and the age of the oldest one.
    pub(super) fn untold(&self, now_ms: u64) -> (usize, u64) {
        (self.untold.len(), self.untold.oldest_ms().map_or(0, |oldest_ms| now_ms.saturating_sub(oldest_ms)))
    }

    /// The number of changes that were left out because of a limit since the last call.
    pub(super) fn take_ignored(&mut self) -> u64 {
        std::mem::take(&mut self.ignored) + self.untold.take_dropped()
    }

    /// A node says that it has subscribers of a channel.
    fn add(&mut self, view: &mut View, channel: Arc<str>) {
        // All nodes share the memory of a name.
        let channel = self.counts.get_key_value(&channel).map_or(channel, |(known, _)| Arc::clone(known));
        if !view.channels.contains(&channel) {
            let ChannelLimits { channels_max, bytes_max } = self.limits;
            if self.total >= channels_max || self.bytes + channel.len() > bytes_max {
                self.ignored += 1;
                view.is_cut = true;
                return;
            }
            view.channels.insert(Arc::clone(&channel));
            *self.counts.entry(Arc::clone(&channel)).or_insert(0) += 1;
            self.total += 1;
            self.bytes += channel.len();
            self.changed.insert(Arc::clone(&channel));
        }
        if let Some(reported) = &mut view.reported {
            reported.insert(channel);
        }
    }

    fn count_down(&mut self, channel: Arc<str>) {
        if let Some(count) = self.counts.get_mut(&channel) {
            *count -= 1;
            self.total -= 1;
            self.bytes -= channel.len();
            if *count == 0 {
                self.counts.remove(&channel);
            }
            self.changed.insert(channel);
        }
    }

    /// When a quarter of the limits is free again, asks for the channels that they left out.
    fn ask_again_for_cut_views(&mut self) {
        let ChannelLimits { channels_max, bytes_max } = self.limits;
        if self.total <= channels_max / 4 * 3 && self.bytes <= bytes_max / 4 * 3 {
            for view in self.views.values_mut().filter(|view| view.is_cut) {
                (view.is_cut, view.cursor) = (false, Cursor::default());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ChannelState::{Occupied, Vacated};
    use proptest::prelude::*;

    use super::{
        super::{
            node_channels::{NodeChannels, VACATED_MAX},
            shared::SharedChannels,
        },
        *,
    };

    const NODES: [&str; 3] = ["a", "b", "c"];
    const ROUND_MS: u64 = 1_000;

    fn name(number: usize) -> Arc<str> {
        number.to_string().into()
    }

    /// Reads all pages of a node, of one name each.
    fn read_all(cluster: &mut ClusterChannels, node: &NodeChannels) -> usize {
        for page in 1_usize.. {
            let changes = node.since(cluster.cursor("a"), 1);
            let has_more = changes.has_more;
            cluster.apply("a", changes);
            if !has_more {
                return page;
            }
            assert!(page < 1_000, "pages without end");
        }
        unreachable!("pages have an end")
    }

    fn tell_all(cluster: &mut ClusterChannels) -> Vec<(Arc<str>, ChannelState)> {
        std::iter::from_fn(|| cluster.next_untold()).map(|(_, channel, state)| (channel, state)).collect()
    }

    /// A node with channels that have stayed, and more vacated ones than it remembers.
    fn node_that_has_forgotten(stays: usize) -> NodeChannels {
        let mut node = NodeChannels::default();
        (0..stays).for_each(|number| assert!(node.set(&name(number), Occupied)));
        for number in 0..=VACATED_MAX {
            let channel: Arc<str> = format!("v{number}").into();
            node.set(&channel, Occupied);
            node.set(&channel, Vacated);
        }
        node
    }

    #[test]
    fn forgotten_changes_reset_what_is_known_of_a_node() {
        let (mut node, mut cluster) = (NodeChannels::default(), ClusterChannels::default());
        node.set(&"stays".into(), Occupied);
        node.set(&name(0), Occupied);
        cluster.apply("a", node.since(Cursor::default(), usize::MAX));
        for number in 0..=VACATED_MAX {
            node.set(&name(number), Occupied);
            node.set(&name(number), Vacated);
        }
        assert_eq!(node.vacated(), VACATED_MAX, "one past the limit");
        let changes = node.since(cluster.cursors()["a"], usize::MAX);
        assert!(changes.is_reset && changes.vacated.is_empty());
        cluster.apply("a", changes);
        cluster.settle(0, 0, |_| true);
        assert_eq!(tell_all(&mut cluster), [("stays".into(), Occupied)]);
        assert_eq!((cluster.total, cluster.bytes), (1, 5));
    }

    /// Its first channels have older versions than what the node has forgotten, so each page but the last ends before that.
    #[test]
    fn a_full_report_of_many_pages_ends_and_meanwhile_what_was_known_holds() {
        let mut node = node_that_has_forgotten(20);
        let mut cluster = ClusterChannels::default();
        let known = |channel: &str| Changes { version: 1, occupied: vec![channel.into()], ..Changes::default() };
        cluster.apply("a", known("gone"));
        cluster.settle(0, 0, |_| true);
        assert_eq!(tell_all(&mut cluster), [("gone".into(), Occupied)]);
        for _ in 0..5 {
            let changes = node.since(cluster.cursor("a"), 1);
            assert!(changes.has_more);
            cluster.apply("a", changes);
            cluster.settle(0, 0, |_| true);
        }
        // A page that was read, and one that was not.
        node.set(&name(1), Vacated);
        node.set(&name(10), Vacated);
        tell_all(&mut cluster);
        assert!(cluster.occupied.contains("gone"), "it may be in one of the next pages");
        read_all(&mut cluster, &node);
        cluster.settle(0, 0, |_| true);
        let is_occupied = |channel: usize| cluster.occupied.contains(&name(channel));
        assert_eq!((0..20).filter(|channel| !is_occupied(*channel)).collect::<Vec<_>>(), [1, 10]);
        assert_eq!((cluster.occupied.len(), cluster.total), (18, 18), "nothing that is gone is left");
        assert_eq!(read_all(&mut cluster, &node), 1, "and the next answer has nothing new");
    }

    #[test]
    fn a_full_report_begins_again_if_more_is_forgotten_meanwhile() {
        let mut node = node_that_has_forgotten(20);
        let mut cluster = ClusterChannels::default();
        for _ in 0..3 {
            cluster.apply("a", node.since(cluster.cursor("a"), 1));
        }
        node.set(&name(0), Vacated);
        for number in 0..=VACATED_MAX {
            let channel: Arc<str> = format!("w{number}").into();
            node.set(&channel, Occupied);
            node.set(&channel, Vacated);
        }
        assert!(node.since(cluster.cursor("a"), 1).is_reset);
        read_all(&mut cluster, &node);
        cluster.settle(0, 0, |_| true);
        assert_eq!(cluster.occupied.len(), 19);
        assert!(!cluster.occupied.contains(&name(0)), "the node does not remember that it was vacated");
    }

    #[test]
    fn channels_beyond_a_limit_are_counted_and_asked_for_when_there_is_space() {
        for limits in [
            ChannelLimits { channels_max: 8, bytes_max: usize::MAX },
            ChannelLimits { channels_max: usize::MAX, bytes_max: 8 },
        ] {
            let mut cluster = ClusterChannels { limits, ..ClusterChannels::default() };
            let changes = Changes { version: 9, ..Changes::default() };
            let mut is_told = |occupied: std::ops::Range<usize>, vacated: std::ops::Range<usize>| {
                let (occupied, vacated) = (occupied.map(name).collect(), vacated.map(name).collect());
                cluster.apply("a", Changes { occupied, vacated, ..changes.clone() });
                cluster.settle(0, 0, |_| true);
                (cluster.total, cluster.take_ignored(), cluster.cursor("a").version)
            };
            assert_eq!(is_told(0..8, 0..0), (8, 0, 9), "at the limit");
            assert_eq!(is_told(7..9, 0..0), (8, 1, 9), "one past it");
            assert_eq!(is_told(0..0, 0..1), (7, 0, 9));
            assert_eq!(is_told(0..0, 1..2), (6, 0, 0), "a quarter is free, so all are asked for");
        }
    }

    /// Nodes that ask each other, and what the backend was told.
    struct World {
        own: [SharedChannels; 3],
        known: [ClusterChannels; 3],
        /// Nodes that run, and whether each has subscribers.
        runs: [bool; 3],
        has_subscribers: [bool; 3],
        now_ms: u64,
        told: Vec<(u64, ChannelState)>,
        /// Whether the backend takes nothing.
        is_away: bool,
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
                is_away: false,
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

        /// A round of one node. The first one that runs is the reporter.
        fn round(&mut self, node: usize) {
            let runs = self.runs;
            let live = |name: &str| NODES.iter().position(|node| *node == name).is_some_and(|node| runs[node]);
            for (other, name) in NODES.iter().enumerate().filter(|(other, _)| runs[*other]) {
                let cursor = self.known[node].cursor(name);
                let own = &self.own[other];
                let is_own = other == node;
                let changes = if is_own { own.since(cursor, 1_000) } else { own.answer(NODES[node], cursor, 1_000) };
                self.known[node].apply(name, changes);
            }
            self.known[node].retain(live);
            let own = &self.own[node];
            own.begin_round(self.now_ms, live);
            let others = || NODES.into_iter().filter(|name| *name != NODES[node] && live(name));
            self.known[node].settle(self.now_ms, VACANT_MS, |channel| own.is_known_to(channel, others()));
            match runs[..node].iter().position(|runs| *runs) {
                None if self.is_away => {}
                None => {
                    let told = tell_all(&mut self.known[node]);
                    self.told.extend(told.into_iter().map(|(_, state)| (self.now_ms, state)));
                }
                Some(reporter) => {
                    let (_, behind_ms) = self.known[reporter].untold(self.now_ms);
                    self.known[node].forget_told(self.now_ms, behind_ms);
                }
            }
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

    /// The others never know the newest change, as it is newer than their questions.
    #[test]
    fn a_channel_whose_subscribers_come_and_go_is_told() {
        let mut world = World::new();
        for _ in 0..20 {
            world.toggle(0);
            world.pass(300);
            world.toggle(0);
            world.pass(50);
            world.toggle(0);
            world.pass(50);
            world.toggle(0);
            world.pass(50);
        }
        world.toggle(0);
        assert_eq!(world.states().first(), Some(&Occupied), "{:?}", world.told);
        world.toggle(0);
        world.pass(20_000);
        assert_eq!(world.states().last(), Some(&Vacated), "{:?}", world.told);
    }

    #[test]
    fn a_node_that_ends_has_no_subscribers_and_another_one_tells() {
        let mut world = World::new();
        world.toggle(0);
        world.pass(20_000);
        world.end(0);
        world.pass(10_000);
        assert_eq!(world.states(), [Occupied, Vacated]);
        // The reporter ends before it has told.
        world.toggle(2);
        world.pass(300);
        world.end(1);
        world.pass(10_000);
        assert_eq!(world.states(), [Occupied, Vacated, Occupied]);
    }

    #[test]
    fn the_next_reporter_tells_what_the_backend_did_not_take_from_the_former_one() {
        let mut world = World::new();
        world.is_away = true;
        world.toggle(1);
        world.pass(60_000);
        world.end(0);
        world.is_away = false;
        world.pass(5_000);
        assert_eq!(world.states(), [Occupied]);
    }

    #[test]
    fn what_was_not_told_keeps_its_age_when_all_is_told_again() {
        let mut cluster = ClusterChannels::default();
        let occupied = |channel: &str| Changes { version: 1, occupied: vec![channel.into()], ..Changes::default() };
        cluster.apply("a", occupied("told"));
        cluster.settle(0, 0, |_| true);
        assert_eq!(tell_all(&mut cluster), [("told".into(), Occupied)]);
        cluster.apply("a", occupied("untold"));
        cluster.settle(1_000, 0, |_| true);
        cluster.tell_occupied_again(60_000);
        assert_eq!(cluster.untold(60_000), (2, 59_000), "the other nodes remember for as long");
        assert_eq!(tell_all(&mut cluster), [("untold".into(), Occupied), ("told".into(), Occupied)]);
    }

    #[test]
    fn what_the_backend_did_not_take_is_told_again_with_the_newest_state() {
        let mut world = World::new();
        world.toggle(1);
        world.pass(5_000);
        world.toggle(1);
        world.pass(5_000);
        assert_eq!(world.states(), [Occupied, Vacated]);
        world.known[0].tell_again(world.now_ms - 7, "x".into());
        world.known[0].tell_again(0, "x".into());
        assert_eq!(world.known[0].untold(world.now_ms), (1, 7), "it is as old as it was, or as a newer change is");
        world.pass(1_000);
        assert_eq!(world.states(), [Occupied, Vacated, Vacated]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever comes and goes, what is told alternates while no reporter ends, and in the end it is what is so.
        #[test]
        fn the_backend_learns_the_truth_in_the_end(
            steps in prop::collection::vec((0_usize..4, 0_u64..100), 1..60),
            ended in prop::sample::subsequence(vec![0_usize, 1], 0..=2),
        ) {
            let mut world = World::new();
            let mut ended = ended.into_iter();
            let mut has_reporter_ended = false;
            for (step, time) in steps {
                if step == 3 {
                    if let Some(node) = ended.next() {
                        world.end(node);
                        has_reporter_ended = true;
                    }
                } else {
                    world.toggle(step);
                }
                world.pass(50 * time);
            }
            world.pass(20_000);
            let states = world.states();
            let alternates = states.iter().enumerate().all(|(index, state)| (index % 2 == 0) == (*state == Occupied));
            prop_assert!(alternates || has_reporter_ended, "{:?}", states);
            let is_occupied = world.has_subscribers.contains(&true);
            prop_assert_eq!(states.last().is_some_and(|last| *last == Occupied), is_occupied, "{:?}", states);
        }
    }
}
