use proptest::{collection::vec, option, prelude::*};
use serde_json::{Value, json};

use super::*;
use crate::{Angle, ObjectId, choice, state};

choice! {
    /// A choice.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Colour { Red, Green, Blue }
}

state! {
    /// A field of each type.
    #[derive(Clone, Debug, PartialEq)]
    struct Everything: 7 {
        small: u8,
        signed: i32 [range(-70_000, 70_000), delta_bits(4), per_unit(100), linear()],
        is_on: bool,
        colour: Colour,
        object: Option<ObjectId>,
        turn: Angle,
        text: String [max(300)],
        three: [i16; 3],
        list: Vec<u16> [range(1, 1_000), max(5)],
        late: u32 [optional()],
        last: Vec<u8> [max(1_024), optional()],
    }
}

fn document(kinds: &[Value]) -> Result<Schema, SchemaError> {
    Schema::from_document(json!({ "kinds": kinds }).to_string().as_bytes())
}

fn kind(number: usize, fields: &[Value]) -> Value {
    json!({ "kind": number, "name": "K", "fields": fields })
}

fn flag(name: usize) -> Value {
    json!({ "name": name.to_string(), "type": "flag" })
}

#[test]
fn a_schema_is_limited() {
    let fields = |count| (0..count).map(flag).collect::<Vec<_>>();
    let kinds = |count| (0..count).map(|number| kind(number, &fields(1))).collect::<Vec<_>>();
    let text = |bytes: u16| json!({ "name": "t", "type": "text", "count_max": bytes });
    let list = |count: u16| json!({ "name": "l", "type": "list", "bytes": 1, "min": 0, "max": 9, "count_min": 0, "count_max": count });
    for (kinds, outcome) in [
        (kinds(KINDS_MAX), Ok(KINDS_MAX)),
        (kinds(KINDS_MAX + 1), Err(SchemaError::Kinds)),
        (vec![kind(1, &fields(1)), kind(1, &fields(1))], Err(SchemaError::Kinds)),
        (vec![kind(1, &fields(FIELDS_MAX))], Ok(1)),
        (vec![kind(1, &fields(FIELDS_MAX + 1))], Err(SchemaError::Fields)),
        (vec![kind(1, &[])], Err(SchemaError::Fields)),
        (vec![kind(1, &[flag(1), flag(1)])], Err(SchemaError::Fields)),
        (vec![kind(1, &[text(LENGTH_MAX)])], Ok(1)),
        (vec![kind(1, &[text(LENGTH_MAX + 1)])], Err(SchemaError::Length)),
        (vec![kind(1, &[text(0)])], Err(SchemaError::Length)),
        (vec![kind(1, &[list(LENGTH_MAX)])], Ok(1)),
        (vec![kind(1, &[list(LENGTH_MAX + 1)])], Err(SchemaError::Length)),
        (vec![json!({ "kind": 65_536, "name": "K", "fields": [flag(1)] })], Err(SchemaError::Malformed)),
    ] {
        assert_eq!(document(&kinds).map(|schema| schema.kinds().len()), outcome);
    }
}

#[test]
fn a_field_is_possible_or_refused() {
    let integer = |bytes: u8, min: i64, max: i64| json!({ "name": "n", "type": "integer", "bytes": bytes, "min": min, "max": max });
    let with = |mut field: Value, name: &str, value: Value| {
        field[name] = value;
        field
    };
    for (field, outcome) in [
        (integer(1, 0, 255), Ok(())),
        (integer(1, 0, 256), Err(SchemaError::Range)),
        (integer(1, -128, 127), Ok(())),
        (integer(1, -129, 0), Err(SchemaError::Range)),
        (integer(1, -1, 128), Err(SchemaError::Range)),
        (integer(4, 0, u32::MAX.into()), Ok(())),
        (integer(4, 0, 1 << 32), Err(SchemaError::Range)),
        (integer(4, i32::MIN.into(), i32::MAX.into()), Ok(())),
        (integer(3, 0, 1), Err(SchemaError::Range)),
        (integer(1, 2, 1), Err(SchemaError::Range)),
        (with(integer(1, 0, 255), "delta_bits", 7.into()), Ok(())),
        (with(integer(1, 0, 255), "delta_bits", 8.into()), Err(SchemaError::Delta)),
        (with(flag(1), "delta_bits", 1.into()), Err(SchemaError::Delta)),
        (with(integer(1, 0, 255), "per_unit", 0.into()), Err(SchemaError::Delta)),
        (with(integer(1, 0, 5), "optional", true.into()), Ok(())),
        (with(integer(1, 1, 5), "optional", true.into()), Err(SchemaError::Optional)),
        (json!({ "name": "c", "type": "choice", "names": vec!["n"; 256] }), Ok(())),
        (json!({ "name": "c", "type": "choice", "names": vec!["n"; 257] }), Err(SchemaError::Choice)),
        (json!({ "name": "c", "type": "choice" }), Err(SchemaError::Choice)),
        (json!({ "name": "n", "type": "integer", "bytes": 1 }), Err(SchemaError::Malformed)),
        (json!({ "name": "n", "type": "number" }), Err(SchemaError::Malformed)),
    ] {
        assert_eq!(document(&[kind(1, std::slice::from_ref(&field))]).map(drop), outcome, "{field}");
    }
}

#[test]
fn a_document_is_the_schema() {
    let schema = Schema::new().with::<Everything>();
    let read = Schema::from_document(schema.document().as_bytes()).expect("its own document");
    assert_eq!((&read, read.hash()), (&schema, schema.hash()));
    assert_ne!(schema.hash(), Schema::new().hash());
    assert_eq!(Schema::from_document(b"[]"), Err(SchemaError::Malformed));
    // The hash is stable: clients may keep a schema by it.
    assert_eq!(document(&[kind(1, &[flag(1)])]).map(|schema| schema.hash()), Ok(HASH));
}

/// Of a schema with one kind and one flag.
const HASH: u64 = 13_624_839_571_016_773_025;

#[test]
fn values_outside_of_their_ranges_are_limited_and_counted() {
    let wrong = Everything {
        small: 1,
        signed: -70_001,
        is_on: false,
        colour: Colour::Red,
        object: None,
        turn: Angle::HALF,
        text: "ä".repeat(151),
        three: [0; 3],
        list: vec![0, 1, 1_000, 1_001, 5, 6],
        late: 0,
        last: Vec::new(),
    };
    let mut bytes = Vec::new();
    assert_eq!(StateWriter::write(&wrong, &mut bytes), 5);
    let read: Everything = StateReader::read(&bytes).expect("it was limited");
    assert_eq!((read.signed, read.text.len(), read.list), (-70_000, 300, vec![1, 1, 1_000, 1_000, 5]));
}

prop_compose! {
    fn everything()(
        small: u8, signed in -70_000..=70_000_i32, is_on: bool, colour in 0..3_u8,
        object in option::of(1..u32::MAX), turn: u16, text in "[a-zäß🎲]{0,70}", three: [i16; 3],
        list in vec(1..=1_000_u16, 0..=5), (late, last) in (prop_oneof![Just(0), any::<u32>()], vec(any::<u8>(), 0..20)),
    ) -> Everything {
        let (colour, object) = (Colour::from_index(colour).expect("one of three"), object.map(ObjectId));
        let turn = Angle::from_bits(u32::from(turn) << 16);
        Everything { small, signed, is_on, colour, object, turn, text, three, list, late, last }
    }
}

proptest! {
    #[test]
    fn a_state_is_read_as_it_was_written(state in everything()) {
        let mut bytes = Vec::new();
        prop_assert_eq!(StateWriter::write(&state, &mut bytes), 0);
        prop_assert_eq!(StateReader::read::<Everything>(&bytes), Some(state));
    }

    /// Bytes are read as a state only if that state is written as these bytes.
    #[test]
    fn a_state_has_one_form(state in everything(), place: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut bytes = Vec::new();
        StateWriter::write(&state, &mut bytes);
        let place = place.index(bytes.len());
        bytes[place] = byte;
        bytes.truncate(bytes.len() - cut.index(3));
        if let Some(read) = StateReader::read::<Everything>(&bytes) {
            let mut again = Vec::new();
            prop_assert_eq!(StateWriter::write(&read, &mut again), 0);
            prop_assert_eq!(again, bytes);
        }
    }
}
