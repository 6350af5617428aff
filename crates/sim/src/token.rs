//! Tokens without cryptography: a text that names an entry of a list, and the verifier that looks it up.

use bytes::Bytes;
use dunlin_engine::event::{ConnectionClaims, ServerSubscription, SubscriptionClaims, SubscriptionGrant, TokenError};
use dunlin_protocol::Payload;

/// What is the matter with a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    #[default]
    None,
    /// Its signature does not hold.
    Forged,
    /// It ran out.
    Expired,
    /// It was made for another user.
    Foreign,
}

/// One token.
#[derive(Clone, Debug, Default)]
pub struct Token {
    /// Whether and how it is wrong.
    pub flaw: Flaw,
    pub user: String,
    /// For which channel; empty for a connection.
    pub channel: String,
    /// When it expires, in Unix seconds.
    pub expires_at_s: Option<u64>,
    /// Of a connection: the channels that the server subscribes it to.
    pub subs: Vec<String>,
    /// Whether somebody was told once that it could not be judged.
    pub was_unavailable: bool,
}

/// All tokens that were ever made.
#[derive(Default)]
pub struct Tokens(Vec<Token>);

impl Tokens {
    /// Makes a token; returns its text.
    pub fn issue(&mut self, token: Token) -> String {
        self.0.push(token);
        format!("t{}", self.0.len() - 1)
    }

    /// The token with this text.
    pub fn find(&self, text: &str) -> Option<&Token> {
        self.0.get(text.strip_prefix('t')?.parse::<usize>().ok()?)
    }

    /// Notes that a token cannot be judged now.
    pub fn put_off(&mut self, text: &str) -> TokenError {
        let place = text.strip_prefix('t').and_then(|number| number.parse::<usize>().ok());
        if let Some(token) = place.and_then(|place| self.0.get_mut(place)) {
            token.was_unavailable = true;
        }
        TokenError::Unavailable
    }

    /// What a verifier says of a connection token at `unix_ms`.
    ///
    /// # Errors
    /// If it does not count.
    pub fn verify_connection(&self, text: &str, unix_ms: u64) -> Result<ConnectionClaims, TokenError> {
        let token = self.verify(text, unix_ms)?;
        Ok(ConnectionClaims {
            user: claimed_user(token),
            info: info(token),
            expires_at_s: token.expires_at_s,
            subscriptions: token.subs.iter().map(|channel| server_side(channel)).collect(),
            ..ConnectionClaims::default()
        })
    }

    /// What a verifier says of a subscription token at `unix_ms`.
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
                expires_at_s: token.expires_at_s,
                ..SubscriptionGrant::default()
            },
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
