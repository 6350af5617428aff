//! Encodes and decodes the saved state of a simulation. Numbers are little-endian; texts and lists follow their length
//! in four bytes.

use dunlin_rooms::{ObjectId, PlayerId, RestoreError};

/// Reads the output of [`crate::saved`]'s functions from the front.
pub(crate) struct Saved<'a>(&'a [u8]);

impl<'a> Saved<'a> {
    pub(crate) fn new(saved: &'a [u8]) -> Self {
        Self(saved)
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], RestoreError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(RestoreError)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, RestoreError> {
        self.bytes().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, RestoreError> {
        self.bytes().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, RestoreError> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, RestoreError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(RestoreError),
        }
    }

    pub(crate) fn object(&mut self) -> Result<ObjectId, RestoreError> {
        self.u32().map(ObjectId)
    }

    pub(crate) fn player(&mut self) -> Result<PlayerId, RestoreError> {
        self.u32().map(PlayerId)
    }

    pub(crate) fn text(&mut self) -> Result<Box<str>, RestoreError> {
        let length = self.u32()? as usize;
        let (text, rest) = self.0.split_at_checked(length).ok_or(RestoreError)?;
        self.0 = rest;
        std::str::from_utf8(text).map(Box::from).map_err(|_| RestoreError)
    }

    /// A list. `read` consumes at least one byte per item, so the length is bounded by the remaining bytes.
    pub(crate) fn list<T, C: FromIterator<T>>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, RestoreError>,
    ) -> Result<C, RestoreError> {
        (0..self.u32()?).map(|_| read(self)).collect()
    }

    /// Must be called at the end. Rejects trailing bytes.
    pub(crate) fn finish(self) -> Result<(), RestoreError> {
        if self.0.is_empty() { Ok(()) } else { Err(RestoreError) }
    }
}

/// Appends a text for [`Saved::text`].
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    write_length(text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

/// Appends the length of a list for [`Saved::list`].
pub(crate) fn write_length(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(length as u32).to_le_bytes());
}

/// Appends a number for [`Saved::u32`], or an id.
pub(crate) fn write_u32(number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
}
