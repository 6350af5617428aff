//! What a configuration with Redis needs instead: nothing for one node, NATS for several.

use super::settings::Settings;

/// The page with the recipe.
const RECIPE: &str = "docs/migrating-from-centrifugo.md#redis";

/// Namespaces that a message names.
const NAMES_MAX: usize = 3;

/// The refusal of the key at `path` if its value is Redis.
pub(super) fn refusal(path: &str, settings: &Settings) -> Option<String> {
    let text = |path: &str| settings.text(path).unwrap_or_default();
    let is_redis = match path {
        "engine.type" | "broker.type" => text(path).starts_with("redis"),
        "presence_manager" => text("presence_manager.type") == "redis",
        _ => false,
    };
    let table = path.split('.').next().unwrap_or_default();
    is_redis.then(|| {
        if table == "presence_manager" {
            return format!(
                "is not supported yet: Dunlin does not use Redis; a node knows who is present on it, and asks the others \
                 through NATS. Remove `{table}`; if there are several nodes, see {RECIPE}"
            );
        }
        if table != "broker" && settings.is_on("broker.enabled") && text("broker.type") == "nats" {
            return format!(
                "is not supported yet: Dunlin does not use Redis, and NATS connects the nodes, as `broker` says. Remove \
                 `{table}`"
            );
        }
        let several = if has_several_servers(table, settings) { " (as its several Redis servers suggest)" } else { "" };
        format!(
            "is not supported yet, and ignoring it would not be safe: Dunlin does not use Redis, so nodes would not receive \
             each other's publications. One node needs nothing in its place: remove `{table}`{}. Several nodes{several} \
             need NATS: {RECIPE} has a recipe; history and recovery then survive the end of any node",
            of_one_node(settings)
        )
    })
}

/// What one node loses without Redis, and the remedy.
fn of_one_node(settings: &Settings) -> String {
    let tables = (0..settings.len("channel.namespaces")).map(|index| format!("channel.namespaces[{index}]"));
    let mut kept = tables
        .chain(["channel.without_namespace".to_owned()])
        .filter(|table| settings.is_set(&format!("{table}.history_size")));
    let named: Vec<_> = kept.by_ref().take(NAMES_MAX).collect();
    if named.is_empty() {
        return "; no namespace has a history, so nothing is lost".to_owned();
    }
    let more = if kept.next().is_some() { ", …" } else { "" };
    format!(
        ". History then ends with the process, unless {}{more} has `durability` \"disk\" and `storage.path` is set",
        named.join(", ")
    )
}

fn has_several_servers(table: &str, settings: &Settings) -> bool {
    let is_set = |key: &str| settings.is_set(&format!("{table}.redis.{key}"));
    is_set("cluster_address") || is_set("sentinel_address") || settings.texts_len(&format!("{table}.redis.address")) > 1
}
