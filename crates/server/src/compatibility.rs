//! Generates `docs/compatibility.md`: which parts of Centrifugo Dunlin supports. `schema/compatibility.json` lists the
//! parts, and `schema/unsupported_keys.json` the options that Dunlin refuses or ignores; the support status is read from
//! the server's own tables where they contain it.

use std::{collections::BTreeSet, fmt::Write as _};

use clap::CommandFactory as _;
use dunlin_config::key_support::{self, Holding, Leaf, UnsupportedKey};
use serde::Deserialize;

use crate::{cli::Cli, http::api::Method, telemetry::metrics::FAMILIES};

const LIST: &str = include_str!("../../../schema/compatibility.json");

/// `schema/compatibility.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    centrifugo: String,
    /// Paths of supported keys and of tables, which stand for all their keys.
    options: Vec<String>,
    /// Those of them that only the paid edition has.
    pro_options: BTreeSet<String>,
    methods: Vec<Item>,
    proxies: Vec<ByOption>,
    consumers: Vec<ByOption>,
    metrics: Vec<Item>,
    commands: Vec<Item>,
}

/// A feature of Centrifugo.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    name: String,
    /// Dunlin's equivalent; if absent, it is read from the server's own tables.
    #[serde(default)]
    dunlin: Names,
    #[serde(default)]
    pro: bool,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    why: String,
}

/// An entry whose support depends on an option.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ByOption {
    name: String,
    option: String,
    #[serde(default)]
    pro: bool,
}

/// No, one or several names.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Names {
    #[default]
    None,
    One(String),
    Several(Vec<String>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Done,
    Later,
    Never,
}

/// What the program says about options.
struct Options {
    leaves: Vec<Leaf>,
    unsupported: Vec<UnsupportedKey>,
}

/// The page, and the errors in the list.
struct Page {
    text: String,
    counts: [usize; 3],
    problems: Vec<String>,
}

const INTRODUCTION: &str = "\
<!-- Written by `dunlin config-reference compatibility`. Tests compare it with the tables that the server works by. -->

This page lists the status of each option, method, metric and command of Centrifugo. *Done* means that Dunlin supports it with the same
meaning. *Later* means that Dunlin does not support it yet, and *never* that it will not. An unsupported option is either *ignored*, with a
warning at start, or *refused*: the node does not start, because ignoring the option would change permissions or delivery. An option with its
default value, or in a table that is not `enabled`, is neither. The migration guide is
[migrating-from-centrifugo.md](migrating-from-centrifugo.md). ᴾ marks names of Centrifugo PRO.
";

/// Generates the page. Also returns the errors in `schema/compatibility.json`: names that the server does not know, and
/// statements that contradict the server's tables.
pub fn markdown() -> (String, Vec<String>) {
    let list: List = match serde_json::from_str(LIST) {
        Ok(list) => list,
        Err(error) => return (String::new(), vec![format!("it can't be read: {error}")]),
    };
    let mut page = Page { text: String::new(), counts: [0; 3], problems: Vec::new() };
    let options = Options { leaves: key_support::leaves(), unsupported: key_support::unsupported() };
    page.options(&list, &options);
    page.by_option("Proxies", "Events for which Dunlin calls the application's backend.", &list.proxies, &options);
    page.methods(&list.methods);
    page.by_option("Consumers", "Queues from which publications are consumed.", &list.consumers, &options);
    page.metrics(&list.metrics);
    page.commands(&list.commands);
    let [done, later, never] = page.counts;
    let text = format!(
        "# Compatibility with Centrifugo v{}\n\n{INTRODUCTION}\nOf {} lines, {done} are done, {later} are for later, and \
         {never} will not come.\n{}",
        list.centrifugo,
        done + later + never,
        page.text
    );
    (text, page.problems)
}

impl Page {
    fn heading(&mut self, heading: &str, doc: &str, columns: &str) {
        let rule = "|---".repeat(columns.matches('|').count() - 1);
        let doc = if doc.is_empty() { String::new() } else { format!("{doc}\n\n") };
        let _ = write!(self.text, "\n## {heading}\n\n{doc}{columns}\n{rule}|\n");
    }

    /// Appends one line; the caller determines the cells after the status.
    fn row(&mut self, name: &str, pro: bool, status: Status, rest: &str) {
        let (word, place) = match status {
            Status::Done => ("done", 0),
            Status::Later => ("later", 1),
            Status::Never => ("never", 2),
        };
        self.counts[place] += 1;
        let mark = if pro { " ᴾ" } else { "" };
        let _ = writeln!(self.text, "| `{name}`{mark} | {word} | {rest} |");
    }

    fn options(&mut self, list: &List, options: &Options) {
        let mut group = "";
        for option in &options.lines(&list.options) {
            let own_group = group_of(option);
            if own_group != group {
                group = own_group;
                let doc = match group {
                    "channel.namespaces[]" => "The same in `channel.without_namespace`.",
                    "client" => "The options of `client.token` apply to `client.subscription_token` as well.",
                    _ => "",
                };
                self.heading(
                    &format!("Option{} `{group}`", if option == group { "" } else { "s" }),
                    doc,
                    "| option | status | |",
                );
            }
            let inside: Vec<_> = options.leaves.iter().filter(|leaf| is_in(&leaf.path, option)).collect();
            if inside.is_empty() {
                self.problems.push(format!("options: {option} is not in the table of keys"));
            }
            self.option(option, &inside, list.pro_options.contains(option), options);
        }
        self.check_options(list, options);
    }

    fn check_options(&mut self, list: &List, options: &Options) {
        for option in list.options.iter().filter(|option| options.row_of(option).is_some()) {
            self.problems.push(format!("options: {option} is in schema/unsupported_keys.json; remove it here"));
        }
        for leaf in options.leaves.iter().filter(|leaf| leaf.holding != Holding::Own) {
            let path = leaf.path.replace("channel.without_namespace.", "channel.namespaces[].");
            let path = path.replace("client.subscription_token.", "client.token.");
            let is_listed = |path: &str| list.options.iter().any(|option| is_in(path, option));
            if options.row_of(&path).is_none() && !is_listed(&path) && !is_listed(&leaf.path) {
                self.problems.push(format!("options: {path} is missing"));
            }
        }
        for option in list.pro_options.iter().filter(|option| !list.options.contains(option)) {
            self.problems.push(format!("pro_options: {option} is not among options"));
        }
    }

    /// A table whose keys all have the same status takes one line.
    fn option(&mut self, option: &str, inside: &[&Leaf], is_pro: bool, options: &Options) {
        let Some(first) = inside.iter().find(|leaf| leaf.holding != Holding::Own) else { return };
        let own_apart = || inside.iter().filter(|leaf| leaf.holding != Holding::Own);
        if first.path == option || own_apart().all(|leaf| leaf.holding == first.holding) {
            let names: Vec<_> = own_apart()
                .filter_map(|leaf| leaf.path.strip_prefix(option)?.strip_prefix('.'))
                .map(|name| format!("`{name}`"))
                .collect();
            let (status, mut rest) = options.row_text(option, first.holding);
            if !names.is_empty() {
                let _ = write!(rest, "{}Its keys: {}", if rest.is_empty() { "" } else { ". " }, names.join(" "));
            }
            self.row(option, is_pro || options.row_of(option).is_some_and(|row| row.is_pro), status, &rest);
        } else {
            for leaf in own_apart() {
                let (status, rest) = options.row_text(&leaf.path, leaf.holding);
                self.row(&leaf.path, is_pro, status, &rest);
            }
        }
    }

    fn by_option(&mut self, heading: &str, doc: &str, items: &[ByOption], options: &Options) {
        self.heading(heading, doc, "| name | status | |");
        for ByOption { name, option, pro } in items {
            match options.leaves.iter().find(|leaf| is_in(&leaf.path, option)) {
                Some(leaf) => {
                    let (status, rest) = options.row_text(option, leaf.holding);
                    let rest = if rest.is_empty() { format!("by `{option}`") } else { rest };
                    self.row(name, *pro, status, &rest);
                }
                None => self.problems.push(format!("{name}: {option} is not in the table of keys")),
            }
        }
    }

    fn methods(&mut self, items: &[Item]) {
        let doc = "Of the HTTP API ([the server API](http-api.md)). There is no gRPC API.";
        self.heading("API methods", doc, "| method | status | |");
        for item in items {
            match (Method::by_name(&item.name), &item.status) {
                (Some(method), None) => match method.unsupported() {
                    None => self.row(&item.name, item.pro, Status::Done, &item.why),
                    Some(why) => {
                        self.row(&item.name, item.pro, Status::Later, &format!("error 108: {why}"));
                    }
                },
                (None, Some(_)) => self.stated(item),
                (Some(_), Some(_)) => {
                    self.problems.push(format!("methods: {} is one of the server's; take its status away", item.name));
                }
                (None, None) => self.problems.push(format!("methods: {} is not one of the server's", item.name)),
            }
        }
    }

    fn metrics(&mut self, items: &[Item]) {
        let doc = "Centrifugo's names without `centrifugo_`, and the corresponding metrics of Dunlin \
            ([metrics](metrics.md)).";
        self.heading("Metrics", doc, "| metric | status | |");
        for item in items {
            let names = item.dunlin.as_slice();
            for name in names.iter().filter(|name| !FAMILIES.iter().any(|family| family.name == name.as_str())) {
                self.problems.push(format!("metrics: {}: there is no {name}", item.name));
            }
            match (names.is_empty(), &item.status) {
                (false, None) => {
                    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
                    let why = if item.why.is_empty() { String::new() } else { format!(" ({})", item.why) };
                    self.row(&item.name, item.pro, Status::Done, &format!("{}{why}", names.join(" ")));
                }
                (true, Some(_)) => self.stated(item),
                _ => self.problems.push(format!("metrics: {} needs either what Dunlin has or a status", item.name)),
            }
        }
    }

    fn commands(&mut self, items: &[Item]) {
        self.heading("Commands", "Of the command line.", "| command | status | |");
        let cli = Cli::command();
        for item in items {
            match (item.dunlin.as_slice().first(), &item.status) {
                (Some(name), None) if cli.find_subcommand(name).is_some() => {
                    self.row(&item.name, item.pro, Status::Done, &format!("`dunlin {name}`"));
                }
                (Some(_), None) => self.row(&item.name, item.pro, Status::Later, "not there yet"),
                (None, Some(_)) => self.stated(item),
                _ => self.problems.push(format!("commands: {} needs either what Dunlin has or a status", item.name)),
            }
        }
    }

    /// A feature that is in none of the server's tables.
    fn stated(&mut self, item: &Item) {
        let status = match item.status.as_deref() {
            Some("never") => Status::Never,
            Some("later") => Status::Later,
            _ => return self.problems.push(format!("{}: its status is neither later nor never", item.name)),
        };
        self.row(&item.name, item.pro, status, &item.why);
    }
}

impl Options {
    /// The options that have a line or several: the listed ones, and the others that are unsupported.
    fn lines(&self, listed: &[String]) -> Vec<String> {
        let others = self.unsupported.iter().filter(|row| !listed.iter().any(|option| is_in(&row.path, option)));
        let mut lines: Vec<_> = listed.iter().chain(others.flat_map(|row| &row.lines)).cloned().collect();
        lines.sort_by(|a, b| (top_of(a), group_of(a), a).cmp(&(top_of(b), group_of(b), b)));
        lines
    }

    /// The row that says why an option is unsupported.
    fn row_of(&self, option: &str) -> Option<&UnsupportedKey> {
        self.unsupported.iter().find(|row| is_in(option, &row.path))
    }

    fn row_text(&self, option: &str, holding: Holding) -> (Status, String) {
        let is_never = self.row_of(option).is_some_and(|row| row.is_never);
        let missing = if is_never { Status::Never } else { Status::Later };
        match holding {
            Holding::Holds | Holding::Own => (Status::Done, String::new()),
            Holding::Needless(why) => (Status::Done, format!("nothing to do: {why}")),
            Holding::Ignored(why) => (missing, format!("ignored: {why}")),
            Holding::Refused(why) => (missing, format!("refused: {why}")),
        }
    }
}

/// The heading below which an option stands.
fn group_of(option: &str) -> &str {
    if option.starts_with("channel.namespaces") { "channel.namespaces[]" } else { top_of(option) }
}

fn top_of(option: &str) -> &str {
    option.split(['.', '[']).next().unwrap_or_default()
}

impl Names {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::None => &[],
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

/// Whether a key is the listed key or in the listed table.
fn is_in(path: &str, listed: &str) -> bool {
    path.strip_prefix(listed).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn the_compatibility_table_matches_the_program() {
        let (written, problems) = markdown();
        assert!(problems.is_empty(), "edit schema/compatibility.json:\n{}", problems.join("\n"));
        let path = "docs/compatibility.md";
        let committed = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).expect(path);
        assert!(
            committed == written,
            "{path} is stale: write it with `dunlin config-reference compatibility > {path}`"
        );
    }
}
