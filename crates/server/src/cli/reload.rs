//! `dunlin reload`.

use std::time::Duration;

use clap::Args;
use dunlin_games::Registry;
use serde::Deserialize;

use super::{
    ConfigFile, Failure,
    operator_request::{OperatorRequest, OperatorResponse, Unanswered},
    output::{self, Shown},
};
use crate::http::reload;

/// Longer than a node's own timeout.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Reload the configuration of a running node.
#[derive(Debug, Args)]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Apply the configuration even if it takes away every namespace, every key of one kind, or the storage. If the file no
    /// longer contains the API key, set `DUNLIN_HTTP_API_KEY` to it for this command
    #[arg(long)]
    force: bool,
}

/// The node's response, see [`crate::serve::Reloaded`].
#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Answer {
    Applied {
        changed: Vec<String>,
        needs_restart: Vec<Waiting>,
        warnings: Vec<String>,
    },
    Refused {
        errors: Vec<String>,
        #[serde(default)]
        needs_force: bool,
    },
}

#[derive(Deserialize)]
struct Waiting {
    key: String,
    #[serde(default)]
    why: String,
}

pub(super) fn run(args: &ReloadArgs, registry: &Registry) -> Result<(), Failure> {
    let loaded = args.config.load_whole(Vec::new(), registry)?;
    let request = OperatorRequest {
        path: if args.force { reload::FORCED_PATH } else { reload::PATH },
        loaded: &loaded,
        timeout: TIMEOUT,
    };
    match request.post() {
        Ok(OperatorResponse { address, status, body }) => {
            let failed = |text: String| Failure::Reload(format!("{address}: {text}"));
            if status == 404 {
                return Err(failed("this port has no `/-/reload`: is it the internal port of a dunlin node?".into()));
            }
            print_outcome(status, &body, failed)
        }
        Err(Unanswered::NoInternalPort) => {
            let text = "the configuration names no internal port, on which alone a node can be asked to read it again: set \
                        `http_server.internal_port`, or send SIGHUP to the node's process";
            Err(Failure::Usage(text.to_owned()))
        }
        Err(error @ Unanswered::UnknownKeys(_)) => {
            Err(Failure::Reload(format!("{error}, or send SIGHUP to its process")))
        }
        Err(error) => Err(Failure::Reload(error.to_string())),
    }
}

fn print_outcome(status: u16, body: &str, failed: impl Fn(String) -> Failure) -> Result<(), Failure> {
    match serde_json::from_str(body) {
        Ok(Answer::Applied { changed, needs_restart, warnings }) => {
            for warning in &warnings {
                output::error_line(format_args!("warning: {}", Shown(warning)));
            }
            applied(&changed, &needs_restart).iter().try_for_each(output::line)
        }
        Ok(Answer::Refused { errors, needs_force }) => Err(failed(refused(&errors, needs_force))),
        Err(_) => Err(failed(format!("the node responded with status {status}"))),
    }
}

/// What was applied, a line each.
fn applied(changed: &[String], needs_restart: &[Waiting]) -> Vec<String> {
    if changed.is_empty() && needs_restart.is_empty() {
        return vec!["nothing has changed".to_owned()];
    }
    let changed = changed.iter().map(|key| format!("changed: {}", Shown(key)));
    let waiting = needs_restart.iter().map(|Waiting { key, why }| {
        let why = if why.is_empty() { String::new() } else { format!(" ({})", Shown(why)) };
        format!("needs a restart: {}{why}", Shown(key))
    });
    changed.chain(waiting).collect()
}

fn refused(errors: &[String], needs_force: bool) -> String {
    let errors: Vec<_> = errors.iter().map(|error| Shown(error).to_string()).collect();
    let remedy = if needs_force { "\nif this is intended, run the command again with --force" } else { "" };
    format!("the node rejected the configuration and keeps the previous one\n{}{remedy}", errors.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_node_answers_does_not_control_the_terminal() {
        let text = || "a\u{1b}[2J".to_owned();
        let waiting = [Waiting { key: text(), why: text() }, Waiting { key: "b".to_owned(), why: String::new() }];
        assert_eq!(
            applied(&[text()], &waiting),
            ["changed: a\\u{1b}[2J", "needs a restart: a\\u{1b}[2J (a\\u{1b}[2J)", "needs a restart: b"]
        );
        assert_eq!(applied(&[], &[]), ["nothing has changed"]);
        let refused = refused(&[text(), "c".to_owned()], true);
        assert!(refused.contains("\na\\u{1b}[2J\nc\nif this is intended"), "{refused}");
    }
}
