//! The opening handshake (RFC 6455, section 4.2): validates a request and writes the response.
//!
//! The caller has parsed the request's head. This module checks its parts in one pass over the header fields.

use std::fmt;

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig},
};
use sha1::{Digest as _, Sha1};

/// Appended to the client's key before hashing (RFC 6455, section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Length of a key: 16 bytes in base64, which are 22 characters and two of padding.
const KEY_LEN: usize = 24;
const ACCEPT_KEY_LEN: usize = 28;

/// Browsers set the unused bits of a key's last character to zero. Clients that use 24 random characters do not, and
/// other servers accept them.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// A valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted<'o> {
    /// The value of `Sec-WebSocket-Accept`, in ASCII.
    accept_key: [u8; ACCEPT_KEY_LEN],
    /// The selected subprotocol; `None` if the client offered no supported one.
    pub subprotocol: Option<&'o str>,
    /// The client's offer of permessage-deflate, if it is acceptable.
    pub deflate_offer: Option<DeflateOffer>,
    deflate_agreed: bool,
}

/// An acceptable offer of permessage-deflate: without context takeover in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateOffer {
    /// The maximum window that the offer allows the server, as the base-2 logarithm of its size, from 8 to 15. If the
    /// offer names it, the response must as well.
    server_window_bits: Option<u8>,
}

/// Why a request is not a valid handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandshakeRefusal {
    /// Not GET.
    Method,
    /// Not HTTP/1.1.
    HttpVersion,
    /// Not exactly one `Host`.
    Host,
    /// `Upgrade` does not contain `websocket`: a plain request to the path of a WebSocket.
    Upgrade,
    /// `Connection` does not contain `upgrade`.
    Connection,
    /// `Sec-WebSocket-Version` is missing or not 13.
    Version,
    /// `Sec-WebSocket-Version` occurs twice.
    VersionRepeated,
    /// `Sec-WebSocket-Key` is missing, or is not 16 bytes in base64.
    Key,
    /// `Sec-WebSocket-Key` occurs twice.
    KeyRepeated,
}

/// Validates an upgrade request: its method, the minor version of HTTP/1, and its header fields. `offered` lists the
/// server's subprotocols in order of preference; the first one that the client offers is selected.
///
/// # Errors
/// The first violated rule. It contains the response.
pub fn accept<'h, 'o>(
    method: &str,
    http_minor_version: u8,
    fields: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    offered: &[&'o str],
) -> Result<Accepted<'o>, HandshakeRefusal> {
    if method != "GET" {
        return Err(HandshakeRefusal::Method);
    }
    if http_minor_version != 1 {
        return Err(HandshakeRefusal::HttpVersion);
    }
    let fields = Fields::collect(fields, offered);
    if fields.hosts != 1 {
        return Err(HandshakeRefusal::Host);
    }
    if !fields.upgrade_to_websocket {
        return Err(HandshakeRefusal::Upgrade);
    }
    if !fields.connection_upgrade {
        return Err(HandshakeRefusal::Connection);
    }
    match fields.version {
        Field::Once(b"13") => {}
        Field::Repeated => return Err(HandshakeRefusal::VersionRepeated),
        _ => return Err(HandshakeRefusal::Version),
    }
    let key = match fields.key {
        Field::Once(key) if is_key(key) => key,
        Field::Repeated => return Err(HandshakeRefusal::KeyRepeated),
        _ => return Err(HandshakeRefusal::Key),
    };
    let subprotocol = fields.subprotocol_index.and_then(|index| offered.get(index).copied());
    let deflate_offer = fields.deflate_offer;
    Ok(Accepted { accept_key: accept_key(key), subprotocol, deflate_offer, deflate_agreed: false })
}

impl Accepted<'_> {
    /// The value of `Sec-WebSocket-Accept`.
    pub fn accept_key(&self) -> &str {
        std::str::from_utf8(&self.accept_key).unwrap_or_default()
    }

    /// Accepts the client's offer of permessage-deflate, if there is one, and returns it.
    pub fn agree_on_deflate(&mut self) -> Option<DeflateOffer> {
        self.deflate_agreed = self.deflate_offer.is_some();
        self.deflate_offer
    }

    /// Appends the response that switches the protocol.
    pub fn append_response(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ",
        );
        out.extend_from_slice(&self.accept_key);
        if let Some(subprotocol) = self.subprotocol {
            out.extend_from_slice(b"\r\nSec-WebSocket-Protocol: ");
            out.extend_from_slice(subprotocol.as_bytes());
        }
        if let Some(offer) = self.deflate_offer.filter(|_| self.deflate_agreed) {
            out.extend_from_slice(
                b"\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover",
            );
            if let Some(bits) = offer.server_window_bits {
                out.extend_from_slice(b"; server_max_window_bits=");
                out.extend_from_slice(bits.to_string().as_bytes());
            }
        }
        out.extend_from_slice(b"\r\n\r\n");
    }
}

impl HandshakeRefusal {
    /// All values, for metrics and tests.
    pub const ALL: [Self; 9] = [
        Self::Method,
        Self::HttpVersion,
        Self::Host,
        Self::Upgrade,
        Self::Connection,
        Self::Version,
        Self::VersionRepeated,
        Self::Key,
        Self::KeyRepeated,
    ];

    /// The HTTP status of the response.
    pub const fn status(self) -> u16 {
        match self {
            Self::Method => 405,
            Self::HttpVersion => 505,
            Self::Version => 426,
            Self::Host | Self::Upgrade | Self::Connection | Self::VersionRepeated | Self::Key | Self::KeyRepeated => {
                400
            }
        }
    }

    /// A stable short name: the metric label, and the word in test vectors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::HttpVersion => "http_version",
            Self::Host => "host",
            Self::Upgrade => "upgrade",
            Self::Connection => "connection",
            Self::Version => "version",
            Self::VersionRepeated => "version_repeated",
            Self::Key => "key",
            Self::KeyRepeated => "key_repeated",
        }
    }

    /// The message for the client's developer.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Method => "a WebSocket handshake must use GET",
            Self::HttpVersion => "a WebSocket handshake must use HTTP/1.1",
            Self::Host => "the request must have exactly one Host field",
            Self::Upgrade => "this path supports only WebSocket: Upgrade must contain websocket",
            Self::Connection => "Connection must contain upgrade",
            Self::Version => "Sec-WebSocket-Version must be 13",
            Self::VersionRepeated => "Sec-WebSocket-Version occurs twice",
            Self::Key => "Sec-WebSocket-Key must be 16 bytes in base64",
            Self::KeyRepeated => "Sec-WebSocket-Key occurs twice",
        }
    }

    /// Appends the response. The caller then closes the connection.
    pub fn append_response(self, out: &mut Vec<u8>) {
        let status_line = match self.status() {
            405 => "405 Method Not Allowed\r\nAllow: GET",
            // Both fields tell the client what to send (RFC 9110, section 15.5.22; RFC 6455, section 4.4).
            426 => "426 Upgrade Required\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13",
            505 => "505 HTTP Version Not Supported",
            _ => "400 Bad Request",
        };
        // `Upgrade` is a hop-by-hop field, so `Connection` must list it.
        let connection = if self.status() == 426 { "close, Upgrade" } else { "close" };
        let body = self.reason();
        let response = format!(
            "HTTP/1.1 {status_line}\r\nConnection: {connection}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {}\r\n\r\n{body}\n",
            body.len() + 1
        );
        out.extend_from_slice(response.as_bytes());
    }
}

impl fmt::Display for HandshakeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for HandshakeRefusal {}

/// The header fields that the handshake uses.
#[derive(Default)]
struct Fields<'h> {
    hosts: usize,
    upgrade_to_websocket: bool,
    connection_upgrade: bool,
    version: Field<'h>,
    key: Field<'h>,
    /// The smallest index of an offered subprotocol that the client supports.
    subprotocol_index: Option<usize>,
    deflate_offer: Option<DeflateOffer>,
}

/// A field that may occur once.
#[derive(Clone, Copy, Default)]
enum Field<'h> {
    #[default]
    Missing,
    Once(&'h [u8]),
    Repeated,
}

impl<'h> Fields<'h> {
    /// Collects the fields in one pass. The work is linear in the size of the head.
    fn collect(fields: impl IntoIterator<Item = (&'h str, &'h [u8])>, offered: &[&str]) -> Self {
        let mut found = Self::default();
        for (name, value) in fields {
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            if is("host") {
                found.hosts += 1;
            } else if is("upgrade") {
                found.upgrade_to_websocket |= elements(value).any(|token| token.eq_ignore_ascii_case(b"websocket"));
            } else if is("connection") {
                found.connection_upgrade |= elements(value).any(|token| token.eq_ignore_ascii_case(b"upgrade"));
            } else if is("sec-websocket-version") {
                found.version.see(value);
            } else if is("sec-websocket-key") {
                found.key.see(value);
            } else if is("sec-websocket-protocol") {
                // Subprotocols are case-sensitive, unlike the tokens above.
                let named =
                    elements(value).filter_map(|token| offered.iter().position(|o| o.as_bytes() == token)).min();
                found.subprotocol_index = found.subprotocol_index.into_iter().chain(named).min();
            } else if is("sec-websocket-extensions") {
                for offer in elements(value).filter_map(DeflateOffer::parse) {
                    found.see_offer(offer);
                }
            }
        }
        found
    }

    /// Selects the first offer, because the order is the client's preference. Exception: a later offer wins if only it
    /// allows the server to compress.
    fn see_offer(&mut self, offer: DeflateOffer) {
        if self.deflate_offer.is_none_or(|first| !first.has_full_window() && offer.has_full_window()) {
            self.deflate_offer = Some(offer);
        }
    }
}

impl DeflateOffer {
    /// Whether the client can read the output of [`Deflater`](crate::deflate::Deflater), which uses the full window
    /// because clients share it. Otherwise the server sends this client uncompressed messages, which is always allowed.
    pub fn has_full_window(self) -> bool {
        matches!(self.server_window_bits, None | Some(15))
    }

    /// Parses one element of `Sec-WebSocket-Extensions` (RFC 7692, section 7). `None` for other extensions, invalid
    /// offers, and offers that this server must decline.
    fn parse(element: &[u8]) -> Option<Self> {
        let mut parts = element.split(|byte| *byte == b';').map(trim);
        if !parts.next()?.eq_ignore_ascii_case(b"permessage-deflate") {
            return None;
        }
        let mut seen = [false; 4];
        let mut server_window_bits = None;
        for part in parts {
            let (name, value) = match part.iter().position(|byte| *byte == b'=') {
                Some(at) => (trim(part.get(..at)?), Some(unquoted(trim(part.get(at + 1..)?))?)),
                None => (part, None),
            };
            let place = match (name, value) {
                (b"server_no_context_takeover", None) => 0,
                (b"client_no_context_takeover", None) => 1,
                (b"server_max_window_bits", Some(bits)) => {
                    server_window_bits = Some(window(bits)?);
                    2
                }
                (b"client_max_window_bits", None) => 3,
                (b"client_max_window_bits", Some(bits)) => window(bits).map(|_| 3)?,
                _ => return None,
            };
            if std::mem::replace(seen.get_mut(place)?, true) {
                return None;
            }
        }
        Some(Self { server_window_bits })
    }
}

/// A window size: 8 to 15 without leading zeros.
fn window(bits: &[u8]) -> Option<u8> {
    match bits {
        [ones @ b'8'..=b'9'] => Some(ones - b'0'),
        [b'1', ones @ b'0'..=b'5'] => Some(10 + ones - b'0'),
        _ => None,
    }
}

/// The value of a parameter, without quotes (RFC 6455, section 9.1).
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    match value {
        [b'"', inner @ .., b'"'] => Some(inner),
        [b'"', ..] | [] => None,
        value => Some(value),
    }
}

impl<'h> Field<'h> {
    fn see(&mut self, value: &'h [u8]) {
        *self = match self {
            Self::Missing => Self::Once(trim(value)),
            _ => Self::Repeated,
        };
    }
}

/// The elements of a comma-separated list (RFC 9110, section 5.6.1).
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(trim)
}

/// Removes leading and trailing spaces and tabs (RFC 9110, section 5.6.3).
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn is_key(key: &[u8]) -> bool {
    let mut nonce = [0; KEY_LEN / 4 * 3];
    key.len() == KEY_LEN && matches!(BASE64.decode_slice(key, &mut nonce), Ok(16))
}

fn accept_key(key: &[u8]) -> [u8; ACCEPT_KEY_LEN] {
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    let mut accept_key = [0; ACCEPT_KEY_LEN];
    let written = BASE64.encode_slice(digest, &mut accept_key);
    assert_eq!(written, Ok(ACCEPT_KEY_LEN), "20 bytes are 28 characters");
    accept_key
}
