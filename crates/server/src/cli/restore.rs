//! `dunlin restore`.

use std::path::PathBuf;

use clap::Args;
use dunlin_storage::StorageOptions;

use super::{Failure, backups, output, storage};

/// Restore a backup of a storage into an empty directory, and check it.
#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// Directory of the backups
    #[arg(value_name = "BACKUP_DIR")]
    backups: PathBuf,
    /// Directory of the new storage. It must be empty or missing
    #[arg(value_name = "INTO_DIR")]
    into: PathBuf,
    /// Number of the backup, as `dunlin backups` lists it. Default: the newest
    #[arg(long, value_name = "N")]
    number: Option<u32>,
}

pub(super) fn run(args: &RestoreArgs) -> Result<(), Failure> {
    let restored = dunlin_storage::restore(&args.backups, args.number, &args.into).map_err(Failure::Storage)?;
    output::line(format_args!("restored into {}: {}", args.into.display(), backups::described(restored)))?;
    storage::check(&StorageOptions::at(&args.into))
}
