//! Counts seat tokens that had no effect.

use std::ops::AddAssign;

use crate::room::TokenRefusal;

/// Seat tokens of joins that had no effect, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokensRefused {
    /// [`TokenRefusal::Unknown`]
    pub unknown: usize,
    /// [`TokenRefusal::OtherUser`]
    pub other_user: usize,
}

impl AddAssign for TokensRefused {
    fn add_assign(&mut self, more: Self) {
        self.unknown += more.unknown;
        self.other_user += more.other_user;
    }
}

impl TokensRefused {
    pub(super) fn count(&mut self, refusal: Option<TokenRefusal>) {
        match refusal {
            Some(TokenRefusal::Unknown) => self.unknown += 1,
            Some(TokenRefusal::OtherUser) => self.other_user += 1,
            None => {}
        }
    }
}
