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
use dunlin_token::Verifier;

use super::{ConfigFile, Failure, output};
use crate::telemetry::token_events::log_token_event;

/// Maximum number of bytes read from standard input.
const INPUT_BYTES_MAX: u64 = 1 << 20;

/// Print the claims of a token, or why it is invalid.
#[derive(Debug, Args)]
pub(super) struct CheckTokenArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// The token, or - to read it from standard input, which hides it from process lists
    token: String,
}

pub(super) fn connection(args: &CheckTokenArgs, registry: &Registry) -> Result<(), Failure> {
    let (verifier, token, now_ms) = prepare(args, registry)?;
    let claims = verifier.judge_connection(&token, now_ms).map_err(|fault| Failure::Token(fault.reason()))?;
    print_connection(&claims, now_ms)
}

pub(super) fn subscription(args: &CheckTokenArgs, registry: &Registry) -> Result<(), Failure> {
    let (verifier, token, now_ms) = prepare(args, registry)?;
    let claims = verifier.judge_subscription(&token, now_ms).map_err(|fault| Failure::Token(fault.reason()))?;
    print_subscription(&claims, now_ms)
}

fn prepare(args: &CheckTokenArgs, registry: &Registry) -> Result<(Verifier, String, u64), Failure> {
    let (config, _) = args.config.load(Vec::new(), registry)?;
    let verifier = Verifier::new(&config.token, log_token_event).map_err(Failure::TokenThread)?;
    let mut token = args.token.clone();
    if token == "-" {
        token.clear();
        let read = std::io::stdin().take(INPUT_BYTES_MAX).read_to_string(&mut token);
        read.map_err(|error| Failure::File("-".into(), error))?;
    }
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
    Ok((verifier, token.trim().to_owned(), now_ms))
}

fn print_connection(claims: &ConnectionClaims, now_ms: u64) -> Result<(), Failure> {
    output::line("valid connection token")?;
    output::line(format_args!("user: {}", user(&claims.user)))?;
    output::line(format_args!("connection expires: {}", expiry(claims.expires_at_ms, now_ms)))?;
    print_payload("info", claims.info.as_ref())?;
    print_payload("meta", claims.meta.as_ref())?;
    for subscription in &claims.subscriptions {
        output::line(format_args!(
            "subscribed by the server to: {:?}{}",
            subscription.channel,
            overrides(subscription.grant.overrides)
        ))?;
    }
    Ok(())
}

fn print_subscription(claims: &SubscriptionClaims, now_ms: u64) -> Result<(), Failure> {
    let grant = &claims.grant;
    output::line("valid subscription token")?;
    output::line(format_args!("user: {}", user(&claims.user)))?;
    output::line(format_args!("channel: {:?}{}", claims.channel, overrides(grant.overrides)))?;
    if !claims.client.is_empty() {
        output::line(format_args!("for this session alone: {:?}", claims.client))?;
    }
    output::line(format_args!("subscription expires: {}", expiry(grant.expires_at_ms, now_ms)))?;
    print_payload("info", grant.info.as_ref())?;
    print_payload("data", grant.data.as_ref())
}

fn user(user: &str) -> String {
    if user.is_empty() { "the anonymous user".to_owned() } else { format!("{user:?}") }
}

fn expiry(expires_at_ms: Option<u64>, now_ms: u64) -> String {
    let Some(at_ms) = expires_at_ms else { return "never".to_owned() };
    let seconds = at_ms as f64 / 1_000.0;
    match at_ms.checked_sub(now_ms) {
        Some(left_ms) => format!("at {seconds}, in {} seconds", left_ms.div_ceil(1_000)),
        None => format!("at {seconds}, which is in the past, so it must be refreshed at once"),
    }
}

fn print_payload(name: &str, payload: Option<&Payload>) -> Result<(), Failure> {
    match payload {
        Some(payload) if payload.is_known_json() => {
            output::line(format_args!("{name}: {}", String::from_utf8_lossy(payload.bytes())))
        }
        Some(payload) => output::line(format_args!("{name}: {} bytes", payload.bytes().len())),
        None => Ok(()),
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
