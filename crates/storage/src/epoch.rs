//! Epochs: ids of sequences of offsets.

/// Creates a random epoch; `None` if the operating system returns no random bytes.
pub(crate) fn new_epoch() -> Option<Box<str>> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect::<String>().into())
}
