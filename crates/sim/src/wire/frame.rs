//! A reader of WebSocket frames (RFC 6455, section 5, with the compression of RFC 7692) and of response chunks (RFC
//! 9112, section 7.1).

use dunlin_engine::Wire;

/// A complete frame from the server.
#[derive(Debug, PartialEq, Eq)]
pub enum WireFrame {
    /// A text message.
    Text(Vec<u8>),
    /// A binary message.
    Binary(Vec<u8>),
    /// A close frame.
    Close(Option<u16>, String),
    /// A pong frame.
    Pong(Vec<u8>),
    /// The end of the response.
    End,
    /// A ping frame, which browsers answer.
    Ping,
}

/// Assembles frames from bytes.
pub struct FrameReader {
    wire: Wire,
    bytes: Vec<u8>,
    read: usize,
}

impl FrameReader {
    /// Creates a reader for a new connection.
    pub fn new(wire: Wire) -> Self {
        Self { wire, bytes: Vec::new(), read: 0 }
    }

    /// Adds bytes that were read.
    pub fn feed(&mut self, bytes: impl Iterator<Item = u8>) {
        self.bytes.drain(..std::mem::take(&mut self.read));
        self.bytes.extend(bytes);
    }

    /// Whether there is an incomplete frame.
    pub fn is_within_frame(&self) -> bool {
        self.read < self.bytes.len()
    }

    /// The next complete chunk.
    fn next_chunk(&mut self) -> Result<Option<WireFrame>, String> {
        let bytes = &self.bytes[self.read..];
        let Some(line_end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
        let length = std::str::from_utf8(&bytes[..line_end]).ok();
        let length = length.and_then(|length| usize::from_str_radix(length, 16).ok()).ok_or_else(|| {
            format!("a chunk without a length: {:?}", String::from_utf8_lossy(&bytes[..line_end.min(60)]))
        })?;
        let (begin, end) = (line_end + 2, line_end + 2 + length);
        let Some(line_ending) = bytes.get(end..end + 2) else { return Ok(None) };
        if line_ending != b"\r\n" {
            return Err("no line end after a chunk".to_owned());
        }
        let chunk = &bytes[begin..end];
        let message = match self.wire {
            _ if chunk.is_empty() => None,
            Wire::HttpStreamProtobuf => Some(chunk),
            Wire::Sse | Wire::UniSse => {
                let event = chunk.strip_prefix(b"data: ").and_then(|chunk| chunk.strip_suffix(b"\n\n"));
                Some(event.ok_or("a chunk is not an event")?)
            }
            _ => Some(chunk.strip_suffix(b"\n").ok_or("a chunk is not a line")?),
        };
        let frame = message.map_or(WireFrame::End, |message| WireFrame::Text(message.to_vec()));
        self.read += end + 2;
        Ok(Some(frame))
    }

    /// The next complete frame.
    ///
    /// # Errors
    /// If the server violates RFC 6455, or does not send each message in one frame.
    pub fn next(&mut self) -> Result<Option<WireFrame>, String> {
        if !self.wire.is_websocket() {
            return self.next_chunk();
        }
        let bytes = &self.bytes[self.read..];
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        let deflates = matches!(
            self.wire,
            Wire::WebSocketDeflateJson | Wire::WebSocketDeflateProtobuf | Wire::UniWebSocketDeflate
        );
        let is_compressed = deflates && matches!(first, 0xc1 | 0xc2);
        if first & 0xf0 != 0x80 && !is_compressed {
            return Err(format!("frame begins with {first:#04x}: not final, or with reserved bits"));
        }
        let (length_bytes, length) = match second {
            0..=125 => (0, u64::from(*second)),
            126 if rest.len() < 2 => return Ok(None),
            126 => (2, u64::from(u16::from_be_bytes([rest[0], rest[1]]))),
            127 => return Err("frame of more than 65,535 bytes".to_owned()),
            128.. => return Err("the server masks its frames".to_owned()),
        };
        if length_bytes == 2 && length < 126 {
            return Err(format!("length {length} is not written in its shortest form"));
        }
        let Some(payload) = rest.get(length_bytes..length_bytes + length as usize) else { return Ok(None) };
        let frame = if is_compressed {
            read_payload(first & 0x0f, &inflate(payload)?)?
        } else {
            read_payload(first & 0x0f, payload)?
        };
        self.read += 2 + length_bytes + length as usize;
        Ok(Some(frame))
    }
}

/// Decompresses one message, which does not depend on earlier ones.
fn inflate(payload: &[u8]) -> Result<Vec<u8>, String> {
    let input = [payload, &[0, 0, 0xff, 0xff]].concat();
    let mut message = Vec::with_capacity(INFLATED_BYTES_MAX);
    let mut decompress = flate2::Decompress::new(false);
    let outcome = decompress.decompress_vec(&input, &mut message, flate2::FlushDecompress::Sync);
    outcome.map_err(|error| format!("a compressed message: {error}"))?;
    let is_whole = decompress.total_in() == input.len() as u64 && message.len() < INFLATED_BYTES_MAX;
    if is_whole { Ok(message) } else { Err("a compressed message is incomplete or too long".to_owned()) }
}

/// More bytes than any message of a plan.
const INFLATED_BYTES_MAX: usize = 256 * 1024;

fn read_payload(opcode: u8, payload: &[u8]) -> Result<WireFrame, String> {
    if opcode >= 8 && payload.len() > 125 {
        return Err(format!("control frame of {} bytes", payload.len()));
    }
    match (opcode, payload) {
        (1, _) => Ok(WireFrame::Text(payload.to_vec())),
        (2, _) => Ok(WireFrame::Binary(payload.to_vec())),
        (8, []) => Ok(WireFrame::Close(None, String::new())),
        (8, [high, low, reason @ ..]) => {
            let reason = std::str::from_utf8(reason).map_err(|_| "close reason is not UTF-8".to_owned())?;
            Ok(WireFrame::Close(Some(u16::from_be_bytes([*high, *low])), reason.to_owned()))
        }
        (9, []) => Ok(WireFrame::Ping),
        (10, _) => Ok(WireFrame::Pong(payload.to_vec())),
        _ => Err(format!("frame with opcode {opcode}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_input_yields_complete_frames() {
        let bytes = [0x81, 2, b'{', b'}', 0x88, 4, 0x0b, 0xc0, b'n', b'o'];
        for cut in 0..=bytes.len() {
            let mut reader = FrameReader::new(Wire::WebSocketJson);
            let mut frames = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                reader.feed(part.iter().copied());
                while let Some(frame) = reader.next().expect("all frames are good") {
                    frames.push(frame);
                }
            }
            assert_eq!(frames, [WireFrame::Text(b"{}".to_vec()), WireFrame::Close(Some(3008), "no".to_owned())]);
            assert!(!reader.is_within_frame());
        }
    }

    #[test]
    fn invalid_server_frames_are_rejected() {
        for bytes in [&[0x01, 0][..], &[0xc1, 0], &[0x81, 0x80], &[0x81, 126, 0, 5], &[0x83, 0], &[0x88, 2, 0xff]] {
            let mut reader = FrameReader::new(Wire::WebSocketJson);
            reader.feed(bytes.iter().copied());
            let outcome = reader.next();
            assert!(outcome.is_err() || bytes == [0x88, 2, 0xff] && outcome == Ok(None), "{bytes:?}: {outcome:?}");
        }
    }
}
