//! Encodes the frames of a server: unmasked, one per message (RFC 6455, sections 5.1 and 5.2).

/// The largest payload of a close, ping or pong frame, in bytes (RFC 6455, section 5.5).
pub const CONTROL_BYTES_MAX: usize = 125;
/// The maximum length of a close reason: a control frame without the code.
pub const CLOSE_REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;
/// The longest header that a server writes, in bytes.
pub const HEADER_BYTES_MAX: usize = 10;

/// The opcode of a frame (RFC 6455, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Continues the open message.
    Continuation = 0x0,
    /// A message in UTF-8.
    Text = 0x1,
    /// A message of arbitrary bytes.
    Binary = 0x2,
    /// The last frame that its sender sends.
    Close = 0x8,
    /// Requests a pong.
    Ping = 0x9,
    /// Answers a ping, or is an unsolicited heartbeat.
    Pong = 0xA,
}

impl Opcode {
    /// Whether this is close, ping or pong: short, never fragmented, and allowed between fragments.
    #[inline]
    pub const fn is_control(self) -> bool {
        self as u8 & 0x8 != 0
    }
}

/// Writes the header of an unfragmented, unmasked frame to the front of `out` and returns its length: 2, 4 or 10. The
/// payload follows unchanged.
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

/// The bit in the first byte of a header that marks a compressed message (RFC 7692, section 6).
pub const COMPRESSED_BIT: u8 = 0x40;

/// The length of the header for a payload of `payload_len` bytes.
#[inline]
pub const fn header_len(payload_len: usize) -> usize {
    match payload_len {
        0..=125 => 2,
        126..=65_535 => 4,
        _ => HEADER_BYTES_MAX,
    }
}

/// Appends a frame to `out`. The payload of a control frame must not exceed [`CONTROL_BYTES_MAX`].
pub fn append_frame(opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
    assert!(!opcode.is_control() || payload.len() <= CONTROL_BYTES_MAX, "control frame of {} bytes", payload.len());
    let mut header = [0; HEADER_BYTES_MAX];
    let header_len = write_header(opcode, payload.len(), &mut header);
    out.reserve(header_len + payload.len());
    out.extend(header.iter().take(header_len));
    out.extend_from_slice(payload);
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
}
