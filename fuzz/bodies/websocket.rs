//! Bodies of the fuzz targets, which unit tests run over the committed corpus, and the driver that they share with
//! other tests. A violated invariant is a failed assertion.

use dunlin_websocket::{
    MessageKind, ReceiveError, Received, Receiver, WebSocketLimits, close,
    deflate::{Deflater, Inflater},
    handshake,
};

/// What a receiver said, detached from the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// See [`Received::Message`].
    Message(MessageKind, Vec<u8>),
    /// See [`Received::Compressed`].
    Compressed(MessageKind, Vec<u8>),
    /// See [`Received::Ping`].
    Ping(Vec<u8>),
    /// See [`Received::Pong`].
    Pong(Vec<u8>),
    /// See [`Received::Close`].
    Close(Option<u16>, String),
    /// The last event, if any is.
    Error(ReceiveError),
}

/// What came out of a whole stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    /// In order.
    pub events: Vec<Event>,
    /// Whether a frame or message was open at the end.
    pub unfinished: bool,
}

/// How much the receiver may hold besides the message itself: its own record, and a control frame that is cut off.
const HEAP_BYTES_BESIDES_MESSAGE: usize = 160 + 2 * 125;

/// Plays `pieces` to a new receiver, one read after the other.
pub fn play<'p>(pieces: impl IntoIterator<Item = &'p [u8]>, limits: &WebSocketLimits) -> Played {
    play_to(Receiver::new(), pieces, limits)
}

/// The same, to one with permessage-deflate.
pub fn play_deflate<'p>(pieces: impl IntoIterator<Item = &'p [u8]>, limits: &WebSocketLimits) -> Played {
    play_to(Receiver::with_deflate(), pieces, limits)
}

fn play_to<'p>(mut receiver: Receiver, pieces: impl IntoIterator<Item = &'p [u8]>, limits: &WebSocketLimits) -> Played {
    let mut events = Vec::new();
    for piece in pieces {
        let mut bytes = piece.to_vec();
        let mut rest: &mut [u8] = &mut bytes;
        while let Some(event) = next(&mut receiver, limits, &mut rest) {
            events.push(event);
            if matches!(events.last(), Some(Event::Error(_))) {
                break;
            }
        }
        assert!(rest.is_empty(), "{} bytes not taken", rest.len());
    }
    finish(&receiver, events)
}

/// Plays `stream` to a new receiver that is left alone after each event: what is left is kept and comes again.
pub fn play_pausing(stream: &[u8], limits: &WebSocketLimits) -> Played {
    let mut receiver = Receiver::new();
    let mut events = Vec::new();
    let mut unread = stream.to_vec();
    loop {
        let mut rest: &mut [u8] = &mut unread;
        let Some(event) = next(&mut receiver, limits, &mut rest) else { break };
        unread = rest.to_vec();
        events.push(event);
        if matches!(events.last(), Some(Event::Error(_))) {
            break;
        }
    }
    finish(&receiver, events)
}

/// Arbitrary bytes in arbitrary pieces mean what they mean in one piece.
///
/// `data` is a byte of settings (1: small limits; the upper half: how many piece lengths follow), the piece lengths,
/// used over and over, and the stream.
pub fn receiver(data: &[u8]) {
    let Some((settings, data)) = data.split_first() else { return };
    let (piece_lens, stream) = data.split_at(usize::from(settings >> 4).min(data.len()));
    let limits = if settings & 1 == 0 {
        WebSocketLimits::default()
    } else {
        WebSocketLimits { frame_bytes_max: 24, message_bytes_max: 32, fragments_max: 3, ..WebSocketLimits::default() }
    };
    let whole = play([stream], &limits);
    check(&whole, &limits);
    assert_eq!(play(pieces(stream, piece_lens), &limits), whole, "in pieces of {piece_lens:?}");
    assert_eq!(play(stream.chunks(1), &limits), whole, "byte by byte");
    assert_eq!(play_pausing(stream, &limits), whole, "with pauses");
    let with_deflate = play_deflate([stream], &limits);
    check(&with_deflate, &limits);
    assert_eq!(play_deflate(stream.chunks(1), &limits), with_deflate, "with permessage-deflate, byte by byte");
}

/// Arbitrary bytes inflate to a message within the limits or to an error, the same after whatever came before, and what was
/// compressed here comes back.
///
/// `data` is a byte of settings (1: text; 2: small limits) and the payload.
pub fn deflate(data: &[u8]) {
    let Some((settings, payload)) = data.split_first() else { return };
    let kind = if settings & 1 == 0 { MessageKind::Binary } else { MessageKind::Text };
    let limits = if settings & 2 == 0 {
        WebSocketLimits::default()
    } else {
        WebSocketLimits { inflated_bytes_max: 100, ..WebSocketLimits::default() }
    };
    let mut inflater = Inflater::default();
    let first = inflater.inflate(kind, payload, &limits).map(<[u8]>::to_vec);
    if let Ok(message) = &first {
        assert!(message.len() <= limits.inflated_bytes_max);
    }
    assert!(inflater.room_bytes() <= 2 * limits.inflated_bytes_max + 1_024);
    assert_eq!(inflater.inflate(kind, payload, &limits).map(<[u8]>::to_vec), first, "it keeps nothing of a message");

    let mut compressed = Vec::new();
    if Deflater::new(settings >> 4).deflate(payload, &mut compressed) {
        assert!(compressed.len() < payload.len());
        let limits = WebSocketLimits { inflated_bytes_max: payload.len(), inflated_ratio_max: usize::MAX, ..limits };
        assert_eq!(inflater.inflate(MessageKind::Binary, &compressed, &limits), Ok(payload));
    }
}

/// Arbitrary requests are accepted or refused without a panic, and header fields that do not concern the upgrade have
/// no effect.
///
/// `data` consists of lines: the method, a space and a byte for the HTTP minor version; then `name:value`.
pub fn handshake(data: &[u8]) {
    const OFFERED: [&str; 2] = ["centrifuge-protobuf", "centrifuge-json"];
    let mut lines = data.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let Some((minor, method)) = first.split_last() else { return };
    let method = String::from_utf8_lossy(method.trim_ascii());
    let minor = minor.wrapping_sub(b'0');
    let fields: Vec<(String, &[u8])> = lines
        .map(|line| {
            let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':').unwrap_or(line.len()));
            (String::from_utf8_lossy(name).into_owned(), value.strip_prefix(b":").unwrap_or_default())
        })
        .collect();
    let fields = || fields.iter().map(|(name, value)| (name.as_str(), *value));

    let result = handshake::accept(&method, minor, fields(), &OFFERED);
    let stranger = ("x-stranger", &b"\xff, websocket, upgrade"[..]);
    assert_eq!(handshake::accept(&method, minor, fields().chain([stranger]), &OFFERED), result);

    let mut response = Vec::new();
    match result {
        Ok(accepted) => {
            accepted.append_response(&mut response);
            assert!(response.starts_with(b"HTTP/1.1 101 ") && response.ends_with(b"\r\n\r\n"));
            assert_eq!(accepted.accept_key().len(), 28);
            assert!(accepted.subprotocol.is_none_or(|chosen| OFFERED.contains(&chosen)));
            let again = [("Sec-WebSocket-Key", &b"dGhlIHNhbXBsZSBub25jZQ=="[..])];
            let repeated = handshake::accept(&method, minor, fields().chain(again), &OFFERED);
            assert_eq!(repeated, Err(handshake::HandshakeRefusal::KeyRepeated));
        }
        Err(refusal) => {
            refusal.append_response(&mut response);
            assert!(response.starts_with(format!("HTTP/1.1 {} ", refusal.status()).as_bytes()));
        }
    }
    let blank_lines = response.windows(4).filter(|window| window == b"\r\n\r\n").count();
    assert_eq!(blank_lines, 1, "one head");
    assert!(response.is_ascii(), "nothing of the request is in it");
}

/// `stream` cut into pieces of the given lengths, over and over.
pub fn pieces<'s>(stream: &'s [u8], piece_lens: &[u8]) -> Vec<&'s [u8]> {
    let mut rest = stream;
    let mut pieces = Vec::new();
    if piece_lens.iter().all(|len| *len == 0) {
        return vec![stream];
    }
    for len in piece_lens.iter().cycle() {
        let (piece, after) = rest.split_at(usize::from(*len).min(rest.len()));
        pieces.push(piece);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    pieces
}

#[expect(clippy::mut_mut, reason = "`Receiver::receive` takes it so")]
fn next(receiver: &mut Receiver, limits: &WebSocketLimits, rest: &mut &mut [u8]) -> Option<Event> {
    let result = receiver.receive(0, limits, rest);
    assert_eq!(receiver.heap_bytes() == 0, receiver.unfinished_since_ms().is_none());
    assert!(receiver.heap_bytes() <= limits.message_bytes_max + HEAP_BYTES_BESIDES_MESSAGE);
    let event = match result {
        Ok(None) => return None,
        Ok(Some(Received::Compressed { kind, payload })) => Event::Compressed(kind, payload.into_owned()),
        Ok(Some(Received::Message { kind, payload })) => Event::Message(kind, payload.into_owned()),
        Ok(Some(Received::Ping(payload))) => Event::Ping(payload.into_owned()),
        Ok(Some(Received::Pong(payload))) => Event::Pong(payload.into_owned()),
        Ok(Some(Received::Close { code, reason })) => Event::Close(code, reason.into_owned()),
        Err(error) => Event::Error(error),
    };
    Some(event)
}

/// After a close there is silence, and after an error nothing but that error.
fn finish(receiver: &Receiver, mut events: Vec<Event>) -> Played {
    if let Some(first_error) = events.iter().position(|event| matches!(event, Event::Error(_))) {
        let repeats = events.split_off(first_error);
        assert!(repeats.windows(2).all(|pair| pair.first() == pair.last()), "{repeats:?}");
        events.extend(repeats.into_iter().next());
    }
    Played { events, unfinished: receiver.unfinished_since_ms().is_some() }
}

fn check(played: &Played, limits: &WebSocketLimits) {
    for (index, event) in played.events.iter().enumerate() {
        let is_last = index + 1 == played.events.len();
        match event {
            Event::Compressed(_, payload) => assert!(payload.len() <= limits.message_bytes_max),
            Event::Message(kind, payload) => {
                assert!(payload.len() <= limits.message_bytes_max);
                assert!(*kind == MessageKind::Binary || std::str::from_utf8(payload).is_ok());
            }
            Event::Ping(payload) | Event::Pong(payload) => assert!(payload.len() <= 125),
            Event::Close(code, reason) => {
                assert!(is_last && !played.unfinished && reason.len() <= 123);
                assert!(code.map_or(reason.is_empty(), close::may_be_sent));
            }
            Event::Error(error) => {
                assert!(is_last && !played.unfinished && *error != ReceiveError::MessageOverdue);
            }
        }
    }
}
