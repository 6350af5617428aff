//! Publications of a reply, encoded once for many replies.

use std::sync::Arc;

use crate::{Encoding, NotJson, SubscribeResult, json, protobuf};

/// Bytes from which on it pays to leave a gap in a message rather than to copy what belongs there.
const GAP_BYTES_MIN: usize = 256;

/// The publications of a subscribe result as one encoding has them: in JSON the array, in Protobuf the fields.
#[derive(Debug, PartialEq, Eq)]
pub struct EncodedPublications {
    encoding: Encoding,
    bytes: Box<[u8]>,
}

impl EncodedPublications {
    /// Writes the publications of `result`.
    ///
    /// # Errors
    /// [`NotJson`] if a payload of theirs is not JSON and `encoding` is.
    pub fn new(encoding: Encoding, result: &SubscribeResult) -> Result<Self, NotJson> {
        let mut bytes = Vec::new();
        match encoding {
            Encoding::Json => json::encode_publications(result, &mut bytes)?,
            Encoding::Protobuf => protobuf::encode_publications(result, &mut bytes),
        }
        Ok(Self { encoding, bytes: bytes.into() })
    }

    /// The bytes, the same in every message that has them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What they are written in.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }
}

/// What a message lacks that was written around its [`EncodedPublications`].
#[derive(Debug, Default)]
pub struct Gaps {
    missing: Vec<(usize, Arc<EncodedPublications>)>,
}

impl Gaps {
    /// What is missing, in order: each with the length that the buffer had where it belongs.
    pub fn into_missing(self) -> Vec<(usize, Arc<EncodedPublications>)> {
        self.missing
    }

    /// Sum of the gaps: bytes that the caller has to insert.
    pub fn missing_bytes(&self) -> usize {
        self.missing.iter().map(|(_, encoded)| encoded.bytes.len()).sum()
    }

    /// Leaves out `encoded` at the end of `out`, or appends it where a gap would not pay.
    pub(crate) fn leave(&mut self, encoded: &Arc<EncodedPublications>, out: &mut Vec<u8>) {
        if encoded.bytes.len() < GAP_BYTES_MIN {
            out.extend_from_slice(&encoded.bytes);
        } else {
            self.missing.push((out.len(), Arc::clone(encoded)));
        }
    }
}
