//! Metrics of the storage.

use std::time::Duration;

use dunlin_storage::StorageCounts;

use super::{ControlCounters, Page, Scrape, m};

/// The state of the storage at the time of a scrape.
#[derive(Clone, Debug, Default)]
pub struct StorageState {
    /// The counters.
    pub counts: StorageCounts,
    /// Bytes of stored publications, by the number of the namespace; `None` for those of no namespace.
    pub history_bytes: Vec<(Option<u16>, u64)>,
    /// Free bytes of the file system; `None` if they are unknown.
    pub free_bytes: Option<u64>,
    /// Why the storage has stopped, as a label; `None` while it works.
    pub fault: Option<&'static str>,
}

/// Adds the families; without a storage they have no samples.
pub(super) fn storage(page: &mut Page, scrape: &Scrape, state: Option<&StorageState>, control: &ControlCounters) {
    type Pick = fn(&StorageCounts) -> u64;
    let counts = state.map(|state| state.counts);
    for (family, metric) in m::STORAGE_COUNTERS.iter().zip(&StorageCounts::METRICS) {
        page.family(family, |samples| counts.iter().for_each(|counts| samples.add(&[], (metric.value)(counts))));
    }
    let durations: [(&'static m::Family, Pick); 2] = [
        (&m::STORAGE_COMMIT_SECONDS, |counts| counts.commit_us),
        (&m::STORAGE_COMMIT_SECONDS_MAX, |counts| counts.commit_us_max),
    ];
    for (family, pick_us) in durations {
        let seconds = counts.map(|counts| Duration::from_micros(pick_us(&counts)).as_secs_f64());
        page.family(family, |samples| seconds.iter().for_each(|seconds| samples.add(&[], *seconds)));
    }
    page.family(&m::STORAGE_PUBLICATIONS_REFUSED, |samples| {
        if let Some(counts) = counts {
            samples.add(&["low_space"], counts.refused_low_space);
            samples.add(&["channel"], counts.refused_channel_full);
            samples.add(&["namespace"], counts.refused_namespace_full);
            samples.add(&["node"], counts.refused_node_full);
        }
    });
    page.family(&m::STORAGE_HISTORY_BYTES, |samples| {
        let namespaces = scrape.namespaces();
        for (namespace, bytes) in state.iter().flat_map(|state| &state.history_bytes) {
            let name = namespace.and_then(|index| namespaces.get(usize::from(index)));
            samples.add(&[name.map_or("unknown", |name| &**name)], *bytes);
        }
    });
    page.family(&m::STORAGE_FREE_BYTES, |samples| {
        if let Some(free_bytes) = state.and_then(|state| state.free_bytes) {
            samples.add(&[], free_bytes);
        }
    });
    page.family(&m::STORAGE_POISONED, |samples| {
        if let Some(StorageState { fault, .. }) = state {
            samples.add(&[fault.unwrap_or("none")], u8::from(fault.is_some()));
        }
    });
    page.family(&m::STORAGE_BACKUPS, |samples| {
        samples.add(&["made"], control.backups(true));
        samples.add(&["failed"], control.backups(false));
    });
    page.single(&m::STORAGE_UNDELETED_BACKUPS, control.undeleted_backups());
    page.single(&m::STORAGE_LAST_BACKUP, control.last_backup_s());
}
