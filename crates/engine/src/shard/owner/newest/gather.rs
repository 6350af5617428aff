//! Asks other nodes for the newest publication of each key of a shared channel that has no log, when a subscription
//! needs them. The node follows the channel already, so what the others receive later arrives here as well. Subscriptions
//! wait until all nodes have answered, or for as long as a survey takes; then they are answered with what is known.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use dunlin_protocol::ErrorCode;

use crate::{
    Effect,
    channel::{Following, OwnedChannel},
    event::{PeerKey, PeerKeys},
    key_cache::{FoundKey, KeyCache, KeyTimes},
    log_in_flight::ParkedCost,
    message::SubscriptionRequest,
    names::{NamespaceIndex, namespace_options},
    options::NamespaceOptions,
    planted::Bug,
};

use super::{Context, Owner};

/// Maximum number of a shard's queries in flight. Others wait; the subscriptions that need them are bounded.
const QUERIES_MAX: usize = 64;

/// After an incomplete answer, the time until other nodes are asked again.
const RETRY_MS: u64 = 1_000;

/// The channels whose keys are asked of other nodes.
#[derive(Debug, Default)]
pub(in crate::shard::owner) struct KeyQueries {
    in_flight: BTreeSet<Arc<str>>,
    waiting: VecDeque<Arc<str>>,
}

impl KeyQueries {
    /// The channel to query now, if there is space.
    fn next(&mut self) -> Option<Arc<str>> {
        if self.in_flight.len() >= QUERIES_MAX {
            return None;
        }
        let channel = self.waiting.pop_front()?;
        self.in_flight.insert(Arc::clone(&channel));
        Some(channel)
    }
}

impl Owner {
    /// Whether other nodes may have keys that the channel lacks. Its messages on other nodes arrive already.
    pub(in crate::shard::owner) fn should_ask_for_keys(&self, context: &Context, name: &str) -> bool {
        let Some(channel) = self.channels.named(name) else { return false };
        let now_us = context.now.mono_us;
        context.namespace(channel.namespace).cache_keys_max > 0
            && context.has_keys_on_peers(channel.namespace)
            && channel.key_cache.as_ref().is_none_or(|cache| cache.should_ask_peers(now_us))
            && !context.planted.is(Bug::KeysNotGathered)
    }

    /// Parks a subscription until other nodes have sent their keys.
    pub(in crate::shard::owner) fn park_for_keys_of_peers(
        &mut self,
        request: Box<SubscriptionRequest>,
    ) -> Result<(), ErrorCode> {
        let channel = self.channels.named_mut(&request.channel).ok_or(ErrorCode::Internal)?;
        let name = Arc::clone(&channel.name);
        let is_asked = matches!(channel.following, Following::Gathering);
        channel.following = Following::Gathering;
        self.log_traffic.parked.add(ParkedCost::of_subscription(&request));
        self.awaiting_peers.entry(Arc::clone(&name)).or_default().push(request);
        if !is_asked {
            self.key_queries.waiting.push_back(name);
            self.query_next_keys();
        }
        Ok(())
    }

    fn query_next_keys(&mut self) {
        let query = self.key_queries.next().map(|channel| Effect::QueryKeys { channel });
        self.log_traffic.requests.extend(query);
    }

    /// Other nodes have sent their keys: accepts the subscriptions that waited for them.
    pub(in crate::shard) fn keys_answered(&mut self, context: &mut Context, name: &Arc<str>, found: PeerKeys) {
        if !self.key_queries.in_flight.remove(name) {
            context.counters.late_messages += 1;
            return;
        }
        self.query_next_keys();
        let Some(channel) = self.channels.named_mut(name) else {
            debug_assert!(false, "a channel stays while subscriptions to it wait");
            context.counters.late_messages += 1;
            return;
        };
        channel.following = Following::Confirmed;
        let (name, namespace) = (Arc::clone(&channel.name), channel.namespace);
        self.add_keys_of_peers(context, &name, namespace, found);
        for request in self.awaiting_peers.remove(&name).unwrap_or_default() {
            self.log_traffic.parked.remove(ParkedCost::of_subscription(&request));
            self.subscribe_when_ready(context, request);
        }
        self.review(context, &name);
        self.schedule_channel(context, &name);
    }

    fn add_keys_of_peers(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        PeerKeys { keys, is_partial }: PeerKeys,
    ) {
        let options = Arc::clone(&context.options);
        let options = namespace_options(&options, namespace);
        if options.cache_keys_max == 0 || self.key_cache(context, name, namespace).is_err() {
            return;
        }
        let limits = self.key_limits(context, options, self.channels.named(name).map_or(0, OwnedChannel::cached_bytes));
        let found = keys.into_iter().map(|key| found_key(key, options)).collect();
        let times = key_times(context, options);
        let evicted = self.change_keys(name, |cache| {
            cache.mark_whole();
            let evicted = cache.add_of_peers(found, times, limits);
            if is_partial {
                cache.retry_at(context.now.after_ms(RETRY_MS));
            }
            evicted
        });
        let counters = context.count(namespace);
        counters.keys_evicted += evicted;
        *(if is_partial { &mut counters.keys_missed } else { &mut counters.keys_gathered }) += 1;
        let channel = self.channels.named_mut(name);
        if channel.and_then(|channel| channel.key_cache.as_mut()).is_some_and(|cache| cache.take_answers()) {
            self.answers.forget(name);
        }
    }

    /// The newest publications of a channel's keys, for another node.
    pub(in crate::shard::owner) fn keys_for_peer(
        &self,
        context: &Context,
        name: &str,
    ) -> Result<Vec<PeerKey>, ErrorCode> {
        let namespace = context.resolve(name)?;
        let cache = self.channels.named(name).and_then(|channel| channel.key_cache.as_ref());
        let times = key_times(context, context.namespace(namespace));
        Ok(cache.map_or_else(Vec::new, |cache| cache.for_peer(times)))
    }

    /// Removes a channel's keys at the request of the application. Other nodes do not bring them back.
    pub(in crate::shard::owner) fn remove_keys(&mut self, context: &Context, name: &str) {
        let shared = self
            .channels
            .named(name)
            .filter(|channel| channel.key_cache.as_ref().is_some_and(|cache| cache.is_shared()) && channel.is_in_use());
        let followed_us = shared.map(|_| context.now.mono_us);
        self.forget_keys(name);
        if let (Some(followed_us), Some(channel)) = (followed_us, self.channels.named_mut(name)) {
            let mut cache = KeyCache::new_shared(context.node_seed, followed_us);
            cache.mark_whole();
            channel.key_cache = Some(Box::new(cache));
        }
    }
}

impl Context {
    /// Whether other nodes may have keys of the namespace's channels, and no log has them.
    pub(in crate::shard::owner) fn has_keys_on_peers(&self, namespace: NamespaceIndex) -> bool {
        self.is_shared(namespace) && !self.is_logged(namespace) && self.options.log.peer_queries_max > 0
    }
}

fn found_key(PeerKey { publication, age_us }: PeerKey, options: &NamespaceOptions) -> FoundKey {
    let key = options.conflation_key_of(&publication.tags).map(Arc::from);
    let is_removal = options.is_removal(&publication.tags);
    FoundKey { key, publication, age_us, is_removal }
}

fn key_times(context: &Context, options: &NamespaceOptions) -> KeyTimes {
    KeyTimes { now_us: context.now.mono_us, ttl_us: options.cache_keys_ttl_ms.saturating_mul(1_000) }
}
