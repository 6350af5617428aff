//! JSON Web Tokens (RFC 7519) that authenticate users and authorize subscriptions.
//!
//! The configured keys determine the valid algorithms; a token cannot choose another one. HMAC signatures are verified
//! on the shard's own thread, because that takes microseconds and no lock. A public-key signature takes a hundred times
//! as long and may need a key that must be fetched. A separate thread ([`verification_thread`]) verifies it, and the result
//! is cached ([`cache`]).

#![forbid(unsafe_code)]
// This crate parses text from outside, so nothing here may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice))]

mod cache;
mod claims;
mod counters;
mod event;
mod fault;
mod interface;
mod issue;
mod jwks;
mod jws;
mod object;
mod options;
mod public_key;
mod rules;
mod secret;
mod signature;
mod unix_time;
mod verification_thread;
mod verify;

use std::{
    io,
    sync::{Arc, OnceLock},
};

use dunlin_engine::event::{ConnectionClaims, SubscriptionClaims, TokenError};

use self::{
    claims::VerifiedClaims,
    verification_thread::Place,
    verify::{Judge, KeyRing, TokenVerdict},
};
pub use self::{
    counters::{TokenCounters, TokenCounts},
    event::{OnTokenEvent, TokenEvent},
    fault::TokenFault,
    interface::{Judged, TokenAnswer, TokenKind, TokenRequest, VerifyTokens},
    issue::{Grant, issue, issue_claims},
    jwks::{Endpoint, JwksOptions},
    options::{TokenKeys, TokenOptions},
    public_key::{KeyFault, PublicKey},
    rules::{Rule, Rules},
    secret::{Secret, SecretUrl},
    unix_time::UnixTime,
};

/// Maximum length of a token. Longer ones are rejected without parsing.
pub const TOKEN_BYTES_MAX: usize = 8_192;

/// Verifies tokens.
#[derive(Debug)]
pub struct Verifier {
    judge: Arc<Judge>,
    /// The verification thread. Not started if all keys are HMAC keys.
    place: OnceLock<Place>,
    /// Maximum number of tokens that wait for the verification thread.
    waiting_max: usize,
}

impl Verifier {
    /// A verifier with these keys. Starts the verification thread if one of them is a public key. Events are passed to
    /// `on_event`.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn new(options: &TokenOptions, on_event: OnTokenEvent) -> io::Result<Self> {
        let judge = Arc::new(Judge::new(options, on_event));
        let verifier = Self { judge, place: OnceLock::new(), waiting_max: options.waiting_max };
        verifier.provide_place(&verifier.judge.ring())?;
        Ok(verifier)
    }

    /// Replaces the keys. Verifications in progress may still use the previous ones. Existing sessions stay until they
    /// expire.
    ///
    /// # Errors
    /// The verification thread could not be started. The keys are unchanged.
    pub fn replace_keys(&self, options: &TokenOptions) -> io::Result<()> {
        let ring = KeyRing::new(options);
        self.provide_place(&ring)?;
        self.judge.replace_ring(ring);
        Ok(())
    }

    fn provide_place(&self, ring: &KeyRing) -> io::Result<()> {
        if ring.needs_place() && self.place.get().is_none() {
            let place = Place::start(Arc::clone(&self.judge), self.waiting_max)?;
            // Another thread may have been first. In that case the new verification thread ends here.
            let _ = self.place.set(place);
        }
        Ok(())
    }

    /// The counters.
    pub fn counters(&self) -> &TokenCounters {
        &self.judge.counters
    }

    /// Verifies a connection token. Blocks while keys are fetched, so shards must not call it.
    ///
    /// # Errors
    /// Why the token is invalid.
    pub fn judge_connection(&self, token: &str, now_unix_ms: u64) -> Result<ConnectionClaims, TokenFault> {
        self.wait_for(TokenKind::Connection, token, now_unix_ms).map(|claims| claims.connection())
    }

    /// Verifies a subscription token. The caller compares its user and channel. Blocks like [`Self::judge_connection`].
    ///
    /// # Errors
    /// Why the token is invalid.
    pub fn judge_subscription(&self, token: &str, now_unix_ms: u64) -> Result<SubscriptionClaims, TokenFault> {
        self.wait_for(TokenKind::Subscription, token, now_unix_ms).map(|claims| claims.subscription())
    }

    fn wait_for(&self, kind: TokenKind, token: &str, now_unix_ms: u64) -> Result<Arc<VerifiedClaims>, TokenFault> {
        let place = match (self.judge.judge(kind, token, now_unix_ms), self.place.get()) {
            (TokenVerdict::Now(outcome), _) => return outcome,
            (TokenVerdict::Elsewhere, Some(place)) => place,
            (TokenVerdict::Elsewhere, None) => return Err(TokenFault::NoKey),
        };
        let (answer, answered) = dunlin_queues::answer_channel();
        // The caller waits for the answer.
        place.ask(kind, token, Box::new(move |outcome| drop(answer.send(outcome))));
        answered.recv().unwrap_or(Err(TokenFault::Busy))
    }

    fn on_shard(&self, kind: TokenKind, token: &str, now_unix_ms: u64) -> Judged<Arc<VerifiedClaims>> {
        match self.judge.judge(kind, token, now_unix_ms) {
            TokenVerdict::Now(outcome) => Judged::Now(self.conclude(kind, outcome)),
            TokenVerdict::Elsewhere => Judged::Elsewhere,
        }
    }

    fn conclude<T>(&self, kind: TokenKind, outcome: Result<T, TokenFault>) -> Result<T, TokenError> {
        self.judge.counters.count_outcome(&outcome);
        outcome.map_err(|fault| refuse(&self.judge, kind, fault))
    }
}

/// Reports a rejected token. Returns the error for the engine.
fn refuse(judge: &Judge, kind: TokenKind, fault: TokenFault) -> TokenError {
    (judge.on_event)(TokenEvent::Refused { kind, fault });
    match fault {
        TokenFault::Time => TokenError::Expired,
        fault if fault.is_temporary() => TokenError::Unavailable,
        _ => TokenError::Invalid,
    }
}

impl VerifyTokens for Verifier {
    fn verify_connection(&self, token: &str, now_unix_ms: u64) -> Judged<ConnectionClaims> {
        self.on_shard(TokenKind::Connection, token, now_unix_ms).map(|claims| claims.connection())
    }

    fn verify_subscription(&self, token: &str, now_unix_ms: u64) -> Judged<SubscriptionClaims> {
        self.on_shard(TokenKind::Subscription, token, now_unix_ms).map(|claims| claims.subscription())
    }

    fn verify_elsewhere(&self, question: TokenRequest) {
        let TokenRequest { kind, token, answer } = question;
        let Some(place) = self.place.get() else { return answer(kind.refused(TokenError::Invalid)) };
        let judge = Arc::clone(&self.judge);
        let conclude = move |outcome: Result<Arc<VerifiedClaims>, TokenFault>| {
            judge.counters.count_outcome(&outcome);
            let outcome = outcome.map_err(|fault| refuse(&judge, kind, fault));
            answer(match kind {
                TokenKind::Connection => TokenAnswer::Connection(outcome.map(|claims| claims.connection())),
                TokenKind::Subscription => TokenAnswer::Subscription(outcome.map(|claims| claims.subscription())),
            });
        };
        place.ask(kind, &token, Box::new(conclude));
    }
}

#[cfg(test)]
mod tests;
