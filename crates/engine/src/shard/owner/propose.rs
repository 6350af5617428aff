//! Proposes a publication: checks, idempotency keys and versions, and the answer if it is refused.

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, Payload, Publication};

use crate::{
    Effect,
    api::ApiAnswer,
    backend::PublishHow,
    broadcast::broadcast_bytes,
    counters::Suppression,
    history_stream::kept_bytes,
    log::{LogError, LogRecord, ProposalNumber, PublicationLog},
    log_in_flight::{Draft, ParkedRequest, Proposal, ProposalParams, ReplyTo},
    message::Notice,
    names::{NamespaceIndex, namespace_options},
    options::{DataFormat, NamespaceOptions},
    planted::Bug,
};

use super::{Context, Owner};

/// Offset and epoch of a publication: 0 and empty without a stream.
pub(in crate::shard) type Position = (u64, Box<str>);

/// The outcome of a publication that is not refused.
enum ProposalOutcome {
    /// The publication is not published, only answered.
    Suppressed(Position),
    /// The publication is answered when its outcome is known, unless it has been answered already.
    Proposed,
}

impl Owner {
    /// Accepts or refuses a publication, and answers the publisher. A duplicate, or a publication older than the
    /// channel's version, is answered but not published.
    pub(in crate::shard) fn propose(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        draft: Draft,
        reply_to: ReplyTo,
    ) {
        let (creator, bytes) = (draft.creator, draft.bytes());
        match self.try_propose(context, name, draft, reply_to) {
            Ok(ProposalOutcome::Proposed) if self.has_logs => self.review(context, name),
            Ok(ProposalOutcome::Proposed) => {}
            Ok(ProposalOutcome::Suppressed(position)) => {
                self.record_use(context.now, name, creator, true);
                self.review(context, name);
                context.answer_publication(name, reply_to, Ok(position));
            }
            Err(code) => {
                self.review(context, name);
                if matches!(reply_to, ReplyTo::Api(_)) {
                    context.explain_refused_draft(code, name, bytes);
                }
                context.answer_publication(name, reply_to, Err(code));
                // The session's shard determines the reason itself.
                context.clear_refusal_reason();
            }
        }
    }

    fn try_propose(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        draft: Draft,
        reply_to: ReplyTo,
    ) -> Result<ProposalOutcome, ErrorCode> {
        let namespace = context.names.resolve(name)?;
        if draft.bytes() > context.options.client.queue_bytes_max {
            // The publication would exceed every session's queue limit.
            return Err(ErrorCode::BadRequest);
        }
        let options = Arc::clone(&context.options);
        let options = namespace_options(&options, namespace);
        if !fits(&draft.data, options.publication_data_format) {
            return Err(ErrorCode::BadRequest);
        }
        let is_logged = options.log != PublicationLog::Memory && is_kept(&draft.how, options);
        if is_logged && !self.is_log_ready(context, name, namespace)? {
            self.park_until_open(context, name, ParkedRequest::Publish { draft: Box::new(draft), reply_to })?;
            return Ok(ProposalOutcome::Proposed);
        }
        if let Some((position, why)) = self.suppressed(context, name, namespace, options, &draft.how)? {
            context.count(namespace).suppressed[why as usize] += 1;
            return Ok(ProposalOutcome::Suppressed(position));
        }
        let is_broadcast = !is_kept(&draft.how, options) && context.is_shared(namespace);
        if is_broadcast && broadcast_bytes(&draft) > context.options.broadcast_bytes_max {
            context.note_refusal_reason(LogError::TooLarge.why());
            return Err(LogError::TooLarge.code());
        }
        let remembers = is_kept(&draft.how, options) || options.cache_keys_max > 0;
        if let Some(creator) = draft.creator.filter(|_| remembers) {
            self.check_maker(context, name, creator)?;
        }
        let Draft { data, info, mut how, audience, creator } = draft;
        let publication = Publication {
            data,
            info,
            offset: 0,
            tags: std::mem::take(&mut how.tags),
            // Written only if known; Centrifugo's memory broker does not write it either.
            time_ms: 0,
            epoch: Box::default(),
            version: how.version,
        };
        let params = ProposalParams { how, audience, accepted_us: context.now.mono_us, is_delivered: false };
        let proposal = Proposal { publication, params, creator, reply_to, duplicates: Vec::new() };
        if is_logged {
            self.propose_to_log(context, name, namespace, proposal)?;
        } else {
            self.commit(context, name, namespace, proposal);
        }
        Ok(ProposalOutcome::Proposed)
    }

    /// Proposes a publication to the log, which commits it later. A possible duplicate of a proposal in flight waits
    /// for its outcome.
    fn propose_to_log(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        mut proposal: Proposal,
    ) -> Result<(), ErrorCode> {
        let duplicates_max = context.options.log.duplicates_max;
        let log = self.open_log_of(name).ok_or(ErrorCode::Internal)?;
        let how = &proposal.params.how;
        let same_key = match &how.idempotency_key {
            // The log would answer it with the offset of the first as well, after one more write.
            Some(key) if log.proposal_with_key(key).is_some() => log.proposal_with_key(key),
            _ => log.proposal_as_new_as(how.version, &how.version_epoch),
        };
        if let Some(earlier) = same_key {
            if earlier.duplicates.len() >= duplicates_max {
                return Err(ErrorCode::TooManyRequests);
            }
            earlier.duplicates.push(proposal.reply_to);
            return Ok(());
        }
        self.check_log_traffic(context, &proposal.publication)?;
        let options = Arc::clone(&context.options);
        let options = namespace_options(&options, namespace);
        let stream = self.channels.named(name).and_then(|channel| channel.stream.as_deref());
        let begins: Option<Box<str>> = stream.filter(|stream| stream.is_new()).map(|stream| stream.epoch().into());
        let log = self.open_log_of(name).ok_or(ErrorCode::Internal)?;
        if options.log == PublicationLog::OrderedByOwner {
            proposal.publication.offset = log.next_offset;
            log.next_offset += 1;
            if proposal.publication.offset == 1 {
                proposal.publication.epoch = begins.clone().unwrap_or_default();
            }
        }
        let record = LogRecord {
            publication: Arc::new(proposal.publication.clone()),
            version_epoch: proposal.params.how.version_epoch.clone(),
            idempotency_key: proposal.params.how.idempotency_key.clone(),
        };
        if context.planted.is(Bug::AcknowledgedBeforeCommit) {
            let reply_to = std::mem::replace(&mut proposal.reply_to, ReplyTo::Nobody);
            context.answer_publication(name, reply_to, Ok((record.publication.offset, Box::default())));
        }
        if context.planted.is(Bug::DeliveredBeforeCommit) {
            proposal.params.is_delivered = true;
            let publication = Arc::clone(&record.publication);
            self.deliver_publication(context, name, namespace, publication, &proposal.params, None)?;
        }
        let terms = options.log_terms();
        let number = ProposalNumber(self.log_traffic.next_number());
        self.log_traffic.proposals += 1;
        self.log_traffic.proposal_bytes += kept_bytes(&proposal.publication);
        // Otherwise any number of channels could be created until the first commit.
        if let Some(key) = self.channels.find(name) {
            self.channels.reserve_creator(key, proposal.creator);
        }
        let log = self.open_log_of(name).ok_or(ErrorCode::Internal)?;
        log.propose(number, proposal);
        let (channel, record) = (Arc::clone(name), Box::new(record));
        self.log_traffic.requests.push(Effect::Propose { channel, proposal: number, record, begins, terms });
        Ok(())
    }

    /// Checks the limits on proposals in flight.
    fn check_log_traffic(&self, context: &Context, publication: &Publication) -> Result<(), ErrorCode> {
        let (limits, traffic) = (&context.options.log, &self.log_traffic);
        let bytes = traffic.proposal_bytes + kept_bytes(publication);
        let fits = traffic.proposals < limits.proposals_max && bytes <= limits.proposal_bytes_max;
        if fits { Ok(()) } else { Err(ErrorCode::TooManyRequests) }
    }

    /// The answer to a publication that is suppressed, with the reason.
    fn suppressed(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        options: &NamespaceOptions,
        how: &PublishHow,
    ) -> Result<Option<(Position, Suppression)>, ErrorCode> {
        if let Some(key) = &how.idempotency_key {
            let results = self.channels.named_mut(name).and_then(|channel| channel.results.as_mut());
            if let Some(position) = results.and_then(|results| results.find(context.now.mono_us, key)) {
                return Ok(Some((position, Suppression::Idempotency)));
            }
        }
        if how.version > 0 && is_kept(how, options) {
            let stream = self.stream(context, name, namespace)?;
            if !stream.is_newer(how.version, &how.version_epoch) {
                return Ok(Some((stream.position(), Suppression::Version)));
            }
        }
        Ok(None)
    }
}
impl Context {
    /// Sends the publisher the outcome of its publication.
    pub(super) fn answer_publication(
        &mut self,
        name: &Arc<str>,
        reply_to: ReplyTo,
        outcome: Result<Position, ErrorCode>,
    ) {
        match reply_to {
            ReplyTo::Session(asker) => {
                let (channel, outcome) = (Arc::clone(name), outcome.map(|_| ()));
                self.notify(asker.shard, Notice::Published { channel, asker, outcome });
            }
            ReplyTo::Api(ticket) => {
                let answer = outcome.map(|(offset, epoch)| ApiAnswer::Published { offset, epoch });
                self.answer_api(ticket, answer);
            }
            ReplyTo::Room => self.counters.room_publications_refused += u64::from(outcome.is_err()),
            ReplyTo::Nobody => {}
        }
    }

    /// Sets the reason of a refused publication.
    fn explain_refused_draft(&self, code: ErrorCode, channel: &str, draft_bytes: usize) {
        if code != ErrorCode::BadRequest || self.has_reason() || self.resolve(channel).is_err() {
            return;
        }
        self.note_refusal_reason(if draft_bytes > self.options.client.queue_bytes_max {
            "the publication is larger than client.queue_max_size"
        } else {
            "the data is not in the publication_data_format of the namespace"
        });
    }
}

/// Whether the publication gets an offset. In a channel with a room, one without an offset would look like a snapshot.
pub(super) fn is_kept(how: &PublishHow, options: &NamespaceOptions) -> bool {
    options.has_stream() && (!how.skip_history || options.room.is_some())
}

/// Whether `data` has the accepted format.
fn fits(data: &Payload, format: DataFormat) -> bool {
    match format {
        DataFormat::Any => !data.bytes().is_empty(),
        DataFormat::Json => data.is_json(),
        DataFormat::JsonObject => data.is_json() && data.bytes().trim_ascii_start().starts_with(b"{"),
        DataFormat::Binary => true,
    }
}
