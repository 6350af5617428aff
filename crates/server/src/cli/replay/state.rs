//! Prints the content of a room, and the messages of its game.

use std::fmt;

use dunlin_rooms::{Object, ObjectId, Scoped, Visibility, World, recording::Replay};
use serde_json::{Value, json};

use super::{Failure, Format, Hex, output};

/// Prints the events and publications of the last tick, if they are collected.
pub(super) fn print_events(replay: &Replay<'_>, format: Format) -> Result<(), Failure> {
    let tick = replay.room().tick_number();
    for scoped in replay.events() {
        match format {
            Format::Json => output::line(event(tick, scoped))?,
            Format::Text => output::line(EventLine(tick, scoped))?,
        }
    }
    Ok(())
}

/// An event or a publication in JSON.
pub(super) fn event(tick: u32, scoped: &Scoped) -> Value {
    let document = |data| serde_json::from_slice::<Value>(data).unwrap_or_default();
    match scoped {
        Scoped::Event { players, data } => {
            let players: Option<Vec<u32>> = players.as_ref().map(|players| players.iter().map(|id| id.0).collect());
            json!({ "tick": tick, "players": players, "event": document(data)["event"] })
        }
        Scoped::Publication { channel, data } => json!({ "tick": tick, "channel": channel, "data": document(data) }),
    }
}

struct EventLine<'a>(u32, &'a Scoped);

impl fmt::Display for EventLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = event(self.0, self.1);
        write!(f, "tick {}: ", self.0)?;
        match self.1 {
            Scoped::Publication { channel, .. } => write!(f, "publication in {channel:?}: {}", value["data"]),
            Scoped::Event { players: None, .. } => write!(f, "event for all players: {}", value["event"]),
            Scoped::Event { .. } => write!(f, "event for players {}: {}", value["players"], value["event"]),
        }
    }
}

/// Prints the objects in the order of their numbers.
pub(super) fn print_objects(world: &World) -> Result<(), Failure> {
    for (id, object) in in_order(world) {
        output::line(format_args!("object {}: {}", id.0, ObjectLine(object)))?;
    }
    Ok(())
}

/// The objects in the order of their numbers.
pub(super) fn objects(world: &World) -> Value {
    in_order(world).into_iter().map(|(id, one)| object(id, one)).collect()
}

fn in_order(world: &World) -> Vec<(ObjectId, &Object)> {
    let mut objects: Vec<_> = world.objects().collect();
    objects.sort_unstable_by_key(|(id, _)| *id);
    objects
}

/// An object in JSON.
pub(super) fn object(id: ObjectId, object: &Object) -> Value {
    let Object { position, kind, state, .. } = object;
    json!({
        "id": id.0, "kind": kind, "x": position.x, "y": position.y, "visibility": visibility(object),
        "state": Hex(state).to_string(),
    })
}

fn visibility(object: &Object) -> String {
    match object.visibility {
        Visibility::Everyone => "everyone".to_owned(),
        Visibility::Nobody => "nobody".to_owned(),
        Visibility::Owner(player) => format!("player {}", player.0),
    }
}

/// An object in a line of text.
pub(super) struct ObjectLine<'a>(pub(super) &'a Object);

impl fmt::Display for ObjectLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Object { position, kind, state, .. } = self.0;
        write!(f, "kind {kind} at {}, {}, visible to {}", position.x, position.y, visibility(self.0))?;
        if state.is_empty() { Ok(()) } else { write!(f, ", state {}", Hex(state)) }
    }
}
