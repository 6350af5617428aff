//! Expiry of streams, idempotency results and cached keys.

use std::sync::Arc;

use crate::{names::namespace_options, timers::TimerOwner};

use super::{Context, Owner};

impl Owner {
    /// Handles a channel's timer, if it is active; returns whether it is.
    pub(in crate::shard) fn take_due(&mut self, context: &mut Context, due_us: u64, name: &str) -> bool {
        let counts = self.channels.named_mut(name).is_some_and(|channel| channel.scheduled.take(due_us));
        if counts {
            self.channel_is_due(context, name);
        }
        counts
    }

    pub(in crate::shard) fn is_due_at(&self, name: &str, due_us: u64) -> bool {
        self.channels.named(name).is_some_and(|channel| channel.scheduled.is_at(due_us))
    }

    /// Schedules the next expiry of the channel's stream, or of a part of it.
    pub(super) fn schedule_channel(&mut self, context: &mut Context, name: &str) {
        let Some(channel) = self.channels.named_mut(name) else { return };
        let of_stream = channel.stream.as_ref().map(|stream| stream.data_until_us.min(stream.meta_until_us));
        let of_results = channel.results.as_ref().and_then(|results| results.next_us());
        let of_keys = channel.key_cache.as_ref().and_then(|cache| cache.next_us());
        let Some(due_us) = of_stream.into_iter().chain(of_results).chain(of_keys).min() else { return };
        let owner = Arc::clone(&channel.name);
        context.timers.schedule(&mut channel.scheduled, due_us, || TimerOwner::Channel(owner));
    }

    fn channel_is_due(&mut self, context: &mut Context, name: &str) {
        self.forget_old_keys(context, name);
        let Some(channel) = self.channels.named_mut(name) else { return };
        let is_logged = channel.log.is_some();
        let is_needed = channel.subscribers() > 0 || channel.log.as_ref().is_some_and(|log| !log.is_quiet());
        if let Some(results) = &mut channel.results {
            results.forget_old(context.now.mono_us);
            channel.results.take_if(|results| results.next_us().is_none());
        }
        if let Some(stream) = channel.stream.as_mut().filter(|stream| stream.data_until_us <= context.now.mono_us) {
            stream.clear();
            stream.data_until_us = u64::MAX;
            if stream.take_answers() {
                self.answers.forget(name);
            }
            let name = Arc::clone(&channel.name);
            self.expire_log(context, &name);
        }
        let Some(channel) = self.channels.named_mut(name) else { return };
        if let Some(stream) = channel.stream.as_mut().filter(|stream| stream.meta_until_us <= context.now.mono_us) {
            // A position that subscribers depend on does not expire.
            if is_needed {
                let remembered_ms = namespace_options(&context.options, channel.namespace).remembered_ms();
                stream.meta_until_us = context.now.after_ms(remembered_ms.max(1));
            } else if let Some(stream) = channel.stream.take() {
                let name = Arc::clone(&channel.name);
                self.forget_stream(context, &name, *stream, is_logged);
            }
        }
        self.review(context, name);
        self.schedule_channel(context, name);
    }
}
