//! Generates `docs/cli.md` from the command line itself, and `docs/codes.md` from `schema/codes.json`.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};
use serde::Deserialize;

use super::Cli;

const CODES: &str = include_str!("../../../../schema/codes.json");

const COMMANDS_BEGIN: &str = "# The commands

To look up a command of `dunlin` or an option, as `dunlin COMMAND --help` prints them. This page is written from the code
(`dunlin config-reference cli`).

Exit codes: 0 success, 1 the command failed, 2 the command line is wrong, 3 the configuration has errors. If a command
has others, the page that describes it says so.

`dunlin bench` starts the program `dunlin-bench`, whose commands are on the page [load testing](load-testing.md).
";

const CODES_BEGIN: &str = "# Codes

To find out what a code in a log, in an SDK or in an answer of the [server API](http-api.md) means, and what to do about
it. This page is written from the code (`dunlin config-reference codes`); `schema/codes.json` has the same as data.

Codes from 400 to 1999, and from 4000 to 4999, are those of your backend or your game. Dunlin itself uses five of them in
errors of [rooms](rooms.md#invalid-input) and [tickets](matchmaking.md): 400 (the room cannot be opened or is full), 404 (no such
ticket), 409 (the places are reserved, or the user has a ticket), 421 (the room is on [another
node](clustering.md#what-is-shared)) and 423 (the room is locked).
";

/// `docs/cli.md`.
pub(super) fn commands() -> String {
    let mut dunlin = Cli::command();
    dunlin.build();
    let mut page = COMMANDS_BEGIN.to_owned();
    for command in listed(&dunlin) {
        add_command(&mut page, command, "dunlin");
    }
    page
}

fn listed(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

fn add_command(page: &mut String, command: &Command, before: &str) {
    let name = format!("{before} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().bin_name(&name).render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    _ = write!(page, "\n## {name}\n\n{}.\n\n```text\n{usage}\n```\n", cell(&about));
    let (named, positional): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(|arg| is_listed(arg)).partition(|arg| !arg.is_positional());
    if !named.is_empty() || !positional.is_empty() {
        page.push_str("\n| option | default | meaning |\n|---|---|---|\n");
    }
    for arg in positional.into_iter().chain(named) {
        _ = writeln!(page, "| `{}` | {} | {} |", spelled(arg), default_of(arg), meaning_of(arg));
    }
    for below in listed(command) {
        add_command(page, below, &name);
    }
}

fn is_listed(arg: &Arg) -> bool {
    !arg.is_hide_set() && arg.get_id() != "help" && arg.get_id() != "version"
}

/// As it is typed: `-c, --config FILE`.
fn spelled(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default().join(" ");
    let names = [arg.get_short().map(|short| format!("-{short}")), arg.get_long().map(|long| format!("--{long}"))];
    let names = names.into_iter().flatten().collect::<Vec<_>>().join(", ");
    match (names.as_str(), arg.get_action().takes_values()) {
        ("", _) => values,
        (_, false) => names,
        (_, true) => format!("{names} {values}"),
    }
}

fn default_of(arg: &Arg) -> String {
    let values: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if values.is_empty() || !arg.get_action().takes_values() {
        return String::new();
    }
    format!("`{}`", values.join(" "))
}

fn meaning_of(arg: &Arg) -> String {
    let help = cell(&arg.get_help().map(ToString::to_string).unwrap_or_default());
    let values: Vec<_> = arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if values.is_empty() || !arg.get_action().takes_values() {
        return help;
    }
    format!("{help}: {}", values.join(", "))
}

/// Text of a cell of a table, in one line.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}

/// `schema/codes.json`, without the names that programs use.
#[derive(Deserialize)]
struct Codes {
    errors: Vec<ErrorRow>,
    disconnects: Vec<EndRow>,
    unsubscribes: Vec<EndRow>,
}

#[derive(Deserialize)]
struct ErrorRow {
    code: u32,
    message: String,
    temporary: bool,
    meaning: String,
}

/// How a session or a subscription ended.
#[derive(Deserialize)]
struct EndRow {
    code: u32,
    reason: String,
    #[serde(alias = "reconnects", alias = "resubscribes")]
    returns: bool,
    meaning: String,
}

/// `docs/codes.md`.
pub(super) fn codes() -> String {
    let codes: Codes = serde_json::from_str(CODES).expect("schema/codes.json has this form");
    let mut page = CODES_BEGIN.to_owned();
    let errors = codes.errors.iter().map(|row| (row.code, row.message.as_str(), row.temporary, row.meaning.as_str()));
    add_codes(
        &mut page,
        "Errors of commands and of the server API",
        "After a temporary error, SDKs repeat connecting, subscribing and refreshing. Other commands fail, and you may repeat them.",
        "| code | message | temporary | what it means |",
        errors,
    );
    add_codes(
        &mut page,
        "Ends of connections",
        "The server closes a WebSocket with one of these codes. SDKs reconnect after 3000 to 3499 and 4000 to 4499.",
        "| code | reason | reconnects | what it means |",
        codes.disconnects.iter().map(EndRow::cells),
    );
    add_codes(
        &mut page,
        "Ends of subscriptions",
        "The connection stays. SDKs subscribe again after codes from 2500 on.",
        "| code | reason | subscribes again | what it means |",
        codes.unsubscribes.iter().map(EndRow::cells),
    );
    page
}

impl EndRow {
    fn cells(&self) -> (u32, &str, bool, &str) {
        (self.code, &self.reason, self.returns, &self.meaning)
    }
}

fn add_codes<'a>(
    page: &mut String,
    title: &str,
    about: &str,
    head: &str,
    rows: impl Iterator<Item = (u32, &'a str, bool, &'a str)>,
) {
    _ = write!(page, "\n## {title}\n\n{about}\n\n{head}\n|---|---|---|---|\n");
    for (code, text, is_so, meaning) in rows {
        _ = writeln!(page, "| {code} | `{text}` | {} | {meaning} |", if is_so { "yes" } else { "no" });
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn the_pages_are_those_of_the_program() {
        for (path, form, written) in [("docs/cli.md", "cli", commands()), ("docs/codes.md", "codes", codes())] {
            let committed =
                fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).expect(path);
            assert!(committed == written, "{path} is stale: write it with `dunlin config-reference {form} > {path}`");
        }
    }

    #[test]
    fn no_two_commands_contradict_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_visible_command_and_option_is_on_the_page() {
        let page = commands();
        for needle in ["\n## dunlin serve\n", "\n## dunlin storage prune\n", "| `-c, --config FILE` |", "| `--yes` |"] {
            assert!(page.contains(needle), "{needle}");
        }
        for needle in ["man-pages", "`-h", "## dunlin help"] {
            assert!(!page.contains(needle), "{needle}");
        }
    }
}
