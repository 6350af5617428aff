//! Checks what clients and operators observe. The checkers only use what clients received and what operators requested.

mod difference;
mod history;
mod permission;
mod recovery;
mod room;
mod subscription;

pub use history::check_history;
pub use permission::{ReplyContext, check_error, check_success};
pub use recovery::{Recovery, RecoveryLimits, check_recovery, must_be_recoverable};
pub use room::{accept_input, check_join, check_room_history, reject_input, seat_answer};
pub use subscription::{Subscription, lane_key};
