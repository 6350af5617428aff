//! Decodes bytes into messages (RFC 6455, sections 5 to 8), for pieces of any size.

use std::{borrow::Cow, mem, str};

use crate::{
    ReceiveError, WebSocketLimits,
    client_frame::{self, CLIENT_HEADER_BYTES_MAX, ClientFrame, Open},
    close,
    header::Opcode,
    mask::unmask,
};

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// Valid UTF-8.
    Text,
    /// Arbitrary bytes.
    Binary,
}

/// A message or control frame of a client. Borrowed if its bytes were contiguous in the caller's buffer, owned if they
/// had to be joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received<'b> {
    /// A complete, unmasked message of one or more frames.
    Message {
        /// Text or binary.
        kind: MessageKind,
        /// The payload of all its frames. Valid UTF-8 if the kind is text.
        payload: Cow<'b, [u8]>,
    },
    /// A complete message, still compressed: an input of [`Inflater::inflate`](crate::deflate::Inflater::inflate). Only
    /// on connections that negotiated permessage-deflate.
    Compressed {
        /// Text or binary.
        kind: MessageKind,
        /// The compressed payload of all its frames.
        payload: Cow<'b, [u8]>,
    },
    /// The caller must answer with a pong of the same payload, at most 125 bytes.
    Ping(Cow<'b, [u8]>),
    /// The answer to a ping, or an unsolicited heartbeat.
    Pong(Cow<'b, [u8]>),
    /// The client's last frame. The caller must answer with a close frame, unless it has sent one.
    Close {
        /// The client's close code, if any; always one that [`close::may_be_sent`].
        code: Option<u16>,
        /// The client's reason, at most 123 bytes.
        reason: Cow<'b, str>,
    },
}

/// The receiving half of one connection.
///
/// Between messages it is two words and holds nothing on the heap. Whoever reads the socket reads into any buffer (one
/// can serve all connections of a thread), and calls [`receive`](Self::receive) until it has no more to say:
///
/// ```
/// # use dunlin_websocket::{WebSocketLimits, Received, Receiver, ReceiveError};
/// # fn example(read: &mut [u8], now_ms: u64) -> Result<(), ReceiveError> {
/// # let (limits, mut receiver, mut unread) = (WebSocketLimits::default(), Receiver::new(), Vec::new());
/// # let wants_a_pause = |_: &[u8]| false;
/// let mut rest: &mut [u8] = read;
/// while let Some(received) = receiver.receive(now_ms, &limits, &mut rest)? {
///     if let Received::Message { payload, .. } = received
///         && wants_a_pause(&payload)
///     {
///         unread.extend_from_slice(rest); // To be received later, as if it had arrived then.
///         break;
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct Receiver {
    /// `Some` exactly while a frame or a message is incomplete.
    unfinished: Option<Box<Unfinished>>,
    state: State,
    /// permessage-deflate was negotiated.
    deflate: bool,
}

const _: () = assert!(size_of::<Receiver>() <= 16, "an idle session pays for this");

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Open,
    /// The client sent its close frame. All further input is ignored (section 5.5.1).
    Closed,
    Failed(ReceiveError),
}

/// The state of an incomplete message or frame.
#[derive(Debug)]
struct Unfinished {
    /// When its first byte arrived.
    since_ms: u64,
    /// The first `header_len` bytes of a header. Empty while a payload arrives.
    header: [u8; CLIENT_HEADER_BYTES_MAX],
    header_len: usize,
    /// The frame whose payload is incomplete.
    frame: Option<Arriving>,
    /// The message whose frames are incomplete.
    message: Option<Message>,
    /// The incomplete payload of a control frame. It is separate because a control frame can arrive between two
    /// fragments.
    control: Vec<u8>,
}

/// A frame, and the number of its payload bytes that were processed.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    frame: ClientFrame,
    taken: usize,
}

#[derive(Debug)]
struct Message {
    kind: MessageKind,
    compressed: bool,
    bytes: Vec<u8>,
    /// Length of the validated prefix of `bytes`. For uncompressed text only.
    utf8_len: usize,
    fragments: u32,
}

impl Receiver {
    /// A receiver for a new connection.
    pub const fn new() -> Self {
        Self { unfinished: None, state: State::Open, deflate: false }
    }

    /// A receiver for a new connection that negotiated permessage-deflate.
    pub const fn with_deflate() -> Self {
        Self { unfinished: None, state: State::Open, deflate: true }
    }

    /// Consumes bytes from the front of `input` until a message or control frame is complete, and returns it; `None` if
    /// `input` is used up. Payloads are unmasked in place, so the consumed bytes change; the remaining bytes do not.
    ///
    /// # Errors
    /// The first protocol violation, as soon as it is detectable. The caller must close the connection with
    /// [`ReceiveError::close_code`]. All further calls return the same error.
    #[inline]
    pub fn receive<'b>(
        &mut self,
        now_ms: u64,
        limits: &WebSocketLimits,
        input: &mut &'b mut [u8],
    ) -> Result<Option<Received<'b>>, ReceiveError> {
        let result = match self.state {
            State::Open => self.receive_open(now_ms, limits, input),
            State::Closed => Ok(None),
            State::Failed(error) => Err(error),
        };
        match result {
            Ok(Some(Received::Close { .. })) => self.end(State::Closed),
            Err(error) => self.end(State::Failed(error)),
            Ok(_) => {}
        }
        if !matches!(self.state, State::Open) {
            *input = &mut [];
        }
        result
    }

    /// Whether a message or frame has been incomplete for longer than [`WebSocketLimits::unfinished_age_max_ms`]. The caller
    /// must then close the connection with [`ReceiveError::MessageOverdue`].
    pub fn overdue(&self, now_ms: u64, limits: &WebSocketLimits) -> bool {
        self.unfinished_since_ms()
            .is_some_and(|since_ms| now_ms.saturating_sub(since_ms) > limits.unfinished_age_max_ms)
    }

    /// When the first byte of the incomplete message or frame arrived; `None` between messages.
    pub fn unfinished_since_ms(&self) -> Option<u64> {
        self.unfinished.as_ref().map(|unfinished| unfinished.since_ms)
    }

    /// Heap memory in bytes; 0 between messages.
    pub fn heap_bytes(&self) -> usize {
        self.unfinished.as_ref().map_or(0, |unfinished| {
            let message_bytes = unfinished.message.as_ref().map_or(0, |message| message.bytes.capacity());
            size_of::<Unfinished>() + message_bytes + unfinished.control.capacity()
        })
    }

    fn receive_open<'b>(
        &mut self,
        now_ms: u64,
        limits: &WebSocketLimits,
        input: &mut &'b mut [u8],
    ) -> Result<Option<Received<'b>>, ReceiveError> {
        loop {
            let arriving = match self.unfinished.as_mut().and_then(|unfinished| unfinished.frame.take()) {
                Some(arriving) => arriving,
                None => match self.take_header(now_ms, limits, input)? {
                    Some(frame) => Arriving { frame, taken: 0 },
                    None => return Ok(None),
                },
            };
            let received = if arriving.frame.opcode.is_control() {
                self.take_control(now_ms, arriving, input)?
            } else {
                self.take_data(now_ms, limits, arriving, input)?
            };
            // Empty input: the end of this frame, or the next frame, has not arrived.
            if received.is_some() || input.is_empty() {
                return Ok(received);
            }
        }
    }

    /// Parses a header, or stores the part of it that has arrived.
    #[inline]
    fn take_header(
        &mut self,
        now_ms: u64,
        limits: &WebSocketLimits,
        input: &mut &mut [u8],
    ) -> Result<Option<ClientFrame>, ReceiveError> {
        let open = self.unfinished.as_ref().and_then(|unfinished| unfinished.message.as_ref()).map(Message::open);
        if let Some(unfinished) = self.unfinished.as_mut().filter(|unfinished| unfinished.header_len > 0) {
            return unfinished.take_rest_of_header(open, self.deflate, limits, input);
        }
        if let Some((frame, header_len)) = client_frame::parse(input, open, self.deflate, limits)? {
            take(input, header_len);
            return Ok(Some(frame));
        }
        if !input.is_empty() {
            let header_front = take(input, CLIENT_HEADER_BYTES_MAX);
            self.unfinished_from(now_ms).keep_header(header_front);
        }
        Ok(None)
    }

    fn take_control<'b>(
        &mut self,
        now_ms: u64,
        mut arriving: Arriving,
        input: &mut &'b mut [u8],
    ) -> Result<Option<Received<'b>>, ReceiveError> {
        let opcode = arriving.frame.opcode;
        let is_first_piece = arriving.taken == 0;
        let piece = arriving.take_payload(input);
        let payload = if arriving.is_whole() && is_first_piece {
            Cow::Borrowed(&*piece)
        } else {
            let unfinished = self.unfinished_from(now_ms);
            unfinished.control.extend_from_slice(piece);
            if !arriving.is_whole() {
                unfinished.frame = Some(arriving);
                return Ok(None);
            }
            Cow::Owned(mem::take(&mut unfinished.control))
        };
        // A ping between two fragments does not end the message.
        self.unfinished = self.unfinished.take().filter(|unfinished| unfinished.message.is_some());
        match opcode {
            Opcode::Close => parse_close(payload).map(Some),
            Opcode::Ping => Ok(Some(Received::Ping(payload))),
            _ => Ok(Some(Received::Pong(payload))),
        }
    }

    #[inline]
    fn take_data<'b>(
        &mut self,
        now_ms: u64,
        limits: &WebSocketLimits,
        mut arriving: Arriving,
        input: &mut &'b mut [u8],
    ) -> Result<Option<Received<'b>>, ReceiveError> {
        let frame = arriving.frame;
        let is_first_piece = arriving.taken == 0;
        let piece = arriving.take_payload(input);
        let kind = if frame.opcode == Opcode::Text { MessageKind::Text } else { MessageKind::Binary };
        if is_first_piece && arriving.is_whole() && frame.fin && frame.opcode != Opcode::Continuation {
            self.unfinished = None;
            if frame.compressed {
                return Ok(Some(Received::Compressed { kind, payload: Cow::Borrowed(piece) }));
            }
            if kind == MessageKind::Text {
                str::from_utf8(piece).map_err(|_| ReceiveError::TextNotUtf8)?;
            }
            return Ok(Some(Received::Message { kind, payload: Cow::Borrowed(piece) }));
        }

        let unfinished = self.unfinished_from(now_ms);
        let message = unfinished.message.get_or_insert_with(|| Message::new(kind, frame.compressed));
        // The length of a message is known at its last frame; before that only the limit is.
        let bytes_max =
            if frame.fin { message.bytes.len() + piece.len() + arriving.missing() } else { limits.message_bytes_max };
        message.append(piece, bytes_max);
        let is_end = frame.fin && arriving.is_whole();
        message.check_utf8(is_end)?;
        if arriving.is_whole() {
            message.fragments += 1;
        } else {
            unfinished.frame = Some(arriving);
        }
        if !is_end {
            return Ok(None);
        }
        let message = self.unfinished.take().and_then(|unfinished| unfinished.message);
        Ok(message.map(Message::into_received))
    }

    fn unfinished_from(&mut self, now_ms: u64) -> &mut Unfinished {
        self.unfinished.get_or_insert_with(|| Box::new(Unfinished::new(now_ms)))
    }

    fn end(&mut self, state: State) {
        self.state = state;
        self.unfinished = None;
    }
}

impl Unfinished {
    fn new(since_ms: u64) -> Self {
        Self {
            since_ms,
            header: [0; CLIENT_HEADER_BYTES_MAX],
            header_len: 0,
            frame: None,
            message: None,
            control: Vec::new(),
        }
    }

    /// Stores more bytes of an incomplete header.
    fn keep_header(&mut self, more: &[u8]) {
        let (_, free) = self.header.split_at_mut(self.header_len);
        for (kept, byte) in free.iter_mut().zip(more) {
            *kept = *byte;
            self.header_len += 1;
        }
    }

    /// Completes a stored header, or stores more bytes of it.
    fn take_rest_of_header(
        &mut self,
        open: Option<Open>,
        deflate: bool,
        limits: &WebSocketLimits,
        input: &mut &mut [u8],
    ) -> Result<Option<ClientFrame>, ReceiveError> {
        let kept_len = self.header_len;
        self.keep_header(input);
        let (header, _) = self.header.split_at(self.header_len);
        let parsed = client_frame::parse(header, open, deflate, limits)?;
        let taken = parsed.map_or(self.header_len, |(_, header_len)| header_len) - kept_len;
        take(input, taken);
        Ok(parsed.map(|(frame, _)| {
            self.header_len = 0;
            frame
        }))
    }
}

impl Arriving {
    /// Removes the available part of the payload from `input` and unmasks it.
    #[inline]
    fn take_payload<'b>(&mut self, input: &mut &'b mut [u8]) -> &'b mut [u8] {
        let piece = take(input, self.missing());
        unmask(piece, self.frame.key, self.taken);
        self.taken += piece.len();
        piece
    }

    fn missing(&self) -> usize {
        self.frame.payload_len - self.taken
    }

    fn is_whole(&self) -> bool {
        self.missing() == 0
    }
}

impl Message {
    fn new(kind: MessageKind, compressed: bool) -> Self {
        Self { kind, compressed, bytes: Vec::new(), utf8_len: 0, fragments: 0 }
    }

    fn into_received<'b>(self) -> Received<'b> {
        let (kind, payload) = (self.kind, Cow::Owned(self.bytes));
        if self.compressed { Received::Compressed { kind, payload } } else { Received::Message { kind, payload } }
    }

    fn open(&self) -> Open {
        Open { bytes: self.bytes.len(), fragments: self.fragments }
    }

    /// Appends a piece. The capacity grows with the received bytes, not with the announced length: at most twice their
    /// number, and never more than `bytes_max`.
    fn append(&mut self, piece: &[u8], bytes_max: usize) {
        let needed = self.bytes.len() + piece.len();
        assert!(needed <= bytes_max, "the header was held against the limits");
        if needed > self.bytes.capacity() {
            let room = needed.saturating_mul(2).min(bytes_max);
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
    }

    /// Validates the unvalidated bytes. A character may span pieces and fragments, but must end with the message. An
    /// invalid byte is rejected at once (section 8.1).
    fn check_utf8(&mut self, is_end: bool) -> Result<(), ReceiveError> {
        if self.kind != MessageKind::Text || self.compressed {
            return Ok(());
        }
        let (_, unchecked) = self.bytes.split_at(self.utf8_len);
        match str::from_utf8(unchecked) {
            Ok(_) => self.utf8_len = self.bytes.len(),
            Err(error) if is_end || error.error_len().is_some() => return Err(ReceiveError::TextNotUtf8),
            Err(error) => self.utf8_len += error.valid_up_to(),
        }
        Ok(())
    }
}

/// Splits up to `len` bytes off the front of `input`.
#[inline]
fn take<'b>(input: &mut &'b mut [u8], len: usize) -> &'b mut [u8] {
    let all = mem::take(input);
    let (front, rest) = all.split_at_mut(len.min(all.len()));
    *input = rest;
    front
}

/// Parses the body of a close frame: empty, or a code and a reason (sections 5.5.1 and 7.4).
fn parse_close(body: Cow<'_, [u8]>) -> Result<Received<'_>, ReceiveError> {
    let code = match *body {
        [] => return Ok(Received::Close { code: None, reason: Cow::Borrowed("") }),
        [_] => return Err(ReceiveError::CloseBodyTooShort),
        [high, low, ..] => u16::from_be_bytes([high, low]),
    };
    if !close::may_be_sent(code) {
        return Err(ReceiveError::CloseCodeInvalid);
    }
    let reason = match body {
        Cow::Borrowed(body) => str::from_utf8(body.split_at(2).1).ok().map(Cow::Borrowed),
        Cow::Owned(mut body) => String::from_utf8(body.split_off(2)).ok().map(Cow::Owned),
    };
    let reason = reason.ok_or(ReceiveError::CloseReasonNotUtf8)?;
    Ok(Received::Close { code: Some(code), reason })
}
