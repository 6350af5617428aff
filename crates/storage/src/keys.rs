//! The keys of all column families.
//!
//! | column family | key |
//! |---|---|
//! | `publications` | channel, offset (8 bytes) |
//! | `heads` | channel |
//! | `idempotency` | channel, bytes of the idempotency key |
//! | | channel, 0xff: the bytes of its publications (`kept_bytes.rs`) |
//! | | an empty channel, kind (1 byte), id of a user or token: a rule about who may not connect |
//! | `paths` | channel, owner (2 bytes of length, then its bytes), Unix time of the first point (8 bytes), player (4 bytes) |
//! | `checkpoints` | channel, kind (1 byte), tick (8 bytes) |
//!
//! *channel* is 2 bytes of length, then the bytes of the name. Numbers are big-endian. So the keys of one channel are
//! adjacent, no channel's keys begin with those of another one, and within a channel they are ordered by number. The
//! version of this layout is the storage's ([`crate::FORMAT_VERSION`]).

/// Maximum length of a length-prefixed part of a key.
const PART_BYTES_MAX: usize = u16::MAX as usize;

const KEPT_BYTES_PART: u8 = 0xff;

/// The beginning of all keys of a channel.
pub(crate) fn channel_key(channel: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(channel.len() + 16);
    push_part(&mut key, channel.as_bytes());
    key
}

/// The first key after all keys that begin with `prefix`. The prefix contains a byte other than 0xff, because a length
/// of 65,535 is refused earlier.
pub(crate) fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            break;
        }
    }
    end
}

/// The key of a publication.
pub(crate) fn publication_key(channel: &str, offset: u64) -> Vec<u8> {
    let mut key = channel_key(channel);
    key.extend_from_slice(&offset.to_be_bytes());
    key
}

/// Channel and offset of a publication's key.
pub(crate) fn read_publication_key(key: &[u8]) -> Option<(&str, u64)> {
    let (channel, rest) = read_channel(key)?;
    Some((channel, u64::from_be_bytes(rest.try_into().ok()?)))
}

/// The channel that a key begins with, and the rest of the key.
pub(crate) fn read_channel(key: &[u8]) -> Option<(&str, &[u8])> {
    let (channel, rest) = read_part(key)?;
    Some((std::str::from_utf8(channel).ok()?, rest))
}

/// The key of the result of an idempotency key.
pub(crate) fn result_key(channel: &str, idempotency_key: &str) -> Vec<u8> {
    let mut key = channel_key(channel);
    key.extend_from_slice(idempotency_key.as_bytes());
    key
}

/// The key of the bytes of a channel's publications. An idempotency key is a text, and so contains no byte 0xff.
pub(crate) fn kept_bytes_key(channel: &str) -> Vec<u8> {
    let mut key = channel_key(channel);
    key.push(KEPT_BYTES_PART);
    key
}

/// The channel of such a key.
pub(crate) fn read_kept_bytes_key(key: &[u8]) -> Option<&str> {
    let (channel, rest) = read_channel(key)?;
    (rest == [KEPT_BYTES_PART]).then_some(channel)
}

/// The beginning of the keys of one owner's blocks.
pub(crate) fn path_key(channel: &str, owner: &str) -> Vec<u8> {
    let mut key = channel_key(channel);
    push_part(&mut key, owner.as_bytes());
    key
}

/// The key of a block of a path.
pub(crate) fn block_key(channel: &str, owner: &str, first_ms: u64, player: u32) -> Vec<u8> {
    let mut key = path_key(channel, owner);
    key.extend_from_slice(&first_ms.to_be_bytes());
    key.extend_from_slice(&player.to_be_bytes());
    key
}

/// Channel, owner, time of the first point and player of a block's key.
pub(crate) fn read_block_key(key: &[u8]) -> Option<(&str, &str, u64, u32)> {
    let (channel, rest) = read_channel(key)?;
    let (owner, rest) = read_part(rest)?;
    let (first_ms, player) = rest.split_first_chunk()?;
    let owner = std::str::from_utf8(owner).ok()?;
    Some((channel, owner, u64::from_be_bytes(*first_ms), u32::from_be_bytes(player.try_into().ok()?)))
}

/// The beginning of the keys of a room's checkpoints of one kind.
pub(crate) fn checkpoint_kind_key(channel: &str, kind: u8) -> Vec<u8> {
    let mut key = channel_key(channel);
    key.push(kind);
    key
}

/// The key of a room's checkpoint.
pub(crate) fn checkpoint_key(channel: &str, kind: u8, tick: u64) -> Vec<u8> {
    let mut key = checkpoint_kind_key(channel, kind);
    key.extend_from_slice(&tick.to_be_bytes());
    key
}

/// The beginning of the keys of rules about who may not connect. No channel has an empty name.
pub(crate) fn access_keys() -> Vec<u8> {
    channel_key("")
}

/// The key of a rule about a user or a token.
pub(crate) fn access_key(kind: u8, name: &str) -> Vec<u8> {
    let mut key = access_keys();
    key.push(kind);
    key.extend_from_slice(name.as_bytes());
    key
}

/// Kind and name of a rule's key.
pub(crate) fn read_access_key(key: &[u8]) -> Option<(u8, &str)> {
    let ("", rest) = read_channel(key)? else { return None };
    let (kind, name) = rest.split_first()?;
    Some((*kind, std::str::from_utf8(name).ok()?))
}

/// Channel, kind and tick of a checkpoint's key.
pub(crate) fn read_checkpoint_key(key: &[u8]) -> Option<(&str, u8, u64)> {
    let (channel, rest) = read_channel(key)?;
    let (kind, tick) = rest.split_first()?;
    Some((channel, *kind, u64::from_be_bytes(tick.try_into().ok()?)))
}

/// Whether a name fits in a key.
pub(crate) fn fits(name: &str) -> bool {
    name.len() < PART_BYTES_MAX
}

fn push_part(key: &mut Vec<u8>, part: &[u8]) {
    // Callers refuse longer parts. A longer part would be truncated instead of causing a panic.
    let part = &part[..part.len().min(PART_BYTES_MAX - 1)];
    key.extend_from_slice(&(part.len() as u16).to_be_bytes());
    key.extend_from_slice(part);
}

fn read_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_round_trip(channel in ".{0,40}", player in ".{0,40}", number: u64, kind: u8) {
            let key = publication_key(&channel, number);
            prop_assert_eq!(read_publication_key(&key), Some((&*channel, number)));
            let (key, of_result) = (kept_bytes_key(&channel), result_key(&channel, &player));
            prop_assert_eq!((read_kept_bytes_key(&key), read_kept_bytes_key(&of_result)), (Some(&*channel), None));
            let key = block_key(&channel, &player, number, number as u32);
            prop_assert_eq!(read_block_key(&key), Some((&*channel, &*player, number, number as u32)));
            let key = checkpoint_key(&channel, kind, number);
            prop_assert_eq!(read_checkpoint_key(&key), Some((&*channel, kind, number)));
            let key = access_key(kind, &channel);
            prop_assert_eq!(read_access_key(&key), Some((kind, &*channel)));
        }

        #[test]
        fn keys_are_ordered_by_channel_and_offset(one in ".{0,6}", other in ".{0,6}", low: u64, high: u64) {
            let of = |channel: &str, offset| ((channel.len(), channel.to_owned()), offset);
            let by_key = publication_key(&one, low).cmp(&publication_key(&other, high));
            prop_assert_eq!(by_key, of(&one, low).cmp(&of(&other, high)));
        }

        #[test]
        fn the_key_range_of_a_channel_has_its_keys_alone(one in ".{0,6}", other in ".{0,6}", offset: u64) {
            let (begin, end) = (channel_key(&one), behind(&channel_key(&one)));
            let key = publication_key(&other, offset);
            prop_assert_eq!(begin <= key && key < end, one == other);
        }

        #[test]
        fn arbitrary_bytes_are_no_panic(bytes: Vec<u8>) {
            let _ = (read_publication_key(&bytes), read_block_key(&bytes), read_checkpoint_key(&bytes), read_access_key(&bytes));
            let _ = behind(&bytes);
        }
    }
}
