//! `dunlin sessions`.

use std::fmt::Write as _;

use clap::Args;
use dunlin_games::Registry;
use serde_json::{Value, json};

use super::{
    ConfigFile, Failure, api_call,
    output::{self, Shown},
};

/// Count the sessions of a running node and of the other nodes of its cluster, or list the clients in a channel.
#[derive(Debug, Args)]
pub(super) struct SessionsArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// List the clients in this channel, whose namespace has `presence`
    channel: Option<String>,
    /// Print the answer of the API as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &SessionsArgs, registry: &Registry) -> Result<(), Failure> {
    let loaded = args.config.load_whole(Vec::new(), registry)?;
    let (result, show): (_, fn(&Value) -> String) = match &args.channel {
        None => (api_call::call(&loaded, "info", &json!({}))?, nodes),
        Some(channel) => (api_call::call(&loaded, "presence", &json!({ "channel": channel }))?, clients),
    };
    if args.json {
        return output::json(&result);
    }
    output::text(show(&result))?;
    for line in missing(&result) {
        output::error_line(line);
    }
    Ok(())
}

/// What the answer does not contain, a line each.
fn missing(result: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for node in result["nodes"].as_array().into_iter().flatten() {
        let silent = node["silent_shards"].as_array().map_or(0, Vec::len);
        if silent > 0 {
            let name = Shown(node["name"].as_str().unwrap_or_default());
            lines.push(format!("no answer: {silent} shards of node {name}, whose sessions are not counted"));
        }
    }
    if result["partial"] == true {
        lines.push("no answer: at least one node of the cluster, whose sessions are not in the table".to_owned());
    }
    lines
}

/// A table with one line for each node.
fn nodes(info: &Value) -> String {
    let rows = info["nodes"].as_array().into_iter().flatten().map(|node| {
        let number = |name: &str| node[name].as_u64().unwrap_or(0).to_string();
        let name = Shown(node["name"].as_str().unwrap_or_default()).to_string();
        [name, number("num_clients"), number("num_users"), number("num_subs"), number("num_channels")]
    });
    table(&["node", "sessions", "users", "subscriptions", "channels"], rows.collect())
}

/// A table with one line for each client, in the order of the users.
fn clients(presence: &Value) -> String {
    let clients = presence["presence"].as_object().into_iter().flatten();
    let mut rows: Vec<_> = clients
        .map(|(client, info)| {
            let user = info["user"].as_str().filter(|user| !user.is_empty()).unwrap_or("-");
            [Shown(user).to_string(), Shown(client).to_string()]
        })
        .collect();
    rows.sort();
    table(&["user", "client"], rows)
}

fn table<const N: usize>(heading: &[&str; N], rows: Vec<[String; N]>) -> String {
    let rows: Vec<_> = std::iter::once(heading.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(line, "{cell:<width$}  ", width = width(column).unwrap_or(0));
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_aligned_and_escape_names() {
        let info = json!({ "nodes": [
            { "name": "frankfurt-1", "num_clients": 12, "num_users": 9, "num_subs": 40, "num_channels": 11 },
            { "name": "\u{1b}[31m" },
        ] });
        let expected = "\
node         sessions  users  subscriptions  channels
frankfurt-1  12        9      40             11
\\u{1b}[31m   0         0      0              0
";
        assert_eq!(nodes(&info), expected);
        let presence =
            json!({ "presence": { "c2": { "user": "bob" }, "c1": { "user": "ann" }, "c3": { "user": "" } } });
        assert_eq!(clients(&presence), "user  client\n-     c3\nann   c1\nbob   c2\n");
        assert_eq!(clients(&json!({ "presence": {} })), "user  client\n");
    }

    #[test]
    fn what_is_missing_is_said() {
        let whole = json!({ "nodes": [{ "name": "a" }], "partial": false });
        assert_eq!(missing(&whole), <[String; 0]>::default());
        let silent = json!({ "nodes": [{ "name": "a" }, { "name": "b", "silent_shards": [0, 3] }], "partial": true });
        assert_eq!(
            missing(&silent),
            [
                "no answer: 2 shards of node b, whose sessions are not counted",
                "no answer: at least one node of the cluster, whose sessions are not in the table",
            ]
        );
    }
}
