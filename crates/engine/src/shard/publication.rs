//! A publication at its channel's owner: whether it is taken, its offset, its difference to the one before.

use std::sync::Arc;

use dunlin_protocol::{ClientInfo, EncodedPublications, ErrorCode, Payload, Publication, SubscribeResult, Tags};

use crate::{
    Effects, FrameClass, Now,
    answers::Span,
    backend::PublishHow,
    channel::Audience,
    counters::Suppression,
    frame::{Delivery, DeliveryBody},
    idempotency::Results,
    message::{SubscribeOrder, Subscribed},
    names::{NamespaceIndex, namespace_options},
    options::{DataFormat, NamespaceOptions},
    room::EventAudience,
};

use super::Shard;

/// A publication on its way into a channel.
pub(super) struct Draft {
    pub(super) data: Payload,
    pub(super) info: Option<Arc<ClientInfo>>,
    pub(super) how: PublishHow,
    /// For whom, if not for everybody.
    pub(super) audience: Option<Arc<EventAudience>>,
}

impl Draft {
    /// About what it takes in a frame, at the least.
    fn bytes(&self) -> usize {
        let tags: usize = self.how.tags.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.data.bytes().len() + tags
    }
}

/// Offset and epoch of a publication: 0 and empty without a stream.
pub(super) type Position = (u64, Box<str>);

impl Shard {
    /// Takes a publication: gives it its offset, remembers it, sends it out. Returns its offset and epoch. One that was
    /// published already, or is older than what the channel has, is answered and otherwise left alone.
    pub(super) fn accept(
        &mut self,
        now: Now,
        name: &Arc<str>,
        draft: &Draft,
        effects: &mut Effects,
    ) -> Result<Position, ErrorCode> {
        let namespace = self.names.resolve(name)?;
        if draft.bytes() > self.options.client.queue_bytes_max {
            // No session could be sent it.
            return Err(ErrorCode::BadRequest);
        }
        let options = Arc::clone(&self.options);
        let options = namespace_options(&options, namespace);
        if !fits(&draft.data, options.publication_data_format) {
            return Err(ErrorCode::BadRequest);
        }
        if let Some((position, why)) = self.suppressed(now, name, namespace, options, &draft.how)? {
            self.count(namespace).suppressed[why as usize] += 1;
            return Ok(position);
        }
        let position = self.publish_accepted(now, name, namespace, draft, effects)?;
        if let Some(key) = &draft.how.idempotency_key {
            self.remember_result(now, name, namespace, key, position.clone())?;
        }
        Ok(position)
    }

    /// The answer to a publication that is not to be published, and why not.
    fn suppressed(
        &mut self,
        now: Now,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        options: &NamespaceOptions,
        how: &PublishHow,
    ) -> Result<Option<(Position, Suppression)>, ErrorCode> {
        if let Some(key) = &how.idempotency_key {
            let results = self.channels.get_mut(name).and_then(|channel| channel.results.as_mut());
            if let Some(position) = results.and_then(|results| results.find(now.mono_us, key)) {
                return Ok(Some((position, Suppression::Idempotency)));
            }
        }
        if how.version > 0 && is_kept(how, options) {
            let stream = self.stream(now, name, namespace)?;
            if !stream.is_newer(how.version, &how.version_epoch) {
                return Ok(Some((stream.position(), Suppression::Version)));
            }
        }
        Ok(None)
    }

    fn publish_accepted(
        &mut self,
        now: Now,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        draft: &Draft,
        effects: &mut Effects,
    ) -> Result<Position, ErrorCode> {
        let options = Arc::clone(&self.options);
        let options = namespace_options(&options, namespace);
        let mut publication = Publication {
            data: draft.data.clone(),
            info: draft.info.clone(),
            offset: 0,
            tags: draft.how.tags.clone(),
            // Written only where it is known, and the memory broker of Centrifugo writes none either.
            time_ms: 0,
        };
        let (mut position, mut patch) = ((0, Box::default()), None);
        debug_assert!(options.room.is_none() || options.has_stream(), "the configuration gives rooms a stream");
        let publication = if is_kept(&draft.how, options) {
            let wants_patch = (draft.how.delta || options.delta_publish) && self.has_delta_subscribers(name);
            let mut deltas = std::mem::take(&mut self.deltas);
            let stream = self.stream(now, name, namespace)?;
            publication.offset = stream.next_offset();
            position = (publication.offset, stream.epoch().into());
            let publication = Arc::new(publication);
            // Seats are gone sooner than publications.
            let readers = draft.audience.as_ref().map(|audience| Arc::clone(&audience.users));
            stream.append(Arc::clone(&publication), readers);
            stream.note_version(draft.how.version, &draft.how.version_epoch);
            patch = wants_patch.then(|| stream.newest_patch(&mut deltas)).flatten();
            stream.forget_beyond(options.history_size);
            let had_answers = stream.take_answers();
            stream.data_until_us = now.after_ms(options.history_ttl_ms);
            stream.meta_until_us = now.after_ms(stream.remembered_ms(options));
            self.deltas = deltas;
            if had_answers {
                self.answers.forget(name);
            }
            self.count(namespace).patches += u64::from(patch.is_some());
            self.schedule_channel(name);
            publication
        } else {
            Arc::new(publication)
        };
        self.count(namespace).publications += 1;
        let conflation_key = options.conflation_key.as_deref().and_then(|key| tag_value(&draft.how.tags, key));
        let body = DeliveryBody::Publication { publication, conflation_key, audience: draft.audience.clone() };
        let delivery = Delivery::new(Arc::clone(name), namespace, body, now.mono_us).with_patch(patch);
        self.send_out(delivery, Audience::Publications, effects);
        Ok(position)
    }

    fn remember_result(
        &mut self,
        now: Now,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        key: &str,
        position: Position,
    ) -> Result<(), ErrorCode> {
        let (seed, results_max) = (self.node_seed, self.options.channel.idempotent_results_max);
        #[cfg(feature = "planted-bugs")]
        let results_max = if self.planted == Some(crate::planted::Bug::OneKeyRemembered) { 1 } else { results_max };
        let channel = self.owned(name, namespace)?;
        let results = channel.results.get_or_insert_with(|| Box::new(Results::new(seed)));
        results.remember(now.mono_us, key, position, results_max);
        self.schedule_channel(name);
        Ok(())
    }

    fn has_delta_subscribers(&self, name: &str) -> bool {
        let channel = self.channels.get(name);
        channel.is_some_and(|channel| channel.classes(Audience::Publications).any(|class| class.delta))
    }

    /// Encodes what a subscription has missed, or finds it encoded for another one. What passed a filter with gaps is its own,
    /// and is left to the session's shard, as is what cannot be encoded.
    pub(super) fn encode_missed(
        &mut self,
        namespace: NamespaceIndex,
        order: &SubscribeOrder,
        subscribed: &mut Subscribed,
    ) {
        if subscribed.publications.is_empty() {
            return;
        }
        let FrameClass { wire, delta, .. } = order.subscriber.class;
        let encoding = wire.encoding();
        let span = Span::of(&subscribed.publications, &subscribed.epoch, encoding, delta);
        subscribed.encoded = span.as_ref().and_then(|span| self.answers.find(&order.channel, span));
        #[cfg(feature = "planted-bugs")]
        if self.planted == Some(crate::planted::Bug::AnswerOfAnother) {
            subscribed.encoded = span.as_ref().and_then(|span| self.answers.find_similar(&order.channel, span));
        }
        if subscribed.encoded.is_some() {
            self.count(namespace).answers_shared += 1;
            return;
        }
        self.count(namespace).answers_encoded += 1;
        let Self { channels, deltas, answers, .. } = self;
        let stream = channels.get_mut(&order.channel).and_then(|channel| channel.stream.as_mut());
        let Some(stream) = stream else { return };
        if delta {
            subscribed.patches = stream.patches(&subscribed.publications, deltas);
        }
        let Some(span) = span else { return };
        let missed = SubscribeResult {
            publications: std::mem::take(&mut subscribed.publications),
            patches: std::mem::take(&mut subscribed.patches),
            delta,
            ..SubscribeResult::default()
        };
        if let Ok(encoded) = EncodedPublications::new(encoding, &missed) {
            let encoded = Arc::new(encoded);
            if answers.keep(&order.channel, span, &encoded) {
                stream.note_answer();
            }
            subscribed.encoded = Some(encoded);
        }
        SubscribeResult { publications: subscribed.publications, patches: subscribed.patches, .. } = missed;
    }
}

/// Whether the publication gets an offset. In a channel with a room, one without would be taken for what a player sees.
fn is_kept(how: &PublishHow, options: &NamespaceOptions) -> bool {
    options.has_stream() && (!how.skip_history || options.room.is_some())
}

/// Whether `data` is what publications have to be.
fn fits(data: &Payload, format: DataFormat) -> bool {
    match format {
        DataFormat::Any => !data.bytes().is_empty(),
        DataFormat::Json => data.is_json(),
        DataFormat::JsonObject => data.is_json() && data.bytes().trim_ascii_start().starts_with(b"{"),
        DataFormat::Binary => true,
    }
}

fn tag_value(tags: &Tags, key: &str) -> Option<Box<str>> {
    tags.iter().find(|(name, _)| **name == *key).map(|(_, value)| value.clone())
}
