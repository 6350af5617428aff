//! Checks of what clients and operators observe. Each checker knows only what clients received and what operators
//! requested.

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

use difference::Differences;

pub use history::check_history;
pub use latest::lane_key;
pub use permission::{Verdict, judge_error, judge_success};
pub use recovery::{RecoveryLimits, check_recovery, could_recover_surely};
pub use room::{Seat, accept_input, check_join, check_room_history, refuse_input, seat_answer};

/// A live subscription as its client knows it, with what is needed to judge the next publication.
#[derive(Debug, Default)]
pub struct Subscription {
    pub channel: String,
    /// Whether the server keeps its position.
    pub positioned: bool,
    /// Whether it may recover.
    pub recoverable: bool,
    /// The epoch of its stream.
    pub epoch: String,
    /// The last offset; `None` as long as it is not known.
    pub offset: Option<u64>,
    /// Publications of the API when the client asked; those up to here don't come live.
    pub asked_count: u64,
    /// Publications of the API when the client heard the answer; those after it come live.
    pub live_count: u64,
    /// When the client heard the answer, in Unix milliseconds.
    pub live_ms: u64,
    /// When it expires, by the last word of the server, in Unix seconds.
    pub expiry_s: Option<u64>,
    /// The latest expiry of all tokens it presented.
    pub latest_expiry_s: Option<u64>,
    /// Whether the newest publications of keys come behind the answer, as pushes: where an operator subscribed the client.
    pub has_newest_behind: bool,
    /// The last publication of the API that came live, by count.
    api_seen: Option<u64>,
    /// The same for each key of the latest lane.
    keys_seen: BTreeMap<Option<String>, u64>,
    /// The same for each session that publishes.
    sessions_seen: BTreeMap<String, u64>,
    /// The newest publication of the API that came with the answer, by count.
    recovered_count: u64,
    /// Which publications it wants, if not all.
    pub filter: Option<Filter>,
    /// The number that stands for its channel; 0 for none.
    pub number: u64,
    /// What differences build on, if it gets differences.
    pub differences: Option<Differences>,
    /// Where the channel has a room: the place in it.
    pub seat: Option<Box<Seat>>,
    /// Who came and who left, as far as it was told.
    present: BTreeMap<String, bool>,
}

impl Subscription {
    /// Where to recover from.
    pub fn position(&self) -> Option<ClientPosition> {
        let offset = self.offset.filter(|_| self.recoverable)?;
        Some(ClientPosition { epoch: self.epoch.clone(), offset })
    }

    /// Takes in a join or a leave.
    ///
    /// # Errors
    /// If somebody comes twice without leaving, or leaves twice.
    pub fn who(&mut self, client: &str, comes: bool) -> Result<(), String> {
        match self.present.insert(client.to_owned(), comes) {
            Some(was_there) if was_there == comes => {
                let what = if comes { "joins" } else { "leaves" };
                Err(format!("{client} {what} {} twice in a row", self.channel))
            }
            _ => Ok(()),
        }
    }
}
