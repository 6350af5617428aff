//! Close codes (RFC 6455, section 7.4, and the IANA registry of WebSocket close codes).

/// The purpose of the connection is fulfilled.
pub const NORMAL: u16 = 1000;
/// The server goes down, or the page was left.
pub const GOING_AWAY: u16 = 1001;
/// The peer broke RFC 6455.
pub const PROTOCOL_ERROR: u16 = 1002;
/// The peer sent a kind of data that is not taken here, such as binary where only text is.
pub const UNSUPPORTED_DATA: u16 = 1003;
/// A text message or a close reason is not UTF-8.
pub const INVALID_PAYLOAD: u16 = 1007;
/// The peer broke a rule of this server that has no code of its own.
pub const POLICY_VIOLATION: u16 = 1008;
/// The message is larger than this server takes.
pub const MESSAGE_TOO_BIG: u16 = 1009;
/// The server met a condition that it did not expect.
pub const INTERNAL_ERROR: u16 = 1011;

/// Whether `code` may stand in a close frame.
///
/// 1004 to 1006 and 1015 are names for things that happen without a close frame; 1016 to 2999 are not given out yet;
/// 3000 to 3999 belong to registered protocols and 4000 to 4999 to applications.
pub const fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}
