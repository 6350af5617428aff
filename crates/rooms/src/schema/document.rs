//! The schema as a JSON document.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

use super::{Field, FieldType, Integer, Kind, Motion};

/// Why a schema is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaError {
    /// It is not a document of a schema.
    Malformed,
    /// Its document is longer than 64 KiB.
    TooLong,
    /// A kind is declared twice, or there are too many.
    Kinds,
    /// A kind has no fields or too many, or two of the same name.
    Fields,
    /// A field after an optional one cannot be left out, because 0 is not in its range.
    Optional,
    /// The range of a field is empty, or does not fit into its bytes.
    Range,
    /// The maximum length of a text or list is 0 or above 1,024.
    Length,
    /// A choice has no names, or more than 256.
    Choice,
    /// The differences of a field have as many bits as its values or more, or it has 0 steps per unit.
    Delta,
}

#[derive(Deserialize, Serialize)]
struct Document<'a> {
    #[serde(borrow)]
    kinds: Vec<KindForm<'a>>,
}

#[derive(Deserialize, Serialize)]
struct KindForm<'a> {
    kind: u16,
    #[serde(borrow)]
    name: Cow<'a, str>,
    fields: Vec<FieldForm<'a>>,
}

#[derive(Deserialize, Serialize)]
struct FieldForm<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(rename = "type")]
    of: TypeForm,
    #[serde(default, skip_serializing_if = "is_zero")]
    bytes: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count_min: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count_max: Option<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    delta_bits: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    per_unit: Option<u32>,
    #[serde(default, skip_serializing_if = "is_step")]
    motion: MotionForm,
    #[serde(default, skip_serializing_if = "is_false")]
    optional: bool,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum TypeForm {
    Integer,
    Flag,
    Choice,
    Object,
    Text,
    List,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum MotionForm {
    #[default]
    Step,
    Linear,
    Angle,
}

// `serde` passes references.

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_step(motion: &MotionForm) -> bool {
    matches!(motion, MotionForm::Step)
}

pub(super) fn write(kinds: &[Kind]) -> String {
    let kinds = kinds.iter().map(|kind| KindForm {
        kind: kind.number,
        name: Cow::Borrowed(&kind.name),
        fields: kind.fields.iter().map(form_of).collect(),
    });
    // Strings and numbers can always be written.
    serde_json::to_string(&Document { kinds: kinds.collect() }).unwrap_or_default()
}

pub(super) fn read(document: &[u8]) -> Result<Vec<Kind>, SchemaError> {
    let Document { kinds } = serde_json::from_slice(document).map_err(|_| SchemaError::Malformed)?;
    let read_kind = |kind: KindForm<'_>| {
        let fields: Option<Vec<Field>> = kind.fields.into_iter().map(field_of).collect();
        Some(Kind { number: kind.kind, name: Cow::Owned(kind.name.into_owned()), fields: Cow::Owned(fields?) })
    };
    kinds.into_iter().map(read_kind).collect::<Option<_>>().ok_or(SchemaError::Malformed)
}

fn form_of(field: &Field) -> FieldForm<'_> {
    let mut form = FieldForm {
        name: Cow::Borrowed(&field.name),
        of: TypeForm::Flag,
        bytes: 0,
        min: None,
        max: None,
        count_min: None,
        count_max: None,
        names: Vec::new(),
        delta_bits: field.delta_bits,
        per_unit: (field.per_unit != 1).then_some(field.per_unit),
        motion: match field.motion {
            Motion::Step => MotionForm::Step,
            Motion::Linear => MotionForm::Linear,
            Motion::Angle => MotionForm::Angle,
        },
        optional: field.is_optional,
    };
    let mut set_integer =
        |integer: &Integer| (form.bytes, form.min, form.max) = (integer.bytes, Some(integer.min), Some(integer.max));
    match &field.of {
        FieldType::Integer(integer) => {
            set_integer(integer);
            form.of = TypeForm::Integer;
        }
        FieldType::Flag => {}
        FieldType::Choice(names) => {
            form.of = TypeForm::Choice;
            form.names = names.iter().map(ToString::to_string).collect();
        }
        FieldType::Object => form.of = TypeForm::Object,
        FieldType::Text { bytes_max } => (form.of, form.count_max) = (TypeForm::Text, Some(*bytes_max)),
        FieldType::List { of, count_min, count_max } => {
            set_integer(of);
            (form.of, form.count_min, form.count_max) = (TypeForm::List, Some(*count_min), Some(*count_max));
        }
    }
    form
}

fn field_of(form: FieldForm<'_>) -> Option<Field> {
    let integer = || Some(Integer { bytes: form.bytes, min: form.min?, max: form.max? });
    let of = match form.of {
        TypeForm::Integer => FieldType::Integer(integer()?),
        TypeForm::Flag => FieldType::Flag,
        TypeForm::Choice => FieldType::Choice(form.names.into_iter().map(Cow::Owned).collect()),
        TypeForm::Object => FieldType::Object,
        TypeForm::Text => FieldType::Text { bytes_max: form.count_max? },
        TypeForm::List => FieldType::List { of: integer()?, count_min: form.count_min?, count_max: form.count_max? },
    };
    Some(Field {
        name: Cow::Owned(form.name.into_owned()),
        of,
        delta_bits: form.delta_bits,
        per_unit: form.per_unit.unwrap_or(1),
        motion: match form.motion {
            MotionForm::Step => Motion::Step,
            MotionForm::Linear => Motion::Linear,
            MotionForm::Angle => Motion::Angle,
        },
        is_optional: form.optional,
    })
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "it is not a schema",
            Self::TooLong => "its document is longer than 64 KiB",
            Self::Kinds => "a kind is declared twice, or there are more than 256",
            Self::Fields => "a kind must have 1 to 62 fields with different names",
            Self::Optional => "an optional field and all after it must allow 0 or an empty value",
            Self::Range => "a range must not be empty, and must fit into the bytes of its field",
            Self::Length => "a text or a list must have a maximum length of 1 to 1,024",
            Self::Choice => "a choice must have 1 to 256 names",
            Self::Delta => "delta_bits must be fewer than the bits of the value, and per_unit at least 1",
        })
    }
}

impl std::error::Error for SchemaError {}
