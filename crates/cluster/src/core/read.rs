//! Reads of a channel's messages: missing parts of the chain, and pages of history.
//!
//! NATS scans the stream between the messages of a subject, and blocks writes to the stream during that time. So a read
//! requests few messages, only one read of a partition is in flight at a time, and the window in memory is used first.
//! Messages that were read are added to the window.
//!
//! Many recoveries, or missing parts of the chain, of a partition share one unfiltered read. A filtered read costs NATS
//! 0.1 µs per message of the stream between the first and the last one returned, plus the cost of a request; an
//! unfiltered one 2.5 µs per message. So from some number of recoveries on, one read of everything after the lowest
//! position is cheaper, and it blocks writes to the stream only once.
//!
//! Whether a channel lacks a message is decided by counting, so all its messages must be counted in one state of one
//! replica: the answer must be one part and include the end of the stream. Otherwise each recovery is read alone.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use dunlin_engine::log::{LoadQuery, LogBusy, LogError};

use crate::{
    link::{LinkEffect, LinkName, ReadAnswer, ReadFault, StoredMessage},
    record,
};

use super::{
    Context, Requester, Timer,
    channel::{FollowedChannel, WaitingLoad},
    channels::Channels,
    holes,
    known_stream::KnownStream,
};

/// Maximum number of messages per request.
const RANGE_MESSAGES_MAX: usize = 20;
/// The first pause after an answer that lacks messages known to be stored; it doubles up to the maximum.
const STALE_PAUSE_MIN_US: u64 = 2_000;
const STALE_PAUSE_MAX_US: u64 = 256_000;
/// Maximum number of waiting loads of a partition.
const WAITING_READS_MAX: usize = 16_384;
/// Maximum number of messages per shared read, which blocks writes to the stream for 12 ms.
const SHARED_MESSAGES_MAX: usize = 5_000;

/// The purpose of a read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Fill,
    Load(WaitingLoad),
}

/// Which request a read is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadStage {
    /// None is in flight.
    Waiting,
    /// Its own is in flight.
    InFlight,
    /// The shared one is in flight.
    Shared,
}

/// When a read is retried, so that a lagging replica can catch up.
#[derive(Clone, Copy, Debug)]
struct ReadRetry {
    not_before_us: u64,
    pause_us: u64,
}

/// The sequence after which the messages of a read are complete, and what that rests on.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadFloor {
    pub(super) sequence: u64,
    /// When the channel was attached: an age floor that was requested earlier proves nothing.
    pub(super) since_us: u64,
    /// Whether the stream may have dropped messages because of its maximum number.
    pub(super) may_be_trimmed: bool,
}

/// A read of a channel's messages.
#[derive(Debug)]
pub(super) struct Read {
    number: u64,
    pub(super) channel: Arc<str>,
    pub(super) purpose: Purpose,
    /// Messages after this sequence are read.
    pub(super) after: u64,
    /// A message that is known to be stored: an answer without it, or a later one, is incomplete.
    pub(super) through: u64,
    pub(super) messages: Collected,
    /// The channel's position when the read began. The messages are complete up to it, and possibly beyond.
    pub(super) position: u64,
    pub(super) floor: ReadFloor,
    stage: ReadStage,
    /// Whether a shared read could not serve it, so that it is read alone.
    is_alone: bool,
    retry: ReadRetry,
}

/// The messages that a read has received. A read of the newest ones goes from the oldest one to the newest one, and keeps
/// only as many as the query allows.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) list: Vec<StoredMessage>,
    /// The number of publications in the list, without purges and without what was stored since the read began.
    publications: usize,
    /// Their bytes.
    bytes: usize,
    /// The newest message that was left out because newer ones reach a limit of the query; 0 for none.
    pub(super) left_out: u64,
    /// Whether the messages reach the offset below which they were requested.
    reaches_below: bool,
}

/// The reads of a partition: the first one is in flight.
#[derive(Debug, Default)]
pub(super) struct Reads {
    queue: VecDeque<Read>,
    /// Whether a shared read is in flight.
    is_sharing: bool,
}

/// A read that has left the queue.
#[derive(Debug)]
pub(super) enum EndedRead {
    /// An earlier read has returned enough: the window answers this load.
    InWindow { channel: Arc<str>, waiting: WaitingLoad },
    /// It has all messages that it needs.
    Complete(Box<Read>),
}

/// The messages that a shared read has returned, by their subjects; `None` if they prove nothing.
#[derive(Debug)]
pub(super) struct SharedMessages(Option<BTreeMap<Box<str>, Vec<StoredMessage>>>);

impl Reads {
    /// Queues a read. Returns whether it did: a load is refused if there are too many.
    pub(super) fn push(&mut self, context: &mut Context, read: Read) -> bool {
        match read.purpose {
            Purpose::Load(waiting) if self.queue.len() >= WAITING_READS_MAX => {
                context.effects.push(waiting.refused(&read.channel, LogError::Busy(LogBusy::ClusterReads)));
                return false;
            }
            Purpose::Load(_) => self.queue.push_back(read),
            // Live delivery takes precedence over history, after the read in flight.
            Purpose::Fill => self.queue.insert(self.queue.len().min(1), read),
        }
        context.counters.reads += 1;
        true
    }

    /// Queues a read that a shared one could not serve.
    pub(super) fn push_alone(&mut self, read: Read) {
        self.queue.push_back(read);
    }

    /// Requests what the first read lacks, unless a request is in flight. Returns the read instead if it lacks nothing.
    pub(super) fn next(
        &mut self,
        context: &mut Context,
        stream: &mut KnownStream,
        channels: &Channels,
    ) -> Option<EndedRead> {
        loop {
            let read = self.queue.front_mut()?;
            let age_floor = stream.fresh_age_floor(context.now.mono_us, read.floor.since_us);
            let is_early = read.retry.not_before_us > context.now.mono_us;
            if self.is_sharing || read.stage == ReadStage::InFlight || is_early {
                return None;
            }
            let channel = channels.get(&read.channel);
            let Some(channel) = context.strays.expected(channel, "the reads of a channel end with it") else {
                if let Purpose::Load(waiting) = read.purpose {
                    context.effects.push(waiting.refused(&read.channel, LogError::Unavailable));
                }
                self.queue.pop_front();
                continue;
            };
            read.goes_to(channel);
            if age_floor.is_none() {
                stream.read_age_floor(context);
                return None;
            }
            if let Purpose::Load(waiting) = read.purpose
                && read.messages.list.is_empty()
                && waiting.query.after.is_some_and(|after| channel.has_in_window(after))
            {
                let channel = Arc::clone(&read.channel);
                self.queue.pop_front();
                return Some(EndedRead::InWindow { channel, waiting });
            }
            if read.last() >= read.through || read.ended_early() || read.messages.reaches_below {
                return self.queue.pop_front().map(|read| EndedRead::Complete(Box::new(read)));
            }
            if !self.begin_shared(context, stream) {
                self.request_first(context, stream);
            }
            return None;
        }
    }

    fn request_first(&mut self, context: &mut Context, stream: &KnownStream) {
        let Some(read) = self.queue.front_mut() else { return };
        read.stage = ReadStage::InFlight;
        let (number, from) = (read.number, read.last() + 1);
        let subject = Some(stream.names.publish_subject(&read.channel));
        let request = context.request(Requester::Read { partition: stream.id, read: number });
        let stream = stream.names.stream.clone();
        context.link(LinkEffect::Range { request, stream, subject, from, messages_max: RANGE_MESSAGES_MAX });
    }

    /// Takes the answer to the request of the first read. Returns whether the reads go on at once.
    pub(super) fn take_answer(
        &mut self,
        context: &mut Context,
        stream: &KnownStream,
        number: u64,
        outcome: Result<ReadAnswer, ReadFault>,
    ) -> bool {
        let history_max = stream.facts.as_ref().map_or(0, |facts| facts.history_max);
        let read = self.queue.front_mut().filter(|read| read.number == number);
        let Some(read) = context.strays.found_or_late(read) else { return false };
        read.stage = ReadStage::Waiting;
        let Some(age_floor) = stream.usable_age_floor(context.now.mono_us, read.floor.since_us) else {
            // The age floor is too old to evaluate the answer.
            return true;
        };
        let last = read.last();
        let mut answer = outcome.unwrap_or_default();
        answer.messages.retain(|message| message.sequence > last);
        if answer.messages.is_empty() {
            self.retry(context, stream);
            return false;
        }
        let stored = answer.messages.len() as u64 + answer.pending;
        read.floor.may_be_trimmed |= stored > history_max;
        let floor = proven_floor(last, answer.messages.first(), stored <= history_max, age_floor);
        if floor > last {
            read.floor.sequence = read.floor.sequence.max(floor);
        }
        read.add(answer.messages);
        context.unanswered.end(LinkName::Read);
        true
    }

    /// Retries the first read after a pause.
    pub(super) fn retry(&mut self, context: &mut Context, stream: &KnownStream) {
        let Some(read) = self.queue.front_mut() else { return };
        context.counters.stale_answers += 1;
        let due_us = context.now.mono_us + read.retry.pause_us;
        read.retry.pause_us = (read.retry.pause_us * 2).min(STALE_PAUSE_MAX_US);
        read.retry.not_before_us = due_us;
        context.on_silence(LinkName::Read);
        self.refuse_overdue(context);
        context.set_timer(due_us, Timer::Read(stream.id));
    }

    /// Refuses the loads that have waited for too long.
    fn refuse_overdue(&mut self, context: &mut Context) {
        self.queue.retain(|read| match read.purpose {
            Purpose::Load(waiting) if waiting.due_us <= context.now.mono_us => {
                context.effects.push(waiting.refused(&read.channel, LogError::Unavailable));
                false
            }
            Purpose::Load(_) | Purpose::Fill => true,
        });
    }

    /// Drops the reads of a channel; loads are answered with the error. Returns whether the first read was among them.
    pub(super) fn drop_channel(&mut self, context: &mut Context, name: &Arc<str>, error: LogError) -> bool {
        let is_first_dropped = self.queue.front().is_some_and(|read| read.channel == *name);
        self.queue.retain(|read| {
            let is_kept = read.channel != *name;
            if let (Purpose::Load(waiting), false) = (read.purpose, is_kept) {
                context.effects.push(waiting.refused(name, error));
            }
            is_kept
        });
        is_first_dropped
    }

    /// Starts a read for all waiting reads, if they are many and not far behind.
    fn begin_shared(&mut self, context: &mut Context, stream: &KnownStream) -> bool {
        let shared_reads_min = context.options.limits.shared_reads_min;
        let highest = stream.marks.highest();
        let mut positions: Vec<u64> = self.queue.iter().filter_map(Read::position_to_share).collect();
        // Reads that are too far behind are made alone.
        positions.retain(|after| after + SHARED_MESSAGES_MAX as u64 > highest);
        let Some(after) = positions.iter().min().copied().filter(|_| positions.len() >= shared_reads_min) else {
            return false;
        };
        for read in &mut self.queue {
            if read.position_to_share().is_some_and(|position| position >= after) {
                read.stage = ReadStage::Shared;
            }
        }
        self.is_sharing = true;
        context.counters.shared_reads += 1;
        let request = context.request(Requester::SharedRead(stream.id));
        let (subject, from, messages_max) = (None, after + 1, SHARED_MESSAGES_MAX);
        let stream = stream.names.stream.clone();
        context.link(LinkEffect::Range { request, stream, subject, from, messages_max });
        true
    }

    /// Takes the messages of all channels after the lowest position, and the reads that wait for them.
    pub(super) fn take_shared(
        &mut self,
        context: &mut Context,
        stream: &KnownStream,
        outcome: Result<ReadAnswer, ReadFault>,
    ) -> (VecDeque<Read>, SharedMessages) {
        self.is_sharing = false;
        let (shared, others) =
            std::mem::take(&mut self.queue).into_iter().partition(|read| read.stage == ReadStage::Shared);
        self.queue = others;
        let is_usable = stream.usable_age_floor(context.now.mono_us, 0).is_some();
        let answer = outcome.ok().filter(|answer| is_usable && !answer.is_in_parts && answer.pending == 0);
        let by_subject = answer.map(|answer| {
            context.unanswered.end(LinkName::Read);
            let mut by_subject: BTreeMap<Box<str>, Vec<StoredMessage>> = BTreeMap::new();
            for message in answer.messages {
                by_subject.entry(message.subject.clone()).or_default().push(message);
            }
            by_subject
        });
        (shared, SharedMessages(by_subject))
    }
}

impl SharedMessages {
    /// Completes a read. Returns whether it is: the replica may lag, or the channel may have been attached after the age
    /// floor was read.
    pub(super) fn complete(
        &self,
        context: &Context,
        stream: &KnownStream,
        channel: &FollowedChannel,
        read: &mut Read,
    ) -> bool {
        (read.stage, read.is_alone) = (ReadStage::Waiting, true);
        read.goes_to(channel);
        let found = self.0.as_ref().map(|by_subject| {
            by_subject.get(&stream.names.publish_subject(&read.channel)).map_or(&[][..], Vec::as_slice)
        });
        let is_complete =
            |found: &&[StoredMessage]| found.last().map_or(read.after, |last| last.sequence) >= read.through;
        let age_floor = stream.usable_age_floor(context.now.mono_us, read.floor.since_us);
        let Some((found, age_floor)) = found.filter(is_complete).zip(age_floor) else { return false };
        let history_max = stream.facts.as_ref().map_or(0, |facts| facts.history_max);
        let after = read.after;
        read.add(found.iter().filter(|message| message.sequence > after).cloned().collect());
        let stored = read.messages.list.len() as u64;
        read.floor.may_be_trimmed = stored > history_max;
        let floor = proven_floor(read.after, read.messages.list.first(), !read.floor.may_be_trimmed, age_floor);
        read.floor.sequence = read.floor.sequence.max(floor);
        true
    }
}

/// Leaves out the messages that the replica has damaged, as a replica itself leaves out what it cannot read. If others follow
/// them, these name them, and the hole is found.
pub(super) fn without_damaged(
    context: &mut Context,
    outcome: Result<ReadAnswer, ReadFault>,
) -> Result<ReadAnswer, ReadFault> {
    let mut answer = outcome?;
    let received = answer.messages.len();
    answer.messages.retain(|message| !record::is_damaged(message));
    context.counters.damaged_messages += (received - answer.messages.len()) as u64;
    if answer.messages.is_empty() && received > 0 && answer.pending > 0 {
        // The read would begin again at the same place. Another replica may answer the next try.
        return Err(ReadFault::Malformed { what: "all messages of the answer are damaged" });
    }
    Ok(answer)
}

impl Collected {
    /// `newest` is the query, if it is for the newest messages; `through` is the newest message when the read began.
    fn add(&mut self, messages: Vec<StoredMessage>, newest: Option<LoadQuery>, through: u64) {
        let below = newest.map_or(u64::MAX, |query| query.below);
        for message in messages {
            if message.sequence >= below {
                self.reaches_below = true;
                break;
            }
            let (publications, bytes) = counted(&message, through);
            (self.publications, self.bytes) = (self.publications + publications, self.bytes + bytes);
            self.list.push(message);
        }
        if let Some(query) = newest {
            self.leave_out_oldest(query, through);
        }
    }

    /// Whether the newest publication is beyond the limits of a query for the oldest ones. It has to be: a page that ends
    /// with the newest message that was read says that nothing comes after it.
    fn has_one_past(&self, query: LoadQuery, through: u64) -> bool {
        let newest = self.list.iter().rev().map(|message| counted(message, through)).find(|(count, _)| *count > 0);
        let before_newest = self.bytes - newest.map_or(0, |(_, bytes)| bytes);
        self.publications > query.publications_max || (before_newest > 0 && before_newest >= query.bytes_max)
    }

    fn leave_out_oldest(&mut self, query: LoadQuery, through: u64) {
        let mut count = 0;
        while let Some([oldest, _, ..]) = self.list.get(count..) {
            let (publications, bytes) = counted(oldest, through);
            let rest = (self.publications - publications, self.bytes - bytes);
            if rest.0 < query.publications_max && rest.1 < query.bytes_max {
                break;
            }
            ((self.publications, self.bytes), self.left_out) = (rest, oldest.sequence);
            count += 1;
        }
        self.list.drain(..count);
    }
}

/// The number of publications of a message, and their bytes. What was stored since the read began may not be delivered yet,
/// and is not in the page then.
fn counted(message: &StoredMessage, through: u64) -> (usize, usize) {
    let counts = message.sequence <= through && record::purged_through(message).is_none();
    if counts { (1, message.bytes()) } else { (0, 0) }
}

impl Read {
    pub(super) fn new(
        number: u64,
        name: &Arc<str>,
        channel: &FollowedChannel,
        purpose: Purpose,
        (after, through): (u64, u64),
    ) -> Self {
        Self {
            number,
            channel: Arc::clone(name),
            purpose,
            after,
            through,
            messages: Collected::default(),
            position: channel.position,
            floor: ReadFloor { sequence: after, since_us: channel.attached_us, may_be_trimmed: false },
            stage: ReadStage::Waiting,
            is_alone: false,
            retry: ReadRetry { not_before_us: 0, pause_us: STALE_PAUSE_MIN_US },
        }
    }

    /// The read of a gap goes to its end, which may have moved.
    fn goes_to(&mut self, channel: &FollowedChannel) {
        if let (Purpose::Fill, Some(gap)) = (self.purpose, channel.gap()) {
            self.through = gap.through;
        }
    }

    /// The sequence of the last message that was received.
    fn last(&self) -> u64 {
        self.messages.list.last().map_or(self.after, |message| message.sequence)
    }

    /// The sequence after which the messages are all that were stored; `None` if one of them is missing.
    pub(super) fn complete_after(
        &self,
        context: &Context,
        stream: &KnownStream,
        channel: Option<&FollowedChannel>,
    ) -> Option<u64> {
        let age_floor = stream.usable_age_floor(context.now.mono_us, self.floor.since_us).unwrap_or(u64::MAX);
        let mut floor = self.floor.sequence;
        if self.messages.list.is_empty() {
            // Nothing is stored after it, so nothing was dropped because of the maximum number.
            floor = proven_floor(self.after, None, true, age_floor);
        }
        // A purge states the sequence up to which it has removed publications.
        let purged = self.messages.list.iter().filter_map(record::purged_through).max().unwrap_or(0);
        floor = floor.max(purged);
        // While the newest message was confirmed recently, none after it can have expired by age.
        let age_max_ms = stream.age_max_ms();
        let is_recent = |channel: &FollowedChannel| {
            age_max_ms.is_none_or(|age| context.now.mono_us < channel.newest.confirmed_us.saturating_add(age * 500))
        };
        let fills_all = matches!(self.purpose, Purpose::Fill)
            && !self.floor.may_be_trimmed
            && purged <= self.after
            && channel.is_some_and(is_recent);
        let floor = if fills_all { self.after } else { floor };
        let has_hole = |channel| self.has_hole(channel, stream, floor, context.now.unix_ms);
        if channel.is_some_and(has_hole) {
            return None;
        }
        Some(holes::floor_of_names(&self.messages.list, floor, stream.current_epoch(), stream.ended_epoch()))
    }

    /// The position of a read that can be part of a shared one.
    fn position_to_share(&self) -> Option<u64> {
        let can_be_shared = !self.is_alone && self.stage != ReadStage::InFlight && self.messages.list.is_empty();
        match self.purpose {
            Purpose::Load(waiting) if can_be_shared => waiting.query.after,
            Purpose::Fill if can_be_shared => Some(self.after),
            Purpose::Load(_) | Purpose::Fill => None,
        }
    }

    /// Whether it has a hole after `floor`, or shows that an earlier read of the channel had.
    fn has_hole(&self, channel: &FollowedChannel, stream: &KnownStream, floor: u64, unix_ms: u64) -> bool {
        let age_max_ms = stream.age_max_ms();
        let is_overlooked = |message| channel.has_overlooked(message, unix_ms, age_max_ms);
        // What was acknowledged to this node, what a live message follows, and the newest message of a load.
        let followed = channel.gap().into_iter().flat_map(|gap| gap.buffered.predecessors());
        let newest = matches!(self.purpose, Purpose::Load(_)).then_some(self.through);
        let stored = channel.outbox.acknowledged.keys().copied().chain(followed).chain(newest);
        holes::missing_among(&self.messages.list, floor, stream.current_epoch(), stored).is_some()
            || self.messages.list.iter().any(is_overlooked)
    }

    /// The query of a load.
    pub(super) fn query(&self) -> Option<LoadQuery> {
        match self.purpose {
            Purpose::Load(waiting) => Some(waiting.query),
            Purpose::Fill => None,
        }
    }

    /// The query of a load of the newest messages.
    fn query_for_newest(&self) -> Option<LoadQuery> {
        self.query().filter(|query| query.after.is_none())
    }

    /// Only messages below this sequence are read.
    pub(super) fn below(&self) -> u64 {
        self.query_for_newest().map_or(u64::MAX, |query| query.below)
    }

    /// Adds messages of the stream.
    fn add(&mut self, messages: Vec<StoredMessage>) {
        let (query, through) = (self.query_for_newest(), self.through);
        self.messages.add(messages, query, through);
        self.floor.sequence = self.floor.sequence.max(self.messages.left_out);
    }

    /// Whether it has more than was requested, and ended before it had all.
    pub(super) fn ended_early(&self) -> bool {
        let query = self.query().filter(|query| query.after.is_some());
        query.is_some_and(|query| self.messages.has_one_past(query, self.through))
    }
}

/// The sequence after which the messages after `after` are complete, given the first message that a read has found.
///
/// - Age expires the oldest messages of a stream, and only those below `age_floor`. So the messages after the first
///   existing one are complete, and so are those at or above the age floor.
/// - The stream keeps one message more of a channel than its history has. If it had dropped one after `after`, it would
///   have that many newer ones; `is_untrimmed` states that there are fewer.
fn proven_floor(after: u64, first: Option<&StoredMessage>, is_untrimmed: bool, age_floor: u64) -> u64 {
    let from_first = first.map_or(u64::MAX, |message| message.sequence - 1);
    let from_age = if is_untrimmed { age_floor.saturating_sub(1) } else { u64::MAX };
    from_first.min(from_age).max(after)
}

#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod tests;
