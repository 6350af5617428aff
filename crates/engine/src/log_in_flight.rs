//! The owner's state of a channel's log: proposals in flight, and requests that wait for a page.

use std::{collections::VecDeque, sync::Arc};

use dunlin_protocol::{ClientInfo, Payload, Publication};
use hashbrown::HashMap;

use crate::{
    Effect,
    api::HistoryQuery,
    backend::PublishHow,
    creators::ChannelCreator,
    event::Ticket,
    history_stream::{Reader, Stream},
    log::{LoadNumber, LoadQuery, ProposalNumber, PublicationLog},
    message::{Asker, RecoverFrom, SubscriptionRequest},
    names::NamespaceIndex,
    options::{NamespaceOptions, RecoveryMode},
    room::EventAudience,
};

/// Who is answered when it is known what became of a publication, or what a history holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyTo {
    /// A session's command.
    Session(Asker),
    /// A request of the server API.
    Api(Ticket),
    /// A room, which is not answered: a refusal is counted.
    Room,
    Nobody,
}

/// A publication before it is known whether its channel takes it.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) data: Payload,
    pub(crate) info: Option<Arc<ClientInfo>>,
    pub(crate) how: PublishHow,
    /// For whom, if not for everybody.
    pub(crate) audience: Option<Arc<EventAudience>>,
    /// The session it came from, if it came from one.
    pub(crate) creator: Option<ChannelCreator>,
}

impl Draft {
    /// About what it takes in a frame, at the least.
    pub(crate) fn bytes(&self) -> usize {
        let tags: usize = self.how.tags.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.data.bytes().len() + tags
    }
}

/// A publication that its channel takes, and what is to be done when it is committed.
#[derive(Debug)]
pub(crate) struct Proposal {
    pub(crate) publication: Publication,
    pub(crate) params: ProposalParams,
    pub(crate) creator: Option<ChannelCreator>,
    pub(crate) reply_to: ReplyTo,
    /// Publications with the same key, or no newer version: they are answered as this one is.
    pub(crate) duplicates: Vec<ReplyTo>,
}

/// How a proposed publication is published.
#[derive(Debug)]
pub(crate) struct ProposalParams {
    /// Without the tags, which the publication has.
    pub(crate) how: PublishHow,
    pub(crate) audience: Option<Arc<EventAudience>>,
    /// When it was accepted.
    pub(crate) accepted_us: u64,
    /// Only with a planted bug: its subscribers have it before it is committed.
    pub(crate) is_delivered: bool,
}

/// A request that waits for a page of the log.
#[derive(Debug)]
pub(crate) enum ParkedRequest {
    Publish { draft: Box<Draft>, reply_to: ReplyTo },
    Subscribe(Box<SubscriptionRequest>),
    History { query: HistoryQuery, reader: HistoryReader, reply_to: ReplyTo },
}

/// Who reads a history; see [`Reader`].
#[derive(Clone, Debug)]
pub(crate) enum HistoryReader {
    Server,
    User(Arc<str>),
}

impl HistoryReader {
    pub(crate) fn as_reader(&self) -> Reader<'_> {
        match self {
            Self::Server => Reader::Server,
            Self::User(user) => Reader::User(user),
        }
    }
}

/// A channel's log, where its namespace has one. It is there as long as the channel's newest publications are in memory, or
/// something waits for the log.
#[derive(Debug)]
pub(crate) struct ChannelLog {
    /// While the first page is being loaded: its number, and what was committed meanwhile.
    pub(crate) opening: Option<(LoadNumber, Box<Stream>)>,
    /// The log has nothing at or below this offset any more.
    pub(crate) floor: u64,
    /// The offset that the owner gives next. None is given twice, whatever becomes of the publication.
    pub(crate) next_offset: u64,
    /// In the order of their numbers, which is the order in which they were proposed.
    proposals: VecDeque<(ProposalNumber, Proposal)>,
    by_key: HashMap<Box<str>, ProposalNumber, foldhash::quality::FixedState>,
    loads: Vec<(LoadNumber, LoadQuery)>,
    parked: Vec<(LoadNumber, ParkedRequest)>,
}

impl ChannelLog {
    /// A log whose first page has yet to come.
    pub(crate) fn opened_by(load: LoadNumber, seed: u64) -> Self {
        Self {
            opening: Some((load, Box::new(Stream::new(Box::default())))),
            floor: 0,
            next_offset: 1,
            proposals: VecDeque::new(),
            by_key: HashMap::with_hasher(foldhash::quality::FixedState::with_seed(seed)),
            loads: Vec::new(),
            parked: Vec::new(),
        }
    }

    /// Whether nothing waits for the log.
    pub(crate) fn is_quiet(&self) -> bool {
        self.opening.is_none() && self.proposals.is_empty() && self.parked.is_empty()
    }

    /// Whether a page is on its way.
    pub(crate) fn is_loading(&self) -> bool {
        !self.loads.is_empty()
    }

    /// Adds a proposed publication.
    pub(crate) fn propose(&mut self, number: ProposalNumber, proposal: Proposal) {
        if let Some(key) = &proposal.params.how.idempotency_key {
            self.by_key.insert(key.clone(), number);
        }
        self.proposals.push_back((number, proposal));
    }

    /// Takes out a publication of which it is known what became of it.
    pub(crate) fn take_proposal(&mut self, number: ProposalNumber) -> Option<Proposal> {
        let place = self.proposals.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        let (_, proposal) = self.proposals.remove(place)?;
        if let Some(key) = &proposal.params.how.idempotency_key {
            self.by_key.remove(key);
        }
        Some(proposal)
    }

    /// The proposed publication with this idempotency key.
    pub(crate) fn proposal_with_key(&mut self, key: &str) -> Option<&mut Proposal> {
        let number = self.by_key.get(key)?;
        let place = self.proposals.binary_search_by_key(number, |(number, _)| *number).ok()?;
        Some(&mut self.proposals[place].1)
    }

    /// The proposed publication whose version leaves no room for this one. Only that of the newest publication counts.
    pub(crate) fn proposal_as_new_as(&mut self, version: u64, version_epoch: &str) -> Option<&mut Proposal> {
        let (_, newest) = self.proposals.back_mut()?;
        let PublishHow { version: newest_version, version_epoch: newest_epoch, .. } = &newest.params.how;
        let is_newer = version > *newest_version || !version_epoch.is_empty() && *version_epoch != **newest_epoch;
        (version > 0 && !is_newer).then_some(newest)
    }

    /// The load that brings what `query` asks for, if one is under way.
    pub(crate) fn load_of(&self, query: LoadQuery) -> Option<LoadNumber> {
        self.loads.iter().find(|(_, known)| *known == query).map(|(load, _)| *load)
    }

    pub(crate) fn begin_load(&mut self, load: LoadNumber, query: LoadQuery) {
        self.loads.push((load, query));
    }

    pub(crate) fn park(&mut self, load: LoadNumber, request: ParkedRequest) {
        self.parked.push((load, request));
    }

    /// Ends a load; returns the requests that waited for it, in the order in which they came.
    pub(crate) fn end_load(&mut self, load: LoadNumber) -> Vec<ParkedRequest> {
        self.loads.retain(|(number, _)| *number != load);
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.parked).into_iter().partition(|(number, _)| *number == load);
        self.parked = waiting;
        ready.into_iter().map(|(_, request)| request).collect()
    }

    /// What has to be loaded for a recovery, if memory does not have it and the log may.
    pub(crate) fn missing_for(
        &self,
        stream: &Stream,
        from: &RecoverFrom,
        options: &NamespaceOptions,
    ) -> Option<LoadQuery> {
        let (mode, publications_max) = (options.recovery_mode, options.history_size);
        let is_of_epoch = from.epoch.is_empty() || *from.epoch == *stream.epoch();
        // A client that was on another node may be ahead of this one.
        let is_ahead = options.log == PublicationLog::OrderedByLog && is_of_epoch && from.offset > stream.top();
        let after = match mode {
            _ if is_ahead => Some(from.offset),
            RecoveryMode::Stream if is_of_epoch && (self.floor..stream.floor()).contains(&from.offset) => {
                Some(from.offset)
            }
            RecoveryMode::Cache if stream.is_empty() && self.floor < stream.floor() => None,
            RecoveryMode::Stream | RecoveryMode::Cache => return None,
        };
        Some(LoadQuery { after, publications_max })
    }

    /// The same for a part of the history.
    pub(crate) fn missing_in_history(
        &self,
        stream: &Stream,
        query: &HistoryQuery,
        publications_max: usize,
    ) -> Option<LoadQuery> {
        let since = query.since.as_ref().map_or(0, |(offset, _)| *offset);
        let is_there = self.floor >= stream.floor() || !query.reverse && since >= stream.floor();
        if query.limit == 0 || is_there {
            return None;
        }
        // The history is the newest part of a log, which may keep more.
        let after = (!query.reverse && since > self.floor).then_some(since);
        Some(LoadQuery { after, publications_max })
    }
}

/// What the channels of a shard have under way with logs.
#[derive(Debug, Default)]
pub(crate) struct LogTraffic {
    /// What the caller is asked to do, in order.
    pub(crate) requests: Vec<Effect>,
    /// Proposals and loads that there ever were.
    numbered: u64,
    pub(crate) proposals: usize,
    pub(crate) proposal_bytes: usize,
    pub(crate) parked: usize,
    /// Namespaces whose log is broken.
    broken: Vec<NamespaceIndex>,
}

impl LogTraffic {
    /// A number that no proposal and no load had.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    pub(crate) fn is_broken(&self, namespace: NamespaceIndex) -> bool {
        self.broken.contains(&namespace)
    }

    pub(crate) fn breaks(&mut self, namespace: NamespaceIndex) {
        if !self.is_broken(namespace) {
            self.broken.push(namespace);
        }
    }
}
