//! Merges the changes to a cell over several ticks into one segment.

use std::{cmp::Reverse, ops::Range};

use dunlin_protocol::Encoding;
use hashbrown::HashMap;

use super::{HashState, KEPT_BYTES_MAX, history::History};
use crate::{
    CellIndex, TickUpdate,
    wire::{self, SegmentHead},
};

/// Segments merged for the current tick. Each is assembled once for all players that need it.
#[derive(Debug, Default)]
pub(super) struct Merges {
    known: HashMap<(Encoding, CellIndex, u32), Merged, HashState>,
    segments: Vec<u8>,
    mentions: Vec<Mention>,
    departed: Vec<u32>,
    objects: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Merged {
    Nothing,
    /// Only one update contains the cell: the one `age` updates before the newest.
    Alone {
        age: usize,
        place: usize,
    },
    /// A range of `segments`.
    Here(Range<usize>),
}

/// A change to an object in an update.
#[derive(Clone, Copy, Debug)]
struct Mention {
    id: u32,
    /// How many updates are newer than this one.
    age: u8,
    /// The location of the encoded object; `None` if the object has departed.
    place: Option<usize>,
}

impl Merges {
    /// Drops all segments, because a new tick has arrived.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.segments.clear();
        if self.segments.capacity() > KEPT_BYTES_MAX {
            self.segments = Vec::new();
        }
    }

    /// Appends a segment with what changed in `cell` since `tick`, if anything did.
    pub(super) fn write(
        &mut self,
        history: &History,
        encoding: Encoding,
        cell: CellIndex,
        tick: u32,
        out: &mut Vec<u8>,
    ) {
        let key = (encoding, cell, tick);
        let merged = if let Some(merged) = self.known.get(&key) {
            merged.clone()
        } else {
            let merged = self.merge(history, encoding, cell, tick);
            self.known.insert(key, merged.clone());
            merged
        };
        match merged {
            Merged::Nothing => {}
            Merged::Alone { age, place } => {
                if let Some(update) = history.after(tick).nth_back(age) {
                    out.extend_from_slice(&update.deltas(encoding)[update.delta(encoding, place)]);
                }
            }
            Merged::Here(range) => out.extend_from_slice(&self.segments[range]),
        }
    }

    fn merge(&mut self, history: &History, encoding: Encoding, cell: CellIndex, tick: u32) -> Merged {
        let found = |(age, update): (usize, &TickUpdate)| update.find(cell).map(|place| (age, place));
        let mut places = history.after(tick).rev().enumerate().filter_map(found);
        let Some((age, place)) = places.next() else { return Merged::Nothing };
        if places.next().is_none() {
            return Merged::Alone { age, place };
        }
        self.collect_mentions(history, cell, tick);
        self.departed.clear();
        self.objects.clear();
        let mut last = None;
        for mention in &self.mentions {
            if last.replace(mention.id) == Some(mention.id) {
                continue;
            }
            match mention.place {
                None => self.departed.push(mention.id),
                Some(place) => {
                    let Some(update) = history.after(tick).nth_back(mention.age.into()) else { continue };
                    wire::part_upserts(encoding, &mut self.objects);
                    self.objects.extend_from_slice(update.upsert(encoding, place));
                }
            }
        }
        let start = self.segments.len();
        let head = SegmentHead { cell, is_full: false, departed: &self.departed };
        wire::write_segment(encoding, &head, &self.objects, &mut self.segments);
        Merged::Here(start..self.segments.len())
    }

    /// Sorted by object, the newest change first.
    fn collect_mentions(&mut self, history: &History, cell: CellIndex, tick: u32) {
        self.mentions.clear();
        for (age, update) in (0..).zip(history.after(tick).rev()) {
            let Some(place) = update.find(cell) else { continue };
            let (upserted, first) = update.upserted(place);
            let upserts = (first..).zip(upserted).map(|(place, id)| Mention { id: *id, age, place: Some(place) });
            self.mentions.extend(upserts);
            self.mentions.extend(update.departed(place).iter().map(|id| Mention { id: *id, age, place: None }));
        }
        // An object that an update lists both as departed and as changed has entered the cell.
        self.mentions.sort_unstable_by_key(|mention| (mention.id, mention.age, Reverse(mention.place)));
    }
}
