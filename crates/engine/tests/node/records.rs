//! Records for the log, as scripts show them.

use dunlin_engine::record::{CommandSubject, SessionIncident, SessionRecord};
use serde_json::json;

/// A record as one line.
pub fn shown(record: &SessionRecord) -> String {
    let of_subject =
        |subject: &CommandSubject| json!({"command": subject.command, "channel": subject.channel.as_deref()});
    let (what, mut shown) = match &record.what {
        SessionIncident::CommandRefused { subject, command_id, code, why } => {
            let mut shown = of_subject(subject);
            (shown["id"], shown["code"], shown["why"]) = (json!(command_id), json!(code), json!(why));
            ("refused", shown)
        }
        SessionIncident::Disconnected { subject, code, reason, why, queued: (bytes, frames) } => {
            let mut shown = subject.as_ref().map_or(json!({}), of_subject);
            (shown["code"], shown["reason"], shown["why"]) = (json!(code), json!(reason), json!(why));
            if *bytes > 0 {
                (shown["queued_bytes"], shown["queued_frames"]) = (json!(bytes), json!(frames));
            }
            ("disconnected", shown)
        }
        SessionIncident::Connected => ("connected", json!({})),
        SessionIncident::Left { code } => ("left", json!({"code": code})),
        SessionIncident::Gone => ("gone", json!({})),
        SessionIncident::Unsubscribed { channel, code } => {
            ("unsubscribed", json!({"channel": &**channel, "code": code}))
        }
        SessionIncident::CommandReceived { subject, command_id } => {
            let mut shown = of_subject(subject);
            shown["id"] = json!(command_id);
            ("command", shown)
        }
    };
    shown["user"] = json!(record.info.as_ref().map(|info| &*info.user));
    if record.suppressed > 0 {
        shown["suppressed"] = json!(record.suppressed);
    }
    shown.as_object_mut().expect("it is one").retain(|_, value| !value.is_null());
    format!("record {what} {shown}")
}
