//! A log that stores everything and answers when the effect is performed.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::json;

use dunlin_engine::{
    Effect, Event,
    log::{LoadQuery, LogError, LogPage, LogRecord, LogTerms, ProposalNumber},
};

use super::broadcasts::publication;

/// A proposal without an answer, with its shard.
type HeldProposal = (u16, Arc<str>, ProposalNumber, Box<LogRecord>);

/// The records of each channel.
#[derive(Default)]
pub struct Log {
    channels: BTreeMap<Arc<str>, Vec<LogRecord>>,
    /// The offset of the newest record ever of each.
    tops: BTreeMap<Arc<str>, u64>,
    /// Proposals that wait for the test, instead of being answered.
    held: Option<Vec<HeldProposal>>,
    /// Loads that wait for the test, with their shards.
    held_loads: Option<Vec<(u16, Effect)>>,
    /// Checks that loads and proposals of a channel have the same terms.
    terms: BTreeMap<Arc<str>, LogTerms>,
}

impl Log {
    /// The answer to an effect, if it has one.
    pub fn answer(&mut self, shard: u16, effect: Effect) -> Option<Event<'static>> {
        match effect {
            Effect::Propose { channel, proposal, record, begins: _, terms } => {
                assert_eq!(self.terms.get(&channel), Some(&terms), "a channel is loaded first");
                if let Some(held) = &mut self.held {
                    held.push((shard, channel, proposal, record));
                    return None;
                }
                Some(self.store(channel, proposal, *record))
            }
            Effect::Load { .. } => {
                if let Some(held) = &mut self.held_loads {
                    held.push((shard, effect));
                    return None;
                }
                Some(self.read_for(effect))
            }
            Effect::Trim { channel, through, ticket } => {
                let records = self.channels.entry(channel).or_default();
                records.retain(|record| record.publication.offset > through);
                ticket.map(|ticket| Event::TrimCommitted { ticket, outcome: Ok(()) })
            }
            _ => None,
        }
    }

    fn store(&mut self, channel: Arc<str>, proposal: ProposalNumber, record: LogRecord) -> Event<'static> {
        let offset = record.publication.offset;
        self.tops.insert(Arc::clone(&channel), offset);
        self.channels.entry(Arc::clone(&channel)).or_default().push(record);
        Event::Committed { channel, proposal, outcome: Ok(offset) }
    }

    /// The page of a load.
    pub fn read_for(&mut self, effect: Effect) -> Event<'static> {
        let Effect::Load { channel, load, query, terms } = effect else { panic!("{effect:?} is no load") };
        let known = self.terms.entry(Arc::clone(&channel)).or_insert(terms);
        assert_eq!(*known, terms);
        let page = self.read(&channel, query);
        Event::Loaded { channel, load, outcome: Ok(Box::new(page)) }
    }

    /// Holds the loads that follow.
    pub fn hold_loads(&mut self) {
        self.held_loads = Some(Vec::new());
    }

    /// The loads that were held. Later ones are held as well.
    pub fn take_held_loads(&mut self) -> Vec<(u16, Effect)> {
        self.held_loads.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Stores a publication of another node.
    pub fn store_elsewhere(&mut self, channel: &str, offset: u64) {
        let publication = Arc::new(publication(&json!({"data": offset, "offset": offset})));
        let record = LogRecord { publication, version_epoch: Box::default(), idempotency_key: None };
        self.tops.insert(channel.into(), offset);
        self.channels.entry(channel.into()).or_default().push(record);
    }

    /// Holds the proposals that follow.
    pub fn hold(&mut self) {
        self.held = Some(Vec::new());
    }

    /// Stores or refuses the proposals that were held, and holds no more. Returns the answers with their shards.
    pub fn release(&mut self, refuses: bool) -> Vec<(u16, Event<'static>)> {
        let held = self.held.take().unwrap_or_default();
        let answer = |(shard, channel, proposal, record): HeldProposal| {
            let outcome = Err(LogError::Broken);
            let event = if refuses {
                Event::Committed { channel, proposal, outcome }
            } else {
                self.store(channel, proposal, *record)
            };
            (shard, event)
        };
        held.into_iter().map(answer).collect()
    }

    fn read(&self, channel: &str, query: LoadQuery) -> LogPage {
        let all = self.channels.get(channel).map_or(&[][..], Vec::as_slice);
        let top = self.tops.get(channel).copied().unwrap_or(0);
        let left_out = all.len().saturating_sub(query.publications_max);
        let Some(after) = query.after else {
            let floor = all[..left_out].last().map_or(0, |record| record.publication.offset);
            let records = all[left_out..].to_vec();
            return LogPage { epoch: "ofthelog".into(), top, floor, through: top, records, ..LogPage::default() };
        };
        let behind = all.iter().filter(|record| record.publication.offset > after);
        let records: Vec<LogRecord> = behind.take(query.publications_max).cloned().collect();
        let is_cut = records.len() == query.publications_max;
        let through = records.last().filter(|_| is_cut).map_or(top, |record| record.publication.offset);
        LogPage { epoch: "ofthelog".into(), top, floor: after, through, records, ..LogPage::default() }
    }
}
