//! The outcome of a call in recordings.

use crate::{
    CallError, Refusal,
    binary::{Reader, Unreadable, put_bytes, put_number},
};

/// The backend's answer to a call, or the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcomeRef<'a> {
    /// The answer.
    Data(&'a [u8]),
    /// The backend's own error.
    Refused {
        /// The code of the error.
        code: u16,
        /// A message for humans.
        message: &'a str,
    },
    /// [`CallError::Timeout`]
    Timeout,
    /// [`CallError::Failed`]
    Failed,
    /// [`CallError::Busy`]
    Busy,
    /// [`CallError::TooLong`]
    TooLong,
    /// [`CallError::Lost`]
    Lost,
}

impl<'a> CallOutcomeRef<'a> {
    pub(super) fn of(outcome: Result<&'a [u8], &'a CallError>) -> Self {
        match outcome {
            Ok(data) => Self::Data(data),
            Err(CallError::Refused(Refusal { code, message })) => Self::Refused { code: *code, message },
            Err(CallError::Timeout) => Self::Timeout,
            Err(CallError::Failed) => Self::Failed,
            Err(CallError::Busy) => Self::Busy,
            Err(CallError::TooLong) => Self::TooLong,
            Err(CallError::Lost) => Self::Lost,
        }
    }

    /// The form that the game receives.
    ///
    /// # Errors
    /// [`CallError`]
    pub fn to_result(self) -> Result<&'a [u8], CallError> {
        Err(match self {
            Self::Data(data) => return Ok(data),
            Self::Refused { code, message } => CallError::Refused(Refusal { code, message: message.into() }),
            Self::Timeout => CallError::Timeout,
            Self::Failed => CallError::Failed,
            Self::Busy => CallError::Busy,
            Self::TooLong => CallError::TooLong,
            Self::Lost => CallError::Lost,
        })
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Data(_) => 0,
            Self::Refused { .. } => 1,
            Self::Timeout => 2,
            Self::Failed => 3,
            Self::Busy => 4,
            Self::TooLong => 5,
            Self::Lost => 6,
        });
        match self {
            Self::Data(data) => put_bytes(data, out),
            Self::Refused { code, message } => {
                put_number(code.into(), out);
                put_bytes(message.as_bytes(), out);
            }
            _ => {}
        }
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, Unreadable> {
        Ok(match reader.byte()? {
            0 => Self::Data(reader.bytes()?),
            1 => Self::Refused { code: reader.number_of()?, message: reader.text()? },
            2 => Self::Timeout,
            3 => Self::Failed,
            4 => Self::Busy,
            5 => Self::TooLong,
            6 => Self::Lost,
            _ => return Err(Unreadable::Wrong),
        })
    }
}
