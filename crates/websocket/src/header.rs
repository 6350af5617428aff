//! What a server sends: unmasked frames, each a whole message (RFC 6455, sections 5.1 and 5.2).

use crate::close;

/// The largest payload of a close, ping or pong frame, in bytes (RFC 6455, section 5.5).
pub const CONTROL_BYTES_MAX: usize = 125;
/// The largest reason in a close frame, in bytes: what the code leaves of a control frame.
pub const CLOSE_REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;
/// The longest header that a server writes, in bytes.
pub const HEADER_BYTES_MAX: usize = 10;

/// What a frame is (RFC 6455, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Goes on with the open message.
    Continuation = 0x0,
    /// A message in UTF-8.
    Text = 0x1,
    /// A message in any bytes.
    Binary = 0x2,
    /// The last frame that its sender sends.
    Close = 0x8,
    /// Asks for a pong.
    Ping = 0x9,
    /// Answers a ping, or says unasked that the sender lives.
    Pong = 0xA,
}

impl Opcode {
    /// Whether this is close, ping or pong: small, never fragmented, and allowed between fragments.
    #[inline]
    pub const fn is_control(self) -> bool {
        self as u8 & 0x8 != 0
    }
}

/// Writes the header of a whole (FIN), unmasked frame to the front of `out` and returns how many bytes it took: 2, 4
/// or 10. The payload follows it on the wire as it is.
#[inline]
pub fn write_header(opcode: Opcode, payload_len: usize, out: &mut [u8; HEADER_BYTES_MAX]) -> usize {
    out[0] = 0x80 | opcode as u8;
    if payload_len < 126 {
        out[1] = payload_len as u8;
        2
    } else if let Ok(short) = u16::try_from(payload_len) {
        let [high, low] = short.to_be_bytes();
        (out[1], out[2], out[3]) = (126, high, low);
        4
    } else {
        out[1] = 127;
        let (_, length) = out.split_at_mut(2);
        length.copy_from_slice(&(payload_len as u64).to_be_bytes());
        HEADER_BYTES_MAX
    }
}

/// The bit of a header's first byte that says that the message is compressed (RFC 7692, section 6).
pub const COMPRESSED_BIT: u8 = 0x40;

/// How many bytes [`write_header`] takes for a payload of `payload_len` bytes.
#[inline]
pub const fn header_len(payload_len: usize) -> usize {
    match payload_len {
        0..=125 => 2,
        126..=65_535 => 4,
        _ => HEADER_BYTES_MAX,
    }
}

/// Appends a whole frame, header and payload, to `out`. A control frame's payload must fit into
/// [`CONTROL_BYTES_MAX`].
pub fn append_frame(opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
    assert!(!opcode.is_control() || payload.len() <= CONTROL_BYTES_MAX, "control frame of {} bytes", payload.len());
    let mut header = [0; HEADER_BYTES_MAX];
    let header_len = write_header(opcode, payload.len(), &mut header);
    out.reserve(header_len + payload.len());
    out.extend(header.iter().take(header_len));
    out.extend_from_slice(payload);
}

/// Appends a close frame with `code` and as much of `reason` as fits, cut where a character ends. `code` must be one
/// that [`close::may_be_sent`].
pub fn append_close(code: u16, reason: &str, out: &mut Vec<u8>) {
    assert!(close::may_be_sent(code), "close code {code} may not be sent");
    let (reason, _) = reason.split_at(reason.floor_char_boundary(CLOSE_REASON_BYTES_MAX));
    let mut header = [0; HEADER_BYTES_MAX];
    let header_len = write_header(Opcode::Close, 2 + reason.len(), &mut header);
    out.extend(header.iter().take(header_len));
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

/// Appends the answer to a client's close frame: its own code back, or an empty close when it gave none (RFC 6455,
/// section 5.5.1).
pub fn append_close_reply(code: Option<u16>, out: &mut Vec<u8>) {
    match code {
        Some(code) => append_close(code, "", out),
        None => append_frame(Opcode::Close, &[], out),
    }
}

/// Appends a ping. At most [`CONTROL_BYTES_MAX`] bytes of payload.
pub fn append_ping(payload: &[u8], out: &mut Vec<u8>) {
    append_frame(Opcode::Ping, payload, out);
}

/// Appends a pong. It answers a ping with the ping's payload (RFC 6455, section 5.5.3), at most
/// [`CONTROL_BYTES_MAX`] bytes.
pub fn append_pong(payload: &[u8], out: &mut Vec<u8>) {
    append_frame(Opcode::Pong, payload, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_len_agrees_with_write_header() {
        for payload_len in [0, 1, 125, 126, 127, 65_535, 65_536, 65_537, usize::MAX >> 1] {
            let mut out = [0; HEADER_BYTES_MAX];
            assert_eq!(write_header(Opcode::Text, payload_len, &mut out), header_len(payload_len));
        }
    }

    #[test]
    fn a_long_reason_is_cut_where_a_character_ends() {
        // 122 bytes, then a character of three: it would end at 125, two bytes past the room.
        let reason = format!("{}€ and more", "r".repeat(122));
        let mut out = Vec::new();
        append_close(3008, &reason, &mut out);
        assert_eq!(out[..4], [0x88, 124, 0x0b, 0xc0]);
        assert_eq!(&out[4..], "r".repeat(122).as_bytes());

        // At the limit nothing is cut, one past it one byte is.
        for (len, kept) in [(123, 123), (124, 123)] {
            out.clear();
            append_close(1000, &"r".repeat(len), &mut out);
            assert_eq!(out.len(), 4 + kept);
        }
    }

    #[test]
    fn a_close_is_answered_with_its_own_code() {
        let mut out = Vec::new();
        append_close_reply(None, &mut out);
        append_close_reply(Some(1000), &mut out);
        assert_eq!(out, [0x88, 0, 0x88, 2, 0x03, 0xe8]);
    }
}
