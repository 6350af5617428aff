//! A second implementation of the encoding of inputs (`schema/room.proto`).

use dunlin_protocol::Encoding;
use serde_json::json;

use super::command::ProtobufWriter;

/// An input: its number, the game's data, and the room's channel, or none.
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

/// RFC 4648, section 4, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place) & 63) as usize];
            text.push(if place > chunk.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_as_the_rfc_has_it() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, encoded) in pairs {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
