//! Publications of operators. Each is published once, and only if its version is newer than the last one.

use bytes::Bytes;
use dunlin_engine::{
    Refused,
    api::{ApiAnswer, ApiRequest, ApiResult},
    backend::PublishHow,
};
use dunlin_protocol::{ErrorCode, Payload};

use crate::{
    checks::lane_key,
    model::{Outcome, Publisher},
    plan::{KEY_TAG, KIND_TAG, KINDS, NUMBER_TAG, NUMBERS},
    wire::PublicationBody,
};

use super::NodeWorld;

/// The idempotency key and the version of a publication.
#[derive(Debug, Default)]
struct Once {
    key: Option<&'static str>,
    version: u64,
    version_epoch: &'static str,
}

impl NodeWorld {
    /// Publishes to `channel` without an idempotency key or a version.
    pub(super) fn publish(&mut self, channel: &str) -> Result<(), String> {
        self.publish_once(channel, &Once::default())
    }

    /// Publishes to `channel`, sometimes with an idempotency key or a version.
    pub(super) fn publish_with_options(&mut self, channel: &str) -> Result<(), String> {
        let mut once = Once::default();
        if self.harness.chance.percent(20) {
            once.key = *self.harness.chance.pick(&[Some("k0"), Some("k1"), Some("k2"), Some("k3"), Some("k4")]);
        }
        if self.harness.chance.percent(20) {
            once.version = self.harness.chance.between(1, 8);
            once.version_epoch = *self.harness.chance.pick(&["", "", "x", "y"]);
        }
        self.publish_once(channel, &once)
    }

    fn publish_once(&mut self, channel: &str, once: &Once) -> Result<(), String> {
        let fill = if self.harness.chance.percent(10) { self.harness.chance.between(100, 1_200) as usize } else { 20 };
        let opaque = self.plan.opaque_payloads && self.harness.chance.percent(5);
        let number = self.model.begin_publication(channel, Publisher::Api, fill, opaque);
        let skip_history = self.harness.chance.percent(5);
        let tags = self.tags(channel);
        let published = &mut self.model.published[number as usize];
        published.has_offset &= !skip_history;
        published.version = (once.version, once.version_epoch);
        published.tags.extend(tags.iter().map(|(tag, value)| ((*tag).to_owned(), (*value).to_owned())));
        let data = Bytes::from(published.data.clone());
        if opaque {
            self.actions.opaque.push(channel.to_owned());
        }
        let data = if self.harness.chance.percent(50) && !opaque {
            Payload::from_json(data)
        } else {
            Payload::from_opaque(data)
        };
        let request = ApiRequest::Publish {
            channel: channel.into(),
            data,
            how: PublishHow {
                tags: tags.iter().map(|(tag, value)| ((*tag).into(), (*value).into())).collect(),
                skip_history,
                idempotency_key: once.key.map(Box::from),
                delta: self.harness.chance.percent(60),
                version: once.version,
                version_epoch: once.version_epoch.into(),
            },
        };
        let owner = self.node.owner(channel);
        let (encodes, closes) = self.encodes(owner);
        let before = self.suppressed(owner);
        let answer = self.call_api(owner, request)?;
        let after = self.suppressed(owner);
        let suppressed = [after[0] - before[0], after[1] - before[1]];
        let (encodes, closes) = (self.encodes(owner).0 - encodes, self.encodes(owner).1 - closes);
        let wires = self.plan.clients.iter().map(|profile| profile.wire);
        let in_use = wires.collect::<std::collections::HashSet<_>>().len() as u64 * self.forms(channel);
        // If the publication closes a slow session, its leave messages are encoded too.
        if encodes > in_use && closes == 0 {
            return Err(format!("a publication was encoded {encodes} times"));
        }
        let was_published =
            self.model.channel_mut(channel).and_then(|facts| facts.result_of(once.key, self.harness.now_us));
        match suppressed {
            [0, 0] if was_published.is_none() => self.on_published(channel, number, once.key, answer),
            [1, 0] => self.check_repeated(channel, number, was_published.as_ref(), answer),
            [0, 1] if was_published.is_none() => self.check_outdated(channel, number, answer),
            _ => Err(format!(
                "{channel}: {once:?} gets {answer:?}, suppressed {suppressed:?}, published before: {was_published:?}"
            )),
        }
    }

    /// Checks a publication with a known idempotency key: it gets the reply of the first one and is not delivered.
    fn check_repeated(
        &mut self,
        channel: &str,
        number: u64,
        expected: Option<&(String, u64)>,
        answer: ApiResult,
    ) -> Result<(), String> {
        self.model.reject_api(number);
        match answer {
            Ok(ApiAnswer::Published { offset, epoch }) if expected == Some(&(epoch.to_string(), offset)) => Ok(()),
            other => Err(format!("{channel}: a publication with a known key gets {other:?} instead of {expected:?}")),
        }
    }

    /// Checks that a publication was suppressed because the last one does not have an older version.
    fn check_outdated(&mut self, channel: &str, number: u64, answer: ApiResult) -> Result<(), String> {
        self.model.reject_api(number);
        let Ok(ApiAnswer::Published { offset, epoch }) = answer else {
            return Err(format!("unexpected reply to a publication with a version: {answer:?}"));
        };
        let version = self.model.published[number as usize].version;
        let newest = self.version_at(channel, &epoch, offset);
        if newest.is_none_or(|newest| is_newer(version, newest)) {
            return Err(format!("{channel}: version {version:?} is suppressed after {newest:?}, at {offset}"));
        }
        self.record_epoch(channel, &epoch)
    }

    /// The version of the publication at a position.
    fn version_at(&self, channel: &str, epoch: &str, offset: u64) -> Option<(u64, &'static str)> {
        let number = self.model.channel(channel)?.at(epoch, offset)?;
        Some(self.model.published[number as usize].version)
    }

    /// The counters of publications that were suppressed by idempotency key and by version.
    fn suppressed(&self, shard: usize) -> [u64; 2] {
        let namespaces = &self.node.threads[shard].shard.counters().namespaces;
        [0, 1].map(|why| namespaces.iter().map(|counters| counters.suppressed[why]).sum())
    }

    /// The number of forms that one encoding may have: with the channel's name or number, and plain, as the full data
    /// of a delta subscription, or as a delta.
    fn forms(&self, channel: &str) -> u64 {
        let rules = self.model.channel(channel).and_then(|facts| facts.rules.as_ref());
        rules
            .map_or(1, |rules| (1 + u64::from(rules.allow_channel_compaction)) * (1 + 2 * u64::from(rules.allow_delta)))
    }

    fn tags(&mut self, channel: &str) -> Vec<(&'static str, &'static str)> {
        let mut tags = Vec::new();
        if channel.starts_with("tick") && self.harness.chance.percent(80) {
            tags.push((KEY_TAG, *self.harness.chance.pick(&["x", "y", "z", "z"])));
        }
        if self.harness.chance.percent(60) {
            tags.push((KIND_TAG, *self.harness.chance.pick(&KINDS)));
        }
        if self.harness.chance.percent(40) {
            tags.push((NUMBER_TAG, *self.harness.chance.pick(&NUMBERS)));
        }
        tags
    }

    /// The counters of encodes and closes of a shard.
    fn encodes(&self, shard: usize) -> (u64, u64) {
        let counters = self.node.threads[shard].shard.counters();
        let encodes = counters.namespaces.iter().map(|counters| counters.encodes).sum();
        (encodes, counters.closes.iter().sum())
    }

    fn on_published(
        &mut self,
        channel: &str,
        number: u64,
        key: Option<&'static str>,
        answer: ApiResult,
    ) -> Result<(), String> {
        let published = self.model.published[number as usize].clone();
        let (offset, epoch) = match answer {
            Ok(ApiAnswer::Published { offset, epoch }) => (offset, epoch),
            Err(Refused { code: ErrorCode::LimitExceeded, .. }) if self.channels_are_few() => {
                self.model.reject_api(number);
                return Ok(());
            }
            other => return Err(format!("unexpected reply to a publish: {other:?}")),
        };
        self.model.published[number as usize].outcome = Outcome::Accepted;
        let newest = self.version_at(channel, &epoch, offset.saturating_sub(1));
        if published.version.0 > 0 && newest.is_some_and(|newest| !is_newer(published.version, newest)) {
            return Err(format!("{channel}: version {:?} follows {newest:?}, at {offset}", published.version));
        }
        let (now_us, results_max) = (self.harness.now_us, self.plan.options.channel.idempotent_results_max);
        let facts = self.model.channel_mut(channel).ok_or("an unknown channel")?;
        facts.api_count = published.count;
        facts.of_api.push(number);
        if let Some(key) = key {
            facts.remember_result(key, (epoch.to_string(), offset), now_us, results_max);
        }
        let slot = lane_key(facts, published.key());
        facts.by_key.entry(slot).or_default().push(published.count);
        if facts.tops.get(&*epoch).is_some_and(|&top| offset > 0 && offset <= top) {
            return Err(format!("{channel}: offset {offset} is assigned again"));
        }
        let seen = PublicationBody {
            data: published.data,
            offset,
            time: self.harness.unix_ms().cast_signed(),
            epoch: if offset == 1 { epoch.to_string() } else { String::new() },
            version: published.version.0,
            ..PublicationBody::default()
        };
        self.model.identify(channel, &seen, Some(&epoch))?;
        if offset > 0 { self.record_epoch(channel, &epoch) } else { Ok(()) }
    }
}

/// Whether a version may follow the newest one. Each version has a version epoch.
fn is_newer((version, epoch): (u64, &str), (newest, newest_epoch): (u64, &str)) -> bool {
    version > newest || !epoch.is_empty() && epoch != newest_epoch
}
