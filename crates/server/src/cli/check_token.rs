//! `dunlin check-token`, `dunlin check-sub-token`.

use std::{
    io::Read as _,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Args;
use dunlin_engine::{
    backend::Overrides,
    event::{ConnectionClaims, SubscriptionClaims},
};
use dunlin_games::Registry;
use dunlin_protocol::Payload;

use super::{ConfigFile, Failure};
use crate::token::Verifier;

/// Bytes of standard input that are looked at.
const INPUT_BYTES_MAX: u64 = 1 << 20;

/// Tell what a token says, or what is wrong with it.
#[derive(Debug, Args)]
pub(super) struct CheckTokenArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// The token; - reads it from standard input, so that no list of processes shows it
    token: String,
}

/// Of a connection token.
pub(super) fn connection(args: &CheckTokenArgs, registry: &Registry) -> Result<(), Failure> {
    let (verifier, token, now_s) = prepare(args, registry)?;
    let claims = verifier.judge_connection(&token, now_s).map_err(|fault| Failure::Token(fault.reason()))?;
    tell_connection(&claims, now_s);
    Ok(())
}

/// Of a subscription token.
pub(super) fn subscription(args: &CheckTokenArgs, registry: &Registry) -> Result<(), Failure> {
    let (verifier, token, now_s) = prepare(args, registry)?;
    let claims = verifier.judge_subscription(&token, now_s).map_err(|fault| Failure::Token(fault.reason()))?;
    tell_subscription(&claims, now_s);
    Ok(())
}

fn prepare(args: &CheckTokenArgs, registry: &Registry) -> Result<(Verifier, String, u64), Failure> {
    let (config, _) = args.config.load(Vec::new(), registry)?;
    let verifier = Verifier::new(&config.token).map_err(Failure::TokenThread)?;
    let mut token = args.token.clone();
    if token == "-" {
        token.clear();
        let read = std::io::stdin().take(INPUT_BYTES_MAX).read_to_string(&mut token);
        read.map_err(|error| Failure::File("-".into(), error))?;
    }
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok((verifier, token.trim().to_owned(), now_s))
}

fn tell_connection(claims: &ConnectionClaims, now_s: u64) {
    println!("valid connection token");
    println!("user: {}", user(&claims.user));
    println!("connection expires: {}", expiry(claims.expires_at_s, now_s));
    tell_payload("info", claims.info.as_ref());
    tell_payload("meta", claims.meta.as_ref());
    for subscription in &claims.subscriptions {
        println!("subscribed by the server to: {:?}{}", subscription.channel, overrides(subscription.overrides));
    }
}

fn tell_subscription(claims: &SubscriptionClaims, now_s: u64) {
    println!("valid subscription token");
    println!("user: {}", user(&claims.user));
    println!("channel: {:?}{}", claims.channel, overrides(claims.overrides));
    if !claims.client.is_empty() {
        println!("for this session alone: {:?}", claims.client);
    }
    println!("subscription expires: {}", expiry(claims.expires_at_s, now_s));
    tell_payload("info", claims.info.as_ref());
    tell_payload("data", claims.data.as_ref());
}

fn user(user: &str) -> String {
    if user.is_empty() { "the anonymous user".to_owned() } else { format!("{user:?}") }
}

fn expiry(expires_at_s: Option<u64>, now_s: u64) -> String {
    match expires_at_s {
        None => "never".to_owned(),
        Some(at_s) => match at_s.checked_sub(now_s) {
            Some(in_s) => format!("at {at_s}, in {in_s} seconds"),
            None => format!("at {at_s}, which is over, so that it has to be refreshed at once"),
        },
    }
}

fn tell_payload(name: &str, payload: Option<&Payload>) {
    match payload {
        Some(payload) if payload.is_known_json() => println!("{name}: {}", String::from_utf8_lossy(payload.bytes())),
        Some(payload) => println!("{name}: {} bytes", payload.bytes().len()),
        None => {}
    }
}

fn overrides(overrides: Overrides) -> String {
    let set = [
        ("presence", overrides.presence),
        ("join_leave", overrides.join_leave),
        ("force_push_join_leave", overrides.force_push_join_leave),
        ("force_positioning", overrides.force_positioning),
        ("force_recovery", overrides.force_recovery),
    ];
    let set: Vec<_> = set.iter().filter_map(|(name, value)| value.map(|value| format!("{name} = {value}"))).collect();
    if set.is_empty() { String::new() } else { format!(", with {}", set.join(", ")) }
}
