//! Connections that are open and lead nowhere: their server is parted from the others. It answers pings, so the connection
//! does not notice. What was asked for and never came does: after a while, another server is tried.

use crate::{
    link::{LinkEffect, LinkName},
    planted::CoreBug,
};

use super::{Core, Turn};

/// Since when nothing of what was asked for has come, by connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    since_us: [Option<u64>; LinkName::ALL.len()],
}

impl Silence {
    /// Something has come.
    pub(super) const fn end(&mut self, link: LinkName) {
        self.since_us[link as usize] = None;
    }
}

impl Core {
    /// What was asked for on a connection has not come.
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
