//! Refusals. One value has the code for the client and the reason for the operator, from where a refusal is decided to
//! where it is answered.

use dunlin_protocol::{Disconnect, ErrorCode};

use crate::{backend::ProxyError, log::LogError, message::NotSubscribed, room::RoomRefusal};

/// A request that is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The error for the client.
    pub code: ErrorCode,
    /// The reason, if the code does not determine it: a fixed text, for records and the server API.
    pub why: Option<&'static str>,
}

impl Refused {
    /// A refusal with its reason.
    pub const fn new(code: ErrorCode, why: &'static str) -> Self {
        Self { code, why: Some(why) }
    }
}

impl From<ErrorCode> for Refused {
    fn from(code: ErrorCode) -> Self {
        Self { code, why: None }
    }
}

impl From<LogError> for Refused {
    fn from(error: LogError) -> Self {
        Self::new(error.code(), error.why())
    }
}

impl From<RoomRefusal> for Refused {
    fn from(refusal: RoomRefusal) -> Self {
        refusal.code().into()
    }
}

/// A command of a session that is not carried out.
#[derive(Debug)]
pub(crate) enum RefusedCommand {
    /// The command is answered with an error of the server.
    Error(Refused),
    /// The command is answered with an error of the server that names its reason.
    Explained { code: ErrorCode, message: Box<str> },
    /// The command is answered with an error of a backend or a game.
    Own { code: u16, message: Box<str>, temporary: bool },
    /// The session is closed.
    Disconnect { disconnect: Disconnect, why: Option<&'static str> },
}

impl RefusedCommand {
    /// The client is told the reason.
    pub(crate) fn explained(code: ErrorCode, why: impl std::fmt::Display) -> Self {
        Self::Explained { code, message: why.to_string().into() }
    }

    /// The session is closed, with the reason.
    pub(crate) const fn close(disconnect: Disconnect, why: &'static str) -> Self {
        Self::Disconnect { disconnect, why: Some(why) }
    }

    /// The command is malformed, or comes at the wrong time: the session is closed.
    pub(crate) const fn bad_request(why: &'static str) -> Self {
        Self::close(Disconnect::BAD_REQUEST, why)
    }
}

impl From<Refused> for RefusedCommand {
    fn from(refused: Refused) -> Self {
        Self::Error(refused)
    }
}

impl From<ErrorCode> for RefusedCommand {
    fn from(code: ErrorCode) -> Self {
        Self::Error(code.into())
    }
}

impl From<Disconnect> for RefusedCommand {
    fn from(disconnect: Disconnect) -> Self {
        Self::Disconnect { disconnect, why: None }
    }
}

impl From<ProxyError> for RefusedCommand {
    fn from(error: ProxyError) -> Self {
        match error {
            ProxyError::Error { code, message, temporary } => Self::Own { code, message, temporary },
            ProxyError::Disconnect(disconnect) => disconnect.into(),
            ProxyError::Failed | ProxyError::Busy => error.error_code().into(),
        }
    }
}

impl From<NotSubscribed> for RefusedCommand {
    fn from(refused: NotSubscribed) -> Self {
        match refused {
            NotSubscribed::Error(refused) => Self::Error(refused),
            // Codes below 400 are reserved for the server.
            NotSubscribed::Refused(refusal) => {
                Self::Own { code: refusal.code.clamp(400, 1_999), message: refusal.message, temporary: false }
            }
        }
    }
}
