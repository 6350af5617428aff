//! Bodies of the fuzz targets, which plain tests also run over the committed corpus. A broken promise is a failed
//! assertion.

mod backend;
mod emulation;
mod head;

pub use backend::answer as backend_answer;
pub use emulation::body as emulation_body;
pub use head::head as http_head;

use crate::{
    config::{Config, Document, Format, Input, Secret, TokenKeys, TokenOptions},
    token::{Verifier, issue_claims},
};

/// A configuration file: the first byte chooses its format, the rest is its text.
pub fn config(data: &[u8]) {
    let Some((kind, text)) = data.split_first() else { return };
    let format = match kind % 3 {
        0 => Format::Json,
        1 => Format::Yaml,
        _ => Format::Toml,
    };
    let text = String::from_utf8_lossy(text).into_owned();
    let document = Document { name: "fuzz".to_owned(), format, text };
    match Config::from_input(&Input { document: Some(document), ..Input::default() }) {
        Ok((config, _)) => check_config(&config),
        Err(problems) => {
            assert!(!problems.errors.is_empty(), "a refusal has a reason");
            assert!(!problems.to_string().is_empty());
        }
    }
}

/// A token from anybody, and the same bytes as claims that our own key has signed.
pub fn token(data: &[u8]) {
    let secret = Secret::new("a-key-of-thirty-two-bytes-or-more").unwrap_or_else(|| unreachable!("it is not empty"));
    let keys = TokenKeys { hmac: Some(secret.clone()), ..TokenKeys::default() };
    let Ok(verifier) = Verifier::new(&TokenOptions { connection: keys, ..TokenOptions::default() }) else {
        unreachable!("an HMAC key needs no thread")
    };
    let now_s = 1_700_000_000;
    let text = String::from_utf8_lossy(data);
    assert!(verifier.judge_connection(&text, now_s).is_err(), "nobody can guess a signature");
    assert!(verifier.judge_subscription(&text, now_s).is_err(), "nobody can guess a signature");

    let signed = issue_claims(data, &secret);
    let connection = verifier.judge_connection(&signed, now_s);
    let subscription = verifier.judge_subscription(&signed, now_s);
    assert!(connection.is_err() || subscription.is_err(), "a token is for one purpose");
    if let Ok(claims) = &connection {
        assert!(claims.info.as_ref().is_none_or(|info| info.bytes().len() <= data.len()));
    }
    if let Ok(claims) = &subscription {
        assert!(!claims.channel.is_empty());
    }
}

/// What others build on without looking again.
fn check_config(config: &Config) {
    let engine = &config.engine;
    let client = &engine.client;
    assert!((1..=256).contains(&config.shards));
    assert!(client.ping_interval_ms == 0 || client.ping_interval_ms > client.pong_timeout_ms);
    assert!(client.channel_limit > 0 && client.queue_bytes_max > 0 && client.queue_frames_max > 0);
    assert!(config.websocket.limits.message_bytes_max > 0 && config.websocket.limits.frame_bytes_max > 0);
    let mut names: Vec<_> = engine.namespaces.iter().map(|namespace| &namespace.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), engine.namespaces.len());
    for namespace in engine.namespaces.iter().chain([&engine.without_namespace]) {
        let recovers = namespace.force_recovery || namespace.allow_recovery;
        assert!(!recovers || namespace.has_stream());
        assert_eq!(namespace.history_size > 0, namespace.history_ttl_ms > 0);
    }
}
