//! Requests that are parked until a page of a log, or other nodes' messages, arrive.

use std::sync::Arc;

use dunlin_protocol::ErrorCode;

use crate::{
    Effect,
    api::{ApiAnswer, HistoryQuery},
    history_stream::Reader,
    log::{LoadNumber, LoadQuery},
    log_in_flight::{ANSWER_BYTES_MAX, HistoryReader, ParkedCost, ParkedRequest, ReplyTo},
    message::{HistoryPart, NotSubscribed, Notice, SubscriptionRequest},
};

use super::{Context, Owner, log::LoadedPart};

impl Owner {
    /// Parks a request until the channel is open.
    pub(super) fn park_until_open(
        &mut self,
        context: &Context,
        name: &Arc<str>,
        request: ParkedRequest,
    ) -> Result<(), ErrorCode> {
        let cost = request.cost();
        self.check_parked(context, cost)?;
        let Self { channels, log_traffic, .. } = self;
        let log = channels.named_mut(name).and_then(|channel| channel.log.as_deref_mut());
        let (log, load) = log
            .and_then(|log| log.opening.as_ref().map(|(load, _)| *load).map(|load| (log, load)))
            .ok_or(ErrorCode::Internal)?;
        log_traffic.parked.add(cost);
        log.park(load, request);
        Ok(())
    }

    fn check_parked(&self, context: &Context, cost: ParkedCost) -> Result<(), ErrorCode> {
        let fits = self.log_traffic.parked.fits(cost, &context.options.log);
        if fits { Ok(()) } else { Err(ErrorCode::TooManyRequests) }
    }

    /// Parks a request until a page arrives.
    fn park_for_page(
        &mut self,
        context: &Context,
        name: &Arc<str>,
        query: LoadQuery,
        request: ParkedRequest,
    ) -> Result<(), ErrorCode> {
        let cost = request.cost();
        self.check_parked(context, cost)?;
        let number = LoadNumber(self.log_traffic.next_number());
        let namespace = self.channels.named(name).ok_or(ErrorCode::Internal)?.namespace;
        let terms = context.namespace(namespace).log_terms();
        let log = self.open_log_of(name).ok_or(ErrorCode::Internal)?;
        let under_way = log.load_of(query);
        if under_way.is_none() {
            log.begin_load(number, query);
        }
        log.park(under_way.unwrap_or(number), request);
        self.log_traffic.parked.add(cost);
        if under_way.is_none() {
            let channel = Arc::clone(name);
            self.log_traffic.requests.push(Effect::Load { channel, load: number, query, terms });
        }
        Ok(())
    }

    /// Accepts a subscription, or parks it until the page of a log or other nodes' messages arrive.
    pub(super) fn subscribe_when_ready(&mut self, context: &mut Context, request: Box<SubscriptionRequest>) {
        let parked = match self.page_for_subscription(context, &request) {
            Ok(None) => {
                let outcome = self.accept_subscription(context, &request, None).map_err(NotSubscribed::from);
                return self.answer_subscription(context, request, outcome);
            }
            Ok(Some(wait)) => {
                let name = Arc::clone(&request.channel);
                let parked = self.park_subscription(context, request, wait);
                self.review(context, &name);
                parked
            }
            Err(code) => Err((request, code)),
        };
        if let Err((request, code)) = parked {
            self.review(context, &request.channel);
            self.answer_subscription(context, request, Err(code.into()));
        }
    }

    fn park_subscription(
        &mut self,
        context: &Context,
        request: Box<SubscriptionRequest>,
        wait: PageWait,
    ) -> Result<(), (Box<SubscriptionRequest>, ErrorCode)> {
        if let Err(code) = self.check_parked(context, ParkedCost::of_subscription(&request)) {
            return Err((request, code));
        }
        let name = Arc::clone(&request.channel);
        // The limit was checked above.
        let parked = match wait {
            PageWait::UntilOpen => self.park_until_open(context, &name, ParkedRequest::Subscribe(request)),
            PageWait::ForPage(query) => self.park_for_page(context, &name, query, ParkedRequest::Subscribe(request)),
            PageWait::ForKeys => self.park_for_keys(context, &name, request),
            PageWait::UntilFollowed => self.park_until_followed(request),
            PageWait::ForKeysOfPeers => self.park_for_keys_of_peers(request),
        };
        debug_assert!(parked.is_ok(), "there is room, and the log or the channel is there");
        Ok(())
    }

    /// The page that a subscription has to wait for, if any.
    fn page_for_subscription(
        &mut self,
        context: &mut Context,
        request: &SubscriptionRequest,
    ) -> Result<Option<PageWait>, ErrorCode> {
        let namespace = context.names.resolve(&request.channel)?;
        if !context.is_logged(namespace) {
            let is_ready = self.is_following_confirmed(context, &request.channel, namespace)?;
            if !is_ready {
                return Ok(Some(PageWait::UntilFollowed));
            }
            return Ok(self.should_ask_for_keys(context, &request.channel).then_some(PageWait::ForKeysOfPeers));
        }
        if !self.is_log_ready(context, &request.channel, namespace)? {
            return Ok(Some(PageWait::UntilOpen));
        }
        if !self.has_keys_to_answer(context, &request.channel, namespace) {
            return Ok(Some(PageWait::ForKeys));
        }
        let options = context.namespace(namespace);
        let Some(channel) = self.channels.named(&request.channel) else { return Ok(None) };
        let (Some(log), Some(stream)) = (&channel.log, &channel.stream) else { return Ok(None) };
        let from = request.recover.as_ref().filter(|_| request.positioned);
        let is_filtered = request.filter.is_some();
        let query = from.and_then(|from| log.missing_for(stream, from, is_filtered, options, &context.options.client));
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
        let outcome = match self.page_for_history(context, name, &query, reader.as_reader()) {
            Ok(None) => self.history(context, name, &query, reader.as_reader()),
            Ok(Some(wait)) => {
                let request = ParkedRequest::History { query, reader, reply_to };
                let parked = match wait {
                    PageWait::UntilOpen => self.park_until_open(context, name, request),
                    PageWait::ForPage(query) => self.park_for_page(context, name, query, request),
                    PageWait::ForKeys | PageWait::UntilFollowed | PageWait::ForKeysOfPeers => Err(ErrorCode::Internal),
                };
                self.review(context, name);
                match parked {
                    Ok(()) => return,
                    Err(code) => Err(code),
                }
            }
            Err(code) => Err(code),
        };
        context.answer_history(name, reply_to, outcome);
    }

    fn page_for_history(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        query: &HistoryQuery,
        reader: Reader<'_>,
    ) -> Result<Option<PageWait>, ErrorCode> {
        if !self.has_logs {
            return Ok(None);
        }
        let namespace = context.names.resolve(name)?;
        if !context.is_logged(namespace) {
            return Ok(None);
        }
        if !self.is_log_ready(context, name, namespace)? {
            return Ok(Some(PageWait::UntilOpen));
        }
        let Some(channel) = self.channels.named(name) else { return Ok(None) };
        let (Some(log), Some(stream)) = (&channel.log, &channel.stream) else { return Ok(None) };
        let options = context.namespace(namespace);
        Ok(log.missing_in_history(stream, query, reader, options).map(PageWait::ForPage))
    }

    pub(super) fn serve_again(&mut self, context: &mut Context, name: &Arc<str>, request: ParkedRequest) {
        match request {
            ParkedRequest::Publish { draft, reply_to } => self.propose(context, name, *draft, reply_to),
            ParkedRequest::Subscribe(request) => self.subscribe_when_ready(context, request),
            ParkedRequest::History { query, reader, reply_to } => {
                self.serve_history(context, name, query, reader, reply_to);
            }
        }
    }

    pub(super) fn serve_from(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        request: ParkedRequest,
        part: Option<&mut LoadedPart>,
    ) {
        match (request, part) {
            // The keys were lost while it waited for the page.
            (ParkedRequest::Subscribe(request), Some(_)) if self.lacks_keys(context, name) => {
                self.subscribe_when_ready(context, request);
            }
            (ParkedRequest::Subscribe(request), Some(part)) => {
                let whole = match part {
                    LoadedPart::ToTail(stream) => Some(stream),
                    // More was missed than a reply may contain. What is in memory says so.
                    LoadedPart::Alone(_) => None,
                };
                let outcome = self.accept_subscription(context, &request, whole).map_err(NotSubscribed::from);
                self.answer_subscription(context, request, outcome);
            }
            (ParkedRequest::History { query, reader, reply_to }, Some(part)) => {
                if let (LoadedPart::ToTail(stream), Some(channel)) = (&mut *part, self.channels.named(name)) {
                    // The log may keep more than the history.
                    stream.forget_beyond(context.namespace(channel.namespace).history_size);
                }
                let (LoadedPart::ToTail(whole) | LoadedPart::Alone(whole)) = part;
                // What is beyond this limit was not loaded.
                let bytes_max = query.bytes_max.or(Some(ANSWER_BYTES_MAX));
                let outcome = whole.history(&HistoryQuery { bytes_max, ..query }, reader.as_reader());
                if let (Ok(HistoryPart { is_cut: true, .. }), Some(channel)) = (&outcome, self.channels.named(name)) {
                    context.count(channel.namespace).histories_cut += 1;
                }
                context.answer_history(name, reply_to, outcome);
            }
            (request, _) => self.serve_again(context, name, request),
        }
    }

    /// Answers a parked request with an error.
    pub(super) fn refuse(&mut self, context: &mut Context, name: &Arc<str>, request: ParkedRequest, code: ErrorCode) {
        match request {
            ParkedRequest::Publish { reply_to, .. } => context.answer_publication(name, reply_to, Err(code)),
            ParkedRequest::Subscribe(request) => {
                self.answer_subscription(context, request, Err(code.into()));
            }
            ParkedRequest::History { reply_to, .. } => context.answer_history(name, reply_to, Err(code)),
        }
    }
}

impl Context {
    fn answer_history(&mut self, name: &Arc<str>, reply_to: ReplyTo, outcome: Result<HistoryPart, ErrorCode>) {
        match reply_to {
            ReplyTo::Session(asker) => {
                let notice = Notice::History { channel: Arc::clone(name), asker, outcome: outcome.map(Box::new) };
                self.notify(asker.shard, notice);
            }
            ReplyTo::Api(ticket) => {
                let answer = outcome.map(|part| ApiAnswer::History {
                    publications: part.publications,
                    epoch: part.epoch,
                    offset: part.offset,
                    is_cut: part.is_cut,
                });
                self.answer_api(ticket, answer);
            }
            ReplyTo::Room | ReplyTo::Nobody => {}
        }
    }
}

/// What a request waits for.
#[derive(Clone, Copy, Debug)]
enum PageWait {
    UntilOpen,
    ForPage(LoadQuery),
    /// Until the newest publications of keys are restored.
    ForKeys,
    UntilFollowed,
    /// Until other nodes have sent the newest publications of keys.
    ForKeysOfPeers,
}
