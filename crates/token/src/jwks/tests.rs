//! Tests when a set is fetched, on a simulated clock.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::*;
use crate::rules::Rules;

const URL: &str = "https://id.example/keys";

fn url() -> SecretUrl {
    SecretUrl::new(URL)
}

fn options() -> JwksOptions {
    JwksOptions {
        endpoint: Endpoint::parse(URL, &Rules::default(), false).unwrap(),
        timeout_ms: 1_000,
        response_bytes_max: 1_000,
        cache_min_ms: 10_000,
        cache_max_ms: 100_000,
        is_unsafe_allowed: false,
    }
}

fn fetched(names: &[&str], max_age_ms: Option<u64>) -> Fetched {
    let key = Ed25519KeyPair::generate().unwrap();
    let x = URL_SAFE_NO_PAD.encode(key.public_key().as_ref());
    let one = |name: &&str| serde_json::json!({"kty": "OKP", "crv": "Ed25519", "kid": name, "x": x});
    let json = serde_json::json!({ "keys": names.iter().map(one).collect::<Vec<_>>() }).to_string();
    Fetched { keys: parse(json.as_bytes()).unwrap(), max_age_ms }
}

fn look_up(sets: &mut KeySets, name: &str, now_ms: u64) -> &'static str {
    word(&sets.look_up(&url(), name, Algorithm::EdDsa, now_ms))
}

fn settle(sets: &mut KeySets, name: &str, now_ms: u64) -> &'static str {
    word(&sets.settle(&url(), name, Algorithm::EdDsa, now_ms))
}

fn word(look_up: &LookUp) -> &'static str {
    match look_up {
        LookUp::Key(_) => "key",
        LookUp::Wait => "wait",
        LookUp::Fetch => "fetch",
        LookUp::Fault(TokenFault::UnknownKey) => "unknown",
        LookUp::Fault(TokenFault::KeysUnavailable) => "unavailable",
        LookUp::Fault(TokenFault::Busy) => "busy",
        LookUp::Fault(_) => "other",
    }
}

#[test]
fn waiting_lookups_share_one_fetch_followed_by_a_pause() {
    let (mut sets, options) = (KeySets::default(), options());
    assert_eq!(look_up(&mut sets, "a", 0), "fetch");
    assert_eq!(look_up(&mut sets, "a", 1), "wait");
    assert_eq!(look_up(&mut sets, "b", 1), "wait");
    sets.fetched(&url(), Some(fetched(&["a"], None)), &options, 2);
    assert_eq!((settle(&mut sets, "a", 2), settle(&mut sets, "b", 2)), ("key", "unknown"));
    assert_eq!((look_up(&mut sets, "a", 3), look_up(&mut sets, "b", 3)), ("key", "unknown"));
    assert_eq!(look_up(&mut sets, "c", 10_001), "unavailable", "it may be new");
    // A new name leads to a fetch when the pause is over; known keys do not wait for it.
    assert_eq!(look_up(&mut sets, "c", 10_002), "fetch");
    assert_eq!((look_up(&mut sets, "a", 10_003), look_up(&mut sets, "c", 10_003)), ("key", "wait"));
    sets.fetched(&url(), Some(fetched(&["a", "c"], None)), &options, 10_004);
    assert_eq!(settle(&mut sets, "c", 10_004), "key");
}

#[test]
fn cache_lifetime_follows_the_response_within_limits() {
    for (max_age_ms, fresh_ms) in
        [(Some(0), 10_000), (Some(50_000), 50_000), (Some(u64::MAX), 100_000), (None, 100_000)]
    {
        let (mut sets, options) = (KeySets::default(), options());
        assert_eq!(look_up(&mut sets, "a", 0), "fetch");
        sets.fetched(&url(), Some(fetched(&["a"], max_age_ms)), &options, 0);
        assert_eq!(look_up(&mut sets, "a", fresh_ms - 1), "key", "{max_age_ms:?}");
        assert_eq!(look_up(&mut sets, "a", fresh_ms), "fetch", "{max_age_ms:?}");
        // A key that was taken back is gone with the next fetch.
        sets.fetched(&url(), Some(fetched(&["b"], None)), &options, fresh_ms + 1);
        assert_eq!(settle(&mut sets, "a", fresh_ms + 1), "unknown", "{max_age_ms:?}");
    }
}

#[test]
fn failed_fetches_are_retried_and_stale_keys_used_meanwhile() {
    let (mut sets, options) = (KeySets::default(), options());
    assert_eq!(look_up(&mut sets, "a", 0), "fetch");
    sets.fetched(&url(), None, &options, 0);
    assert_eq!(settle(&mut sets, "a", 0), "unavailable");
    assert_eq!(look_up(&mut sets, "a", 999), "unavailable");
    assert_eq!(look_up(&mut sets, "a", 1_000), "fetch");
    sets.fetched(&url(), Some(fetched(&["a"], Some(10_000))), &options, 1_000);
    // Stale, and not to be had anew: it does until nobody may believe it any more.
    assert_eq!(look_up(&mut sets, "a", 11_000), "fetch");
    sets.fetched(&url(), None, &options, 11_000);
    assert_eq!((settle(&mut sets, "a", 11_000), look_up(&mut sets, "a", 11_500)), ("key", "key"));
    assert_eq!(look_up(&mut sets, "a", 101_000), "fetch");
    sets.fetched(&url(), None, &options, 101_000);
    assert_eq!(settle(&mut sets, "a", 101_000), "unavailable");
}

#[test]
fn urls_and_key_names_are_limited() {
    let mut sets = KeySets::default();
    for index in 0..SETS_MAX {
        assert_eq!(word(&sets.look_up(&SecretUrl::new(format!("{URL}/{index}")), "a", Algorithm::EdDsa, 0)), "fetch");
    }
    assert_eq!(word(&sets.look_up(&url(), "a", Algorithm::EdDsa, 0)), "busy");

    let (mut sets, options) = (KeySets::default(), options());
    look_up(&mut sets, "a", 0);
    sets.fetched(&url(), Some(fetched(&[], None)), &options, 0);
    for index in 0..ABSENT_MAX {
        assert_eq!(settle(&mut sets, &index.to_string(), 0), "unknown");
    }
    assert_eq!(settle(&mut sets, "one more", 0), "unavailable");
}
