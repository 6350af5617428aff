//! Filters publications by their tags (field `tf` of `subscribe`).

mod decimal;
mod parse;

pub(crate) use parse::RawNode;

use crate::Tags;

/// What the tags of a publication have to be for a subscriber to be sent it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TagsFilter {
    /// All of these hold; at least one.
    All(Box<[Self]>),
    /// One of these holds; at least one.
    Any(Box<[Self]>),
    /// This does not hold.
    Not(Box<Self>),
    /// The tag `key` is like this.
    Tag {
        /// The tag's name.
        key: Box<str>,
        /// What of it.
        test: TagTest,
    },
}

/// A condition on one tag. An absent tag is neither a text nor a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TagTest {
    /// It is this text (`eq`).
    Equals(Box<str>),
    /// It is not this text, or not there (`neq`).
    Differs(Box<str>),
    /// It is one of these (`in`); one that is not there counts as the empty text.
    OneOf(Box<[Box<str>]>),
    /// It is none of these (`nin`); one that is not there counts as the empty text.
    NoneOf(Box<[Box<str>]>),
    /// It is there (`ex`).
    Exists,
    /// It is not there (`nex`).
    IsMissing,
    /// It begins with this (`sw`).
    StartsWith(Box<str>),
    /// It ends with this (`ew`).
    EndsWith(Box<str>),
    /// It contains this (`ct`).
    Contains(Box<str>),
    /// It is a decimal number above this one (`gt`). Where either is none, this does not hold; so below.
    Above(Box<str>),
    /// At least this one (`gte`).
    AtLeast(Box<str>),
    /// Below this one (`lt`).
    Below(Box<str>),
    /// At most this one (`lte`).
    AtMost(Box<str>),
}

/// How large a filter may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterLimits {
    /// Bytes that it is written in.
    pub bytes_max: usize,
    /// Nodes of its tree, leaves included.
    pub nodes_max: usize,
    /// Nodes on the way from the root to a leaf, both included.
    pub depth_max: usize,
}

/// Why bytes are no filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterError {
    /// They are no message of the protocol: the frame they came in is malformed.
    Malformed,
    /// They make no sense: error 107.
    Invalid,
    /// It is larger than it may be: error 107.
    TooLarge,
}

impl TagsFilter {
    /// Whether a publication with these tags passes. Allocates nothing.
    pub fn passes(&self, tags: &Tags) -> bool {
        match self {
            Self::All(filters) => filters.iter().all(|filter| filter.passes(tags)),
            Self::Any(filters) => filters.iter().any(|filter| filter.passes(tags)),
            Self::Not(filter) => !filter.passes(tags),
            Self::Tag { key, test } => {
                // The last counts, as in a map that was filled in order.
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
