//! Messages of the backend to rooms: answers, refusals and limits.

use dunlin_engine::{
    counters::MessageOutcome,
    room::{FromRoom, ToRoom},
};
use dunlin_protocol::{Encoding, UnsubscribeCode};
use serde_json::{Value, json};

use crate::{
    hall::{Hall, options},
    node::api,
};

const ARENA: &str = "arena:a";

impl Hall {
    fn send_to_room(&mut self, channel: &str, data: &str) {
        self.node.ask_api(&json!({"send_to_room": {"channel": channel, "data": data}}));
    }

    /// Takes the answers received since the last call.
    fn api_answers(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.node.answers).iter().map(api::answer).collect()
    }

    fn messages(&self, outcome: MessageOutcome) -> u64 {
        self.node.shards.iter().map(|shard| shard.counters().namespaces[1].rooms.messages[outcome as usize]).sum()
    }
}

#[test]
fn a_message_is_answered_after_its_tick_by_the_game() {
    for shards in [1, 2] {
        let mut hall = Hall::new(shards, options());
        hall.gather(&[("a", Encoding::Json, 0)], ARENA);
        hall.send_to_room(ARENA, "rain");
        hall.pass();
        assert_eq!(hall.api_answers(), Vec::<Value>::new());
        hall.tick();
        assert_eq!(hall.api_answers(), [json!({"data": "1"})]);
        assert!(hall.seen["a"].events.iter().any(|(_, _, event)| event.contains("rain")), "the message had an effect");
        hall.send_to_room(ARENA, "no");
        hall.tick();
        assert_eq!(hall.api_answers(), [json!({"refused": 451, "message": "not today"})]);
        assert_eq!(hall.messages(MessageOutcome::Answered), 1);
        assert_eq!(hall.messages(MessageOutcome::Refused), 1);
    }
}

#[test]
fn metadata_past_the_limit_is_refused_by_the_owner() {
    let mut hall = Hall::new(1, options());
    hall.node.ask_api(&json!({"open_room": {"channel": ARENA}}));
    hall.tick();
    hall.api_answers();
    hall.node.ask_api(&json!({"change_listing": {"channel": ARENA, "metadata": "123456789012"}}));
    hall.tick();
    assert_eq!(hall.api_answers(), [json!({"data": ""})]);
    hall.node.ask_api(&json!({"change_listing": {"channel": ARENA, "metadata": "1234567890123"}}));
    assert_eq!(hall.api_answers(), [json!({"error": 107})]);
    assert_eq!(hall.messages(MessageOutcome::TooLong), 1);
}

#[test]
fn messages_are_limited_in_size_and_number() {
    let mut hall = Hall::new(1, options());
    hall.node.ask_api(&json!({"open_room": {"channel": ARENA}}));
    hall.tick();
    hall.api_answers();
    // A message and an answer have at most 16 bytes.
    hall.send_to_room(ARENA, "12345678");
    hall.send_to_room(ARENA, "123456789");
    // At most 2 messages wait for the room.
    hall.send_to_room(ARENA, "one more");
    hall.send_to_room(ARENA, &"x".repeat(17));
    assert_eq!(hall.api_answers(), [json!({"error": 111}), json!({"error": 107})]);
    hall.tick();
    assert_eq!(hall.api_answers(), [json!({"data": "1234567812345678"}), json!({"error": 100})]);
    hall.send_to_room(ARENA, &"x".repeat(16));
    hall.tick();
    assert_eq!(hall.api_answers(), [json!({"error": 100})], "the answer is too long, the message is not");
    for (outcome, count) in [
        (MessageOutcome::TooMany, 1),
        (MessageOutcome::TooLong, 1),
        (MessageOutcome::Answered, 1),
        (MessageOutcome::AnswerTooLong, 2),
    ] {
        assert_eq!(hall.messages(outcome), count, "{outcome:?}");
    }
}

#[test]
fn without_an_open_room_nothing_is_sent() {
    let mut hall = Hall::new(1, options());
    for (channel, error) in [(ARENA, 108), ("news", 108), ("nowhere:a", 102)] {
        hall.send_to_room(channel, "rain");
        assert_eq!(hall.api_answers(), [json!({"error": error})], "{channel}");
    }
    assert_eq!(hall.messages(MessageOutcome::NotOpen), 1);
    assert!(hall.node.to_rooms.is_empty());
}

#[test]
fn pending_messages_are_answered_when_their_room_ends() {
    for (is_failure, error) in [(false, 108), (true, 100)] {
        let mut hall = Hall::new(1, options());
        hall.node.ask_api(&json!({"open_room": {"channel": ARENA}}));
        hall.tick();
        hall.api_answers();
        let room = hall.only_room().0.key();
        hall.send_to_room(ARENA, "rain");
        hall.send_to_room(ARENA, "rain");
        let sent: Vec<u64> = hall.node.to_rooms.iter().filter_map(|(_, message)| message_id(message)).collect();
        assert_eq!(sent.len(), 2);
        if is_failure {
            hall.on_message(0, FromRoom::Failed { room, channel: ARENA.into(), refusal: None });
        } else {
            hall.node.ask_api(&json!({"close_room": {"channel": ARENA}}));
        }
        let answers = hall.api_answers();
        assert_eq!(answers.iter().filter(|answer| **answer == json!({"error": error})).count(), 2, "{answers:?}");
        assert_eq!(hall.messages(MessageOutcome::RoomEnded), 2);
        // A late answer of the room has no effect.
        hall.on_message(0, FromRoom::Answered { room, channel: ARENA.into(), id: sent[0], answer: Ok("1".into()) });
        assert_eq!(hall.api_answers(), Vec::<Value>::new());
    }
}

#[test]
fn a_locked_room_admits_only_returning_players() {
    let mut options = options();
    options.namespaces[0].room.as_mut().expect("rooms").gives_seat_tokens = true;
    let mut hall = Hall::new(1, options);
    hall.seat_grace_ticks = 100;
    hall.gather(&[("a", Encoding::Json, 0)], ARENA);
    hall.node.ask_api(&json!({"change_listing": {"channel": ARENA, "is_locked": true, "metadata": "{}"}}));
    assert_eq!(hall.api_answers(), Vec::<Value>::new());
    hall.tick();
    assert_eq!(hall.api_answers(), [json!({"data": ""})]);
    let listing = hall.only_room().1.room().world().listing().clone();
    assert_eq!((listing.is_locked, &*listing.metadata), (true, "{}"));
    hall.open("b", Encoding::Json, 0);
    hall.tick();
    hall.seen("b").messages.clear();
    hall.subscribe("b", ARENA);
    hall.tick();
    assert_eq!(hall.seen["b"].messages, [r#"{"id":2,"error":{"code":423,"message":"the room is locked"}}"#]);
    // Invalid metadata leaves the lock unchanged.
    hall.node.ask_api(&json!({"change_listing": {"channel": ARENA, "is_locked": false, "metadata": "{"}}));
    hall.tick();
    assert_eq!(hall.api_answers()[0]["refused"], 400);
    assert!(hall.only_room().1.room().world().listing().is_locked);
}

fn message_id(message: &ToRoom) -> Option<u64> {
    match message {
        ToRoom::Message { id, .. } => Some(*id),
        _ => None,
    }
}

#[test]
fn an_empty_room_is_not_closed_while_a_message_waits() {
    let mut hall = Hall::new(1, options());
    hall.node.ask_api(&json!({"open_room": {"channel": ARENA}}));
    hall.tick();
    hall.api_answers();
    let room = hall.only_room().0.key();
    hall.send_to_room(ARENA, "rain");
    hall.on_message(0, FromRoom::Idle { room, channel: ARENA.into() });
    hall.tick();
    assert_eq!(hall.api_answers(), [json!({"data": "0"})]);
    hall.on_message(0, FromRoom::Idle { room, channel: ARENA.into() });
    assert!(
        hall.node
            .to_rooms
            .iter()
            .any(|(_, message)| matches!(message, ToRoom::Close { code, .. } if *code == UnsubscribeCode::ROOM_CLOSED))
    );
}

#[test]
fn the_backend_cannot_publish_into_a_room() {
    let mut hall = Hall::new(1, options());
    hall.gather(&[("a", Encoding::Json, 0)], ARENA);
    hall.node.ask_api(&json!({"publish": {"channel": ARENA, "data": 1}}));
    assert_eq!(hall.api_answers(), [json!({"error": 108})]);
    hall.node.ask_api(&json!({"publish": {"channel": "news", "data": 1}}));
    assert_eq!(hall.api_answers()[0]["offset"], 1);
    hall.tick();
    assert!(hall.seen["a"].events.is_empty());
}
