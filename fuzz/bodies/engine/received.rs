//! The messages that a client receives.

use dunlin_engine::Wire;
use dunlin_protocol::Encoding;

/// Takes what is whole off `received`; each is something that a server may send.
pub(super) fn check(wire: Wire, received: &mut Vec<u8>) {
    if wire.is_websocket() { check_frames(wire, received) } else { check_chunks(wire, received) }
}

fn check_frames(wire: Wire, received: &mut Vec<u8>) {
    while let [first, second, rest @ ..] = &received[..] {
        let (length, head) = match (second, rest) {
            (126, [high, low, ..]) => (usize::from(u16::from_be_bytes([*high, *low])), 4),
            (126 | 127, _) => return,
            (length, _) => (usize::from(*length), 2),
        };
        let Some(payload) = received.get(head..head + length) else { return };
        let is_deflate =
            matches!(wire, Wire::WebSocketDeflateJson | Wire::WebSocketDeflateProtobuf | Wire::UniWebSocketDeflate);
        let is_right = match (*first, wire.encoding()) {
            (0x81, Encoding::Json) => std::str::from_utf8(payload).is_ok(),
            (0xc1, Encoding::Json) | (0xc2, Encoding::Protobuf) => is_deflate,
            (0x82, Encoding::Protobuf) => true,
            (0x88, _) => length == 0 || (2..=125).contains(&length),
            // Clients that only listen are pinged so as well, for what lies in between.
            (0x89, _) => length == 0 && wire.is_unidirectional(),
            (0x8a, _) => length <= 125,
            _ => false,
        };
        assert!(is_right, "a frame of {length} bytes that begins with {first:#x} on {wire:?}");
        let is_last = *first == 0x88;
        received.drain(..head + length);
        assert!(!is_last || received.is_empty(), "nothing comes behind a close");
    }
}

fn check_chunks(wire: Wire, received: &mut Vec<u8>) {
    while let Some(line) = received.windows(2).position(|pair| pair == b"\r\n") {
        let digits = std::str::from_utf8(&received[..line]).expect("a length");
        let length = usize::from_str_radix(digits, 16).expect("a length");
        let (start, end) = (line + 2, line + 2 + length);
        let Some(behind) = received.get(end..end + 2) else { return };
        assert_eq!(behind, b"\r\n", "a chunk ends");
        let chunk = &received[start..end];
        let text = std::str::from_utf8(chunk);
        let is_right = match wire {
            _ if length == 0 => received.len() == end + 2,
            Wire::Sse | Wire::UniSse => text.is_ok_and(|text| text.starts_with("data: ") && text.ends_with("\n\n")),
            Wire::HttpStreamProtobuf => true,
            _ => text.is_ok_and(|text| text.ends_with('\n')),
        };
        assert!(is_right, "a chunk of {length} bytes on {wire:?}: {chunk:?}");
        received.drain(..end + 2);
    }
}
