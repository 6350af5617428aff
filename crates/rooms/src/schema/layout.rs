//! The fields of a state in its bytes.
//!
//! Each form of a state has exactly one sequence of bytes: what cannot be written is not read either. A client that
//! puts the fields together again therefore has the same bytes as the world.

use super::{Field, FieldType, Integer, SHORT_LENGTH_MAX};

/// The value of a field, inside its range.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{Field, FieldValue, RawValue};
///
/// assert_eq!(u8::from_raw(&Field::new::<u8>("points"), RawValue::Number(7)), Some(7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawValue<'a> {
    /// An integer, a flag, the index of a choice, or the id of an object.
    Number(i64),
    /// A text, or the elements of a list.
    Bytes(&'a [u8]),
}

/// Reads the fields of a state, one after another.
#[derive(Clone, Debug)]
pub(crate) struct FieldReader<'a> {
    rest: &'a [u8],
    fields_left: usize,
    /// Whether optional fields have been left out.
    is_cut: bool,
    /// Whether an optional field was there, and whether one of those was not 0.
    has_optional: bool,
    has_value: bool,
    /// Whether the state is known to have the form of its kind, so that its values are not looked at again.
    is_known: bool,
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(field_count: usize, state: &'a [u8]) -> Self {
        let (is_cut, has_optional, has_value, is_known) = (false, false, false, false);
        Self { rest: state, fields_left: field_count, is_cut, has_optional, has_value, is_known }
    }

    /// Reads a state that was read to its end before.
    pub(crate) fn of_known_form(field_count: usize, state: &'a [u8]) -> Self {
        Self { is_known: true, ..Self::new(field_count, state) }
    }

    /// The next field, which is `field`; `None` if the state does not have the form of its kind.
    pub(crate) fn next(&mut self, field: &Field) -> Option<RawValue<'a>> {
        self.fields_left = self.fields_left.checked_sub(1)?;
        if field.is_optional && !self.has_optional && self.rest.is_empty() {
            self.is_cut = true;
        }
        if self.is_cut {
            return Some(field.nothing());
        }
        let bytes = match &field.of {
            FieldType::Integer(integer) => self.take(integer.bytes.into())?,
            FieldType::Flag | FieldType::Choice(_) => self.take(1)?,
            FieldType::Object => self.take(4)?,
            FieldType::Text { bytes_max } => self.bytes(0, *bytes_max, 1)?,
            FieldType::List { of, count_min, count_max } => self.bytes(*count_min, *count_max, of.bytes.into())?,
        };
        let raw = match field.of {
            FieldType::Text { .. } | FieldType::List { .. } if self.is_known => RawValue::Bytes(bytes),
            _ => value_of(field, bytes)?,
        };
        self.has_optional |= field.is_optional;
        self.has_value |= self.has_optional && raw != field.nothing();
        Some(raw)
    }

    /// Whether the state has the form of its kind, after its last field.
    pub(crate) fn is_finished(&self) -> bool {
        self.rest.is_empty() && self.fields_left == 0 && (!self.has_optional || self.has_value)
    }

    fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(bytes)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }

    /// `count_min` to `count_max` elements of some bytes each. The last field takes what is left; another one begins
    /// with its number of elements.
    fn bytes(&mut self, count_min: u16, count_max: u16, bytes_each: u16) -> Option<&'a [u8]> {
        let count = if count_min == count_max {
            usize::from(count_max)
        } else if self.fields_left == 0 {
            let each = usize::from(bytes_each);
            self.rest.len().is_multiple_of(each).then_some(self.rest.len() / each)?
        } else if count_max <= SHORT_LENGTH_MAX {
            let [count] = *self.array()?;
            count.into()
        } else {
            u16::from_le_bytes(*self.array()?).into()
        };
        if count < usize::from(count_min) || count > usize::from(count_max) {
            return None;
        }
        self.take(count * usize::from(bytes_each))
    }
}

/// The value in the bytes of a field, which have its length; `None` if it is outside of its range.
#[inline]
pub(super) fn value_of<'a>(field: &Field, bytes: &'a [u8]) -> Option<RawValue<'a>> {
    let number = match &field.of {
        FieldType::Integer(integer) => {
            let number = read_integer(bytes, *integer);
            (integer.min..=integer.max).contains(&number).then_some(number)?
        }
        FieldType::Flag => index_below(bytes, 2)?,
        FieldType::Choice(names) => index_below(bytes, names.len())?,
        FieldType::Object => u32::from_le_bytes(bytes.try_into().ok()?).into(),
        FieldType::Text { .. } => return std::str::from_utf8(bytes).is_ok().then_some(RawValue::Bytes(bytes)),
        FieldType::List { of, .. } => {
            let is_inside = |element: &[u8]| (of.min..=of.max).contains(&read_integer(element, *of));
            // Elements of the whole range, such as bytes, need no look.
            let is_right = of.is_whole() || bytes.chunks_exact(of.bytes.into()).all(is_inside);
            return is_right.then_some(RawValue::Bytes(bytes));
        }
    };
    Some(RawValue::Number(number))
}

fn index_below(bytes: &[u8], count: usize) -> Option<i64> {
    let &[number] = bytes else { return None };
    (usize::from(number) < count).then_some(number.into())
}

/// Appends the fields of a state, one after another.
#[derive(Debug)]
pub(crate) struct FieldWriter<'a> {
    out: &'a mut Vec<u8>,
    fields_left: usize,
    /// Where the optional fields begin, and whether one of them is not 0.
    optional_start: Option<usize>,
    has_value: bool,
}

impl<'a> FieldWriter<'a> {
    #[inline]
    pub(crate) fn new(field_count: usize, out: &'a mut Vec<u8>) -> Self {
        Self { out, fields_left: field_count, optional_start: None, has_value: false }
    }

    /// Appends the next field, which is `field`. Its value must be inside the range.
    #[allow(clippy::inline_always, reason = "the compiler then knows which field a struct writes")]
    #[inline(always)]
    pub(crate) fn put(&mut self, field: &Field, raw: RawValue<'_>) {
        self.begin(field, || raw != field.nothing());
        match (raw, &field.of) {
            (RawValue::Number(number), FieldType::Integer(integer)) => write_integer(number, *integer, self.out),
            (RawValue::Number(number), FieldType::Object) => {
                self.out.extend_from_slice(&low_bits(number).to_le_bytes());
            }
            (RawValue::Number(number), _) => self.out.push(low_bits(number) as u8),
            (RawValue::Bytes(bytes), FieldType::List { of, count_min, count_max }) => {
                self.length(bytes.len() / usize::from(of.bytes), *count_min, *count_max);
                self.out.extend_from_slice(bytes);
            }
            (RawValue::Bytes(bytes), FieldType::Text { bytes_max }) => {
                self.length(bytes.len(), 0, *bytes_max);
                self.out.extend_from_slice(bytes);
            }
            (RawValue::Bytes(_), _) => debug_assert!(false, "a number is not bytes"),
        }
    }

    /// Appends the next field, which is a list, with elements inside their range.
    #[inline]
    pub(crate) fn put_list(&mut self, field: &Field, elements: impl ExactSizeIterator<Item = i64>) {
        let FieldType::List { of, count_min, count_max } = field.of else { return };
        self.begin(field, || elements.len() > 0);
        self.length(elements.len(), count_min, count_max);
        for element in elements {
            write_integer(element, of, self.out);
        }
    }

    /// After the last field.
    #[inline]
    pub(crate) fn finish(self) {
        if let Some(start) = self.optional_start.filter(|_| !self.has_value) {
            self.out.truncate(start);
        }
    }

    #[inline]
    fn begin(&mut self, field: &Field, has_value: impl FnOnce() -> bool) {
        self.fields_left = self.fields_left.saturating_sub(1);
        if field.is_optional && self.optional_start.is_none() {
            self.optional_start = Some(self.out.len());
        }
        // Most kinds have no optional fields, and need no look at their values.
        self.has_value |= self.optional_start.is_some() && has_value();
    }

    #[inline]
    fn length(&mut self, count: usize, count_min: u16, count_max: u16) {
        if count_min == count_max || self.fields_left == 0 {
            return;
        }
        let bytes = (count as u16).to_le_bytes();
        self.out.extend_from_slice(&bytes[..if count_max <= SHORT_LENGTH_MAX { 1 } else { 2 }]);
    }
}

impl Field {
    /// The value of a field that has been left out.
    #[inline]
    pub(crate) fn nothing(&self) -> RawValue<'static> {
        match self.of {
            FieldType::Text { .. } | FieldType::List { .. } => RawValue::Bytes(&[]),
            _ => RawValue::Number(0),
        }
    }
}

/// A number as its lowest bits, for a value that has no more.
pub(crate) fn low_bits(number: i64) -> u32 {
    number.cast_unsigned() as u32
}

/// The value in the bytes of an integer.
#[inline]
pub(crate) fn read_integer(bytes: &[u8], integer: Integer) -> i64 {
    match (bytes, integer.min < 0) {
        (&[a], false) => a.into(),
        (&[a], true) => a.cast_signed().into(),
        (&[a, b], false) => u16::from_le_bytes([a, b]).into(),
        (&[a, b], true) => i16::from_le_bytes([a, b]).into(),
        (&[a, b, c, d], false) => u32::from_le_bytes([a, b, c, d]).into(),
        (&[a, b, c, d], true) => i32::from_le_bytes([a, b, c, d]).into(),
        _ => {
            debug_assert!(false, "an integer has 1, 2 or 4 bytes");
            0
        }
    }
}

#[inline]
pub(crate) fn write_integer(number: i64, integer: Integer, out: &mut Vec<u8>) {
    // Lengths that the compiler knows: this runs for each field of each change.
    let [a, b, c, d, ..] = number.to_le_bytes();
    match integer.bytes {
        1 => out.push(a),
        2 => out.extend_from_slice(&[a, b]),
        _ => out.extend_from_slice(&[a, b, c, d]),
    }
}
