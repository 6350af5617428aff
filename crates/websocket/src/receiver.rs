//! From bytes to messages (RFC 6455, sections 5 to 8), whatever the pieces that the bytes come in.

use std::{borrow::Cow, mem, str};

use crate::{
    Limits, ReceiveError,
    client_frame::{self, CLIENT_HEADER_BYTES_MAX, ClientFrame, Open},
    close,
    header::Opcode,
    mask::unmask,
};

/// What a message is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8; the receiver has checked it.
    Text,
    /// Any bytes.
    Binary,
}

/// One thing that a client said. Borrowed where the bytes lay in one piece in the caller's buffer, owned where they
/// had to be put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received<'b> {
    /// A whole message, unmasked, of one frame or more.
    Message {
        /// Text or binary.
        kind: Kind,
        /// The bytes of all its frames. Valid UTF-8 when the kind is text.
        payload: Cow<'b, [u8]>,
    },
    /// The same, still compressed, to be given to [`Inflater::inflate`](crate::deflate::Inflater::inflate). Only on a
    /// connection that agreed on it.
    Compressed {
        /// Text or binary.
        kind: Kind,
        /// The bytes of all its frames, as they came.
        payload: Cow<'b, [u8]>,
    },
    /// To be answered with a pong of the same payload, at most 125 bytes.
    Ping(Cow<'b, [u8]>),
    /// Answers a ping of ours, or came unasked.
    Pong(Cow<'b, [u8]>),
    /// The last thing a client says: to be answered with a close, unless one was sent before.
    Close {
        /// Why, if the client said so; always one that [`close::may_be_sent`].
        code: Option<u16>,
        /// In the client's words, at most 123 bytes.
        reason: Cow<'b, str>,
    },
}

/// The receiving half of one connection.
///
/// Between messages it is two words and holds nothing on the heap. Whoever reads the socket reads into any buffer (one
/// can serve all connections of a thread), and calls [`receive`](Self::receive) until it has no more to say:
///
/// ```
/// # use dunlin_websocket::{Limits, Received, Receiver, ReceiveError};
/// # fn example(read: &mut [u8], now_ms: u64) -> Result<(), ReceiveError> {
/// # let (limits, mut receiver, mut unread) = (Limits::default(), Receiver::new(), Vec::new());
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
    /// Non-null exactly while a frame or a message is unfinished.
    unfinished: Option<Box<Unfinished>>,
    state: State,
    /// permessage-deflate was agreed on.
    deflate: bool,
}

const _: () = assert!(size_of::<Receiver>() <= 16, "an idle session pays for this");

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Open,
    /// The client sent its close frame: what follows is none of our business (section 5.5.1).
    Closed,
    Failed(ReceiveError),
}

/// What is there of a message or of a frame that has not ended.
#[derive(Debug)]
struct Unfinished {
    /// When its first byte came.
    since_ms: u64,
    /// The front of a header, `header_len` bytes of it. Empty while a payload is on its way.
    header: [u8; CLIENT_HEADER_BYTES_MAX],
    header_len: usize,
    /// The frame whose payload is on its way.
    frame: Option<Arriving>,
    /// The message whose frames are on their way.
    message: Option<Message>,
    /// The payload of a control frame on its way: apart, since it can come between two fragments.
    control: Vec<u8>,
}

/// A frame with the number of payload bytes that were taken.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    frame: ClientFrame,
    taken: usize,
}

#[derive(Debug)]
struct Message {
    kind: Kind,
    compressed: bool,
    bytes: Vec<u8>,
    /// How many of `bytes` were found to be whole characters. Text only, and not while it is compressed.
    utf8_len: usize,
    fragments: u32,
}

impl Receiver {
    /// A receiver for a connection that has just been upgraded.
    pub const fn new() -> Self {
        Self { unfinished: None, state: State::Open, deflate: false }
    }

    /// The same, where permessage-deflate was agreed on.
    pub const fn with_deflate() -> Self {
        Self { unfinished: None, state: State::Open, deflate: true }
    }

    /// Takes bytes from the front of `input` until they make up something that the client said, and returns that;
    /// `None` when all of `input` is taken. `input` is then what is left. Payloads are unmasked in place: bytes that
    /// were taken are not to be read again, and those that are left are as they came.
    ///
    /// # Errors
    /// What the client did wrong, as soon as the bytes show it. The connection is to be closed with
    /// [`ReceiveError::close_code`]; all input is taken and all later input gets the same error.
    #[inline]
    pub fn receive<'b>(
        &mut self,
        now_ms: u64,
        limits: &Limits,
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

    /// Whether a message or frame is unfinished for longer than [`Limits::unfinished_age_max_ms`]. The connection is
    /// then to be closed with [`ReceiveError::MessageOverdue`].
    pub fn overdue(&self, now_ms: u64, limits: &Limits) -> bool {
        self.unfinished_since_ms()
            .is_some_and(|since_ms| now_ms.saturating_sub(since_ms) > limits.unfinished_age_max_ms)
    }

    /// When the first byte of the unfinished message or frame came; `None` between messages.
    pub fn unfinished_since_ms(&self) -> Option<u64> {
        self.unfinished.as_ref().map(|unfinished| unfinished.since_ms)
    }

    /// Bytes held on the heap; 0 between messages.
    pub fn heap_bytes(&self) -> usize {
        self.unfinished.as_ref().map_or(0, |unfinished| {
            let message_bytes = unfinished.message.as_ref().map_or(0, |message| message.bytes.capacity());
            size_of::<Unfinished>() + message_bytes + unfinished.control.capacity()
        })
    }

    fn receive_open<'b>(
        &mut self,
        now_ms: u64,
        limits: &Limits,
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
            // Empty input means that the frame's end, or the next frame, is still to come.
            if received.is_some() || input.is_empty() {
                return Ok(received);
            }
        }
    }

    /// Takes a header, or what there is of it.
    #[inline]
    fn take_header(
        &mut self,
        now_ms: u64,
        limits: &Limits,
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
        // A ping between two fragments leaves the message open.
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
        limits: &Limits,
        mut arriving: Arriving,
        input: &mut &'b mut [u8],
    ) -> Result<Option<Received<'b>>, ReceiveError> {
        let frame = arriving.frame;
        let is_first_piece = arriving.taken == 0;
        let piece = arriving.take_payload(input);
        let kind = if frame.opcode == Opcode::Text { Kind::Text } else { Kind::Binary };
        if is_first_piece && arriving.is_whole() && frame.fin && frame.opcode != Opcode::Continuation {
            self.unfinished = None;
            if frame.compressed {
                return Ok(Some(Received::Compressed { kind, payload: Cow::Borrowed(piece) }));
            }
            if kind == Kind::Text {
                str::from_utf8(piece).map_err(|_| ReceiveError::TextNotUtf8)?;
            }
            return Ok(Some(Received::Message { kind, payload: Cow::Borrowed(piece) }));
        }

        let unfinished = self.unfinished_from(now_ms);
        let message = unfinished.message.get_or_insert_with(|| Message::new(kind, frame.compressed));
        // The end of the last frame is the end of the message; before it only the limit is known.
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

    /// Keeps more of a header that is not whole yet.
    fn keep_header(&mut self, more: &[u8]) {
        let (_, free) = self.header.split_at_mut(self.header_len);
        for (kept, byte) in free.iter_mut().zip(more) {
            *kept = *byte;
            self.header_len += 1;
        }
    }

    /// Completes the header whose front is kept, or keeps more of it.
    fn take_rest_of_header(
        &mut self,
        open: Option<Open>,
        deflate: bool,
        limits: &Limits,
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
    /// Takes what `input` has of the payload, and the mask off it.
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
    fn new(kind: Kind, compressed: bool) -> Self {
        Self { kind, compressed, bytes: Vec::new(), utf8_len: 0, fragments: 0 }
    }

    fn into_received<'b>(self) -> Received<'b> {
        let (kind, payload) = (self.kind, Cow::Owned(self.bytes));
        if self.compressed { Received::Compressed { kind, payload } } else { Received::Message { kind, payload } }
    }

    fn open(&self) -> Open {
        Open { bytes: self.bytes.len(), fragments: self.fragments }
    }

    /// Memory follows what came, not what a header announced: twice of it at most, and never over `bytes_max`.
    fn append(&mut self, piece: &[u8], bytes_max: usize) {
        let needed = self.bytes.len() + piece.len();
        assert!(needed <= bytes_max, "the header was held against the limits");
        if needed > self.bytes.capacity() {
            let room = needed.saturating_mul(2).min(bytes_max);
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
    }

    /// Checks what was not checked before. A character may be cut by the end of a piece or of a fragment, but not by
    /// the end of the message; a byte that can't go on a character is refused at once (section 8.1).
    fn check_utf8(&mut self, is_end: bool) -> Result<(), ReceiveError> {
        if self.kind != Kind::Text || self.compressed {
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

/// A close frame's body is nothing, or a code and a reason (sections 5.5.1 and 7.4).
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
