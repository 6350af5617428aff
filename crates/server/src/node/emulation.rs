//! Commands from separate HTTP requests, for sessions whose transport carries data only from the server.

use dunlin_net::Reactor;

use super::{Emulated, shard_thread::ShardThread};

impl<R: Reactor> ShardThread<R> {
    /// Passes `commands` to the session with this secret id. If the session is paused, they are queued in order.
    pub(super) fn emulate(&mut self, secret: &str, commands: Vec<u8>) -> Emulated {
        let Some(key) = self.engine.find_session(secret) else { return Emulated::Unknown };
        let Some(session) = self.connections.session_mut(key).filter(|session| session.wire.is_emulated()) else {
            return Emulated::Unknown;
        };
        if !session.paused && session.mail.is_none() {
            self.engine.feed_message(session, key, &commands);
            return Emulated::Taken;
        }
        let mail = session.mail.get_or_insert_default();
        let waiting: usize = mail.iter().map(Vec::len).sum();
        if waiting + commands.len() > self.shared.net.mail_bytes_max || mail.len() >= MAIL_MAX {
            return Emulated::Busy;
        }
        mail.push_back(commands);
        Emulated::Taken
    }
}

/// Maximum number of queued requests per session.
const MAIL_MAX: usize = 256;
