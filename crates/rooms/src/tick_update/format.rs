//! The encoding of an update between the nodes of a cluster.
//!
//! Cells, ids and ranges are lists in ascending order, so each number is written as the difference to the one before.
//! The segments are what clients receive, and are copied as they are. All nodes receive the two forms with whole states.
//! A node with players who receive changed fields, and which has said that it reads them, also receives the segments of
//! these, and which fields of each object they change. A keyframe has the schema as well, so that the players know what
//! states are made of.

use std::sync::Arc;

use super::{ChangedCell, TickUpdate};
use crate::{
    CellIndex, ClockRate, FormatSet, Schema, SnapshotFormat, TickTime,
    binary::{Reader, Unreadable, put_bytes, put_number},
    layers::Reaches,
    schema::RANGES_MAX,
    wire::{Changes, WHOLE},
};

/// The bytes are not an update, or are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedUpdate;

impl std::fmt::Display for MalformedUpdate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the bytes are not an update of a room, or are cut")
    }
}

impl std::error::Error for MalformedUpdate {}

impl From<Unreadable> for MalformedUpdate {
    fn from(_: Unreadable) -> Self {
        Self
    }
}

/// The bit of the first byte that marks a keyframe. The bits above it are the forms, by [`SnapshotFormat::index`].
const KEYFRAME: u8 = 1;

/// The bit of the first byte that marks a slowed clock: its rate follows the time. At full rate the bytes are those of
/// nodes that do not know rates.
const SLOWED: u8 = 0x80;

/// The bit of the first byte that marks cells with weights: the weight of each cell follows its numbers. If all are 1, the
/// bytes are those of nodes that do not know weights.
const WEIGHTED: u8 = 0x40;

/// The bit of the first byte that marks cells with layers: how far these are visible follows the schema, the highest layers
/// of each cell its numbers, and the layers of objects the ids. If all kinds are visible in the whole view, the bytes are those
/// of nodes that do not know layers.
const LAYERED: u8 = 0x20;

/// The forms that all other nodes receive.
pub(super) const WHOLE_STATES: &[SnapshotFormat] = &[SnapshotFormat::Json, SnapshotFormat::Protobuf];

/// The forms that a node receives which reads changes.
pub(super) const WITH_CHANGES: &[SnapshotFormat] =
    &[SnapshotFormat::Json, SnapshotFormat::Protobuf, SnapshotFormat::TypedProtobuf];

/// All bits of the first byte.
const KNOWN_BITS: u8 = KEYFRAME
    | SLOWED
    | WEIGHTED
    | LAYERED
    | bit(SnapshotFormat::Json)
    | bit(SnapshotFormat::Protobuf)
    | bit(SnapshotFormat::TypedProtobuf);

/// The bit of the first byte that says that an update has this form.
const fn bit(format: SnapshotFormat) -> u8 {
    2 << format.index()
}

/// Appends an update in its forms among `sent`.
pub(super) fn write(update: &TickUpdate, sent: &[SnapshotFormat], out: &mut Vec<u8>) {
    let sent = || sent.iter().copied().filter(|format| update.formats.contains(*format));
    let formats = sent().fold(0, |bits, format| bits | bit(format));
    let TickTime { unix_us, rate } = update.time;
    let is_weighted = update.cells.iter().any(|cell| cell.weight != 1);
    let is_layered = !update.reaches.is_empty();
    let marks =
        (u8::from(!rate.is_full()) * SLOWED) | (u8::from(is_weighted) * WEIGHTED) | (u8::from(is_layered) * LAYERED);
    out.push((u8::from(update.is_keyframe) * KEYFRAME) | formats | marks);
    put_number(update.tick.into(), out);
    put_number(unix_us, out);
    if !rate.is_full() {
        put_number(rate.permille().into(), out);
    }
    if update.is_keyframe {
        put_bytes(update.schema.document().as_bytes(), out);
    }
    if is_layered {
        put_number(update.reaches.cells().len() as u64, out);
        update.reaches.cells().iter().for_each(|cells| put_number((*cells).into(), out));
    }
    put_number(update.cells.len() as u64, out);
    let mut before = ChangedCell::default();
    for cell in &update.cells {
        put_number(u64::from(cell.cell.0 - before.cell.0), out);
        put_number((((cell.departed_end - before.departed_end) as u64) << 1) | u64::from(cell.is_empty), out);
        put_number((cell.upserted_end - before.upserted_end) as u64, out);
        if is_weighted {
            put_number(cell.weight.into(), out);
        }
        if is_layered {
            out.push(cell.layer_max | cell.full_layer_max << 4);
        }
        before = *cell;
    }
    let ids = update.departed[..before.departed_end].iter().chain(&update.upserted[..before.upserted_end]);
    ids.for_each(|id| put_number(u64::from(*id), out));
    write_object_layers(update, out);
    // Changes build on the objects of plain Protobuf.
    for format in sent().filter(|format| format.objects() == *format) {
        let form = &update.forms[format.index()];
        if !update.is_keyframe {
            write_parts(&form.deltas, &form.delta_ends[..update.cells.len()], out);
            let mut end_before = 0;
            for (start, end) in &form.upserts[..before.upserted_end] {
                put_number((start - end_before) as u64, out);
                put_number((end - start) as u64, out);
                end_before = *end;
            }
        }
        write_parts(&form.fulls, &form.full_ends[..update.cells.len()], out);
        for place in (0..update.cells.len()).filter(|place| update.cells[*place].full_layer_max > 0) {
            let mut end_before = 0;
            for end in update.full(format, place).ends {
                put_number((end - end_before) as u64, out);
                end_before = *end;
            }
        }
    }
    if sent().any(|format| format == SnapshotFormat::TypedProtobuf) && !update.is_keyframe {
        write_changes(update, out);
    }
}

/// Appends the segments with changed fields; for each object of the deltas which of its fields these are; and in a room with
/// layers, where its values are. The form has no other objects and no full cells of its own, so a keyframe has nothing of it.
fn write_changes(update: &TickUpdate, out: &mut Vec<u8>) {
    let form = &update.forms[SnapshotFormat::TypedProtobuf.index()];
    write_parts(&form.deltas, &form.delta_ends[..update.cells.len()], out);
    for place in 0..update.cells.len() {
        let segment_bits = update.delta(SnapshotFormat::TypedProtobuf, place).start * 8;
        let (upserted, first) = update.upserted(place);
        for object in first..first + upserted.len() {
            let changes = update.changes(object);
            // Most objects have few fields, and whole ones are frequent.
            put_number(if changes == WHOLE { 0 } else { changes + 1 }, out);
            if let Some(values) = update.values(object).filter(|_| has_values(changes)) {
                put_number((values.start - segment_bits) as u64, out);
                put_number(values.len() as u64, out);
            }
        }
    }
}

/// Whether there are values of an object with these changes.
fn has_values(changes: Changes) -> bool {
    changes != WHOLE && changes != 0
}

/// Appends the layers of the objects in the cells that have some beyond the first.
fn write_object_layers(update: &TickUpdate, out: &mut Vec<u8>) {
    for (place, _) in update.cells.iter().enumerate().filter(|(_, cell)| cell.layer_max > 0) {
        let (departed, first) = update.departed(place);
        out.extend((first..).take(departed.len()).map(|of| update.departed_layer(of)));
        let (upserted, first) = update.upserted(place);
        out.extend((first..).take(upserted.len()).map(|of| update.upserted_layer(of)));
    }
}

/// Appends contiguous parts: the length of each, then all bytes.
fn write_parts(bytes: &[u8], ends: &[usize], out: &mut Vec<u8>) {
    let mut start = 0;
    for end in ends {
        put_number((end - start) as u64, out);
        start = *end;
    }
    put_bytes(&bytes[..start], out);
}

/// Reads what [`write`] appended, up to the end of `bytes`.
pub(super) fn read(bytes: &[u8]) -> Result<TickUpdate, MalformedUpdate> {
    let mut reader = Reader::new(bytes);
    let first = reader.byte()?;
    // What a later version marks with other bits would be taken for something else.
    if first & !KNOWN_BITS != 0 {
        return Err(MalformedUpdate);
    }
    let sent = WITH_CHANGES.iter().copied().filter(|format| first & bit(*format) != 0);
    if sent.clone().any(|format| first & bit(format.objects()) == 0) {
        return Err(MalformedUpdate);
    }
    let formats = sent.fold(FormatSet::default(), FormatSet::with);
    let mut update = TickUpdate {
        is_keyframe: first & KEYFRAME != 0,
        formats,
        tick: reader.number_of()?,
        time: reader.number()?.into(),
        ..TickUpdate::default()
    };
    if first & SLOWED != 0 {
        let rate = ClockRate::from_permille(reader.number_of()?);
        update.time.rate = rate.filter(|rate| !rate.is_full()).ok_or(MalformedUpdate)?;
    }
    if update.is_keyframe {
        let document = reader.bytes()?;
        if !document.is_empty() {
            update.schema = Arc::new(Schema::from_document(document).map_err(|_| MalformedUpdate)?);
        }
    }
    if first & LAYERED != 0 {
        update.reaches = read_reaches(&mut reader)?;
    }
    let cell_count = reader.count()?;
    read_cells(&mut reader, cell_count, first & WEIGHTED != 0, &mut update)?;
    let (departed_count, upserted_count) =
        update.cells.last().map_or((0, 0), |cell| (cell.departed_end, cell.upserted_end));
    for (ids, count) in [(&mut update.departed, departed_count), (&mut update.upserted, upserted_count)] {
        for _ in 0..count {
            ids.push(reader.number_of()?);
        }
    }
    read_object_layers(&mut reader, &mut update)?;
    for format in formats.with_objects() {
        let form = &mut update.forms[format.index()];
        if !update.is_keyframe {
            (form.deltas, form.delta_ends) = read_parts(&mut reader, cell_count)?;
            form.upserts = read_ranges(&mut reader, upserted_count, form.deltas.len())?;
        }
        (form.fulls, form.full_ends) = read_parts(&mut reader, cell_count)?;
        if !update.reaches.is_empty() {
            update.layers.ends[format.index()] = read_layer_ends(&mut reader, &update, format)?;
        }
    }
    if formats.contains(SnapshotFormat::TypedProtobuf) && !update.is_keyframe {
        read_changes(&mut reader, &mut update)?;
    }
    if reader.left() > 0 { Err(MalformedUpdate) } else { Ok(update) }
}

/// Reads what [`write_changes`] appended. Each object has a byte at least, so what this takes is bounded by the message.
fn read_changes(reader: &mut Reader<'_>, update: &mut TickUpdate) -> Result<(), MalformedUpdate> {
    let form = &mut update.forms[SnapshotFormat::TypedProtobuf.index()];
    (form.deltas, form.delta_ends) = read_parts(reader, update.cells.len())?;
    let is_layered = !update.reaches.is_empty();
    for (place, cell) in update.cells.iter().enumerate() {
        let segment = super::part(&form.delta_ends, place);
        while update.changes.len() < cell.upserted_end {
            let changes: u64 = reader.number()?;
            update.changes.push(changes.checked_sub(1).unwrap_or(WHOLE));
            if !is_layered {
                continue;
            }
            let mut values = 0..0;
            if update.changes.last().is_some_and(|changes| has_values(*changes)) {
                let (start, length): (usize, usize) = (reader.number_of()?, reader.number_of()?);
                let end = start.checked_add(length).filter(|end| *end <= segment.len() * 8).ok_or(MalformedUpdate)?;
                values = segment.start * 8 + start..segment.start * 8 + end;
            }
            update.layers.values.push(values);
        }
    }
    Ok(())
}

fn read_cells(
    reader: &mut Reader<'_>,
    count: usize,
    is_weighted: bool,
    update: &mut TickUpdate,
) -> Result<(), MalformedUpdate> {
    let (mut next, mut departed_end, mut upserted_end) = (0_u32, 0_usize, 0_usize);
    for place in 0..count {
        let distance: u32 = reader.number_of()?;
        // A mirror searches the list, so each cell is in it once.
        if place > 0 && distance == 0 {
            return Err(MalformedUpdate);
        }
        next = next.checked_add(distance).ok_or(MalformedUpdate)?;
        let departed: usize = reader.number_of()?;
        departed_end = departed_end.checked_add(departed >> 1).ok_or(MalformedUpdate)?;
        upserted_end = upserted_end.checked_add(reader.number_of()?).ok_or(MalformedUpdate)?;
        let weight = if is_weighted { reader.number_of()? } else { 1 };
        let layers = if update.reaches.is_empty() { 0 } else { reader.byte()? };
        let (layer_max, full_layer_max) = (layers & 0xf, layers >> 4);
        let is_empty = departed & 1 != 0;
        let cell = CellIndex(next);
        let cell = ChangedCell { cell, is_empty, weight, layer_max, full_layer_max, departed_end, upserted_end };
        if weight == 0 || usize::from(layer_max.max(full_layer_max)) > update.reaches.cells().len() {
            return Err(MalformedUpdate);
        }
        if full_layer_max > 0 {
            update.layers.cells.push(place);
        }
        update.cells.push(cell);
    }
    // Each id takes at least one byte.
    let ids = departed_end.checked_add(upserted_end).ok_or(MalformedUpdate)?;
    if ids > reader.left() { Err(MalformedUpdate) } else { Ok(()) }
}

fn read_reaches(reader: &mut Reader<'_>) -> Result<Reaches, MalformedUpdate> {
    let count: usize = reader.number_of()?;
    let mut cells = [0; RANGES_MAX];
    let cells = cells.get_mut(..count).filter(|cells| !cells.is_empty()).ok_or(MalformedUpdate)?;
    for reach in cells.iter_mut() {
        *reach = reader.number_of()?;
    }
    Reaches::from_cells(cells).ok_or(MalformedUpdate)
}

fn read_object_layers(reader: &mut Reader<'_>, update: &mut TickUpdate) -> Result<(), MalformedUpdate> {
    if update.reaches.is_empty() {
        return Ok(());
    }
    let (departed, upserted) = (&mut update.layers.departed, &mut update.layers.upserted);
    for cell in &update.cells {
        let mut highest = 0;
        for (layers, end) in [(&mut *departed, cell.departed_end), (&mut *upserted, cell.upserted_end)] {
            while layers.len() < end {
                let layer = if cell.layer_max == 0 { 0 } else { reader.byte()? };
                highest = highest.max(layer);
                layers.push(layer);
            }
        }
        if highest != cell.layer_max {
            return Err(MalformedUpdate);
        }
    }
    Ok(())
}

/// Where the objects of the full segments begin, and where those of each layer end, of the cells with layers beyond the first:
/// each number has a byte at least, so what this takes is bounded by the message.
fn read_layer_ends(
    reader: &mut Reader<'_>,
    update: &TickUpdate,
    format: SnapshotFormat,
) -> Result<Vec<usize>, MalformedUpdate> {
    let full_ends = &update.forms[format.index()].full_ends;
    let mut ends = Vec::new();
    for place in &update.layers.cells {
        let length = super::part(full_ends, *place).len();
        let mut end = 0_usize;
        for _ in 0..update.reaches.cells().len() + 2 {
            end = end.checked_add(reader.number_of()?).filter(|end| *end <= length).ok_or(MalformedUpdate)?;
            ends.push(end);
        }
    }
    Ok(ends)
}

fn read_parts(reader: &mut Reader<'_>, count: usize) -> Result<(Vec<u8>, Vec<usize>), MalformedUpdate> {
    let mut ends = Vec::with_capacity(count.min(reader.left()));
    let mut end = 0_usize;
    for _ in 0..count {
        end = end.checked_add(reader.number_of()?).ok_or(MalformedUpdate)?;
        ends.push(end);
    }
    let bytes = reader.bytes()?;
    if bytes.len() == end { Ok((bytes.to_vec(), ends)) } else { Err(MalformedUpdate) }
}

fn read_ranges(
    reader: &mut Reader<'_>,
    count: usize,
    bytes_max: usize,
) -> Result<Vec<(usize, usize)>, MalformedUpdate> {
    let mut ranges = Vec::with_capacity(count.min(reader.left()));
    let mut end_before = 0_usize;
    for _ in 0..count {
        let start = end_before.checked_add(reader.number_of()?).ok_or(MalformedUpdate)?;
        let end = start.checked_add(reader.number_of()?).ok_or(MalformedUpdate)?;
        if end > bytes_max {
            return Err(MalformedUpdate);
        }
        ranges.push((start, end));
        end_before = end;
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ChangedView, Grid, GridShape, ObjectBefore, ObjectId, ObjectView, UpdateWriter, state, tick_update::StillObject,
    };

    fn object(id: u32, state: &[u8]) -> ObjectView<'_> {
        ObjectView { id: ObjectId(id), kind: 7, x: id % 50, y: 3, state }
    }

    state! {
        /// A kind.
        struct Kind: 7 {
            letters: Vec<u8>,
        }
    }

    /// An update and a keyframe as they travel: forms, tick, time, the schema in a keyframe, cells, ids, and for each form
    /// its segments.
    const SENT_UPDATE: &str = include_str!("../../tests/fixtures/update-between-nodes.txt");
    const SENT_KEYFRAME: &str = include_str!("../../tests/fixtures/keyframe-between-nodes.txt");

    const SENT_CHANGES: &str = include_str!("../../tests/fixtures/changes-between-nodes.txt");

    fn schema() -> Schema {
        Schema::new().with::<Kind>()
    }

    fn whole_states() -> FormatSet {
        WHOLE_STATES.iter().copied().fold(FormatSet::default(), FormatSet::with)
    }

    fn grid() -> Grid {
        let shape =
            GridShape { columns: 4, rows: 2, cell_units: 100, near_cells: 1, far_cells: 0, far_interval_ticks: 1 };
        Grid::new(shape).expect("a possible map")
    }

    const UNIX_US: u64 = 1_700_000_000_000_123;

    fn update(is_keyframe: bool, formats: FormatSet) -> TickUpdate {
        update_at(UNIX_US.into(), is_keyframe, formats)
    }

    fn update_at(time: TickTime, is_keyframe: bool, formats: FormatSet) -> TickUpdate {
        let mut writer = UpdateWriter::new(Arc::new(schema()), 100);
        writer.begin(900, time, formats, is_keyframe);
        let all = || [object(300, b"abc"), object(301, b"")].into_iter();
        writer.cell(CellIndex(1), [object(301, b"")].into_iter(), [ObjectId(4)].into_iter(), all());
        writer.cell(
            CellIndex(6),
            std::iter::empty::<ObjectView<'_>>(),
            [ObjectId(9), ObjectId(2)].into_iter(),
            [].into_iter(),
        );
        writer.cell(CellIndex(7), all(), [].into_iter(), all());
        // Off the map, so it is left out.
        writer.cell(CellIndex(8), all(), [].into_iter(), all());
        writer.finish(&grid())
    }

    fn every_update() -> impl Iterator<Item = TickUpdate> {
        let one = |format| FormatSet::default().with(format);
        let sets = WHOLE_STATES.iter().copied().map(one).chain([FormatSet::default(), whole_states()]);
        sets.flat_map(|set| [false, true].map(|is_keyframe| update(is_keyframe, set)))
    }

    #[test]
    fn a_cell_has_the_weight_of_its_most_important_object() {
        let mut writer = UpdateWriter::new(Arc::new(Schema::new().with_weight(7, 2).with_weight(8, 3)), 100);
        let mut weight = |changed: Option<u16>, still: Option<u16>| {
            writer.begin(900, UNIX_US, FormatSet::default().with(SnapshotFormat::Json), false);
            let of = |id, kind| ObjectView { kind, ..object(id, b"") };
            let changed = changed.into_iter().map(|kind| of(1, kind).into());
            let still = still.into_iter().map(|kind| StillObject { touched: 1, view: of(2, kind) });
            writer.changed_cell(2, CellIndex(1), changed, [].into_iter(), &still);
            writer.finish(&grid()).cells()[0].weight
        };
        assert_eq!((weight(Some(7), Some(8)), weight(Some(8), Some(7))), (3, 3));
        assert_eq!((weight(Some(7), None), weight(None, Some(7))), (2, 2));
        assert_eq!((weight(Some(9), Some(9)), weight(None, None)), (1, 1));
    }

    #[test]
    fn weights_travel_with_the_cells() {
        let weighted = |weight, is_keyframe| {
            let mut writer = UpdateWriter::new(Arc::new(schema().with_weight(8, weight)), 100);
            writer.begin(900, UNIX_US, FormatSet::default().with(SnapshotFormat::Json), is_keyframe);
            let important = ObjectView { kind: 8, ..object(301, b"") };
            let nothing = std::iter::empty::<ObjectView<'_>>;
            writer.cell(CellIndex(1), nothing(), [].into_iter(), [object(300, b""), important].into_iter());
            writer.cell(CellIndex(2), nothing(), [].into_iter(), [object(302, b"")].into_iter());
            writer.cell(CellIndex(3), nothing(), [].into_iter(), nothing());
            writer.finish(&grid()).to_bytes()
        };
        for is_keyframe in [false, true] {
            for weight in [1, 2, 255] {
                let bytes = weighted(weight, is_keyframe);
                let arrived = TickUpdate::from_bytes(&bytes).expect("an update");
                let weights: Vec<_> = arrived.cells().iter().map(|cell| cell.weight).collect();
                assert_eq!((weights, arrived.to_bytes()), (vec![weight, 1, 1], bytes.clone()));
                assert_eq!(bytes[0] & WEIGHTED != 0, weight > 1, "other nodes may not know weights");
            }
        }
        let mut bytes = weighted(255, false);
        let place = bytes.windows(2).position(|pair| pair == [255, 1]).expect("a weight of two bytes");
        bytes.splice(place..place + 2, [0]);
        assert_eq!(TickUpdate::from_bytes(&bytes).map(|_| ()), Err(MalformedUpdate), "no weight");
    }

    /// Updates of a room with players of all forms: other nodes receive those with whole states.
    #[test]
    fn fields_are_left_out_on_the_way_between_nodes() {
        let all = SnapshotFormat::ALL.into_iter().fold(FormatSet::default(), FormatSet::with);
        let sent = whole_states();
        for is_keyframe in [false, true] {
            let bytes = update(is_keyframe, all).to_bytes();
            assert_eq!(bytes, update(is_keyframe, sent).to_bytes());
            assert_eq!(TickUpdate::from_bytes(&bytes).map(|update| update.formats()), Ok(sent));
        }
        // One that only says what has changed needs whole states as well.
        let typed = FormatSet::default().with(SnapshotFormat::TypedProtobuf);
        let plain = FormatSet::default().with(SnapshotFormat::Protobuf);
        assert_eq!(update(false, typed).to_bytes(), update(false, plain).to_bytes());
    }

    #[test]
    fn unknown_bits_are_malformed() {
        let sent = whole_states();
        let bytes = update(false, sent).to_bytes();
        let unknown = bit(SnapshotFormat::TypedJson);
        assert_eq!(KNOWN_BITS, !unknown);
        let mut changed = bytes.clone();
        changed[0] |= unknown;
        assert_eq!(TickUpdate::from_bytes(&changed).err(), Some(MalformedUpdate));
        assert!(TickUpdate::from_bytes(&bytes).is_ok());
    }

    /// Nodes of one version may talk to those of the next.
    #[test]
    fn the_bytes_between_nodes_are_those_of_the_vectors() {
        let sent = whole_states();
        let hex = |bytes: Vec<u8>| {
            let digits = |all: String, byte: u8| all + &format!("{byte:02x}");
            bytes.into_iter().fold(String::new(), digits)
        };
        assert_eq!(hex(update(false, sent).to_bytes()), SENT_UPDATE.trim_end());
        assert_eq!(hex(update(true, sent).to_bytes()), SENT_KEYFRAME.trim_end());
        assert_eq!(hex(changes(&Schema::new()).to_bytes_with_changes()), SENT_CHANGES.trim_end());
    }

    fn full(update: &TickUpdate, format: SnapshotFormat, place: usize, depth: u8) -> Vec<u8> {
        let mut segment = Vec::new();
        update.full(format, place).write(format, update.cells()[place].cell, depth, true, &mut segment);
        segment
    }

    /// Updates of a room with kinds that are visible only near.
    fn layered_updates() -> impl Iterator<Item = TickUpdate> {
        let schema = Arc::new(schema().with_visible_within(8, 100).with_visible_within(9, 200));
        let formats = whole_states();
        [false, true].into_iter().map(move |is_keyframe| {
            let mut writer = UpdateWriter::new(Arc::clone(&schema), 100);
            writer.begin(900, UNIX_US, formats, is_keyframe);
            let objects = |kinds: &'static [u16]| {
                kinds.iter().zip(300..).map(|(kind, id)| ObjectView { kind: *kind, ..object(id, b"ab") })
            };
            let departed = || [ObjectId(4), ObjectId(9)].into_iter();
            writer.cell(CellIndex(0), objects(&[7]), departed(), objects(&[7, 7]));
            writer.cell(CellIndex(1), objects(&[8, 7, 9, 8]), departed(), objects(&[8, 7, 9, 8, 7]));
            writer.cell(CellIndex(2), objects(&[9]), departed(), objects(&[9, 9]));
            writer.cell(CellIndex(5), objects(&[7]), departed(), objects(&[7, 8]));
            writer.cell(CellIndex(6), objects(&[]), departed(), objects(&[]));
            writer.finish(&grid())
        })
    }

    #[test]
    fn a_full_segment_has_the_layers_that_are_seen() {
        let keyframe = layered_updates().nth(1).expect("a keyframe");
        let ids = |place, depth| {
            let segment = String::from_utf8(full(&keyframe, SnapshotFormat::Json, place, depth)).expect("UTF-8");
            let segment: serde_json::Value = serde_json::from_str(segment.trim_end_matches(',')).expect("JSON");
            assert_eq!(segment["full"], true);
            let objects = segment["upserts"].as_array().cloned().unwrap_or_default();
            objects.iter().map(|object| object["id"].as_u64().expect("an id")).collect::<Vec<_>>()
        };
        assert_eq!(
            [ids(1, 1), ids(1, 2), ids(1, 3)],
            [vec![301, 304], vec![301, 304, 302], vec![301, 304, 302, 300, 303]]
        );
        assert_eq!([ids(2, 1), ids(2, 2), ids(2, 3)], [vec![], vec![300, 301], vec![300, 301]]);
        let mut nothing = Vec::new();
        keyframe.full(SnapshotFormat::Json, 2).write(SnapshotFormat::Json, CellIndex(2), 1, false, &mut nothing);
        assert!(nothing.is_empty(), "a client that has nothing of the cell need not know of it");
    }

    #[test]
    fn layers_that_are_not_those_of_the_room_are_malformed() {
        let update = layered_updates().next().expect("an update");
        let bytes = update.to_bytes();
        assert_eq!(bytes[0] & LAYERED, LAYERED);
        assert_eq!(bytes[11..14], [2, 2, 1], "two distances: 2 cells and 1 cell");
        for reaches in [[0, 2, 1], [9, 2, 1], [2, 1, 2], [2, 1, 1], [1, 2, 1]] {
            let mut changed = bytes.clone();
            changed[11..14].copy_from_slice(&reaches);
            assert_eq!(TickUpdate::from_bytes(&changed).err(), Some(MalformedUpdate), "{reaches:?}");
        }
        let layers_of_cell = 14 + 1 + 3;
        assert_eq!(bytes[layers_of_cell], 0, "of the first cell");
        for layers in [1, 0x10, 0x30, 3] {
            let mut changed = bytes.clone();
            changed[layers_of_cell] = layers;
            assert_eq!(TickUpdate::from_bytes(&changed).err(), Some(MalformedUpdate), "{layers:#x}");
        }
    }

    #[test]
    fn an_update_is_the_same_after_the_way_between_nodes() {
        for update in every_update().chain(layered_updates()) {
            let update = &update;
            let bytes = update.to_bytes();
            let arrived = TickUpdate::from_bytes(&bytes).expect("it was written here");
            assert_eq!(arrived.to_bytes(), bytes);
            assert_eq!((arrived.tick(), arrived.time_us()), (update.tick(), update.time_us()));
            assert_eq!((arrived.is_keyframe(), arrived.formats()), (update.is_keyframe(), update.formats()));
            assert_eq!(arrived.cell_count(), update.cell_count());
            assert_eq!(**arrived.schema(), if update.is_keyframe() { schema() } else { Schema::new() });
            for place in 0..update.cell_count() {
                assert_eq!(arrived.departed(place), update.departed(place));
                let layers = |of: &TickUpdate| {
                    let ((departed, first), (upserted, second)) = (of.departed(place), of.upserted(place));
                    let departed = (first..).take(departed.len()).map(|object| of.departed_layer(object));
                    let upserted = (second..).take(upserted.len()).map(|object| of.upserted_layer(object));
                    departed.chain(upserted).collect::<Vec<_>>()
                };
                assert_eq!(layers(&arrived), layers(update));
                let ((ids, first), (ids_before, first_before)) = (arrived.upserted(place), update.upserted(place));
                assert_eq!((ids, first), (ids_before, first_before));
                for format in update.formats().iter() {
                    for depth in 1..=9 {
                        assert_eq!(full(&arrived, format, place, depth), full(update, format, place, depth));
                    }
                    let deltas = |of: &TickUpdate| of.deltas(format)[of.delta(format, place)].to_vec();
                    assert_eq!(deltas(&arrived), deltas(update));
                    for object in first..first + ids.len() {
                        assert_eq!(arrived.upsert(format, object), update.upsert(format, object));
                    }
                }
            }
        }
    }

    /// An update in which objects have moved, have other letters, are as they were, are new, or have another form than their
    /// kind. Two kinds of `ranges` may be visible only near.
    fn changes(ranges: &Schema) -> TickUpdate {
        let mut schema = schema().with::<Other>();
        for (kind, units) in ranges.ranges() {
            schema = schema.with_visible_within(*kind, *units);
        }
        let mut writer = UpdateWriter::new(Arc::new(schema), 100);
        writer.begin(900, UNIX_US, whole_states().with(SnapshotFormat::TypedProtobuf), false);
        let changed = |id, kind, x, state: &'static [u8], before: Option<(u32, &'static [u8])>| ChangedView {
            now: ObjectView { kind, x, ..object(id, state) },
            before: before.map(|(x, state)| ObjectBefore { x, y: 3, state }),
        };
        let cells = [
            vec![
                changed(300, 7, 1, b"abc", Some((0, b"abc"))),
                changed(301, 7, 99, b"ab", Some((99, b"a"))),
                changed(302, 7, 2, b"", Some((2, b""))),
                changed(303, 7, 2, b"", None),
            ],
            vec![changed(7, 8, 4, &[0, 1], Some((4, &[1, 1]))), changed(6, 8, 60, &[1, 9], Some((4, &[1, 8])))],
            vec![changed(9, 8, 4, &[0, 1, 2], Some((4, &[1, 1]))), changed(10, 9, 4, b"", Some((5, b"")))],
        ];
        for (cell, objects) in (1..).zip(cells) {
            let all: Vec<_> = objects.iter().map(|changed| changed.now).collect();
            writer.cell(CellIndex(cell), objects.into_iter(), [ObjectId(400)].into_iter(), all.into_iter());
        }
        writer.finish(&grid())
    }

    state! {
        /// A kind of two bytes.
        struct Other: 8 {
            is_on: bool,
            level: u8 [delta_bits(3)],
        }
    }

    fn changes_in_rooms() -> [(TickUpdate, Vec<u8>); 2] {
        let near = Schema::new().with_visible_within(8, 100);
        [Schema::new(), near].map(|ranges| {
            let update = changes(&ranges);
            let bytes = update.to_bytes_with_changes();
            (update, bytes)
        })
    }

    fn arrived(update: &TickUpdate, bytes: &[u8]) -> Result<TickUpdate, MalformedUpdate> {
        TickUpdate::from_bytes_in(bytes, &update.schema, 100)
    }

    #[test]
    fn changes_are_the_same_after_the_way_between_nodes() {
        for (update, bytes) in changes_in_rooms() {
            let arrived = arrived(&update, &bytes).expect("it was written here");
            assert_eq!(arrived.to_bytes_with_changes(), bytes);
            assert_eq!(arrived.to_bytes(), update.to_bytes(), "other nodes receive what they did before");
            assert_eq!(arrived.formats(), update.formats());
            assert_eq!((&arrived.changes, &arrived.layers.values), (&update.changes, &update.layers.values));
            assert_eq!(update.changes, [1, 2, 0, WHOLE, 2, 5, WHOLE, WHOLE]);
            let typed = SnapshotFormat::TypedProtobuf;
            assert_eq!(arrived.deltas(typed), update.deltas(typed));
            for place in 0..update.cell_count() {
                assert_eq!(arrived.delta(typed, place), update.delta(typed, place));
                for depth in 1..=9 {
                    assert_eq!(full(&arrived, typed, place, depth), full(&update, typed, place, depth));
                }
            }
        }
    }

    #[test]
    fn an_update_without_changes_has_the_bytes_that_all_nodes_read() {
        for update in every_update().chain(layered_updates()) {
            assert_eq!(update.to_bytes_with_changes(), update.to_bytes());
        }
        let all = SnapshotFormat::ALL.into_iter().fold(FormatSet::default(), FormatSet::with);
        let (keyframe, mut expected) = (update(true, all), update(true, all).to_bytes());
        expected[0] |= bit(SnapshotFormat::TypedProtobuf);
        assert_eq!(keyframe.to_bytes_with_changes(), expected, "full cells are those of plain Protobuf");
    }

    #[test]
    fn changes_that_are_cut_or_longer_are_malformed() {
        for (update, mut bytes) in changes_in_rooms() {
            for length in 0..bytes.len() {
                assert!(arrived(&update, &bytes[..length]).is_err(), "{length} of {}", bytes.len());
            }
            bytes.push(0);
            assert!(arrived(&update, &bytes).is_err());
        }
    }

    #[test]
    fn changes_of_objects_that_are_not_of_the_schema_are_malformed() {
        let (update, bytes) = &changes_in_rooms()[0];
        assert_eq!(TickUpdate::from_bytes(bytes).err(), Some(MalformedUpdate), "in a room without a schema");
        for cell_units in 99..=100 {
            let read = TickUpdate::from_bytes_in(bytes, &update.schema, cell_units);
            assert_eq!(read.is_ok(), cell_units == 100, "an object is 99 units from the corner");
        }
        let other_schema = Schema::new().with::<Other>();
        assert_eq!(TickUpdate::from_bytes_in(bytes, &other_schema, 100).err(), Some(MalformedUpdate), "no such kind");
        assert_eq!(bytes[bytes.len() - 8..], [2, 3, 1, 0, 3, 6, 0, 0], "changes plus 1; 0 for whole objects");
        // The sixth and the seventh object have two fields, and the state of the seventh does not have their form.
        for (place, number, is_possible) in [(5, 8, true), (5, 9, false), (6, 1, false), (7, 1, false), (3, 2, true)] {
            let mut changed = bytes.clone();
            let at = bytes.len() - 8 + place;
            changed[at] = number;
            assert_eq!(arrived(update, &changed).is_ok(), is_possible, "{number} of object {place}");
        }
        let mut changed = bytes.clone();
        changed[0] &= !bit(SnapshotFormat::Protobuf);
        assert_eq!(arrived(update, &changed).err(), Some(MalformedUpdate), "no objects");
    }

    #[test]
    fn values_are_in_the_segment_of_their_cell() {
        let (update, bytes) = &changes_in_rooms()[1];
        let values = update.values(5).expect("a room with layers");
        let segment = update.delta(SnapshotFormat::TypedProtobuf, 1);
        let (start, length) = (values.start - segment.start * 8, values.len());
        // Its changes, then where its values are; two whole objects follow.
        let at = bytes.len() - 2 - 3;
        assert_eq!(bytes[at..], [6, start as u8, length as u8, 0, 0]);
        let left = segment.len() * 8 - start;
        for (length, is_possible) in [(left, true), (left + 1, false)] {
            let mut changed = bytes[..at + 2].to_vec();
            put_number(length as u64, &mut changed);
            changed.extend_from_slice(&[0, 0]);
            assert_eq!(arrived(update, &changed).is_ok(), is_possible, "{length}");
        }
        let mut changed = bytes[..=at].to_vec();
        put_number(u64::MAX, &mut changed);
        changed.extend_from_slice(&[1, 0, 0]);
        assert_eq!(arrived(update, &changed).err(), Some(MalformedUpdate));
    }

    #[test]
    fn a_slowed_clock_is_the_same_after_the_way_between_nodes() {
        let sent = whole_states();
        for permille in [1, 100, 999, 1_000] {
            let rate = ClockRate::from_permille(permille).expect("a rate");
            for is_keyframe in [false, true] {
                let bytes = update_at(TickTime { unix_us: UNIX_US, rate }, is_keyframe, sent).to_bytes();
                let arrived = TickUpdate::from_bytes(&bytes).expect("it was written here");
                assert_eq!((arrived.rate(), arrived.time_us(), arrived.to_bytes()), (rate, UNIX_US, bytes));
            }
        }
        assert_eq!(update_at(UNIX_US.into(), false, sent).to_bytes(), update(false, sent).to_bytes());
    }

    /// The rate follows the first byte, a tick of two bytes and a time of eight.
    #[test]
    fn an_impossible_rate_is_malformed() {
        let rate = ClockRate::from_permille(100).expect("a rate");
        let bytes = update_at(TickTime { unix_us: UNIX_US, rate }, false, FormatSet::default()).to_bytes();
        assert_eq!(bytes[11], 100);
        for (permille, is_rate) in [(0, false), (1, true), (999, true), (1_000, false), (5_000, false)] {
            let mut changed = bytes[..11].to_vec();
            put_number(permille, &mut changed);
            changed.extend_from_slice(&bytes[12..]);
            assert_eq!(TickUpdate::from_bytes(&changed).is_ok(), is_rate, "{permille}");
        }
    }

    #[test]
    fn what_is_cut_or_longer_is_malformed() {
        for update in every_update().chain(layered_updates()) {
            let mut bytes = update.to_bytes();
            for length in 0..bytes.len() {
                assert!(TickUpdate::from_bytes(&bytes[..length]).is_err(), "{length} of {}", bytes.len());
            }
            bytes.push(0);
            assert!(TickUpdate::from_bytes(&bytes).is_err());
        }
    }

    #[test]
    fn cells_are_listed_once() {
        let update = update(false, FormatSet::default());
        let mut bytes = update.to_bytes();
        let place = bytes.iter().rposition(|byte| *byte == 5).expect("the distance from cell 1 to 6");
        bytes[place] = 0;
        assert!(TickUpdate::from_bytes(&bytes).is_err());
    }
}
