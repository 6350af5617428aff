//! Encoded frames: complete with their WebSocket header, written once, shared by everyone they go to.

use std::{rc::Rc, sync::Arc};

use dunlin_protocol::{ClientInfo, Encoding, NotJson, Publication, Push, encode_push, publication_head};
use dunlin_rooms::Body;
use dunlin_websocket::header::{HEADER_BYTES_MAX, Opcode, write_header};

use crate::{names::NamespaceIndex, room::EventAudience};

/// A publication, join or leave on its way from the owner to the listening shards, encoded once for each encoding in use.
#[derive(Debug)]
pub struct Delivery {
    pub(crate) channel: Arc<str>,
    pub(crate) namespace: NamespaceIndex,
    pub(crate) body: DeliveryBody,
    /// When the owner accepted it, on the clock of [`crate::Now::mono_us`].
    pub(crate) accepted_us: u64,
    /// By [`Encoding::index`]; `None` where no subscriber had the encoding.
    frames: [Option<Result<Box<[u8]>, NotJson>>; Encoding::ALL.len()],
}

/// What a [`Delivery`] carries.
#[derive(Debug)]
pub(crate) enum DeliveryBody {
    /// A publication, with the value that keys it in the latest lane, if its namespace has a key and it the tag.
    Publication {
        publication: Arc<Publication>,
        conflation_key: Option<Box<str>>,
        /// For whom, if not for everybody.
        audience: Option<Arc<EventAudience>>,
    },
    /// Somebody came.
    Join(Arc<ClientInfo>),
    /// Somebody left.
    Leave(Arc<ClientInfo>),
}

impl Delivery {
    /// An empty envelope; [`Delivery::encode`] fills in the frames.
    pub(crate) fn new(channel: Arc<str>, namespace: NamespaceIndex, body: DeliveryBody, accepted_us: u64) -> Self {
        Self { channel, namespace, body, accepted_us, frames: [None, None] }
    }

    /// Writes the frame for `encoding`. `scratch` only lends its capacity.
    pub(crate) fn encode(&mut self, encoding: Encoding, scratch: &mut Vec<u8>) {
        let frame = build_frame(encoding, scratch, |out| encode_push(encoding, &self.push(0), out));
        self.frames[encoding.index()] = Some(frame);
    }

    /// The channel.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// The publication, unless this is a join or leave.
    pub fn publication(&self) -> Option<&Arc<Publication>> {
        match &self.body {
            DeliveryBody::Publication { publication, .. } => Some(publication),
            DeliveryBody::Join(_) | DeliveryBody::Leave(_) => None,
        }
    }

    /// The players that it is for; `None` for all subscribers.
    pub fn audience(&self) -> Option<&EventAudience> {
        match &self.body {
            DeliveryBody::Publication { audience, .. } => audience.as_deref(),
            DeliveryBody::Join(_) | DeliveryBody::Leave(_) => None,
        }
    }

    /// In how many encodings it was written.
    pub fn encodes(&self) -> usize {
        self.frames.iter().flatten().count()
    }

    /// Bytes of the longest of its frames.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.frames.iter().flatten().flatten().map(|frame| frame.len()).max().unwrap_or(0)
    }

    /// The frame for `encoding`: `None` if it was not written, an error if its payload is not JSON and the encoding is.
    pub(crate) fn frame(&self, encoding: Encoding) -> Option<Result<&[u8], NotJson>> {
        self.frames[encoding.index()].as_ref().map(|frame| frame.as_deref().map_err(|error| *error))
    }

    fn push(&self, skipped: u32) -> Push<'_> {
        let channel = &self.channel;
        match &self.body {
            DeliveryBody::Publication { publication, .. } => Push::Publication { channel, publication, skipped },
            DeliveryBody::Join(info) => Push::Join { channel, info },
            DeliveryBody::Leave(info) => Push::Leave { channel, info },
        }
    }
}

/// A frame in a session's lane. A clone costs one non-atomic increment.
#[derive(Clone, Debug)]
pub(crate) struct FrameRef(Rc<FrameBytes>);

#[derive(Debug)]
enum FrameBytes {
    /// For one session alone.
    Own { bytes: Box<[u8]>, queued_us: u64 },
    /// The same for all of a shard.
    Static(&'static [u8]),
    /// Behind a room's head, the part of a frame that others share.
    Body { body: Rc<Body>, queued_us: u64 },
    /// A shard's share of a delivery.
    Shared { delivery: Arc<Delivery>, encoding: Encoding },
}

impl FrameRef {
    /// A frame for one session.
    pub(crate) fn own(bytes: Box<[u8]>, queued_us: u64) -> Self {
        Self(Rc::new(FrameBytes::Own { bytes, queued_us }))
    }

    /// A frame that never changes.
    pub(crate) fn fixed(bytes: &'static [u8]) -> Self {
        Self(Rc::new(FrameBytes::Static(bytes)))
    }

    /// The rest of a room's frame, behind its head.
    pub(crate) fn body(body: Rc<Body>, queued_us: u64) -> Self {
        Self(Rc::new(FrameBytes::Body { body, queued_us }))
    }

    /// The frame of `delivery` for `encoding`, which must have been encoded.
    pub(crate) fn shared(delivery: Arc<Delivery>, encoding: Encoding) -> Self {
        debug_assert!(matches!(delivery.frame(encoding), Some(Ok(_))), "a frame is encoded before it is shared");
        Self(Rc::new(FrameBytes::Shared { delivery, encoding }))
    }

    /// The bytes on the wire.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &*self.0 {
            FrameBytes::Own { bytes, .. } => bytes,
            FrameBytes::Static(bytes) => bytes,
            FrameBytes::Body { body, .. } => &body.bytes,
            FrameBytes::Shared { delivery, encoding } => match delivery.frame(*encoding) {
                Some(Ok(bytes)) => bytes,
                Some(Err(NotJson)) | None => unreachable!("checked when the frame was made"),
            },
        }
    }

    /// The delivery behind a shared frame.
    pub(crate) fn delivery(&self) -> Option<&Arc<Delivery>> {
        match &*self.0 {
            FrameBytes::Shared { delivery, .. } => Some(delivery),
            FrameBytes::Own { .. } | FrameBytes::Static(_) | FrameBytes::Body { .. } => None,
        }
    }

    /// Since when the frame has been on its way; `None` for pings, which carry no time.
    pub(crate) fn since_us(&self) -> Option<u64> {
        match &*self.0 {
            FrameBytes::Own { queued_us, .. } | FrameBytes::Body { queued_us, .. } => Some(*queued_us),
            FrameBytes::Static(_) => None,
            FrameBytes::Shared { delivery, .. } => Some(delivery.accepted_us),
        }
    }

    /// The same publication again with the tag `skipped`; `None` for what is no publication.
    pub(crate) fn with_skipped(&self, skipped: u32, scratch: &mut Vec<u8>) -> Option<Self> {
        let FrameBytes::Shared { delivery, encoding } = &*self.0 else { return None };
        let push = delivery.push(skipped);
        let bytes = build_frame(*encoding, scratch, |out| encode_push(*encoding, &push, out)).ok()?;
        Some(Self::own(bytes, delivery.accepted_us))
    }
}

/// Builds a data frame around the message that `encode` appends.
pub(crate) fn build_frame<E>(
    encoding: Encoding,
    scratch: &mut Vec<u8>,
    encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<Box<[u8]>, E> {
    scratch.clear();
    scratch.resize(HEADER_BYTES_MAX, 0);
    encode(scratch)?;
    let start = fill_in_header(encoding, scratch, 0);
    Ok(Box::from(&scratch[start..]))
}

/// Writes the header of a frame right in front of its message, which begins at [`HEADER_BYTES_MAX`] in `out` and goes on
/// elsewhere with `bytes_elsewhere`. Returns where the header begins.
fn fill_in_header(encoding: Encoding, out: &mut [u8], bytes_elsewhere: usize) -> usize {
    let mut header = [0; HEADER_BYTES_MAX];
    let message_bytes = out.len() - HEADER_BYTES_MAX + bytes_elsewhere;
    let header_bytes = write_header(opcode(encoding), message_bytes, &mut header);
    let start = HEADER_BYTES_MAX - header_bytes;
    out[start..HEADER_BYTES_MAX].copy_from_slice(&header[..header_bytes]);
    start
}

/// What stands in front of a room's body in one player's frame: the frame's header, the envelope of a publication, and
/// what belongs to the player alone. Its memory is used again for the next frame.
#[derive(Debug, Default)]
pub(crate) struct RoomHead {
    buffer: Vec<u8>,
    start: usize,
}

impl RoomHead {
    /// Writes the head for a body of `body_bytes`, of which `data_bytes` belong to the publication's data.
    pub(crate) fn write(
        &mut self,
        encoding: Encoding,
        channel: &str,
        player: &[u8],
        body_bytes: usize,
        data_bytes: usize,
    ) {
        self.buffer.clear();
        self.buffer.resize(HEADER_BYTES_MAX, 0);
        publication_head(encoding, channel, player.len() + data_bytes, &mut self.buffer);
        self.buffer.extend_from_slice(player);
        self.start = fill_in_header(encoding, &mut self.buffer, body_bytes);
    }

    /// The bytes on the wire.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }
}

/// The frame of a server's ping.
pub(crate) const fn ping_frame(encoding: Encoding) -> &'static [u8] {
    match encoding {
        Encoding::Json => b"\x81\x02{}",
        Encoding::Protobuf => b"\x82\x01\x00",
    }
}

const fn opcode(encoding: Encoding) -> Opcode {
    match encoding {
        Encoding::Json => Opcode::Text,
        Encoding::Protobuf => Opcode::Binary,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_frame_is_the_ping_message_in_a_frame() {
        for encoding in Encoding::ALL {
            let built = build_frame(encoding, &mut Vec::new(), |out| {
                out.extend_from_slice(dunlin_protocol::ping_message(encoding));
                Ok::<(), NotJson>(())
            });
            assert_eq!(built.as_deref(), Ok(ping_frame(encoding)));
        }
    }
}
