//! Commits a publication: adds it to the stream, delivers it and answers the publisher. This happens at once for a log
//! in memory, otherwise when the log has committed the publication. No other code does any of this.

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, Publication};

use crate::{
    broadcast::BroadcastMessage,
    channel::Audience,
    frame::{Delivery, DeliveryBody},
    idempotency::Results,
    log_in_flight::{Proposal, ProposalParams},
    names::{NamespaceIndex, namespace_options},
    options::NamespaceOptions,
    planted::Bug,
};

use super::{Context, Owner};

use super::propose::{Position, is_kept};

/// A patch against the previous publication.
type Patch = Option<Arc<[u8]>>;

impl Owner {
    /// Commits a publication. It has an offset if a log assigned one.
    pub(super) fn commit(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        proposal: Proposal,
    ) {
        let Proposal { publication, params, creator, reply_to, duplicates } = proposal;
        let outcome = self.publish_committed(context, name, namespace, publication, &params);
        if outcome.is_ok() {
            self.record_use(context.now, name, creator, true);
        }
        self.review(context, name);
        for duplicate in duplicates {
            context.answer_publication(name, duplicate, outcome.clone());
        }
        context.answer_publication(name, reply_to, outcome);
    }

    fn publish_committed(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        publication: Publication,
        params: &ProposalParams,
    ) -> Result<Position, ErrorCode> {
        let options = Arc::clone(&context.options);
        let options = namespace_options(&options, namespace);
        debug_assert!(options.room.is_none() || options.has_stream(), "the configuration gives rooms a stream");
        let (publication, position, patch) = if publication.offset > 0 {
            let offset = publication.offset;
            let Some((publication, epoch, patch)) = self.append_committed(context, name, options, publication, params)
            else {
                // A page contained it, so all subscribers have received it.
                let position = (offset, self.epoch_of(name));
                self.remember_key(context, name, namespace, params, &position)?;
                return Ok(position);
            };
            (publication, (offset, epoch), patch)
        } else if is_kept(&params.how, options) {
            self.append_next(context, name, namespace, options, publication, params)?
        } else {
            (Arc::new(publication), (0, Box::default()), None)
        };
        if !params.is_delivered {
            let is_broadcast = position.0 == 0 && context.is_shared(namespace);
            let message = is_broadcast.then(|| BroadcastMessage::Publication(Arc::clone(&publication)));
            self.deliver_publication(context, name, namespace, publication, params, patch)?;
            if let Some(message) = message {
                context.broadcast(name, message);
            }
        }
        self.remember_key(context, name, namespace, params, &position)?;
        Ok(position)
    }

    /// Appends a publication to the stream, with the next offset.
    fn append_next(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        options: &NamespaceOptions,
        mut publication: Publication,
        params: &ProposalParams,
    ) -> Result<(Arc<Publication>, Position, Patch), ErrorCode> {
        self.make_history_room(context, name, namespace, &publication)?;
        let stream = self.stream(context, name, namespace)?;
        publication.offset = stream.next_offset();
        let position = (publication.offset, stream.epoch().into());
        if stream.is_new() {
            publication.epoch = stream.epoch().into();
        }
        let publication = Arc::new(publication);
        let patch = self.append(context, name, options, &publication, params, options.history_size);
        Ok((publication, position, patch))
    }

    /// Appends a publication with the offset that its log assigned. Returns it with its epoch and patch, or `None` if
    /// the stream already has it.
    fn append_committed(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        options: &NamespaceOptions,
        publication: Publication,
        params: &ProposalParams,
    ) -> Option<(Arc<Publication>, Box<str>, Patch)> {
        let channel = self.channels.named_mut(name)?;
        let namespace = channel.namespace;
        let Some(stream) = &channel.stream else {
            // Proposed before an interruption, and committed while the channel opens again. The page may be older.
            let publication = Arc::new(publication);
            if let Some(log) = channel.log.as_deref_mut() {
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
        let is_loading = channel.log.as_ref().is_some_and(|log| log.is_loading());
        // Publications that do not fit into memory are still in the log.
        let fits = self.make_history_room(context, name, namespace, &publication).is_ok();
        let tail_max = if is_loading { usize::MAX } else { context.options.log.tail_publications_max };
        let size = options.history_size.min(tail_max);
        let publication = Arc::new(publication);
        let patch = self.append(context, name, options, &publication, params, if fits { size } else { 0 });
        Some((publication, epoch, patch))
    }

    /// Appends a publication to the stream, which keeps the newest `size`.
    fn append(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        options: &NamespaceOptions,
        publication: &Arc<Publication>,
        params: &ProposalParams,
        size: usize,
    ) -> Patch {
        let wants_patch = (params.how.delta || options.delta_publish) && self.has_delta_subscribers(name);
        let Self { channels, deltas, answers, .. } = self;
        let channel = channels.named_mut(name)?;
        let namespace = channel.namespace;
        let stream = channel.stream.as_mut()?;
        // Seats are released before publications expire, so the users are stored.
        let readers = params.audience.as_ref().map(|audience| Arc::clone(&audience.users));
        stream.append(Arc::clone(publication), readers);
        stream.set_version(params.how.version, &params.how.version_epoch);
        let patch = wants_patch.then(|| stream.newest_patch(deltas)).flatten();
        stream.forget_beyond(size);
        stream.data_until_us = context.now.after_ms(options.history_ttl_ms);
        stream.meta_until_us = context.now.after_ms(options.remembered_ms());
        if stream.take_answers() {
            answers.forget(name);
        }
        context.count(namespace).patches += u64::from(patch.is_some());
        self.schedule_channel(context, name);
        patch
    }

    /// Sends a publication to the listening shards.
    #[allow(clippy::too_many_arguments, reason = "what a delivery is made of")]
    pub(super) fn deliver_publication(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        publication: Arc<Publication>,
        params: &ProposalParams,
        patch: Patch,
    ) -> Result<(), ErrorCode> {
        let options = Arc::clone(&context.options);
        let options = namespace_options(&options, namespace);
        context.count(namespace).publications += 1;
        let conflation_key = options.conflation_key_of(&publication.tags).map(Box::from);
        self.keep_newest(context, name, namespace, options, (conflation_key.as_deref(), &publication))?;
        let body = DeliveryBody::Publication { publication, conflation_key, audience: params.audience.clone() };
        let delivery = Delivery::new(Arc::clone(name), namespace, body, params.accepted_us).with_patch(patch);
        self.send_out(context, delivery, Audience::Publications);
        Ok(())
    }

    fn remember_key(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        params: &ProposalParams,
        position: &Position,
    ) -> Result<(), ErrorCode> {
        let Some(key) = &params.how.idempotency_key else { return Ok(()) };
        let (seed, results_max) = (context.node_seed, context.options.channel.idempotent_results_max);
        let results_max = if context.planted.is(Bug::OneKeyRemembered) { 1 } else { results_max };
        let channel = self.owned(context, name, namespace)?;
        let results = channel.results.get_or_insert_with(|| Box::new(Results::new(seed)));
        results.remember(context.now.mono_us, key, position.clone(), results_max);
        self.schedule_channel(context, name);
        Ok(())
    }

    fn has_delta_subscribers(&self, name: &str) -> bool {
        let channel = self.channels.named(name);
        channel.is_some_and(|channel| channel.classes(Audience::Publications).any(|class| class.delta))
    }

    pub(super) fn epoch_of(&self, name: &str) -> Box<str> {
        let stream = self.channels.named(name).and_then(|channel| channel.stream.as_ref());
        stream.map_or_else(Box::default, |stream| stream.epoch().into())
    }
}
