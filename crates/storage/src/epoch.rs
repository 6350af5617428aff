//! Epochs: names for a life of a channel's offsets.

/// A new one; `None` if the operating system gives no randomness.
pub(crate) fn new_epoch() -> Option<Box<str>> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect::<String>().into())
}
