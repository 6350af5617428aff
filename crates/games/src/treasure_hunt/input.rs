//! What players can do.

use super::walk::Velocity;

/// Ways to wave, numbered from 0.
pub const EMOTES: u8 = 8;

/// A player's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Go on like this until further notice.
    Walk(Velocity),
    /// Dig here.
    Dig,
    /// Be seen waving.
    Wave {
        /// Below [`EMOTES`].
        emote: u8,
    },
}

impl Input {
    /// Reads an input; `None` if it is none.
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
    fn inputs_are_read_and_nothing_else_is() {
        assert_eq!(Input::read(&[0, 1, 255]), Some(Input::Walk(Velocity { x: 1, y: -1 })));
        assert_eq!(Input::read(&[1]), Some(Input::Dig));
        assert_eq!(Input::read(&[2, 7]), Some(Input::Wave { emote: 7 }));
        let none: [&[u8]; 8] = [&[], &[0], &[0, 1], &[0, 1, 2, 3], &[1, 0], &[2], &[2, 8], &[3]];
        for data in none {
            assert_eq!(Input::read(data), None, "{data:?}");
        }
    }
}
