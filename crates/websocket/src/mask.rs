//! Masking (RFC 6455, section 5.3): the exclusive or of a client's payload with a repeated key of four bytes.

/// Unmasks `payload` in place. `offset` is the number of bytes that precede it in the same frame.
#[inline]
pub(crate) fn unmask(payload: &mut [u8], key: [u8; 4], offset: usize) {
    let key = u32::from_ne_bytes(key);
    // The key, rotated so that its first byte masks the first byte of `payload`.
    let turn = 8 * (offset % 4) as u32;
    let key = if cfg!(target_endian = "little") { key.rotate_right(turn) } else { key.rotate_left(turn) };
    let wide = (u64::from(key) << 32 | u64::from(key)).to_ne_bytes();

    // Eight bytes at a time; the compiler vectorizes this loop.
    let (blocks, tail) = payload.as_chunks_mut::<8>();
    for block in blocks {
        *block = (u64::from_ne_bytes(*block) ^ u64::from_ne_bytes(wide)).to_ne_bytes();
    }
    for (byte, mask) in tail.iter_mut().zip(wide) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::unmask;

    #[test]
    fn unmasking_matches_the_bytewise_reference() {
        let key = [0x37, 0xfa, 0x21, 0x3d];
        for len in 0..100 {
            for offset in 0..9 {
                let mut bytes: Vec<u8> = (0..len).collect();
                unmask(&mut bytes, key, offset);
                let expected: Vec<u8> = (0..len).map(|i| i ^ key[(offset + usize::from(i)) % 4]).collect();
                assert_eq!(bytes, expected, "{len} bytes at offset {offset}");
            }
        }
    }
}
