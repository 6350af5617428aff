//! Answers recoveries, encoded once for all sessions that recover the same publications.

use std::sync::Arc;

use dunlin_protocol::{EncodedPublications, SubscribeResult};

use crate::{
    FrameClass,
    history_stream::Stream,
    message::{Subscribed, SubscriptionRequest},
    names::NamespaceIndex,
    planted::Bug,
    shard::{Context, Owner, owner::newest::AnswerSource},
};

impl Owner {
    /// Encodes a subscription's missed publications, or reuses a cached encoding. The session's shard encodes those
    /// with gaps left by a filter, and those that cannot be encoded here. `page` is the stream they were computed from,
    /// if it is not the one in memory.
    pub(super) fn encode_missed(
        &mut self,
        context: &mut Context,
        namespace: NamespaceIndex,
        request: &SubscriptionRequest,
        subscribed: &mut Subscribed,
        source: AnswerSource,
        page: Option<&mut Stream>,
    ) {
        if subscribed.publications.is_empty() {
            return;
        }
        let FrameClass { wire, delta, .. } = request.subscriber.class;
        let encoding = wire.encoding();
        let of_channel = self.channels.named(&request.channel).and_then(|channel| channel.stream.as_deref());
        let span = source.span(page.as_deref().or(of_channel), request, subscribed);
        subscribed.encoded = span.as_ref().and_then(|span| self.answers.find(&request.channel, span));
        if context.planted.is(Bug::AnswerOfAnother) {
            subscribed.encoded = span.as_ref().and_then(|span| self.answers.find_similar(&request.channel, span));
        }
        if subscribed.encoded.is_some() {
            context.count(namespace).answers_shared += 1;
            return;
        }
        context.count(namespace).answers_encoded += 1;
        let Self { channels, deltas, answers, .. } = self;
        let Some(channel) = channels.named_mut(&request.channel) else { return };
        let stream = page.or(channel.stream.as_deref_mut()).filter(|_| source == AnswerSource::Stream);
        if let Some(stream) = stream.filter(|_| delta) {
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
            if answers.keep(&request.channel, span, &encoded) {
                match (source, &mut channel.stream, &mut channel.key_cache) {
                    (AnswerSource::Stream, Some(stream), _) => stream.mark_answer_kept(),
                    (AnswerSource::Keys { .. }, _, Some(cache)) => cache.mark_answer_kept(),
                    _ => {}
                }
            }
            subscribed.encoded = Some(encoded);
        }
        SubscribeResult { publications: subscribed.publications, patches: subscribed.patches, .. } = missed;
    }
}
