//! Subscriptions and reads of histories, which may need a page of a log or answers of other nodes: parks the requests that
//! need one, and serves them when it arrives.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use dunlin_protocol::ErrorCode;

use crate::{
    Effect,
    api::HistoryQuery,
    channel::{ChannelKey, Following},
    conflation_keys::RestoreProgress,
    event::PeerKeys,
    history_stream::Reader,
    log::{LoadNumber, LoadQuery, LogError, LogPage},
    log_in_flight::{ANSWER_BYTES_MAX, HistoryReader, ParkedCost, ParkedRequest, ReplyTo},
    message::{HistoryPart, NotSubscribed, SubscriptionRequest},
    refused::Refused,
};

use super::{
    Context,
    channels::{Channels, NamedChannel},
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
pub(in crate::shard) struct KeyQueries {
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

/// A request about one channel, or an answer for which such requests waited. It is served at once, or waits until its
/// channel has what it needs: a page of its log, or the messages or keys of other nodes.
pub(in crate::shard) struct Serving<'s> {
    pub(super) context: &'s mut Context,
    pub(super) channels: &'s mut Channels,
    pub(super) key_queries: &'s mut KeyQueries,
}

impl Serving<'_> {
    /// Accepts a subscription, or parks it until the page of a log or other nodes' messages arrive.
    pub(super) fn subscribe_when_ready(&mut self, request: Box<SubscriptionRequest>) {
        let key = self.channels.table.find(&request.channel);
        let namespace = match self.context.names.resolve(&request.channel) {
            Ok(namespace) => namespace,
            Err(code) => return self.channels.refuse_subscription(self.context, key, request, code.into()),
        };
        let mut channel = NamedChannel { name: &request.channel, namespace, key };
        let wait = match self.wait_of_subscription(&mut channel, &request) {
            Ok(Some(wait)) => wait,
            Ok(None) => {
                let outcome = self.channels.accept_subscription(self.context, &mut channel, &request, None);
                let key = channel.key;
                return self.channels.answer_subscription(
                    self.context,
                    key,
                    request,
                    outcome.map_err(NotSubscribed::from),
                );
            }
            Err(refused) => {
                let key = channel.key;
                return self.channels.refuse_subscription(self.context, key, request, refused);
            }
        };
        let key = channel.key;
        let parked = self.park_subscription(key, request, wait);
        self.channels.review_if_any(self.context, key);
        if let Err((request, refused)) = parked {
            self.channels.answer_subscription(self.context, key, request, Err(refused.into()));
        }
    }

    fn park_subscription(
        &mut self,
        key: Option<ChannelKey>,
        request: Box<SubscriptionRequest>,
        wait: PageWait,
    ) -> Result<(), (Box<SubscriptionRequest>, Refused)> {
        let cost = ParkedCost::of_subscription(&request);
        if let Err(refused) = self.channels.log_traffic.check_parked(&self.context.options.log, cost) {
            return Err((request, refused));
        }
        let Some(channel) = key.and_then(|key| self.channels.table.get_mut(key)) else {
            debug_assert!(false, "what a subscription waits for is a channel's");
            return Err((request, ErrorCode::Internal.into()));
        };
        let traffic = &mut self.channels.log_traffic;
        // The limit was checked above.
        let parked = match wait {
            PageWait::UntilOpen => traffic.park_until_open(self.context, channel, ParkedRequest::Subscribe(request)),
            PageWait::ForPage(query) => {
                traffic.park_for_page(self.context, channel, query, ParkedRequest::Subscribe(request))
            }
            PageWait::ForKeys => traffic.park_for_keys(self.context, channel, request),
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
        channel: &mut NamedChannel<'_>,
        request: &SubscriptionRequest,
    ) -> Result<Option<PageWait>, Refused> {
        if !self.channels.has_logs && !self.channels.has_shared {
            return Ok(None);
        }
        if !self.context.is_logged(channel.namespace) {
            if self.context.is_shared(channel.namespace) {
                let key = self.channels.ensure(self.context, channel)?;
                if !self.channels.log_traffic.follow(self.context, &mut self.channels.table[key]) {
                    return Ok(Some(PageWait::UntilFollowed));
                }
            }
            let owned = channel.key.and_then(|key| self.channels.table.get(key));
            let should_ask = owned.is_some_and(|owned| should_ask_for_keys(self.context, owned));
            return Ok(should_ask.then_some(PageWait::ForKeysOfPeers));
        }
        let key = self.channels.ensure(self.context, channel)?;
        let owned = &mut self.channels.table[key];
        if !self.channels.log_traffic.open(self.context, owned) {
            return Ok(Some(PageWait::UntilOpen));
        }
        if lacks_keys(self.context, owned) {
            let next_load = || self.channels.log_traffic.next_load();
            if !self.channels.histories.restore_keys_from_memory(self.context, owned, next_load) {
                return Ok(Some(PageWait::ForKeys));
            }
        }
        let (Some(log), Some(stream)) = (&owned.log, &owned.stream) else { return Ok(None) };
        let from = request.recover.as_ref().filter(|_| request.positioned);
        let (options, client) = (self.context.namespace(owned.namespace), &self.context.options.client);
        let query = from.and_then(|from| log.missing_for(stream, from, request.filter.is_some(), options, client));
        Ok(query.map(PageWait::ForPage))
    }

    /// Answers with a part of a channel's history, after loading it if necessary.
    pub(in crate::shard) fn serve_history(
        &mut self,
        name: &Arc<str>,
        query: HistoryQuery,
        reader: HistoryReader,
        reply_to: ReplyTo,
    ) {
        let key = self.channels.table.find(name);
        let outcome = self.context.names.resolve(name).map_err(Refused::from).and_then(|namespace| {
            let mut channel = NamedChannel { name, namespace, key };
            let Some(wait) = self.wait_of_history(&mut channel, &query, reader.as_reader())? else {
                return self.history(&channel, &query, reader.as_reader()).map(Some);
            };
            let request = ParkedRequest::History { query, reader, reply_to };
            let parked = match (wait, channel.key.and_then(|key| self.channels.table.get_mut(key))) {
                (PageWait::UntilOpen, Some(owned)) => {
                    self.channels.log_traffic.park_until_open(self.context, owned, request)
                }
                (PageWait::ForPage(query), Some(owned)) => {
                    self.channels.log_traffic.park_for_page(self.context, owned, query, request)
                }
                _ => Err(ErrorCode::Internal.into()),
            };
            self.channels.review_if_any(self.context, channel.key);
            parked.map(|()| None)
        });
        if let Some(outcome) = outcome.transpose() {
            self.context.answer_history(name, reply_to, outcome);
        }
    }

    fn wait_of_history(
        &mut self,
        channel: &mut NamedChannel<'_>,
        query: &HistoryQuery,
        reader: Reader<'_>,
    ) -> Result<Option<PageWait>, Refused> {
        if !self.channels.has_logs || !self.context.is_logged(channel.namespace) {
            return Ok(None);
        }
        let key = self.channels.ensure(self.context, channel)?;
        let owned = &mut self.channels.table[key];
        if !self.channels.log_traffic.open(self.context, owned) {
            return Ok(Some(PageWait::UntilOpen));
        }
        let (Some(log), Some(stream)) = (&owned.log, &owned.stream) else { return Ok(None) };
        let options = self.context.namespace(owned.namespace);
        Ok(log.missing_in_history(stream, query, reader, options).map(PageWait::ForPage))
    }

    /// A part of a channel's history. A channel without a stream is answered as an empty one, and no state is created
    /// for it.
    fn history(
        &mut self,
        channel: &NamedChannel<'_>,
        query: &HistoryQuery,
        reader: Reader<'_>,
    ) -> Result<HistoryPart, Refused> {
        let part = match channel.key.and_then(|key| self.channels.table.get_mut(key)) {
            Some(owned) if owned.stream.is_some() => {
                self.channels.histories.open_stream(self.context, owned).history(query, reader)?
            }
            Some(_) | None => self.channels.histories.empty_stream(channel.name).history(query, reader)?,
        };
        self.context.count(channel.namespace).histories_cut += u64::from(part.is_cut);
        Ok(part)
    }

    fn serve_again(&mut self, name: &Arc<str>, request: ParkedRequest) {
        // As if it arrived now: an earlier one may have removed the channel, or created it again.
        match request {
            ParkedRequest::Publish { draft, reply_to } => self.channels.propose(self.context, name, *draft, reply_to),
            ParkedRequest::Subscribe(request) => self.subscribe_when_ready(request),
            ParkedRequest::History { query, reader, reply_to } => {
                self.serve_history(name, query, reader, reply_to);
            }
        }
    }

    /// Serves a request that waited for this part of the channel.
    fn serve_from(&mut self, name: &Arc<str>, request: ParkedRequest, part: &mut LoadedPart) {
        let key = self.channels.table.find(name);
        match request {
            // The keys were lost while it waited for the page.
            ParkedRequest::Subscribe(request)
                if key.is_some_and(|key| lacks_keys(self.context, &self.channels.table[key])) =>
            {
                self.subscribe_when_ready(request);
            }
            ParkedRequest::Subscribe(request) => {
                let whole = match part {
                    LoadedPart::ToTail(stream) => Some(stream),
                    // More was missed than a reply may contain. What is in memory says so.
                    LoadedPart::Alone(_) => None,
                };
                self.channels.subscribe(self.context, key, request, whole);
            }
            ParkedRequest::History { query, reader, reply_to } => {
                let namespace = key.map(|key| self.channels.table[key].namespace);
                if let (LoadedPart::ToTail(stream), Some(namespace)) = (&mut *part, namespace) {
                    // The log may keep more than the history.
                    stream.forget_beyond(self.context.namespace(namespace).history_size);
                }
                let (LoadedPart::ToTail(whole) | LoadedPart::Alone(whole)) = part;
                // What is beyond this limit was not loaded.
                let bytes_max = query.bytes_max.or(Some(ANSWER_BYTES_MAX));
                let outcome = whole.history(&HistoryQuery { bytes_max, ..query }, reader.as_reader());
                if let (Ok(HistoryPart { is_cut: true, .. }), Some(namespace)) = (&outcome, namespace) {
                    self.context.count(namespace).histories_cut += 1;
                }
                self.context.answer_history(name, reply_to, outcome);
            }
            request @ ParkedRequest::Publish { .. } => self.serve_again(name, request),
        }
    }

    /// Answers a parked request with an error.
    fn refuse(&mut self, name: &Arc<str>, request: ParkedRequest, refused: Refused) {
        match request {
            ParkedRequest::Publish { reply_to, .. } => self.context.answer_publication(name, reply_to, Err(refused)),
            ParkedRequest::Subscribe(request) => {
                // No channel, because there is no join to announce.
                self.channels.answer_subscription(self.context, None, request, Err(refused.into()));
            }
            ParkedRequest::History { reply_to, .. } => self.context.answer_history(name, reply_to, Err(refused)),
        }
    }

    /// A page has arrived, or the load failed. Requests that waited for it are computed from the page and the
    /// publications committed since the load began, so that no publication is lost between a recovery and live
    /// delivery.
    pub(in crate::shard) fn page_loaded(
        &mut self,
        name: &Arc<str>,
        load: LoadNumber,
        outcome: Result<LogPage, LogError>,
    ) {
        let key = self.channels.table.find(name).filter(|key| self.channels.table[*key].log.is_some());
        let Some(key) = self.context.counters.found_or_late(key) else { return };
        let channel = &mut self.channels.table[key];
        if channel.key_cache.as_ref().and_then(|cache| cache.restoring_load()) == Some(load) {
            return self.keys_loaded(key, load, outcome);
        }
        let opens = channel.log.as_ref().is_some_and(|log| log.is_opened_by(load));
        let outcome = match outcome {
            Ok(page) if !opens => self.channels.log_traffic.gather_page(self.context, channel, load, page),
            outcome => outcome.map(Some),
        };
        let outcome = match outcome {
            // The rest is loading.
            Ok(None) => return,
            Ok(Some(page)) => Ok(page),
            Err(error) => Err(error),
        };
        let requests = self.channels.log_traffic.end_load(channel, load);
        match outcome {
            Ok(page) if opens => {
                open_with_page(self.context, channel, page);
                for request in requests {
                    self.serve_again(name, request);
                }
            }
            Ok(page) => {
                let mut whole = page_with_tail(self.context, channel, page);
                for request in requests {
                    match &mut whole {
                        Some(whole) => self.serve_from(name, request, whole),
                        None => self.serve_again(name, request),
                    }
                }
            }
            Err(error) => {
                if opens {
                    self.channels.log_traffic.close(channel);
                }
                self.refuse_all(name, requests, error);
            }
        }
        self.end_serving(key);
        self.channels.review(self.context, key);
    }

    /// The requests that waited for a page are served.
    fn end_serving(&mut self, key: ChannelKey) {
        if let Some(log) = self.channels.table.get_mut(key).and_then(|channel| channel.log.as_deref_mut()) {
            log.end_serving();
        }
    }

    fn refuse_all(&mut self, name: &Arc<str>, requests: Vec<ParkedRequest>, error: LogError) {
        for request in requests {
            self.refuse(name, request, error.into());
        }
    }

    /// A page for the keys of a channel has arrived, or could not be read.
    fn keys_loaded(&mut self, key: ChannelKey, load: LoadNumber, outcome: Result<LogPage, LogError>) {
        let channel = &mut self.channels.table[key];
        let name = Arc::clone(&channel.name);
        let outcome =
            outcome.and_then(|page| match self.channels.histories.add_older_keys(self.context, channel, &page) {
                RestoreProgress::Complete => Ok(None),
                RestoreProgress::More(after) => Ok(Some(after)),
                RestoreProgress::Stuck => Err(LogError::Unavailable),
            });
        match outcome {
            Ok(Some(after)) => self.channels.log_traffic.load_keys(self.context, channel, load, after),
            Ok(None) => {
                self.channels.histories.end_restore(self.context, channel);
                for request in self.channels.log_traffic.end_load(channel, load) {
                    self.serve_again(&name, request);
                }
            }
            Err(error) => {
                self.channels.histories.abandon_restore(channel);
                let requests = self.channels.log_traffic.end_load(channel, load);
                self.refuse_all(&name, requests, error);
            }
        }
        self.end_serving(key);
        self.channels.review_and_schedule(self.context, key);
    }

    /// Other nodes' messages to a channel arrive from now on: accepts the subscriptions that waited for them.
    pub(in crate::shard) fn channel_followed(&mut self, name: &Arc<str>) {
        let Some(key) = self.channels.table.find(name) else { return };
        let channel = &mut self.channels.table[key];
        if !matches!(channel.following, Following::Asked | Following::Awaited(_)) {
            return;
        }
        let parked = channel.following.confirm();
        if let Some(cache) = &mut channel.key_cache {
            cache.mark_followed(self.context.now.mono_us);
        }
        for request in parked {
            self.channels.log_traffic.unpark(&request);
            self.subscribe_when_ready(request);
        }
        self.channels.review(self.context, key);
    }

    fn query_next_keys(&mut self) {
        if let Some(query) = self.key_queries.next() {
            self.channels.log_traffic.request(query);
        }
    }

    /// Other nodes have sent their keys: accepts the subscriptions that waited for them.
    pub(in crate::shard) fn keys_answered(&mut self, name: &Arc<str>, found: PeerKeys) {
        if !self.key_queries.in_flight.remove(name) {
            self.context.counters.late_messages += 1;
            return;
        }
        self.query_next_keys();
        let Some(key) = self.channels.table.find(name) else {
            debug_assert!(false, "a channel stays while subscriptions to it wait");
            self.context.counters.late_messages += 1;
            return;
        };
        let channel = &mut self.channels.table[key];
        let parked = channel.following.confirm();
        self.channels.histories.add_keys_of_peers(self.context, channel, found);
        for request in parked {
            self.channels.log_traffic.unpark(&request);
            self.subscribe_when_ready(request);
        }
        self.channels.review_and_schedule(self.context, key);
    }
}
