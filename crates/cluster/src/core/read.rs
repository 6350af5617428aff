//! Reads of a channel's messages: missing parts of the chain, and pages of history.
//!
//! NATS scans the stream between the messages of a subject, and blocks writes to the stream during that time. So a read
//! requests few messages, only one read of a partition is in flight at a time, and the window in memory is used first.
//! Messages that were read are added to the window. Many simultaneous recoveries share one read ([`super::shared`]).

use std::{collections::VecDeque, sync::Arc};

use dunlin_engine::{
    ShardIndex,
    log::{LoadNumber, LoadQuery, LogBusy, LogError},
};

use crate::{
    link::{LinkEffect, LinkName, ReadAnswer, ReadFault, StoredMessage},
    names::PartitionId,
    planted::CoreBug,
    record,
};

use super::{
    Core, Requester, Timer,
    channel::{FollowedChannel, WaitingLoad},
    holes,
    known_stream::KnownStream,
    page::Pages,
};

/// Maximum number of messages per request.
const RANGE_MESSAGES_MAX: usize = 20;
/// The first pause after an answer that lacks messages known to be stored; it doubles up to the maximum.
const STALE_PAUSE_MIN_US: u64 = 2_000;
const STALE_PAUSE_MAX_US: u64 = 256_000;
/// Maximum number of waiting loads of a partition.
const WAITING_READS_MAX: usize = 16_384;

/// The purpose of a read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Fill,
    Load(WaitingLoad),
}

/// Which request a read is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadStage {
    /// None is in flight.
    Waiting,
    /// Its own is in flight.
    InFlight,
    /// The shared one is in flight.
    Shared,
}

/// When a read is retried, so that a lagging replica can catch up.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadRetry {
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
    pub(super) stage: ReadStage,
    /// Whether a shared read could not serve it, so that it is read alone.
    pub(super) is_alone: bool,
    pub(super) retry: ReadRetry,
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
    pub(super) queue: VecDeque<Read>,
    /// Whether a shared read is in flight.
    pub(super) is_sharing: bool,
}

impl Core {
    /// Leaves out the messages that the replica has damaged, as a replica itself leaves out what it cannot read. If others
    /// follow them, these name them, and the hole is found.
    pub(super) fn without_damaged(&mut self, outcome: Result<ReadAnswer, ReadFault>) -> Result<ReadAnswer, ReadFault> {
        let mut answer = outcome?;
        let received = answer.messages.len();
        if !self.context.planted.is(CoreBug::DamagedMessageTaken) {
            answer.messages.retain(|message| !record::is_damaged(message));
        }
        self.context.counters.damaged_messages += (received - answer.messages.len()) as u64;
        if answer.messages.is_empty() && received > 0 && answer.pending > 0 {
            // The read would begin again at the same place. Another replica may answer the next try.
            return Err(ReadFault::Malformed { what: "all messages of the answer are damaged" });
        }
        Ok(answer)
    }

    /// Answers a load from the window, or reads what is missing.
    pub(super) fn load(&mut self, shard: ShardIndex, name: &Arc<str>, load: LoadNumber, query: LoadQuery) {
        let due_us = self.context.now.after_ms(self.context.options.limits.load_timeout_ms);
        let waiting = WaitingLoad { due_us, shard, load, query, has_asked: false };
        match self.channels.get_mut(name) {
            None => self.context.effects.push(waiting.refused(name, LogError::Unavailable)),
            Some(channel) => {
                if let Some(attaching) = channel.attaching_mut() {
                    attaching.loads.push(waiting);
                    self.context.set_timer(due_us, Timer::Loads(Arc::clone(name)));
                } else {
                    self.serve_load(name, waiting);
                }
            }
        }
    }

    pub(super) fn serve_load(&mut self, name: &Arc<str>, waiting: WaitingLoad) {
        let query = waiting.query;
        let channel = self.channels.get_mut(name);
        let Some(channel) = self.context.strays.expected(channel, "the loads of a channel end with it") else {
            return self.context.effects.push(waiting.refused(name, LogError::Unavailable));
        };
        let is_ahead =
            |after: &u64| *after > channel.position && !self.context.planted.is(CoreBug::PositionAheadRefused);
        if let Some(after) = query.after.filter(is_ahead) {
            return self.wait_for_position(name, waiting, after);
        }
        let opens = query.after.is_none() && std::mem::take(&mut channel.opens);
        let is_in_window = if let Some(after) = query.after {
            channel.has_in_window(after)
        } else {
            let (publications, is_full) = channel.newest_in_window(query);
            publications > 0 && (opens || is_full)
        };
        if is_in_window {
            let pages = Pages::new(&self.partitions[channel.partition].stream, channel, self.context.now);
            let page = pages.of_window(query);
            self.context.effects.push(waiting.loaded(name, page));
            return;
        }
        if self.ask_for_window(name, waiting) {
            return;
        }
        let newest = self.channels.get(name).map_or(0, |channel| channel.newest.sequence);
        // If nothing is stored after the window's floor, only the proof for the part below it is missing.
        let after = query.after.unwrap_or(0);
        let through = if newest > after { newest } else { 0 };
        self.queue_read(name, Purpose::Load(waiting), after, through);
    }

    /// Reads the messages that a gap lacks.
    pub(super) fn fill(&mut self, name: &Arc<str>) {
        let channel = self.channels.get(name);
        let missing = channel.and_then(|channel| Some((channel.newest.sequence, channel.gap()?.through)));
        let Some((after, through)) = self.context.strays.expected(missing, "a gap has begun") else { return };
        self.queue_read(name, Purpose::Fill, after, through);
    }

    fn queue_read(&mut self, name: &Arc<str>, purpose: Purpose, after: u64, through: u64) {
        let number = self.context.next_number();
        let channel = self.channels.get(name);
        let Some(channel) = self.context.strays.expected(channel, "only a followed channel is read") else { return };
        let (id, position, floor_since_us) = (channel.partition, channel.position, channel.attached_us);
        let partition = &mut self.partitions[id];
        let queue = &mut partition.reads.queue;
        let read = Read {
            number,
            channel: Arc::clone(name),
            purpose,
            after,
            through,
            messages: Collected::default(),
            position,
            floor: ReadFloor { sequence: after, since_us: floor_since_us, may_be_trimmed: false },
            stage: ReadStage::Waiting,
            is_alone: false,
            retry: ReadRetry { not_before_us: 0, pause_us: STALE_PAUSE_MIN_US },
        };
        match purpose {
            Purpose::Load(waiting) if queue.len() >= WAITING_READS_MAX => {
                self.context.effects.push(waiting.refused(name, LogError::Busy(LogBusy::ClusterReads)));
                return;
            }
            Purpose::Load(_) => queue.push_back(read),
            // Live delivery takes precedence over history, after the read in flight.
            Purpose::Fill => queue.insert(queue.len().min(1), read),
        }
        self.context.counters.reads += 1;
        self.resume_reads(id);
    }

    /// Requests what the first read lacks, unless a request is in flight.
    pub(super) fn resume_reads(&mut self, id: PartitionId) {
        loop {
            let partition = &mut self.partitions[id];
            let is_sharing = partition.reads.is_sharing;
            let Some(read) = partition.reads.queue.front() else { return };
            let age_floor = partition.stream.fresh_age_floor(self.context.now.mono_us, read.floor.since_us);
            let read = &mut partition.reads.queue[0];
            if is_sharing || read.stage == ReadStage::InFlight || read.retry.not_before_us > self.context.now.mono_us {
                return;
            }
            let channel = self.channels.get(&read.channel);
            let Some(channel) = self.context.strays.expected(channel, "the reads of a channel end with it") else {
                partition.reads.queue.pop_front();
                continue;
            };
            if let (Purpose::Fill, Some(gap)) = (read.purpose, channel.gap()) {
                read.through = gap.through;
            }
            if age_floor.is_none() {
                return partition.stream.read_age_floor(&mut self.context);
            }
            if let Purpose::Load(waiting) = read.purpose
                && read.messages.list.is_empty()
                && waiting.query.after.is_some_and(|after| channel.has_in_window(after))
            {
                // An earlier read has returned enough.
                let name = Arc::clone(&read.channel);
                partition.reads.queue.pop_front();
                self.serve_load(&name, waiting);
                continue;
            }
            let last = read.messages.list.last().map_or(read.after, |message| message.sequence);
            if last >= read.through || read.ended_early() || read.messages.reaches_below {
                if let Some(read) = partition.reads.queue.pop_front() {
                    self.finish_read(id, &read);
                }
                continue;
            }
            if self.begin_shared_read(id) {
                return;
            }
            let partition = &mut self.partitions[id];
            let read = &mut partition.reads.queue[0];
            read.stage = ReadStage::InFlight;
            let (number, from) = (read.number, last + 1);
            let (stream, subject) =
                (partition.stream.names.stream.clone(), Some(partition.stream.names.publish_subject(&read.channel)));
            let request = self.context.request(Requester::Read { partition: id, read: number });
            self.context.link(LinkEffect::Range { request, stream, subject, from, messages_max: RANGE_MESSAGES_MAX });
            return;
        }
    }

    pub(super) fn range_read(&mut self, id: PartitionId, number: u64, outcome: Result<ReadAnswer, ReadFault>) {
        let partition = &mut self.partitions[id];
        let since_us = partition.reads.queue.front().map_or(0, |read| read.floor.since_us);
        let age_floor = partition.stream.usable_age_floor(self.context.now.mono_us, since_us);
        let history_max = partition.stream.facts.as_ref().map_or(0, |facts| facts.history_max);
        let history_max = history_max + u64::from(self.context.planted.is(CoreBug::CountRuleOffByOne));
        let read = partition.reads.queue.front_mut().filter(|read| read.number == number);
        let Some(read) = self.context.strays.found_or_late(read) else { return };
        read.stage = ReadStage::Waiting;
        let Some(age_floor) = age_floor else {
            // The age floor is too old to evaluate the answer.
            self.resume_reads(id);
            return;
        };
        let last = read.messages.list.last().map_or(read.after, |message| message.sequence);
        let mut answer = outcome.unwrap_or_default();
        answer.messages.retain(|message| message.sequence > last);
        if answer.messages.is_empty() {
            self.retry_reads(id);
            return;
        }
        let stored = answer.messages.len() as u64 + answer.pending;
        read.floor.may_be_trimmed |= stored > history_max;
        let floor = proven_floor(last, answer.messages.first(), stored <= history_max, age_floor);
        if floor > last {
            read.floor.sequence = read.floor.sequence.max(floor);
        }
        read.add(answer.messages);
        self.context.silence.end(LinkName::Read);
        self.resume_reads(id);
    }

    /// Refuses the loads of a partition that have waited for too long.
    fn refuse_overdue_reads(&mut self, id: PartitionId) {
        let partition = &mut self.partitions[id];
        partition.reads.queue.retain(|read| match read.purpose {
            Purpose::Load(waiting) if waiting.due_us <= self.context.now.mono_us => {
                self.context.effects.push(waiting.refused(&read.channel, LogError::Unavailable));
                false
            }
            Purpose::Load(_) | Purpose::Fill => true,
        });
    }

    /// Refuses the loads that have waited for an attach for too long.
    pub(super) fn refuse_overdue_loads(&mut self, name: &Arc<str>) {
        // It may be attached by now, or detached.
        let Some(channel) = self.channels.get_mut(name) else { return };
        for waiting in channel.ahead.take_due(self.context.now.mono_us) {
            self.context.effects.push(waiting.refused(name, LogError::Unavailable));
        }
        let Some(attaching) = channel.attaching_mut() else { return };
        let is_overdue = |waiting: &mut WaitingLoad| waiting.due_us <= self.context.now.mono_us;
        for waiting in attaching.loads.extract_if(.., is_overdue) {
            self.context.effects.push(waiting.refused(name, LogError::Unavailable));
        }
    }

    /// Retries the first read after a pause.
    pub(super) fn retry_reads(&mut self, id: PartitionId) {
        let Some(read) = self.partitions[id].reads.queue.front_mut() else { return };
        self.context.counters.stale_answers += 1;
        let due_us = self.context.now.mono_us + read.retry.pause_us;
        read.retry.pause_us = (read.retry.pause_us * 2).min(STALE_PAUSE_MAX_US);
        read.retry.not_before_us = due_us;
        self.context.on_silence(LinkName::Read);
        self.refuse_overdue_reads(id);
        self.context.set_timer(due_us, Timer::Read(id));
    }

    /// Completes a read.
    pub(super) fn finish_read(&mut self, id: PartitionId, read: &Read) {
        let partition = &mut self.partitions[id];
        let age_floor =
            partition.stream.usable_age_floor(self.context.now.mono_us, read.floor.since_us).unwrap_or(u64::MAX);
        let mut floor = read.floor.sequence;
        if read.messages.list.is_empty() {
            // Nothing is stored after it, so nothing was dropped because of the maximum number.
            floor = proven_floor(read.after, None, true, age_floor);
        }
        // A purge states the sequence up to which it has removed publications.
        let purged = read.messages.list.iter().filter_map(record::purged_through).max().unwrap_or(0);
        floor = floor.max(purged);
        let name = Arc::clone(&read.channel);
        // While the newest message was confirmed recently, none after it can have expired by age.
        let age_max_ms = partition.stream.age_max_ms();
        let is_recent = |channel: &FollowedChannel| {
            age_max_ms
                .is_none_or(|age| self.context.now.mono_us < channel.newest.confirmed_us.saturating_add(age * 500))
        };
        let fills_all = matches!(read.purpose, Purpose::Fill)
            && !read.floor.may_be_trimmed
            && purged <= read.after
            && self.channels.get(&name).is_some_and(is_recent);
        let floor = if fills_all { read.after } else { floor };
        let stream = &self.partitions[id].stream;
        let has_hole = |channel| read.has_hole(channel, stream, floor, self.context.now.unix_ms);
        if self.channels.get(&name).is_some_and(has_hole) && !self.context.planted.is(CoreBug::HoleNotNoticed) {
            if let Purpose::Load(waiting) = read.purpose {
                self.context.effects.push(waiting.refused(&name, LogError::Unavailable));
            }
            return self.on_hole(id);
        }
        let floor = holes::floor_of_names(&read.messages.list, floor, stream.current_epoch());
        match read.purpose {
            Purpose::Fill => {
                if floor <= read.after {
                    self.gap_filled(&name, &read.messages.list);
                } else {
                    self.interrupt(&name);
                }
            }
            Purpose::Load(waiting) => {
                read.messages.list.iter().for_each(|message| self.note_key(self.context.now, id, message));
                let channel = self.channels.get(&name);
                let Some(channel) = self.context.strays.expected(channel, "the reads of a channel end with it") else {
                    return self.context.effects.push(waiting.refused(&name, LogError::Unavailable));
                };
                let page = Pages::new(&self.partitions[id].stream, channel, self.context.now).of_read(read, floor);
                self.extend_window(read, floor);
                self.context.effects.push(waiting.loaded(&name, page));
            }
        }
    }

    /// Adds messages that were read below a channel's window to it, as far as they fit.
    fn extend_window(&mut self, read: &Read, floor: u64) {
        if let Some(channel) = self.channels.get_mut(&read.channel)
            && !read.ended_early()
        {
            let limits = self.partitions[channel.partition].stream.window_limits();
            let through = read.position.min(read.below().saturating_sub(1));
            channel.window.extend_below(&read.messages.list, floor, through, limits);
            self.channels.bound_windows(&self.context, &read.channel);
        }
    }

    /// Drops the reads of a channel; loads are answered with the error.
    pub(super) fn drop_reads(&mut self, id: PartitionId, name: &Arc<str>, error: LogError) {
        let partition = &mut self.partitions[id];
        let is_first_dropped = partition.reads.queue.front().is_some_and(|read| read.channel == *name);
        partition.reads.queue.retain(|read| {
            let is_kept = read.channel != *name;
            if let (Purpose::Load(waiting), false) = (read.purpose, is_kept) {
                self.context.effects.push(waiting.refused(name, error));
            }
            is_kept
        });
        if is_first_dropped {
            self.resume_reads(id);
        }
    }
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
    /// The position of a read that can be part of a shared one.
    pub(super) fn position_to_share(&self) -> Option<u64> {
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
    pub(super) fn add(&mut self, messages: Vec<StoredMessage>) {
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
pub(super) fn proven_floor(after: u64, first: Option<&StoredMessage>, is_untrimmed: bool, age_floor: u64) -> u64 {
    let from_first = first.map_or(u64::MAX, |message| message.sequence - 1);
    let from_age = if is_untrimmed { age_floor.saturating_sub(1) } else { u64::MAX };
    from_first.min(from_age).max(after)
}

#[cfg(test)]
mod tests;
