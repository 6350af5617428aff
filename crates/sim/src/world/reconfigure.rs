//! Reconfigures the running node: adds and removes namespaces, and shortens histories. Each shard gets the new options
//! at a different time. Other namespaces must not be affected.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_engine::{
    Event,
    api::{ApiAnswer, ApiRequest},
    backend::PublishHow,
    options::NamespaceOptions,
};
use dunlin_protocol::{ErrorCode, Payload};

use super::NodeWorld;

/// Number of namespaces that are added and removed. Clients do not use them.
const LATE_NAMES: usize = 6;

impl NodeWorld {
    /// Sends new options to all shards.
    pub(super) fn reconfigure(&mut self) -> Result<(), String> {
        let mut options = (*self.plan.options).clone();
        for _ in 0..self.harness.chance.below(4) {
            let name = format!("late{}", self.harness.chance.below(LATE_NAMES));
            if options.namespaces.iter().all(|known| known.name != name) {
                options.namespaces.push(NamespaceOptions { name, presence: true, ..NamespaceOptions::default() });
            }
        }
        // The order must not matter for the namespaces in use.
        if self.harness.chance.percent(50) {
            options.namespaces.reverse();
        }
        for namespace in &mut options.namespaces {
            if namespace.history_size > 1 && namespace.room.is_none() && self.harness.chance.percent(30) {
                namespace.history_size = self.harness.chance.between(1, namespace.history_size as u64) as usize;
                self.model.limit_history(&namespace.name, namespace.history_size);
            }
        }
        let (next, rejected) = self.running.succeeded_by(&options);
        if !rejected.is_empty() {
            return Err(format!("the changes {rejected:?} were not applied"));
        }
        self.running = Arc::new(next);
        for sockets in &mut self.sockets {
            sockets.reconfigurations.push_back(Arc::clone(&self.running));
        }
        self.model.count("reconfigured");
        self.try_late_namespace()
    }

    /// Publishes to a namespace that may or may not exist. The owner accepts the publication or rejects the channel.
    fn try_late_namespace(&mut self) -> Result<(), String> {
        let channel = format!("late{}:a", self.harness.chance.below(LATE_NAMES));
        let (data, how) = (Payload::from_json(Bytes::from_static(b"1")), PublishHow::default());
        let request = ApiRequest::Publish { channel: channel.as_str().into(), data, how };
        match self.call_api(self.node.owner(&channel), request)? {
            Ok(ApiAnswer::Published { offset: 0, .. }) | Err(ErrorCode::UnknownChannel) => Ok(()),
            other => Err(format!("unexpected reply to a publication in {channel}: {other:?}")),
        }
    }

    /// Delivers the next options to some shards. Each shard gets all options in order.
    pub(super) fn reconfigure_some(&mut self) -> Result<(), String> {
        for shard in 0..self.node.threads.len() {
            if !self.sockets[shard].reconfigurations.is_empty() && self.harness.chance.percent(20) {
                self.reconfigure_next(shard)?;
            }
        }
        Ok(())
    }

    /// Delivers all options to all shards.
    pub(super) fn reconfigure_all(&mut self) -> Result<(), String> {
        for shard in 0..self.node.threads.len() {
            while !self.sockets[shard].reconfigurations.is_empty() {
                self.reconfigure_next(shard)?;
            }
        }
        Ok(())
    }

    fn reconfigure_next(&mut self, shard: usize) -> Result<(), String> {
        let Some(options) = self.sockets[shard].reconfigurations.pop_front() else { return Ok(()) };
        self.handle(shard, Event::Reconfigured { options }).map(|_| ())
    }
}
