//! `dunlin storage prune`: removes what is stored for namespaces that the configuration does not have.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use clap::Args;
use dunlin_config::Config;
use dunlin_engine::NamespaceNames;
use dunlin_games::Registry;
use dunlin_protocol::ErrorCode;
use dunlin_queues::answer_channel;
use dunlin_storage::{EntryBatch, Storage};

use super::{ClockArgs, ConfigFile, Failure, configured_options, open};
use crate::cli::output;

/// The column family with an entry for each channel.
const HEADS: &str = "heads";

/// Number of channels that are removed with one write.
const CHANNELS_AT_ONCE: usize = 256;

#[derive(Debug, Args)]
pub(super) struct PruneArgs {
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    clock: ClockArgs,
    /// Remove what is listed, and free its space. Without this option, nothing changes
    #[arg(long)]
    yes: bool,
}

/// What is stored for the channels of one namespace.
#[derive(Default)]
struct Stored {
    channels: BTreeSet<Arc<str>>,
    /// Entries by the name of their column family.
    entries: BTreeMap<&'static str, u64>,
    bytes: u64,
}

pub(super) fn run(args: &PruneArgs, registry: &Registry) -> Result<(), Failure> {
    let (config, _) = args.config.load(Vec::new(), registry)?;
    let options = args.clock.apply(configured_options(&config)?);
    let path = options.path.display().to_string();
    let storage = open(&options)?;
    let removed = removed_namespaces(&storage, &config)?;
    if removed.is_empty() {
        return output::line(format_args!("{path}: everything belongs to namespaces of the configuration"));
    }
    for (namespace, Stored { channels, entries, bytes }) in &removed {
        let entries: Vec<String> = entries.iter().map(|(family, entries)| format!("{family} {entries}")).collect();
        let (channels, entries) = (channels.len(), entries.join(", "));
        output::line(format_args!("{namespace}: {channels} channels, {bytes} bytes ({entries})"))?;
    }
    if !args.yes {
        return output::line("nothing was removed; to remove these namespaces, run the command again with --yes");
    }
    let channels = removed.into_values().flat_map(|stored| stored.channels);
    let channels = remove(&storage, channels)?;
    storage.compact();
    output::line(format_args!("{path}: removed {channels} channels"))
}

/// What is stored for namespaces that the configuration does not have, by their names.
fn removed_namespaces(storage: &Storage, config: &Config) -> Result<BTreeMap<String, Stored>, Failure> {
    let names = NamespaceNames::new(&config.engine);
    let mut removed: BTreeMap<String, Stored> = BTreeMap::new();
    let visit = &mut |family, channel: &str, bytes| {
        // Names that only break a rule, such as a regular expression that was changed, have a namespace.
        if names.index_of(channel) != Err(ErrorCode::UnknownChannel) {
            return;
        }
        let stored = removed.entry(namespace_of(config, channel).to_owned()).or_default();
        if stored.channels.last().is_none_or(|last| **last != *channel) {
            stored.channels.insert(channel.into());
        }
        *stored.entries.entry(family).or_default() += 1;
        stored.bytes += bytes;
    };
    storage.inspect().and_then(|inspection| inspection.each_entry(visit)).map_err(Failure::Storage)?;
    // The head of a removed channel stays until it expires: it has the epoch that tells clients that their positions are
    // lost. It is all that is left of a namespace that was pruned.
    removed.retain(|_, stored| stored.entries.keys().any(|family| *family != HEADS));
    Ok(removed)
}

fn namespace_of<'c>(config: &Config, channel: &'c str) -> &'c str {
    let options = &config.engine.channel;
    let name = match options.private_prefix.as_str() {
        "" => channel,
        prefix => channel.strip_prefix(prefix).unwrap_or(channel),
    };
    name.split_once(options.namespace_boundary).map_or(name, |(namespace, _)| namespace)
}

/// Removes everything of these channels. Returns their number.
fn remove(storage: &Storage, channels: impl Iterator<Item = Arc<str>>) -> Result<usize, Failure> {
    let (mut channels, mut removed) = (channels.peekable(), 0);
    while channels.peek().is_some() {
        let mut batch = EntryBatch::new(true);
        for channel in channels.by_ref().take(CHANNELS_AT_ONCE) {
            batch.delete_paths(&channel);
            batch.delete_all_checkpoints(&channel);
            storage.remove(channel);
            removed += 1;
        }
        let (sender, receiver) = answer_channel();
        let written = storage.write_entries(batch, Box::new(move |outcome| drop(sender.send(outcome))));
        // The queue is empty, because the previous batch was written.
        let outcome =
            written.map_err(|_| refused(storage)).and_then(|()| receiver.recv().map_err(|_| refused(storage)));
        outcome?.map_err(Failure::Storage)?;
    }
    Ok(removed)
}

fn refused(storage: &Storage) -> Failure {
    Failure::UnusableStorage(storage.path().to_owned(), "the storage takes no writes".to_owned())
}
