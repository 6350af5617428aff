//! Parses the header of a client's frame (RFC 6455, section 5.2) byte by byte. An invalid header is rejected at its
//! first wrong byte, even if the rest has not arrived.

use crate::{
    ReceiveError, WebSocketLimits,
    header::{CONTROL_BYTES_MAX, Opcode},
};

/// The longest header of a client: two bytes, a 64-bit length, the mask key.
pub(crate) const CLIENT_HEADER_BYTES_MAX: usize = 14;

/// A valid header; `payload_len` is within the limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientFrame {
    pub(crate) fin: bool,
    pub(crate) opcode: Opcode,
    /// The frame begins a compressed message.
    pub(crate) compressed: bool,
    pub(crate) payload_len: usize,
    pub(crate) key: [u8; 4],
}

/// The state of the incomplete message, which determines the frames that may follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) bytes: usize,
    pub(crate) fragments: u32,
}

/// Parses a header at the front of `bytes`. Returns `Ok(None)` if it is incomplete, otherwise the header and its
/// length.
#[inline]
pub(crate) fn parse(
    bytes: &[u8],
    open: Option<Open>,
    deflate: bool,
    limits: &WebSocketLimits,
) -> Result<Option<(ClientFrame, usize)>, ReceiveError> {
    let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
    let (fin, opcode, compressed) = parse_first(*first, deflate)?;
    if !opcode.is_control() {
        check_order(opcode, open, limits)?;
    }
    let Some((second, rest)) = rest.split_first() else { return Ok(None) };
    if second & 0x80 == 0 {
        return Err(ReceiveError::Unmasked);
    }
    let Some((length, rest)) = parse_length(second & 0x7f, opcode, rest)? else { return Ok(None) };
    let payload_len = if opcode.is_control() { length as usize } else { check_size(length, open, limits)? };
    let Some((key, payload)) = rest.split_first_chunk() else { return Ok(None) };
    Ok(Some((ClientFrame { fin, opcode, compressed, payload_len, key: *key }, bytes.len() - payload.len())))
}

/// With `deflate`, the first reserved bit marks the first frame of a compressed message (RFC 7692, section 6).
fn parse_first(byte: u8, deflate: bool) -> Result<(bool, Opcode, bool), ReceiveError> {
    let compressed = byte & 0x40 != 0;
    if byte & 0x30 != 0 || (compressed && !(deflate && matches!(byte & 0x0f, 0x1 | 0x2))) {
        return Err(ReceiveError::ReservedBits);
    }
    let opcode = match byte & 0x0f {
        0x0 => Opcode::Continuation,
        0x1 => Opcode::Text,
        0x2 => Opcode::Binary,
        0x8 => Opcode::Close,
        0x9 => Opcode::Ping,
        0xA => Opcode::Pong,
        _ => return Err(ReceiveError::UnknownOpcode),
    };
    let fin = byte & 0x80 != 0;
    if opcode.is_control() && !fin {
        return Err(ReceiveError::ControlFragmented);
    }
    Ok((fin, opcode, compressed))
}

/// Checks the order and the number of fragments (section 5.4).
fn check_order(opcode: Opcode, open: Option<Open>, limits: &WebSocketLimits) -> Result<(), ReceiveError> {
    match (open, opcode) {
        (None, Opcode::Continuation) => Err(ReceiveError::ContinuationUnexpected),
        (Some(open), Opcode::Continuation) if open.fragments >= limits.fragments_max => {
            Err(ReceiveError::TooManyFragments)
        }
        (None, _) | (Some(_), Opcode::Continuation) => Ok(()),
        (Some(_), _) => Err(ReceiveError::ContinuationExpected),
    }
}

/// The payload length, from the second byte and the extended length after it.
fn parse_length(short: u8, opcode: Opcode, rest: &[u8]) -> Result<Option<(u64, &[u8])>, ReceiveError> {
    if opcode.is_control() && usize::from(short) > CONTROL_BYTES_MAX {
        return Err(ReceiveError::ControlTooLong);
    }
    let (length, length_min, rest) = match short {
        126 => {
            let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
            (u64::from(u16::from_be_bytes(*length)), 126, rest)
        }
        127 => {
            if rest.first().is_some_and(|top| *top >= 0x80) {
                return Err(ReceiveError::LengthTopBit);
            }
            let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
            (u64::from_be_bytes(*length), 65_536, rest)
        }
        short => (u64::from(short), 0, rest),
    };
    if length < length_min {
        return Err(ReceiveError::LengthNotMinimal);
    }
    Ok(Some((length, rest)))
}

/// Checks a length against the limits before it is converted to `usize`.
fn check_size(length: u64, open: Option<Open>, limits: &WebSocketLimits) -> Result<usize, ReceiveError> {
    let held = open.map_or(0, |open| open.bytes);
    let length = usize::try_from(length).map_err(|_| ReceiveError::FrameTooBig)?;
    if length > limits.frame_bytes_max {
        return Err(ReceiveError::FrameTooBig);
    }
    if length > limits.message_bytes_max.saturating_sub(held) {
        return Err(ReceiveError::MessageTooBig);
    }
    Ok(length)
}
