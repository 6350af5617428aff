//! Players whose client does not have the answer to its join yet.

use std::sync::Arc;

use dunlin_engine::{
    Event, Options, owner_of,
    room::{FromRoom, NotJoined},
};
use dunlin_protocol::{Encoding, UnsubscribeCode};
use serde_json::{Value, json};

use crate::{
    hall::{Hall, Seen, options},
    node,
};

const ARENA: &str = "arena:a";

fn hall_options() -> Options {
    let mut options = options();
    options.namespaces[0].room.as_mut().expect("rooms").gives_seat_tokens = true;
    options
}

fn hall() -> Hall {
    let mut hall = Hall::new(2, hall_options());
    hall.seat_grace_ticks = 100;
    hall
}

fn players(hall: &Hall) -> usize {
    hall.only_room().1.room().player_count()
}

/// A session that waits for the answer to its join, on another shard than the room's owner.
fn join(hall: &mut Hall, user: &str, data: &Value) {
    let owner = owner_of(ARENA, 2, node::NODE_SEED).0;
    hall.node.open("a", Encoding::Json, 1 - owner);
    hall.seen.insert("a".to_owned(), Seen::default());
    hall.send_json("a", &json!({"id": 1, "connect": {"token": format!("user={user}")}}));
    hall.look();
    hall.seen("a").messages.clear();
    hall.join("a", ARENA, data);
}

#[test]
fn a_client_lost_before_the_join_reply_leaves_unless_its_seat_is_kept() {
    for (user, how, stays) in [
        ("ann", "closed for good", false),
        ("ann", "closed for good, then lost", false),
        ("ann", "unsubscribed, then lost", false),
        ("ann", "lost", true),
        ("", "lost", false),
    ] {
        // The room has accepted the join, and its answer is on the way; or the room learns first that the client is gone.
        for is_first in [false, true] {
            let mut hall = hall();
            join(&mut hall, user, &json!({}));
            hall.node.ask_api(&json!({"open_room": {"channel": ARENA}}));
            let held = if is_first { Vec::new() } else { hall.run_rooms() };
            if how.starts_with("closed") {
                hall.node.ask_api(&json!({"disconnect": {"user": user}}));
            }
            if how.starts_with("unsubscribed") {
                hall.unsubscribe("a", ARENA);
            }
            if how.ends_with("lost") {
                hall.leave("a");
            }
            hall.deliver(held);
            hall.tick();
            // The game does not see the join of a client that is gone. One that was unsubscribed left on purpose.
            let is_unseen = is_first && how == "lost";
            assert_eq!(
                players(&hall),
                usize::from(!is_unseen && (is_first || stays)),
                "{user} {how}, first: {is_first}"
            );
            hall.tick();
            assert_eq!(players(&hall), usize::from(stays && !is_unseen), "{user} {how}, first: {is_first}");
            assert_eq!(hall.holdings(), [0, 0], "{user} {how}, first: {is_first}");
        }
    }
}

#[test]
fn joins_of_a_room_that_ends_ask_for_it_again_unless_their_sessions_have_ended() {
    let mut hall = hall();
    for name in ["a", "b"] {
        hall.open(name, Encoding::Json, 0);
        hall.join(name, ARENA, &json!({}));
    }
    hall.pass();
    hall.leave("a");
    hall.pass();
    let (_, (mut host, _)) = hall.rooms.pop_first().expect("a room");
    let mut outgoing = Vec::new();
    host.end(UnsubscribeCode::ROOM_FAILED, None, &NotJoined::Unavailable, &mut outgoing);
    let outcome = |message: &FromRoom| match message {
        FromRoom::Joined { request, outcome, .. } => Some((request.asker.session.index, outcome.clone())),
        _ => None,
    };
    let mut outcomes: Vec<_> = outgoing.iter().filter_map(|(_, message)| outcome(message)).collect();
    outcomes.sort_unstable_by_key(|(session, _)| *session);
    assert_eq!(outcomes, [(0, Err(NotJoined::Gone)), (1, Err(NotJoined::Unavailable))]);
}

/// A player, whose token is returned.
fn first_player(hall: &mut Hall, user: &str) -> Value {
    let here = owner_of(ARENA, 2, node::NODE_SEED).0;
    hall.node.open("first", Encoding::Json, here);
    hall.seen.insert("first".to_owned(), Seen::default());
    hall.send_json("first", &json!({"id": 1, "connect": {"token": format!("user={user}")}}));
    hall.join("first", ARENA, &json!({}));
    hall.tick();
    let messages = std::mem::take(&mut hall.seen("first").messages);
    let reply = messages.iter().find(|line| line.contains("seat_token")).expect("a token");
    let reply: Value = serde_json::from_str(reply).expect("JSON");
    json!({"seat_token": reply["subscribe"]["data"]["seat_token"]})
}

/// A room that is restored, whose ticks wait for their log, or that is slow answers joins later than clients wait. An SDK
/// reconnects after five seconds and joins again, as often as it takes.
#[test]
fn a_client_that_joins_again_before_the_first_answer_gets_its_player() {
    for (user, presents_token) in [("", true), ("ann", true), ("ann", false)] {
        for is_seated in [false, true] {
            let mut hall = hall();
            let token = first_player(&mut hall, user);
            hall.leave("first");
            hall.tick();
            let data = if presents_token { token } else { json!({}) };
            let mut held = Vec::new();
            for _ in 0..3 {
                join(&mut hall, user, &data);
                if is_seated {
                    held.extend(hall.run_rooms());
                }
                hall.forget("a");
            }
            join(&mut hall, user, &data);
            held.extend(hall.run_rooms());
            hall.deliver(held);
            let messages = &hall.seen("a").messages;
            assert!(messages.iter().any(|line| line.contains(r#""seat_resumed":true"#)), "{messages:?}");
            hall.tick();
            assert_eq!((players(&hall), hall.tokens_refused.unknown), (1, 0), "{user} seated: {is_seated}");
            assert_eq!(hall.only_room().0.player_count(), 1, "the player has its client");
        }
    }
}

#[test]
fn a_client_lost_before_the_join_reply_returns_with_its_previous_token() {
    let mut hall = hall();
    let token = first_player(&mut hall, "");
    for _ in 0..3 {
        join(&mut hall, "", &token);
        hall.forget("a");
        hall.tick();
        hall.tick();
        assert_eq!((players(&hall), hall.tokens_refused.unknown), (1, 0), "the player is away");
    }
    join(&mut hall, "", &token);
    hall.tick();
    assert!(hall.seen("a").messages.iter().any(|line| line.contains(r#""seat_resumed":true"#)));
    assert_eq!(players(&hall), 1);
}

#[test]
fn a_join_is_answered_after_the_channel_regex_has_changed() {
    let mut wanted = hall_options();
    wanted.namespaces[0].channel_regex = Some(regex::Regex::new("^b$").expect("a pattern"));
    let (next, held) = hall_options().succeeded_by(&wanted);
    assert!(held.is_empty());
    let next = Arc::new(next);
    for closes in [false, true] {
        let mut hall = hall();
        join(&mut hall, "ann", &json!({}));
        if closes {
            hall.node.ask_api(&json!({"close_room": {"channel": ARENA}}));
        }
        for shard in 0..2 {
            hall.node.handle(shard, Event::Reconfigured { options: Arc::clone(&next) });
        }
        hall.tick();
        let messages = std::mem::take(&mut hall.seen("a").messages);
        let error = messages.iter().find(|message| message.contains(r#""id":2"#) && message.contains(r#""error""#));
        assert!(error.is_some(), "closed: {closes}: {messages:?}");
        if !closes {
            hall.tick();
            assert_eq!(players(&hall), 0, "a refused player leaves");
        }
        assert_eq!(hall.holdings(), [0, 0]);
    }
}

#[test]
fn a_player_kicked_in_the_tick_of_its_join_gets_the_reason() {
    for overtakes in [false, true] {
        let mut hall = hall();
        join(&mut hall, "ann", &json!("goat"));
        // With held rings, the room's message arrives before the owner's answer.
        hall.node.holds_rings = overtakes;
        hall.tick();
        assert_eq!(hall.seen("a").messages.is_empty(), overtakes);
        hall.node.holds_rings = false;
        hall.node.settle();
        hall.look();
        let messages = &hall.seen("a").messages;
        let unsubscribed = r#"{"push":{"channel":"arena:a","unsubscribe":{"code":2012,"reason":"no goats"}}}"#;
        assert!(messages[0].contains(r#""subscribe":{"#), "{messages:?}");
        assert_eq!(messages[1..], [unsubscribed], "overtakes: {overtakes}");
        hall.tick();
        assert_eq!((players(&hall), hall.holdings()), (0, [0, 0]));
    }
}
