//! A second implementation of the encoding of inputs (`schema/room.proto`).

use dunlin_protocol::Encoding;
use serde_json::json;

use super::command::ProtobufWriter;

/// Encodes an input: its number, the data for the game, and the channel of the room, which may be empty.
pub fn encode_input(encoding: Encoding, number: u32, data: &[u8], room: &str) -> Vec<u8> {
    match encoding {
        Encoding::Json => {
            let mut input = json!({ "number": number, "data": base64(data) });
            if !room.is_empty() {
                input["room"] = room.into();
            }
            input.to_string().into_bytes()
        }
        Encoding::Protobuf => {
            let mut input = ProtobufWriter::default();
            input.number(1, number.into());
            input.bytes(2, data);
            input.bytes(3, room.as_bytes());
            input.0
        }
    }
}

/// Base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for position in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * position) & 63) as usize];
            text.push(if position > chunk.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_the_examples_of_the_rfc() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, encoded) in pairs {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
