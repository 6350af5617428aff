//! Checks subscribe replies: a recovered subscription is complete, and the server may only refuse a recovery that it
//! could not do.

use dunlin_engine::options::{Lane, NamespaceOptions, RecoveryMode};
use dunlin_protocol::Encoding;

use crate::{
    client::Pending,
    model::{ChannelFacts, Model},
    wire::{ClientPosition, Filter, SubscribeBody, SubscribeCommand},
};

use super::{Subscription, difference::DeltaState};

/// Limits of the node that apply to recovery.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryLimits {
    /// Maximum number of publications in one recovery.
    pub recovery_publications_max: usize,
    /// Maximum bytes of one recovery. This is most of `queue_bytes_max`.
    pub recovery_bytes_max: usize,
    /// Maximum bytes in the queue of a session.
    pub queue_bytes_max: usize,
    /// Whether the node evicts channels because it has too many.
    pub evicts_channels: bool,
}

/// Checks the reply to a subscribe command and returns the resulting subscription.
///
/// # Errors
/// What is wrong with the reply.
pub fn check_recovery(
    model: &mut Model,
    limits: RecoveryLimits,
    request: &Pending,
    result: &SubscribeBody,
    (encoding, now_ms): (Encoding, u64),
) -> Result<Subscription, String> {
    let SubscribeCommand { channel, recover, filter, .. } = request.subscribe()?;
    let filter = filter.as_ref();
    let facts = model.channel_mut(channel).ok_or("a subscription to an unknown channel")?;
    let rules = facts.rules.clone().ok_or("a subscription without a namespace")?;
    check_flags(&rules, request, result)?;
    let mut subscription = Subscription {
        channel: channel.clone(),
        positioned: result.positioned,
        recoverable: result.recoverable,
        epoch: result.epoch.clone(),
        offset: result.positioned.then_some(result.offset),
        request_count: request.api_count,
        live_count: facts.api_count,
        live_ms: now_ms,
        newest_follows_reply: request.newest_follows_reply,
        filter: filter.cloned(),
        number: result.id,
        delta_state: result.delta.then(|| DeltaState::new(encoding)),
        ..Subscription::default()
    };
    if result.positioned {
        facts.record_use(&result.epoch, request.sent_us);
    }
    match recover {
        Some(from) if result.recovered => {
            check_recovered(&rules, filter, from, result)?;
            subscription.recovered(model, &result.publications)?;
            check_gaps(model, &rules, &subscription, from, result)?;
        }
        _ if rules.cache_keys_max > 0 => subscription.newest_of_keys(model, limits, &rules, &result.publications)?,
        _ if !result.publications.is_empty() => {
            return Err(format!("{channel}: the reply has publications, but is not marked as recovered"));
        }
        Some(from) if result.recoverable => {
            let top = (&*result.epoch, result.offset);
            if must_be_recoverable(model, limits, facts_of(model, channel)?, &Recovery { from, filter, now_ms }, top) {
                return Err(format!(
                    "{channel}: not recovered from {from:?} at {top:?}, although all publications are available"
                ));
            }
        }
        Some(_) | None => {}
    }
    Ok(subscription)
}

fn facts_of<'a>(model: &'a Model, channel: &str) -> Result<&'a ChannelFacts, String> {
    model.channel(channel).ok_or_else(|| "an unknown channel".to_owned())
}

/// Checks the flags of a subscribe reply against the options of the namespace.
pub(super) fn check_flags(rules: &NamespaceOptions, request: &Pending, result: &SubscribeBody) -> Result<(), String> {
    let SubscribeCommand { recover, positioned, recoverable, delta, compact, .. } = request.subscribe()?;
    let recovers = recover.is_some();
    let has_stream = rules.history_size > 0 && rules.history_ttl_ms > 0;
    let sees_history = rules.allow_history_for_client || rules.allow_history_for_subscriber;
    let recoverable = has_stream && (rules.force_recovery || *recoverable && (rules.allow_recovery || sees_history));
    let positioned = has_stream
        && (recoverable || rules.force_positioning || *positioned && (rules.allow_positioning || sees_history));
    let expected = (recoverable, positioned, recovers, positioned);
    let got = (result.recoverable, result.positioned, result.was_recovering, !result.epoch.is_empty());
    if expected != got {
        return Err(format!("recoverable, positioned, was recovering, epoch: {got:?} instead of {expected:?}"));
    }
    let has_delta = !delta.is_empty() && rules.allow_delta && rules.delivery == Lane::Reliable && rules.room.is_none();
    let has_number = *compact && rules.allow_channel_compaction && rules.room.is_none();
    if (result.delta, result.id > 0) != (has_delta, has_number) {
        return Err(format!("delta {} instead of {has_delta}, number {}", result.delta, result.id));
    }
    if result.recovered && !(recoverable && recovers) {
        return Err("recovered without a request".to_owned());
    }
    Ok(())
}

fn check_recovered(
    rules: &NamespaceOptions,
    filter: Option<&Filter>,
    from: &ClientPosition,
    result: &SubscribeBody,
) -> Result<(), String> {
    let offsets: Vec<u64> = result.publications.iter().map(|publication| publication.offset).collect();
    let is_sound = match rules.recovery_mode {
        RecoveryMode::Stream => {
            let same_epoch = from.epoch.is_empty() || from.epoch == result.epoch;
            let is_sorted = offsets.first().is_none_or(|first| *first > from.offset)
                && offsets.is_sorted_by(|one, next| one < next);
            let has_gap = || offsets.iter().zip(from.offset + 1..).any(|(&offset, expected)| offset != expected);
            same_epoch && is_sorted && (filter.is_some() || !has_gap())
        }
        RecoveryMode::Cache => match offsets[..] {
            [] => from.epoch == result.epoch && from.offset > 0,
            [newest] => newest > 0 && (newest > from.offset || from.epoch != result.epoch),
            _ => false,
        },
    };
    // If nothing that was missed passes the filter, the server sends the top of the stream as the position.
    let is_ahead = filter.is_some() && offsets.is_empty() && result.offset > from.offset;
    if is_sound && (result.offset == from.offset || is_ahead) {
        Ok(())
    } else {
        Err(format!("recovered from {from:?} at {} with the offsets {offsets:?}, {}", result.offset, result.epoch))
    }
}

/// Checks that only publications that the filter rejects are missing from a recovery.
fn check_gaps(
    model: &mut Model,
    rules: &NamespaceOptions,
    subscription: &Subscription,
    from: &ClientPosition,
    result: &SubscribeBody,
) -> Result<(), String> {
    let mut last = from.offset;
    for publication in &result.publications {
        if rules.recovery_mode == RecoveryMode::Stream {
            subscription.may_skip(model, last, publication.offset)?;
        }
        last = publication.offset;
    }
    if result.publications.is_empty() { subscription.may_skip(model, last, result.offset + 1) } else { Ok(()) }
}

/// A recovery that a client asked for.
pub struct Recovery<'a> {
    pub from: &'a ClientPosition,
    pub filter: Option<&'a Filter>,
    /// The server replies at this time or earlier.
    pub now_ms: u64,
}

/// Whether a server must be able to recover a client up to `top`.
pub fn must_be_recoverable(
    model: &Model,
    limits: RecoveryLimits,
    facts: &ChannelFacts,
    recovery: &Recovery<'_>,
    (epoch, top): (&str, u64),
) -> bool {
    let Recovery { from, filter, now_ms } = *recovery;
    let Some(rules) = &facts.rules else { return false };
    let retained = model.retained(facts, epoch, top, now_ms);
    match rules.recovery_mode {
        RecoveryMode::Stream => {
            let same_epoch = from.epoch.is_empty() || from.epoch == epoch;
            let kept = retained.min(limits.recovery_publications_max as u64);
            let bytes = model.reply_bytes_at_most(facts, epoch, from.offset + 1, top);
            let fits = bytes <= limits.recovery_bytes_max;
            same_epoch && fits && top.checked_sub(from.offset).is_some_and(|missed| missed <= kept)
        }
        RecoveryMode::Cache => {
            let passes = |number: u64| model.published[number as usize].passes(filter);
            let mut kept = top - retained + 1..=top;
            from.offset > 0 && from.epoch == epoch && from.offset == top
                || kept.any(|offset| facts.at(epoch, offset).is_some_and(passes))
        }
    }
}
