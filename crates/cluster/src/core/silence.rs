//! Connections that are open but broken: their server is cut off from the others by a network partition. It answers
//! pings, so the client library does not notice. Missing answers reveal it: after a while, another server is tried.

use crate::{
    link::{LinkEffect, LinkName},
    planted::CoreBug,
};

use super::{Core, Turn};

/// Since when requests have had no answers, by connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    since_us: [Option<u64>; LinkName::ALL.len()],
}

impl Silence {
    /// An answer has arrived.
    pub(super) const fn end(&mut self, link: LinkName) {
        self.since_us[link as usize] = None;
    }
}

impl Core {
    /// A request on a connection has had no answer.
    pub(super) fn on_silence(&mut self, turn: &mut Turn<'_>, link: LinkName) {
        let since_us = *self.silence.since_us[link as usize].get_or_insert(turn.now.mono_us);
        let is_long = turn.now.mono_us >= since_us + self.options.limits.silence_timeout_ms * 1_000;
        if is_long && !self.planted.is(CoreBug::SilenceBorne) {
            self.silence.end(link);
            self.counters.silences += 1;
            turn.link(LinkEffect::Reconnect { link });
        }
    }
}

#[cfg(test)]
mod tests;
