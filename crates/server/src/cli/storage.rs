//! `dunlin storage`: operators' commands for a storage that no node has open.

mod prune;

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
    sync::Arc,
};

use clap::{Args, Subcommand};
use dunlin_config::Config;
use dunlin_engine::{Event, ShardIndex, event::ShardEvents};
use dunlin_games::Registry;
use dunlin_storage::{Completions, FamilySize, Inspection, Storage, StorageOptions, StorageReport};

use super::{ConfigFile, Failure, output};

/// Check, measure, compact, export or prune the storage of a node that is stopped.
#[derive(Debug, Args)]
pub(super) struct StorageArgs {
    #[command(subcommand)]
    action: StorageAction,
}

#[derive(Debug, Subcommand)]
enum StorageAction {
    /// Read everything and compare all checksums: exit code 0 if nothing is damaged, 1 otherwise
    Check(StorageLocation),
    /// Print the number of entries and bytes of each column family
    Stats(StorageLocation),
    /// Compact everything, so that deleted and expired data frees its space
    Compact(CompactArgs),
    /// Print the publications as one JSON object per line
    Export(ExportArgs),
    /// List what is stored for namespaces that the configuration does not have; remove it with --yes
    Prune(prune::PruneArgs),
}

#[derive(Debug, Args)]
struct CompactArgs {
    #[command(flatten)]
    location: StorageLocation,
    #[command(flatten)]
    clock: ClockArgs,
}

/// For commands that open the storage for writing.
#[derive(Debug, Args)]
struct ClockArgs {
    /// Open the storage however long its last run is ago by the clock (`storage.clock_ahead_limit`)
    #[arg(long)]
    accept_clock: bool,
}

impl ClockArgs {
    fn apply(&self, options: StorageOptions) -> StorageOptions {
        let clock_ahead_ms_max = if self.accept_clock { u64::MAX } else { options.clock_ahead_ms_max };
        StorageOptions { clock_ahead_ms_max, ..options }
    }
}

#[derive(Debug, Args)]
struct ExportArgs {
    #[command(flatten)]
    location: StorageLocation,
    /// Print only the publications of this channel
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,
}

/// Where the storage is.
#[derive(Debug, Args)]
struct StorageLocation {
    /// Directory of the storage. Default: `storage.path` of the configuration
    #[arg(value_name = "DIR", conflicts_with = "path")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFile,
}

pub(super) fn run(args: &StorageArgs, registry: &Registry) -> Result<(), Failure> {
    match &args.action {
        StorageAction::Check(location) => check(&location.options(registry)?),
        StorageAction::Stats(location) => stats(&inspect(&location.options(registry)?)?),
        StorageAction::Compact(args) => compact(&args.clock.apply(args.location.options(registry)?)),
        StorageAction::Export(args) => export(&inspect(&args.location.options(registry)?)?, args.channel.as_deref()),
        StorageAction::Prune(args) => prune::run(args, registry),
    }
}

impl StorageLocation {
    fn options(&self, registry: &Registry) -> Result<StorageOptions, Failure> {
        if let Some(directory) = &self.directory {
            return Ok(StorageOptions::at(directory));
        }
        let (config, _) = self.config.load(Vec::new(), registry)?;
        configured_options(&config)
    }
}

/// The options of the storage that a configuration names.
fn configured_options(config: &Config) -> Result<StorageOptions, Failure> {
    let Some(options) = &config.storage else {
        let text = "there is no storage: name its directory, or a configuration with `storage.path`";
        return Err(Failure::Usage(text.to_owned()));
    };
    // The huge pages of the machine are reserved for the node.
    Ok(StorageOptions { huge_page_bytes: 0, ..options.clone() })
}

/// Opens a storage that exists, to change it.
fn open(options: &StorageOptions) -> Result<Storage, Failure> {
    require(options)?;
    Storage::open(options, Arc::new(NoShards)).map_err(Failure::Storage)
}

/// Opens a storage that exists, to read it. Nothing in its directory is changed.
fn inspect(options: &StorageOptions) -> Result<Inspection, Failure> {
    require(options)?;
    Inspection::open(options).map_err(Failure::Storage)
}

fn require(options: &StorageOptions) -> Result<(), Failure> {
    let path = &options.path;
    match dunlin_storage::is_storage(path) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let text = "there is no storage in this directory: it has no file STORAGE; if it was one, restore a backup";
            Err(Failure::UnusableStorage(path.clone(), text.to_owned()))
        }
        Err(error) => Err(Failure::File(path.clone(), error)),
    }
}

/// Checks a storage, and prints a summary of its content.
pub(super) fn check(options: &StorageOptions) -> Result<(), Failure> {
    let report = inspect(options)?.check().map_err(Failure::Storage)?;
    let StorageReport { channels, publications, results, blocks, checkpoints, access_rules, unreadable } = report;
    let path = options.path.display();
    output::line(format_args!(
        "{path}: {channels} channels, {publications} publications, {results} idempotency results, {blocks} path blocks, \
         {checkpoints} room checkpoints, {access_rules} access rules"
    ))?;
    if unreadable > 0 {
        let text = format!("{unreadable} entries cannot be read; check the disk, then restore a backup");
        return Err(Failure::UnusableStorage(options.path.clone(), text));
    }
    output::line(format_args!("{path}: everything can be read, and all checksums match"))
}

fn stats(storage: &Inspection) -> Result<(), Failure> {
    output::line(format_args!(
        "{:<14}{:>16}{:>16}{:>16}",
        "family", "entries, about", "table bytes", "memtable bytes"
    ))?;
    let sizes = storage.sizes();
    for FamilySize { name, entries, table_bytes, memtable_bytes } in &sizes {
        output::line(format_args!("{name:<14}{entries:>16}{table_bytes:>16}{memtable_bytes:>16}"))?;
    }
    let sum = |of: fn(&FamilySize) -> u64| sizes.iter().map(of).sum::<u64>();
    let (entries, tables, memtables) =
        (sum(|size| size.entries), sum(|size| size.table_bytes), sum(|size| size.memtable_bytes));
    output::line(format_args!("{:<14}{entries:>16}{tables:>16}{memtables:>16}", "all"))
}

fn compact(options: &StorageOptions) -> Result<(), Failure> {
    let storage = open(options)?;
    let table_bytes = || -> Result<u64, Failure> {
        let sizes = storage.inspect().map_err(Failure::Storage)?.sizes();
        Ok(sizes.iter().map(|size| size.table_bytes).sum())
    };
    let before_bytes = table_bytes()?;
    storage.compact();
    let after_bytes = table_bytes()?;
    output::line(format_args!("{}: {before_bytes} bytes of tables before, {after_bytes} now", options.path.display()))
}

fn export(storage: &Inspection, channel: Option<&str>) -> Result<(), Failure> {
    let mut lines = Lines { output: BufWriter::new(io::stdout().lock()), error: None };
    let exported = storage.export(channel, &mut lines);
    let flushed = lines.output.flush();
    match (lines.error, exported) {
        (Some(error), _) => Err(Failure::Output(error)),
        (None, Err(error)) => Err(Failure::Storage(error)),
        (None, Ok(_)) => flushed.map_err(Failure::Output),
    }
}

/// Standard output. It keeps its own error, because the storage's error names the storage's directory.
struct Lines<W> {
    output: W,
    error: Option<io::Error>,
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes).map_err(|error| {
            let kind = error.kind();
            self.error = Some(error);
            kind.into()
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// No shard sends requests to the storage.
#[derive(Debug)]
struct NoShards;

impl ShardEvents for NoShards {
    fn send(&self, _: ShardIndex, _: Event<'static>) -> bool {
        true
    }
}

impl Completions for NoShards {}
