//! Publications of operators: each is published once, and only if its version is newer.

use bytes::Bytes;
use dunlin_engine::{
    api::{ApiAnswer, ApiRequest, ApiResult},
    backend::PublishHow,
};
use dunlin_protocol::{ErrorCode, Payload};

use crate::{
    checks::lane_key,
    model::{Fate, Publisher},
    plan::{KEY_TAG, KIND_TAG, KINDS, NUMBER_TAG, NUMBERS},
    wire::PublicationBody,
};

use super::NodeWorld;

/// What keeps a publication from being published twice, or too late.
#[derive(Debug, Default)]
struct Once {
    key: Option<&'static str>,
    version: u64,
    version_epoch: &'static str,
}

impl NodeWorld {
    /// Publishes one more into `channel`.
    pub(super) fn publish(&mut self, channel: &str) -> Result<(), String> {
        self.publish_once(channel, &Once::default())
    }

    /// The same, now and then as somebody does who tries again, or whose data has versions.
    pub(super) fn publish_somehow(&mut self, channel: &str) -> Result<(), String> {
        let mut once = Once::default();
        if self.chance.percent(20) {
            once.key = *self.chance.pick(&[Some("k0"), Some("k1"), Some("k2"), Some("k3"), Some("k4")]);
        }
        if self.chance.percent(20) {
            once.version = self.chance.between(1, 8);
            once.version_epoch = *self.chance.pick(&["", "", "x", "y"]);
        }
        self.publish_once(channel, &once)
    }

    fn publish_once(&mut self, channel: &str, once: &Once) -> Result<(), String> {
        let fill = if self.chance.percent(10) { self.chance.between(100, 1_200) as usize } else { 20 };
        let opaque = self.plan.opaque_payloads && self.chance.percent(5);
        let number = self.model.begin(channel, Publisher::Api, fill, opaque);
        let skip_history = self.chance.percent(5);
        let tags = self.tags(channel);
        let published = &mut self.model.published[number as usize];
        published.has_offset &= !skip_history;
        published.version = (once.version, once.version_epoch);
        published.tags.extend(tags.iter().map(|(tag, value)| ((*tag).to_owned(), (*value).to_owned())));
        let data = Bytes::from(published.data.clone());
        if opaque {
            self.deeds.opaque.push(channel.to_owned());
        }
        let data =
            if self.chance.percent(50) && !opaque { Payload::from_json(data) } else { Payload::from_opaque(data) };
        let request = ApiRequest::Publish {
            channel: channel.into(),
            data,
            how: PublishHow {
                tags: tags.iter().map(|(tag, value)| ((*tag).into(), (*value).into())).collect(),
                skip_history,
                idempotency_key: once.key.map(Box::from),
                delta: self.chance.percent(60),
                version: once.version,
                version_epoch: once.version_epoch.into(),
            },
        };
        let owner = self.owner(channel);
        let (encodes, closes) = self.encodes(owner);
        let before = self.suppressed(owner);
        let answer = self.ask(owner, request)?;
        let after = self.suppressed(owner);
        let suppressed = [after[0] - before[0], after[1] - before[1]];
        let (encodes, closes) = (self.encodes(owner).0 - encodes, self.encodes(owner).1 - closes);
        let wires = self.plan.clients.iter().map(|profile| profile.wire);
        let in_use = wires.collect::<std::collections::HashSet<_>>().len() as u64 * self.forms(channel);
        // Whoever is closed over it leaves channels, which others are told.
        if encodes > in_use && closes == 0 {
            return Err(format!("a publication was encoded {encodes} times"));
        }
        let was_published = self.model.channel_mut(channel).and_then(|facts| facts.result_of(once.key, self.now_us));
        match suppressed {
            [0, 0] if was_published.is_none() => self.on_published(channel, number, once.key, answer),
            [1, 0] => self.check_repeated(channel, number, was_published.as_ref(), answer),
            [0, 1] if was_published.is_none() => self.check_outdated(channel, number, answer),
            _ => Err(format!("{channel}: {once:?} is answered {answer:?}, {suppressed:?}; before: {was_published:?}")),
        }
    }

    /// A second publication with one key is answered as the first was, and nobody sees it.
    fn check_repeated(
        &mut self,
        channel: &str,
        number: u64,
        expected: Option<&(String, u64)>,
        answer: ApiResult,
    ) -> Result<(), String> {
        self.model.refuse_api(number);
        match answer {
            Ok(ApiAnswer::Published { offset, epoch }) if expected == Some(&(epoch.to_string(), offset)) => Ok(()),
            other => {
                Err(format!("{channel}: {other:?} instead of {expected:?} answers a publication with a known key"))
            }
        }
    }

    /// A publication is left out only behind one of a version that is not older.
    fn check_outdated(&mut self, channel: &str, number: u64, answer: ApiResult) -> Result<(), String> {
        self.model.refuse_api(number);
        let Ok(ApiAnswer::Published { offset, epoch }) = answer else {
            return Err(format!("{answer:?} answers a publication with a version"));
        };
        let version = self.model.published[number as usize].version;
        let newest = self.version_at(channel, &epoch, offset);
        if newest.is_none_or(|newest| is_newer(version, newest)) {
            return Err(format!("{channel}: version {version:?} is left out behind {newest:?}, at {offset}"));
        }
        self.saw_epoch(channel, &epoch)
    }

    /// The version of a publication of the API.
    fn version_at(&self, channel: &str, epoch: &str, offset: u64) -> Option<(u64, &'static str)> {
        let number = self.model.channel(channel)?.at(epoch, offset)?;
        Some(self.model.published[number as usize].version)
    }

    /// Publications that were answered and not published so far: for their keys, and for their versions.
    fn suppressed(&self, shard: usize) -> [u64; 2] {
        let namespaces = &self.places[shard].shard.counters().namespaces;
        [0, 1].map(|why| namespaces.iter().map(|counters| counters.suppressed[why]).sum())
    }

    /// In how many forms one encoding may be written: with the channel's name or number, and as it is, whole, or as a
    /// difference.
    fn forms(&self, channel: &str) -> u64 {
        let rules = self.model.channel(channel).and_then(|facts| facts.rules.as_ref());
        rules
            .map_or(1, |rules| (1 + u64::from(rules.allow_channel_compaction)) * (1 + 2 * u64::from(rules.allow_delta)))
    }

    /// Tags of a publication.
    fn tags(&mut self, channel: &str) -> Vec<(&'static str, &'static str)> {
        let mut tags = Vec::new();
        if channel.starts_with("tick") && self.chance.percent(80) {
            tags.push((KEY_TAG, *self.chance.pick(&["x", "y", "z", "z"])));
        }
        if self.chance.percent(60) {
            tags.push((KIND_TAG, *self.chance.pick(&KINDS)));
        }
        if self.chance.percent(40) {
            tags.push((NUMBER_TAG, *self.chance.pick(&NUMBERS)));
        }
        tags
    }

    /// Encodes and closes of a shard so far.
    fn encodes(&self, shard: usize) -> (u64, u64) {
        let counters = self.places[shard].shard.counters();
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
            Err(ErrorCode::LimitExceeded) if self.channels_are_few() => {
                self.model.refuse_api(number);
                return Ok(());
            }
            other => return Err(format!("{other:?} answers a publish")),
        };
        self.model.published[number as usize].fate = Fate::Accepted;
        let newest = self.version_at(channel, &epoch, offset.saturating_sub(1));
        if published.version.0 > 0 && newest.is_some_and(|newest| !is_newer(published.version, newest)) {
            return Err(format!("{channel}: version {:?} comes behind {newest:?}, at {offset}", published.version));
        }
        let (now_us, results_max) = (self.now_us, self.plan.options.channel.idempotent_results_max);
        let facts = self.model.channel_mut(channel).ok_or("an unknown channel")?;
        facts.api_count = published.count;
        facts.of_api.push(number);
        if let Some(key) = key {
            facts.remember_result(key, (epoch.to_string(), offset), now_us, results_max);
        }
        let slot = lane_key(facts, published.key());
        facts.by_key.entry(slot).or_default().push(published.count);
        if facts.tops.get(&*epoch).is_some_and(|&top| offset > 0 && offset <= top) {
            return Err(format!("{channel}: offset {offset} is given out again"));
        }
        let seen = PublicationBody {
            data: published.data,
            offset,
            time: self.unix_ms().cast_signed(),
            epoch: if offset == 1 { epoch.to_string() } else { String::new() },
            ..PublicationBody::default()
        };
        self.model.recognise(channel, &seen, Some(&epoch))?;
        if offset > 0 { self.saw_epoch(channel, &epoch) } else { Ok(()) }
    }
}

/// Whether a version may follow the newest one; each with the epoch in which it counts.
fn is_newer((version, epoch): (u64, &str), (newest, newest_epoch): (u64, &str)) -> bool {
    version > newest || !epoch.is_empty() && epoch != newest_epoch
}
