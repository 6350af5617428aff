//! Checks what clients and operators observe. The checkers only use what clients received and what operators requested.

mod difference;
mod history;
mod latest;
mod newest;
mod permission;
mod recovery;
mod room;
mod stream;

use std::collections::BTreeMap;

use crate::wire::{ClientPosition, Filter};

use difference::DeltaState;

pub use history::check_history;
pub use latest::lane_key;
pub use permission::{ReplyContext, check_error, check_success};
pub use recovery::{Recovery, RecoveryLimits, check_recovery, must_be_recoverable};
pub use room::{Seat, accept_input, check_join, check_room_history, reject_input, seat_answer};

/// A live subscription as its client sees it, with the state that is needed to check the next publication.
#[derive(Debug, Default)]
pub struct Subscription {
    pub channel: String,
    /// Whether the server tracks its position.
    pub positioned: bool,
    /// Whether the client may recover it.
    pub recoverable: bool,
    /// The epoch of its stream.
    pub epoch: String,
    /// The last offset, or `None` if it is not known yet.
    pub offset: Option<u64>,
    /// Number of API publications when the client sent its request. Those are not delivered live.
    pub request_count: u64,
    /// Number of API publications when the client received the reply. Later ones are delivered live.
    pub live_count: u64,
    /// When the client received the reply, in Unix milliseconds.
    pub live_ms: u64,
    /// When it expires according to the last message of the server, in Unix seconds.
    pub expiry_s: Option<u64>,
    /// The latest expiry of all tokens that the client presented for it.
    pub latest_expiry_s: Option<u64>,
    /// Whether the newest publication of each key follows the reply as a push. This is so if an operator subscribed the
    /// client.
    pub newest_follows_reply: bool,
    /// Count of the last API publication that was delivered live.
    api_seen: Option<u64>,
    /// Count of the last publication for each key of the latest lane.
    keys_seen: BTreeMap<Option<String>, u64>,
    /// Count of the last publication for each publishing session.
    sessions_seen: BTreeMap<String, u64>,
    /// Count of the newest API publication in the reply.
    recovered_count: u64,
    /// The filter that the client requested.
    pub filter: Option<Filter>,
    /// The number that replaces the channel name on the wire, or 0 if there is none.
    pub number: u64,
    /// The delta state, if the subscription receives deltas.
    pub delta_state: Option<DeltaState>,
    /// The client's seat, if the channel has a room.
    pub seat: Option<Box<Seat>>,
    /// By client id, whether the last join or leave message was a join.
    present: BTreeMap<String, bool>,
}

impl Subscription {
    /// The position to recover from.
    pub fn position(&self) -> Option<ClientPosition> {
        let offset = self.offset.filter(|_| self.recoverable)?;
        Some(ClientPosition { epoch: self.epoch.clone(), offset })
    }

    /// Records a join or a leave message.
    ///
    /// # Errors
    /// If a client joins twice without a leave, or leaves twice without a join.
    pub fn record_presence(&mut self, client: &str, comes: bool) -> Result<(), String> {
        match self.present.insert(client.to_owned(), comes) {
            Some(was_there) if was_there == comes => {
                let what = if comes { "joins" } else { "leaves" };
                Err(format!("{client} {what} {} twice in a row", self.channel))
            }
            _ => Ok(()),
        }
    }
}
