//! Changes one input of a recording, to test that a replay detects it.
//!
//! The format is that of `dunlin_rooms::recording`: [`MAGIC`], a version, the header, and records. This module decodes
//! only what it needs to find inputs and ticks.

use dunlin_rooms::recording::{MAGIC, ReplayError};
use serde::Serialize;

use super::verify;
use crate::report::Line;

/// Numbers of the header that stand behind its two texts: the seed, ticks in a second, six bounds.
const HEADER_NUMBERS: usize = 8;
/// An input without any effect, such as one of a player that digs, is no test; so another is tried.
const TRIES_MAX: usize = 20;

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Tampered {
    /// The tick before which the changed input was applied.
    pub changed_tick: Option<u32>,
    /// The tick that the replay named.
    pub found_tick: Option<u32>,
}

impl Tampered {
    /// Whether it was found where it was.
    pub fn is_found(&self) -> bool {
        self.changed_tick.is_some() && self.changed_tick == self.found_tick
    }

    pub fn line(&self) -> Line {
        let tick = |tick: Option<u32>| tick.map_or("none".into(), |tick| tick.to_string());
        let text = format!("an input before tick {}; found at tick {}", tick(self.changed_tick), tick(self.found_tick));
        Line::new("changed", text)
    }
}

/// An input in a recording: the tick that follows it, and where the first byte of its data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InputPlace {
    tick: u32,
    data: usize,
    bytes: usize,
}

/// Changes an input from the middle of a recording, and replays it.
pub fn tamper(recording: &[u8]) -> Tampered {
    let inputs = inputs(recording).unwrap_or_default();
    let later = inputs.get(inputs.len() / 2..).unwrap_or_default();
    let mut last = Tampered::default();
    for place in later.iter().filter(|place| place.bytes > 1).take(TRIES_MAX) {
        let mut changed = recording.to_vec();
        // Change the last byte, because the first one is the kind of input.
        if let Some(byte) = changed.get_mut(place.data + place.bytes - 1) {
            *byte ^= 0x55;
        }
        last = Tampered { changed_tick: Some(place.tick), found_tick: first_difference(&changed) };
        if last.found_tick.is_some() {
            break;
        }
    }
    last
}

/// The first tick whose hash is not what was recorded.
fn first_difference(recording: &[u8]) -> Option<u32> {
    let mut replay = verify::begin(recording).ok()?;
    match replay.finish() {
        Err(ReplayError::Divergence { tick, .. }) => Some(tick),
        _ => None,
    }
}

/// All inputs of a recording; `None` if it is none.
fn inputs(recording: &[u8]) -> Option<Vec<InputPlace>> {
    let mut walk = Walk { recording, at: MAGIC.len() + 1 };
    walk.bytes()?;
    walk.bytes()?;
    for _ in 0..HEADER_NUMBERS {
        walk.number()?;
    }
    // The channel, and the bound of the metadata.
    walk.bytes()?;
    walk.number()?;
    let (mut tick, mut inputs) = (1, Vec::new());
    while let Some(kind) = walk.byte() {
        match kind {
            0 => {
                walk.at += size_of::<u64>();
                tick += 1;
            }
            4 => {
                walk.byte()?;
                walk.visitor()?;
                walk.bytes()?;
            }
            2 | 5 => {
                walk.number()?;
            }
            6 => {
                walk.byte()?;
                walk.number()?;
                walk.visitor()?;
            }
            3 => {
                walk.number()?;
                walk.number()?;
                let (data, bytes) = walk.bytes()?;
                inputs.push(InputPlace { tick, data, bytes });
            }
            _ => return None,
        }
    }
    Some(inputs)
}

struct Walk<'a> {
    recording: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.recording.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// The user, the client, the info and the role.
    fn visitor(&mut self) -> Option<()> {
        (0..3).try_for_each(|_| self.bytes().map(drop))?;
        self.byte().map(drop)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// Where bytes are that stand behind their length, and how many.
    fn bytes(&mut self) -> Option<(usize, usize)> {
        let bytes = usize::try_from(self.number()?).ok()?;
        let start = self.at;
        self.at = start.checked_add(bytes).filter(|end| *end <= self.recording.len())?;
        Some((start, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::verify::tests::recorded;

    #[test]
    fn a_changed_input_is_found_at_its_tick() {
        let (recording, _) = recorded(6);
        assert_eq!(inputs(&recording).map(|inputs| inputs.iter().map(|place| place.tick).collect()), Some(vec![3]));
        assert_eq!(first_difference(&recording), None, "as it was recorded");
        let tampered = tamper(&recording);
        assert_eq!(tampered, Tampered { changed_tick: Some(3), found_tick: Some(3) });
        assert!(tampered.is_found());
    }

    #[test]
    fn a_recording_without_inputs_or_none_at_all_is_not_found() {
        let (recording, _) = recorded(2);
        assert!(!tamper(&recording).is_found());
        assert!(!tamper(b"nothing").is_found());
        for end in 0..recording.len() {
            inputs(&recording[..end]);
        }
    }
}
