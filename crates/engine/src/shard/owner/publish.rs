//! A publication on its way through its channel: it is checked, proposed to the log if there is one, committed, delivered
//! and answered.
//!
//! To commit a publication is to add it to the stream, deliver it and answer the publisher. This happens at once for a
//! log in memory, otherwise when the log has committed the publication. No other code does any of this.

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, Payload, Publication};

use crate::{
    backend::PublishHow,
    broadcast::{BroadcastMessage, broadcast_bytes},
    channel::{Audience, ChannelKey, OwnedChannel},
    counters::Suppression,
    frame::{Delivery, DeliveryBody},
    idempotency::Results,
    log::{LogError, LogRecord, PublicationLog},
    log_in_flight::{Draft, ParkedRequest, Proposal, ProposalParams, ReplyTo},
    message::Notice,
    options::{DataFormat, NamespaceOptions},
    refused::Refused,
};

use super::{Context, NamedChannel, Owner, histories::Patch};

const TOO_LARGE: &str = "the publication is larger than client.queue_max_size";
const TOO_MANY_DUPLICATES: &str = "too many publications with the idempotency key or version of another one wait for its outcome; repeat it less often";
const NOT_IN_FORMAT: &str = "the data is not in the publication_data_format of the namespace";

/// Offset and epoch of a publication: 0 and empty without a stream.
type Position = (u64, Box<str>);

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
        let creator = draft.creator;
        let outcome = context.resolve(name).and_then(|namespace| {
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
            Err(refused) => {
                self.review_if_any(context, key);
                context.answer_publication(name, reply_to, Err(refused));
            }
        }
    }

    fn try_propose(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
        mut draft: Draft,
        reply_to: ReplyTo,
    ) -> Result<ProposalOutcome, Refused> {
        if draft.bytes() > context.options.client.queue_bytes_max {
            // The publication would exceed every session's queue limit.
            return Err(Refused::new(ErrorCode::BadRequest, TOO_LARGE));
        }
        let options = context.namespace(channel.namespace);
        if !fits(&draft.data, options.publication_data_format) {
            return Err(Refused::new(ErrorCode::BadRequest, NOT_IN_FORMAT));
        }
        // Here and not in deliveries, so that neither a log nor another node learns who it was.
        draft.info = draft.info.filter(|_| !options.hide_publisher_info);
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
            return Err(LogError::TooLarge.into());
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
        let params = ProposalParams { how, audience, accepted_us: context.now.mono_us };
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
    ) -> Result<(), Refused> {
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
                return Err(Refused::new(ErrorCode::TooManyRequests, TOO_MANY_DUPLICATES));
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
    ) -> Result<Option<(Position, Suppression)>, Refused> {
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

    /// Commits a publication. It has an offset if a log assigned one.
    pub(super) fn commit(&mut self, context: &mut Context, channel: &mut NamedChannel<'_>, proposal: Proposal) {
        let Proposal { publication, params, creator, reply_to, duplicates } = proposal;
        let outcome = self.publish_committed(context, channel, publication, &params);
        if let Some(key) = channel.key {
            if outcome.is_ok() {
                self.channels.record_use(key, context.now, creator, true);
            }
            self.review(context, key);
        }
        for duplicate in duplicates {
            context.answer_publication(channel.name, duplicate, outcome.clone());
        }
        context.answer_publication(channel.name, reply_to, outcome);
    }

    fn publish_committed(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
        publication: Publication,
        params: &ProposalParams,
    ) -> Result<Position, Refused> {
        let options = context.namespace(channel.namespace);
        debug_assert!(options.room.is_none() || options.has_stream(), "the configuration gives rooms a stream");
        let is_kept = is_kept(&params.how, options);
        let (publication, position, patch) = if publication.offset > 0 {
            let offset = publication.offset;
            let Some((publication, epoch, patch)) = self.append_committed(context, channel, publication, params) else {
                // A page contained it, so all subscribers have received it.
                let owned = channel.key.and_then(|key| self.channels.get(key));
                let position = (offset, owned.map_or_else(Box::default, OwnedChannel::epoch));
                self.remember_key(context, channel, params, &position)?;
                return Ok(position);
            };
            (publication, (offset, epoch), patch)
        } else if is_kept {
            self.append_next(context, channel, publication, params)?
        } else {
            (Arc::new(publication), (0, Box::default()), None)
        };
        let is_broadcast = position.0 == 0 && context.is_shared(channel.namespace);
        let message = is_broadcast.then(|| BroadcastMessage::Publication(Arc::clone(&publication)));
        self.deliver_publication(context, channel, publication, params, patch)?;
        if let Some(message) = message {
            context.broadcast(channel.name, message);
        }
        self.remember_key(context, channel, params, &position)?;
        Ok(position)
    }

    /// Appends a publication to the stream, with the next offset.
    fn append_next(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
        mut publication: Publication,
        params: &ProposalParams,
    ) -> Result<(Arc<Publication>, Position, Patch), Refused> {
        // First, so that a publication that is refused creates no channel.
        self.histories.make_space(context, &mut self.channels, channel, &publication)?;
        let key = self.ensure(context, channel)?;
        let owned = &mut self.channels[key];
        let stream = self.histories.open_stream(context, owned);
        publication.offset = stream.next_offset();
        let position = (publication.offset, stream.epoch().into());
        if stream.is_new() {
            publication.epoch = stream.epoch().into();
        }
        let publication = Arc::new(publication);
        let size = context.namespace(channel.namespace).history_size;
        let patch = self.histories.append(context, owned, &publication, params, size);
        Ok((publication, position, patch))
    }

    /// Appends a publication with the offset that its log assigned. Returns it with its epoch and patch, or `None` if
    /// the stream already has it.
    fn append_committed(
        &mut self,
        context: &mut Context,
        channel: &NamedChannel<'_>,
        publication: Publication,
        params: &ProposalParams,
    ) -> Option<(Arc<Publication>, Box<str>, Patch)> {
        let key = channel.key?;
        let owned = self.channels.get_mut(key)?;
        let Some(stream) = &owned.stream else {
            // Proposed before an interruption, and committed while the channel opens again. The page may be older.
            let publication = Arc::new(publication);
            if let Some(log) = owned.log.as_deref_mut() {
                let (how, tail_max) = (&params.how, context.options.log.tail_publications_max);
                log.note_while_opening(&publication, (how.version, &how.version_epoch), tail_max);
            }
            return Some((publication, Box::default(), None));
        };
        if publication.offset <= stream.top() {
            return None;
        }
        let epoch = stream.epoch().into();
        // A page that is loading must overlap with the publications in memory.
        let is_loading = owned.log.as_ref().is_some_and(|log| log.is_loading());
        // Publications that do not fit into memory are still in the log.
        let fits = self.histories.make_space(context, &mut self.channels, channel, &publication).is_ok();
        let tail_max = if is_loading { usize::MAX } else { context.options.log.tail_publications_max };
        let size = context.namespace(channel.namespace).history_size.min(tail_max);
        let publication = Arc::new(publication);
        let size = if fits { size } else { 0 };
        let patch = self.histories.append(context, &mut self.channels[key], &publication, params, size);
        Some((publication, epoch, patch))
    }

    /// Sends a publication to the listening shards.
    pub(super) fn deliver_publication(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
        publication: Arc<Publication>,
        params: &ProposalParams,
        patch: Patch,
    ) -> Result<(), Refused> {
        context.count(channel.namespace).publications += 1;
        let options = context.namespace(channel.namespace);
        let conflation_key = options.conflation_key_of(&publication.tags).map(Box::from);
        if options.cache_keys_max > 0 {
            let key = self.ensure(context, channel)?;
            let owned = &mut self.channels[key];
            self.histories.keep_newest(context, owned, conflation_key.as_deref(), &publication);
        } else if let Some(owned) = channel.key.and_then(|key| self.channels.get_mut(key)) {
            // Keys may remain from before a change of the options.
            self.histories.forget_keys(owned);
        }
        let Some(owned) = channel.key.and_then(|key| self.channels.get(key)) else { return Ok(()) };
        let body = DeliveryBody::Publication { publication, conflation_key, audience: params.audience.clone() };
        let delivery = Delivery::new(Arc::clone(&owned.name), channel.namespace, body, params.accepted_us);
        send_out(context, owned, delivery.with_patch(patch), Audience::Publications);
        Ok(())
    }

    fn remember_key(
        &mut self,
        context: &mut Context,
        channel: &mut NamedChannel<'_>,
        params: &ProposalParams,
        position: &Position,
    ) -> Result<(), Refused> {
        let Some(key) = &params.how.idempotency_key else { return Ok(()) };
        let (seed, results_max) = (context.node_seed, context.options.channel.idempotent_results_max);
        let owned = self.ensure(context, channel)?;
        let owned = &mut self.channels[owned];
        let results = owned.results.get_or_insert_with(|| Box::new(Results::new(seed)));
        results.remember(context.now.mono_us, key, position.clone(), results_max);
        owned.schedule(&mut context.timers);
        Ok(())
    }
}

/// Encodes a delivery once for each frame class in use, and sends it once to each listening shard.
pub(super) fn send_out(context: &mut Context, channel: &OwnedChannel, mut delivery: Delivery, audience: Audience) {
    delivery = delivery.numbered(channel.number);
    for class in channel.classes(audience) {
        delivery.encode(class, &mut context.scratch);
    }
    let encodes = delivery.encodes();
    if encodes == 0 {
        return;
    }
    context.count(delivery.namespace).encodes += encodes as u64;
    let delivery = Arc::new(delivery);
    let players = delivery.audience();
    let has_some = |shard| players.is_none_or(|players| !players.seats_on(shard).is_empty());
    for shard in channel.listening_shards(audience).filter(|shard| has_some(*shard)) {
        context.notify(shard, Notice::Deliver(Arc::clone(&delivery)));
    }
}

/// Whether the publication gets an offset. In a channel with a room, one without an offset would look like a snapshot.
fn is_kept(how: &PublishHow, options: &NamespaceOptions) -> bool {
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
