use dunlin_engine::{api::ApiRequest, insight::SessionsQuery};
use serde::de::DeserializeOwned;

use super::{merge::Merging, *};
use crate::{
    http::api::{
        ApiCommand, Method, RequestLimits,
        paces::{SessionPaceCommand, SubscriptionPaceCommand},
        room_list::RoomPlace,
        session_orders::{DisconnectCommand, RefreshCommand, SubscribeCommand, UnsubscribeCommand},
        sessions::{ExplainCommand, ListCommand},
    },
    peers::{ChannelPart, Channels, MissingPeer, PeerAnswers, Received},
};

/// Merges the results of nodes, as they arrive: one that is not understood is missing.
fn merged<A: DeserializeOwned>(
    finish: impl FnOnce(Merging<A>) -> JsonResult,
    own: &str,
    others: &[&str],
    missing: &[(&str, &str)],
    is_cut_off: bool,
) -> Result<String, ApiError> {
    let missing = missing.iter().map(|(name, why)| MissingPeer { name: (*name).into(), why: (*why).to_owned() });
    let mut found = PeerAnswers { missing: missing.collect(), is_cut_off, ..PeerAnswers::ALONE };
    for json in others {
        match serde_json::from_str(json) {
            Ok(result) => found.results.push(result),
            Err(error) => found.missing.push(MissingPeer { name: "n".into(), why: error.to_string() }),
        }
    }
    let own = serde_json::from_str(own).expect("this node understands its own part");
    finish(Merging::new(own, found)).map(|result| result.get().to_owned())
}

/// The results of two nodes, and the beginning of the merged result.
fn check_merged<A: DeserializeOwned>(finish: fn(Merging<A>) -> JsonResult, own: &str, other: &str, expected: &str) {
    assert_eq!(merged(finish, own, &[other], &[], false), Ok(format!("{expected}}}")));
    let partial = Ok(format!("{expected},\"partial\":true}}"));
    assert_eq!(merged(finish, own, &[other], &[("n", "is silent")], false), partial, "{expected}");
    assert_eq!(merged(finish, own, &[other], &[], true), partial, "{expected}");
    assert_eq!(merged(finish, own, &[other, "[]"], &[], false), partial, "{expected}: one that is not understood");
}

#[test]
fn states_and_pages_of_channels_name_the_nodes_without_an_answer() {
    let (one, two) = (r#"{"nodes":[{"uid":"1"}]}"#, r#"{"nodes":[{"uid":"2"}]}"#);
    let all = merged(merge::status, one, &[two], &[], false).expect("merged");
    assert_eq!(all, r#"{"nodes":[{"uid":"1"},{"uid":"2"}],"missing":[]}"#);
    let some = merged(merge::status, one, &[], &[("two", "is silent")], false).expect("merged");
    assert_eq!(some, r#"{"nodes":[{"uid":"1"}],"missing":[{"node":"two","why":"is silent"}]}"#);
    let alone = merged(merge::status, one, &[], &[], true).expect("merged");
    assert!(alone.contains(r#""missing":[{"node":"","why":"this node does not reach the cluster"#), "{alone}");

    let one = r#"{"channels":[{"channel":"a","num_clients":2},{"channel":"b","num_clients":1}],"more":true,"total":3}"#;
    let two = r#"{"channels":[{"channel":"b","num_clients":3}],"more":false,"total":1}"#;
    let page = merged(merge::channels_by_name, one, &[two], &[("n", "is silent")], false);
    assert_eq!(
        page.expect("merged"),
        r#"{"channels":[{"channel":"a","num_clients":2},{"channel":"b","num_clients":4}],"total":4,"total_counts_twice":true,"more":"b","missing":[{"node":"n","why":"is silent"}]}"#
    );
    let page = merged(merge::channels_by_name, two, &[], &[], false).expect("merged");
    assert_eq!(page, r#"{"channels":[{"channel":"b","num_clients":3}],"total":1,"missing":[]}"#);
}

#[test]
fn the_largest_channels_are_counted_on_all_nodes() {
    let part = |json: &str| serde_json::from_str::<ChannelPart>(json).expect("a part");
    let one = part(r#"{"channels":[{"channel":"a","num_clients":5}],"more":true,"total":2}"#);
    let two = part(r#"{"channels":[{"channel":"b","num_clients":4}],"more":false,"total":2}"#);
    let silent = |name: &str| MissingPeer { name: name.into(), why: "is silent".to_owned() };
    let parts = Merging::new(one, PeerAnswers { results: vec![two], missing: vec![silent("n")], ..PeerAnswers::ALONE });
    let candidates = parts.candidates();
    let counts = |json: &str| serde_json::from_str::<Channels>(json).expect("counts");
    let own = counts(r#"{"channels":{"a":{"num_clients":5},"b":{"num_clients":3}}}"#);
    let other = counts(r#"{"channels":{"b":{"num_clients":4}}}"#);
    let missing = vec![silent("n"), silent("m")];
    let counted = Merging::new(own, PeerAnswers { results: vec![other], missing, ..PeerAnswers::ALONE });
    assert_eq!(
        merge::largest_channels(parts, &candidates, counted).expect("merged").get(),
        r#"{"channels":[{"channel":"b","num_clients":7},{"channel":"a","num_clients":5}],"total":4,"total_counts_twice":true,"missing_up_to":5,"missing":[{"node":"n","why":"is silent"},{"node":"m","why":"is silent"}]}"#
    );
}

#[test]
fn a_room_of_another_node_is_not_reported_as_closed() {
    let (none, three) = (r#"{"num_players":null}"#, r#"{"num_players":3}"#);
    let silent = [("n", "is silent")];
    let closed = |own, others: &[&str], missing: &[(&str, &str)], is_cut_off| {
        merged(|merging| merge::room_closed(&merging), own, others, missing, is_cut_off)
    };
    assert_eq!(closed(none, &[none, three], &[], false).expect("closed"), three, "by the node that has it");
    assert_eq!(closed(none, &[three], &silent, false).expect("closed"), three, "whoever else does not answer");
    assert_eq!(closed(none, &[none], &[], false).expect("closed"), r#"{"num_players":0}"#, "it is open nowhere");
    for (missing, is_cut_off) in [(&silent[..], false), (&silent[..0], true)] {
        let error = closed(none, &[none], missing, is_cut_off).expect_err("a node that is silent may have it");
        assert_eq!(error.code(), 100, "{error:?}");
    }
}

#[test]
fn results_of_nodes_are_merged() {
    check_merged(
        merge::presence,
        r#"{"presence":{"b":{"user":"u","client":"b"}}}"#,
        r#"{"presence":{"a":{"user":"v","client":"a","conn_info":{ "x": 1}}}}"#,
        r#"{"presence":{"a":{"user":"v","client":"a","conn_info":{ "x": 1}},"b":{"user":"u","client":"b"}}"#,
    );
    check_merged(
        merge::presence_stats,
        r#"{"num_clients":3,"users":[1,2]}"#,
        r#"{"num_clients":2,"users":[2,18446744073709551615]}"#,
        r#"{"num_clients":5,"num_users":3"#,
    );
    check_merged(
        merge::channels,
        r#"{"channels":{"b":{"num_clients":1}}}"#,
        r#"{"channels":{"a":{"num_clients":2},"b":{"num_clients":3}}}"#,
        r#"{"channels":{"a":{"num_clients":2},"b":{"num_clients":4}}"#,
    );
    check_merged(
        merge::info,
        r#"{"nodes":[{"uid":"b"}]}"#,
        r#"{"nodes":[{"uid":"a"}]}"#,
        r#"{"nodes":[{"uid":"b"},{"uid":"a"}]"#,
    );
    check_merged(
        merge::rooms,
        r#"{"rooms":{"r:1":{"tick":1}}}"#,
        r#"{"rooms":{"r:1":{"tick":2},"r:2":{"tick":3}}}"#,
        r#"{"rooms":{"r:1":{"tick":1},"r:2":{"tick":3}},"further_rooms":{"r:1":[{"tick":2}]}"#,
    );
}

#[test]
fn a_command_without_every_confirmation_fails() {
    assert_eq!(merged(|merging| merge::done(&merging), "{}", &["{}"], &[], false), Ok("{}".to_owned()));
    let missing = [("n2", "does not answer"), ("n3", "is not live")];
    let error = merged(|merging| merge::done(&merging), "{}", &[], &missing, false).expect_err("two nodes are missing");
    assert_eq!(error.code(), 100);
    assert_eq!(error.message(), "internal server error: node n2 does not answer, node n3 is not live: try again");
    let error = merged(|merging| merge::done(&merging), "{}", &[], &[], true).expect_err("no node was reached");
    assert!(error.message().contains("does not reach the cluster"), "{error:?}");
}

#[test]
fn commands_arrive_unchanged() {
    let commands = [
        (Method::Disconnect, r#"{"user":"u"}"#),
        (
            Method::Disconnect,
            r#"{"user":"","client":"c","session":"s","whitelist":["x","y"],"disconnect":{"code":4000,"reason":"why \"not\""}}"#,
        ),
        (Method::Unsubscribe, r#"{"user":"u","channel":"chat:1","client":"c"}"#),
        (Method::Unsubscribe, r#"{"user":"u","channel":""}"#),
        (Method::Subscribe, r#"{"user":"u","channel":"chat:1"}"#),
        (
            Method::Subscribe,
            r#"{"user":"u","channel":"c","expire_at":1900000000,"info":{ "a" : [1] },"b64data":"AAH/","client":"c","session":"s",
            "recover_since":{"offset":7,"epoch":"e"},"override":{"presence":{"value":true},"join_leave":{"value":false},
            "force_push_join_leave":{"value":true},"force_positioning":{},"force_recovery":{"value":true}}}"#,
        ),
        (Method::Refresh, r#"{"user":"u","expired":true}"#),
        (Method::Refresh, r#"{"user":"u","client":"c","expire_at":5,"info":{"b": 2}}"#),
        (Method::SubscriptionPace, r#"{"user":"u","channel":"chat:1","updates_per_second_max":0.3,"client":"c"}"#),
        (Method::SubscriptionPace, r#"{"user":"u","channel":"chat:1","updates_per_second_max":null}"#),
        (Method::SessionPace, r#"{"user":"","session":"s","bytes_per_second_max":20000}"#),
        (Method::RoomList, "{}"),
        (
            Method::RoomList,
            r#"{"namespace":"","pattern":"a*","locked":false,"min_free_places":3,"metadata":{"mode":["ice",1.5,null]},
            "include_unlisted":true,"limit":7,"cursor":"MSBuIGFyZW5hOjE"}"#,
        ),
        (Method::Sessions, "{}"),
        (Method::Sessions, r#"{"user":"","channel":"chat:1","limit":7,"cursor":"MSAyIGM"}"#),
        (Method::Explain, r#"{"client":"c","user":"u","address":"::1","slowest":3}"#),
    ];
    for (method, body) in commands {
        let parse = |body: &[u8]| {
            ApiCommand::parse(method, body, &RequestLimits::default()).expect("it is JSON").expect("it is valid")
        };
        let command = parse(body.as_bytes());
        let there = match (&command, question(&command)) {
            (ApiCommand::RoomList(_), Received::RoomList(question)) => {
                ApiCommand::RoomList(Box::new(RoomQuery::of_question(question, usize::MAX).expect("it is valid")))
            }
            (ApiCommand::Sessions(_), Received::Sessions(question)) => {
                ApiCommand::Sessions(Box::new(ListCommand(SessionsWanted::of_question(question).expect("it is valid"))))
            }
            (ApiCommand::Explain(_), Received::Sessions(question)) => {
                let wanted = SessionsWanted::of_question(question).expect("it is valid");
                ApiCommand::Explain(Box::new(ExplainCommand(wanted)))
            }
            (_, Received::Disconnect(order)) => ApiCommand::Disconnect(DisconnectCommand(order.into())),
            (_, Received::Unsubscribe(order)) => ApiCommand::Unsubscribe(UnsubscribeCommand(order.into())),
            (_, Received::Subscribe(order)) => ApiCommand::Subscribe(SubscribeCommand(order.into())),
            (_, Received::Refresh(order)) => ApiCommand::Refresh(RefreshCommand(order.into())),
            (ApiCommand::SubscriptionPace(_), Received::Pace(order)) => {
                ApiCommand::SubscriptionPace(SubscriptionPaceCommand(order.into()))
            }
            (_, Received::Pace(order)) => ApiCommand::SessionPace(SessionPaceCommand(order.into())),
            (_, other) => panic!("{method:?} arrives as {other:?}"),
        };
        assert_eq!(format!("{there:?}"), format!("{command:?}"), "{body}");
    }
}

/// The question for a command, as it arrives at another node.
fn question(command: &ApiCommand) -> Received {
    let request = match command {
        ApiCommand::RoomList(query) => return peers::arrived(&query.to_question()),
        ApiCommand::Sessions(command) => return peers::arrived(&command.0.to_question()),
        ApiCommand::Explain(command) => return peers::arrived(&command.0.to_question()),
        ApiCommand::Disconnect(command) => &command.0,
        ApiCommand::Unsubscribe(command) => &command.0,
        ApiCommand::Subscribe(command) => &command.0,
        ApiCommand::Refresh(command) => &command.0,
        ApiCommand::SubscriptionPace(command) => &command.0,
        ApiCommand::SessionPace(command) => &command.0,
        other => panic!("{other:?} is for one node"),
    };
    match request {
        ApiRequest::Disconnect { user, only, whitelist, disconnect } => {
            peers::arrived(&DisconnectOrder::new(user, only, whitelist, disconnect))
        }
        ApiRequest::Unsubscribe { channel, user, only, code: _ } => {
            peers::arrived(&UnsubscribeOrder::new(channel, user, only))
        }
        ApiRequest::Subscribe { user, only, subscription } => {
            peers::arrived(&SubscribeOrder::new(user, only, subscription))
        }
        ApiRequest::Refresh { user, only, expired, expires_at_ms, info } => {
            peers::arrived(&RefreshOrder::new(user, only, *expired, *expires_at_ms, info.as_ref()))
        }
        ApiRequest::SetPace { user, only, change } => peers::arrived(&PaceOrder::new(user, only, change)),
        other => panic!("{other:?} is for one node"),
    }
}

fn listed(channel: &str, node: &str) -> String {
    format!(r#"{{"channel":"{channel}","node":{{"uid":"{node}","name":""}}}}"#)
}

/// A page of a node's rooms; `has_more` if more rooms follow.
fn page(node: &str, channels: &[&str], has_more: bool) -> String {
    let rooms: Vec<_> = channels.iter().map(|channel| listed(channel, node)).collect();
    let last = channels.last().copied().unwrap_or_default();
    let cursor = RoomPlace { channel: last.into(), node_uid: node.into() }.to_cursor();
    let more = if has_more { format!(r#","more":"{cursor}""#) } else { String::new() };
    format!(r#"{{"rooms":[{}]{more}}}"#, rooms.join(","))
}

#[test]
fn pages_of_nodes_are_merged() {
    let merge = |rooms_max, own: &str, others: &[&str]| {
        let merged = merged(|merging| merge::room_list(merging, rooms_max), own, others, &[], false).expect("a page");
        let merged: serde_json::Value = serde_json::from_str(&merged).expect("JSON");
        let rooms = merged["rooms"].as_array().expect("a list").iter();
        let places: Vec<_> = rooms.map(|room| format!("{} {}", room["channel"], room["node"]["uid"])).collect();
        let more = merged["more"].as_str().map(|cursor| RoomPlace::of_cursor(cursor).expect("a cursor"));
        let is_partial = merged["partial"] == true;
        (places.join(", ").replace('"', ""), more.map(|place| place.channel.into_string()), is_partial)
    };
    let all = merge(9, &page("n2", &["a", "c"], false), &[&page("n1", &["b", "c"], false)]);
    assert_eq!(all, ("a n2, b n1, c n1, c n2".to_owned(), None, false));
    // The limit is the number of rooms, and one less.
    assert_eq!(merge(2, &page("n", &["a"], false), &[&page("m", &["b"], false)]).1, None);
    let cut = merge(1, &page("n", &["a"], false), &[&page("m", &["b"], false)]);
    assert_eq!(cut, ("a n".to_owned(), Some("a".to_owned()), false));
    // The rooms after the end of a node's page are unknown.
    let ended = merge(9, &page("n", &["a", "b"], true), &[&page("m", &["a", "c"], false)]);
    assert_eq!(ended, ("a m, a n, b n".to_owned(), Some("b".to_owned()), false));
    // An invalid result counts as missing.
    for odd in [r#"{"rooms":[{}]}"#, r#"{"rooms":[],"more":"?"}"#, "[]"] {
        assert_eq!(merge(9, &page("n", &["a"], false), &[odd]), ("a n".to_owned(), None, true), "{odd}");
    }
}

/// A page of a node's sessions, by their places.
fn sessions(places: &[(u64, &str)], more: bool, missing: &str) -> String {
    let listed = |(since, client): &(u64, &str)| {
        format!(r#"{{"behind_since_us":{since},"client":"{client}","session":{{"client":"{client}"}}}}"#)
    };
    let listed: Vec<_> = places.iter().map(listed).collect();
    format!(r#"{{"sessions":[{}],"more":{more},"missing":[{missing}]}}"#, listed.join(","))
}

#[test]
fn sessions_of_all_nodes_are_in_one_order() {
    let merge = |sessions_max, own: &str, others: &[&str], missing: &[(&str, &str)]| {
        let query = SessionsQuery { sessions_max, ..SessionsQuery::default() };
        let merged = merged(|merging| merge::sessions(merging, &query), own, others, missing, false).expect("a page");
        let mut merged: serde_json::Value = serde_json::from_str(&merged).expect("JSON");
        let sessions = merged["sessions"].take();
        let sessions = sessions.as_array().expect("a list").iter();
        let clients: Vec<_> = sessions.map(|session| session["client"].as_str().unwrap_or("?")).collect();
        let clients = clients.join(" ");
        (clients, merged["more"].is_string(), merged["missing"].to_string())
    };
    let none = "null".to_owned();
    let (idle, own) = (u64::MAX, sessions(&[(5, "b"), (u64::MAX, "a")], false, ""));
    let all = merge(9, &own, &[&sessions(&[(3, "d"), (5, "c"), (idle, "e")], false, "")], &[]);
    assert_eq!(all, ("d b c a e".to_owned(), false, none.clone()), "those behind for longest first, then by id");
    // The limit is the number of sessions, and one less.
    let other = sessions(&[(3, "d")], false, "");
    assert_eq!(merge(3, &own, &[&other], &[]), ("d b a".to_owned(), false, none.clone()));
    assert_eq!(merge(2, &own, &[&other], &[]), ("d b".to_owned(), true, none.clone()));
    // The sessions after the end of a node's page are unknown.
    let ended =
        merge(9, &sessions(&[(1, "b"), (4, "x")], true, ""), &[&sessions(&[(2, "c"), (7, "d")], false, "")], &[]);
    assert_eq!(ended, ("b c x".to_owned(), true, none));
    // Nodes and shards without an answer are named.
    let silent = sessions(&[], false, r#"{"node":"one","why":"shard 3 did not answer within 1 s"}"#);
    let (clients, _, missing) = merge(9, &own, &[&silent, "[]"], &[("two", "is silent")]);
    assert_eq!(clients, "b a");
    for part in [r#"{"node":"one","why":"shard 3 did"#, r#"{"node":"two","why":"is silent"}"#, r#"{"node":"n","why":"#]
    {
        assert!(missing.contains(part), "{part} in {missing}");
    }
}

#[test]
fn a_session_that_is_gone_is_not_found_unless_a_node_is_silent() {
    let query = SessionsQuery { client: Some("c".into()), sessions_max: 1, ..SessionsQuery::default() };
    let explain = |own: &str, missing: &[(&str, &str)], is_cut_off| {
        merged(|merging| merge::sessions(merging, &query), own, &[], missing, is_cut_off)
            .map_err(|error| (error.code(), error.message().to_owned()))
    };
    let internal = |why: &str| Err((100, format!("internal server error: {why}")));
    assert!(explain(&sessions(&[(1, "c")], false, ""), &[("m", "is silent")], false).is_ok());
    let found = explain(&sessions(&[], false, ""), &[], false);
    assert_eq!(found.expect_err("it is gone").0, 104);
    let found = explain(&sessions(&[], false, ""), &[("m", "is silent")], false);
    assert_eq!(found, internal("node m is silent, and may have the session: try again"));
    let found = explain(&sessions(&[], false, ""), &[("m", "is silent")], true);
    assert_eq!(found, internal("this node does not reach the cluster: the session may be on another one"));
    let found = explain(&sessions(&[], false, r#"{"node":"n","why":"shard 0 is late"}"#), &[], false);
    assert_eq!(found, internal("node n shard 0 is late, and may have the session: try again"));
}

#[test]
fn a_room_is_found_on_any_node() {
    let room = |node: &str| format!(r#"{{"rooms":[{}]}}"#, listed("a", node));
    let none = r#"{"rooms":[]}"#;
    let info = |own: &str, others: &[&str], missing: &[(&str, &str)], is_cut_off| {
        merged(merge::room_info, own, others, missing, is_cut_off)
            .map_err(|error| (error.code(), error.message().to_owned()))
    };
    let found = r#"{"channel":"a","node":{"uid":"n","name":""}"#;
    assert_eq!(info(&room("n"), &[none], &[], false), Ok(format!("{found}}}")));
    assert_eq!(
        info(none, &[none, &room("n")], &[("m", "is silent")], false),
        Ok(format!("{found},\"partial\":true}}"))
    );
    let both = format!("{found},\"further_rooms\":[{}]}}", listed("a", "m"));
    assert_eq!(info(&room("n"), &[&room("m")], &[], false), Ok(both));
    assert_eq!(info(none, &[none], &[], false), Err((104, "not found".to_owned())));
    let error = info(none, &[], &[("m", "does not answer")], false).expect_err("it may be there");
    assert_eq!(error, (100, "internal server error: node m does not answer: try again".to_owned()));
    assert_eq!(info(none, &[], &[], true).expect_err("no node was reached").0, 100);
}
