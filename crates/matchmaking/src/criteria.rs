//! What tickets must have in common.

use std::collections::BTreeMap;

use crate::MatchRefusal;

/// Maximum number of criteria of a ticket.
pub const CRITERIA_MAX: usize = 8;
/// Maximum size in bytes of a criterion's name, of its value, and of a region.
pub const CRITERION_BYTES_MAX: usize = 64;

/// Names and values. Only tickets with equal criteria are placed together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MatchCriteria(BTreeMap<Box<str>, Box<str>>);

impl MatchCriteria {
    /// Checks the number of criteria and their sizes.
    ///
    /// # Errors
    /// [`MatchRefusal::Criteria`]
    pub fn new(pairs: impl IntoIterator<Item = (Box<str>, Box<str>)>) -> Result<Self, MatchRefusal> {
        let mut criteria = BTreeMap::new();
        for (name, value) in pairs {
            let is_small = name.len() <= CRITERION_BYTES_MAX && value.len() <= CRITERION_BYTES_MAX;
            if name.is_empty() || !is_small || criteria.len() == CRITERIA_MAX {
                return Err(MatchRefusal::Criteria);
            }
            criteria.insert(name, value);
        }
        Ok(Self(criteria))
    }

    /// The bytes of the names and the values.
    pub fn bytes(&self) -> usize {
        self.pairs().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// The pairs in the order of the names.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}
