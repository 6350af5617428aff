//! Converts the settings of rooms to options, and checks them.

use std::{num::NonZeroU32, sync::Arc};

use dunlin_engine::options::{Lane, NamespaceOptions, RoomLimits, RoomOpenings};
use dunlin_rooms::{ClockRate, Grid, RoomOptions};

use super::{
    Config, OverrunPolicy, PathSettings, RecordingSettings, RoomSettings, RoomSurvival, RoomsOptions,
    problem::SettingSource, proxies::ProxyTable, resolve::Reader, value::shortened,
};

/// The table of channels without a namespace.
const WITHOUT_NAMESPACE: &str = "channel.without_namespace";

/// Rooms of all namespaces in the engine's order, beginning with channels without a namespace.
pub(super) fn rooms(r: &mut Reader<'_>, proxy_table: &ProxyTable) -> RoomsOptions {
    let namespaces = (0..r.settings.len("channel.namespaces")).map(|index| format!("channel.namespaces[{index}]"));
    let tables: Vec<String> = std::iter::once(WITHOUT_NAMESPACE.to_owned()).chain(namespaces).collect();
    let rooms = RoomsOptions {
        registry: Arc::new(r.registry.clone()),
        ring_messages: r.count("room.ring_messages_limit"),
        lost_threads_max: r.narrow("room.lost_threads_limit"),
        memory_bytes_max: r.narrow("room.total_memory_limit"),
        path_blocks_max: r.count("room.paths_queue_limit"),
        namespaces: tables.iter().map(|table| settings(r, proxy_table, table).map(Arc::new)).collect(),
    };
    check_recordings(r, &tables, &rooms);
    rooms
}

/// Limits on opening rooms.
pub(super) fn openings(r: &mut Reader<'_>) -> RoomOpenings {
    RoomOpenings {
        per_second: r.narrow("room.open_rate_limit"),
        session_per_second: r.narrow("room.session_open_rate_limit"),
        source_per_second: r.narrow("room.address_open_rate_limit"),
        opening_max: r.count("room.opening_limit"),
    }
}

/// The limits of a namespace's rooms that shards enforce.
pub(super) fn limits(r: &mut Reader<'_>, table: &str) -> Option<RoomLimits> {
    let at = |key: &str| format!("{table}.room.{key}");
    let has_rooms = !r.text(&at("simulation")).is_empty();
    let limits = RoomLimits {
        inputs_per_second: r.narrow(&at("input_rate_limit")),
        input_bytes_max: r.count(&at("input_size_limit")),
        inbox_inputs_max: r.narrow(&at("inbox_limit")),
        frame_bytes_per_second: NonZeroU32::new(r.narrow(&at("player_bandwidth_limit"))),
        gives_seat_tokens: r.text(&at("survival")) != "none" || r.ms(&at("seat_grace")) > 0,
        moves: r.text(&at("survival")) != "none",
        is_one_seat_per_user: r.bool(&at("one_seat_per_user")),
        shows_address: r.bool(&at("visitor_address")),
        messages_max: r.count(&at("messages_limit")),
        message_bytes_max: r.count(&at("message_size_limit")),
        players_max: r.count(&at("max_players")),
        metadata_bytes_max: r.count(&at("metadata_size_limit")),
        join_params: r.texts(&at("join_params")).into_iter().map(Into::into).collect(),
        params_bytes_max: r.count(&at("params_size_limit")),
    };
    has_rooms.then_some(limits)
}

fn settings(r: &mut Reader<'_>, proxy_table: &ProxyTable, table: &str) -> Option<RoomSettings> {
    let at = |key: &str| format!("{table}.room.{key}");
    let simulation = r.text(&at("simulation"));
    let seed = r.narrow::<u64>(&at("seed"));
    let call_proxy = proxy_table.find(r, &format!("{table}.room"), "call", "rpc.proxy");
    let calls_max = r.count(&at("calls_limit"));
    let settings = RoomSettings {
        namespace: if table == WITHOUT_NAMESPACE { "".into() } else { r.text(&format!("{table}.name")).into() },
        params: r.json(&at("params")),
        room: RoomOptions {
            ticks_per_second: r.narrow(&at("ticks_per_second")),
            objects_max: r.count(&at("max_objects")),
            state_bytes_max: r.count(&at("object_state_limit")),
            players_max: r.count(&at("max_players")),
            spectators_max: r.count(&at("max_spectators")),
            events_per_tick_max: r.count(&at("events_per_tick_limit")),
            event_bytes_max: r.count(&at("event_size_limit")),
            metadata_bytes_max: r.count(&at("metadata_size_limit")),
            calls_max: if call_proxy.is_some() { calls_max } else { 0 },
            call_bytes_max: r.count(&at("call_size_limit")),
        },
        call_proxy,
        empty_timeout_ms: r.ms(&at("empty_timeout")),
        tick_stuck_timeout_ms: r.ms_above_zero(&at("tick_stuck_timeout")),
        catch_up_ticks: r.narrow(&at("catch_up_ticks")),
        overrun: overrun_policy(r, table),
        overrun_ticks_max: r.narrow(&at("overrun_ticks_limit")),
        memory_bytes_max: r.narrow(&at("memory_limit")),
        seed: (seed != 0).then_some(seed),
        recording: recording(r, table),
        survival: match r.text(&at("survival")).as_str() {
            "checkpoint" => RoomSurvival::Checkpoint,
            "exact" => RoomSurvival::Exact,
            _ => RoomSurvival::None,
        },
        checkpoint_interval_ms: r.ms_above_zero(&at("checkpoint_interval")),
        checkpoint_bytes_max: r.count(&at("checkpoint_size_limit")),
        held_ticks_max: r.count(&at("held_ticks_limit")),
        seat_grace_ms: r.ms(&at("seat_grace")),
        away_per_user_max: r.narrow(&at("max_away_per_user")),
        paths: paths(r, &at("paths")),
        simulation,
    };
    if settings.simulation.is_empty() {
        if let Some(key) = r.settings.first_set_in(&format!("{table}.room")) {
            r.error(&key, "has no effect without `simulation`: set it, or remove the table `room`");
        }
        return None;
    }
    check_simulation(r, table, &settings);
    Some(settings)
}

/// Read also without a directory, so that a wrong value is reported.
fn recording(r: &mut Reader<'_>, table: &str) -> Option<RecordingSettings> {
    let at = |key: &str| format!("{table}.room.{key}");
    let (bytes_max, ttl_ms) = (r.narrow(&at("record_bytes_max")), r.ms(&at("record_ttl")));
    let directory = r.path(&at("record_directory"))?;
    Some(RecordingSettings { directory, bytes_max, ttl_ms })
}

/// Checks that a directory has one limit: names of recordings do not tell namespaces apart.
fn check_recordings(r: &mut Reader<'_>, tables: &[String], rooms: &RoomsOptions) {
    let mut known: Vec<(&String, &RecordingSettings)> = Vec::new();
    for (table, settings) in tables.iter().zip(&rooms.namespaces) {
        let Some(recording) = settings.as_ref().and_then(|settings| settings.recording.as_ref()) else { continue };
        let first = known.iter().find(|(_, first)| first.directory == recording.directory);
        let Some((first_table, first)) = first else {
            known.push((table, recording));
            continue;
        };
        for (key, is_same) in [
            ("record_bytes_max", first.bytes_max == recording.bytes_max),
            ("record_ttl", first.ttl_ms == recording.ttl_ms),
        ] {
            if !is_same {
                let text = format!("must be that of `{first_table}.room`, which records into the same directory");
                r.error(&format!("{table}.room.{key}"), text);
            }
        }
    }
}

fn overrun_policy(r: &mut Reader<'_>, table: &str) -> OverrunPolicy {
    let rate_min = r.narrow(&format!("{table}.room.min_rate_permille"));
    match r.text(&format!("{table}.room.overrun")).as_str() {
        "dilate" => OverrunPolicy::Dilate { rate_min: ClockRate::from_permille(rate_min).unwrap_or_default() },
        _ => OverrunPolicy::Skip,
    }
}

fn paths(r: &mut Reader<'_>, table: &str) -> Option<PathSettings> {
    let at = |key: &str| format!("{table}.{key}");
    let settings = PathSettings {
        interval_ticks: r.narrow(&at("interval_ticks")),
        block_ms: r.ms_above_zero(&at("block_interval")),
        retention_ms: r.ms_above_zero(&at("retention")),
    };
    r.bool(&at("enabled")).then_some(settings)
}

/// Checks that paths can be stored.
pub(super) fn check_paths(r: &mut Reader<'_>, table: &str, settings: Option<&RoomSettings>, has_storage: bool) {
    if !has_storage && settings.is_some_and(|settings| settings.paths.is_some()) {
        r.error(&format!("{table}.room.paths.enabled"), "needs a storage: set `storage.path` to a directory");
    }
}

/// Creates the simulation once, so that invalid parameters are reported before the first join.
fn check_simulation(r: &mut Reader<'_>, table: &str, settings: &RoomSettings) {
    let at = |key: &str| format!("{table}.room.{key}");
    match r.registry.make(&settings.simulation, &settings.params) {
        None => {
            let name = shortened(&settings.simulation);
            let known: Vec<_> = r.registry.names().map(|name| format!("{name:?}")).collect();
            r.error(&at("simulation"), format!("{name:?} is not a known simulation; use one of {}", known.join(", ")));
        }
        Some(Err(error)) => {
            // If no parameter is set, the simulation requires one.
            let path = if r.settings.source(&at("params")) == SettingSource::Default { "simulation" } else { "params" };
            r.error(&at(path), format!("is invalid for {:?}: {error}", settings.simulation));
        }
        Some(Ok(simulation)) => {
            if let Err(error) = Grid::new(simulation.grid()) {
                r.error(&at("params"), format!("describe an invalid map: {error}"));
            }
        }
    }
}

/// Checks that rooms which survive a restart have a storage with room for their checkpoints, or are in a cluster.
pub(super) fn check_survival(r: &mut Reader<'_>, config: &Config) {
    let names = (0..r.settings.len("channel.namespaces")).map(|index| format!("channel.namespaces[{index}]"));
    let tables = std::iter::once(WITHOUT_NAMESPACE.to_owned()).chain(names);
    let kept: Vec<_> =
        tables.zip(&config.rooms.namespaces).filter_map(|(table, room)| Some((table, room.as_ref()?))).collect();
    for (table, room) in kept {
        let value = match room.survival {
            RoomSurvival::None => continue,
            RoomSurvival::Checkpoint => "checkpoint",
            RoomSurvival::Exact => "exact",
        };
        let (queue_bytes_max, queue_key) = match (&config.broker, &config.storage) {
            (Some(broker), _) => (broker.requests_bytes_max, "broker.nats.jetstream.requests_size_limit"),
            (None, Some(storage)) => (storage.queues.write_bytes_max, "storage.queue_bytes_limit"),
            (None, None) => {
                let text = format!("{value:?} needs a storage: set `storage.path` to a directory");
                r.error(&format!("{table}.room.survival"), text);
                continue;
            }
        };
        if room.checkpoint_bytes_max > queue_bytes_max / 2 {
            let text = format!(
                "must not be above half of `{queue_key}`, which the queue for writes has: lower it, or raise that"
            );
            r.error(&format!("{table}.room.checkpoint_size_limit"), text);
        }
    }
}

/// Checks the other options of a namespace with rooms.
pub(super) fn check_namespace(r: &mut Reader<'_>, table: &str, namespace: &NamespaceOptions) {
    let Some(limits) = &namespace.room else { return };
    let simulation = format!("{table}.room.simulation");
    if limits.is_one_seat_per_user && !limits.gives_seat_tokens {
        let text = "has no effect without seats: set `seat_grace` to a duration above zero, or `survival`";
        r.error(&format!("{table}.room.one_seat_per_user"), text);
    }
    if !namespace.has_stream() {
        let text = "needs history for the events of rooms: set `history_size` and `history_ttl` as well";
        r.error(&simulation, text);
    }
    if namespace.delivery == Lane::Latest {
        let text = "\"latest\" skips publications, but a room's events must be reliable: remove it; snapshots always \
            contain the newest state";
        r.error(&format!("{table}.delivery"), text);
    }
}
