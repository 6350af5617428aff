//! Filters publications by their tags (field `tf` of `subscribe`).

mod decimal;
mod parse;

pub(crate) use parse::RawNode;

use crate::Tags;

/// A filter by tags. A subscriber receives only the publications that pass it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TagsFilter {
    /// All of these filters pass. Contains at least one.
    All(Box<[Self]>),
    /// One of these filters passes. Contains at least one.
    Any(Box<[Self]>),
    /// This filter does not pass.
    Not(Box<Self>),
    /// The tag `key` passes a test.
    Tag {
        /// The tag's name.
        key: Box<str>,
        /// The test.
        test: TagTest,
    },
}

/// A condition on one tag. An absent tag is neither a string nor a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TagTest {
    /// The tag equals this string (`eq`).
    Equals(Box<str>),
    /// The tag differs from this string, or is absent (`neq`).
    Differs(Box<str>),
    /// The tag is one of these strings (`in`). An absent tag counts as the empty string.
    OneOf(Box<[Box<str>]>),
    /// The tag is none of these strings (`nin`). An absent tag counts as the empty string.
    NoneOf(Box<[Box<str>]>),
    /// The tag is present (`ex`).
    Exists,
    /// The tag is absent (`nex`).
    IsMissing,
    /// The tag begins with this string (`sw`).
    StartsWith(Box<str>),
    /// The tag ends with this string (`ew`).
    EndsWith(Box<str>),
    /// The tag contains this string (`ct`).
    Contains(Box<str>),
    /// The tag is a decimal number above this one (`gt`). This test and the next three fail if either is not a decimal
    /// number.
    Above(Box<str>),
    /// The tag is at least this number (`gte`).
    AtLeast(Box<str>),
    /// The tag is below this number (`lt`).
    Below(Box<str>),
    /// The tag is at most this number (`lte`).
    AtMost(Box<str>),
}

/// Limits on the size of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterLimits {
    /// Maximum length of the encoded filter.
    pub bytes_max: usize,
    /// Maximum number of nodes of its tree, including leaves.
    pub nodes_max: usize,
    /// Maximum number of nodes on the path from the root to a leaf, including both.
    pub depth_max: usize,
}

/// Why bytes are not a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterError {
    /// The bytes violate the protocol, so their frame is malformed.
    Malformed,
    /// The filter is invalid: error 107.
    Invalid,
    /// The filter exceeds a limit: error 107.
    TooLarge,
}

impl TagsFilter {
    /// Whether a publication with these tags passes. Does not allocate.
    pub fn passes(&self, tags: &Tags) -> bool {
        match self {
            Self::All(filters) => filters.iter().all(|filter| filter.passes(tags)),
            Self::Any(filters) => filters.iter().any(|filter| filter.passes(tags)),
            Self::Not(filter) => !filter.passes(tags),
            Self::Tag { key, test } => {
                // The last of equal names is used, as in a map that was filled in order.
                let tag = tags.iter().rev().find(|(name, _)| name == key);
                test.holds(tag.map(|(_, value)| &**value))
            }
        }
    }
}

impl TagTest {
    fn holds(&self, value: Option<&str>) -> bool {
        let is_among = |texts: &[Box<str>]| texts.iter().any(|text| **text == *value.unwrap_or_default());
        let compared = |number: &str| decimal::compare(value?, number);
        match self {
            Self::Equals(text) => value == Some(&**text),
            Self::Differs(text) => value != Some(&**text),
            Self::OneOf(texts) => is_among(texts),
            Self::NoneOf(texts) => !is_among(texts),
            Self::Exists => value.is_some(),
            Self::IsMissing => value.is_none(),
            Self::StartsWith(text) => value.is_some_and(|value| value.starts_with(&**text)),
            Self::EndsWith(text) => value.is_some_and(|value| value.ends_with(&**text)),
            Self::Contains(text) => value.is_some_and(|value| value.contains(&**text)),
            Self::Above(number) => compared(number).is_some_and(std::cmp::Ordering::is_gt),
            Self::AtLeast(number) => compared(number).is_some_and(std::cmp::Ordering::is_ge),
            Self::Below(number) => compared(number).is_some_and(std::cmp::Ordering::is_lt),
            Self::AtMost(number) => compared(number).is_some_and(std::cmp::Ordering::is_le),
        }
    }
}

#[cfg(test)]
mod tests;
