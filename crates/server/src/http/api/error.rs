//! Errors of the server API: Centrifugo's codes and messages. A few differ from those of the client protocol.

use std::borrow::Cow;

use dunlin_engine::Refused;
use dunlin_protocol::ErrorCode;
use dunlin_rooms::Refusal;
use serde::Serialize;

use crate::{access_sync::AccessFault, peers::PeerError};

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApiError {
    code: u32,
    message: Cow<'static, str>,
}

impl ApiError {
    /// All codes of the API except those of games, in the order of [`ApiError::index`].
    pub const CODES: [u32; 8] = [100, 102, 104, 107, 108, 111, 112, 113];

    /// The code under which refusals of games, with codes from 400 to 1999, are counted.
    pub const GAME_CODE: u32 = 400;
    /// Number of values of [`ApiError::index`].
    pub const INDICES: usize = Self::CODES.len() + 1;

    /// The server failed.
    pub const INTERNAL: Self = Self::constant(100, "internal server error");
    /// The channel's namespace does not exist.
    pub const UNKNOWN_CHANNEL: Self = Self::constant(102, "unknown channel");
    /// Unknown command.
    pub const NOT_FOUND: Self = Self::constant(104, "not found");
    /// Invalid request.
    pub const BAD_REQUEST: Self = Self::constant(107, "bad request");
    /// A request without a channel.
    pub const NO_CHANNEL: Self = Self::constant(107, "bad request: channel is missing");
    /// A request without the data that it needs.
    pub const NO_DATA: Self = Self::constant(107, "bad request: data is missing");
    /// Not enabled for the channel, or not supported.
    pub const NOT_AVAILABLE: Self = Self::constant(108, "not available");
    /// Too many requests are waiting.
    pub const TOO_MANY_REQUESTS: Self = Self::constant(111, "too many requests");
    /// The history after the requested position is no longer available.
    pub const UNRECOVERABLE_POSITION: Self = Self::constant(112, "unrecoverable position");
    /// Two requests conflict.
    pub const CONFLICT: Self = Self::constant(113, "conflict");

    const fn constant(code: u32, message: &'static str) -> Self {
        Self { code, message: Cow::Borrowed(message) }
    }

    /// A bad request with the reason.
    pub fn bad_request(what: impl std::fmt::Display) -> Self {
        Self { message: format!("{}: {what}", Self::BAD_REQUEST.message).into(), ..Self::BAD_REQUEST }
    }

    /// Something that does not exist, with the reason.
    pub fn not_found(why: impl std::fmt::Display) -> Self {
        Self { message: format!("{}: {why}", Self::NOT_FOUND.message).into(), ..Self::NOT_FOUND }
    }

    /// A failure of the server with the reason.
    pub fn internal(why: impl std::fmt::Display) -> Self {
        Self { message: format!("{}: {why}", Self::INTERNAL.message).into(), ..Self::INTERNAL }
    }

    /// A conflict with the reason.
    pub fn conflict(why: impl std::fmt::Display) -> Self {
        Self { message: format!("{}: {why}", Self::CONFLICT.message).into(), ..Self::CONFLICT }
    }

    /// A feature that this version does not support.
    pub fn unsupported(what: impl std::fmt::Display) -> Self {
        Self { message: format!("{}: {what}", Self::NOT_AVAILABLE.message).into(), ..Self::NOT_AVAILABLE }
    }

    /// Too many requests are waiting, with the limit.
    pub fn too_many_requests(what: impl std::fmt::Display) -> Self {
        Self { message: format!("{}: {what}", Self::TOO_MANY_REQUESTS.message).into(), ..Self::TOO_MANY_REQUESTS }
    }

    /// The refusal of a game.
    pub fn of_game(refusal: Refusal) -> Self {
        Self { code: refusal.code.into(), message: String::from(refusal.message).into() }
    }

    /// The error code.
    pub const fn code(&self) -> u32 {
        self.code
    }

    /// The text of the error.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The index of the code in [`ApiError::CODES`]; for the code of a game, the index after them.
    pub fn index(&self) -> usize {
        if self.code >= Self::GAME_CODE {
            return Self::CODES.len();
        }
        Self::CODES.iter().position(|code| *code == self.code).unwrap_or(0)
    }

    /// The HTTP status, for callers that want errors as statuses.
    pub const fn http_status(&self) -> u16 {
        match self.code {
            102 | 104 => 404,
            107 | 108 | Self::GAME_CODE.. => 400,
            111 => 429,
            112 => 416,
            113 => 409,
            _ => 500,
        }
    }
}

impl From<ApiError> for PeerError {
    fn from(error: ApiError) -> Self {
        Self { code: error.code(), message: error.message().to_owned().into() }
    }
}

impl From<PeerError> for ApiError {
    fn from(PeerError { code, message }: PeerError) -> Self {
        Self { code, message }
    }
}

/// As another node of the cluster would answer.
impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        PeerError::from(refused).into()
    }
}

impl From<AccessFault> for ApiError {
    fn from(fault: AccessFault) -> Self {
        PeerError::from(fault).into()
    }
}

impl From<ErrorCode> for ApiError {
    fn from(code: ErrorCode) -> Self {
        Refused::from(code).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_api_error_has_a_code_and_a_status() {
        let errors = [
            (ApiError::INTERNAL, 500),
            (ApiError::UNKNOWN_CHANNEL, 404),
            (ApiError::NOT_FOUND, 404),
            (ApiError::BAD_REQUEST, 400),
            (ApiError::NOT_AVAILABLE, 400),
            (ApiError::TOO_MANY_REQUESTS, 429),
            (ApiError::UNRECOVERABLE_POSITION, 416),
            (ApiError::CONFLICT, 409),
        ];
        assert_eq!(errors.len(), ApiError::CODES.len());
        for (index, (error, status)) in errors.iter().enumerate() {
            assert_eq!((error.index(), error.http_status()), (index, *status), "{error:?}");
            assert_eq!(ApiError::CODES[index], error.code());
        }
        for code in [400, 1_999] {
            let error = ApiError::of_game(Refusal { code, message: "no".into() });
            assert_eq!((error.index(), error.http_status()), (ApiError::INDICES - 1, 400));
        }
    }
}
