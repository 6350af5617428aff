//! The zones of a view, by their distance from its center. On a client whose bandwidth is limited, outer zones may wait.

use super::Base;
use crate::{CellIndex, Grid, GridShape, grid::HISTORY_TICKS, wire};

/// Number of zones of a view: three of near cells, then the far cells.
pub const ZONES: usize = 4;
/// The zone of the far cells.
const FAR: usize = ZONES - 1;

/// Cells wait for fewer ticks than this, so that the history still has their changes when a slow client receives them.
const WAIT_TICKS_MAX: u32 = HISTORY_TICKS as u32 - 3;

/// The state of the zones on a client whose cells may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Zones {
    /// [`SnapshotBody::zone_ticks`](super::SnapshotBody::zone_ticks) of the last body sent to the client.
    pub known_ticks: [u32; ZONES],
    /// The zones that the next body leaves out, as long as the history reaches back to their ticks for some more ticks.
    /// The first zone never waits.
    pub waiting: [bool; ZONES],
}

/// How a body treats the zones.
#[derive(Debug)]
pub(super) struct ZonePlan {
    /// The client's state of a zone's cells is at least as new as this tick.
    pub(super) known_ticks: [u32; ZONES],
    pub(super) is_sent: [bool; ZONES],
    /// Zones that were due and are left out.
    pub(super) is_postponed: [bool; ZONES],
    /// The values of `known_ticks` after the body.
    pub(super) ticks_after: [u32; ZONES],
}

impl ZonePlan {
    /// For a client without [`Zones`], whose near cells are all as of its base.
    pub(super) fn of_base(shape: &GridShape, tick: u32, base: Base) -> Self {
        let known_ticks = expected_ticks(shape, base.tick);
        let far_is_sent = is_far_due(shape, tick, known_ticks[FAR]);
        let mut ticks_after = [tick; ZONES];
        if !far_is_sent {
            ticks_after[FAR] = known_ticks[FAR];
        }
        Self { known_ticks, is_sent: [true, true, true, far_is_sent], is_postponed: [false; ZONES], ticks_after }
    }

    /// A zone keeps its tick when the view moves: see [`ZonePlan::leaves_out`].
    pub(super) fn new(shape: &GridShape, tick: u32, base: Base, zones: Zones) -> Self {
        let known_ticks = zones.known_ticks.map(|known| known.min(base.tick));
        let gap_ticks = tick.saturating_sub(base.tick);
        let mut plan =
            Self { known_ticks, is_sent: [true; ZONES], is_postponed: [false; ZONES], ticks_after: [tick; ZONES] };
        for (zone, known) in known_ticks.into_iter().enumerate() {
            let is_due = zone != FAR || is_far_due(shape, tick, known);
            let age_ticks = tick.saturating_sub(known);
            // Past the history, whole cells would be sent. The next body may come as late as this one.
            let is_reached_next = age_ticks.saturating_add(gap_ticks) < u32::from(HISTORY_TICKS);
            let may_wait = zone != 0 && age_ticks < WAIT_TICKS_MAX && is_reached_next;
            plan.is_postponed[zone] = is_due && may_wait && zones.waiting[zone];
            plan.is_sent[zone] = is_due && !plan.is_postponed[zone];
            if !plan.is_sent[zone] {
                plan.ticks_after[zone] = known;
            }
        }
        plan
    }

    /// The waits of the zones, for the head of the body; 0 if each cell that is sent now was sent last when a client expects
    /// it: near cells with the base, far cells at the last multiple of their interval.
    pub(super) fn waited(&self, shape: &GridShape, base: Base, view: CellIndex) -> u32 {
        let expected_ticks = expected_ticks(shape, base.tick);
        let has_waited = |zone: usize| {
            // In a view that has moved, a zone that waits may have given cells to one that is sent.
            let is_sent = self.is_sent[zone] || view != base.view;
            is_sent && self.known_ticks[zone] < expected_ticks[zone]
        };
        if !(0..ZONES).any(has_waited) {
            return 0;
        }
        wire::zone_waits(self.known_ticks.map(|known| base.tick.saturating_sub(known)))
    }

    /// Whether a cell of `zone` waits that was in the zone `before` of the base's view. A cell whose state is older than that of
    /// its new zone does not wait with it: the tick of the zone would have to become that of the cell.
    pub(super) fn leaves_out(&self, before: usize, zone: usize) -> bool {
        !self.is_sent[zone] && self.known_ticks[before] >= self.known_ticks[zone]
    }

    pub(super) fn is_far_sent(&self) -> bool {
        self.is_sent[FAR]
    }

    pub(super) fn far_known_tick(&self) -> u32 {
        self.known_ticks[FAR]
    }
}

/// For each zone, the ticks that a client's state of it is old; 0 if it is not due.
pub(super) fn due_ages(shape: &GridShape, tick: u32, known_ticks: [u32; ZONES]) -> [u32; ZONES] {
    let mut ages = known_ticks.map(|known| tick.saturating_sub(known));
    if !is_far_due(shape, tick, known_ticks[FAR]) {
        ages[FAR] = 0;
    }
    ages
}

/// The ticks of the zones of a client that has this base and no [`Zones`]: far cells are sent at multiples of their interval.
fn expected_ticks(shape: &GridShape, base_tick: u32) -> [u32; ZONES] {
    let mut ticks = [base_tick; ZONES];
    ticks[FAR] -= base_tick % u32::from(shape.far_interval_ticks);
    ticks
}

fn is_far_due(shape: &GridShape, tick: u32, known_tick: u32) -> bool {
    let interval = u32::from(shape.far_interval_ticks);
    tick / interval > known_tick / interval
}

/// The zone of a cell; `None` if it is not visible.
pub(super) fn zone(grid: &Grid, view: CellIndex, cell: CellIndex) -> Option<usize> {
    let GridShape { near_cells, far_cells, .. } = *grid.shape();
    match grid.distance(view, cell) {
        // A player at the edge of its cell sees the next cells as close as its own.
        distance if distance <= near_cells.min(1) => Some(0),
        distance if distance <= near_cells.div_ceil(2) => Some(1),
        distance if distance <= near_cells => Some(2),
        distance if distance <= near_cells.saturating_add(far_cells) => Some(FAR),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(near_cells: u16, far_cells: u16) -> Vec<Option<usize>> {
        let shape = GridShape { columns: 12, rows: 1, cell_units: 10, near_cells, far_cells, far_interval_ticks: 1 };
        let grid = Grid::new(shape).expect("a good shape");
        (0..12).map(|cell| zone(&grid, CellIndex(0), CellIndex(cell))).collect()
    }

    #[test]
    fn zones_follow_the_distance() {
        let numbers = |text: &str| {
            let mut zones: Vec<_> = text.bytes().map(|byte| Some(usize::from(byte - b'0'))).collect();
            zones.resize(12, None);
            zones
        };
        assert_eq!(zones(0, 0), numbers("0"));
        assert_eq!(zones(0, 2), numbers("033"));
        assert_eq!(zones(1, 1), numbers("003"));
        assert_eq!(zones(2, 0), numbers("002"));
        assert_eq!(zones(3, 0), numbers("0012"));
        assert_eq!(zones(4, 2), numbers("0012233"));
        assert_eq!(zones(u16::MAX, u16::MAX), numbers("001111111111"));
    }

    #[test]
    fn a_wait_is_told_with_the_cells_that_have_waited() {
        let shape =
            GridShape { columns: 9, rows: 9, cell_units: 1, near_cells: 4, far_cells: 1, far_interval_ticks: 4 };
        let base = Base { tick: 99, view: CellIndex(40) };
        let waited = |known_ticks, waiting, view| {
            let plan = ZonePlan::new(&shape, 100, base, Zones { known_ticks, waiting });
            plan.waited(&shape, base, CellIndex(view))
        };
        let (none, second) = ([false; ZONES], [false, true, false, false]);
        assert_eq!(waited([99, 99, 99, 96], none, 40), 0, "the far cells are due at each fourth tick");
        assert_eq!(waited([99, 98, 99, 96], none, 40), 0x3010);
        assert_eq!(waited([99, 98, 99, 96], second, 40), 0, "it still waits");
        assert_eq!(waited([99, 98, 99, 96], second, 41), 0x3010, "its cells may be in another zone now");
        assert_eq!(waited([99, 99, 99, 95], none, 40), 0x4000, "the far cells were due with the base");
        let on_time = ZonePlan::of_base(&shape, 100, base);
        assert_eq!(on_time.waited(&shape, base, CellIndex(41)), 0);
    }

    #[test]
    fn a_zone_waits_up_to_the_limit() {
        let shape =
            GridShape { columns: 9, rows: 9, cell_units: 1, near_cells: 4, far_cells: 1, far_interval_ticks: 4 };
        let base = Base { tick: 99, view: CellIndex(40) };
        let zones = |known| Zones { known_ticks: [99, known, 99, 99], waiting: [true; ZONES] };
        let plan = |known| ZonePlan::new(&shape, 100, base, zones(known));
        let at_the_limit = plan(100 - WAIT_TICKS_MAX + 1);
        assert_eq!(at_the_limit.is_sent, [true, false, false, false]);
        assert_eq!(at_the_limit.ticks_after, [100, 88, 99, 99]);
        let past_it = plan(100 - WAIT_TICKS_MAX);
        assert_eq!(past_it.is_sent, [true, true, false, false]);
        assert_eq!(past_it.ticks_after, [100, 100, 99, 99]);
        let from = |before| [1, 2, 3].map(|zone| at_the_limit.leaves_out(before, zone));
        assert_eq!(from(1), [true, false, false], "a cell that is older than its new zone does not wait with it");
        assert_eq!(from(2), [true; 3]);
    }

    #[test]
    fn a_zone_does_not_wait_past_the_history_if_bodies_are_rare() {
        let shape =
            GridShape { columns: 9, rows: 9, cell_units: 1, near_cells: 4, far_cells: 1, far_interval_ticks: 4 };
        let is_sent = |base_tick| {
            let base = Base { tick: base_tick, view: CellIndex(40) };
            let zones = Zones { known_ticks: [base_tick; ZONES], waiting: [true; ZONES] };
            ZonePlan::new(&shape, 100, base, zones).is_sent
        };
        assert_eq!(is_sent(93), [true, false, false, false], "after a body in every 7th tick, the next has 14 ticks");
        assert_eq!(is_sent(92), [true; ZONES], "twice 8 ticks may be too many");
    }
}
