//! WebSocket frames as a client reads them (RFC 6455, section 5).

/// A whole frame from the server.
#[derive(Debug, PartialEq, Eq)]
pub enum WireFrame {
    /// A text message.
    Text(Vec<u8>),
    /// A binary message.
    Binary(Vec<u8>),
    /// The server says goodbye.
    Close(Option<u16>, String),
    /// The answer to a ping.
    Pong(Vec<u8>),
}

/// Puts frames together from whatever bytes a read brings.
#[derive(Default)]
pub struct FrameReader {
    bytes: Vec<u8>,
    read: usize,
}

impl FrameReader {
    /// Takes in what was read.
    pub fn feed(&mut self, bytes: impl Iterator<Item = u8>) {
        self.bytes.drain(..std::mem::take(&mut self.read));
        self.bytes.extend(bytes);
    }

    /// Whether a frame has begun that is not complete.
    pub fn is_within_frame(&self) -> bool {
        self.read < self.bytes.len()
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// What the server did against RFC 6455, or against its own habit of one frame for each message.
    pub fn next(&mut self) -> Result<Option<WireFrame>, String> {
        let bytes = &self.bytes[self.read..];
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        if first & 0xf0 != 0x80 {
            return Err(format!("frame begins with {first:#04x}: not final, or with reserved bits"));
        }
        let (length_bytes, length) = match second {
            0..=125 => (0, u64::from(*second)),
            126 if rest.len() < 2 => return Ok(None),
            126 => (2, u64::from(u16::from_be_bytes([rest[0], rest[1]]))),
            127 => return Err("frame of more than 65,535 bytes".to_owned()),
            128.. => return Err("the server masks".to_owned()),
        };
        if length_bytes == 2 && length < 126 {
            return Err(format!("length {length} is not written in its shortest form"));
        }
        let Some(payload) = rest.get(length_bytes..length_bytes + length as usize) else { return Ok(None) };
        let frame = read_payload(first & 0x0f, payload)?;
        self.read += 2 + length_bytes + length as usize;
        Ok(Some(frame))
    }
}

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
        (10, _) => Ok(WireFrame::Pong(payload.to_vec())),
        _ => Err(format!("frame with opcode {opcode}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_whole_however_they_are_cut() {
        let bytes = [0x81, 2, b'{', b'}', 0x88, 4, 0x0b, 0xc0, b'n', b'o'];
        for cut in 0..=bytes.len() {
            let mut reader = FrameReader::default();
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
    fn what_no_server_may_send_is_refused() {
        for bytes in [&[0x01, 0][..], &[0xc1, 0], &[0x81, 0x80], &[0x81, 126, 0, 5], &[0x83, 0], &[0x88, 2, 0xff]] {
            let mut reader = FrameReader::default();
            reader.feed(bytes.iter().copied());
            let outcome = reader.next();
            assert!(outcome.is_err() || bytes == [0x88, 2, 0xff] && outcome == Ok(None), "{bytes:?}: {outcome:?}");
        }
    }
}
