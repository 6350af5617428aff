//! Surveys of the shards. Concurrent readers share one survey.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use crate::node::{Node, NodeSurvey};

/// Cached reports of the shards.
pub struct Surveys {
    node: Node,
    age_max: Duration,
    last: Mutex<Option<Taken>>,
}

/// The last survey.
struct Taken {
    asked: Instant,
    answered: Instant,
    survey: Arc<NodeSurvey>,
}

impl Surveys {
    /// Surveys of `node`; cached reports are used up to this age.
    pub fn new(node: Node, age_max: Duration) -> Self {
        Self { node, age_max, last: Mutex::new(None) }
    }

    /// The node of the surveys.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The reports of all shards. Callers that arrive during a survey wait for its result, so none waits for two.
    pub async fn latest(&self) -> Arc<NodeSurvey> {
        let arrived = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(taken) = last.as_ref().filter(|taken| taken.serves(arrived, self.age_max)) {
            return Arc::clone(&taken.survey);
        }
        let asked = Instant::now();
        let survey = Arc::new(self.node.survey().await);
        *last = Some(Taken { asked, answered: Instant::now(), survey: Arc::clone(&survey) });
        survey
    }
}

impl Taken {
    /// Whether a caller that has arrived then takes this survey.
    fn serves(&self, arrived: Instant, age_max: Duration) -> bool {
        self.answered >= arrived || self.asked.elapsed() < age_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_waited_for_a_survey_takes_it() {
        let start = Instant::now();
        let late = start + Duration::from_millis(1_500);
        tokio::time::advance(Duration::from_secs(2)).await;
        let taken = Taken { asked: start, answered: late, survey: Arc::default() };
        let serves = |arrived| taken.serves(arrived, Duration::from_secs(1));
        assert!(serves(start) && serves(late), "it came during the survey");
        assert!(!serves(late + Duration::from_millis(1)));
        assert!(taken.serves(late + Duration::from_millis(1), Duration::from_secs(3)), "it is young");
    }
}
