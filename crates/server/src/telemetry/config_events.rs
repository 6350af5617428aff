//! Log events about the configuration: refused origins, unmet requirements, results of reloads.

use std::fmt;

use tracing::{debug, info, warn};

use super::{events::now_s, log::Outside, throttle::Throttle};
use crate::serve::Reloaded;

/// A page was refused because of its origin.
pub struct OriginRefused<'a> {
    /// The refused `Origin` header, unescaped.
    pub origin: &'a str,
}

impl OriginRefused<'_> {
    /// Logs it, at most once a second.
    pub fn emit(&self) {
        static THROTTLE: Throttle = Throttle::new();
        if let Some(suppressed) = THROTTLE.admit(now_s()) {
            info!(
                origin = %Outside(self.origin),
                key = "client.allowed_origins",
                suppressed,
                "page refused: its origin is not in client.allowed_origins; add the origin if this is your page"
            );
        }
    }
}

/// Environment variables of services in Kubernetes were ignored.
pub struct ServiceVariablesIgnored<'a> {
    /// Their names.
    pub names: &'a [String],
}

impl ServiceVariablesIgnored<'_> {
    /// Logs one line for all, unless there are none.
    pub fn emit(&self) {
        if !self.names.is_empty() {
            debug!(
                variables = listed(self.names),
                remedy = "set `enableServiceLinks: false` in the pod, so that Kubernetes does not set them",
                "environment variables that Kubernetes sets for services are ignored"
            );
        }
    }
}

/// No browser page can connect.
pub struct NoPageAdmitted;

impl NoPageAdmitted {
    /// Logs it.
    pub fn emit(&self) {
        warn!(key = "client.allowed_origins", "{}", dunlin_config::NO_PAGE_ADMITTED);
    }
}

/// The limit on open files is below the configured number of connections.
pub struct FewOpenFiles {
    /// The limit on open files.
    pub limit: u64,
    /// The number of files that the configuration requires.
    pub needed: u64,
    /// The number of files that connections on the public port leave for others.
    pub reserved: u64,
    /// The settings that require them, and the verb.
    pub what_allows: &'static str,
}

impl FewOpenFiles {
    /// Logs it.
    pub fn emit(&self) {
        warn!(
            limit = self.limit,
            needed = self.needed,
            reserved = self.reserved,
            "the limit of open files is below what {}; raise the hard limit (LimitNOFILE in systemd, ulimit -Hn in a \
             shell), or lower them",
            self.what_allows
        );
    }
}

/// The shards may have fewer connections than the configured number.
pub struct FewPlaces {
    /// Maximum number of connections of each shard.
    pub connections_max: u64,
    /// The number of shards.
    pub shards: u64,
    /// The configured number of connections.
    pub connection_limit: u64,
}

impl FewPlaces {
    /// Logs it.
    pub fn emit(&self) {
        warn!(
            connections_max = self.connections_max,
            shards = self.shards,
            connection_limit = self.connection_limit,
            "the shards may have connections_max connections each, fewer together than client.connection_limit; raise \
             net.shard_connections_limit and the hard limit of open files (LimitNOFILE in systemd, ulimit -Hn in a shell), \
             the lower of which counts, use more shards, or lower client.connection_limit"
        );
    }
}

/// The configuration was reloaded.
pub struct ConfigurationReread<'a> {
    /// The result.
    pub reloaded: &'a Reloaded,
}

impl ConfigurationReread<'_> {
    /// Logs one line, and one for each error if the configuration is invalid.
    pub fn emit(&self) {
        match self.reloaded {
            Reloaded::Applied { changed, needs_restart, warnings } => {
                for warning in warnings {
                    warn!(%warning, "configuration warning");
                }
                let (changed, waiting) = (listed(changed), listed(needs_restart));
                if waiting.is_empty() {
                    info!(changed, "configuration reloaded");
                } else {
                    warn!(changed, needs_a_restart = waiting, "configuration reloaded; some changes need a restart");
                }
            }
            Reloaded::Refused { errors, needs_force: false } => {
                for error in errors {
                    warn!(%error, "configuration reload refused; nothing has changed");
                }
            }
            Reloaded::Refused { errors, needs_force: true } => {
                for error in errors {
                    warn!(%error, remedy = "if this is intended: `dunlin reload --force`, or restart the node",
                        "configuration reload refused; nothing has changed");
                }
            }
        }
    }
}

/// Maximum number of keys in a line; the others are counted.
const LISTED_KEYS_MAX: usize = 50;

fn listed(keys: &[impl fmt::Display]) -> String {
    let named: Vec<String> = keys.iter().take(LISTED_KEYS_MAX).map(ToString::to_string).collect();
    let more = match keys.len().saturating_sub(LISTED_KEYS_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    named.join(", ") + &more
}
