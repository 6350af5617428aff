//! Holes: messages that are missing from the middle of a channel, because a replica has lost them.
//!
//! A replica leaves out what it cannot read, for example behind a flipped bit, and forgets it when it is rebuilt. Its
//! answer looks complete, because the sequences of a channel have gaps anyway. So each message names its predecessors in
//! the channel: those that its publisher had seen, and that no message named which it had seen. Every message is thus
//! named by a later one, with a few numbers at most, however many nodes publish at the same time. A named message that
//! is missing is lost, and the stream begins a new epoch.
//!
//! A name is valid in the epoch in which it was given: after a truncation, sequences are assigned again. Nothing names
//! the newest messages of a channel. The audit compares these, also with a channel that was attached without a message,
//! because the replica that was asked had lost it.

use std::collections::BTreeSet;

use crate::{
    link::StoredMessage,
    record::{self, FOLLOWS},
};

/// Maximum number of messages that one message names. The next one names others, so that a burst of messages to a
/// channel does not name the same ones again and again.
const NAMED_MAX: usize = 8;
/// Maximum number of messages of a channel that wait for their name. Beyond it, the oldest are never named: a node
/// would have published this many messages at the same time.
const UNNAMED_MAX: usize = 1_024;

/// The messages of a channel that no known message names, by sequence.
#[derive(Debug, Default)]
pub(super) struct Unnamed {
    sequences: BTreeSet<u64>,
    /// The last one that a message named. Whether that message is stored is known when it comes back.
    named_through: u64,
}

impl Unnamed {
    /// Adds the next message of the channel.
    pub(super) fn push(&mut self, message: &StoredMessage) {
        if record::purged_through(message).is_some() {
            self.sequences.clear();
        }
        if let Some((sequences, _)) = named_by(message) {
            for sequence in sequences {
                self.sequences.remove(&sequence);
            }
        }
        self.sequences.insert(message.sequence);
        if self.sequences.len() > UNNAMED_MAX {
            self.sequences.pop_first();
        }
    }

    /// The header of a message that is sent now; `None` if it has no predecessor.
    pub(super) fn header(&mut self, epoch: &str) -> Option<String> {
        if self.sequences.last().is_some_and(|last| *last <= self.named_through) {
            self.named_through = 0;
        }
        let mut header = String::new();
        for sequence in self.sequences.range(self.named_through + 1..).take(NAMED_MAX) {
            header.push_str(if header.is_empty() { "" } else { "," });
            header.push_str(&sequence.to_string());
            self.named_through = *sequence;
        }
        (!header.is_empty()).then(|| header + " " + epoch)
    }
}

/// The sequences that a message names, and their epoch.
fn named_by(message: &StoredMessage) -> Option<(impl Iterator<Item = u64> + '_, &str)> {
    let (sequences, epoch) = message.headers.get(FOLLOWS)?.split_once(' ')?;
    Some((sequences.split(',').filter_map(|sequence| sequence.parse().ok()), epoch))
}

/// The sequences that a message names in this epoch.
pub(super) fn named_in<'a>(message: &'a StoredMessage, epoch: &'a str) -> impl Iterator<Item = u64> + 'a {
    named_by(message).filter(|(_, its_epoch)| *its_epoch == epoch).into_iter().flat_map(|(sequences, _)| sequences)
}

/// A message that is missing among those of a channel after `floor`, which are complete by all other evidence: one that
/// another one names, or one of `stored`.
pub(super) fn missing_among(
    messages: &[StoredMessage],
    floor: u64,
    epoch: &str,
    mut stored: impl Iterator<Item = u64>,
) -> Option<u64> {
    let is_purge = |message: &&StoredMessage| record::purged_through(message).is_some();
    let purge = messages.iter().rfind(is_purge).map_or(0, |message| message.sequence);
    let has = |sequence: u64| messages.binary_search_by_key(&sequence, |message| message.sequence).is_ok();
    let last = messages.last().map_or(0, |message| message.sequence);
    let is_missing = |sequence: &u64| *sequence > floor.max(purge) && !has(*sequence);
    let named = messages.iter().filter(|message| message.sequence >= purge);
    let mut named = named.flat_map(|message| named_in(message, epoch));
    named.find(is_missing).or_else(|| stored.find(|sequence| *sequence < last && is_missing(sequence)))
}

/// The floor of a read that is complete after `floor` by all other evidence. A replica that leaves out as many messages as
/// the stream has dropped makes the count of the rest look complete. In this node's epoch, the name of a missing message is
/// a loss. In another one its sequence may have been assigned again, or this node has not heard of that epoch yet: then
/// nothing proves what lies below.
pub(super) fn floor_of_names(
    messages: &[StoredMessage],
    floor: u64,
    epoch: &str,
    ended: Option<EndedEpoch<'_>>,
) -> u64 {
    named_elsewhere(messages, floor, epoch, ended).unwrap_or(floor)
}

/// An epoch before that of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndedEpoch<'a> {
    pub(super) epoch: &'a str,
    /// Its messages from this sequence on were lost when it ended: the stream has assigned the sequence again.
    pub(super) lost_from: u64,
}

impl EndedEpoch<'_> {
    /// Whether a name means a message that is not in this node's epoch. A node that has not heard of the end of an epoch
    /// still publishes such names.
    fn has_lost(&self, epoch: &str, sequence: u64) -> bool {
        self.epoch == epoch && sequence >= self.lost_from
    }
}

/// The newest missing message after `floor` that one of the messages names in another epoch than this node's.
fn named_elsewhere(messages: &[StoredMessage], floor: u64, epoch: &str, ended: Option<EndedEpoch<'_>>) -> Option<u64> {
    let of_others = messages.iter().filter_map(named_by).filter(|(_, its_epoch)| *its_epoch != epoch);
    let has = |sequence: u64| messages.binary_search_by_key(&sequence, |message| message.sequence).is_ok();
    let says_nothing = |epoch: &str, sequence| ended.is_some_and(|ended| ended.has_lost(epoch, sequence));
    let named = of_others
        .flat_map(|(sequences, its_epoch)| sequences.filter(move |sequence| !says_nothing(its_epoch, *sequence)));
    named.filter(|sequence| *sequence > floor && !has(*sequence)).max()
}

#[cfg(test)]
mod tests;
