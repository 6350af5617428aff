//! Pages of lists: how many entries, how many bytes, and where the next page begins.

use std::fmt::Display;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::ApiError;

/// Maximum size of a reply, unless its first entry alone is larger. A reply of this size fits in a NATS message.
pub(super) const REPLY_BYTES_MAX: usize = 512 << 10;
/// The version of cursors.
const CURSOR_VERSION: &str = "1";

/// Limits a page to a number of entries and of bytes. Entries must be added in the order of the list.
pub(super) struct PageLimit {
    entries_left: usize,
    bytes_left: usize,
    is_empty: bool,
}

impl PageLimit {
    pub(super) const fn new(entries_max: usize) -> Self {
        Self::with_bytes(entries_max, REPLY_BYTES_MAX)
    }

    pub(super) const fn with_bytes(entries_max: usize, bytes_max: usize) -> Self {
        Self { entries_left: entries_max, bytes_left: bytes_max, is_empty: true }
    }

    /// Adds an entry of this size to the page. Returns `false` if the page is full.
    pub(super) fn takes(&mut self, bytes: usize) -> bool {
        if self.entries_left == 0 || (bytes > self.bytes_left && !self.is_empty) {
            return false;
        }
        self.entries_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        self.is_empty = false;
        true
    }
}

/// The number of entries that a request asks for in `field`.
pub(super) fn entries_max(field: &str, given: Option<u64>, default: usize, max: usize) -> Result<usize, ApiError> {
    match given.map(usize::try_from) {
        None => Ok(default),
        Some(Ok(number)) if (1..=max).contains(&number) => Ok(number),
        Some(_) => Err(ApiError::bad_request(format_args!("{field} must be from 1 to {max}"))),
    }
}

/// The place after which the requested page begins, as `place_of` reads it; `None` for the first page.
pub(super) fn after<P>(cursor: &str, place_of: impl FnOnce(&str) -> Option<P>) -> Result<Option<P>, ApiError> {
    if cursor.is_empty() {
        return Ok(None);
    }
    place_of(cursor).map(Some).ok_or_else(|| ApiError::bad_request("cursor is not from an answer"))
}

/// A cursor for a place, which has two parts. Only the second one may contain spaces.
pub(super) fn cursor(first: impl Display, second: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{CURSOR_VERSION} {first} {second}"))
}

/// The place for which `make` makes a value from the parts of a cursor. No part is empty.
pub(super) fn place<P>(cursor: &str, make: impl FnOnce(&str, &str) -> Option<P>) -> Option<P> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let mut parts = text.splitn(3, ' ');
    let (version, first, second) = (parts.next()?, parts.next()?, parts.next()?);
    let is_place = version == CURSOR_VERSION && !first.is_empty() && !second.is_empty();
    if is_place { make(first, second) } else { None }
}
