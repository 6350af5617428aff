//! The body of the fuzz target `http_emulation`.

use dunlin::http::emulation::{EmulationBody, read_json, read_protobuf};

/// The body of a request to `/emulation`, in both encodings: what is read means the same when it is written and read again.
pub fn body(data: &[u8]) {
    if let Some(parsed) = read_json(data) {
        assert!(parsed.session.len() + parsed.data.len() <= data.len(), "nothing is more than what came");
        check(&parsed);
        let (node, session, data) = (&*parsed.node, &*parsed.session, String::from_utf8_lossy(&parsed.data));
        let written = serde_json::json!({"node": node, "session": session, "data": data}).to_string();
        assert_eq!(read_json(written.as_bytes()).as_ref(), Some(&parsed));
    }
    if let Some(parsed) = read_protobuf(data) {
        assert!(parsed.session.len() + parsed.data.len() <= data.len(), "nothing is more than what came");
        check(&parsed);
    }
}

/// What is written in Protobuf is read as it was.
fn check(parsed: &EmulationBody<'_>) {
    let mut written = Vec::new();
    // The last is a field of a later version.
    for (field, value) in [(1, parsed.node.as_bytes()), (2, parsed.session.as_bytes()), (3, &parsed.data), (9, b"new")]
    {
        written.push(field << 3 | 2);
        let mut length = value.len();
        while length >= 0x80 {
            written.push(length as u8 | 0x80);
            length >>= 7;
        }
        written.push(length as u8);
        written.extend_from_slice(value);
    }
    assert_eq!(read_protobuf(&written).as_ref(), Some(parsed));
    for end in (written.len().saturating_sub(3)..written.len()).filter(|end| *end > 0) {
        let cut = read_protobuf(written.get(..end).unwrap_or_default());
        assert_eq!(cut, None, "a field that was cut off is none");
    }
}
