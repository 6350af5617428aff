//! Changes one input of a recording, to test that a replay detects it.

use dunlin_rooms::recording::{ReplayError, inputs};
use serde::Serialize;

use super::verify;
use crate::report::Line;

/// Maximum number of attempts. An input without any effect, such as one of a digging player, proves nothing, so another
/// one is changed.
const TRIES_MAX: usize = 20;

/// The result of a changed input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Tampered {
    /// The tick before which the changed input was applied.
    pub changed_tick: Option<u32>,
    /// The tick that the replay reported.
    pub found_tick: Option<u32>,
}

impl Tampered {
    /// Whether the replay reported the right tick.
    pub fn is_found(&self) -> bool {
        self.changed_tick.is_some() && self.changed_tick == self.found_tick
    }

    pub fn line(&self) -> Line {
        let tick = |tick: Option<u32>| tick.map_or("none".into(), |tick| tick.to_string());
        let text = format!("an input before tick {}; found at tick {}", tick(self.changed_tick), tick(self.found_tick));
        Line::new("changed", text)
    }
}

/// Changes an input from the middle of a recording, and replays it.
pub fn tamper(recording: &[u8]) -> Tampered {
    let inputs = inputs(recording).unwrap_or_default();
    let later = inputs.get(inputs.len() / 2..).unwrap_or_default();
    let mut last = Tampered::default();
    for input in later.iter().filter(|input| input.data.len() > 1).take(TRIES_MAX) {
        let mut changed = recording.to_vec();
        // Change the last byte, because the first one is the kind of input.
        changed[input.data.end - 1] ^= 0x55;
        last = Tampered { changed_tick: Some(input.tick), found_tick: first_difference(&changed) };
        if last.found_tick.is_some() {
            break;
        }
    }
    last
}

/// The first tick whose hash differs from the recorded one.
fn first_difference(recording: &[u8]) -> Option<u32> {
    let mut replay = verify::begin(recording).ok()?;
    match replay.finish() {
        Err(ReplayError::Divergence { tick, .. }) => Some(tick),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::verify::tests::recorded;

    #[test]
    fn a_changed_input_is_found_at_its_tick() {
        let (recording, _) = recorded(6);
        let ticks: Vec<u32> = inputs(&recording).expect("a recording").iter().map(|input| input.tick).collect();
        assert_eq!(ticks, [3]);
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
            let _ = inputs(&recording[..end]);
        }
    }
}
