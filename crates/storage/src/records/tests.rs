//! Stored values are read by this version and by all later ones.

use std::{collections::BTreeMap, fmt::Write};

use proptest::prelude::*;

use super::*;
use crate::keys;

/// Each line contains a name, the key and the value in hexadecimal, as version 1 writes them. A new version adds lines,
/// and changes none.
const VERSION_1: &str = include_str!("../../tests/fixtures/records-1.txt");

fn publication(data: Payload) -> Publication {
    let info = ClientInfo {
        user: "ada".into(),
        client: "c1".into(),
        conn_info: Some(Payload::from_json(Bytes::from_static(b"{}"))),
        chan_info: Some(Payload::from_opaque(Bytes::from_static(b"\x01"))),
    };
    Publication {
        data,
        info: Some(Arc::new(info)),
        offset: 300,
        tags: vec![("side".into(), "buy".into()), ("".into(), "é".into())],
        time_ms: -5,
        epoch: "abcd".into(),
        version: 7,
    }
}

fn full() -> StoredPublication {
    let record = LogRecord {
        publication: Arc::new(publication(Payload::from_json(Bytes::from_static(b"{\"a\":1}")))),
        version_epoch: "v1".into(),
        idempotency_key: Some("order-1".into()),
    };
    StoredPublication { expires_ms: 1_700_000_300_000, written_ms: 1_700_000_000_000, previous: 298, record }
}

fn plain() -> StoredPublication {
    let publication = Publication {
        data: Payload::from_opaque(Bytes::from_static(b"\x00\xff")),
        info: None,
        offset: 1,
        tags: Vec::new(),
        time_ms: 0,
        epoch: Box::default(),
        version: 0,
    };
    let record = LogRecord { publication: Arc::new(publication), version_epoch: Box::default(), idempotency_key: None };
    StoredPublication { expires_ms: u64::MAX, written_ms: 0, previous: 0, record }
}

fn head() -> ChannelHead {
    ChannelHead {
        expires_ms: 1_700_000_600_000,
        is_synced: true,
        power_era: 2,
        damage_era: 1,
        top: 300,
        floor: 200,
        deleted_through: 150,
        activity_ms: 1_700_000_000_000,
        version: 7,
        version_epoch: "v1".into(),
        epoch: "abcd2345".into(),
    }
}

fn result() -> StoredResult {
    StoredResult { expires_ms: 1_700_000_300_000, offset: 300, epoch: "abcd2345".into() }
}

fn is_same(one: &StoredPublication, other: &StoredPublication) -> bool {
    let parts = |stored: &StoredPublication| {
        let LogRecord { publication, version_epoch, idempotency_key } = stored.record.clone();
        let is_json = publication.data.is_known_json();
        (publication, is_json, version_epoch, idempotency_key)
    };
    (one.expires_ms, one.written_ms, one.previous) == (other.expires_ms, other.written_ms, other.previous)
        && parts(one) == parts(other)
}

/// The samples, as this version writes them.
fn written() -> [(&'static str, Vec<u8>, Vec<u8>); 4] {
    [
        ("publication-full", keys::publication_key("chat:1", 300), full().encode()),
        ("publication-plain", keys::publication_key("chat:1", 1), plain().encode()),
        ("head", keys::channel_key("chat:1"), head().encode()),
        ("result", keys::result_key("chat:1", "order-1"), result().encode()),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("digits")).collect()
}

#[test]
fn this_version_writes_the_fixture() {
    let text = written().map(|(name, key, value)| format!("{name} {} {}\n", hex(&key), hex(&value))).concat();
    assert_eq!(text, VERSION_1);
}

#[test]
fn records_of_version_1_are_read() {
    let lines: BTreeMap<&str, (Vec<u8>, Vec<u8>)> = VERSION_1
        .lines()
        .map(|line| {
            let mut fields = line.split(' ');
            let mut next = || fields.next().expect("a line has three fields");
            (next(), (unhex(next()), unhex(next())))
        })
        .collect();
    for (name, sample) in [("publication-full", full()), ("publication-plain", plain())] {
        let (key, value) = &lines[name];
        let offset = sample.record.publication.offset;
        assert_eq!(keys::read_publication_key(key), Some(("chat:1", offset)));
        let stored = StoredPublication::decode(offset, value).expect("it is a record");
        assert!(is_same(&stored, &sample), "{stored:?}");
    }
    assert_eq!(keys::read_channel(&lines["head"].0), Some(("chat:1", &b""[..])));
    assert_eq!(ChannelHead::decode(&lines["head"].1), Some(head()));
    assert_eq!(keys::read_channel(&lines["result"].0), Some(("chat:1", &b"order-1"[..])));
    assert_eq!(StoredResult::decode(&lines["result"].1), Some(result()));
}

#[test]
fn truncated_records_are_refused() {
    let [(_, _, publication), _, (_, _, head), (_, _, result)] = written();
    // The data is the rest of the value, so truncated data cannot be detected here. The checksums of blocks detect it.
    for length in 0..publication.len() - 7 {
        assert!(StoredPublication::decode(300, &publication[..length]).is_none(), "{length}");
    }
    assert!((0..head.len()).all(|length| ChannelHead::decode(&head[..length]).is_none()));
    assert!((0..result.len()).all(|length| StoredResult::decode(&result[..length]).is_none()));
}

proptest! {
    #[test]
    fn publications_round_trip(
        data: Vec<u8>, is_json: bool, gap in 0_u64..1_000, offset in 1_000_u64.., time_ms: i64, written_ms: u64,
        expires_ms: u64, version: u64, text in ".{0,20}", has_key: bool, has_info: bool,
    ) {
        let data = if is_json { Payload::from_json(data.into()) } else { Payload::from_opaque(data.into()) };
        let mut publication = publication(data);
        (publication.offset, publication.time_ms, publication.epoch) = (offset, time_ms, text.clone().into());
        publication.version = version;
        if !has_info {
            (publication.info, publication.tags) = (None, Vec::new());
        }
        let record = LogRecord {
            publication: Arc::new(publication),
            version_epoch: text.clone().into(),
            idempotency_key: has_key.then(|| text.into()),
        };
        let stored = StoredPublication { expires_ms, written_ms, previous: offset - gap, record };
        let read = StoredPublication::decode(offset, &stored.encode()).expect("it is a record");
        prop_assert!(is_same(&read, &stored), "{:?}", read);
    }

    #[test]
    fn arbitrary_bytes_are_no_panic(mut bytes: Vec<u8>, offset: u64, is_versioned: bool) {
        if is_versioned && !bytes.is_empty() {
            bytes[0] = VERSION;
        }
        let _ = StoredPublication::decode(offset, &bytes);
        let _ = (ChannelHead::decode(&bytes), StoredResult::decode(&bytes), expiry_of(&bytes));
    }

    #[test]
    fn damaged_records_are_no_panic(position: prop::sample::Index, byte: u8) {
        for (_, _, mut value) in written() {
            let position = position.index(value.len());
            value[position] = byte;
            let _ = StoredPublication::decode(300, &value);
            let _ = (ChannelHead::decode(&value), StoredResult::decode(&value));
        }
    }
}
