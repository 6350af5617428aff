//! Events about tokens and key sets, for the log.

use std::fmt;

use super::{SecretUrl, TokenFault, TokenKind};

/// An event. It contains nothing of a token's text.
#[derive(Clone, Copy)]
pub enum TokenEvent<'e> {
    /// A token was rejected.
    Refused {
        /// The purpose of the token.
        kind: TokenKind,
        /// Why it was rejected.
        fault: TokenFault,
    },
    /// A set of public keys was fetched.
    KeysFetched {
        /// The URL of the set.
        url: &'e SecretUrl,
        /// The number of usable keys.
        keys: usize,
    },
    /// A fetch of a key set failed. There is at most one attempt per second.
    KeysNotFetched {
        /// The URL of the set.
        url: &'e SecretUrl,
        /// The reason.
        why: &'e dyn fmt::Display,
    },
}

/// Handles an event on the thread where it occurred. Must not block.
pub type OnTokenEvent = fn(TokenEvent<'_>);
