//! Calls of the backend.

use dunlin_rooms::{CallError, CallId, World, WorldError};
use serde_json::{Value, json};

/// A call that a message requests.
pub(super) struct CrowdCall {
    method: String,
    data: Value,
    timeout_ticks: u32,
}

impl CrowdCall {
    /// `None` if the message is not a call.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let message: Value = serde_json::from_slice(message).ok()?;
        let method = message.get("call")?.as_str()?.to_owned();
        let data = message.get("data").cloned().unwrap_or_default();
        let timeout_ticks = message.get("timeout_ticks").and_then(Value::as_u64).unwrap_or_default();
        Some(Self { method, data, timeout_ticks: u32::try_from(timeout_ticks).unwrap_or(u32::MAX) })
    }

    pub(super) fn send(&self, world: &mut World) -> Result<CallId, WorldError> {
        world.call(&self.method, self.data.to_string().as_bytes(), self.timeout_ticks)
    }
}

/// The event that shows the outcome of a call, and the number of ticks before it.
pub(super) fn event(tick: u32, call: CallId, outcome: Result<&[u8], CallError>) -> String {
    let event = match outcome {
        Ok(data) => json!({ "call": call.0, "tick": tick, "answer": serde_json::from_slice::<Value>(data).ok() }),
        Err(CallError::Refused(refusal)) => json!({ "call": call.0, "tick": tick, "error": refusal.code }),
        Err(error) => json!({ "call": call.0, "tick": tick, "error": error.name() }),
    };
    event.to_string()
}
