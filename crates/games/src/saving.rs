//! Encodes the saved state of a simulation. Numbers are little-endian; texts and lists follow their length in four
//! bytes.

use dunlin_rooms::{Angle, Fixed, ObjectId, PlayerId, Position};

/// Writes the state of a game in [`Simulation::save`](dunlin_rooms::Simulation::save), for [`Saved`](crate::Saved) to
/// read.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
/// use std::collections::BTreeMap;
///
/// use dunlin_game::{ObjectId, PlayerId, RestoreError, Saved, Saving};
///
/// #[derive(Debug, Default, PartialEq)]
/// struct Round {
///     number: u32,
///     is_over: bool,
///     runners: BTreeMap<PlayerId, ObjectId>,
/// }
///
/// impl Round {
///     fn save(&self, out: &mut Vec<u8>) {
///         let mut saving = Saving::new(out);
///         saving.u32(self.number).flag(self.is_over);
///         saving.list(&self.runners, |saving, (player, runner)| {
///             saving.player(*player).object(*runner);
///         });
///     }
///
///     fn restore(saved: &[u8]) -> Result<Self, RestoreError> {
///         let mut saved = Saved::new(saved);
///         let (number, is_over) = (saved.u32()?, saved.flag()?);
///         let runners = saved.list(|saved| Ok((saved.player()?, saved.object()?)))?;
///         saved.finish()?;
///         Ok(Self { number, is_over, runners })
///     }
/// }
///
/// let round = Round { number: 3, is_over: false, runners: [(PlayerId(1), ObjectId(7))].into() };
/// let mut out = Vec::new();
/// round.save(&mut out);
/// assert_eq!(Round::restore(&out), Ok(round));
/// assert_eq!(Round::restore(&out[1..]), Err(RestoreError));
/// ```
#[derive(Debug)]
pub struct Saving<'a>(&'a mut Vec<u8>);

impl<'a> Saving<'a> {
    /// Appends to the saved state of a simulation.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// Saving::new(&mut out).u32(1).text("ice");
    /// assert_eq!(out, [1, 0, 0, 0, 3, 0, 0, 0, b'i', b'c', b'e']);
    /// ```
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self(out)
    }

    /// Bytes without their length, for [`Saved::bytes`](crate::Saved::bytes).
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// Saving::new(&mut out).bytes(&[3, 4]);
    /// assert_eq!(out, [3, 4]);
    /// ```
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A number of 1 byte.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// Saving::new(&mut out).u8(7);
    /// assert_eq!(out, [7]);
    /// ```
    pub fn u8(&mut self, number: u8) -> &mut Self {
        self.bytes(&number.to_le_bytes());
        self
    }

    /// A number of 2 bytes.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// Saving::new(&mut out).u16(258);
    /// assert_eq!(out, [2, 1]);
    /// ```
    pub fn u16(&mut self, number: u16) -> &mut Self {
        self.bytes(&number.to_le_bytes());
        self
    }

    /// A number of 4 bytes.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// Saving::new(&mut out).u32(258);
    /// assert_eq!(out, [2, 1, 0, 0]);
    /// ```
    pub fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_le_bytes());
        self
    }

    /// A number of 8 bytes.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// Saving::new(&mut out).u64(258);
    /// assert_eq!(out, [2, 1, 0, 0, 0, 0, 0, 0]);
    /// ```
    pub fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes());
        self
    }

    /// A boolean.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// Saving::new(&mut out).flag(true);
    /// assert_eq!(out, [1]);
    /// ```
    pub fn flag(&mut self, flag: bool) -> &mut Self {
        self.u8(flag.into());
        self
    }

    /// The id of an object.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// Saving::new(&mut out).object(dunlin_game::ObjectId(7));
    /// assert_eq!(dunlin_game::Saved::new(&out).object(), Ok(dunlin_game::ObjectId(7)));
    /// ```
    pub fn object(&mut self, id: ObjectId) -> &mut Self {
        self.u32(id.0);
        self
    }

    /// The id of a player.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// Saving::new(&mut out).player(dunlin_game::PlayerId(7));
    /// assert_eq!(dunlin_game::Saved::new(&out).player(), Ok(dunlin_game::PlayerId(7)));
    /// ```
    pub fn player(&mut self, id: PlayerId) -> &mut Self {
        self.u32(id.0);
        self
    }

    /// A position.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// let place = dunlin_game::Position { x: 10, y: 20 };
    /// Saving::new(&mut out).position(place);
    /// assert_eq!(dunlin_game::Saved::new(&out).position(), Ok(place));
    /// ```
    pub fn position(&mut self, position: Position) -> &mut Self {
        self.u32(position.x).u32(position.y);
        self
    }

    /// A fixed-point number.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// let speed = dunlin_game::Fixed::ratio(5, 2);
    /// Saving::new(&mut out).fixed(speed);
    /// assert_eq!(dunlin_game::Saved::new(&out).fixed(), Ok(speed));
    /// ```
    pub fn fixed(&mut self, number: Fixed) -> &mut Self {
        self.bytes(&number.to_bits().to_le_bytes());
        self
    }

    /// An angle.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// let east = dunlin_game::Angle::degrees(0);
    /// Saving::new(&mut out).angle(east);
    /// assert_eq!(dunlin_game::Saved::new(&out).angle(), Ok(east));
    /// ```
    pub fn angle(&mut self, angle: Angle) -> &mut Self {
        self.u32(angle.to_bits());
        self
    }

    /// A text.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// Saving::new(&mut out).text("Ada");
    /// assert_eq!(&*dunlin_game::Saved::new(&out).text().expect("a text"), "Ada");
    /// ```
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.u32(text.len() as u32).bytes(text.as_bytes());
        self
    }

    /// A list: `write` writes each item, at least one byte of it.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Saving;
    ///
    /// let mut out = Vec::new();
    /// Saving::new(&mut out).list([3, 4], |saving, score| {
    ///     saving.u32(score);
    /// });
    /// let scores: Vec<u32> = dunlin_game::Saved::new(&out).list(|saved| saved.u32()).expect("a list");
    /// assert_eq!(scores, [3, 4]);
    /// ```
    pub fn list<I: IntoIterator<IntoIter: ExactSizeIterator>>(
        &mut self,
        items: I,
        mut write: impl FnMut(&mut Self, I::Item),
    ) -> &mut Self {
        let items = items.into_iter();
        self.u32(items.len() as u32);
        items.for_each(|item| write(self, item));
        self
    }
}

/// Appends a text for [`crate::Saved::text`].
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    Saving::new(out).text(text);
}

/// Appends the length of a list for [`crate::Saved::list`].
pub(crate) fn write_length(length: usize, out: &mut Vec<u8>) {
    Saving::new(out).u32(length as u32);
}

/// Appends a number for [`crate::Saved::u32`], or an id.
pub(crate) fn write_u32(number: u32, out: &mut Vec<u8>) {
    Saving::new(out).u32(number);
}
