//! The values of the column families that channels use.
//!
//! Each value begins with its version, 1, and the time at which it expires: Unix time in milliseconds, 8 bytes,
//! `u64::MAX` for never. Compactions read only this prefix. The rest depends on the family; *number* is a LEB128
//! varint, and *text* is a number of bytes and the bytes:
//!
//! - a publication (`publications`): flags (2 bytes); number: time of the write; number: distance to the offset of the
//!   previous publication in the channel, or to 0; depending on the flags: number: its time (zigzag); number and text:
//!   version, epoch of versions; text: idempotency key; number: count, then this number of names and values: tags;
//!   text, text: user and session, then depending on the flags text and text: connection info, channel info; text:
//!   epoch; the rest is its data;
//! - a channel's head (`heads`): flags (1 byte); numbers: era of power losses, era of damages, top, floor, offset up to
//!   which publications are deleted, time of the last activity, version; texts: epoch of versions, epoch;
//! - an idempotency key's result (`idempotency`): number: offset; text: epoch.
//!
//! Decoding returns `None` for other bytes. Values of a later version are decoded by a separate function.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_engine::log::LogRecord;
use dunlin_protocol::{ClientInfo, Payload, Publication, Tags};

/// This version must not change, because later releases read values that earlier ones have written.
const VERSION: u8 = 1;

/// Version and time of expiry.
const PREFIX_BYTES: usize = 9;

/// Flags of a publication.
mod flag {
    pub(super) const DATA_IS_JSON: u16 = 1;
    pub(super) const TIME: u16 = 1 << 1;
    pub(super) const VERSION: u16 = 1 << 2;
    pub(super) const IDEMPOTENCY_KEY: u16 = 1 << 3;
    pub(super) const TAGS: u16 = 1 << 4;
    pub(super) const INFO: u16 = 1 << 5;
    pub(super) const CONN_INFO: u16 = 1 << 6;
    pub(super) const CONN_INFO_IS_JSON: u16 = 1 << 7;
    pub(super) const CHAN_INFO: u16 = 1 << 8;
    pub(super) const CHAN_INFO_IS_JSON: u16 = 1 << 9;
    pub(super) const EPOCH: u16 = 1 << 10;
}

/// A publication with the storage's data about it.
#[derive(Clone, Debug)]
pub(crate) struct StoredPublication {
    pub(crate) expires_ms: u64,
    pub(crate) written_ms: u64,
    /// The offset of the previous publication; 0 if there was none.
    pub(crate) previous: u64,
    pub(crate) record: LogRecord,
}

/// The stored state of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChannelHead {
    pub(crate) expires_ms: u64,
    /// Whether everything up to the last write was synced.
    pub(crate) is_synced: bool,
    /// The power era and the damage era of the storage when the epoch began or was last found to be valid.
    pub(crate) power_era: u32,
    pub(crate) damage_era: u32,
    /// The highest offset of the epoch.
    pub(crate) top: u64,
    /// Publications up to this offset are not kept.
    pub(crate) floor: u64,
    /// Publications up to this offset are deleted. Deletions lag behind the floor, so that one deletion covers many
    /// publications.
    pub(crate) deleted_through: u64,
    pub(crate) activity_ms: u64,
    /// The version of the newest publication.
    pub(crate) version: u64,
    pub(crate) version_epoch: Box<str>,
    pub(crate) epoch: Box<str>,
}

/// The result of a publication with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredResult {
    pub(crate) expires_ms: u64,
    pub(crate) offset: u64,
    pub(crate) epoch: Box<str>,
}

/// The expiry of any value; `None` if the bytes are not a value.
pub(crate) fn expiry_of(value: &[u8]) -> Option<u64> {
    let (_, rest) = value.split_first()?;
    Some(u64::from_be_bytes(*rest.first_chunk()?))
}

impl StoredPublication {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let LogRecord { publication, version_epoch, idempotency_key } = &self.record;
        let data = publication.data.bytes();
        let mut bytes = begin(self.expires_ms, data.len() + 64);
        bytes.extend_from_slice(&self.flags().to_be_bytes());
        push_number(&mut bytes, self.written_ms);
        push_number(&mut bytes, publication.offset.saturating_sub(self.previous));
        if publication.time_ms != 0 {
            push_number(&mut bytes, zigzag(publication.time_ms));
        }
        if publication.version > 0 || !version_epoch.is_empty() {
            push_number(&mut bytes, publication.version);
            push_text(&mut bytes, version_epoch.as_bytes());
        }
        if let Some(key) = idempotency_key {
            push_text(&mut bytes, key.as_bytes());
        }
        if !publication.tags.is_empty() {
            push_number(&mut bytes, publication.tags.len() as u64);
            for (name, value) in &publication.tags {
                push_text(&mut bytes, name.as_bytes());
                push_text(&mut bytes, value.as_bytes());
            }
        }
        if let Some(info) = &publication.info {
            push_text(&mut bytes, info.user.as_bytes());
            push_text(&mut bytes, info.client.as_bytes());
            for payload in [&info.conn_info, &info.chan_info].into_iter().flatten() {
                push_text(&mut bytes, payload.bytes());
            }
        }
        if !publication.epoch.is_empty() {
            push_text(&mut bytes, publication.epoch.as_bytes());
        }
        bytes.extend_from_slice(data);
        bytes
    }

    fn flags(&self) -> u16 {
        let LogRecord { publication, version_epoch, idempotency_key } = &self.record;
        let info = publication.info.as_deref();
        let (conn_info, chan_info) =
            info.map_or((None, None), |info| (info.conn_info.as_ref(), info.chan_info.as_ref()));
        [
            (publication.data.is_known_json(), flag::DATA_IS_JSON),
            (publication.time_ms != 0, flag::TIME),
            (publication.version > 0 || !version_epoch.is_empty(), flag::VERSION),
            (idempotency_key.is_some(), flag::IDEMPOTENCY_KEY),
            (!publication.tags.is_empty(), flag::TAGS),
            (info.is_some(), flag::INFO),
            (conn_info.is_some(), flag::CONN_INFO),
            (conn_info.is_some_and(Payload::is_known_json), flag::CONN_INFO_IS_JSON),
            (chan_info.is_some(), flag::CHAN_INFO),
            (chan_info.is_some_and(Payload::is_known_json), flag::CHAN_INFO_IS_JSON),
            (!publication.epoch.is_empty(), flag::EPOCH),
        ]
        .into_iter()
        .filter(|(is_set, _)| *is_set)
        .fold(0, |flags, (_, bit)| flags | bit)
    }

    /// Decodes the publication with this offset.
    pub(crate) fn decode(offset: u64, bytes: &[u8]) -> Option<Self> {
        let (expires_ms, mut rest) = split_prefix(bytes)?;
        let flags = u16::from_be_bytes(*take_chunk(&mut rest)?);
        let has = |bit: u16| flags & bit != 0;
        let written_ms = take_number(&mut rest)?;
        let previous = offset.checked_sub(take_number(&mut rest)?)?;
        let time_ms = if has(flag::TIME) { unzigzag(take_number(&mut rest)?) } else { 0 };
        let (mut version, mut version_epoch) = (0, Box::default());
        if has(flag::VERSION) {
            version = take_number(&mut rest)?;
            version_epoch = take_str(&mut rest)?.into();
        }
        let idempotency_key = if has(flag::IDEMPOTENCY_KEY) { Some(take_str(&mut rest)?.into()) } else { None };
        let tags = if has(flag::TAGS) { take_tags(&mut rest)? } else { Tags::new() };
        let info = if has(flag::INFO) { Some(Arc::new(take_info(&mut rest, flags)?)) } else { None };
        let epoch = if has(flag::EPOCH) { take_str(&mut rest)?.into() } else { Box::default() };
        let data = payload(rest, has(flag::DATA_IS_JSON));
        let publication = Arc::new(Publication { data, info, offset, tags, time_ms, epoch, version });
        let record = LogRecord { publication, version_epoch, idempotency_key };
        Some(Self { expires_ms, written_ms, previous, record })
    }
}

impl ChannelHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = begin(self.expires_ms, 64);
        bytes.push(u8::from(self.is_synced));
        for number in [
            u64::from(self.power_era),
            u64::from(self.damage_era),
            self.top,
            self.floor,
            self.deleted_through,
            self.activity_ms,
            self.version,
        ] {
            push_number(&mut bytes, number);
        }
        push_text(&mut bytes, self.version_epoch.as_bytes());
        push_text(&mut bytes, self.epoch.as_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (expires_ms, mut rest) = split_prefix(bytes)?;
        let [flags] = *take_chunk(&mut rest)?;
        let mut number = || take_number(&mut rest);
        let (power_era, damage_era) = (u32::try_from(number()?).ok()?, u32::try_from(number()?).ok()?);
        let (top, floor, deleted_through) = (number()?, number()?, number()?);
        let (activity_ms, version) = (number()?, number()?);
        let (version_epoch, epoch) = (take_str(&mut rest)?.into(), take_str(&mut rest)?.into());
        let is_synced = flags & 1 != 0;
        let head = Self {
            expires_ms,
            is_synced,
            power_era,
            damage_era,
            top,
            floor,
            deleted_through,
            activity_ms,
            version,
            version_epoch,
            epoch,
        };
        (rest.is_empty() && head.deleted_through <= head.floor && head.floor <= head.top).then_some(head)
    }
}

impl StoredResult {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = begin(self.expires_ms, 16 + self.epoch.len());
        push_number(&mut bytes, self.offset);
        push_text(&mut bytes, self.epoch.as_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (expires_ms, mut rest) = split_prefix(bytes)?;
        let result = Self { expires_ms, offset: take_number(&mut rest)?, epoch: take_str(&mut rest)?.into() };
        rest.is_empty().then_some(result)
    }
}

pub(crate) fn begin(expires_ms: u64, rest_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + rest_bytes);
    bytes.push(VERSION);
    bytes.extend_from_slice(&expires_ms.to_be_bytes());
    bytes
}

pub(crate) fn split_prefix(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (prefix, rest) = bytes.split_at_checked(PREFIX_BYTES)?;
    (prefix[0] == VERSION).then(|| expiry_of(prefix).map(|expires_ms| (expires_ms, rest)))?
}

fn payload(bytes: &[u8], is_json: bool) -> Payload {
    let bytes = Bytes::copy_from_slice(bytes);
    if is_json { Payload::from_json(bytes) } else { Payload::from_opaque(bytes) }
}

fn take_tags(rest: &mut &[u8]) -> Option<Tags> {
    let count = take_number(rest)?;
    // Each tag takes at least two bytes, so a larger count is invalid and reserves no memory.
    if count > rest.len() as u64 / 2 {
        return None;
    }
    (0..count).map(|_| Some((take_str(rest)?.into(), take_str(rest)?.into()))).collect()
}

fn take_info(rest: &mut &[u8], flags: u16) -> Option<ClientInfo> {
    let has = |bit: u16| flags & bit != 0;
    let (user, client) = (take_str(rest)?.into(), take_str(rest)?.into());
    let mut take_payload = |is_there: bool, is_json: bool| {
        if is_there { take_text(rest).map(|bytes| Some(payload(bytes, is_json))) } else { Some(None) }
    };
    let conn_info = take_payload(has(flag::CONN_INFO), has(flag::CONN_INFO_IS_JSON))?;
    let chan_info = take_payload(has(flag::CHAN_INFO), has(flag::CHAN_INFO_IS_JSON))?;
    Some(ClientInfo { user, client, conn_info, chan_info })
}

fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = *take_chunk(rest)?;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has space for one bit.
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn push_text(bytes: &mut Vec<u8>, text: &[u8]) {
    push_number(bytes, text.len() as u64);
    bytes.extend_from_slice(text);
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(rest)?).ok()?;
    let (text, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(text)
}

fn take_str<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take_text(rest)?).ok()
}

fn take_chunk<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (chunk, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(chunk)
}

const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

const fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

#[cfg(test)]
mod tests;
