//! Checks deltas: each applies to the previous publication and yields the published data.

use dunlin_protocol::Encoding;

use crate::wire::{PublicationBody, apply};

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

    pub(super) fn apply(&mut self, seen: &PublicationBody) -> Result<Vec<u8>, String> {
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
