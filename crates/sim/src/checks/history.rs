//! Checks history replies: contiguous, within the requested range, and, where the model knows it, complete.

use crate::{
    model::Model,
    wire::{ClientPosition, HistoryBody},
};

/// Checks a history reply. The newest `retained` publications of the channel must still be available.
///
/// # Errors
/// If the publications are not contiguous, lie outside the requested range, or are incomplete.
pub fn check_history(
    model: &mut Model,
    channel: &str,
    (limit, since, reverse): (i32, Option<&ClientPosition>, bool),
    result: &HistoryBody,
    retained: u64,
) -> Result<(), String> {
    let offsets: Vec<u64> = result.publications.iter().map(|publication| publication.offset).collect();
    let context = || format!("history of {channel}, limit {limit}, since {since:?}, reverse {reverse}: {offsets:?}");
    for publication in &result.publications {
        model.identify(channel, publication, Some(&result.epoch)).map_err(|error| format!("{error}: {}", context()))?;
    }
    let steps = offsets.windows(2).all(|pair| if reverse { pair[0] == pair[1] + 1 } else { pair[1] == pair[0] + 1 });
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let top = result.offset;
    if !steps || offsets.len() > most || offsets.iter().any(|&offset| offset > top) {
        return Err(format!("{}, top {top}", context()));
    }
    let begins = match (since, reverse, offsets.first()) {
        (Some(since), false, Some(&first)) => first > since.offset,
        (Some(since), true, Some(&first)) => first + 1 == since.offset,
        (None, true, Some(&first)) => first == top,
        (_, _, None) | (None, false, Some(_)) => true,
    };
    let ends = reverse || offsets.len() == most || offsets.last().is_none_or(|&last| last == top);
    if !begins || !ends {
        return Err(format!("{} does not cover the requested range, top {top}", context()));
    }
    let is_requested = |offset: &u64| match since {
        None => true,
        Some(since) if reverse => *offset < since.offset,
        Some(since) => *offset > since.offset,
    };
    let expected = (top - retained + 1..=top).filter(is_requested).count().min(most);
    if offsets.len() < expected {
        return Err(format!("{} has fewer than {expected} publications, top {top}", context()));
    }
    Ok(())
}
