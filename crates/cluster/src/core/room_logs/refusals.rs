//! The rooms that this node has just refused. A list of the logs may be older than that: it was asked for before, or a replica
//! has answered that lags. It would have the node open such a room, read all of its log, and refuse it once more.

use std::collections::BTreeMap;

use dunlin_engine::Now;

use crate::link::StoredMessage;

use super::DOUBT_TIMEOUT_MS;

/// How much older than its arrival a list may be: a replica lags, and its answer is late. So little is remembered, and it does
/// not matter for long if a stream that was made anew counts from 1.
const LIST_AGE_MAX_MS: u64 = 2 * DOUBT_TIMEOUT_MS;
/// Maximum number of refusals: as many as NATS lists logs. Rooms beyond them may be opened once more.
const REFUSALS_MAX: usize = 1_024;

/// The last refusals, by the subject of the log.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    by_subject: BTreeMap<Box<str>, Refusal>,
}

#[derive(Clone, Copy, Debug)]
struct Refusal {
    sequence: u64,
    until_us: u64,
}

impl Refusals {
    /// The message with this sequence says that this node refuses the room of a log.
    pub(super) fn note(&mut self, now: Now, subject: &str, sequence: u64) {
        if self.by_subject.len() >= REFUSALS_MAX {
            self.by_subject.retain(|_, refusal| refusal.until_us > now.mono_us);
        }
        if self.by_subject.len() < REFUSALS_MAX {
            self.by_subject.insert(subject.into(), Refusal { sequence, until_us: now.after_ms(LIST_AGE_MAX_MS) });
        }
    }

    /// Whether this node has refused the room since a message of its log was the newest.
    pub(super) fn follows(&self, now: Now, message: &StoredMessage) -> bool {
        let refusal = self.by_subject.get(&message.subject).filter(|refusal| refusal.until_us > now.mono_us);
        refusal.is_some_and(|refusal| message.sequence < refusal.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::MessageHeaders;

    fn now(mono_us: u64) -> Now {
        Now { mono_us, unix_ms: 0 }
    }

    fn message(subject: &str, sequence: u64) -> StoredMessage {
        let (subject, headers, payload) = (subject.into(), MessageHeaders::new(), bytes::Bytes::new());
        StoredMessage { subject, sequence, last_sequence: 0, time_ms: 0, headers, payload }
    }

    #[test]
    fn a_message_before_a_refusal_is_old_for_a_while() {
        let mut refusals = Refusals::default();
        refusals.note(now(0), "a", 7);
        let follows = |at_us, subject, sequence| refusals.follows(now(at_us), &message(subject, sequence));
        assert_eq!([6, 7, 8].map(|sequence| follows(1, "a", sequence)), [true, false, false]);
        assert!(!follows(1, "b", 6));
        assert!(follows(LIST_AGE_MAX_MS * 1_000 - 1, "a", 6), "at the limit");
        assert!(!follows(LIST_AGE_MAX_MS * 1_000, "a", 6), "past it");
    }

    #[test]
    fn the_number_of_refusals_is_limited() {
        let mut refusals = Refusals::default();
        let names: Vec<String> = (0..=REFUSALS_MAX).map(|number| number.to_string()).collect();
        for name in &names {
            refusals.note(now(0), name, 7);
        }
        let remembered = names.iter().filter(|name| refusals.follows(now(1), &message(name, 6))).count();
        assert_eq!(remembered, REFUSALS_MAX);
        let later_us = LIST_AGE_MAX_MS * 1_000;
        refusals.note(now(later_us), "later", 9);
        assert!(refusals.follows(now(later_us), &message("later", 8)));
    }
}
