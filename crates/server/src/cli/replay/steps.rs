//! `dunlin replay --steps`.

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    GameCall, ListingChange, ListingState, PlayerId, Visitor,
    recording::{CallOutcomeRef, Carried, RecordedStep, Replay, ReplayedStep},
};
use serde_json::{Value, json};

use super::{Failure, Format, Hex, output};

/// Prints what happened before and in the last tick: what was told of connections, the steps in order, then the game's calls,
/// then the listing if it is not as it was after the tick before, `listing_before`.
pub(super) fn print(replay: &Replay<'_>, listing_before: &ListingState, format: Format) -> Result<(), Failure> {
    let tick = replay.room().tick_number();
    let listing = replay.room().world().listing();
    for (player, carried) in replay.carried() {
        match format {
            Format::Text => output::line(format_args!("tick {tick}: player {} {carried}", player.0))?,
            Format::Json => output::line(carried_in_json(tick, *player, carried))?,
        }
    }
    for step in replay.steps() {
        match format {
            Format::Text => output::line(format_args!("tick {tick}: {step}"))?,
            Format::Json => output::line(in_json(tick, step))?,
        }
    }
    for PlayerId(player) in replay.untold() {
        match format {
            Format::Text => {
                output::line(format_args!(
                    "tick {tick}: player {player} is connected to another node: what it is sent is not recorded"
                ))?;
            }
            Format::Json => output::line(json!({ "tick": tick, "step": "connected_elsewhere", "player": player }))?,
        }
    }
    for GameCall { id, method, data } in replay.calls() {
        match format {
            Format::Text => {
                let data = Hex(data);
                output::line(format_args!("tick {tick}: the game makes call {} of {method:?}: {data}", id.0))?;
            }
            Format::Json => {
                let data = Hex(data).to_string();
                output::line(json!({ "tick": tick, "step": "call", "call": id.0, "method": method, "data": data }))?;
            }
        }
    }
    if listing == listing_before {
        return Ok(());
    }
    match format {
        Format::Text => output::line(format_args!("tick {tick}: the listing is now: {}", whole(listing))),
        Format::Json => output::line(json!({
            "tick": tick, "step": "listing", "max_players": listing.players_max, "locked": listing.is_locked,
            "unlisted": listing.is_unlisted, "metadata": document(&listing.metadata),
        })),
    }
}

/// `tick` is that before which it was told.
fn carried_in_json(tick: u32, player: PlayerId, carried: &Carried) -> Value {
    let waiting = carried.zone_ages_ticks.map(|age_ticks| (age_ticks > 0).then(|| carried.tick - age_ticks));
    json!({
        "tick": tick, "step": "carried", "player": player.0, "had_tick": carried.had_tick,
        "sent_tick": carried.is_sent.then_some(carried.tick), "paced_ticks": carried.paced_ticks,
        "limited_ticks": carried.limited_ticks, "waited_ticks": carried.waited_ticks,
        "waited_for": (carried.waited_ticks > 0).then(|| carried.wait.name()), "zones_wait_since": waiting,
    })
}

/// The change that produces this listing.
fn whole(listing: &ListingState) -> ListingChange {
    let ListingState { players_max, is_locked, is_unlisted, metadata } = listing;
    let metadata = (!metadata.is_empty()).then(|| metadata.clone());
    ListingChange { players_max: *players_max, is_locked: Some(*is_locked), is_unlisted: Some(*is_unlisted), metadata }
}

pub(super) fn in_json(tick: u32, replayed: &ReplayedStep<'_>) -> Value {
    let data_of = |data: &[u8]| Hex(data).to_string();
    let mut line = match replayed.step {
        RecordedStep::Join { visitor, encoding, data } => {
            let mut line =
                json!({ "step": "join", "visitor": visitor_in_json(&visitor, encoding), "data": data_of(data) });
            match &replayed.joined {
                Some(Ok(player)) => line["player"] = player.0.into(),
                Some(Err(refusal)) => line["refused"] = json!({ "code": refusal.code, "message": refusal.message }),
                None => {}
            }
            line
        }
        RecordedStep::Leave { player } => json!({ "step": "leave", "player": player.0 }),
        RecordedStep::Away { player } => json!({ "step": "away", "player": player.0 }),
        RecordedStep::Back { player, visitor, encoding } => {
            json!({ "step": "back", "player": player.0, "visitor": visitor_in_json(&visitor, encoding) })
        }
        RecordedStep::Input { player, number, data } => {
            json!({ "step": "input", "player": player.0, "number": number, "data": data_of(data) })
        }
        RecordedStep::Message { data } => json!({ "step": "message", "data": data_of(data) }),
        RecordedStep::Listing { change } => {
            let ListingChange { players_max, is_locked, is_unlisted, metadata } =
                ListingChange::read(change).unwrap_or_default();
            let metadata = metadata.as_deref().map(document);
            json!({ "step": "listing_change", "max_players": players_max, "locked": is_locked,
                "unlisted": is_unlisted, "metadata": metadata })
        }
        RecordedStep::Kick { player, reason } => json!({ "step": "kick", "player": player.0, "reason": reason }),
        RecordedStep::Answer { call, outcome } => {
            let mut line = json!({ "step": "answer", "call": call.0 });
            match outcome {
                CallOutcomeRef::Data(data) => line["data"] = data_of(data).into(),
                CallOutcomeRef::Refused { code, message } => {
                    line["refused"] = json!({ "code": code, "message": message });
                }
                other => line["error"] = other.to_result().err().map(|error| error.name()).into(),
            }
            line
        }
    };
    line["tick"] = tick.into();
    line
}

/// An empty document becomes `null`.
fn document(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_default()
}

fn visitor_in_json(visitor: &Visitor<'_>, encoding: Encoding) -> Value {
    let Visitor { user, client, info, is_spectator, address } = visitor;
    json!({
        "user": user, "client": client, "info": Hex(info).to_string(), "spectator": is_spectator,
        "address": address.map(|address| address.to_string()),
        "encoding": match encoding {
            Encoding::Json => "json",
            Encoding::Protobuf => "protobuf",
        },
    })
}
