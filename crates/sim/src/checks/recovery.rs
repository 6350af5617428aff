//! Checks subscribe replies: recovered means complete, not recovered means that recovery was impossible.

use dunlin_engine::options::{Lane, NamespaceOptions, RecoveryMode};
use dunlin_protocol::Encoding;

use crate::{
    client::Pending,
    model::{ChannelFacts, Model},
    wire::{ClientCommand, ClientPosition, Filter, SubscribeBody},
};

use super::{Subscription, difference::Differences};

/// Limits of the node that recovery respects.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryLimits {
    /// Publications in one recovery.
    pub recovery_publications_max: usize,
    /// Bytes of a recovery: most of what may wait for a session.
    pub recovery_bytes_max: usize,
    /// Bytes that may wait for a session.
    pub queue_bytes_max: usize,
    /// Whether channels are forgotten because there are too many.
    pub forgets: bool,
}

/// Judges the answer to a subscribe command; returns the subscription that it makes.
///
/// # Errors
/// What about the answer is not true.
pub fn check_recovery(
    model: &mut Model,
    limits: RecoveryLimits,
    asked: &Pending,
    result: &SubscribeBody,
    (encoding, now_ms): (Encoding, u64),
) -> Result<Subscription, String> {
    let ClientCommand::Subscribe { channel, recover, filter, .. } = &asked.command else {
        return Err("a subscribe result answers another command".to_owned());
    };
    let filter = filter.as_deref();
    let facts = model.channel_mut(channel).ok_or("a subscription to an unknown channel")?;
    let rules = facts.rules.clone().ok_or("a subscription without a namespace")?;
    check_flags(&rules, asked, result)?;
    let mut subscription = Subscription {
        channel: channel.clone(),
        positioned: result.positioned,
        recoverable: result.recoverable,
        epoch: result.epoch.clone(),
        offset: result.positioned.then_some(result.offset),
        asked_count: asked.api_count,
        live_count: facts.api_count,
        live_ms: now_ms,
        has_newest_behind: asked.newest_behind,
        filter: filter.cloned(),
        number: result.id,
        differences: result.delta.then(|| Differences::new(encoding)),
        ..Subscription::default()
    };
    if result.positioned {
        facts.used(&result.epoch, asked.sent_us);
    }
    match recover {
        Some(from) if result.recovered => {
            check_recovered(&rules, filter, from, result)?;
            subscription.recovered(model, &result.publications)?;
            check_gaps(model, &rules, &subscription, from, result)?;
        }
        _ if rules.cache_keys_max > 0 => subscription.newest_of_keys(model, limits, &rules, &result.publications)?,
        _ if !result.publications.is_empty() => {
            return Err(format!("{channel}: publications come with what is not recovered"));
        }
        Some(from) if result.recoverable => {
            let top = (&*result.epoch, result.offset);
            if could_recover_surely(model, limits, facts_of(model, channel)?, (from, filter), top, now_ms) {
                return Err(format!("{channel}: not recovered from {from:?} at {top:?}, though it is all there"));
            }
        }
        Some(_) | None => {}
    }
    Ok(subscription)
}

fn facts_of<'a>(model: &'a Model, channel: &str) -> Result<&'a ChannelFacts, String> {
    model.channel(channel).ok_or_else(|| "an unknown channel".to_owned())
}

/// What the reply says of the subscription itself.
pub(super) fn check_flags(rules: &NamespaceOptions, asked: &Pending, result: &SubscribeBody) -> Result<(), String> {
    let ClientCommand::Subscribe { recover, positioned, recoverable, delta, compact, .. } = &asked.command else {
        return Err("a subscribe result answers another command".to_owned());
    };
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
    let differs = !delta.is_empty() && rules.allow_delta && rules.delivery == Lane::Reliable && rules.room.is_none();
    let has_number = *compact && rules.allow_channel_compaction && rules.room.is_none();
    if (result.delta, result.id > 0) != (differs, has_number) {
        return Err(format!("differences {} instead of {differs}, number {}", result.delta, result.id));
    }
    if result.recovered && !(recoverable && recovers) {
        return Err("recovered without being asked".to_owned());
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
    // Who misses nothing that passes is told where the others are.
    let is_ahead = filter.is_some() && offsets.is_empty() && result.offset > from.offset;
    if is_sound && (result.offset == from.offset || is_ahead) {
        Ok(())
    } else {
        Err(format!("recovered from {from:?} at {} with the offsets {offsets:?}, {}", result.offset, result.epoch))
    }
}

/// What was left out of a recovery does not pass the filter.
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

/// Whether a client at `from` can be brought up to `top` beyond doubt, by a server that answers at `now_ms` or before.
pub fn could_recover_surely(
    model: &Model,
    limits: RecoveryLimits,
    facts: &ChannelFacts,
    (from, filter): (&ClientPosition, Option<&Filter>),
    (epoch, top): (&str, u64),
    now_ms: u64,
) -> bool {
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
