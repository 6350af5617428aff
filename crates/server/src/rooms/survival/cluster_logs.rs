//! Rooms whose entries are in the cluster: each has a log in a stream, which the node that runs the room has claimed
//! ([`dunlin_cluster::core::room_logs`]).
//!
//! The cluster's thread passes its answers to [`ClusterLogs::take`]. It finds the entries that they are for by the number of
//! their claim, which is the number of the log.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        mpsc::{RecvTimeoutError, SyncSender},
    },
    time::{Duration, Instant},
};

use dunlin_cluster::core::room_logs::{KeptRoom, RoomLogEffect, RoomLogEvent, RoomLogFault, RoomLogNumber};
use dunlin_engine::log::LogError;
use dunlin_queues::answer_channel;
use dunlin_storage::RoomCheckpoint;
use tokio::sync::Notify;

use super::{KeptRooms, NotRead, RoomEntries, lock, refused_rooms::RefusedRooms};
use crate::{
    node::{NodeCluster, RoomLogReceiver},
    telemetry::room_events,
};

/// How often, and how long each time, a room waits for its log. The cluster's thread answers earlier, unless it has ended.
const OPEN_WAITS: u32 = 40;
const OPEN_WAIT: Duration = Duration::from_millis(200);
/// The same for a room that is given up.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// Why the log of a room is not read again at once.
const REFUSED: &str = "the game of this node could not go on with the room a moment ago";

/// A log of this node, from the request to open it to its end.
#[derive(Debug)]
struct OwnLog {
    channel: Arc<str>,
    waiting: Waiting,
}

/// What an answer is for.
#[derive(Debug)]
enum Waiting {
    /// A room that runs, or is about to.
    Room { entries: Weak<RoomEntries>, opened: Option<SyncSender<Result<KeptRoom, RoomLogFault>>> },
    /// A room that is given up.
    Discard { ended: SyncSender<Result<(), RoomLogFault>> },
}

/// The logs of this node's rooms.
pub(super) struct ClusterLogs {
    cluster: Arc<NodeCluster>,
    logs: Mutex<HashMap<RoomLogNumber, OwnLog>>,
    /// Rooms that no node has, and that this one is to open. At most 1,024, which NATS lists.
    orphans: Mutex<BTreeSet<Box<str>>>,
    has_orphans: Notify,
    /// Rooms that the game of this node cannot go on with.
    refused: Mutex<RefusedRooms>,
}

/// Receives the answers for the rooms.
struct Receiver {
    logs: Arc<ClusterLogs>,
    rooms: Weak<KeptRooms>,
}

impl RoomLogReceiver for Receiver {
    fn take(&self, effect: RoomLogEffect) {
        // Without rooms, the node has ended.
        if let Some(rooms) = self.rooms.upgrade() {
            self.logs.take(&rooms, effect);
        }
    }
}

impl ClusterLogs {
    pub(super) fn new(cluster: Arc<NodeCluster>) -> Self {
        Self {
            cluster,
            logs: Mutex::default(),
            orphans: Mutex::default(),
            has_orphans: Notify::new(),
            refused: Mutex::default(),
        }
    }

    /// Receives the answers of the cluster's thread from now on.
    pub(super) fn receive_for(self: &Arc<Self>, rooms: &Arc<KeptRooms>) {
        let receiver = Receiver { logs: Arc::clone(self), rooms: Arc::downgrade(rooms) };
        self.cluster.receive_room_logs(Arc::new(receiver));
        // An error means that the thread has ended, because the node is stopping.
        let _ = self.cluster.room_log(RoomLogEvent::FindOrphans);
    }

    /// Claims and reads the log of a room.
    /// `go_on` is called again and again: the watchdog is to find games that do not return, and not a slow NATS.
    pub(super) fn open(&self, entries: &Arc<RoomEntries>, go_on: &dyn Fn()) -> Result<Option<RoomCheckpoint>, NotRead> {
        if self.has_refused(&entries.channel) {
            // No log was claimed, so no answer ends the claim.
            entries.rooms.note_over(&entries.channel, entries.claim);
            return Err(NotRead::Unavailable(REFUSED.to_owned()));
        }
        let log = RoomLogNumber(entries.claim);
        let (sender, opened) = answer_channel();
        let waiting = Waiting::Room { entries: Arc::downgrade(entries), opened: Some(sender) };
        self.logs().insert(log, OwnLog { channel: Arc::clone(&entries.channel), waiting });
        let asked = self.cluster.room_log(RoomLogEvent::Open { log, channel: Arc::clone(&entries.channel) });
        if let Err(error) = asked {
            self.over(&entries.rooms, log, Ok(()));
            return Err(NotRead::Unavailable(not_queued(error).to_owned()));
        }
        let mut outcome = Err(RecvTimeoutError::Timeout);
        for _ in 0..OPEN_WAITS {
            go_on();
            outcome = opened.recv_timeout(OPEN_WAIT);
            if !matches!(outcome, Err(RecvTimeoutError::Timeout)) {
                break;
            }
        }
        let kept = match outcome {
            Ok(Ok(kept)) if kept.checkpoint.is_none() && !kept.records.is_empty() => {
                let what = "it has records and no checkpoint";
                return Err(NotRead::Unusable(RoomLogFault::Damaged { what }.to_string()));
            }
            Ok(Ok(kept)) => kept,
            Ok(Err(fault @ (RoomLogFault::LogTooLarge { .. } | RoomLogFault::Damaged { .. }))) => {
                return Err(NotRead::Unusable(fault.to_string()));
            }
            Ok(Err(fault)) => return Err(NotRead::Unavailable(fault.to_string())),
            // The thread of the cluster has ended, or does not get to run.
            Err(_) => return Err(NotRead::Unavailable(RoomLogFault::Unanswered.to_string())),
        };
        let record = |(tick, bytes): (u64, bytes::Bytes)| RoomCheckpoint { tick, bytes: Vec::from(bytes).into() };
        *lock(&entries.read) = kept.records.into_iter().map(record).collect();
        Ok(kept.checkpoint.map(record))
    }

    pub(super) fn write_checkpoint(
        &self,
        claim: u64,
        tick: u64,
        bytes: Vec<u8>,
        goes_first: bool,
    ) -> Result<(), &'static str> {
        let event = RoomLogEvent::Checkpoint { log: RoomLogNumber(claim), tick, bytes: bytes.into(), goes_first };
        self.cluster.room_log(event).map_err(not_queued)
    }

    pub(super) fn write_record(&self, claim: u64, tick: u64, bytes: Vec<u8>) -> Result<(), &'static str> {
        let event = RoomLogEvent::Record { log: RoomLogNumber(claim), tick, bytes: bytes.into() };
        self.cluster.room_log(event).map_err(not_queued)
    }

    /// This node cannot run the room of a log. Its end follows.
    pub(super) fn refuse(&self, claim: u64) {
        // An error means that the thread has ended, because the node is stopping.
        let _ = self.cluster.room_log(RoomLogEvent::Refuse { log: RoomLogNumber(claim) });
    }

    /// The log of a room is not read again for a while, although clients ask for the room.
    pub(super) fn remember_refused(&self, channel: &Arc<str>) {
        lock(&self.refused).insert(channel, Instant::now());
    }

    /// Whether the log of a room is not read again for now.
    pub(super) fn has_refused(&self, channel: &str) -> bool {
        lock(&self.refused).contains(channel, Instant::now())
    }

    /// Ends the log of a room.
    pub(super) fn end(&self, claim: u64, keeps: bool) {
        // An error means that the thread has ended, because the node is stopping.
        let _ = self.cluster.room_log(RoomLogEvent::End { log: RoomLogNumber(claim), keeps });
    }

    /// Gives up what is stored of a room that this node does not run. Returns when that is stored.
    pub(super) fn discard(&self, rooms: &KeptRooms, claim: u64, channel: &str) -> Result<(), &'static str> {
        lock(&self.refused).remove(channel);
        let log = RoomLogNumber(claim);
        let (ended, has_ended) = answer_channel();
        let channel: Arc<str> = channel.into();
        self.logs().insert(log, OwnLog { channel: Arc::clone(&channel), waiting: Waiting::Discard { ended } });
        let open = RoomLogEvent::Open { log, channel };
        let asked = self.cluster.room_log(open);
        if let Err(error) = asked.and_then(|()| self.cluster.room_log(RoomLogEvent::End { log, keeps: false })) {
            self.over(rooms, log, Ok(()));
            return Err(not_queued(error));
        }
        match has_ended.recv_timeout(CLOSE_WAIT) {
            // The node that has the room is asked to close it, and then gives up its log.
            Ok(Ok(()) | Err(RoomLogFault::Held { .. } | RoomLogFault::Taken { .. })) => Ok(()),
            Ok(Err(_)) | Err(_) => Err("the stream of the rooms' logs has not answered in time"),
        }
    }

    /// The rooms that this node is to open. Waits for some.
    pub(super) async fn orphans(&self) -> Vec<Box<str>> {
        loop {
            let waiting = self.has_orphans.notified();
            let orphans = std::mem::take(&mut *lock(&self.orphans));
            if !orphans.is_empty() {
                return orphans.into_iter().collect();
            }
            waiting.await;
        }
    }

    /// Takes an answer. Called on the cluster's thread.
    fn take(&self, rooms: &KeptRooms, effect: RoomLogEffect) {
        match effect {
            RoomLogEffect::Opened { log, outcome } => self.opened(rooms, log, outcome),
            RoomLogEffect::Recorded { log, tick } => {
                if let Some(entries) = self.entries(log) {
                    entries.note_logged(tick);
                }
            }
            RoomLogEffect::CheckpointStored { log, bytes } => {
                if let Some(entries) = self.entries(log) {
                    entries.checkpoint_written(bytes as u64);
                }
            }
            RoomLogEffect::Lost { log, why } => {
                if let Some(entries) = self.entries(log) {
                    room_events::RoomLogLost { channel: &entries.channel, detail: &why.to_string() }.emit();
                    entries.note_fault(why.to_string());
                }
                self.over(rooms, log, Err(why));
            }
            RoomLogEffect::Ended { log } => self.over(rooms, log, Ok(())),
            RoomLogEffect::Orphans { channels } => {
                // The cluster's core lists no room that this node was the last to refuse, or is opening now, even if the list
                // is older than that. So another node has held the rooms since, and the others wait for this one to open
                // them, or to refuse them again.
                lock(&self.refused).forget(&channels);
                lock(&self.orphans).extend(channels);
                self.has_orphans.notify_one();
            }
        }
    }

    fn opened(&self, rooms: &KeptRooms, log: RoomLogNumber, outcome: Result<KeptRoom, RoomLogFault>) {
        let has_failed = outcome.as_ref().err().cloned();
        if let Some(OwnLog { waiting: Waiting::Room { opened, .. }, .. }) = self.logs().get_mut(&log)
            && let Some(opened) = opened.take()
        {
            // An error means that the builder has given up.
            let _ = opened.send(outcome);
        }
        if let Some(fault) = has_failed {
            self.over(rooms, log, Err(fault));
        }
    }

    /// A log has ended.
    fn over(&self, rooms: &KeptRooms, log: RoomLogNumber, outcome: Result<(), RoomLogFault>) {
        let own = self.logs().remove(&log);
        // A room that has lost its log ends it as well.
        let Some(OwnLog { channel, waiting }) = own else { return };
        rooms.note_over(&channel, log.0);
        if let Waiting::Discard { ended } = waiting {
            // An error means that the request has timed out.
            let _ = ended.send(outcome);
        }
    }

    fn entries(&self, log: RoomLogNumber) -> Option<Arc<RoomEntries>> {
        match &self.logs().get(&log)?.waiting {
            Waiting::Room { entries, .. } => entries.upgrade(),
            Waiting::Discard { .. } => None,
        }
    }

    fn logs(&self) -> MutexGuard<'_, HashMap<RoomLogNumber, OwnLog>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ClusterLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterLogs").field("logs", &self.logs().len()).finish_non_exhaustive()
    }
}

fn not_queued(error: LogError) -> &'static str {
    match error {
        LogError::Busy(_) => {
            "the cluster's thread has too many requests queued (broker.nats.jetstream.requests_limit, \
             broker.nats.jetstream.requests_size_limit)"
        }
        _ => "the node leaves the cluster",
    }
}
