//! Applies deltas in the Fossil format (<https://fossil-scm.org/home/doc/tip/www/delta_format.wiki>).

/// Applies `patch` to `old`.
///
/// # Errors
/// If the patch is malformed, or does not apply to these bytes.
pub fn apply(old: &[u8], patch: &[u8]) -> Result<Vec<u8>, String> {
    let mut reader = Reader { patch, at: 0 };
    let length = reader.number();
    reader.expect(b'\n')?;
    let mut new = Vec::new();
    loop {
        let number = reader.number();
        match reader.byte()? {
            b'@' => {
                let from = reader.number();
                reader.expect(b',')?;
                let copied = old.get(from..).and_then(|rest| rest.get(..number));
                new.extend_from_slice(copied.ok_or("a copy beyond the end of the source")?);
            }
            b':' => {
                let end = reader.at + number;
                new.extend_from_slice(patch.get(reader.at..end).ok_or("an insert is incomplete")?);
                reader.at = end;
            }
            b';' => {
                let is_whole = new.len() == length && reader.at == patch.len();
                let sum = checksum(&new);
                return if is_whole && number == sum as usize {
                    Ok(new)
                } else {
                    Err(format!("a patch yields {} of {length} bytes, checksum {sum} instead of {number}", new.len()))
                };
            }
            other => return Err(format!("unexpected byte {other} in a patch")),
        }
    }
}

struct Reader<'a> {
    patch: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn number(&mut self) -> usize {
        const DIGITS: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";
        let mut number = 0_usize;
        while let Some(digit) = self.patch.get(self.at).and_then(|&byte| DIGITS.find(char::from(byte))) {
            number = number.wrapping_mul(64) + digit;
            self.at += 1;
        }
        number
    }

    fn byte(&mut self) -> Result<u8, String> {
        self.at += 1;
        self.patch.get(self.at - 1).copied().ok_or_else(|| "a patch is incomplete".to_owned())
    }

    fn expect(&mut self, expected: u8) -> Result<(), String> {
        let byte = self.byte()?;
        if byte == expected { Ok(()) } else { Err(format!("byte {byte} in a patch instead of {expected}")) }
    }
}

/// The sum of all big-endian words of 32 bits.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.chunks(4).fold(0, |sum: u32, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        sum.wrapping_add(u32::from_be_bytes(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_copies_and_inserts() {
        let sum = checksum(b"the new text");
        let mut digits = Vec::new();
        let mut left = sum;
        while left > 0 {
            digits.insert(0, b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"[left as usize % 64]);
            left /= 64;
        }
        let mut patch = b"C\n4@0,4:new 4@8,".to_vec();
        patch.extend_from_slice(&digits);
        patch.push(b';');
        assert_eq!(apply(b"the old text", &patch), Ok(b"the new text".to_vec()));
        assert!(apply(b"the odd text", &patch).is_ok_and(|new| new == b"the new text"));
        assert!(apply(b"The old text", &patch).is_err());
        assert!(apply(b"the", &patch).is_err());
    }
}
