//! Finds the inputs of a recording, and what connections carried, without replaying it.

use std::ops::Range;

use super::{Carried, Header, Record, RecordedStep, ReplayError};
use crate::{PlayerId, binary::Reader};

/// An input in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedInput {
    /// The tick that applied the input; the first tick is 1.
    pub tick: u32,
    /// The position of the input's data in the recording, in bytes.
    pub data: Range<usize>,
}

/// The inputs of a recording, in order.
///
/// # Errors
/// All of [`ReplayError`] except [`ReplayError::Grid`] and [`ReplayError::Divergence`].
pub fn inputs(recording: &[u8]) -> Result<Vec<RecordedInput>, ReplayError> {
    let mut reader = Reader::new(recording);
    Header::read_from(&mut reader)?;
    let (mut tick, mut inputs) = (1, Vec::new());
    while reader.left() > 0 {
        match Record::read(&mut reader)? {
            Record::Tick { .. } => tick += 1,
            // The data is the last field of the record.
            Record::Step(RecordedStep::Input { data, .. }) => {
                let end = recording.len() - reader.left();
                inputs.push(RecordedInput { tick, data: end - data.len()..end });
            }
            Record::Step(_) | Record::Carried { .. } | Record::Untold { .. } => {}
        }
    }
    Ok(inputs)
}

/// What the connections of players have carried, in order.
///
/// # Errors
/// As of [`inputs`].
pub fn carried(recording: &[u8]) -> Result<Vec<(PlayerId, Carried)>, ReplayError> {
    let mut reader = Reader::new(recording);
    Header::read_from(&mut reader)?;
    let mut told = Vec::new();
    while reader.left() > 0 {
        if let Record::Carried { player, carried } = Record::read(&mut reader)? {
            told.push((player, carried));
        }
    }
    Ok(told)
}
