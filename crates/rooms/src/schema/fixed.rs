//! Kinds whose fields all have a fixed place in the state, so that two states are compared without reading them.

use std::ops::Range;

use super::{Field, FieldType, Kind, RawValue, layout::value_of};

/// The places of the fields of a kind whose states all have the same length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FixedLayout {
    places: Vec<Range<usize>>,
    /// The number of the field of each byte.
    fields_of_bytes: Vec<u8>,
    /// Fields that do not have a value for all bytes.
    checked: Vec<usize>,
}

impl FixedLayout {
    /// `None` if a field may be left out or has no fixed length.
    pub(super) fn of(kind: &Kind) -> Option<Self> {
        let mut layout = Self { places: Vec::new(), fields_of_bytes: Vec::new(), checked: Vec::new() };
        for (number, field) in kind.fields.iter().enumerate() {
            let start = layout.fields_of_bytes.len();
            layout.fields_of_bytes.resize(start + field.fixed_bytes()?, number as u8);
            layout.places.push(start..layout.fields_of_bytes.len());
            if !field.is_any_value_right() {
                layout.checked.push(number);
            }
        }
        Some(layout)
    }

    /// The fields that differ in two states, as a bit for each, the lowest for the first. `None` if a state has another
    /// length than the states of the kind, or if a field does not have a value.
    pub(crate) fn differences(&self, fields: &[Field], was: &[u8], is: &[u8]) -> Option<u64> {
        let bytes = self.fields_of_bytes.len();
        if was.len() != bytes || is.len() != bytes {
            return None;
        }
        for number in &self.checked {
            let field = fields.get(*number)?;
            self.value(*number, field, was)?;
            self.value(*number, field, is)?;
        }
        let mut differences = 0;
        let (was_words, was_rest) = was.as_chunks::<WORD_BYTES>();
        let (is_words, is_rest) = is.as_chunks::<WORD_BYTES>();
        for ((was, is), fields) in was_words.iter().zip(is_words).zip(self.fields_of_bytes.chunks(WORD_BYTES)) {
            let mut different_bits = u64::from_le_bytes(*was) ^ u64::from_le_bytes(*is);
            while different_bits != 0 {
                let byte = different_bits.trailing_zeros() as usize / 8;
                differences |= 1 << fields.get(byte)?;
                different_bits &= !(0xff << (8 * byte));
            }
        }
        let rest = self.fields_of_bytes.get(bytes - was_rest.len()..)?;
        for ((was, is), field) in was_rest.iter().zip(is_rest).zip(rest) {
            differences |= u64::from(was != is) << field;
        }
        Some(differences)
    }

    /// The value of the field with a number in a state that has the length of the kind.
    #[inline]
    pub(crate) fn value<'a>(&self, number: usize, field: &Field, state: &'a [u8]) -> Option<RawValue<'a>> {
        value_of(field, state.get(self.places.get(number)?.clone())?)
    }
}

/// Bytes that are compared at once.
const WORD_BYTES: usize = 8;

impl Field {
    /// Its bytes in every state, if the length is fixed.
    fn fixed_bytes(&self) -> Option<usize> {
        if self.is_optional {
            return None;
        }
        match &self.of {
            FieldType::Integer(integer) => Some(integer.bytes.into()),
            FieldType::Flag | FieldType::Choice(_) => Some(1),
            FieldType::Object => Some(4),
            FieldType::Text { .. } => None,
            FieldType::List { of, count_min, count_max } => {
                (count_min == count_max).then_some(usize::from(of.bytes) * usize::from(*count_max))
            }
        }
    }

    fn is_any_value_right(&self) -> bool {
        match &self.of {
            FieldType::Integer(integer) | FieldType::List { of: integer, .. } => integer.is_whole(),
            FieldType::Choice(names) => names.len() == 256,
            FieldType::Object => true,
            FieldType::Flag | FieldType::Text { .. } => false,
        }
    }
}
