//! What a shard has on the way to and from logs: requests, proposals in flight, and requests of clients that wait for a
//! page or for other nodes.

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, Publication};

use crate::{
    Effect, Effects,
    channel::{Following, OwnedChannel},
    event::Ticket,
    history_stream::{Stream, kept_bytes},
    log::{LoadNumber, LoadQuery, LogBusy, LogError, LogLimits, LogPage, LogRecord, ProposalNumber, PublicationLog},
    log_in_flight::{ChannelLog, LogPhase, ParkedCost, ParkedRequest, ParkedTotals, Proposal},
    log_load::Gathered,
    message::SubscriptionRequest,
    options::NamespaceOptions,
    refused::Refused,
};

use super::Context;

const TOO_MANY_PROPOSALS: &str = "too many publications of the shard, or too many bytes of them, wait until their log has stored them; publish more slowly";

/// Maximum number of bytes of the page that opens a channel.
const FIRST_PAGE_BYTES_MAX: usize = 1 << 20;

/// The requests to logs of a shard, and the totals that its limits apply to. Each channel has its own part of them in
/// its [`ChannelLog`].
#[derive(Debug, Default)]
pub(super) struct LogTraffic {
    /// Requests for the caller to perform, in order. They are not effects at once: what an event sends to other shards
    /// precedes what it requests of logs.
    requests: Vec<Effect>,
    /// The number of proposals and loads so far.
    numbered: u64,
    proposals: usize,
    proposal_bytes: usize,
    parked: ParkedTotals,
    /// Bytes of pages that loads have gathered and that are not complete.
    gathered_bytes: usize,
}

impl LogTraffic {
    /// Moves the pending requests into the effects.
    pub(super) fn take_requests(&mut self, effects: &mut Effects) {
        // Most events have none, and this runs after each write to a session.
        if !self.requests.is_empty() {
            effects.list.append(&mut self.requests);
        }
    }

    /// Proposed publications, their bytes, and parked requests.
    pub(super) const fn holdings(&self) -> [usize; 3] {
        [self.proposals, self.proposal_bytes, self.parked.requests()]
    }

    /// A number that no proposal or load has used.
    fn next_number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    pub(super) fn next_load(&mut self) -> LoadNumber {
        LoadNumber(self.next_number())
    }

    pub(super) fn request(&mut self, request: Effect) {
        self.requests.push(request);
    }

    /// Whether the channel's newest publications are in memory. If not, they are loaded.
    pub(super) fn open(&mut self, context: &Context, channel: &mut OwnedChannel) -> bool {
        match &channel.log {
            Some(log) if !log.is_open() => return false,
            Some(_) if channel.stream.is_some() => return true,
            _ => {}
        }
        let options = context.namespace(channel.namespace);
        let load = self.next_load();
        let query = LoadQuery::newest(first_page_max(&context.options.log, options)).within(FIRST_PAGE_BYTES_MAX);
        match &mut channel.log {
            Some(log) => log.phase = LogPhase::opened_by(load),
            log => *log = Some(Box::new(ChannelLog::opened_by(load, context.node_seed))),
        }
        let (name, terms) = (&channel.name, options.log_terms());
        self.requests.push(Effect::Follow { channel: Arc::clone(name) });
        self.requests.push(Effect::Load { channel: Arc::clone(name), load, query, terms });
        false
    }

    /// Adds a page to those of its load. Returns all of them, or `None` if the rest is requested.
    pub(super) fn gather_page(
        &mut self,
        context: &Context,
        channel: &mut OwnedChannel,
        load: LoadNumber,
        page: LogPage,
    ) -> Result<Option<LogPage>, LogError> {
        let log = channel.log.as_deref_mut().ok_or(LogError::Unavailable)?;
        self.gathered_bytes -= log.gathered_bytes();
        let gathered = log.gather(load, page, channel.stream.as_deref());
        self.gathered_bytes += log.gathered_bytes();
        match gathered? {
            Gathered::Enough(page) => Ok(Some(page)),
            Gathered::More(_) if self.gathered_bytes > context.options.log.gathered_bytes_max => {
                Err(LogError::Busy(LogBusy::Pages))
            }
            Gathered::More(query) => {
                let terms = context.namespace(channel.namespace).log_terms();
                self.requests.push(Effect::Load { channel: Arc::clone(&channel.name), load, query, terms });
                Ok(None)
            }
        }
    }

    /// Ends a load; returns the requests that waited for it.
    pub(super) fn end_load(&mut self, channel: &mut OwnedChannel, load: LoadNumber) -> Vec<ParkedRequest> {
        let Some(log) = channel.log.as_deref_mut() else { return Vec::new() };
        self.gathered_bytes -= log.gathered_bytes();
        let requests = log.end_load(load);
        self.gathered_bytes += log.gathered_bytes();
        for request in &requests {
            self.parked.remove(request.cost());
        }
        requests
    }

    /// Drops a channel's log, which nothing waits for.
    pub(super) fn close(&mut self, channel: &mut OwnedChannel) {
        if let Some(log) = channel.log.take() {
            self.gathered_bytes -= log.gathered_bytes();
            self.unfollow(channel);
        }
    }

    pub(super) fn unfollow(&mut self, channel: &OwnedChannel) {
        let (channel, only_user) = (Arc::clone(&channel.name), channel.used_by.only());
        self.requests.push(Effect::Unfollow { channel, only_user });
    }

    /// Whether the node is known to receive what other nodes send to a channel without a log. If not, requests it.
    pub(super) fn follow(&mut self, context: &Context, channel: &mut OwnedChannel) -> bool {
        if !context.is_shared(channel.namespace) {
            return true;
        }
        if matches!(channel.following, Following::Not) {
            channel.following = Following::Asked;
            self.requests.push(Effect::Follow { channel: Arc::clone(&channel.name) });
        }
        channel.following.is_confirmed()
    }

    /// Follows a channel, unless a log does, while it has subscribers or publications for new subscribers.
    pub(super) fn review_following(&mut self, context: &Context, channel: &mut OwnedChannel) {
        let is_needed = (channel.subscribers() > 0 || channel.key_cache.is_some())
            && context.is_shared(channel.namespace)
            && !context.is_logged(channel.namespace);
        let is_asked = !matches!(channel.following, Following::Not);
        if is_needed == is_asked || channel.following.has_parked() {
            return;
        }
        if is_needed {
            channel.following = Following::Asked;
            self.requests.push(Effect::Follow { channel: Arc::clone(&channel.name) });
        } else {
            channel.following = Following::Not;
            self.unfollow(channel);
        }
    }

    /// Deletes the present publications of a channel from its log, which then answers the ticket.
    pub(super) fn trim(&mut self, channel: &mut OwnedChannel, ticket: Option<Ticket>) {
        let mut through = u64::MAX;
        if let Some(log) = channel.log.as_deref_mut() {
            match (&mut log.phase, &channel.stream) {
                (LogPhase::Opening { meanwhile, .. }, _) => meanwhile.clear(),
                (_, Some(stream)) => through = stream.top(),
                (_, None) => {}
            }
            log.floor = through;
        }
        self.trim_through(&channel.name, through, ticket);
    }

    /// Deletes all publications up to an offset from the log of a channel, which need not be in memory.
    pub(super) fn trim_through(&mut self, name: &Arc<str>, through: u64, ticket: Option<Ticket>) {
        self.requests.push(Effect::Trim { channel: Arc::clone(name), through, ticket });
    }

    /// A channel's publications have expired. A log that other nodes write to expires them by itself.
    pub(super) fn expire(&mut self, context: &Context, channel: &mut OwnedChannel) {
        if context.namespace(channel.namespace).log != PublicationLog::OrderedByLog {
            if context.is_logged_name(&channel.name) {
                self.trim(channel, None);
            }
        } else if let (Some(log), Some(stream)) = (channel.log.as_deref_mut(), &channel.stream) {
            log.floor = stream.top();
        }
    }

    /// Checks the limits on proposals in flight.
    pub(super) fn check_proposal(&self, limits: &LogLimits, publication: &Publication) -> Result<(), Refused> {
        let bytes = self.proposal_bytes + kept_bytes(publication);
        let fits = self.proposals < limits.proposals_max && bytes <= limits.proposal_bytes_max;
        if fits { Ok(()) } else { Err(Refused::new(ErrorCode::TooManyRequests, TOO_MANY_PROPOSALS)) }
    }

    /// Proposes a publication to a channel's log, which is open. `begins` is the epoch of a stream that begins with it.
    pub(super) fn propose(
        &mut self,
        context: &Context,
        channel: &mut OwnedChannel,
        proposal: Proposal,
        record: LogRecord,
        begins: Option<Box<str>>,
    ) -> Result<(), Refused> {
        let log = channel.open_log().ok_or(ErrorCode::Internal)?;
        let number = ProposalNumber(self.next_number());
        self.proposals += 1;
        self.proposal_bytes += kept_bytes(&proposal.publication);
        log.propose(number, proposal);
        let terms = context.namespace(channel.namespace).log_terms();
        let (channel, record) = (Arc::clone(&channel.name), Box::new(record));
        self.requests.push(Effect::Propose { channel, proposal: number, record, begins, terms });
        Ok(())
    }

    /// Takes a proposal whose outcome is known.
    pub(super) fn take_proposal(&mut self, channel: &mut OwnedChannel, number: ProposalNumber) -> Option<Proposal> {
        let proposal = channel.log.as_deref_mut()?.take_proposal(number)?;
        self.proposals -= 1;
        self.proposal_bytes -= kept_bytes(&proposal.publication);
        Some(proposal)
    }

    pub(super) fn check_parked(&self, limits: &LogLimits, cost: ParkedCost) -> Result<(), Refused> {
        match self.parked.exceeded(cost, limits) {
            None => Ok(()),
            Some(limit) => Err(Refused::new(ErrorCode::TooManyRequests, limit.why())),
        }
    }

    /// Parks a request until the channel is open.
    pub(super) fn park_until_open(
        &mut self,
        context: &Context,
        channel: &mut OwnedChannel,
        request: ParkedRequest,
    ) -> Result<(), Refused> {
        let cost = request.cost();
        self.check_parked(&context.options.log, cost)?;
        let log = channel.log.as_deref_mut().ok_or(ErrorCode::Internal)?;
        let LogPhase::Opening { load, .. } = log.phase else { return Err(ErrorCode::Internal.into()) };
        self.parked.add(cost);
        log.park(load, request);
        Ok(())
    }

    /// Parks a request until a page arrives.
    pub(super) fn park_for_page(
        &mut self,
        context: &Context,
        channel: &mut OwnedChannel,
        query: LoadQuery,
        request: ParkedRequest,
    ) -> Result<(), Refused> {
        let cost = request.cost();
        self.check_parked(&context.options.log, cost)?;
        let number = self.next_load();
        let log = channel.open_log().ok_or(ErrorCode::Internal)?;
        let under_way = log.load_of(query);
        if under_way.is_none() {
            log.begin_load(number, query);
        }
        log.park(under_way.unwrap_or(number), request);
        self.parked.add(cost);
        if under_way.is_none() {
            let terms = context.namespace(channel.namespace).log_terms();
            self.requests.push(Effect::Load { channel: Arc::clone(&channel.name), load: number, query, terms });
        }
        Ok(())
    }

    /// Parks a subscription until the keys are restored from the log. The log is open.
    pub(super) fn park_for_keys(
        &mut self,
        context: &Context,
        channel: &mut OwnedChannel,
        request: Box<SubscriptionRequest>,
    ) -> Result<(), Refused> {
        let number = self.next_load();
        let (Some(log), Some(stream), Some(cache)) = (&mut channel.log, &channel.stream, &mut channel.key_cache) else {
            return Err(ErrorCode::Internal.into());
        };
        let under_way = cache.restoring_load();
        self.parked.add(ParkedCost::of_subscription(&request));
        log.park(under_way.unwrap_or(number), ParkedRequest::Subscribe(request));
        if under_way.is_none() {
            let after = log.floor;
            cache.begin_restore(context.node_seed, number, after, stream.top());
            self.load_keys(context, channel, number, after);
        }
        Ok(())
    }

    /// Requests the next page for the keys of a channel.
    pub(super) fn load_keys(&mut self, context: &Context, channel: &OwnedChannel, load: LoadNumber, after: u64) {
        let publications_max = context.options.log.tail_publications_max.max(1);
        let query = LoadQuery::after(after, publications_max);
        let terms = context.namespace(channel.namespace).log_terms();
        self.requests.push(Effect::Load { channel: Arc::clone(&channel.name), load, query, terms });
    }

    /// Parks a subscription until other nodes' messages to its channel arrive.
    pub(super) fn park_until_followed(&mut self, channel: &mut OwnedChannel, request: Box<SubscriptionRequest>) {
        self.parked.add(ParkedCost::of_subscription(&request));
        channel.following.wait_for_confirmation(request);
    }

    /// Parks a subscription until other nodes have sent their keys. Returns whether they are to be asked for them.
    pub(super) fn park_for_keys_of_peers(
        &mut self,
        channel: &mut OwnedChannel,
        request: Box<SubscriptionRequest>,
    ) -> bool {
        self.parked.add(ParkedCost::of_subscription(&request));
        channel.following.wait_for_keys(request)
    }

    /// Counts a join that is parked until other nodes have answered whether they have the room.
    pub(super) fn note_parked(&mut self, request: &SubscriptionRequest) {
        self.parked.add(ParkedCost::of_subscription(request));
    }

    /// A subscription that was parked for other nodes is served again.
    pub(super) fn unpark(&mut self, request: &SubscriptionRequest) {
        self.parked.remove(ParkedCost::of_subscription(request));
    }
}

/// Opens a channel with its first page.
pub(super) fn open_with_page(context: &mut Context, channel: &mut OwnedChannel, page: LogPage) {
    let (limits, options) = (&context.options.log, context.namespace(channel.namespace));
    let Some(log) = channel.log.as_deref_mut() else { return };
    // The requests that waited for the page are served next.
    let LogPhase::Opening { meanwhile, .. } = std::mem::replace(&mut log.phase, LogPhase::Serving) else {
        unreachable!("the page is the first one")
    };
    let mut page = page;
    if log.floor == u64::MAX {
        // The history was removed during the load. The log has deleted what is in the page, which it read before;
        // `meanwhile` has only what came after the removal.
        page = LogPage { floor: page.top, through: page.top, records: Vec::new(), has_more_below: false, ..page };
    }
    // A full page was cut by a limit, not by the start of the log.
    let is_full = page.records.len() >= first_page_max(limits, options);
    log.floor = if is_full || page.has_more_below { 0 } else { page.floor };
    let top = page.top.max(meanwhile.top());
    log.next_offset = log.next_offset.max(top + 1);
    let mut stream = Stream::of_page(page, &meanwhile, top);
    stream.forget_beyond(options.history_size.min(limits.tail_publications_max));
    stream.data_until_us = if stream.is_empty() { u64::MAX } else { context.now.after_ms(options.history_ttl_ms) };
    stream.meta_until_us = context.now.after_ms(options.remembered_ms());
    channel.stream = Some(Box::new(stream));
    channel.schedule(&mut context.timers);
}

/// The page and the publications in memory, as one stream; the page alone if publications between the two are in
/// neither, because it has all that was asked for.
pub(super) fn page_with_tail(context: &Context, channel: &OwnedChannel, mut page: LogPage) -> Option<LoadedPart> {
    let (log, tail) = (channel.log.as_deref()?, channel.stream.as_deref()?);
    // Publications removed during the load may be in the page.
    page.floor = page.floor.max(log.floor);
    page.through = page.through.max(page.floor);
    page.records.retain(|record| record.publication.offset > page.floor);
    // The log has no publication up to `through`; those that it passed on earlier are in the tail.
    let is_behind_tail = page.records.is_empty() && page.floor >= tail.top();
    let is_ordered_by_log = context.namespace(channel.namespace).log == PublicationLog::OrderedByLog;
    let top = if is_ordered_by_log && is_behind_tail { page.through } else { tail.top() };
    if page.through < tail.floor() {
        return Some(LoadedPart::Alone(Stream::of_part(page, tail.top())));
    }
    Some(LoadedPart::ToTail(Stream::of_page(page, tail, top)))
}

/// A loaded part of a channel.
pub(super) enum LoadedPart {
    /// It ends with the newest publication.
    ToTail(Stream),
    /// Publications between it and those in memory are missing.
    Alone(Stream),
}

/// Maximum number of publications of the page that opens a channel.
fn first_page_max(limits: &LogLimits, options: &NamespaceOptions) -> usize {
    limits.tail_publications_max.min(options.history_size).max(1)
}
