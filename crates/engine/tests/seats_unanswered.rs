//! What happens to a player before its client has the answer to its join.

use dunlin_engine::owner_of;
use dunlin_protocol::Encoding;
use serde_json::{Value, json};

use crate::{
    hall::{Hall, Seen, options},
    node,
};

const ARENA: &str = "arena:a";

fn hall() -> Hall {
    let mut options = options();
    options.namespaces[0].room.as_mut().expect("rooms").gives_seat_tokens = true;
    let mut hall = Hall::new(2, options);
    hall.seat_grace_ticks = 100;
    hall
}

fn players(hall: &Hall) -> usize {
    hall.only_room().1.room().player_count()
}

/// A session that waits for the answer to its join, on a shard that is not the room's owner.
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
fn who_is_gone_before_the_answer_leaves_unless_its_user_may_come_back() {
    for (user, how, stays) in [
        ("ann", "closed for good", false),
        ("ann", "closed for good, then lost", false),
        ("ann", "unsubscribed, then lost", false),
        ("ann", "lost", true),
        ("", "lost", false),
    ] {
        let mut hall = hall();
        join(&mut hall, user, &json!({}));
        hall.node.ask_api(&json!({"open_room": {"channel": ARENA}}));
        if how.starts_with("closed") {
            hall.node.ask_api(&json!({"disconnect": {"user": user}}));
        }
        if how.starts_with("unsubscribed") {
            hall.unsubscribe("a", ARENA);
        }
        if how.ends_with("lost") {
            hall.leave("a");
        }
        hall.tick();
        assert_eq!(players(&hall), 1, "{how}: the room has let it in");
        hall.tick();
        assert_eq!(players(&hall), usize::from(stays), "{user} {how}");
        assert_eq!(hall.holdings(), [0, 0], "{user} {how}");
    }
}

#[test]
fn a_player_that_is_kicked_in_the_tick_of_its_join_learns_why() {
    for overtakes in [false, true] {
        let mut hall = hall();
        join(&mut hall, "ann", &json!("goat"));
        // With held rings, the room's message is there before the owner's answer.
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
