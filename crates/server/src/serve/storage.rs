//! Opens the configured storage.

use std::sync::Arc;

use dunlin_config::Config;
use dunlin_engine::{
    NamespaceNames, Options,
    log::PublicationLog,
    options::{HistoryOverflow, NamespaceOptions},
};
use dunlin_storage::{DiskLimits, LastRun, NamespaceDiskLimits, StartPolicy, StorageOptions};

use super::{Purpose, ServeError, open_files::OpenFiles};
use crate::node::{NodeStorage, ShardQueues, StorageEnd};

/// Opens the storage; `None` if no path is configured.
pub(super) fn open(
    config: &Config,
    open_files: OpenFiles,
    queues: &Arc<ShardQueues>,
    purpose: &Purpose,
) -> Result<Option<(Arc<NodeStorage>, StorageEnd)>, ServeError> {
    let Some(configured) = &config.storage else { return Ok(None) };
    let options = StorageOptions {
        open_files_max: open_files.storage_max,
        // Without it, a full disk would end namespaces in memory as well.
        start: StartPolicy::OpenLater,
        is_development: matches!(purpose, Purpose::Development),
        ..configured.clone()
    };
    let (storage, end) = NodeStorage::open(&options, Arc::clone(queues)).map_err(ServeError::Storage)?;
    storage.set_durable_namespaces(durable_namespaces(&config.engine));
    storage.log_fault();
    storage.storage().set_disk_limits(disk_limits(&config.engine));
    Ok(Some((Arc::new(storage), end)))
}

/// What the storage has at the start, in words. The numbers are estimates of the database.
pub(super) fn recovered(opened: &NodeStorage) -> String {
    let Ok(inspection) = opened.storage().inspect() else {
        return if dunlin_storage::IS_BUILT { "it cannot be used yet" } else { "in memory" }.to_owned();
    };
    let (last_run, sizes) = (inspection.last_run(), inspection.sizes());
    let entries = |family: &str| sizes.iter().find(|size| size.name == family).map_or(0, |size| size.entries);
    if last_run == LastRun::None {
        return last_run.words().to_owned();
    }
    format!(
        "about {} publications, {} channels and {} checkpoints of rooms; {}",
        entries("publications"),
        entries("heads"),
        entries("checkpoints"),
        last_run.words()
    )
}

/// The limits on the bytes of stored publications.
pub(super) fn disk_limits(options: &Options) -> DiskLimits {
    let names = NamespaceNames::new(options);
    let limits = |namespace: &NamespaceOptions| NamespaceDiskLimits {
        channel_bytes_max: namespace.history_disk_bytes_max,
        evicts: namespace.history_overflow == HistoryOverflow::Evict,
        bytes_max: namespace.history_disk_total_bytes_max,
    };
    DiskLimits {
        bytes_max: options.channel.history_disk_bytes_max,
        namespaces: std::iter::once(&options.without_namespace).chain(&options.namespaces).map(limits).collect(),
        namespace_of: Some(Arc::new(move |channel| names.index_of(channel).ok())),
    }
}

/// The namespaces whose publications are stored; `-` stands for channels without a namespace, as in the metrics.
pub(super) fn durable_namespaces(options: &Options) -> Vec<String> {
    let is_durable = |namespace: &NamespaceOptions| namespace.log != PublicationLog::Memory;
    let named = options.namespaces.iter().filter(|named| is_durable(named)).map(|named| named.name.clone());
    let without = Some("-".to_owned()).filter(|_| is_durable(&options.without_namespace));
    without.into_iter().chain(named).collect()
}
