//! `dunlin reload`.

use std::time::Duration;

use clap::Args;
use dunlin_games::Registry;
use serde::Deserialize;

use super::{
    ConfigFile, Failure,
    operator_request::{OperatorRequest, OperatorResponse, Unanswered},
    output,
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
                output::error_line(format_args!("warning: {warning}"));
            }
            if changed.is_empty() && needs_restart.is_empty() {
                output::line("nothing has changed")?;
            }
            for key in &changed {
                output::line(format_args!("changed: {key}"))?;
            }
            for Waiting { key, why } in &needs_restart {
                let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
                output::line(format_args!("needs a restart: {key}{why}"))?;
            }
            Ok(())
        }
        Ok(Answer::Refused { errors, needs_force }) => {
            let errors = errors.join("\n");
            let remedy = if needs_force { "\nif this is intended, run the command again with --force" } else { "" };
            Err(failed(format!("the node rejected the configuration and keeps the previous one\n{errors}{remedy}")))
        }
        Err(_) => Err(failed(format!("the node responded with status {status}"))),
    }
}
