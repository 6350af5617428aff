//! Events and the leaderboard. `docs/rooms.md` lists them.

use std::{cmp::Reverse, collections::BTreeMap};

use dunlin_rooms::{PlayerId, Position, World};
use serde_json::{Value, json};

use super::{clue, clue::Clue, player::HuntPlayer, treasure::Find};

/// For a player that has joined.
pub fn welcome(player: &HuntPlayer, lying: Option<&Clue>) -> String {
    let clue = lying.map(describe);
    json!({ "welcome": {
        "player": player.avatar.0, "name": player.looks.name, "colour": player.looks.colour, "clue": clue
    } })
    .to_string()
}

/// For nearby players when a player joins.
pub fn joined(player: &HuntPlayer) -> String {
    json!({ "joined": { "player": player.avatar.0, "name": player.looks.name, "colour": player.looks.colour } })
        .to_string()
}

/// For nearby players when a player leaves.
pub fn left(player: &HuntPlayer) -> String {
    json!({ "left": { "player": player.avatar.0, "name": player.looks.name } }).to_string()
}

/// For nearby players when a player finds something.
pub fn found(player: &HuntPlayer, find: Find, place: Position) -> String {
    json!({ "found": {
        "player": player.avatar.0, "name": player.looks.name, "treasure": find.treasure.0, "value": find.value,
        "x": place.x, "y": place.y
    } })
    .to_string()
}

/// For all players when a clue drops.
pub fn clue(clue: &Clue) -> String {
    json!({ "clue": describe(clue) }).to_string()
}

/// For all players when a clue is gone.
pub fn clue_over(clue: &Clue, found: bool) -> String {
    json!({ "clue_over": { "treasure": clue.treasure.0, "found": found } }).to_string()
}

fn describe(clue: &Clue) -> Value {
    let Position { x, y } = clue.position;
    json!({
        "x": x, "y": y, "treasure": clue.treasure.0, "shares": clue.shares, "value": clue::SHARE_VALUE,
        "until": clue.until
    })
}

/// Number of players on the leaderboard.
const LEADERS_MAX: usize = 10;

/// The leaderboard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Board {
    /// The channel of the leaderboard, if any.
    pub channel: Option<Box<str>>,
    /// Whether it has changed since it was last published.
    pub changed: bool,
    /// The first tick in which it may be published again.
    pub next: u32,
}

impl Board {
    /// Publishes the leaderboard if it has changed, at most once per second.
    pub fn tick(&mut self, world: &mut World, players: &BTreeMap<PlayerId, HuntPlayer>) {
        let Some(channel) = self.channel.as_deref().filter(|_| self.changed && world.tick() >= self.next) else {
            return;
        };
        // If this tick has reached its limit on publications, the next one tries again.
        self.changed = world.publish(channel, &leaders(players, world.object_count())).is_err();
        self.next = world.tick().saturating_add(world.ticks_per_second());
    }
}

fn leaders(players: &BTreeMap<PlayerId, HuntPlayer>, objects: usize) -> String {
    let mut ranked: Vec<_> = players.iter().map(|(id, player)| ((Reverse(player.score), *id), player)).collect();
    if ranked.len() > LEADERS_MAX {
        ranked.select_nth_unstable_by_key(LEADERS_MAX, |(rank, _)| *rank);
        ranked.truncate(LEADERS_MAX);
    }
    ranked.sort_unstable_by_key(|(rank, _)| *rank);
    let leaders: Vec<Value> = ranked
        .into_iter()
        .map(|(_, player)| {
            let HuntPlayer { looks, avatar, score, .. } = player;
            json!({ "player": avatar.0, "name": looks.name, "colour": looks.colour, "score": score })
        })
        .collect();
    json!({ "leaders": leaders, "players": players.len(), "objects": objects }).to_string()
}
