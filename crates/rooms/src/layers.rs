//! The layers of a cell: its objects by how far their kinds are visible.
//!
//! Layer 0 has the kinds that are visible in the whole view. The others follow from the farthest to the nearest. So what a
//! player sees of a cell is its first layers, and their number depends only on the distance from the player's view.

use crate::{Schema, schema::RANGES_MAX};

/// How far each layer is visible in cells, without layer 0. It never increases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reaches {
    cells: [u16; RANGES_MAX],
    count: u8,
}

/// The layer of each kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers {
    /// Of the kinds that are not in layer 0, in ascending order of kinds.
    kinds: Vec<(u16, u8)>,
    reaches: Reaches,
}

impl Reaches {
    /// `None` if these are too many, or not those of layers.
    pub(crate) fn from_cells(cells: &[u16]) -> Option<Self> {
        let mut reaches = Self { count: u8::try_from(cells.len()).ok()?, ..Self::default() };
        reaches.cells.get_mut(..cells.len())?.copy_from_slice(cells);
        cells.is_sorted_by(|far, near| far > near).then_some(reaches)
    }

    pub(crate) fn cells(&self) -> &[u16] {
        &self.cells[..self.count.into()]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of layers that a player sees of a visible cell at this distance from its view.
    pub(crate) fn depth(&self, distance: u16) -> u8 {
        1 + self.cells().iter().take_while(|reach| **reach >= distance).count() as u8
    }
}

impl Layers {
    pub(crate) fn new(schema: &Schema, cell_units: u32) -> Self {
        let reach = |units: u32| u16::try_from(units.div_ceil(cell_units.max(1))).unwrap_or(u16::MAX);
        let mut all: Vec<u16> = schema.ranges().iter().map(|(_, units)| reach(*units)).collect();
        all.sort_unstable_by_key(|cells| std::cmp::Reverse(*cells));
        all.dedup();
        let reaches = Reaches::from_cells(&all).expect("a schema has few distances");
        let layer = |units| 1 + all.partition_point(|cells| *cells > reach(units)) as u8;
        let kinds = schema.ranges().iter().map(|(kind, units)| (*kind, layer(*units))).collect();
        Self { kinds, reaches }
    }

    pub(crate) fn reaches(&self) -> Reaches {
        self.reaches
    }

    /// Whether layer 0 is the only one.
    pub(crate) fn is_one(&self) -> bool {
        self.kinds.is_empty()
    }

    /// All layers.
    pub(crate) fn all(&self) -> std::ops::RangeInclusive<u8> {
        0..=self.reaches.count
    }

    /// The layer of a kind.
    pub(crate) fn of(&self, kind: u16) -> u8 {
        if self.kinds.is_empty() {
            return 0;
        }
        let place = self.kinds.binary_search_by_key(&kind, |(of, _)| *of);
        place.map_or(0, |place| self.kinds[place].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_reaches_what_is_within_its_distance() {
        let schema = [(1, 100), (2, 101), (3, 1), (4, 900), (5, 201)];
        let schema =
            schema.into_iter().fold(Schema::new(), |schema, (kind, units)| schema.with_visible_within(kind, units));
        let layers = Layers::new(&schema, 100);
        assert_eq!(layers.reaches().cells(), [9, 3, 2, 1]);
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|kind| layers.of(kind)), [0, 4, 3, 4, 1, 2, 0]);
        assert_eq!((layers.all(), layers.is_one()), (0..=4, false));
        let depth = |distance| layers.reaches().depth(distance);
        assert_eq!([0, 1, 2, 3, 4, 9, 10, u16::MAX].map(depth), [5, 5, 4, 3, 2, 2, 1, 1]);
        assert_eq!(Reaches::default().depth(9), 1);
    }

    #[test]
    fn reaches_descend_and_are_few() {
        assert!(Reaches::from_cells(&[9, 8, 7, 6, 5, 4, 3, 2]).is_some());
        assert!(Reaches::from_cells(&[9, 8, 7, 6, 5, 4, 3, 2, 1]).is_none());
        assert!(Reaches::from_cells(&[2, 2]).is_none() && Reaches::from_cells(&[1, 2]).is_none());
    }
}
