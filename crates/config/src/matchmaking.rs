//! Matchmaking and lobbies (`room.match`, `room.lobby_channel`).

use dunlin_engine::{
    backend::ProxyIndex,
    options::{Lane, NamespaceOptions, Options},
};
use dunlin_matchmaking::{LobbyLimits, MatchRules, SkillWindow};

use super::{proxies, resolve::Reader, value::shortened};

/// Matchmaking in the rooms of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchSettings {
    /// The namespace; empty for channels without one.
    pub namespace: String,
    /// How the channels of its rooms begin.
    pub channel_prefix: String,
    /// How tickets are placed.
    pub rules: MatchRules,
    /// Clients may request tickets.
    pub allow_for_client: bool,
    /// Clients may state their skill.
    pub trust_client_skill: bool,
    /// The backend that decides about clients' requests.
    pub proxy: Option<ProxyIndex>,
    /// Names of the criteria that become parameters of the room.
    pub criteria_params: Vec<Box<str>>,
    /// The parameter of the room that gets the region.
    pub region_param: Option<Box<str>>,
    /// Rooms that matchmaking has not opened get tickets, too.
    pub fill_opened_rooms: bool,
    /// Maximum number of tickets that a client's user requests per second; 0: no limit.
    pub tickets_per_second: u32,
    /// Maximum number of users of a client's address who requested tickets lately or whose tickets wait; 0: no limit.
    pub address_users_max: u32,
    /// Reserved places are for the users of the tickets alone.
    pub binds_places: bool,
    /// How the channels of users begin in which the node publishes what happens to their tickets.
    pub notify_prefix: Option<String>,
}

/// The lobby of one namespace's rooms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LobbySettings {
    /// How the channels of the rooms begin; empty for channels without a namespace.
    pub channel_prefix: String,
    /// What ends the namespace in the name of a channel.
    pub boundary: char,
    /// The channel in which listings are published.
    pub channel: String,
    /// Maximum number of players of a room.
    pub players_max: u32,
    /// How often they are published.
    pub limits: LobbyLimits,
}

impl LobbySettings {
    /// Whether the lobby lists the room of this channel.
    pub fn has(&self, channel: &str) -> bool {
        if self.channel_prefix.is_empty() {
            !channel.contains(self.boundary)
        } else {
            channel.starts_with(&self.channel_prefix)
        }
    }
}

/// The tag with the room's channel, which is the conflation key of a lobby.
pub const LOBBY_KEY: &str = "room";
/// The tag of a listing's removal.
pub const LOBBY_REMOVAL: &str = "closed";

/// Matchmaking of all namespaces that enable it.
pub(super) fn settings(
    r: &mut Reader<'_>,
    proxy_table: &proxies::ProxyTable,
    engine: &mut Options,
) -> Vec<MatchSettings> {
    let mut found = Vec::new();
    for (table, namespace) in tables(engine) {
        let at = |key: &str| format!("{table}.room.match.{key}");
        let settings = MatchSettings {
            channel_prefix: prefix(engine, &namespace),
            rules: rules(r, &table),
            allow_for_client: r.bool(&at("allow_for_client")),
            trust_client_skill: r.bool(&at("trust_client_skill")),
            proxy: proxy_table.find(r, &format!("{table}.room.match"), "", "rpc.proxy"),
            criteria_params: r.texts(&at("criteria_params")).into_iter().map(Into::into).collect(),
            region_param: Some(r.text(&at("region_param"))).filter(|name| !name.is_empty()).map(Into::into),
            fill_opened_rooms: r.bool(&at("fill_opened_rooms")),
            tickets_per_second: r.narrow(&at("user_rate_limit")),
            address_users_max: r.narrow(&at("address_users_limit")),
            binds_places: r.bool(&at("bind_places")),
            notify_prefix: notify_prefix(r, &at("notify_namespace"), engine),
            namespace,
        };
        let is_room = !r.text(&format!("{table}.room.simulation")).is_empty();
        if !r.bool(&at("enabled")) || !is_room {
            continue;
        }
        check(r, &table, &settings.rules);
        if let Some(name) = settings.region_param.as_ref().filter(|name| settings.criteria_params.contains(name)) {
            let text = format!("{:?} is in `criteria_params` too: remove it from one of them", shortened(name));
            r.error(&at("region_param"), text);
        }
        found.push(settings);
    }
    engine.backend.has_node_methods = found.iter().any(|settings| settings.allow_for_client);
    found
}

/// The lobbies of all namespaces that have one.
pub(super) fn lobbies(r: &mut Reader<'_>, engine: &mut Options) -> Vec<LobbySettings> {
    let mut found = Vec::new();
    for (table, namespace) in tables(engine) {
        let at = |key: &str| format!("{table}.room.{key}");
        let channel = r.text(&at("lobby_channel"));
        let mut limits = LobbyLimits {
            interval_ms: r.ms(&at("lobby_interval")),
            repeat_ms: 0,
            publications_max: r.count(&at("lobby_publications_limit")),
        };
        let is_room = !r.text(&at("simulation")).is_empty();
        if channel.is_empty() || !is_room {
            continue;
        }
        let path = at("lobby_channel");
        let boundary = engine.channel.namespace_boundary;
        let name = channel.split_once(boundary).map_or("", |(name, _)| name);
        let lobby = std::iter::once(&mut engine.without_namespace).chain(&mut engine.namespaces);
        let Some(lobby) = lobby.into_iter().find(|lobby| lobby.name == name) else {
            let text =
                format!("{:?} is in no namespace of `channel.namespaces`: add the namespace", shortened(&channel));
            r.error(&path, text);
            continue;
        };
        if !is_lobby(lobby) {
            let text = format!(
                "{:?} needs a namespace without `room` that has `delivery` \"latest\", `conflation_key` {LOBBY_KEY:?} and \
                    `cache_keys` above 0: set them",
                shortened(&channel)
            );
            r.error(&path, text);
        }
        lobby.removal_tag = Some(LOBBY_REMOVAL.into());
        limits.repeat_ms = (lobby.cache_keys_ttl_ms / 2).max(1_000);
        let players_max = r.narrow(&at("max_players"));
        found.push(LobbySettings {
            channel_prefix: prefix(engine, &namespace),
            boundary,
            channel,
            players_max,
            limits,
        });
    }
    found
}

fn is_lobby(namespace: &NamespaceOptions) -> bool {
    let has_key = namespace.conflation_key.as_deref() == Some(LOBBY_KEY);
    namespace.room.is_none() && namespace.delivery == Lane::Latest && has_key && namespace.cache_keys_max > 0
}

/// The paths of the tables of channel options, and the names of their namespaces.
fn tables(engine: &Options) -> Vec<(String, String)> {
    let named = engine.namespaces.iter().enumerate();
    let named = named.map(|(index, namespace)| (format!("channel.namespaces[{index}]"), namespace.name.clone()));
    std::iter::once(("channel.without_namespace".to_owned(), String::new())).chain(named).collect()
}

fn prefix(engine: &Options, namespace: &str) -> String {
    if namespace.is_empty() { String::new() } else { format!("{namespace}{}", engine.channel.namespace_boundary) }
}

fn rules(r: &mut Reader<'_>, table: &str) -> MatchRules {
    let at = |key: &str| format!("{table}.room.match.{key}");
    MatchRules {
        players_min: r.narrow(&at("min_players")),
        players_max: r.narrow(&at("max_players")),
        fill_wait_ms: r.ms(&at("fill_wait")),
        skill: SkillWindow {
            width: r.narrow(&at("skill_window")),
            growth_per_s: r.narrow(&at("skill_window_growth")),
            width_max: r.narrow(&at("skill_window_limit")),
        },
        region_wait_ms: r.ms(&at("region_wait")),
        ticket_timeout_ms: r.ms_above_zero(&at("ticket_timeout")),
        confirm_timeout_ms: r.ms_above_zero(&at("confirm_timeout")),
        reserve_timeout_ms: r.ms_above_zero(&at("reserve_timeout")),
        tickets_max: r.count(&at("queue_limit")),
        party_max: r.narrow(&at("party_limit")),
        rooms_opening_max: r.count(&at("opening_limit")),
    }
}

fn check(r: &mut Reader<'_>, table: &str, rules: &MatchRules) {
    let at = |key: &str| format!("{table}.room.match.{key}");
    let players_max = r.narrow::<u32>(&format!("{table}.room.max_players"));
    if rules.players_max > players_max {
        let text =
            format!("{} is above `room.max_players` ({players_max}): lower it, or raise that", rules.players_max);
        r.error(&at("max_players"), text);
    }
    if rules.players_min > rules.players_max {
        let text = format!("{} is above `max_players` ({}): lower it", rules.players_min, rules.players_max);
        r.error(&at("min_players"), text);
    }
    let empty_timeout_ms = r.ms(&format!("{table}.room.empty_timeout"));
    if rules.reserve_timeout_ms > empty_timeout_ms {
        let text = format!(
            "{} ms is above `room.empty_timeout` ({empty_timeout_ms} ms), so rooms close before their users join: lower \
                it, or raise that",
            rules.reserve_timeout_ms
        );
        r.error(&at("reserve_timeout"), text);
    }
    if rules.skill.width_max > 0 && rules.skill.width_max < rules.skill.width {
        let text = format!(
            "{} is below `skill_window` ({}): raise it, or set 0 for no limit",
            rules.skill.width_max, rules.skill.width
        );
        r.error(&at("skill_window_limit"), text);
    }
}

fn notify_prefix(r: &mut Reader<'_>, path: &str, engine: &Options) -> Option<String> {
    let name = r.text(path);
    if name.is_empty() {
        return None;
    }
    let namespace = engine.namespaces.iter().find(|namespace| namespace.name == name);
    match namespace {
        None => {
            r.error(path, format!("{:?} is not the name of a namespace: add the namespace", shortened(&name)));
        }
        Some(namespace) if namespace.room.is_some() => {
            r.error(path, format!("{:?} is a namespace with rooms: choose a different one", shortened(&name)));
        }
        Some(_) => {}
    }
    Some(format!("{}{}", prefix(engine, &name), engine.channel.user_boundary))
}
