//! One unfiltered read for many recoveries, or missing parts of the chain, of a partition.
//!
//! A filtered read costs NATS 0.1 µs per message of the stream between the first and the last one returned, plus the
//! cost of a request; an unfiltered one 2.5 µs per message. So from some number of recoveries on, one read of
//! everything after the lowest position is cheaper, and it blocks writes to the stream only once.
//!
//! Whether a channel lacks a message is decided by counting, so all its messages must be counted in one state of one
//! replica: the answer must be one part and include the end of the stream. Otherwise each recovery is read alone.

use std::collections::BTreeMap;

use dunlin_engine::log::LogError;

use crate::{
    link::{LinkEffect, LinkName, ReadAnswer, ReadFault, StoredMessage},
    names::PartitionId,
    planted::CoreBug,
};

use super::{
    Core, Requester,
    read::{Purpose, Read, ReadStage, proven_floor},
};

/// Maximum number of messages per read, which blocks writes to the stream for 12 ms.
const SHARED_MESSAGES_MAX: usize = 5_000;

impl Core {
    /// Starts a read for all waiting reads of a partition, if they are many and not far behind.
    pub(super) fn begin_shared_read(&mut self, id: PartitionId) -> bool {
        let shared_reads_min = self.context.options.limits.shared_reads_min;
        let partition = &mut self.partitions[id];
        let highest = partition.stream.marks.highest();
        let mut positions: Vec<u64> = partition.reads.queue.iter().filter_map(Read::position_to_share).collect();
        // Reads that are too far behind are made alone.
        positions.retain(|after| after + SHARED_MESSAGES_MAX as u64 > highest);
        let Some(after) = positions.iter().min().copied().filter(|_| positions.len() >= shared_reads_min) else {
            return false;
        };
        for read in &mut partition.reads.queue {
            if read.position_to_share().is_some_and(|position| position >= after) {
                read.stage = ReadStage::Shared;
            }
        }
        partition.reads.is_sharing = true;
        self.context.counters.shared_reads += 1;
        let stream = partition.stream.names.stream.clone();
        let request = self.context.request(Requester::SharedRead(id));
        let (subject, from, messages_max) = (None, after + 1, SHARED_MESSAGES_MAX);
        self.context.link(LinkEffect::Range { request, stream, subject, from, messages_max });
        true
    }

    /// The messages of all channels after the lowest position have arrived.
    pub(super) fn shared_read(&mut self, id: PartitionId, outcome: Result<ReadAnswer, ReadFault>) {
        let partition = &mut self.partitions[id];
        partition.reads.is_sharing = false;
        let (shared, others) =
            std::mem::take(&mut partition.reads.queue).into_iter().partition(|read| read.stage == ReadStage::Shared);
        partition.reads.queue = others;
        let is_usable = partition.stream.usable_age_floor(self.context.now.mono_us, 0).is_some();
        let answer = outcome.ok().filter(|answer| is_usable && !answer.is_in_parts && answer.pending == 0);
        if answer.is_some() {
            self.context.silence.end(LinkName::Read);
        }
        let mut by_subject: BTreeMap<Box<str>, Vec<StoredMessage>> = BTreeMap::new();
        for message in answer.iter().flat_map(|answer| &answer.messages) {
            by_subject.entry(message.subject.clone()).or_default().push(message.clone());
        }
        for read in Vec::from(shared) {
            self.serve_shared(id, read, answer.as_ref().map(|_| &by_subject));
        }
        self.resume_reads(id);
    }

    /// Answers one recovery, or queues its own read.
    fn serve_shared(
        &mut self,
        id: PartitionId,
        mut read: Read,
        by_subject: Option<&BTreeMap<Box<str>, Vec<StoredMessage>>>,
    ) {
        let partition = &mut self.partitions[id];
        (read.stage, read.is_alone) = (ReadStage::Waiting, true);
        let Some(channel) = self.channels.get(&read.channel) else {
            // A gap that could not be filled has detached the channel.
            if let Purpose::Load(waiting) = read.purpose {
                self.context.effects.push(waiting.refused(&read.channel, LogError::Unavailable));
            }
            return;
        };
        if let (Purpose::Fill, Some(gap)) = (read.purpose, channel.gap()) {
            read.through = gap.through;
        }
        let found = by_subject.map(|by_subject| {
            by_subject.get(&partition.stream.names.publish_subject(&read.channel)).map_or(&[][..], Vec::as_slice)
        });
        let is_complete =
            |found: &&[StoredMessage]| found.last().map_or(read.after, |last| last.sequence) >= read.through;
        let age_floor = partition.stream.usable_age_floor(self.context.now.mono_us, read.floor.since_us);
        let Some((found, age_floor)) = found.filter(is_complete).zip(age_floor) else {
            // The replica lags, or the channel was attached after the age floor was read.
            partition.reads.queue.push_back(read);
            return;
        };
        let history_max = partition.stream.facts.as_ref().map_or(0, |facts| facts.history_max);
        let after = read.after;
        read.add(found.iter().filter(|message| message.sequence > after).cloned().collect());
        let stored = read.messages.list.len() as u64;
        read.floor.may_be_trimmed = stored > history_max && !self.context.planted.is(CoreBug::SharedReadNotCounted);
        let floor = proven_floor(read.after, read.messages.list.first(), !read.floor.may_be_trimmed, age_floor);
        read.floor.sequence = read.floor.sequence.max(floor);
        self.finish_read(id, &read);
    }
}

#[cfg(test)]
mod tests;
