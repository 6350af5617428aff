//! Secret session ids, which only the session's own client receives. An id names the session's position, so that a
//! command on another connection finds it, and has 128 random bits, so that it cannot be guessed. In a cluster, a tag
//! follows ([`crate::session_tag`]).

use rand_chacha::rand_core::RngCore;

use crate::{SessionKey, ShardIndex};

use super::{Context, Sessions};

impl Sessions {
    /// The session with this secret id, if it belongs to this shard and is open.
    pub(in crate::shard) fn find_session(&self, context: &Context, secret: &str) -> Option<SessionKey> {
        let (shard, key) = read_place(secret)?;
        let session = self.table.get(key).filter(|session| session.is_authenticated())?;
        let known = &session.extra.as_ref()?.secret;
        // Compares all bytes, so that the duration does not reveal how many match.
        let is_same = known.len() == secret.len()
            && known.bytes().zip(secret.bytes()).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0;
        (shard == context.identity.index && is_same).then_some(key)
    }
}
impl Context {
    /// A new id for the session.
    pub(super) fn new_secret(&mut self, key: SessionKey) -> Box<str> {
        let (high, low) = (self.random.next_u64(), self.random.next_u64());
        let SessionKey { index, generation } = key;
        let id = format!("{:x}-{index:x}-{generation:x}-{high:016x}{low:016x}", self.identity.index.0);
        self.options.session_tag_key.as_ref().map_or_else(|| id.clone(), |key| key.tagged(&id)).into()
    }
}

/// The shard of the session with this secret id; `None` if it is not a valid id.
pub fn shard_of_session(secret: &str) -> Option<ShardIndex> {
    read_place(secret).map(|(shard, _)| shard)
}

fn read_place(secret: &str) -> Option<(ShardIndex, SessionKey)> {
    let mut parts = secret.split('-');
    let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
    let (shard, index, generation) = (number()?, number()?, number()?);
    Some((ShardIndex(u16::try_from(shard).ok()?), SessionKey { index, generation }))
}
