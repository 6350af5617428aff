//! States as structs.

use super::{Field, FieldReader, FieldType, FieldWriter, Integer, Motion, RawValue};
use crate::{Angle, ObjectId};
use std::borrow::Cow;

/// The state of a kind of objects as a struct. [`state!`](crate::state) implements it.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{State, state};
///
/// state! {
///     /// A door.
///     pub struct Door: 4 {
///         pub is_open: bool,
///     }
/// }
/// assert_eq!((Door::KIND, Door::NAME), (4, "Door"));
/// assert_eq!(Door::FIELDS[0].name, "is_open");
/// ```
pub trait State: Sized {
    /// The number of the kind.
    const KIND: u16;
    /// The name of the kind.
    const NAME: &'static str;
    /// The fields, in the order of the bytes.
    const FIELDS: &'static [Field];

    /// Appends the fields. Values outside of their ranges are limited, and counted.
    fn write(&self, out: &mut StateWriter<'_>);

    /// Reads the fields; `None` if the bytes are not such a state.
    fn read(state: &mut StateReader<'_>) -> Option<Self>;
}

/// Writes the fields of a [`State`].
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{State, StateWriter, state};
///
/// state! {
///     /// A door.
///     pub struct Door: 4 {
///         pub angle: u8 [range(0, 90)],
///     }
/// }
/// let mut bytes = Vec::new();
/// assert_eq!(StateWriter::write(&Door { angle: 200 }, &mut bytes), 1, "one value was outside of its range");
/// assert_eq!(bytes, [90]);
/// ```
#[derive(Debug)]
pub struct StateWriter<'a> {
    fields: FieldWriter<'a>,
    limited: u32,
}

/// Reads the fields of a [`State`].
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{State, StateReader, state};
///
/// state! {
///     /// A door.
///     #[derive(Debug, PartialEq)]
///     pub struct Door: 4 {
///         pub angle: u8 [range(0, 90)],
///     }
/// }
/// assert_eq!(StateReader::read::<Door>(&[90]), Some(Door { angle: 90 }));
/// assert_eq!(StateReader::read::<Door>(&[91]), None);
/// ```
#[derive(Debug)]
pub struct StateReader<'a> {
    fields: FieldReader<'a>,
}

impl<'a> StateWriter<'a> {
    /// Appends the bytes of a state. Returns the number of values that were outside of their ranges.
    #[inline]
    pub fn write<T: State>(state: &T, out: &'a mut Vec<u8>) -> u32 {
        let fields = FieldWriter::new(T::FIELDS.len(), out);
        let mut writer = Self { fields, limited: 0 };
        state.write(&mut writer);
        writer.fields.finish();
        writer.limited
    }

    /// Appends the next field.
    #[allow(clippy::inline_always, reason = "the compiler then knows which field a struct writes")]
    #[inline(always)]
    pub fn put<T: FieldValue>(&mut self, field: &Field, value: &T) {
        value.put(field, self);
    }

    #[allow(clippy::inline_always, reason = "the compiler then knows which field a struct writes")]
    #[inline(always)]
    fn number(&mut self, field: &Field, number: i64) {
        let (min, max) = match &field.of {
            FieldType::Integer(integer) => (integer.min, integer.max),
            _ => (0, u32::MAX.into()),
        };
        let inside = self.limited(number, min, max);
        self.fields.put(field, RawValue::Number(inside));
    }

    #[inline]
    fn limited(&mut self, number: i64, min: i64, max: i64) -> i64 {
        let inside = number.clamp(min, max);
        self.limited += u32::from(inside != number);
        inside
    }
}

impl StateReader<'_> {
    /// The state of these bytes; `None` if they are not one.
    pub fn read<T: State>(state: &[u8]) -> Option<T> {
        let mut reader = StateReader { fields: FieldReader::new(T::FIELDS.len(), state) };
        let state = T::read(&mut reader)?;
        reader.fields.is_finished().then_some(state)
    }

    /// The next field.
    pub fn take<T: FieldValue>(&mut self, field: &Field) -> Option<T> {
        T::from_raw(field, self.fields.next(field)?)
    }
}

/// A type of fields: integers up to 32 bits, `bool`, [`Angle`], `Option<ObjectId>`, `String`, lists and arrays of
/// integers, and enums of [`choice!`](crate::choice).
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{Field, FieldType};
///
/// assert_eq!(Field::new::<bool>("is_open").of, FieldType::Flag);
/// ```
pub trait FieldValue: Sized {
    /// What such a field contains, without options.
    const TYPE: FieldType;
    /// How clients show it.
    const MOTION: Motion = Motion::Step;

    /// Appends the field.
    fn put(&self, field: &Field, out: &mut StateWriter<'_>);

    /// The value of a field of this type.
    fn from_raw(field: &Field, raw: RawValue<'_>) -> Option<Self>;
}

/// An enum without data, as a field. [`choice!`](crate::choice) implements it.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{Choice, choice};
///
/// choice! {
///     /// What a player does.
///     #[derive(Debug, PartialEq)]
///     pub enum Doing { Nothing, Digging }
/// }
/// assert_eq!(Doing::NAMES, ["Nothing", "Digging"]);
/// assert_eq!(Doing::from_index(1), Some(Doing::Digging));
/// ```
pub trait Choice: Sized {
    /// The names of the variants.
    const NAMES: &'static [Cow<'static, str>];

    /// The index of the variant.
    fn index(&self) -> u8;

    /// The variant with this index.
    fn from_index(index: u8) -> Option<Self>;
}

impl<T: Choice> FieldValue for T {
    const TYPE: FieldType = FieldType::Choice(Cow::Borrowed(T::NAMES));

    #[inline]
    fn put(&self, field: &Field, out: &mut StateWriter<'_>) {
        out.fields.put(field, RawValue::Number(self.index().into()));
    }

    fn from_raw(_: &Field, raw: RawValue<'_>) -> Option<Self> {
        let RawValue::Number(index) = raw else { return None };
        T::from_index(u8::try_from(index).ok()?)
    }
}

macro_rules! integer {
    ($type:ty) => {
        Integer { bytes: size_of::<$type>() as u8, min: <$type>::MIN as i64, max: <$type>::MAX as i64 }
    };
}

macro_rules! integers {
    ($($type:ty)*) => { $(
        impl FieldValue for $type {
            const TYPE: FieldType = FieldType::Integer(integer!($type));

            #[inline]
            fn put(&self, field: &Field, out: &mut StateWriter<'_>) {
                out.number(field, (*self).into());
            }

            fn from_raw(_: &Field, raw: RawValue<'_>) -> Option<Self> {
                let RawValue::Number(number) = raw else { return None };
                number.try_into().ok()
            }
        }

        impl FieldValue for Vec<$type> {
            const TYPE: FieldType = FieldType::List { of: integer!($type), count_min: 0, count_max: 16 };

            fn put(&self, field: &Field, out: &mut StateWriter<'_>) {
                put_list(self.iter().map(|number| i64::from(*number)), field, out);
            }

            fn from_raw(field: &Field, raw: RawValue<'_>) -> Option<Self> {
                elements(field, raw)?.map(|number| number.try_into().ok()).collect()
            }
        }

        impl<const N: usize> FieldValue for [$type; N] {
            const TYPE: FieldType =
                FieldType::List { of: integer!($type), count_min: N as u16, count_max: N as u16 };

            #[inline]
            fn put(&self, field: &Field, out: &mut StateWriter<'_>) {
                if matches!(&field.of, FieldType::List { of, .. } if of.is_whole()) {
                    // No element can be outside of its range.
                    let bytes = self.map(<$type>::to_le_bytes);
                    return out.fields.put(field, RawValue::Bytes(bytes.as_flattened()));
                }
                put_list(self.iter().map(|number| i64::from(*number)), field, out);
            }

            fn from_raw(field: &Field, raw: RawValue<'_>) -> Option<Self> {
                let mut numbers = elements(field, raw)?;
                let mut array = [0; N];
                for place in &mut array {
                    *place = numbers.next()?.try_into().ok()?;
                }
                Some(array)
            }
        }
    )* };
}

integers! { u8 i8 u16 i16 u32 i32 }

fn put_list(numbers: impl ExactSizeIterator<Item = i64>, field: &Field, out: &mut StateWriter<'_>) {
    let FieldType::List { of, count_max, .. } = field.of else { return };
    let StateWriter { fields, limited } = out;
    *limited += u32::from(numbers.len() > count_max.into());
    let inside = numbers.take(count_max.into()).map(|number| {
        let inside = number.clamp(of.min, of.max);
        *limited += u32::from(inside != number);
        inside
    });
    fields.put_list(field, inside);
}

fn elements<'a>(field: &Field, raw: RawValue<'a>) -> Option<impl Iterator<Item = i64> + use<'a>> {
    let (FieldType::List { of, .. }, RawValue::Bytes(bytes)) = (&field.of, raw) else { return None };
    let of = *of;
    Some(bytes.chunks_exact(of.bytes.into()).map(move |element| super::layout::read_integer(element, of)))
}

impl FieldValue for bool {
    const TYPE: FieldType = FieldType::Flag;

    #[inline]
    fn put(&self, field: &Field, out: &mut StateWriter<'_>) {
        out.fields.put(field, RawValue::Number((*self).into()));
    }

    fn from_raw(_: &Field, raw: RawValue<'_>) -> Option<Self> {
        Some(raw == RawValue::Number(1))
    }
}

impl FieldValue for Angle {
    /// In 2¹⁶ steps.
    const TYPE: FieldType = FieldType::Integer(integer!(u16));
    const MOTION: Motion = Motion::Angle;

    #[inline]
    fn put(&self, field: &Field, out: &mut StateWriter<'_>) {
        out.number(field, (self.to_bits() >> 16).into());
    }

    fn from_raw(_: &Field, raw: RawValue<'_>) -> Option<Self> {
        let RawValue::Number(steps) = raw else { return None };
        Some(Self::from_bits(u32::from(u16::try_from(steps).ok()?) << 16))
    }
}

impl FieldValue for Option<ObjectId> {
    const TYPE: FieldType = FieldType::Object;

    #[inline]
    fn put(&self, field: &Field, out: &mut StateWriter<'_>) {
        out.fields.put(field, RawValue::Number(self.map_or(0, |id| id.0.into())));
    }

    fn from_raw(_: &Field, raw: RawValue<'_>) -> Option<Self> {
        let RawValue::Number(id) = raw else { return None };
        let id = u32::try_from(id).ok()?;
        Some((id != 0).then_some(ObjectId(id)))
    }
}

impl FieldValue for String {
    const TYPE: FieldType = FieldType::Text { bytes_max: 32 };

    fn put(&self, field: &Field, out: &mut StateWriter<'_>) {
        let FieldType::Text { bytes_max } = field.of else { return };
        // Not inside of a character.
        let end = self.floor_char_boundary(bytes_max.into());
        out.limited += u32::from(end < self.len());
        out.fields.put(field, RawValue::Bytes(&self.as_bytes()[..end]));
    }

    fn from_raw(_: &Field, raw: RawValue<'_>) -> Option<Self> {
        let RawValue::Bytes(bytes) = raw else { return None };
        String::from_utf8(bytes.to_vec()).ok()
    }
}

/// The options of a field in [`state!`](crate::state).
impl Field {
    /// A field of a type.
    pub const fn new<T: FieldValue>(name: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            of: T::TYPE,
            delta_bits: 0,
            per_unit: 1,
            motion: T::MOTION,
            is_optional: false,
        }
    }

    /// The lowest and the highest value; for a list, those of its elements.
    #[must_use]
    pub const fn range(mut self, min: i64, max: i64) -> Self {
        match &mut self.of {
            FieldType::Integer(integer) | FieldType::List { of: integer, .. } => {
                assert!(min <= max, "the lowest value of a range is above its highest");
                assert!(min >= integer.min && max <= integer.max, "the type of the field does not contain its range");
                // Bytes have a sign if the type has one, whatever the range.
                assert!((min < 0) == (integer.min < 0), "the range of a signed field must begin below 0");
                (integer.min, integer.max) = (min, max);
            }
            _ => panic!("only a number or a list has a range"),
        }
        self
    }

    /// The maximum length of a text in bytes, or the maximum number of elements of a list; at most 1,024.
    #[must_use]
    pub const fn max(mut self, count: u16) -> Self {
        assert!(count > 0 && count <= super::LENGTH_MAX, "a maximum length must be 1 to 1,024");
        match &mut self.of {
            FieldType::Text { bytes_max } => *bytes_max = count,
            FieldType::List { count_max, .. } => *count_max = count,
            _ => panic!("only a text or a list has a length"),
        }
        self
    }

    /// Changes from one tick to the next that fit into this number of bits, including the sign, are written as differences.
    /// Others are written as the whole value. Both take one bit more.
    #[must_use]
    pub const fn delta_bits(mut self, bits: u8) -> Self {
        match &self.of {
            FieldType::Integer(integer) => {
                assert!(bits > 0 && (bits as u32) < integer.bits(), "a difference needs fewer bits than the value");
            }
            _ => panic!("only a number has differences"),
        }
        self.delta_bits = bits;
        self
    }

    /// The field is a fixed-point number: clients divide the integer by this.
    #[must_use]
    pub const fn per_unit(mut self, steps: u32) -> Self {
        assert!(steps > 0 && matches!(self.of, FieldType::Integer(_)), "a number needs at least 1 step per unit");
        self.per_unit = steps;
        self
    }

    /// Clients show values between those of two snapshots.
    #[must_use]
    pub const fn linear(mut self) -> Self {
        self.motion = Motion::Linear;
        self
    }

    /// As [`Field::linear`]; the range is one turn.
    #[must_use]
    pub const fn angle(mut self) -> Self {
        self.motion = Motion::Angle;
        self
    }

    /// The state ends before this field if it and all after it are 0 or empty.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    /// The field, if its options fit together in whatever order they were given.
    #[doc(hidden)]
    #[must_use]
    pub const fn checked(self) -> Self {
        match &self.of {
            FieldType::Integer(integer) => {
                let is_small = self.delta_bits == 0 || (self.delta_bits as u32) < integer.bits();
                assert!(is_small, "a difference needs fewer bits than the value");
            }
            FieldType::List { count_min, count_max, .. } => {
                assert!(*count_min <= *count_max, "an array has as many elements as its type says");
            }
            _ => {}
        }
        self
    }
}

/// Declares a kind of objects: a struct with its number, and in brackets the options of a field: the methods of
/// [`Field`](crate::Field).
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{ObjectId, state};
///
/// state! {
///     /// A chest.
///     #[derive(Clone, Debug, PartialEq)]
///     pub struct Chest: 3 {
///         pub is_open: bool,
///         /// In coins.
///         pub value: u16 [range(0, 500), optional()],
///         pub finder: Option<ObjectId> [optional()],
///     }
/// }
/// let chest = Chest { is_open: true, value: 35, finder: Some(ObjectId(17)) };
/// assert_eq!(chest.clone(), chest);
/// ```
///
/// A range that the type does not contain does not compile:
///
/// ```compile_fail
/// # use dunlin_rooms as dunlin_game;
/// dunlin_game::state! {
///     /// A chest.
///     pub struct Chest: 3 {
///         pub value: u8 [range(0, 500)],
///     }
/// }
/// # const _: usize = <Chest as dunlin_game::State>::FIELDS.len();
/// ```
///
/// Neither do differences with as many bits as the values, in whatever order the options come:
///
/// ```compile_fail
/// # use dunlin_rooms as dunlin_game;
/// dunlin_game::state! {
///     /// A chest.
///     pub struct Chest: 3 {
///         pub value: u8 [delta_bits(5), range(0, 20)],
///     }
/// }
/// # const _: usize = <Chest as dunlin_game::State>::FIELDS.len();
/// ```
///
/// A kind has at least one field:
///
/// ```compile_fail
/// # use dunlin_rooms as dunlin_game;
/// dunlin_game::state! {
///     /// Nothing.
///     pub struct Nothing: 4 {}
/// }
/// ```
#[macro_export]
macro_rules! state {
    (
        $(#[$about:meta])*
        $seen:vis struct $name:ident: $kind:literal {
            $(
                $(#[$field_about:meta])*
                $field_seen:vis $field:ident: $type:ty $([$($option:ident($($argument:expr),*)),* $(,)?])?
            ),+ $(,)?
        }
    ) => {
        $(#[$about])*
        $seen struct $name {
            $($(#[$field_about])* $field_seen $field: $type),+
        }

        impl $crate::State for $name {
            const KIND: u16 = $kind;
            const NAME: &'static str = stringify!($name);
            const FIELDS: &'static [$crate::Field] = &[
                $($crate::Field::new::<$type>(stringify!($field)) $($(.$option($($argument),*))*)?.checked()),+
            ];

            #[inline]
            fn write(&self, out: &mut $crate::StateWriter<'_>) {
                let [$($field),+] = Self::FIELDS else { return };
                $(out.put($field, &self.$field);)+
            }

            fn read(state: &mut $crate::StateReader<'_>) -> Option<Self> {
                let [$($field),+] = Self::FIELDS else { return None };
                Some(Self { $($field: state.take($field)?),+ })
            }
        }
    };
}

/// Declares an enum without data that can be a field of [`state!`].
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{choice, state};
///
/// choice! {
///     /// The colour of a traffic light.
///     #[derive(Clone, Copy, Debug, PartialEq, Eq)]
///     pub enum Light { Green, Amber, Red }
/// }
///
/// state! {
///     /// A crossing.
///     pub struct Crossing: 9 {
///         pub light: Light,
///     }
/// }
/// assert_eq!(Crossing { light: Light::Amber }.light, Light::Amber);
/// ```
#[macro_export]
macro_rules! choice {
    ($(#[$about:meta])* $seen:vis enum $name:ident { $($(#[$variant_about:meta])* $variant:ident),* $(,)? }) => {
        $(#[$about])*
        $seen enum $name { $($(#[$variant_about])* $variant),* }

        impl $crate::Choice for $name {
            const NAMES: &'static [::std::borrow::Cow<'static, str>] =
                &[$(::std::borrow::Cow::Borrowed(stringify!($variant))),*];

            fn index(&self) -> u8 {
                let variants = [$(matches!(self, Self::$variant)),*];
                variants.iter().position(|is_it| *is_it).unwrap_or_default() as u8
            }

            fn from_index(index: u8) -> Option<Self> {
                let mut left = index;
                $(if left == 0 { return Some(Self::$variant); } left = left.wrapping_sub(1);)*
                let _ = left;
                None
            }
        }
    };
}
