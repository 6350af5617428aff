//! Closes the sessions of a node in steps at shutdown, so that the nodes that take them over are not overloaded.

use std::time::Duration;

use dunlin_engine::Event;
use tokio::sync::oneshot;

/// The rate at which sessions are closed, and the deadline.
#[derive(Clone, Copy, Debug)]
pub struct DrainPlan {
    /// Maximum duration of the drain. Remaining sessions are then closed at once.
    pub timeout: Duration,
    /// Sessions closed per second and node; 0 for the rate that closes all within half of the timeout.
    pub sessions_per_second: u32,
}

/// Whether a shard accepts connections, or closes its sessions.
#[derive(Debug)]
pub(super) enum Life {
    Open,
    /// No connection is accepted; `gone` is notified when no session is left.
    Draining {
        gone: Option<oneshot::Sender<()>>,
        /// `None` after the last stage has begun.
        stages: Option<Stages>,
    },
}

impl Life {
    /// Begins a drain. `sessions`: of the shard and of the node.
    pub(super) fn begin_drain(plan: DrainPlan, gone: oneshot::Sender<()>, sessions: [u32; 2], now_us: u64) -> Self {
        let [of_shard, of_node] = sessions;
        Self::Draining { gone: Some(gone), stages: Some(Stages::begin(plan, of_shard, of_node, now_us)) }
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// The time of the next action.
    pub(super) fn next_us(&self) -> Option<u64> {
        match self {
            Self::Draining { stages: Some(stages), .. } => Some(stages.next_us()),
            Self::Open | Self::Draining { stages: None, .. } => None,
        }
    }

    /// The event that closes the sessions of the current step.
    pub(super) fn drain_on(&mut self, now_us: u64) -> Option<Event<'static>> {
        let Self::Draining { stages, .. } = self else { return None };
        match stages.as_mut()?.step(now_us) {
            Step::Wait => None,
            Step::Some(sessions_max) => Some(Event::DrainSome { sessions_max }),
            Step::All => {
                *stages = None;
                Some(Event::Drain)
            }
        }
    }

    /// Must be called when no session is left.
    pub(super) fn report_drained(&mut self) {
        if let Self::Draining { gone, .. } = self
            && let Some(gone) = gone.take()
        {
            // An error means that the deadline has passed and nothing waits.
            let _ = gone.send(());
        }
    }
}

/// Time between two steps.
const STEP_US: u64 = 50_000;

/// Minimum of the computed rate, so that a few sessions are closed quickly.
const RATE_MIN: u64 = 200;

/// A shard's part of the plan: its share of the sessions in each step.
#[derive(Debug)]
pub(super) struct Stages {
    began_us: u64,
    /// When all remaining sessions are closed: a quarter of the timeout is left for their last frames.
    last_us: u64,
    next_us: u64,
    per_second: u64,
    /// Number of sessions of this shard and of the node at the begin.
    sessions: (u64, u64),
    closes_requested: u64,
}

/// The next action of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing to do yet.
    Wait,
    /// Close this number of sessions.
    Some(usize),
    /// Close all sessions.
    All,
}

impl Stages {
    /// The stages of a shard with `sessions` of the node's `node_sessions`.
    fn begin(plan: DrainPlan, sessions: u32, node_sessions: u32, now_us: u64) -> Self {
        let timeout_us = u64::try_from(plan.timeout.as_micros()).unwrap_or(u64::MAX).max(4);
        let node_sessions = u64::from(node_sessions.max(sessions).max(1));
        let per_second = match plan.sessions_per_second {
            0 => (node_sessions * 1_000_000).div_ceil(timeout_us / 2).max(RATE_MIN),
            per_second => per_second.into(),
        };
        Self {
            began_us: now_us,
            last_us: now_us.saturating_add(timeout_us - timeout_us / 4),
            next_us: now_us,
            per_second,
            sessions: (sessions.into(), node_sessions),
            closes_requested: 0,
        }
    }

    /// The time of the next action.
    fn next_us(&self) -> u64 {
        self.next_us.min(self.last_us)
    }

    fn step(&mut self, now_us: u64) -> Step {
        if now_us >= self.last_us {
            return Step::All;
        }
        if now_us < self.next_us {
            return Step::Wait;
        }
        self.next_us = now_us + STEP_US;
        // Includes this step. The type is wide enough for any number of sessions and any time.
        let (of_shard, of_node) = self.sessions;
        let elapsed_us = u128::from(now_us - self.began_us + STEP_US);
        let due =
            (elapsed_us * u128::from(self.per_second) * u128::from(of_shard)).div_ceil(u128::from(of_node) * 1_000_000);
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        let more = due.saturating_sub(self.closes_requested);
        self.closes_requested = self.closes_requested.max(due);
        if more == 0 { Step::Wait } else { Step::Some(usize::try_from(more).unwrap_or(usize::MAX)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(timeout_s: u64, sessions_per_second: u32) -> DrainPlan {
        DrainPlan { timeout: Duration::from_secs(timeout_s), sessions_per_second }
    }

    #[test]
    fn few_sessions_close_at_once_and_many_within_half_of_the_timeout() {
        assert_eq!(Stages::begin(plan(30, 0), 1, 1, 7).step(7), Step::Some(10));
        let mut stages = Stages::begin(plan(30, 0), 15_000, 30_000, 0);
        let closes = (0..=15_000_000).step_by(50_000).map(|now_us| match stages.step(now_us) {
            Step::Some(sessions) => sessions,
            other => panic!("{other:?} at {now_us}"),
        });
        let by_step: Vec<usize> = closes.collect();
        assert!(by_step.iter().all(|sessions| (1..=51).contains(sessions)), "{by_step:?}");
        assert!((15_000..=15_100).contains(&by_step.iter().sum::<usize>()));
    }

    #[test]
    fn remaining_sessions_close_after_three_quarters_of_the_timeout() {
        let mut stages = Stages::begin(plan(20, 1), 1_000, 1_000, 5);
        assert_eq!(stages.step(5), Step::Some(1));
        assert_eq!((stages.step(6), stages.next_us()), (Step::Wait, 50_005));
        assert_eq!(stages.step(15_000_004), Step::Some(15));
        assert_eq!(stages.next_us(), 15_000_005);
        assert_eq!(stages.step(15_000_005), Step::All);
    }

    proptest! {
        #[test]
        fn closes_never_exceed_the_drain_rate(
            per_second in 1_u32..5_000,
            shards in prop::collection::vec(0_u32..4_000, 1..5),
            pauses_us in prop::collection::vec(0_u64..200_000, 1..80),
        ) {
            let all: u32 = shards.iter().sum();
            let begin = |sessions: &u32| Stages::begin(plan(3_600, per_second), *sessions, all, 0);
            let mut stages: Vec<Stages> = shards.iter().map(begin).collect();
            let (mut now_us, mut closes) = (0, 0);
            for pause_us in pauses_us {
                now_us += pause_us;
                for shard in &mut stages {
                    if let Step::Some(sessions) = shard.step(now_us) {
                        closes += sessions as u64;
                    }
                }
                // Each shard rounds up, so it may close one more session.
                let most = (now_us + STEP_US) * u64::from(per_second) / 1_000_000 + shards.len() as u64;
                prop_assert!(closes <= most, "{closes} of {most} at {now_us}");
            }
        }
    }
}
