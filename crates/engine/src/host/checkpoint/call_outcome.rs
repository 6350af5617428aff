//! The outcome of a game's call in log records.

use bytes::Bytes;
use dunlin_rooms::{CallError, Refusal};

use super::{
    super::NotRestored,
    step_format::{RecordReader, put_bytes, put_number},
};

pub(super) fn put(outcome: &Result<Bytes, CallError>, out: &mut Vec<u8>) {
    match outcome {
        Ok(data) => {
            out.push(0);
            put_bytes(data, out);
        }
        Err(CallError::Refused(Refusal { code, message })) => {
            out.push(1);
            put_number((*code).into(), out);
            put_bytes(message.as_bytes(), out);
        }
        Err(CallError::Timeout) => out.push(2),
        Err(CallError::Failed) => out.push(3),
        Err(CallError::Busy) => out.push(4),
        Err(CallError::TooLong) => out.push(5),
        Err(CallError::Lost) => out.push(6),
    }
}

pub(super) fn read(reader: &mut RecordReader<'_>) -> Result<Result<Bytes, CallError>, NotRestored> {
    Ok(Err(match reader.byte()? {
        0 => return Ok(Ok(Bytes::copy_from_slice(reader.bytes()?))),
        1 => {
            let (code, message) = (reader.number_of()?, reader.text()?.into());
            CallError::Refused(Refusal { code, message })
        }
        2 => CallError::Timeout,
        3 => CallError::Failed,
        4 => CallError::Busy,
        5 => CallError::TooLong,
        6 => CallError::Lost,
        _ => return Err(NotRestored::Malformed),
    }))
}
