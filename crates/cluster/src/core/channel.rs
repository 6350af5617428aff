//! A followed channel as a state machine: its position in the chain, what it waits for, and a window of its newest
//! publications.

use std::{collections::BTreeMap, sync::Arc};

use dunlin_engine::{
    Event, Now, ShardIndex,
    log::{LoadNumber, LoadQuery, LogError, LogPage, LogRecord},
};

use crate::{link::StoredMessage, names::PartitionId, record};

use super::{
    Context, CoreEffect, CoreLimits,
    ahead::AheadLoads,
    holes::{self, Unnamed},
    known_stream::KnownStream,
    outbox::Outbox,
    truncation::CLOCK_MARGIN_MS,
    window::{Window, WindowEntry, WindowLimits},
};

/// What a buffered message takes besides its payload: subject, headers, and the entry.
const MESSAGE_OVERHEAD_BYTES: usize = 512;

/// A load that waits until the channel is attached.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingLoad {
    /// When it is refused.
    pub(super) due_us: u64,
    pub(super) shard: ShardIndex,
    pub(super) load: LoadNumber,
    pub(super) query: LoadQuery,
    /// Whether another node was asked for its window.
    pub(super) has_asked: bool,
}

impl WaitingLoad {
    /// The answer with a page.
    pub(super) fn loaded(&self, name: &Arc<str>, page: LogPage) -> CoreEffect {
        self.answered(name, Ok(Box::new(page)))
    }

    /// The answer with an error.
    pub(super) fn refused(&self, name: &Arc<str>, error: LogError) -> CoreEffect {
        self.answered(name, Err(error))
    }

    fn answered(&self, name: &Arc<str>, outcome: Result<Box<LogPage>, LogError>) -> CoreEffect {
        let event = Event::Loaded { channel: Arc::clone(name), load: self.load, outcome };
        CoreEffect::ToShard { shard: self.shard, event }
    }
}

/// Live messages that cannot be handled yet. Those that do not fit are found missing by the chain, and read.
#[derive(Debug, Default)]
pub(super) struct BufferedMessages {
    by_sequence: BTreeMap<u64, StoredMessage>,
    bytes: usize,
}

impl BufferedMessages {
    /// Adds a message if it fits; returns whether it did.
    pub(super) fn push(&mut self, message: StoredMessage, limits: &CoreLimits) -> bool {
        let bytes = message.payload.len() + MESSAGE_OVERHEAD_BYTES;
        let fits = self.by_sequence.len() < limits.buffered_max && self.bytes + bytes <= limits.buffered_bytes_max;
        if fits && self.by_sequence.insert(message.sequence, message).is_none() {
            self.bytes += bytes;
        }
        fits
    }

    pub(super) fn contains(&self, sequence: u64) -> bool {
        self.by_sequence.contains_key(&sequence)
    }

    /// The sequences that the stream had in front of them, and that are not among them.
    pub(super) fn predecessors(&self) -> impl Iterator<Item = u64> + '_ {
        self.by_sequence.values().map(|message| message.last_sequence).filter(|sequence| !self.contains(*sequence))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// In the order of their sequences.
    pub(super) fn into_messages(self) -> impl Iterator<Item = StoredMessage> {
        self.by_sequence.into_values()
    }
}

/// The state of a channel relative to its stream.
///
/// ```text
///               SyncBegan                HeadRead            Arrived, FoundMissing
///   Attaching ───────────► Attaching ──────────────► Current ──────────────────────► Gap
///    (queued)               (in a sync)                      ◄──────────────────────
///                                                                    GapRead
/// ```
///
/// In each state, the engine follows the channel or it lingers ([`Following`]), because subscribers come and go
/// independently of messages. A channel of which something is lost is detached in any state. A gap is always being read:
/// the read begins with it, and only the detached channel loses it.
#[derive(Debug)]
enum ChannelState {
    /// The newest message is not known yet.
    Attaching(Attaching),
    /// The chain holds: each message after the position arrives, or its successor shows that it is missing.
    Current,
    /// Messages after the position are missing. The stream is read up to the end of the gap.
    Gap(Box<Gap>),
}

/// What waits for the newest message of a channel.
#[derive(Debug, Default)]
pub(super) struct Attaching {
    /// The sync whose fence covers the channel's subscription; `None` until one begins.
    sync: Option<u64>,
    /// Live messages.
    pub(super) buffered: BufferedMessages,
    pub(super) loads: Vec<WaitingLoad>,
}

/// A gap in the chain.
#[derive(Debug)]
pub(super) struct Gap {
    /// The highest sequence that must be present to close the gap.
    pub(super) through: u64,
    /// Messages that arrived during the gap.
    pub(super) buffered: BufferedMessages,
    /// When the gap was found, or the connections came back.
    pub(super) since_us: u64,
}

/// Who needs a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Following {
    /// The engine follows it.
    Followed,
    /// The engine does not follow it, or no longer. It is detached at this time.
    Lingering { until_us: u64 },
}

/// What happens to a channel.
#[derive(Debug)]
pub(super) enum ChannelEvent<'a> {
    /// A sync covers its subscription.
    SyncBegan { sync: u64 },
    /// The newest message that the stream had when it stored the fence of the sync.
    HeadRead { head: Option<&'a StoredMessage>, fence: u64 },
    /// A message was republished.
    Arrived(StoredMessage),
    /// The stream has a message that has not arrived.
    FoundMissing { through: u64 },
    /// The messages of the gap were read and delivered, as far as they were missing.
    GapRead,
    /// All positions have become invalid.
    EpochBegan,
}

/// What must be done about an event.
#[derive(Debug)]
pub(super) enum ChannelAction {
    Nothing,
    /// There is no such transition.
    Impossible,
    /// The message was known already.
    CountLate,
    /// The message is the next one of the chain.
    Deliver(StoredMessage),
    /// The stream has lost its end.
    Truncated {
        partition: PartitionId,
    },
    /// The stream has lost a message in its middle.
    Hole {
        partition: PartitionId,
    },
    /// A gap has begun.
    ReadGap,
    /// The channel is attached: what has waited for it goes on.
    Resume(Attaching),
    /// The gap is closed: these messages arrived behind it.
    Replay(BufferedMessages),
}

/// What the newest message of an attached channel in the stream shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Nothing is missing that is not known to be.
    Same,
    /// Messages up to `through` have not arrived. If a later one might still show it, it is no lost tail.
    Missing { through: u64, is_lost_tail: bool },
}

/// What a channel knows about the world when it handles an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChannelContext<'a> {
    pub(super) now: Now,
    pub(super) stream: &'a KnownStream,
    pub(super) limits: &'a CoreLimits,
}

/// The newest known message of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NewestMessage {
    /// 0 for none.
    pub(super) sequence: u64,
    /// The Unix time at which it was stored; 0 if unknown.
    pub(super) time_ms: u64,
    /// When it was last confirmed to be the newest.
    pub(super) confirmed_us: u64,
}

/// A channel that has subscribers on this node, or had some recently.
#[derive(Debug)]
pub(super) struct FollowedChannel {
    pub(super) shard: ShardIndex,
    pub(super) partition: PartitionId,
    pub(super) following: Following,
    state: ChannelState,
    /// All messages up to this sequence are handled: delivered, or known not to need delivery.
    pub(super) position: u64,
    pub(super) newest: NewestMessage,
    /// The messages that this node's next message names.
    pub(super) unnamed: Unnamed,
    pub(super) attached_us: u64,
    pub(super) window: Window,
    /// The next load opens the channel: it needs only the newest publication.
    pub(super) opens: bool,
    pub(super) outbox: Outbox,
    /// Loads after positions that this node has not reached.
    pub(super) ahead: AheadLoads,
}

impl Following {
    /// When it is detached, if it lingers.
    pub(super) const fn lingers_until_us(self) -> Option<u64> {
        match self {
            Self::Followed => None,
            Self::Lingering { until_us } => Some(until_us),
        }
    }
}

impl Gap {
    /// Adds a message that arrived during the gap.
    fn push(&mut self, message: StoredMessage, limits: &CoreLimits) {
        if !self.buffered.contains(message.last_sequence) {
            self.through = self.through.max(message.last_sequence);
        }
        self.push_behind(message, limits);
    }

    /// Adds a message whose predecessor is in the gap. One that does not fit is read with the gap.
    fn push_behind(&mut self, message: StoredMessage, limits: &CoreLimits) {
        let sequence = message.sequence;
        if !self.buffered.push(message, limits) {
            self.through = self.through.max(sequence);
        }
    }
}

impl FollowedChannel {
    pub(super) fn new(shard: ShardIndex, partition: PartitionId) -> Self {
        Self {
            shard,
            partition,
            following: Following::Followed,
            state: ChannelState::Attaching(Attaching::default()),
            position: 0,
            newest: NewestMessage::default(),
            unnamed: Unnamed::default(),
            attached_us: 0,
            window: Window::default(),
            opens: true,
            outbox: Outbox::default(),
            ahead: AheadLoads::default(),
        }
    }

    /// Handles an event. All transitions are here.
    pub(super) fn on(&mut self, event: ChannelEvent<'_>, context: &ChannelContext<'_>) -> ChannelAction {
        match (&mut self.state, event) {
            (ChannelState::Attaching(attaching), ChannelEvent::SyncBegan { sync }) => attaching.sync = Some(sync),
            (ChannelState::Attaching(attaching), ChannelEvent::HeadRead { head, fence }) => {
                let waiting = std::mem::take(attaching);
                self.state = ChannelState::Current;
                self.start(head, fence, context);
                return ChannelAction::Resume(waiting);
            }
            (ChannelState::Attaching(attaching), ChannelEvent::Arrived(message)) => {
                // Of one that does not fit, the next message shows that it is missing.
                attaching.buffered.push(message, context.limits);
            }
            // They may be messages that the stream has lost.
            (ChannelState::Attaching(attaching), ChannelEvent::EpochBegan) => attaching.buffered.clear(),
            (ChannelState::Current | ChannelState::Gap(_), ChannelEvent::Arrived(message))
                if message.sequence <= self.position =>
            {
                return ChannelAction::CountLate;
            }
            (ChannelState::Current, ChannelEvent::Arrived(message)) => return self.on_next(message, context),
            (ChannelState::Current, ChannelEvent::FoundMissing { through }) => {
                let buffered = BufferedMessages::default();
                let gap = Gap { through, buffered, since_us: context.now.mono_us };
                self.state = ChannelState::Gap(Box::new(gap));
                return ChannelAction::ReadGap;
            }
            (ChannelState::Gap(gap), ChannelEvent::Arrived(message)) => gap.push(message, context.limits),
            // The read in flight goes on to the new end.
            (ChannelState::Gap(gap), ChannelEvent::FoundMissing { through }) => gap.through = gap.through.max(through),
            (ChannelState::Gap(gap), ChannelEvent::GapRead) => {
                self.position = self.position.max(gap.through);
                let buffered = std::mem::take(&mut gap.buffered);
                self.state = ChannelState::Current;
                return ChannelAction::Replay(buffered);
            }
            // Of these, none can occur: a sync attaches what waited for it, and compares what is attached; channels with a
            // position are interrupted before an epoch begins; nothing is known to be missing before the newest message
            // is known; and only a gap is read.
            (
                state @ (ChannelState::Current | ChannelState::Gap(_)),
                ChannelEvent::SyncBegan { .. } | ChannelEvent::HeadRead { .. } | ChannelEvent::EpochBegan,
            )
            | (state @ ChannelState::Attaching(_), ChannelEvent::FoundMissing { .. })
            | (state @ (ChannelState::Attaching(_) | ChannelState::Current), ChannelEvent::GapRead) => {
                debug_assert!(false, "there is no such transition from {state:?}");
                return ChannelAction::Impossible;
            }
        }
        ChannelAction::Nothing
    }

    /// The newest message is known: the position is behind it.
    fn start(&mut self, head: Option<&StoredMessage>, fence: u64, context: &ChannelContext<'_>) {
        let now_us = context.now.mono_us;
        (self.attached_us, self.newest.confirmed_us) = (now_us, now_us);
        if let Some(head) = head {
            self.window = Window::starting_at(head.sequence - 1);
            self.advance(head, now_us, WindowLimits { entries_max: 1, ..context.stream.window_limits() });
        } else {
            self.window = Window::starting_at(fence);
            self.position = fence;
        }
    }

    /// Applies the rule of the chain to a message after the position.
    fn on_next(&mut self, message: StoredMessage, context: &ChannelContext<'_>) -> ChannelAction {
        let age_max_ms = context.stream.age_max_ms();
        if self.is_lost_before(&message, context.now.unix_ms, age_max_ms) {
            return ChannelAction::Truncated { partition: self.partition };
        }
        if self.has_gone_before(&message, context.stream.current_epoch()) {
            return ChannelAction::Hole { partition: self.partition };
        }
        if self.is_next(&message, context.now.mono_us, age_max_ms) {
            return ChannelAction::Deliver(message);
        }
        // The predecessor is missing. If it has expired by age, others may have expired with it.
        let through = message.last_sequence.max(self.newest.sequence + 1).min(message.sequence - 1);
        let mut gap = Gap { through, buffered: BufferedMessages::default(), since_us: context.now.mono_us };
        gap.push_behind(message, context.limits);
        self.state = ChannelState::Gap(Box::new(gap));
        ChannelAction::ReadGap
    }

    pub(super) fn is_attached(&self) -> bool {
        !matches!(self.state, ChannelState::Attaching(_))
    }

    /// Whether this sync attaches it. One that was detached and is followed again has a new subscription, which the fence of
    /// an earlier sync does not cover.
    pub(super) fn is_attached_by(&self, sync: u64) -> bool {
        matches!(&self.state, ChannelState::Attaching(attaching) if attaching.sync == Some(sync))
    }

    /// What waits until it is attached.
    pub(super) const fn attaching_mut(&mut self) -> Option<&mut Attaching> {
        match &mut self.state {
            ChannelState::Attaching(attaching) => Some(attaching),
            ChannelState::Current | ChannelState::Gap(_) => None,
        }
    }

    pub(super) fn gap(&self) -> Option<&Gap> {
        match &self.state {
            ChannelState::Gap(gap) => Some(gap),
            ChannelState::Attaching(_) | ChannelState::Current => None,
        }
    }

    pub(super) fn gap_mut(&mut self) -> Option<&mut Gap> {
        match &mut self.state {
            ChannelState::Gap(gap) => Some(gap),
            ChannelState::Attaching(_) | ChannelState::Current => None,
        }
    }

    pub(super) fn is_followed(&self) -> bool {
        self.following == Following::Followed
    }

    /// Whether the window has all messages stored after a position.
    pub(super) fn has_in_window(&self, after: u64) -> bool {
        after >= self.window.floor() && (self.window.len() > 0 || self.newest.sequence == 0)
    }

    /// The number of the newest publications in the window that a page for this query has, and whether they reach one of
    /// its limits.
    pub(super) fn newest_in_window(&self, query: LoadQuery) -> (usize, bool) {
        let (mut publications, mut bytes) = (0, 0);
        for entry in self.window.below(query.below).rev() {
            (publications, bytes) = (publications + 1, bytes + entry.record.kept_bytes());
            if publications >= query.publications_max || bytes >= query.bytes_max {
                return (publications, true);
            }
        }
        (publications, false)
    }

    /// Whether the window answers a load.
    pub(super) fn answers_from_window(&mut self, query: LoadQuery) -> bool {
        let Some(after) = query.after else {
            let opens = std::mem::take(&mut self.opens);
            let (publications, is_full) = self.newest_in_window(query);
            return publications > 0 && (opens || is_full);
        };
        self.has_in_window(after)
    }

    /// Takes the loads that are due by then. All of them are due by `u64::MAX`.
    pub(super) fn take_due_loads(&mut self, now_us: u64) -> Vec<WaitingLoad> {
        let mut due: Vec<WaitingLoad> = self.ahead.take_due(now_us).collect();
        // It may be attached by now.
        if let Some(attaching) = self.attaching_mut() {
            due.extend(attaching.loads.extract_if(.., |waiting| waiting.due_us <= now_us));
        }
        due
    }

    /// Whether a republished message shows that the stream has lost the newest known one: its predecessor is older, and
    /// the newest known one cannot have expired by age yet.
    pub(super) fn is_lost_before(&self, message: &StoredMessage, unix_ms: u64, age_max_ms: Option<u64>) -> bool {
        let kept_until_ms = age_max_ms.map_or(u64::MAX, |age_ms| self.newest.time_ms.saturating_add(age_ms));
        let is_kept = self.newest.time_ms > 0 && unix_ms.saturating_add(CLOCK_MARGIN_MS) < kept_until_ms;
        message.last_sequence < self.newest.sequence && is_kept
    }

    /// Compares its newest message with the one that the stream had when it stored the fence: everything up to the fence
    /// is at or below that one.
    pub(super) fn compare(&mut self, head: Option<&StoredMessage>, fence: u64, context: &Context) -> Comparison {
        // A head after the fence may still be in flight, and it hides whether a message at or below the fence was lost.
        // That must be known before a client that is ahead can be answered.
        let is_hidden = self.position < fence && head.is_some_and(|head| head.sequence > fence);
        let limit = if is_hidden && !self.ahead.is_empty() { u64::MAX } else { fence };
        let is_missing = |head: &&StoredMessage| head.sequence > self.position && head.sequence <= limit;
        let missing = head.filter(is_missing);
        let is_sure = self.gap().is_none() && !is_hidden;
        if let Some(head) = missing {
            return Comparison::Missing { through: head.sequence, is_lost_tail: is_sure };
        }
        if is_sure {
            self.newest.confirmed_us = context.now.mono_us;
            // The message has expired by age.
            if head.is_none() && self.newest.sequence < fence {
                self.newest.sequence = 0;
            }
        }
        Comparison::Same
    }

    /// Whether the stream has lost a message between the position and a republished message: one that the publisher had
    /// seen, or that was acknowledged to this node.
    fn has_gone_before(&self, message: &StoredMessage, epoch: &str) -> bool {
        let after = self.position.max(message.last_sequence);
        let acknowledged = self.outbox.acknowledged.range(after + 1..).next();
        acknowledged.is_some_and(|(sequence, _)| *sequence < message.sequence)
            || holes::named_in(message, epoch).any(|sequence| sequence > after)
    }

    /// Whether the stream has a message that this node took for absent: it is at or below the position, above the newest
    /// known one, and too young to have expired on any replica.
    pub(super) fn has_overlooked(&self, message: &StoredMessage, unix_ms: u64, age_max_ms: Option<u64>) -> bool {
        let is_handled = message.sequence > self.newest.sequence && message.sequence <= self.position;
        let kept_until_ms =
            message.time_ms.saturating_add(age_max_ms.unwrap_or(u64::MAX)).saturating_sub(CLOCK_MARGIN_MS);
        is_handled && message.time_ms > 0 && unix_ms < kept_until_ms
    }

    /// Whether the newest message that was read shows that the stream has lost the newest known one. The answer contains
    /// all messages up to `fence`.
    pub(super) fn is_truncated_before(
        &self,
        head: Option<&StoredMessage>,
        fence: u64,
        unix_ms: u64,
        age_max_ms: Option<u64>,
    ) -> bool {
        let NewestMessage { sequence: newest, time_ms: newest_ms, .. } = self.newest;
        if newest == 0 || newest > fence {
            return false;
        }
        let Some(head) = head else {
            let kept_until_ms =
                newest_ms.saturating_add(age_max_ms.unwrap_or(u64::MAX)).saturating_sub(CLOCK_MARGIN_MS);
            return newest_ms > 0 && unix_ms < kept_until_ms;
        };
        let is_other = head.sequence == newest && head.time_ms != newest_ms && head.time_ms.min(newest_ms) > 0;
        head.sequence < newest || is_other
    }

    /// Whether a republished message follows the newest known one. If not, messages are missing.
    pub(super) fn is_next(&self, message: &StoredMessage, now_us: u64, age_max_ms: Option<u64>) -> bool {
        if message.last_sequence == self.newest.sequence {
            return true;
        }
        // The stream has expired the newest message by age. If that was long ago, it may also have expired others that
        // this node has missed.
        let confirmed_lately = age_max_ms.is_none_or(|age| now_us < self.newest.confirmed_us.saturating_add(age * 500));
        message.last_sequence < self.newest.sequence && confirmed_lately
    }

    /// Applies the next message of the chain; returns the publication, if it is one.
    pub(super) fn advance(&mut self, message: &StoredMessage, now_us: u64, limits: WindowLimits) -> Advanced {
        self.position = message.sequence;
        let (sequence, time_ms) = (message.sequence, message.time_ms);
        self.newest = NewestMessage { sequence, time_ms, confirmed_us: now_us };
        self.unnamed.push(message);
        if let Some(through) = record::purged_through(message) {
            self.window.clear(message.sequence);
            return Advanced::Purged { through };
        }
        let record = record::decode(message);
        self.window.push(WindowEntry { time_ms: message.time_ms, record: record.clone() }, limits);
        Advanced::Published(Box::new(record))
    }
}

/// The next message in a channel's chain.
#[derive(Debug)]
pub(super) enum Advanced {
    Published(Box<LogRecord>),
    /// Publications up to this sequence are gone.
    Purged {
        through: u64,
    },
}

#[cfg(test)]
mod tests;
