//! Which channels of a node have got their first subscriber, or lost their last one.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::webhooks::Changes;

/// See [`super::Received::Occupancy`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OccupancyQuestion {
    /// The version of the last answer of each node; a node that is missing sends everything.
    pub since: BTreeMap<Box<str>, u64>,
}

/// A node's answer to [`OccupancyQuestion`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OccupancyAnswer {
    /// The id of the node.
    pub uid: Box<str>,
    /// The version after these changes.
    pub version: u64,
    /// Whether earlier answers are void.
    pub reset: bool,
    /// Whether there are more changes.
    pub more: bool,
    /// Channels with subscribers.
    pub occupied: Vec<Box<str>>,
    /// Channels without subscribers.
    pub vacated: Vec<Box<str>>,
}

impl OccupancyAnswer {
    /// The answer of the node `uid`.
    pub fn new(uid: &str, changes: Changes) -> Self {
        let Changes { is_reset, version, occupied, vacated, has_more } = changes;
        let names = |channels: &[Arc<str>]| channels.iter().map(|channel| Box::from(&**channel)).collect();
        let (occupied, vacated) = (names(&occupied), names(&vacated));
        Self { uid: uid.into(), version, reset: is_reset, more: has_more, occupied, vacated }
    }

    /// The id of the node, and its changes.
    pub fn into_parts(self) -> (Box<str>, Changes) {
        let Self { uid, version, reset, more, occupied, vacated } = self;
        let names = |channels: Vec<Box<str>>| channels.into_iter().map(Arc::from).collect();
        let (occupied, vacated) = (names(occupied), names(vacated));
        (uid, Changes { is_reset: reset, version, occupied, vacated, has_more: more })
    }
}
