//! The reference model: the expected state, derived from what clients and operators observed. It shares no code with
//! the engine.

use std::collections::{BTreeMap, VecDeque};

use dunlin_engine::{
    Options,
    options::{Lane, NamespaceOptions},
};

use crate::{
    plan::KEY_TAG,
    rooms::SharedRoomModel,
    wire::{Filter, PublicationBody},
};

/// Maximum bytes of a publication in a reply, without its payload.
const ENVELOPE_BYTES_MAX: usize = 400;

/// How long an idempotency key is valid.
const RESULT_TTL_US: u64 = 300_000_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Publisher {
    /// The server API.
    Api,
    /// The session with this id.
    Session(String),
}

/// The outcome of a publish or an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not known. It may stay unknown.
    Unknown,
    /// Acknowledged.
    Accepted,
    /// Rejected with an error.
    Rejected,
}

/// A publication that was sent.
#[derive(Clone, Debug)]
pub struct Published {
    pub channel: String,
    pub publisher: Publisher,
    /// The publisher's publications in this channel up to this one, counted from 1.
    pub count: u64,
    /// The exact payload.
    pub data: Vec<u8>,
    /// Its version and version epoch. Version 0 means none.
    pub version: (u64, &'static str),
    pub tags: BTreeMap<String, String>,
    /// Whether it gets an offset.
    pub has_offset: bool,
    pub outcome: Outcome,
    /// When the server accepted it, in Unix milliseconds, or 0 if nobody has received it yet.
    pub accepted_ms: u64,
    /// Its epoch and offset, once a client or an operator has seen them.
    pub position: Option<(String, u64)>,
}

impl Published {
    /// The value of the tag that is the key in the latest lane.
    pub fn key(&self) -> Option<&String> {
        self.tags.get(KEY_TAG)
    }

    pub fn passes(&self, filter: Option<&Filter>) -> bool {
        filter.is_none_or(|filter| filter.passes(&self.tags))
    }
}

/// A channel as clients and operators see it.
#[derive(Debug, Default)]
pub struct ChannelFacts {
    pub name: String,
    /// Options of its namespace, or `None` if it has none.
    pub rules: Option<NamespaceOptions>,
    /// Whether the node may reach its limit of channels and evict this one while it has no subscribers.
    pub may_be_evicted: bool,
    /// Number of accepted API publications.
    pub api_count: u64,
    /// The numbers of the accepted API publications, in order.
    pub of_api: Vec<u64>,
    /// Counts of the API publications, by key.
    pub by_key: BTreeMap<Option<String>, Vec<u64>>,
    /// Number of API publications when an operator last removed the newest publications of all keys.
    pub keys_removed: u64,
    /// Publications by epoch and offset.
    by_position: BTreeMap<(String, u64), u64>,
    /// Valid idempotency keys, oldest first: the end of validity, the key, and the epoch and offset of the publication.
    results: VecDeque<(u64, &'static str, (String, u64))>,
    /// The epoch in the last reply of the API.
    pub epoch: Option<String>,
    /// Publications from this number on were sent after the API first returned that epoch.
    pub epoch_from: u64,
    /// When each epoch was last used. The actual time may be later.
    pub last_uses_us: BTreeMap<String, u64>,
    /// The epoch and the top offset when the history was last removed.
    pub removed: Option<(String, u64)>,
    /// The highest offset seen in each epoch.
    pub tops: BTreeMap<String, u64>,
}

impl ChannelFacts {
    pub fn lane(&self) -> Lane {
        self.rules.as_ref().map_or(Lane::Reliable, |rules| rules.delivery)
    }

    /// The publication at a position, if a client or an operator has seen it.
    pub fn at(&self, epoch: &str, offset: u64) -> Option<u64> {
        self.by_position.get(&(epoch.to_owned(), offset)).copied()
    }

    /// Whether the server must still have `epoch` at `now_us`.
    pub fn is_alive(&self, epoch: &str, now_us: u64) -> bool {
        if self.may_be_evicted {
            return false;
        }
        let ttl_us = self.rules.as_ref().map_or(0, |rules| rules.history_meta_ttl_ms * 1_000);
        self.last_uses_us.get(epoch).is_some_and(|used_us| used_us + ttl_us > now_us)
    }

    /// The epoch and offset of the publication with this idempotency key, if the key is valid at `now_us`.
    pub fn result_of(&mut self, key: Option<&str>, now_us: u64) -> Option<(String, u64)> {
        self.results.retain(|(until_us, ..)| *until_us > now_us);
        self.results.iter().find(|(_, of, _)| Some(*of) == key).map(|(.., position)| position.clone())
    }

    /// Remembers an idempotency key from now on. At most `results_max` keys are valid, and the oldest one is dropped.
    pub fn remember_result(&mut self, key: &'static str, position: (String, u64), now_us: u64, results_max: usize) {
        self.results.push_back((now_us + RESULT_TTL_US, key, position));
        while self.results.len() > results_max {
            self.results.pop_front();
        }
    }

    /// Records that the stream was used in `epoch` at `at_us` or later.
    pub fn record_use(&mut self, epoch: &str, at_us: u64) {
        let last_use_us = self.last_uses_us.entry(epoch.to_owned()).or_insert(0);
        *last_use_us = at_us.max(*last_use_us);
    }
}

/// The reference model of a node.
pub struct Model {
    /// Publications by number.
    pub published: Vec<Published>,
    pub rooms: SharedRoomModel,
    /// Whether subscriptions may have a pace.
    pub has_paces: bool,
    /// How often each labelled case occurred.
    pub reached: BTreeMap<&'static str, u64>,
    /// Channels by the numbers that replace their names on the wire.
    numbered: BTreeMap<u64, String>,
    channels: BTreeMap<String, ChannelFacts>,
    counts: BTreeMap<(String, Publisher), u64>,
}

impl Model {
    pub fn new(options: &Options, channels: impl Iterator<Item = String>) -> Self {
        let facts = |name: String| {
            let namespace = name.trim_start_matches('$').split_once(':').map_or("", |(namespace, _)| namespace);
            let all = options.namespaces.iter().chain([&options.without_namespace]);
            let rules = all.into_iter().find(|rules| rules.name == namespace).cloned();
            let may_be_evicted = options.channel.channels_max < 1_000;
            (name.clone(), ChannelFacts { name, rules, may_be_evicted, ..ChannelFacts::default() })
        };
        Self {
            has_paces: false,
            published: Vec::new(),
            rooms: SharedRoomModel::default(),
            reached: BTreeMap::new(),
            numbered: BTreeMap::new(),
            channels: channels.map(facts).collect(),
            counts: BTreeMap::new(),
        }
    }

    /// From now on, expects channels of the namespace to keep at most `size` publications. The limit never grows again.
    pub fn limit_history(&mut self, namespace: &str, size: usize) {
        let rules = self.channels.values_mut().filter_map(|facts| facts.rules.as_mut());
        for rules in rules.filter(|rules| rules.name == namespace) {
            rules.history_size = rules.history_size.min(size);
        }
    }

    /// Returns a channel of the plan.
    pub fn channel(&self, name: &str) -> Option<&ChannelFacts> {
        self.channels.get(name)
    }

    /// Returns a channel of the plan.
    pub fn channel_mut(&mut self, name: &str) -> Option<&mut ChannelFacts> {
        self.channels.get_mut(name)
    }

    /// An upper bound for the bytes that the known publications from offset `first` to `top` take in a reply.
    pub fn reply_bytes_at_most(&self, facts: &ChannelFacts, epoch: &str, first: u64, top: u64) -> usize {
        let known = (first..=top).filter_map(|offset| facts.at(epoch, offset));
        known.map(|number| self.published[number as usize].data.len() + ENVELOPE_BYTES_MAX).sum()
    }

    /// The number of newest publications up to offset `top` that the server must still keep at `now_ms`. They were not
    /// removed, and each was accepted before the previous one expired.
    pub fn retained(&self, facts: &ChannelFacts, epoch: &str, top: u64, now_ms: u64) -> u64 {
        let Some(rules) = facts.rules.as_ref().filter(|_| !facts.may_be_evicted) else { return 0 };
        let removed = facts.removed.as_ref().filter(|(of, _)| *of == epoch).map_or(0, |(_, top)| *top);
        let mut next_ms = now_ms;
        let (mut kept, mut offset) = (0, top);
        while offset > removed && kept < rules.history_size as u64 {
            let Some(number) = facts.at(epoch, offset) else { break };
            let accepted_ms = self.published[number as usize].accepted_ms;
            if accepted_ms + rules.history_ttl_ms <= next_ms {
                break;
            }
            (next_ms, kept, offset) = (accepted_ms, kept + 1, offset - 1);
        }
        kept
    }

    /// The number of API publications between the counts `low` and `high`, both excluded, that pass a filter.
    pub fn passing_between(&self, facts: &ChannelFacts, filter: Option<&Filter>, low: u64, high: u64) -> u64 {
        let between = facts.of_api.get(low as usize..(high as usize).saturating_sub(1)).unwrap_or_default();
        between.iter().filter(|&&number| self.published[number as usize].passes(filter)).count() as u64
    }

    /// Checks that a subscriber may receive offset `high` directly after `low`: no publication between them passes its
    /// filter.
    ///
    /// # Errors
    /// The first offset that passes the filter.
    pub fn may_skip(
        &self,
        facts: &ChannelFacts,
        filter: Option<&Filter>,
        epoch: &str,
        low: u64,
        high: u64,
    ) -> Result<(), u64> {
        // A publication without a known position was published by a client. Without an epoch, no offset can be
        // resolved.
        let may_be_other = || {
            let unseen = self.published.iter().filter(|published| published.position.is_none());
            let of_clients = unseen.filter(|published| published.publisher != Publisher::Api && published.has_offset);
            of_clients.filter(|published| published.channel == facts.name).any(|published| !published.passes(filter))
        };
        let is_for_it = |offset: &u64| match facts.at(epoch, *offset) {
            Some(number) => self.published[number as usize].passes(filter),
            None => filter.is_none() || !epoch.is_empty() && !may_be_other(),
        };
        (low + 1..high).find(is_for_it).map_or(Ok(()), Err)
    }

    /// Records that `number` replaces the name of `channel` on the wire.
    ///
    /// # Errors
    /// If the number belongs to another channel.
    pub fn assign_number(&mut self, number: u64, channel: &str) -> Result<(), String> {
        let earlier = self.numbered.insert(number, channel.to_owned()).filter(|earlier| earlier != channel);
        earlier.map_or(Ok(()), |earlier| Err(format!("number {number} is assigned to {earlier} and to {channel}")))
    }

    /// Counts one occurrence of a labelled case.
    pub fn count(&mut self, what: &'static str) {
        *self.reached.entry(what).or_insert(0) += 1;
    }

    /// The maximum number of offsets that a channel has assigned, in all its epochs.
    pub fn offsets_at_most(&self, channel: &str) -> u64 {
        let with_offset =
            self.published.iter().filter(|published| published.channel == channel && published.has_offset);
        with_offset.filter(|published| published.outcome != Outcome::Rejected).count() as u64
    }

    /// Adds a publication and returns its number. Its payload is padded with `fill` bytes.
    pub fn begin_publication(&mut self, channel: &str, publisher: Publisher, fill: usize, opaque: bool) -> u64 {
        let number = self.published.len() as u64;
        let fill = "x".repeat(fill);
        let data = if opaque {
            format!("\u{1}{number};{fill}").into_bytes()
        } else {
            format!(r#"{{"n":{number},"f":"{fill}"}}"#).into_bytes()
        };
        let has_offset = self.channel(channel).is_some_and(|facts| {
            facts.rules.as_ref().is_some_and(|rules| rules.history_size > 0 && rules.history_ttl_ms > 0)
        });
        let count = self.counts.entry((channel.to_owned(), publisher.clone())).or_insert(0);
        *count += 1;
        let count = *count;
        self.published.push(Published {
            channel: channel.to_owned(),
            publisher,
            count,
            data,
            version: (0, ""),
            tags: BTreeMap::new(),
            has_offset,
            outcome: Outcome::Unknown,
            accepted_ms: 0,
            position: None,
        });
        number
    }

    /// Reverts the last publication of the API, which was rejected.
    pub fn reject_api(&mut self, number: u64) {
        let published = &mut self.published[number as usize];
        published.outcome = Outcome::Rejected;
        let counted = (published.channel.clone(), Publisher::Api);
        *self.counts.get_mut(&counted).expect("`begin_publication` counted it") -= 1;
    }

    /// Identifies a publication that a client or an operator received in `channel`, and returns its number. `epoch` is
    /// `None` if it is not known.
    ///
    /// # Errors
    /// If it differs from what was published, if it was seen at another position before, or if another publication was
    /// seen at its position.
    pub fn identify(&mut self, channel: &str, seen: &PublicationBody, epoch: Option<&str>) -> Result<u64, String> {
        let number = number_of(&seen.data)?;
        let Some(published) = self.published.get_mut(number as usize) else {
            return Err(format!("publication {number} was never published"));
        };
        let from = match &seen.info {
            None => Publisher::Api,
            Some(info) => Publisher::Session(info.client.clone()),
        };
        if published.channel != channel || published.data != seen.data || published.publisher != from {
            return Err(format!("publication {number} differs from what was published: {published:?}"));
        }
        if published.outcome == Outcome::Rejected || published.has_offset != (seen.offset > 0) {
            return Err(format!("publication {number} with offset {} was {published:?}", seen.offset));
        }
        if published.version.0 != seen.version {
            return Err(format!("publication {number} with version {} was {published:?}", seen.version));
        }
        let has_epoch = !seen.epoch.is_empty();
        if has_epoch != (seen.offset == 1) || has_epoch && epoch.is_some_and(|epoch| *epoch != *seen.epoch) {
            return Err(format!("publication {number} with offset {} has epoch {:?}", seen.offset, seen.epoch));
        }
        // Not all deliveries contain the time.
        let time = seen.time.cast_unsigned();
        if published.accepted_ms != 0 && time != 0 && published.accepted_ms != time {
            return Err(format!("publication {number} was accepted at {time} ms and at {} ms", published.accepted_ms));
        }
        published.accepted_ms = published.accepted_ms.max(time);
        let Some(epoch) = epoch.filter(|_| seen.offset > 0) else { return Ok(number) };
        let position = (epoch.to_owned(), seen.offset);
        if published.position.as_ref().is_some_and(|earlier| *earlier != position) {
            return Err(format!("publication {number} is at {position:?} and at {:?}", published.position));
        }
        published.position = Some(position.clone());
        let facts = self.channels.get_mut(channel).ok_or("a publication in an unknown channel")?;
        let top = facts.tops.entry(position.0.clone()).or_insert(0);
        *top = (*top).max(position.1);
        match facts.by_position.insert(position, number) {
            Some(other) if other != number => {
                Err(format!("publications {other} and {number} share offset {} of {channel}", seen.offset))
            }
            _ => Ok(number),
        }
    }
}

/// The publication number in a payload.
pub fn number_of(data: &[u8]) -> Result<u64, String> {
    let text = data.strip_prefix(br#"{"n":"#).or_else(|| data.strip_prefix(b"\x01")).unwrap_or_default();
    let digits: String = text.iter().take_while(|byte| byte.is_ascii_digit()).map(|&byte| char::from(byte)).collect();
    digits.parse().map_err(|_| format!("a payload without a publication number: {}", String::from_utf8_lossy(data)))
}
