//! The simulated log. It stores or rejects proposals after a delay, and loads pages on request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dunlin_engine::{
    Event,
    event::Ticket,
    log::{LoadNumber, LoadQuery, LogBusy, LogError, LogPage, LogRecord, LogTerms, ProposalNumber},
};

use crate::chance::Chance;

use super::{KeyUse, Truth};

/// The prefix of channels in which the log assigns the offsets.
pub const ORDERED_BY_LOG: &str = "log:";

/// A queued operation of the log.
enum Task {
    Store { proposal: ProposalNumber, record: Box<LogRecord>, terms: LogTerms },
    Read { load: LoadNumber, query: LoadQuery },
    Trim { through: u64, ticket: Option<Ticket> },
}

/// The stored state of one channel.
#[derive(Default)]
struct StoredChannel {
    /// The retained records, in order of their offsets.
    records: VecDeque<LogRecord>,
    /// The highest offset ever stored.
    top: u64,
    /// Records up to this offset are not retained.
    floor: u64,
    /// Offsets of idempotency keys, with their expiry.
    results: BTreeMap<String, (u64, u64)>,
    /// Tasks in order, with the time before which they do not run.
    tasks: VecDeque<(u64, Task)>,
    /// Events for the owner, in order.
    events: VecDeque<(u64, Event<'static>)>,
    /// Loaded pages in flight. They are not ordered with the other events.
    pages: VecDeque<(u64, Event<'static>)>,
}

pub struct LogActor {
    chance: Chance,
    channels: BTreeMap<String, StoredChannel>,
    followed: BTreeSet<String>,
    /// The maximum delay of a step.
    delay_max_us: u64,
    /// Percentage of tasks that fail.
    failures: u32,
    /// Maximum number of publications of a page.
    page_max: usize,
    /// The last offset of the sequence that channels share.
    sequence: u64,
    /// When the log of channels with offsets from the owner breaks.
    breaks_at_us: u64,
    /// Number of crashes of the node.
    crashes: u32,
    /// The first check that failed.
    failure: Option<String>,
}

impl LogActor {
    pub fn new(mut chance: Chance) -> Self {
        Self {
            channels: BTreeMap::new(),
            followed: BTreeSet::new(),
            delay_max_us: *chance.pick(&[500, 5_000, 40_000]),
            failures: *chance.pick(&[0, 0, 3, 15]),
            page_max: *chance.pick(&[1, 3, 7, 1_000]),
            sequence: 0,
            breaks_at_us: if chance.percent(10) { chance.between(500_000, 3_000_000) } else { u64::MAX },
            chance,
            crashes: 0,
            failure: None,
        }
    }

    /// The number of crashes of the node.
    pub fn crashes(&self) -> u32 {
        self.crashes
    }

    /// Whether the log may break and reject publications.
    pub fn breaks(&self) -> bool {
        self.breaks_at_us < u64::MAX
    }

    /// Whether any operation may fail.
    pub fn fails(&self) -> bool {
        self.failures > 0 || self.breaks()
    }

    /// Queues a proposal.
    pub fn propose(
        &mut self,
        now_us: u64,
        channel: &str,
        proposal: ProposalNumber,
        record: Box<LogRecord>,
        terms: LogTerms,
    ) {
        self.add(now_us, channel, Task::Store { proposal, record, terms });
    }

    /// Queues a load.
    pub fn load(&mut self, now_us: u64, channel: &str, load: LoadNumber, query: LoadQuery) {
        self.add(now_us, channel, Task::Read { load, query });
    }

    /// Queues a trim.
    pub fn trim(&mut self, now_us: u64, channel: &str, through: u64, ticket: Option<Ticket>) {
        self.add(now_us, channel, Task::Trim { through, ticket });
    }

    /// Starts or stops to replicate the publications of other nodes.
    pub fn follow(&mut self, channel: &str, follows: bool) {
        if follows {
            self.followed.insert(channel.to_owned());
        } else {
            self.followed.remove(channel);
        }
    }

    fn add(&mut self, now_us: u64, channel: &str, task: Task) {
        let due_us = now_us + self.chance.between(0, self.delay_max_us);
        self.channels.entry(channel.to_owned()).or_default().tasks.push_back((due_us, task));
    }

    /// Runs all tasks that are due.
    ///
    /// # Errors
    /// The first check that failed.
    pub fn step(&mut self, now_us: u64, truth: &mut Truth) -> Result<(), String> {
        let names: Vec<String> = self.channels.keys().cloned().collect();
        for name in names {
            while let Some(channel) = self.channels.get_mut(&name)
                && channel.tasks.front().is_some_and(|(due_us, _)| *due_us <= now_us)
                && let Some((_, task)) = channel.tasks.pop_front()
            {
                self.run_task(now_us, &name, task, truth);
            }
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Stores a publication of another node.
    pub fn publish_through_other_node(
        &mut self,
        now_us: u64,
        channel: &str,
        record: LogRecord,
        terms: LogTerms,
        truth: &mut Truth,
    ) {
        let record = self.store(now_us, channel, record, terms, truth);
        if self.followed.contains(channel) {
            let event = Event::Replicated { channel: channel.into(), record: Box::new(record) };
            self.schedule(now_us, channel, event);
        }
    }

    fn schedule(&mut self, now_us: u64, channel: &str, event: Event<'static>) {
        let ready_us = now_us + self.chance.between(0, self.delay_max_us);
        self.channels.entry(channel.to_owned()).or_default().events.push_back((ready_us, event));
    }

    fn run_task(&mut self, now_us: u64, name: &str, task: Task, truth: &mut Truth) {
        match task {
            Task::Store { proposal, record, terms } => {
                let outcome = self.try_store(now_us, name, *record, terms, truth);
                self.schedule(now_us, name, Event::Committed { channel: name.into(), proposal, outcome });
            }
            Task::Read { load, query } => {
                let fails = self.chance.percent(self.failures / 3);
                let outcome = if fails { Err(LogError::Unavailable) } else { Ok(Box::new(self.read(name, query))) };
                let ready_us = now_us + self.chance.between(0, self.delay_max_us);
                let event = Event::Loaded { channel: name.into(), load, outcome };
                self.channels.entry(name.to_owned()).or_default().pages.push_back((ready_us, event));
            }
            Task::Trim { through, ticket } => {
                let fails = ticket.is_some() && self.chance.percent(self.failures);
                if !fails {
                    let channel = self.channels.entry(name.to_owned()).or_default();
                    let through = through.min(channel.top);
                    channel.records.retain(|record| record.publication.offset > through);
                    channel.floor = channel.floor.max(through);
                }
                if let Some(ticket) = ticket {
                    let outcome = if fails { Err(LogError::Unavailable) } else { Ok(()) };
                    self.schedule(now_us, name, Event::TrimCommitted { ticket, outcome });
                }
            }
        }
    }

    fn try_store(
        &mut self,
        now_us: u64,
        name: &str,
        record: LogRecord,
        terms: LogTerms,
        truth: &mut Truth,
    ) -> Result<u64, LogError> {
        let is_ordered_here = name.starts_with(ORDERED_BY_LOG);
        if !is_ordered_here && now_us >= self.breaks_at_us {
            return Err(LogError::Broken);
        }
        if self.chance.percent(self.failures) {
            return Err(if self.chance.percent(50) {
                LogError::Busy(LogBusy::StorageWrites)
            } else {
                LogError::Unavailable
            });
        }
        if let Some(earlier) = self.earlier_with_key(now_us, name, &record) {
            return Ok(earlier);
        }
        Ok(self.store(now_us, name, record, terms, truth).publication.offset)
    }

    /// The offset of a publication with the same idempotency key.
    fn earlier_with_key(&self, now_us: u64, name: &str, record: &LogRecord) -> Option<u64> {
        let (until_us, offset) = self.channels.get(name)?.results.get(record.idempotency_key.as_deref()?)?;
        (*until_us > now_us).then_some(*offset)
    }

    fn store(
        &mut self,
        now_us: u64,
        name: &str,
        mut record: LogRecord,
        terms: LogTerms,
        truth: &mut Truth,
    ) -> LogRecord {
        if name.starts_with(ORDERED_BY_LOG) {
            // Other channels use offsets of the shared sequence.
            self.sequence += self.chance.between(1, 3);
            let mut publication = (*record.publication).clone();
            publication.offset = self.sequence;
            record.publication = publication.into();
        }
        let offset = record.publication.offset;
        let data = record.publication.data.bytes().to_vec();
        truth.entry(name.to_owned()).or_default().data.insert(offset, data);
        if let Some(key) = &record.idempotency_key {
            self.store_result(now_us, (name, key), offset, terms, truth);
        }
        let channel = self.channels.entry(name.to_owned()).or_default();
        if offset <= channel.top {
            let failure = format!("{name}: {offset} is stored, but {} was before", channel.top);
            self.failure.get_or_insert(failure);
        }
        channel.top = offset;
        channel.records.push_back(record.clone());
        while channel.records.len() > terms.retention.publications_max {
            if let Some(oldest) = channel.records.pop_front() {
                channel.floor = oldest.publication.offset;
            }
        }
        record
    }

    /// Stores the result of an idempotency key, and checks that it has no other publication while the key is valid.
    fn store_result(
        &mut self,
        now_us: u64,
        (name, key): (&str, &str),
        offset: u64,
        terms: LogTerms,
        truth: &mut Truth,
    ) {
        let uses = truth.entry(name.to_owned()).or_default().keys.entry(key.to_owned()).or_default();
        if let Some(earlier) = uses.last().filter(|earlier| now_us < earlier.until_us) {
            let (first, crashes) = (earlier.offset, self.crashes - earlier.crashes);
            self.failure.get_or_insert_with(|| {
                format!("{name}: publications with the key {key} are at {first} and {offset}, {crashes} crashes later")
            });
        }
        let until_us = now_us + terms.result_ttl_ms * 1_000;
        uses.push(KeyUse { offset, until_us, crashes: self.crashes });
        let channel = self.channels.entry(name.to_owned()).or_default();
        channel.results.insert(key.to_owned(), (until_us, offset));
    }

    fn read(&self, name: &str, query: LoadQuery) -> LogPage {
        let nothing = StoredChannel::default();
        let channel = self.channels.get(name).unwrap_or(&nothing);
        let epoch = epoch_of(name);
        let (top, all) = (channel.top, &channel.records);
        let offset = |record: &LogRecord| record.publication.offset;
        // A log orders pages by its own number of publications, and reads only forwards.
        let is_ordered_here = name.starts_with(ORDERED_BY_LOG);
        let Some(after) = query.after else {
            let page_max = if is_ordered_here { usize::MAX } else { self.page_max };
            let end = all.partition_point(|record| offset(record) < query.below);
            let left_out = end.saturating_sub(query.publications_max.min(page_max));
            let floor = left_out.checked_sub(1).map_or(channel.floor, |last| offset(&all[last]));
            return LogPage {
                epoch,
                top,
                floor,
                through: top.min(query.below - 1),
                records: all.range(left_out..end).cloned().collect(),
                has_more_below: left_out > 0,
                ..LogPage::default()
            };
        };
        let later = all.iter().filter(|record| offset(record) > after);
        let publications_max = query.publications_max.min(self.page_max);
        let records: Vec<LogRecord> = later.take(publications_max).cloned().collect();
        let is_cut = records.len() == publications_max;
        let through = if is_cut { records.last().map_or(top, offset) } else { top };
        LogPage { epoch, top, floor: after.max(channel.floor), through, records, ..LogPage::default() }
    }

    /// The next event that is due, and its channel.
    pub fn next_event(&mut self, now_us: u64) -> Option<(String, Event<'static>)> {
        let is_ready = |queue: &VecDeque<(u64, Event<'static>)>| queue.front().is_some_and(|(us, _)| *us <= now_us);
        let ready: Vec<(String, bool)> = self
            .channels
            .iter()
            .flat_map(|(name, channel)| {
                [(name, false, is_ready(&channel.events)), (name, true, is_ready(&channel.pages))]
            })
            .filter(|(.., is_ready)| *is_ready)
            .map(|(name, is_page, _)| (name.clone(), is_page))
            .collect();
        if ready.is_empty() {
            return None;
        }
        let (name, is_page) = self.chance.pick(&ready).clone();
        let channel = self.channels.get_mut(&name)?;
        let queue = if is_page { &mut channel.pages } else { &mut channel.events };
        queue.pop_front().map(|(_, event)| (name, event))
    }

    /// Whether a page of a channel is loading.
    pub fn is_loading(&self, name: &str) -> bool {
        let loads = |(_, task): &(u64, Task)| matches!(task, Task::Read { .. });
        self.channels.get(name).is_some_and(|channel| !channel.pages.is_empty() || channel.tasks.iter().any(loads))
    }

    /// Whether no task or event is queued.
    pub fn is_at_rest(&self) -> bool {
        let is_idle =
            |channel: &StoredChannel| channel.tasks.is_empty() && channel.events.is_empty() && channel.pages.is_empty();
        self.channels.values().all(is_idle)
    }

    /// The floor and the top offset of a channel. Everything between them is retained.
    pub fn kept(&self, name: &str) -> (u64, u64) {
        self.channels.get(name).map_or((0, 0), |channel| (channel.floor, channel.top))
    }

    /// Expires all records. A log that assigns offsets does this by itself. In other channels, the owner trims.
    pub fn expire_all(&mut self) {
        for (_, channel) in self.channels.iter_mut().filter(|(name, _)| name.starts_with(ORDERED_BY_LOG)) {
            channel.records.clear();
            channel.floor = channel.top;
        }
    }

    /// Simulates a crash of the node. Some of its proposals are stored, but not acknowledged.
    pub fn crash(&mut self, now_us: u64, truth: &mut Truth) {
        let names: Vec<String> = self.channels.keys().cloned().collect();
        for name in names {
            // Proposals are stored in order, so that the offsets of the owner have no gaps.
            let stored = self.chance.below(4);
            let Some(channel) = self.channels.get_mut(&name) else { continue };
            channel.events.clear();
            channel.pages.clear();
            for (_, task) in std::mem::take(&mut channel.tasks).into_iter().take(stored) {
                // The writer answers a repeated key with the first offset, so that a stored one is not stored again.
                if let Task::Store { record, terms, .. } = task
                    && self.earlier_with_key(now_us, &name, &record).is_none()
                {
                    self.store(now_us, &name, *record, terms, truth);
                }
            }
        }
        self.followed.clear();
        self.crashes += 1;
    }
}

fn epoch_of(name: &str) -> Box<str> {
    format!("of {name}").into()
}
