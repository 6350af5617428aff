//! The body of the fuzz target `storage`.

use dunlin_storage::encoded_again;

/// Bytes from a disk, as an entry of each column family. The first byte is the length of the key.
pub fn storage(data: &[u8]) {
    let Some((length, rest)) = data.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(*length).min(rest.len()));
    for family in ["publications", "heads", "idempotency", "paths", "checkpoints"] {
        let Some((key_again, value_again)) = encoded_again(family, key, value) else { continue };
        assert_eq!(key_again, key, "{family}: a key has one form");
        // A number may be longer than it has to be.
        assert!(value_again.len() <= value.len(), "{family}");
        let twice = encoded_again(family, &key_again, &value_again);
        assert_eq!(twice, Some((key_again, value_again)), "{family}: what is written is read as the same");
    }
}
