//! Which channels of a node have got their first subscriber, or lost their last one.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::webhooks::{Changes, Cursor};

/// See [`super::Received::Occupancy`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OccupancyQuestion {
    /// The id of the node that asks; empty from earlier versions.
    #[serde(default)]
    pub asker: Box<str>,
    /// The version at which the full report of a node began, if its last page is missing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    begun: BTreeMap<Box<str>, u64>,
    /// The version of the last answer of each node; a node that is missing sends everything.
    since: BTreeMap<Box<str>, u64>,
}

/// A node's answer to [`OccupancyQuestion`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OccupancyAnswer {
    /// The id of the node.
    pub uid: Box<str>,
    /// The version after these changes.
    pub version: u64,
    /// Whether a full report begins, which makes earlier answers void.
    pub reset: bool,
    /// The version at which it begins; 0 if none does.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub begun: u64,
    /// The age of the oldest change that the backend may not have taken, if the node tells it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub behind_ms: u64,
    /// Whether there are more changes.
    pub more: bool,
    /// Channels with subscribers.
    pub occupied: Vec<Box<str>>,
    /// Channels without subscribers.
    pub vacated: Vec<Box<str>>,
}

impl OccupancyQuestion {
    /// The node `asker` asks each node for what follows its cursor.
    pub fn new(asker: &str, cursors: &BTreeMap<Box<str>, Cursor>) -> Self {
        let since = cursors.iter().map(|(node, cursor)| (node.clone(), cursor.version)).collect();
        let under_way = cursors.iter().filter(|(_, cursor)| cursor.begun > 0);
        Self {
            asker: asker.into(),
            begun: under_way.map(|(node, cursor)| (node.clone(), cursor.begun)).collect(),
            since,
        }
    }

    /// The cursor of a node.
    pub fn cursor(&self, node: &str) -> Cursor {
        let of = |numbers: &BTreeMap<Box<str>, u64>| numbers.get(node).copied().unwrap_or(0);
        Cursor { version: of(&self.since), begun: of(&self.begun) }
    }
}

impl OccupancyAnswer {
    /// The answer of the node `uid`.
    pub fn new(uid: &str, behind_ms: u64, changes: Changes) -> Self {
        let Changes { is_reset, begun, version, occupied, vacated, has_more } = changes;
        let names = |channels: &[Arc<str>]| channels.iter().map(|channel| Box::from(&**channel)).collect();
        let (occupied, vacated) = (names(&occupied), names(&vacated));
        Self { uid: uid.into(), version, reset: is_reset, begun, behind_ms, more: has_more, occupied, vacated }
    }

    /// The id of the node, `behind_ms`, and its changes.
    pub fn into_parts(self) -> (Box<str>, u64, Changes) {
        let Self { uid, version, reset, begun, behind_ms, more, occupied, vacated } = self;
        let names = |channels: Vec<Box<str>>| channels.into_iter().map(Arc::from).collect();
        let (occupied, vacated) = (names(occupied), names(vacated));
        (uid, behind_ms, Changes { is_reset: reset, begun, version, occupied, vacated, has_more: more })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}
