//! Checks deltas: each applies to the previous publication and yields the published data.

use dunlin_protocol::Encoding;

use crate::wire::{PublicationBody, apply};

use super::Subscription;

/// The delta state of a subscription that receives deltas.
#[derive(Debug)]
pub struct DeltaState {
    /// With JSON, the server sends all data as strings.
    encoding: Encoding,
    /// The data of the last publication, which is the base of the next delta.
    newest: Option<Vec<u8>>,
}

impl DeltaState {
    pub fn new(encoding: Encoding) -> Self {
        Self { encoding, newest: None }
    }

    fn apply(&mut self, seen: &PublicationBody) -> Result<Vec<u8>, String> {
        let bytes = match self.encoding {
            Encoding::Json => {
                let text: String = serde_json::from_slice(&seen.data).map_err(|error| error.to_string())?;
                text.into_bytes()
            }
            Encoding::Protobuf => seen.data.clone(),
        };
        let full = match &self.newest {
            _ if !seen.delta => bytes,
            None => return Err("a delta without a base".to_owned()),
            Some(newest) => {
                let full = apply(newest, &bytes)?;
                if bytes.len() >= full.len() {
                    return Err(format!(
                        "a delta of {} bytes is not shorter than its result of {} bytes",
                        bytes.len(),
                        full.len()
                    ));
                }
                full
            }
        };
        self.newest = Some(full.clone());
        Ok(full)
    }
}

impl Subscription {
    /// Returns the publication with its full data, whether it was sent as a delta or not.
    ///
    /// # Errors
    /// If a delta has no base or does not apply to it, or if the client did not request deltas.
    pub(super) fn full_publication(&mut self, seen: &PublicationBody) -> Result<PublicationBody, String> {
        let data = match &mut self.delta_state {
            Some(delta_state) => {
                let full = delta_state.apply(seen);
                full.map_err(|error| format!("{}: {error}, at offset {}", self.channel, seen.offset))?
            }
            None if seen.delta => return Err(format!("{}: a delta that the client did not request", self.channel)),
            None => seen.data.clone(),
        };
        Ok(PublicationBody { data, ..seen.clone() })
    }
}
