//! Sends new subscribers the newest publication of each key. Those that are older than the channel in memory are
//! restored from the log ([`restore`]), or from other nodes if there is none ([`gather`]).

mod gather;
mod restore;

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, Publication};

use crate::{
    answers::Span,
    history_stream::Stream,
    key_cache::{KeyCache, KeyCacheLimits, KeyedPublication, REMOVAL_KEPT_MS},
    message::{Subscribed, SubscriptionRequest},
    names::NamespaceIndex,
    options::NamespaceOptions,
    planted::Bug,
};

use super::{Context, Owner};

pub(super) use gather::KeyQueries;

/// The source of the publications in an answer to a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerSource {
    /// The missed publications of the stream.
    Stream,
    /// The newest publication of each key; with the cache's state if no filter dropped any.
    Keys { state: Option<u64> },
}

impl AnswerSource {
    /// The cache key under which other sessions can reuse the answer, if they can.
    pub(super) fn span(
        self,
        stream: Option<&Stream>,
        request: &SubscriptionRequest,
        subscribed: &Subscribed,
    ) -> Option<Span> {
        let class = request.subscriber.class;
        let (encoding, delta) = (class.wire.encoding(), class.delta);
        let publications = &subscribed.publications;
        match self {
            Self::Stream => {
                stream.filter(|stream| stream.is_whole(publications))?;
                Span::of(publications, &subscribed.epoch, encoding, delta)
            }
            Self::Keys { state } => state.map(|state| Span::of_keys(state, encoding, delta)),
        }
    }
}

impl Owner {
    /// Stores a publication as the newest of its key, if the namespace has a key cache.
    pub(super) fn keep_newest(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        options: &NamespaceOptions,
        (key, publication): (Option<&str>, &Arc<Publication>),
    ) -> Result<(), ErrorCode> {
        if options.cache_keys_max == 0 {
            // Keys may remain from before a change of the options.
            self.forget_keys(name);
            return Ok(());
        }
        let cache = self.key_cache(context, name, namespace)?;
        let (bytes_before, is_shared) = (cache.bytes(), cache.is_shared());
        let limits = self.key_limits(context, options, bytes_before);
        let is_removal = options.is_removal(&publication.tags);
        let new = KeyedPublication { key, publication, is_removal };
        let kept_ms = if is_removal && is_shared { REMOVAL_KEPT_MS } else { options.cache_keys_ttl_ms };
        let until_us = context.now.after_ms(kept_ms);
        let Some(cache) = self.channels.named_mut(name).and_then(|channel| channel.key_cache.as_mut()) else {
            return Ok(());
        };
        let evicted = cache.put(new, until_us, limits);
        let (bytes, had_answers) = (cache.bytes(), cache.take_answers());
        self.cached_bytes = self.cached_bytes - bytes_before + bytes;
        context.count(namespace).keys_evicted += evicted;
        if had_answers {
            self.answers.forget(name);
        }
        self.drop_empty_keys(context, name);
        self.schedule_channel(context, name);
        Ok(())
    }

    /// A channel's key cache, created on first use.
    fn key_cache(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
    ) -> Result<&mut KeyCache, ErrorCode> {
        let (seed, now_us) = (context.node_seed, context.now.mono_us);
        let (is_on_peers, is_whole) = (context.has_keys_on_peers(namespace), !context.may_lack_keys(namespace));
        let channel = self.owned(context, name, namespace)?;
        let followed_us = if channel.following.is_confirmed() { now_us } else { u64::MAX };
        let cache = channel.key_cache.get_or_insert_with(|| {
            let shared = || KeyCache::new_shared(seed, followed_us);
            Box::new(if is_on_peers { shared() } else { KeyCache::new(seed, is_whole) })
        });
        Ok(cache)
    }

    /// The limits of a channel's key cache, which has this many bytes now.
    fn key_limits(&self, context: &Context, options: &NamespaceOptions, bytes: usize) -> KeyCacheLimits {
        let client = &context.options.client;
        // The answer must fit into a session's queue, with space for the escapes of patches.
        let answer_bytes_max = client.queue_bytes_max / 2;
        let share = context.options.channel.cache_bytes_max.div_ceil(usize::from(context.identity.count));
        let of_others = self.cached_bytes - bytes;
        KeyCacheLimits {
            keys_max: options.cache_keys_max.min(client.queue_frames_max / 2),
            bytes_max: answer_bytes_max.min(share.saturating_sub(of_others)),
        }
    }

    /// Drops a key cache without keys, unless it would have to be restored for the next subscription.
    fn drop_empty_keys(&mut self, context: &Context, name: &str) {
        let Some(channel) = self.channels.named_mut(name) else { return };
        let is_needed = context.may_lack_keys(channel.namespace) && channel.is_in_use();
        channel.key_cache.take_if(|cache| cache.is_empty() && !is_needed);
    }

    /// Adds the newest publication of each key to the answer to a subscription without recovery. Later publications are
    /// queued after the answer, so none is missing.
    pub(super) fn add_newest(
        &self,
        context: &Context,
        request: &SubscriptionRequest,
        subscribed: &mut Subscribed,
    ) -> AnswerSource {
        let channel = self.channels.named(&request.channel).filter(|_| !subscribed.recovered);
        let channel = channel.filter(|channel| context.namespace(channel.namespace).cache_keys_max > 0);
        let Some((channel, cache)) =
            channel.and_then(|channel| channel.key_cache.as_ref().map(|cache| (channel, cache)))
        else {
            return AnswerSource::Stream;
        };
        debug_assert!(cache.is_whole() || cache.is_shared(), "a subscription waits until the keys are restored");
        subscribed.publications = cache.publications(request.filter.as_deref());
        if context.planted.is(Bug::KeyMissing) && !subscribed.publications.is_empty() {
            subscribed.publications.remove(0);
        }
        let top = channel.stream.as_ref().map_or(0, |stream| stream.top());
        subscribed.has_newest = top > 0 && subscribed.publications.last().is_some_and(|newest| newest.offset == top);
        AnswerSource::Keys { state: request.filter.is_none().then(|| cache.state()) }
    }

    /// Removes expired publications from a channel's key cache.
    pub(super) fn forget_old_keys(&mut self, context: &Context, name: &str) {
        let Some(channel) = self.channels.named_mut(name) else { return };
        let Some(cache) = &mut channel.key_cache else { return };
        let before = cache.bytes();
        let had_answers = cache.forget_old(context.now.mono_us) && cache.take_answers();
        self.cached_bytes -= before - cache.bytes();
        self.drop_empty_keys(context, name);
        if had_answers {
            self.answers.forget(name);
        }
    }

    /// Clears the key cache of a channel whose log is closed, because it does not receive other nodes' newer
    /// publications.
    pub(super) fn forget_keys_not_followed(&mut self, context: &Context, name: &str) {
        let is_stale = self.channels.named(name).is_some_and(|channel| {
            let namespace = channel.namespace;
            let has_keys = channel.key_cache.is_some() && channel.log.is_none();
            has_keys && context.is_shared(namespace) && context.is_logged(namespace)
        });
        if is_stale {
            self.forget_keys(name);
        }
        self.drop_empty_keys(context, name);
    }

    /// Clears a channel's key cache.
    pub(super) fn forget_keys(&mut self, name: &str) {
        let cache = self.channels.named_mut(name).and_then(|channel| channel.key_cache.take());
        if let Some(mut cache) = cache {
            self.cached_bytes -= cache.bytes();
            if cache.take_answers() {
                self.answers.forget(name);
            }
        }
    }
}
