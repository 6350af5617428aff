//! The limits that act on a session, with the configuration keys that set them.

use dunlin_engine::insight::{CommandsWaitFor, QueueLimits, SessionFacts};
use serde::Serialize;

/// A limit that acts on a session, or the bound of its queue that is nearest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitJson {
    /// The configuration key, or the method that sets it for one session.
    key: &'static str,
    /// Its value; absent if it is not a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u64>,
    /// How much of it is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
    /// What it does.
    effect: &'static str,
}

/// The limits that act on a session.
pub(super) fn limits_of(facts: &SessionFacts, bounds: QueueLimits) -> Vec<LimitJson> {
    let queue = &facts.queue;
    let used = [
        ("client.queue_max_size", bounds.bytes_max, queue.reliable.bytes + queue.latest.bytes),
        ("client.queue_max_frames", bounds.frames_max, queue.reliable.frames + queue.latest.frames),
    ];
    let share = |(_, max, used): &(&str, usize, usize)| *used as u128 * 1_000_000 / (*max).max(1) as u128;
    let [bytes, frames] = used;
    let (key, max, used) = if share(&bytes) >= share(&frames) { bytes } else { frames };
    let queue_limit = |effect| LimitJson { key, value: Some(max as u64), used: Some(used as u64), effect };
    let mut limits = Vec::new();
    if facts.commands_wait_for == Some(CommandsWaitFor::Socket) {
        limits.push(queue_limit("its next command waits, because most of the queue is used"));
    } else if used > 0 {
        limits.push(queue_limit("beyond it, the session is closed with 3008"));
    }
    if queue.replaced > 0 {
        let effect = "delivery: latest, so newer publications have replaced older ones that waited";
        limits.push(LimitJson { key: "delivery", value: None, used: Some(queue.replaced), effect });
    }
    if queue.limited_us > 0 {
        let effect = "a room skips ticks for the session, which has been sent as much as it may";
        limits.push(LimitJson { key: "room.player_bandwidth_limit", value: None, used: None, effect });
    }
    let paces = &facts.paces;
    if let Some(updates) = paces.updates_per_second_min {
        let effect =
            "the client or the server API has stated a pace for some of its subscriptions, which leave out the rest";
        // Less than one a second is no whole number, and 1 would be wrong by up to ten times.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a pace is at most some hundreds")]
        let value = (updates >= 1.0).then(|| updates.round() as u64);
        limits.push(LimitJson { key: "subscription_pace", value, used: Some(paces.subscriptions.into()), effect });
    }
    if let Some(bytes) = paces.bytes_per_second {
        let effect = if paces.is_held {
            "the client or the server API has stated its bytes per second, and now newer publications replace older ones"
        } else {
            "the client or the server API has stated its bytes per second"
        };
        limits.push(LimitJson { key: "session_pace", value: Some(bytes.into()), used: None, effect });
    }
    limits
}
