//! Decodes the saved state of a simulation, which `saving.rs` encodes.

use dunlin_rooms::{Angle, Fixed, ObjectId, PlayerId, Position, RestoreError};

/// Reads the state of a game in [`Simulation::restore`](dunlin_rooms::Simulation::restore): the same values, in the
/// order in which [`Saving`](crate::Saving) wrote them. Missing, malformed or trailing bytes cause a [`RestoreError`],
/// never a panic.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
/// use dunlin_game::{RestoreError, Saved};
///
/// /// The length of a round, which is never 0: what a game checks itself is a `RestoreError` as well.
/// fn restore(saved: &[u8]) -> Result<u32, RestoreError> {
///     let mut saved = Saved::new(saved);
///     let round_ticks = saved.u32()?;
///     saved.finish()?;
///     if round_ticks == 0 { Err(RestoreError) } else { Ok(round_ticks) }
/// }
/// assert_eq!(restore(&[60, 0, 0, 0]), Ok(60));
/// assert_eq!(restore(&[0; 4]), Err(RestoreError));
/// assert_eq!(restore(&[60, 0]), Err(RestoreError));
/// ```
#[derive(Debug)]
pub struct Saved<'a>(&'a [u8]);

impl<'a> Saved<'a> {
    /// Reads a saved state from the beginning.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// let mut saved = Saved::new(&[1, 2]);
    /// assert_eq!((saved.u8(), saved.u8()), (Ok(1), Ok(2)));
    /// assert!(saved.u8().is_err());
    /// ```
    pub fn new(saved: &'a [u8]) -> Self {
        Self(saved)
    }

    /// Reads `N` bytes.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// let [colour, speed] = Saved::new(&[3, 4]).bytes().expect("two bytes");
    /// assert_eq!((colour, speed), (3, 4));
    /// ```
    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], RestoreError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(RestoreError)?;
        self.0 = rest;
        Ok(*bytes)
    }

    /// A number of 1 byte.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// assert_eq!(Saved::new(&[7]).u8(), Ok(7));
    /// assert!(Saved::new(&[]).u8().is_err());
    /// ```
    pub fn u8(&mut self) -> Result<u8, RestoreError> {
        self.bytes().map(u8::from_le_bytes)
    }

    /// A number of 2 bytes.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// assert_eq!(Saved::new(&[2, 1]).u16(), Ok(258));
    /// assert!(Saved::new(&[]).u16().is_err());
    /// ```
    pub fn u16(&mut self) -> Result<u16, RestoreError> {
        self.bytes().map(u16::from_le_bytes)
    }

    /// A number of 4 bytes.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// assert_eq!(Saved::new(&[2, 1, 0, 0]).u32(), Ok(258));
    /// assert!(Saved::new(&[]).u32().is_err());
    /// ```
    pub fn u32(&mut self) -> Result<u32, RestoreError> {
        self.bytes().map(u32::from_le_bytes)
    }

    /// A number of 8 bytes.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// assert_eq!(Saved::new(&[2, 1, 0, 0, 0, 0, 0, 0]).u64(), Ok(258));
    /// assert!(Saved::new(&[]).u64().is_err());
    /// ```
    pub fn u64(&mut self) -> Result<u64, RestoreError> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// A boolean.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// assert_eq!(Saved::new(&[1]).flag(), Ok(true));
    /// assert!(Saved::new(&[2]).flag().is_err());
    /// ```
    pub fn flag(&mut self) -> Result<bool, RestoreError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(RestoreError),
        }
    }

    /// The id of an object.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// assert_eq!(Saved::new(&[7, 0, 0, 0]).object(), Ok(dunlin_game::ObjectId(7)));
    /// ```
    pub fn object(&mut self) -> Result<ObjectId, RestoreError> {
        self.u32().map(ObjectId)
    }

    /// The id of a player.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// assert_eq!(Saved::new(&[7, 0, 0, 0]).player(), Ok(dunlin_game::PlayerId(7)));
    /// ```
    pub fn player(&mut self) -> Result<PlayerId, RestoreError> {
        self.u32().map(PlayerId)
    }

    /// A position.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// let place = Saved::new(&[10, 0, 0, 0, 20, 0, 0, 0]).position();
    /// assert_eq!(place, Ok(dunlin_game::Position { x: 10, y: 20 }));
    /// ```
    pub fn position(&mut self) -> Result<Position, RestoreError> {
        Ok(Position { x: self.u32()?, y: self.u32()? })
    }

    /// A fixed-point number.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// assert_eq!(Saved::new(&[0, 0, 0, 0, 1, 0, 0, 0]).fixed(), Ok(dunlin_game::Fixed::ONE));
    /// ```
    pub fn fixed(&mut self) -> Result<Fixed, RestoreError> {
        self.bytes().map(i64::from_le_bytes).map(Fixed::from_bits)
    }

    /// An angle.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// assert_eq!(Saved::new(&[0, 0, 0, 0x40]).angle(), Ok(dunlin_game::Angle::QUARTER));
    /// ```
    pub fn angle(&mut self) -> Result<Angle, RestoreError> {
        self.u32().map(Angle::from_bits)
    }

    /// A text.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// assert_eq!(&*Saved::new(b"\x03\0\0\0Ada").text().expect("a text"), "Ada");
    /// assert!(Saved::new(b"\x04\0\0\0Ada").text().is_err());
    /// ```
    pub fn text(&mut self) -> Result<Box<str>, RestoreError> {
        let length = self.u32()? as usize;
        let (text, rest) = self.0.split_at_checked(length).ok_or(RestoreError)?;
        self.0 = rest;
        std::str::from_utf8(text).map(Box::from).map_err(|_| RestoreError)
    }

    /// A list. `read` consumes at least one byte per item, so the length is bounded by the remaining bytes.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// let scores: Vec<u16> = Saved::new(&[2, 0, 0, 0, 5, 0, 6, 0]).list(|saved| saved.u16()).expect("a list");
    /// assert_eq!(scores, [5, 6]);
    /// ```
    pub fn list<T, C: FromIterator<T>>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, RestoreError>,
    ) -> Result<C, RestoreError> {
        (0..self.u32()?).map(|_| read(self)).collect()
    }

    /// Must be called at the end. Rejects trailing bytes.
    ///
    /// # Errors
    /// [`RestoreError`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saved;
    ///
    /// let mut saved = Saved::new(&[1, 2]);
    /// assert_eq!(saved.u8(), Ok(1));
    /// assert!(saved.finish().is_err());
    /// ```
    pub fn finish(self) -> Result<(), RestoreError> {
        if self.0.is_empty() { Ok(()) } else { Err(RestoreError) }
    }
}
