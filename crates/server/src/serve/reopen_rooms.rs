//! Opens the stored rooms at the start, so that they continue before their players return. In a cluster also those of a
//! node that has stopped or died.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dunlin_config::{Config, RoomSurvival};
use dunlin_engine::api::{ApiAnswer, ApiRequest};
use dunlin_protocol::ErrorCode;

use crate::{
    node::{Node, NodeStorage},
    telemetry::room_events,
};

/// Maximum number of channels that are listed at a time.
const CHANNELS_AT_ONCE: usize = 256;

/// Time between two attempts to open a room while a limit on new rooms is reached.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Longest pause between two attempts to open the rooms of a node that has died. Each is twice as long as the one before, unless
/// a room was opened.
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
    loop {
        let mut channels = node.orphaned_rooms().await;
        channels.retain(|channel| kept.keeps(channel));
        let (begun, mut all, mut refused) = (Instant::now(), channels.len() as u64, 0);
        let mut pause = RETRY_INTERVAL;
        // For the shards of this node, a room may still be on the node that has died: they learn of its end from the relay. Or a
        // client has joined it meanwhile on another node.
        while !channels.is_empty() && pause <= ORPHAN_PAUSE_MAX {
            let (mut left, mut is_limited) = (Vec::new(), false);
            let before = channels.len();
            for channel in channels {
                match try_reopen(&node, &channel).await {
                    Some(Reopened::Yes) => {}
                    // Another node may be able to, and is not kept from it.
                    Some(Reopened::Refused) => refused += 1,
                    Some(Reopened::No) => left.push(channel),
                    // A limit on new rooms, or on those that wait for one room. The other rooms do not wait for this one.
                    Some(Reopened::Later) => {
                        is_limited = true;
                        left.push(channel);
                    }
                    None => return,
                }
            }
            if left.len() < before {
                pause = RETRY_INTERVAL;
            }
            channels = left;
            if channels.is_empty() {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {
                    pause *= 2;
                    if is_limited {
                        // Such a limit passes, so these rooms are not given up.
                        pause = pause.min(ORPHAN_PAUSE_MAX);
                    }
                }
                // Another node has died. Its rooms do not wait for those that cannot be opened.
                more = node.orphaned_rooms() => {
                    let more = more.into_iter().filter(|channel| kept.keeps(channel) && !channels.contains(channel));
                    let before = channels.len();
                    channels.extend(more.collect::<Vec<_>>());
                    all += (channels.len() - before) as u64;
                    pause = RETRY_INTERVAL;
                }
            }
        }
        if all > 0 {
            let not_opened = channels.len() as u64 + refused;
            room_events::StoredRoomsOpened { opened: all - not_opened, not_opened, took: begun.elapsed() }.emit();
        }
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
        match try_reopen(node, channel).await? {
            Reopened::Yes => return Some(true),
            Reopened::No | Reopened::Refused => return Some(false),
            Reopened::Later => tokio::time::sleep(RETRY_INTERVAL).await,
        }
    }
}

/// Whether a room is open again.
enum Reopened {
    Yes,
    No,
    /// This node cannot restore it.
    Refused,
    /// A limit is reached.
    Later,
}

/// Tries to open a room. `None` if the node is stopping.
async fn try_reopen(node: &Node, channel: &str) -> Option<Reopened> {
    let request = ApiRequest::OpenRoom { channel: channel.into(), overrides: Arc::default() };
    match node.ask_owner(channel, request).await {
        Err(_) => None,
        Ok(Err(refusal)) if refusal.code == ErrorCode::TooManyRequests => Some(Reopened::Later),
        Ok(Err(refusal)) => {
            room_events::RoomNotReopened { channel, code: refusal.code }.emit();
            Some(Reopened::No)
        }
        // The reason is logged where the room was made.
        Ok(Ok(ApiAnswer::NotOpened(refusal))) if refusal.code == NOT_RESTORED_CODE => Some(Reopened::Refused),
        Ok(Ok(ApiAnswer::NotOpened(_))) => Some(Reopened::No),
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
