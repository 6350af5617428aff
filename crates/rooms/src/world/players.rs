//! The players of a world and their viewpoints.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_protocol::Encoding;

use crate::{
    CellIndex, Grid, ObjectId, Position, SnapshotFormat,
    binary::{Reader, Unreadable, put_number, put_position},
    hash::Hasher,
};

/// A player's number in its room, assigned in the order of joining and never reused.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/world/example.rs")); }
/// # example::in_world(|world, ada| {
/// assert_eq!(ada.0, 1, "the first player of the room");
/// # Ok(())
/// # })
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlayerId(pub u32);

/// The role of a player or a spectator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Player,
    Spectator,
}

/// A player or a spectator.
#[derive(Debug)]
pub(crate) struct Player {
    pub(crate) id: PlayerId,
    pub(crate) role: Role,
    pub(crate) format: SnapshotFormat,
    pub(crate) viewpoint: Position,
    pub(crate) view: CellIndex,
    /// The number of its last applied input.
    pub(crate) ack: u32,
    pub(crate) avatar: Option<ObjectId>,
    /// Slots of the objects that only this player receives.
    pub(crate) own: BTreeMap<ObjectId, u32>,
    /// Whether this tick reports it to its client, and its `own` objects.
    pub(crate) is_dirty: bool,
    pub(crate) is_own_dirty: bool,
}

/// The players of a world, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Players {
    list: Vec<Player>,
    /// The highest number assigned so far.
    last_id: u32,
    /// The players, by the cell of their viewpoint.
    by_view: BTreeSet<(CellIndex, PlayerId)>,
    by_format: [usize; SnapshotFormat::ALL.len()],
    spectators: usize,
    /// The number of all players' own objects.
    own_objects: usize,
}

impl Player {
    /// A player with its viewpoint in the map's corner.
    fn new(id: PlayerId, format: SnapshotFormat, role: Role) -> Self {
        Self {
            id,
            role,
            format,
            viewpoint: Position::default(),
            view: CellIndex(0),
            ack: 0,
            avatar: None,
            own: BTreeMap::new(),
            is_dirty: true,
            is_own_dirty: false,
        }
    }
}

/// The bit of [`Player::tag`] that is set for a spectator.
const SPECTATOR_BIT: u8 = 0x80;

impl Player {
    /// The encoding and role in one byte. Whether the client reads fields is not part of it: that has no effect on the
    /// world, and a client that comes back after a restart says it again.
    fn tag(&self) -> u8 {
        self.format.encoding().index() as u8 | if self.role == Role::Spectator { SPECTATOR_BIT } else { 0 }
    }

    /// The encoding and role in a byte of [`Player::tag`].
    fn read_tag(tag: u8) -> Option<(Encoding, Role)> {
        let role = if tag & SPECTATOR_BIT == 0 { Role::Player } else { Role::Spectator };
        Some((*Encoding::ALL.get(usize::from(tag & !SPECTATOR_BIT))?, role))
    }
}

impl Players {
    /// Adds a player or a spectator; `None` if all numbers have been used.
    pub(super) fn add(&mut self, format: SnapshotFormat, role: Role) -> Option<PlayerId> {
        let id = PlayerId(self.last_id.checked_add(1)?);
        self.last_id = id.0;
        self.put_back(Player::new(id, format, role));
        Some(id)
    }

    /// Adds a player whose number is greater than all others.
    fn put_back(&mut self, player: Player) {
        self.by_view.insert((player.view, player.id));
        self.by_format[player.format.index()] += 1;
        self.spectators += usize::from(player.role == Role::Spectator);
        self.list.push(player);
    }

    pub(super) fn remove(&mut self, id: PlayerId) -> Option<Player> {
        let place = self.place(id)?;
        let player = self.list.remove(place);
        self.by_view.remove(&(player.view, id));
        self.by_format[player.format.index()] -= 1;
        self.spectators -= usize::from(player.role == Role::Spectator);
        self.own_objects -= player.own.len();
        Some(player)
    }

    /// A player has another client from now on, whose last input has the number `ack`. Returns whether the player is in the
    /// room.
    pub(super) fn resume(&mut self, id: PlayerId, format: SnapshotFormat, ack: u32) -> bool {
        let Some(place) = self.place(id) else { return false };
        let player = &mut self.list[place];
        self.by_format[player.format.index()] -= 1;
        self.by_format[format.index()] += 1;
        (player.format, player.ack, player.is_dirty) = (format, ack, true);
        player.is_own_dirty = !player.own.is_empty();
        true
    }

    pub(crate) fn get(&self, id: PlayerId) -> Option<&Player> {
        self.place(id).map(|place| &self.list[place])
    }

    /// A player, mutable. The caller sets `is_dirty` if its client must be informed.
    pub(crate) fn get_mut(&mut self, id: PlayerId) -> Option<&mut Player> {
        self.place(id).map(|place| &mut self.list[place])
    }

    /// Adds an object that only this player receives.
    pub(super) fn give_own(&mut self, id: PlayerId, object: ObjectId, slot: u32) {
        let Some(place) = self.place(id) else { return };
        let player = &mut self.list[place];
        self.own_objects += usize::from(player.own.insert(object, slot).is_none());
        (player.is_dirty, player.is_own_dirty) = (true, true);
    }

    /// Removes an object that only this player received.
    pub(super) fn take_own(&mut self, id: PlayerId, object: ObjectId) {
        let Some(place) = self.place(id) else { return };
        let player = &mut self.list[place];
        self.own_objects -= usize::from(player.own.remove(&object).is_some());
        (player.is_dirty, player.is_own_dirty) = (true, true);
    }

    fn place(&self, id: PlayerId) -> Option<usize> {
        self.list.binary_search_by_key(&id, |player| player.id).ok()
    }

    /// All players and spectators, in the order of their numbers.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Player> {
        self.list.iter()
    }

    /// All players and spectators, mutable, in the order of their numbers.
    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Player> {
        self.list.iter_mut()
    }

    /// The number of players and spectators.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The number of spectators.
    pub(crate) fn spectator_count(&self) -> usize {
        self.spectators
    }

    /// The number of players and spectators with a form.
    pub(crate) fn count_with(&self, format: SnapshotFormat) -> usize {
        self.by_format[format.index()]
    }

    /// Moves a player's viewpoint.
    pub(super) fn look(&mut self, id: PlayerId, viewpoint: Position, view: CellIndex) {
        let Some(place) = self.place(id) else { return };
        let player = &mut self.list[place];
        player.viewpoint = viewpoint;
        if player.view != view {
            self.by_view.remove(&(player.view, id));
            self.by_view.insert((view, id));
            player.view = view;
            player.is_dirty = true;
        }
    }

    /// The players who see a cell, in ascending order. Costs one search per row of cells from which the cell is
    /// visible.
    pub(crate) fn viewers(&self, grid: &Grid, cell: CellIndex) -> Vec<PlayerId> {
        if cell.0 as usize >= grid.len() {
            return Vec::new();
        }
        let shape = grid.shape();
        let reach = shape.near_cells.saturating_add(shape.far_cells);
        let (column, row) = grid.place(cell);
        let cell_at = |column: u16, row: u16| CellIndex(u32::from(row) * u32::from(shape.columns) + u32::from(column));
        let (left, right) = (column.saturating_sub(reach), column.saturating_add(reach).min(shape.columns - 1));
        let mut found = Vec::new();
        for row in row.saturating_sub(reach)..=row.saturating_add(reach).min(shape.rows - 1) {
            let of_row = (cell_at(left, row), PlayerId(0))..=(cell_at(right, row), PlayerId(u32::MAX));
            found.extend(self.by_view.range(of_row).map(|&(_, player)| player));
        }
        found.sort_unstable();
        found
    }

    /// Adds everything that the future depends on to a hash.
    pub(super) fn hash(&self, hasher: Hasher) -> Hasher {
        let hasher = hasher.number(u64::from(self.last_id)).number(self.list.len() as u64);
        self.list.iter().fold(hasher, |hasher, player| {
            let avatar = player.avatar.map_or(0, |id| id.0);
            hasher
                .number(u64::from(player.id.0) << 32 | u64::from(player.ack))
                .number(u64::from(player.viewpoint.x) << 32 | u64::from(player.viewpoint.y))
                .number(u64::from(avatar) << 8 | u64::from(player.tag()))
        })
    }

    /// Appends the form that [`Players::restore`] reads.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        put_number(u64::from(self.last_id), out);
        put_number(self.len() as u64, out);
        for player in self.iter() {
            put_number(u64::from(player.id.0), out);
            out.push(player.tag());
            put_position(player.viewpoint, out);
            put_number(u64::from(player.ack), out);
            put_number(player.avatar.map_or(0, |id| u64::from(id.0)), out);
        }
    }

    /// Restores what [`Players::save`] wrote. Own objects follow from the objects. `is_of_other_map`: viewpoints outside of
    /// the map move to its edge.
    pub(super) fn restore(grid: &Grid, saved: &mut Reader<'_>, is_of_other_map: bool) -> Result<Self, Unreadable> {
        let mut players = Self { last_id: saved.number_of()?, ..Self::default() };
        let mut last = 0;
        for _ in 0..saved.count()? {
            let id = saved.number_of()?;
            if id <= last || id > players.last_id {
                return Err(Unreadable::Wrong);
            }
            last = id;
            let (encoding, role) = Player::read_tag(saved.byte()?).ok_or(Unreadable::Wrong)?;
            let mut player = Player::new(PlayerId(id), encoding.into(), role);
            let viewpoint = saved.position()?;
            player.viewpoint = grid.clamp(viewpoint);
            if player.viewpoint != viewpoint && !is_of_other_map {
                return Err(Unreadable::Wrong);
            }
            player.view = grid.cell_of(player.viewpoint);
            player.ack = saved.number_of()?;
            player.avatar = Some(ObjectId(saved.number_of()?)).filter(|avatar| avatar.0 != 0);
            players.put_back(player);
        }
        Ok(players)
    }

    /// Approximate memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.list.capacity() * size_of::<Player>()
            + self.own_objects * size_of::<(ObjectId, u32)>()
            + self.by_view.len() * size_of::<(CellIndex, PlayerId)>()
    }
}

#[cfg(test)]
impl Players {
    pub(super) fn assert_counted(&self) {
        assert_eq!(self.own_objects, self.list.iter().map(|player| player.own.len()).sum::<usize>());
    }
}
