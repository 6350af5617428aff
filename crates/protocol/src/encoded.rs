//! Publications that are encoded once for many replies.

use std::sync::Arc;

use crate::{Encoding, NotJson, SubscribeResult, json, protobuf};

/// Minimum size for which leaving a gap in a message is cheaper than copying the bytes.
const GAP_BYTES_MIN: usize = 256;

/// The encoded publications of a subscribe result: in JSON the array, in Protobuf the fields.
#[derive(Debug, PartialEq, Eq)]
pub struct EncodedPublications {
    encoding: Encoding,
    bytes: Box<[u8]>,
}

impl EncodedPublications {
    /// Encodes the publications of `result`.
    ///
    /// # Errors
    /// [`NotJson`] if `encoding` is JSON and a payload is not.
    pub fn new(encoding: Encoding, result: &SubscribeResult) -> Result<Self, NotJson> {
        let mut bytes = Vec::new();
        match encoding {
            Encoding::Json => json::encode_publications(result, &mut bytes)?,
            Encoding::Protobuf => protobuf::encode_publications(result, &mut bytes),
        }
        Ok(Self { encoding, bytes: bytes.into() })
    }

    /// The bytes, which are the same in every message.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The encoding of the bytes.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }
}

/// The gaps of a message, into which [`EncodedPublications`] must be inserted.
#[derive(Debug, Default)]
pub struct Gaps {
    missing: Vec<(usize, Arc<EncodedPublications>)>,
}

impl Gaps {
    /// The missing publications in order, each with its position in the buffer.
    pub fn into_missing(self) -> Vec<(usize, Arc<EncodedPublications>)> {
        self.missing
    }

    /// Total size of the gaps: the number of bytes that the caller must insert.
    pub fn missing_bytes(&self) -> usize {
        self.missing.iter().map(|(_, encoded)| encoded.bytes.len()).sum()
    }

    /// Records a gap for `encoded` at the end of `out`, or appends it if it is too small for a gap.
    pub(crate) fn leave(&mut self, encoded: &Arc<EncodedPublications>, out: &mut Vec<u8>) {
        if encoded.bytes.len() < GAP_BYTES_MIN {
            out.extend_from_slice(&encoded.bytes);
        } else {
            self.missing.push((out.len(), Arc::clone(encoded)));
        }
    }
}
