//! `dunlin cluster`: operators' commands for a cluster's NATS servers.

use std::time::Duration;

use clap::{Args, Subcommand};
use dunlin_cluster::{
    check::{ClusterFinding, FindingState, check_cluster},
    links::{LinkOptions, parsed_servers},
    thread::ClusterOptions,
};
use dunlin_games::Registry;
use dunlin_token::SecretUrl;
use serde::Serialize;

use super::{ConfigFile, Failure, output, warn};
use crate::serve::cluster_options;

/// The environment variable with the URL of a user of the system account. A command-line argument would show its
/// password in process lists.
const SYSTEM_URL: &str = "NATS_SYSTEM_URL";
/// Time for the last messages to be sent before the process ends.
const LINGER: Duration = Duration::from_millis(100);

/// Check the NATS servers of a cluster.
#[derive(Debug, Args)]
pub(super) struct ClusterArgs {
    #[command(subcommand)]
    action: ClusterAction,
}

#[derive(Debug, Subcommand)]
enum ClusterAction {
    /// Compare servers, permissions, streams and clocks with what nodes need, and change nothing: exit code 0 if nothing is
    /// wrong, 1 otherwise
    Check(ClusterCheckArgs),
}

#[derive(Debug, Args)]
struct ClusterCheckArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Addresses with a user of the servers' system account, for what only it can see: `sync_interval`, and the clocks of all
    /// servers. Default: the variable `NATS_SYSTEM_URL`
    #[arg(long, value_name = "URL")]
    system_url: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// All findings, as JSON.
#[derive(Serialize)]
struct ClusterReport<'a> {
    wrong: usize,
    warnings: usize,
    unknown: usize,
    findings: &'a [ClusterFinding],
}

pub(super) fn run(args: &ClusterArgs, registry: &Registry) -> Result<(), Failure> {
    let ClusterAction::Check(args) = &args.action;
    let (config, warnings) = args.config.load(Vec::new(), registry)?;
    warn(&warnings);
    let Some(settings) = &config.broker else {
        let text = "there is no cluster: name a configuration with `broker.enabled`";
        return Err(Failure::Usage(text.to_owned()));
    };
    let mut options = cluster_options(&config, settings).map_err(Failure::Serve)?;
    // No node has this id, so no node receives the replies.
    options.links.inbox = format!("_DN.check-{}", std::process::id()).into();
    let system = args.system_options(&options)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    let findings = runtime.block_on(check_cluster(&options, system.as_ref()));
    runtime.shutdown_timeout(LINGER);
    args.print(&findings)
}

impl ClusterCheckArgs {
    fn system_options(&self, options: &ClusterOptions) -> Result<Option<LinkOptions>, Failure> {
        let url = self.system_url.clone().or_else(|| std::env::var(SYSTEM_URL).ok());
        let Some(url) = url.filter(|url| !url.is_empty()).map(SecretUrl::new) else { return Ok(None) };
        let servers = parsed_servers(url.reveal()).map_err(|error| {
            let why = url.scrub(&error.to_string());
            Failure::Usage(format!("--system-url or the variable {SYSTEM_URL}: {why}"))
        })?;
        Ok(Some(LinkOptions { servers, ..options.links.clone() }))
    }

    fn print(&self, findings: &[ClusterFinding]) -> Result<(), Failure> {
        let count = |state: FindingState| findings.iter().filter(|finding| finding.state == state).count();
        let (wrong, warnings, unknown) =
            (count(FindingState::Wrong), count(FindingState::Warning), count(FindingState::Unknown));
        if self.json {
            let report = ClusterReport { wrong, warnings, unknown, findings };
            output::line(serde_json::to_string(&report).map_err(|error| Failure::Output(error.into()))?)?;
        } else {
            for ClusterFinding { subject, state, text } in findings {
                output::line(format_args!("{state:<8} {subject}: {text}"))?;
            }
            output::line(format_args!("{wrong} wrong, {warnings} warnings, {unknown} unknown"))?;
        }
        if wrong > 0 {
            return Err(Failure::Cluster(format!("{wrong} wrong: nodes do not work with these NATS servers")));
        }
        Ok(())
    }
}
