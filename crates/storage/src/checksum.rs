//! CRC-32C (Castagnoli), the checksum that `RocksDB` stores for the files of a backup. Its C interface compares it only
//! when a backup is restored.

use std::io::{self, Read};

/// The checksum of all bytes of the reader.
pub(crate) fn crc32c_of(mut reader: impl Read) -> io::Result<u32> {
    let mut buffer = vec![0; 256 << 10];
    let mut sum = 0;
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(sum),
            Ok(count) => sum = crc32c::crc32c_append(sum, &buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 3720, B.4, and the usual check value.
    #[test]
    fn known_checksums_are_found() {
        let rising: Vec<u8> = (0..32).collect();
        for (bytes, expected) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&rising, 0x46dd_794e),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c_of(bytes).expect("memory can be read"), expected, "{bytes:?}");
        }
    }

    #[test]
    fn pieces_of_any_size_give_the_same_checksum() {
        let bytes: Vec<u8> = (0..100_u32).map(|number| (number * 7) as u8).collect();
        let whole = crc32c_of(&*bytes).expect("memory can be read");
        for at in 0..bytes.len() {
            let (one, other) = bytes.split_at(at);
            assert_eq!(crc32c_of(one.chain(other)).expect("memory can be read"), whole, "{at}");
        }
    }
}
