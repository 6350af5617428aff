//! What one client may make the receiver hold, and for how long.

/// Bounds on what a client sends. One value serves all connections of a listener: the receiver is given a reference
/// at each call and keeps none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Payload bytes of one data frame. Control frames have their own limit of 125 bytes in the RFC.
    pub frame_bytes_max: usize,
    /// Payload bytes of one message, over all its fragments.
    pub message_bytes_max: usize,
    /// Frames of one message. At least one frame is always taken.
    pub fragments_max: u32,
    /// Milliseconds that a message or frame may stay unfinished after its first byte.
    pub unfinished_age_max_ms: u64,
    /// Bytes of a message that came compressed, when it no longer is.
    pub inflated_bytes_max: usize,
    /// How many times longer than what came such a message may become, beyond [`crate::deflate::RATIO_FREE_BYTES`].
    pub inflated_ratio_max: usize,
}

impl Default for Limits {
    /// 64 KiB a frame and a message, compressed or not, 128 fragments, ten seconds.
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
