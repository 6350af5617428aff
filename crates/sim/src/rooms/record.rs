//! The world of one room as the game recorded it: every object at every tick.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    num::NonZeroU32,
};

use dunlin_protocol::UnsubscribeCode;
use dunlin_rooms::{Band, CellIndex, Grid, ObjectId, PlayerId, Position, Scope, Visibility};

use super::kinds;

/// The state of an object from a tick on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub position: Position,
    pub kind: u16,
    pub visibility: Visibility,
    pub state: Vec<u8>,
}

/// The header of a player's snapshots from a tick on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayerAt {
    /// The cell of its viewpoint.
    pub view: CellIndex,
    /// The number of the last applied input.
    pub ack: u32,
    /// Its own object, or 0 for none.
    pub avatar: u32,
}

/// Everything recorded about a room, from when it is opened until it ends.
pub struct RoomRecord {
    pub grid: Grid,
    /// Whether the bandwidth of players is limited.
    pub is_limited: bool,
    /// The kinds that are visible only near, and how far, in units.
    near_kinds: BTreeMap<u16, u32>,
    pub tick: u32,
    /// How often it has moved to another node.
    pub moves: u32,
    /// Whether another node has had it.
    pub has_been_elsewhere: bool,
    /// For each client, whether its joins in this tick are those of a seat that its node has kept, in order.
    pub keeping: BTreeMap<String, VecDeque<bool>>,
    /// How it ended. It has two codes if the owner closed it while it failed.
    pub ended: Vec<UnsubscribeCode>,
    /// The current objects.
    pub objects: BTreeMap<ObjectId, Version>,
    /// The players in the room and their headers.
    pub players: BTreeMap<PlayerId, PlayerAt>,
    /// Players whose clients are disconnected.
    pub away: BTreeSet<PlayerId>,
    /// Whether the backend kicks a player in this tick.
    pub is_kicking: bool,
    /// The users of all players that ever joined.
    pub users: BTreeMap<PlayerId, String>,
    /// Numbers of the events, in order.
    pub events: Vec<u64>,
    /// Scopes of the last events, which belong to the current tick.
    pub scopes: Vec<Scope>,
    /// The Unix time of each published tick, in microseconds.
    pub times_us: BTreeMap<u32, u64>,
    /// Number of inputs that the game rejected.
    pub rejected_inputs: u64,
    /// Objects that changed since the last tick.
    touched: BTreeSet<ObjectId>,
    /// For each object, its states with the tick from which each applies. `None` means that it is gone.
    versions: BTreeMap<ObjectId, Vec<(u32, Option<Version>)>>,
    headers: BTreeMap<PlayerId, Vec<(u32, PlayerAt)>>,
}

impl RoomRecord {
    pub fn new(grid: Grid, is_limited: bool, near_units: Option<NonZeroU32>) -> Self {
        Self {
            grid,
            is_limited,
            near_kinds: near_units.into_iter().flat_map(kinds::near_kinds).collect(),
            tick: 0,
            moves: 0,
            has_been_elsewhere: false,
            keeping: BTreeMap::new(),
            ended: Vec::new(),
            objects: BTreeMap::new(),
            players: BTreeMap::new(),
            away: BTreeSet::new(),
            is_kicking: false,
            users: BTreeMap::new(),
            events: Vec::new(),
            scopes: Vec::new(),
            times_us: BTreeMap::new(),
            rejected_inputs: 0,
            touched: BTreeSet::new(),
            versions: BTreeMap::new(),
            headers: BTreeMap::new(),
        }
    }

    /// A client joins. Returns whether its node has kept its seat.
    pub fn is_keeping(&mut self, client: &str) -> bool {
        self.keeping.get_mut(client).and_then(VecDeque::pop_front).unwrap_or_default()
    }

    /// Records a new or changed object.
    pub fn put(&mut self, id: ObjectId, version: Version) {
        self.touched.insert(id);
        self.objects.insert(id, version);
    }

    /// Records that an object is gone.
    pub fn remove(&mut self, id: ObjectId) {
        self.touched.insert(id);
        self.objects.remove(&id);
    }

    /// Records the state at the end of tick `tick`.
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

    /// The header of a player at a tick.
    pub fn header(&self, player: PlayerId, tick: u32) -> Option<PlayerAt> {
        let headers = self.headers.get(&player)?;
        let after = headers.partition_point(|(from, _)| *from <= tick);
        Some(headers.get(after.checked_sub(1)?)?.1)
    }

    /// All objects that ever existed, with their states and the tick from which each state applies.
    pub fn histories(&self) -> impl Iterator<Item = (ObjectId, &[(u32, Option<Version>)])> {
        self.versions.iter().map(|(id, versions)| (*id, &versions[..]))
    }

    /// The cell of this version, if everybody may see it.
    pub fn cell(&self, version: &Version) -> Option<CellIndex> {
        (version.visibility == Visibility::Everyone).then(|| self.grid.cell_of(version.position))
    }

    /// Whether a viewer in cell `view` sees this version in a cell that is in each of its snapshots, even if zones wait.
    pub fn is_nearest(&self, view: CellIndex, version: Option<&Version>) -> bool {
        version.and_then(|version| self.cell(version)).is_some_and(|cell| self.is_nearest_cell(view, cell))
    }

    /// Whether a cell is in each snapshot of a viewer in cell `view`.
    pub fn is_nearest_cell(&self, view: CellIndex, cell: CellIndex) -> bool {
        self.distance(view, cell) <= self.grid.shape().near_cells.min(1)
    }

    fn distance(&self, view: CellIndex, cell: CellIndex) -> u16 {
        let ((x, y), (cell_x, cell_y)) = (self.grid.place(view), self.grid.place(cell));
        x.abs_diff(cell_x).max(y.abs_diff(cell_y))
    }

    /// The band in which a viewer in cell `view` sees this version, or `None` if it is out of range.
    pub fn band(&self, view: CellIndex, version: Option<&Version>) -> Option<Band> {
        let version = version?;
        let cell = self.cell(version)?;
        let reach = self.near_kinds.get(&version.kind).map(|units| units.div_ceil(self.grid.shape().cell_units));
        let is_in_reach = reach.is_none_or(|cells| u32::from(self.distance(view, cell)) <= cells);
        self.grid.band(view, cell).filter(|_| is_in_reach)
    }
}

/// All states of an object from tick `first` to tick `last`. `None` means that it did not exist.
pub fn between(versions: &[(u32, Option<Version>)], first: u32, last: u32) -> impl Iterator<Item = Option<&Version>> {
    let begin = versions.partition_point(|(from, _)| *from <= first);
    let end = versions.partition_point(|(from, _)| *from <= last);
    let at_first = begin.checked_sub(1).and_then(|at| versions[at].1.as_ref());
    std::iter::once(at_first).chain(versions[begin..end].iter().map(|(_, version)| version.as_ref()))
}
