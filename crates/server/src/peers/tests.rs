//! The bytes that nodes exchange. A node of the previous release sends and understands these, so a change here breaks a
//! rolling restart.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_engine::{
    access_rules::{AccessRule, AccessSubject, AccessTerms, SubjectKind},
    api::{ApiRequest, PlaceReservation, SessionFilter},
    backend::Overrides,
    event::{PeerKey, ServerSubscription, SubscriptionGrant},
    pace::{BytePace, PaceChange, UpdatePace},
};
use dunlin_matchmaking::{HandedTicket, Initiator, MatchCriteria, MatchRefusal, OpenFailure, TicketId, TicketRequest};
use dunlin_protocol::{ClientInfo, Disconnect, Payload, Publication};
use serde::Serialize;
use serde_json::{json, value::to_raw_value};

use super::{
    kinds::{EmulateAnswer, EmulateOrder, METHODS, NewestKeys},
    message::{AnswerFault, NotUnderstood, decode_answer, decode_question, encode_answer, encode_question},
    rooms::{PeerRoomState, RoomAddress, RoomStateAnswer, RoomStateQuestion},
    *,
};
use crate::{
    matchmaking::{
        HandedTickets, NamedTicket, RoomSummary, TakenTickets, TicketAnswer, TicketCommand, TicketFault, TicketName,
        TicketRequester, TicketTarget, Verdicts,
    },
    node::SourceNetwork,
    webhooks::Cursor,
};

/// A line for each message: its name and its bytes.
const GOLDEN: &str = include_str!("golden.txt");

#[test]
fn commands_for_a_session_of_another_node_print_no_secret() {
    let order = EmulateOrder { session: "n.hunter2".into(), commands: b"hunter2".to_vec() };
    let printed = format!("{order:?} {:?}", arrived(&order));
    assert!(!printed.contains("hunter2") && !printed.contains("104, 117"), "{printed}");
    assert!(printed.contains("bytes: 7"), "{printed}");
}

/// A question as another node receives it.
pub(crate) fn arrived<Q: Question>(question: &Q) -> Received {
    decode_question(&encode_question(question)).expect("it was encoded here")
}

/// The messages of a kind, by name.
struct Messages(Vec<(&'static str, Bytes)>);

impl Messages {
    fn question<Q: Question>(&mut self, name: &'static str, question: &Q) {
        let bytes = encode_question(question);
        let again: Q = match serde_json::from_slice::<serde_json::Value>(&bytes) {
            Ok(mut message) => serde_json::from_str(&message["params"].take().to_string()).expect(name),
            Err(error) => panic!("{name}: {error}"),
        };
        assert_eq!(json!(again), json!(question), "{name}");
        decode_question(&bytes).expect(name);
        self.0.push((name, bytes));
    }

    fn answer<Q: Question>(&mut self, name: &'static str, answer: &Q::Answer) {
        let bytes = encode_answer(Ok(to_raw_value(answer).expect("an answer is JSON")));
        let read = decode_answer::<Q>(&bytes).expect(name);
        assert_eq!(encode_answer(Ok(to_raw_value(&read).expect("it is JSON"))), bytes, "{name} is read and written");
        self.0.push((name, bytes));
    }

    fn lines(&self, kind: &str) -> String {
        let line =
            |(name, bytes): &(&str, Bytes)| [kind, " ", name, ": ", &String::from_utf8_lossy(bytes), "\n"].concat();
        self.0.iter().map(line).collect()
    }
}

fn only(client: Option<&str>, session: Option<&str>) -> SessionFilter {
    SessionFilter { client: client.map(Into::into), session: session.map(Into::into) }
}

fn subscription(grant: SubscriptionGrant, recover_since: Option<(u64, Box<str>)>) -> ServerSubscription {
    ServerSubscription { channel: "c".into(), grant, recover_since, from_token: false }
}

fn payload(json: &'static str) -> Payload {
    Payload::from_json(Bytes::from_static(json.as_bytes()))
}

fn full_subscription() -> ServerSubscription {
    let overrides = Overrides {
        presence: Some(true),
        join_leave: Some(false),
        force_push_join_leave: Some(true),
        force_positioning: None,
        force_recovery: Some(true),
    };
    let grant = SubscriptionGrant {
        info: Some(payload(r#"{ "a" : [1] }"#)),
        data: Some(Payload::from_opaque(Bytes::from_static(&[0, 1, 255]))),
        expires_at_ms: Some(1_900_000_000_250),
        overrides,
    };
    subscription(grant, Some((7, "e".into())))
}

fn room_lists() -> [RoomListQuestion; 2] {
    let all = RoomListQuestion {
        cursor: "".into(),
        include_unlisted: false,
        limit: 100,
        locked: None,
        metadata: serde_json::Map::new(),
        min_free_places: 0,
        namespace: None,
        pattern: "".into(),
    };
    let some = RoomListQuestion {
        cursor: "MSBuIGFyZW5hOjE".into(),
        include_unlisted: true,
        limit: 7,
        locked: Some(false),
        metadata: [("mode".to_owned(), json!(["ice", 1.5, null]))].into_iter().collect(),
        min_free_places: 3,
        namespace: Some("".into()),
        pattern: "a*".into(),
    };
    [some, all]
}

fn sessions() -> [SessionsQuestion; 2] {
    let every = SessionsQuestion {
        address: None,
        channel: None,
        client: None,
        cursor: "".into(),
        explained: false,
        limit: 100,
        user: None,
    };
    let some = SessionsQuestion {
        address: Some("::1".into()),
        channel: Some("chat:\"é".into()),
        client: Some("c".into()),
        cursor: "MSAyIGM".into(),
        explained: true,
        limit: 7,
        user: Some("".into()),
    };
    [some, every]
}

fn rule(kind: SubjectKind, name: &str) -> AccessRule {
    let terms = AccessTerms { changed_ms: 1_700_000_000_001, before_ms: u64::MAX, until_ms: 1_800_000_000_000 };
    AccessRule { subject: AccessSubject { kind, name: name.into() }, terms }
}

fn questions() -> Messages {
    let mut all = Messages(Vec::new());
    all.question("presence", &PresenceQuestion { channel: "chat:1".into() });
    all.question("presence_users", &PresenceUsersQuestion { channel: "chat:\"é".into() });
    all.question("channels", &ChannelsQuestion { pattern: "chat:*".into() });
    all.question("channels all", &ChannelsQuestion { pattern: "".into() });
    let page = ChannelPageQuestion { cursor: "chat:1".into(), largest: false, limit: 7, pattern: "chat:*".into() };
    all.question("channel_page", &page);
    all.question("channel_counts", &ChannelCountsQuestion { channels: ["chat:\"é".into()].into() });
    all.question("info", &InfoQuestion {});
    all.question("status", &StatusQuestion {});
    all.question("rooms", &RoomsQuestion {});
    let [some, every] = room_lists();
    all.question("room_list", &some);
    all.question("room_list all", &every);
    let [some, every] = sessions();
    all.question("sessions", &some);
    all.question("sessions all", &every);
    all.question("channel_rooms", &ChannelRoomsQuestion { channel: "arena:1".into() });
    let close = Disconnect { code: 4_000, reason: "why \"not\"".into() };
    let whitelist = ["x".into(), "y".into()];
    all.question("disconnect", &DisconnectOrder::new("u", &only(Some("c"), Some("s")), &whitelist, &close));
    let close = Disconnect::FORCE_NO_RECONNECT;
    all.question("disconnect anonymous", &DisconnectOrder::new("", &only(None, None), &[], &close));
    all.question("unsubscribe", &UnsubscribeOrder::new("chat:1", "u", &only(Some("c"), None)));
    all.question("subscribe", &SubscribeOrder::new("u", &only(Some("c"), Some("s")), &full_subscription()));
    let bare = SubscriptionGrant { expires_at_ms: Some(1_900_000_000_000), ..SubscriptionGrant::default() };
    all.question("subscribe bare", &SubscribeOrder::new("u", &only(None, None), &subscription(bare, None)));
    let info = payload(r#"{"b": 2}"#);
    all.question("refresh", &RefreshOrder::new("u", &only(None, None), true, Some(5_000), Some(&info)));
    let update_pace = UpdatePace::from_updates_per_second(2.5).ok();
    let change = PaceChange::Subscription { channel: "chat:1".into(), pace: update_pace };
    all.question("pace", &PaceOrder::new("u", &only(Some("c"), None), &change));
    let change = PaceChange::Session(BytePace::from_bytes_per_second(20_000.0).ok());
    all.question("pace of a session", &PaceOrder::new("u", &only(None, Some("s")), &change));
    all.question("pace ended", &PaceOrder::new("", &only(None, None), &PaceChange::Session(None)));
    let rules = [rule(SubjectKind::User, "u\""), rule(SubjectKind::Token, "t"), rule(SubjectKind::TokensOf, "é")];
    all.question("access", &AccessOrder::new(&rules));
    all.question("access_rules", &AccessQuestion::new(u64::MAX, 1_700_000_000_002, None));
    all.question("access_rules after", &AccessQuestion::new(7, 0, Some(&rules[2].subject)));
    all.question("recordings", &RecordingsQuestion { channel: "arena:1".into(), find: "\"é".into() });
    let part = RecordingPartQuestion { file: "arena_1-5.dunlin-room".into(), offset: u64::MAX };
    all.question("recording_part", &part);
    all.question("newest_keys", &NewestKeysQuestion { channel: "c".into() });
    all.question("room_state", &RoomStateQuestion { channel: "c".into() });
    all.question("close_room", &CloseRoomOrder { channel: "c".into() });
    let at = |version, begun| Cursor { version, begun };
    let cursors = [("n".into(), at(7, 0)), ("m".into(), at(0, 0))].into();
    all.question("occupancy", &OccupancyQuestion::new("n1", &cursors));
    let cursors = [("n".into(), at(7, 9)), ("m".into(), at(8, 0))].into();
    all.question("occupancy in a full report", &OccupancyQuestion::new("n1", &cursors));
    all.question("emulate", &EmulateOrder { session: "n.s".into(), commands: vec![0, 1, 255] });
    for (name, command) in ticket_commands() {
        all.question(name, &TicketOrder::new(&command));
    }
    all.question("match_hand_over", &HandOverOrder::new(Some("n".into()), "arena", &[named_ticket()]));
    all.question("match_hand_over of a node that stays", &HandOverOrder::new(None, "", &[]));
    all.question("match_rooms", &MatchRoomsQuestion::after("arena:1"));
    let other = TicketName { boot: 1, ..ticket_name() };
    let verdicts = Verdicts { settled: vec![ticket_name()], unknown: vec![other] };
    all.question("match_rooms with tickets", &MatchRoomsQuestion::first(&verdicts));
    all.question("open_room", &OpenRoomOrder { channel: "arena:2".into(), params: r#"{"map":"ice"}"#.into() });
    let reservation = PlaceReservation { number: u64::MAX, users: vec!["u\"".into()], timeout_ms: 15_000 };
    all.question("reserve_places", &ReserveOrder::new("arena:2", &[reservation]));
    all
}

fn ticket_name() -> TicketName {
    TicketName { boot: 0xbeef, queue: 1, id: TicketId(17) }
}

fn duel() -> MatchCriteria {
    MatchCriteria::new([("mode".into(), "duel".into())]).expect("it is short")
}

fn ticket_commands() -> [(&'static str, TicketCommand); 7] {
    let request = TicketRequest {
        initiator: Initiator::User("u\"".into()),
        users: vec!["u\"".into(), "v".into()],
        criteria: duel(),
        region: Some("eu".into()),
        skill: -7,
    };
    let source = Some(SourceNetwork::of([127, 0, 0, 1].into()));
    let requester = Some(TicketRequester { user: "u\"".into(), source });
    let backend = TicketRequest {
        initiator: Initiator::Backend,
        users: vec!["u".into()],
        criteria: MatchCriteria::default(),
        region: None,
        skill: 0,
    };
    let of_user = TicketTarget::OfUser { namespace: "".into(), user: "u".into() };
    [
        ("match_ticket", TicketCommand::Submit { namespace: "arena".into(), request, requester }),
        (
            "match_ticket of a backend",
            TicketCommand::Submit { namespace: "".into(), request: backend, requester: None },
        ),
        ("match_ticket confirmed", TicketCommand::Confirm { ticket: ticket_name(), user: "v".into() }),
        ("match_ticket cancelled", TicketCommand::Cancel(TicketTarget::Named(ticket_name()))),
        ("match_ticket cancelled by a user", TicketCommand::Cancel(of_user.clone())),
        ("match_ticket shown", TicketCommand::Status(TicketTarget::OfMember(ticket_name(), "u".into()))),
        ("match_ticket shown to a user", TicketCommand::Status(of_user)),
    ]
}

fn named_ticket() -> NamedTicket {
    let users = vec![("u\"".into(), true), ("v".into(), false)];
    let ticket =
        HandedTicket { users, criteria: duel(), region: Some("eu".into()), skill: 7, age_ms: 2_000, left_ms: u64::MAX };
    NamedTicket { name: ticket_name(), ticket }
}

fn client() -> ClientInfo {
    ClientInfo {
        user: "u\"".into(),
        client: "c".into(),
        conn_info: Some(payload(r#"{ "a": 1 }"#)),
        chan_info: Some(Payload::from_opaque(Bytes::from_static(&[0, 255]))),
    }
}

fn keys() -> Vec<PeerKey> {
    let publication = Publication {
        data: payload(r#"{"p":1}"#),
        info: Some(Arc::new(client())),
        offset: 0,
        tags: vec![("symbol".into(), "é".into())],
        time_ms: 0,
        epoch: Box::default(),
        version: 0,
    };
    vec![PeerKey { publication: Arc::new(publication), age_us: 7 }]
}

fn described(what: &impl Serialize) -> Description {
    Description::new(what).expect("it is an object")
}

fn answers() -> Messages {
    let mut all = Messages(Vec::new());
    all.answer::<PresenceQuestion>("presence", &[Arc::new(client())].into_iter().collect());
    let users = PresenceUsers { num_clients: 3, users: [1, u64::MAX].into() };
    all.answer::<PresenceUsersQuestion>("presence_users", &users);
    let channels = Channels { channels: [("c".into(), ChannelCount { num_clients: 2 })].into() };
    all.answer::<ChannelsQuestion>("channels", &channels);
    let part =
        ChannelPart { channels: vec![CountedChannel { channel: "c".into(), num_clients: 2 }], more: true, total: 3 };
    all.answer::<ChannelPageQuestion>("channel_page", &part);
    all.answer::<ChannelCountsQuestion>("channel_counts", &channels);
    let node = serde_json::value::RawValue::from_string(r#"{"uid":"n","name":"one"}"#.to_owned()).expect("it is JSON");
    all.answer::<InfoQuestion>("info", &Info { nodes: vec![described(&node)] });
    all.answer::<StatusQuestion>("status", &Info { nodes: vec![described(&node)] });
    let rooms = Rooms { rooms: [("r:1".into(), described(&json!({ "tick": 1 })))].into() };
    all.answer::<RoomsQuestion>("rooms", &rooms);
    let room = r#"{"channel":"r:1","node":{"uid":"n","name":""}}"#;
    let room = serde_json::value::RawValue::from_string(room.to_owned()).expect("it is JSON");
    let room = ListedRoom::new(described(&room)).expect("it has a place");
    all.answer::<RoomListQuestion>("room_list", &RoomList { rooms: vec![room], more: Some("x".into()) });
    let session = described(&json!({ "client": "c" }));
    let sessions = Sessions {
        sessions: vec![ListedSession { behind_since_us: u64::MAX, client: "c".into(), session }],
        more: true,
        missing: vec![MissingPart { node: "one".into(), why: "shard 3 did not answer within 1 s".into() }],
    };
    all.answer::<SessionsQuestion>("sessions", &sessions);
    let rules = vec![rule(SubjectKind::User, "u")];
    all.answer::<AccessQuestion>("access_rules", &AccessAnswer::new(&rules, true));
    all.answer::<ChannelRoomsQuestion>("channel_rooms", &ChannelRooms { rooms: Vec::new() });
    all.answer::<NewestKeysQuestion>("newest_keys", &NewestKeys::new(keys(), 4_096));
    for state in [PeerRoomState::None, PeerRoomState::Asking, PeerRoomState::Open] {
        let answer = RoomStateAnswer { state, uid: "n".into(), name: "one".into(), room: None };
        all.answer::<RoomStateQuestion>("room_state", &answer);
    }
    for changes in [false, true] {
        let room = Some(RoomAddress { owner: 3, number: 9, thread: 5, changes });
        let answer = RoomStateAnswer { state: PeerRoomState::Open, uid: "n".into(), name: "one".into(), room };
        all.answer::<RoomStateQuestion>("room_state", &answer);
    }
    for num_players in [Some(3), None] {
        all.answer::<CloseRoomOrder>("close_room", &RoomClosed { num_players });
    }
    let answer = OccupancyAnswer {
        uid: "n".into(),
        version: 9,
        reset: false,
        begun: 0,
        behind_ms: 0,
        more: true,
        occupied: vec!["chat:1".into()],
        vacated: vec!["chat:\"2".into()],
    };
    all.answer::<OccupancyQuestion>("occupancy", &answer);
    let report = OccupancyAnswer { reset: true, begun: 11, behind_ms: 250, vacated: Vec::new(), ..answer };
    all.answer::<OccupancyQuestion>("occupancy from the reporter in a full report", &report);
    all.answer::<EmulateOrder>("emulate", &EmulateAnswer { taken: true });
    answers_about_recordings(&mut all);
    answers_about_matchmaking(&mut all);
    all.answer::<RefreshOrder>("done", &Done {});
    all.0.push(("error", encode_answer(Err(NotUnderstood::Unknown.into()))));
    let refused = PeerError { code: 107, message: "bad request: no".into() };
    all.0.push(("error with a reason", encode_answer(Err(refused))));
    all
}

fn answers_about_recordings(all: &mut Messages) {
    let one = ListedRecording {
        file: "arena_1-5.dunlin-room".into(),
        began_ms: 5,
        bytes: 7,
        written_ms: 9,
        channel: Some("arena:1".into()),
        simulation: Some("tag".into()),
        fault: None,
    };
    let other =
        ListedRecording { channel: None, simulation: None, fault: Some("no \"recording\"".into()), ..one.clone() };
    let list = RecordingList {
        node: RecordingNode { uid: "n".into(), name: "one".into() },
        recordings: vec![one, other],
        left_out: 1,
        cut: 2,
        directories: 3,
        unreadable: vec!["/r: no".into()],
    };
    all.answer::<RecordingsQuestion>("recordings", &list);
    all.answer::<RecordingPartQuestion>("recording_part", &RecordingPart { bytes: 7, data: vec![0, 1, 255] });
}

fn answers_about_matchmaking(all: &mut Messages) {
    all.answer::<TicketOrder>("match_ticket", &TicketReply::new(Err(TicketFault::Refused(MatchRefusal::QueueFull))));
    let answer = TicketAnswer {
        ticket: Some(ticket_name().to_string()),
        status: "unconfirmed".into(),
        channel: Some("arena:2".into()),
        unconfirmed: vec!["v".into()],
        reason: Some("cancelled".into()),
    };
    all.answer::<TicketOrder>("match_ticket with all fields", &TicketReply::new(Ok(answer)));
    let taken = TakenTickets { taken: vec![ticket_name()], bound: Vec::new() };
    all.answer::<HandOverOrder>("match_hand_over", &HandOverReply::new(&taken));
    let bound = TakenTickets { taken: Vec::new(), bound: vec![ticket_name()] };
    all.answer::<HandOverOrder>("match_hand_over of bound users", &HandOverReply::new(&bound));
    let room = RoomSummary {
        channel: "arena:2".into(),
        namespace: "arena".into(),
        players: 3,
        players_joined: 4,
        players_max: 8,
        reservations: [(u64::MAX, 1)].into(),
        is_made: true,
        is_public: false,
        metadata: r#"{"map":"ice"}"#.into(),
        params: "".into(),
    };
    let rooms = MatchRooms::new((vec![room], true), "eu".into(), true);
    all.answer::<MatchRoomsQuestion>("match_rooms", &rooms);
    let rooms = MatchRooms::new((Vec::new(), false), "".into(), false).with_waiting(&[ticket_name()]);
    all.answer::<MatchRoomsQuestion>("match_rooms with tickets", &rooms);
    for outcome in [Ok(()), Err(OpenFailure::Busy), Err(OpenFailure::Failed)] {
        all.answer::<OpenRoomOrder>("open_room", &outcome.into());
    }
}

#[test]
fn rooms_may_be_opened_on_an_older_node() {
    let answer = br#"{"v":1,"result":{"rooms":[],"more":false}}"#;
    assert!(decode_answer::<MatchRoomsQuestion>(answer).expect("an answer").takes_rooms);
}

#[test]
fn an_older_node_asks_for_channels_without_its_id() {
    let question: OccupancyQuestion = serde_json::from_str(r#"{"since":{"n":7}}"#).expect("a question");
    assert_eq!((&*question.asker, question.cursor("n").version), ("", 7));
}

#[test]
fn messages_between_nodes_keep_their_bytes() {
    let found = questions().lines("question") + &answers().lines("answer");
    assert_eq!(found, GOLDEN, "a node of the previous release does not understand these\n{found}");
    for method in METHODS {
        assert!(GOLDEN.contains(&format!(r#""method":"{method}""#)), "no question of the kind {method}");
    }
}

#[test]
fn orders_arrive_as_they_were_given() {
    let Received::Subscribe(order) = arrived(&SubscribeOrder::new("u", &only(Some("c"), None), &full_subscription()))
    else {
        panic!("another kind")
    };
    let expected = ApiRequest::Subscribe {
        user: "u".into(),
        only: only(Some("c"), None),
        subscription: Box::new(full_subscription()),
    };
    assert_eq!(format!("{:?}", ApiRequest::from(order)), format!("{expected:?}"));
}

#[test]
fn tickets_arrive_as_they_were_sent() {
    for (name, command) in ticket_commands() {
        let Received::MatchTicket(order) = arrived(&TicketOrder::new(&command)) else { panic!("another kind") };
        assert_eq!(format!("{:?}", order.into_command()), format!("{:?}", Ok::<_, TicketFault>(command)), "{name}");
    }
    let order = HandOverOrder::new(None, "arena", &[named_ticket()]);
    let Received::MatchHandOver(order) = arrived(&order) else { panic!("another kind") };
    let tickets = HandedTickets { namespace: "arena".into(), tickets: vec![named_ticket()], unreadable: 0 };
    assert_eq!(order.into_tickets(), tickets);
}

#[test]
fn orders_about_tickets_that_make_no_sense_are_refused() {
    let long = "x".repeat(65);
    for (body, fault) in [
        (r#"{"status":{"named":{"ticket":"x"}}}"#.to_owned(), MatchRefusal::UnknownTicket),
        (
            format!(r#"{{"submit":{{"namespace":"","users":[],"criteria":{{"mode":"{long}"}},"skill":0}}}}"#),
            MatchRefusal::Criteria,
        ),
    ] {
        let bytes = format!(r#"{{"v":1,"method":"match_ticket","params":{body}}}"#);
        let Ok(Received::MatchTicket(order)) = decode_question(bytes.as_bytes()) else { panic!("{body}") };
        assert_eq!(order.into_command().err(), Some(TicketFault::Refused(fault)), "{body}");
    }
    let tickets = r#"[{"age_ms":0,"left_ms":0,"criteria":{},"skill":0,"ticket":"x","users":[["u",true]]}]"#;
    let bytes = format!(r#"{{"v":1,"method":"match_hand_over","params":{{"namespace":"","tickets":{tickets}}}}}"#);
    let Ok(Received::MatchHandOver(order)) = decode_question(bytes.as_bytes()) else { panic!("{tickets}") };
    assert_eq!(order.into_tickets(), HandedTickets { namespace: "".into(), tickets: Vec::new(), unreadable: 1 });
}

#[test]
fn questions_that_make_no_sense_are_refused() {
    for bytes in [
        &b""[..],
        b"[]",
        b"\xff",
        br#"{"v":2,"method":"info","params":{}}"#,
        br#"{"v":1,"method":"info"}"#,
        br#"{"v":1,"method":"publish","params":{"channel":"c","data":1}}"#,
    ] {
        let fault = decode_question(bytes).expect_err("it is not a question");
        assert!(matches!(fault, NotUnderstood::Unknown), "{bytes:?}");
        assert_eq!(PeerError::from(fault), PeerError { code: 104, message: "not found".into() });
    }
    for (method, params) in [
        ("presence", "{}"),
        ("presence", r#"{"channel":1}"#),
        ("room_list", "{}"),
        ("sessions", "{}"),
        ("emulate", r#"{"session":"s","b64data":"?"}"#),
        ("disconnect", r#"{"user":"u","whitelist":[],"disconnect":{"code":2999,"reason":""}}"#),
        ("disconnect", r#"{"user":"u","whitelist":[],"disconnect":{"code":5000,"reason":""}}"#),
        ("refresh", r#"{"user":"u","expired":false,"expire_at":-1}"#),
        ("pace", r#"{"user":"u","channel":"c","per_second_max":0}"#),
        ("pace", r#"{"user":"u","per_second_max":-1}"#),
        ("subscribe", r#"{"user":"u","channel":"c","expire_at":0,"b64info":"?","override":{}}"#),
    ] {
        let bytes = format!(r#"{{"v":1,"method":"{method}","params":{params}}}"#);
        let fault = decode_question(bytes.as_bytes()).expect_err("it is malformed");
        assert!(matches!(fault, NotUnderstood::Malformed(_)), "{bytes}");
        assert_eq!(PeerError::from(fault).code, 107, "{bytes}");
    }
}

#[test]
fn commands_of_one_node_are_no_questions() {
    for (method, body) in [
        ("publish", r#"{"channel":"c","data":1}"#),
        ("broadcast", r#"{"channels":["c"],"data":1}"#),
        ("history", r#"{"channel":"c"}"#),
        ("history_remove", r#"{"channel":"c"}"#),
        ("room_open", r#"{"channel":"c"}"#),
        ("room_close", r#"{"channel":"c"}"#),
    ] {
        let bytes = format!(r#"{{"v":1,"method":"{method}","params":{body}}}"#);
        assert!(matches!(decode_question(bytes.as_bytes()), Err(NotUnderstood::Unknown)), "{method}");
    }
}

#[test]
fn fields_of_a_later_release_are_ignored() {
    let bytes = br#"{"v":1,"later":1,"method":"presence","params":{"channel":"c","later":{}}}"#;
    assert!(matches!(decode_question(bytes), Ok(Received::Presence(PresenceQuestion { channel })) if &*channel == "c"));
    let bytes = br#"{"v":1,"later":1,"result":{"taken":true,"later":[]}}"#;
    assert!(decode_answer::<EmulateOrder>(bytes).is_ok_and(|answer| answer.taken));
}

#[test]
fn answers_are_results_errors_or_not_understood() {
    let error = encode_answer(Err(NotUnderstood::Unknown.into()));
    let error = decode_answer::<RefreshOrder>(&error).expect_err("it is an error");
    assert_eq!(error.to_string(), "answers with error 104: not found");
    for bytes in [&b""[..], b"[]", br#"{"v":1}"#, br#"{"v":2,"result":{}}"#, b"\xff", br#"{"v":1,"result":1}"#] {
        assert_eq!(decode_answer::<RefreshOrder>(bytes), Err(AnswerFault::NotUnderstood), "{bytes:?}");
    }
    for result in
        ["[]", "{}", r#"{"presence":[]}"#, r#"{"presence":{"a":{"user":"u","client":"a","b64conn_info":"?"}}}"#]
    {
        let bytes = format!(r#"{{"v":1,"result":{result}}}"#);
        let fault = Err(AnswerFault::NotUnderstood);
        assert_eq!(decode_answer::<PresenceQuestion>(bytes.as_bytes()), fault, "{result}");
        assert!(decode_answer::<PresenceUsersQuestion>(bytes.as_bytes()).is_err(), "{result}");
    }
    for result in ["[]", r#"{"rooms":[{}]}"#, r#"{"rooms":[[]]}"#] {
        let bytes = format!(r#"{{"v":1,"result":{result}}}"#);
        assert!(decode_answer::<RoomListQuestion>(bytes.as_bytes()).is_err(), "{result}");
        assert!(decode_answer::<NewestKeysQuestion>(bytes.as_bytes()).is_err(), "{result}");
    }
}

#[test]
fn an_answer_has_at_most_the_bytes_that_are_read() {
    let with_bytes = |bytes: usize| {
        let around = r#"{"v":1,"result":{"rooms":[]}}"#;
        format!(r#"{{"v":1,"result":{{"rooms":[]}}{}}}"#, " ".repeat(bytes - around.len())).into_bytes()
    };
    let bytes_max = RoomListQuestion::ANSWER_BYTES_MAX;
    assert!(decode_answer::<RoomListQuestion>(&with_bytes(bytes_max)).is_ok());
    let fault = decode_answer::<RoomListQuestion>(&with_bytes(bytes_max + 1)).expect_err("it is too large");
    assert_eq!(fault.to_string(), format!("has an answer of {} bytes, which is too large to be read", bytes_max + 1));
}

#[test]
fn sessions_of_other_nodes_keep_their_payloads() {
    let json = r#"{"v":1,"result":{"presence":{"a":{"user":"u","client":"a","conn_info":{ "x":1 },"b64chan_info":"/wA="},
        "b":{"user":"","client":"b","chan_info":null,"b64conn_info":""}},"partial":true}}"#;
    let presence = decode_answer::<PresenceQuestion>(json.as_bytes()).expect("it is presence");
    let bytes = |payload: &Option<Payload>| payload.as_ref().map(|payload| payload.bytes().to_vec());
    let parts: Vec<_> = presence
        .clients()
        .map(|info| (&*info.user, &*info.client, bytes(&info.conn_info), bytes(&info.chan_info)))
        .collect();
    let expected = [
        ("u", "a", Some(b"{ \"x\":1 }".to_vec()), Some(b"\xff\0".to_vec())),
        ("", "b", Some(Vec::new()), Some(b"null".to_vec())),
    ];
    assert_eq!(parts, expected);
}
