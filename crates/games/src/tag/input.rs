//! The inputs of players.

use dunlin_rooms::Angle;

use crate::walk::Velocity;

/// A player's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagInput {
    /// Run with this velocity until further notice.
    Run(Velocity),
    /// Shoot.
    Shoot {
        /// The tick that the player saw when it aimed.
        seen_tick: u32,
        /// The direction.
        angle: Angle,
    },
}

impl TagInput {
    /// Parses an input; `None` if it is invalid.
    pub fn read(data: &[u8]) -> Option<Self> {
        match *data {
            [0, dx, dy] => Some(Self::Run(Velocity::of_input(dx.cast_signed(), dy.cast_signed()))),
            [1, t0, t1, t2, t3, a0, a1] => Some(Self::Shoot {
                seen_tick: u32::from_le_bytes([t0, t1, t2, t3]),
                angle: Angle::from_bits(u32::from(u16::from_le_bytes([a0, a1])) << 16),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_inputs_are_parsed() {
        assert_eq!(TagInput::read(&[0, 1, 255]), Some(TagInput::Run(Velocity { x: 1, y: -1 })));
        let shot = TagInput::Shoot { seen_tick: 258, angle: Angle::QUARTER };
        assert_eq!(TagInput::read(&[1, 2, 1, 0, 0, 0, 0x40]), Some(shot));
        let none: [&[u8]; 7] = [&[], &[0], &[0, 1], &[0, 1, 2, 3], &[1], &[1, 2, 1, 0, 0, 0], &[2, 0, 0]];
        for data in none {
            assert_eq!(TagInput::read(data), None, "{data:?}");
        }
    }
}
