//! Results of rounds for the application's backend, and the messages to players about its answers.

use std::{cmp::Reverse, collections::BTreeMap};

use dunlin_rooms::{CallError, CallId, ObjectId, RestoreError, Scope, World, WorldError};
use serde_json::{Value, json};

use super::{
    report,
    round::Round,
    runner::{Driver, TagRunner},
};
use crate::{
    saved::Saved,
    saving::{write_length, write_u32},
};

/// The method of the calls.
const METHOD: &str = "round_over";
/// Timeout for an answer in seconds, shorter than the pause between two rounds.
const TIMEOUT_S: u32 = 3;
/// Maximum number of players in a result.
const PLAYERS_MAX: usize = 100;
/// Maximum number of characters of the backend's message that players see.
const WORDS_CHARS_MAX: usize = 200;

/// The results that the backend has not answered yet.
#[derive(Debug, Default)]
pub struct Results {
    /// The round of each call.
    waiting: BTreeMap<CallId, u32>,
}

impl Results {
    /// Sends the result of a round. Returns whether an answer or an error will follow; `false` in a room without a
    /// backend.
    pub fn send(&mut self, world: &mut World, round: &Round, runners: &BTreeMap<ObjectId, TagRunner>) -> bool {
        let result = result(world, round, runners);
        match world.call(METHOD, result.as_bytes(), TIMEOUT_S * world.ticks_per_second()) {
            Ok(call) => {
                self.waiting.insert(call, round.number);
                true
            }
            Err(WorldError::NoBackend) => false,
            Err(error) => {
                let _ = world.emit(Scope::All, &report::result_lost(round.number, &error.to_string()));
                false
            }
        }
    }

    /// Approximate memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.waiting.len() * size_of::<(CallId, u32)>()
    }

    /// Processes the backend's answer or its error. Returns the round.
    pub fn end(&mut self, world: &mut World, call: CallId, outcome: &Result<&[u8], CallError>) -> Option<u32> {
        let round = self.waiting.remove(&call)?;
        let event = match outcome {
            Ok(answer) => report::result_saved(round, &words(answer)),
            Err(CallError::Refused(refusal)) => report::result_lost(round, &shortened(&refusal.message)),
            Err(error) => report::result_lost(round, error.name()),
        };
        let _ = world.emit(Scope::All, &event);
        Some(round)
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        write_length(self.waiting.len(), out);
        for (call, round) in &self.waiting {
            write_u32(call.0, out);
            write_u32(*round, out);
        }
    }

    pub fn read(saved: &mut Saved<'_>) -> Result<Self, RestoreError> {
        let waiting = saved.list(|saved| Ok((CallId(saved.u32()?), saved.u32()?)))?;
        Ok(Self { waiting })
    }
}

/// The players of a round, the best first. Excludes bots, which have no user to receive the points.
fn result(world: &World, round: &Round, runners: &BTreeMap<ObjectId, TagRunner>) -> String {
    let is_player = |runner: &&TagRunner| matches!(runner.driver, Driver::Player { .. });
    let mut players: Vec<&TagRunner> = runners.values().filter(is_player).collect();
    players.sort_by_key(|runner| Reverse(runner.score));
    players.truncate(PLAYERS_MAX);
    let one = |runner: &&TagRunner| json!({ "user": runner.user, "name": runner.looks.name, "score": runner.score });
    let scores: Vec<Value> = players.iter().map(one).collect();
    json!({ "room": world.info().channel, "round": round.number, "scores": scores }).to_string()
}

/// The string `message` in an answer; empty if it is absent.
fn words(answer: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    shortened(answer["message"].as_str().unwrap_or_default())
}

fn shortened(text: &str) -> String {
    text.chars().take(WORDS_CHARS_MAX).collect()
}
