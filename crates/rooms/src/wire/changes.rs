//! The changes of the objects of a cell that a client has, in bits: `CellUpdate.changes`.
//!
//! A change is a set of fields with their new values. A value is the difference to the tick before only if the client
//! has exactly that tick; the writer decides that with `before`, and the reader needs no decision. `docs/rooms-protocol.md`
//! describes the bits.

use crate::{
    ObjectId, ObjectView, Schema,
    bits::{BitReader, BitWriter},
    schema::{
        Field, FieldReader, FieldType, FieldWriter, Integer, Kind, Motion, RawValue, low_bits, read_integer,
        write_integer,
    },
};

/// The fields that have changed: the position, then those of the kind.
pub(crate) type Changes = u64;

/// The object is sent as a whole: it is new in the cell, or its state does not have the form of its kind.
pub(crate) const WHOLE: Changes = 1 << 63;
const POSITION: Changes = 1;

/// Bits of a step in each direction, by class; after them comes the class of a whole position.
const STEP_BITS: [u32; 3] = [3, 5, 7];
const CLASS_BITS: u32 = 2;

/// An object after the tick before, in the same cell.
#[derive(Clone, Copy, Debug)]
pub struct ObjectBefore<'a> {
    /// Units to the right of its cell's corner.
    pub x: u32,
    /// Units below its cell's corner.
    pub y: u32,
    /// The game's other data.
    pub state: &'a [u8],
}

/// The changes of a cell, until they are written in the order of their objects.
#[derive(Debug, Default)]
pub(crate) struct ChangeList {
    entries: Vec<Entry>,
    bodies: BitWriter,
    segment: BitWriter,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u32,
    kind: u16,
    field_count: u8,
    changes: Changes,
    /// The range of its values in `bodies`, in bits.
    start: usize,
    end: usize,
}

/// The changes of an object since the tick before.
pub(crate) fn changes_since(schema: &Schema, before: Option<&ObjectBefore<'_>>, now: &ObjectView<'_>) -> Changes {
    let (Some(before), Some(kind)) = (before, schema.kind(now.kind)) else { return WHOLE };
    let mut changes = if (before.x, before.y) == (now.x, now.y) { 0 } else { POSITION };
    let count = kind.fields.len();
    let mut is = FieldReader::new(count, now.state);
    if before.state == now.state {
        let has_form = kind.fields.iter().all(|field| is.next(field).is_some()) && is.is_finished();
        return if has_form { changes } else { WHOLE };
    }
    let mut was = FieldReader::new(count, before.state);
    for (place, field) in (1..).zip(kind.fields.iter()) {
        let (Some(was), Some(is)) = (was.next(field), is.next(field)) else { return WHOLE };
        changes |= Changes::from(was != is) << place;
    }
    if was.is_finished() && is.is_finished() { changes } else { WHOLE }
}

impl ChangeList {
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bodies.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.bodies.capacity() + self.segment.capacity()
    }

    /// Adds an object with these changes, which are not [`WHOLE`]. `before` is the state that the client certainly has;
    /// without it, all values are whole.
    pub(crate) fn push(
        &mut self,
        schema: &Schema,
        position_bits: u32,
        now: &ObjectView<'_>,
        changes: Changes,
        before: Option<&ObjectBefore<'_>>,
    ) {
        let Some(kind) = schema.kind(now.kind).filter(|_| changes != 0) else { return };
        let start = self.bodies.len();
        if changes & POSITION != 0 {
            put_position(&mut self.bodies, position_bits, now, before);
        }
        let count = kind.fields.len();
        let mut is = FieldReader::new(count, now.state);
        let mut was = before.map(|before| FieldReader::new(count, before.state));
        // Nothing has to be read after the last change.
        let needed = (Changes::BITS - changes.leading_zeros()) as usize - 1;
        for (place, field) in (1..).zip(&kind.fields[..needed]) {
            let (is, was) = (is.next(field), was.as_mut().and_then(|was| was.next(field)));
            if let Some(is) = is.filter(|_| changes >> place & 1 == 1) {
                put_value(&mut self.bodies, field, is, was);
            }
        }
        let (end, field_count) = (self.bodies.len(), count as u8);
        self.entries.push(Entry { id: now.id.0, kind: now.kind, field_count, changes, start, end });
    }

    /// The bits of all changes.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let Self { entries, bodies, segment } = self;
        if !entries.is_sorted_by_key(|entry| entry.id) {
            entries.sort_unstable_by_key(|entry| entry.id);
        }
        segment.clear();
        segment.count(entries.len() as u32);
        let mut bodies = BitReader::new(bodies.finish());
        let (mut last_id, mut last) = (0, None);
        for entry in entries.iter() {
            segment.count(entry.id - last_id - 1);
            let fields = (entry.kind, entry.changes);
            segment.flag(last == Some(fields));
            if last != Some(fields) {
                segment.put(entry.changes as u32, 32.min(u32::from(entry.field_count) + 1));
                segment.put((entry.changes >> 32) as u32, (u32::from(entry.field_count) + 1).saturating_sub(32));
            }
            (last_id, last) = (entry.id, Some(fields));
            bodies.skip_to(entry.start);
            let mut left = (entry.end - entry.start) as u32;
            while left > 0 {
                let bits = left.min(32);
                segment.put(bodies.take(bits).unwrap_or_default(), bits);
                left -= bits;
            }
        }
        segment.finish()
    }
}

fn put_position(bits: &mut BitWriter, position_bits: u32, now: &ObjectView<'_>, before: Option<&ObjectBefore<'_>>) {
    let step = before.map(|before| (difference(now.x, before.x), difference(now.y, before.y)));
    let class = step.and_then(|(dx, dy)| STEP_BITS.iter().position(|bits| fits(dx, *bits) && fits(dy, *bits)));
    if let (Some(class), Some((dx, dy))) = (class, step) {
        bits.put(class as u32, CLASS_BITS);
        bits.put(low_bits(dx), STEP_BITS[class]);
        bits.put(low_bits(dy), STEP_BITS[class]);
    } else {
        bits.put(STEP_BITS.len() as u32, CLASS_BITS);
        bits.put(now.x, position_bits);
        bits.put(now.y, position_bits);
    }
}

fn difference(to: u32, from: u32) -> i64 {
    i64::from(to) - i64::from(from)
}

/// Whether a signed number fits into some bits.
fn fits(number: i64, bits: u32) -> bool {
    let half = 1 << (bits - 1);
    (-half..half).contains(&number)
}

/// The number in the lowest bits, with its sign.
fn signed(number: u32, bits: u32) -> i64 {
    let half = 1 << (bits - 1);
    (i64::from(number) ^ half) - half
}

fn put_value(bits: &mut BitWriter, field: &Field, is: RawValue<'_>, was: Option<RawValue<'_>>) {
    match (&field.of, is) {
        (FieldType::Integer(integer), RawValue::Number(number)) => {
            if field.delta_bits > 0 {
                let was = if let Some(RawValue::Number(was)) = was { Some(was) } else { None };
                let step = was.map(|was| step_between(field, *integer, was, number));
                let step = step.filter(|step| fits(*step, field.delta_bits.into()));
                bits.flag(step.is_some());
                if let Some(step) = step {
                    bits.put(low_bits(step), field.delta_bits.into());
                    return;
                }
            }
            bits.put(low_bits(number - integer.min), integer.bits());
        }
        (FieldType::Flag, RawValue::Number(number)) => bits.put(low_bits(number), 1),
        (FieldType::Choice(names), RawValue::Number(number)) => bits.put(low_bits(number), bits_of(names.len() - 1)),
        (FieldType::Object, RawValue::Number(number)) => bits.count(low_bits(number)),
        (FieldType::Text { bytes_max }, RawValue::Bytes(bytes)) => {
            bits.put(bytes.len() as u32, bits_of((*bytes_max).into()));
            for byte in bytes {
                bits.put((*byte).into(), 8);
            }
        }
        (FieldType::List { of, count_min, count_max }, RawValue::Bytes(bytes)) => {
            let elements = bytes.chunks_exact(of.bytes.into());
            bits.put(elements.len() as u32 - u32::from(*count_min), bits_of((count_max - count_min).into()));
            for element in elements {
                bits.put(low_bits(read_integer(element, *of) - of.min), of.bits());
            }
        }
        _ => debug_assert!(false, "a value has the form of its field"),
    }
}

/// The difference between two values; for an angle, the shorter way round.
fn step_between(field: &Field, integer: Integer, from: i64, to: i64) -> i64 {
    let turn = integer.max - integer.min + 1;
    match field.motion {
        Motion::Angle => (to - from + turn / 2).rem_euclid(turn) - turn / 2,
        Motion::Step | Motion::Linear => to - from,
    }
}

/// Bits of the numbers up to `max`.
fn bits_of(max: usize) -> u32 {
    usize::BITS - max.leading_zeros()
}

/// Bits of a coordinate in a cell with this side.
pub(crate) fn position_bits(cell_units: u32) -> u32 {
    bits_of(cell_units.saturating_sub(1) as usize)
}

/// An object that the client has in the cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownObject<'a> {
    pub(crate) kind: u16,
    pub(crate) before: ObjectBefore<'a>,
}

/// An object after its changes. Its state was appended to the reader's `states`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangedObject {
    pub(crate) id: ObjectId,
    pub(crate) kind: u16,
    pub(crate) x: u32,
    pub(crate) y: u32,
}

/// Reads the bits of a cell's changes.
pub(crate) struct ChangeReader<'a> {
    bits: BitReader<'a>,
    schema: &'a Schema,
    position_bits: u32,
    left: u32,
    last_id: u32,
    last: Option<(u16, Changes)>,
}

impl<'a> ChangeReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], schema: &'a Schema, cell_units: u32) -> Option<Self> {
        let mut bits = BitReader::new(bytes);
        let left = bits.count()?;
        let position_bits = position_bits(cell_units);
        Some(Self { bits, schema, position_bits, left, last_id: 0, last: None })
    }

    /// Whether all objects have been read, and nothing follows them.
    pub(crate) fn is_finished(&self) -> bool {
        self.left == 0 && self.bits.is_finished()
    }

    pub(crate) fn has_next(&self) -> bool {
        self.left > 0
    }

    /// The next object, whose state is appended to `states`. `known` finds what the client has in this cell.
    pub(crate) fn next<'k>(
        &mut self,
        known: impl FnOnce(u32) -> Option<KnownObject<'k>>,
        states: &mut Vec<u8>,
    ) -> Option<ChangedObject> {
        self.left = self.left.checked_sub(1)?;
        let id = self.last_id.checked_add(self.bits.count()?)?.checked_add(1)?;
        self.last_id = id;
        let KnownObject { kind, before } = known(id)?;
        let fields = self.schema.kind(kind)?;
        let changes =
            if self.bits.flag()? { self.last.filter(|(last, _)| *last == kind)?.1 } else { self.changes(fields)? };
        if changes == 0 {
            return None;
        }
        self.last = Some((kind, changes));
        let (x, y) = if changes & POSITION == 0 { (before.x, before.y) } else { self.position(&before)? };
        self.state(fields, changes, before.state, states)?;
        Some(ChangedObject { id: ObjectId(id), kind, x, y })
    }

    fn changes(&mut self, kind: &Kind) -> Option<Changes> {
        let bits = kind.fields.len() as u32 + 1;
        let low = self.bits.take(bits.min(32))?;
        let high = self.bits.take(bits.saturating_sub(32))?;
        Some(Changes::from(low) | Changes::from(high) << 32)
    }

    fn position(&mut self, before: &ObjectBefore<'_>) -> Option<(u32, u32)> {
        let class = self.bits.take(CLASS_BITS)? as usize;
        let Some(&bits) = STEP_BITS.get(class) else {
            return Some((self.bits.take(self.position_bits)?, self.bits.take(self.position_bits)?));
        };
        let mut moved = |from: u32| {
            let step = signed(self.bits.take(bits)?, bits);
            u32::try_from(i64::from(from) + step).ok()
        };
        Some((moved(before.x)?, moved(before.y)?))
    }

    fn state(&mut self, kind: &Kind, changes: Changes, before: &[u8], states: &mut Vec<u8>) -> Option<()> {
        let mut was = FieldReader::new(kind.fields.len(), before);
        let mut now = FieldWriter::new(kind.fields.len(), states);
        for (place, field) in (1..).zip(kind.fields.iter()) {
            let was = was.next(field)?;
            if changes >> place & 1 == 0 {
                now.put(field, was);
            } else {
                self.value(field, was, &mut now)?;
            }
        }
        now.finish();
        was.is_finished().then_some(())
    }

    fn value(&mut self, field: &Field, was: RawValue<'_>, now: &mut FieldWriter<'_>) -> Option<()> {
        let bits = &mut self.bits;
        let number = match &field.of {
            FieldType::Integer(integer) => {
                let is_step = field.delta_bits > 0 && bits.flag()?;
                if let (true, RawValue::Number(was)) = (is_step, was) {
                    let to = was + signed(bits.take(field.delta_bits.into())?, field.delta_bits.into());
                    let turn = integer.max - integer.min + 1;
                    let is_angle = field.motion == Motion::Angle;
                    if is_angle { integer.min + (to - integer.min).rem_euclid(turn) } else { to }
                } else {
                    integer.min + i64::from(bits.take(integer.bits())?)
                }
            }
            FieldType::Flag => bits.take(1)?.into(),
            FieldType::Choice(names) => bits.take(bits_of(names.len() - 1))?.into(),
            FieldType::Object => bits.count()?.into(),
            FieldType::Text { .. } | FieldType::List { .. } => return self.bytes(field, now),
        };
        let is_inside = match &field.of {
            FieldType::Integer(integer) => (integer.min..=integer.max).contains(&number),
            FieldType::Choice(names) => (low_bits(number) as usize) < names.len(),
            _ => true,
        };
        is_inside.then(|| now.put(field, RawValue::Number(number)))
    }

    fn bytes(&mut self, field: &Field, now: &mut FieldWriter<'_>) -> Option<()> {
        let bits = &mut self.bits;
        let mut bytes = Vec::new();
        match &field.of {
            FieldType::Text { bytes_max } => {
                let count = bits.take(bits_of((*bytes_max).into()))?;
                if count > (*bytes_max).into() {
                    return None;
                }
                for _ in 0..count {
                    bytes.push(bits.take(8)? as u8);
                }
            }
            FieldType::List { of, count_min, count_max } => {
                let count = u32::from(*count_min) + bits.take(bits_of((count_max - count_min).into()))?;
                if count > (*count_max).into() {
                    return None;
                }
                for _ in 0..count {
                    let number = of.min + i64::from(bits.take(of.bits())?);
                    if number > of.max {
                        return None;
                    }
                    write_integer(number, *of, &mut bytes);
                }
            }
            _ => return None,
        }
        now.put(field, RawValue::Bytes(&bytes));
        Some(())
    }
}
