//! The subscribers of a channel that have stated a pace, of one frame class and with one filter.
//!
//! They share a table with the newest publication of each key. A publication is put there once, whatever the number of
//! subscribers: none of them is visited. Each has a *turn* at most once in its interval, in which it is queued the newest
//! publication of each key that has changed since its last turn. So no key's last publication is lost, and none waits for
//! longer than an interval.
//!
//! A subscriber *rests* from its turn until its interval is over. If nothing waits for it then, it is *ready*: its next
//! turn is as soon as something is published.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use hashbrown::HashMap;

use crate::{frame::FrameRef, options::ClientOptions, pace::UpdatePace, timers::Scheduled};

/// Entries of the table, and of the lists of places, below which nothing is searched for entries that nobody needs.
const KEPT_ENTRIES: usize = 64;
/// Subscribers that a search for such entries may visit for each publication since the last one.
const VISITS_PER_PUBLICATION: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct PacedSubscribers {
    /// By number, which is the order of publication.
    newest: BTreeMap<u64, Newest>,
    /// The number of each key's publication.
    numbers: HashMap<u64, u64, foldhash::fast::FixedState>,
    /// The number of publications so far, which is the number of the last one.
    last_number: u64,
    bytes: usize,
    /// The number of entries at which those are searched for that all subscribers were queued.
    search_at: usize,
    /// By the place of the subscriber.
    turns: Vec<Turn>,
    /// The number of subscribers for which something waits.
    waiting: usize,
    /// Those that rest, by the end of their rest.
    resting: BinaryHeap<Reverse<(u64, u32)>>,
    /// Those whose rest is over, and for which nothing waits.
    ready: Vec<u32>,
    /// Those whose turn is now.
    open: Vec<u32>,
    /// The next turn.
    pub(crate) scheduled: Scheduled,
}

#[derive(Debug)]
struct Newest {
    key_hash: u64,
    frame: FrameRef,
}

/// When a subscriber has its turns. The lists of places may have outdated entries for it, which do not match it.
#[derive(Clone, Copy, Debug)]
struct Turn {
    pace: UpdatePace,
    /// The end of its rest; `None` if it does not rest.
    rests_until_us: Option<u64>,
    /// The number of the last publication before its last turn.
    taken_through: u64,
}

impl PacedSubscribers {
    /// Adds a subscriber at the next place. Nothing waits for it.
    pub(crate) fn add(&mut self, pace: UpdatePace) {
        self.ready.push(self.turns.len() as u32);
        self.turns.push(Turn { pace, rests_until_us: None, taken_through: self.last_number });
        self.drop_outdated();
    }

    /// Removes the subscriber at `place`; the last one takes its place.
    pub(crate) fn remove(&mut self, place: u32) {
        let removed = self.turns.swap_remove(place as usize);
        self.waiting -= usize::from(removed.taken_through < self.last_number);
        if let Some(moved) = self.turns.get(place as usize) {
            let waits = moved.taken_through < self.last_number;
            match moved.rests_until_us {
                Some(until_us) => self.resting.push(Reverse((until_us, place))),
                None if waits => self.open.push(place),
                None => self.ready.push(place),
            }
        }
        self.drop_outdated();
        self.drop_taken();
    }

    /// Changes the pace of a subscriber.
    pub(crate) fn set_pace(&mut self, place: u32, new: UpdatePace) {
        let turn = &mut self.turns[place as usize];
        let before = std::mem::replace(&mut turn.pace, new);
        if let Some(until_us) = &mut turn.rests_until_us {
            *until_us = until_us.saturating_sub(before.interval_us()) + new.interval_us();
            self.resting.push(Reverse((*until_us, place)));
            self.drop_outdated();
        }
    }

    /// A publication for all subscribers.
    pub(crate) fn put(&mut self, key_hash: u64, frame: FrameRef, client: &ClientOptions) {
        self.last_number += 1;
        self.bytes += frame.len();
        if let Some(before) = self.numbers.insert(key_hash, self.last_number)
            && let Some(replaced) = self.newest.remove(&before)
        {
            self.bytes -= replaced.frame.len();
        }
        self.newest.insert(self.last_number, Newest { key_hash, frame });
        self.waiting = self.turns.len();
        self.open.append(&mut self.ready);
        if self.newest.len() >= self.search_at {
            self.drop_taken_by_all();
        }
        // A turn must fit into the queue of a session with space left, as it does without a pace.
        if self.bytes > client.queue_bytes_max / 2 || self.newest.len() > client.queue_frames_max / 2 {
            self.open_all();
        }
    }

    /// When the next turn is: 0 for now, `None` while nothing waits.
    pub(crate) fn next_us(&self) -> Option<u64> {
        if self.waiting == 0 {
            return None;
        }
        let of_resting = self.resting.peek().map(|Reverse((until_us, _))| *until_us);
        if self.open.is_empty() { of_resting } else { Some(0) }
    }

    /// The next subscriber whose turn is now, if there is one, and the number of the last publication before its last
    /// turn. It rests from now on.
    pub(crate) fn begin_turn(&mut self, now_us: u64) -> Option<(u32, u64)> {
        let place = self.next_place(now_us)?;
        let turn = &mut self.turns[place as usize];
        let taken_through = std::mem::replace(&mut turn.taken_through, self.last_number);
        let until_us = now_us + turn.pace.interval_us();
        turn.rests_until_us = Some(until_us);
        self.waiting -= 1;
        self.resting.push(Reverse((until_us, place)));
        Some((place, taken_through))
    }

    /// The hash and the frame of each key that has changed after the publication `number`.
    pub(crate) fn newest_after(&self, number: u64) -> impl Iterator<Item = (u64, &FrameRef)> {
        self.newest.range(number + 1..).map(|(_, newest)| (newest.key_hash, &newest.frame))
    }

    /// The number of publications after the publication `number`.
    pub(crate) fn published_after(&self, number: u64) -> u64 {
        self.last_number - number
    }

    /// The number of the last publication before the last turn of the subscriber at `place`.
    pub(crate) fn taken_through(&self, place: u32) -> u64 {
        self.turns[place as usize].taken_through
    }

    /// Drops the publications if they wait for nobody. Call it after turns.
    pub(crate) fn drop_taken(&mut self) {
        if self.waiting == 0 && !self.newest.is_empty() {
            self.newest.clear();
            self.numbers = HashMap::default();
            (self.bytes, self.search_at) = (0, 0);
        }
    }

    /// The entries of the table, and of the lists of places.
    #[cfg(test)]
    fn holdings(&self) -> [usize; 2] {
        [self.newest.len(), self.resting.len() + self.ready.len() + self.open.len()]
    }

    /// A place whose turn is now.
    fn next_place(&mut self, now_us: u64) -> Option<u32> {
        loop {
            if let Some(place) = self.open.pop() {
                let is_open = |turn: &Turn| turn.rests_until_us.is_none() && turn.taken_through < self.last_number;
                if self.turns.get(place as usize).is_some_and(is_open) {
                    return Some(place);
                }
                continue;
            }
            let Reverse((until_us, place)) =
                *self.resting.peek().filter(|Reverse((until_us, _))| *until_us <= now_us)?;
            self.resting.pop();
            let Some(turn) = self.turns.get_mut(place as usize) else { continue };
            if turn.rests_until_us != Some(until_us) {
                continue;
            }
            turn.rests_until_us = None;
            if turn.taken_through < self.last_number {
                return Some(place);
            }
            self.ready.push(place);
        }
    }

    /// All turns are now.
    fn open_all(&mut self) {
        if self.resting.is_empty() {
            return;
        }
        for (place, turn) in (0_u32..).zip(&mut self.turns) {
            if turn.rests_until_us.take().is_some() {
                self.open.push(place);
            }
        }
        self.resting.clear();
    }

    /// Drops the publications that all subscribers were queued.
    fn drop_taken_by_all(&mut self) {
        let taken_through = self.turns.iter().map(|turn| turn.taken_through).min().unwrap_or(self.last_number);
        let kept = self.newest.split_off(&(taken_through + 1));
        for dropped in std::mem::replace(&mut self.newest, kept).into_values() {
            self.bytes -= dropped.frame.len();
            self.numbers.remove(&dropped.key_hash);
        }
        let visits = self.turns.len() / VISITS_PER_PUBLICATION;
        self.search_at = KEPT_ENTRIES.max(self.newest.len() * 2).max(self.newest.len() + visits);
    }

    /// Makes the lists of places anew if most of their entries are outdated.
    fn drop_outdated(&mut self) {
        if self.resting.len() + self.ready.len() + self.open.len() > 2 * self.turns.len() + KEPT_ENTRIES {
            self.list_places();
        }
    }

    fn list_places(&mut self) {
        self.resting.clear();
        self.ready.clear();
        self.open.clear();
        for (place, turn) in (0_u32..).zip(&self.turns) {
            match turn.rests_until_us {
                Some(until_us) => self.resting.push(Reverse((until_us, place))),
                None if turn.taken_through < self.last_number => self.open.push(place),
                None => self.ready.push(place),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::{
        ChaCha8Rng,
        rand_core::{RngCore, SeedableRng},
    };

    use super::*;

    fn pace(interval_us: u64) -> UpdatePace {
        UpdatePace::from_updates_per_second(1e6 / interval_us as f64).expect("in its range")
    }

    fn frame(value: u64) -> FrameRef {
        FrameRef::own(value.to_be_bytes().into(), 0)
    }

    fn value(frame: &FrameRef) -> u64 {
        let bytes = frame.bytes().expect("one slice");
        u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
    }

    /// All turns until now, as places and the keys with their values.
    fn turns(paced: &mut PacedSubscribers, now_us: u64) -> Vec<(u32, Vec<(u64, u64)>)> {
        let mut turns = Vec::new();
        while let Some((place, number)) = paced.begin_turn(now_us) {
            turns.push((place, paced.newest_after(number).map(|(key, frame)| (key, value(frame))).collect()));
        }
        paced.drop_taken();
        turns
    }

    #[test]
    fn a_turn_has_the_newest_of_each_changed_key_once_in_an_interval() {
        let client = ClientOptions::default();
        let mut paced = PacedSubscribers::default();
        paced.add(pace(1_000_000));
        paced.add(pace(10_000));
        assert_eq!(paced.next_us(), None);
        paced.put(7, frame(1), &client);
        assert_eq!(paced.next_us(), Some(0));
        assert_eq!(turns(&mut paced, 5).len(), 2);
        assert_eq!((paced.next_us(), paced.holdings()[0]), (None, 0));
        for value in 2..6 {
            paced.put(value % 2, frame(value), &client);
        }
        assert_eq!(paced.next_us(), Some(10_005));
        assert_eq!(turns(&mut paced, 10_004), []);
        assert_eq!(turns(&mut paced, 10_005), [(1, vec![(0, 4), (1, 5)])]);
        // Its interval passes without a publication, so the next one comes at once.
        assert_eq!((turns(&mut paced, 500_000), paced.next_us()), (vec![], Some(1_000_005)));
        paced.put(0, frame(6), &client);
        assert_eq!(turns(&mut paced, 600_000), [(1, vec![(0, 6)])]);
        assert_eq!(turns(&mut paced, 1_000_005), [(0, vec![(1, 5), (0, 6)])]);
        assert_eq!(paced.holdings()[0], 0);
    }

    #[test]
    fn a_turn_comes_early_before_it_no_longer_fits_into_a_queue() {
        let client = ClientOptions { queue_bytes_max: 64, ..ClientOptions::default() };
        let mut paced = PacedSubscribers::default();
        paced.add(pace(1_000_000));
        paced.put(0, frame(0), &client);
        assert_eq!(turns(&mut paced, 0).len(), 1);
        for key in 1..=4 {
            paced.put(key, frame(key), &client);
        }
        assert_eq!(paced.next_us(), Some(1_000_000), "at the limit");
        paced.put(5, frame(5), &client);
        assert_eq!(paced.next_us(), Some(0), "one past it");
        assert_eq!(turns(&mut paced, 1)[0].1.len(), 5);
    }

    #[test]
    fn the_table_is_bounded_by_what_waits_and_the_lists_by_the_subscribers() {
        let client = ClientOptions::default();
        let mut paced = PacedSubscribers::default();
        paced.add(pace(1_000_000));
        paced.add(pace(10_000));
        for key in 0..10_000 {
            paced.put(key, frame(key), &client);
            turns(&mut paced, key * 10_000);
            paced.set_pace(0, pace(1_000_000 + key % 2));
            let [entries, places] = paced.holdings();
            assert!(entries <= 2 * (101 + KEPT_ENTRIES) && places <= 4 + KEPT_ENTRIES, "{entries} {places}");
        }
        for _ in 0..1_000 {
            paced.add(pace(1_000));
            paced.remove(0);
        }
        assert!(paced.holdings()[1] <= 4 + KEPT_ENTRIES);
    }

    /// Subscribers with names, which come, go and change their paces at random.
    #[test]
    fn the_last_value_of_each_key_arrives_within_an_interval() {
        let client = ClientOptions { queue_bytes_max: 1_000, ..ClientOptions::default() };
        for seed in 0..200 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut below = |bound: u64| random.next_u64() % bound;
            let mut paced = PacedSubscribers::default();
            // By place: the interval, the last turn, and the values.
            let mut mirror: Vec<(u64, Option<u64>, BTreeMap<u64, u64>)> = Vec::new();
            let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
            let mut now_us = 0;
            for step in 1..400 {
                let interval_us = [1_000, 50_000, 1_000_000][below(3) as usize];
                match below(10) {
                    0 => {
                        paced.add(pace(interval_us));
                        mirror.push((interval_us, None, newest.clone()));
                    }
                    1 if !mirror.is_empty() => {
                        let place = below(mirror.len() as u64);
                        paced.remove(place as u32);
                        mirror.swap_remove(place as usize);
                    }
                    2 if !mirror.is_empty() => {
                        let place = below(mirror.len() as u64);
                        paced.set_pace(place as u32, pace(interval_us));
                        mirror[place as usize].0 = interval_us;
                    }
                    3..6 => now_us += below(100_000),
                    _ if !mirror.is_empty() => {
                        let key = below(20);
                        newest.insert(key, step);
                        paced.put(key, frame(step), &client);
                    }
                    _ => {}
                }
                for (place, values) in turns(&mut paced, now_us) {
                    let (_, last_us, held) = &mut mirror[place as usize];
                    *last_us = Some(now_us);
                    held.extend(values);
                }
                for (interval_us, last_us, held) in &mirror {
                    let rests = last_us.is_some_and(|last_us| now_us < last_us + interval_us);
                    assert!(rests || *held == newest, "seed {seed}, step {step}");
                }
            }
            turns(&mut paced, now_us + 20_000_000);
            assert_eq!((paced.holdings()[0], paced.next_us()), (0, None), "seed {seed}");
        }
    }
}
