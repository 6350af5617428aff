//! Which listings of rooms are published in a lobby channel, and when.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

/// What a lobby shows of a room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoomListing {
    /// Number of players.
    pub players: u32,
    /// Maximum number of players.
    pub players_max: u32,
    /// Further fields, as JSON; empty for none.
    pub metadata: Arc<str>,
}

/// What has to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LobbyEffect {
    /// A room was opened or has changed.
    Show(Arc<str>, RoomListing),
    /// A room was closed, or is not listed any more.
    Remove(Arc<str>),
}

/// How often listings are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LobbyLimits {
    /// Minimum time between two listings of a room.
    pub interval_ms: u64,
    /// Time after which a listing is repeated though nothing has changed; 0: never.
    pub repeat_ms: u64,
    /// Maximum number of publications of one update.
    pub publications_max: usize,
}

/// The published listings of a namespace's rooms.
#[derive(Debug)]
pub struct LobbyBoard {
    limits: LobbyLimits,
    rooms: BTreeMap<Arc<str>, ListedRoom>,
    /// Rooms whose listing has to be published.
    due: BTreeSet<Arc<str>>,
    /// The last room that was published; the next update goes on behind it.
    last: Option<Arc<str>>,
    updates: u64,
}

#[derive(Debug, Default)]
struct ListedRoom {
    /// `None` before the first publication, and if the last one was refused.
    published: Option<RoomListing>,
    /// When a listing was published last, whether or not it was refused.
    published_ms: Option<u64>,
    /// An earlier listing was not refused, so subscribers may have it.
    is_shown: bool,
    current: Option<RoomListing>,
    update: u64,
}

impl ListedRoom {
    fn is_within(&self, now_ms: u64, period_ms: u64) -> bool {
        self.published_ms.is_some_and(|published_ms| now_ms < published_ms.saturating_add(period_ms))
    }
}

impl LobbyBoard {
    /// A board without rooms.
    pub fn new(limits: LobbyLimits) -> Self {
        Self { limits, rooms: BTreeMap::new(), due: BTreeSet::new(), last: None, updates: 0 }
    }

    /// Number of rooms that are listed or will be.
    pub fn len(&self) -> usize {
        self.rooms.len()
    }

    /// Whether no room is listed.
    pub fn is_empty(&self) -> bool {
        self.rooms.is_empty()
    }

    /// Takes over all listings, and returns what has to be published now.
    pub fn update(
        &mut self,
        now_ms: u64,
        rooms: impl IntoIterator<Item = (Arc<str>, RoomListing)>,
    ) -> Vec<LobbyEffect> {
        self.updates += 1;
        for (channel, listing) in rooms {
            self.set(now_ms, channel, listing);
        }
        for (channel, room) in &mut self.rooms {
            if room.update != self.updates && room.current.take().is_some() {
                self.due.insert(Arc::clone(channel));
            }
        }
        self.publish_due(now_ms)
    }

    /// A publication that [`LobbyBoard::update`] returned was refused: it is due again. A removal is repeated only if a
    /// listing of the room was not refused, so a lobby that refuses all keeps nothing of closed rooms.
    pub fn on_refused(&mut self, effect: &LobbyEffect) {
        match effect {
            LobbyEffect::Show(channel, listing) => {
                let room = self.rooms.get_mut(channel);
                let Some(room) = room.filter(|room| room.published.as_ref() == Some(listing)) else { return };
                room.published = None;
                self.due.insert(Arc::clone(channel));
            }
            LobbyEffect::Remove(channel) => {
                let update = self.updates;
                let removed = || ListedRoom { is_shown: true, update, ..ListedRoom::default() };
                self.rooms.entry(Arc::clone(channel)).or_insert_with(removed);
                self.due.insert(Arc::clone(channel));
            }
        }
    }

    fn set(&mut self, now_ms: u64, channel: Arc<str>, listing: RoomListing) {
        let (update, repeat_ms) = (self.updates, self.limits.repeat_ms);
        let room = self.rooms.entry(Arc::clone(&channel)).or_default();
        room.update = update;
        let is_recent = repeat_ms == 0 || room.is_within(now_ms, repeat_ms);
        if room.published.as_ref() == Some(&listing) && is_recent {
            self.due.remove(&channel);
        } else {
            self.due.insert(channel);
        }
        room.current = Some(listing);
    }

    fn publish_due(&mut self, now_ms: u64) -> Vec<LobbyEffect> {
        let mut effects = Vec::new();
        let after = self.last.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.due.range((after, Bound::Unbounded));
        // From the last one to the end, then from the beginning; a room occurs in one of the two.
        let before =
            self.due.range((Bound::Unbounded, self.last.clone().map_or(Bound::Excluded("".into()), Bound::Included)));
        let order: Vec<_> = behind.chain(before).cloned().collect();
        for channel in order {
            if effects.len() >= self.limits.publications_max {
                break;
            }
            effects.extend(self.publish(now_ms, &channel));
        }
        effects
    }

    fn publish(&mut self, now_ms: u64, channel: &Arc<str>) -> Option<LobbyEffect> {
        let room = self.rooms.get_mut(channel)?;
        if let Some(listing) = &room.current {
            if room.is_within(now_ms, self.limits.interval_ms) {
                return None;
            }
            room.is_shown |= room.published.is_some();
            room.published = Some(listing.clone());
            room.published_ms = Some(now_ms);
            self.due.remove(channel);
            self.last = Some(Arc::clone(channel));
            return Some(LobbyEffect::Show(Arc::clone(channel), listing.clone()));
        }
        // A removal does not wait, because nothing follows it.
        let was_published = room.is_shown || room.published.is_some();
        self.rooms.remove(channel);
        self.due.remove(channel);
        self.last = Some(Arc::clone(channel));
        was_published.then(|| LobbyEffect::Remove(Arc::clone(channel)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(players: u32) -> RoomListing {
        RoomListing { players, players_max: 8, ..RoomListing::default() }
    }

    fn show(channel: &str, players: u32) -> LobbyEffect {
        LobbyEffect::Show(channel.into(), listing(players))
    }

    fn remove(channel: &str) -> LobbyEffect {
        LobbyEffect::Remove(channel.into())
    }

    fn update(board: &mut LobbyBoard, now_ms: u64, rooms: &[(&str, u32)]) -> Vec<LobbyEffect> {
        board.update(now_ms, rooms.iter().map(|(channel, players)| (Arc::from(*channel), listing(*players))))
    }

    #[test]
    fn unchanged_listings_are_not_published() {
        let mut board = LobbyBoard::new(LobbyLimits { interval_ms: 1_000, repeat_ms: 0, publications_max: 10 });
        assert_eq!(update(&mut board, 0, &[("a", 0), ("b", 0)]), [show("a", 0), show("b", 0)]);
        assert_eq!(update(&mut board, 5_000, &[("a", 0), ("b", 0)]), []);
        assert_eq!(update(&mut board, 5_001, &[("a", 1), ("b", 0)]), [show("a", 1)]);
        assert_eq!(update(&mut board, 5_002, &[("b", 0)]), [remove("a")]);
        assert_eq!(board.len(), 1);
    }

    #[test]
    fn a_room_waits_between_two_listings_and_then_shows_the_newest_state() {
        let mut board = LobbyBoard::new(LobbyLimits { interval_ms: 1_000, repeat_ms: 0, publications_max: 10 });
        assert_eq!(update(&mut board, 0, &[("a", 0)]), [show("a", 0)]);
        assert_eq!(update(&mut board, 1, &[("a", 1)]), []);
        assert_eq!(update(&mut board, 999, &[("a", 2)]), []);
        assert_eq!(update(&mut board, 1_000, &[("a", 3)]), [show("a", 3)]);
        // A change that is taken back costs nothing.
        assert_eq!(update(&mut board, 1_001, &[("a", 4)]), []);
        assert_eq!(update(&mut board, 1_002, &[("a", 3)]), []);
        assert_eq!(update(&mut board, 9_000, &[("a", 3)]), []);
        // A room that opens again right after it closed is new.
        assert_eq!(update(&mut board, 9_001, &[]), [remove("a")]);
        assert_eq!(update(&mut board, 9_002, &[("a", 3)]), [show("a", 3)]);
    }

    #[test]
    fn a_listing_is_repeated_before_caches_forget_it() {
        let mut board = LobbyBoard::new(LobbyLimits { interval_ms: 1_000, repeat_ms: 60_000, publications_max: 10 });
        assert_eq!(update(&mut board, 0, &[("a", 0)]), [show("a", 0)]);
        assert_eq!(update(&mut board, 59_999, &[("a", 0)]), []);
        assert_eq!(update(&mut board, 60_000, &[("a", 0)]), [show("a", 0)]);
        assert_eq!(update(&mut board, 60_001, &[("a", 0)]), []);
    }

    #[test]
    fn refused_listings_are_published_again() {
        let mut board = LobbyBoard::new(LobbyLimits { interval_ms: 1_000, repeat_ms: 0, publications_max: 10 });
        assert_eq!(update(&mut board, 0, &[("a", 0), ("b", 0)]), [show("a", 0), show("b", 0)]);
        board.on_refused(&show("a", 0));
        // Not more often than listings that are accepted.
        assert_eq!(update(&mut board, 999, &[("a", 0), ("b", 0)]), []);
        assert_eq!(update(&mut board, 1_000, &[("a", 0), ("b", 1)]), [show("a", 0), show("b", 1)]);
        board.on_refused(&show("b", 1));
        // Subscribers have the first listing of `b`, so it is removed, until that is accepted.
        assert_eq!(update(&mut board, 1_001, &[("a", 0)]), [remove("b")]);
        board.on_refused(&remove("b"));
        assert_eq!(update(&mut board, 1_002, &[("a", 0)]), [remove("b")]);
        assert_eq!(update(&mut board, 1_003, &[("a", 0)]), []);
        assert_eq!(board.len(), 1);
    }

    #[test]
    fn a_refusing_lobby_keeps_no_closed_rooms() {
        let mut board = LobbyBoard::new(LobbyLimits { interval_ms: 0, repeat_ms: 0, publications_max: 10 });
        for now_ms in 0..2 {
            assert_eq!(update(&mut board, now_ms, &[("a", 0)]), [show("a", 0)]);
            board.on_refused(&show("a", 0));
        }
        assert_eq!(update(&mut board, 2, &[]), []);
        assert!(board.is_empty());
    }

    #[test]
    fn a_room_that_opens_again_after_a_refused_removal_is_shown() {
        let mut board = LobbyBoard::new(LobbyLimits { interval_ms: 1_000, repeat_ms: 0, publications_max: 10 });
        assert_eq!(update(&mut board, 0, &[("a", 0)]), [show("a", 0)]);
        assert_eq!(update(&mut board, 1, &[]), [remove("a")]);
        board.on_refused(&remove("a"));
        assert_eq!(update(&mut board, 2, &[("a", 0)]), [show("a", 0)]);
        assert_eq!(update(&mut board, 3, &[]), [remove("a")]);
    }

    #[test]
    fn listings_past_the_limit_follow_in_the_next_update() {
        let mut board = LobbyBoard::new(LobbyLimits { interval_ms: 0, repeat_ms: 0, publications_max: 2 });
        let rooms = [("a", 0), ("b", 0), ("c", 0)];
        assert_eq!(update(&mut board, 0, &rooms), [show("a", 0), show("b", 0)]);
        // `a` changes all the time, and the others are published all the same.
        assert_eq!(update(&mut board, 1, &[("a", 1), ("b", 1), ("c", 0)]), [show("c", 0), show("a", 1)]);
        assert_eq!(update(&mut board, 2, &[("a", 2), ("b", 1), ("c", 0)]), [show("b", 1), show("a", 2)]);
        // A room that was never published is not removed.
        assert_eq!(update(&mut board, 3, &[("d", 0), ("e", 0), ("f", 0)]), [remove("b"), remove("c")]);
        assert_eq!(update(&mut board, 4, &[]), [remove("a")]);
        assert!(board.is_empty());
    }
}
