//! `dunlin backup`.

use std::time::Duration;

use clap::Args;
use dunlin_games::Registry;
use dunlin_storage::BackupInfo;

use super::{
    ConfigFile, Failure, backups,
    operator_request::{OperatorRequest, Unanswered},
    output::{self, Shown},
};
use crate::{
    http::backup,
    serve::{BackupOutcome, MadeBackup},
};

/// Have a running node back up its storage.
#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// How long to wait for the node, in seconds. The node completes the backup in any case
    #[arg(short, long, value_name = "SECONDS", default_value_t = 3_600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

pub(super) fn run(args: &BackupArgs, registry: &Registry) -> Result<(), Failure> {
    let loaded = args.config.load_whole(Vec::new(), registry)?;
    if loaded.config.backup.is_none() {
        return Err(Failure::Usage(
            "the configuration has no directory for backups: set `storage.backup.path`".to_owned(),
        ));
    }
    let request = OperatorRequest { path: backup::PATH, loaded: &loaded, timeout: Duration::from_secs(args.timeout) };
    let response = request.post().map_err(|error| match error {
        Unanswered::NoInternalPort => Failure::Usage(error.to_string()),
        _ => Failure::Backup(error.to_string()),
    })?;
    let failed = |text: String| Err(Failure::Backup(format!("{}: {text}", response.address)));
    match serde_json::from_str(&response.body) {
        Ok(BackupOutcome::Made(made)) => print_backup(&made),
        Ok(BackupOutcome::Busy) => failed("the node is making another backup; try again when it has ended".to_owned()),
        Ok(BackupOutcome::Failed { error }) => failed(Shown(&error).to_string()),
        Err(_) if response.status == 404 => failed(
            "this port has no `/-/backup`: it is not the internal port of a dunlin node, or the node was started without \
             `storage.backup.path`"
                .to_owned(),
        ),
        Err(_) => failed(format!("the node responded with status {}", response.status)),
    }
}

fn print_backup(made: &MadeBackup) -> Result<(), Failure> {
    let MadeBackup { directory, number, made_s, files, bytes, duration_ms, warning } = made;
    if let Some(warning) = warning {
        output::error_line(format_args!("warning: {}", Shown(warning)));
    }
    let info = BackupInfo { number: *number, made_s: *made_s, bytes: *bytes, files: *files };
    output::line(format_args!("{}: {}, {duration_ms} ms", Shown(directory), backups::described(info)))
}
