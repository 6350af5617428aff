//! Log events about tokens and their keys.

use dunlin_token::{TokenEvent, TokenFault, TokenKind};
use tracing::{debug, info, warn};

use super::{events::now_s, log::Outside, session_events::CONNECTION_LINES_PER_SECOND, throttle::LineRate};

/// Logs an event.
pub fn log_token_event(event: TokenEvent<'_>) {
    match event {
        TokenEvent::Refused { kind, fault } => log_refusal(kind, fault),
        TokenEvent::KeysFetched { url, keys } => info!(url = %Outside(&url.to_string()), keys, "fetched token keys"),
        TokenEvent::KeysNotFetched { url, why } => {
            let why = why.to_string();
            warn!(url = %Outside(&url.to_string()), why = %Outside(&why), "failed to fetch token keys");
        }
    }
}

/// Logs once per second at `info`, unless the token has only expired; otherwise at `debug`.
fn log_refusal(kind: TokenKind, fault: TokenFault) {
    static INFO: LineRate = LineRate::new(1);
    static DEBUG: LineRate = LineRate::new(CONNECTION_LINES_PER_SECOND);
    let (kind, reason) = (kind.name(), fault.reason());
    if fault != TokenFault::Time
        && let Some(suppressed) = INFO.admit(now_s())
    {
        info!(kind, reason, suppressed, "token refused");
    } else if tracing::enabled!(tracing::Level::DEBUG)
        && let Some(suppressed) = DEBUG.admit(now_s())
    {
        debug!(kind, reason, suppressed, "token refused");
    }
}
