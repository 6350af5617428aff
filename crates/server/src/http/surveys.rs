//! What the shards report, asked for once for all who want to know it at about the same time.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use crate::node::{Node, ShardReport};

/// The last reports.
pub struct Surveys {
    node: Node,
    age_max: Duration,
    last: Mutex<Option<(Instant, Arc<[ShardReport]>)>>,
}

impl Surveys {
    /// Reports of `node` that are at most so old.
    pub fn new(node: Node, age_max: Duration) -> Self {
        Self { node, age_max, last: Mutex::new(None) }
    }

    /// The node that is asked.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// What every shard counts. Who comes while the shards are being asked waits for the same answer.
    pub async fn reports(&self) -> Arc<[ShardReport]> {
        let mut last = self.last.lock().await;
        if let Some((asked, reports)) = &*last
            && asked.elapsed() < self.age_max
        {
            return Arc::clone(reports);
        }
        let asked = Instant::now();
        let reports: Arc<[ShardReport]> = self.node.report().await.into();
        *last = Some((asked, Arc::clone(&reports)));
        reports
    }
}
