//! Surveys of the shards. Concurrent readers share one survey.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use crate::node::{Node, NodeSurvey};

/// Cached reports of the shards.
pub struct Surveys {
    node: Node,
    age_max: Duration,
    last: Mutex<Option<(Instant, Arc<NodeSurvey>)>>,
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

    /// The reports of all shards. Callers that arrive during a survey wait for its result.
    pub async fn latest(&self) -> Arc<NodeSurvey> {
        let mut last = self.last.lock().await;
        if let Some((asked, survey)) = &*last
            && asked.elapsed() < self.age_max
        {
            return Arc::clone(survey);
        }
        let asked = Instant::now();
        let survey = Arc::new(self.node.survey().await);
        *last = Some((asked, Arc::clone(&survey)));
        survey
    }
}
