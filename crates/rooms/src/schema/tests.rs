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

#[test]
fn documents_are_schemas_or_refused() {
    let file = include_str!("../../../../schema/vectors/room/schemas.json");
    let file: Value = serde_json::from_str(file).expect("JSON");
    let vectors = file["vectors"].as_array().expect("vectors");
    for vector in vectors {
        let outcome = Schema::from_document(vector["document"].to_string().as_bytes());
        let error = outcome.err().map(|error| format!("{error:?}"));
        assert_eq!(error.as_deref(), vector["error"].as_str(), "{}", vector["name"]);
    }
    assert_eq!(vectors.len(), 55);
    assert_eq!(
        (KINDS_MAX, FIELDS_MAX, LENGTH_MAX),
        (256, 62, 1_024),
        "the vectors are at these limits, and one past them"
    );
}

#[test]
fn a_document_is_limited() {
    let with_name = |bytes: usize| {
        let kind = json!({ "kind": 1, "name": "n".repeat(bytes), "fields": [{ "name": "f", "type": "flag" }] });
        json!({ "kinds": [kind] }).to_string()
    };
    let longest = SCHEMA_BYTES_MAX - with_name(0).len();
    assert_eq!(Schema::from_document(with_name(longest).as_bytes()).map(|schema| schema.document().len()), Ok(65_536));
    assert_eq!(Schema::from_document(with_name(longest + 1).as_bytes()), Err(SchemaError::TooLong));
    // A document with spaces may be shorter when it is written.
    let spaced = with_name(1) + &" ".repeat(SCHEMA_BYTES_MAX);
    assert_eq!(Schema::from_document(spaced.as_bytes()), Err(SchemaError::TooLong));
    let kinds = vec![Kind { number: 1, name: "n".repeat(SCHEMA_BYTES_MAX).into(), fields: Everything::FIELDS.into() }];
    assert_eq!(Schema::of(kinds), Err(SchemaError::TooLong));
}

#[test]
fn a_document_is_the_schema() {
    let schema = Schema::new().with::<Everything>();
    let read = Schema::from_document(schema.document().as_bytes()).expect("its own document");
    assert_eq!(read, schema);
    assert_eq!(Schema::from_document(b"[]"), Err(SchemaError::Malformed));
}

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

#[test]
fn a_field_is_added_at_the_end_of_saved_states() {
    state! {
        struct Chest: 1 {
            name: String [max(9)],
            coins: u16,
        }
    }
    state! {
        struct LaterChest: 1 {
            name: String [max(9)],
            coins: u16,
            is_open: bool [optional()],
        }
    }
    let mut saved = Vec::new();
    StateWriter::write(&Chest { name: "A".into(), coins: 7 }, &mut saved);
    let later = StateReader::read(&saved).map(|LaterChest { name, coins, is_open }| (name, coins, is_open));
    assert_eq!(later, Some(("A".to_owned(), 7, false)));
    // A text that was last has no length, so nothing can follow it.
    state! {
        struct Sign: 2 {
            text: String [max(9)],
        }
    }
    state! {
        struct LaterSign: 2 {
            text: String [max(9)],
            is_lit: bool [optional()],
        }
    }
    saved.clear();
    StateWriter::write(&Sign { text: "way".into() }, &mut saved);
    assert!(StateReader::read::<LaterSign>(&saved).is_none_or(|sign| sign.text != "way" || sign.is_lit));
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

#[test]
fn a_schema_has_up_to_8_distances() {
    let with = |count: u16| {
        (1..=count).fold(Schema::new(), |schema, kind| schema.with_visible_within(kind, u32::from(kind) * 10))
    };
    let full = with(8).with_visible_within(100, 80).with_visible_within(8, 70);
    assert_eq!((full.visible_within(100), full.visible_within(8), full.visible_within(9)), (Some(80), Some(70), None));
    assert!(std::panic::catch_unwind(|| with(9)).is_err());
    assert!(std::panic::catch_unwind(|| Schema::new().with_visible_within(1, 0)).is_err());
}
