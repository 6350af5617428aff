//! The reserve of free space. Publications leave it to flushes and compactions, to rooms, and to everything else on the
//! file system. So a publisher fills the disk only up to the reserve, and nothing else fails because of it.

use std::{fmt, path::PathBuf};
#[cfg(feature = "rocksdb")]
use std::{path::Path, sync::atomic::Ordering};

#[cfg(feature = "rocksdb")]
use dunlin_engine::log::LogError;

#[cfg(feature = "rocksdb")]
use crate::{
    counters::StorageCounters, request::Completions, shared_database::SharedDatabase, write_stall::free_bytes,
};

/// The file system has less free space than the reserve, so publications are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceShortage {
    /// The directory of the storage.
    pub path: PathBuf,
    /// Free bytes of its file system.
    pub free_bytes: u64,
    /// Bytes that publications must leave free.
    pub reserve_bytes: u64,
}

impl SpaceShortage {
    /// The label in `/health`.
    pub const LABEL: &'static str = "low_space";

    /// The remedy, for the error message.
    pub const REMEDY: &'static str =
        "free space on the file system, or lower `storage.free_space_min`; then the storage accepts publications again";
}

impl fmt::Display for SpaceShortage {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, free_bytes, reserve_bytes } = self;
        write!(
            text,
            "publications are refused, because the file system of {} has {free_bytes} free bytes and \
             `storage.free_space_min` is {reserve_bytes}; {}",
            path.display(),
            Self::REMEDY
        )
    }
}

/// The free space that the publications of a group commit may take.
#[derive(Debug)]
pub(crate) struct FreeSpace {
    reserve_bytes: u64,
    /// `None` without a reserve, or if the free space is unknown.
    left_bytes: Option<u64>,
}

impl FreeSpace {
    pub(crate) const fn new(reserve_bytes: u64) -> Self {
        Self { reserve_bytes, left_bytes: None }
    }

    /// Begins a group commit with the free space of the file system.
    const fn begin(&mut self, free_bytes: Option<u64>) {
        self.left_bytes = match free_bytes {
            Some(free_bytes) => Some(free_bytes.saturating_sub(self.reserve_bytes)),
            None => None,
        };
    }

    /// Takes space for a publication, unless less than the reserve would be left.
    const fn try_take(&mut self, bytes: u64) -> bool {
        let Some(left_bytes) = self.left_bytes else { return true };
        let Some(rest) = left_bytes.checked_sub(bytes) else { return false };
        self.left_bytes = Some(rest);
        true
    }

    /// The free space at which a refused publication counts as accepted again. The margin keeps free space that varies
    /// around the reserve from changing the state with each commit.
    const fn needed_bytes(&self, bytes: u64) -> u64 {
        self.reserve_bytes.saturating_add(bytes).saturating_add(self.reserve_bytes / 16)
    }
}

/// The shortage of a storage whose publications were refused; `None` if there is enough space, even if no publication
/// was stored since.
#[cfg(feature = "rocksdb")]
pub(crate) fn shortage(path: &Path, reserve_bytes: u64, counters: &StorageCounters) -> Option<SpaceShortage> {
    let needed_bytes = counters.space_needed.load(Ordering::Relaxed);
    let free_bytes = free_bytes(path).filter(|free| *free < needed_bytes)?;
    Some(SpaceShortage { path: path.to_owned(), free_bytes, reserve_bytes })
}

#[cfg(feature = "rocksdb")]
impl FreeSpace {
    /// Measures the free space for the next group commit.
    pub(crate) fn measure(&mut self, shared: &SharedDatabase, completions: &dyn Completions) {
        if self.reserve_bytes == 0 {
            return;
        }
        let free = free_bytes(shared.path());
        self.begin(free);
        let needed = &shared.counters.space_needed;
        let needed_bytes = needed.load(Ordering::Relaxed);
        if needed_bytes > 0 && free.is_none_or(|free| free >= needed_bytes) {
            needed.store(0, Ordering::Relaxed);
            completions.space_enough();
        }
    }

    /// Takes space for a publication of this size. Announces a shortage when it begins.
    ///
    /// # Errors
    /// Less than the reserve would be left.
    pub(crate) fn take(
        &mut self,
        bytes: u64,
        shared: &SharedDatabase,
        completions: &dyn Completions,
    ) -> Result<(), LogError> {
        if self.try_take(bytes) {
            return Ok(());
        }
        let counters = &shared.counters;
        StorageCounters::add(&counters.refused_low_space, 1);
        if counters.space_needed.fetch_max(self.needed_bytes(bytes), Ordering::Relaxed) == 0
            && let Some(shortage) = shortage(shared.path(), self.reserve_bytes, counters)
        {
            completions.space_short(&shortage);
        }
        Err(LogError::LowSpace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publication_may_take_all_but_the_reserve() {
        let mut space = FreeSpace::new(1_000);
        space.begin(Some(1_300));
        assert!(space.try_take(100));
        assert!(!space.try_take(201), "one past the limit");
        assert!(space.try_take(200), "at the limit");
        assert!(!space.try_take(1), "the others of the commit have taken it");
        space.begin(Some(1_001));
        assert!(space.try_take(1) && !space.try_take(1));
        space.begin(Some(999));
        assert!(!space.try_take(1));
    }

    #[test]
    fn unknown_space_refuses_nothing() {
        let mut space = FreeSpace::new(1_000);
        space.begin(None);
        assert!(space.try_take(u64::MAX));
    }

    #[test]
    fn a_shortage_names_the_setting_the_values_and_the_remedy() {
        let shortage = SpaceShortage { path: "/var/lib/dunlin".into(), free_bytes: 17, reserve_bytes: 1_000 };
        let text = shortage.to_string();
        for part in ["/var/lib/dunlin", "17 free bytes", "`storage.free_space_min` is 1000", SpaceShortage::REMEDY] {
            assert!(text.contains(part), "{text}");
        }
    }
}
