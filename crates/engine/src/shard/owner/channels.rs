//! The owner's table of channels: creation, limits, and eviction when there are too many.

use std::sync::Arc;

use dunlin_protocol::ErrorCode;

use crate::{
    Effect, Now,
    channel::{Following, OwnedChannel},
    counters::ChannelRefusal,
    creators::{ChannelCreator, CreatorKind},
    history_stream::Stream,
    names::NamespaceIndex,
};

use super::{Context, Owner};

impl Owner {
    /// The channel's stream, created on first use. Its position is kept for the namespace's time from now on. The
    /// caller calls [`Owner::review`] at the end.
    pub(super) fn stream(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
    ) -> Result<&mut Stream, ErrorCode> {
        let meta_until_us = context.now.after_ms(context.namespace(namespace).remembered_ms());
        let has_stream = self.owned(context, name, namespace)?.stream.is_some();
        if !has_stream {
            let stream = Stream::new(self.epochs.of(name));
            self.owned(context, name, namespace)?.stream = Some(Box::new(stream));
        }
        let stream = self.owned(context, name, namespace)?.stream.as_mut().expect("made above");
        stream.meta_until_us = meta_until_us;
        if !has_stream {
            stream.data_until_us = u64::MAX;
            self.schedule_channel(context, name);
        }
        Ok(self.owned(context, name, namespace)?.stream.as_deref_mut().expect("made above"))
    }

    /// The channel, created on first use. At the limit of the node, a channel without subscribers is evicted.
    pub(super) fn owned(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
    ) -> Result<&mut OwnedChannel, ErrorCode> {
        // Each shard has an equal part of the node's limit.
        let most = context.options.channel.channels_max.div_ceil(usize::from(context.identity.count));
        if let Some(key) = self.channels.find(name) {
            return Ok(&mut self.channels[key]);
        }
        if self.channels.len() >= most && !(most > 0 && self.evict_idle_channel(context)) {
            return Err(context.refuse_channel(ChannelRefusal::Node));
        }
        let key = self.channels.insert(name, namespace);
        context.counters.channels_kept = self.channels.len() as u64;
        Ok(&mut self.channels[key])
    }

    /// Whether a session may publish the first publication of a channel's stream.
    pub(super) fn check_maker(
        &mut self,
        context: &mut Context,
        name: &str,
        creator: ChannelCreator,
    ) -> Result<(), ErrorCode> {
        let key = self.channels.find(name);
        let limit = self.channels.creator_limit(key, creator, &context.options.channel, context.identity.count);
        let Some(limit) = limit else { return Ok(()) };
        Err(context.refuse_channel(match limit {
            CreatorKind::Session => ChannelRefusal::Session,
            CreatorKind::User => ChannelRefusal::User,
            CreatorKind::Source => ChannelRefusal::Address,
        }))
    }

    /// Records a use of a channel, if it exists.
    pub(super) fn record_use(&mut self, now: Now, name: &str, creator: Option<ChannelCreator>, publishes: bool) {
        if let Some(key) = self.channels.find(name) {
            self.channels.record_use(key, now, creator, publishes);
        }
    }

    /// Updates the state of a channel after a change: drops a channel without state, and otherwise records whether it
    /// may be evicted.
    pub(super) fn review(&mut self, context: &mut Context, name: &str) {
        let Some(channel) = self.channels.named_mut(name) else { return };
        let is_quiet = channel.log.as_ref().is_none_or(|log| log.is_quiet()) && !channel.following.has_parked();
        if channel.subscribers() == 0 && is_quiet {
            // The epoch can be computed from the channel's name, or the log has it.
            channel.stream.take_if(|stream| stream.is_new());
            self.drop_bare_stream(context, name);
            if self.channels.named(name).is_some_and(|channel| channel.stream.is_none()) {
                self.close_log(name);
            }
        }
        self.forget_keys_not_followed(context, name);
        let Some(channel) = self.channels.named_mut(name) else { return };
        self.log_traffic.requests.extend(channel.review_following(context));
        // The results must stay known, to detect a publication that is repeated with its idempotency key.
        let is_idle = channel.subscribers() == 0 && channel.room.is_none() && channel.results.is_none() && is_quiet;
        if channel.is_forgettable() {
            return self.forget_channel(context, name);
        }
        self.count_history(context, name);
        if let Some(key) = self.channels.find(name) {
            self.channels.set_idle(key, is_idle, context.now.mono_us);
        }
    }

    /// Drops the position of an unused channel without publications, which its log gives back. In a stream that channels
    /// share, the position of a channel that was never used is not 0. A client that tries one name after the other would
    /// otherwise make the node remember, and follow, all of them.
    fn drop_bare_stream(&mut self, context: &mut Context, name: &str) {
        let Some(channel) = self.channels.named_mut(name) else { return };
        if channel.log.is_none() || channel.results.is_some() || channel.key_cache.is_some() {
            return;
        }
        if let Some(stream) = channel.stream.take_if(|stream| stream.is_bare()) {
            let name = Arc::clone(&channel.name);
            self.forget_stream(context, &name, *stream, true);
        }
    }

    /// Evicts a channel without subscribers. Returns whether there was one.
    fn evict_idle_channel(&mut self, context: &mut Context) -> bool {
        let Some(key) = self.channels.next_to_evict() else { return false };
        context.counters.channels_evicted += 1;
        let name = Arc::clone(&self.channels[key].name);
        self.forget_channel(context, &name);
        true
    }

    pub(super) fn forget_channel(&mut self, context: &mut Context, name: &str) {
        self.forget_keys(name);
        let is_logged = self.channels.named(name).is_some_and(|channel| channel.log.is_some());
        self.close_log(name);
        let Some(mut channel) = self.channels.find(name).and_then(|key| self.channels.remove(key)) else { return };
        if let Some(stream) = channel.stream.take() {
            self.forget_stream(context, &channel.name, *stream, is_logged);
        }
        if !matches!(channel.following, Following::Not) {
            self.log_traffic
                .requests
                .push(Effect::Unfollow { channel: Arc::clone(&channel.name), only_user: channel.used_by.only() });
        }
        context.timers.abandon(channel.scheduled);
        context.counters.channels_kept = self.channels.len() as u64;
    }

    /// Ends a stream and its epoch, unless a log has them.
    pub(super) fn forget_stream(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        mut stream: Stream,
        is_logged: bool,
    ) {
        // The next stream's offsets are not comparable with those in the key cache.
        self.forget_keys(name);
        self.kept_bytes.count(name, &mut stream.counted_bytes, 0, false);
        context.counters.history_bytes = self.kept_bytes.total() as u64;
        if stream.take_answers() {
            self.answers.forget(name);
        }
        if !stream.is_new() && !is_logged {
            self.epochs.end(name);
        }
    }

    /// Entries of the counts of channels per creator, and channels without subscribers. Both are 0 when all channels
    /// have been dropped.
    pub(in crate::shard) fn channel_holdings(&self) -> [usize; 2] {
        self.channels.holdings()
    }
}
impl Context {
    fn refuse_channel(&mut self, why: ChannelRefusal) -> ErrorCode {
        self.counters.channels_refused[why as usize] += 1;
        ErrorCode::LimitExceeded
    }
}
