//! Limits of the memory and the time that one client may use.

/// Limits of a client's input. One value serves all connections of a listener; the receiver gets a reference with each
/// call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketLimits {
    /// Maximum payload of a data frame in bytes. The RFC limits control frames to 125 bytes.
    pub frame_bytes_max: usize,
    /// Maximum payload of a message in bytes, over all its fragments.
    pub message_bytes_max: usize,
    /// Maximum number of frames in a message. At least one frame is always accepted.
    pub fragments_max: u32,
    /// Milliseconds that a message or frame may stay incomplete after its first byte.
    pub unfinished_age_max_ms: u64,
    /// Maximum length of a decompressed message in bytes.
    pub inflated_bytes_max: usize,
    /// Maximum compression ratio of a message longer than [`crate::deflate::RATIO_FREE_BYTES`].
    pub inflated_ratio_max: usize,
}

impl Default for WebSocketLimits {
    /// Frames and messages of 64 KiB, compressed or not; 128 fragments; ten seconds.
    fn default() -> Self {
        Self {
            frame_bytes_max: 65_536,
            message_bytes_max: 65_536,
            fragments_max: 128,
            unfinished_age_max_ms: 10_000,
            inflated_bytes_max: 65_536,
            inflated_ratio_max: 256,
        }
    }
}
