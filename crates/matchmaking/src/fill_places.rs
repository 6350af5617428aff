//! Which tickets fill the places of a new room.

use crate::TicketId;

/// Maximum number of words in the table of sums. It bounds the work for a ticket of a very large room: beyond it only the
/// nearest candidates are combined.
const WORDS_MAX: usize = 1 << 16;

/// A ticket that may join the oldest one of a new room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupCandidate {
    /// Difference in skill to the oldest ticket.
    pub(crate) distance: u64,
    pub(crate) id: TicketId,
    pub(crate) size: u32,
}

/// The chosen tickets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GroupFit {
    pub(crate) tickets: Vec<TicketId>,
    pub(crate) users: u32,
    /// Words of the table that were computed.
    pub(crate) steps: usize,
}

/// The candidates that fill `places` as far as possible. Of several such choices, the one that takes the first candidate that
/// it can take, then the next, and so on.
pub(crate) fn fullest(candidates: &[GroupCandidate], places: u32) -> GroupFit {
    let greedy = take_in_order(candidates, places);
    if greedy.users == places || greedy.tickets.len() == candidates.len() {
        return greedy;
    }
    let exact = combine(candidates, places);
    if exact.users > greedy.users { exact } else { GroupFit { steps: exact.steps, ..greedy } }
}

/// Takes each candidate that still fits. If it fills all places, no other choice is better.
fn take_in_order(candidates: &[GroupCandidate], places: u32) -> GroupFit {
    let mut fit = GroupFit { tickets: Vec::new(), users: 0, steps: 0 };
    for candidate in candidates.iter().filter(|candidate| candidate.size <= places) {
        if candidate.size <= places - fit.users {
            fit.users += candidate.size;
            fit.tickets.push(candidate.id);
        }
    }
    fit
}

/// Row n of the table has a bit for each number of users that some of the last n candidates have together.
fn combine(candidates: &[GroupCandidate], places: u32) -> GroupFit {
    let words = places as usize / 64 + 1;
    let candidates = candidates.get(..WORDS_MAX / words).unwrap_or(candidates);
    let mut table = Vec::with_capacity((candidates.len() + 1) * words);
    table.push(1);
    table.resize(words, 0);
    for candidate in candidates.iter().rev() {
        let last = table.len() - words;
        for word in 0..words {
            let row = table.get(last..last + words).unwrap_or_default();
            table.push(row.get(word).copied().unwrap_or_default() | shifted(row, word, candidate.size));
        }
    }
    let mut rows = table.chunks(words).rev();
    let all = rows.next().unwrap_or_default();
    let users = (0..=places).rev().find(|users| has(all, *users)).unwrap_or_default();
    let mut fit = GroupFit { tickets: Vec::new(), users, steps: table.len() };
    let mut missing = users;
    for (candidate, others) in candidates.iter().zip(rows) {
        if candidate.size <= missing && has(others, missing - candidate.size) {
            missing -= candidate.size;
            fit.tickets.push(candidate.id);
        }
    }
    fit
}

fn has(row: &[u64], users: u32) -> bool {
    row.get(users as usize / 64).is_some_and(|word| word >> (users % 64) & 1 == 1)
}

/// A word of the row whose sums are larger by `size`.
fn shifted(row: &[u64], word: usize, size: u32) -> u64 {
    let at = |below: usize| word.checked_sub(below).and_then(|index| row.get(index)).copied().unwrap_or_default();
    let (words, bits) = (size as usize / 64, size % 64);
    if bits == 0 { at(words) } else { at(words) << bits | at(words + 1) >> (64 - bits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(sizes: &[u32], places: u32) -> (Vec<u64>, u32) {
        let numbered = (1..).zip(sizes);
        let candidates: Vec<_> =
            numbered.map(|(id, size)| GroupCandidate { distance: 0, id: TicketId(id), size: *size }).collect();
        let fit = fullest(&candidates, places);
        (fit.tickets.iter().map(|id| id.0).collect(), fit.users)
    }

    #[test]
    fn the_first_candidates_that_fill_the_places_are_chosen() {
        for (sizes, places, tickets, users) in [
            (&[][..], 3, &[][..], 0),
            (&[1, 2, 2], 4, &[2, 3], 4),
            (&[1, 1, 2], 4, &[1, 2, 3], 4),
            (&[3, 3, 1, 1, 2], 4, &[1, 3], 4),
            (&[3, 2, 2, 9], 4, &[2, 3], 4),
            (&[3, 3], 5, &[1], 3),
            (&[5, 5], 4, &[], 0),
            // Sums on both sides of the border between two words of the table.
            (&[60, 3, 64], 64, &[3], 64),
            (&[60, 3, 63], 64, &[1, 2], 63),
            (&[100, 64, 65], 129, &[2, 3], 129),
        ] {
            assert_eq!(fit(sizes, places), (tickets.to_vec(), users), "{sizes:?} in {places} places");
        }
    }

    #[test]
    fn the_table_of_a_very_large_room_is_bounded() {
        let candidates: Vec<_> =
            (1..=10_000).map(|id| GroupCandidate { distance: 0, id: TicketId(id), size: 7 }).collect();
        let fit = fullest(&candidates, 69_999);
        assert_eq!(fit.users, 69_993);
        assert!(fit.steps <= WORDS_MAX + 1_094, "{} words", fit.steps);
    }
}
