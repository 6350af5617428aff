//! A followed channel: its position in the chain, and a window of its newest publications.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dunlin_engine::{
    ShardIndex,
    log::{LoadNumber, LoadQuery, LogError, LogPage, LogRecord},
};

use crate::{link::StoredMessage, names::PartitionId, record};

use super::{
    CoreEffect, CoreLimits,
    holes::Unnamed,
    peer_keys::KeyKnowledge,
    publish::PublishingKey,
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
        CoreEffect::Loaded { shard: self.shard, channel: Arc::clone(name), load: self.load, outcome }
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

/// A gap in the chain.
#[derive(Debug)]
pub(super) struct Gap {
    /// The highest sequence that must be present to close the gap.
    pub(super) through: u64,
    /// Messages that arrived during the gap.
    pub(super) buffered: BufferedMessages,
    /// When the gap was found, or the connections came back.
    pub(super) since_us: u64,
    pub(super) is_reading: bool,
}

/// The state of a channel relative to its stream.
#[derive(Debug)]
pub(super) enum ChannelState {
    /// The newest message is not known yet. Live messages are buffered.
    Attaching { buffered: BufferedMessages },
    /// The chain holds.
    Attached,
}

/// A channel that has subscribers on this node, or had some recently.
#[derive(Debug)]
pub(super) struct FollowedChannel {
    pub(super) shard: ShardIndex,
    pub(super) partition: PartitionId,
    pub(super) state: ChannelState,
    /// Whether the engine follows it. Otherwise it lingers.
    pub(super) is_followed: bool,
    /// When it is detached.
    pub(super) lingers_until_us: u64,
    /// All messages up to this sequence are handled: delivered, or known not to need delivery.
    pub(super) position: u64,
    /// The sequence of the channel's newest known message; 0 for none.
    pub(super) newest: u64,
    /// The Unix time at which it was stored; 0 if unknown.
    pub(super) newest_ms: u64,
    /// The messages that this node's next message names.
    pub(super) unnamed: Unnamed,
    pub(super) attached_us: u64,
    /// When the newest known message was last confirmed to be the newest.
    pub(super) confirmed_us: u64,
    pub(super) window: Window,
    /// The bytes of the window that the node's total includes.
    pub(super) counted_window_bytes: usize,
    pub(super) gap: Option<Box<Gap>>,
    /// The next load opens the channel: it needs only the newest publication.
    pub(super) opens: bool,
    pub(super) waiting_loads: Vec<WaitingLoad>,
    /// The number of the attach that the channel is part of.
    pub(super) attach: u64,
    pub(super) outbox: Outbox,
    pub(super) keys: KeyKnowledge,
    /// Whether it is in the queue of channels that wait for space in the publish window.
    pub(super) is_waiting: bool,
    /// Messages whose sequence is known and that have not come back yet, by sequence.
    pub(super) acknowledged: BTreeMap<u64, PublishingKey>,
}

/// This node's messages to a channel, in the order of proposal.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Messages that are not committed.
    pub(super) unresolved: BTreeSet<PublishingKey>,
    /// Messages to be sent.
    pub(super) unsent: BTreeSet<PublishingKey>,
    /// Messages to be sent again after a pause.
    pub(super) paused: BTreeSet<PublishingKey>,
    /// A message that depends on the newest one is sent alone, and so is a probe.
    pub(super) alone: Option<PublishingKey>,
    /// The stream has refused a message. Until it accepts one again, only one message is in flight: if the first were
    /// refused again and another one accepted, their order would change.
    pub(super) probes: bool,
}

impl Outbox {
    pub(super) fn push(&mut self, key: PublishingKey) {
        self.unresolved.insert(key);
        self.unsent.insert(key);
    }

    pub(super) fn remove(&mut self, key: PublishingKey) {
        self.unresolved.remove(&key);
        self.unsent.remove(&key);
        self.paused.remove(&key);
        self.alone.take_if(|alone| *alone == key);
    }

    /// The stream has stored a message. After a probe, the messages behind it may be sent.
    pub(super) fn mark_stored(&mut self, key: PublishingKey, is_unconditional: bool) {
        self.unsent.remove(&key);
        self.paused.remove(&key);
        if self.alone == Some(key) {
            self.probes = false;
            self.alone.take_if(|_| is_unconditional);
        }
    }

    /// The message to send next, if any. Messages behind a paused one wait.
    pub(super) fn next(&self) -> Option<PublishingKey> {
        let next = *self.unsent.first()?;
        let is_held = self.alone.is_some() || self.paused.first().is_some_and(|paused| *paused < next);
        (!is_held).then_some(next)
    }

    /// Whether all earlier proposals are committed.
    pub(super) fn is_first(&self, key: PublishingKey) -> bool {
        self.unresolved.first() == Some(&key)
    }
}

impl FollowedChannel {
    pub(super) fn new(shard: ShardIndex, partition: PartitionId) -> Self {
        Self {
            shard,
            partition,
            state: ChannelState::Attaching { buffered: BufferedMessages::default() },
            is_followed: true,
            lingers_until_us: u64::MAX,
            position: 0,
            newest: 0,
            newest_ms: 0,
            unnamed: Unnamed::default(),
            attached_us: 0,
            confirmed_us: 0,
            window: Window::default(),
            counted_window_bytes: 0,
            gap: None,
            opens: true,
            waiting_loads: Vec::new(),
            attach: 0,
            outbox: Outbox::default(),
            keys: KeyKnowledge::Since { mono_us: u64::MAX },
            is_waiting: false,
            acknowledged: BTreeMap::new(),
        }
    }

    pub(super) fn is_attached(&self) -> bool {
        matches!(self.state, ChannelState::Attached)
    }

    /// Whether the window has all messages stored after a position.
    pub(super) fn has_in_window(&self, after: u64) -> bool {
        after >= self.window.floor() && (self.window.len() > 0 || self.newest == 0)
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

    /// Whether a republished message shows that the stream has lost the newest known one: its predecessor is older, and
    /// the newest known one cannot have expired by age yet.
    pub(super) fn is_lost_before(&self, message: &StoredMessage, unix_ms: u64, age_max_ms: Option<u64>) -> bool {
        let kept_until_ms = age_max_ms.map_or(u64::MAX, |age_ms| self.newest_ms.saturating_add(age_ms));
        let is_kept = self.newest_ms > 0 && unix_ms.saturating_add(CLOCK_MARGIN_MS) < kept_until_ms;
        message.last_sequence < self.newest && is_kept
    }

    /// Whether a republished message follows the newest known one. If not, messages are missing.
    pub(super) fn is_next(&self, message: &StoredMessage, now_us: u64, age_max_ms: Option<u64>) -> bool {
        if message.last_sequence == self.newest {
            return true;
        }
        // The stream has expired the newest message by age. If that was long ago, it may also have expired others that
        // this node has missed.
        let confirmed_lately = age_max_ms.is_none_or(|age| now_us < self.confirmed_us.saturating_add(age * 500));
        message.last_sequence < self.newest && confirmed_lately
    }

    /// Applies the next message of the chain; returns the publication, if it is one.
    pub(super) fn advance(&mut self, message: &StoredMessage, now_us: u64, limits: WindowLimits) -> Advanced {
        self.position = message.sequence;
        self.newest = message.sequence;
        self.newest_ms = message.time_ms;
        self.confirmed_us = now_us;
        self.unnamed.push(message);
        if let Some(through) = record::purged_through(message) {
            self.window.clear(message.sequence);
            return Advanced::Purged { through };
        }
        let record = record::decode(message);
        self.window.push(WindowEntry { time_ms: message.time_ms, record: record.clone() }, limits);
        Advanced::Published(Box::new(record))
    }

    /// Takes the publications of this node that have come back.
    pub(super) fn take_returned(&mut self) -> Vec<(u64, PublishingKey)> {
        let later = self.acknowledged.split_off(&(self.position + 1));
        std::mem::replace(&mut self.acknowledged, later).into_iter().collect()
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
