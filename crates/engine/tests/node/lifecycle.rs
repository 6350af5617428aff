//! Events for the backend, as scripts show them.

use dunlin_engine::lifecycle::{Lifecycle, LifecycleEvent};
use serde_json::json;

/// An event as one line.
pub fn shown(event: &LifecycleEvent) -> String {
    let shown = match &event.what {
        Lifecycle::Connected { info, wire } => json!({"user": &*info.user, "transport": wire.transport_name()}),
        Lifecycle::Disconnected { session: _, info, code, reason, duration_ms } => {
            json!({"user": &*info.user, "code": code, "reason": reason, "duration_ms": duration_ms})
        }
        Lifecycle::Subscribed { info, channel } => json!({"user": &*info.user, "channel": &**channel}),
        Lifecycle::Unsubscribed { info, channel, code } => {
            json!({"user": &*info.user, "channel": &**channel, "code": code.0})
        }
        Lifecycle::Occupied { channel } | Lifecycle::Vacated { channel } | Lifecycle::RoomOpened { channel } => {
            json!({"channel": &**channel})
        }
        Lifecycle::RoomEnded { channel, code, reason } => {
            json!({"channel": &**channel, "code": code.0, "reason": reason.as_deref()})
        }
    };
    format!("event {} {shown}", event.kind().name())
}
