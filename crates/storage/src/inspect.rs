//! What operators read of a storage: check, sizes, entries and export.

use std::{
    io::{self, Write},
    sync::Arc,
};

use dunlin_engine::log::LogRecord;
use rocksdb::{Direction, IteratorMode, ReadOptions};

use crate::{
    database::Database,
    error::StorageError,
    family::Family,
    keys,
    options::StorageOptions,
    paths,
    records::{ChannelHead, StoredPublication, StoredResult, expiry_of},
    report::{FamilySize, LastRun, StorageReport},
    storage_clock::StorageClock,
};

/// Reads a storage as a whole, for operators.
#[derive(Debug)]
pub struct Inspection(Arc<Database>);

impl Inspection {
    /// Opens a storage that no process has open, such as one that cannot be opened for writing. Nothing in its directory
    /// is changed.
    ///
    /// # Errors
    /// See [`StorageFault`](crate::StorageFault). A clock that is ahead is no error.
    pub fn open(options: &StorageOptions) -> Result<Self, StorageError> {
        let clock = Arc::new(StorageClock::new(options.clock));
        Database::open_to_read(options, clock).map(Arc::new).map(Self)
    }

    pub(crate) const fn of(database: Arc<Database>) -> Self {
        Self(database)
    }

    /// How the last run ended.
    pub fn last_run(&self) -> LastRun {
        self.0.last_run
    }

    /// Reads everything, compares all checksums and decodes all records.
    ///
    /// # Errors
    /// The disk fails, or the checksum of a block is wrong.
    pub fn check(&self) -> Result<StorageReport, StorageError> {
        let Self(database) = self;
        let mut report = StorageReport::default();
        for family in Family::ALL {
            let mut options = ReadOptions::default();
            options.fill_cache(false);
            let entries = database.db.iterator_cf_opt(database.family(family), options, IteratorMode::Start);
            for entry in entries {
                let (key, value) = entry.map_err(|error| database.read_failed("check the storage", &error))?;
                let counter = match family {
                    _ if !is_readable(family, &key, &value) => &mut report.unreadable,
                    // They belong to the heads.
                    Family::Idempotency if keys::read_kept_bytes_key(&key).is_some() => continue,
                    Family::Idempotency if keys::read_access_key(&key).is_some() => &mut report.access_rules,
                    Family::Publications => &mut report.publications,
                    Family::Heads => &mut report.channels,
                    Family::Idempotency => &mut report.results,
                    Family::Paths => &mut report.blocks,
                    Family::Checkpoints => &mut report.checkpoints,
                };
                *counter += 1;
            }
        }
        Ok(report)
    }

    /// The sizes of the column families.
    pub fn sizes(&self) -> Vec<FamilySize> {
        let Self(database) = self;
        let size = |family: Family| {
            let get = |name: &str| {
                database.db.property_int_value_cf(database.family(family), name).ok().flatten().unwrap_or_default()
            };
            FamilySize {
                name: family.name(),
                entries: get("rocksdb.estimate-num-keys"),
                table_bytes: get("rocksdb.total-sst-files-size"),
                memtable_bytes: get("rocksdb.size-all-mem-tables"),
            }
        };
        Family::ALL.map(size).into()
    }

    /// Visits every entry of the storage, family by family and within one in the order of the channels: the name of its
    /// family, its channel, and its bytes. Expired entries that no compaction has removed yet are visited, too. The
    /// accounts of channels are not, which belong to their heads, nor rules about who may not connect.
    ///
    /// # Errors
    /// Stored bytes cannot be read.
    pub fn each_entry(&self, visit: &mut dyn FnMut(&'static str, &str, u64)) -> Result<(), StorageError> {
        const ACTION: &str = "list the channels of the storage";
        let Self(database) = self;
        for family in Family::ALL {
            let mut options = ReadOptions::default();
            options.fill_cache(false);
            let entries = database.db.iterator_cf_opt(database.family(family), options, IteratorMode::Start);
            for entry in entries {
                let (key, value) = entry.map_err(|error| database.read_failed(ACTION, &error))?;
                let (channel, _) = keys::read_channel(&key).ok_or_else(|| database.unreadable(ACTION))?;
                let is_of_no_channel = keys::read_access_key(&key).is_some();
                let is_account = keys::read_kept_bytes_key(&key).is_some();
                if family == Family::Idempotency && (is_of_no_channel || is_account) {
                    continue;
                }
                visit(family.name(), channel, (key.len() + value.len()) as u64);
            }
        }
        Ok(())
    }

    /// Writes the publications of one channel or of all channels, each as a line of JSON.
    ///
    /// # Errors
    /// Stored bytes cannot be read, or `output` cannot be written. In both cases the error's path is the storage's.
    pub fn export(&self, channel: Option<&str>, output: &mut dyn Write) -> Result<u64, StorageError> {
        const ACTION: &str = "export from the storage";
        let Self(database) = self;
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        let begin = channel.map_or_else(Vec::new, keys::channel_key);
        if channel.is_some() {
            options.set_iterate_upper_bound(keys::behind(&begin));
        }
        let family = database.family(Family::Publications);
        let entries = database.db.iterator_cf_opt(family, options, IteratorMode::From(&begin, Direction::Forward));
        let (now_ms, mut lines) = (database.clock.now_ms(), 0);
        let mut head: Option<(String, ChannelHead)> = None;
        for entry in entries {
            let (key, value) = entry.map_err(|error| database.read_failed(ACTION, &error))?;
            let (channel, offset) = keys::read_publication_key(&key).ok_or_else(|| database.unreadable(ACTION))?;
            if head.as_ref().is_none_or(|(known, _)| known != channel) {
                let of_channel = database.head(&keys::channel_key(channel))?;
                head = of_channel.map(|head| (channel.to_owned(), head));
            }
            let Some((_, head)) = &head else { continue };
            let stored = StoredPublication::decode(offset, &value).ok_or_else(|| database.unreadable(ACTION))?;
            if stored.expires_ms > now_ms && offset > head.floor {
                let line = json_line(channel, &head.epoch, &stored);
                output
                    .write_all(line.as_bytes())
                    .map_err(|error: io::Error| StorageError::io(ACTION, &database.path, &error))?;
                lines += 1;
            }
        }
        Ok(lines)
    }
}

fn is_readable(family: Family, key: &[u8], value: &[u8]) -> bool {
    match family {
        Family::Publications => keys::read_publication_key(key)
            .is_some_and(|(_, offset)| StoredPublication::decode(offset, value).is_some()),
        Family::Heads => {
            keys::read_channel(key).is_some_and(|(_, rest)| rest.is_empty()) && ChannelHead::decode(value).is_some()
        }
        Family::Idempotency if keys::read_access_key(key).is_some() => expiry_of(value).is_some(),
        Family::Idempotency => keys::read_channel(key).is_some() && StoredResult::decode(value).is_some(),
        Family::Paths => paths::is_readable(key, value),
        Family::Checkpoints => keys::read_checkpoint_key(key).is_some(),
    }
}

/// Decodes an entry of a column family, and encodes it again as key and value. `None` if the bytes are not an entry.
/// The fuzzer compares the result with the input.
pub fn encoded_again(family: &str, key: &[u8], value: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let family = Family::ALL.into_iter().find(|known| known.name() == family)?;
    if !is_readable(family, key, value) {
        return None;
    }
    Some(match family {
        Family::Publications => {
            let (channel, offset) = keys::read_publication_key(key)?;
            (keys::publication_key(channel, offset), StoredPublication::decode(offset, value)?.encode())
        }
        Family::Heads => (keys::channel_key(keys::read_channel(key)?.0), ChannelHead::decode(value)?.encode()),
        Family::Idempotency if keys::read_access_key(key).is_some() => {
            let (kind, name) = keys::read_access_key(key)?;
            (keys::access_key(kind, name), value.to_vec())
        }
        Family::Idempotency => {
            let (channel, rest) = keys::read_channel(key)?;
            let idempotency_key = std::str::from_utf8(rest).ok()?;
            (keys::result_key(channel, idempotency_key), StoredResult::decode(value)?.encode())
        }
        Family::Paths => {
            let (channel, owner, first_ms, player) = keys::read_block_key(key)?;
            (keys::block_key(channel, owner, first_ms, player), value.to_vec())
        }
        Family::Checkpoints => {
            let (channel, kind, tick) = keys::read_checkpoint_key(key)?;
            (keys::checkpoint_key(channel, kind, tick), value.to_vec())
        }
    })
}

/// Writes JSON as `data` and other bytes as `b64data`, as in the server API.
fn json_line(channel: &str, epoch: &str, stored: &StoredPublication) -> String {
    let LogRecord { publication, version_epoch, idempotency_key } = &stored.record;
    let mut line = serde_json::Map::new();
    line.insert("channel".to_owned(), channel.into());
    line.insert("offset".to_owned(), publication.offset.into());
    line.insert("epoch".to_owned(), epoch.into());
    line.insert("stored_ms".to_owned(), stored.written_ms.into());
    match serde_json::from_slice(publication.data.bytes()) {
        Ok(data) => line.insert("data".to_owned(), data),
        Err(_) => line.insert("b64data".to_owned(), base64(publication.data.bytes()).into()),
    };
    if !publication.tags.is_empty() {
        let tags = publication.tags.iter().map(|(name, value)| (name.to_string(), value.to_string().into()));
        line.insert("tags".to_owned(), serde_json::Value::Object(tags.collect()));
    }
    if let Some(info) = &publication.info {
        line.insert("user".to_owned(), (*info.user).into());
        line.insert("client".to_owned(), (*info.client).into());
    }
    if publication.version > 0 {
        line.insert("version".to_owned(), publication.version.into());
        line.insert("version_epoch".to_owned(), (**version_epoch).into());
    }
    if let Some(key) = idempotency_key {
        line.insert("idempotency_key".to_owned(), (**key).into());
    }
    let mut text = serde_json::Value::Object(line).to_string();
    text.push('\n');
    text
}

fn base64(bytes: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(bytes)
}
