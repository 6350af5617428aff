//! Surveys of the shards. Concurrent readers share one, so that the shards are asked once, however many ask and give up.

use std::{sync::Arc, time::Duration};

use dunlin_engine::ShardIndex;
use tokio::{sync::Mutex, time::Instant};

use crate::node::{Node, NodeSurvey};

/// Cached reports of the shards.
pub struct SharedShardReports {
    node: Node,
    reports: Shared<NodeSurvey>,
    silent: Shared<Vec<ShardIndex>>,
}

/// The last answer to a question whose readers share it.
struct Shared<A> {
    age_max: Duration,
    last: Mutex<Option<Taken<A>>>,
}

/// An answer.
struct Taken<A> {
    asked: Instant,
    answered: Instant,
    answer: Arc<A>,
}

impl SharedShardReports {
    /// Surveys of `node`; cached reports are used up to this age.
    pub fn new(node: Node, age_max: Duration) -> Self {
        Self { node, reports: Shared::new(age_max), silent: Shared::new(Duration::ZERO) }
    }

    /// The node of the surveys.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The reports of all shards. Callers that arrive during a survey wait for its result, so none waits for two.
    pub async fn latest(&self) -> Arc<NodeSurvey> {
        self.reports.latest(|| self.node.survey()).await
    }

    /// The shards that do not react now. Callers that arrive during such a question wait for its result as well.
    pub async fn silent_shards(&self) -> Arc<Vec<ShardIndex>> {
        self.silent.latest(|| self.node.silent_shards()).await
    }
}

impl<A> Shared<A> {
    fn new(age_max: Duration) -> Self {
        Self { age_max, last: Mutex::new(None) }
    }

    async fn latest<F: Future<Output = A>>(&self, ask: impl FnOnce() -> F) -> Arc<A> {
        let arrived = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(taken) = last.as_ref().filter(|taken| taken.serves(arrived, self.age_max)) {
            return Arc::clone(&taken.answer);
        }
        let asked = Instant::now();
        let answer = Arc::new(ask().await);
        *last = Some(Taken { asked, answered: Instant::now(), answer: Arc::clone(&answer) });
        answer
    }
}

impl<A> Taken<A> {
    /// Whether a caller that has arrived then takes this answer.
    fn serves(&self, arrived: Instant, age_max: Duration) -> bool {
        self.answered >= arrived || self.asked.elapsed() < age_max
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_waited_for_a_survey_takes_it() {
        let start = Instant::now();
        let late = start + Duration::from_millis(1_500);
        tokio::time::advance(Duration::from_secs(2)).await;
        let taken = Taken { asked: start, answered: late, answer: Arc::new(()) };
        let serves = |arrived| taken.serves(arrived, Duration::from_secs(1));
        assert!(serves(start) && serves(late), "it came during the survey");
        assert!(!serves(late + Duration::from_millis(1)));
        assert!(taken.serves(late + Duration::from_millis(1), Duration::from_secs(3)), "it is young");
    }

    #[tokio::test(start_paused = true)]
    async fn callers_at_the_same_time_ask_once() {
        let (shared, asked) = (Shared::new(Duration::ZERO), AtomicU32::new(0));
        let ask = || async {
            tokio::time::sleep(Duration::from_millis(750)).await;
            asked.fetch_add(1, Ordering::Relaxed)
        };
        let (one, two, three) = tokio::join!(shared.latest(ask), shared.latest(ask), shared.latest(ask));
        assert_eq!((*one, *two, *three), (0, 0, 0));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(*shared.latest(ask).await, 1, "an answer of before is not used");
    }
}
