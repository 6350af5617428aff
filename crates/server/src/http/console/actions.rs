//! Which methods of the server API the console offers, to whom, and what an action leaves in the log.

use serde_json::Value;

use super::sign_in_cookies::Role;
use crate::http::api::Method;

/// What a method does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It changes nothing.
    Reads,
    /// It changes something, which only operators may, and which is logged.
    Acts,
}

/// What a method does; `None` if the console does not offer it.
pub const fn kind_of(method: Method) -> Option<Kind> {
    match method {
        Method::Info
        | Method::Presence
        | Method::PresenceStats
        | Method::History
        | Method::RoomList
        | Method::RoomInfo
        | Method::Sessions
        | Method::Explain => Some(Kind::Reads),
        Method::Publish
        | Method::HistoryRemove
        | Method::Disconnect
        | Method::Unsubscribe
        | Method::RoomKick
        | Method::RoomLock
        | Method::RoomClose => Some(Kind::Acts),
        _ => None,
    }
}

/// Whether a role may use a method of this kind.
pub fn may(role: Role, kind: Kind) -> bool {
    role == Role::Operator || kind == Kind::Reads
}

/// Fields that say what an action is about. The payload of a publication is not among them.
const NAMING_FIELDS: [&str; 6] = ["channel", "user", "client", "player", "locked", "reason"];

/// What an action is about, from the body of its request: `channel="chat:1" user="ada"`.
pub fn target_of(body: &[u8]) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_slice(body) else { return String::new() };
    let named = NAMING_FIELDS.iter().filter_map(|name| Some(format!("{name}={}", fields.get(*name)?)));
    named.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_only_read() {
        for method in Method::ALL {
            let Some(kind) = kind_of(method) else { continue };
            assert!(may(Role::Operator, kind), "{method:?}");
            assert_eq!(may(Role::Reader, kind), kind == Kind::Reads, "{method:?}");
        }
        let acting = Method::ALL.into_iter().filter(|method| kind_of(*method) == Some(Kind::Acts));
        assert!(acting.clone().any(|method| method == Method::Disconnect) && acting.count() >= 7);
    }

    #[test]
    fn an_action_is_logged_with_what_it_is_about_and_without_payload() {
        let body = br#"{"channel":"chat:\n1","user":"ada","data":{"secret":1},"b64data":"eA==","tags":{"a":"b"}}"#;
        assert_eq!(target_of(body), r#"channel="chat:\n1" user="ada""#);
        assert_eq!(
            target_of(br#"{"channel":"r:1","player":7,"locked":true}"#),
            r#"channel="r:1" player=7 locked=true"#
        );
        for malformed in [&b""[..], b"[]", b"{", b"\xff"] {
            assert_eq!(target_of(malformed), "");
        }
    }
}
