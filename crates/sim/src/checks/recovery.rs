//! The answer to a subscribe command: recovered means complete, not recovered means that it was not possible.

use dunlin_engine::options::{NamespaceOptions, RecoveryMode};

use crate::{
    client::Pending,
    model::{ChannelFacts, Model},
    wire::{Position, Say, SubscribeResult},
};

use super::Subscription;

/// Limits of the node that recovery respects.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Publications in one recovery.
    pub recovery_publications_max: usize,
    /// Bytes that may wait for a session, and therefore bytes of a recovery.
    pub queue_bytes_max: usize,
}

/// Judges the answer to a subscribe command; returns the subscription that it makes.
///
/// # Errors
/// What about the answer is not true.
pub fn check_recovery(
    model: &mut Model,
    limits: Limits,
    asked: &Pending,
    result: &SubscribeResult,
    now_ms: u64,
) -> Result<Subscription, String> {
    let Say::Subscribe { channel, recover, .. } = &asked.say else {
        return Err("a subscribe result answers another command".to_owned());
    };
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
        ..Subscription::default()
    };
    if result.positioned {
        facts.used(&result.epoch, asked.sent_us);
    }
    match recover {
        Some(from) if result.recovered => {
            check_recovered(&rules, from, result)?;
            subscription.recovered(model, &result.publications)?;
        }
        _ if !result.publications.is_empty() => {
            return Err(format!("{channel}: publications come with what is not recovered"));
        }
        Some(from) if result.recoverable => {
            let top = (&*result.epoch, result.offset);
            if could_recover_surely(model, limits, facts_of(model, channel)?, from, top, now_ms) {
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
pub(super) fn check_flags(rules: &NamespaceOptions, asked: &Pending, result: &SubscribeResult) -> Result<(), String> {
    let Say::Subscribe { recover, positioned, recoverable, .. } = &asked.say else {
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
    if result.recovered && !(recoverable && recovers) {
        return Err("recovered without being asked".to_owned());
    }
    Ok(())
}

fn check_recovered(rules: &NamespaceOptions, from: &Position, result: &SubscribeResult) -> Result<(), String> {
    let offsets: Vec<u64> = result.publications.iter().map(|publication| publication.offset).collect();
    let is_sound = match rules.recovery_mode {
        RecoveryMode::Stream => {
            let same_epoch = from.epoch.is_empty() || from.epoch == result.epoch;
            same_epoch && offsets.iter().zip(from.offset + 1..).all(|(&offset, expected)| offset == expected)
        }
        RecoveryMode::Cache => match offsets[..] {
            [] => from.epoch == result.epoch && from.offset > 0,
            [newest] => newest > 0 && (newest > from.offset || from.epoch != result.epoch),
            _ => false,
        },
    };
    if is_sound && result.offset == from.offset {
        Ok(())
    } else {
        Err(format!("recovered from {from:?} at {} with the offsets {offsets:?}, {}", result.offset, result.epoch))
    }
}

/// Whether a client at `from` can be brought up to `top` beyond doubt, by a server that answers at `now_ms` or before.
pub fn could_recover_surely(
    model: &Model,
    limits: Limits,
    facts: &ChannelFacts,
    from: &Position,
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
            let fits = bytes <= limits.queue_bytes_max;
            same_epoch && fits && top.checked_sub(from.offset).is_some_and(|missed| missed <= kept)
        }
        RecoveryMode::Cache => from.offset > 0 && from.epoch == epoch && from.offset == top || retained > 0,
    }
}
