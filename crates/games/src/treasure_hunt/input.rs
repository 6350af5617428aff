//! The inputs of players.

use crate::walk::Velocity;

/// Number of emotes; they are numbered from 0.
pub const EMOTES: u8 = 8;

/// A player's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HuntInput {
    /// Walk with this velocity until further notice.
    Walk(Velocity),
    /// Dig here.
    Dig,
    /// Wave.
    Wave {
        /// Below [`EMOTES`].
        emote: u8,
    },
}

impl HuntInput {
    /// Parses an input; `None` if it is invalid.
    pub fn read(data: &[u8]) -> Option<Self> {
        match *data {
            [0, dx, dy] => Some(Self::Walk(Velocity::of_input(dx.cast_signed(), dy.cast_signed()))),
            [1] => Some(Self::Dig),
            [2, emote] if emote < EMOTES => Some(Self::Wave { emote }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_inputs_are_parsed() {
        assert_eq!(HuntInput::read(&[0, 1, 255]), Some(HuntInput::Walk(Velocity { x: 1, y: -1 })));
        assert_eq!(HuntInput::read(&[1]), Some(HuntInput::Dig));
        assert_eq!(HuntInput::read(&[2, 7]), Some(HuntInput::Wave { emote: 7 }));
        let none: [&[u8]; 8] = [&[], &[0], &[0, 1], &[0, 1, 2, 3], &[1, 0], &[2], &[2, 8], &[3]];
        for data in none {
            assert_eq!(HuntInput::read(data), None, "{data:?}");
        }
    }
}
