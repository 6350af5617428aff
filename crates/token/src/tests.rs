//! Test vectors: claims, headers and signatures of all kinds, and the expected results.

mod families;
mod sets;
mod storm;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use proptest::prelude::*;
use sha2::{Sha256, Sha384, Sha512};

use super::*;

const SECRET: &str = "a-key-of-thirty-two-bytes-or-more";
const OLD_SECRET: &str = "the-key-before-it-of-thirty-two-bytes";
const NOW_S: u64 = 1_700_000_000;
const NOW_MS: u64 = NOW_S * 1_000;
const HS256: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

fn keys(secret: &str) -> TokenKeys {
    TokenKeys { hmac: Secret::new(secret), ..TokenKeys::default() }
}

fn verifier() -> Verifier {
    with_keys(keys(SECRET))
}

fn with_keys(connection: TokenKeys) -> Verifier {
    with_options(&TokenOptions { connection, ..TokenOptions::default() })
}

fn with_options(options: &TokenOptions) -> Verifier {
    Verifier::new(options, |_| ()).unwrap()
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn token_with(header: &str, claims: &str, secret: &str) -> String {
    let message = format!("{}.{}", encode(header), encode(claims));
    let signature = if header.contains("HS384") {
        let mac = Hmac::<Sha384>::new_from_slice(secret.as_bytes()).unwrap();
        encode(mac.chain_update(message.as_bytes()).finalize().into_bytes())
    } else if header.contains("HS512") {
        let mac = Hmac::<Sha512>::new_from_slice(secret.as_bytes()).unwrap();
        encode(mac.chain_update(message.as_bytes()).finalize().into_bytes())
    } else {
        let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        encode(mac.chain_update(message.as_bytes()).finalize().into_bytes())
    };
    format!("{message}.{signature}")
}

fn token(claims: &str) -> String {
    token_with(HS256, claims, SECRET)
}

fn connection(claims: &str) -> Result<ConnectionClaims, TokenFault> {
    verifier().judge_connection(&token(claims), NOW_MS)
}

fn subscription(claims: &str) -> Result<SubscriptionClaims, TokenFault> {
    verifier().judge_subscription(&token(claims), NOW_MS)
}

/// RFC 7515, appendix A.1: somebody else's token, key and signature.
#[test]
fn the_example_of_rfc_7515_verifies() {
    let key = URL_SAFE_NO_PAD
        .decode("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")
        .unwrap();
    let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
                 eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.\
                 dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    let key = signature::HmacKey::new(&key);
    let signed = jws::Signed::parse(token).unwrap();
    assert!(key.has_signed(&signed));
    assert!(!signature::HmacKey::new(b"another").has_signed(&signed));
}

#[test]
fn claims_are_converted_for_the_engine() {
    let claims = connection(
        r#"{"sub":"42","exp":1700000060,"iat":1,"jti":"x","info":{"name": "Ann"},"meta":{"a":1},"channels":[],"subs":{}}"#,
    )
    .unwrap();
    assert_eq!((claims.user.as_str(), claims.expires_at_ms), ("42", Some(NOW_MS + 60_000)));
    let info = claims.info.unwrap();
    assert!(info.is_known_json());
    assert_eq!(&info.bytes()[..], br#"{"name": "Ann"}"#);

    let claims = subscription(
        r#"{"sub":"42","channel":"$chat:1","client":"c","info":1,"b64info":"AAEC","data":null,"b64data":"/w=="}"#,
    )
    .unwrap();
    assert_eq!((claims.user.as_str(), claims.channel.as_str(), claims.client.as_str()), ("42", "$chat:1", "c"));
    assert_eq!(claims.grant.expires_at_ms, None);
    let (info, data) = (claims.grant.info.unwrap(), claims.grant.data.unwrap());
    assert!(!info.is_known_json() && !data.is_known_json());
    assert_eq!((&info.bytes()[..], &data.bytes()[..]), (&[0, 1, 2][..], &[255][..]));

    assert_eq!(connection("{}").unwrap().user, "");
}

#[test]
fn times_count_to_the_millisecond() {
    const LAST_MS: u64 = 253_402_300_799_000;
    let outcome = |claims: &str| connection(claims).map(|claims| claims.expires_at_ms);
    for (claims, expected) in [
        (r#"{"exp":1700000001}"#, Ok(Some(NOW_MS + 1_000))),
        (r#"{"exp":1700000001.9}"#, Ok(Some(NOW_MS + 1_900))),
        (r#"{"exp":1700000000}"#, Err(TokenFault::Time)),
        (r#"{"exp":1700000000.5}"#, Ok(Some(NOW_MS + 500))),
        (r#"{"exp":0}"#, Err(TokenFault::Time)),
        (r#"{"exp":-1}"#, Err(TokenFault::Time)),
        (r#"{"exp":null}"#, Ok(None)),
        (r#"{"exp":1e300}"#, Ok(Some(LAST_MS))),
        (r#"{"exp":18446744073709551615}"#, Ok(Some(LAST_MS))),
        (r#"{"exp":99999999999999999999999}"#, Ok(Some(LAST_MS))),
        (r#"{"exp":"1700000001"}"#, Err(TokenFault::Claim)),
        (r#"{"exp":true}"#, Err(TokenFault::Claim)),
        (r#"{"nbf":1700000000}"#, Ok(None)),
        (r#"{"nbf":1700000000.5}"#, Err(TokenFault::Time)),
        (r#"{"nbf":1700000001}"#, Err(TokenFault::Time)),
        (r#"{"iat":1700000000.5}"#, Ok(None)),
        (r#"{"exp":1700000001,"expire_at":0}"#, Ok(None)),
        (r#"{"exp":1700000001,"expire_at":1700009999}"#, Ok(Some(1_700_009_999_000))),
        (r#"{"exp":1700000001,"expire_at":1700009999.25}"#, Ok(Some(1_700_009_999_250))),
        (r#"{"exp":1700000000,"expire_at":0}"#, Err(TokenFault::Time)),
        (r#"{"expire_at":1700000001}"#, Ok(Some(NOW_MS + 1_000))),
        (r#"{"expire_at":0.0001}"#, Ok(Some(1))),
        (r#"{"expire_at":-5}"#, Ok(None)),
    ] {
        assert_eq!(outcome(claims), expected, "{claims}");
    }
}

/// The last millisecond on one side of a boundary, and the first one on the other. The cache has its own such test.
#[test]
fn no_token_is_refused_early_or_accepted_late() {
    let verifier = verifier();
    for (claims, from_ms, until_ms) in [
        (r#"{"exp":1700000000}"#, 0, NOW_MS),
        (r#"{"exp":1700000000.5}"#, 0, NOW_MS + 500),
        (r#"{"exp":1700000000.999}"#, 0, NOW_MS + 999),
        (r#"{"exp":1700000009,"nbf":1700000000}"#, NOW_MS, NOW_MS + 9_000),
        (r#"{"exp":1700000009,"nbf":1700000000.001}"#, NOW_MS + 1, NOW_MS + 9_000),
        (r#"{"exp":1700000009,"nbf":1700000000.75}"#, NOW_MS + 750, NOW_MS + 9_000),
    ] {
        let is_valid = |at_ms: u64| match verifier.judge_connection(&token(claims), at_ms) {
            Ok(_) => true,
            Err(TokenFault::Time) => false,
            Err(fault) => panic!("{fault:?}"),
        };
        assert!(is_valid(from_ms) && is_valid(until_ms - 1), "{claims}");
        assert!(!is_valid(until_ms) && (from_ms == 0 || !is_valid(from_ms - 1)), "{claims}");
    }
}

/// Members of claims are read by name, so the names that were asked for are all members that there are.
#[test]
fn null_is_absent_in_every_claim() {
    const USER_CLAIM: &str = "uid";
    let rules = Rules {
        audience: Some(Rule::Matches(regex::Regex::new("").unwrap())),
        issuer: Some(Rule::Matches(regex::Regex::new("").unwrap())),
        user_claim: Some(USER_CLAIM.to_owned()),
    };
    let with_claim = with_keys(TokenKeys { rules, ..keys(SECRET) });
    let options = serde_json::json!({
        "info": {}, "b64info": "AAEC", "data": {}, "b64data": "AAEC",
        "override": {
            "presence": {"value": true}, "join_leave": {"value": true}, "force_push_join_leave": {"value": true},
            "force_positioning": {"value": true}, "force_recovery": {"value": true},
        },
    });
    let mut sample = serde_json::json!({
        "sub": "42", USER_CLAIM: "42", "exp": 1_700_000_060, "nbf": 1_600_000_000, "expire_at": 1_700_000_090, "iat": 1_600_000_000, "jti": "x",
        "iss": "them", "aud": "us", "meta": {}, "client": "c", "channels": ["a"], "subs": {"a": options},
    });
    sample.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    let header = serde_json::json!({"alg": "HS256", "kid": "k", "crit": ["x"]});
    let outcome = |header: &serde_json::Value, claims: &serde_json::Value| {
        let mut of_channel = claims.clone();
        of_channel["channel"] = "chat".into();
        [&verifier(), &with_claim].map(|verifier| {
            let sign = |claims: &serde_json::Value| token_with(&header.to_string(), &claims.to_string(), SECRET);
            let connection = verifier.judge_connection(&sign(claims), NOW_MS);
            let subscription = verifier.judge_subscription(&sign(&of_channel), NOW_MS);
            let mixed = verifier.judge_connection(&sign(&of_channel), NOW_MS);
            format!("{connection:?} {subscription:?} {mixed:?}")
        })
    };
    let plain = serde_json::from_str(HS256).unwrap();
    object::names_read::take();
    assert!(outcome(&plain, &sample).iter().all(|outcome| outcome.matches("Ok(").count() == 2));
    outcome(&header, &sample);
    let mut known: std::collections::BTreeSet<String> = [&sample, &header]
        .into_iter()
        .flat_map(dunlin_proof::members::members)
        .filter_map(|member| Some(member.path.rsplit_once('/')?.1.to_owned()))
        .filter(|name| !["a", "crit"].contains(&name.as_str()))
        .collect();
    known.insert("channel".to_owned());
    let read = object::names_read::take();
    assert!(read.is_subset(&known), "a member that the sample lacks: {read:?}");

    for member in dunlin_proof::members::members(&sample) {
        if member.path == "/subs/a" {
            // A subscription without options.
            assert!(outcome(&plain, &member.null).iter().all(|outcome| outcome.matches("Ok(").count() == 2));
            continue;
        }
        assert_eq!(outcome(&plain, &member.null), outcome(&plain, &member.absent), "{}", member.path);
    }
    for (null, absent) in [(r#""channel":null"#, ""), (r#""channel":null,"sub":"1""#, r#""sub":"1""#)] {
        let [null, absent] = [null, absent].map(|claims| format!("{{{claims}}}"));
        assert_eq!(format!("{:?}", connection(&null)), format!("{:?}", connection(&absent)));
        assert_eq!(subscription(&null).err(), Some(TokenFault::Purpose));
    }
    let nothing = verifier().judge_connection(&token_with(r#"{"alg":"HS256","kid":null}"#, "{}", SECRET), NOW_MS);
    assert!(nothing.is_ok());
}

#[test]
fn a_token_is_for_one_purpose() {
    assert_eq!(connection(r#"{"sub":"42","channel":"chat"}"#).err(), Some(TokenFault::Purpose));
    assert_eq!(subscription(r#"{"sub":"42"}"#).err(), Some(TokenFault::Purpose));
    assert_eq!(subscription(r#"{"sub":"42","channel":""}"#).err(), Some(TokenFault::Purpose));
    // Not even the news that it has expired.
    assert_eq!(connection(r#"{"channel":"chat","exp":1}"#).err(), Some(TokenFault::Purpose));
}

#[test]
fn server_side_subscriptions_are_read() {
    let claims = connection(
        r#"{"sub":"42","meta":{"plan":"pro"},"channels":["ignored"],"subs":{
            "news":{},
            "chat:1":{"info":{"a":1},"b64data":"AAEC","override":{"presence":{"value":true},"join_leave":{"value":false},
                "force_push_join_leave":{},"force_positioning":null}},
            "null":null}}"#,
    )
    .unwrap();
    assert_eq!(&claims.meta.unwrap().bytes()[..], br#"{"plan":"pro"}"#);
    let [news, chat, null] = &claims.subscriptions[..] else { panic!("{:?}", claims.subscriptions) };
    assert_eq!((&*news.channel, &*chat.channel, &*null.channel), ("news", "chat:1", "null"));
    assert_eq!(&chat.grant.info.as_ref().unwrap().bytes()[..], br#"{"a":1}"#);
    assert_eq!(&chat.grant.data.as_ref().unwrap().bytes()[..], &[0, 1, 2]);
    let overrides = chat.grant.overrides;
    assert_eq!((overrides.presence, overrides.join_leave), (Some(true), Some(false)));
    assert_eq!((overrides.force_push_join_leave, overrides.force_positioning), (Some(false), None));

    let claims = connection(r#"{"channels":["a","b","a"]}"#).unwrap();
    let channels: Vec<_> = claims.subscriptions.iter().map(|subscription| &*subscription.channel).collect();
    assert_eq!(channels, ["a", "b"]);

    let claims = subscription(r#"{"channel":"chat","override":{"force_recovery":{"value":true}}}"#).unwrap();
    assert_eq!(claims.grant.overrides.force_recovery, Some(true));
    for wrong in [
        r#"{"subs":[]}"#,
        r#"{"subs":{"a":1}}"#,
        r#"{"subs":{"a":{},"a":{}}}"#,
        r#"{"subs":{"a":{"override":true}}}"#,
        r#"{"subs":{"a":{"override":{"presence":true}}}}"#,
        r#"{"subs":{"a":{"override":{"presence":{"value":1}}}}}"#,
        r#"{"subs":{"a":{"b64info":"not base64!"}}}"#,
        r#"{"channels":{}}"#,
        r#"{"channels":[1]}"#,
    ] {
        assert_eq!(connection(wrong).err(), Some(TokenFault::Claim), "{wrong}");
    }
}

#[test]
fn the_user_claim_is_configurable() {
    let rules = Rules { user_claim: Some("uid".to_owned()), ..Rules::default() };
    let verifier = with_keys(TokenKeys { rules, ..keys(SECRET) });
    let user = |claims: &str| verifier.judge_connection(&token(claims), NOW_MS).map(|claims| claims.user);
    for (claims, expected) in [
        (r#"{"sub":"1","uid":"2"}"#, Ok("2")),
        (r#"{"sub":"1","uid":17}"#, Ok("17")),
        (r#"{"sub":"1","uid":-17}"#, Ok("-17")),
        (r#"{"sub":"1"}"#, Ok("")),
        (r#"{"uid":null}"#, Ok("")),
        (r#"{"uid":1.5}"#, Err(TokenFault::Claim)),
        (r#"{"uid":true}"#, Err(TokenFault::Claim)),
        (r#"{"uid":{}}"#, Err(TokenFault::Claim)),
        (r#"{"uid":"1","uid":"2"}"#, Err(TokenFault::Claim)),
    ] {
        assert_eq!(user(claims), expected.map(ToOwned::to_owned), "{claims}");
    }
}

#[test]
fn audience_and_issuer_are_checked() {
    let matching = |pattern: &str| Some(Rule::Matches(regex::Regex::new(pattern).unwrap()));
    let exactly = |text: &str| Some(Rule::Exactly(text.to_owned()));
    let judge = |audience: Option<Rule>, issuer: Option<Rule>, claims: &str| {
        let rules = Rules { audience, issuer, user_claim: None };
        with_keys(TokenKeys { rules, ..keys(SECRET) }).judge_connection(&token(claims), NOW_MS).err()
    };
    for (claims, expected) in [
        (r#"{"aud":"us"}"#, None),
        (r#"{"aud":["them","us"]}"#, None),
        (r#"{"aud":"them"}"#, Some(TokenFault::Audience)),
        (r#"{"aud":[]}"#, Some(TokenFault::Audience)),
        (r#"{"aud":null}"#, Some(TokenFault::Audience)),
        ("{}", Some(TokenFault::Audience)),
        (r#"{"aud":7}"#, Some(TokenFault::Claim)),
    ] {
        assert_eq!(judge(exactly("us"), None, claims), expected, "{claims}");
        assert_eq!(judge(matching("^u[rs]$"), None, claims), expected, "{claims}");
        assert_eq!(judge(None, None, claims), None, "{claims}");
    }
    for (claims, expected) in [
        (r#"{"iss":"us"}"#, None),
        (r#"{"iss":"uss"}"#, Some(TokenFault::Issuer)),
        ("{}", Some(TokenFault::Issuer)),
        (r#"{"iss":["us"]}"#, Some(TokenFault::Claim)),
    ] {
        assert_eq!(judge(None, exactly("us"), claims), expected, "{claims}");
        assert_eq!(judge(None, matching("^us$"), claims), expected, "{claims}");
    }
}

#[test]
fn invalid_and_duplicate_claims_are_refused() {
    for claims in [
        r#"{"sub":42}"#,
        r#"{"sub":"1","sub":"2"}"#,
        r#"{"exp":1700000060,"exp":1}"#,
        r#"{"nobody's":1,"nobody's":1}"#,
        r#"{"sub":"1","\u0073ub":"2"}"#,
        r#"{"channels":"news"}"#,
        r#"{"b64info":"not base64!"}"#,
        r#"["sub"]"#,
        r#""sub""#,
        "7",
    ] {
        assert_eq!(connection(claims).err(), Some(TokenFault::Claim), "{claims}");
    }
    for claims in ["", "{", "{}x", r#"{"sub":"\ud800"}"#, r#"{"info":{]}"#, "\u{feff}{}"] {
        assert_eq!(connection(claims).err(), Some(TokenFault::Malformed), "{claims}");
    }
}

#[test]
fn the_token_cannot_choose_its_algorithm() {
    let claims = r#"{"sub":"42"}"#;
    for alg in ["HS256", "HS384", "HS512"] {
        let token = token_with(&format!(r#"{{"typ":"JWT","alg":"{alg}"}}"#), claims, SECRET);
        assert!(verifier().judge_connection(&token, NOW_MS).is_ok(), "{alg}");
    }
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"None"}"#,
        r#"{"alg":""}"#,
        r#"{"alg":"hs256"}"#,
        r#"{"alg":"RS256"}"#,
        r#"{"alg":"ES256"}"#,
        r#"{"alg":"EdDSA"}"#,
        r#"{"alg":"HS1"}"#,
        r#"{"alg":"HS256","crit":["b64"],"b64":false}"#,
        r#"{"alg":"HS256","crit":null}"#,
    ] {
        let token = token_with(header, claims, SECRET);
        assert_eq!(verifier().judge_connection(&token, NOW_MS).err(), Some(TokenFault::Algorithm), "{header}");
    }
    for header in [
        "{}",
        "",
        "null",
        r#"{"alg":null}"#,
        r#"{"alg":"HS256","alg":"none"}"#,
        r#"{"alg":["HS256"]}"#,
        r#"{"alg":"HS256","x":1,"x":2}"#,
        r#"{"alg":"HS256","kid":7}"#,
    ] {
        let token = token_with(header, claims, SECRET);
        assert_eq!(verifier().judge_connection(&token, NOW_MS).err(), Some(TokenFault::Malformed), "{header}");
    }
    // An HS256 signature under a header that names HS512.
    let message = format!("{}.{}", encode(r#"{"alg":"HS512"}"#), encode(claims));
    let mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    let signature = encode(mac.chain_update(message.as_bytes()).finalize().into_bytes());
    let token = format!("{message}.{signature}");
    assert_eq!(verifier().judge_connection(&token, NOW_MS).err(), Some(TokenFault::Signature));
}

#[test]
fn truncated_and_foreign_signatures_are_refused() {
    let good = token(r#"{"sub":"42"}"#);
    let (message, signature) = good.rsplit_once('.').unwrap();
    let judge = |token: &str| verifier().judge_connection(token, NOW_MS).err();
    assert_eq!(judge(&good), None);
    assert_eq!(
        judge(&token_with(HS256, r#"{"sub":"42"}"#, "another key of thirty-two bytes..")),
        Some(TokenFault::Signature)
    );
    assert_eq!(judge(&format!("{message}.")), Some(TokenFault::Signature));
    assert_eq!(judge(&format!("{message}.{}", encode([0; 16]))), Some(TokenFault::Signature));
    assert_eq!(judge(&format!("{message}.{}", encode([0; 65]))), Some(TokenFault::Signature));
    for broken in [
        message.to_owned(),
        format!("{good}="),
        format!("{good}."),
        format!(".{good}"),
        format!("{message}.{signature}.x"),
        format!(" {good}"),
        format!("{good}\n"),
        String::new(),
        "..".to_owned(),
        ".".to_owned(),
    ] {
        assert_eq!(judge(&broken), Some(TokenFault::Malformed), "{broken:?}");
    }
    // Standard base64 in place of base64url.
    let claims = r#"{"sub":">>>???"}"#;
    let standard = token(claims).replace('-', "+").replace('_', "/");
    assert_ne!(standard, token(claims));
    assert!(judge(&standard).is_some());
    // Every cut is noticed.
    for end in 0..good.len() {
        assert!(judge(&good[..end]).is_some(), "cut at {end}");
    }
}

#[test]
fn token_length_is_limited() {
    let padded = |len: usize| {
        let empty = token(r#"{"x":""}"#).len();
        let claims = format!(r#"{{"x":"{}"}}"#, "a".repeat((len - empty) * 3 / 4));
        token(&claims)
    };
    let at_limit = padded(TOKEN_BYTES_MAX);
    assert!(at_limit.len() <= TOKEN_BYTES_MAX && at_limit.len() > TOKEN_BYTES_MAX - 4);
    assert!(verifier().judge_connection(&at_limit, NOW_MS).is_ok());
    let exactly = format!("{}{}", at_limit, "A".repeat(TOKEN_BYTES_MAX - at_limit.len()));
    assert_ne!(verifier().judge_connection(&exactly, NOW_MS).err(), Some(TokenFault::TooLong));
    assert_eq!(verifier().judge_connection(&format!("{exactly}A"), NOW_MS).err(), Some(TokenFault::TooLong));
}

#[test]
fn keys_can_be_changed() {
    let with_previous = |valid_until_s| {
        with_keys(TokenKeys {
            hmac: Secret::new(SECRET),
            hmac_previous: Secret::new(OLD_SECRET),
            hmac_previous_valid_until_s: valid_until_s,
            ..TokenKeys::default()
        })
    };
    let (new, old) = (token("{}"), token_with(HS256, "{}", OLD_SECRET));
    for (valid_until_s, old_counts) in [(None, true), (Some(NOW_S), true), (Some(NOW_S - 1), false)] {
        let verifier = with_previous(valid_until_s);
        assert!(verifier.judge_connection(&new, NOW_MS).is_ok());
        assert_eq!(verifier.judge_connection(&old, NOW_MS).is_ok(), old_counts, "{valid_until_s:?}");
    }
}

#[test]
fn subscription_tokens_may_have_their_own_key() {
    let claims = r#"{"sub":"42","channel":"chat"}"#;
    let (with_shared, with_own) = (token(claims), token_with(HS256, claims, OLD_SECRET));
    assert!(verifier().judge_subscription(&with_shared, NOW_MS).is_ok());
    let (connection, subscription) = (keys(SECRET), Some(keys(OLD_SECRET)));
    let separate = with_options(&TokenOptions { connection, subscription, ..TokenOptions::default() });
    assert_eq!(separate.judge_subscription(&with_shared, NOW_MS).err(), Some(TokenFault::Signature));
    assert!(separate.judge_subscription(&with_own, NOW_MS).is_ok());
    assert!(separate.judge_connection(&token("{}"), NOW_MS).is_ok());
    assert_eq!(
        separate.judge_connection(&token_with(HS256, "{}", OLD_SECRET), NOW_MS).err(),
        Some(TokenFault::Signature)
    );
}

#[test]
fn without_a_key_every_token_is_refused() {
    let keyless = with_options(&TokenOptions::default());
    assert_eq!(keyless.judge_connection(&token("{}"), NOW_MS).err(), Some(TokenFault::NoKey));
    // Not even what an empty key has signed.
    let message = format!("{}.{}", encode(HS256), encode("{}"));
    let mac = Hmac::<Sha256>::new_from_slice(b"").unwrap();
    let signature = encode(mac.chain_update(message.as_bytes()).finalize().into_bytes());
    assert_eq!(keyless.judge_connection(&format!("{message}.{signature}"), NOW_MS).err(), Some(TokenFault::NoKey));
}

#[test]
fn the_engine_distinguishes_expired_and_invalid() {
    let verifier = verifier();
    let outcome = |claims: &str| match verifier.verify_connection(&token(claims), NOW_MS) {
        Judged::Now(outcome) => outcome.err(),
        Judged::Elsewhere => panic!("an HMAC is checked at once"),
    };
    assert_eq!(outcome(r#"{"exp":1}"#), Some(TokenError::Expired));
    assert_eq!(outcome(r#"{"nbf":1800000000}"#), Some(TokenError::Expired));
    assert_eq!(outcome(r#"{"channel":"chat"}"#), Some(TokenError::Invalid));
    assert!(matches!(verifier.verify_subscription("x", NOW_MS), Judged::Now(Err(TokenError::Invalid))));
    let counts = verifier.counters().now();
    assert_eq!((counts.accepted, counts.expired, counts.refused), (0, 2, 2));
}

#[test]
fn issued_tokens_verify() {
    let secret = Secret::new(SECRET).unwrap();
    let rules = Rules::default();
    let grant = Grant { user: "4\"2", expires_at_s: Some(NOW_S + 9), issued_at_s: NOW_S, channel: None, rules: &rules };
    let claims = verifier().judge_connection(&issue(&grant, &secret).unwrap(), NOW_MS).unwrap();
    assert_eq!((claims.user.as_str(), claims.expires_at_ms), ("4\"2", Some(NOW_MS + 9_000)));
    let grant = Grant { channel: Some("$chat"), expires_at_s: None, ..grant };
    let claims = verifier().judge_subscription(&issue(&grant, &secret).unwrap(), NOW_MS).unwrap();
    assert_eq!((claims.channel.as_str(), claims.grant.expires_at_ms), ("$chat", None));

    let exactly = |text: &str| Some(Rule::Exactly(text.to_owned()));
    let rules = Rules { audience: exactly("us"), issuer: exactly("them"), user_claim: Some("uid".to_owned()) };
    let grant = Grant { channel: None, rules: &rules, ..grant };
    let token = issue(&grant, &secret).unwrap();
    let strict = with_keys(TokenKeys { rules: rules.clone(), ..keys(SECRET) });
    assert_eq!(strict.judge_connection(&token, NOW_MS).unwrap().user, "4\"2");
    let guess = Rules { issuer: Some(Rule::Matches(regex::Regex::new("x").unwrap())), ..Rules::default() };
    assert!(issue(&Grant { rules: &guess, ..grant }, &secret).is_err());
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}", now_ms: u64) {
        prop_assert!(verifier().judge_connection(&text, now_ms).is_err());
        prop_assert!(verifier().judge_subscription(&text, now_ms).is_err());
    }

    #[test]
    fn no_signed_bytes_panic(claims in proptest::collection::vec(any::<u8>(), 0..200), now_ms: u64) {
        let message = format!("{}.{}", encode(HS256), encode(&claims));
        let mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
        let signature = encode(mac.chain_update(message.as_bytes()).finalize().into_bytes());
        let token = format!("{message}.{signature}");
        let _ = verifier().judge_connection(&token, now_ms);
        let _ = verifier().judge_subscription(&token, now_ms);
    }

    #[test]
    fn one_changed_byte_is_noticed(at in 0_usize..120, byte: u8) {
        let good = token(r#"{"sub":"42","exp":1700000060,"info":{"name":"Ann"}}"#);
        let at = at % good.len();
        let mut bytes = good.clone().into_bytes();
        prop_assume!(bytes[at] != byte && byte.is_ascii());
        bytes[at] = byte;
        let changed = String::from_utf8(bytes).unwrap();
        prop_assert!(verifier().judge_connection(&changed, NOW_MS).is_err());
    }
}
