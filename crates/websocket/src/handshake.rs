//! The opening handshake (RFC 6455, section 4.2): whether a request may become a WebSocket, and the answer to it.
//!
//! The request's head is parsed elsewhere; here its parts are judged, in one pass over the header fields.

use std::fmt;

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig},
};
use sha1::{Digest as _, Sha1};

/// Hashed behind the client's key to make the accept key (RFC 6455, section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A key of 16 bytes: 22 characters and two of padding.
const KEY_LEN: usize = 24;
const ACCEPT_KEY_LEN: usize = 28;

/// Browsers set the unused bits of a key's last character to zero; clients that make up 24 characters don't, and work
/// with other servers.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// A request that becomes a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted<'o> {
    /// The value of `Sec-WebSocket-Accept`, in ASCII.
    accept_key: [u8; ACCEPT_KEY_LEN],
    /// The one spoken from now on, out of those offered; `None` when the client named none of them.
    pub subprotocol: Option<&'o str>,
    /// What the client offers of permessage-deflate, if it offers what this server has.
    pub deflate_offer: Option<DeflateOffer>,
    deflate_agreed: bool,
}

/// An offer of permessage-deflate that can be taken: without context takeover on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateOffer {
    /// The window that it allows the server, in the logarithm of its bytes, from 8 to 15. If it is named, the answer has to
    /// name it as well.
    server_window_bits: Option<u8>,
}

/// Why a request does not become a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Not GET.
    Method,
    /// Not HTTP/1.1.
    HttpVersion,
    /// Not exactly one `Host`.
    Host,
    /// `Upgrade` does not name `websocket`: a plain request to a WebSocket's address.
    Upgrade,
    /// `Connection` does not name `upgrade`.
    Connection,
    /// `Sec-WebSocket-Version` is missing or another than 13.
    Version,
    /// `Sec-WebSocket-Version` stands there twice.
    VersionRepeated,
    /// `Sec-WebSocket-Key` is missing, or not 16 bytes in base64.
    Key,
    /// `Sec-WebSocket-Key` stands there twice.
    KeyRepeated,
}

/// Judges an upgrade request: its method, the minor number of its HTTP/1 version, and its header fields as names and
/// values. Of the subprotocols that the client names, the first in `offered` is chosen: the order there is the
/// server's preference.
///
/// # Errors
/// The first rule that the request breaks, with the answer to it.
pub fn accept<'h, 'o>(
    method: &str,
    http_minor_version: u8,
    fields: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    offered: &[&'o str],
) -> Result<Accepted<'o>, Refusal> {
    if method != "GET" {
        return Err(Refusal::Method);
    }
    if http_minor_version != 1 {
        return Err(Refusal::HttpVersion);
    }
    let fields = Fields::collect(fields, offered);
    if fields.hosts != 1 {
        return Err(Refusal::Host);
    }
    if !fields.upgrade_to_websocket {
        return Err(Refusal::Upgrade);
    }
    if !fields.connection_upgrade {
        return Err(Refusal::Connection);
    }
    match fields.version {
        Field::Once(b"13") => {}
        Field::Repeated => return Err(Refusal::VersionRepeated),
        _ => return Err(Refusal::Version),
    }
    let key = match fields.key {
        Field::Once(key) if is_key(key) => key,
        Field::Repeated => return Err(Refusal::KeyRepeated),
        _ => return Err(Refusal::Key),
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

    /// Takes the client's offer of permessage-deflate, if there is one, and returns it.
    pub fn agree_on_deflate(&mut self) -> Option<DeflateOffer> {
        self.deflate_agreed = self.deflate_offer.is_some();
        self.deflate_offer
    }

    /// Appends the response that ends HTTP on this connection.
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

impl Refusal {
    /// Every value, for tables of metrics and for tests.
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

    /// The HTTP status of the answer.
    pub const fn status(self) -> u16 {
        match self {
            Self::Method => 405,
            Self::HttpVersion => 505,
            Self::Upgrade | Self::Version => 426,
            Self::Host | Self::Connection | Self::VersionRepeated | Self::Key | Self::KeyRepeated => 400,
        }
    }

    /// A short name that never changes: the label of a metric, the word in a test vector.
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

    /// What was wrong, for the one who writes the client.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Method => "a WebSocket is opened with GET",
            Self::HttpVersion => "a WebSocket is opened with HTTP/1.1",
            Self::Host => "the request needs exactly one Host",
            Self::Upgrade => "this address speaks WebSocket only: Upgrade must name websocket",
            Self::Connection => "Connection must name upgrade",
            Self::Version => "Sec-WebSocket-Version must be 13",
            Self::VersionRepeated => "Sec-WebSocket-Version stands there twice",
            Self::Key => "Sec-WebSocket-Key must be 16 bytes in base64",
            Self::KeyRepeated => "Sec-WebSocket-Key stands there twice",
        }
    }

    /// Appends the response; the connection is closed after it.
    pub fn append_response(self, out: &mut Vec<u8>) {
        let status_line = match self.status() {
            405 => "405 Method Not Allowed\r\nAllow: GET",
            // The two fields are what a client needs to do better (RFC 9110, section 15.5.22; RFC 6455, section 4.4).
            426 => "426 Upgrade Required\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13",
            505 => "505 HTTP Version Not Supported",
            _ => "400 Bad Request",
        };
        // 426 names Upgrade as an option of this hop, like the request it asks for.
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Refusal {}

/// What of the header fields counts here.
#[derive(Default)]
struct Fields<'h> {
    hosts: usize,
    upgrade_to_websocket: bool,
    connection_upgrade: bool,
    version: Field<'h>,
    key: Field<'h>,
    /// The smallest index into what the server offers that the client named.
    subprotocol_index: Option<usize>,
    deflate_offer: Option<DeflateOffer>,
}

/// A field that may stand there once.
#[derive(Clone, Copy, Default)]
enum Field<'h> {
    #[default]
    Missing,
    Once(&'h [u8]),
    Repeated,
}

impl<'h> Fields<'h> {
    /// One pass over the fields and their lists: the work grows with the size of the head, whatever is in it.
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
                // The case of a subprotocol counts, unlike that of a token above.
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

    /// Takes the first offer, as the order is the client's preference, but for one that lets nothing be sent compressed
    /// while another does.
    fn see_offer(&mut self, offer: DeflateOffer) {
        if self.deflate_offer.is_none_or(|first| !first.has_full_window() && offer.has_full_window()) {
            self.deflate_offer = Some(offer);
        }
    }
}

impl DeflateOffer {
    /// Whether the client can read what [`Deflater`](crate::deflate::Deflater) makes, whose window is full since clients share
    /// it. Otherwise everything is sent to it as it is, as any message may be, and only it sends compressed messages.
    pub fn has_full_window(self) -> bool {
        matches!(self.server_window_bits, None | Some(15))
    }

    /// One element of the extensions that the client names (RFC 7692, section 7). `None` for another extension, for what is
    /// no valid offer, and for one that this server has to decline.
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

/// 8 to 15, without zeros in front.
fn window(bits: &[u8]) -> Option<u8> {
    match bits {
        [ones @ b'8'..=b'9'] => Some(ones - b'0'),
        [b'1', ones @ b'0'..=b'5'] => Some(10 + ones - b'0'),
        _ => None,
    }
}

/// A parameter's value, which may stand in quotes (RFC 6455, section 9.1).
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

/// Without the spaces and tabs around it (RFC 9110, section 5.6.3).
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
