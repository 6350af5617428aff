//! The other nodes of a cluster, which are asked for a room before it is opened. They have none, and answer late or not at
//! all; some ask for the same rooms.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dunlin_engine::{
    Event, ShardIndex,
    api::{ApiAnswer, ApiRequest},
    room::{NotJoined, RoomElsewhere, RoomKey, RoomSite, RoomState, RoomThreadIndex, SeatKey, ToRoom},
};

use super::NodeWorld;

/// How long another node waits for answers to its question. A promise stands for twice this time.
const ASKING_MS: u64 = 500;
/// The time of an answer.
const ANSWER_US_MAX: u64 = 300_000;
/// Longer than a join waits.
const SILENT_US_MAX: u64 = 10_000_000;

/// The questions to other nodes, and what this node has told them.
#[derive(Default)]
pub(super) struct OtherNodes {
    /// The questions without an answer, by channel: the asking shard, and when the answer arrives.
    asked: BTreeMap<Arc<str>, (usize, u64)>,
    /// Until when a node does not answer.
    silent_until_us: u64,
    /// Until when each room is promised to another node.
    promised_until_us: BTreeMap<Arc<str>, u64>,
    /// The room that must not be opened now.
    left_to_another: Option<Arc<str>>,
    /// Seats whose joins nobody waits for, as the owners of their channels know.
    pub(super) abandoned: BTreeSet<SeatKey>,
}

/// Where another node has a room. The relay of the node does not look at it here.
fn site() -> RoomSite {
    let room = RoomKey { owner: ShardIndex(0), number: 1 };
    RoomSite { node: "other".into(), room, thread: RoomThreadIndex(0), sends_changes: true }
}

impl OtherNodes {
    pub(super) fn are_still(&self) -> bool {
        self.asked.is_empty()
    }

    /// Checks a message to a room thread.
    pub(super) fn check_sent(&self, message: &ToRoom) -> Result<(), String> {
        match message {
            ToRoom::Open { channel, .. } if self.left_to_another.as_ref() == Some(channel) => {
                Err(format!("the room of {channel} is opened, which is promised to another node"))
            }
            ToRoom::Join { request, .. } => match &request.join {
                Some(join) if self.abandoned.contains(&join.seat) => {
                    Err(format!("the join of {:?} goes to a room, for which nobody waits", join.seat))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

impl NodeWorld {
    fn asks_nodes(&self) -> bool {
        self.plan.rooms.as_ref().is_some_and(|rooms| rooms.asks_nodes)
    }

    /// Why a join to a room that does not exist, or fails, is not accepted.
    pub(super) fn why_not_joined(&mut self) -> NotJoined {
        if !self.asks_nodes() || self.harness.chance.percent(50) {
            return NotJoined::Gone;
        }
        self.model.rooms.lock().count("room goes on elsewhere");
        NotJoined::Unavailable
    }

    /// A shard asks the other nodes for a room.
    pub(super) fn ask_other_nodes(&mut self, shard: usize, channel: &Arc<str>) -> Result<(), String> {
        let due_us = self.harness.now_us + self.harness.chance.between(0, ANSWER_US_MAX);
        self.model.rooms.lock().count("other nodes asked");
        match self.other_nodes.asked.insert(Arc::clone(channel), (shard, due_us)) {
            None => Ok(()),
            Some(_) => Err(format!("the other nodes are asked twice at a time for the room of {channel}")),
        }
    }

    /// Answers the questions that are due. Sometimes, another node asks for a room.
    pub(super) fn answer_for_other_nodes(&mut self) -> Result<(), String> {
        if !self.asks_nodes() {
            return Ok(());
        }
        let (now_us, is_settling) = (self.harness.now_us, self.threads.is_settling);
        let is_due = |(_, due_us): &(usize, u64)| is_settling || *due_us <= now_us;
        let asked = self.other_nodes.asked.iter();
        let due: Vec<Arc<str>> = asked.filter(|(_, asked)| is_due(asked)).map(|(name, _)| Arc::clone(name)).collect();
        for channel in due {
            self.answer_question(channel)?;
        }
        if !is_settling && self.harness.chance.percent(2) { self.ask_this_node() } else { Ok(()) }
    }

    fn answer_question(&mut self, channel: Arc<str>) -> Result<(), String> {
        let Some((shard, _)) = self.other_nodes.asked.remove(&channel) else { return Ok(()) };
        if self.harness.chance.percent(20) {
            self.other_nodes.silent_until_us = self.harness.now_us + self.harness.chance.between(0, SILENT_US_MAX);
        }
        let is_silent = self.harness.now_us < self.other_nodes.silent_until_us;
        let found = match self.harness.chance.below(100) {
            _ if self.threads.is_settling => RoomElsewhere::Nowhere { is_contended: false },
            _ if is_silent => RoomElsewhere::Unanswered,
            _ if self.moving.is_possible() && self.harness.chance.percent(60) => {
                self.model.rooms.lock().count("room elsewhere");
                RoomElsewhere::Open { node: "other".into(), site: Some(Box::new(site())) }
            }
            0..40 => RoomElsewhere::Unanswered,
            40..70 => RoomElsewhere::Nowhere { is_contended: true },
            _ => RoomElsewhere::Nowhere { is_contended: false },
        };
        let is_promised = |until_us: &u64| *until_us > self.harness.now_us;
        match found {
            RoomElsewhere::Nowhere { is_contended: true }
                if self.other_nodes.promised_until_us.get(&channel).is_some_and(is_promised) =>
            {
                self.model.rooms.lock().count("room left to another node");
                self.other_nodes.left_to_another = Some(Arc::clone(&channel));
            }
            // The question of the other node is over.
            RoomElsewhere::Nowhere { .. } => {
                self.other_nodes.promised_until_us.remove(&channel);
            }
            RoomElsewhere::Open { .. } | RoomElsewhere::Unanswered => {}
        }
        self.harness.line(|| format!("the other nodes about {channel}: {found:?}"));
        let handled = self.handle(shard, Event::RoomQueried { channel, found });
        self.other_nodes.left_to_another = None;
        handled.map(drop)
    }

    /// Another node asks for a room, which this one promises to it unless it asks itself.
    fn ask_this_node(&mut self) -> Result<(), String> {
        let Some(rooms) = &self.plan.rooms else { return Ok(()) };
        let channel: Arc<str> = self.harness.chance.pick(&rooms.channels).as_str().into();
        let request = ApiRequest::RoomState { channel: (*channel).into(), wait_ms: ASKING_MS };
        let answer = self.call_api(self.node.owner(&channel), request)?;
        let is_asking = self.other_nodes.asked.contains_key(&channel);
        match answer {
            Ok(ApiAnswer::RoomState(RoomState::None)) if !is_asking => {
                let until_us = self.harness.now_us + 2 * ASKING_MS * 1_000;
                self.other_nodes.promised_until_us.insert(channel, until_us);
                Ok(())
            }
            Ok(ApiAnswer::RoomState(RoomState::Asking)) if is_asking => Ok(()),
            // It may have ended, and the owner learns of it later.
            Ok(ApiAnswer::RoomState(RoomState::Open { .. })) => Ok(()),
            other => Err(format!("{channel}: another node is told {other:?}, asking: {is_asking}")),
        }
    }
}
