//! The owner's table of channels: creation, limits, and eviction when there are too many.

use std::sync::Arc;

use dunlin_protocol::ErrorCode;

use crate::spare::shrink_map;
use crate::{
    Effect, Now,
    channel::{Following, Idle, OwnedChannel},
    counters::ChannelRefusal,
    creators::{ChannelCreator, CreatorKind},
    history_stream::Stream,
    names::NamespaceIndex,
};

use super::{Context, Owner};

/// Maximum number of idle channels to check for one that has not been used since it became idle.
const SECOND_CHANCES: usize = 16;

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
        if self.channels.len() >= most
            && !self.channels.contains_key(name)
            && !(most > 0 && self.evict_idle_channel(context))
        {
            return Err(context.refuse_channel(ChannelRefusal::Node));
        }
        let made = || OwnedChannel::new(Arc::clone(name), namespace);
        if !self.channels.contains_key(name) {
            self.channels.insert(Arc::clone(name), made());
            context.counters.channels_kept = self.channels.len() as u64;
        }
        Ok(self.channels.get_mut(name).expect("made above"))
    }

    /// Whether a session may publish the first publication of a channel's stream.
    pub(super) fn check_maker(
        &mut self,
        context: &mut Context,
        name: &str,
        creator: ChannelCreator,
    ) -> Result<(), ErrorCode> {
        let others_use_it = |channel: &OwnedChannel| !channel.used_by.is_left_to(creator);
        if self.channels.get(name).is_some_and(|channel| channel.creator.is_some() || others_use_it(channel)) {
            return Ok(());
        }
        match self.creators.full(creator, &context.options.channel, context.identity.count) {
            None => Ok(()),
            Some(CreatorKind::Session) => Err(context.refuse_channel(ChannelRefusal::Session)),
            Some(CreatorKind::User) => Err(context.refuse_channel(ChannelRefusal::User)),
            Some(CreatorKind::Source) => Err(context.refuse_channel(ChannelRefusal::Address)),
        }
    }

    /// Records a use of an existing channel. A session that has published in the channel becomes its creator, as long
    /// as no other session uses it.
    pub(super) fn record_use(&mut self, now: Now, name: &str, creator: Option<ChannelCreator>, publishes: bool) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        if let Some(idle) = &mut channel.idle {
            idle.used_us = now.mono_us;
        }
        channel.used_by.add(creator);
        let has_stream = channel.stream.as_ref().is_some_and(|stream| !stream.is_new());
        let has_publications = has_stream || channel.key_cache.is_some();
        if publishes && let Some(log) = channel.log.as_deref_mut() {
            log.is_creator_reserved = false;
        }
        // A creator that was only reserved may be another than the first user.
        let used_by = channel.used_by;
        if let Some(creator) = channel.creator.take_if(|creator| !used_by.is_left_to(**creator)) {
            self.creators.remove(*creator);
        }
        let counts = publishes && has_publications && !used_by.is_shared() && channel.creator.is_none();
        if let Some(creator) = creator.filter(|_| counts) {
            channel.creator = Some(Box::new(creator));
            self.creators.add(creator);
        }
    }

    /// Counts a channel against the creator of a proposal in flight, if it will count when that is committed.
    pub(super) fn reserve_creator(&mut self, name: &str, creator: Option<ChannelCreator>) {
        let (Some(channel), Some(creator)) = (self.channels.get_mut(name), creator) else { return };
        if channel.creator.is_some() || !channel.used_by.is_left_to(creator) {
            return;
        }
        if let Some(log) = channel.log.as_deref_mut() {
            log.is_creator_reserved = true;
            channel.creator = Some(Box::new(creator));
            self.creators.add(creator);
        }
    }

    /// Ends a reservation after a refused proposal, unless another one is in flight.
    pub(super) fn release_creator(&mut self, name: &str) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        let Some(log) = channel.log.as_deref_mut() else { return };
        if log.has_proposals() || !std::mem::take(&mut log.is_creator_reserved) {
            return;
        }
        if let Some(creator) = channel.creator.take() {
            self.creators.remove(*creator);
        }
    }

    /// Updates the state of a channel after a change: drops a channel without state, and otherwise records whether it
    /// may be evicted.
    pub(super) fn review(&mut self, context: &mut Context, name: &str) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        let is_quiet = channel.log.as_ref().is_none_or(|log| log.is_quiet()) && !channel.following.has_parked();
        if channel.subscribers() == 0 && is_quiet {
            // The epoch can be computed from the channel's name, or the log has it.
            channel.stream.take_if(|stream| stream.is_new());
            self.drop_bare_stream(context, name);
            if self.channels.get(name).is_some_and(|channel| channel.stream.is_none()) {
                self.close_log(name);
            }
        }
        self.forget_keys_not_followed(context, name);
        let Some(channel) = self.channels.get_mut(name) else { return };
        self.log_traffic.requests.extend(channel.review_following(context));
        // The results must stay known, to detect a publication that is repeated with its idempotency key.
        let is_idle = channel.subscribers() == 0 && channel.room.is_none() && channel.results.is_none() && is_quiet;
        if channel.is_forgettable() {
            return self.forget_channel(context, name);
        }
        self.count_history(context, name);
        let Some(channel) = self.channels.get_mut(name) else { return };
        let now_us = context.now.mono_us;
        match &mut channel.idle {
            Some(idle) if !is_idle => {
                self.idle_channels.remove(&(idle.since_us, Arc::clone(&channel.name)));
                channel.idle = None;
            }
            None if is_idle => {
                channel.idle = Some(Box::new(Idle { since_us: now_us, used_us: now_us }));
                self.idle_channels.insert((now_us, Arc::clone(&channel.name)));
            }
            _ => {}
        }
    }

    /// Drops the position of an unused channel without publications, which its log gives back. In a stream that channels
    /// share, the position of a channel that was never used is not 0. A client that tries one name after the other would
    /// otherwise make the node remember, and follow, all of them.
    fn drop_bare_stream(&mut self, context: &mut Context, name: &str) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        if channel.log.is_none() || channel.results.is_some() || channel.key_cache.is_some() {
            return;
        }
        if let Some(stream) = channel.stream.take_if(|stream| stream.is_bare()) {
            let name = Arc::clone(&channel.name);
            self.forget_stream(context, &name, *stream, true);
        }
    }

    /// Evicts a channel without subscribers, approximately the least recently used one. Returns whether there was one.
    fn evict_idle_channel(&mut self, context: &mut Context) -> bool {
        for looked_at in 0..=SECOND_CHANCES {
            let Some((since_us, name)) = self.idle_channels.first().cloned() else { return false };
            let channel = self.channels.get_mut(&name);
            let idle = channel.and_then(|channel| channel.idle.as_mut()).expect("an idle channel is remembered");
            if idle.used_us <= since_us || looked_at == SECOND_CHANCES {
                context.counters.channels_evicted += 1;
                self.forget_channel(context, &name);
                return true;
            }
            idle.since_us = idle.used_us;
            let used_us = idle.used_us;
            self.idle_channels.remove(&(since_us, Arc::clone(&name)));
            self.idle_channels.insert((used_us, name));
        }
        false
    }

    pub(super) fn forget_channel(&mut self, context: &mut Context, name: &str) {
        self.forget_keys(name);
        let is_logged = self.channels.get(name).is_some_and(|channel| channel.log.is_some());
        self.close_log(name);
        let Some(mut channel) = self.channels.remove(name) else { return };
        shrink_map(&mut self.channels);
        if let Some(stream) = channel.stream.take() {
            self.forget_stream(context, &channel.name, *stream, is_logged);
        }
        if let Some(idle) = channel.idle {
            self.idle_channels.remove(&(idle.since_us, Arc::clone(&channel.name)));
        }
        if let Some(creator) = channel.creator {
            self.creators.remove(*creator);
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
        [self.creators.len(), self.idle_channels.len()]
    }
}
impl Context {
    fn refuse_channel(&mut self, why: ChannelRefusal) -> ErrorCode {
        self.counters.channels_refused[why as usize] += 1;
        ErrorCode::LimitExceeded
    }
}
