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
    channel::{Audience, OwnedChannel},
    counters::Suppression,
    frame::{Delivery, DeliveryBody},
    idempotency::Results,
    log::{LogError, LogRecord, PublicationLog},
    log_in_flight::{Draft, ParkedRequest, Proposal, ProposalParams, ReplyTo},
    message::Notice,
    options::{DataFormat, NamespaceOptions},
    refused::Refused,
};

use super::{
    Context,
    channels::{Channels, NamedChannel},
    histories::Patch,
};

const TOO_LARGE: &str = "the publication is larger than client.queue_max_size";
const TOO_MANY_DUPLICATES: &str = "too many publications with the idempotency key or version of another one wait for its outcome; repeat it less often";
const NOT_IN_FORMAT: &str = "the data is not in the publication_data_format of the namespace";

/// Offset and epoch of a publication: 0 and empty without a stream.
pub(super) type Position = (u64, Box<str>);

/// The outcome of a publication that is not refused.
pub(super) enum ProposalOutcome {
    /// The publication is not published, only answered.
    Suppressed(Position),
    /// The publication is answered when its outcome is known, unless it has been answered already.
    Proposed,
}

/// A publication on its way through its channel.
pub(super) struct Publishing<'p> {
    pub(super) context: &'p mut Context,
    pub(super) channels: &'p mut Channels,
    pub(super) channel: NamedChannel<'p>,
}

impl Publishing<'_> {
    /// Accepts or refuses a publication. The caller reviews the channel.
    pub(super) fn try_propose(&mut self, mut draft: Draft, reply_to: ReplyTo) -> Result<ProposalOutcome, Refused> {
        if draft.bytes() > self.context.options.client.queue_bytes_max {
            // The publication would exceed every session's queue limit.
            return Err(Refused::new(ErrorCode::BadRequest, TOO_LARGE));
        }
        let options = self.context.namespace(self.channel.namespace);
        if !fits(&draft.data, options.publication_data_format) {
            return Err(Refused::new(ErrorCode::BadRequest, NOT_IN_FORMAT));
        }
        // Here and not in deliveries, so that neither a log nor another node learns who it was.
        draft.info = draft.info.filter(|_| !options.hide_publisher_info);
        let is_kept = is_kept(&draft.how, options);
        let remembers = is_kept || options.cache_keys_max > 0;
        let is_logged = options.log != PublicationLog::Memory && is_kept;
        if is_logged {
            let key = self.channels.ensure(self.context, &mut self.channel)?;
            let owned = &mut self.channels.table[key];
            if !self.channels.log_traffic.open(self.context, owned) {
                let request = ParkedRequest::Publish { draft: Box::new(draft), reply_to };
                self.channels.log_traffic.park_until_open(self.context, owned, request)?;
                return Ok(ProposalOutcome::Proposed);
            }
        }
        if let Some((position, why)) = self.suppressed(is_kept, &draft.how)? {
            self.context.count(self.channel.namespace).suppressed[why as usize] += 1;
            return Ok(ProposalOutcome::Suppressed(position));
        }
        let is_broadcast = !is_kept && self.context.is_shared(self.channel.namespace);
        if is_broadcast && broadcast_bytes(&draft) > self.context.options.broadcast_bytes_max {
            return Err(LogError::TooLarge.into());
        }
        if let Some(creator) = draft.creator.filter(|_| remembers) {
            self.channels.check_creator(self.context, self.channel.key, creator)?;
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
        let is_followed = self.context.follows_next();
        let params = ProposalParams { how, audience, accepted_us: self.context.now.mono_us, is_followed };
        let proposal = Proposal { publication, params, creator, reply_to, duplicates: Vec::new() };
        if is_logged {
            self.propose_to_log(proposal)?;
        } else {
            self.commit(proposal);
        }
        Ok(ProposalOutcome::Proposed)
    }

    /// Proposes a publication to the log, which commits it later. A possible duplicate of a proposal in flight waits
    /// for its outcome.
    fn propose_to_log(&mut self, mut proposal: Proposal) -> Result<(), Refused> {
        let key = self.channel.key.ok_or(ErrorCode::Internal)?;
        let owned = &mut self.channels.table[key];
        let log = owned.open_log().ok_or(ErrorCode::Internal)?;
        let how = &proposal.params.how;
        let same_key = match &how.idempotency_key {
            // The log would answer it with the offset of the first as well, after one more write.
            Some(key) if log.proposal_with_key(key).is_some() => log.proposal_with_key(key),
            _ => log.proposal_as_new_as(how.version, &how.version_epoch),
        };
        if let Some(earlier) = same_key {
            if earlier.duplicates.len() >= self.context.options.log.duplicates_max {
                return Err(Refused::new(ErrorCode::TooManyRequests, TOO_MANY_DUPLICATES));
            }
            earlier.duplicates.push(proposal.reply_to);
            return Ok(());
        }
        self.channels.log_traffic.check_proposal(&self.context.options.log, &proposal.publication)?;
        let begins = owned.stream.as_ref().is_some_and(|stream| stream.is_new()).then(|| owned.epoch());
        let log = owned.open_log().ok_or(ErrorCode::Internal)?;
        if self.context.namespace(self.channel.namespace).log == PublicationLog::OrderedByOwner {
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
        self.channels.table.reserve_creator(key, proposal.creator);
        self.channels.log_traffic.propose(self.context, &mut self.channels.table[key], proposal, record, begins)
    }

    /// The answer to a publication that is suppressed, with the reason.
    fn suppressed(&mut self, is_kept: bool, how: &PublishHow) -> Result<Option<(Position, Suppression)>, Refused> {
        if let Some(key) = &how.idempotency_key {
            let owned = self.channel.key.and_then(|key| self.channels.table.get_mut(key));
            let results = owned.and_then(|owned| owned.results.as_mut());
            if let Some(position) = results.and_then(|results| results.find(self.context.now.mono_us, key)) {
                return Ok(Some((position, Suppression::Idempotency)));
            }
        }
        if how.version > 0 && is_kept {
            let key = self.channels.ensure(self.context, &mut self.channel)?;
            let stream = self.channels.histories.open_stream(self.context, &mut self.channels.table[key]);
            if !stream.is_newer(how.version, &how.version_epoch) {
                return Ok(Some((stream.position(), Suppression::Version)));
            }
        }
        Ok(None)
    }

    /// Commits a publication. It has an offset if a log assigned one.
    pub(super) fn commit(&mut self, proposal: Proposal) {
        let Proposal { publication, params, creator, reply_to, duplicates } = proposal;
        let outcome = self.publish_committed(publication, &params);
        if let Some(key) = self.channel.key {
            if outcome.is_ok() {
                self.channels.table.record_use(key, self.context.now, creator, true);
            }
            self.channels.review(self.context, key);
        }
        for duplicate in duplicates {
            self.context.answer_publication(self.channel.name, duplicate, outcome.clone());
        }
        self.context.answer_publication(self.channel.name, reply_to, outcome);
    }

    fn publish_committed(&mut self, publication: Publication, params: &ProposalParams) -> Result<Position, Refused> {
        let options = self.context.namespace(self.channel.namespace);
        debug_assert!(options.room.is_none() || options.has_stream(), "the configuration gives rooms a stream");
        let is_kept = is_kept(&params.how, options);
        let (publication, position, patch) = if publication.offset > 0 {
            let offset = publication.offset;
            let Some((publication, epoch, patch)) = self.append_committed(publication, params) else {
                // A page contained it, so all subscribers have received it.
                let owned = self.channel.key.and_then(|key| self.channels.table.get(key));
                let position = (offset, owned.map_or_else(Box::default, OwnedChannel::epoch));
                self.remember_key(params, &position)?;
                return Ok(position);
            };
            (publication, (offset, epoch), patch)
        } else if is_kept {
            self.append_next(publication, params)?
        } else {
            (Arc::new(publication), (0, Box::default()), None)
        };
        let is_broadcast = position.0 == 0 && self.context.is_shared(self.channel.namespace);
        let message = is_broadcast.then(|| BroadcastMessage::Publication(Arc::clone(&publication)));
        self.deliver_publication(publication, params, patch)?;
        if let Some(message) = message {
            self.context.broadcast(self.channel.name, message);
        }
        self.remember_key(params, &position)?;
        Ok(position)
    }

    /// Appends a publication to the stream, with the next offset.
    fn append_next(
        &mut self,
        mut publication: Publication,
        params: &ProposalParams,
    ) -> Result<(Arc<Publication>, Position, Patch), Refused> {
        // First, so that a publication that is refused creates no channel.
        self.channels.histories.make_space(self.context, &mut self.channels.table, &self.channel, &publication)?;
        let key = self.channels.ensure(self.context, &mut self.channel)?;
        let owned = &mut self.channels.table[key];
        let stream = self.channels.histories.open_stream(self.context, owned);
        publication.offset = stream.next_offset();
        let position = (publication.offset, stream.epoch().into());
        if stream.is_new() {
            publication.epoch = stream.epoch().into();
        }
        let publication = Arc::new(publication);
        let size = self.context.namespace(self.channel.namespace).history_size;
        let patch = self.channels.histories.append(self.context, owned, &publication, params, size);
        Ok((publication, position, patch))
    }

    /// Appends a publication with the offset that its log assigned. Returns it with its epoch and patch, or `None` if
    /// the stream already has it.
    fn append_committed(
        &mut self,
        publication: Publication,
        params: &ProposalParams,
    ) -> Option<(Arc<Publication>, Box<str>, Patch)> {
        let key = self.channel.key?;
        let owned = self.channels.table.get_mut(key)?;
        let Some(stream) = &owned.stream else {
            // Proposed before an interruption, and committed while the channel opens again. The page may be older.
            let publication = Arc::new(publication);
            if let Some(log) = owned.log.as_deref_mut() {
                let (how, tail_max) = (&params.how, self.context.options.log.tail_publications_max);
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
        let fits = self
            .channels
            .histories
            .make_space(self.context, &mut self.channels.table, &self.channel, &publication)
            .is_ok();
        let tail_max = if is_loading { usize::MAX } else { self.context.options.log.tail_publications_max };
        let size = self.context.namespace(self.channel.namespace).history_size.min(tail_max);
        let publication = Arc::new(publication);
        let size = if fits { size } else { 0 };
        let patch =
            self.channels.histories.append(self.context, &mut self.channels.table[key], &publication, params, size);
        Some((publication, epoch, patch))
    }

    /// Sends a publication to the listening shards.
    pub(super) fn deliver_publication(
        &mut self,
        publication: Arc<Publication>,
        params: &ProposalParams,
        patch: Patch,
    ) -> Result<(), Refused> {
        let now_us = self.context.now.mono_us;
        let counters = self.context.count(self.channel.namespace);
        counters.publications += 1;
        if params.is_followed {
            counters.publish_to_commit.observe(now_us.saturating_sub(params.accepted_us));
        }
        let options = self.context.namespace(self.channel.namespace);
        let conflation_key = options.conflation_key_of(&publication.tags).map(Box::from);
        if options.cache_keys_max > 0 {
            let key = self.channels.ensure(self.context, &mut self.channel)?;
            let owned = &mut self.channels.table[key];
            self.channels.histories.keep_newest(self.context, owned, conflation_key.as_deref(), &publication);
        } else if let Some(owned) = self.channel.key.and_then(|key| self.channels.table.get_mut(key)) {
            // Keys may remain from before a change of the options.
            self.channels.histories.forget_keys(owned);
        }
        let Some(owned) = self.channel.key.and_then(|key| self.channels.table.get(key)) else { return Ok(()) };
        let body = DeliveryBody::Publication { publication, conflation_key, audience: params.audience.clone() };
        let delivery = Delivery::new(Arc::clone(&owned.name), self.channel.namespace, body, params.accepted_us);
        let delivery = delivery.followed(params.is_followed);
        send_out(self.context, owned, delivery.with_patch(patch), Audience::Publications);
        Ok(())
    }

    fn remember_key(&mut self, params: &ProposalParams, position: &Position) -> Result<(), Refused> {
        let Some(key) = &params.how.idempotency_key else { return Ok(()) };
        let (seed, results_max) = (self.context.node_seed, self.context.options.channel.idempotent_results_max);
        let owned = self.channels.ensure(self.context, &mut self.channel)?;
        let owned = &mut self.channels.table[owned];
        let results = owned.results.get_or_insert_with(|| Box::new(Results::new(seed)));
        results.remember(self.context.now.mono_us, key, position.clone(), results_max);
        owned.schedule(&mut self.context.timers);
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
