//! Tokens without cryptography. A token is a string with an index into a list, in which the verifier looks it up.

use bytes::Bytes;
use dunlin_engine::event::{ConnectionClaims, ServerSubscription, SubscriptionClaims, SubscriptionGrant, TokenError};
use dunlin_protocol::Payload;

/// What is wrong with a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    #[default]
    None,
    /// Its signature is invalid.
    Forged,
    /// It has expired.
    Expired,
    /// It was issued for another user.
    Foreign,
}

/// A token.
#[derive(Clone, Debug, Default)]
pub struct Token {
    pub flaw: Flaw,
    pub user: String,
    /// The channel, or empty for a connection token.
    pub channel: String,
    /// When it expires, in Unix seconds.
    pub expires_at_s: Option<u64>,
    /// For a connection token: the channels to which the server subscribes the session.
    pub subs: Vec<String>,
    /// Whether its verification was ever reported as unavailable.
    pub was_unavailable: bool,
}

/// All issued tokens.
#[derive(Default)]
pub struct Tokens(Vec<Token>);

impl Tokens {
    /// Issues a token and returns its string.
    pub fn issue(&mut self, token: Token) -> String {
        self.0.push(token);
        format!("t{}", self.0.len() - 1)
    }

    /// Looks up a token by its string.
    pub fn find(&self, text: &str) -> Option<&Token> {
        self.0.get(text.strip_prefix('t')?.parse::<usize>().ok()?)
    }

    /// Records that the verification of a token is reported as unavailable.
    pub fn mark_unavailable(&mut self, text: &str) -> TokenError {
        let index = text.strip_prefix('t').and_then(|number| number.parse::<usize>().ok());
        if let Some(token) = index.and_then(|index| self.0.get_mut(index)) {
            token.was_unavailable = true;
        }
        TokenError::Unavailable
    }

    /// Verifies a connection token at `unix_ms`.
    ///
    /// # Errors
    /// If it does not count.
    pub fn verify_connection(&self, text: &str, unix_ms: u64) -> Result<ConnectionClaims, TokenError> {
        let token = self.verify(text, unix_ms)?;
        Ok(ConnectionClaims {
            user: claimed_user(token),
            info: info(token),
            expires_at_ms: token.expires_at_s.map(|at_s| at_s * 1_000),
            subscriptions: token.subs.iter().map(|channel| server_side(channel)).collect(),
            ..ConnectionClaims::default()
        })
    }

    /// Verifies a subscription token at `unix_ms`.
    ///
    /// # Errors
    /// If it does not count.
    pub fn verify_subscription(&self, text: &str, unix_ms: u64) -> Result<SubscriptionClaims, TokenError> {
        let token = self.verify(text, unix_ms)?;
        Ok(SubscriptionClaims {
            user: claimed_user(token),
            channel: token.channel.clone(),
            client: String::new(),
            grant: SubscriptionGrant {
                info: info(token),
                expires_at_ms: token.expires_at_s.map(|at_s| at_s * 1_000),
                ..SubscriptionGrant::default()
            },
            ..SubscriptionClaims::default()
        })
    }

    fn verify(&self, text: &str, unix_ms: u64) -> Result<&Token, TokenError> {
        let token = self.find(text).ok_or(TokenError::Invalid)?;
        match token.flaw {
            Flaw::Forged => Err(TokenError::Invalid),
            Flaw::Expired => Err(TokenError::Expired),
            _ if token.expires_at_s.is_some_and(|at_s| at_s * 1_000 < unix_ms) => Err(TokenError::Expired),
            Flaw::None | Flaw::Foreign => Ok(token),
        }
    }
}

fn server_side(channel: &str) -> ServerSubscription {
    ServerSubscription { channel: channel.into(), ..ServerSubscription::default() }
}

fn claimed_user(token: &Token) -> String {
    if token.flaw == Flaw::Foreign { "mallory".to_owned() } else { token.user.clone() }
}

fn info(token: &Token) -> Option<Payload> {
    token.expires_at_s.map(|_| Payload::from_opaque(Bytes::from_static(b"{\"a\":1}")))
}
