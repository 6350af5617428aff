//! The bytes that nodes exchange. A node of the previous release sends and understands these, so a change here breaks a
//! rolling restart.

use std::sync::Arc;

use dunlin_engine::event::PeerKey;
use dunlin_protocol::{ClientInfo, Payload, Publication};

use super::*;
use crate::http::api::{Method, RequestLimits, cluster::merge::PresenceUsers, result, result::to_outcome};

/// A line for each message: its name and its bytes.
const GOLDEN: &str = include_str!("golden.txt");

/// The questions of the server API, as an application asks them.
const COMMANDS: [(&str, Method, &str); 15] = [
    ("presence", Method::Presence, r#"{"channel":"chat:1"}"#),
    ("presence_users", Method::PresenceStats, r#"{"channel":"chat:\"é"}"#),
    ("channels", Method::Channels, r#"{"pattern":"chat:*"}"#),
    ("channels all", Method::Channels, "{}"),
    ("info", Method::Info, "{}"),
    ("rooms", Method::Rooms, "{}"),
    (
        "room_list",
        Method::RoomList,
        r#"{"namespace":"","pattern":"a*","locked":false,"min_free_places":3,"metadata":{"mode":["ice",1.5,null]},
        "include_unlisted":true,"limit":7,"cursor":"MSBuIGFyZW5hOjE"}"#,
    ),
    ("room_list all", Method::RoomList, "{}"),
    ("channel_rooms", Method::RoomInfo, r#"{"channel":"arena:1"}"#),
    (
        "disconnect",
        Method::Disconnect,
        r#"{"user":"u","client":"c","session":"s","whitelist":["x","y"],"disconnect":{"code":4000,"reason":"why \"not\""}}"#,
    ),
    ("disconnect anonymous", Method::Disconnect, r#"{"user":""}"#),
    ("unsubscribe", Method::Unsubscribe, r#"{"user":"u","channel":"chat:1","client":"c"}"#),
    (
        "subscribe",
        Method::Subscribe,
        r#"{"user":"u","channel":"c","expire_at":1900000000.25,"info":{ "a" : [1] },"b64data":"AAH/","client":"c",
        "session":"s","recover_since":{"offset":7,"epoch":"e"},"override":{"presence":{"value":true},
        "join_leave":{"value":false},"force_push_join_leave":{"value":true},"force_recovery":{"value":true}}}"#,
    ),
    ("subscribe bare", Method::Subscribe, r#"{"user":"u","channel":"c","expire_at":1900000000}"#),
    ("refresh", Method::Refresh, r#"{"user":"u","expired":true,"expire_at":5,"info":{"b": 2}}"#),
];

fn questions() -> Vec<(String, Bytes)> {
    let of_command = |(name, method, body): (&str, Method, &str)| {
        let command = ApiCommand::parse(method, body.as_bytes(), &RequestLimits::default());
        let command = command.expect("it is JSON").expect("it is valid");
        (name.to_owned(), SharedCommand::of(&command).expect("it is for all nodes").call.encode())
    };
    let mut questions: Vec<_> = COMMANDS.into_iter().map(of_command).collect();
    for method in [calls::NEWEST_KEYS, calls::ROOM_STATE] {
        questions.push((method.to_owned(), PeerCall::of_channel(method, "c").encode()));
    }
    let body = calls::EmulateBody { session: "n.s".into(), b64data: "AAH/".into() };
    questions.push((calls::EMULATE.to_owned(), PeerCall::new(calls::EMULATE, &body).encode()));
    questions
}

fn client() -> ClientInfo {
    ClientInfo {
        user: "u\"".into(),
        client: "c".into(),
        conn_info: Some(Payload::from_json(Bytes::from_static(b"{ \"a\": 1 }"))),
        chan_info: Some(Payload::from_opaque(Bytes::from_static(&[0, 255]))),
    }
}

fn keys() -> Vec<PeerKey> {
    let publication = Publication {
        data: Payload::from_json(Bytes::from_static(b"{\"p\":1}")),
        info: Some(Arc::new(client())),
        offset: 0,
        tags: vec![("symbol".into(), "é".into())].into(),
        time_ms: 0,
        epoch: Box::default(),
        version: 0,
    };
    vec![PeerKey { publication: Arc::new(publication), age_us: 7 }]
}

fn answers() -> Vec<(String, Bytes)> {
    let info = client();
    let presence = [("c", result::ClientJson::new(&info))].into();
    let channels = [("c".into(), result::ChannelJson { num_clients: 2 })].into();
    let state = |json: &str| Ok(RawValue::from_string(json.to_owned()).expect("it is JSON"));
    let answers = [
        ("presence", to_outcome(&result::PresenceJson { presence })),
        ("presence_users", to_outcome(&PresenceUsers { num_clients: 3, users: [1, u64::MAX].into() })),
        ("channels", to_outcome(&result::ChannelsJson { channels })),
        ("info", state(r#"{"nodes":[{"uid":"n","name":"one"}]}"#)),
        ("rooms", state(r#"{"rooms":{"r:1":{"tick":1}}}"#)),
        ("room_list", state(r#"{"rooms":[{"channel":"r:1","node":{"uid":"n","name":""}}],"more":"x"}"#)),
        ("channel_rooms", to_outcome(&merge::ChannelRooms { rooms: Vec::new() })),
        ("newest_keys", Ok(dunlin_cluster::keys::encode(&keys(), 4_096))),
        ("room_state", room_state::golden()),
        ("emulate", to_outcome(&calls::EmulateResult { taken: true })),
        ("done", to_outcome(&result::EmptyJson {})),
        ("error", Err(ApiError::NOT_FOUND)),
        ("error with a reason", Err(ApiError::bad_request("no"))),
    ];
    answers.into_iter().map(|(name, outcome)| (name.to_owned(), PeerReply::new(outcome).encode())).collect()
}

fn lines(kind: &str, messages: Vec<(String, Bytes)>) -> String {
    messages.iter().map(|(name, bytes)| format!("{kind} {name}: {}\n", String::from_utf8_lossy(bytes))).collect()
}

#[test]
fn messages_between_nodes_keep_their_bytes() {
    let found = lines("question", questions()) + &lines("answer", answers());
    assert_eq!(found, GOLDEN, "a node of the previous release does not understand these\n{found}");
}
