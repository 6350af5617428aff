//! Protocol violations by clients, and their close codes.

use std::fmt;

use crate::close;

/// Why the connection must be failed (RFC 6455, section 7.1.7). Afterwards the receiver ignores all input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiveError {
    /// A reserved bit is set that no negotiated extension defines (section 5.2).
    ReservedBits,
    /// The opcode is one of 3 to 7 or 11 to 15 (section 5.2).
    UnknownOpcode,
    /// A control frame without FIN (section 5.5).
    ControlFragmented,
    /// A control frame with more than 125 bytes of payload (section 5.5).
    ControlTooLong,
    /// A continuation frame while no message is open (section 5.4).
    ContinuationUnexpected,
    /// A text or binary frame while a message is open (section 5.4).
    ContinuationExpected,
    /// A frame of a client without a mask (section 5.1).
    Unmasked,
    /// A length written in more bytes than it needs (section 5.2).
    LengthNotMinimal,
    /// A 64-bit length with its top bit set (section 5.2).
    LengthTopBit,
    /// A close frame whose body is one byte (section 5.5.1).
    CloseBodyTooShort,
    /// A close code that may not be sent (section 7.4).
    CloseCodeInvalid,
    /// A close code that must not be sent (section 7.4).
    CloseReasonNotUtf8,
    /// A text message that is not UTF-8 (section 8.1).
    TextNotUtf8,
    /// More than [`WebSocketLimits::frame_bytes_max`](crate::WebSocketLimits::frame_bytes_max).
    FrameTooBig,
    /// More than [`WebSocketLimits::message_bytes_max`](crate::WebSocketLimits::message_bytes_max), or than the limit for decompressed
    /// messages.
    MessageTooBig,
    /// More than [`WebSocketLimits::fragments_max`](crate::WebSocketLimits::fragments_max).
    TooManyFragments,
    /// A compressed message is truncated or is not valid deflate data (RFC 7692, section 7.2.2).
    DeflateInvalid,
    /// Incomplete for longer than [`WebSocketLimits::unfinished_age_max_ms`](crate::WebSocketLimits::unfinished_age_max_ms). The receiver
    /// does not return this error itself: the caller checks [`Receiver::overdue`](crate::Receiver::overdue).
    MessageOverdue,
}

impl ReceiveError {
    /// All values, for metrics and tests.
    pub const ALL: [Self; 18] = [
        Self::ReservedBits,
        Self::UnknownOpcode,
        Self::ControlFragmented,
        Self::ControlTooLong,
        Self::ContinuationUnexpected,
        Self::ContinuationExpected,
        Self::Unmasked,
        Self::LengthNotMinimal,
        Self::LengthTopBit,
        Self::CloseBodyTooShort,
        Self::CloseCodeInvalid,
        Self::CloseReasonNotUtf8,
        Self::TextNotUtf8,
        Self::FrameTooBig,
        Self::MessageTooBig,
        Self::TooManyFragments,
        Self::DeflateInvalid,
        Self::MessageOverdue,
    ];

    /// The code of the close frame (RFC 6455, section 7.4.1).
    pub const fn close_code(self) -> u16 {
        match self {
            Self::ReservedBits
            | Self::UnknownOpcode
            | Self::ControlFragmented
            | Self::ControlTooLong
            | Self::ContinuationUnexpected
            | Self::ContinuationExpected
            | Self::Unmasked
            | Self::LengthNotMinimal
            | Self::LengthTopBit
            | Self::CloseBodyTooShort
            | Self::CloseCodeInvalid => close::PROTOCOL_ERROR,
            Self::CloseReasonNotUtf8 | Self::TextNotUtf8 | Self::DeflateInvalid => close::INVALID_PAYLOAD,
            Self::FrameTooBig | Self::MessageTooBig => close::MESSAGE_TOO_BIG,
            Self::TooManyFragments | Self::MessageOverdue => close::POLICY_VIOLATION,
        }
    }

    /// A stable short name: the metric label, and the word in test vectors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReservedBits => "reserved_bits",
            Self::UnknownOpcode => "unknown_opcode",
            Self::ControlFragmented => "control_fragmented",
            Self::ControlTooLong => "control_too_long",
            Self::ContinuationUnexpected => "continuation_unexpected",
            Self::ContinuationExpected => "continuation_expected",
            Self::Unmasked => "unmasked",
            Self::LengthNotMinimal => "length_not_minimal",
            Self::LengthTopBit => "length_top_bit",
            Self::CloseBodyTooShort => "close_body_too_short",
            Self::CloseCodeInvalid => "close_code_invalid",
            Self::CloseReasonNotUtf8 => "close_reason_not_utf8",
            Self::TextNotUtf8 => "text_not_utf8",
            Self::FrameTooBig => "frame_too_big",
            Self::MessageTooBig => "message_too_big",
            Self::TooManyFragments => "too_many_fragments",
            Self::DeflateInvalid => "deflate_invalid",
            Self::MessageOverdue => "message_overdue",
        }
    }

    /// The reason in the close frame, for the client's developer. Fits into a control frame.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::ReservedBits => "reserved bit set without an extension",
            Self::UnknownOpcode => "unknown opcode",
            Self::ControlFragmented => "control frame without FIN",
            Self::ControlTooLong => "control frame over 125 bytes",
            Self::ContinuationUnexpected => "continuation without a message",
            Self::ContinuationExpected => "new message before the end of the previous one",
            Self::Unmasked => "frame without a mask",
            Self::LengthNotMinimal => "length not in its shortest form",
            Self::LengthTopBit => "top bit of the length set",
            Self::CloseBodyTooShort => "close body of one byte",
            Self::CloseCodeInvalid => "invalid close code",
            Self::CloseReasonNotUtf8 => "close reason is not UTF-8",
            Self::TextNotUtf8 => "text is not UTF-8",
            Self::FrameTooBig => "frame too big",
            Self::MessageTooBig => "message too big",
            Self::TooManyFragments => "too many fragments in a message",
            Self::DeflateInvalid => "invalid compressed message",
            Self::MessageOverdue => "message not finished in time",
        }
    }
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for ReceiveError {}
