//! The tools. Most are methods of the server API, with its names of parameters.

use serde_json::{Map, Value, json};

use super::{
    arguments::{self, Arguments, Kind, Param},
    bounded::{self, List},
    metrics::{self, Selection},
    node::Node,
    pages,
};

/// What an agent can call.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    title: &'static str,
    about: &'static str,
    params: &'static [Param],
    effect: Effect,
    work: Work,
}

/// What a tool does to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It changes nothing.
    Reads,
    /// It can be undone, or adds something.
    Changes,
    /// What it takes away is gone.
    Destroys,
}

/// How a tool is carried out.
#[derive(Debug)]
enum Work {
    /// It is the method of the server API with this name, whose result has this form.
    Method(&'static str, Form),
    Metrics,
    Configuration,
    DocsSearch,
    DocsRead,
}

/// The form of a result of the server API.
#[derive(Debug)]
enum Form {
    /// It is short, or has one object.
    Whole,
    /// It has a list in this field, which the method itself limits; and what to do to see more of it.
    List(&'static str, &'static str),
    /// It has an object in the first field, whose members become a list with their names in the second field.
    Named(&'static str, &'static str, &'static str),
}

const CHANNEL: Param = Param::required("channel", Kind::Text, "The channel, such as chat:42.");
const CURSOR: Param = Param::new("cursor", Kind::Text, "`more` of the previous result, to get the next page.");
const CLIENT: Param = Param::new("client", Kind::Text, "Only the session with this client id.");
const USER: Param = Param::new("user", Kind::Text, "Only sessions of this user; empty for anonymous users.");
const ADDRESS: Param = Param::new("address", Kind::Text, "Only sessions of clients with this IP address.");
const SUBSCRIBED: Param = Param::new("channel", Kind::Text, "Only sessions that are subscribed to this channel.");
const REQUIRED_USER: Param = Param::required("user", Kind::Text, "The user id.");
const EXPIRE_AT: Param =
    Param::new("expire_at", Kind::Offset, "Unix time in seconds at which it ends. Without it, never.");
const TTL: Param = Param::new("ttl", Kind::Offset, "Seconds after which it ends, instead of `expire_at`.");
const ONLY_CLIENT: Param =
    Param::new("client", Kind::Text, "Only the session with this client id. Without it, all of the user.");

/// The parameter of a list's length.
const fn limit(most: u64, default: u64) -> Param {
    let kind = Kind::Number { least: 1, most, default: Some(default) };
    Param::new("limit", kind, "Maximum number of entries. Fewer are shown if they are long.")
}

const PAGED: &str = "filter, or set `limit` to what is shown and page with `cursor`";
const NARROWER: &str = "use a narrower `pattern`, or raise `limit`";
const LATER: &str = "set `limit` to what is shown, and `since` to the position of the last publication";

const TOOLS: &[Tool] = &[
    Tool {
        name: "info",
        title: "Nodes",
        about: "The nodes of the cluster: version, uptime, numbers of sessions, users, subscriptions and channels, memory and processor.",
        params: &[],
        effect: Effect::Reads,
        work: Work::Method("info", Form::Whole),
    },
    Tool {
        name: "sessions",
        title: "Sessions",
        about: "The clients that are connected, those that have been behind for longest first: user, address, transport, queue, round trip, \
            verdict. All filters must match.",
        params: &[CLIENT, USER, ADDRESS, SUBSCRIBED, limit(1_000, 20), CURSOR],
        effect: Effect::Reads,
        work: Work::Method("sessions", Form::List("sessions", PAGED)),
    },
    Tool {
        name: "explain",
        title: "Why clients are behind",
        about: "Why clients get their messages late: a verdict in one sentence for each session, and what it rests on: queue by channel, \
            socket, network, pings, shard, the limit that acts and its setting. Without arguments, the sessions that are furthest behind.",
        params: &[
            CLIENT,
            USER,
            ADDRESS,
            SUBSCRIBED,
            Param::new(
                "slowest",
                Kind::Number { least: 1, most: 100, default: Some(5) },
                "Maximum number of sessions, those that are furthest behind first.",
            ),
        ],
        effect: Effect::Reads,
        work: Work::Method("explain", Form::List("sessions", "filter, or set `slowest` to what is shown")),
    },
    Tool {
        name: "channels",
        title: "Channels",
        about: "The channels that have subscribers, those with the most first.",
        params: &[
            Param::new(
                "pattern",
                Kind::Text,
                "Only channels that match: * matches any characters, ? one, {a,b} alternatives.",
            ),
            limit(1_000, 50),
        ],
        effect: Effect::Reads,
        work: Work::Method("channels", Form::Named("channels", "channel", NARROWER)),
    },
    Tool {
        name: "presence",
        title: "Presence",
        about: "Who is subscribed to a channel, if its namespace has `presence`: users, client ids and what is known about them.",
        params: &[CHANNEL, limit(1_000, 50)],
        effect: Effect::Reads,
        work: Work::Method(
            "presence",
            Form::Named("presence", "client", "raise `limit`, or list `sessions` of the channel in pages"),
        ),
    },
    Tool {
        name: "history",
        title: "History",
        about: "The publications that a channel keeps, if its namespace has a history, the newest first unless `reverse` is false.",
        params: &[
            CHANNEL,
            limit(300, 20),
            Param::new("reverse", Kind::Flag, "true, the default: the newest first."),
            Param::new(
                "since",
                Kind::Object,
                "A position {\"offset\": number, \"epoch\": text}: only publications before it, or after it if `reverse` is false.",
            ),
        ],
        effect: Effect::Reads,
        work: Work::Method("history", Form::List("publications", LATER)),
    },
    Tool {
        name: "rooms",
        title: "Rooms",
        about: "The rooms that are open, by channel: players, metadata, whether they are locked. All filters must match.",
        params: &[
            Param::new("namespace", Kind::Text, "Only rooms of this namespace."),
            Param::new("pattern", Kind::Text, "Only channels that match, as in `channels`."),
            Param::new("locked", Kind::Flag, "Only rooms that are locked, or that are not."),
            Param::new("include_unlisted", Kind::Flag, "Also rooms that lobbies do not show: true, the default."),
            limit(1_000, 20),
            CURSOR,
        ],
        effect: Effect::Reads,
        work: Work::Method("room_list", Form::List("rooms", PAGED)),
    },
    Tool {
        name: "room_info",
        title: "A room",
        about: "The state of the room of a channel: players, objects, tick, how long its ticks take and how many were late, memory.",
        params: &[CHANNEL],
        effect: Effect::Reads,
        work: Work::Method("room_info", Form::Whole),
    },
    Tool {
        name: "metrics",
        title: "Metrics",
        about: "Metrics of one node in the format of Prometheus, by the beginning of their names. Without `prefix`, the names and meanings \
            of all.",
        params: &[
            Param::new("prefix", Kind::Text, "How the names begin, such as dunlin_room."),
            Param::new("buckets", Kind::Flag, "true: also the buckets of histograms, not only sum and count."),
            limit(1_000, 200),
        ],
        effect: Effect::Reads,
        work: Work::Metrics,
    },
    Tool {
        name: "configuration",
        title: "Configuration",
        about: "The settings that are not at their defaults, as the running node holds them, and the warnings about them. Secrets are hidden.",
        params: &[
            Param::new("prefix", Kind::Text, "How the keys begin, such as client or channel.namespaces."),
            limit(1_000, 200),
        ],
        effect: Effect::Reads,
        work: Work::Configuration,
    },
    Tool {
        name: "docs_search",
        title: "Search the documentation",
        about: "Search the documentation of this version of Dunlin: settings, errors, metrics, the API, how things work.",
        params: &[
            Param::required("query", Kind::Text, "A few words, or the name of a setting or metric."),
            Param::new("limit", Kind::Number { least: 1, most: 20, default: Some(5) }, "Maximum number of sections."),
        ],
        effect: Effect::Reads,
        work: Work::DocsSearch,
    },
    Tool {
        name: "docs_read",
        title: "Read the documentation",
        about: "A page of the documentation, or one section of it.",
        params: &[
            Param::required("page", Kind::Text, "The page, such as insight.md."),
            Param::new("section", Kind::Text, "The heading of the section."),
        ],
        effect: Effect::Reads,
        work: Work::DocsRead,
    },
    Tool {
        name: "publish",
        title: "Publish",
        about: "Publish data into a channel. Its subscribers receive it.",
        params: &[
            CHANNEL,
            Param::required("data", Kind::Any, "The data, any JSON."),
            Param::new("tags", Kind::Object, "Texts that are sent with it."),
            Param::new(
                "idempotency_key",
                Kind::Text,
                "Publish once, also if the call is repeated with it within five minutes.",
            ),
        ],
        effect: Effect::Changes,
        work: Work::Method("publish", Form::Whole),
    },
    Tool {
        name: "disconnect",
        title: "Disconnect a user",
        about: "Close the sessions of a user. Clients with a valid token may connect again: `block_user` prevents that.",
        params: &[
            REQUIRED_USER,
            ONLY_CLIENT,
            Param::new("disconnect", Kind::Object, "The close code {\"code\": 3000 to 4999, \"reason\": text}."),
        ],
        effect: Effect::Destroys,
        work: Work::Method("disconnect", Form::Whole),
    },
    Tool {
        name: "unsubscribe",
        title: "Unsubscribe a user",
        about: "End the subscription of a user to a channel. Clients do not subscribe again by themselves.",
        params: &[REQUIRED_USER, CHANNEL, ONLY_CLIENT],
        effect: Effect::Destroys,
        work: Work::Method("unsubscribe", Form::Whole),
    },
    Tool {
        name: "block_user",
        title: "Block a user",
        about: "Close the sessions of a user, and refuse new ones until the block ends.",
        params: &[REQUIRED_USER, EXPIRE_AT, TTL],
        effect: Effect::Destroys,
        work: Work::Method("block_user", Form::Whole),
    },
    Tool {
        name: "unblock_user",
        title: "End the block of a user",
        about: "End the block of a user.",
        params: &[REQUIRED_USER],
        effect: Effect::Changes,
        work: Work::Method("unblock_user", Form::Whole),
    },
    Tool {
        name: "history_remove",
        title: "Remove a history",
        about: "Remove all publications that a channel keeps.",
        params: &[CHANNEL],
        effect: Effect::Destroys,
        work: Work::Method("history_remove", Form::Whole),
    },
    Tool {
        name: "room_kick",
        title: "Kick a player",
        about: "Remove players from a room: one of `user`, `client` and `player` is needed.",
        params: &[
            CHANNEL,
            Param::new("user", Kind::Text, "All players of this user."),
            Param::new("client", Kind::Text, "The player of this client."),
            Param::new("player", Kind::Offset, "The player with this number in the room."),
            Param::new("reason", Kind::Text, "The reason that the clients receive."),
        ],
        effect: Effect::Destroys,
        work: Work::Method("room_kick", Form::Whole),
    },
    Tool {
        name: "room_lock",
        title: "Lock a room",
        about: "Lock or unlock a room: no new players can join a locked one.",
        params: &[CHANNEL, Param::required("locked", Kind::Flag, "true: lock it; false: unlock it.")],
        effect: Effect::Changes,
        work: Work::Method("room_lock", Form::Whole),
    },
    Tool {
        name: "room_close",
        title: "Close a room",
        about: "End a room and its world. Its players are unsubscribed.",
        params: &[CHANNEL],
        effect: Effect::Destroys,
        work: Work::Method("room_close", Form::Whole),
    },
];

/// The tools as the client sees them.
pub(super) fn list(allow_writes: bool) -> Vec<Value> {
    TOOLS.iter().filter(|tool| tool.is_allowed(allow_writes)).map(Tool::described).collect()
}

pub(super) fn named(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

impl Tool {
    pub(super) fn is_allowed(&self, allow_writes: bool) -> bool {
        allow_writes || self.effect == Effect::Reads
    }

    fn described(&self) -> Value {
        let mut hints =
            json!({ "title": self.title, "readOnlyHint": self.effect == Effect::Reads, "openWorldHint": false });
        if self.effect != Effect::Reads {
            hints["destructiveHint"] = (self.effect == Effect::Destroys).into();
        }
        json!({
            "name": self.name, "title": self.title, "description": self.about,
            "inputSchema": arguments::schema(self.params), "annotations": hints,
        })
    }

    /// The result of a call as text, or an error for the model.
    pub(super) fn run(&self, given: &Map<String, Value>, node: &impl Node) -> Result<String, String> {
        let arguments = Arguments::check(given, self.params)?;
        match &self.work {
            Work::Method(method, form) => {
                let params = self.params_of(method, &arguments);
                let result = node.call(method, &params)?;
                self.shaped(result, form, &arguments)
            }
            Work::Metrics => {
                let selection = Selection {
                    prefix: arguments.text("prefix").unwrap_or_default(),
                    has_buckets: arguments.flag("buckets"),
                    limit: arguments.number("limit", self.params),
                };
                let text = metrics::selected(&node.metrics()?, selection)?;
                Ok(bounded::shortened(text, "use a longer `prefix`, or a lower `limit`"))
            }
            Work::Configuration => self.configuration(&arguments, node),
            Work::DocsSearch => self.docs_search(&arguments),
            Work::DocsRead => docs_read(&arguments),
        }
    }

    /// The parameters of the API's method: those that were given, and the tool's defaults.
    fn params_of(&self, method: &str, arguments: &Arguments) -> Value {
        let mut params = arguments.0.clone();
        let defaults = self.params.iter().filter_map(|param| match param.kind {
            Kind::Number { default: Some(default), .. } => Some((param.name, Value::from(default))),
            _ => None,
        });
        let more = match method {
            "history" => Some(("reverse", Value::from(true))),
            "room_list" => Some(("include_unlisted", Value::from(true))),
            _ => None,
        };
        for (name, value) in defaults.chain(more) {
            params.entry(name).or_insert(value);
        }
        // These methods have no limit, and return everything.
        if matches!(method, "channels" | "presence") {
            params.remove("limit");
        }
        params.into()
    }

    /// # Errors
    /// The node's answer has another shape. An empty list would say that there is nothing.
    fn shaped(&self, result: Value, form: &Form, arguments: &Arguments) -> Result<String, String> {
        let Value::Object(mut rest) = result else { return Ok(bounded::shortened(result.to_string(), "ask for less")) };
        let other = |name: &str| {
            format!("the node's answer has no {name:?} as this version expects it: compare the versions of both")
        };
        Ok(match *form {
            Form::Whole => bounded::shortened(
                Value::from(rest).to_string(),
                "see `docs_read` of http-api.md for a narrower method",
            ),
            Form::List(name, remedy) => {
                let Some(Value::Array(entries)) = rest.remove(name) else { return Err(other(name)) };
                bounded::listed(rest, List { name, entries, limit: usize::MAX, remedy })
            }
            Form::Named(name, key, remedy) => {
                let Some(Value::Object(members)) = rest.remove(name) else { return Err(other(name)) };
                let mut entries: Vec<_> = members
                    .into_iter()
                    .map(|(member, mut entry)| {
                        if let Some(entry) = entry.as_object_mut() {
                            entry.insert(key.to_owned(), member.into());
                        }
                        entry
                    })
                    .collect();
                entries.sort_by_key(|entry| std::cmp::Reverse(entry["num_clients"].as_u64()));
                let limit = arguments.number("limit", self.params);
                bounded::listed(rest, List { name, entries, limit, remedy })
            }
        })
    }

    fn configuration(&self, arguments: &Arguments, node: &impl Node) -> Result<String, String> {
        let Value::Object(mut rest) = node.configuration()? else {
            return Err("the node shows no settings".to_owned());
        };
        let prefix = arguments.text("prefix").unwrap_or_default();
        let settings = match rest.remove("settings") {
            Some(Value::Array(settings)) => settings,
            _ => Vec::new(),
        };
        let has_prefix = |setting: &Value| setting["key"].as_str().is_some_and(|key| key.starts_with(prefix));
        let entries: Vec<_> = settings.into_iter().filter(has_prefix).collect();
        let limit = arguments.number("limit", self.params);
        let remedy = "use a longer `prefix`, or raise `limit`";
        rest.insert("others".to_owned(), "at their defaults: `docs_search` finds them".into());
        Ok(bounded::listed(rest, List { name: "settings", entries, limit, remedy }))
    }

    fn docs_search(&self, arguments: &Arguments) -> Result<String, String> {
        let found = pages::search(arguments.text("query").unwrap_or_default(), arguments.number("limit", self.params));
        if found.is_empty() {
            return Err(format!("`query` finds nothing: use fewer or other words. The pages are {}", pages::names()));
        }
        let entries = found.into_iter().map(|found| {
            json!({ "page": found.page, "section": found.heading, "uri": pages::uri(found.page), "excerpt": found.excerpt })
        });
        let list = List { name: "sections", entries: entries.collect(), limit: usize::MAX, remedy: "lower `limit`" };
        Ok(bounded::listed(Map::new(), list))
    }
}

fn docs_read(arguments: &Arguments) -> Result<String, String> {
    let name = arguments.text("page").unwrap_or_default();
    let page = pages::page(name).ok_or_else(|| format!("`page` is none of the pages: {}", pages::names()))?;
    let headings = || pages::sections_of(page).join("; ");
    let text = match arguments.text("section") {
        None => page,
        Some(section) => pages::section(page, section).ok_or_else(|| {
            bounded::shortened(
                format!("`section` is none of the headings of {name}: {}", headings()),
                "use `docs_search`",
            )
        })?,
    };
    let mut remedy = format!("read a `section`: {}", headings());
    if remedy.len() > bounded::RESULT_BYTES_MAX / 8 {
        "find the part with `docs_search`".clone_into(&mut remedy);
    }
    Ok(bounded::shortened(text.to_owned(), &remedy))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http::api::Method;

    #[test]
    fn tools_have_different_names_and_are_methods_of_the_api() {
        let names: BTreeSet<_> = TOOLS.iter().map(|tool| tool.name).collect();
        assert_eq!(names.len(), TOOLS.len());
        for tool in TOOLS {
            if let Work::Method(method, _) = tool.work {
                let known = Method::by_name(method).is_some_and(|method| method.unsupported().is_none());
                assert!(known, "{}", tool.name);
            }
            let params: BTreeSet<_> = tool.params.iter().map(|param| param.name).collect();
            assert_eq!(params.len(), tool.params.len(), "{}", tool.name);
            assert!(
                tool.about.ends_with('.') && tool.params.iter().all(|param| param.about.ends_with('.')),
                "{}",
                tool.name
            );
        }
    }

    #[test]
    fn what_changes_something_is_offered_only_if_it_is_allowed() {
        let names = |allow_writes| {
            list(allow_writes).iter().map(|tool| tool["name"].as_str().map(str::to_owned)).collect::<BTreeSet<_>>()
        };
        let (reading, all) = (names(false), names(true));
        assert!(reading.is_subset(&all) && all.len() > reading.len());
        for tool in list(true) {
            let is_reading = reading.contains(&tool["name"].as_str().map(str::to_owned));
            assert_eq!(tool["annotations"]["readOnlyHint"], is_reading, "{tool}");
        }
        for destroying in ["disconnect", "history_remove", "room_close"] {
            let tool = named(destroying).expect("it is there");
            assert!(!tool.is_allowed(false) && tool.described()["annotations"]["destructiveHint"] == true);
        }
    }
}
