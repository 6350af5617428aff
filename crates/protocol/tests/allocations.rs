//! Counts the allocations on the path of a publication: only the growth of the buffer allocates.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_proof::allocations::allocations_of;
use dunlin_protocol::{ClientInfo, Commands, DataForm, Encoding, Payload, Publication, Push, encode_push};

#[test]
fn a_publication_is_written_without_an_allocation_and_read_with_one_at_most() {
    assert_eq!(allocations_of(|| vec![1_u8]).0, 1, "the counter counts");
    let data = Bytes::from_static(b"{\"text\":\n\"hello\"}");
    let info = ClientInfo {
        user: "42".into(),
        client: "c0ffee".into(),
        conn_info: Some(Payload::from_opaque(Bytes::from_static(b"{\"name\":\"Ann\"}"))),
        chan_info: None,
    };
    let publication = Publication {
        data: Payload::from_opaque(data),
        info: Some(Arc::new(info)),
        offset: 12_345,
        tags: vec![("k".into(), "\"v\"\n".into()), ("skipped".into(), "no".into())],
        time_ms: 1_753_700_000_123,
        epoch: "abcdefgh".into(),
        version: 0,
    };
    let push = Push::Publication {
        channel: "chat:index".into(),
        publication: &publication,
        data: DataForm::Plain,
        skipped: 3,
    };
    let mut out = Vec::with_capacity(4096);
    for encoding in Encoding::ALL {
        let (allocations, ()) = allocations_of(|| encode_push(encoding, &push, &mut out).expect("JSON"));
        assert_eq!(allocations, 0, "{encoding:?}");
    }
    for (encoding, frame, expected) in [
        // The scanner's stack of open brackets in the payload.
        (Encoding::Json, br#"{"id":1,"publish":{"channel":"c","data":{"text":[1,"hello"]}}}"#.as_slice(), 1),
        (Encoding::Json, br#"{"id":1,"publish":{"channel":"c","data":"hello"}}"#.as_slice(), 0),
        (Encoding::Protobuf, b"\x0b\x08\x01\x3a\x07\x0a\x01c\x12\x02{}".as_slice(), 0),
    ] {
        let (allocations, ()) =
            allocations_of(|| assert!(Commands::new(encoding, frame).all(|command| command.is_ok())));
        assert_eq!(allocations, expected, "reading in {encoding:?}");
    }
}
