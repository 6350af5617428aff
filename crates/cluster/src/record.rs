//! Publications as messages of NATS: the data is the body, everything else is a header.
//!
//! | header | value |
//! |---|---|
//! | `Dn-Json` | `1` if the data is known to be JSON |
//! | `Dn-Bytes` | the length of the data |
//! | `Dn-User`, `Dn-Client` | who published, if a session did |
//! | `Dn-Conn-Info`, `Dn-Chan-Info` | the session's infos: `j` for JSON or `b`, and the bytes |
//! | `Dn-Tag` | a tag: name, `=`, value; once for each |
//! | `Dn-Version`, `Dn-Version-Epoch` | the version of the data |
//! | `Dn-Op` | `purge`: not a publication, but the end of those before it; of a broadcast also `join` and `leave` |
//! | `Dn-Follows` | the messages of the channel that come before, if nothing else names them: sequences, a space, the epoch |
//! | `Dn-Node`, `Dn-Number` | of a broadcast: the node that sent it, and its number among the broadcasts of that node |
//!
//! Values are escaped: bytes outside printable ASCII, the percent sign, and `=` in the names of tags are `%XX`.

use std::{fmt::Write as _, sync::Arc};

use bytes::Bytes;
use dunlin_engine::{broadcast::BroadcastMessage, log::LogRecord};
use dunlin_protocol::{ClientInfo, Payload, Publication};

use crate::link::{MessageHeaders, StoredMessage};

/// The header by which a stream drops duplicates.
pub const MESSAGE_ID: &str = "Nats-Msg-Id";
/// The header with the expected sequence of the subject's newest message.
pub const EXPECTED_LAST: &str = "Nats-Expected-Last-Subject-Sequence";
/// The header that deletes all earlier messages; with the value `sub`, only those of the same subject.
pub const ROLLUP: &str = "Nats-Rollup";
/// The header with the length of the data in bytes.
pub const BYTES: &str = "Dn-Bytes";
/// The header with the predecessors of a message: their sequences, and after a space the epoch.
pub const FOLLOWS: &str = "Dn-Follows";
/// The header with the number of a node's fence.
pub const FENCE: &str = "Dn-Fence";
/// The header with the number of a stream's epoch, from 1.
pub const GENERATION: &str = "Dn-Generation";
/// The header with the time at which the record of an epoch was first stored, in milliseconds since 1970, if it was stored again since.
pub const SINCE: &str = "Dn-Since";
/// The header with the epoch.
pub const EPOCH: &str = "Dn-Epoch";
/// The header with the kind of a message that is not a publication.
pub const OPERATION: &str = "Dn-Op";
/// The kind of a message that purges a channel's history.
pub const PURGE: &str = "purge";

/// The kinds of broadcasts that are not publications.
const JOIN: &str = "join";
const LEAVE: &str = "leave";
/// The header with the node that sent a broadcast.
pub const NODE: &str = "Dn-Node";
/// The header with the number of a broadcast, which rises from the start of its node on.
pub const NUMBER: &str = "Dn-Number";

/// The headers and the body of a publication that a stream stores.
pub fn encode(record: &LogRecord) -> (MessageHeaders, Bytes) {
    let publication = &record.publication;
    let mut headers = headers_of(publication);
    headers.push(BYTES, publication.data.bytes().len().to_string());
    if publication.version > 0 && !record.version_epoch.is_empty() {
        headers.push("Dn-Version-Epoch", escape(record.version_epoch.as_bytes()));
    }
    (headers, publication.data.bytes().clone())
}

/// The headers and the body of a broadcast, without [`NODE`] and [`NUMBER`].
pub fn encode_broadcast(message: &BroadcastMessage) -> (MessageHeaders, Bytes) {
    let (kind, info) = match message {
        BroadcastMessage::Publication(publication) => {
            return (headers_of(publication), publication.data.bytes().clone());
        }
        BroadcastMessage::Join(info) => (JOIN, info),
        BroadcastMessage::Leave(info) => (LEAVE, info),
    };
    let mut headers = MessageHeaders::new().with(OPERATION, kind);
    push_info(&mut headers, info);
    (headers, Bytes::new())
}

/// Decodes a broadcast; `None` if Dunlin did not send it.
pub fn decode_broadcast(headers: &MessageHeaders, payload: &Bytes) -> Option<BroadcastMessage> {
    Some(match headers.get(OPERATION) {
        None => BroadcastMessage::Publication(Arc::new(publication_of(headers, payload, 0))),
        Some(JOIN) => BroadcastMessage::Join(info_of(headers)?),
        Some(LEAVE) => BroadcastMessage::Leave(info_of(headers)?),
        Some(_) => return None,
    })
}

/// The headers of a publication: everything except its data.
fn headers_of(publication: &Publication) -> MessageHeaders {
    let mut headers = MessageHeaders::new();
    if publication.data.is_known_json() {
        headers.push("Dn-Json", "1");
    }
    if let Some(info) = publication.info.as_deref() {
        push_info(&mut headers, info);
    }
    for (name, value) in &publication.tags {
        let name = escape(name.as_bytes()).replace('=', "%3D");
        headers.push("Dn-Tag", format!("{name}={}", escape(value.as_bytes())));
    }
    if publication.version > 0 {
        headers.push("Dn-Version", publication.version.to_string());
    }
    headers
}

fn push_info(headers: &mut MessageHeaders, info: &ClientInfo) {
    headers.push("Dn-User", escape(info.user.as_bytes()));
    headers.push("Dn-Client", escape(info.client.as_bytes()));
    for (name, payload) in [("Dn-Conn-Info", &info.conn_info), ("Dn-Chan-Info", &info.chan_info)] {
        if let Some(payload) = payload {
            let form = if payload.is_known_json() { 'j' } else { 'b' };
            headers.push(name, format!("{form}{}", escape(payload.bytes())));
        }
    }
}

fn info_of(headers: &MessageHeaders) -> Option<Arc<ClientInfo>> {
    let text = |name: &str| headers.get(name).and_then(unescape_text);
    let payload = |name: &str| {
        let value = headers.get(name)?;
        let (form, escaped) = value.split_at_checked(1)?;
        let bytes = Bytes::from(unescape(escaped)?);
        Some(payload_of(bytes, form == "j"))
    };
    let client = text("Dn-Client")?;
    Some(Arc::new(ClientInfo {
        user: text("Dn-User").unwrap_or_default().into(),
        client: client.into(),
        conn_info: payload("Dn-Conn-Info"),
        chan_info: payload("Dn-Chan-Info"),
    }))
}

/// The publication of a stored message, with its sequence as the offset. Invalid headers are ignored. That is safe,
/// because any client that may write to the stream may publish.
pub fn decode(message: &StoredMessage) -> LogRecord {
    let headers = &message.headers;
    LogRecord {
        publication: Arc::new(publication_of(headers, &message.payload, message.sequence)),
        version_epoch: headers.get("Dn-Version-Epoch").and_then(unescape_text).unwrap_or_default().into(),
        idempotency_key: None,
    }
}

/// Whether the data of a stored message is not as long as its publisher said. NATS keeps the length of the headers
/// beside its checksum, which is that of headers and data in one piece: with a flipped bit in that length, a server
/// gives the end of the headers as data, or the reverse. Earlier releases do not say the length.
pub fn is_damaged(message: &StoredMessage) -> bool {
    message.headers.get(BYTES).is_some_and(|bytes| bytes.parse() != Ok(message.payload.len()))
}

fn publication_of(headers: &MessageHeaders, payload: &Bytes, offset: u64) -> Publication {
    let tags = headers.iter().filter(|(name, _)| *name == "Dn-Tag").filter_map(|(_, tag)| {
        let (name, value) = tag.split_once('=')?;
        Some((unescape_text(name)?.into(), unescape_text(value)?.into()))
    });
    Publication {
        // The body is a slice of the receive buffer, which would otherwise stay in memory.
        data: payload_of(Bytes::copy_from_slice(payload), headers.get("Dn-Json").is_some()),
        info: info_of(headers),
        offset,
        tags: tags.collect(),
        time_ms: 0,
        epoch: Box::default(),
        version: headers.number("Dn-Version").unwrap_or(0),
    }
}

/// The sequence up to which a purge ends the history; `None` for any other message.
pub fn purged_through(message: &StoredMessage) -> Option<u64> {
    let is_purge = message.headers.get(OPERATION) == Some(PURGE);
    is_purge.then(|| message.headers.number(EXPECTED_LAST).unwrap_or(message.sequence).min(message.sequence))
}

/// Converts a message on a live subject to the stored message; `None` if the stream's headers are missing.
pub fn republished(headers: MessageHeaders, payload: Bytes) -> Option<StoredMessage> {
    let message = StoredMessage {
        subject: headers.get("Nats-Subject")?.into(),
        sequence: headers.number("Nats-Sequence").filter(|sequence| *sequence > 0)?,
        last_sequence: headers.number("Nats-Last-Sequence")?,
        time_ms: headers.get("Nats-Time-Stamp").and_then(unix_ms).unwrap_or(0),
        headers,
        payload,
    };
    Some(message)
}

/// Milliseconds since 1970 of a NATS timestamp: `2026-11-23T04:31:37.123456789Z`.
pub fn unix_ms(time: &str) -> Option<u64> {
    let (date, rest) = time.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let mut clock = clock.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let is_date = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    let ms: u64 = digits.parse().ok()?;
    // Days of the civil calendar. Years begin in March, so that leap days are at their end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000 + ms)
}

/// The flag is only a hint that must be checked: sessions are sent known JSON as it is, and other clients may write to
/// the stream as well.
fn payload_of(bytes: Bytes, is_flagged_json: bool) -> Payload {
    if is_flagged_json && serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok() {
        Payload::from_json(bytes)
    } else {
        Payload::from_opaque(bytes)
    }
}

/// Encodes any bytes as text for a header.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        // White space at the ends of a header would be lost.
        if (b'!'..0x7f).contains(&byte) && byte != b'%' {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("a string takes all text");
        }
    }
    text
}

pub(crate) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        rest = behind;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
    }
    Some(bytes)
}

fn unescape_text(text: &str) -> Option<String> {
    String::from_utf8(unescape(text)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(record: &LogRecord) -> StoredMessage {
        let (headers, payload) = encode(record);
        StoredMessage { subject: "s".into(), sequence: 7, last_sequence: 0, time_ms: 0, headers, payload }
    }

    #[test]
    fn publications_round_trip_with_all_fields() {
        let info = ClientInfo {
            user: "u=%\n".into(),
            client: "c".into(),
            conn_info: Some(Payload::from_json(Bytes::from_static(b"{\n\"name\": \"\xc3\xa9\"}"))),
            chan_info: Some(Payload::from_opaque(Bytes::from_static(&[0, 1, 255, b'%']))),
        };
        let publication = Publication {
            data: Payload::from_json(Bytes::from_static(b"{}")),
            info: Some(Arc::new(info)),
            offset: 0,
            tags: vec![("a=b".into(), "c=d é".into()), ("x".into(), "".into())],
            time_ms: 0,
            epoch: Box::default(),
            version: 12,
        };
        let record =
            LogRecord { publication: Arc::new(publication), version_epoch: "e 1".into(), idempotency_key: None };
        let read = decode(&stored(&record));
        let expected = Publication { offset: 7, ..(*record.publication).clone() };
        assert_eq!(*read.publication, expected);
        assert_eq!((read.publication.version, &*read.version_epoch), (12, "e 1"));
    }

    #[test]
    fn data_of_another_length_is_damaged() {
        let publication = Publication {
            data: Payload::from_json(Bytes::from_static(b"{\"a\":1}")),
            info: None,
            offset: 0,
            tags: Vec::new(),
            time_ms: 0,
            epoch: Box::default(),
            version: 0,
        };
        let record =
            LogRecord { publication: Arc::new(publication), version_epoch: Box::default(), idempotency_key: None };
        let intact = stored(&record);
        assert!(!is_damaged(&intact));
        for payload in [&b""[..], b"{\"a\":1", b"2\r\n\r\n{\"a\":1}"] {
            assert!(is_damaged(&StoredMessage { payload: Bytes::copy_from_slice(payload), ..intact.clone() }));
        }
        let cut = MessageHeaders::new().with(BYTES, "");
        assert!(is_damaged(&StoredMessage { headers: cut, ..intact.clone() }));
        let of_an_earlier_release = StoredMessage { headers: MessageHeaders::new(), ..intact };
        assert!(!is_damaged(&of_an_earlier_release));
    }

    #[test]
    fn foreign_headers_do_not_panic() {
        for value in ["", "%", "%4", "%zz", "j%", "é", "=", "x"] {
            let mut headers = MessageHeaders::new();
            for name in
                ["Dn-Json", "Dn-User", "Dn-Client", "Dn-Conn-Info", "Dn-Chan-Info", "Dn-Tag", "Dn-Version", "Dn-Op"]
            {
                headers.push(name, value);
            }
            let message = StoredMessage {
                subject: "s".into(),
                sequence: 1,
                last_sequence: 0,
                time_ms: 0,
                headers,
                payload: Bytes::new(),
            };
            assert_eq!(decode(&message).publication.offset, 1);
            assert_eq!(purged_through(&message), None);
        }
    }

    #[test]
    fn nats_timestamps_are_parsed() {
        assert_eq!(unix_ms("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(unix_ms("2024-02-29T12:00:01.5Z"), Some(1_709_208_001_500));
        assert_eq!(unix_ms("2026-11-23T04:31:37.123456789Z"), Some(1_795_408_297_123));
        for wrong in
            ["", "Z", "2026-11-23", "2026-13-01T00:00:00Z", "2026-11-23T25:00:00Z", "a-b-cTd:e:fZ", "0-1-1T1:1:1Z"]
        {
            assert_eq!(unix_ms(wrong), None, "{wrong}");
        }
    }
}
