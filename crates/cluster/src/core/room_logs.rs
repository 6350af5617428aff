//! The logs of rooms: what a room needs to continue on another node when its own node stops or dies.
//!
//! The log of a room is one subject of one stream. Each message is stored on the condition that its predecessor in the
//! log is still the newest (compare-and-set), and a node has one message of a room in flight. So a log is a chain that
//! one node writes at a time:
//!
//! - *Claim*: a node that opens a room reads the newest message of its log, and stores a claim behind it. Of several nodes
//!   that do, one succeeds. The holder before is *fenced*: its next message expects a predecessor that is no longer the
//!   newest, so the stream refuses it, and this node ends the room.
//! - *Read*: after its claim is stored, the node reads the log up to the claim. A replica that does not have the claim yet
//!   may lack messages before it, and is asked again.
//! - *Records* have the steps of ticks. Those that arrive while a message is in flight share the next one.
//! - *Checkpoints* are written in parts, with records between them. One counts when its last part is stored; then
//!   everything before it is purged.
//! - *End*: a node that stops releases its rooms. A room that has ended leaves a mark, and the log is purged up to it.
//! - *Refusal*: a node that cannot run a room, because its game is of another version, says so when it releases the room.
//!   Then another node opens it.
//!
//! A node does not claim a room whose holder has its lease ([`super::leases`]): the room runs there, although its node did not
//! say so. A node that is paused for longer than its lease cannot know that another one has claimed its rooms. With records,
//! it shows nothing of a tick before the stream has stored it. Without, it checks all logs when it learns that it has lost
//! its lease.
//!
//! Why one message in flight, and no pipeline: of a pipeline, a fence stops one message, and the stream stores those
//! behind it. With one, the chain is the whole argument.

mod loading;
mod record;
mod refusals;
mod rendezvous;
#[cfg(test)]
mod tests;
mod writes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use bytes::Bytes;

use crate::link::{
    LinkEffect, LinkName, PublishAck, PublishFault, ReadAnswer, ReadFault, RequestNumber, StoredMessage,
};

use super::{
    Context, CoreEffect, Requester, Timer,
    leases::Leases,
    stream_standing::{StreamKey, StreamWatch},
};

use loading::{Loaded, Loading};
use record::{LogMark, LogMessage, MessageKind};
use refusals::Refusals;
use writes::Writes;

pub use record::RoomLogNames;

/// A room's log on this node, from its claim to its end. No other log of this process has the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoomLogNumber(pub u64);

/// A request about a room's log.
#[derive(Debug)]
pub enum RoomLogEvent {
    /// Claim and read the log of a room. Answered with [`RoomLogEffect::Opened`].
    Open {
        /// The number of the log.
        log: RoomLogNumber,
        /// The room's channel. This node has no other log of it that has not ended.
        channel: Arc<str>,
    },
    /// Store the steps of a tick. Answered with [`RoomLogEffect::Recorded`].
    Record {
        /// The log.
        log: RoomLogNumber,
        /// The number of ticks up to and including this one.
        tick: u64,
        /// The steps.
        bytes: Bytes,
    },
    /// Store a checkpoint, after which older ones and records up to its tick are no longer needed. Answered with
    /// [`RoomLogEffect::CheckpointStored`], unless a newer one replaces it before its first part is sent.
    Checkpoint {
        /// The log.
        log: RoomLogNumber,
        /// The number of ticks in it.
        tick: u64,
        /// The checkpoint.
        bytes: Bytes,
        /// Whether records wait for it, because they are worth nothing behind the checkpoint before.
        goes_first: bool,
    },
    /// This node cannot run the room whose log it has read. [`Self::End`] follows, and other nodes open the room.
    Refuse {
        /// The log.
        log: RoomLogNumber,
    },
    /// Store what waits, and end the log. Answered with [`RoomLogEffect::Ended`]. Right behind [`Self::Open`], it gives a
    /// room up without a look at its log; then a [`RoomLogEffect::Opened`] says why it cannot.
    End {
        /// The log.
        log: RoomLogNumber,
        /// Whether the room continues later.
        keeps: bool,
    },
    /// Find the rooms whose holder has no lease. Answered with [`RoomLogEffect::Orphans`].
    FindOrphans,
}

/// An answer about a room's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoomLogEffect {
    /// Answer to [`RoomLogEvent::Open`].
    Opened {
        /// The log.
        log: RoomLogNumber,
        /// What it has; after an error, it has ended.
        outcome: Result<KeptRoom, RoomLogFault>,
    },
    /// The records up to this tick are stored.
    Recorded {
        /// The log.
        log: RoomLogNumber,
        /// The number of ticks.
        tick: u64,
    },
    /// A checkpoint is stored.
    CheckpointStored {
        /// The log.
        log: RoomLogNumber,
        /// Its size.
        bytes: usize,
    },
    /// The log has ended, because this node may not write it any more, or cannot. The room must end. A log that cannot be
    /// written is released, and [`Self::Ended`] follows.
    Lost {
        /// The log.
        log: RoomLogNumber,
        /// Why.
        why: RoomLogFault,
    },
    /// Answer to [`RoomLogEvent::End`].
    Ended {
        /// The log.
        log: RoomLogNumber,
    },
    /// Answer to [`RoomLogEvent::FindOrphans`], and what this node finds when it has taken the lease of another one.
    Orphans {
        /// The channels of rooms that no node holds and that continue.
        channels: Vec<Box<str>>,
    },
}

/// What is stored of a room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptRoom {
    /// The newest checkpoint and the number of ticks in it; `None` for a new room.
    pub checkpoint: Option<(u64, Bytes)>,
    /// The steps of the ticks after it: the number of ticks, and the record.
    pub records: Vec<(u64, Bytes)>,
}

/// Why a room's log cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoomLogFault {
    /// Another node holds the room, and has its lease.
    Held {
        /// The node.
        by: Box<str>,
    },
    /// Another node has claimed the room.
    Taken {
        /// The node.
        by: Box<str>,
    },
    /// The stream has no message of the room any more.
    Gone,
    /// The stream has not answered in time.
    Unanswered,
    /// A message of the log is missing or damaged.
    Damaged {
        /// The fault.
        what: &'static str,
    },
    /// The servers take no message of this size.
    TooLarge {
        /// The bytes of one record.
        bytes: usize,
        /// `max_payload` of the servers.
        max: usize,
    },
    /// More waits for the stream than the node holds.
    QueueFull {
        /// Maximum bytes of records that wait.
        max: usize,
    },
    /// The log is larger than a node reads.
    LogTooLarge {
        /// Maximum bytes of a log.
        max: usize,
    },
}

impl fmt::Display for RoomLogFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { by } => write!(f, "the node {by} has the room"),
            Self::Taken { by } => {
                write!(f, "the node {by} has taken the room over, because this one did not renew its lease")
            }
            Self::Gone => f.write_str("the log of the room is gone from the stream"),
            Self::Unanswered => f.write_str("the stream of the rooms' logs has not answered in time"),
            Self::Damaged { what } => write!(f, "the log of the room is damaged: {what}"),
            Self::TooLarge { bytes, max } => write!(
                f,
                "the log record of a tick has {bytes} bytes, and the NATS servers take messages of {max}: raise their \
                 `max_payload`"
            ),
            Self::QueueFull { max } => {
                write!(f, "more than {max} bytes of inputs wait until NATS stores them: lower `held_ticks_limit`")
            }
            Self::LogTooLarge { max } => {
                write!(
                    f,
                    "the log of the room has more than {max} bytes: give the room up with `room_close` of the API"
                )
            }
        }
    }
}

/// Counters of the logs of rooms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomLogCounters {
    /// Logs that this node writes (gauge).
    pub held: u64,
    /// Logs that this node has claimed after another node.
    pub taken: u64,
    /// Logs that another node has taken from this one.
    pub lost: u64,
    /// Messages stored.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages that were sent again.
    pub retries: u64,
    /// Searches for rooms without a holder that NATS refused, because there are too many logs.
    pub lists_refused: u64,
}

/// How often a node looks again for rooms that other nodes were to open, and the pause before: they may be unable to.
const LOOKS_AGAIN_MAX: u8 = 3;
const LOOK_AGAIN_MS: u64 = 5_000;
/// Maximum time that the claim of a log takes. A client that joins waits for it.
const OPEN_TIMEOUT_MS: u64 = 5_000;
/// Pause before a message, or a read that told nothing, is tried again. Elections take longer than one.
const RETRY_US: u64 = 100_000;
/// How long a replica may lag behind the stream's leader.
const DOUBT_TIMEOUT_MS: u64 = 5_000;
/// How long a node that leaves tries to store what its rooms have queued.
const DEPART_TIMEOUT_MS: u64 = 5_000;
/// Messages of one read of a log. A message has at most 256 KiB.
const PAGE_MESSAGES: usize = 128;

/// How far a log is.
#[derive(Debug)]
enum Phase {
    /// Its newest message is read: it says who holds the room.
    Reading,
    /// It is read up to the claim.
    Loading(Loading),
    /// This node holds the room.
    Held,
    /// A message is stored: the claim, or one of the room.
    Storing(LogMessage),
    /// The stream has refused a message: the newest one is read, which may be a copy of it. At this time, the stream is
    /// taken for one without the log.
    Doubting { sent: LogMessage, until_us: u64 },
}

/// The log of a room of this node.
#[derive(Debug)]
struct RoomLog {
    subject: Box<str>,
    /// The sequence of its newest known message; 0 for none.
    newest: u64,
    phase: Phase,
    /// The request that waits for its answer.
    asked: Option<RequestNumber>,
    /// When the phase's request is sent again.
    retry_us: u64,
    /// When [`RoomLogEvent::Open`] is answered in any case; `None` afterwards.
    open_until_us: Option<u64>,
    writes: Writes,
    /// The nodes that cannot run the room, since it has run anywhere.
    refused_by: BTreeSet<Box<str>>,
}

/// The search for rooms that no node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Idle,
    /// The newest messages of all logs are read.
    Asked,
    Due {
        at_us: u64,
    },
}

/// The logs of the rooms of this node.
#[derive(Debug)]
pub(super) struct RoomLogs {
    names: RoomLogNames,
    pub(super) watch: StreamWatch,
    is_used: bool,
    logs: BTreeMap<RoomLogNumber, RoomLog>,
    finding: Finding,
    refusals: Refusals,
    /// How often this node looks again, unless it is asked to.
    looks_left: u8,
    /// When this node leaves, even if its logs have not ended.
    depart_until_us: Option<u64>,
    counters: RoomLogCounters,
}

impl RoomLogs {
    pub(super) fn new(prefix: &str, is_used: bool) -> Self {
        let names = RoomLogNames::new(prefix);
        Self {
            watch: StreamWatch::new(StreamKey::RoomLogs, &names.stream),
            names,
            is_used,
            logs: BTreeMap::new(),
            finding: Finding::Idle,
            refusals: Refusals::default(),
            looks_left: 0,
            depart_until_us: None,
            counters: RoomLogCounters::default(),
        }
    }

    /// Whether this node uses the stream of the logs.
    pub(super) const fn has_stream(&self) -> bool {
        self.is_used
    }

    pub(super) fn counters(&self) -> RoomLogCounters {
        RoomLogCounters { held: self.logs.len() as u64, ..self.counters }
    }

    /// This node leaves the cluster when its logs have ended, or the time for it is over.
    pub(super) fn depart(&mut self, context: &mut Context) {
        let until_us = context.now.after_ms(DEPART_TIMEOUT_MS);
        self.depart_until_us = Some(until_us);
        context.set_timer(until_us, Timer::RoomLogs);
    }

    /// Whether a node that leaves waits for its logs.
    pub(super) fn is_ending(&self, now_us: u64) -> bool {
        !self.logs.is_empty() && self.depart_until_us.is_none_or(|until_us| now_us < until_us)
    }

    pub(super) fn handle(&mut self, context: &mut Context, event: RoomLogEvent) {
        let log = match event {
            RoomLogEvent::FindOrphans => return self.find_orphans(context),
            RoomLogEvent::Open { log, channel } => {
                self.open(context, log, &channel);
                log
            }
            RoomLogEvent::Record { log, tick, bytes } => {
                if let Some(max) = self.push_record(context, log, tick, bytes) {
                    return self.give_up(context, log, RoomLogFault::QueueFull { max });
                }
                log
            }
            RoomLogEvent::Checkpoint { log, tick, bytes, goes_first } => {
                self.write(context, log, |writes| {
                    if goes_first {
                        writes.await_first_checkpoint();
                    }
                    writes.push_checkpoint(tick, bytes);
                });
                log
            }
            RoomLogEvent::Refuse { log } => {
                // A log that was lost is none of this node's.
                if let Some(refused) = self.logs.get_mut(&log) {
                    refused.refused_by.insert(context.options.node.clone());
                }
                return;
            }
            RoomLogEvent::End { log, keeps } => {
                let Some(ending) = self.logs.get_mut(&log) else {
                    // It was lost before.
                    return context.effects.push(CoreEffect::RoomLog(RoomLogEffect::Ended { log }));
                };
                ending.writes.end(keeps);
                // A discard that has claimed nothing ends at the deadline: later, it would end another room.
                if keeps || !matches!(ending.phase, Phase::Reading) {
                    ending.open_until_us = None;
                }
                ending.stop_loading();
                log
            }
        };
        self.advance(context, log);
    }

    fn open(&mut self, context: &mut Context, log: RoomLogNumber, channel: &str) {
        let until_us = context.now.after_ms(OPEN_TIMEOUT_MS);
        context.set_timer(until_us, Timer::RoomLog(log));
        let subject = self.names.subject_of(channel);
        let opened = RoomLog {
            subject,
            newest: 0,
            phase: Phase::Reading,
            asked: None,
            retry_us: 0,
            open_until_us: Some(until_us),
            writes: Writes::default(),
            refused_by: BTreeSet::new(),
        };
        let before = self.logs.insert(log, opened);
        debug_assert!(before.is_none(), "each log has its own number");
    }

    /// What a room queues after its log was lost is dropped: the room is told that it must end.
    fn write(&mut self, context: &mut Context, log: RoomLogNumber, change: impl FnOnce(&mut Writes)) {
        if let Some(log) = context.strays.found_or_late(self.logs.get_mut(&log)) {
            change(&mut log.writes);
        }
    }

    /// Returns the maximum if too many bytes wait.
    fn push_record(&mut self, context: &mut Context, log: RoomLogNumber, tick: u64, bytes: Bytes) -> Option<usize> {
        let log = context.strays.found_or_late(self.logs.get_mut(&log))?;
        (!log.writes.push_record(tick, bytes)).then_some(writes::RECORDS_BYTES_MAX)
    }

    /// This node has lost its lease, so others may have claimed its rooms. An empty message shows it, because the stream
    /// then refuses it.
    pub(super) fn check_all(&mut self, context: &mut Context) {
        let logs: Vec<RoomLogNumber> = self.logs.keys().copied().collect();
        for number in logs {
            self.write(context, number, Writes::push_check);
            self.advance(context, number);
        }
    }

    /// Looks for rooms whose holder has no lease, and some more times for those that other nodes are to open.
    pub(super) fn find_orphans(&mut self, context: &mut Context) {
        self.looks_left = LOOKS_AGAIN_MAX;
        self.look(context);
    }

    fn look(&mut self, context: &mut Context) {
        if !self.is_used || self.finding == Finding::Asked {
            return;
        }
        self.finding = Finding::Asked;
        let request = context.request(Requester::Orphans);
        let (stream, subjects) = (self.names.stream.clone(), vec![self.names.all_subjects()]);
        context.link(LinkEffect::LastOf { request, stream, subjects, floor: None });
    }

    /// The newest messages of all logs were read. NATS refuses to list more than 1,024; such rooms continue with their
    /// next join.
    pub(super) fn orphans_read(
        &mut self,
        context: &mut Context,
        leases: &Leases,
        outcome: Result<ReadAnswer, ReadFault>,
    ) {
        self.finding = Finding::Idle;
        let messages = match outcome {
            Ok(answer) if leases.are_known() && leases.is_held() => answer.messages,
            Err(ReadFault::Refused { .. }) => {
                self.counters.lists_refused += 1;
                return;
            }
            Ok(_) | Err(_) => {
                return self.look_at(context, context.now.mono_us + RETRY_US);
            }
        };
        for message in messages.iter().filter(|message| LogMark::of(message).is_some_and(|mark| mark.is_over)) {
            // The purge behind its end was lost. NATS lists a limited number of logs.
            let (stream, subject) = (self.names.stream.clone(), message.subject.clone());
            context.link(LinkEffect::Purge { stream, subject, below: message.sequence + 1 });
        }
        let own = &context.options.node;
        let is_orphan = |mark: &LogMark| {
            !mark.is_over && (mark.is_released || !leases.is_holder(&mark.node) && *mark.node != **own)
        };
        let open: BTreeSet<&str> = self.logs.values().map(|log| &*log.subject).collect();
        let (mut channels, mut is_left) = (Vec::new(), false);
        for (message, mark) in messages.iter().filter_map(|message| Some((message, LogMark::of(message)?))) {
            let Some(channel) = self.names.channel_of(&message.subject).filter(|_| is_orphan(&mark)) else { continue };
            if open.contains(&*message.subject) {
                // A join has been faster. What comes of it is seen when this node looks again.
                is_left = true;
                continue;
            }
            let has_refused = self.refusals.follows(context.now, message);
            let can = |node: &&str| !(mark.refused_by.contains(*node) || has_refused && **node == **own);
            // All nodes look for them at the same time, and agree about who opens which.
            if can(&&**own) && rendezvous::is_chosen(own, leases.holders().filter(can), &channel) {
                channels.push(channel);
            } else {
                is_left |= leases.holders().any(|node| can(&node));
            }
        }
        context.effects.push(CoreEffect::RoomLog(RoomLogEffect::Orphans { channels }));
        if is_left && let Some(looks_left) = self.looks_left.checked_sub(1) {
            self.looks_left = looks_left;
            self.look_at(context, context.now.after_ms(LOOK_AGAIN_MS));
        }
    }

    fn look_at(&mut self, context: &mut Context, at_us: u64) {
        self.finding = Finding::Due { at_us };
        context.set_timer(at_us, Timer::RoomLogs);
    }

    /// The time has come to look for orphans again, or for this node to leave.
    pub(super) fn on_timer(&mut self, context: &mut Context) {
        if matches!(self.finding, Finding::Due { at_us } if at_us <= context.now.mono_us) {
            self.look(context);
        }
    }

    /// Sends the next request of a log, unless one is in flight. Each log has a timer of its own: while NATS is away, all of
    /// them are due again and again.
    pub(super) fn advance(&mut self, context: &mut Context, number: RoomLogNumber) {
        let Some(log) = self.logs.get_mut(&number) else { return };
        let now_us = context.now.mono_us;
        if log.open_until_us.is_some_and(|until_us| until_us <= now_us) {
            log.open_until_us = None;
            // A claim that may be stored is released.
            log.writes.end(true);
            let damaged = match &log.phase {
                Phase::Loading(loading) => loading.fault().map(|what| RoomLogFault::Damaged { what }),
                _ => None,
            };
            log.stop_loading();
            let outcome = Err(damaged.unwrap_or(RoomLogFault::Unanswered));
            context.effects.push(CoreEffect::RoomLog(RoomLogEffect::Opened { log: number, outcome }));
        }
        if log.open_until_us.is_none() && matches!(log.phase, Phase::Reading) && !log.writes.discards() {
            // Nobody waits for it, and it has claimed nothing.
            return self.end(context, number, RoomLogEffect::Ended { log: number });
        }
        if log.asked.is_some() || now_us < log.retry_us {
            return;
        }
        if let Err(why) = log.step(context, &self.names, number) {
            self.give_up(context, number, why);
        }
    }

    /// The room cannot be stored. It ends here, and another node, or this one later, may continue it.
    fn give_up(&mut self, context: &mut Context, number: RoomLogNumber, why: RoomLogFault) {
        let Some(log) = self.logs.get_mut(&number) else { return };
        let is_told = log.writes.is_given_up();
        // A message in flight keeps its phase: the release follows its answer.
        log.writes.give_up();
        if !is_told {
            self.counters.lost += 1;
            context.effects.push(CoreEffect::RoomLog(RoomLogEffect::Lost { log: number, why }));
        }
        self.advance(context, number);
    }

    fn end(&mut self, context: &mut Context, number: RoomLogNumber, effect: RoomLogEffect) {
        self.logs.remove(&number);
        self.counters.lost += u64::from(matches!(effect, RoomLogEffect::Lost { .. }));
        context.effects.push(CoreEffect::RoomLog(effect));
    }

    /// The stream has answered a message of a log, or there was no answer.
    pub(super) fn acknowledged(
        &mut self,
        context: &mut Context,
        (number, request): (RoomLogNumber, RequestNumber),
        outcome: Result<PublishAck, PublishFault>,
    ) {
        let Some(log) = awaiting(&mut self.logs, context, (number, request)) else { return };
        let sent = match std::mem::replace(&mut log.phase, Phase::Held) {
            Phase::Storing(message) => message,
            other => {
                log.phase = other;
                return context.strays.count_impossible("a message is answered while it is stored");
            }
        };
        match outcome {
            Ok(ack) => self.stored(context, number, &sent, ack.sequence),
            Err(fault) if fault.is_wrong_last_sequence() => {
                log.phase = Phase::Doubting { sent, until_us: context.now.after_ms(DOUBT_TIMEOUT_MS) };
            }
            // The client itself refuses it: the server that it is connected to now takes less.
            Err(PublishFault::Refused { error_code: 0, .. }) if !sent.is_claim() => {
                let (bytes, max) = (sent.payload.len(), context.payload_bytes_max);
                return self.give_up(context, number, RoomLogFault::TooLarge { bytes, max });
            }
            // It may be stored. Each copy has the same id and the same condition.
            Err(_) => {
                self.counters.retries += 1;
                log.retry_later(context, number);
                log.phase = Phase::Storing(sent);
            }
        }
        self.advance(context, number);
    }

    /// A read of a log was answered.
    pub(super) fn read_answered(
        &mut self,
        context: &mut Context,
        leases: &Leases,
        (number, request): (RoomLogNumber, RequestNumber),
        outcome: Result<ReadAnswer, ReadFault>,
    ) {
        let Some(log) = awaiting(&mut self.logs, context, (number, request)) else { return };
        let Ok(answer) = outcome else { return log.retry_later(context, number) };
        match std::mem::replace(&mut log.phase, Phase::Reading) {
            Phase::Reading => self.newest_read(context, leases, number, answer.messages.last()),
            Phase::Loading(loading) => self.page_read(context, number, loading, &answer),
            Phase::Doubting { sent, until_us } => {
                self.doubt_read(context, number, (sent, until_us), answer.messages.last());
            }
            other => {
                log.phase = other;
                context.strays.count_impossible("a read is answered in the phase that has sent it");
            }
        }
        self.advance(context, number);
    }

    /// The newest message of a log that is to be claimed.
    fn newest_read(
        &mut self,
        context: &mut Context,
        leases: &Leases,
        number: RoomLogNumber,
        newest: Option<&StoredMessage>,
    ) {
        let Some(log) = self.logs.get_mut(&number) else { return };
        // A node that does not know the leases yet would take a room from a live node. And without its own lease, others
        // would take the room from it.
        if !leases.are_known() || !leases.is_held() {
            return log.retry_later(context, number);
        }
        let mark = newest.and_then(LogMark::of);
        log.refused_by = mark.as_ref().map(|mark| mark.refused_by.clone()).unwrap_or_default();
        // It tries again.
        log.refused_by.remove(&context.options.node);
        let holder = mark.filter(|mark| !mark.is_over && !mark.is_released).map(|mark| mark.node);
        if let Some(by) = holder.as_ref().filter(|node| leases.is_holder(node)) {
            let outcome = Err(RoomLogFault::Held { by: by.clone() });
            return self.end(context, number, RoomLogEffect::Opened { log: number, outcome });
        }
        if newest.is_none() && log.writes.discards() {
            return self.end(context, number, RoomLogEffect::Ended { log: number });
        }
        self.counters.taken += u64::from(holder.is_some_and(|node| *node != *context.options.node));
        log.newest = newest.map_or(0, |message| message.sequence);
        let id = message_id(context);
        log.phase = Phase::Storing(LogMessage::claim(&context.options.node, id, log.newest));
    }

    /// A message of a log is stored.
    fn stored(&mut self, context: &mut Context, number: RoomLogNumber, sent: &LogMessage, sequence: u64) {
        let Some(log) = self.logs.get_mut(&number) else { return };
        self.counters.messages += 1;
        self.counters.bytes += sent.payload.len() as u64;
        log.newest = sequence;
        log.phase = Phase::Held;
        if sent.is_claim() {
            // What nobody waits for is not read. A room that is given up may be unusable.
            if log.open_until_us.is_some() && !log.writes.discards() {
                log.phase = Phase::Loading(Loading::until(sequence));
            }
            return;
        }
        if sent.kind == (MessageKind::End { keeps: true }) && log.refused_by.contains(&context.options.node) {
            self.refusals.note(context.now, &log.subject, sequence);
        }
        let is_given_up = log.writes.is_given_up();
        let stored = log.writes.stored(&sent.kind, sequence);
        if let Some(below) = stored.purge_below {
            let (stream, subject) = (self.names.stream.clone(), log.subject.clone());
            context.link(LinkEffect::Purge { stream, subject, below });
        }
        match sent.kind {
            MessageKind::Claim | MessageKind::Check => {}
            MessageKind::Records { .. } if is_given_up => {}
            MessageKind::Records { tick } => {
                context.effects.push(CoreEffect::RoomLog(RoomLogEffect::Recorded { log: number, tick }));
            }
            MessageKind::Part { .. } => {
                if let Some(bytes) = stored.checkpoint_bytes {
                    let effect = RoomLogEffect::CheckpointStored { log: number, bytes };
                    context.effects.push(CoreEffect::RoomLog(effect));
                }
            }
            MessageKind::End { .. } => self.end(context, number, RoomLogEffect::Ended { log: number }),
        }
    }

    /// Messages of a log were read, up to its claim.
    fn page_read(&mut self, context: &mut Context, number: RoomLogNumber, mut loading: Loading, answer: &ReadAnswer) {
        let Some(log) = self.logs.get_mut(&number) else { return };
        let outcome = match loading.take(&answer.messages) {
            Loaded::More => {
                log.phase = Phase::Loading(loading);
                return;
            }
            // The replica lags, or has damaged a message: another one may answer the next read.
            Loaded::Again => {
                log.phase = Phase::Loading(loading);
                return log.retry_later(context, number);
            }
            Loaded::All(kept) => {
                if kept.checkpoint.is_none() {
                    log.writes.await_first_checkpoint();
                }
                Ok(kept)
            }
            Loaded::Taken => {
                let by = answer.messages.last().and_then(LogMark::of).map(|mark| mark.node).unwrap_or_default();
                let opened = RoomLogEffect::Opened { log: number, outcome: Err(RoomLogFault::Taken { by }) };
                let is_awaited = log.open_until_us.is_some();
                return self.end(
                    context,
                    number,
                    if is_awaited { opened } else { RoomLogEffect::Ended { log: number } },
                );
            }
            Loaded::TooLarge { max } => {
                log.writes.end(true);
                Err(RoomLogFault::LogTooLarge { max })
            }
        };
        log.phase = Phase::Held;
        // Otherwise it was answered, and is released.
        if log.open_until_us.take().is_some() {
            context.effects.push(CoreEffect::RoomLog(RoomLogEffect::Opened { log: number, outcome }));
        }
    }

    /// The newest message of a log, after the stream has refused one of this node.
    fn doubt_read(
        &mut self,
        context: &mut Context,
        number: RoomLogNumber,
        (sent, until_us): (LogMessage, u64),
        newest: Option<&StoredMessage>,
    ) {
        let Some(log) = self.logs.get_mut(&number) else { return };
        let sequence = newest.map_or(0, |newest| newest.sequence);
        if newest.is_some_and(|newest| sent.is_copy(newest)) {
            return self.stored(context, number, &sent, sequence);
        }
        if sent.is_claim() {
            // Another node was faster, or the room's holder lives.
            log.phase = Phase::Reading;
            return;
        }
        if sequence <= log.newest && context.now.mono_us < until_us {
            // The replica lags: the stream has a newer message, or it would not have refused this one.
            log.phase = Phase::Doubting { sent, until_us };
            return log.retry_later(context, number);
        }
        // A stream that was made anew, or has lost its end.
        let by = newest.filter(|_| sequence > log.newest).and_then(LogMark::of).map(|mark| mark.node);
        let why = by.map_or(RoomLogFault::Gone, |by| RoomLogFault::Taken { by });
        let is_told = log.writes.is_given_up();
        let effect =
            if is_told { RoomLogEffect::Ended { log: number } } else { RoomLogEffect::Lost { log: number, why } };
        self.end(context, number, effect);
    }
}

/// The log that waits for the answer to a request.
fn awaiting<'a>(
    logs: &'a mut BTreeMap<RoomLogNumber, RoomLog>,
    context: &mut Context,
    (number, request): (RoomLogNumber, RequestNumber),
) -> Option<&'a mut RoomLog> {
    let log = logs.get_mut(&number).filter(|log| log.asked == Some(request));
    let log = context.strays.found_or_late(log)?;
    log.asked = None;
    Some(log)
}

impl RoomLog {
    /// Nobody waits for what is read. Nothing was written behind the claim, so the log is released at once.
    fn stop_loading(&mut self) {
        if matches!(self.phase, Phase::Loading(_)) {
            (self.phase, self.asked, self.retry_us) = (Phase::Held, None, 0);
        }
    }

    fn retry_later(&mut self, context: &mut Context, number: RoomLogNumber) {
        self.retry_us = context.now.mono_us + RETRY_US;
        context.set_timer(self.retry_us, Timer::RoomLog(number));
    }

    /// Sends what the phase needs.
    ///
    /// # Errors
    /// The servers do not take the next message.
    fn step(&mut self, context: &mut Context, names: &RoomLogNames, number: RoomLogNumber) -> Result<(), RoomLogFault> {
        debug_assert!(self.asked.is_none(), "one request of a log is in flight");
        if matches!(self.phase, Phase::Held) {
            let max = context.payload_bytes_max;
            let next = self.writes.next(max).map_err(|bytes| RoomLogFault::TooLarge { bytes, max })?;
            let Some(next) = next else { return Ok(()) };
            let id = message_id(context);
            let mut message = LogMessage::of(next, &context.options.node, id, self.newest);
            if message.kind == (MessageKind::End { keeps: true }) && self.refused_by.contains(&context.options.node) {
                message.refused_by(&self.refused_by);
            }
            self.phase = Phase::Storing(message);
        }
        let request = context.request(Requester::RoomLog(number));
        self.asked = Some(request);
        let (stream, subject) = (names.stream.clone(), self.subject.clone());
        context.link(match &self.phase {
            Phase::Reading | Phase::Doubting { .. } => {
                LinkEffect::LastOf { request, stream, subjects: vec![subject], floor: None }
            }
            Phase::Loading(loading) => {
                let (subject, from, messages_max) = (Some(subject), loading.from(), PAGE_MESSAGES);
                LinkEffect::Range { request, stream, subject, from, messages_max }
            }
            Phase::Storing(message) => {
                let (headers, payload) = (message.headers.clone(), message.payload.clone());
                LinkEffect::Publish { link: LinkName::Publish, request: Some(request), subject, headers, payload }
            }
            Phase::Held => unreachable!("it is writing now"),
        });
        Ok(())
    }
}

fn message_id(context: &mut Context) -> Box<str> {
    let number = context.next_number();
    format!("%_r-{}-{number}", context.options.node).into()
}
