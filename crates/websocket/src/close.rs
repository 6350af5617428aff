//! Close frames and their codes (RFC 6455, section 7.4, and the IANA registry of WebSocket close codes).

use crate::header::{CLOSE_REASON_BYTES_MAX, HEADER_BYTES_MAX, Opcode, append_frame, write_header};

/// The purpose of the connection is fulfilled.
pub const NORMAL: u16 = 1000;
/// The server shuts down, or the user left the page.
pub const GOING_AWAY: u16 = 1001;
/// The peer violated RFC 6455.
pub const PROTOCOL_ERROR: u16 = 1002;
/// The peer sent an unsupported kind of data, such as binary data where only text is allowed.
pub const UNSUPPORTED_DATA: u16 = 1003;
/// A text message or a close reason is not UTF-8.
pub const INVALID_PAYLOAD: u16 = 1007;
/// The peer violated a rule of this server that has no code of its own.
pub const POLICY_VIOLATION: u16 = 1008;
/// The message exceeds the size limit.
pub const MESSAGE_TOO_BIG: u16 = 1009;
/// An unexpected error in the server.
pub const INTERNAL_ERROR: u16 = 1011;

/// Whether a close frame may contain `code`.
///
/// 1004 to 1006 and 1015 describe conditions without a close frame; 1016 to 2999 are unassigned. Registered protocols
/// use 3000 to 3999, applications 4000 to 4999.
pub const fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// Appends a close frame with `code` and `reason`, truncated at a character boundary if necessary. Requires
/// [`may_be_sent`].
pub fn append_close(code: u16, reason: &str, out: &mut Vec<u8>) {
    assert!(may_be_sent(code), "close code {code} may not be sent");
    let (reason, _) = reason.split_at(reason.floor_char_boundary(CLOSE_REASON_BYTES_MAX));
    let mut header = [0; HEADER_BYTES_MAX];
    let header_len = write_header(Opcode::Close, 2 + reason.len(), &mut header);
    out.extend(header.iter().take(header_len));
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

/// Appends the reply to a client's close frame: the same code, or no code if there was none (RFC 6455, section 5.5.1).
pub fn append_close_reply(code: Option<u16>, out: &mut Vec<u8>) {
    match code {
        Some(code) => append_close(code, "", out),
        None => append_frame(Opcode::Close, &[], out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_at_a_character_boundary() {
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
    fn a_close_is_answered_with_the_same_code() {
        let mut out = Vec::new();
        append_close_reply(None, &mut out);
        append_close_reply(Some(1000), &mut out);
        assert_eq!(out, [0x88, 0, 0x88, 2, 0x03, 0xe8]);
    }
}
