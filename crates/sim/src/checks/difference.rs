//! Checks deltas: each applies to the publication before it and yields the published data.

use dunlin_protocol::Encoding;

use crate::wire::{PublicationBody, apply};

use super::Subscription;

/// What a subscription has that is sent differences.
#[derive(Debug)]
pub struct Differences {
    /// In JSON all data comes as strings.
    encoding: Encoding,
    /// The data that came last.
    newest: Option<Vec<u8>>,
}

impl Differences {
    /// Nothing has come.
    pub fn new(encoding: Encoding) -> Self {
        Self { encoding, newest: None }
    }

    fn make_whole(&mut self, seen: &PublicationBody) -> Result<Vec<u8>, String> {
        let bytes = match self.encoding {
            Encoding::Json => {
                let text: String = serde_json::from_slice(&seen.data).map_err(|error| error.to_string())?;
                text.into_bytes()
            }
            Encoding::Protobuf => seen.data.clone(),
        };
        let whole = match &self.newest {
            _ if !seen.delta => bytes,
            None => return Err("a difference to nothing".to_owned()),
            Some(newest) => {
                let whole = apply(newest, &bytes)?;
                if bytes.len() >= whole.len() {
                    return Err(format!("a difference of {} bytes makes {}", bytes.len(), whole.len()));
                }
                whole
            }
        };
        self.newest = Some(whole.clone());
        Ok(whole)
    }
}

impl Subscription {
    /// The publication with the data that was published, whatever it came as.
    ///
    /// # Errors
    /// If it builds on what did not come, or is a difference that was not asked for.
    pub(super) fn whole(&mut self, seen: &PublicationBody) -> Result<PublicationBody, String> {
        let data = match &mut self.differences {
            Some(differences) => {
                let whole = differences.make_whole(seen);
                whole.map_err(|error| format!("{}: {error}, at offset {}", self.channel, seen.offset))?
            }
            None if seen.delta => return Err(format!("{}: a difference that nobody asked for", self.channel)),
            None => seen.data.clone(),
        };
        Ok(PublicationBody { data, ..seen.clone() })
    }
}
