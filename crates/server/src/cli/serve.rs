//! `dunlin serve`.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use dunlin_games::Registry;

use super::{ConfigFile, Failure, warn};
use crate::{config::Flag, token::Verifier};

/// Run a node.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// IP address to listen on (`http_server.address`)
    #[arg(short, long, value_name = "ADDRESS")]
    address: Option<String>,
    /// TCP port; 0 for any that is free (`http_server.port`)
    #[arg(short, long, value_name = "PORT")]
    port: Option<u16>,
    /// I/O threads; 0 for one per core (`shards`)
    #[arg(long, value_name = "N")]
    shards: Option<u16>,
    /// What the shards wait on: auto, `io_uring` or epoll (`reactor`)
    #[arg(long, value_name = "KIND")]
    reactor: Option<String>,
    /// none, error, warn, info, debug or trace (`log.level`)
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Serve the files of DIR at / and publish made-up prices (`demo.dir`)
    #[arg(long, value_name = "DIR")]
    demo: Option<PathBuf>,
    /// Players for the arena of the demonstration (`demo.bots`)
    #[arg(long, value_name = "N", requires = "demo")]
    demo_bots: Option<u16>,
}

pub(super) fn run(args: &ServeArgs, registry: &Registry) -> Result<(), Failure> {
    let (config, warnings) = args.config.load(args.flags(), registry)?;
    warn(&warnings);
    let verifier = Arc::new(Verifier::new(&config.token).map_err(Failure::TokenThread)?);
    crate::serve::run(&config, verifier).map_err(Failure::Serve)
}

impl ServeArgs {
    fn flags(&self) -> Vec<Flag> {
        let demo = self.demo.as_ref().map(|dir| dir.display().to_string());
        [
            ("--address", "http_server.address", self.address.clone()),
            ("--port", "http_server.port", self.port.map(|port| port.to_string())),
            ("--shards", "shards", self.shards.map(|shards| shards.to_string())),
            ("--reactor", "reactor", self.reactor.clone()),
            ("--log-level", "log.level", self.log_level.clone()),
            ("--demo", "demo.dir", demo),
            ("--demo-bots", "demo.bots", self.demo_bots.map(|bots| bots.to_string())),
        ]
        .into_iter()
        .filter_map(|(name, path, value)| Some(Flag { name, path, value: value? }))
        .collect()
    }
}
