//! Attach and audit: the newest message of each channel, read from a replica that has this node's fence.
//!
//! A fence is a message of this node's own in the stream. It is published on the connection that has the subscriptions,
//! after them. When it comes back, the servers know the subscriptions, and everything stored later is delivered live.
//! Everything stored earlier is in the answer of any replica that has the fence. So nothing between the two is lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;

use crate::{
    link::{LinkEffect, LinkName, MessageHeaders, ReadAnswer, ReadFault, StoredMessage},
    names::{PartitionId, decode_token},
    planted::CoreBug,
    record::FENCE,
};

use super::{Core, Requester, Timer, channel::FollowedChannel, known_stream::EpochReview, partition::Partition};

/// Maximum number of channels whose newest messages are read with one request. NATS allows 1,024 subjects.
const CHUNK_CHANNELS: usize = 500;
/// Minimum time between the starts of two audits, for audits that a refused publication requests.
const AUDIT_PAUSE_US: u64 = 250_000;
/// Time after which a fence that has not come back is published again.
const FENCE_TIMEOUT_US: u64 = 2_000_000;
/// The first pause after an answer without the fence; it doubles up to the maximum.
const STALE_PAUSE_MIN_US: u64 = 2_000;
const STALE_PAUSE_MAX_US: u64 = 256_000;
/// Number of answers without the fence after which another fence is published, because the stream may have lost the
/// first.
const STALE_ANSWERS_MAX: usize = 20;

/// Channels whose newest messages are being read.
#[derive(Debug)]
struct Chunk {
    channels: Vec<Arc<str>>,
    is_read: bool,
    is_reading: bool,
}

/// An attach or an audit in flight.
#[derive(Debug)]
pub(super) struct HeadSync {
    /// Marks the channels that it attaches.
    attach: u64,
    /// Changes with each fence.
    number: u64,
    /// The number of the expected fence.
    fence: u64,
    fenced_us: u64,
    /// The sequence of the fence, once it has come back.
    fence_sequence: Option<u64>,
    /// The highest sequence seen when the fence was published.
    after: u64,
    /// Whether it includes all channels that were attached when it began.
    is_audit: bool,
    chunks: Vec<Chunk>,
    /// The number of consecutive answers without the fence.
    stale_answers: usize,
    pause_us: u64,
}

impl Core {
    /// Queues a channel for an attach.
    pub(super) fn attach(&mut self, name: &Arc<str>, id: PartitionId) {
        let partition = &mut self.partitions[id];
        partition.channels.attaching.push(Arc::clone(name));
        self.start_sync(id);
    }

    /// Records that messages of the partition may have been missed.
    pub(super) fn needs_audit(&mut self, id: PartitionId) {
        self.partitions[id].audit.is_needed = true;
    }

    /// Audits all partitions: the connection was interrupted, and a fence may have been lost as well.
    pub(super) fn audit_all(&mut self) {
        let ids: Vec<PartitionId> = self.partitions.ids().collect();
        for id in ids {
            self.needs_audit(id);
            // The connection renews its subscriptions. Whether a subscription was active at the old fence is unknown.
            self.restart_sync(id);
            self.start_sync(id);
        }
    }

    /// Restarts the attach or audit in flight with a new fence.
    pub(super) fn restart_sync(&mut self, id: PartitionId) {
        let Some(sync) = &mut self.partitions[id].sync else { return };
        sync.fence_sequence = None;
        sync.stale_answers = 0;
        sync.chunks.iter_mut().for_each(|chunk| (chunk.is_read, chunk.is_reading) = (false, false));
        self.restart_fence(id);
    }

    /// Messages were dropped on the connection. Unlike after a reconnect, the subscriptions are active, and a lost
    /// fence is sent again when it is overdue.
    pub(super) fn audit_after_overflow(&mut self) {
        self.context.counters.overflows += 1;
        let ids: Vec<PartitionId> = self.partitions.ids().collect();
        for id in ids {
            self.needs_audit(id);
            self.start_sync(id);
        }
    }

    /// Audits a partition now, or some time after the last audit began.
    pub(super) fn audit_soon(&mut self, id: PartitionId) {
        let now_us = self.context.now.mono_us;
        let partition = &mut self.partitions[id];
        let due_us = (partition.audit.begun_us + AUDIT_PAUSE_US).max(now_us);
        if due_us < partition.audit.due_us || partition.audit.due_us <= now_us {
            partition.audit.due_us = due_us;
            self.context.set_timer(due_us, Timer::Audit(id));
        }
    }

    pub(super) fn audit(&mut self, id: PartitionId) {
        let is_due = |partition: &Partition| partition.audit.due_us <= self.context.now.mono_us;
        if is_due(&self.partitions[id]) {
            self.needs_audit(id);
            self.start_sync(id);
        }
    }

    /// Starts an attach of the waiting channels, and an audit if one is needed, unless one is in flight.
    pub(super) fn start_sync(&mut self, id: PartitionId) {
        if !self.context.links.live {
            return;
        }
        let attach = self.context.next_number();
        let partition = &mut self.partitions[id];
        let has_work = !partition.channels.attaching.is_empty()
            || !partition.channels.comparing.is_empty()
            || partition.audit.is_needed;
        if partition.sync.is_some() || partition.stream.facts.is_none() || !has_work {
            return;
        }
        let comparing = self.take_comparing(id, attach);
        let partition = &mut self.partitions[id];
        let attaching = std::mem::take(&mut partition.channels.attaching);
        let mut channels = attaching.clone();
        channels.extend(comparing);
        partition.subscribe_to(&mut self.context, &attaching);
        let is_audit = std::mem::take(&mut partition.audit.is_needed);
        if is_audit {
            partition.audit.begun_us = self.context.now.mono_us;
            channels.extend(partition.channels.attached.iter().cloned());
        }
        let in_chunks = channels.chunks(CHUNK_CHANNELS);
        let chunk_of = |channels: &[Arc<str>]| Chunk { channels: channels.to_vec(), is_read: false, is_reading: false };
        let mut chunks: Vec<Chunk> = in_chunks.map(chunk_of).collect();
        if chunks.is_empty() {
            // The epoch is always read.
            chunks.push(chunk_of(&[]));
        }
        let sync = HeadSync {
            attach,
            number: 0,
            fence: 0,
            fenced_us: 0,
            fence_sequence: None,
            after: 0,
            is_audit,
            chunks,
            stale_answers: 0,
            pause_us: STALE_PAUSE_MIN_US,
        };
        partition.sync = Some(sync);
        for name in &attaching {
            self.sync_began(name, attach);
        }
        self.restart_fence(id);
        if is_audit {
            self.partitions[id].stream.watch.describe(&mut self.context);
        }
    }

    /// Takes the channels that the sync compares although they are attached.
    fn take_comparing(&mut self, id: PartitionId, sync: u64) -> BTreeSet<Arc<str>> {
        let names = std::mem::take(&mut self.partitions[id].channels.comparing);
        for name in &names {
            if let Some(channel) = self.channels.get_mut(name) {
                channel.ahead.comparison_began(sync);
            }
        }
        names
    }

    /// Publishes a new fence for the attach or audit in flight.
    fn restart_fence(&mut self, id: PartitionId) {
        let number = self.context.next_number();
        if self.partitions[id].sync.is_none() {
            return;
        }
        // The answer shows at once that the stream is gone or stores nothing.
        let request = Some(self.context.request(Requester::Fence(id)));
        let node = &self.context.options.node;
        let partition = &mut self.partitions[id];
        let sync = self.context.strays.expected(partition.sync.as_mut(), "only a sync that is in flight is restarted");
        let Some(sync) = sync else { return };
        (sync.number, sync.fence, sync.fenced_us) = (number, number, self.context.now.mono_us);
        sync.after = partition.stream.marks.highest();
        partition.stream.marks.mark_newest(self.context.now.mono_us);
        let subject = partition.stream.names.fence_subject(node);
        let headers = MessageHeaders::new().with(FENCE, number.to_string());
        self.context.link(LinkEffect::Publish {
            link: LinkName::Live,
            request,
            subject,
            headers,
            payload: Bytes::new(),
        });
        if self.context.planted.is(CoreBug::AttachWithoutFence) {
            sync.fence_sequence = Some(0);
            self.read_missing_heads(id);
        }
        self.context.set_timer(self.context.now.mono_us + FENCE_TIMEOUT_US, Timer::Fence(id));
    }

    pub(super) fn fence_overdue(&mut self, id: PartitionId) {
        let now_us = self.context.now.mono_us;
        let sync = self.partitions[id].sync.as_ref();
        let is_overdue =
            sync.is_some_and(|sync| sync.fence_sequence.is_none() && sync.fenced_us + FENCE_TIMEOUT_US <= now_us);
        if is_overdue {
            self.context.on_silence(LinkName::Live);
            self.partitions[id].stream.watch.describe(&mut self.context);
            self.restart_fence(id);
        }
    }

    /// A fence of this node has come back.
    pub(super) fn fence_returned(&mut self, id: PartitionId, message: &StoredMessage) {
        let partition = &mut self.partitions[id];
        let age_max_ms = partition.stream.age_max_ms();
        let is_awaited =
            |sync: &&mut HeadSync| sync.fence_sequence.is_none() && message.headers.number(FENCE) == Some(sync.fence);
        // It may be one of an earlier sync, or of one that was restarted.
        let sync = partition.sync.as_mut().filter(is_awaited);
        let Some(sync) = self.context.strays.found_or_late(sync) else { return };
        self.context.silence.end(LinkName::Live);
        let is_previous_lost = partition.stream.marks.push_fence(message, age_max_ms, self.context.now.unix_ms);
        if message.sequence <= sync.after || is_previous_lost {
            self.on_truncation(id);
            return;
        }
        sync.fence_sequence = Some(message.sequence);
        if sync.is_audit {
            partition.stream.read_marks(&mut self.context);
        }
        self.read_missing_heads(id);
    }

    /// Reads the newest messages of the chunks that have not been read.
    pub(super) fn read_missing_heads(&mut self, id: PartitionId) {
        let partition = &mut self.partitions[id];
        let Some(sync) = partition.sync.as_mut().filter(|sync| sync.fence_sequence.is_some()) else { return };
        let number = sync.number;
        let missing: Vec<usize> = (0..sync.chunks.len())
            .filter(|chunk| !sync.chunks[*chunk].is_read && !sync.chunks[*chunk].is_reading)
            .collect();
        for chunk in missing {
            let requester = Requester::Heads { partition: id, chunk, sync: number };
            let request = self.context.request(requester);
            sync.chunks[chunk].is_reading = true;
            let names = &partition.stream.names;
            let mut subjects: Vec<Box<str>> =
                sync.chunks[chunk].channels.iter().map(|name| names.publish_subject(name)).collect();
            subjects.extend([names.fence_subject(&self.context.options.node), names.epoch_subject()]);
            let stream = names.stream.clone();
            self.context.link(LinkEffect::LastOf { request, stream, subjects, floor: None });
        }
        self.end_sync_if_complete(id);
    }

    pub(super) fn heads_read(
        &mut self,
        id: PartitionId,
        chunk: usize,
        sync_number: u64,
        outcome: Result<ReadAnswer, ReadFault>,
    ) {
        let node = self.context.options.node.clone();
        let partition = &mut self.partitions[id];
        let sync = partition.sync.as_mut().filter(|sync| sync.number == sync_number);
        let Some(sync) = self.context.strays.found_or_late(sync) else { return };
        let fence_sequence = self.context.strays.expected(sync.fence_sequence, "heads are read behind the fence");
        let Some(fence_sequence) = fence_sequence else { return };
        let read = &mut sync.chunks[chunk];
        read.is_reading = false;
        let fence_subject = partition.stream.names.fence_subject(&node);
        let is_believed = self.context.planted.is(CoreBug::StaleReplicaBelieved)
            || self.context.planted.is(CoreBug::AttachWithoutFence);
        let has_fence = |answer: &ReadAnswer| {
            answer.messages.iter().any(|one| one.subject == fence_subject && one.sequence >= fence_sequence)
                || is_believed
        };
        let Some(answer) = outcome.ok().filter(has_fence) else {
            // A replica without the fence, or a server that is gone.
            self.context.counters.stale_answers += 1;
            sync.stale_answers += 1;
            let (stale_answers, chunks) = (sync.stale_answers, sync.chunks.len());
            let due_us = self.context.now.mono_us + sync.pause_us;
            sync.pause_us = (sync.pause_us * 2).min(STALE_PAUSE_MAX_US);
            self.context.on_silence(LinkName::Read);
            if stale_answers >= STALE_ANSWERS_MAX * chunks {
                self.restart_sync(id);
            } else {
                self.context.set_timer(due_us, Timer::Heads(id));
            }
            return;
        };
        self.context.silence.end(LinkName::Read);
        read.is_read = true;
        let channels = read.channels.clone();
        let attach = sync.attach;
        match partition.stream.review_epoch(&mut self.context, &answer.messages, fence_sequence) {
            EpochReview::Settled => {}
            EpochReview::Began => return self.begin_epoch(id),
            EpochReview::Truncated => return self.on_truncation(id),
            EpochReview::Renewed => return self.restart_sync(id),
            EpochReview::Paused => return self.read_heads_again(id, chunk),
        }
        let partition = &self.partitions[id];
        let mut heads: BTreeMap<String, &StoredMessage> = BTreeMap::new();
        for message in &answer.messages {
            let name = partition.stream.names.stored_token(&message.subject).and_then(decode_token);
            if let Some(name) = name {
                heads.insert(name.into_owned(), message);
            }
        }
        let attached = || {
            let of_name = |name: &Arc<str>| Some((self.channels.get(name)?, heads.get(&**name).copied()));
            channels.iter().filter_map(of_name).filter(|(channel, _)| channel.is_attached())
        };
        let (unix_ms, age_max_ms) = (self.context.now.unix_ms, partition.stream.age_max_ms());
        if attached().any(|(channel, head)| channel.is_truncated_before(head, fence_sequence, unix_ms, age_max_ms)) {
            return self.on_truncation(id);
        }
        let overlooks = |(channel, head): (&FollowedChannel, Option<&StoredMessage>)| {
            head.is_some_and(|head| channel.has_overlooked(head, unix_ms, age_max_ms))
        };
        if attached().any(overlooks) {
            return self.on_hole(id);
        }
        for name in channels {
            // A message that has waited for its channel may have shown a truncation. The heads are of before it.
            if !self.is_syncing(id, sync_number) {
                return;
            }
            self.head_known(&name, attach, heads.get(&*name).copied(), fence_sequence);
        }
        self.end_sync_if_complete(id);
    }

    fn is_syncing(&self, id: PartitionId, number: u64) -> bool {
        self.partitions[id].sync.as_ref().is_some_and(|sync| sync.number == number)
    }

    /// The answer could not be used yet.
    fn read_heads_again(&mut self, id: PartitionId, chunk: usize) {
        let sync = self.partitions[id].sync.as_mut();
        if let Some(read) = sync.and_then(|sync| sync.chunks.get_mut(chunk)) {
            read.is_read = false;
            self.context.set_timer(self.context.now.mono_us + STALE_PAUSE_MIN_US, Timer::Heads(id));
        }
    }

    /// The newest message of a channel is known: everything that the stream had when it stored the fence is at or below
    /// it.
    fn head_known(&mut self, name: &Arc<str>, attach: u64, head: Option<&StoredMessage>, fence: u64) {
        // It may have been detached in the meantime.
        let Some(channel) = self.context.strays.found_or_late(self.channels.get_mut(name)) else { return };
        if !channel.is_attached() {
            if channel.is_attached_by(attach) {
                self.attached(name, head, fence);
            }
            return;
        }
        let has_none = head.is_none();
        let ignores_tails = self.context.planted.is(CoreBug::TailNotAudited);
        // A head after the fence may still be in flight, and it hides whether a message at or below the fence was lost.
        // That must be known before a client that is ahead can be answered.
        let is_hidden = channel.position < fence && head.is_some_and(|head| head.sequence > fence);
        let limit = if is_hidden && !channel.ahead.is_empty() { u64::MAX } else { fence };
        let is_missing = |head: &&StoredMessage| head.sequence > channel.position && head.sequence <= limit;
        let Some(head) = head.filter(is_missing).filter(|_| !ignores_tails) else {
            if channel.gap().is_none() && !is_hidden {
                channel.newest.confirmed_us = self.context.now.mono_us;
                // The message has expired by age.
                if has_none && channel.newest.sequence < fence {
                    channel.newest.sequence = 0;
                }
            }
            channel.ahead.compared(attach, fence);
            self.serve_ahead(name);
            return;
        };
        if channel.gap().is_none() && !is_hidden {
            self.context.counters.lost_tails += 1;
        }
        self.found_missing(name, head.sequence);
        if let Some(channel) = self.channels.get_mut(name) {
            channel.ahead.compared(attach, fence);
            self.serve_ahead(name);
        }
    }

    fn end_sync_if_complete(&mut self, id: PartitionId) {
        let interval_us = self.context.options.limits.audit_interval_ms * 1_000;
        let partition = &mut self.partitions[id];
        let is_complete = |sync: &mut HeadSync| sync.chunks.iter().all(|chunk| chunk.is_read);
        let Some(sync) = partition.sync.take_if(is_complete) else { return };
        if sync.is_audit {
            self.context.counters.audits += 1;
            // Jitter, so that nodes that were started together do not audit together.
            let jitter_us = self.context.newest_number().wrapping_mul(0x9e37_79b9_7f4a_7c15) % (interval_us / 4).max(1);
            partition.audit.due_us = self.context.now.mono_us + interval_us - jitter_us;
            let due_us = partition.audit.due_us;
            self.context.set_timer(due_us, Timer::Audit(id));
        }
        self.start_sync(id);
    }
}

#[cfg(test)]
mod tests;
