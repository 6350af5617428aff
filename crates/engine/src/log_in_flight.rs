//! The owner's state of a channel's log: proposals in flight, and requests that wait for a page.

use std::{collections::VecDeque, sync::Arc};

use dunlin_protocol::{ClientInfo, Payload, Publication};
use hashbrown::HashMap;

use crate::{
    SessionKey, ShardIndex,
    api::HistoryQuery,
    backend::PublishHow,
    channel_creators::ChannelCreator,
    event::Ticket,
    history_stream::{Reader, Stream},
    log::{LoadNumber, LoadQuery, LogError, LogLimits, LogPage, ProposalNumber, PublicationLog},
    log_load::{Gathered, PageLoad},
    message::{Asker, RecoverFrom, SubscriptionRequest},
    options::{ClientOptions, NamespaceOptions, RecoveryMode},
    room::EventAudience,
    shrink::shrink_map,
};

/// Maximum number of bytes that are read from a log for one answer without a smaller limit of its own.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The receiver of the outcome of a publication, or of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyTo {
    /// A session's command.
    Session(Asker),
    /// A request of the server API.
    Api(Ticket),
    /// A room, which receives no answer; a refusal is only counted.
    Room,
    Nobody,
}

/// A publication that its channel has not accepted yet.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) data: Payload,
    pub(crate) info: Option<Arc<ClientInfo>>,
    pub(crate) how: PublishHow,
    /// The recipients; `None` for all subscribers.
    pub(crate) audience: Option<Arc<EventAudience>>,
    /// The session that published it; `None` for other publishers.
    pub(crate) creator: Option<ChannelCreator>,
}

impl Draft {
    /// Lower bound on its bytes in a frame.
    pub(crate) fn bytes(&self) -> usize {
        let tags: usize = self.how.tags.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.data.bytes().len() + tags
    }
}

/// An accepted publication, and what to do when it is committed.
#[derive(Debug)]
pub(crate) struct Proposal {
    pub(crate) publication: Publication,
    pub(crate) params: ProposalParams,
    pub(crate) creator: Option<ChannelCreator>,
    pub(crate) reply_to: ReplyTo,
    /// Publications with the same key or no newer version, which receive the same answer.
    pub(crate) duplicates: Vec<ReplyTo>,
}

/// How a proposed publication is published.
#[derive(Debug)]
pub(crate) struct ProposalParams {
    /// The tags are empty here, because `publication` has them.
    pub(crate) how: PublishHow,
    pub(crate) audience: Option<Arc<EventAudience>>,
    /// When it was accepted.
    pub(crate) accepted_us: u64,
    /// Whether it is followed through its stages.
    pub(crate) is_followed: bool,
}

/// A request that waits for a page of the log.
#[derive(Debug)]
pub(crate) enum ParkedRequest {
    Publish { draft: Box<Draft>, reply_to: ReplyTo },
    Subscribe(Box<SubscriptionRequest>),
    History { query: HistoryQuery, reader: HistoryReader, reply_to: ReplyTo },
}

/// What a parked request takes besides the data of a publication or a join.
const PARKED_OVERHEAD_BYTES: usize = 512;

/// One session has at most this part of the bytes of parked requests.
const SESSION_SHARE: usize = 8;

/// What a parked request counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParkedCost {
    bytes: usize,
    /// The session that it is from, if any.
    session: Option<(ShardIndex, SessionKey)>,
}

impl ParkedCost {
    pub(crate) fn of_subscription(request: &SubscriptionRequest) -> Self {
        let bytes = PARKED_OVERHEAD_BYTES + request.queued_bytes();
        Self { bytes, session: Some((request.asker.shard, request.asker.session)) }
    }
}

impl ParkedRequest {
    pub(crate) fn cost(&self) -> ParkedCost {
        let session = |reply_to: &ReplyTo| match reply_to {
            ReplyTo::Session(asker) => Some((asker.shard, asker.session)),
            ReplyTo::Api(_) | ReplyTo::Room | ReplyTo::Nobody => None,
        };
        match self {
            Self::Publish { draft, reply_to } => {
                ParkedCost { bytes: PARKED_OVERHEAD_BYTES + draft.bytes(), session: session(reply_to) }
            }
            Self::Subscribe(request) => ParkedCost::of_subscription(request),
            Self::History { reply_to, .. } => ParkedCost { bytes: PARKED_OVERHEAD_BYTES, session: session(reply_to) },
        }
    }
}

/// The parked requests of a shard, or the joins to its rooms that sessions hold.
#[derive(Debug, Default)]
pub(crate) struct ParkedTotals {
    requests: usize,
    bytes: usize,
    bytes_of: HashMap<(ShardIndex, SessionKey), usize, foldhash::quality::FixedState>,
}

/// A limit on parked requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParkedLimit {
    Requests,
    Bytes,
    SessionShare,
}

impl ParkedLimit {
    pub(crate) const fn why(self) -> &'static str {
        match self {
            Self::Requests => {
                "channel.waiting_requests_limit requests wait for a log or for other nodes; raise it, or retry"
            }
            Self::Bytes => {
                "requests of channel.waiting_requests_size_limit bytes wait for a log or for other nodes; raise it, or retry"
            }
            Self::SessionShare => {
                "the session's waiting requests take an eighth of channel.waiting_requests_size_limit; raise it, or send fewer at once"
            }
        }
    }
}

impl ParkedTotals {
    pub(crate) const fn requests(&self) -> usize {
        self.requests
    }

    /// The limit that one more request would exceed.
    pub(crate) fn exceeded(&self, cost: ParkedCost, limits: &LogLimits) -> Option<ParkedLimit> {
        let of_session = cost.session.and_then(|session| self.bytes_of.get(&session)).copied().unwrap_or(0);
        // A request that is larger than the share of its session may wait alone.
        let is_in_share = of_session == 0 || of_session + cost.bytes <= limits.parked_bytes_max / SESSION_SHARE;
        if self.requests >= limits.parked_max {
            Some(ParkedLimit::Requests)
        } else if self.bytes + cost.bytes > limits.parked_bytes_max {
            Some(ParkedLimit::Bytes)
        } else {
            (!is_in_share).then_some(ParkedLimit::SessionShare)
        }
    }

    pub(crate) fn add(&mut self, cost: ParkedCost) {
        (self.requests, self.bytes) = (self.requests + 1, self.bytes + cost.bytes);
        if let Some(session) = cost.session {
            *self.bytes_of.entry(session).or_default() += cost.bytes;
        }
    }

    pub(crate) fn remove(&mut self, cost: ParkedCost) {
        (self.requests, self.bytes) = (self.requests - 1, self.bytes - cost.bytes);
        let Some(session) = cost.session else { return };
        let of_session = self.bytes_of.get_mut(&session).expect("it was added");
        *of_session -= cost.bytes;
        if *of_session == 0 {
            self.bytes_of.remove(&session);
            shrink_map(&mut self.bytes_of);
        }
    }
}

/// The reader of a history; see [`Reader`].
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

/// The lifecycle of a channel's log.
#[derive(Debug)]
pub(crate) enum LogPhase {
    /// The first page is loading, with this number. `meanwhile` has what was committed since that began.
    Opening { load: LoadNumber, meanwhile: Box<Stream> },
    /// The first page has arrived.
    Open,
    /// As [`LogPhase::Open`], while requests that waited for a page are served. The channel stays until all of them are,
    /// even if it would be forgotten after the first.
    Serving,
}

impl LogPhase {
    pub(crate) fn opened_by(load: LoadNumber) -> Self {
        Self::Opening { load, meanwhile: Box::new(Stream::new(Box::default())) }
    }
}

/// A channel's log, if its namespace has one. It exists while the channel's newest publications are in memory, or
/// something waits for the log.
#[derive(Debug)]
pub(crate) struct ChannelLog {
    pub(crate) phase: LogPhase,
    /// The log has no publication at or below this offset.
    pub(crate) floor: u64,
    /// The next offset that the owner assigns. No offset is assigned twice, even if its publication fails.
    pub(crate) next_offset: u64,
    /// The channel counts against the creator of a proposal in flight, and nothing of it is committed.
    pub(crate) is_creator_reserved: bool,
    /// Ordered by number, which is the order of proposal.
    proposals: VecDeque<(ProposalNumber, Proposal)>,
    by_key: HashMap<Box<str>, ProposalNumber, foldhash::quality::FixedState>,
    loads: Vec<PageLoad>,
    parked: Vec<(LoadNumber, ParkedRequest)>,
}

impl ChannelLog {
    /// A log whose first page is loading.
    pub(crate) fn opened_by(load: LoadNumber, seed: u64) -> Self {
        Self {
            phase: LogPhase::opened_by(load),
            floor: 0,
            next_offset: 1,
            is_creator_reserved: false,
            proposals: VecDeque::new(),
            by_key: HashMap::with_hasher(foldhash::quality::FixedState::with_seed(seed)),
            loads: Vec::new(),
            parked: Vec::new(),
        }
    }

    /// Keeps a committed publication, with its version, until the first page arrives. Returns whether the page is loading.
    pub(crate) fn note_while_opening(
        &mut self,
        publication: &Arc<Publication>,
        (version, version_epoch): (u64, &str),
        publications_max: usize,
    ) -> bool {
        let LogPhase::Opening { meanwhile, .. } = &mut self.phase else { return false };
        if publication.offset > meanwhile.top() {
            meanwhile.set_version(version, version_epoch);
            meanwhile.append(Arc::clone(publication), None);
            meanwhile.forget_beyond(publications_max);
        }
        true
    }

    /// Whether the first page has arrived.
    pub(crate) const fn is_open(&self) -> bool {
        !matches!(self.phase, LogPhase::Opening { .. })
    }

    /// Whether the first page comes with this load.
    pub(crate) fn is_opened_by(&self, load: LoadNumber) -> bool {
        matches!(&self.phase, LogPhase::Opening { load: opening, .. } if *opening == load)
    }

    /// Whether nothing waits for the log.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.phase, LogPhase::Open) && self.proposals.is_empty() && self.parked.is_empty()
    }

    /// Whether the outcome of a proposal is not known.
    pub(crate) fn has_proposals(&self) -> bool {
        !self.proposals.is_empty()
    }

    /// Whether a page is loading.
    pub(crate) fn is_loading(&self) -> bool {
        !self.loads.is_empty()
    }

    pub(crate) fn propose(&mut self, number: ProposalNumber, proposal: Proposal) {
        if let Some(key) = &proposal.params.how.idempotency_key {
            self.by_key.insert(key.clone(), number);
        }
        self.proposals.push_back((number, proposal));
    }

    /// Removes a proposal whose outcome is known.
    pub(crate) fn take_proposal(&mut self, number: ProposalNumber) -> Option<Proposal> {
        let place = self.proposals.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        let (_, proposal) = self.proposals.remove(place)?;
        if let Some(key) = &proposal.params.how.idempotency_key {
            self.by_key.remove(key);
        }
        Some(proposal)
    }

    /// The proposal with this idempotency key.
    pub(crate) fn proposal_with_key(&mut self, key: &str) -> Option<&mut Proposal> {
        let number = self.by_key.get(key)?;
        let place = self.proposals.binary_search_by_key(number, |(number, _)| *number).ok()?;
        Some(&mut self.proposals[place].1)
    }

    /// The newest proposal, if its version supersedes this one. Older proposals do not matter.
    pub(crate) fn proposal_as_new_as(&mut self, version: u64, version_epoch: &str) -> Option<&mut Proposal> {
        let (_, newest) = self.proposals.back_mut()?;
        let PublishHow { version: newest_version, version_epoch: newest_epoch, .. } = &newest.params.how;
        let is_newer = version > *newest_version || !version_epoch.is_empty() && *version_epoch != **newest_epoch;
        (version > 0 && !is_newer).then_some(newest)
    }

    /// The load in flight for `query`, if any.
    pub(crate) fn load_of(&self, query: LoadQuery) -> Option<LoadNumber> {
        self.loads.iter().find(|load| load.query() == query).map(PageLoad::number)
    }

    pub(crate) fn begin_load(&mut self, load: LoadNumber, query: LoadQuery) {
        self.loads.push(PageLoad::new(load, query));
    }

    /// Adds a page to what its load has gathered. `tail` is the stream in memory.
    ///
    /// # Errors
    /// 100 if the log does not go on.
    pub(crate) fn gather(
        &mut self,
        load: LoadNumber,
        page: LogPage,
        tail: Option<&Stream>,
    ) -> Result<Gathered, LogError> {
        let tail_floor = tail.map_or(u64::MAX, Stream::floor);
        match self.loads.iter_mut().find(|known| known.number() == load) {
            Some(load) => load.gather(page, tail_floor),
            None => Ok(Gathered::Enough(page)),
        }
    }

    /// Bytes of the pages of loads that are not complete.
    pub(crate) fn gathered_bytes(&self) -> usize {
        self.loads.iter().map(PageLoad::bytes).sum()
    }

    pub(crate) fn park(&mut self, load: LoadNumber, request: ParkedRequest) {
        self.parked.push((load, request));
    }

    /// Ends a load; returns the requests that waited for it, in the order of arrival. The caller serves them and calls
    /// [`Self::end_serving`].
    pub(crate) fn end_load(&mut self, load: LoadNumber) -> Vec<ParkedRequest> {
        self.loads.retain(|known| known.number() != load);
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.parked).into_iter().partition(|(number, _)| *number == load);
        self.parked = waiting;
        // The first page opens the log before these requests are served.
        if self.is_open() {
            self.phase = LogPhase::Serving;
        }
        ready.into_iter().map(|(_, request)| request).collect()
    }

    /// The requests that waited for a page are served. One of them may have opened the log again.
    pub(crate) fn end_serving(&mut self) {
        if matches!(self.phase, LogPhase::Serving) {
            self.phase = LogPhase::Open;
        }
    }

    /// The load that a recovery needs: publications that are not in memory but may be in the log. A recovery that would
    /// exceed the limits of a reply is not read to the end.
    pub(crate) fn missing_for(
        &self,
        stream: &Stream,
        from: &RecoverFrom,
        is_filtered: bool,
        options: &NamespaceOptions,
        client: &ClientOptions,
    ) -> Option<LoadQuery> {
        let is_of_epoch = from.epoch.is_empty() || *from.epoch == *stream.epoch();
        // A client that was connected to another node may be ahead of this one.
        let is_ahead = options.log == PublicationLog::OrderedByLog && is_of_epoch && from.offset > stream.top();
        let (one_past_limit, bytes_max) = if is_filtered {
            (options.history_size, ANSWER_BYTES_MAX)
        } else {
            (client.recovery_publications_max.saturating_add(1).min(options.history_size), client.queue_bytes_max)
        };
        let query = match options.recovery_mode {
            _ if is_ahead => LoadQuery::after(from.offset, one_past_limit),
            RecoveryMode::Stream if is_of_epoch && (self.floor..stream.floor()).contains(&from.offset) => {
                LoadQuery::after(from.offset, one_past_limit)
            }
            RecoveryMode::Cache if stream.is_empty() && self.floor < stream.floor() => {
                let newest = LoadQuery::newest(if is_filtered { options.history_size } else { 1 });
                let is_ordered_by_log = options.log == PublicationLog::OrderedByLog;
                // Newer ones in the owner's own log are delivered when it hears of them.
                let below = if is_ordered_by_log { u64::MAX } else { stream.next_offset() };
                LoadQuery { below, ..newest }
            }
            RecoveryMode::Stream | RecoveryMode::Cache => return None,
        };
        Some(query.within(bytes_max))
    }

    /// The load that a history query needs: publications that are not in memory but may be in the log.
    pub(crate) fn missing_in_history(
        &self,
        stream: &Stream,
        query: &HistoryQuery,
        reader: Reader<'_>,
        options: &NamespaceOptions,
    ) -> Option<LoadQuery> {
        let since = query.since.as_ref().map(|(offset, _)| *offset);
        let (publications_max, bytes_max) = (query.publications_max(), query.bytes_max.unwrap_or(ANSWER_BYTES_MAX));
        let is_in_memory = if query.reverse {
            stream.has_before(since, reader, publications_max, bytes_max)
        } else {
            since.unwrap_or(0) >= stream.floor()
        };
        if query.limit == 0 || self.floor >= stream.floor() || is_in_memory {
            return None;
        }
        let limit = publications_max.min(options.history_size);
        // Only the owner's own log reads backwards, and keeps no more than the history.
        let is_ordered_by_log = options.log == PublicationLog::OrderedByLog;
        let load = match since {
            Some(since) if query.reverse && !is_ordered_by_log => {
                LoadQuery { below: since, ..LoadQuery::newest(limit) }
            }
            // The log may have newer ones that the owner does not know yet. They would count towards the limit.
            None if query.reverse && !is_ordered_by_log => {
                LoadQuery { below: stream.next_offset(), ..LoadQuery::newest(limit) }
            }
            Some(since) if !query.reverse && since > self.floor => LoadQuery::after(since, limit),
            _ if !query.reverse && !is_ordered_by_log => LoadQuery::after(self.floor, limit),
            // The history is the newest part of a log, which may keep more.
            _ => return Some(LoadQuery::newest(options.history_size)),
        };
        Some(load.within(bytes_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_session(index: u32, bytes: usize) -> ParkedCost {
        ParkedCost { bytes, session: Some((ShardIndex(0), SessionKey { index, generation: 1 })) }
    }

    #[test]
    fn parked_requests_are_bounded_in_bytes_and_for_each_session() {
        let limits = LogLimits { parked_bytes_max: 8_000, ..LogLimits::default() };
        let of_api = |bytes| ParkedCost { bytes, session: None };
        let mut parked = ParkedTotals::default();
        let exceeded = |parked: &ParkedTotals, cost| parked.exceeded(cost, &limits);
        parked.add(of_session(1, 600));
        assert_eq!(exceeded(&parked, of_session(1, 400)), None, "at the share of a session");
        assert_eq!(exceeded(&parked, of_session(1, 401)), Some(ParkedLimit::SessionShare), "past it");
        let alone = exceeded(&parked, of_session(2, 7_400));
        assert_eq!(alone, None, "a large request waits alone, up to the limit of all");
        parked.add(of_session(2, 7_000));
        assert_eq!(exceeded(&parked, of_session(2, 1)), Some(ParkedLimit::SessionShare));
        assert_eq!(exceeded(&parked, of_api(400)), None);
        assert_eq!(exceeded(&parked, of_api(401)), Some(ParkedLimit::Bytes));
        parked.remove(of_session(2, 7_000));
        parked.remove(of_session(1, 600));
        assert_eq!((parked.requests(), parked.bytes, parked.bytes_of.len()), (0, 0, 0));
    }

    #[test]
    fn the_sessions_of_a_burst_take_no_memory_after_it() {
        let mut parked = ParkedTotals::default();
        (0..100_000).for_each(|index| parked.add(of_session(index, 1)));
        let at_peak = parked.bytes_of.allocation_size();
        (0..100_000).for_each(|index| parked.remove(of_session(index, 1)));
        assert!(parked.bytes_of.allocation_size() < at_peak / 10);
    }
}
