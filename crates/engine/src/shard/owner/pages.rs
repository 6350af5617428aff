//! Pages of logs and answers of other nodes: parks the requests that need one, and serves them when it arrives. Publishes
//! what a log has committed.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use dunlin_protocol::ErrorCode;

use crate::{
    Effect,
    api::HistoryQuery,
    backend::PublishHow,
    channel::{Audience, ChannelKey, Following},
    conflation_keys::RestoreProgress,
    counters::Suppression,
    event::PeerKeys,
    history_stream::Reader,
    log::{LoadNumber, LoadQuery, LogError, LogPage, LogRecord, ProposalNumber},
    log_in_flight::{
        ANSWER_BYTES_MAX, HistoryReader, LogPhase, ParkedCost, ParkedRequest, Proposal, ProposalParams, ReplyTo,
    },
    message::{HistoryPart, NotSubscribed, Notice, SubscriptionRequest},
    refused::Refused,
};

use super::{
    Context, NamedChannel, Owner,
    histories::{lacks_keys, should_ask_for_keys},
    log_traffic::{LoadedPart, open_with_page, page_with_tail},
};

/// Maximum number of a shard's queries for keys in flight. Others wait; the subscriptions that need them are bounded.
const KEY_QUERIES_MAX: usize = 64;

/// The channels whose keys are asked of other nodes.
///
/// This happens for a shared channel that has no log, when a subscription needs the newest publication of each key. The
/// node follows the channel already, so what the others receive later arrives here as well. Subscriptions wait until all
/// nodes have answered, or for as long as a survey takes; then they are answered with what is known.
#[derive(Debug, Default)]
pub(super) struct KeyQueries {
    in_flight: BTreeSet<Arc<str>>,
    waiting: VecDeque<Arc<str>>,
}

impl KeyQueries {
    /// The query to send now, if there is one and space for it.
    fn next(&mut self) -> Option<Effect> {
        if self.in_flight.len() >= KEY_QUERIES_MAX {
            return None;
        }
        let channel = self.waiting.pop_front()?;
        self.in_flight.insert(Arc::clone(&channel));
        Some(Effect::QueryKeys { channel })
    }
}

/// What a request waits for.
#[derive(Clone, Copy, Debug)]
enum PageWait {
    UntilOpen,
    ForPage(LoadQuery),
    /// Until the newest publications of keys are restored from the log, which is read page by page, from its oldest
    /// publication to the newest one at the begin; later ones arrive meanwhile.
    ForKeys,
    UntilFollowed,
    /// Until other nodes have sent the newest publications of keys.
    ForKeysOfPeers,
}

impl Owner {
    /// Accepts a subscription, or parks it until the page of a log or other nodes' messages arrive.
    pub(super) fn subscribe_when_ready(&mut self, context: &mut Context, request: Box<SubscriptionRequest>) {
        let key = self.channels.find(&request.channel);
        let namespace = match context.names.resolve(&request.channel) {
            Ok(namespace) => namespace,
            Err(code) => return self.refuse_subscription(context, key, request, code.into()),
        };
        let mut channel = NamedChannel { name: &request.channel, namespace, key };
        let wait = match self.wait_of_subscription(context, &mut channel, &request) {
            Ok(Some(wait)) => wait,
            Ok(None) => {
                let outcome = self.accept_subscription(context, &mut channel, &request, None);
                let key = channel.key;
                return self.answer_subscription(context, key, request, outcome.map_err(NotSubscribed::from));
            }
            Err(refused) => {
                let key = channel.key;
                return self.refuse_subscription(context, key, request, refused);
            }
        };
        let key = channel.key;
        let parked = self.park_subscription(context, key, request, wait);
        self.review_if_any(context, key);
        if let Err((request, refused)) = parked {
            self.answer_subscription(context, key, request, Err(refused.into()));
        }
    }

    fn park_subscription(
        &mut self,
        context: &Context,
        key: Option<ChannelKey>,
        request: Box<SubscriptionRequest>,
        wait: PageWait,
    ) -> Result<(), (Box<SubscriptionRequest>, Refused)> {
        let cost = ParkedCost::of_subscription(&request);
        if let Err(refused) = self.log_traffic.check_parked(&context.options.log, cost) {
            return Err((request, refused));
        }
        let Some(channel) = key.and_then(|key| self.channels.get_mut(key)) else {
            debug_assert!(false, "what a subscription waits for is a channel's");
            return Err((request, ErrorCode::Internal.into()));
        };
        let traffic = &mut self.log_traffic;
        // The limit was checked above.
        let parked = match wait {
            PageWait::UntilOpen => traffic.park_until_open(context, channel, ParkedRequest::Subscribe(request)),
            PageWait::ForPage(query) => {
                traffic.park_for_page(context, channel, query, ParkedRequest::Subscribe(request))
            }
            PageWait::ForKeys => traffic.park_for_keys(context, channel, request),
            PageWait::UntilFollowed => {
                traffic.park_until_followed(channel, request);
                Ok(())
            }
            PageWait::ForKeysOfPeers => {
                if traffic.park_for_keys_of_peers(channel, request) {
                    self.key_queries.waiting.push_back(Arc::clone(&channel.name));
                    self.query_next_keys();
                }
                Ok(())
            }
        };
        debug_assert!(parked.is_ok(), "there is room, and the log or the channel is there");
        Ok(())
    }

    /// What a subscription has to wait for, if anything.
    fn wait_of_subscription(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
        request: &SubscriptionRequest,
    ) -> Result<Option<PageWait>, Refused> {
        if !self.has_logs && !self.has_shared {
            return Ok(None);
        }
        if !context.is_logged(channel.namespace) {
            if context.is_shared(channel.namespace) {
                let key = self.ensure(context, channel)?;
                if !self.log_traffic.follow(context, &mut self.channels[key]) {
                    return Ok(Some(PageWait::UntilFollowed));
                }
            }
            let owned = channel.key.and_then(|key| self.channels.get(key));
            let should_ask = owned.is_some_and(|owned| should_ask_for_keys(context, owned));
            return Ok(should_ask.then_some(PageWait::ForKeysOfPeers));
        }
        let key = self.ensure(context, channel)?;
        let owned = &mut self.channels[key];
        if !self.log_traffic.open(context, owned) {
            return Ok(Some(PageWait::UntilOpen));
        }
        if lacks_keys(context, owned) {
            let next_load = || self.log_traffic.next_load();
            if !self.histories.restore_keys_from_memory(context, owned, next_load) {
                return Ok(Some(PageWait::ForKeys));
            }
        }
        let (Some(log), Some(stream)) = (&owned.log, &owned.stream) else { return Ok(None) };
        let from = request.recover.as_ref().filter(|_| request.positioned);
        let (options, client) = (context.namespace(owned.namespace), &context.options.client);
        let query = from.and_then(|from| log.missing_for(stream, from, request.filter.is_some(), options, client));
        Ok(query.map(PageWait::ForPage))
    }

    /// Answers with a part of a channel's history, after loading it if necessary.
    pub(in crate::shard) fn serve_history(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        query: HistoryQuery,
        reader: HistoryReader,
        reply_to: ReplyTo,
    ) {
        let key = self.channels.find(name);
        let outcome = context.names.resolve(name).map_err(Refused::from).and_then(|namespace| {
            let mut channel = NamedChannel { name, namespace, key };
            let Some(wait) = self.wait_of_history(context, &mut channel, &query, reader.as_reader())? else {
                return self.history(context, &channel, &query, reader.as_reader()).map(Some);
            };
            let request = ParkedRequest::History { query, reader, reply_to };
            let parked = match (wait, channel.key.and_then(|key| self.channels.get_mut(key))) {
                (PageWait::UntilOpen, Some(owned)) => self.log_traffic.park_until_open(context, owned, request),
                (PageWait::ForPage(query), Some(owned)) => {
                    self.log_traffic.park_for_page(context, owned, query, request)
                }
                _ => Err(ErrorCode::Internal.into()),
            };
            self.review_if_any(context, channel.key);
            parked.map(|()| None)
        });
        if let Some(outcome) = outcome.transpose() {
            context.answer_history(name, reply_to, outcome);
        }
    }

    fn wait_of_history(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
        query: &HistoryQuery,
        reader: Reader<'_>,
    ) -> Result<Option<PageWait>, Refused> {
        if !self.has_logs || !context.is_logged(channel.namespace) {
            return Ok(None);
        }
        let key = self.ensure(context, channel)?;
        let owned = &mut self.channels[key];
        if !self.log_traffic.open(context, owned) {
            return Ok(Some(PageWait::UntilOpen));
        }
        let (Some(log), Some(stream)) = (&owned.log, &owned.stream) else { return Ok(None) };
        let options = context.namespace(owned.namespace);
        Ok(log.missing_in_history(stream, query, reader, options).map(PageWait::ForPage))
    }

    /// A part of a channel's history. A channel without a stream is answered as an empty one, and no state is created
    /// for it.
    fn history(
        &mut self,
        context: &mut Context,
        channel: &NamedChannel<'_>,
        query: &HistoryQuery,
        reader: Reader<'_>,
    ) -> Result<HistoryPart, Refused> {
        let part = match channel.key.and_then(|key| self.channels.get_mut(key)) {
            Some(owned) if owned.stream.is_some() => {
                self.histories.open_stream(context, owned).history(query, reader)?
            }
            Some(_) | None => self.histories.empty_stream(channel.name).history(query, reader)?,
        };
        context.count(channel.namespace).histories_cut += u64::from(part.is_cut);
        Ok(part)
    }

    fn serve_again(&mut self, context: &mut Context, name: &Arc<str>, request: ParkedRequest) {
        // As if it arrived now: an earlier one may have removed the channel, or created it again.
        match request {
            ParkedRequest::Publish { draft, reply_to } => self.propose(context, name, *draft, reply_to),
            ParkedRequest::Subscribe(request) => self.subscribe_when_ready(context, request),
            ParkedRequest::History { query, reader, reply_to } => {
                self.serve_history(context, name, query, reader, reply_to);
            }
        }
    }

    /// Serves a request that waited for this part of the channel.
    fn serve_from(&mut self, context: &mut Context, name: &Arc<str>, request: ParkedRequest, part: &mut LoadedPart) {
        let key = self.channels.find(name);
        match request {
            // The keys were lost while it waited for the page.
            ParkedRequest::Subscribe(request) if key.is_some_and(|key| lacks_keys(context, &self.channels[key])) => {
                self.subscribe_when_ready(context, request);
            }
            ParkedRequest::Subscribe(request) => {
                let whole = match part {
                    LoadedPart::ToTail(stream) => Some(stream),
                    // More was missed than a reply may contain. What is in memory says so.
                    LoadedPart::Alone(_) => None,
                };
                self.subscribe(context, key, request, whole);
            }
            ParkedRequest::History { query, reader, reply_to } => {
                let namespace = key.map(|key| self.channels[key].namespace);
                if let (LoadedPart::ToTail(stream), Some(namespace)) = (&mut *part, namespace) {
                    // The log may keep more than the history.
                    stream.forget_beyond(context.namespace(namespace).history_size);
                }
                let (LoadedPart::ToTail(whole) | LoadedPart::Alone(whole)) = part;
                // What is beyond this limit was not loaded.
                let bytes_max = query.bytes_max.or(Some(ANSWER_BYTES_MAX));
                let outcome = whole.history(&HistoryQuery { bytes_max, ..query }, reader.as_reader());
                if let (Ok(HistoryPart { is_cut: true, .. }), Some(namespace)) = (&outcome, namespace) {
                    context.count(namespace).histories_cut += 1;
                }
                context.answer_history(name, reply_to, outcome);
            }
            request @ ParkedRequest::Publish { .. } => self.serve_again(context, name, request),
        }
    }

    /// Answers a parked request with an error.
    fn refuse(&mut self, context: &mut Context, name: &Arc<str>, request: ParkedRequest, refused: Refused) {
        match request {
            ParkedRequest::Publish { reply_to, .. } => context.answer_publication(name, reply_to, Err(refused)),
            ParkedRequest::Subscribe(request) => {
                // No channel, because there is no join to announce.
                self.answer_subscription(context, None, request, Err(refused.into()));
            }
            ParkedRequest::History { reply_to, .. } => context.answer_history(name, reply_to, Err(refused)),
        }
    }

    /// A log has committed or refused a proposed publication.
    pub(in crate::shard) fn proposal_committed(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        number: ProposalNumber,
        outcome: Result<u64, LogError>,
    ) {
        let found = self.channels.find(name).and_then(|key| {
            let owned = &mut self.channels[key];
            let top = owned.stream.as_ref().map_or(0, |stream| stream.top());
            let proposal = self.log_traffic.take_proposal(owned, number)?;
            Some((NamedChannel { name, namespace: owned.namespace, key: Some(key) }, key, top, proposal))
        });
        let Some((mut channel, key, top, mut proposal)) = context.counters.found_or_late(found) else { return };
        match outcome {
            // A log answers in order, so what it has stored anew is above all that was committed. At or below it is the
            // earlier publication with the same key.
            Ok(offset) if proposal.publication.offset > 0 && offset <= top => {
                self.answer_repeated(context, key, proposal, offset);
            }
            Ok(offset) => {
                proposal.publication.offset = offset;
                self.commit(context, &mut channel, proposal);
            }
            Err(error) => {
                self.channels.release_creator(key);
                self.review(context, key);
                for reply_to in proposal.duplicates.into_iter().chain([proposal.reply_to]) {
                    context.answer_publication(name, reply_to, Err(error.into()));
                }
            }
        }
    }

    /// Answers a publication whose idempotency key the log has with the position of the earlier one.
    fn answer_repeated(&mut self, context: &mut Context, key: ChannelKey, proposal: Proposal, offset: u64) {
        let channel = &self.channels[key];
        let (name, position) = (Arc::clone(&channel.name), (offset, channel.epoch()));
        context.count(channel.namespace).suppressed[Suppression::Idempotency as usize] += 1;
        self.channels.record_use(key, context.now, proposal.creator, true);
        self.review(context, key);
        for reply_to in proposal.duplicates.into_iter().chain([proposal.reply_to]) {
            context.answer_publication(&name, reply_to, Ok(position.clone()));
        }
    }

    /// Another node has published to a channel that this node follows.
    pub(in crate::shard) fn publication_replicated(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        record: LogRecord,
    ) {
        let Some(key) = context.counters.found_or_late(self.channels.find(name)) else { return };
        let owned = &mut self.channels[key];
        let Some(log) = context.counters.found_or_late(owned.log.as_deref_mut()) else { return };
        let version = (record.publication.version, &*record.version_epoch);
        if log.note_while_opening(&record.publication, version, context.options.log.tail_publications_max) {
            return;
        }
        let LogRecord { publication, version_epoch, .. } = record;
        let how = PublishHow { version: publication.version, version_epoch, ..PublishHow::default() };
        let params = ProposalParams { how, audience: None, accepted_us: context.now.mono_us };
        let publication = Arc::unwrap_or_clone(publication);
        let proposal =
            Proposal { publication, params, creator: None, reply_to: ReplyTo::Nobody, duplicates: Vec::new() };
        let mut channel = NamedChannel { name, namespace: owned.namespace, key: Some(key) };
        self.commit(context, &mut channel, proposal);
    }

    /// A page has arrived, or the load failed. Requests that waited for it are computed from the page and the
    /// publications committed since the load began, so that no publication is lost between a recovery and live
    /// delivery.
    pub(in crate::shard) fn page_loaded(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        load: LoadNumber,
        outcome: Result<LogPage, LogError>,
    ) {
        let key = self.channels.find(name).filter(|key| self.channels[*key].log.is_some());
        let Some(key) = context.counters.found_or_late(key) else { return };
        let channel = &mut self.channels[key];
        if channel.key_cache.as_ref().and_then(|cache| cache.restoring_load()) == Some(load) {
            return self.keys_loaded(context, key, load, outcome);
        }
        let opens = channel.log.as_ref().is_some_and(|log| log.is_opened_by(load));
        let outcome = match outcome {
            Ok(page) if !opens => self.log_traffic.gather_page(context, channel, load, page),
            outcome => outcome.map(Some),
        };
        let outcome = match outcome {
            // The rest is loading.
            Ok(None) => return,
            Ok(Some(page)) => Ok(page),
            Err(error) => Err(error),
        };
        let requests = self.log_traffic.end_load(channel, load);
        match outcome {
            Ok(page) if opens => {
                open_with_page(context, channel, page);
                for request in requests {
                    self.serve_again(context, name, request);
                }
            }
            Ok(page) => {
                let mut whole = page_with_tail(context, channel, page);
                for request in requests {
                    match &mut whole {
                        Some(whole) => self.serve_from(context, name, request, whole),
                        None => self.serve_again(context, name, request),
                    }
                }
            }
            Err(error) => {
                if opens {
                    self.log_traffic.close(channel);
                }
                self.refuse_all(context, name, requests, error);
            }
        }
        self.end_serving(key);
        self.review(context, key);
    }

    /// The requests that waited for a page are served.
    fn end_serving(&mut self, key: ChannelKey) {
        if let Some(log) = self.channels.get_mut(key).and_then(|channel| channel.log.as_deref_mut()) {
            log.end_serving();
        }
    }

    fn refuse_all(&mut self, context: &mut Context, name: &Arc<str>, requests: Vec<ParkedRequest>, error: LogError) {
        for request in requests {
            self.refuse(context, name, request, error.into());
        }
    }

    /// A page for the keys of a channel has arrived, or could not be read.
    fn keys_loaded(
        &mut self,
        context: &mut Context,
        key: ChannelKey,
        load: LoadNumber,
        outcome: Result<LogPage, LogError>,
    ) {
        let channel = &mut self.channels[key];
        let name = Arc::clone(&channel.name);
        let outcome = outcome.and_then(|page| match self.histories.add_older_keys(context, channel, &page) {
            RestoreProgress::Complete => Ok(None),
            RestoreProgress::More(after) => Ok(Some(after)),
            RestoreProgress::Stuck => Err(LogError::Unavailable),
        });
        match outcome {
            Ok(Some(after)) => self.log_traffic.load_keys(context, channel, load, after),
            Ok(None) => {
                self.histories.end_restore(context, channel);
                for request in self.log_traffic.end_load(channel, load) {
                    self.serve_again(context, &name, request);
                }
            }
            Err(error) => {
                self.histories.abandon_restore(channel);
                let requests = self.log_traffic.end_load(channel, load);
                self.refuse_all(context, &name, requests, error);
            }
        }
        self.end_serving(key);
        self.review_and_schedule(context, key);
    }

    /// Other nodes' messages to a channel arrive from now on: accepts the subscriptions that waited for them.
    pub(in crate::shard) fn channel_followed(&mut self, context: &mut Context, name: &Arc<str>) {
        let Some(key) = self.channels.find(name) else { return };
        let channel = &mut self.channels[key];
        if !matches!(channel.following, Following::Asked | Following::Awaited(_)) {
            return;
        }
        let parked = channel.following.confirm();
        if let Some(cache) = &mut channel.key_cache {
            cache.mark_followed(context.now.mono_us);
        }
        for request in parked {
            self.log_traffic.unpark(&request);
            self.subscribe_when_ready(context, request);
        }
        self.review(context, key);
    }

    fn query_next_keys(&mut self) {
        if let Some(query) = self.key_queries.next() {
            self.log_traffic.request(query);
        }
    }

    /// Other nodes have sent their keys: accepts the subscriptions that waited for them.
    pub(in crate::shard) fn keys_answered(&mut self, context: &mut Context, name: &Arc<str>, found: PeerKeys) {
        if !self.key_queries.in_flight.remove(name) {
            context.counters.late_messages += 1;
            return;
        }
        self.query_next_keys();
        let Some(key) = self.channels.find(name) else {
            debug_assert!(false, "a channel stays while subscriptions to it wait");
            context.counters.late_messages += 1;
            return;
        };
        let channel = &mut self.channels[key];
        let parked = channel.following.confirm();
        self.histories.add_keys_of_peers(context, channel, found);
        for request in parked {
            self.log_traffic.unpark(&request);
            self.subscribe_when_ready(context, request);
        }
        self.review_and_schedule(context, key);
    }

    /// This node or another one has removed the history of a channel.
    pub(in crate::shard) fn history_trimmed(&mut self, context: &mut Context, name: &Arc<str>, through: u64) {
        let Some(key) = context.counters.found_or_late(self.channels.find(name)) else { return };
        let channel = &mut self.channels[key];
        if let Some(log) = channel.log.as_deref_mut() {
            log.floor = log.floor.max(through);
            if let LogPhase::Opening { meanwhile, .. } = &mut log.phase {
                meanwhile.clear();
            }
        }
        self.histories.clear_stream(channel);
        self.histories.forget_keys(channel);
        self.histories.count_stream(context, channel);
    }

    /// The log has stopped following a channel: its subscribers resubscribe, even those without a position, because
    /// publications of other nodes would not reach them. A channel that is still opening has no state to lose.
    pub(in crate::shard) fn log_interrupted(&mut self, context: &mut Context, name: &Arc<str>) {
        let Some(key) = context.counters.found_or_late(self.channels.find(name)) else { return };
        let channel = &mut self.channels[key];
        if channel.log.as_ref().is_none_or(|log| !log.is_open()) {
            return;
        }
        for shard in channel.listening_shards(Audience::Publications) {
            context.notify(shard, Notice::FollowingLost { channel: Arc::clone(name) });
        }
        self.histories.forget_stream(context, channel, true);
        // The log still answers the shard's pending requests; the channel's log is not closed before that.
        self.review(context, key);
    }
}
