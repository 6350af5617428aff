//! Counts of questions and answers.

use std::sync::atomic::{AtomicU64, Ordering};

use super::shards::QuestionQueue;

/// Counters of a node.
#[derive(Debug, Default)]
pub struct QuestionCounters {
    questions_refused: [AtomicU64; QuestionQueue::ALL.len()],
    questions_not_understood: AtomicU64,
    answers_not_understood: AtomicU64,
}

/// Their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuestionCounts {
    /// Questions of shards that did not fit, by [`QuestionQueue`].
    pub questions_refused: [u64; QuestionQueue::ALL.len()],
    /// Questions of other nodes that this version does not understand.
    pub questions_not_understood: u64,
    /// Their answers that it does not understand.
    pub answers_not_understood: u64,
}

impl QuestionCounters {
    /// The values.
    pub fn counts(&self) -> QuestionCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        QuestionCounts {
            questions_refused: self.questions_refused.each_ref().map(load),
            questions_not_understood: load(&self.questions_not_understood),
            answers_not_understood: load(&self.answers_not_understood),
        }
    }

    pub(super) fn count_refused(&self, queue: QuestionQueue) {
        self.questions_refused[queue as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_question_not_understood(&self) {
        self.questions_not_understood.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_answer_not_understood(&self) {
        self.answers_not_understood.fetch_add(1, Ordering::Relaxed);
    }
}
