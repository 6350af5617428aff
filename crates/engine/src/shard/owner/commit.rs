//! Commits a publication: adds it to the stream, delivers it and answers the publisher. This happens at once for a log
//! in memory, otherwise when the log has committed the publication. No other code does any of this.

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, Publication};

use crate::{
    broadcast::BroadcastMessage,
    channel::{Audience, OwnedChannel},
    frame::{Delivery, DeliveryBody},
    idempotency::Results,
    log_in_flight::{Proposal, ProposalParams},
    message::Notice,
    planted::Bug,
};

use super::{Context, NamedChannel, Owner, histories::Patch};

use super::propose::{Position, is_kept};

impl Owner {
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
    ) -> Result<Position, ErrorCode> {
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
        if !params.is_delivered {
            let is_broadcast = position.0 == 0 && context.is_shared(channel.namespace);
            let message = is_broadcast.then(|| BroadcastMessage::Publication(Arc::clone(&publication)));
            self.deliver_publication(context, channel, publication, params, patch)?;
            if let Some(message) = message {
                context.broadcast(channel.name, message);
            }
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
    ) -> Result<(Arc<Publication>, Position, Patch), ErrorCode> {
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
    ) -> Result<(), ErrorCode> {
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
    ) -> Result<(), ErrorCode> {
        let Some(key) = &params.how.idempotency_key else { return Ok(()) };
        let (seed, results_max) = (context.node_seed, context.options.channel.idempotent_results_max);
        let results_max = if context.planted.is(Bug::OneKeyRemembered) { 1 } else { results_max };
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
