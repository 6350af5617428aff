//! Permissions, for every combination of the flags, compared with a table of Centrifugo's rules.

use dunlin_engine::{
    Options,
    options::{ClientOptions, NamespaceOptions},
};
use dunlin_protocol::Encoding;
use serde_json::{Value, json};

use crate::node::{Node, wire};

/// All combinations of `N` flags.
fn combinations<const N: usize>() -> impl Iterator<Item = [bool; N]> {
    (0..1_u32 << N).map(|bits| std::array::from_fn(|flag| bits >> flag & 1 == 1))
}

/// A node with a connected client of `user`.
fn connected(user: &str, insecure: bool, namespace: NamespaceOptions) -> Node {
    let client = ClientOptions { insecure, ..ClientOptions::default() };
    let mut node = Node::new(1, Options { client, without_namespace: namespace, ..Options::default() });
    node.open("a", Encoding::Json, 0);
    let reply = request(&mut node, json!({"id": 1, "connect": {"token": format!("user={user}")}}));
    assert!(reply["connect"].is_object(), "{reply}");
    node
}

fn request(node: &mut Node, command: Value) -> Value {
    node.receive("a", wire::commands(Encoding::Json, &[command]));
    let client = node.client("a");
    let mut came = wire::take(client.wire, &mut client.received).into_iter();
    match came.next() {
        Some(wire::Came::Message(reply)) => reply,
        Some(wire::Came::Close(close)) => json!({ "close": close }),
        _ => panic!("no reply"),
    }
}

/// The code of the error reply, if the reply is one.
fn error(reply: &Value) -> Option<u64> {
    assert!(reply.get("close").is_none(), "{reply}");
    reply["error"]["code"].as_u64()
}

#[test]
fn clients_subscribe_as_the_options_permit() {
    for [for_client, for_anonymous, user_limited, insecure] in combinations() {
        for user in ["", "ann"] {
            for (channel, is_private, listed) in [
                ("c", false, None),
                ("$c", true, None),
                ("c#ann", false, Some(true)),
                ("c#bob,ann", false, Some(true)),
                ("c#bob", false, Some(false)),
                ("c#", false, Some(false)),
                ("$c#ann", true, Some(true)),
            ] {
                for has_token in [false, true] {
                    let namespace = NamespaceOptions {
                        allow_subscribe_for_client: for_client,
                        allow_subscribe_for_anonymous: for_anonymous,
                        allow_user_limited_channels: user_limited,
                        ..NamespaceOptions::default()
                    };
                    let mut node = connected(user, insecure, namespace);
                    let token = if has_token { format!("user={user};channel={channel}") } else { String::new() };
                    let reply = request(&mut node, json!({"id": 2, "subscribe": {"channel": channel, "token": token}}));
                    let is_limited = user_limited && listed.is_some();
                    let may = match () {
                        () if is_private && !has_token => false,
                        () if has_token => true,
                        () if is_limited && listed == Some(true) && user == "ann" => true,
                        () if for_client && (for_anonymous || !user.is_empty()) && !is_limited => true,
                        () => insecure,
                    };
                    let case = (channel, user, has_token, for_client, for_anonymous, user_limited, insecure);
                    assert_eq!(error(&reply), (!may).then_some(103), "{case:?}");
                }
            }
        }
    }
}

#[test]
fn clients_publish_and_read_as_the_options_permit() {
    for [for_client, for_subscriber, for_anonymous, insecure, subscribes] in combinations() {
        for user in ["", "ann"] {
            let namespace = NamespaceOptions {
                allow_publish_for_client: for_client,
                allow_publish_for_subscriber: for_subscriber,
                allow_publish_for_anonymous: for_anonymous,
                allow_presence_for_client: for_client,
                allow_presence_for_subscriber: for_subscriber,
                allow_presence_for_anonymous: for_anonymous,
                allow_history_for_client: for_client,
                allow_history_for_subscriber: for_subscriber,
                allow_history_for_anonymous: for_anonymous,
                presence: true,
                history_size: 5,
                history_ttl_ms: 60_000,
                ..NamespaceOptions::default()
            };
            let mut node = connected(user, insecure, namespace);
            if subscribes {
                let token = format!("user={user};channel=c");
                let reply = request(&mut node, json!({"id": 2, "subscribe": {"channel": "c", "token": token}}));
                assert_eq!(error(&reply), None, "{reply}");
            }
            let counts = for_anonymous || !user.is_empty();
            let may = counts && (for_client || for_subscriber && subscribes) || insecure;
            let case = (user, for_client, for_subscriber, for_anonymous, insecure, subscribes);
            for command in [
                json!({"id": 3, "presence": {"channel": "c"}}),
                json!({"id": 3, "presence_stats": {"channel": "c"}}),
                json!({"id": 3, "history": {"channel": "c"}}),
                json!({"id": 3, "publish": {"channel": "c", "data": 1}}),
            ] {
                let reply = request(&mut node, command.clone());
                // A subscriber receives its own publication, before or after the reply.
                let reply = if reply["push"].is_null() { reply } else { json!({}) };
                assert_eq!(error(&reply), (!may).then_some(103), "{command} {case:?}");
            }
        }
    }
}

/// `_for_client` does not open a channel whose name excludes a session.
#[test]
fn channels_closed_by_name_are_open_to_their_subscribers_alone() {
    for [for_client, for_subscriber, user_limited, insecure, subscribes] in combinations() {
        for (channel, user, is_closed_by_name) in [
            ("$c", "ann", true),
            ("$c#ann", "ann", true),
            ("c#bob,eve", "ann", user_limited),
            ("c#", "ann", user_limited),
            ("c#bob,ann", "ann", false),
            ("c#ann", "", user_limited),
            ("c", "", false),
        ] {
            let namespace = NamespaceOptions {
                allow_user_limited_channels: user_limited,
                allow_publish_for_client: for_client,
                allow_publish_for_subscriber: for_subscriber,
                allow_publish_for_anonymous: true,
                allow_presence_for_client: for_client,
                allow_presence_for_subscriber: for_subscriber,
                allow_presence_for_anonymous: true,
                allow_history_for_client: for_client,
                allow_history_for_subscriber: for_subscriber,
                allow_history_for_anonymous: true,
                presence: true,
                history_size: 5,
                history_ttl_ms: 60_000,
                ..NamespaceOptions::default()
            };
            let mut node = connected(user, insecure, namespace);
            if subscribes {
                let token = format!("user={user};channel={channel}");
                let reply = request(&mut node, json!({"id": 2, "subscribe": {"channel": channel, "token": token}}));
                assert_eq!(error(&reply), None, "{reply}");
            }
            let may = subscribes && (for_client || for_subscriber) || for_client && !is_closed_by_name || insecure;
            let case = (channel, user, for_client, for_subscriber, user_limited, insecure, subscribes);
            for command in [
                json!({"id": 3, "presence": {"channel": channel}}),
                json!({"id": 3, "presence_stats": {"channel": channel}}),
                json!({"id": 3, "history": {"channel": channel}}),
                json!({"id": 3, "publish": {"channel": channel, "data": 1}}),
            ] {
                let reply = request(&mut node, command.clone());
                // A subscriber receives its own publication, before or after the reply.
                let reply = if reply["push"].is_null() { reply } else { json!({}) };
                assert_eq!(error(&reply), (!may).then_some(103), "{command} {case:?}");
            }
        }
    }
}

#[test]
fn subscription_features_are_forced_or_requested_and_permitted() {
    for [force_recovery, force_positioning, allow_recovery, allow_positioning, reads, recoverable, positioned] in
        combinations()
    {
        let namespace = NamespaceOptions {
            allow_subscribe_for_client: true,
            allow_history_for_subscriber: reads,
            force_recovery,
            force_positioning,
            allow_recovery,
            allow_positioning,
            history_size: 5,
            history_ttl_ms: 60_000,
            ..NamespaceOptions::default()
        };
        let mut node = connected("ann", false, namespace);
        let wish = json!({"channel": "c", "recoverable": recoverable, "positioned": positioned});
        let reply = request(&mut node, json!({"id": 2, "subscribe": wish}));
        let recovers = force_recovery || recoverable && (allow_recovery || reads);
        let has_position = recovers || force_positioning || positioned && (allow_positioning || reads);
        let got = (reply["subscribe"]["recoverable"] == true, reply["subscribe"]["positioned"] == true);
        assert_eq!(got, (recovers, has_position), "{reply}");
    }
    for [join_leave, force_push, for_subscriber, wishes] in combinations() {
        let namespace = NamespaceOptions {
            allow_subscribe_for_client: true,
            allow_presence_for_subscriber: for_subscriber,
            join_leave,
            force_push_join_leave: force_push,
            ..NamespaceOptions::default()
        };
        let mut node = connected("ann", false, namespace);
        request(&mut node, json!({"id": 2, "subscribe": {"channel": "c", "join_leave": wishes}}));
        node.open("b", Encoding::Json, 0);
        node.client("a").received.clear();
        node.receive("b", wire::commands(Encoding::Json, &[json!({"id": 1, "connect": {"token": "user=bob"}})]));
        node.receive("b", wire::commands(Encoding::Json, &[json!({"id": 2, "subscribe": {"channel": "c"}})]));
        let is_received = !node.client("a").received.is_empty();
        let case = (join_leave, force_push, for_subscriber, wishes);
        assert_eq!(is_received, join_leave && (force_push || wishes && for_subscriber), "{case:?}");
    }
}
