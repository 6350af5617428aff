//! The body of the fuzz target `token`.

use dunlin_token::{Secret, TokenKeys, TokenOptions, Verifier, issue_claims};

/// A token from anybody, and the same bytes as claims that our own key has signed.
pub fn token(data: &[u8]) {
    let secret = Secret::new("a-key-of-thirty-two-bytes-or-more").unwrap_or_else(|| unreachable!("it is not empty"));
    let keys = TokenKeys { hmac: Some(secret.clone()), ..TokenKeys::default() };
    let Ok(verifier) = Verifier::new(&TokenOptions { connection: keys, ..TokenOptions::default() }, |_| ()) else {
        unreachable!("an HMAC key needs no thread")
    };
    let now_ms = 1_700_000_000_000;
    let text = String::from_utf8_lossy(data);
    assert!(verifier.judge_connection(&text, now_ms).is_err(), "nobody can guess a signature");
    assert!(verifier.judge_subscription(&text, now_ms).is_err(), "nobody can guess a signature");

    let signed = issue_claims(data, &secret);
    let connection = verifier.judge_connection(&signed, now_ms);
    let subscription = verifier.judge_subscription(&signed, now_ms);
    assert!(connection.is_err() || subscription.is_err(), "a token is for one purpose");
    if let Ok(claims) = &connection {
        assert!(claims.info.as_ref().is_none_or(|info| info.bytes().len() <= data.len()));
    }
    if let Ok(claims) = &subscription {
        assert!(!claims.channel.is_empty());
    }
}
