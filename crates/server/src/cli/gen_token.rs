//! `dunlin gen-token`, `dunlin gen-sub-token`.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use dunlin_games::Registry;
use dunlin_token::{Grant, TokenKeys, TokenOptions, issue};

use super::{ConfigFile, Failure, output};

/// Make a token for a user.
#[derive(Debug, Args)]
pub(super) struct GenTokenArgs {
    #[command(flatten)]
    for_user: ForUserArgs,
    /// Create a subscription token for this channel instead of a connection token
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,
}

/// Make a subscription token for a user and a channel.
#[derive(Debug, Args)]
pub(super) struct GenSubTokenArgs {
    #[command(flatten)]
    for_user: ForUserArgs,
    /// Channel of the subscription
    #[arg(short = 's', long, value_name = "CHANNEL")]
    channel: String,
}

#[derive(Debug, Args)]
struct ForUserArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// User id; empty for an anonymous user
    #[arg(short, long, value_name = "ID")]
    user: String,
    /// Lifetime in seconds; -1: no expiration
    #[arg(short, long, value_name = "SECONDS", default_value_t = 604_800, allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-1..=3_155_760_000))]
    ttl: i64,
    /// Centrifugo prints only the token with it, as this command does without it
    #[arg(short, long, hide = true)]
    quiet: bool,
}

pub(super) fn run(args: &GenTokenArgs, registry: &Registry) -> Result<(), Failure> {
    make(&args.for_user, args.channel.as_deref(), registry)
}

pub(super) fn run_for_subscription(args: &GenSubTokenArgs, registry: &Registry) -> Result<(), Failure> {
    make(&args.for_user, Some(&args.channel), registry)
}

fn make(args: &ForUserArgs, channel: Option<&str>, registry: &Registry) -> Result<(), Failure> {
    let (config, _) = args.config.load(Vec::new(), registry)?;
    if channel.is_some_and(str::is_empty) {
        return Err(Failure::Usage("a subscription token needs a channel: --channel must not be empty".to_owned()));
    }
    let (keys, table) = keys_for(channel, &config.token);
    if keys.jwks.is_some() {
        let text = format!("{table}.jwks_public_endpoint is set, so tokens signed with an HMAC key are not valid");
        return Err(Failure::Usage(text));
    }
    let Some(secret) = &keys.hmac else {
        return Err(Failure::Usage(format!("{table}.hmac_secret_key is not set, so there is no key to sign with")));
    };
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let grant = Grant {
        user: &args.user,
        expires_at_s: u64::try_from(args.ttl).ok().map(|ttl_s| now_s + ttl_s),
        issued_at_s: now_s,
        channel,
        rules: &keys.rules,
    };
    let token = issue(&grant, secret).map_err(|why| Failure::Usage(format!("{table}.{why}")))?;
    output::line(token)
}

fn keys_for<'o>(channel: Option<&str>, options: &'o TokenOptions) -> (&'o TokenKeys, &'static str) {
    match (channel, &options.subscription) {
        (Some(_), Some(keys)) => (keys, "client.subscription_token"),
        _ => (&options.connection, "client.token"),
    }
}
