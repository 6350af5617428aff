//! Proposes a publication: checks, idempotency keys and versions, and the answer if it is refused.

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, Payload, Publication};

use crate::{
    api::ApiAnswer,
    backend::PublishHow,
    broadcast::broadcast_bytes,
    channel::ChannelKey,
    counters::Suppression,
    log::{LogError, LogRecord, PublicationLog},
    log_in_flight::{Draft, ParkedRequest, Proposal, ProposalParams, ReplyTo},
    message::Notice,
    options::{DataFormat, NamespaceOptions},
    planted::Bug,
};

use super::{Context, NamedChannel, Owner};

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
        self.propose_to(context, (name, self.channels.find(name)), draft, reply_to);
    }

    /// As [`Owner::propose`], to a channel that was looked up.
    pub(super) fn propose_to(
        &mut self,
        context: &mut Context,
        (name, mut key): (&Arc<str>, Option<ChannelKey>),
        draft: Draft,
        reply_to: ReplyTo,
    ) {
        let (creator, bytes) = (draft.creator, draft.bytes());
        let outcome = context.names.resolve(name).and_then(|namespace| {
            let mut channel = NamedChannel { name, namespace, key };
            let outcome = self.try_propose(context, &mut channel, draft, reply_to);
            key = channel.key;
            outcome
        });
        match outcome {
            Ok(ProposalOutcome::Proposed) if self.has_logs => self.review_if_any(context, key),
            Ok(ProposalOutcome::Proposed) => {}
            Ok(ProposalOutcome::Suppressed(position)) => {
                if let Some(key) = key {
                    self.channels.record_use(key, context.now, creator, true);
                    self.review(context, key);
                }
                context.answer_publication(name, reply_to, Ok(position));
            }
            Err(code) => {
                self.review_if_any(context, key);
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
        channel: &mut NamedChannel<'_>,
        draft: Draft,
        reply_to: ReplyTo,
    ) -> Result<ProposalOutcome, ErrorCode> {
        if draft.bytes() > context.options.client.queue_bytes_max {
            // The publication would exceed every session's queue limit.
            return Err(ErrorCode::BadRequest);
        }
        let options = context.namespace(channel.namespace);
        if !fits(&draft.data, options.publication_data_format) {
            return Err(ErrorCode::BadRequest);
        }
        let is_kept = is_kept(&draft.how, options);
        let remembers = is_kept || options.cache_keys_max > 0;
        let is_logged = options.log != PublicationLog::Memory && is_kept;
        if is_logged {
            let key = self.ensure(context, channel)?;
            let owned = &mut self.channels[key];
            if !self.log_traffic.open(context, owned) {
                let request = ParkedRequest::Publish { draft: Box::new(draft), reply_to };
                self.log_traffic.park_until_open(context, owned, request)?;
                return Ok(ProposalOutcome::Proposed);
            }
        }
        if let Some((position, why)) = self.suppressed(context, channel, is_kept, &draft.how)? {
            context.count(channel.namespace).suppressed[why as usize] += 1;
            return Ok(ProposalOutcome::Suppressed(position));
        }
        let is_broadcast = !is_kept && context.is_shared(channel.namespace);
        if is_broadcast && broadcast_bytes(&draft) > context.options.broadcast_bytes_max {
            context.note_refusal_reason(LogError::TooLarge.why());
            return Err(LogError::TooLarge.code());
        }
        if let Some(creator) = draft.creator.filter(|_| remembers) {
            self.check_creator(context, channel.key, creator)?;
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
            self.propose_to_log(context, channel, proposal)?;
        } else {
            self.commit(context, channel, proposal);
        }
        Ok(ProposalOutcome::Proposed)
    }

    /// Proposes a publication to the log, which commits it later. A possible duplicate of a proposal in flight waits
    /// for its outcome.
    fn propose_to_log(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
        mut proposal: Proposal,
    ) -> Result<(), ErrorCode> {
        let key = channel.key.ok_or(ErrorCode::Internal)?;
        let owned = &mut self.channels[key];
        let log = owned.open_log().ok_or(ErrorCode::Internal)?;
        let how = &proposal.params.how;
        let same_key = match &how.idempotency_key {
            // The log would answer it with the offset of the first as well, after one more write.
            Some(key) if log.proposal_with_key(key).is_some() => log.proposal_with_key(key),
            _ => log.proposal_as_new_as(how.version, &how.version_epoch),
        };
        if let Some(earlier) = same_key {
            if earlier.duplicates.len() >= context.options.log.duplicates_max {
                return Err(ErrorCode::TooManyRequests);
            }
            earlier.duplicates.push(proposal.reply_to);
            return Ok(());
        }
        self.log_traffic.check_proposal(&context.options.log, &proposal.publication)?;
        let begins = owned.stream.as_ref().is_some_and(|stream| stream.is_new()).then(|| owned.epoch());
        let log = owned.open_log().ok_or(ErrorCode::Internal)?;
        if context.namespace(channel.namespace).log == PublicationLog::OrderedByOwner {
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
            let position = (record.publication.offset, Box::default());
            context.answer_publication(channel.name, reply_to, Ok(position));
        }
        if context.planted.is(Bug::DeliveredBeforeCommit) {
            proposal.params.is_delivered = true;
            let publication = Arc::clone(&record.publication);
            self.deliver_publication(context, channel, publication, &proposal.params, None)?;
        }
        // Otherwise any number of channels could be created until the first commit.
        self.channels.reserve_creator(key, proposal.creator);
        self.log_traffic.propose(context, &mut self.channels[key], proposal, record, begins)
    }

    /// The answer to a publication that is suppressed, with the reason.
    fn suppressed(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
        is_kept: bool,
        how: &PublishHow,
    ) -> Result<Option<(Position, Suppression)>, ErrorCode> {
        if let Some(key) = &how.idempotency_key {
            let owned = channel.key.and_then(|key| self.channels.get_mut(key));
            let results = owned.and_then(|owned| owned.results.as_mut());
            if let Some(position) = results.and_then(|results| results.find(context.now.mono_us, key)) {
                return Ok(Some((position, Suppression::Idempotency)));
            }
        }
        if how.version > 0 && is_kept {
            let key = self.ensure(context, channel)?;
            let stream = self.histories.open_stream(context, &mut self.channels[key]);
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
