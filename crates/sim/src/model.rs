//! The reference model: what must be true according to what clients and operators observed. It shares no code with the
//! engine.

use std::collections::{BTreeMap, VecDeque};

use dunlin_engine::{
    Options,
    options::{Lane, NamespaceOptions},
};

use crate::{
    plan::KEY_TAG,
    rooms::Book,
    wire::{Filter, PublicationBody},
};

/// Bytes that a publication of the plan takes beside its payload.
const ENVELOPE_BYTES_MAX: usize = 400;

/// How long a publication's key counts.
const RESULT_TTL_US: u64 = 300_000_000;

/// Who published.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Publisher {
    /// The server API.
    Api,
    /// The session with this id.
    Session(String),
}

/// What became of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not known, or never to be known.
    Open,
    /// Acknowledged.
    Accepted,
    /// Answered with an error.
    Refused,
}

/// A publication, from the moment it is sent.
#[derive(Clone, Debug)]
pub struct Published {
    pub channel: String,
    pub publisher: Publisher,
    /// Counts the publisher's publications in this channel, from 1.
    pub count: u64,
    /// The exact payload.
    pub data: Vec<u8>,
    /// Its version, and the epoch in which that counts; 0 for none.
    pub version: (u64, &'static str),
    pub tags: BTreeMap<String, String>,
    /// Whether it gets an offset.
    pub has_offset: bool,
    /// What became of it.
    pub fate: Fate,
    /// When it was accepted, in Unix milliseconds, as the server tells; 0 as long as nobody saw it.
    pub accepted_ms: u64,
    /// Its epoch and offset, once somebody saw them.
    pub position: Option<(String, u64)>,
}

impl Published {
    /// The value of the tag that keys the latest lane.
    pub fn key(&self) -> Option<&String> {
        self.tags.get(KEY_TAG)
    }

    /// Whether it passes a filter, if there is one.
    pub fn passes(&self, filter: Option<&Filter>) -> bool {
        filter.is_none_or(|filter| filter.passes(&self.tags))
    }
}

/// A channel as outsiders know it.
#[derive(Debug, Default)]
pub struct ChannelFacts {
    pub name: String,
    /// Options of its namespace; `None` if it has none.
    pub rules: Option<NamespaceOptions>,
    /// Whether the node may run out of channels, and forget this one as long as nobody listens.
    pub may_be_evicted: bool,
    /// Publications that the API accepted.
    pub api_count: u64,
    /// Their numbers, in order.
    pub of_api: Vec<u64>,
    /// Counts of the API's publications, by key.
    pub by_key: BTreeMap<Option<String>, Vec<u64>>,
    /// Publications of the API when an operator last removed the newest ones of all keys.
    pub keys_removed: u64,
    /// Publications by epoch and offset.
    by_position: BTreeMap<(String, u64), u64>,
    /// Epoch and offset of the publications whose keys count, with the key and until when it does, oldest first.
    results: VecDeque<(u64, &'static str, (String, u64))>,
    /// The epoch that the API saw last.
    pub epoch: Option<String>,
    /// Publications from this number on were sent after the API first saw that epoch.
    pub epoch_from: u64,
    /// When each epoch was used, or later.
    pub last_uses_us: BTreeMap<String, u64>,
    /// Epoch and top when the history was last removed.
    pub removed: Option<(String, u64)>,
    /// Highest offsets seen, by epoch.
    pub tops: BTreeMap<String, u64>,
}

impl ChannelFacts {
    /// The lane of its publications.
    pub fn lane(&self) -> Lane {
        self.rules.as_ref().map_or(Lane::Reliable, |rules| rules.delivery)
    }

    /// The publication at a position, if somebody saw it.
    pub fn at(&self, epoch: &str, offset: u64) -> Option<u64> {
        self.by_position.get(&(epoch.to_owned(), offset)).copied()
    }

    /// Whether `epoch` cannot have been forgotten by `now_us`.
    pub fn is_alive(&self, epoch: &str, now_us: u64) -> bool {
        if self.may_be_evicted {
            return false;
        }
        let ttl_us = self.rules.as_ref().map_or(0, |rules| rules.history_meta_ttl_ms * 1_000);
        self.last_uses_us.get(epoch).is_some_and(|used_us| used_us + ttl_us > now_us)
    }

    /// Epoch and offset of the publication with this key, if it counts at `now_us`.
    pub fn result_of(&mut self, key: Option<&str>, now_us: u64) -> Option<(String, u64)> {
        self.results.retain(|(until_us, ..)| *until_us > now_us);
        self.results.iter().find(|(_, of, _)| Some(*of) == key).map(|(.., position)| position.clone())
    }

    /// Has a key count from now on, for one of at most `results_max` publications.
    pub fn remember_result(&mut self, key: &'static str, position: (String, u64), now_us: u64, results_max: usize) {
        self.results.push_back((now_us + RESULT_TTL_US, key, position));
        while self.results.len() > results_max {
            self.results.pop_front();
        }
    }

    /// Notes that the stream was used in `epoch` at `at_us` or later.
    pub fn used(&mut self, epoch: &str, at_us: u64) {
        let last_use_us = self.last_uses_us.entry(epoch.to_owned()).or_insert(0);
        *last_use_us = at_us.max(*last_use_us);
    }
}

/// All that is known.
pub struct Model {
    /// Publications by number.
    pub published: Vec<Published>,
    /// What is known of rooms.
    pub rooms: Book,
    /// How often clients were told what.
    pub reached: BTreeMap<&'static str, u64>,
    /// Channels by the numbers that stand for them.
    numbered: BTreeMap<u64, String>,
    channels: BTreeMap<String, ChannelFacts>,
    counts: BTreeMap<(String, Publisher), u64>,
}

impl Model {
    /// Nothing is known but the options.
    pub fn new(options: &Options, channels: impl Iterator<Item = String>) -> Self {
        let facts = |name: String| {
            let namespace = name.trim_start_matches('$').split_once(':').map_or("", |(namespace, _)| namespace);
            let all = options.namespaces.iter().chain([&options.without_namespace]);
            let rules = all.into_iter().find(|rules| rules.name == namespace).cloned();
            let may_be_evicted = options.channel.channels_max < 1_000;
            (name.clone(), ChannelFacts { name, rules, may_be_evicted, ..ChannelFacts::default() })
        };
        Self {
            published: Vec::new(),
            rooms: Book::default(),
            reached: BTreeMap::new(),
            numbered: BTreeMap::new(),
            channels: channels.map(facts).collect(),
            counts: BTreeMap::new(),
        }
    }

    /// No more than `size` publications may be kept in a namespace's channels from now on, whatever comes later.
    pub fn shorten(&mut self, namespace: &str, size: usize) {
        let rules = self.channels.values_mut().filter_map(|facts| facts.rules.as_mut());
        for rules in rules.filter(|rules| rules.name == namespace) {
            rules.history_size = rules.history_size.min(size);
        }
    }

    /// What is known of a channel of the plan.
    pub fn channel(&self, name: &str) -> Option<&ChannelFacts> {
        self.channels.get(name)
    }

    /// What is known of a channel of the plan.
    pub fn channel_mut(&mut self, name: &str) -> Option<&mut ChannelFacts> {
        self.channels.get_mut(name)
    }

    /// The most bytes that the publications of a channel from offset `first` to `top` take in a reply, as far as known.
    pub fn reply_bytes_at_most(&self, facts: &ChannelFacts, epoch: &str, first: u64, top: u64) -> usize {
        let known = (first..=top).filter_map(|offset| facts.at(epoch, offset));
        known.map(|number| self.published[number as usize].data.len() + ENVELOPE_BYTES_MAX).sum()
    }

    /// How many of the newest publications up to offset `top` must still be kept at `now_ms` or before: each of them
    /// accepted before the one before it was forgotten, and none removed.
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

    /// How many of the API's publications in a channel pass a filter, of those that come between the counts `low` and
    /// `high`.
    pub fn passing_between(&self, facts: &ChannelFacts, filter: Option<&Filter>, low: u64, high: u64) -> u64 {
        let between = facts.of_api.get(low as usize..(high as usize).saturating_sub(1)).unwrap_or_default();
        between.iter().filter(|&&number| self.published[number as usize].passes(filter)).count() as u64
    }

    /// Whether a subscriber may go from offset `low` to `high` at once: nothing between them passes its filter.
    ///
    /// # Errors
    /// The offset that is for it.
    pub fn may_skip(
        &self,
        facts: &ChannelFacts,
        filter: Option<&Filter>,
        epoch: &str,
        low: u64,
        high: u64,
    ) -> Result<(), u64> {
        // What nobody has seen was published by a client. Without an epoch nothing can be known of the others.
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

    /// Notes that `number` stands for a channel.
    ///
    /// # Errors
    /// If it stood for another one.
    pub fn numbers(&mut self, number: u64, channel: &str) -> Result<(), String> {
        let earlier = self.numbered.insert(number, channel.to_owned()).filter(|earlier| earlier != channel);
        earlier.map_or(Ok(()), |earlier| Err(format!("{number} stands for {earlier} and for {channel}")))
    }

    /// Counts something that clients were told.
    pub fn count(&mut self, what: &'static str) {
        *self.reached.entry(what).or_insert(0) += 1;
    }

    /// How many offsets a channel can have given out, in all its epochs.
    pub fn offsets_at_most(&self, channel: &str) -> u64 {
        let with_offset =
            self.published.iter().filter(|published| published.channel == channel && published.has_offset);
        with_offset.filter(|published| published.fate != Fate::Refused).count() as u64
    }

    /// Begins a publication; returns its number. `fill` bytes make its payload longer.
    pub fn begin(&mut self, channel: &str, publisher: Publisher, fill: usize, opaque: bool) -> u64 {
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
            fate: Fate::Open,
            accepted_ms: 0,
            position: None,
        });
        number
    }

    /// Takes back the last publication of the API, which was refused.
    pub fn refuse_api(&mut self, number: u64) {
        let published = &mut self.published[number as usize];
        published.fate = Fate::Refused;
        let counted = (published.channel.clone(), Publisher::Api);
        *self.counts.get_mut(&counted).expect("counted when it began") -= 1;
    }

    /// Recognises a publication that a client or an operator received in `channel`, at an epoch if it is known.
    ///
    /// # Errors
    /// If nobody published it so, or if it was seen before at another position, or another at its position.
    pub fn recognise(&mut self, channel: &str, seen: &PublicationBody, epoch: Option<&str>) -> Result<u64, String> {
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
        if published.fate == Fate::Refused || published.has_offset != (seen.offset > 0) {
            return Err(format!("publication {number} with offset {} was {published:?}", seen.offset));
        }
        let has_epoch = !seen.epoch.is_empty();
        if has_epoch != (seen.offset == 1) || has_epoch && epoch.is_some_and(|epoch| *epoch != *seen.epoch) {
            return Err(format!("publication {number} with offset {} has epoch {:?}", seen.offset, seen.epoch));
        }
        // Not every reader is told the time.
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
        let facts = self.channels.get_mut(channel).ok_or("publication in a channel that nobody knows")?;
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

/// The number that a payload carries.
pub fn number_of(data: &[u8]) -> Result<u64, String> {
    let text = data.strip_prefix(br#"{"n":"#).or_else(|| data.strip_prefix(b"\x01")).unwrap_or_default();
    let digits: String = text.iter().take_while(|byte| byte.is_ascii_digit()).map(|&byte| char::from(byte)).collect();
    digits.parse().map_err(|_| format!("a payload that nobody published: {}", String::from_utf8_lossy(data)))
}
