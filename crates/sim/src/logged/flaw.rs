//! Bugs between a shard and its log, which tests plant to verify that the checks find them.

use std::collections::{BTreeSet, VecDeque};

use dunlin_engine::{
    Event,
    log::{LogRecord, ProposalNumber},
};

use super::actor::{LogActor, ORDERED_BY_LOG};

/// A bug between a shard and its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFlaw {
    /// A publication counts as committed when it is proposed.
    CommitsWhenProposed,
    /// The same for publications of clients only, so that those of the API are not found first.
    CommitsClientsWhenProposed,
    /// A page that was cut at a limit of the log counts as all that was requested.
    CutPageIsWhole,
    /// Publications of other nodes do not arrive while a page of the channel is loading.
    MissesWhileLoading,
    /// The first page of a channel whose owner gives the offsets lacks the newest publication.
    PageLacksNewest,
}

/// The planted bug, if any, between the shards and the log.
#[derive(Default)]
pub(super) struct LogSeam {
    pub(super) flaw: Option<LogFlaw>,
    /// Events that shards receive before their time, with the channels.
    early: VecDeque<(String, Event<'static>)>,
    /// Proposals that count as committed, with the channels.
    committed: BTreeSet<(String, ProposalNumber)>,
}

impl LogSeam {
    /// A shard proposes a publication.
    pub(super) fn on_propose(&mut self, channel: &str, proposal: ProposalNumber, record: &LogRecord) {
        let is_early = match self.flaw {
            Some(LogFlaw::CommitsWhenProposed) => true,
            Some(LogFlaw::CommitsClientsWhenProposed) => record.publication.info.is_some(),
            _ => false,
        };
        // Other channels have no offset before the log gives one.
        if is_early && !channel.starts_with(ORDERED_BY_LOG) {
            let outcome = Ok(record.publication.offset);
            self.committed.insert((channel.to_owned(), proposal));
            self.early.push_back((channel.to_owned(), Event::Committed { channel: channel.into(), proposal, outcome }));
        }
    }

    /// The next event that the shards receive before its time.
    pub(super) fn next_early(&mut self) -> Option<(String, Event<'static>)> {
        self.early.pop_front()
    }

    /// What a shard receives of an event of the log.
    pub(super) fn pass(&self, log: &LogActor, event: Event<'static>) -> Option<Event<'static>> {
        match (self.flaw, event) {
            (Some(_), Event::Committed { channel, proposal, .. })
                if self.committed.contains(&((*channel).to_owned(), proposal)) =>
            {
                None
            }
            (Some(LogFlaw::CutPageIsWhole), Event::Loaded { channel, load, outcome: Ok(mut page) }) => {
                page.through = page.top.max(page.through);
                Some(Event::Loaded { channel, load, outcome: Ok(page) })
            }
            (Some(LogFlaw::MissesWhileLoading), Event::Replicated { channel, .. }) if log.is_loading(&channel) => None,
            (Some(LogFlaw::PageLacksNewest), Event::Loaded { channel, load, outcome: Ok(mut page) })
                if !channel.starts_with(ORDERED_BY_LOG) =>
            {
                let offset = |record: &LogRecord| record.publication.offset;
                if page.records.pop_if(|newest| offset(newest) == page.top).is_some() {
                    page.top = page.records.last().map_or(page.floor, offset);
                    page.through = page.through.min(page.top);
                }
                Some(Event::Loaded { channel, load, outcome: Ok(page) })
            }
            (_, event) => Some(event),
        }
    }

    /// The node crashes.
    pub(super) fn crash(&mut self) {
        self.early.clear();
        self.committed.clear();
    }
}
