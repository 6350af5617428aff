//! Rooms: from settings to what they mean, and what has to be right about them.

use std::sync::Arc;

use dunlin_engine::options::{Lane, NamespaceOptions, RoomLimits};
use dunlin_rooms::{Grid, RoomOptions};

use super::{problem::Source, resolve::Reader, value::shortened};
use crate::rooms::{RoomSettings, RoomsOptions};

/// Rooms of all namespaces, in the engine's order: first the channels without one.
pub(super) fn rooms(r: &mut Reader<'_>) -> RoomsOptions {
    let namespaces = (0..r.settings.len("channel.namespaces")).map(|index| format!("channel.namespaces[{index}]"));
    let tables: Vec<String> = std::iter::once("channel.without_namespace".to_owned()).chain(namespaces).collect();
    RoomsOptions {
        registry: Arc::new(r.registry.clone()),
        ring_messages: r.count("room.ring_messages_limit"),
        lost_threads_max: r.narrow("room.lost_threads_limit"),
        namespaces: tables.iter().map(|table| settings(r, table).map(Arc::new)).collect(),
    }
}

/// What the shards need to know of the rooms of a namespace.
pub(super) fn limits(r: &mut Reader<'_>, table: &str) -> Option<RoomLimits> {
    let at = |key: &str| format!("{table}.room.{key}");
    let has_rooms = !r.text(&at("simulation")).is_empty();
    let limits = RoomLimits {
        inputs_per_second: r.narrow(&at("input_rate_limit")),
        input_bytes_max: r.count(&at("input_size_limit")),
        inbox_inputs_max: r.narrow(&at("inbox_limit")),
    };
    has_rooms.then_some(limits)
}

fn settings(r: &mut Reader<'_>, table: &str) -> Option<RoomSettings> {
    let at = |key: &str| format!("{table}.room.{key}");
    let simulation = r.text(&at("simulation"));
    let seed = r.narrow::<u64>(&at("seed"));
    let settings = RoomSettings {
        params: r.json(&at("params")),
        room: RoomOptions {
            ticks_per_second: r.narrow(&at("ticks_per_second")),
            objects_max: r.count(&at("max_objects")),
            state_bytes_max: r.count(&at("object_state_limit")),
            players_max: r.count(&at("max_players")),
            events_per_tick_max: r.count(&at("events_per_tick_limit")),
            event_bytes_max: r.count(&at("event_size_limit")),
        },
        empty_timeout_ms: r.ms(&at("empty_timeout")),
        tick_stuck_timeout_ms: r.ms_above_zero(&at("tick_stuck_timeout")),
        catch_up_ticks: r.narrow(&at("catch_up_ticks")),
        overrun_ticks_max: r.narrow(&at("overrun_ticks_limit")),
        memory_bytes_max: r.narrow(&at("memory_limit")),
        seed: (seed != 0).then_some(seed),
        record_dir: r.path(&at("record_directory")),
        simulation,
    };
    if settings.simulation.is_empty() {
        if let Some(key) = r.settings.first_set_in(&format!("{table}.room")) {
            r.error(&key, "has no effect without `simulation`: name one, or remove the table `room`");
        }
        return None;
    }
    check_simulation(r, table, &settings);
    Some(settings)
}

/// A simulation is made here once, so that what is wrong with its parameters is known before anybody joins.
fn check_simulation(r: &mut Reader<'_>, table: &str, settings: &RoomSettings) {
    let at = |key: &str| format!("{table}.room.{key}");
    match r.registry.make(&settings.simulation, &settings.params) {
        None => {
            let name = shortened(&settings.simulation);
            let known: Vec<_> = r.registry.names().map(|name| format!("{name:?}")).collect();
            r.error(&at("simulation"), format!("{name:?} is no simulation; write one of {}", known.join(", ")));
        }
        Some(Err(error)) => {
            // Where nothing was set, the simulation asks for something.
            let path = if r.settings.source(&at("params")) == Source::Default { "simulation" } else { "params" };
            r.error(&at(path), format!("does not do for {:?}: {error}", settings.simulation));
        }
        Some(Ok(simulation)) => {
            if let Err(error) = Grid::new(simulation.grid()) {
                r.error(&at("params"), format!("make a map that is not possible: {error}"));
            }
        }
    }
}

/// What a namespace with rooms has to be otherwise.
pub(super) fn check_namespace(r: &mut Reader<'_>, table: &str, namespace: &NamespaceOptions) {
    if namespace.room.is_none() {
        return;
    }
    let simulation = format!("{table}.room.simulation");
    if !namespace.has_stream() {
        let text = "needs history, since a room's events have offsets: set `history_size` and `history_ttl` as well";
        r.error(&simulation, text);
    }
    if namespace.delivery == Lane::Latest {
        let text = "\"latest\" skips publications, and a room's events must not be missed: remove it; what players see of \
                    the world is always the newest";
        r.error(&format!("{table}.delivery"), text);
    }
}
