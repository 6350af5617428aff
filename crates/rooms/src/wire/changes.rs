//! The changes of the objects of a cell that a client has, in bits: `CellUpdate.changes`.
//!
//! A change is a set of fields with their new values. A value is the difference to the tick before only if the client
//! has exactly that tick; the writer decides that with `before`, and the reader needs no decision. `docs/rooms-protocol.md`
//! describes the bits.

use crate::{
    ObjectId, ObjectView, Schema,
    bits::{BitReader, BitWriter, TAKEN_BITS_MAX},
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

/// Whether these are changes of an object of this kind, and not [`WHOLE`].
pub(crate) fn are_changes_of(kind: &Kind, changes: Changes) -> bool {
    let set_bits = kind.fields.len() as u32 + 1;
    changes.checked_shr(set_bits).unwrap_or(0) == 0
}

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

/// The changes of a cell. Objects are written as they come. If an id is lower than the one before, the segment is put
/// together again at the end, in the order of ids.
#[derive(Debug, Default)]
pub(crate) struct ChangeList {
    entries: Vec<Entry>,
    /// For each object what is written before its values, and its values.
    bodies: BitWriter,
    segment: BitWriter,
    previous: Previous,
    is_unordered: bool,
    /// The number of objects that were compared, with those that have not changed or are sent as a whole.
    compared: usize,
    /// By how many bits values are further behind in the segment than in `bodies`, if objects came in order.
    shift: usize,
}

/// The object before the next one in the bits.
#[derive(Clone, Copy, Debug, Default)]
struct Previous {
    id: u32,
    kind: u16,
    /// 0 before the first.
    changes: Changes,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u32,
    kind: u16,
    /// Bits of its set of changes.
    set_bits: u8,
    /// How many objects were compared before it.
    number: u32,
    changes: Changes,
    /// Where its values are in `bodies`, in bits.
    start: usize,
    end: usize,
}

impl ChangeList {
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bodies.clear();
        (self.previous, self.is_unordered, self.compared) = (Previous::default(), false, 0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.bodies.capacity() + self.segment.capacity()
    }

    /// Adds what has changed of an object since the tick before. The client has its state of that tick. Returns the
    /// changes; with [`WHOLE`], nothing was added.
    pub(crate) fn push_since(
        &mut self,
        schema: &Schema,
        position_bits: u32,
        now: &ObjectView<'_>,
        before: Option<&ObjectBefore<'_>>,
    ) -> Changes {
        self.compared += 1;
        let (Some(before), Some((kind, layout))) = (before, schema.kind_with_layout(now.kind)) else { return WHOLE };
        let fields = match layout {
            Some(layout) => layout.differences(&kind.fields, before.state, now.state),
            None => differences(&kind.fields, before.state, now.state),
        };
        // The lowest bit is the position.
        let Some(fields) = fields else { return WHOLE };
        let has_moved = (before.x, before.y) != (now.x, now.y);
        let changes = fields << 1 | if has_moved { POSITION } else { 0 };
        if changes == 0 {
            return 0;
        }
        let start = self.begin(now, kind, changes);
        if has_moved {
            put_position(&mut self.bodies, position_bits, now, Some(before));
        }
        match layout {
            Some(layout) => {
                let mut left = fields;
                while left != 0 {
                    let number = left.trailing_zeros() as usize;
                    left &= left - 1;
                    let Some(field) = kind.fields.get(number) else { break };
                    if let Some(is) = layout.value(number, field, now.state) {
                        put_value(&mut self.bodies, field, is, layout.value(number, field, before.state));
                    }
                }
            }
            None => self.put_values(kind, changes, now.state, Some(before.state)),
        }
        self.end(now, kind, changes, start);
        changes
    }

    /// Adds an object with these changes, which are not [`WHOLE`]. All values are whole.
    pub(crate) fn push_whole_values(
        &mut self,
        schema: &Schema,
        position_bits: u32,
        now: &ObjectView<'_>,
        changes: Changes,
    ) {
        let Some(kind) = schema.kind(now.kind).filter(|_| changes != 0) else { return };
        let start = self.begin(now, kind, changes);
        if changes & POSITION != 0 {
            put_position(&mut self.bodies, position_bits, now, None);
        }
        self.put_values(kind, changes, now.state, None);
        self.end(now, kind, changes, start);
    }

    /// Adds an object with these changes, which are not [`WHOLE`], and whose values were written by
    /// [`ChangeList::push_since`] in the bits `values` of `bytes`.
    pub(crate) fn push_written(
        &mut self,
        schema: &Schema,
        now: &ObjectView<'_>,
        changes: Changes,
        (bytes, values): (&[u8], std::ops::Range<usize>),
    ) {
        let Some(kind) = schema.kind(now.kind).filter(|_| changes != 0) else { return };
        let start = self.begin(now, kind, changes);
        copy(&mut BitReader::new(bytes), values, &mut self.bodies);
        self.end(now, kind, changes, start);
    }

    /// Appends the changed values of a state that has the form of its kind.
    fn put_values(&mut self, kind: &Kind, changes: Changes, is: &[u8], was: Option<&[u8]>) {
        let count = kind.fields.len();
        let mut is = FieldReader::of_known_form(count, is);
        let mut was = was.map(|was| FieldReader::of_known_form(count, was));
        // Nothing has to be read after the last change.
        let needed = (Changes::BITS - changes.leading_zeros()) as usize - 1;
        for (place, field) in (1..).zip(&kind.fields[..needed]) {
            let (is, was) = (is.next(field), was.as_mut().and_then(|was| was.next(field)));
            if let Some(is) = is.filter(|_| changes >> place & 1 == 1) {
                put_value(&mut self.bodies, field, is, was);
            }
        }
    }

    /// Begins an object. Returns where its values begin.
    fn begin(&mut self, now: &ObjectView<'_>, kind: &Kind, changes: Changes) -> usize {
        self.is_unordered |= now.id.0 <= self.previous.id;
        let set_bits = kind.fields.len() as u32 + 1;
        self.previous = put_head(&mut self.bodies, self.previous, (now.id.0, now.kind, changes), set_bits);
        self.bodies.len()
    }

    /// Ends an object whose values begin at `start`.
    fn end(&mut self, now: &ObjectView<'_>, kind: &Kind, changes: Changes, start: usize) {
        let (set_bits, number) = (kind.fields.len() as u8 + 1, self.compared.saturating_sub(1) as u32);
        let (id, kind, end) = (now.id.0, now.kind, self.bodies.len());
        self.entries.push(Entry { id, kind, set_bits, number, changes, start, end });
    }

    /// For each object, once finished, how many were compared before it, and where its values are in the bits of all changes.
    pub(crate) fn values(&self) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        let shift = self.shift;
        self.entries.iter().map(move |entry| (entry.number as usize, entry.start + shift..entry.end + shift))
    }

    /// The bits of all changes.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let Self { entries, bodies, segment, .. } = self;
        segment.clear();
        segment.count(entries.len() as u32);
        self.shift = if self.is_unordered { 0 } else { segment.len() };
        let all_bits = bodies.len();
        let mut bodies = BitReader::new(bodies.finish());
        if !self.is_unordered {
            copy(&mut bodies, 0..all_bits, segment);
            return segment.finish();
        }
        entries.sort_unstable_by_key(|entry| entry.id);
        let mut previous = Previous::default();
        for entry in entries.iter_mut() {
            previous = put_head(segment, previous, (entry.id, entry.kind, entry.changes), entry.set_bits.into());
            let start = segment.len();
            copy(&mut bodies, entry.start..entry.end, segment);
            (entry.start, entry.end) = (start, segment.len());
        }
        segment.finish()
    }
}

/// Appends the id of an object, and what has changed of it.
fn put_head(bits: &mut BitWriter, previous: Previous, object: (u32, u16, Changes), set_bits: u32) -> Previous {
    let (id, kind, changes) = object;
    bits.count(id.wrapping_sub(previous.id).wrapping_sub(1));
    if (previous.kind, previous.changes) == (kind, changes) {
        bits.put(1, 1);
    } else {
        bits.put(changes << 1, 1 + set_bits);
    }
    Previous { id, kind, changes }
}

fn copy(from: &mut BitReader<'_>, range: std::ops::Range<usize>, to: &mut BitWriter) {
    from.skip_to(range.start);
    let mut left = range.len();
    while left > 0 {
        let bits = left.min(TAKEN_BITS_MAX as usize);
        to.put(from.take_wide(bits as u32).unwrap_or_default(), bits as u32);
        left -= bits;
    }
}

/// The fields that differ in two states of a kind, as a bit for each. `None` if one does not have the form of the kind.
fn differences(fields: &[Field], was: &[u8], is: &[u8]) -> Option<u64> {
    let (mut was, mut is) = (FieldReader::new(fields.len(), was), FieldReader::new(fields.len(), is));
    let mut differences = 0;
    for (number, field) in fields.iter().enumerate() {
        differences |= u64::from(was.next(field)? != is.next(field)?) << number;
    }
    (was.is_finished() && is.is_finished()).then_some(differences)
}

#[inline]
fn put_position(bits: &mut BitWriter, position_bits: u32, now: &ObjectView<'_>, before: Option<&ObjectBefore<'_>>) {
    let step = before.map(|before| (difference(now.x, before.x), difference(now.y, before.y)));
    let class = step.and_then(|(dx, dy)| {
        let needed = signed_bits(dx).max(signed_bits(dy));
        STEP_BITS.iter().position(|bits| needed <= *bits)
    });
    if let (Some(class), Some((dx, dy))) = (class, step) {
        let each = STEP_BITS[class];
        let steps = low_bits_of(dx, each) | low_bits_of(dy, each) << each;
        bits.put(class as u64 | steps << CLASS_BITS, CLASS_BITS + 2 * each);
    } else {
        bits.put(STEP_BITS.len() as u64, CLASS_BITS);
        bits.put(now.x.into(), position_bits);
        bits.put(now.y.into(), position_bits);
    }
}

fn difference(to: u32, from: u32) -> i64 {
    i64::from(to) - i64::from(from)
}

/// The lowest bits of a number, at most 32.
fn low_bits_of(number: i64, bits: u32) -> u64 {
    number.cast_unsigned() & ((1 << bits) - 1)
}

/// The bits that a number with its sign needs.
fn signed_bits(number: i64) -> u32 {
    65 - (number ^ number >> 63).leading_zeros()
}

/// The number in the lowest bits, with its sign.
fn signed(number: u32, bits: u32) -> i64 {
    let half = 1 << (bits - 1);
    (i64::from(number) ^ half) - half
}

#[inline]
fn put_value(bits: &mut BitWriter, field: &Field, is: RawValue<'_>, was: Option<RawValue<'_>>) {
    match (&field.of, is) {
        (FieldType::Integer(integer), RawValue::Number(number)) => {
            let whole = (number - integer.min).cast_unsigned();
            let step_bits = u32::from(field.delta_bits);
            if step_bits == 0 {
                return bits.put(whole, integer.bits());
            }
            let was = if let Some(RawValue::Number(was)) = was { Some(was) } else { None };
            let step = was.map(|was| step_between(field, *integer, was, number));
            match step.filter(|step| signed_bits(*step) <= step_bits) {
                Some(step) => bits.put(1 | low_bits_of(step, step_bits) << 1, 1 + step_bits),
                None => bits.put(whole << 1, 1 + integer.bits()),
            }
        }
        (FieldType::Flag, RawValue::Number(number)) => bits.put(number.cast_unsigned(), 1),
        (FieldType::Choice(names), RawValue::Number(number)) => {
            bits.put(number.cast_unsigned(), bits_of(names.len() - 1));
        }
        (FieldType::Object, RawValue::Number(number)) => bits.count(low_bits(number)),
        (FieldType::Text { bytes_max }, RawValue::Bytes(bytes)) => {
            bits.put(bytes.len() as u64, bits_of((*bytes_max).into()));
            bits.put_bytes(bytes);
        }
        (FieldType::List { of, count_min, count_max }, RawValue::Bytes(bytes)) => {
            let elements = bytes.chunks_exact(of.bytes.into());
            bits.put(elements.len() as u64 - u64::from(*count_min), bits_of((count_max - count_min).into()));
            if of.is_whole() && of.min == 0 {
                // The bits of each element are its bytes.
                return bits.put_bytes(bytes);
            }
            for element in elements {
                bits.put((read_integer(element, *of) - of.min).cast_unsigned(), of.bits());
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
                std::str::from_utf8(&bytes).ok()?;
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

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::state;

    state! {
        /// A kind whose fields have fixed places, and whose state is longer than a word.
        struct Fixed: 1 {
            heading: u8 [angle(), delta_bits(4)],
            is_on: bool,
            stamp: [u8; 9],
            score: i16 [range(-300, 299)],
        }
    }

    fn object(id: u32, state: &[u8]) -> ObjectView<'_> {
        ObjectView { id: ObjectId(id), kind: 1, x: id % 50, y: 3, state }
    }

    /// The bits of changed objects that come in this order.
    fn bits(schema: &Schema, objects: &[(u32, [u8; 13])]) -> Vec<u8> {
        let mut list = ChangeList::default();
        for (id, state) in objects {
            let before = ObjectBefore { x: 7, y: 3, state: &[0; 13] };
            assert_ne!(list.push_since(schema, 7, &object(*id, state), Some(&before)), WHOLE);
        }
        list.finish().to_vec()
    }

    #[test]
    fn the_order_in_which_objects_come_does_not_matter() {
        let schema = Schema::new().with::<Fixed>();
        let states = [[0; 13], [1; 13], [0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 4, 0], [1; 13]];
        let mut objects: Vec<(u32, [u8; 13])> = [1, 2, 70, 300].into_iter().zip(states).collect();
        let expected = bits(&schema, &objects);
        for rotation in 1..objects.len() {
            objects.rotate_left(1);
            assert_eq!(bits(&schema, &objects), expected, "rotated by {rotation}");
            let reversed: Vec<_> = objects.iter().rev().copied().collect();
            assert_eq!(bits(&schema, &reversed), expected, "rotated by {rotation}, reversed");
        }
    }

    state! {
        /// A kind with a text.
        struct Named: 2 {
            points: u8,
            name: String [max(20)],
        }
    }

    /// The check of a long text costs more than everything else of a change.
    #[test]
    fn a_text_is_checked_when_states_are_compared_and_not_again() {
        let schema = Schema::new().with::<Named>();
        let kind = schema.kind(2).expect("a kind");
        let state = |name: &'static [u8]| [&[7], name].concat();
        let (ann, broken) = (state(b"Ann"), state(b"An\xff"));
        assert_eq!(differences(&kind.fields, &ann, &broken), None);
        assert_eq!(differences(&kind.fields, &broken, &ann), None);
        assert_eq!(differences(&kind.fields, &ann, &state(b"Bob")), Some(2));
        let mut list = ChangeList::default();
        let now = ObjectView { id: ObjectId(1), kind: 2, x: 0, y: 0, state: &broken };
        list.push_whole_values(&schema, 7, &now, 4);
        let bits = list.finish().to_vec();
        list.clear();
        list.push_whole_values(&schema, 7, &ObjectView { state: &ann, ..now }, 4);
        assert_eq!(bits.len(), list.finish().len(), "the text is copied");
    }

    proptest! {
        /// Fields in fixed places are compared as those that are read one after another.
        #[test]
        fn fixed_places_are_those_of_the_fields(was in vec(0..3_u8, 12..15), is in vec(0..3_u8, 12..15)) {
            let schema = Schema::new().with::<Fixed>();
            let (kind, layout) = schema.kind_with_layout(1).expect("a kind");
            let layout = layout.expect("fixed places");
            let expected = differences(&kind.fields, &was, &is);
            prop_assert_eq!(layout.differences(&kind.fields, &was, &is), expected);
            let mut reader = FieldReader::new(kind.fields.len(), &is);
            for (number, field) in kind.fields.iter().enumerate().filter(|_| expected.is_some()) {
                prop_assert_eq!(layout.value(number, field, &is), reader.next(field));
            }
        }
    }
}
