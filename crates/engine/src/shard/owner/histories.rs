//! What the channels of a shard keep of their publications: streams, the newest publication of each key, and encoded
//! answers. Each shard has an equal share of the node's limits on their bytes.

use std::sync::Arc;

use dunlin_protocol::{DeltaEncoder, EncodedPublications, ErrorCode, Publication, SubscribeResult};

use crate::{
    FrameClass,
    answers::{Answers, Span},
    channel::{Audience, OwnedChannel},
    conflation_keys::{
        FoundKey, KeyCache, KeyCacheLimits, KeyTimes, KeyedPublication, REMOVAL_KEPT_MS, RestoreProgress,
    },
    epochs::Epochs,
    event::{PeerKey, PeerKeys},
    history_bytes::KeptBytes,
    history_stream::{Stream, kept_bytes},
    log::{LoadNumber, LogPage},
    log_in_flight::ProposalParams,
    message::{Subscribed, SubscriptionRequest},
    names::namespace_options,
    options::{HistoryOverflow, NamespaceOptions},
    refused::Refused,
};

use super::{Context, channel_table::ChannelTable, channels::NamedChannel};

/// A patch against the previous publication.
pub(super) type Patch = Option<Arc<[u8]>>;

/// After an incomplete answer, the time until other nodes are asked again for their keys.
const KEYS_RETRY_MS: u64 = 1_000;

const CHANNEL_FULL: &str =
    "the publication is beyond history_memory_limit of the namespace; raise it, or set history_overflow to evict";
const NODE_FULL: &str = "the histories of the node are at channel.history_memory_limit; raise it, keep less history, or set history_overflow to evict";

/// The streams, key caches and answers of a shard. The channels own their streams and key caches; this has what all of
/// them share. Each change of one goes through here, so that the totals are right.
pub(super) struct Histories {
    epochs: Epochs,
    kept_bytes: KeptBytes,
    /// Bytes of the newest publications of keys.
    key_bytes: usize,
    /// Cache of answers to recoveries.
    answers: Answers,
    /// Computes patches of publications.
    deltas: DeltaEncoder,
}

impl Histories {
    /// `secret` differs at each start; see [`Epochs::new`].
    pub(super) fn new(secret: u64) -> Self {
        Self {
            epochs: Epochs::new(secret),
            kept_bytes: KeptBytes::default(),
            key_bytes: 0,
            answers: Answers::default(),
            deltas: DeltaEncoder::default(),
        }
    }

    /// The number of cached answers, and their bytes.
    pub(super) fn answers_kept(&self) -> [usize; 2] {
        self.answers.kept()
    }

    /// Bytes of the newest publications of keys.
    pub(super) const fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Bytes of the streams: as counted, and as they are.
    pub(super) fn stream_bytes(&self, channels: &ChannelTable) -> [usize; 2] {
        let streams = channels.iter().filter_map(|channel| channel.stream.as_deref());
        [self.kept_bytes.total(), streams.map(Stream::recounted_bytes).sum()]
    }

    /// The stream of a channel that has none.
    pub(super) fn empty_stream(&self, name: &str) -> Stream {
        Stream::new(self.epochs.of(name))
    }

    /// The channel's stream, created on first use. Its position is kept for the namespace's time from now on. The caller
    /// reviews the channel at the end.
    pub(super) fn open_stream<'c>(&self, context: &mut Context, channel: &'c mut OwnedChannel) -> &'c mut Stream {
        let meta_until_us = context.now.after_ms(context.namespace(channel.namespace).remembered_ms());
        if channel.stream.is_none() {
            let mut stream = self.empty_stream(&channel.name);
            (stream.meta_until_us, stream.data_until_us) = (meta_until_us, u64::MAX);
            channel.stream = Some(Box::new(stream));
            channel.schedule(&mut context.timers);
        }
        let stream = channel.stream.as_deref_mut().expect("created above");
        stream.meta_until_us = meta_until_us;
        stream
    }

    /// Appends a publication to the channel's stream, which keeps the newest `size`. Returns its patch, if a subscriber
    /// needs it.
    pub(super) fn append(
        &mut self,
        context: &mut Context,
        channel: &mut OwnedChannel,
        publication: &Arc<Publication>,
        params: &ProposalParams,
        size: usize,
    ) -> Patch {
        let options = namespace_options(&context.options, channel.namespace);
        let has_delta = |channel: &OwnedChannel| channel.classes(Audience::Publications).any(|class| class.delta);
        let wants_patch = (params.how.delta || options.delta_publish) && has_delta(channel);
        let stream = channel.stream.as_mut()?;
        // Seats are released before publications expire, so the users are stored.
        let readers = params.audience.as_ref().map(|audience| Arc::clone(&audience.users));
        stream.append(Arc::clone(publication), readers);
        stream.set_version(params.how.version, &params.how.version_epoch);
        let patch = wants_patch.then(|| stream.newest_patch(&mut self.deltas)).flatten();
        stream.forget_beyond(size);
        stream.data_until_us = context.now.after_ms(options.history_ttl_ms);
        stream.meta_until_us = context.now.after_ms(options.remembered_ms());
        if stream.take_answers() {
            self.answers.forget(&channel.name);
        }
        context.count(channel.namespace).patches += u64::from(patch.is_some());
        channel.schedule(&mut context.timers);
        patch
    }

    /// Makes space for a publication in a channel's history, by the namespace's `history_overflow`. The channel need not
    /// exist: a publication that is refused creates none.
    ///
    /// # Errors
    /// 111 if there is no space for it.
    pub(super) fn make_space(
        &mut self,
        context: &mut Context,
        channels: &mut ChannelTable,
        channel: &NamedChannel<'_>,
        publication: &Publication,
    ) -> Result<(), Refused> {
        let bytes = kept_bytes(publication);
        let options = context.namespace(channel.namespace);
        let (size, evicts) = (options.history_size, options.history_overflow == HistoryOverflow::Evict);
        let channel_max = bound(options.history_bytes_max);
        let node_max = bound(context.options.channel.history_bytes_max.div_ceil(usize::from(context.identity.count)));
        let may_fit = bytes <= channel_max.min(node_max);
        loop {
            let stream = channel.key.and_then(|key| channels.get(key)).and_then(|channel| channel.stream.as_ref());
            // Publications beyond the maximum number free their bytes as well.
            let (held, leaving) = stream.map_or((0, 0), |stream| (stream.bytes(), stream.bytes_beyond(size)));
            let is_full = held - leaving + bytes > channel_max;
            if !is_full && self.kept_bytes.total() - leaving + bytes <= node_max {
                return Ok(());
            }
            let victim = if is_full { channel.key } else { self.kept_bytes.largest() };
            let Some(victim) = victim.filter(|_| evicts && may_fit) else {
                context.count(channel.namespace).history_refused += 1;
                let why = if is_full { CHANNEL_FULL } else { NODE_FULL };
                return Err(Refused::new(ErrorCode::TooManyRequests, why));
            };
            self.evict_oldest(context, &mut channels[victim]);
        }
    }

    /// Evicts the oldest publication of a channel.
    fn evict_oldest(&mut self, context: &mut Context, channel: &mut OwnedChannel) {
        if let Some(stream) = channel.stream.as_mut() {
            stream.forget_oldest();
            if stream.take_answers() {
                self.answers.forget(&channel.name);
            }
        }
        context.count(channel.namespace).history_evicted += 1;
        self.count_stream(context, channel);
    }

    /// Updates the shard's total with the bytes of a channel's history.
    pub(super) fn count_stream(&mut self, context: &mut Context, channel: &mut OwnedChannel) {
        let OwnedChannel { key, name, namespace, stream: Some(stream), .. } = channel else { return };
        let options = namespace_options(&context.options, *namespace);
        let may_evict = options.history_overflow == HistoryOverflow::Evict;
        let bytes = stream.bytes();
        self.kept_bytes.count((name, *key), &mut stream.counted_bytes, bytes, may_evict);
        context.counters.history_bytes = self.kept_bytes.total() as u64;
    }

    /// Removes the publications of a channel whose time to live is over. Returns whether it is.
    pub(super) fn expire_publications(&mut self, context: &Context, channel: &mut OwnedChannel) -> bool {
        let stream = channel.stream.as_mut().filter(|stream| stream.data_until_us <= context.now.mono_us);
        let Some(stream) = stream else { return false };
        stream.data_until_us = u64::MAX;
        self.clear_stream(channel);
        true
    }

    /// Removes the position of a channel that was not used for as long as positions are remembered.
    pub(super) fn expire_position(&mut self, context: &mut Context, channel: &mut OwnedChannel, is_needed: bool) {
        let stream = channel.stream.as_mut().filter(|stream| stream.meta_until_us <= context.now.mono_us);
        let Some(stream) = stream else { return };
        // A position that subscribers depend on does not expire.
        if is_needed {
            let remembered_ms = namespace_options(&context.options, channel.namespace).remembered_ms();
            stream.meta_until_us = context.now.after_ms(remembered_ms.max(1));
        } else {
            let is_logged = channel.log.is_some();
            self.forget_stream(context, channel, is_logged);
        }
    }

    /// Removes the publications of a channel's stream. Its position stays.
    pub(super) fn clear_stream(&mut self, channel: &mut OwnedChannel) {
        let Some(stream) = channel.stream.as_deref_mut() else { return };
        stream.clear();
        if stream.take_answers() {
            self.answers.forget(&channel.name);
        }
    }

    /// Removes a channel's stream and ends its epoch, unless a log has them.
    pub(super) fn forget_stream(&mut self, context: &mut Context, channel: &mut OwnedChannel, is_logged: bool) {
        let Some(mut stream) = channel.stream.take() else { return };
        // The next stream's offsets are not comparable with those in the key cache.
        self.forget_keys(channel);
        self.kept_bytes.count((&channel.name, channel.key), &mut stream.counted_bytes, 0, false);
        context.counters.history_bytes = self.kept_bytes.total() as u64;
        if stream.take_answers() {
            self.answers.forget(&channel.name);
        }
        if !stream.is_new() && !is_logged {
            self.epochs.end(&channel.name);
        }
    }

    /// Drops the position of an unused channel without publications, which its log gives back. In a stream that channels
    /// share, the position of a channel that was never used is not 0. A client that tries one name after the other would
    /// otherwise make the node remember, and follow, all of them.
    pub(super) fn drop_bare_stream(&mut self, context: &mut Context, channel: &mut OwnedChannel) {
        if channel.log.is_none() || channel.results.is_some() || channel.key_cache.is_some() {
            return;
        }
        if channel.stream.as_ref().is_some_and(|stream| stream.is_bare()) {
            self.forget_stream(context, channel, true);
        }
    }

    /// Truncates a channel's stream to new options.
    pub(super) fn shorten_stream(&mut self, context: &Context, channel: &mut OwnedChannel) {
        let options = context.namespace(channel.namespace);
        let Some(stream) = &mut channel.stream else { return };
        stream.forget_beyond(options.history_size);
        let evicts = options.history_overflow == HistoryOverflow::Evict && options.history_bytes_max > 0;
        while evicts && stream.bytes() > options.history_bytes_max {
            stream.forget_oldest();
        }
        // `u64::MAX` marks a stream without publications.
        if stream.data_until_us != u64::MAX {
            stream.data_until_us = stream.data_until_us.min(context.now.after_ms(options.history_ttl_ms));
        }
        stream.meta_until_us = stream.meta_until_us.min(context.now.after_ms(options.remembered_ms()));
        if stream.take_answers() {
            self.answers.forget(&channel.name);
        }
        // The new options decide whether its publications may be evicted.
        self.kept_bytes.count((&channel.name, channel.key), &mut stream.counted_bytes, 0, false);
    }

    /// Stores a publication as the newest of its key. The namespace has a key cache.
    pub(super) fn keep_newest(
        &mut self,
        context: &mut Context,
        channel: &mut OwnedChannel,
        key: Option<&str>,
        publication: &Arc<Publication>,
    ) {
        let namespace = channel.namespace;
        let cache = key_cache(context, channel);
        let (bytes_before, is_shared) = (cache.bytes(), cache.is_shared());
        let options = context.namespace(namespace);
        let limits = self.key_limits(context, options, bytes_before);
        let is_removal = options.is_removal(&publication.tags);
        let new = KeyedPublication { key, publication, is_removal };
        let kept_ms = if is_removal && is_shared { REMOVAL_KEPT_MS } else { options.cache_keys_ttl_ms };
        let evicted = cache.put(new, context.now.after_ms(kept_ms), limits);
        let (bytes, had_answers) = (cache.bytes(), cache.take_answers());
        self.key_bytes = self.key_bytes - bytes_before + bytes;
        context.count(namespace).keys_evicted += evicted;
        if had_answers {
            self.answers.forget(&channel.name);
        }
        drop_empty_keys(context, channel);
        channel.schedule(&mut context.timers);
    }

    /// The limits of a channel's key cache, which has this many bytes now.
    fn key_limits(&self, context: &Context, options: &NamespaceOptions, bytes: usize) -> KeyCacheLimits {
        let client = &context.options.client;
        // The answer must fit into a session's queue, with space for the escapes of patches.
        let answer_bytes_max = client.queue_bytes_max / 2;
        let share = context.options.channel.cache_bytes_max.div_ceil(usize::from(context.identity.count));
        let of_others = self.key_bytes - bytes;
        KeyCacheLimits {
            keys_max: options.cache_keys_max.min(client.queue_frames_max / 2),
            bytes_max: answer_bytes_max.min(share.saturating_sub(of_others)),
        }
    }

    /// Changes a channel's key cache, and counts its bytes. Returns the number of evicted keys, which `change` returns.
    fn change_keys(&mut self, channel: &mut OwnedChannel, change: impl FnOnce(&mut KeyCache) -> u64) -> u64 {
        let Some(cache) = channel.key_cache.as_deref_mut() else { return 0 };
        let before = cache.bytes();
        let evicted = change(cache);
        self.key_bytes = self.key_bytes - before + cache.bytes();
        evicted
    }

    /// Removes expired publications from a channel's key cache.
    pub(super) fn forget_old_keys(&mut self, context: &Context, channel: &mut OwnedChannel) {
        let Some(cache) = &mut channel.key_cache else { return };
        let before = cache.bytes();
        let had_answers = cache.forget_old(context.now.mono_us) && cache.take_answers();
        self.key_bytes -= before - cache.bytes();
        drop_empty_keys(context, channel);
        if had_answers {
            self.answers.forget(&channel.name);
        }
    }

    /// Clears the key cache of a channel whose log is closed, because it does not receive other nodes' newer
    /// publications.
    pub(super) fn forget_keys_not_followed(&mut self, context: &Context, channel: &mut OwnedChannel) {
        if channel.key_cache.is_none() {
            return;
        }
        let namespace = channel.namespace;
        if channel.log.is_none() && context.is_shared(namespace) && context.is_logged(namespace) {
            self.forget_keys(channel);
        }
        drop_empty_keys(context, channel);
    }

    /// Clears a channel's key cache.
    pub(super) fn forget_keys(&mut self, channel: &mut OwnedChannel) {
        let Some(mut cache) = channel.key_cache.take() else { return };
        self.key_bytes -= cache.bytes();
        if cache.take_answers() {
            self.answers.forget(&channel.name);
        }
    }

    /// Removes a channel's keys at the request of the application. Other nodes do not bring them back.
    pub(super) fn remove_keys(&mut self, context: &Context, channel: &mut OwnedChannel) {
        let is_shared = channel.key_cache.as_ref().is_some_and(|cache| cache.is_shared()) && channel.is_in_use();
        self.forget_keys(channel);
        if is_shared {
            let mut cache = KeyCache::new_shared(context.node_seed, context.now.mono_us);
            cache.mark_whole();
            channel.key_cache = Some(Box::new(cache));
        }
    }

    /// Restores a channel's keys from its stream, if that has the whole log. `load` is a number that no load has used.
    /// Returns whether they are restored.
    pub(super) fn restore_keys_from_memory(
        &mut self,
        context: &mut Context,
        channel: &mut OwnedChannel,
        load: impl FnOnce() -> LoadNumber,
    ) -> bool {
        let (Some(log), Some(stream)) = (&channel.log, &channel.stream) else { return false };
        let cache = channel.key_cache.get_or_insert_with(|| Box::new(KeyCache::new(context.node_seed, false)));
        if log.floor < stream.floor() || cache.restoring_load().is_some() {
            return false;
        }
        let kept: Vec<_> = stream.publications().cloned().collect();
        cache.begin_restore(context.node_seed, load(), log.floor, stream.top());
        for publication in &kept {
            self.add_older_key(context, channel, publication);
        }
        self.end_restore(context, channel);
        true
    }

    /// Adds a page of older publications to the restore of a channel's keys. Returns how far that is.
    pub(super) fn add_older_keys(
        &mut self,
        context: &mut Context,
        channel: &mut OwnedChannel,
        page: &LogPage,
    ) -> RestoreProgress {
        self.change_keys(channel, |cache| {
            cache.begin_page(page.floor);
            0
        });
        for record in &page.records {
            self.add_older_key(context, channel, &record.publication);
        }
        let cache = channel.key_cache.as_deref_mut();
        cache.map_or(RestoreProgress::Complete, |cache| cache.restored_through(page.through))
    }

    fn add_older_key(&mut self, context: &mut Context, channel: &mut OwnedChannel, publication: &Arc<Publication>) {
        let options = namespace_options(&context.options, channel.namespace);
        let limits = self.key_limits(context, options, channel.cached_bytes());
        let old = KeyedPublication {
            key: options.conflation_key_of(&publication.tags),
            publication,
            is_removal: options.is_removal(&publication.tags),
        };
        let until_us = context.now.after_ms(options.cache_keys_ttl_ms);
        let evicted = self.change_keys(channel, |cache| cache.put_older(publication.offset, old, until_us, limits));
        context.count(channel.namespace).keys_evicted += evicted;
    }

    /// The keys of a channel are restored.
    pub(super) fn end_restore(&mut self, context: &mut Context, channel: &mut OwnedChannel) {
        let limits = self.key_limits(context, context.namespace(channel.namespace), channel.cached_bytes());
        let evicted = self.change_keys(channel, |cache| cache.end_restore(limits));
        let counters = context.count(channel.namespace);
        counters.keys_evicted += evicted;
        counters.keys_restored += 1;
    }

    /// The keys of a channel could not be restored.
    pub(super) fn abandon_restore(&mut self, channel: &mut OwnedChannel) {
        self.change_keys(channel, |cache| {
            cache.abandon_restore();
            0
        });
    }

    /// Adds the keys that other nodes have.
    pub(super) fn add_keys_of_peers(
        &mut self,
        context: &mut Context,
        channel: &mut OwnedChannel,
        PeerKeys { keys, is_partial }: PeerKeys,
    ) {
        if context.namespace(channel.namespace).cache_keys_max == 0 {
            return;
        }
        key_cache(context, channel);
        let options = context.namespace(channel.namespace);
        let limits = self.key_limits(context, options, channel.cached_bytes());
        let found = keys.into_iter().map(|key| found_key(key, options)).collect();
        let times = key_times(context, options);
        let evicted = self.change_keys(channel, |cache| {
            cache.mark_whole();
            let evicted = cache.add_of_peers(found, times, limits);
            if is_partial {
                cache.retry_at(context.now.after_ms(KEYS_RETRY_MS));
            }
            evicted
        });
        let counters = context.count(channel.namespace);
        counters.keys_evicted += evicted;
        *(if is_partial { &mut counters.keys_missed } else { &mut counters.keys_gathered }) += 1;
        if channel.key_cache.as_mut().is_some_and(|cache| cache.take_answers()) {
            self.answers.forget(&channel.name);
        }
    }

    /// Encodes a subscription's missed publications, or reuses a cached encoding. The session's shard encodes those
    /// with gaps left by a filter, and those that cannot be encoded here. `page` is the stream they were computed from,
    /// if it is not the one in memory.
    pub(super) fn encode_missed(
        &mut self,
        context: &mut Context,
        channel: &mut OwnedChannel,
        request: &SubscriptionRequest,
        (subscribed, source): (&mut Subscribed, AnswerSource),
        page: Option<&mut Stream>,
    ) {
        if subscribed.publications.is_empty() {
            return;
        }
        let FrameClass { wire, delta, .. } = request.subscriber.class;
        let encoding = wire.encoding();
        let span = source.span(page.as_deref().or(channel.stream.as_deref()), request, subscribed);
        subscribed.encoded = span.as_ref().and_then(|span| self.answers.find(&channel.name, span));
        if subscribed.encoded.is_some() {
            context.count(channel.namespace).answers_shared += 1;
            return;
        }
        context.count(channel.namespace).answers_encoded += 1;
        let stream = page.or(channel.stream.as_deref_mut()).filter(|_| source == AnswerSource::Stream);
        if let Some(stream) = stream.filter(|_| delta) {
            subscribed.patches = stream.patches(&subscribed.publications, &mut self.deltas);
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
            if self.answers.keep(&channel.name, span, &encoded) {
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
    fn span(self, stream: Option<&Stream>, request: &SubscriptionRequest, subscribed: &Subscribed) -> Option<Span> {
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

/// Adds the newest publication of each key to the answer to a subscription without recovery. Later publications are
/// queued after the answer, so none is missing.
pub(super) fn add_newest(
    context: &Context,
    channel: &OwnedChannel,
    request: &SubscriptionRequest,
    subscribed: &mut Subscribed,
) -> AnswerSource {
    let has_keys = !subscribed.recovered && context.namespace(channel.namespace).cache_keys_max > 0;
    let Some(cache) = channel.key_cache.as_ref().filter(|_| has_keys) else { return AnswerSource::Stream };
    debug_assert!(cache.is_whole() || cache.is_shared(), "a subscription waits until the keys are restored");
    subscribed.publications = cache.publications(request.filter.as_deref());
    let top = channel.stream.as_ref().map_or(0, |stream| stream.top());
    subscribed.has_newest = top > 0 && subscribed.publications.last().is_some_and(|newest| newest.offset == top);
    AnswerSource::Keys { state: request.filter.is_none().then(|| cache.state()) }
}

/// Whether the channel may have keys that are not in its cache.
pub(super) fn lacks_keys(context: &Context, channel: &OwnedChannel) -> bool {
    context.namespace(channel.namespace).cache_keys_max > 0
        && context.may_lack_keys(channel.namespace)
        && channel.key_cache.as_ref().is_none_or(|cache| !cache.is_whole())
}

/// Whether other nodes may have keys that the channel lacks. Its messages on other nodes arrive already.
pub(super) fn should_ask_for_keys(context: &Context, channel: &OwnedChannel) -> bool {
    context.namespace(channel.namespace).cache_keys_max > 0
        && context.has_keys_on_peers(channel.namespace)
        && channel.key_cache.as_ref().is_none_or(|cache| cache.should_ask_peers(context.now.mono_us))
}

/// The newest publications of a channel's keys, for another node.
pub(super) fn keys_for_peer(context: &Context, channel: &OwnedChannel) -> Vec<PeerKey> {
    let times = key_times(context, context.namespace(channel.namespace));
    channel.key_cache.as_ref().map_or_else(Vec::new, |cache| cache.for_peer(times))
}

/// A channel's key cache, created on first use.
fn key_cache<'c>(context: &Context, channel: &'c mut OwnedChannel) -> &'c mut KeyCache {
    let namespace = channel.namespace;
    let followed_us = if channel.following.is_confirmed() { context.now.mono_us } else { u64::MAX };
    channel.key_cache.get_or_insert_with(|| {
        let seed = context.node_seed;
        Box::new(if context.has_keys_on_peers(namespace) {
            KeyCache::new_shared(seed, followed_us)
        } else {
            KeyCache::new(seed, !context.may_lack_keys(namespace))
        })
    })
}

/// Drops a key cache without keys, unless it would have to be restored for the next subscription.
fn drop_empty_keys(context: &Context, channel: &mut OwnedChannel) {
    let is_needed = context.may_lack_keys(channel.namespace) && channel.is_in_use();
    channel.key_cache.take_if(|cache| cache.is_empty() && !is_needed);
}

fn found_key(PeerKey { publication, age_us }: PeerKey, options: &NamespaceOptions) -> FoundKey {
    let key = options.conflation_key_of(&publication.tags).map(Arc::from);
    let is_removal = options.is_removal(&publication.tags);
    FoundKey { key, publication, age_us, is_removal }
}

fn key_times(context: &Context, options: &NamespaceOptions) -> KeyTimes {
    KeyTimes { now_us: context.now.mono_us, ttl_us: options.cache_keys_ttl_ms.saturating_mul(1_000) }
}

/// A limit; 0 means no limit.
const fn bound(bytes_max: usize) -> usize {
    if bytes_max == 0 { usize::MAX } else { bytes_max }
}
