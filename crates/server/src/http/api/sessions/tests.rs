use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::*;
use crate::http::api::{ApiCommand, Method};

fn parse(method: Method, body: &str) -> Result<SessionsWanted, String> {
    match ApiCommand::parse(method, body.as_bytes(), &RequestLimits::default()).expect("its form") {
        Ok(ApiCommand::Sessions(command)) => Ok(command.0),
        Ok(ApiCommand::Explain(command)) => Ok(command.0),
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert_eq!(error.code(), 107);
            Err(error.message().to_owned())
        }
    }
}

fn query(method: Method, body: &str) -> SessionsQuery {
    parse(method, body).expect("a request").query
}

#[test]
fn numbers_of_sessions_are_bounded() {
    let max = |method, body: &str| query(method, body).sessions_max;
    assert_eq!((max(Method::Sessions, "{}"), max(Method::Explain, "{}")), (LISTED_DEFAULT, EXPLAINED_DEFAULT));
    assert_eq!(max(Method::Sessions, r#"{"limit":1000}"#), LISTED_MAX);
    assert_eq!(max(Method::Explain, r#"{"slowest":100}"#), EXPLAINED_MAX);
    for (method, body, why) in [
        (Method::Sessions, r#"{"limit":0}"#, "limit must be from 1 to 1000"),
        (Method::Sessions, r#"{"limit":1001}"#, "limit must be from 1 to 1000"),
        (Method::Explain, r#"{"slowest":0}"#, "slowest must be from 1 to 100"),
        (Method::Explain, r#"{"slowest":101}"#, "slowest must be from 1 to 100"),
    ] {
        assert_eq!(parse(method, body).expect_err("out of bounds"), format!("bad request: {why}"));
    }
}

#[test]
fn filters_are_absent_or_values() {
    let none = query(Method::Sessions, r#"{"client":null,"user":null,"address":"","channel":""}"#);
    assert_eq!(none, query(Method::Sessions, "{}"));
    assert_eq!((&none.client, &none.user, none.address, &none.channel), (&None, &None, None, &None));
    assert_eq!(query(Method::Sessions, r#"{"user":""}"#).user.as_deref(), Some(""), "the anonymous user");
    let all = query(Method::Explain, r#"{"client":"c","user":"u","address":"::ffff:192.0.2.1","channel":"a:b"}"#);
    assert_eq!(
        (all.client.as_deref(), all.user.as_deref(), all.channel.as_deref()),
        (Some("c"), Some("u"), Some("a:b"))
    );
    assert_eq!(all.address, Some("192.0.2.1".parse().expect("an address")), "in the form of sessions");
    for address in ["192.0.2", "192.0.2.1:80", "localhost", "'; --", "\u{0}"] {
        let body = serde_json::json!({"address": address}).to_string();
        assert_eq!(parse(Method::Sessions, &body).expect_err(address), "bad request: address is not an IP address");
    }
}

#[test]
fn cursors_round_trip_and_other_texts_are_refused() {
    for client in ["c", "a b", "ü"] {
        for behind_since_us in [0, 1, u64::MAX] {
            let place = SessionPlace { behind_since_us, client: client.into() };
            assert_eq!(place_of(&cursor_of(&place)), Some(place));
        }
    }
    for text in ["", "1", "1 2", "1 2 ", "2 2 c", "1 -2 c", "1 x c", "1 18446744073709551616 c"] {
        let body = serde_json::json!({"cursor": URL_SAFE_NO_PAD.encode(text)}).to_string();
        if text.is_empty() {
            assert_eq!(query(Method::Sessions, &body).after, None);
        } else {
            assert_eq!(parse(Method::Sessions, &body).expect_err(text), "bad request: cursor is not from an answer");
        }
    }
    assert!(parse(Method::Sessions, r#"{"cursor":"!"}"#).is_err());
}

#[test]
fn another_node_is_asked_for_the_same_sessions() {
    for (method, body) in [
        (Method::Sessions, "{}"),
        (Method::Sessions, r#"{"user":"","limit":7,"cursor":"MSAyIGM"}"#),
        (Method::Explain, r#"{"client":"c","user":"u","address":"::1","channel":"a","slowest":3}"#),
    ] {
        let wanted = parse(method, body).expect("a request");
        let asked = SessionsWanted::of_question(wanted.to_question()).expect("it is valid");
        assert_eq!((asked.query, asked.is_explained), (wanted.query, wanted.is_explained), "{body}");
    }
    let question = SessionsQuestion { limit: 1_000_000, ..parse(Method::Sessions, "{}").expect("valid").to_question() };
    assert_eq!(SessionsWanted::of_question(question).expect("valid").query.sessions_max, LISTED_MAX);
}
