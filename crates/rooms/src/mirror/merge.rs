//! Merges the changes to a cell over several ticks into one segment.

use std::{cmp::Reverse, ops::Range};

use hashbrown::HashMap;

use super::{HashState, KEPT_BYTES_MAX, history::History};
use crate::{
    CellIndex, ObjectView, Schema, SnapshotFormat, TickUpdate,
    wire::{self, ChangeList, Changes, SegmentHead, WHOLE},
};

/// Segments merged for the current tick. Each is assembled once for all players that need it.
#[derive(Debug, Default)]
pub(super) struct Merges {
    known: HashMap<MergeKey, Merged, HashState>,
    steps: Vec<StepSegments>,
    segments: Vec<u8>,
    mentions: Vec<Mention>,
    departed: Vec<u32>,
    objects: Vec<u8>,
    changes: ChangeList,
}

/// A segment with the changes of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MergeKey {
    pub(super) format: SnapshotFormat,
    pub(super) cell: CellIndex,
    /// The tick after which its changes are merged.
    pub(super) since: u32,
    /// The layers of the cell that are in it.
    pub(super) depth: u8,
    /// Whether the client has exactly the state of `since`, and there is one update after it: so fields may have differences.
    pub(super) is_step: bool,
}

/// What is known about the states of all objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct States<'a> {
    pub(super) schema: &'a Schema,
    pub(super) cell_units: u32,
}

/// The segments of the newest update with their first layers alone, for clients that are one tick behind. There is one for each form and
/// number of layers in use, so a search is short; the cells of a view are found by their index.
#[derive(Debug)]
struct StepSegments {
    format: SnapshotFormat,
    depth: u8,
    /// The range of each cell in `segments`, by the cell's index in the update; `None` before it is needed.
    ranges: Vec<Option<(usize, usize)>>,
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
        self.steps.iter_mut().for_each(|steps| steps.ranges.clear());
        self.segments.clear();
        if self.segments.capacity() > KEPT_BYTES_MAX {
            self.segments = Vec::new();
        }
    }

    /// As [`Merges::write`], or the full segment if the history does not reach back to the tick of `key`.
    pub(super) fn write_or_full(&mut self, history: &History, states: States<'_>, key: MergeKey, out: &mut Vec<u8>) {
        if history.reaches(key.since) {
            self.write(history, states, key, out);
        } else {
            history.write_known(key.format, key.cell, key.depth, out);
        }
    }

    /// Appends the segment of the newest update for the cell of `key`, which is at `place` in it, without the layers beyond.
    #[inline]
    pub(super) fn write_step(
        &mut self,
        history: &History,
        states: States<'_>,
        (key, place): (MergeKey, usize),
        out: &mut Vec<u8>,
    ) {
        let of_key = self.steps.iter().find(|steps| steps.depth == key.depth && steps.format == key.format);
        let known = of_key.and_then(|steps| steps.ranges.get(place).copied().flatten());
        let (start, end) = known.unwrap_or_else(|| self.merge_step(history, states, key, place));
        out.extend_from_slice(&self.segments[start..end]);
    }

    #[cold]
    fn merge_step(&mut self, history: &History, states: States<'_>, key: MergeKey, place: usize) -> (usize, usize) {
        let start = self.segments.len();
        let merged = self.merge(history, states, key);
        debug_assert!(matches!(merged, Merged::Here(_)), "an update with more layers is not sent as it is");
        let range = (start, self.segments.len());
        let is_of_key = |steps: &StepSegments| (steps.format, steps.depth) == (key.format, key.depth);
        let number = self.steps.iter().position(is_of_key).unwrap_or_else(|| {
            self.steps.push(StepSegments { format: key.format, depth: key.depth, ranges: Vec::new() });
            self.steps.len() - 1
        });
        let ranges = &mut self.steps[number].ranges;
        if ranges.is_empty() {
            ranges.resize(history.latest().cell_count(), None);
        }
        ranges[place] = Some(range);
        range
    }

    /// Appends a segment with what changed in the cell of `key` since its tick, if anything did. The history reaches back to
    /// that tick.
    fn write(&mut self, history: &History, states: States<'_>, key: MergeKey, out: &mut Vec<u8>) {
        let MergeKey { format, since: tick, .. } = key;
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

    fn merge(&mut self, history: &History, states: States<'_>, key: MergeKey) -> Merged {
        let MergeKey { format, cell, since: tick, depth, is_step } = key;
        let found = |(age, update): (usize, &TickUpdate)| update.find(cell).map(|place| (age, place));
        let mut places = history.after(tick).rev().enumerate().filter_map(found);
        let Some((age, place)) = places.next() else { return Merged::Nothing };
        // A segment of changed fields has differences to the tick before its own, and the client may have a later one:
        // `tick` is a lower bound for a far cell. So its values are written again as a whole.
        let is_alone = places.next().is_none() && format != SnapshotFormat::TypedProtobuf;
        if is_alone && history.after(tick).nth_back(age).is_some_and(|update| update.cells()[place].layer_max < depth) {
            return Merged::Alone { age, place };
        }
        self.collect_mentions(history, key);
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
            // Another node may say that an object has changed its kind.
            let has_changes =
                |now: &ObjectView<'_>| states.schema.kind(now.kind).is_some_and(|kind| wire::are_changes_of(kind, all));
            if format == SnapshotFormat::TypedProtobuf
                && all & WHOLE == 0
                && let Some(now) = wire::read_object(object).filter(has_changes)
            {
                match update.values(place).filter(|_| is_step) {
                    Some(values) => changes.push_written(states.schema, &now, all, (update.deltas(format), values)),
                    None => {
                        changes.push_whole_values(states.schema, wire::position_bits(states.cell_units), &now, all);
                    }
                }
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
    fn collect_mentions(&mut self, history: &History, key: MergeKey) {
        self.mentions.clear();
        for (age, update) in (0..).zip(history.after(key.since).rev()) {
            let Some(place) = update.find(key.cell) else { continue };
            let (upserted, first) = update.upserted(place);
            let upserts = (first..).zip(upserted).filter(|(place, _)| update.upserted_layer(*place) < key.depth);
            let upserts =
                upserts.map(|(place, id)| Mention { id: *id, age, place: Some(place), changes: update.changes(place) });
            self.mentions.extend(upserts);
            let (departed, first) = update.departed(place);
            let departed = (first..).zip(departed).filter(|(place, _)| update.departed_layer(*place) < key.depth);
            self.mentions.extend(departed.map(|(_, id)| Mention { id: *id, age, place: None, changes: WHOLE }));
        }
        // An object that an update lists both as departed and as changed has entered the cell.
        self.mentions.sort_unstable_by_key(|mention| (mention.id, mention.age, Reverse(mention.place)));
    }
}
