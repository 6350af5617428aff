//! The node that tools ask: the one of a configuration, over its HTTP server.

use std::{borrow::Cow, time::Duration};

use dunlin_config::Loaded;
use dunlin_games::Registry;
use serde_json::{Value, json};

use super::super::{
    ConfigFile, Failure,
    api_call::{self, ApiFailure},
    operator_request::{OperatorRequest, OperatorResponse, Unanswered},
};
use crate::http::configuration;

const CONFIGURATION_TIMEOUT: Duration = Duration::from_secs(15);

/// What tools ask. Errors are texts for a model: what is wrong, and what to do about it.
pub(super) trait Node: Sync {
    /// Calls a method of the server API.
    fn call(&self, method: &str, params: &Value) -> Result<Value, String>;

    /// The page of metrics.
    fn metrics(&self) -> Result<String, String>;

    /// The configuration, without secrets: `source`, `file`, `settings`, `warnings`.
    fn configuration(&self) -> Result<Value, String>;
}

/// The node of a configuration. Each question reads it again, so a changed key or port needs no new process.
pub(super) struct ConfiguredNode<'a> {
    pub(super) config: &'a ConfigFile,
    pub(super) registry: &'a Registry,
}

impl ConfiguredNode<'_> {
    fn load(&self) -> Result<Loaded, String> {
        self.config.load_whole(Vec::new(), self.registry).map_err(|failure| match failure {
            Failure::Config(problems) => {
                let text = "the configuration of `dunlin mcp` cannot be used. `--config` names its file, and `dunlin check-config` checks it";
                format!("{text}:\n{problems}")
            }
            other => other.to_string(),
        })
    }
}

impl Node for ConfiguredNode<'_> {
    fn call(&self, method: &str, params: &Value) -> Result<Value, String> {
        api_call::call(&self.load()?, method, params).map_err(|failure| with_remedy(&failure))
    }

    fn metrics(&self) -> Result<String, String> {
        api_call::metrics_page(&self.load()?).map_err(|failure| with_remedy(&failure))
    }

    fn configuration(&self) -> Result<Value, String> {
        let loaded = self.load()?;
        let request = OperatorRequest { path: configuration::PATH, loaded: &loaded, timeout: CONFIGURATION_TIMEOUT };
        let why = match request.post() {
            Ok(OperatorResponse { status: 200, body, .. }) => match serde_json::from_str::<Value>(&body) {
                Ok(Value::Object(mut shown)) => {
                    shown.insert("source".to_owned(), "the running node".into());
                    return Ok(shown.into());
                }
                _ => "the answer of the node is not understood".to_owned(),
            },
            Ok(OperatorResponse { address, status, .. }) => {
                format!("{address}: the node responded with status {status}")
            }
            Err(error @ (Unanswered::NoInternalPort | Unanswered::Unreachable(..) | Unanswered::UnknownKeys(_))) => {
                error.to_string()
            }
        };
        let Loaded { config, values, warnings, .. } = &loaded;
        let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        Ok(json!({
            "source": format!("the file and the environment of `dunlin mcp`; the running node may hold other values. {why}"),
            "file": config.file,
            "settings": values.shown(),
            "warnings": warnings,
        }))
    }
}

/// The failure with the setting that it is about and what to do.
fn with_remedy(failure: &ApiFailure) -> String {
    let remedy: Cow<'static, str> = match failure {
        ApiFailure::NotServed(_) => {
            "Change the configuration of the node, and give `dunlin mcp` the same file with `--config`".into()
        }
        ApiFailure::Unreachable(_, setting, _) => format!(
            "Start the node. If it runs elsewhere, `{setting}` and `http_server.address` in the file of `dunlin mcp --config` \
             have to be those of the node"
        )
        .into(),
        ApiFailure::Unanswered(..) => "Look with another tool whether it was done, then call again".into(),
        ApiFailure::UnknownKeys(_) => "`http_api.key` has to be that of the node: give `dunlin mcp` the file of the node with \
            `--config`, or set DUNLIN_HTTP_API_KEY"
            .into(),
        ApiFailure::Refused(_, code, _) => remedy_of(*code).into(),
        ApiFailure::NoResult(..) => "`--config` has to name the file of the node".into(),
    };
    format!("{failure}. {remedy}")
}

/// What to do about an error of the API.
const fn remedy_of(code: u64) -> &'static str {
    match code {
        100 => "Call again. The log of the node may have the reason",
        102 => {
            "The part of a channel's name before the colon is its namespace: `configuration` with the prefix `channel.namespaces` has all"
        }
        104 => "It may have ended: list what there is with `sessions`, `rooms` or `channels`",
        107 => "Correct the argument, and call again",
        108 => "An option of the namespace turns it on: find it with `docs_search`",
        111 => "Call again later. `docs_search` finds the setting of the limit",
        112 => "The history has begun anew: call without `since`",
        _ => "`docs_read` with the page http-api.md has the codes",
    }
}

#[cfg(test)]
mod tests {
    use std::{io, net::SocketAddr};

    use super::*;

    #[test]
    fn failures_name_the_setting_and_the_remedy() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9_000));
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        for (failure, expected) in [
            (ApiFailure::NotServed("`a.b` is off"), &["`a.b` is off. Change the configuration"][..]),
            (
                ApiFailure::Unreachable(address, "http_server.port", refused()),
                &["127.0.0.1:9000 (`http_server.port`): cannot reach the node", "Start the node"],
            ),
            (ApiFailure::Unanswered(address, refused()), &["may have done what it was asked", "call again"]),
            (ApiFailure::UnknownKeys(address), &["127.0.0.1:9000", "`http_api.key` has to be that of the node"]),
            (ApiFailure::Refused(address, 108, "not available".to_owned()), &["error 108: not available. An option"]),
            (ApiFailure::Refused(address, 400, "the game".to_owned()), &["error 400: the game. `docs_read`"]),
            (ApiFailure::NoResult(address, "no".to_owned()), &["127.0.0.1:9000: no. `--config`"]),
        ] {
            let text = with_remedy(&failure);
            assert!(expected.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
