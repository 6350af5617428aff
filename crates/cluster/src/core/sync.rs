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
    record::FENCE,
};

use super::{
    Context, Requester, Timer,
    channel::{ChannelAction, ChannelEvent, FollowedChannel},
    channels::Channels,
    known_stream::{EpochReview, KnownStream},
};

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
/// Number of answers of a sync with a damaged message after which the next one is taken without it: then no replica may have it.
const DAMAGED_ANSWERS_MAX: usize = 4;

/// Channels whose newest messages are being read.
#[derive(Debug)]
struct Chunk {
    channels: Vec<Arc<str>>,
    stage: ChunkStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkStage {
    Unread,
    /// The request for them is in flight.
    Reading,
    Read,
}

/// An attach or an audit in flight.
#[derive(Debug)]
struct HeadSync {
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
    /// The number of answers with a damaged message.
    damaged_answers: usize,
    pause_us: u64,
}

/// The followed channels of a partition. One that is in none of the lists is being attached by the sync in flight.
#[derive(Debug, Default)]
struct PartitionChannels {
    /// Channels to be attached.
    attaching: Vec<Arc<str>>,
    /// Attached channels to be compared.
    comparing: BTreeSet<Arc<str>>,
    /// Attached channels.
    attached: BTreeSet<Arc<str>>,
    /// Whether one wildcard subscription receives the messages of all channels.
    is_wide: bool,
}

/// When the partition is audited.
#[derive(Debug, Default)]
struct AuditSchedule {
    /// The next sync includes an audit.
    is_needed: bool,
    /// When the next audit is due; timers for other times are obsolete.
    due_us: u64,
    /// When the last audit began.
    begun_us: u64,
}

/// The answer to the request for the newest messages of a chunk.
#[derive(Debug)]
pub(super) struct HeadsAnswer {
    pub(super) chunk: usize,
    /// The number of the fence behind which they were requested.
    pub(super) sync: u64,
    /// Whether a message was left out because the replica has damaged it.
    pub(super) is_damaged: bool,
    pub(super) outcome: Result<ReadAnswer, ReadFault>,
}

/// What the newest messages of channels show.
#[derive(Debug)]
pub(super) enum HeadsRead {
    Nothing,
    /// Another node has begun an epoch.
    EpochBegan,
    /// The stream was truncated.
    Truncated,
    /// It has a message that this node took for absent.
    Hole,
    Heads(Heads),
}

/// The newest message of each of some channels, from a replica that has the fence.
#[derive(Debug)]
pub(super) struct Heads {
    /// The number of the fence. Another one in flight makes them invalid.
    pub(super) sync: u64,
    /// Marks the channels that the sync attaches.
    pub(super) attach: u64,
    /// The sequence of the fence.
    pub(super) fence: u64,
    pub(super) channels: Vec<Arc<str>>,
    by_channel: BTreeMap<String, StoredMessage>,
}

impl Heads {
    pub(super) fn of(&self, channel: &str) -> Option<&StoredMessage> {
        self.by_channel.get(channel)
    }

    /// Whether they show a loss in a channel that was attached before.
    fn review(&self, channels: &Channels, unix_ms: u64, age_max_ms: Option<u64>) -> HeadsReview {
        let attached = || {
            let of_name = |name: &Arc<str>| Some((channels.get(name)?, self.of(name)));
            self.channels.iter().filter_map(of_name).filter(|(channel, _)| channel.is_attached())
        };
        if attached().any(|(channel, head)| channel.is_truncated_before(head, self.fence, unix_ms, age_max_ms)) {
            return HeadsReview::Truncated;
        }
        let overlooks = |(channel, head): (&FollowedChannel, Option<&StoredMessage>)| {
            head.is_some_and(|head| channel.has_overlooked(head, unix_ms, age_max_ms))
        };
        if attached().any(overlooks) { HeadsReview::Hole } else { HeadsReview::Sound }
    }
}

#[derive(Clone, Copy, Debug)]
enum HeadsReview {
    Sound,
    Truncated,
    Hole,
}

impl HeadSync {
    fn new(attach: u64, channels: &[Arc<str>], is_audit: bool) -> Self {
        let chunk_of = |channels: &[Arc<str>]| Chunk { channels: channels.to_vec(), stage: ChunkStage::Unread };
        let mut chunks: Vec<Chunk> = channels.chunks(CHUNK_CHANNELS).map(chunk_of).collect();
        if chunks.is_empty() {
            // The epoch is always read.
            chunks.push(chunk_of(&[]));
        }
        Self {
            attach,
            number: 0,
            fence: 0,
            fenced_us: 0,
            fence_sequence: None,
            after: 0,
            is_audit,
            chunks,
            stale_answers: 0,
            damaged_answers: 0,
            pause_us: STALE_PAUSE_MIN_US,
        }
    }

    /// The pause before chunks are requested again.
    fn next_pause_us(&mut self) -> u64 {
        let pause_us = self.pause_us;
        self.pause_us = (pause_us * 2).min(STALE_PAUSE_MAX_US);
        pause_us
    }

    /// The chunks that must be requested.
    fn missing_chunks(&self) -> Vec<usize> {
        let is_missing = |chunk: &usize| self.chunks[*chunk].stage == ChunkStage::Unread;
        (0..self.chunks.len()).filter(is_missing).collect()
    }
}

/// The attaches and audits of a partition: one is in flight at a time.
#[derive(Debug, Default)]
pub(super) struct HeadSyncs {
    channels: PartitionChannels,
    in_flight: Option<HeadSync>,
    audit: AuditSchedule,
}

impl HeadSyncs {
    /// Queues a channel for an attach.
    pub(super) fn attach(&mut self, name: &Arc<str>) {
        self.channels.attaching.push(Arc::clone(name));
    }

    /// A channel is attached.
    pub(super) fn attached(&mut self, name: &Arc<str>) {
        self.channels.attached.insert(Arc::clone(name));
    }

    /// The next sync compares an attached channel.
    pub(super) fn compare(&mut self, name: &Arc<str>) {
        self.channels.comparing.insert(Arc::clone(name));
    }

    /// Records that messages of the partition may have been missed.
    pub(super) const fn need_audit(&mut self) {
        self.audit.is_needed = true;
    }

    /// Audits the partition now, or some time after the last audit began.
    pub(super) fn audit_soon(&mut self, context: &mut Context, id: PartitionId) {
        let now_us = context.now.mono_us;
        let due_us = (self.audit.begun_us + AUDIT_PAUSE_US).max(now_us);
        if due_us < self.audit.due_us || self.audit.due_us <= now_us {
            self.audit.due_us = due_us;
            context.set_timer(due_us, Timer::Audit(id));
        }
    }

    pub(super) fn audit_if_due(&mut self, context: &mut Context, stream: &mut KnownStream, channels: &mut Channels) {
        if self.audit.due_us <= context.now.mono_us {
            self.need_audit();
            self.start(context, stream, channels);
        }
    }

    /// Audits the partition.
    pub(super) fn audit(&mut self, context: &mut Context, stream: &mut KnownStream, channels: &mut Channels) {
        self.need_audit();
        self.start(context, stream, channels);
    }

    /// Audits the partition behind a new fence, because the one in flight may be lost. Whether the subscriptions were
    /// active at it is unknown as well.
    pub(super) fn audit_anew(&mut self, context: &mut Context, stream: &mut KnownStream, channels: &mut Channels) {
        self.need_audit();
        self.restart(context, stream);
        self.start(context, stream, channels);
    }

    /// Starts an attach of the waiting channels, and an audit if one is needed, unless one is in flight.
    pub(super) fn start(&mut self, context: &mut Context, stream: &mut KnownStream, channels: &mut Channels) {
        if !context.links.live {
            return;
        }
        let attach = context.next_number();
        let has_work =
            !self.channels.attaching.is_empty() || !self.channels.comparing.is_empty() || self.audit.is_needed;
        if self.in_flight.is_some() || stream.facts.is_none() || !has_work {
            return;
        }
        let comparing = std::mem::take(&mut self.channels.comparing);
        for name in &comparing {
            if let Some(channel) = channels.get_mut(name) {
                channel.ahead.comparison_began(attach);
            }
        }
        let attaching = std::mem::take(&mut self.channels.attaching);
        let mut names = attaching.clone();
        names.extend(comparing);
        self.subscribe_to(context, stream, &attaching);
        let is_audit = std::mem::take(&mut self.audit.is_needed);
        if is_audit {
            self.audit.begun_us = context.now.mono_us;
            names.extend(self.channels.attached.iter().cloned());
        }
        self.in_flight = Some(HeadSync::new(attach, &names, is_audit));
        for name in &attaching {
            let action = channels.on(context, stream, name, ChannelEvent::SyncBegan { sync: attach });
            context.strays.impossible += u64::from(matches!(action, ChannelAction::Impossible));
        }
        self.restart_fence(context, stream);
        if is_audit {
            stream.watch.describe(context);
        }
    }

    /// Restarts the attach or audit in flight with a new fence.
    pub(super) fn restart(&mut self, context: &mut Context, stream: &mut KnownStream) {
        let Some(sync) = &mut self.in_flight else { return };
        sync.fence_sequence = None;
        sync.stale_answers = 0;
        sync.chunks.iter_mut().for_each(|chunk| chunk.stage = ChunkStage::Unread);
        self.restart_fence(context, stream);
    }

    /// Publishes a new fence for the attach or audit in flight.
    fn restart_fence(&mut self, context: &mut Context, stream: &mut KnownStream) {
        let number = context.next_number();
        let sync = context.strays.expected(self.in_flight.as_mut(), "only a sync that is in flight is restarted");
        let Some(sync) = sync else { return };
        // The answer shows at once that the stream is gone or stores nothing.
        let request = Some(context.request(Requester::Fence(stream.id)));
        (sync.number, sync.fence, sync.fenced_us) = (number, number, context.now.mono_us);
        sync.after = stream.marks.highest();
        stream.marks.mark_newest(context.now.mono_us);
        let subject = stream.names.fence_subject(&context.options.node);
        let headers = MessageHeaders::new().with(FENCE, number.to_string());
        context.link(LinkEffect::Publish { link: LinkName::Live, request, subject, headers, payload: Bytes::new() });
        context.set_timer(context.now.mono_us + FENCE_TIMEOUT_US, Timer::Fence(stream.id));
    }

    /// The fence may not have come back.
    pub(super) fn fence_overdue(&mut self, context: &mut Context, stream: &mut KnownStream) {
        let now_us = context.now.mono_us;
        let is_overdue = |sync: &HeadSync| sync.fence_sequence.is_none() && sync.fenced_us + FENCE_TIMEOUT_US <= now_us;
        if self.in_flight.as_ref().is_some_and(is_overdue) {
            context.on_silence(LinkName::Live);
            stream.watch.describe(context);
            self.restart_fence(context, stream);
        }
    }

    /// A fence of this node has come back. Returns whether it shows that the stream was truncated.
    pub(super) fn fence_returned(
        &mut self,
        context: &mut Context,
        stream: &mut KnownStream,
        channels: &mut Channels,
        message: &StoredMessage,
    ) -> bool {
        let age_max_ms = stream.age_max_ms();
        let is_awaited =
            |sync: &&mut HeadSync| sync.fence_sequence.is_none() && message.headers.number(FENCE) == Some(sync.fence);
        // It may be one of an earlier sync, or of one that was restarted.
        let sync = self.in_flight.as_mut().filter(is_awaited);
        let Some(sync) = context.strays.found_or_late(sync) else { return false };
        context.unanswered.end(LinkName::Live);
        let is_previous_lost = stream.marks.push_fence(message, age_max_ms, context.now.unix_ms);
        if message.sequence <= sync.after || is_previous_lost {
            stream.marks.note_lost_before(message);
            return true;
        }
        sync.fence_sequence = Some(message.sequence);
        if sync.is_audit {
            stream.read_marks(context);
        }
        self.read_missing(context, stream, channels);
        false
    }

    /// Reads the newest messages of the chunks that have not been read.
    pub(super) fn read_missing(&mut self, context: &mut Context, stream: &mut KnownStream, channels: &mut Channels) {
        let Some(sync) = self.in_flight.as_mut().filter(|sync| sync.fence_sequence.is_some()) else { return };
        for chunk in sync.missing_chunks() {
            let requester = Requester::Heads { partition: stream.id, chunk, sync: sync.number };
            let request = context.request(requester);
            sync.chunks[chunk].stage = ChunkStage::Reading;
            let names = &stream.names;
            let mut subjects: Vec<Box<str>> =
                sync.chunks[chunk].channels.iter().map(|name| names.publish_subject(name)).collect();
            subjects.extend([names.fence_subject(&context.options.node), names.epoch_subject()]);
            let stream = names.stream.clone();
            context.link(LinkEffect::LastOf { request, stream, subjects, floor: None });
        }
        self.end_if_complete(context, stream, channels);
    }

    /// Takes the newest messages of a chunk's channels.
    pub(super) fn take_heads(
        &mut self,
        context: &mut Context,
        stream: &mut KnownStream,
        channels: &mut Channels,
        answer: HeadsAnswer,
    ) -> HeadsRead {
        let sync = self.in_flight.as_mut().filter(|sync| sync.number == answer.sync);
        let Some(sync) = context.strays.found_or_late(sync) else { return HeadsRead::Nothing };
        let fence = context.strays.expected(sync.fence_sequence, "heads are read behind the fence");
        let Some(fence) = fence else { return HeadsRead::Nothing };
        let read = &mut sync.chunks[answer.chunk];
        read.stage = ChunkStage::Unread;
        let fence_subject = stream.names.fence_subject(&context.options.node);
        let has_fence = |answer: &ReadAnswer| {
            answer.messages.iter().any(|one| one.subject == fence_subject && one.sequence >= fence)
        };
        let Some(ReadAnswer { messages, .. }) = answer.outcome.ok().filter(has_fence) else {
            self.answer_was_stale(context, stream);
            return HeadsRead::Nothing;
        };
        context.unanswered.end(LinkName::Read);
        if answer.is_damaged && sync.damaged_answers < DAMAGED_ANSWERS_MAX {
            // Without the newest message, the channel would look like one that has none, or has lost it. Another replica has it.
            sync.damaged_answers += 1;
            context.set_timer(context.now.mono_us + sync.next_pause_us(), Timer::Heads(stream.id));
            return HeadsRead::Nothing;
        }
        read.stage = ChunkStage::Read;
        match stream.review_epoch(context, &messages, fence) {
            EpochReview::Settled => {}
            EpochReview::Began => return HeadsRead::EpochBegan,
            EpochReview::Truncated => return HeadsRead::Truncated,
            EpochReview::Renewed => {
                self.restart(context, stream);
                return HeadsRead::Nothing;
            }
            EpochReview::Paused => {
                read.stage = ChunkStage::Unread;
                context.set_timer(context.now.mono_us + STALE_PAUSE_MIN_US, Timer::Heads(stream.id));
                return HeadsRead::Nothing;
            }
        }
        let mut heads = Heads {
            sync: sync.number,
            attach: sync.attach,
            fence,
            channels: read.channels.clone(),
            by_channel: BTreeMap::new(),
        };
        for message in messages {
            let name = stream.names.stored_token(&message.subject).and_then(decode_token);
            if let Some(name) = name.map(std::borrow::Cow::into_owned) {
                heads.by_channel.insert(name, message);
            }
        }
        match heads.review(channels, context.now.unix_ms, stream.age_max_ms()) {
            HeadsReview::Sound => HeadsRead::Heads(heads),
            HeadsReview::Truncated => HeadsRead::Truncated,
            HeadsReview::Hole => HeadsRead::Hole,
        }
    }

    /// The answer is of a replica without the fence, or a server is gone.
    fn answer_was_stale(&mut self, context: &mut Context, stream: &mut KnownStream) {
        let Some(sync) = &mut self.in_flight else { return };
        context.counters.stale_answers += 1;
        sync.stale_answers += 1;
        let due_us = context.now.mono_us + sync.next_pause_us();
        let is_fence_lost = sync.stale_answers >= STALE_ANSWERS_MAX * sync.chunks.len();
        context.on_silence(LinkName::Read);
        if is_fence_lost {
            self.restart(context, stream);
        } else {
            context.set_timer(due_us, Timer::Heads(stream.id));
        }
    }

    /// Whether the sync behind this fence is in flight.
    pub(super) fn is_behind(&self, number: u64) -> bool {
        self.in_flight.as_ref().is_some_and(|sync| sync.number == number)
    }

    /// Ends the sync if all heads are known.
    pub(super) fn end_if_complete(&mut self, context: &mut Context, stream: &mut KnownStream, channels: &mut Channels) {
        let interval_us = context.options.limits.audit_interval_ms * 1_000;
        let is_complete = |sync: &mut HeadSync| sync.chunks.iter().all(|chunk| chunk.stage == ChunkStage::Read);
        let Some(sync) = self.in_flight.take_if(is_complete) else { return };
        if sync.is_audit {
            context.counters.audits += 1;
            // Jitter, so that nodes that were started together do not audit together.
            let jitter_us = context.newest_number().wrapping_mul(0x9e37_79b9_7f4a_7c15) % (interval_us / 4).max(1);
            self.audit.due_us = context.now.mono_us + interval_us - jitter_us;
            context.set_timer(self.audit.due_us, Timer::Audit(stream.id));
        }
        self.start(context, stream, channels);
    }

    /// Subscribes to the live subjects of channels, or to a wildcard for all channels once there are many.
    fn subscribe_to(&mut self, context: &mut Context, stream: &KnownStream, channels: &[Arc<str>]) {
        if self.channels.is_wide {
            return;
        }
        if self.channels.attached.len() + channels.len() < context.options.limits.wide_channels_min {
            for name in channels {
                context.link(LinkEffect::Subscribe { subject: stream.names.live_subject(name) });
            }
            return;
        }
        self.channels.is_wide = true;
        // The audit finds messages that the ended subscriptions did not deliver.
        self.audit.is_needed = true;
        context.link(LinkEffect::Subscribe { subject: stream.names.republished_subjects() });
        for name in &self.channels.attached {
            context.link(LinkEffect::Unsubscribe { subject: stream.names.live_subject(name) });
        }
    }

    /// A channel is followed no longer.
    pub(super) fn detach(&mut self, context: &mut Context, stream: &KnownStream, name: &Arc<str>) {
        self.channels.attached.remove(name);
        self.channels.comparing.remove(name);
        self.channels.attaching.retain(|attaching| attaching != name);
        if !self.channels.is_wide {
            context.link(LinkEffect::Unsubscribe { subject: stream.names.live_subject(name) });
        }
    }
}

#[cfg(test)]
mod tests;
