//! Applies new options to the existing channels.

use std::sync::Arc;

use crate::{options::HistoryOverflow, pace::Pace, shard::NamespaceChange};

use super::{Context, Owner};

impl Owner {
    /// Applies the options that do not concern channels.
    pub(in crate::shard) fn set_paces(&mut self, context: &Context) {
        let options = &context.options;
        self.has_logs = options.has_logs();
        self.has_shared = options.has_shared();
        self.room_openings.set_pace(Pace::share(options.room_openings.per_second, context.identity.count));
        if !context.has_homes() {
            self.homes.clear();
        }
    }

    /// Truncates or removes histories.
    pub(in crate::shard) fn shorten_streams(&mut self, context: &mut Context, changes: &[NamespaceChange]) {
        let change_of = |namespace: u16| changes.get(usize::from(namespace)).copied().unwrap_or(NamespaceChange::None);
        let affected: Vec<(Arc<str>, NamespaceChange)> = self
            .channels
            .iter()
            .map(|channel| (&channel.name, change_of(channel.namespace.0)))
            .filter(|(_, change)| *change != NamespaceChange::None)
            .map(|(name, change)| (Arc::clone(name), change))
            .collect();
        for (name, change) in affected {
            if change == NamespaceChange::Trimmed {
                self.trim_stream(context, &name);
            } else {
                self.drop_stream(context, &name);
            }
        }
    }

    fn trim_stream(&mut self, context: &mut Context, name: &str) {
        let Some(channel) = self.channels.named_mut(name) else { return };
        let options = crate::names::namespace_options(&context.options, channel.namespace);
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
            self.answers.forget(name);
        }
        // The new options decide whether its publications may be evicted.
        self.kept_bytes.count(&channel.name, &mut stream.counted_bytes, 0, false);
        self.review(context, name);
        self.schedule_channel(context, name);
    }

    fn drop_stream(&mut self, context: &mut Context, name: &Arc<str>) {
        self.forget_keys(name);
        let Some(channel) = self.channels.named_mut(name) else { return };
        channel.results = None;
        if let Some(stream) = channel.stream.take() {
            self.forget_stream(context, name, *stream, false);
        }
        self.review(context, name);
    }
}
