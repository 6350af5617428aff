//! Merges the changes to a cell over several ticks into one segment.

use std::{cmp::Reverse, ops::Range};

use hashbrown::HashMap;

use super::{HashState, KEPT_BYTES_MAX, history::History};
use crate::{
    CellIndex, Schema, SnapshotFormat, TickUpdate,
    wire::{self, ChangeList, Changes, SegmentHead, WHOLE},
};

/// Segments merged for the current tick. Each is assembled once for all players that need it.
#[derive(Debug, Default)]
pub(super) struct Merges {
    known: HashMap<MergeKey, Merged, HashState>,
    segments: Vec<u8>,
    mentions: Vec<Mention>,
    departed: Vec<u32>,
    objects: Vec<u8>,
    changes: ChangeList,
}

/// The form, the cell, and the tick after which its changes are merged.
type MergeKey = (SnapshotFormat, CellIndex, u32);

/// What is known about the states of all objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct States<'a> {
    pub(super) schema: &'a Schema,
    pub(super) cell_units: u32,
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
    /// What has changed. A departed object is not known as it was before, even if it comes back.
    changes: Changes,
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

    /// As [`Merges::write`], or the full segment if the history does not reach back to the tick of `key`.
    pub(super) fn write_or_full(&mut self, history: &History, states: States<'_>, key: MergeKey, out: &mut Vec<u8>) {
        let (format, cell, since) = key;
        if history.reaches(since) {
            self.write(history, states, key, out);
        } else {
            write_full_cell(history, format, cell, out);
        }
    }

    /// Appends a segment with what changed in the cell of `key` since its tick, if anything did.
    fn write(&mut self, history: &History, states: States<'_>, key: MergeKey, out: &mut Vec<u8>) {
        let (format, _, tick) = key;
        let merged = if let Some(merged) = self.known.get(&key) {
            merged.clone()
        } else {
            let merged = self.merge(history, states, key);
            self.known.insert(key, merged.clone());
            merged
        };
        match merged {
            Merged::Nothing => {}
            Merged::Alone { age, place } => {
                if let Some(update) = history.after(tick).nth_back(age) {
                    out.extend_from_slice(&update.deltas(format)[update.delta(format, place)]);
                }
            }
            Merged::Here(range) => out.extend_from_slice(&self.segments[range]),
        }
    }

    fn merge(&mut self, history: &History, states: States<'_>, (format, cell, tick): MergeKey) -> Merged {
        let found = |(age, update): (usize, &TickUpdate)| update.find(cell).map(|place| (age, place));
        let mut places = history.after(tick).rev().enumerate().filter_map(found);
        let Some((age, place)) = places.next() else { return Merged::Nothing };
        // A segment of changed fields has differences to the tick before its own, and the client may have a later one:
        // `tick` is a lower bound for a far cell. So its values are written again as a whole.
        if places.next().is_none() && format != SnapshotFormat::TypedProtobuf {
            return Merged::Alone { age, place };
        }
        self.collect_mentions(history, cell, tick);
        self.departed.clear();
        self.objects.clear();
        self.changes.clear();
        let Self { mentions, departed, objects, changes, .. } = self;
        for mentions in mentions.chunk_by(|one, next| one.id == next.id) {
            let newest = mentions[0];
            let update = history.after(tick).nth_back(newest.age.into());
            let (Some(update), Some(place)) = (update, newest.place) else {
                departed.push(newest.id);
                continue;
            };
            let object = update.upsert(format, place);
            let all = mentions.iter().fold(0, |all, mention| all | mention.changes);
            if format == SnapshotFormat::TypedProtobuf
                && all & WHOLE == 0
                && let Some(now) = wire::read_object(object)
            {
                changes.push_whole_values(states.schema, wire::position_bits(states.cell_units), &now, all);
            } else {
                wire::part_upserts(format, objects);
                objects.extend_from_slice(object);
            }
        }
        let start = self.segments.len();
        let changes = if self.changes.is_empty() { &[] } else { self.changes.finish() };
        let head = SegmentHead { cell, is_full: false, departed: &self.departed, changes };
        if !head.is_nothing() || !self.objects.is_empty() {
            wire::write_segment(format, &head, &self.objects, &mut self.segments);
        }
        Merged::Here(start..self.segments.len())
    }

    /// Sorted by object, the newest change first.
    fn collect_mentions(&mut self, history: &History, cell: CellIndex, tick: u32) {
        self.mentions.clear();
        for (age, update) in (0..).zip(history.after(tick).rev()) {
            let Some(place) = update.find(cell) else { continue };
            let (upserted, first) = update.upserted(place);
            let upserts = (first..).zip(upserted).map(|(place, id)| Mention {
                id: *id,
                age,
                place: Some(place),
                changes: update.changes(place),
            });
            self.mentions.extend(upserts);
            let departed = update.departed(place).iter();
            self.mentions.extend(departed.map(|id| Mention { id: *id, age, place: None, changes: WHOLE }));
        }
        // An object that an update lists both as departed and as changed has entered the cell.
        self.mentions.sort_unstable_by_key(|mention| (mention.id, mention.age, Reverse(mention.place)));
    }
}

/// Writes a cell's full segment even if the cell is empty, for a client that may have an older state of it.
fn write_full_cell(history: &History, format: SnapshotFormat, cell: CellIndex, out: &mut Vec<u8>) {
    if let Some(segment) = history.full(format, cell) {
        out.extend_from_slice(segment);
    } else {
        let head = SegmentHead { cell, is_full: true, departed: &[], changes: &[] };
        wire::write_segment(format, &head, &[], out);
    }
}
