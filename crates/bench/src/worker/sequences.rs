//! The next sequence number that a session expects, and the missing ones.

/// The order in which publications reach one session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sequences {
    /// The next expected sequence.
    pub next: u64,
    /// Skipped publications.
    pub lost: u64,
    /// Publications that were received again or too late.
    pub duplicated: u64,
    /// Received publications.
    pub received: u64,
}

impl Sequences {
    /// Records a publication. Returns `false` if it was received or skipped before.
    pub fn take(&mut self, sequence: u64) -> bool {
        if sequence < self.next {
            self.duplicated += 1;
            return false;
        }
        self.lost += sequence - self.next;
        self.next = sequence + 1;
        self.received += 1;
        true
    }

    /// Ends a phase: missing publications count as lost. Resets the counters for the next phase.
    pub fn settle(&mut self, end_sequence: u64) -> Sequences {
        self.lost += end_sequence.saturating_sub(self.next);
        let settled = Sequences { next: end_sequence, ..*self };
        *self = Sequences { next: end_sequence, ..Sequences::default() };
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_duplicates_and_a_missing_end_are_distinguished() {
        let mut sequences = Sequences { next: 10, ..Sequences::default() };
        assert!(sequences.take(10));
        assert!(!sequences.take(10), "again");
        assert!(sequences.take(13), "11 and 12 are missing");
        assert!(!sequences.take(12), "too late");
        let settled = sequences.settle(16);
        assert_eq!(settled, Sequences { next: 16, lost: 4, duplicated: 2, received: 2 });
        assert_eq!(sequences, Sequences { next: 16, ..Sequences::default() });
        assert_eq!(sequences.settle(16).lost, 0);
    }
}
