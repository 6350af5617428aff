//! What a game declares about the states of its objects: kinds, and the fields of each.
//!
//! An object's state stays bytes: that is what the world stores, saves and hashes, and what clients without fields
//! receive. A schema says how these bytes are made of fields. So a room can write only the fields that changed, and a
//! state that does not have the declared form is still a state: it is written whole.

mod conversion;
mod document;
mod fixed;
mod layout;
mod typed;

use std::borrow::Cow;

pub use conversion::SchemaDifference;
pub(crate) use conversion::{GoneFields, KindChange, StateChange};
pub use document::SchemaError;
use fixed::FixedLayout;
pub use layout::RawValue;
pub(crate) use layout::{FieldReader, FieldWriter, low_bits, read_integer, write_integer};
pub use typed::{Choice, FieldValue, State, StateReader, StateWriter};

/// Maximum fields of a kind. A change has 64 bits: one for each field, for the position, and for an object sent whole.
pub(crate) const FIELDS_MAX: usize = 62;
/// Maximum bytes of a schema's document. Each client that asks for it receives it once, in its first frame, which is as
/// long as a few snapshots of a full view.
pub(crate) const SCHEMA_BYTES_MAX: usize = 64 << 10;
/// Maximum kinds of a schema.
pub(crate) const KINDS_MAX: usize = 256;
/// Maximum distances within which kinds are visible. Players see up to one layer of a cell more than there are distances.
pub(crate) const RANGES_MAX: usize = 8;
/// Maximum bytes of a text, and elements of a list.
pub(crate) const LENGTH_MAX: u16 = 1_024;
/// A longer length is written in two bytes.
pub(crate) const SHORT_LENGTH_MAX: u16 = 255;

/// The kinds of a game's objects. Objects of other kinds have states that only the game understands.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{Schema, State, state};
///
/// state! {
///     /// A runner.
///     #[derive(Debug, PartialEq)]
///     pub struct Runner: 1 {
///         pub heading: u8 [angle()],
///         pub points: u16,
///         pub name: String [max(16)],
///     }
/// }
///
/// let schema = Schema::new().with::<Runner>();
/// assert_eq!(schema.kind(1).map(|kind| kind.fields.len()), Some(3));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// In ascending order of numbers.
    kinds: Vec<Kind>,
    /// For each kind, where its fields are, if they have fixed places.
    layouts: Vec<Option<FixedLayout>>,
    /// Of the kinds whose weight is not 1, in ascending order of numbers. Clients do not need them, so they are not in the
    /// document.
    weights: Vec<(u16, u8)>,
    /// Of the kinds that are visible only near, how far, in ascending order of numbers. Not in the document either: clients
    /// receive what their players see.
    ranges: Vec<(u16, u32)>,
    document: String,
}

/// The fields of a kind of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The game's number for the kind.
    pub number: u16,
    /// Its name in the document.
    pub name: Cow<'static, str>,
    /// In the order of the state's bytes.
    pub fields: Cow<'static, [Field]>,
}

/// A field of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: Cow<'static, str>,
    /// What it contains.
    pub of: FieldType,
    /// Bits of a difference to the value one tick before; 0: the field is written as a whole when it changes.
    pub delta_bits: u8,
    /// A client divides the integer by this; 1 for a whole number.
    pub per_unit: u32,
    /// How a client shows it between two snapshots.
    pub motion: Motion,
    /// Whether this field and all after it are left out of the state if they are 0 or empty.
    pub is_optional: bool,
}

/// What a field contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// A number.
    Integer(Integer),
    /// True or false: one byte, 1 or 0.
    Flag,
    /// One of these names: one byte, its index.
    Choice(Cow<'static, [Cow<'static, str>]>),
    /// The id of an object, or 0: four bytes.
    Object,
    /// UTF-8 of at most as many bytes.
    Text {
        /// Maximum length in bytes.
        bytes_max: u16,
    },
    /// Numbers.
    List {
        /// The form of each.
        of: Integer,
        /// Minimum number of elements; the same as the maximum if the length is fixed.
        count_min: u16,
        /// Maximum number of elements.
        count_max: u16,
    },
}

/// The range of an integer, and its bytes in the state. They are little-endian, and have a sign if `min` is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer {
    /// 1, 2 or 4.
    pub bytes: u8,
    /// The lowest value.
    pub min: i64,
    /// The highest value.
    pub max: i64,
}

/// How a client shows a field between two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Motion {
    /// It jumps.
    #[default]
    Step,
    /// It moves evenly.
    Linear,
    /// As [`Motion::Linear`], the shorter way round: its range is one turn.
    Angle,
}

impl Schema {
    /// No kinds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind.
    ///
    /// # Panics
    /// If the schema has the kind or 256 kinds already, if its document is longer than 64 KiB, or if the fields are not
    /// possible: the game cannot run.
    #[must_use]
    pub fn with<T: State>(self) -> Self {
        let kind = Kind { number: T::KIND, name: Cow::Borrowed(T::NAME), fields: Cow::Borrowed(T::FIELDS) };
        let number = kind.number;
        let Self { mut kinds, weights, ranges, .. } = self;
        kinds.push(kind);
        let schema = Self::of(kinds).unwrap_or_else(|error| panic!("kind {number} ({}): {error}", T::NAME));
        Self { weights, ranges, ..schema }
    }

    /// Says how important the objects of a kind are to players with a bandwidth limit; 1 without this. A part of a player's
    /// view that waits is sent as many times as soon as the weight of the most important object in it. The kind may have
    /// no fields.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Schema;
    ///
    /// const RUNNER: u16 = 1;
    /// let schema = Schema::new().with_weight(RUNNER, 4);
    /// assert_eq!((schema.weight(RUNNER), schema.weight(2)), (4, 1));
    /// ```
    ///
    /// # Panics
    /// If the weight is 0: the game cannot run.
    #[must_use]
    pub fn with_weight(mut self, kind: u16, weight: u8) -> Self {
        assert!(weight > 0, "kind {kind} has the weight 0");
        self.weights.retain(|(of, _)| *of != kind);
        if weight > 1 {
            let place = self.weights.partition_point(|(of, _)| *of < kind);
            self.weights.insert(place, (kind, weight));
        }
        self
    }

    /// The weight of a kind.
    pub fn weight(&self, kind: u16) -> u8 {
        let place = self.weights.binary_search_by_key(&kind, |(of, _)| *of);
        place.map_or(1, |place| self.weights[place].1)
    }

    /// Says that players see the objects of a kind only in the cells near to their own, although their view reaches further.
    /// What is within `units` of the viewpoint, to each side, is visible: the cells whose column and row differ from those of
    /// the viewpoint's cell by at most `units` divided by the side of a cell, rounded up. Far cells among them stay far cells.
    /// An object of one player (`Visibility::Owner`) is visible to it wherever it is. The kind may have no fields.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Schema;
    ///
    /// const FOOTPRINT: u16 = 3;
    /// let schema = Schema::new().with_visible_within(FOOTPRINT, 300);
    /// assert_eq!((schema.visible_within(FOOTPRINT), schema.visible_within(1)), (Some(300), None));
    /// ```
    ///
    /// # Panics
    /// If the distance is 0, or if the schema has 8 other distances already: the game cannot run.
    #[must_use]
    pub fn with_visible_within(mut self, kind: u16, units: u32) -> Self {
        assert!(units > 0, "kind {kind} is visible within 0 units");
        self.ranges.retain(|(of, _)| *of != kind);
        let place = self.ranges.partition_point(|(of, _)| *of < kind);
        self.ranges.insert(place, (kind, units));
        let distances: std::collections::BTreeSet<u32> = self.ranges.iter().map(|(_, units)| *units).collect();
        assert!(distances.len() <= RANGES_MAX, "kinds have more than {RANGES_MAX} distances");
        self
    }

    /// How far the objects of a kind are visible, in units; `None` if they are in the whole view.
    pub fn visible_within(&self, kind: u16) -> Option<u32> {
        let place = self.ranges.binary_search_by_key(&kind, |(of, _)| *of);
        place.ok().map(|place| self.ranges[place].1)
    }

    /// The kinds that are visible only near, in ascending order, and how far.
    pub fn ranges(&self) -> &[(u16, u32)] {
        &self.ranges
    }

    /// The weight of the most important of these kinds; 1 without any.
    pub(crate) fn weight_max(&self, kinds: impl Iterator<Item = u16>) -> u8 {
        if self.weights.is_empty() { 1 } else { kinds.map(|kind| self.weight(kind)).max().unwrap_or(1) }
    }

    fn of(mut kinds: Vec<Kind>) -> Result<Self, SchemaError> {
        kinds.sort_unstable_by_key(|kind| kind.number);
        if kinds.len() > KINDS_MAX || kinds.array_windows().any(|[one, next]| one.number == next.number) {
            return Err(SchemaError::Kinds);
        }
        kinds.iter().try_for_each(Kind::check)?;
        let document = document::write(&kinds);
        if document.len() > SCHEMA_BYTES_MAX {
            return Err(SchemaError::TooLong);
        }
        let layouts = kinds.iter().map(FixedLayout::of).collect();
        Ok(Self { kinds, layouts, weights: Vec::new(), ranges: Vec::new(), document })
    }

    /// Reads [`Schema::document`].
    ///
    /// # Errors
    /// [`SchemaError`]
    pub fn from_document(document: &[u8]) -> Result<Self, SchemaError> {
        if document.len() > SCHEMA_BYTES_MAX {
            return Err(SchemaError::TooLong);
        }
        Self::of(document::read(document)?)
    }

    /// The schema as JSON, as clients receive it.
    pub fn document(&self) -> &str {
        &self.document
    }

    /// Whether it has no kinds.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The kinds, in ascending order of their numbers.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// A kind, by its number.
    pub fn kind(&self, number: u16) -> Option<&Kind> {
        self.kinds.get(self.place(number)?)
    }

    /// A kind and the places of its fields, if they are fixed.
    pub(crate) fn kind_with_layout(&self, number: u16) -> Option<(&Kind, Option<&FixedLayout>)> {
        let place = self.place(number)?;
        Some((self.kinds.get(place)?, self.layouts.get(place)?.as_ref()))
    }

    fn place(&self, number: u16) -> Option<usize> {
        // Games number their kinds from 0 or 1, so most are found at once.
        let near = usize::from(number).saturating_sub(usize::from(self.kinds.first()?.number));
        if self.kinds.get(near).is_some_and(|kind| kind.number == number) {
            return Some(near);
        }
        self.kinds.binary_search_by_key(&number, |kind| kind.number).ok()
    }
}

impl Kind {
    fn check(&self) -> Result<(), SchemaError> {
        let names: std::collections::BTreeSet<&str> = self.fields.iter().map(|field| &*field.name).collect();
        if self.fields.is_empty() || self.fields.len() > FIELDS_MAX || names.len() < self.fields.len() {
            return Err(SchemaError::Fields);
        }
        let first_optional = self.fields.iter().position(|field| field.is_optional).unwrap_or(self.fields.len());
        let may_be_left_out = |(place, field): (usize, &Field)| place < first_optional || field.may_be_nothing();
        if !self.fields.iter().enumerate().all(may_be_left_out) {
            return Err(SchemaError::Optional);
        }
        self.fields.iter().try_for_each(Field::check)
    }
}

impl Field {
    fn check(&self) -> Result<(), SchemaError> {
        let integer = match &self.of {
            FieldType::Integer(integer) => Some(integer),
            FieldType::List { of, count_min, count_max } => {
                if *count_max == 0 || *count_max > LENGTH_MAX || count_min > count_max {
                    return Err(SchemaError::Length);
                }
                Some(of)
            }
            FieldType::Text { bytes_max } if *bytes_max == 0 || *bytes_max > LENGTH_MAX => {
                return Err(SchemaError::Length);
            }
            FieldType::Choice(names) if names.is_empty() || names.len() > 256 => return Err(SchemaError::Choice),
            _ => None,
        };
        if integer.is_some_and(|integer| !integer.is_possible()) {
            return Err(SchemaError::Range);
        }
        let bits = match &self.of {
            FieldType::Integer(integer) => integer.bits(),
            _ => 1,
        };
        if u32::from(self.delta_bits) >= bits.max(1) || self.per_unit == 0 {
            return Err(SchemaError::Delta);
        }
        Ok(())
    }

    fn may_be_nothing(&self) -> bool {
        match &self.of {
            FieldType::Integer(integer) => integer.min <= 0 && integer.max >= 0,
            FieldType::List { count_min, .. } => *count_min == 0,
            _ => true,
        }
    }
}

impl Integer {
    fn is_possible(&self) -> bool {
        let bits = 8 * u32::from(self.bytes);
        let (least, most) = match (self.bytes, self.min < 0) {
            (1 | 2 | 4, true) => (-(1_i64 << (bits - 1)), (1 << (bits - 1)) - 1),
            (1 | 2 | 4, false) => (0, (1 << bits) - 1),
            _ => return false,
        };
        self.min >= least && self.max <= most && self.min <= self.max
    }

    /// Whether every value of its bytes is inside the range.
    #[inline]
    pub(crate) fn is_whole(self) -> bool {
        self.max - self.min == (1_i64 << (8 * u32::from(self.bytes))) - 1
    }

    /// Bits of a value on the wire.
    pub(crate) const fn bits(self) -> u32 {
        64 - (self.max - self.min).cast_unsigned().leading_zeros()
    }
}

#[cfg(test)]
mod tests;
