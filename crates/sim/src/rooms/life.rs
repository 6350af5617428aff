//! One room's world as the game recorded it: every object at every tick.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_protocol::UnsubscribeCode;
use dunlin_rooms::{Band, CellIndex, Grid, ObjectId, PlayerId, Position, Scope, Visibility};

/// An object as it was from a tick on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub position: Position,
    pub kind: u16,
    pub visibility: Visibility,
    /// The rest.
    pub state: Vec<u8>,
}

/// What a player's header says from a tick on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayerAt {
    /// The cell that it looks from.
    pub view: CellIndex,
    /// The last input applied.
    pub ack: u32,
    /// Its own object; 0 for none.
    pub avatar: u32,
}

/// A room from its opening to its end.
pub struct Life {
    pub grid: Grid,
    pub tick: u32,
    /// How it ended: by its owner's word, or by failing; by both, if neither had heard of the other yet.
    pub ended: Vec<UnsubscribeCode>,
    /// The objects now.
    pub objects: BTreeMap<ObjectId, Version>,
    /// Who is here, and what its header says.
    pub players: BTreeMap<PlayerId, PlayerAt>,
    /// Players without their clients.
    pub away: BTreeSet<PlayerId>,
    /// The backend removes somebody in this tick.
    pub is_kicking: bool,
    /// Users of all players that there ever were.
    pub users: BTreeMap<PlayerId, String>,
    /// Events, in order.
    pub events: Vec<u64>,
    /// Scopes of the last of them, those of the tick that is going on.
    pub scopes: Vec<Scope>,
    /// The Unix time of each tick that was told, in microseconds.
    pub times_us: BTreeMap<u32, u64>,
    /// Inputs that the game made nothing of.
    pub senseless: u64,
    /// Objects that were touched since the last tick.
    touched: BTreeSet<ObjectId>,
    /// By object: from which tick on it was like that; `None` for gone.
    versions: BTreeMap<ObjectId, Vec<(u32, Option<Version>)>>,
    headers: BTreeMap<PlayerId, Vec<(u32, PlayerAt)>>,
}

impl Life {
    /// A room that is opened.
    pub fn new(grid: Grid) -> Self {
        Self {
            grid,
            tick: 0,
            ended: Vec::new(),
            objects: BTreeMap::new(),
            players: BTreeMap::new(),
            away: BTreeSet::new(),
            is_kicking: false,
            users: BTreeMap::new(),
            events: Vec::new(),
            scopes: Vec::new(),
            times_us: BTreeMap::new(),
            senseless: 0,
            touched: BTreeSet::new(),
            versions: BTreeMap::new(),
            headers: BTreeMap::new(),
        }
    }

    /// An object is new or different.
    pub fn put(&mut self, id: ObjectId, version: Version) {
        self.touched.insert(id);
        self.objects.insert(id, version);
    }

    /// An object is gone.
    pub fn remove(&mut self, id: ObjectId) {
        self.touched.insert(id);
        self.objects.remove(&id);
    }

    /// Tick `tick` is over.
    pub fn close_tick(&mut self, tick: u32) {
        self.tick = tick;
        for id in std::mem::take(&mut self.touched) {
            let now = self.objects.get(&id).cloned();
            let versions = self.versions.entry(id).or_default();
            if versions.last().and_then(|(_, version)| version.as_ref()) != now.as_ref() {
                versions.push((tick, now));
            }
        }
        for (player, now) in &self.players {
            let headers = self.headers.entry(*player).or_default();
            if headers.last().is_none_or(|(_, header)| header != now) {
                headers.push((tick, *now));
            }
        }
    }

    /// What the header of a player said at a tick.
    pub fn header(&self, player: PlayerId, tick: u32) -> Option<PlayerAt> {
        let headers = self.headers.get(&player)?;
        let after = headers.partition_point(|(from, _)| *from <= tick);
        Some(headers.get(after.checked_sub(1)?)?.1)
    }

    /// All objects that there ever were, each with what it was like from which tick on.
    pub fn histories(&self) -> impl Iterator<Item = (ObjectId, &[(u32, Option<Version>)])> {
        self.versions.iter().map(|(id, versions)| (*id, &versions[..]))
    }

    /// The cell in which everybody sees this version, if there is one.
    pub fn cell(&self, version: &Version) -> Option<CellIndex> {
        (version.visibility == Visibility::Everyone).then(|| self.grid.cell_of(version.position))
    }

    /// How often those who look from `view` are told of this version, if they are.
    pub fn band(&self, view: CellIndex, version: Option<&Version>) -> Option<Band> {
        self.grid.band(view, self.cell(version?)?)
    }
}

/// How an object was at some time from tick `first` to tick `last`; `None` for not there.
pub fn between(versions: &[(u32, Option<Version>)], first: u32, last: u32) -> impl Iterator<Item = Option<&Version>> {
    let begin = versions.partition_point(|(from, _)| *from <= first);
    let end = versions.partition_point(|(from, _)| *from <= last);
    let at_first = begin.checked_sub(1).and_then(|at| versions[at].1.as_ref());
    std::iter::once(at_first).chain(versions[begin..end].iter().map(|(_, version)| version.as_ref()))
}
