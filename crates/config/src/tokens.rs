//! Converts the settings of tokens to options, and checks them.

use std::sync::Arc;

use dunlin_token::{Endpoint, JwksOptions, KeyFault, PublicKey, Rule, Rules, Secret, TokenKeys, TokenOptions};

use super::{Config, resolve::Reader, value::shortened};

/// Minimum length of an HMAC key. Shorter ones can be found from one token by brute force.
pub(super) const HMAC_KEY_BYTES_MIN: usize = 32;

/// Keys of both kinds of token.
pub(super) fn options(r: &mut Reader<'_>) -> TokenOptions {
    let is_separate = r.bool("client.subscription_token.enabled");
    let subscription = keys(r, "client.subscription_token");
    TokenOptions {
        connection: keys(r, "client.token"),
        subscription: is_separate.then_some(subscription),
        waiting_max: r.count("client.token_queue_limit"),
        cache_bytes_max: r.count("client.token_cache_size"),
    }
}

fn keys(r: &mut Reader<'_>, table: &str) -> TokenKeys {
    let at = |key: &str| format!("{table}.{key}");
    let valid_until_s = r.int(&at("hmac_previous_secret_key_valid_until"));
    let rules = rules(r, table);
    TokenKeys {
        hmac: hmac(r, table, "hmac_secret_key"),
        hmac_previous: hmac(r, table, "hmac_previous_secret_key"),
        hmac_previous_valid_until_s: u64::try_from(valid_until_s).ok().filter(|until| *until > 0),
        rsa: public_key(r, &at("rsa_public_key"), PublicKey::rsa_from_pem),
        ecdsa: public_key(r, &at("ecdsa_public_key"), PublicKey::ec_from_pem),
        jwks: jwks(r, table, &rules).map(Arc::new),
        rules,
    }
}

fn hmac(r: &mut Reader<'_>, table: &str, key: &str) -> Option<Secret> {
    let path = format!("{table}.{key}");
    let is_short_allowed = r.bool(&format!("{table}.allow_short_hmac_keys"));
    let secret = r.secret(&path)?;
    if secret.reveal().len() >= HMAC_KEY_BYTES_MIN {
        return Some(secret);
    }
    let danger = format!(
        "is shorter than {HMAC_KEY_BYTES_MIN} bytes: an attacker with one token can find such a key by brute force"
    );
    if is_short_allowed {
        let text =
            format!("{danger}. Set a new key, and keep the old one as `hmac_previous_secret_key` for the transition");
        r.warning(&path, text);
    } else {
        let text = format!(
            "{danger}. Use a key from `dunlin gen-config`. If existing tokens are signed with this key, set \
             `{table}.allow_short_hmac_keys` to true until the key is changed"
        );
        r.error(&path, text);
    }
    Some(secret)
}

fn public_key(r: &mut Reader<'_>, path: &str, read: impl Fn(&str) -> Result<PublicKey, KeyFault>) -> Option<PublicKey> {
    let pem = r.text(path);
    if pem.is_empty() {
        return None;
    }
    read(&pem).map_err(|fault| r.error(path, fault.reason())).ok()
}

fn rules(r: &mut Reader<'_>, table: &str) -> Rules {
    let user_claim = r.text(&format!("{table}.user_id_claim"));
    if !user_claim.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        let text = format!("{:?} is not a valid claim name: use letters, digits and _", shortened(&user_claim));
        r.error(&format!("{table}.user_id_claim"), text);
    }
    Rules {
        audience: rule(r, &format!("{table}.audience")),
        issuer: rule(r, &format!("{table}.issuer")),
        user_claim: Some(user_claim).filter(|claim| !claim.is_empty()),
    }
}

fn rule(r: &mut Reader<'_>, path: &str) -> Option<Rule> {
    let regex_path = format!("{path}_regex");
    let (exactly, pattern) = (r.text(path), r.text(&regex_path));
    if pattern.is_empty() {
        return Some(exactly).filter(|text| !text.is_empty()).map(Rule::Exactly);
    }
    if !exactly.is_empty() {
        r.error(&regex_path, format!("is set together with `{path}`: remove one of them"));
    }
    match super::publications::compiled(&pattern) {
        Ok(regex) => Some(Rule::Matches(regex)),
        Err(error) => {
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
            r.error(&regex_path, format!("{:?} is not a valid regular expression: {why}", shortened(&pattern)));
            None
        }
    }
}

fn jwks(r: &mut Reader<'_>, table: &str, rules: &Rules) -> Option<JwksOptions> {
    let at = |key: &str| format!("{table}.{key}");
    let path = at("jwks_public_endpoint");
    let text = r.text(&path);
    let is_unsafe_allowed = r.bool(&at("insecure_skip_jwks_endpoint_safety_check"));
    let (timeout_ms, response_bytes_max) = (r.ms_above_zero(&at("jwks_timeout")), r.count(&at("jwks_size_limit")));
    let (cache_min_ms, cache_max_ms) = (r.ms_above_zero(&at("jwks_cache_min")), r.ms_above_zero(&at("jwks_cache_max")));
    if cache_max_ms < cache_min_ms {
        r.error(&at("jwks_cache_max"), "is below `jwks_cache_min`: raise it, or lower `jwks_cache_min`");
    }
    if text.is_empty() {
        return None;
    }
    if is_unsafe_allowed {
        let text = "is enabled: an attacker on the network, or the author of a token, can supply the keys. Use it \
            only for development";
        r.warning(&at("insecure_skip_jwks_endpoint_safety_check"), text);
    }
    let endpoint = Endpoint::parse(&text, rules, is_unsafe_allowed).map_err(|why| r.error(&path, why)).ok()?;
    Some(JwksOptions { endpoint, timeout_ms, response_bytes_max, cache_min_ms, cache_max_ms, is_unsafe_allowed })
}

/// Checks relations between keys.
pub(super) fn check(r: &mut Reader<'_>, config: &Config) {
    let subscription = config.token.subscription.as_ref();
    for (table, keys) in [("client.token", Some(&config.token.connection)), ("client.subscription_token", subscription)]
    {
        let Some(keys) = keys else { continue };
        if keys.hmac.is_none() && keys.hmac_previous.is_some() {
            r.error(&format!("{table}.hmac_previous_secret_key"), "needs `hmac_secret_key`: set both, or neither");
        }
        if keys.jwks.is_some() {
            let others = [
                ("hmac_secret_key", keys.hmac.is_some()),
                ("rsa_public_key", keys.rsa.is_some()),
                ("ecdsa_public_key", keys.ecdsa.is_some()),
            ];
            for (key, _) in others.into_iter().filter(|(_, is_set)| *is_set) {
                r.warning(
                    &format!("{table}.{key}"),
                    "has no effect together with `jwks_public_endpoint`: remove one of them",
                );
            }
        }
    }
    if subscription.is_some_and(|keys| !keys.has_any()) {
        let text = "is true, but no key is set, so no subscription token would be valid: set \
                    `client.subscription_token.hmac_secret_key` or another key, or set this to false";
        r.error("client.subscription_token.enabled", text);
    }
}
