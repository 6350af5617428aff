//! The interface between shards and token verification.

use dunlin_engine::event::{ConnectionClaims, SubscriptionClaims, TokenError};

/// Verifies tokens. Shards call it on their own threads, so it must not block.
pub trait VerifyTokens: Send + Sync + 'static {
    /// The claims of a connection token, if they can be determined cheaply.
    fn verify_connection(&self, token: &str, now_unix_ms: u64) -> Judged<ConnectionClaims>;

    /// The claims of a subscription token, if they can be determined cheaply.
    fn verify_subscription(&self, token: &str, now_unix_ms: u64) -> Judged<SubscriptionClaims>;

    /// Verifies a token on another thread and passes the result to `question.answer`, immediately if the queue is full.
    fn verify_elsewhere(&self, question: TokenRequest);
}

/// The result of a verification on the shard's own thread.
#[derive(Debug)]
pub enum Judged<C> {
    /// The claims, or the reason why the token is invalid.
    Now(Result<C, TokenError>),
    /// The caller must use [`VerifyTokens::verify_elsewhere`].
    Elsewhere,
}

impl<C> Judged<C> {
    /// Converts the claims.
    pub fn map<D>(self, claims: impl FnOnce(C) -> D) -> Judged<D> {
        match self {
            Self::Now(outcome) => Judged::Now(outcome.map(claims)),
            Self::Elsewhere => Judged::Elsewhere,
        }
    }
}

/// The purpose of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// For a session.
    Connection,
    /// For a subscription.
    Subscription,
}

/// A token to verify on another thread.
pub struct TokenRequest {
    /// The purpose of the token.
    pub kind: TokenKind,
    /// The JWT.
    pub token: Box<str>,
    /// Called once, on any thread. It does not block.
    pub answer: Box<dyn FnOnce(TokenAnswer) + Send>,
}

/// The result of a verification.
#[derive(Debug)]
pub enum TokenAnswer {
    /// The result for a connection token.
    Connection(Result<ConnectionClaims, TokenError>),
    /// The result for a subscription token.
    Subscription(Result<SubscriptionClaims, TokenError>),
}

impl TokenKind {
    /// The name in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Subscription => "subscription",
        }
    }

    /// The result for an invalid token of this kind.
    pub fn refused(self, error: TokenError) -> TokenAnswer {
        match self {
            Self::Connection => TokenAnswer::Connection(Err(error)),
            Self::Subscription => TokenAnswer::Subscription(Err(error)),
        }
    }
}
