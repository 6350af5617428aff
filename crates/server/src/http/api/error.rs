//! Errors of the server API: Centrifugo's numbers and words, of which a few differ from the client protocol's.

use std::borrow::Cow;

use dunlin_protocol::ErrorCode;
use serde::Serialize;

/// An error answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApiError {
    code: u32,
    message: Cow<'static, str>,
}

impl ApiError {
    /// Every code of the API, in the order of [`ApiError::index`].
    pub const CODES: [u32; 7] = [100, 102, 104, 107, 108, 112, 113];

    /// The server failed.
    pub const INTERNAL: Self = Self::constant(100, "internal server error");
    /// The channel's namespace does not exist.
    pub const UNKNOWN_CHANNEL: Self = Self::constant(102, "unknown channel");
    /// No such command.
    pub const NOT_FOUND: Self = Self::constant(104, "not found");
    /// The request makes no sense.
    pub const BAD_REQUEST: Self = Self::constant(107, "bad request");
    /// Not switched on for the channel, or not supported.
    pub const NOT_AVAILABLE: Self = Self::constant(108, "not available");
    /// What lies behind the position asked for is no longer there.
    pub const UNRECOVERABLE_POSITION: Self = Self::constant(112, "unrecoverable position");
    /// Two requests contradict each other.
    pub const CONFLICT: Self = Self::constant(113, "conflict");

    const fn constant(code: u32, message: &'static str) -> Self {
        Self { code, message: Cow::Borrowed(message) }
    }

    /// A bad request, with what is wrong behind the general words.
    pub fn bad_request(what: impl std::fmt::Display) -> Self {
        Self { message: format!("{}: {what}", Self::BAD_REQUEST.message).into(), ..Self::BAD_REQUEST }
    }

    /// Something that this version does not support.
    pub fn unsupported(what: impl std::fmt::Display) -> Self {
        Self { message: format!("{}: {what}", Self::NOT_AVAILABLE.message).into(), ..Self::NOT_AVAILABLE }
    }

    /// The number.
    pub const fn code(&self) -> u32 {
        self.code
    }

    /// The place of the code in [`ApiError::CODES`].
    pub fn index(&self) -> usize {
        Self::CODES.iter().position(|code| *code == self.code).unwrap_or(0)
    }

    /// The HTTP status, where the caller wants errors told that way.
    pub const fn http_status(&self) -> u16 {
        match self.code {
            102 | 104 => 404,
            107 | 108 => 400,
            112 => 416,
            113 => 409,
            _ => 500,
        }
    }
}

impl From<ErrorCode> for ApiError {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::UnknownChannel => Self::UNKNOWN_CHANNEL,
            ErrorCode::MethodNotFound => Self::NOT_FOUND,
            ErrorCode::BadRequest => Self::BAD_REQUEST,
            ErrorCode::NotAvailable => Self::NOT_AVAILABLE,
            ErrorCode::UnrecoverablePosition => Self::UNRECOVERABLE_POSITION,
            // The node holds as many channels as it may; a subscription would have ended before it began.
            ErrorCode::LimitExceeded | ErrorCode::Expired => Self::bad_request(code.message()),
            _ => Self::INTERNAL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_place_and_a_status() {
        let errors = [
            (ApiError::INTERNAL, 500),
            (ApiError::UNKNOWN_CHANNEL, 404),
            (ApiError::NOT_FOUND, 404),
            (ApiError::BAD_REQUEST, 400),
            (ApiError::NOT_AVAILABLE, 400),
            (ApiError::UNRECOVERABLE_POSITION, 416),
            (ApiError::CONFLICT, 409),
        ];
        assert_eq!(errors.len(), ApiError::CODES.len());
        for (index, (error, status)) in errors.iter().enumerate() {
            assert_eq!((error.index(), error.http_status()), (index, *status), "{error:?}");
            assert_eq!(ApiError::CODES[index], error.code());
        }
    }
}
