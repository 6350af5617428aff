//! What is said of publications: their data, their differences, filters of them, and the names of channels.

use dunlin_engine::options::{DataFormat, Lane, NamespaceOptions, RecoveryMode};
use dunlin_protocol::FilterLimits;
use regex::Regex;

use super::resolve::Reader;

/// Reads the options of the namespace at `table` into `namespace`.
pub(super) fn read(r: &mut Reader<'_>, table: &str, namespace: &mut NamespaceOptions) {
    let at = |key: &str| format!("{table}.{key}");
    namespace.auto_cache_recover = r.bool(&at("auto_cache_recover"));
    namespace.allow_delta = allows_fossil(r, &at("allowed_delta_types"));
    namespace.delta_publish = r.bool(&at("delta_publish"));
    namespace.allow_tags_filter = r.bool(&at("allow_tags_filter"));
    namespace.allow_channel_compaction = r.bool(&at("allow_channel_compaction"));
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

/// How large a tags filter may be.
pub(super) fn filter_limits(r: &mut Reader<'_>) -> FilterLimits {
    FilterLimits {
        bytes_max: r.count("channel.tags_filter_max_size"),
        nodes_max: r.count("channel.tags_filter_max_nodes"),
        depth_max: r.count("channel.tags_filter_max_depth"),
    }
}

/// Checks what the options of a namespace mean together.
pub(super) fn check(r: &mut Reader<'_>, table: &str, namespace: &NamespaceOptions) {
    let at = |key: &str| format!("{table}.{key}");
    if namespace.allow_delta && namespace.delivery == Lane::Latest {
        let text = "cannot be had with `delivery: latest`, which leaves publications out that differences would stand on: \
                    remove one of the two";
        r.error(&at("allowed_delta_types"), text);
    }
    if namespace.allow_delta && !namespace.has_stream() {
        r.warning(
            &at("allowed_delta_types"),
            "has no effect without history: set `history_size` and `history_ttl` as well",
        );
    }
    if namespace.delta_publish && !namespace.allow_delta {
        r.warning(&at("delta_publish"), "has no effect without `allowed_delta_types: [\"fossil\"]`");
    }
    let recovers_cache = namespace.force_recovery && namespace.recovery_mode == RecoveryMode::Cache;
    if namespace.auto_cache_recover && !recovers_cache {
        r.error(&at("auto_cache_recover"), "needs `force_recovery` and `force_recovery_mode: cache`");
    }
}

fn allows_fossil(r: &mut Reader<'_>, key: &str) -> bool {
    let types = r.texts(key);
    if let Some(unknown) = types.iter().find(|name| *name != "fossil") {
        r.error(key, format!("{unknown:?} is not known: the only kind of differences is \"fossil\""));
    }
    !types.is_empty()
}

fn channel_regex(r: &mut Reader<'_>, key: &str) -> Option<Regex> {
    let text = r.text(key);
    if text.is_empty() {
        return None;
    }
    let regex = Regex::new(&text);
    if regex.is_err() {
        // What the library says of it takes several lines.
        r.error(key, format!("{text:?} is not a regular expression that is known here"));
    }
    regex.ok()
}
