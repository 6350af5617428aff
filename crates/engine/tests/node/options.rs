//! Options by name, as scripts write them: `client.channel_limit=2`, `channel.private_prefix=`,
//! `namespace.presence=true` for channels outside all namespaces, `namespace:chat.presence=true` for those of `chat`.

use dunlin_engine::{
    Options,
    backend::ProxyIndex,
    lifecycle::LifecycleKind,
    log::PublicationLog,
    options::{
        BackendOptions, ChannelOptions, ClientOptions, CompressionOptions, DataFormat, HistoryOverflow, Lane,
        NamespaceOptions, PersonalChannel, RecoveryMode, RoomLimits,
    },
    record::{RecordLevel, RecordOptions},
};
use dunlin_protocol::FilterLimits;

use dunlin_protocol::Disconnect;

/// The names of all options, from the `Debug` output of the structures.
pub fn names() -> Vec<String> {
    let groups = [
        ("client", format!("{:#?}", ClientOptions::default())),
        ("backend", format!("{:#?}", BackendOptions::default())),
        ("channel", format!("{:#?}", ChannelOptions::default())),
        ("namespace", format!("{:#?}", NamespaceOptions::default())),
        ("records", format!("{:#?}", RecordOptions::default())),
    ];
    let mut names = Vec::new();
    for (group, fields) in groups {
        let fields = fields.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
        // A nested structure counts only by its own name.
        let fields = fields.filter(|(field, _)| !field.starts_with([' ', '}']));
        // The engine itself sets this option, when a namespace is removed while the node runs.
        let fields = fields.filter(|(field, _)| *field != "is_retired");
        names.extend(fields.map(|(field, _)| format!("{group}.{field}")));
    }
    names
}

/// The option's name without a namespace. A script sets `name` by naming a namespace.
pub fn plain(option: &str) -> String {
    match option.split_once(':') {
        Some((group, rest)) => format!("{group}.{}", rest.split_once('.').map_or("name", |(_, field)| field)),
        None => option.to_owned(),
    }
}

/// Allows clients everything in channels outside all namespaces.
pub fn permissive(options: &mut Options) {
    options.client.allow_anonymous_connect_without_token = true;
    let namespace = &mut options.without_namespace;
    namespace.allow_subscribe_for_client = true;
    namespace.allow_subscribe_for_anonymous = true;
    namespace.allow_publish_for_client = true;
    namespace.allow_publish_for_anonymous = true;
    namespace.allow_presence_for_client = true;
    namespace.allow_presence_for_anonymous = true;
    namespace.allow_history_for_client = true;
    namespace.allow_history_for_anonymous = true;
    namespace.history_meta_ttl_ms = 600_000;
}

/// Applies `NAME=VALUE`.
pub fn set(options: &mut Options, setting: &str) {
    let (name, value) = setting.split_once('=').unwrap_or_else(|| panic!("{setting} sets nothing"));
    let (group, field) = name.split_once(['.', ':']).unwrap_or_else(|| panic!("{name} has no group"));
    match group {
        "log" if field == "duplicates_max" => options.log.duplicates_max = read(value),
        "log" if field == "parked_bytes_max" => options.log.parked_bytes_max = read(value),
        "log" if field == "proposals_max" => options.log.proposals_max = read(value),
        "log" if field == "parked_max" => options.log.parked_max = read(value),
        "log" if field == "peer_queries_max" => options.log.peer_queries_max = read(value),
        "log" if field == "tail_publications_max" => options.log.tail_publications_max = read(value),
        "node" if field == "broadcast_bytes_max" => options.broadcast_bytes_max = read(value),
        "node" if field == "lifecycle" => {
            let wanted = |kind: &LifecycleKind| value == "all" || value.split('+').any(|name| name == kind.name());
            options.lifecycle = LifecycleKind::ALL.into_iter().filter(wanted).collect();
        }
        "node" if field == "id" => options.node_id = value.into(),
        "backend" => set_backend(&mut options.backend, field, value),
        "client" => set_client(&mut options.client, field, value),
        "channel" => set_channel(&mut options.channel, field, value),
        "namespace" if name.contains(':') => {
            let (namespace, field) = field.split_once('.').unwrap_or((field, "name"));
            if options.namespaces.iter().all(|known| known.name != namespace) {
                let new = NamespaceOptions {
                    name: namespace.to_owned(),
                    history_meta_ttl_ms: 600_000,
                    ..NamespaceOptions::default()
                };
                options.namespaces.push(new);
            }
            let known = options.namespaces.iter_mut().find(|known| known.name == namespace).expect("added above");
            set_namespace(known, field, value);
        }
        "namespace" => set_namespace(&mut options.without_namespace, field, value),
        "records" => set_records(&mut options.records, field, value),
        other => panic!("no group {other}"),
    }
}

fn read<T: std::str::FromStr>(value: &str) -> T {
    value.parse().unwrap_or_else(|_| panic!("{value} has the wrong type"))
}

/// Inputs per second, bytes of an input, inputs in the inbox, and whether there are seat tokens: `30/64/100`,
/// `30/64/100/tokens`.
fn room(value: &str) -> RoomLimits {
    let (limits, gives_seat_tokens) = value.strip_suffix("/tokens").map_or((value, false), |limits| (limits, true));
    let limits: Vec<&str> = limits.split('/').collect();
    let [inputs_per_second, input_bytes_max, inbox_inputs_max] = limits[..] else { panic!("{value} is not three") };
    RoomLimits {
        inputs_per_second: read(inputs_per_second),
        input_bytes_max: read(input_bytes_max),
        inbox_inputs_max: read(inbox_inputs_max),
        gives_seat_tokens,
        ..RoomLimits::default()
    }
}

/// The namespace, and whether users have a single session: `mine`, `mine/single`, `/single`.
fn personal(value: &str) -> PersonalChannel {
    let (namespace, single) = value.split_once('/').unwrap_or((value, ""));
    PersonalChannel { namespace: namespace.to_owned(), single_connection: single == "single" }
}

fn set_records(records: &mut RecordOptions, field: &str, value: &str) {
    match field {
        "level" => {
            let levels = [RecordLevel::Nothing, RecordLevel::Refusals, RecordLevel::Sessions, RecordLevel::Commands];
            let level = levels.into_iter().find(|level| format!("{level:?}").eq_ignore_ascii_case(value));
            records.level = level.unwrap_or_else(|| panic!("no level {value}"));
        }
        "node_per_second" => records.node_per_second = read(value),
        "session_per_second" => records.session_per_second = read(value),
        other => panic!("no option records.{other}"),
    }
}

fn set_backend(backend: &mut BackendOptions, field: &str, value: &str) {
    match field {
        "connect" => backend.connect = Some(ProxyIndex(read(value))),
        "refresh" => backend.refresh = Some(ProxyIndex(read(value))),
        "rpc_without_namespace" => backend.rpc_without_namespace = Some(ProxyIndex(read(value))),
        "rpc_namespaces" => {
            let (name, proxy) = value.split_once('/').unwrap_or((value, ""));
            backend.rpc_namespaces.push((name.into(), proxy.parse().ok().map(ProxyIndex)));
        }
        "rpc_namespace_boundary" => backend.rpc_namespace_boundary = read(value),
        "has_node_methods" => backend.has_node_methods = read(value),
        "rpc_ping_method" => backend.rpc_ping_method = Some(value.into()),
        other => panic!("no option backend.{other}"),
    }
}

fn set_client(client: &mut ClientOptions, field: &str, value: &str) {
    match field {
        "ping_interval_ms" => client.ping_interval_ms = read(value),
        "pong_timeout_ms" => client.pong_timeout_ms = read(value),
        "expired_close_delay_ms" => client.expired_close_delay_ms = read(value),
        "expired_sub_close_delay_ms" => client.expired_sub_close_delay_ms = read(value),
        "stale_close_delay_ms" => client.stale_close_delay_ms = read(value),
        "close_timeout_ms" => client.close_timeout_ms = read(value),
        "channel_limit" => client.channel_limit = read(value),
        "queue_bytes_max" => client.queue_bytes_max = read(value),
        "queue_frames_max" => client.queue_frames_max = read(value),
        "history_bytes_max" => client.history_bytes_max = read(value),
        "presence_bytes_max" => client.presence_bytes_max = read(value),
        "history_publications_max" => client.history_publications_max = read(value),
        "recovery_publications_max" => client.recovery_publications_max = read(value),
        "connects_per_second" => client.connects_per_second = read(value),
        "recoveries_per_second" => client.recoveries_per_second = read(value),
        "commands_per_frame_max" => client.commands_per_frame_max = read(value),
        "commands_per_second" => client.commands_per_second = read(value),
        "json_depth_max" => client.json_depth_max = read(value),
        "object_keys_max" => client.object_keys_max = read(value),
        "connect_include_server_time" => client.connect_include_server_time = read(value),
        "allow_anonymous_connect_without_token" => client.allow_anonymous_connect_without_token = read(value),
        "disallow_anonymous_connection_tokens" => client.disallow_anonymous_connection_tokens = read(value),
        "insecure" => client.insecure = read(value),
        "compression" => {
            let (level, message_bytes_min) = value.split_once('/').expect("a level and a size");
            client.compression = CompressionOptions { level: read(level), message_bytes_min: read(message_bytes_min) };
        }
        "uni_websocket" => {
            let (no_close_frame, no_disconnect_push) = value.split_once('/').expect("two switches");
            client.uni_websocket.no_close_frame = read(no_close_frame);
            client.uni_websocket.no_disconnect_push = read(no_disconnect_push);
        }
        "personal_channel" => client.personal_channel = Some(personal(value)),
        "user_sessions_max" => client.user_sessions_max = read(value),
        "shares_user_sessions" => client.shares_user_sessions = read(value),
        "connect_code_to_unidirectional_disconnect" => {
            let (from, to) = value.split_once('/').expect("two codes");
            let disconnect = Disconnect { code: read(to), reason: "as configured".into() };
            client.connect_code_to_unidirectional_disconnect.push((read(from), disconnect));
        }
        other => panic!("no option client.{other}"),
    }
}

fn set_channel(channel: &mut ChannelOptions, field: &str, value: &str) {
    match field {
        "name_bytes_max" => channel.name_bytes_max = read(value),
        "cache_bytes_max" => channel.cache_bytes_max = read(value),
        "channels_max" => channel.channels_max = read(value),
        "history_bytes_max" => channel.history_bytes_max = read(value),
        "session_channels_max" => channel.session_channels_max = read(value),
        "user_channels_max" => channel.user_channels_max = read(value),
        "source_channels_max" => channel.source_channels_max = read(value),
        "namespace_boundary" => channel.namespace_boundary = read(value),
        "user_boundary" => channel.user_boundary = read(value),
        "user_separator" => channel.user_separator = read(value),
        "idempotent_results_max" => channel.idempotent_results_max = read(value),
        "tags_filters_max" => channel.tags_filters_max = read(value),
        "tags_filter" => {
            let mut limits = value.split('/').map(read);
            let mut next = || limits.next().expect("three limits");
            channel.tags_filter = FilterLimits { bytes_max: next(), nodes_max: next(), depth_max: next() };
        }
        "private_prefix" => value.clone_into(&mut channel.private_prefix),
        other => panic!("no option channel.{other}"),
    }
}

fn set_namespace(namespace: &mut NamespaceOptions, field: &str, value: &str) {
    match field {
        "name" => {}
        "is_retired" => namespace.is_retired = read(value),
        "history_size" => namespace.history_size = read(value),
        "history_ttl_ms" => namespace.history_ttl_ms = read(value),
        "history_bytes_max" => namespace.history_bytes_max = read(value),
        "history_overflow" => {
            namespace.history_overflow = match value {
                "evict" => HistoryOverflow::Evict,
                "refuse" => HistoryOverflow::Refuse,
                other => panic!("no policy {other}"),
            };
        }
        "history_meta_ttl_ms" => namespace.history_meta_ttl_ms = read(value),
        "recovery_mode" => {
            namespace.recovery_mode = if value == "cache" { RecoveryMode::Cache } else { RecoveryMode::Stream };
        }
        "log" => namespace.log = log(value),
        "is_clustered" => namespace.is_clustered = read(value),
        "is_log_synced" => namespace.is_log_synced = read(value),
        "delivery" => namespace.delivery = if value == "latest" { Lane::Latest } else { Lane::Reliable },
        "room" => namespace.room = Some(room(value)),
        "allow_delta" => namespace.allow_delta = read(value),
        "channel_regex" => namespace.channel_regex = Some(regex::Regex::new(value).expect("a regular expression")),
        "publication_data_format" => {
            namespace.publication_data_format = match value {
                "json" => DataFormat::Json,
                "json_object" => DataFormat::JsonObject,
                "binary" => DataFormat::Binary,
                _ => DataFormat::Any,
            };
        }
        "subscribe_proxy" => namespace.subscribe_proxy = Some(ProxyIndex(read(value))),
        "publish_proxy" => namespace.publish_proxy = Some(ProxyIndex(read(value))),
        "sub_refresh_proxy" => namespace.sub_refresh_proxy = Some(ProxyIndex(read(value))),
        "cache_keys_max" => namespace.cache_keys_max = read(value),
        "removal_tag" => namespace.removal_tag = Some(value.into()),
        "cache_keys_ttl_ms" => namespace.cache_keys_ttl_ms = read(value),
        "conflation_key" => namespace.conflation_key = Some(value.to_owned()),
        key => {
            let switch = NamespaceOptions::SWITCHES.iter().find(|switch| switch.key == key);
            (switch.unwrap_or_else(|| panic!("no option namespace.{key}")).set)(namespace, read(value));
        }
    }
}

fn log(value: &str) -> PublicationLog {
    match value {
        "memory" => PublicationLog::Memory,
        "owner" => PublicationLog::OrderedByOwner,
        "cluster" => PublicationLog::OrderedByLog,
        other => panic!("no log {other}"),
    }
}
