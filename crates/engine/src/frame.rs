//! Encoded frames. A frame includes its WebSocket header, is encoded once, and is shared by all its receivers.

mod parted;
mod scratch;

use std::{rc::Rc, sync::Arc};

use dunlin_protocol::{
    ChannelRef, ClientInfo, DataForm, Disconnect, Encoding, Gaps, NotJson, Publication, Push, Reply, encode_bare_push,
    encode_push, encode_reply, encode_reply_around, publication_head,
};
use dunlin_rooms::SnapshotBody;
use dunlin_websocket::{
    close::append_close,
    header::{HEADER_BYTES_MAX, Opcode, write_header},
};

use crate::{
    FrameClass, Wire, names::NamespaceIndex, options::UniWebSocketOptions, room::EventAudience, wire::Framing,
};

pub(crate) use parted::Parts;
pub(crate) use scratch::Scratch;

use parted::PartedFrame;

/// A publication, join or leave on its way from the owner to the listening shards, encoded once for each class in use.
#[derive(Debug)]
pub struct Delivery {
    pub(crate) channel: Arc<str>,
    /// The channel's number for compact classes; 0 if it has none.
    channel_number: u64,
    pub(crate) namespace: NamespaceIndex,
    pub(crate) body: DeliveryBody,
    /// When the owner accepted it, on the clock of [`crate::Now::mono_us`].
    pub(crate) accepted_us: u64,
    /// Whether it is followed through its stages.
    pub(crate) is_followed: bool,
    /// The publication as a patch of the one before it in the stream, for delta classes.
    patch: Option<Arc<[u8]>>,
    /// Each class once.
    frames: Vec<ClassFrames>,
}

/// The frames for the subscribers of one class.
#[derive(Debug)]
pub(crate) struct ClassFrames {
    pub(crate) class: FrameClass,
    /// An error if the encoding is JSON and the payload is not.
    pub(crate) whole: Result<Box<[u8]>, NotJson>,
    /// For subscribers that were sent the previous publication.
    pub(crate) patch: Option<Box<[u8]>>,
}

/// What a [`Delivery`] carries.
#[derive(Debug)]
pub(crate) enum DeliveryBody {
    /// A publication, with its conflation key if the namespace has one and the publication has the tag.
    Publication {
        publication: Arc<Publication>,
        conflation_key: Option<Box<str>>,
        /// The recipients; `None` for all subscribers.
        audience: Option<Arc<EventAudience>>,
    },
    /// A session joined.
    Join(Arc<ClientInfo>),
    /// A session left.
    Leave(Arc<ClientInfo>),
}

impl Delivery {
    /// A delivery without frames; [`Delivery::encode`] adds them.
    pub(crate) fn new(channel: Arc<str>, namespace: NamespaceIndex, body: DeliveryBody, accepted_us: u64) -> Self {
        Self {
            channel,
            channel_number: 0,
            namespace,
            body,
            accepted_us,
            is_followed: false,
            patch: None,
            frames: Vec::with_capacity(1),
        }
    }

    /// Sets the patch for delta classes.
    pub(crate) fn with_patch(self, patch: Option<Arc<[u8]>>) -> Self {
        Self { patch, ..self }
    }

    /// Sets whether it is followed through its stages.
    pub(crate) fn followed(self, is_followed: bool) -> Self {
        Self { is_followed, ..self }
    }

    /// Sets the channel's number.
    pub(crate) fn numbered(self, channel_number: u64) -> Self {
        Self { channel_number, ..self }
    }

    /// Encodes the frames for `class`, unless they exist. Only the capacity of `scratch` is used.
    pub(crate) fn encode(&mut self, class: FrameClass, scratch: &mut Scratch) {
        if self.frames.iter().any(|frames| frames.class == class) {
            return;
        }
        let mut build =
            |data| build_frame(class.wire, scratch, |out| encode_push_on(class.wire, &self.push(class, data, 0), out));
        let frames = match &self.patch {
            Some(patch) if class.delta => ClassFrames {
                class,
                whole: build(DataForm::Whole),
                // A patch that is not text cannot be sent as JSON.
                patch: build(DataForm::Patch(patch)).ok(),
            },
            _ => ClassFrames { class, whole: build(whole_form(class)), patch: None },
        };
        self.frames.push(frames);
    }

    /// The channel's name.
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

    /// The players that receive it; `None` for all subscribers.
    pub fn audience(&self) -> Option<&EventAudience> {
        match &self.body {
            DeliveryBody::Publication { audience, .. } => audience.as_deref(),
            DeliveryBody::Join(_) | DeliveryBody::Leave(_) => None,
        }
    }

    /// The number of frames that it was encoded into.
    pub fn encodes(&self) -> usize {
        self.frames.iter().map(|frames| 1 + usize::from(frames.patch.is_some())).sum()
    }

    /// Bytes of its frames.
    pub fn bytes(&self) -> usize {
        let of = |frames: &ClassFrames| {
            let whole = frames.whole.as_ref().map_or(0, |frame| frame.len());
            whole + frames.patch.as_ref().map_or(0, |frame| frame.len())
        };
        self.frames.iter().map(of).sum()
    }

    /// Bytes of its longest frame.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        let whole = self.frames.iter().filter_map(|frames| frames.whole.as_ref().ok());
        whole.map(|frame| frame.len()).max().unwrap_or(0)
    }

    /// The frames of each class, with their index.
    pub(crate) fn frames(&self) -> impl Iterator<Item = (u16, &ClassFrames)> {
        (0..).zip(&self.frames)
    }

    fn frame(&self, place: FramePlace) -> Option<&[u8]> {
        match place {
            FramePlace::Whole(index) => self.frames.get(usize::from(index))?.whole.as_deref().ok(),
            FramePlace::Patch(index) => self.frames.get(usize::from(index))?.patch.as_deref(),
        }
    }

    fn push<'a>(&'a self, class: FrameClass, data: DataForm<'a>, skipped: u32) -> Push<'a> {
        let (name, number) = (ChannelRef::Name(&self.channel), ChannelRef::Number(self.channel_number));
        let channel = if class.compact { number } else { name };
        match &self.body {
            DeliveryBody::Publication { publication, .. } => Push::Publication { channel, publication, data, skipped },
            DeliveryBody::Join(info) => Push::Join { channel, info },
            DeliveryBody::Leave(info) => Push::Leave { channel, info },
        }
    }
}

/// The form of the data in the frames of `class`, unless it is a patch.
const fn whole_form(class: FrameClass) -> DataForm<'static> {
    if class.delta { DataForm::Whole } else { DataForm::Plain }
}

/// Identifies one of a delivery's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FramePlace {
    /// The whole publication, for the class at this index.
    Whole(u16),
    /// The patch, for the class at this index.
    Patch(u16),
}

/// A frame in a session's lane. A clone costs one non-atomic increment.
#[derive(Clone, Debug)]
pub(crate) struct FrameRef(Rc<FrameBytes>);

#[derive(Debug)]
enum FrameBytes {
    /// For one session only.
    Own { bytes: Box<[u8]>, queued_us: u64 },
    /// For one session, with parts that other sessions share.
    Parted(Box<PartedFrame>),
    /// A constant that all sessions of a shard share.
    Static(&'static [u8]),
    /// The shared part of a room frame, which follows the head.
    Body { body: Rc<SnapshotBody>, queued_us: u64 },
    /// A frame of a delivery, shared with other sessions and shards.
    Shared { delivery: Arc<Delivery>, place: FramePlace },
}

impl FrameRef {
    /// A frame for one session only.
    pub(crate) fn own(bytes: Box<[u8]>, queued_us: u64) -> Self {
        Self(Rc::new(FrameBytes::Own { bytes, queued_us }))
    }

    fn parted(frame: PartedFrame) -> Self {
        Self(Rc::new(FrameBytes::Parted(Box::new(frame))))
    }

    /// A constant frame.
    pub(crate) fn fixed(bytes: &'static [u8]) -> Self {
        Self(Rc::new(FrameBytes::Static(bytes)))
    }

    /// The shared part of a room frame, which follows the head.
    pub(crate) fn body(body: Rc<SnapshotBody>, queued_us: u64) -> Self {
        Self(Rc::new(FrameBytes::Body { body, queued_us }))
    }

    /// The frame of `delivery` at `place`, which [`Delivery::frames`] has returned.
    pub(crate) fn shared(delivery: Arc<Delivery>, place: FramePlace) -> Self {
        debug_assert!(delivery.frame(place).is_some(), "only what was written is shared");
        Self(Rc::new(FrameBytes::Shared { delivery, place }))
    }

    /// The bytes on the wire: one slice, or parts.
    pub(crate) fn bytes(&self) -> Result<&[u8], Parts<'_>> {
        match &*self.0 {
            FrameBytes::Own { bytes, .. } => Ok(bytes),
            FrameBytes::Parted(frame) => Err(frame.parts()),
            FrameBytes::Static(bytes) => Ok(bytes),
            FrameBytes::Body { body, .. } => Ok(&body.bytes),
            FrameBytes::Shared { delivery, place } => {
                Ok(delivery.frame(*place).expect("checked when the frame was made"))
            }
        }
    }

    /// The number of bytes on the wire.
    pub(crate) fn len(&self) -> usize {
        match &*self.0 {
            FrameBytes::Parted(frame) => frame.len(),
            _ => self.bytes().map_or(0, <[u8]>::len),
        }
    }

    /// Maximum number of slices passed to the socket.
    pub(crate) fn slices(&self) -> usize {
        self.bytes().map_or_else(Iterator::count, |_| 1)
    }

    /// Whether nothing else on this shard refers to the frame.
    pub(crate) fn is_last(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    /// The delivery behind a shared frame.
    pub(crate) fn delivery(&self) -> Option<&Arc<Delivery>> {
        match &*self.0 {
            FrameBytes::Shared { delivery, .. } => Some(delivery),
            FrameBytes::Own { .. } | FrameBytes::Parted(_) | FrameBytes::Static(_) | FrameBytes::Body { .. } => None,
        }
    }

    /// When the frame was accepted or queued; `None` for pings, which carry no time.
    pub(crate) fn since_us(&self) -> Option<u64> {
        match &*self.0 {
            FrameBytes::Own { queued_us, .. } | FrameBytes::Body { queued_us, .. } => Some(*queued_us),
            FrameBytes::Parted(frame) => Some(frame.queued_us),
            FrameBytes::Static(_) => None,
            FrameBytes::Shared { delivery, .. } => Some(delivery.accepted_us),
        }
    }

    /// Encodes the same publication again with the tag `skipped`; `None` for a frame without a publication.
    pub(crate) fn with_skipped(&self, skipped: u32, scratch: &mut Scratch) -> Option<Self> {
        let FrameBytes::Shared { delivery, place } = &*self.0 else { return None };
        let (FramePlace::Whole(index) | FramePlace::Patch(index)) = *place;
        let class = delivery.frames[usize::from(index)].class;
        let push = delivery.push(class, whole_form(class), skipped);
        let bytes = build_frame(class.wire, scratch, |out| encode_push_on(class.wire, &push, out)).ok()?;
        Some(Self::own(bytes, delivery.accepted_us))
    }
}

/// Appends the message that carries `push`. On unidirectional transports, it has no envelope.
pub(crate) fn encode_push_on(wire: Wire, push: &Push<'_>, out: &mut Vec<u8>) -> Result<(), NotJson> {
    if wire.is_unidirectional() {
        encode_bare_push(wire.encoding(), push, out)
    } else {
        encode_push(wire.encoding(), push, out)
    }
}

/// Builds the reply frame of one session, around publications that other sessions share. On a wire with compression or
/// a unidirectional one the publications are copied; compression needs them in one buffer.
pub(crate) fn reply_frame(
    wire: Wire,
    id: u32,
    reply: &Reply,
    scratch: &mut Scratch,
    queued_us: u64,
) -> Result<FrameRef, NotJson> {
    if wire.framing() == (Framing::WebSocket { deflate: true }) {
        let bytes = build_frame(wire, scratch, |out| encode_reply(wire.encoding(), id, reply, out))?;
        return Ok(FrameRef::own(bytes, queued_us));
    }
    let mut gaps = Gaps::default();
    let out = scratch.begin();
    encode_reply_around(wire.encoding(), id, reply, out, &mut gaps)?;
    let start = finish(wire, out, gaps.missing_bytes());
    let own = &out[start..];
    if gaps.missing_bytes() == 0 {
        return Ok(FrameRef::own(own.into(), queued_us));
    }
    Ok(FrameRef::parted(PartedFrame::new(own, gaps, start, queued_us)))
}

/// Builds a data frame around the message that `encode` appends. It is compressed if the wire supports that and the
/// result is shorter.
pub(crate) fn build_frame<E>(
    wire: Wire,
    scratch: &mut Scratch,
    encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<Box<[u8]>, E> {
    encode(scratch.begin())?;
    if wire.framing() == (Framing::WebSocket { deflate: true })
        && let Some(frame) = scratch.compressed_frame(wire.encoding())
    {
        return Ok(Box::from(frame));
    }
    let out = &mut scratch.message;
    let start = finish(wire, out, 0);
    Ok(Box::from(&out[start..]))
}

/// Writes the framing around the message that begins at [`HEAD_BYTES_MAX`] in `out`. `bytes_elsewhere` bytes of the
/// message are stored outside `out`. Returns where the frame begins.
fn finish(wire: Wire, out: &mut Vec<u8>, bytes_elsewhere: usize) -> usize {
    match wire.framing() {
        Framing::WebSocket { .. } => fill_in_header(wire.encoding(), out, bytes_elsewhere),
        Framing::Chunk { before, behind } => fill_in_chunk(before, behind, out, bytes_elsewhere),
    }
}

/// Space reserved before a message for its head. The longest head is a chunk size with a line end, and a field name.
const HEAD_BYTES_MAX: usize = 32;

const _: () = assert!(HEADER_BYTES_MAX <= HEAD_BYTES_MAX);

/// Writes a frame header directly before its message, which begins at [`HEAD_BYTES_MAX`] in `out` and has
/// `bytes_elsewhere` more bytes elsewhere. Returns where the header begins.
fn fill_in_header(encoding: Encoding, out: &mut [u8], bytes_elsewhere: usize) -> usize {
    let mut header = [0; HEADER_BYTES_MAX];
    let message_bytes = out.len() - HEAD_BYTES_MAX + bytes_elsewhere;
    let header_bytes = write_header(opcode(encoding), message_bytes, &mut header);
    let start = HEAD_BYTES_MAX - header_bytes;
    out[start..HEAD_BYTES_MAX].copy_from_slice(&header[..header_bytes]);
    start
}

/// Wraps the message that begins at [`HEAD_BYTES_MAX`] in `out`, with `bytes_elsewhere` more bytes elsewhere, in a
/// chunk with `before` and `behind` around it. Returns where the chunk begins.
fn fill_in_chunk(before: &str, behind: &str, out: &mut Vec<u8>, bytes_elsewhere: usize) -> usize {
    let chunk_bytes = before.len() + (out.len() - HEAD_BYTES_MAX) + bytes_elsewhere + behind.len();
    let head = format!("{chunk_bytes:x}\r\n{before}");
    let start = HEAD_BYTES_MAX - head.len();
    out[start..HEAD_BYTES_MAX].copy_from_slice(head.as_bytes());
    out.extend_from_slice(behind.as_bytes());
    out.extend_from_slice(b"\r\n");
    start
}

/// A head's buffer with more bytes is freed when a frame needs far fewer: the first frame may have a schema of 64 KiB, and
/// later ones have not.
const HEAD_BYTES_KEPT: usize = 1_024;

/// The start of one player's room frame, before the shared body: the frame header, the envelope of a publication, and
/// the player's own fields. Its buffer is reused for the next frame.
#[derive(Debug, Default)]
pub(crate) struct RoomHead {
    buffer: Vec<u8>,
    start: usize,
}

impl RoomHead {
    /// Writes the head for a body with `body_bytes` bytes, including `data_bytes` bytes of the publication's data.
    pub(crate) fn write(
        &mut self,
        encoding: Encoding,
        channel: &str,
        player: &[u8],
        body_bytes: usize,
        data_bytes: usize,
    ) {
        self.buffer.clear();
        let kept = HEAD_BYTES_KEPT.max(4 * player.len());
        if self.buffer.capacity() > kept {
            self.buffer.shrink_to(kept / 2);
        }
        self.buffer.resize(HEAD_BYTES_MAX, 0);
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
pub(crate) const fn ping_frame(wire: Wire) -> &'static [u8] {
    match (wire.framing(), wire.encoding()) {
        // The empty message follows a ping frame because a client that only receives answers nothing but ping frames.
        // Without the answers, a proxy on the path would close the connection as idle.
        (Framing::WebSocket { .. }, Encoding::Json) if wire.is_unidirectional() => b"\x89\x00\x81\x02{}",
        (Framing::WebSocket { .. }, Encoding::Json) => b"\x81\x02{}",
        (Framing::WebSocket { .. }, Encoding::Protobuf) => b"\x82\x01\x00",
        (Framing::Chunk { .. }, Encoding::Protobuf) => b"1\r\n\x00\r\n",
        (Framing::Chunk { before, .. }, Encoding::Json) if before.is_empty() => b"3\r\n{}\n\r\n",
        (Framing::Chunk { .. }, Encoding::Json) => b"a\r\ndata: {}\n\n\r\n",
    }
}

/// The chunk without bytes, which ends an HTTP response.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The last bytes to a session that the server closes: a close frame, preceded by a push on wires whose SDKs expect
/// one. Empty if neither is needed.
pub(crate) fn close_frame(
    wire: Wire,
    disconnect: &Disconnect,
    options: UniWebSocketOptions,
    scratch: &mut Scratch,
) -> Vec<u8> {
    let mut close_frame = Vec::new();
    let is_uni_websocket = wire.is_unidirectional() && wire.is_websocket();
    if (is_uni_websocket && !options.no_disconnect_push) || !wire.is_websocket() {
        let push = Push::Disconnect { disconnect };
        let frame = build_frame(wire, scratch, |out| encode_push_on(wire, &push, out));
        close_frame.extend_from_slice(&frame.expect("a disconnect carries no payload"));
    }
    match wire.framing() {
        Framing::WebSocket { .. } if is_uni_websocket && options.no_close_frame => {}
        Framing::WebSocket { .. } => append_close(disconnect.code, &disconnect.reason, &mut close_frame),
        Framing::Chunk { .. } => close_frame.extend_from_slice(LAST_CHUNK),
    }
    close_frame
}

const fn opcode(encoding: Encoding) -> Opcode {
    match encoding {
        Encoding::Json => Opcode::Text,
        Encoding::Protobuf => Opcode::Binary,
    }
}

#[cfg(test)]
mod tests {
    use dunlin_websocket::{MessageKind, deflate::Inflater};

    use super::*;
    use crate::options::CompressionOptions;

    #[test]
    fn a_ping_frame_is_the_ping_message_in_a_frame() {
        for wire in Wire::ALL {
            let built = build_frame(wire, &mut Scratch::default(), |out| {
                out.extend_from_slice(dunlin_protocol::ping_message(wire.encoding()));
                Ok::<(), NotJson>(())
            });
            let before = if wire.is_websocket() && wire.is_unidirectional() { &b"\x89\x00"[..] } else { b"" };
            assert_eq!(ping_frame(wire).strip_prefix(before), built.as_deref().ok(), "{wire:?}");
        }
    }

    #[test]
    fn a_head_does_not_keep_the_memory_of_a_schema() {
        for encoding in Encoding::ALL {
            let mut head = RoomHead::default();
            head.write(encoding, "arena:1", &vec![b' '; 64 << 10], 10, 10);
            assert!(head.bytes().len() > 64 << 10);
            head.write(encoding, "arena:1", &[b' '; 40], 10, 10);
            assert!(head.buffer.capacity() <= HEAD_BYTES_KEPT, "{} bytes are kept", head.buffer.capacity());
        }
    }

    #[test]
    fn a_message_is_compressed_from_the_configured_size_on_if_it_gets_shorter() {
        let mut scratch = Scratch::new(CompressionOptions { level: 1, message_bytes_min: 100 });
        let mut build = |wire, message: &[u8]| {
            let encode = |out: &mut Vec<u8>| {
                out.extend_from_slice(message);
                Ok::<(), NotJson>(())
            };
            build_frame(wire, &mut scratch, encode).expect("encoding cannot fail")
        };
        for wire in [Wire::WebSocketDeflateJson, Wire::WebSocketDeflateProtobuf, Wire::UniWebSocketDeflate] {
            let plain = if wire.encoding() == Encoding::Json { Wire::WebSocketJson } else { Wire::WebSocketProtobuf };
            let below = build(wire, &[b'a'; 99]);
            assert_eq!(below, build(plain, &[b'a'; 99]));
            let at = build(wire, &[b'a'; 100]);
            assert!(at.len() < 20, "{at:02x?}");
            assert_eq!((at[0], usize::from(at[1])), (below[0] | 0x40, at.len() - 2));
            let inflated = Inflater::default()
                .inflate(MessageKind::Text, &at[2..], &dunlin_websocket::WebSocketLimits::default())
                .map(<[u8]>::to_vec);
            assert_eq!(inflated, Ok(vec![b'a'; 100]));
            let noise: Vec<u8> = (0..=255).collect();
            assert_eq!(build(wire, &noise), build(plain, &noise));
        }
    }
}
