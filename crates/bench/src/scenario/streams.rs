//! Counters of streams, shared by all processes of a run, and which publications the target refused.
//!
//! A publisher counts a publication before it sends it. So a client that reads the counter after its subscription was
//! confirmed knows from which number on it must receive everything, and at the end of a phase it knows what is missing.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::shared_array::SharedArray;

/// Refused publications of a run that are recorded: 8 MiB. Those beyond count as lost, and as unchecked.
const REFUSALS_MAX: usize = 1 << 20;
/// Distinguishes a record from one that is not written yet.
const IS_WRITTEN: u64 = 1 << 63;
const SEQUENCE_BITS: u32 = 40;

/// The counters of all streams.
pub struct Streams {
    /// Publications sent, by stream.
    sent: SharedArray<AtomicU64>,
    /// The number of records, then the records.
    refusals: SharedArray<AtomicU64>,
}

/// The files of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StreamFiles {
    sent: PathBuf,
    refusals: PathBuf,
}

impl Streams {
    /// Creates the files for a new run.
    pub fn create(streams: usize) -> Result<Self, Error> {
        Ok(Streams { sent: SharedArray::create(streams)?, refusals: SharedArray::create(1 + REFUSALS_MAX)? })
    }

    /// Opens the files of a run.
    pub fn open(files: &StreamFiles) -> Result<Self, Error> {
        Ok(Streams { sent: SharedArray::open(&files.sent)?, refusals: SharedArray::open(&files.refusals)? })
    }

    /// The files, for other processes.
    pub fn files(&self) -> StreamFiles {
        StreamFiles { sent: self.sent.path(), refusals: self.refusals.path() }
    }

    /// The number of publications sent in this stream.
    pub fn sent(&self, stream: u32) -> u64 {
        self.counter(stream).load(Ordering::SeqCst)
    }

    /// Counts a publication, which must be sent afterwards. Returns its number.
    pub fn count_sent(&self, stream: u32) -> u64 {
        self.counter(stream).fetch_add(1, Ordering::SeqCst)
    }

    /// Records that the target refused a publication, so that it does not have to arrive. Returns whether there was space.
    pub fn refuse(&self, stream: u32, sequence: u64) -> bool {
        let Some((count, records)) = self.refusals.items().split_first() else { return false };
        let at = usize::try_from(count.fetch_add(1, Ordering::SeqCst)).unwrap_or(usize::MAX);
        let Some(record) = records.get(at) else { return false };
        record.store(IS_WRITTEN | u64::from(stream) << SEQUENCE_BITS | sequence, Ordering::SeqCst);
        true
    }

    /// The refused publications after the first `known` ones: stream and number.
    pub fn refused_after(&self, known: usize) -> impl Iterator<Item = (u32, u64)> {
        let records = self.refusals.items().iter().skip(1 + known).map(|record| record.load(Ordering::SeqCst));
        records.take_while(|record| record & IS_WRITTEN != 0).map(|record| {
            let packed = record & !IS_WRITTEN;
            ((packed >> SEQUENCE_BITS) as u32, packed & ((1 << SEQUENCE_BITS) - 1))
        })
    }

    fn counter(&self, stream: u32) -> &AtomicU64 {
        self.sent.items().get(stream as usize).expect("streams are numbered below the length of the file")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_refusals_are_shared() {
        let ours = Streams::create(3).unwrap();
        let theirs = Streams::open(&ours.files()).unwrap();
        assert_eq!((theirs.count_sent(2), theirs.count_sent(2), theirs.count_sent(0)), (0, 1, 0));
        assert_eq!((ours.sent(0), ours.sent(1), ours.sent(2)), (1, 0, 2));
        assert!(theirs.refuse(2, 1) && theirs.refuse(0, (1 << SEQUENCE_BITS) - 1));
        assert_eq!(ours.refused_after(0).collect::<Vec<_>>(), [(2, 1), (0, (1 << SEQUENCE_BITS) - 1)]);
        assert_eq!(ours.refused_after(1).count(), 1);
        assert_eq!(ours.refused_after(2).count(), 0);
    }

    #[test]
    fn refusals_beyond_the_space_are_not_recorded() {
        let streams = Streams::create(1).unwrap();
        streams.refusals.items()[0].store(REFUSALS_MAX as u64 - 1, Ordering::SeqCst);
        assert!(streams.refuse(0, 7), "the last space");
        assert!(!streams.refuse(0, 8));
        assert_eq!(streams.refused_after(REFUSALS_MAX - 1).collect::<Vec<_>>(), [(0, 7)]);
    }
}
