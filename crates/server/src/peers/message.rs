//! The messages between nodes.

use std::{borrow::Cow, fmt};

use bytes::Bytes;
use dunlin_engine::Refused;
use dunlin_protocol::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::kinds::{Question, Received};
use crate::access_sync::AccessFault;

/// The version of the format.
const VERSION: u32 = 1;

/// What is said of a node whose answer is not understood.
pub const NOT_UNDERSTOOD: &str = "has an answer that this version does not understand";

#[derive(Serialize, Deserialize)]
struct CallBody {
    v: u32,
    method: Box<str>,
    params: Box<RawValue>,
}

/// A result or an error.
#[derive(Serialize, Deserialize)]
struct ReplyBody {
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<PeerError>,
}

/// An error of another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerError {
    /// The code, as in the server API.
    pub code: u32,
    /// For human readers.
    pub message: Cow<'static, str>,
}

/// Why a question was not understood.
#[derive(Debug)]
pub(super) enum NotUnderstood {
    /// This version does not know the format or the kind.
    Unknown,
    /// The parameters are not those of the kind.
    Malformed(serde_json::Error),
}

/// Why a node's answer has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AnswerFault {
    /// The bytes are not an answer of this kind.
    NotUnderstood,
    /// It has more bytes than an answer of this kind may have.
    TooLarge {
        bytes: usize,
    },
    Error(PeerError),
}

impl PeerError {
    pub(super) const INTERNAL: Self = Self { code: 100, message: Cow::Borrowed("internal server error") };

    /// The kind of the question is unknown, or its format.
    pub(super) const NOT_FOUND: Self = Self { code: 104, message: Cow::Borrowed("not found") };

    /// What was asked for is not there.
    pub(crate) fn not_found(why: &str) -> Self {
        Self { message: format!("{}: {why}", Self::NOT_FOUND.message).into(), ..Self::NOT_FOUND }
    }

    /// An internal error with its reason.
    pub(crate) fn internal(why: impl fmt::Display) -> Self {
        Self { message: format!("{}: {why}", Self::INTERNAL.message).into(), ..Self::INTERNAL }
    }

    fn bad_request(why: impl fmt::Display) -> Self {
        Self { code: ErrorCode::BadRequest.code(), message: format!("bad request: {why}").into() }
    }

    /// The refusal of the shard that owns a channel.
    pub(crate) fn of_channel(channel: &str, refused: Refused) -> Self {
        let Refused { code, why } = refused;
        let error = Self::from(refused);
        // The log of the channel may be down, but not those of others.
        let is_of_log = why.is_some() && code.temporary();
        if is_of_log {
            Self { message: format!("{} (channel {channel})", error.message).into(), ..error }
        } else {
            error
        }
    }
}

impl From<Refused> for PeerError {
    fn from(Refused { code, why }: Refused) -> Self {
        let of_code = Self { code: code.code(), message: code.message().into() };
        match (code, why) {
            (
                ErrorCode::BadRequest | ErrorCode::NotAvailable | ErrorCode::Internal | ErrorCode::TooManyRequests,
                Some(why),
            ) => Self { message: format!("{}: {why}", code.message()).into(), ..of_code },
            (
                ErrorCode::UnknownChannel
                | ErrorCode::BadRequest
                | ErrorCode::NotAvailable
                | ErrorCode::TooManyRequests
                | ErrorCode::UnrecoverablePosition,
                _,
            ) => of_code,
            (ErrorCode::MethodNotFound, _) => Self::NOT_FOUND,
            (ErrorCode::LimitExceeded | ErrorCode::Expired, _) => Self::bad_request(code.message()),
            _ => Self::INTERNAL,
        }
    }
}

impl From<AccessFault> for PeerError {
    fn from(fault: AccessFault) -> Self {
        let why = match fault {
            AccessFault::Full => {
                let code = ErrorCode::TooManyRequests;
                let why = "client.access_rules_limit or client.access_rules_size_limit is reached";
                return Self { code: code.code(), message: format!("{}: {why}", code.message()).into() };
            }
            AccessFault::Stopped => "the server is stopping".to_owned(),
            AccessFault::NotStored(why) => {
                format!("the rule is in force, but it would not outlive a restart, because it is not stored: {why}")
            }
        };
        Self { message: format!("{}: {why}", Self::INTERNAL.message).into(), ..Self::INTERNAL }
    }
}

impl From<serde_json::Error> for NotUnderstood {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error)
    }
}

impl From<NotUnderstood> for PeerError {
    fn from(why: NotUnderstood) -> Self {
        match why {
            NotUnderstood::Unknown => Self::NOT_FOUND,
            NotUnderstood::Malformed(error) => Self::bad_request(error),
        }
    }
}

impl fmt::Display for AnswerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUnderstood => f.write_str(NOT_UNDERSTOOD),
            Self::TooLarge { bytes } => write!(f, "has an answer of {bytes} bytes, which is too large to be read"),
            Self::Error(PeerError { code, message }) => write!(f, "answers with error {code}: {message}"),
        }
    }
}

pub(super) fn encode_question<Q: Question>(question: &Q) -> Bytes {
    let params = to_raw_value(question).expect("texts and numbers are JSON");
    to_bytes(&CallBody { v: VERSION, method: Q::METHOD.into(), params })
}

pub(super) fn decode_question(payload: &[u8]) -> Result<Received, NotUnderstood> {
    let call: CallBody = serde_json::from_slice(payload).map_err(|_| NotUnderstood::Unknown)?;
    if call.v != VERSION {
        return Err(NotUnderstood::Unknown);
    }
    Received::of(&call.method, &call.params)
}

pub(super) fn encode_answer(outcome: Result<Box<RawValue>, PeerError>) -> Bytes {
    let (result, error) = match outcome {
        Ok(result) => (Some(result), None),
        Err(error) => (None, Some(error)),
    };
    to_bytes(&ReplyBody { v: VERSION, result, error })
}

pub(super) fn decode_answer<Q: Question>(payload: &[u8]) -> Result<Q::Answer, AnswerFault> {
    if payload.len() > Q::ANSWER_BYTES_MAX {
        return Err(AnswerFault::TooLarge { bytes: payload.len() });
    }
    let reply: ReplyBody = serde_json::from_slice(payload).map_err(|_| AnswerFault::NotUnderstood)?;
    match reply {
        ReplyBody { v: VERSION, result: Some(result), .. } => {
            serde_json::from_str(result.get()).map_err(|_| AnswerFault::NotUnderstood)
        }
        ReplyBody { v: VERSION, error: Some(error), .. } => Err(AnswerFault::Error(error)),
        _ => Err(AnswerFault::NotUnderstood),
    }
}

/// The bytes of a text in JSON, with its quotes.
pub(crate) fn json_bytes(text: &str) -> usize {
    let of_byte = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    2 + text.bytes().map(of_byte).sum::<usize>()
}

fn to_bytes(message: &impl Serialize) -> Bytes {
    serde_json::to_vec(message).expect("texts and numbers are JSON").into()
}

#[cfg(test)]
mod tests {
    use super::json_bytes;

    #[test]
    fn the_bytes_of_a_text_are_those_that_are_written() {
        let all: String = (0..0x180).filter_map(char::from_u32).collect();
        for text in ["", "chat:1", "\"\\/", "é\u{1f600}", &all] {
            assert_eq!(json_bytes(text), serde_json::to_string(text).expect("JSON").len(), "{text:?}");
        }
    }
}
