//! Events for players, and the answer to the backend. `docs/tag.md` lists them.

use dunlin_rooms::{ObjectId, Position};
use serde_json::{Value, json};

use super::{round::Round, runner::TagRunner};

/// For a player that has joined.
pub fn welcome(runner: &TagRunner, round: &Round) -> String {
    json!({ "welcome": {
        "player": runner.avatar.0, "name": runner.looks.name, "round": round.number, "score_limit": round.score_limit
    } })
    .to_string()
}

/// For players nearby when a runner is tagged.
pub fn tagged(by: &TagRunner, target: ObjectId, target_name: &str, place: Position) -> String {
    json!({ "tagged": {
        "by": by.avatar.0, "by_name": by.looks.name, "player": target.0, "name": target_name, "x": place.x, "y": place.y
    } })
    .to_string()
}

/// For all players when a round is over.
pub fn round_over(round: &Round, winner: &TagRunner, next_round_tick: u32) -> String {
    json!({ "round_over": {
        "round": round.number, "winner": winner.avatar.0, "name": winner.looks.name, "next_round_tick": next_round_tick
    } })
    .to_string()
}

/// For all players when a round begins.
pub fn round_started(round: &Round) -> String {
    json!({ "round_started": { "round": round.number, "score_limit": round.score_limit } }).to_string()
}

/// For all players when the scoreboard has changed.
pub fn scores(round: &Round, leaders: &[(ObjectId, &TagRunner)], runners: usize) -> String {
    let leaders: Vec<Value> = leaders
        .iter()
        .map(|(id, runner)| {
            json!({ "player": id.0, "name": runner.looks.name, "colour": runner.looks.colour, "score": runner.score })
        })
        .collect();
    json!({ "scores": {
        "round": round.number, "score_limit": round.score_limit, "runners": runners, "leaders": leaders
    } })
    .to_string()
}

/// For all players when the backend has the result of a round.
pub fn result_saved(round: u32, message: &str) -> String {
    json!({ "result": { "round": round, "message": message } }).to_string()
}

/// For all players when the backend may not have the result of a round.
pub fn result_lost(round: u32, error: &str) -> String {
    json!({ "result": { "round": round, "error": error } }).to_string()
}

/// The metadata of the room.
pub fn metadata(round: &Round) -> String {
    let phase = match (round.is_playing(), round.is_last()) {
        (false, _) => "over",
        (true, true) => "last",
        (true, false) => "playing",
    };
    json!({ "round": round.number, "phase": phase }).to_string()
}

/// The answer to a message of the backend.
pub fn state(round: &Round, players: usize) -> String {
    json!({ "round": round.number, "score_limit": round.score_limit, "players": players }).to_string()
}
