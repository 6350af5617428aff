//! `dunlin replay --diff`.

use std::path::PathBuf;

use dunlin_games::Registry;
use dunlin_rooms::{
    Object, ObjectId, PlayerId,
    recording::{Comparison, Difference, compare},
};
use serde_json::{Value, json};

use super::{
    Failure, Format, RECORDING_BYTES_MAX, begin, hash_text, output, read,
    state::{ObjectLine, object},
};

/// Compares two recordings. If they differ, prints the difference and fails.
pub(super) fn run(files: [&PathBuf; 2], format: Format, registry: &Registry) -> Result<(), Failure> {
    let [one, other] = [read(files[0], RECORDING_BYTES_MAX)?, read(files[1], RECORDING_BYTES_MAX)?];
    let (_, mut one) = begin(files[0], &one.bytes, registry)?;
    let (_, mut other) = begin(files[1], &other.bytes, registry)?;
    let failed = |(is_second, error)| Failure::Replay(files[usize::from(is_second)].clone(), format!("{error}"));
    match compare(&mut one, &mut other).map_err(failed)? {
        Comparison::Equal { ticks } => match format {
            Format::Json => output::line(json!({ "equal": true, "ticks": ticks })),
            Format::Text => {
                output::line(format_args!("no tick differs; the recordings have {} and {} ticks", ticks[0], ticks[1]))
            }
        },
        Comparison::Different(difference) => {
            match format {
                Format::Json => output::line(in_json(&difference))?,
                Format::Text => print(&difference)?,
            }
            let text = format!("differs from {} after tick {}", files[1].display(), difference.tick);
            Err(Failure::Replay(files[0].clone(), text))
        }
    }
}

fn in_json(difference: &Difference) -> Value {
    let Difference { tick, state_hashes, steps, players, objects } = difference;
    let objects = objects.iter().map(|(id, objects)| {
        let [one, other] = objects.each_ref().map(|of| of.as_ref().map(|of| object(*id, of)));
        json!({ "id": id.0, "objects": [one, other] })
    });
    json!({
        "equal": false, "tick": tick, "state_hashes": state_hashes.map(hash_text), "steps": steps,
        "players": players.each_ref().map(|players| players.iter().map(|player| player.0).collect::<Vec<_>>()),
        "objects": objects.collect::<Vec<_>>(),
    })
}

/// The names of the two recordings.
const NAMES: [&str; 2] = ["first", "second"];

fn print(difference: &Difference) -> Result<(), Failure> {
    let Difference { tick, state_hashes, steps, players, objects } = difference;
    let [one, other] = state_hashes.map(hash_text);
    output::line(format_args!("tick {tick} is the first that differs: state hashes {one} and {other}"))?;
    for ((name, steps), players) in NAMES.iter().zip(steps).zip(players) {
        for step in steps {
            output::line(format_args!("only in the {name}: {step}"))?;
        }
        for PlayerId(player) in players {
            output::line(format_args!("only in the {name}: player {player} is in the room"))?;
        }
    }
    for (id, objects) in objects {
        print_object(*id, objects)?;
    }
    if objects.is_empty() {
        output::line("no object differs: the difference is in the simulation's own state, in players or in chance")?;
    }
    Ok(())
}

fn print_object(id: ObjectId, objects: &[Option<Object>; 2]) -> Result<(), Failure> {
    for (name, object) in NAMES.iter().zip(objects) {
        match object {
            Some(object) => output::line(format_args!("object {}, {name}: {}", id.0, ObjectLine(object)))?,
            None => output::line(format_args!("object {}, {name}: not there", id.0))?,
        }
    }
    Ok(())
}
