//! Checkpoints that are written in parts. One commit with a large checkpoint would delay the publications of all
//! shards. So each part is queued when the previous one is written, and publications can be written between two parts.
//! The first part is written last: a checkpoint without it is incomplete and ignored, and the previous checkpoint
//! remains until then.

use std::{collections::VecDeque, sync::Arc};

use dunlin_storage::{EntryBatch, RoomCheckpoint, Storage};

use super::{CHECKPOINT, LOG, LOG_PART_BYTES, RoomEntries, lock, not_queued};

/// Further kinds of a room's entries; `survival.rs` defines the others.
const FIRST_PART: u8 = 3;
const OTHER_PARTS: u8 = 4;

/// Size of a part. A smaller checkpoint is written in one piece.
pub(in crate::rooms) const PART_BYTES: usize = 256 << 10;

/// Maximum number of parts besides the first one. Large checkpoints have larger parts.
const OTHER_PARTS_MAX: usize = 1 << PART_BITS;
const PART_BITS: u32 = 8;

/// How a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rooms) enum CheckpointPieces {
    /// In one commit, so that all later writes in the queue follow the whole checkpoint.
    One,
    /// As [`Self::One`], before all records of the room: those that are stored are of other rules, and are deleted.
    WithoutLog,
    /// In parts, if it is large.
    Parts,
}

/// A checkpoint whose parts are being written.
#[derive(Debug)]
struct PartedCheckpoint {
    tick_count: u64,
    size_bytes: u64,
    first: Vec<u8>,
    others: VecDeque<Vec<u8>>,
    others_written: u64,
}

/// A room's checkpoint that is being written in parts, and the newest one that waits for it.
#[derive(Debug, Default)]
pub(super) struct PartedWrites {
    is_writing: bool,
    next: Option<PartedCheckpoint>,
}

impl PartedCheckpoint {
    fn new(tick_count: u64, mut bytes: Vec<u8>) -> Self {
        let size_bytes = bytes.len() as u64;
        let part_bytes = PART_BYTES.max(bytes.len().div_ceil(OTHER_PARTS_MAX));
        let others = bytes.split_off(part_bytes.min(bytes.len()));
        let others = others.chunks(part_bytes).map(<[u8]>::to_vec).collect();
        Self { tick_count, size_bytes, first: bytes, others, others_written: 0 }
    }

    /// The batch with the next part, and whether it is the last part.
    fn next_batch(&mut self, channel: &str) -> (EntryBatch, bool) {
        let mut batch = EntryBatch::new(false);
        if let Some(part) = self.others.pop_front() {
            let number = self.tick_count << PART_BITS | self.others_written;
            self.others_written += 1;
            batch.put_checkpoint(channel, OTHER_PARTS, number, part);
            return (batch, false);
        }
        replace_older(&mut batch, channel, self.tick_count);
        batch.put_checkpoint(channel, FIRST_PART, self.tick_count, std::mem::take(&mut self.first));
        (batch, true)
    }
}

/// Deletes the checkpoints before a tick, and the log up to it.
pub(super) fn replace_older(batch: &mut EntryBatch, channel: &str, tick_count: u64) {
    batch.delete_checkpoints(channel, CHECKPOINT, tick_count);
    batch.delete_checkpoints(channel, FIRST_PART, tick_count);
    batch.delete_checkpoints(channel, OTHER_PARTS, tick_count << PART_BITS);
    batch.delete_checkpoints(channel, LOG, tick_count.saturating_add(1));
}

impl RoomEntries {
    /// Queues the write of a checkpoint in parts. If another checkpoint is being written, this one waits for it.
    pub(super) fn write_parted(self: &Arc<Self>, tick_count: u64, bytes: Vec<u8>) {
        let parted = PartedCheckpoint::new(tick_count, bytes);
        let mut parting = lock(&self.parting);
        if !std::mem::replace(&mut parting.is_writing, true) {
            drop(parting);
            return self.write_part(parted);
        }
        let replaced = parting.next.replace(parted);
        drop(parting);
        if replaced.is_some() {
            self.checkpoint_failed("the disk is slow: the next one is due, and the one before it is not written");
        }
    }

    fn write_part(self: &Arc<Self>, mut parted: PartedCheckpoint) {
        let (batch, is_last) = parted.next_batch(&self.channel);
        let entries = Arc::clone(self);
        let queued = self.write(batch, move |outcome| match outcome {
            Ok(()) if is_last => {
                entries.checkpoint_written(parted.size_bytes);
                entries.write_next();
            }
            Ok(()) => entries.write_part(parted),
            Err(detail) => {
                entries.checkpoint_failed(&detail);
                entries.write_next();
            }
        });
        if let Err(error) = queued {
            self.checkpoint_failed(not_queued(error));
            self.write_next();
        }
    }

    fn write_next(self: &Arc<Self>) {
        let mut parting = lock(&self.parting);
        let next = parting.next.take();
        parting.is_writing = next.is_some();
        drop(parting);
        if let Some(next) = next {
            self.write_part(next);
        }
    }

    /// The newest complete checkpoint.
    pub(super) fn read_newest(&self, storage: &Storage) -> Result<Option<RoomCheckpoint>, String> {
        let newest = |kind| storage.newest_checkpoint(&self.channel, kind, u64::MAX).map_err(|error| error.to_string());
        let (whole, first) = (newest(CHECKPOINT)?, newest(FIRST_PART)?);
        let is_whole = |first: &RoomCheckpoint| whole.as_ref().is_some_and(|whole| whole.tick >= first.tick);
        let Some(RoomCheckpoint { tick, bytes }) = first.filter(|first| !is_whole(first)) else { return Ok(whole) };
        let (mut bytes, mut from) = (bytes.into_vec(), tick << PART_BITS);
        let last = from | (OTHER_PARTS_MAX as u64 - 1);
        while from <= last {
            // A part is at most as large as the first one.
            let bytes_max = LOG_PART_BYTES.max(bytes.len());
            let parts = storage.checkpoints(&self.channel, OTHER_PARTS, from..=last, bytes_max);
            let parts = parts.map_err(|error| error.to_string())?;
            let Some(newest) = parts.last() else { break };
            from = newest.tick + 1;
            for part in parts {
                bytes.extend_from_slice(&part.bytes);
            }
        }
        Ok(Some(RoomCheckpoint { tick, bytes: bytes.into() }))
    }
}
