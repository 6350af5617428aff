//! Limits on the bytes of histories: per channel, and per node. Each shard has an equal share of the limit per node.

use std::sync::Arc;

use dunlin_protocol::{ErrorCode, Publication};

use crate::{
    channel::OwnedChannel,
    history_stream::{Stream, kept_bytes},
    names::{NamespaceIndex, namespace_options},
    options::HistoryOverflow,
};

use super::{Context, Owner};

impl Owner {
    /// Makes space for a publication in a channel's history, by the namespace's `history_overflow`.
    ///
    /// # Errors
    /// 111 if there is no space for it.
    pub(super) fn make_history_room(
        &mut self,
        context: &mut Context,
        name: &Arc<str>,
        namespace: NamespaceIndex,
        publication: &Publication,
    ) -> Result<(), ErrorCode> {
        let bytes = kept_bytes(publication);
        let options = context.namespace(namespace);
        let (size, evicts) = (options.history_size, options.history_overflow == HistoryOverflow::Evict);
        let channel_max = bound(options.history_bytes_max);
        let node_max = bound(context.options.channel.history_bytes_max.div_ceil(usize::from(context.identity.count)));
        let may_fit = bytes <= channel_max.min(node_max);
        loop {
            let stream = self.channels.named(name).and_then(|channel| channel.stream.as_ref());
            // Publications beyond the maximum number free their bytes as well.
            let (held, leaving) = stream.map_or((0, 0), |stream| (stream.bytes(), stream.bytes_beyond(size)));
            let is_full = held - leaving + bytes > channel_max;
            if !is_full && self.kept_bytes.total() - leaving + bytes <= node_max {
                return Ok(());
            }
            let victim = if is_full { Some(Arc::clone(name)) } else { self.kept_bytes.largest() };
            let Some(victim) = victim.filter(|_| evicts && may_fit) else {
                context.count(namespace).history_refused += 1;
                return Err(ErrorCode::TooManyRequests);
            };
            self.evict_oldest(context, &victim);
        }
    }

    /// Evicts the oldest publication of a channel.
    fn evict_oldest(&mut self, context: &mut Context, name: &Arc<str>) {
        let Some(channel) = self.channels.named_mut(name) else { return };
        let namespace = channel.namespace;
        if let Some(stream) = channel.stream.as_mut() {
            stream.forget_oldest();
            if stream.take_answers() {
                self.answers.forget(name);
            }
        }
        context.count(namespace).history_evicted += 1;
        self.count_history(context, name);
    }

    /// Updates the shard's total with the bytes of a channel's history.
    pub(super) fn count_history(&mut self, context: &mut Context, name: &str) {
        let Self { channels, kept_bytes, .. } = self;
        let Context { options, counters, .. } = context;
        let Some(OwnedChannel { name, namespace, stream: Some(stream), .. }) = channels.named_mut(name) else { return };
        let may_evict = namespace_options(options, *namespace).history_overflow == HistoryOverflow::Evict;
        let bytes = stream.bytes();
        kept_bytes.count(name, &mut stream.counted_bytes, bytes, may_evict);
        counters.history_bytes = kept_bytes.total() as u64;
    }

    /// Bytes of the shard's histories: as counted, and as they are.
    pub(in crate::shard) fn history_bytes(&self) -> [usize; 2] {
        let streams = self.channels.iter().filter_map(|channel| channel.stream.as_deref());
        [self.kept_bytes.total(), streams.map(Stream::recounted_bytes).sum()]
    }
}

/// A limit; 0 means no limit.
const fn bound(bytes_max: usize) -> usize {
    if bytes_max == 0 { usize::MAX } else { bytes_max }
}
