//! JSON Web Tokens (RFC 7519) that say who a client is, and what it may subscribe to.
//!
//! Which signatures count is decided by the keys that are set, never by a token. An HMAC is checked on the shard's own
//! thread: it takes microseconds, and no lock. A signature by a public key takes a hundred times as long, and perhaps a key
//! that has to be fetched, so it is checked on a thread of its own ([`place`]); what it said is remembered ([`cache`]).

// Text from outside is read here: no way of reading may end the process.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice))]

mod cache;
mod claims;
mod counters;
mod fault;
mod issue;
mod judge;
mod jwks;
mod key;
mod object;
mod place;
mod public_key;
mod rules;
mod signed;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
};

use dunlin_engine::event::{ConnectionClaims, SubscriptionClaims, TokenError};

pub(crate) use self::issue::issue_claims;
use self::{
    claims::{Purpose, Said},
    judge::{Judge, Verdict},
    place::Place,
};
pub use self::{
    counters::{TokenCounters, TokenCounts},
    fault::Fault,
    issue::{Grant, issue},
    jwks::{Endpoint, JwksOptions},
    public_key::{KeyFault, PublicKey},
    rules::{Rule, Rules},
};
use crate::{
    config::TokenOptions,
    node::{Judged, TokenAnswer, TokenKind, TokenQuestion, VerifyTokens},
};

/// Bytes of a token. Longer ones are not looked at.
pub const TOKEN_BYTES_MAX: usize = 8_192;

/// Judges tokens.
#[derive(Debug)]
pub struct Verifier {
    judge: Arc<Judge>,
    /// `None` where every key is an HMAC key.
    place: Option<Place>,
    told: Arc<Told>,
}

/// When a refusal was told.
#[derive(Debug, Default)]
struct Told {
    /// The second after the one in which the last was.
    at_s: AtomicU64,
}

impl Verifier {
    /// With these keys. Starts a thread if one of them is a public one.
    ///
    /// # Errors
    /// The thread could not be had.
    pub fn new(options: &TokenOptions) -> io::Result<Self> {
        let judge = Arc::new(Judge::new(options));
        let place = judge.needs_place().then(|| Place::start(Arc::clone(&judge), options.waiting_max)).transpose()?;
        Ok(Self { judge, place, told: Arc::default() })
    }

    /// What is counted.
    pub fn counters(&self) -> &TokenCounters {
        &self.judge.counters
    }

    /// What a connection token says, and what is wrong with it. Waits for keys, if any are to be fetched: not for a shard.
    ///
    /// # Errors
    /// What is wrong.
    pub fn judge_connection(&self, token: &str, now_unix_s: u64) -> Result<ConnectionClaims, Fault> {
        self.wait_for(Purpose::Connection, token, now_unix_s).map(|said| said.connection())
    }

    /// What a subscription token says, and what is wrong with it. Whether it is this user's, and for this channel, is for
    /// the caller to compare. Waits as [`Self::judge_connection`] does.
    ///
    /// # Errors
    /// What is wrong.
    pub fn judge_subscription(&self, token: &str, now_unix_s: u64) -> Result<SubscriptionClaims, Fault> {
        self.wait_for(Purpose::Subscription, token, now_unix_s).map(|said| said.subscription())
    }

    fn wait_for(&self, purpose: Purpose, token: &str, now_unix_s: u64) -> Result<Arc<Said>, Fault> {
        let place = match (self.judge.judge(purpose, token, now_unix_s), &self.place) {
            (Verdict::Now(outcome), _) => return outcome,
            (Verdict::Elsewhere, Some(place)) => place,
            (Verdict::Elsewhere, None) => return Err(Fault::NoKey),
        };
        let (answer, answered) = mpsc::channel();
        // Whoever asks waits for the answer.
        place.ask(purpose, token, Box::new(move |outcome| drop(answer.send(outcome))));
        answered.recv().unwrap_or(Err(Fault::Busy))
    }

    fn on_shard(&self, purpose: Purpose, token: &str, now_unix_s: u64) -> Judged<Arc<Said>> {
        match self.judge.judge(purpose, token, now_unix_s) {
            Verdict::Now(outcome) => Judged::Now(self.conclude(purpose, outcome, now_unix_s)),
            Verdict::Elsewhere => Judged::Elsewhere,
        }
    }

    fn conclude<T>(&self, purpose: Purpose, outcome: Result<T, Fault>, now_unix_s: u64) -> Result<T, TokenError> {
        self.judge.counters.count_outcome(&outcome);
        outcome.map_err(|fault| self.told.refuse(purpose, fault, now_unix_s))
    }
}

impl Told {
    /// Tells of invalid tokens, at most once a second: the cause lies outside. Expired ones are everyday life.
    fn refuse(&self, purpose: Purpose, fault: Fault, now_unix_s: u64) -> TokenError {
        if fault == Fault::Time {
            return TokenError::Expired;
        }
        let this_s = now_unix_s.saturating_add(1);
        if self.at_s.swap(this_s, Ordering::Relaxed) != this_s {
            tracing::info!(kind = purpose.name(), reason = fault.reason(), "a token was refused");
        }
        if fault.is_temporary() { TokenError::Unavailable } else { TokenError::Invalid }
    }
}

impl VerifyTokens for Verifier {
    fn verify_connection(&self, token: &str, now_unix_s: u64) -> Judged<ConnectionClaims> {
        self.on_shard(Purpose::Connection, token, now_unix_s).map(|said| said.connection())
    }

    fn verify_subscription(&self, token: &str, now_unix_s: u64) -> Judged<SubscriptionClaims> {
        self.on_shard(Purpose::Subscription, token, now_unix_s).map(|said| said.subscription())
    }

    fn verify_elsewhere(&self, question: TokenQuestion) {
        let TokenQuestion { kind, token, answer } = question;
        let purpose = Purpose::of(kind);
        let Some(place) = &self.place else { return answer(kind.refused(TokenError::Invalid)) };
        let (judge, told) = (Arc::clone(&self.judge), Arc::clone(&self.told));
        let conclude = move |outcome: Result<Arc<Said>, Fault>| {
            judge.counters.count_outcome(&outcome);
            let outcome = outcome.map_err(|fault| told.refuse(purpose, fault, place::now_unix_s()));
            answer(match kind {
                TokenKind::Connection => TokenAnswer::Connection(outcome.map(|said| said.connection())),
                TokenKind::Subscription => TokenAnswer::Subscription(outcome.map(|said| said.subscription())),
            });
        };
        place.ask(purpose, &token, Box::new(conclude));
    }
}

#[cfg(test)]
mod tests;
