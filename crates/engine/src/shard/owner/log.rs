//! The owner's side of logs: opens channels with their first page, parks requests that need a page, and publishes what
//! a log has committed.

use std::sync::Arc;

use dunlin_protocol::ErrorCode;

use crate::{
    Effect,
    api::ApiAnswer,
    backend::PublishHow,
    channel::Audience,
    counters::Suppression,
    event::Ticket,
    history_stream::{Stream, kept_bytes},
    log::{LoadNumber, LoadQuery, LogError, LogLimits, LogPage, LogRecord, ProposalNumber, PublicationLog},
    log_in_flight::{ChannelLog, ParkedRequest, Proposal, ProposalParams, ReplyTo},
    log_load::Gathered,
    message::Notice,
    names::{NamespaceIndex, namespace_options},
    options::NamespaceOptions,
    planted::Bug,
};

use super::{Context, Owner};

impl Owner {
    /// The log of a channel that is open, that is, whose newest publications are in memory.
    pub(super) fn open_log_of(&mut self, name: &str) -> Option<&mut ChannelLog> {
        let log = self.channels.named_mut(name)?.log.as_deref_mut()?;
        log.opening.is_none().then_some(log)
    }

    /// Whether the channel's newest publications are in memory. If not, they are loaded.
    ///
    /// # Errors
    /// 106 if the shard has no space for the channel.
    pub(super) fn is_log_ready(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
    ) -> Result<bool, ErrorCode> {
        let options = context.namespace(namespace);
        let (publications_max, terms) = (first_page_max(&context.options.log, options), options.log_terms());
        let seed = context.node_seed;
        let channel = self.owned(context, name, namespace)?;
        match &channel.log {
            Some(log) if log.opening.is_some() => return Ok(false),
            Some(_) if channel.stream.is_some() => return Ok(true),
            _ => {}
        }
        let load = LoadNumber(self.log_traffic.next_number());
        let query = LoadQuery::newest(publications_max).within(FIRST_PAGE_BYTES_MAX);
        let channel = self.owned(context, name, namespace)?;
        match &mut channel.log {
            Some(log) => log.opening = Some((load, Box::new(Stream::new(Box::default())))),
            log => *log = Some(Box::new(ChannelLog::opened_by(load, seed))),
        }
        let requests = &mut self.log_traffic.requests;
        requests.push(Effect::Follow { channel: Arc::clone(name) });
        requests.push(Effect::Load { channel: Arc::clone(name), load, query, terms });
        Ok(false)
    }

    /// A log has committed or refused a proposed publication.
    pub(in crate::shard) fn proposal_committed(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        number: ProposalNumber,
        outcome: Result<u64, LogError>,
    ) {
        let channel = self.channels.named_mut(name);
        let top = channel.as_ref().and_then(|channel| channel.stream.as_ref()).map_or(0, |stream| stream.top());
        let log = channel.and_then(|channel| channel.log.as_deref_mut().map(|log| (log, channel.namespace)));
        let Some((mut proposal, namespace)) = context
            .counters
            .found_or_late(log.and_then(|(log, namespace)| Some((log.take_proposal(number)?, namespace))))
        else {
            return;
        };
        context.clear_refusal_reason();
        self.log_traffic.proposals -= 1;
        self.log_traffic.proposal_bytes -= kept_bytes(&proposal.publication);
        match outcome {
            // A log answers in order, so what it has stored anew is above all that was committed. At or below it is the
            // earlier publication with the same key.
            Ok(offset) if proposal.publication.offset > 0 && offset <= top => {
                self.answer_repeated(context, name, namespace, proposal, offset);
            }
            Ok(offset) => {
                proposal.publication.offset = offset;
                self.commit(context, name, namespace, proposal);
            }
            Err(error) => {
                if let Some(key) = self.channels.find(name) {
                    self.channels.release_creator(key);
                }
                self.review(context, name);
                for reply_to in proposal.duplicates.into_iter().chain([proposal.reply_to]) {
                    context.note_refusal_reason(error.why());
                    context.answer_publication(name, reply_to, Err(error.code()));
                }
                context.clear_refusal_reason();
            }
        }
    }

    /// Answers a publication whose idempotency key the log has with the position of the earlier one.
    fn answer_repeated(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        proposal: Proposal,
        offset: u64,
    ) {
        let position = (offset, self.epoch_of(name));
        context.count(namespace).suppressed[Suppression::Idempotency as usize] += 1;
        self.record_use(context.now, name, proposal.creator, true);
        self.review(context, name);
        for reply_to in proposal.duplicates.into_iter().chain([proposal.reply_to]) {
            context.answer_publication(name, reply_to, Ok(position.clone()));
        }
    }

    /// Another node has published to a channel that this node follows.
    pub(in crate::shard) fn publication_replicated(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        record: LogRecord,
    ) {
        let Some(channel) = context.counters.found_or_late(self.channels.named_mut(name)) else { return };
        let namespace = channel.namespace;
        let Some(log) = context.counters.found_or_late(channel.log.as_deref_mut()) else { return };
        let version = (record.publication.version, &*record.version_epoch);
        if log.note_while_opening(&record.publication, version, context.options.log.tail_publications_max) {
            return;
        }
        let LogRecord { publication, version_epoch, .. } = record;
        let how = PublishHow { version: publication.version, version_epoch, ..PublishHow::default() };
        let params = ProposalParams { how, audience: None, accepted_us: context.now.mono_us, is_delivered: false };
        let publication = Arc::unwrap_or_clone(publication);
        let proposal =
            Proposal { publication, params, creator: None, reply_to: ReplyTo::Nobody, duplicates: Vec::new() };
        self.commit(context, name, namespace, proposal);
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
        let channel = self.channels.named_mut(name);
        let Some((log, namespace, keys_load)) = channel.and_then(|channel| {
            let keys_load = channel.key_cache.as_ref().and_then(|cache| cache.restoring_load());
            Some((channel.log.as_deref_mut()?, channel.namespace, keys_load))
        }) else {
            context.counters.late_messages += 1;
            return;
        };
        if keys_load == Some(load) {
            return self.keys_loaded(context, name, namespace, load, outcome);
        }
        context.clear_refusal_reason();
        let opens = log.opening.as_ref().is_some_and(|(opening, _)| *opening == load);
        let outcome = match outcome {
            Ok(page) if !opens && !context.planted.is(Bug::CutPageTakenAsWhole) => {
                self.gather_page(context, name, load, page)
            }
            outcome => outcome.map(Some),
        };
        let outcome = match outcome {
            // The rest is loading.
            Ok(None) => return,
            Ok(Some(page)) => Ok(page),
            Err(error) => Err(error),
        };
        let requests = self.end_load(name, load);
        match outcome {
            Ok(page) if opens => {
                self.open_channel(context, name, namespace, page);
                for request in requests {
                    self.serve_again(context, name, request);
                }
            }
            Ok(page) => {
                let mut whole = self.page_with_tail(context, name, page);
                for request in requests {
                    self.serve_from(context, name, request, whole.as_mut());
                }
            }
            Err(error) => {
                if opens {
                    self.close_log(name);
                }
                for request in requests {
                    context.note_refusal_reason(error.why());
                    self.refuse(context, name, request, error.code());
                }
                context.clear_refusal_reason();
            }
        }
        self.review(context, name);
    }

    /// Adds a page to those of its load. Returns all of them, or `None` if the rest is requested.
    fn gather_page(
        &mut self,
        context: &Context,
        name: &Arc<str>,
        load: LoadNumber,
        page: LogPage,
    ) -> Result<Option<LogPage>, LogError> {
        let Self { channels, log_traffic, .. } = self;
        let channel = channels.named_mut(name).ok_or(LogError::Unavailable)?;
        let terms = context.namespace(channel.namespace).log_terms();
        let log = channel.log.as_deref_mut().ok_or(LogError::Unavailable)?;
        log_traffic.gathered_bytes -= log.gathered_bytes();
        let gathered = log.gather(load, page, channel.stream.as_deref());
        log_traffic.gathered_bytes += log.gathered_bytes();
        match gathered? {
            Gathered::Enough(page) => Ok(Some(page)),
            Gathered::More(_) if log_traffic.gathered_bytes > context.options.log.gathered_bytes_max => {
                Err(LogError::Busy)
            }
            Gathered::More(query) => {
                log_traffic.requests.push(Effect::Load { channel: Arc::clone(name), load, query, terms });
                Ok(None)
            }
        }
    }

    /// Ends a load; returns the requests that waited for it.
    pub(super) fn end_load(&mut self, name: &str, load: LoadNumber) -> Vec<ParkedRequest> {
        let Self { channels, log_traffic, .. } = self;
        let log = channels.named_mut(name).and_then(|channel| channel.log.as_deref_mut());
        let Some(log) = log else { return Vec::new() };
        log_traffic.gathered_bytes -= log.gathered_bytes();
        let requests = log.end_load(load);
        log_traffic.gathered_bytes += log.gathered_bytes();
        for request in &requests {
            log_traffic.parked.remove(request.cost());
        }
        requests
    }

    /// Opens a channel with its first page.
    fn open_channel(&mut self, context: &mut Context, name: &Arc<str>, namespace: NamespaceIndex, page: LogPage) {
        let options = Arc::clone(&context.options);
        let (limits, options) = (options.log, namespace_options(&options, namespace));
        let loses_meanwhile = context.planted.is(Bug::ParkedMissesMeanwhile);
        let Some(channel) = self.channels.named_mut(name) else { return };
        let Some(log) = channel.log.as_deref_mut() else { return };
        let Some((_, meanwhile)) = log.opening.take() else { return };
        let mut page = page;
        if log.floor == u64::MAX {
            // The history was removed during the load. The log has deleted what is in the page, which it read before;
            // `meanwhile` has only what came after the removal.
            page = LogPage { floor: page.top, through: page.top, records: Vec::new(), has_more_below: false, ..page };
        }
        // A full page was cut by a limit, not by the start of the log.
        let is_full = page.records.len() >= first_page_max(&limits, options);
        log.floor = if is_full || page.has_more_below { 0 } else { page.floor };
        let top = if loses_meanwhile { page.top } else { page.top.max(meanwhile.top()) };
        log.next_offset = log.next_offset.max(top + 1);
        let mut stream = Stream::of_page(page, &meanwhile, top);
        stream.forget_beyond(options.history_size.min(limits.tail_publications_max));
        stream.data_until_us = if stream.is_empty() { u64::MAX } else { context.now.after_ms(options.history_ttl_ms) };
        stream.meta_until_us = context.now.after_ms(options.remembered_ms());
        channel.stream = Some(Box::new(stream));
        self.schedule_channel(context, name);
    }

    /// The page and the publications in memory, as one stream; the page alone if publications between the two are in
    /// neither, because it has all that was asked for.
    fn page_with_tail(&mut self, context: &Context, name: &str, mut page: LogPage) -> Option<LoadedPart> {
        let loses_meanwhile = context.planted.is(Bug::ParkedMissesMeanwhile);
        let channel = self.channels.named_mut(name)?;
        let namespace = channel.namespace;
        let (log, tail) = (channel.log.as_deref_mut()?, channel.stream.as_deref()?);
        // Publications removed during the load may be in the page.
        page.floor = page.floor.max(log.floor);
        page.through = page.through.max(page.floor);
        page.records.retain(|record| record.publication.offset > page.floor);
        // The log has no publication up to `through`; those that it passed on earlier are in the tail.
        let is_behind_tail = page.records.is_empty() && page.floor >= tail.top();
        let is_ordered_by_log = context.namespace(namespace).log == PublicationLog::OrderedByLog;
        let top = if is_ordered_by_log && is_behind_tail { page.through } else { tail.top() };
        let stream = if loses_meanwhile {
            let (through, nothing) = (page.through, Stream::new(Box::default()));
            Stream::of_page(page, &nothing, through)
        } else if page.through < tail.floor() {
            return Some(LoadedPart::Alone(Stream::of_part(page, tail.top())));
        } else {
            Stream::of_page(page, tail, top)
        };
        Some(LoadedPart::ToTail(stream))
    }

    /// Drops a channel's log, which nothing waits for.
    pub(in crate::shard) fn close_log(&mut self, name: &str) {
        let Some(channel) = self.channels.named_mut(name) else { return };
        if let Some(log) = channel.log.take() {
            self.log_traffic.gathered_bytes -= log.gathered_bytes();
            let (channel, only_user) = (Arc::clone(&channel.name), channel.used_by.only());
            self.log_traffic.requests.push(Effect::Unfollow { channel, only_user });
        }
    }

    /// This node or another one has removed the history of a channel.
    pub(in crate::shard) fn history_trimmed(&mut self, context: &mut Context, name: &Arc<str>, through: u64) {
        let Some(channel) = context.counters.found_or_late(self.channels.named_mut(name)) else { return };
        if let Some(log) = channel.log.as_deref_mut() {
            log.floor = log.floor.max(through);
            if let Some((_, meanwhile)) = &mut log.opening {
                meanwhile.clear();
            }
        }
        if let Some(stream) = channel.stream.as_deref_mut() {
            stream.clear();
            if stream.take_answers() {
                self.answers.forget(name);
            }
        }
        self.forget_keys(name);
        self.count_history(context, name);
    }

    /// The log has stopped following a channel: its subscribers resubscribe, even those without a position, because
    /// publications of other nodes would not reach them. A channel that is still opening has no state to lose.
    pub(in crate::shard) fn log_interrupted(&mut self, context: &mut Context, name: &Arc<str>) {
        let Some(channel) = context.counters.found_or_late(self.channels.named_mut(name)) else { return };
        if channel.log.as_ref().is_none_or(|log| log.opening.is_some()) {
            return;
        }
        let shards: Vec<_> = channel.listening_shards(Audience::Publications).collect();
        let stream = channel.stream.take();
        for shard in shards {
            context.notify(shard, Notice::FollowingLost { channel: Arc::clone(name) });
        }
        if let Some(stream) = stream {
            self.forget_stream(context, name, *stream, true);
        }
        // The log still answers the shard's pending requests; the channel's log is not closed before that.
        self.review(context, name);
    }

    /// Deletes the present publications of a channel from the log. Returns whether the channel has a log, which then
    /// answers the ticket.
    pub(in crate::shard) fn trim_log(&mut self, context: &Context, name: &Arc<str>, ticket: Option<Ticket>) -> bool {
        let is_logged =
            self.has_logs && context.names.resolve(name).is_ok_and(|namespace| context.is_logged(namespace));
        if !is_logged {
            return false;
        }
        let mut through = u64::MAX;
        if let Some(channel) = self.channels.named_mut(name)
            && let Some(log) = channel.log.as_deref_mut()
        {
            match (&mut log.opening, &channel.stream) {
                (Some((_, meanwhile)), _) => meanwhile.clear(),
                (None, Some(stream)) => through = stream.top(),
                (None, None) => {}
            }
            log.floor = through;
        }
        self.log_traffic.requests.push(Effect::Trim { channel: Arc::clone(name), through, ticket });
        true
    }

    /// A channel's publications have expired. A log that other nodes write to expires them by itself.
    pub(super) fn expire_log(&mut self, context: &Context, name: &Arc<str>) {
        let Some(channel) = self.channels.named_mut(name) else { return };
        if context.namespace(channel.namespace).log != PublicationLog::OrderedByLog {
            self.trim_log(context, name, None);
        } else if let (Some(log), Some(stream)) = (channel.log.as_deref_mut(), &channel.stream) {
            log.floor = stream.top();
        }
    }
}
impl Context {
    /// Answers the removal of a history: only what is stored stays removed after a crash.
    pub(in crate::shard) fn answer_trim(&mut self, ticket: Ticket, outcome: Result<(), LogError>) {
        self.clear_refusal_reason();
        let answer = outcome.map(|()| ApiAnswer::Done { sessions: 0 }).map_err(|error| {
            self.note_refusal_reason(error.why());
            error.code()
        });
        self.answer_api(ticket, answer);
        self.clear_refusal_reason();
    }

    /// Whether the channel's publications are stored in a log.
    pub(super) fn is_logged(&self, namespace: NamespaceIndex) -> bool {
        let options = self.namespace(namespace);
        options.log != PublicationLog::Memory && options.has_stream()
    }
}

/// A loaded part of a channel.
pub(super) enum LoadedPart {
    /// It ends with the newest publication.
    ToTail(Stream),
    /// Publications between it and those in memory are missing.
    Alone(Stream),
}

/// Maximum number of bytes of the page that opens a channel.
const FIRST_PAGE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of publications of the page that opens a channel.
fn first_page_max(limits: &LogLimits, options: &NamespaceOptions) -> usize {
    limits.tail_publications_max.min(options.history_size).max(1)
}
