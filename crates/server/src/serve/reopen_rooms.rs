//! Opens the stored rooms at the start, so that they continue before their players return. In a cluster also those of a
//! node that has stopped or died.

use std::{
    collections::HashSet,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use dunlin_config::{Config, RoomSurvival};
use dunlin_engine::api::{ApiAnswer, ApiRequest};
use dunlin_protocol::ErrorCode;
use dunlin_rooms::RoomOverrides;

use crate::{
    node::{Node, NodeStorage},
    telemetry::room_events,
};

/// Maximum number of channels that are listed at a time.
const CHANNELS_AT_ONCE: usize = 256;

/// Time between two attempts to open a room while a limit on new rooms is reached.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Longest pause between two attempts to open a room of a node that has died. Each is twice as long as the one before.
const ORPHAN_PAUSE_MAX: Duration = Duration::from_secs(4);

/// The code of the refusal of a room that cannot be restored.
const NOT_RESTORED_CODE: u16 = 400;

/// Time between two looks at a storage that is not open yet or cannot be read.
const OPEN_INTERVAL: Duration = Duration::from_secs(1);

/// Opens all rooms that have a checkpoint and whose namespace stores rooms. Returns when all are open or the node
/// stops.
pub(super) async fn reopen_rooms(node: Node, kept: KeptNamespaces) {
    if node.keeps_rooms_in_cluster() {
        return reopen_orphans(node, kept).await;
    }
    let Some(storage) = node.storage().cloned().filter(|_| !kept.is_empty()) else { return };
    // A node that starts on a full disk reads them when there is space.
    while storage.storage().poison().is_some() {
        tokio::time::sleep(OPEN_INTERVAL).await;
    }
    let begun = Instant::now();
    let (mut opened, mut not_opened) = (0, 0);
    let mut after: Option<Box<str>> = None;
    loop {
        let channels = list(&storage, after.take()).await;
        let Some(last) = channels.last() else { break };
        after = Some(last.clone());
        for channel in channels.iter().filter(|channel| kept.keeps(channel)) {
            match reopen(&node, channel).await {
                Some(true) => opened += 1,
                Some(false) => not_opened += 1,
                None => return,
            }
        }
    }
    if opened + not_opened > 0 {
        room_events::StoredRoomsOpened { opened, not_opened, took: begun.elapsed() }.emit();
    }
}

/// Opens rooms of the cluster that no node has, until this node stops. Other nodes open others of them; a room that two
/// open has one holder, which its log decides.
async fn reopen_orphans(node: Node, kept: KeptNamespaces) {
    let mut orphans = Orphans::default();
    loop {
        tokio::select! {
            channels = node.orphaned_rooms() => {
                orphans.add(channels.into_iter().filter(|channel| kept.keeps(channel)), Instant::now());
            }
            () = until(orphans.next_attempt_at()) => {}
        }
        for orphan in orphans.take_due(Instant::now()) {
            let Some(reopened) = try_reopen(&node, &orphan.channel, true).await else { return };
            orphans.attempted(orphan, reopened, Instant::now());
        }
        if let Some(opened) = orphans.take_result(Instant::now()) {
            opened.emit();
        }
    }
}

/// Waits for a time; for ever without one.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// Rooms that no node has, which this node opens.
#[derive(Default)]
struct Orphans {
    waiting: Vec<Orphan>,
    /// When the first of them was added; `None` if there is none.
    begun: Option<Instant>,
    opened: u64,
    not_opened: u64,
}

/// A room that no node has. Each has a pause of its own: if one opens at once, the others are not asked more often for it.
struct Orphan {
    channel: Box<str>,
    pause: Duration,
    attempt_at: Instant,
}

impl Orphans {
    /// Adds rooms that are not among them.
    fn add(&mut self, channels: impl Iterator<Item = Box<str>>, now: Instant) {
        let known: HashSet<Box<str>> = self.waiting.iter().map(|orphan| orphan.channel.clone()).collect();
        let new = channels.filter(|channel| !known.contains(channel));
        self.waiting.extend(new.map(|channel| Orphan { channel, pause: RETRY_INTERVAL, attempt_at: now }));
        if !self.waiting.is_empty() {
            self.begun.get_or_insert(now);
        }
    }

    fn next_attempt_at(&self) -> Option<Instant> {
        self.waiting.iter().map(|orphan| orphan.attempt_at).min()
    }

    fn take_due(&mut self, now: Instant) -> Vec<Orphan> {
        self.waiting.extract_if(.., |orphan| orphan.attempt_at <= now).collect()
    }

    /// Notes how an attempt to open a room ended, which [`Orphans::take_due`] returned.
    fn attempted(&mut self, orphan: Orphan, reopened: Reopened, now: Instant) {
        let is_limited = match reopened {
            Reopened::Yes => return self.opened += 1,
            Reopened::Later => true,
            // Another node may be able to restore it, and is not kept from it.
            Reopened::Refused => return self.not_opened += 1,
            // For the shards of this node, a room may still be on the node that has died: they learn of its end from the
            // relay. Or a client has joined it meanwhile on another node. So a refusal is no failure before some seconds.
            Reopened::No(refusal) if orphan.pause > ORPHAN_PAUSE_MAX => {
                self.not_opened += 1;
                if let Some(code) = refusal {
                    room_events::RoomNotReopened { channel: &orphan.channel, code }.emit();
                }
                return;
            }
            Reopened::No(_) => false,
        };
        let attempt_at = now + orphan.pause.min(ORPHAN_PAUSE_MAX);
        // A limit passes, so a room is not given up for it, however often it is met.
        let pause = orphan.pause * if is_limited && orphan.pause > ORPHAN_PAUSE_MAX / 2 { 1 } else { 2 };
        self.waiting.push(Orphan { channel: orphan.channel, pause, attempt_at });
    }

    /// What came of the rooms, once none is waiting.
    fn take_result(&mut self, now: Instant) -> Option<room_events::StoredRoomsOpened> {
        let begun = self.begun.take_if(|_| self.waiting.is_empty())?;
        let (opened, not_opened) = (mem::take(&mut self.opened), mem::take(&mut self.not_opened));
        Some(room_events::StoredRoomsOpened { opened, not_opened, took: now - begun })
    }
}

/// The next channels; none at the end. While the storage cannot be read, rooms open with their first join, and the list is
/// tried again: an error taken for the end would leave the other rooms closed without a word.
async fn list(storage: &Arc<NodeStorage>, after: Option<Box<str>>) -> Vec<Box<str>> {
    loop {
        let (storage, after) = (Arc::clone(storage), after.clone());
        let listed = tokio::task::spawn_blocking(move || {
            storage.storage().rooms_with_checkpoints(after.as_deref(), CHANNELS_AT_ONCE)
        });
        match listed.await {
            Ok(Ok(channels)) => return channels,
            Ok(Err(error)) => room_events::StoredRoomsNotListed { error: &error }.emit(),
            // The node is stopping.
            Err(_) => return Vec::new(),
        }
        tokio::time::sleep(OPEN_INTERVAL).await;
    }
}

/// Opens a room. Returns whether it is open; `None` if the node is stopping.
async fn reopen(node: &Node, channel: &str) -> Option<bool> {
    loop {
        match try_reopen(node, channel, false).await? {
            Reopened::Yes => return Some(true),
            Reopened::No(refusal) => {
                if let Some(code) = refusal {
                    room_events::RoomNotReopened { channel, code }.emit();
                }
                return Some(false);
            }
            Reopened::Refused => return Some(false),
            Reopened::Later => tokio::time::sleep(RETRY_INTERVAL).await,
        }
    }
}

/// Whether a room is open again.
#[derive(Clone, Copy, Debug)]
enum Reopened {
    Yes,
    /// The owner refused with this code, or the room could not be made, which is logged where it is made.
    No(Option<ErrorCode>),
    /// This node cannot restore it, or nothing of it is stored.
    Refused,
    /// A limit is reached.
    Later,
}

/// Tries to open a room; if it `continues`, only if something of it is stored. `None` if the node is stopping.
async fn try_reopen(node: &Node, channel: &str, continues: bool) -> Option<Reopened> {
    let overrides = Arc::new(RoomOverrides { continues, ..RoomOverrides::default() });
    let request = ApiRequest::OpenRoom { channel: channel.into(), overrides };
    match node.ask_owner(channel, request).await {
        Err(_) => None,
        Ok(Err(refusal)) if refusal.code == ErrorCode::TooManyRequests => Some(Reopened::Later),
        // The reason is logged where the room was made.
        Ok(Err(_)) if node.leaves_room_to_others(channel) => Some(Reopened::Refused),
        Ok(Err(refusal)) => Some(Reopened::No(Some(refusal.code))),
        Ok(Ok(ApiAnswer::NotOpened(refusal))) if refusal.code == NOT_RESTORED_CODE => Some(Reopened::Refused),
        Ok(Ok(ApiAnswer::NotOpened(_))) => Some(Reopened::No(None)),
        Ok(Ok(_)) => Some(Reopened::Yes),
    }
}

/// The namespaces whose rooms are stored.
pub(super) struct KeptNamespaces {
    boundary: char,
    private_prefix: String,
    /// Channels without a namespace have the name `None`.
    names: Vec<Option<String>>,
}

impl KeptNamespaces {
    pub(super) fn new(config: &Config) -> Self {
        let names = std::iter::once(None).chain(config.engine.namespaces.iter().map(|each| Some(each.name.clone())));
        let rooms = config.rooms.namespaces.iter();
        let kept =
            names.zip(rooms).filter(|(_, room)| room.as_ref().is_some_and(|room| room.survival != RoomSurvival::None));
        let channel = &config.engine.channel;
        let (boundary, private_prefix) = (channel.namespace_boundary, channel.private_prefix.clone());
        Self { boundary, private_prefix, names: kept.map(|(name, _)| name).collect() }
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    fn keeps(&self, channel: &str) -> bool {
        let name = channel.strip_prefix(&*self.private_prefix).unwrap_or(channel);
        let namespace = name.split_once(self.boundary).map(|(namespace, _)| namespace).filter(|name| !name.is_empty());
        self.names.iter().any(|name| name.as_deref() == namespace)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn orphans(channels: &[&str], now: Instant) -> Orphans {
        let mut orphans = Orphans::default();
        orphans.add(channels.iter().map(|channel| Box::from(*channel)), now);
        orphans
    }

    /// Attempts to open what is due until nothing is waiting or a minute has passed. Returns how often each room was attempted.
    fn attempt_all(
        orphans: &mut Orphans,
        begun: Instant,
        mut answer: impl FnMut(&str, Duration) -> Reopened,
    ) -> HashMap<Box<str>, u32> {
        let mut attempts = HashMap::new();
        while let Some(now) = orphans.next_attempt_at().filter(|now| *now - begun < Duration::from_mins(1)) {
            for orphan in orphans.take_due(now) {
                *attempts.entry(orphan.channel.clone()).or_default() += 1;
                let reopened = answer(&orphan.channel, now - begun);
                orphans.attempted(orphan, reopened, now);
            }
        }
        attempts
    }

    #[test]
    fn a_room_that_opens_does_not_hasten_the_others() {
        let begun = Instant::now();
        let names: Vec<String> = (0..100).map(|number| format!("arena:{number}")).collect();
        let mut orphans = orphans(&names.iter().map(String::as_str).collect::<Vec<_>>(), begun);
        // One opens every 50 ms; the last one never does.
        let attempts = attempt_all(&mut orphans, begun, |channel, elapsed| {
            let number: u32 = channel[6..].parse().expect("a number");
            if number < 99 && elapsed >= Duration::from_millis(50) * number {
                Reopened::Yes
            } else {
                Reopened::No(Some(ErrorCode::NotAvailable))
            }
        });
        // With pauses of 20, 40, … 2,560 ms between them.
        assert_eq!(attempts["arena:99"], 9);
        let result = orphans.take_result(begun + Duration::from_secs(9)).expect("none is waiting");
        assert_eq!((result.opened, result.not_opened, result.took), (99, 1, Duration::from_secs(9)));
        assert!(orphans.take_result(begun + Duration::from_secs(9)).is_none(), "it is told once");
    }

    #[test]
    fn a_limit_never_gives_a_room_up() {
        let begun = Instant::now();
        let mut orphans = orphans(&["arena:1"], begun);
        let attempts = attempt_all(&mut orphans, begun, |_, _| Reopened::Later);
        assert!((20..=30).contains(&attempts["arena:1"]), "{attempts:?}: each 4 s at the end");
        assert!(orphans.take_result(begun + Duration::from_mins(1)).is_none());
        let opened = attempt_all(&mut orphans, begun + Duration::from_mins(1), |_, _| Reopened::Yes);
        assert_eq!(opened["arena:1"], 1);
        assert_eq!(orphans.take_result(begun + Duration::from_mins(2)).expect("none is waiting").opened, 1);
    }

    #[test]
    fn a_room_is_added_once_while_it_waits() {
        let begun = Instant::now();
        let mut orphans = orphans(&["arena:1", "arena:2"], begun);
        orphans.add(["arena:2", "arena:3"].into_iter().map(Box::from), begun);
        assert_eq!(orphans.take_due(begun).len(), 3);
    }
}
