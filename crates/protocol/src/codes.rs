//! The error and disconnect codes of the protocol. A test compares them with `schema/codes.json`, which other languages
//! read.

use std::borrow::Cow;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $message:literal, $temporary:literal;)*) => {
        /// The code of an error reply.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode { $($(#[$doc])* $name = $code,)* }

        impl ErrorCode {
            /// All codes, in ascending order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The message of the code.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)* }
            }

            /// Whether the same command may succeed later.
            pub const fn temporary(self) -> bool {
                match self { $(Self::$name => $temporary,)* }
            }
        }
    };
}

error_codes! {
    /// The server or a backend failed; SDKs retry.
    Internal = 100, "internal server error", true;
    /// The session is not authenticated.
    Unauthorized = 101, "unauthorized", false;
    /// The channel's namespace does not exist.
    UnknownChannel = 102, "unknown channel", false;
    /// The namespace or the token does not permit the command.
    PermissionDenied = 103, "permission denied", false;
    /// Unknown command or RPC method.
    MethodNotFound = 104, "method not found", false;
    /// The session already has this subscription.
    AlreadySubscribed = 105, "already subscribed", false;
    /// A limit of the session is reached.
    LimitExceeded = 106, "limit exceeded", false;
    /// The command is invalid.
    BadRequest = 107, "bad request", false;
    /// Not enabled for the namespace.
    NotAvailable = 108, "not available", false;
    /// The token is past its expiry; the SDK fetches a new one.
    TokenExpired = 109, "token expired", false;
    /// The token or subscription expired; the client must refresh it.
    Expired = 110, "expired", false;
    /// A rate or queue limit was reached; SDKs retry later.
    TooManyRequests = 111, "too many requests", true;
    /// The publications after the client's position are no longer available.
    UnrecoverablePosition = 112, "unrecoverable position", false;
    /// Another pagination is in progress.
    ConcurrentPagination = 113, "concurrent pagination", true;
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }
}

/// Why a session is closed: a WebSocket close code and its reason. The range of the code determines whether the client
/// reconnects: it does for 3000–3499, 4000–4499 and from 5000 on, and does not for 3500–3999 and 4500–4999.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// The close code.
    pub code: u16,
    /// The reason, at most 123 bytes of it on the wire.
    pub reason: Cow<'static, str>,
}

impl Disconnect {
    /// The close code, if applications may use it: one from 3000 to 4999 (RFC 6455, section 7.4.2).
    pub fn code_for_applications(code: u32) -> Option<u16> {
        u16::try_from(code).ok().filter(|code| (3_000..=4_999).contains(code))
    }
}

macro_rules! disconnects {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $reason:literal;)*) => {
        impl Disconnect {
            $($(#[$doc])* pub const $name: Self = Self { code: $code, reason: Cow::Borrowed($reason) };)*

            /// Every disconnect that the server itself uses.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name of the constant with this code; empty for the application's own codes.
            pub const fn name(&self) -> &'static str {
                match self.code {
                    $($code => stringify!($name),)*
                    _ => "",
                }
            }
        }
    };
}

disconnects! {
    /// The client closed the connection.
    CONNECTION_CLOSED = 3000, "connection closed";
    /// The node is shutting down.
    SHUTDOWN = 3001, "shutdown";
    /// The server failed; SDKs reconnect.
    INTERNAL = 3004, "internal server error";
    /// The connection token expired and was not refreshed.
    EXPIRED = 3005, "connection expired";
    /// The token of a server-side subscription expired.
    SUBSCRIPTION_EXPIRED = 3006, "subscription expired";
    /// The client reads too slowly.
    SLOW = 3008, "slow";
    /// A write to the connection failed.
    WRITE_ERROR = 3009, "write error";
    /// The client's position in a server-side subscription is lost.
    INSUFFICIENT_STATE = 3010, "insufficient state";
    /// The server requests that the client reconnects.
    FORCE_RECONNECT = 3011, "force reconnect";
    /// The client did not reply to a ping in time.
    NO_PONG = 3012, "no pong";
    /// A rate limit was reached at connect; SDKs reconnect later.
    TOO_MANY_REQUESTS = 3013, "too many requests";
    /// The client's token and cached state are invalid.
    STATE_INVALIDATED = 3014, "state invalidated";
    /// The token cannot be verified.
    INVALID_TOKEN = 3500, "invalid token";
    /// The client sent data that violates the protocol.
    BAD_REQUEST = 3501, "bad request";
    /// The session was not authenticated in time.
    STALE = 3502, "stale";
    /// Closed by the application.
    FORCE_NO_RECONNECT = 3503, "force disconnect";
    /// The node has reached its connection limit.
    CONNECTION_LIMIT = 3504, "connection limit";
    /// The session has too many channels.
    CHANNEL_LIMIT = 3505, "channel limit";
    /// The session's encoding cannot carry a payload for it.
    INAPPROPRIATE_PROTOCOL = 3506, "inappropriate protocol";
    /// The connection is not permitted.
    PERMISSION_DENIED = 3507, "permission denied";
    /// A requested feature is not enabled.
    NOT_AVAILABLE = 3508, "not available";
    /// The client sent too many failing commands; SDKs do not reconnect.
    TOO_MANY_ERRORS = 3509, "too many errors";
}

impl Disconnect {
    /// Whether SDKs reconnect after this code.
    pub const fn reconnects(&self) -> bool {
        matches!(self.code, 3000..=3499 | 4000..=4499 | 5000..)
    }
}

/// Why the server ended a subscription. SDKs resubscribe after codes from 2500 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnsubscribeCode(pub u32);

impl UnsubscribeCode {
    /// The application ended the subscription; the client does not resubscribe.
    pub const SERVER: Self = Self(2000);
    /// The room was closed; the client does not resubscribe.
    pub const ROOM_CLOSED: Self = Self(2010);
    /// Another connection has taken over the player; the client does not resubscribe.
    pub const SEAT_TAKEN: Self = Self(2011);
    /// The game or the application has removed the player from its room; the client does not resubscribe.
    pub const KICKED: Self = Self(2012);
    /// The position is lost; the client resubscribes and recovers.
    pub const INSUFFICIENT_STATE: Self = Self(2500);
    /// The subscription token expired.
    pub const EXPIRED: Self = Self(2501);
    /// The client drops its token and state, and resubscribes.
    pub const STATE_INVALIDATED: Self = Self(2502);
    /// The room failed, or moved and the player could not follow; the client resubscribes.
    pub const ROOM_FAILED: Self = Self(2510);

    /// Every code that the server itself uses.
    pub const ALL: &[Self] = &[
        Self::SERVER,
        Self::ROOM_CLOSED,
        Self::SEAT_TAKEN,
        Self::KICKED,
        Self::INSUFFICIENT_STATE,
        Self::EXPIRED,
        Self::STATE_INVALIDATED,
        Self::ROOM_FAILED,
    ];

    /// The name of the constant with this code; empty for the application's own codes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SERVER => "SERVER",
            Self::INSUFFICIENT_STATE => "INSUFFICIENT_STATE",
            Self::EXPIRED => "EXPIRED",
            Self::STATE_INVALIDATED => "STATE_INVALIDATED",
            Self::ROOM_CLOSED => "ROOM_CLOSED",
            Self::SEAT_TAKEN => "SEAT_TAKEN",
            Self::KICKED => "KICKED",
            Self::ROOM_FAILED => "ROOM_FAILED",
            _ => "",
        }
    }

    /// Whether SDKs resubscribe after this code.
    pub const fn resubscribes(self) -> bool {
        self.0 >= 2500
    }

    /// The message of the code; a general one for the application's own codes.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::INSUFFICIENT_STATE => "insufficient state",
            Self::EXPIRED => "subscription expired",
            Self::STATE_INVALIDATED => "state invalidated",
            Self::ROOM_CLOSED => "room closed",
            Self::SEAT_TAKEN => "seat taken over",
            Self::KICKED => "kicked",
            Self::ROOM_FAILED => "room failed",
            _ => "server unsubscribe",
        }
    }
}
