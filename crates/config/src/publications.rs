//! Converts settings about publications: data formats, deltas, tags filters, and channel names.

use dunlin_engine::options::{ChannelOptions, DataFormat, HistoryOverflow, Lane, NamespaceOptions, RecoveryMode};
use dunlin_protocol::FilterLimits;
use regex::{Regex, RegexBuilder};

use super::resolve::{Reader, one_character};

/// Reads the options of all channels.
pub(super) fn channels(r: &mut Reader<'_>) -> ChannelOptions {
    ChannelOptions {
        name_bytes_max: r.count("channel.max_length"),
        idempotent_results_max: r.count("channel.idempotency_keys_limit"),
        tags_filter: filter_limits(r),
        tags_filters_max: r.count("channel.tags_filters_limit"),
        channels_max: r.count("channel.max_channels"),
        cache_bytes_max: r.count("channel.cache_size_limit"),
        session_channels_max: r.count("channel.max_channels_per_session"),
        user_channels_max: r.count("channel.max_channels_per_user"),
        source_channels_max: r.count("channel.max_channels_per_address"),
        history_bytes_max: r.count("channel.history_memory_limit"),
        history_disk_bytes_max: r.narrow("channel.history_disk_limit"),
        namespace_boundary: one_character(r, "channel.namespace_boundary", ':'),
        private_prefix: r.text("channel.private_prefix"),
        user_boundary: one_character(r, "channel.user_boundary", '#'),
        user_separator: one_character(r, "channel.user_separator", ','),
    }
}

/// Reads the options of the namespace at `table` into `namespace`.
pub(super) fn read(r: &mut Reader<'_>, table: &str, namespace: &mut NamespaceOptions) {
    let at = |key: &str| format!("{table}.{key}");
    namespace.history_bytes_max = r.count(&at("history_memory_limit"));
    namespace.history_disk_bytes_max = r.narrow(&at("history_disk_limit"));
    namespace.history_disk_total_bytes_max = r.narrow(&at("history_disk_total_limit"));
    namespace.history_overflow = match r.text(&at("history_overflow")).as_str() {
        "refuse" => HistoryOverflow::Refuse,
        _ => HistoryOverflow::Evict,
    };
    namespace.allow_delta = allows_fossil(r, &at("allowed_delta_types"));
    namespace.channel_regex = channel_regex(r, &at("channel_regex"));
    let own = r.text(&at("publication_data_format"));
    let of_all = r.text("channel.publication_data_format");
    namespace.publication_data_format = match if own.is_empty() { of_all } else { own }.as_str() {
        "json" => DataFormat::Json,
        "json_object" => DataFormat::JsonObject,
        "binary" => DataFormat::Binary,
        _ => DataFormat::Any,
    };
}

/// Limits of a tags filter.
fn filter_limits(r: &mut Reader<'_>) -> FilterLimits {
    FilterLimits {
        bytes_max: r.count("channel.tags_filter_max_size"),
        nodes_max: r.count("channel.tags_filter_max_nodes"),
        depth_max: r.count("channel.tags_filter_max_depth"),
    }
}

/// Checks relations between the options of a namespace.
pub(super) fn check(r: &mut Reader<'_>, table: &str, namespace: &NamespaceOptions) {
    let at = |key: &str| format!("{table}.{key}");
    if namespace.allow_delta && namespace.delivery == Lane::Latest {
        let text = "conflicts with `delivery: latest`: deltas need every publication. Remove one of the two";
        r.error(&at("allowed_delta_types"), text);
    }
    if namespace.allow_delta && !namespace.has_stream() {
        r.warning(
            &at("allowed_delta_types"),
            "has no effect without history: set `history_size` and `history_ttl` as well",
        );
    }
    if namespace.delta_publish && !namespace.allow_delta {
        r.warning(
            &at("delta_publish"),
            "has no effect without `allowed_delta_types: [\"fossil\"]`: set it as well, or remove this key",
        );
    }
    let recovers_cache = namespace.force_recovery && namespace.recovery_mode == RecoveryMode::Cache;
    if namespace.auto_cache_recover && !recovers_cache {
        r.error(
            &at("auto_cache_recover"),
            "needs `force_recovery: true` and `force_recovery_mode: cache`: set both, or remove this key",
        );
    }
}

fn allows_fossil(r: &mut Reader<'_>, key: &str) -> bool {
    let types = r.texts(key);
    if let Some(unknown) = types.iter().find(|name| *name != "fossil") {
        r.error(key, format!("{unknown:?} is not a known delta type: use \"fossil\""));
    }
    !types.is_empty()
}

/// Bytes that a compiled expression may take. Its compilation takes more: time, and a multiple of the bytes.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// Compiles a regular expression.
///
/// # Errors
/// If it is none, or would take more than [`REGEX_BYTES_MAX`].
pub(super) fn compiled(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(REGEX_BYTES_MAX).build()
}

fn channel_regex(r: &mut Reader<'_>, key: &str) -> Option<Regex> {
    let text = r.text(key);
    if text.is_empty() {
        return None;
    }
    let regex = compiled(&text);
    if regex.is_err() {
        // The library's own message has several lines.
        r.error(key, format!("{text:?} is not a supported regular expression"));
    }
    regex.ok()
}
