use std::{cell::Cell, sync::Arc};

use dunlin_engine::{ShardIndex, room::RoomKey};
use dunlin_rooms::ClockRate;

use super::*;
use crate::http::api::{ApiCommand, Method, paging::REPLY_BYTES_MAX};

fn parse(body: &str) -> Result<RoomQuery, String> {
    let parsed = ApiCommand::parse(Method::RoomList, body.as_bytes(), &RequestLimits::default()).expect("its form");
    match parsed {
        Ok(ApiCommand::RoomList(query)) => Ok(*query),
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert_eq!(error.code(), 107);
            Err(error.message().to_owned())
        }
    }
}

fn room(channel: &str) -> RoomReport {
    RoomReport {
        channel: channel.into(),
        namespace: channel.split_once(':').map_or("", |(namespace, _)| namespace).into(),
        thread: 0,
        players: 2,
        players_away: 1,
        spectators: 0,
        players_joined: 3,
        reservations: Box::default(),
        players_max: 4,
        is_locked: false,
        is_unlisted: false,
        is_made: true,
        key: RoomKey { owner: ShardIndex(0), number: 1 },
        seed: 1,
        ticks_per_second: 60,
        metadata: "".into(),
        params: "{}".into(),
        objects: 0,
        tick: 0,
        tick_p50_us: 0,
        tick_p99_us: 0,
        late: 0,
        skipped: 0,
        overruns: 0,
        rate: ClockRate::FULL,
        world_bytes: 0,
        memory_bytes: 0,
    }
}

/// Finds rooms of a list that is sorted by channel.
fn rooms_from(rooms: &[RoomReport]) -> impl Fn(Bound<&str>, usize) -> Vec<RoomReport> + '_ {
    |from, count| {
        let is_from = |channel: &str| match from {
            Bound::Included(first) => channel >= first,
            Bound::Excluded(before) => channel > before,
            Bound::Unbounded => true,
        };
        rooms.iter().filter(|room| is_from(&room.channel)).take(count).cloned().collect()
    }
}

/// The channels of a page, and whether more rooms follow.
fn page(query: &RoomQuery, rooms: &[RoomReport]) -> (Vec<String>, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let page = runtime.block_on(query.page("n", rooms_from(rooms))).expect("a cheap pattern");
    (page.rooms.iter().map(|room| room.channel.to_string()).collect(), page.has_more)
}

fn listed(body: &str, rooms: &[RoomReport]) -> String {
    page(&parse(body).expect("a request"), rooms).0.join(" ")
}

#[test]
fn each_filter_excludes_rooms() {
    let mut rooms = ["arena:1", "arena:2", "arena:3", "arena:4", "arena:5", "duel:1", "plain"].map(room);
    rooms[1].is_locked = true;
    rooms[2].is_unlisted = true;
    rooms[3].is_made = false;
    rooms[4].players_max = 3;
    rooms[0].metadata = r#"{"mode":"ice","size":{"x":1,"y":2},"n":null}"#.into();
    rooms[5].metadata = r#"["mode"]"#.into();
    for (body, expected) in [
        ("{}", "arena:1 arena:2 arena:5 duel:1 plain"),
        (r#"{"namespace":null,"metadata":null,"limit":null}"#, "arena:1 arena:2 arena:5 duel:1 plain"),
        (r#"{"include_unlisted":true}"#, "arena:1 arena:2 arena:3 arena:5 duel:1 plain"),
        (r#"{"namespace":"arena"}"#, "arena:1 arena:2 arena:5"),
        (r#"{"namespace":""}"#, "plain"),
        (r#"{"namespace":"aren"}"#, ""),
        (r#"{"pattern":"*:1"}"#, "arena:1 duel:1"),
        (r#"{"locked":true}"#, "arena:2"),
        (r#"{"locked":false,"namespace":"arena"}"#, "arena:1 arena:5"),
        // Players that are away keep their places.
        (r#"{"min_free_places":1,"namespace":"arena"}"#, "arena:1 arena:2"),
        (r#"{"min_free_places":2}"#, ""),
        (r#"{"metadata":{"mode":"ice"}}"#, "arena:1"),
        (r#"{"metadata":{"n":null,"size":{"y":2,"x":1}}}"#, "arena:1"),
        (r#"{"metadata":{"mode":"ice","size":1}}"#, ""),
        (r#"{"metadata":{"other":null}}"#, ""),
    ] {
        assert_eq!(listed(body, &rooms), expected, "{body}");
    }
}

#[test]
fn pages_are_ordered_by_channel() {
    let rooms: Vec<_> = (0..25).map(|number| room(&format!("arena:{number:02}"))).collect();
    let mut query = parse(r#"{"limit":10}"#).expect("a request");
    let mut seen = Vec::new();
    for (count, has_more) in [(10, true), (10, true), (5, false)] {
        let (channels, more) = page(&query, &rooms);
        assert_eq!((channels.len(), more), (count, has_more));
        let place = RoomPlace { channel: channels[count - 1].as_str().into(), node_uid: "n".into() };
        query.after = RoomPlace::of_cursor(&place.to_cursor());
        assert_eq!(query.after, Some(place));
        seen.extend(channels);
    }
    assert_eq!(seen, rooms.iter().map(|room| room.channel.to_string()).collect::<Vec<_>>());
    // The limit equals the number of rooms, so no room follows.
    assert!(!page(&parse(r#"{"limit":25}"#).expect("a request"), &rooms).1);
    // The cursor names the same channel on an earlier node, so this node's room follows.
    query.after = Some(RoomPlace { channel: "arena:24".into(), node_uid: "m".into() });
    assert_eq!(page(&query, &rooms).0, ["arena:24"]);
}

#[test]
fn a_page_is_bounded_in_bytes() {
    let mut rooms = ["a", "b", "c", "d"].map(room);
    for room in &mut rooms {
        room.metadata = Arc::from(format!("\"{}\"", "x".repeat(REPLY_BYTES_MAX / 2)));
    }
    rooms[0].metadata = Arc::from("7");
    let query = parse("{}").expect("a request");
    assert_eq!(page(&query, &rooms), (vec!["a".to_owned(), "b".to_owned()], true));
    // A room that alone exceeds the limit is a page.
    rooms[0].metadata = Arc::from(format!("\"{}\"", "x".repeat(REPLY_BYTES_MAX)));
    assert_eq!(page(&query, &rooms), (vec!["a".to_owned()], true));
}

#[test]
fn a_page_of_many_rooms_looks_at_few_of_them() {
    let rooms: Vec<_> = (0..10_000).map(|number| room(&format!("arena:{number:04}"))).collect();
    let looked_at = |body: &str| {
        let (query, reports) = (parse(body).expect("a request"), Cell::new(0));
        let counted = |from: Bound<&str>, count| {
            let found = rooms_from(&rooms)(from, count);
            reports.set(reports.get() + found.len());
            found
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let page = runtime.block_on(query.page("n", counted)).expect("a cheap pattern");
        (page.rooms.len(), page.has_more, reports.get())
    };
    assert_eq!(looked_at(r#"{"limit":100}"#), (100, true, 101));
    // A filter that few rooms pass: each room is looked at once.
    assert_eq!(looked_at(r#"{"limit":100,"pattern":"*99"}"#), (100, false, 10_000));
}

#[test]
fn an_answer_for_another_node_has_at_most_the_bytes_that_it_may_have() {
    let rooms = ["a", "b", "c"].map(room);
    // The name of the node is not in the estimates.
    let name = "x".repeat(ROOM_BYTES);
    let node = NodeJson { uid: "n", name: &name };
    let listed = |bytes_max| {
        let question = RoomQuery::of_params(RoomListParams::default()).expect("a query").to_question();
        let query = RoomQuery::of_question(question, bytes_max).expect("a query");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let list = runtime.block_on(super::page(&query, node, rooms_from(&rooms))).expect("a page");
        (list.rooms.len(), list.more.is_some(), serde_json::to_string(&list.rooms).expect("JSON").len())
    };
    let (count, has_more, bytes) = listed(REPLY_BYTES_MAX);
    assert_eq!((count, has_more), (3, false));
    // Without brackets, and with a comma behind each.
    let exact = bytes - 1;
    for (bytes_max, expected) in [(exact, 3), (exact - 1, 2), (1, 1)] {
        let (count, has_more, bytes) = listed(bytes_max);
        assert_eq!((count, has_more), (expected, expected < 3), "{bytes_max}");
        assert!(bytes <= bytes_max + 1 || count == 1, "{bytes} of {bytes_max}");
    }
}

#[test]
fn values_out_of_range_are_refused_with_a_reason() {
    let members = |count: usize| {
        let members: Vec<_> = (0..count).map(|number| format!(r#""m{number}":1"#)).collect();
        format!(r#"{{"metadata":{{{}}}}}"#, members.join(","))
    };
    for body in [r#"{"limit":1}"#, r#"{"limit":1000}"#, &members(8)] {
        assert!(parse(body).is_ok(), "{body}");
    }
    let limit = "bad request: limit must be from 1 to 1000";
    let cursor = "bad request: cursor is not from an answer";
    for (body, message) in [
        (r#"{"limit":0}"#, limit),
        (r#"{"limit":1001}"#, limit),
        (r#"{"limit":18446744073709551615}"#, limit),
        (&*members(9), "bad request: metadata has more than 8 members"),
        (r#"{"cursor":"x"}"#, cursor),
        (r#"{"cursor":"MiBuIGFyZW5hOjE"}"#, cursor),
        (r#"{"cursor":"MSBu"}"#, cursor),
        (r#"{"pattern":"[a"}"#, "bad request: a class has no end"),
    ] {
        let refused = parse(body).expect_err(body);
        assert!(refused.starts_with(message) || body.contains("pattern"), "{body}: {refused}");
    }
    for body in
        [r#"{"limit":-1}"#, r#"{"limit":"9"}"#, r#"{"metadata":[1]}"#, r#"{"locked":1}"#, r#"{"min_free_places":-1}"#]
    {
        assert!(ApiCommand::parse(Method::RoomList, body.as_bytes(), &RequestLimits::default()).is_err(), "{body}");
    }
}
