//! Compares the crate's codes with `schema/codes.json`, which other languages read.

use dunlin_protocol::{Disconnect, ErrorCode, UnsubscribeCode};
use serde_json::{Value, json};

#[test]
fn codes_are_those_of_the_schema() {
    let mut schema: Value = serde_json::from_str(include_str!("../../../schema/codes.json")).unwrap();
    for row in schema.as_object_mut().unwrap().values_mut().flat_map(|rows| rows.as_array_mut().unwrap()) {
        let meaning = row.as_object_mut().unwrap().remove("meaning");
        assert!(meaning.is_some_and(|meaning| !meaning.as_str().unwrap().is_empty()), "{row} has no meaning");
    }
    let errors = ErrorCode::ALL.iter().map(|error| {
        let name = snake_case(&format!("{error:?}"));
        json!({"code": error.code(), "name": name, "message": error.message(), "temporary": error.temporary()})
    });
    let disconnects = Disconnect::ALL.iter().map(|disconnect| {
        let Disconnect { code, reason } = disconnect;
        let name = disconnect.name().to_lowercase();
        json!({"code": code, "name": name, "reason": reason, "reconnects": disconnect.reconnects()})
    });
    let unsubscribes = UnsubscribeCode::ALL.iter().map(|code| {
        let name = code.name().to_lowercase();
        json!({"code": code.0, "name": name, "reason": code.reason(), "resubscribes": code.resubscribes()})
    });
    assert_eq!(schema["errors"], errors.collect::<Value>());
    assert_eq!(schema["disconnects"], disconnects.collect::<Value>());
    assert_eq!(schema["unsubscribes"], unsubscribes.collect::<Value>());
}

/// RFC 6455, section 5.5: a control frame carries at most 125 bytes, including the close code of two bytes.
#[test]
fn reasons_fit_a_close_frame() {
    for disconnect in Disconnect::ALL {
        assert!(disconnect.reason.len() <= 123, "{disconnect:?}");
    }
}

#[test]
fn ranges_define_whether_a_client_reconnects() {
    let disconnect = |code| Disconnect { code, reason: "of the application".into() };
    for (code, reconnects) in [
        (2999, false),
        (3000, true),
        (3499, true),
        (3500, false),
        (3999, false),
        (4000, true),
        (4499, true),
        (4500, false),
        (4999, false),
        (5000, true),
        (u16::MAX, true),
    ] {
        assert_eq!(disconnect(code).reconnects(), reconnects, "{code}");
    }
    assert!(!UnsubscribeCode(2499).resubscribes());
    assert!(UnsubscribeCode(2500).resubscribes());
}

#[test]
fn applications_have_the_codes_from_3000_to_4999() {
    for (code, expected) in [
        (0, None),
        (2_999, None),
        (3_000, Some(3_000)),
        (4_999, Some(4_999)),
        (5_000, None),
        (65_536 + 3_000, None),
        (u32::MAX, None),
    ] {
        assert_eq!(Disconnect::code_for_applications(code), expected, "{code}");
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
