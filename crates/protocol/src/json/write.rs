//! Writes JSON values to a buffer, with the minimal escaping of RFC 8259.

use std::sync::Arc;

use crate::{EncodedPublications, Gaps, NotJson, Payload, decimal::Decimal};

/// Appends one object, or nothing if a payload in it is not JSON.
pub(super) fn write_object(out: &mut Vec<u8>, fields: impl FnOnce(&mut Object<'_, '_>)) -> Result<(), NotJson> {
    write(out, None, |writer| writer.object(fields))
}

/// Appends the output of `value`, or nothing if a payload in it is not JSON. With `gaps`, encoded publications may be
/// left out.
pub(super) fn write<'o>(
    out: &'o mut Vec<u8>,
    gaps: Option<&'o mut Gaps>,
    value: impl FnOnce(&mut Writer<'o>),
) -> Result<(), NotJson> {
    let start = out.len();
    let mut writer = Writer { out, gaps, outcome: Ok(()) };
    value(&mut writer);
    let Writer { out, outcome, .. } = writer;
    if outcome.is_err() {
        out.truncate(start);
    }
    outcome
}

/// Appends a string.
pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    Writer { out, gaps: None, outcome: Ok(()) }.string(text);
}

/// Writes values. It continues after a payload that is not JSON, because that is rare, and the output is dropped at the
/// end.
pub(super) struct Writer<'o> {
    out: &'o mut Vec<u8>,
    gaps: Option<&'o mut Gaps>,
    outcome: Result<(), NotJson>,
}

impl<'o> Writer<'o> {
    pub(super) fn object(&mut self, fields: impl FnOnce(&mut Object<'_, 'o>)) {
        self.out.push(b'{');
        fields(&mut Object { writer: self, empty: true });
        self.out.push(b'}');
    }

    pub(super) fn array<T>(&mut self, items: impl Iterator<Item = T>, mut fields: impl FnMut(T, &mut Object<'_, 'o>)) {
        self.out.push(b'[');
        for (index, item) in items.enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            self.object(|object| fields(item, object));
        }
        self.out.push(b']');
    }

    /// Writes publications that are already encoded.
    pub(super) fn encoded(&mut self, encoded: &Arc<EncodedPublications>) {
        match &mut self.gaps {
            Some(gaps) => gaps.leave(encoded, self.out),
            None => self.out.extend_from_slice(encoded.bytes()),
        }
    }

    pub(super) fn number(&mut self, number: u64) {
        self.out.extend_from_slice(Decimal::new(number).as_bytes());
    }

    pub(super) fn string(&mut self, text: &str) {
        self.out.push(b'"');
        let mut plain = 0;
        for (index, &byte) in text.as_bytes().iter().enumerate() {
            if byte >= b' ' && byte != b'"' && byte != b'\\' {
                continue;
            }
            self.out.extend_from_slice(&text.as_bytes()[plain..index]);
            plain = index + 1;
            self.escaped(byte);
        }
        self.out.extend_from_slice(&text.as_bytes()[plain..]);
        self.out.push(b'"');
    }

    fn escaped(&mut self, byte: u8) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        match byte {
            b'"' | b'\\' => self.out.extend_from_slice(&[b'\\', byte]),
            b'\n' => self.out.extend_from_slice(b"\\n"),
            b'\r' => self.out.extend_from_slice(b"\\r"),
            b'\t' => self.out.extend_from_slice(b"\\t"),
            _ => {
                self.out.extend_from_slice(b"\\u00");
                self.out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
    }

    /// Writes a payload as the content of a string. The payload must still be JSON, because the client parses the
    /// content.
    pub(super) fn payload_as_string(&mut self, payload: &Payload) {
        if payload.is_json() {
            self.bytes_as_string(payload.bytes());
        } else {
            self.outcome = Err(NotJson);
        }
    }

    /// Writes bytes, which must be UTF-8, as the content of a string.
    pub(super) fn bytes_as_string(&mut self, bytes: &[u8]) {
        match str::from_utf8(bytes) {
            Ok(text) => self.string(text),
            Err(_) => self.outcome = Err(NotJson),
        }
    }

    /// Writes a payload verbatim, but without line breaks, because a line feed ends a message. In JSON, line breaks can
    /// only be white space between tokens.
    fn payload(&mut self, payload: &Payload) {
        let mut bytes: &[u8] = payload.bytes();
        if !payload.is_json() {
            self.outcome = Err(NotJson);
            return;
        }
        while let Some((line, rest)) = memchr::memchr2(b'\n', b'\r', bytes).and_then(|end| bytes.split_at_checked(end))
        {
            self.out.extend_from_slice(line);
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.out.extend_from_slice(bytes);
    }
}

/// An object being written. Zero values of scalars, strings and payloads are omitted. Nested objects are always
/// written, because their presence determines the type of a message.
pub(super) struct Object<'w, 'o> {
    writer: &'w mut Writer<'o>,
    empty: bool,
}

impl<'o> Object<'_, 'o> {
    /// Starts the field `name`, which needs no escaping. The caller must write its value next.
    pub(super) fn field(&mut self, name: &'static str) -> &mut Writer<'o> {
        self.separate();
        self.writer.out.push(b'"');
        self.writer.out.extend_from_slice(name.as_bytes());
        self.writer.out.extend_from_slice(b"\":");
        self.writer
    }

    /// Starts an entry with any key, which is escaped. The caller must write its value next.
    pub(super) fn entry(&mut self, key: &str) -> &mut Writer<'o> {
        self.separate();
        self.writer.string(key);
        self.writer.out.push(b':');
        self.writer
    }

    pub(super) fn object(&mut self, name: &'static str, fields: impl FnOnce(&mut Object<'_, 'o>)) {
        self.field(name).object(fields);
    }

    pub(super) fn number(&mut self, name: &'static str, number: u64) {
        if number != 0 {
            self.field(name).number(number);
        }
    }

    pub(super) fn signed(&mut self, name: &'static str, number: i64) {
        if number != 0 {
            let writer = self.field(name);
            if number < 0 {
                writer.out.push(b'-');
            }
            writer.number(number.unsigned_abs());
        }
    }

    pub(super) fn flag(&mut self, name: &'static str, flag: bool) {
        if flag {
            self.field(name).out.extend_from_slice(b"true");
        }
    }

    pub(super) fn text(&mut self, name: &'static str, text: &str) {
        if !text.is_empty() {
            self.field(name).string(text);
        }
    }

    pub(super) fn payload(&mut self, name: &'static str, payload: Option<&Payload>) {
        if let Some(payload) = payload {
            self.field(name).payload(payload);
        }
    }

    fn separate(&mut self) {
        if !self.empty {
            self.writer.out.push(b',');
        }
        self.empty = false;
    }
}
