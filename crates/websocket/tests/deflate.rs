//! permessage-deflate: negotiation, decoding, and limits.

use dunlin_websocket::{
    MessageKind, ReceiveError, WebSocketLimits,
    deflate::{Deflater, Inflater, RATIO_FREE_BYTES},
    handshake::{self, DeflateOffer},
};

use crate::fuzzing::{Event, play, play_deflate};

/// The extensions that a server agrees on, if it takes what it can.
fn agreed(offers: &[&str]) -> Option<String> {
    let mut fields: Vec<(&str, &[u8])> = vec![
        ("Host", b"a"),
        ("Upgrade", b"websocket"),
        ("Connection", b"Upgrade"),
        ("Sec-WebSocket-Version", b"13"),
        ("Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    fields.extend(offers.iter().map(|offer| ("Sec-WebSocket-Extensions", offer.as_bytes())));
    let mut accepted = handshake::accept("GET", 1, fields, &[]).expect("a handshake");
    let mut unasked = Vec::new();
    accepted.append_response(&mut unasked);
    assert!(!String::from_utf8(unasked).expect("ASCII").contains("Extensions"), "nobody has agreed yet");
    let offered = accepted.agree_on_deflate();
    let mut response = Vec::new();
    accepted.append_response(&mut response);
    let response = String::from_utf8(response).expect("ASCII");
    let answer = response.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Extensions: "));
    assert_eq!(answer.is_some(), offered.is_some());
    let named_window = answer.and_then(|answer| answer.split_once("server_max_window_bits=")).map(|(_, bits)| bits);
    assert_eq!(
        offered.is_some_and(DeflateOffer::has_full_window),
        answer.is_some() && matches!(named_window, None | Some("15"))
    );
    answer.map(str::to_owned)
}

#[test]
fn offers_are_taken_or_declined() {
    let plain = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    let window = format!("{plain}; server_max_window_bits=15");
    let [narrow, narrowest] = ["10", "8"].map(|bits| format!("{plain}; server_max_window_bits={bits}"));
    for (offers, expected) in [
        (&["permessage-deflate"][..], Some(plain)),
        (&["Permessage-Deflate ; client_max_window_bits"], Some(plain)),
        (&["permessage-deflate; client_max_window_bits=8"], Some(plain)),
        (&["permessage-deflate; client_max_window_bits=\"15\""], Some(plain)),
        (&["permessage-deflate; server_no_context_takeover; client_no_context_takeover"], Some(plain)),
        (&["permessage-deflate; server_max_window_bits=15"], Some(&window)),
        // With a smaller window nothing can be sent compressed: one that lets it is preferred.
        (&["permessage-deflate; server_max_window_bits=10"], Some(&narrow)),
        (
            &["permessage-deflate; server_max_window_bits=8, permessage-deflate; server_max_window_bits=10"],
            Some(&narrowest),
        ),
        (&["permessage-deflate; server_max_window_bits=10, permessage-deflate"], Some(plain)),
        (&["permessage-deflate; server_max_window_bits=10", "x-other, permessage-deflate"], Some(plain)),
        (&["permessage-deflate, permessage-deflate; server_max_window_bits=15"], Some(plain)),
        // What is no valid offer.
        (&["permessage-deflate; server_max_window_bits"], None),
        (&["permessage-deflate; server_max_window_bits=7"], None),
        (&["permessage-deflate; server_max_window_bits=16"], None),
        (&["permessage-deflate; server_max_window_bits=010"], None),
        (&["permessage-deflate; server_max_window_bits=10; server_max_window_bits=10"], None),
        (&["permessage-deflate; client_max_window_bits=7"], None),
        (&["permessage-deflate; client_max_window_bits=16"], None),
        (&["permessage-deflate; client_max_window_bits=08"], None),
        (&["permessage-deflate; client_max_window_bits=\"15"], None),
        (&["permessage-deflate; client_max_window_bits="], None),
        (&["permessage-deflate; server_no_context_takeover=1"], None),
        (&["permessage-deflate; server_no_context_takeover; server_no_context_takeover"], None),
        (&["permessage-deflate; unknown"], None),
        (&["permessage-deflate;"], None),
        (&["x-webkit-deflate-frame", "permessage-bzip2"], None),
        (&[""], None),
        (&[], None),
    ] {
        assert_eq!(agreed(offers).as_deref(), expected, "{offers:?}");
    }
}

/// A masked frame with a key of zeros.
fn frame(first_byte: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("short");
    [&[first_byte, 0x80 | length, 0, 0, 0, 0], payload].concat()
}

fn error(played: &[Event]) -> Option<ReceiveError> {
    match played.last() {
        Some(Event::Error(error)) => Some(*error),
        _ => None,
    }
}

#[test]
fn rsv1_is_allowed_on_the_first_frame_alone() {
    let limits = WebSocketLimits::default();
    let whole = frame(0xc1, b"abc");
    assert_eq!(play_deflate([&whole[..]], &limits).events, [Event::Compressed(MessageKind::Text, b"abc".to_vec())]);
    assert_eq!(error(&play([&whole[..]], &limits).events), Some(ReceiveError::ReservedBits), "nothing was agreed on");

    let fragments = [frame(0x42, b"ab"), frame(0x89, b"!"), frame(0x80, b"\xff")].concat();
    let expected = [Event::Ping(b"!".to_vec()), Event::Compressed(MessageKind::Binary, b"ab\xff".to_vec())];
    assert_eq!(play_deflate([&fragments[..]], &limits).events, expected);
    // A text that was compressed is no text before it is inflated.
    let text = [frame(0x41, b"\xff"), frame(0x80, b"\xff")].concat();
    let expected = [Event::Compressed(MessageKind::Text, b"\xff\xff".to_vec())];
    assert_eq!(play_deflate(text.chunks(1), &limits).events, expected);

    for bytes in [
        [frame(0x41, b"a"), frame(0xc0, b"b")].concat(),
        frame(0xc9, b"a"),
        frame(0xc8, b""),
        frame(0xa1, b"a"),
        frame(0xd1, b"a"),
    ] {
        assert_eq!(
            error(&play_deflate([&bytes[..]], &limits).events),
            Some(ReceiveError::ReservedBits),
            "{bytes:02x?}"
        );
    }
    // The next message may go uncompressed.
    let both = [frame(0xc2, b"a"), frame(0x82, b"b")].concat();
    let expected =
        [Event::Compressed(MessageKind::Binary, b"a".to_vec()), Event::Message(MessageKind::Binary, b"b".to_vec())];
    assert_eq!(play_deflate([&both[..]], &limits).events, expected);
}

/// From RFC 7692, section 7.2.3.
const HELLO: &[u8] = &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
const HELLO_STORED: &[u8] = &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00];
const HELLO_LAST_BLOCK: &[u8] = &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
const HELLO_TWO_BLOCKS: &[u8] = &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00];

#[test]
fn the_examples_of_the_rfc_are_read() {
    let mut inflater = Inflater::default();
    for payload in [HELLO, HELLO_STORED, HELLO_LAST_BLOCK, &HELLO_LAST_BLOCK[..7], HELLO_TWO_BLOCKS] {
        assert_eq!(
            inflater.inflate(MessageKind::Text, payload, &WebSocketLimits::default()),
            Ok(&b"Hello"[..]),
            "{payload:02x?}"
        );
    }
    assert_eq!(
        inflater.inflate(MessageKind::Text, &[0x00], &WebSocketLimits::default()),
        Ok(&b""[..]),
        "an empty message"
    );
}

#[test]
fn damaged_deflate_data_is_refused() {
    let mut inflater = Inflater::default();
    // Behind a last block comes a byte of padding at the most. The decoder looks at nothing behind it, so nothing may hide.
    let behind_the_end = [HELLO_LAST_BLOCK, HELLO].concat();
    let two_ends = [&HELLO_LAST_BLOCK[..7], HELLO_LAST_BLOCK].concat();
    let context_of_another = [0xf2, 0x00, 0x11, 0x00, 0x00];
    for payload in
        [&HELLO[..5], &HELLO_STORED[..8], &[0x07][..], &[0xff; 40], &behind_the_end, &two_ends, &context_of_another]
    {
        let result = inflater.inflate(MessageKind::Binary, payload, &WebSocketLimits::default());
        assert_eq!(result, Err(ReceiveError::DeflateInvalid), "{payload:02x?}");
    }
    assert_eq!(
        inflater.inflate(MessageKind::Binary, HELLO, &WebSocketLimits::default()),
        Ok(&b"Hello"[..]),
        "the next is fine again"
    );
}

fn compressed(message: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    assert!(Deflater::new(9).deflate(message, &mut payload));
    payload
}

#[test]
fn the_limit_holds_at_its_value_and_not_past_it() {
    let mut inflater = Inflater::default();
    let payload = compressed(&[b'a'; 1_000]);
    let limits = |inflated_bytes_max| WebSocketLimits { inflated_bytes_max, ..WebSocketLimits::default() };
    assert_eq!(inflater.inflate(MessageKind::Text, &payload, &limits(1_000)).map(<[u8]>::len), Ok(1_000));
    assert_eq!(inflater.inflate(MessageKind::Text, &payload, &limits(999)), Err(ReceiveError::MessageTooBig));
    let not_text = compressed(&[0xff; 100]);
    assert_eq!(inflater.inflate(MessageKind::Text, &not_text, &limits(100)), Err(ReceiveError::TextNotUtf8));
    assert_eq!(inflater.inflate(MessageKind::Binary, &not_text, &limits(100)), Ok(&[0xff; 100][..]));
}

#[test]
fn a_compression_bomb_allocates_no_more_than_the_limit() {
    let mut inflater = Inflater::default();
    // 16 MiB in some 16 KiB.
    let bomb = compressed(&vec![0; 1 << 24]);
    assert!(bomb.len() < 20_000);
    assert_eq!(
        inflater.inflate(MessageKind::Binary, &bomb, &WebSocketLimits::default()),
        Err(ReceiveError::MessageTooBig)
    );
    assert!(inflater.room_bytes() <= 2 * 65_536, "it holds {}", inflater.room_bytes());
    let generous =
        WebSocketLimits { inflated_bytes_max: 1 << 24, inflated_ratio_max: 2_000, ..WebSocketLimits::default() };
    assert!(inflater.inflate(MessageKind::Binary, &bomb, &generous).is_ok());
    assert_eq!(inflater.inflate(MessageKind::Binary, HELLO, &generous), Ok(&b"Hello"[..]));
    assert!(inflater.room_bytes() <= 65_536, "the room was given back");
}

#[test]
fn the_compression_ratio_is_limited_past_the_free_bytes() {
    let mut inflater = Inflater::default();
    let limits = WebSocketLimits { inflated_bytes_max: 1 << 20, inflated_ratio_max: 10, ..WebSocketLimits::default() };
    let free = compressed(&vec![0; RATIO_FREE_BYTES]);
    assert!(free.len() * 10 < RATIO_FREE_BYTES);
    assert!(inflater.inflate(MessageKind::Binary, &free, &limits).is_ok());
    let past = compressed(&vec![0; RATIO_FREE_BYTES + 1]);
    assert_eq!(inflater.inflate(MessageKind::Binary, &past, &limits), Err(ReceiveError::MessageTooBig));
}

#[test]
fn empty_deflate_blocks_are_skipped() {
    let payload = [0x00, 0x00, 0x00, 0xff, 0xff].repeat(10_000);
    let payload = [&payload[..], HELLO].concat();
    assert_eq!(
        Inflater::default().inflate(MessageKind::Text, &payload, &WebSocketLimits::default()),
        Ok(&b"Hello"[..])
    );
}

#[test]
fn compressed_messages_round_trip_or_are_sent_plain() {
    let (mut deflater, mut inflater) = (Deflater::new(1), Inflater::default());
    let mut out = b"before".to_vec();
    let mut seed = 1_u32;
    for length in [0, 1, 20, 200, 5_000, 65_536] {
        let text = "the same words again ".repeat(length / 20 + 1).into_bytes();
        out.truncate(6);
        if deflater.deflate(&text[..length], &mut out) {
            assert!(out.len() < 6 + length);
            assert_eq!(
                inflater.inflate(MessageKind::Text, &out[6..], &WebSocketLimits::default()),
                Ok(&text[..length])
            );
        } else {
            assert!(length <= 20, "{length} bytes of repetition are worth it");
        }
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        })
        .take(length)
        .collect();
        out.truncate(6);
        assert!(!deflater.deflate(&noise, &mut out), "{length} bytes of noise");
        assert_eq!(out, b"before");
    }
}

/// An encoder that has to stop halfway through a message must not be short of room for those that follow.
#[test]
fn incompressible_messages_do_not_affect_later_ones() {
    let mut seed = 1_u32;
    let mut noise = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    });
    let words = "the same words again ".repeat(100);
    for level in 1..=9 {
        let (mut deflater, mut inflater) = (Deflater::new(level), Inflater::default());
        for length in [256; 500].into_iter().chain([1, 100, 10_000, 70_000]) {
            let message: Vec<u8> = noise.by_ref().take(length).collect();
            let mut out = Vec::new();
            assert!(!deflater.deflate(&message, &mut out), "{length} bytes of noise at level {level}");
            assert!(out.is_empty());
        }
        let mut out = Vec::new();
        assert!(deflater.deflate(words.as_bytes(), &mut out));
        assert_eq!(inflater.inflate(MessageKind::Text, &out, &WebSocketLimits::default()), Ok(words.as_bytes()));
    }
}
