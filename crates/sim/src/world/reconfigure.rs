//! New options for the running node: namespaces are added and removed, histories become shorter. Each shard receives
//! them at a different time, and users of other namespaces must not notice.

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

/// Names of namespaces that nobody uses.
const LATE_NAMES: usize = 6;

impl NodeWorld {
    /// An operator changes the configuration.
    pub(super) fn reconfigure(&mut self) -> Result<(), String> {
        let mut wanted = (*self.plan.options).clone();
        for _ in 0..self.chance.below(4) {
            let name = format!("late{}", self.chance.below(LATE_NAMES));
            if wanted.namespaces.iter().all(|known| known.name != name) {
                wanted.namespaces.push(NamespaceOptions { name, presence: true, ..NamespaceOptions::default() });
            }
        }
        // Those that are used stay in place, whatever their order here.
        if self.chance.percent(50) {
            wanted.namespaces.reverse();
        }
        for namespace in &mut wanted.namespaces {
            if namespace.history_size > 1 && namespace.room.is_none() && self.chance.percent(30) {
                namespace.history_size = self.chance.between(1, namespace.history_size as u64) as usize;
                self.model.shorten(&namespace.name, namespace.history_size);
            }
        }
        let (next, held) = self.running.succeeded_by(&wanted);
        if !held.is_empty() {
            return Err(format!("{held:?} are held back"));
        }
        self.running = Arc::new(next);
        for place in &mut self.places {
            place.reconfigurations.push_back(Arc::clone(&self.running));
        }
        self.model.count("reconfigured");
        self.try_late_namespace()
    }

    /// A namespace is known to its owner, or it is not; nothing else.
    fn try_late_namespace(&mut self) -> Result<(), String> {
        let channel = format!("late{}:a", self.chance.below(LATE_NAMES));
        let (data, how) = (Payload::from_json(Bytes::from_static(b"1")), PublishHow::default());
        let request = ApiRequest::Publish { channel: channel.as_str().into(), data, how };
        match self.ask(self.owner(&channel), request)? {
            Ok(ApiAnswer::Published { offset: 0, .. }) | Err(ErrorCode::UnknownChannel) => Ok(()),
            other => Err(format!("{other:?} answers a publication in {channel}")),
        }
    }

    /// Some shards hear of new options, each of all of them in their order.
    pub(super) fn reconfigure_some(&mut self) -> Result<(), String> {
        for shard in 0..self.places.len() {
            if !self.places[shard].reconfigurations.is_empty() && self.chance.percent(20) {
                self.reconfigure_next(shard)?;
            }
        }
        Ok(())
    }

    /// All shards hear of all.
    pub(super) fn reconfigure_all(&mut self) -> Result<(), String> {
        for shard in 0..self.places.len() {
            while !self.places[shard].reconfigurations.is_empty() {
                self.reconfigure_next(shard)?;
            }
        }
        Ok(())
    }

    fn reconfigure_next(&mut self, shard: usize) -> Result<(), String> {
        let Some(options) = self.places[shard].reconfigurations.pop_front() else { return Ok(()) };
        self.handle(shard, Event::Reconfigured { options }).map(|_| ())
    }
}
