//! Reads the rules about who may not connect.

use crate::{
    database::Database, entries::AccessEntry, error::StorageError, family::Family, keys, records::split_prefix,
};

const READ_RULES: &str = "read who may not connect";

/// See [`crate::Storage::access_entries`].
pub(crate) fn access_entries(database: &Database) -> Result<Vec<AccessEntry>, StorageError> {
    let (begin, now_ms) = (keys::access_keys(), database.clock.now_ms());
    let mut found = Vec::new();
    for entry in database.entries(Family::Idempotency, &begin, keys::behind(&begin)) {
        let (key, value) = entry?;
        let read = keys::read_access_key(&key).zip(split_prefix(&value));
        let ((kind, name), (expires_ms, bytes)) = read.ok_or_else(|| database.unreadable(READ_RULES))?;
        if expires_ms > now_ms {
            found.push(AccessEntry { kind, name: name.into(), expires_ms, bytes: bytes.into() });
        }
    }
    Ok(found)
}
