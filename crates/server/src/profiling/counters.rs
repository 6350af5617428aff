//! Counters of pushed profiles.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a profile is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileKind {
    /// Processor time.
    Cpu,
    /// Memory in use, and what was allocated since the last one.
    Heap,
}

impl ProfileKind {
    /// All kinds, in the order of the counters.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Heap];

    /// The kind as a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Heap => "heap",
        }
    }
}

/// What became of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// A status from 200 to 299: the server has it.
    Taken,
    /// Another status below 500: the server does not accept it.
    Refused,
    /// A status of 500 or above.
    ServerError,
    /// The connection failed.
    Unreachable,
    /// No response in time.
    Timeout,
    /// A newer one came while it waited.
    Replaced,
    /// It was larger than a profile may be.
    TooLarge,
    /// It was not recorded, because an operator wanted one.
    Yielded,
    /// It could not be recorded.
    NotRecorded,
}

impl PushOutcome {
    /// All outcomes, in the order of the counters.
    pub const ALL: [Self; 9] = [
        Self::Taken,
        Self::Refused,
        Self::ServerError,
        Self::Unreachable,
        Self::Timeout,
        Self::Replaced,
        Self::TooLarge,
        Self::Yielded,
        Self::NotRecorded,
    ];

    /// The outcome of a response.
    pub const fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Taken,
            500.. => Self::ServerError,
            _ => Self::Refused,
        }
    }

    /// The outcome as a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Refused => "refused",
            Self::ServerError => "server_error",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Replaced => "replaced",
            Self::TooLarge => "too_large",
            Self::Yielded => "yielded",
            Self::NotRecorded => "not_recorded",
        }
    }
}

const OUTCOMES: usize = PushOutcome::ALL.len();
const KINDS: usize = ProfileKind::ALL.len();

/// The counters at one moment: of each kind, in the order of [`ProfileKind::ALL`], the profiles with each outcome, in the
/// order of [`PushOutcome::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileCounts(pub [[u64; OUTCOMES]; KINDS]);

impl ProfileCounts {
    /// Of one kind, the profiles with this outcome.
    pub fn of(&self, kind: ProfileKind, outcome: PushOutcome) -> u64 {
        self.0.get(kind as usize).and_then(|counts| counts.get(outcome as usize)).copied().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters([[AtomicU64; OUTCOMES]; KINDS]);

impl Counters {
    pub(super) fn count(&self, kind: ProfileKind, outcome: PushOutcome) {
        if let Some(count) = self.0.get(kind as usize).and_then(|counts| counts.get(outcome as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn now(&self) -> ProfileCounts {
        ProfileCounts(self.0.each_ref().map(|counts| counts.each_ref().map(|count| count.load(Ordering::Relaxed))))
    }
}
