//! `dunlin gen-token`.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use dunlin_games::Registry;

use super::{ConfigFile, Failure};
use crate::token::{Grant, issue};

/// Make a token for a user.
#[derive(Debug, Args)]
pub(super) struct GenTokenArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// The user's id; empty for the anonymous user
    #[arg(short, long, value_name = "ID")]
    user: String,
    /// Make a subscription token for this channel, in place of a connection token
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,
    /// Seconds until it expires; -1 for never
    #[arg(short, long, value_name = "SECONDS", default_value_t = 604_800, allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-1..=3_155_760_000))]
    ttl: i64,
}

pub(super) fn run(args: &GenTokenArgs, registry: &Registry) -> Result<(), Failure> {
    let (config, _) = args.config.load(Vec::new(), registry)?;
    let (keys, key_name) = match (&args.channel, &config.token.subscription) {
        (Some(channel), _) if channel.is_empty() => {
            return Err(Failure::Usage("a subscription token is for a channel: its name can't be empty".to_owned()));
        }
        (Some(_), Some(keys)) => (keys, "client.subscription_token.hmac_secret_key"),
        _ => (&config.token.connection, "client.token.hmac_secret_key"),
    };
    let Some(secret) = &keys.hmac else {
        return Err(Failure::Usage(format!("{key_name} is not set, so there is no key to sign with")));
    };
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let grant = Grant {
        user: &args.user,
        expires_at_s: u64::try_from(args.ttl).ok().map(|ttl_s| now_s + ttl_s),
        issued_at_s: now_s,
        channel: args.channel.as_deref(),
    };
    println!("{}", issue(&grant, secret));
    Ok(())
}
