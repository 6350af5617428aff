//! Restores the newest publication of each key from a channel's log, when the channel's first subscription on this node
//! needs them. The log is read page by page, from its oldest publication to the newest one at the begin; later ones
//! arrive meanwhile. Subscriptions wait until all are known, so that no answer lacks a key.

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, Publication};

use crate::{
    Effect,
    channel::OwnedChannel,
    key_cache::{KeyCache, KeyedPublication, RestoreProgress},
    log::{LoadNumber, LoadQuery, LogError, LogPage},
    log_in_flight::{ParkedCost, ParkedRequest},
    message::SubscriptionRequest,
    names::{NamespaceIndex, namespace_options},
    options::NamespaceOptions,
    planted::Bug,
};

use super::{Context, Owner};

impl Owner {
    /// Whether a subscription can be answered with the newest publication of each key, or needs none. If the whole log
    /// is in memory, the keys are restored at once.
    pub(in crate::shard::owner) fn has_keys_to_answer(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
    ) -> bool {
        if !self.lacks_keys(context, name) {
            return true;
        }
        let options = Arc::clone(&context.options);
        let options = namespace_options(&options, namespace);
        let Some(channel) = self.channels.named_mut(name) else { return true };
        let (Some(log), Some(stream)) = (&channel.log, &channel.stream) else { return false };
        let cache = channel.key_cache.get_or_insert_with(|| Box::new(KeyCache::new(context.node_seed, false)));
        if log.floor < stream.floor() || cache.restoring_load().is_some() {
            return false;
        }
        let kept: Vec<_> = stream.publications().cloned().collect();
        let load = LoadNumber(self.log_traffic.next_number());
        cache.begin_restore(context.node_seed, load, log.floor, stream.top());
        for publication in &kept {
            self.add_older_key(context, name, options, publication);
        }
        self.end_restore(context, name, namespace);
        true
    }

    /// Whether the channel may have keys that are not in its cache.
    pub(in crate::shard::owner) fn lacks_keys(&self, context: &Context, name: &str) -> bool {
        let Some(channel) = self.channels.named(name) else { return false };
        context.namespace(channel.namespace).cache_keys_max > 0
            && context.may_lack_keys(channel.namespace)
            && channel.key_cache.as_ref().is_none_or(|cache| !cache.is_whole())
    }

    /// Parks a subscription until the keys are restored from the log. The log is open.
    pub(in crate::shard::owner) fn park_for_keys(
        &mut self,
        context: &Context,
        name: &Arc<str>,
        request: Box<SubscriptionRequest>,
    ) -> Result<(), ErrorCode> {
        let number = LoadNumber(self.log_traffic.next_number());
        let channel = self.channels.named_mut(name).ok_or(ErrorCode::Internal)?;
        let (Some(log), Some(stream), Some(cache)) = (&mut channel.log, &channel.stream, &mut channel.key_cache) else {
            return Err(ErrorCode::Internal);
        };
        let under_way = cache.restoring_load();
        self.log_traffic.parked.add(ParkedCost::of_subscription(&request));
        log.park(under_way.unwrap_or(number), ParkedRequest::Subscribe(request));
        if under_way.is_none() {
            cache.begin_restore(context.node_seed, number, log.floor, stream.top());
            let (namespace, after) = (channel.namespace, log.floor);
            self.load_keys(context, name, namespace, number, after);
        }
        Ok(())
    }

    /// Requests the next page of the log.
    fn load_keys(
        &mut self,
        context: &Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        load: LoadNumber,
        after: u64,
    ) {
        let publications_max = context.options.log.tail_publications_max.max(1);
        let query = LoadQuery::after(after, publications_max);
        let terms = context.namespace(namespace).log_terms();
        self.log_traffic.requests.push(Effect::Load { channel: Arc::clone(name), load, query, terms });
    }

    /// A page for the keys of a channel has arrived, or could not be read.
    pub(in crate::shard::owner) fn keys_loaded(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        load: LoadNumber,
        outcome: Result<LogPage, LogError>,
    ) {
        let options = Arc::clone(&context.options);
        let options = namespace_options(&options, namespace);
        let outcome = outcome.and_then(|page| {
            self.change_keys(name, |cache| {
                cache.begin_page(page.floor);
                0
            });
            for record in &page.records {
                self.add_older_key(context, name, options, &record.publication);
            }
            let cache = self.channels.named_mut(name).and_then(|channel| channel.key_cache.as_deref_mut());
            match cache.map_or(RestoreProgress::Complete, |cache| cache.restored_through(page.through)) {
                RestoreProgress::Complete => Ok(None),
                RestoreProgress::More(_) if context.planted.is(Bug::KeysOfFirstPage) => Ok(None),
                RestoreProgress::More(after) => Ok(Some(after)),
                RestoreProgress::Stuck => Err(LogError::Unavailable),
            }
        });
        match outcome {
            Ok(Some(after)) => self.load_keys(context, name, namespace, load, after),
            Ok(None) => {
                self.end_restore(context, name, namespace);
                for request in self.end_load(name, load) {
                    self.serve_again(context, name, request);
                }
            }
            Err(error) => {
                self.abandon_restore(name);
                context.clear_refusal_reason();
                for request in self.end_load(name, load) {
                    context.note_refusal_reason(error.why());
                    self.refuse(context, name, request, error.code());
                }
                context.clear_refusal_reason();
            }
        }
        self.review(context, name);
        self.schedule_channel(context, name);
    }

    fn add_older_key(
        &mut self,
        context: &mut Context,
        name: &str,
        options: &NamespaceOptions,
        publication: &Arc<Publication>,
    ) {
        let Some(channel) = self.channels.named(name) else { return };
        let namespace = channel.namespace;
        let limits = self.key_limits(context, options, channel.cached_bytes());
        let old = KeyedPublication {
            key: options.conflation_key_of(&publication.tags),
            publication,
            is_removal: options.is_removal(&publication.tags),
        };
        let until_us = context.now.after_ms(options.cache_keys_ttl_ms);
        let evicted = self.change_keys(name, |cache| cache.put_older(publication.offset, old, until_us, limits));
        context.count(namespace).keys_evicted += evicted;
    }

    fn end_restore(&mut self, context: &mut Context, name: &str, namespace: NamespaceIndex) {
        let options = Arc::clone(&context.options);
        let options = namespace_options(&options, namespace);
        let bytes = self.channels.named(name).map_or(0, OwnedChannel::cached_bytes);
        let limits = self.key_limits(context, options, bytes);
        let evicted = self.change_keys(name, |cache| cache.end_restore(limits));
        let counters = context.count(namespace);
        counters.keys_evicted += evicted;
        counters.keys_restored += 1;
    }

    fn abandon_restore(&mut self, name: &str) {
        self.change_keys(name, |cache| {
            cache.abandon_restore();
            0
        });
    }

    /// Changes a key cache, and counts its bytes.
    pub(super) fn change_keys(&mut self, name: &str, change: impl FnOnce(&mut KeyCache) -> u64) -> u64 {
        let Some(cache) = self.channels.named_mut(name).and_then(|channel| channel.key_cache.as_deref_mut()) else {
            return 0;
        };
        let before = cache.bytes();
        let evicted = change(cache);
        self.cached_bytes = self.cached_bytes - before + cache.bytes();
        evicted
    }
}

impl Context {
    /// Whether a channel of the namespace may have older keys than those in memory.
    pub(in crate::shard::owner) fn may_lack_keys(&self, namespace: NamespaceIndex) -> bool {
        self.is_logged(namespace) || self.has_keys_on_peers(namespace)
    }
}
