//! Keys and URLs that must not be logged.

use std::{borrow::Cow, convert::Infallible, fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::header::HeaderValue;

/// A secret key. Its `Debug` output omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// `None` for empty text, which is not a key.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        (!text.is_empty()).then_some(Self(text))
    }

    /// The bytes of the key, for cryptographic functions.
    pub fn reveal(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Stands for what is not shown.
const HIDDEN: &str = "…";

/// Shorter parts of a URL are not searched for in other texts: they occur in ordinary words.
const SCRUBBED_BYTES_MIN: usize = 4;

/// A URL, or several with commas between them, with user names, passwords or keys in them. `Display` and `Debug` show
/// neither the user information nor the values of the query nor the fragment. Of a text that is no URL, they show only
/// what cannot be part of a secret.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// Keeps the text as it is.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The whole URL.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The URL without its user information, for libraries that log the URLs that they use.
    pub fn without_user_info(&self) -> String {
        let Parts { scheme, authority, tail } = Parts::of(&self.0);
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        match scheme {
            Some(scheme) => format!("{scheme}://{host}{tail}"),
            None => format!("{host}{tail}"),
        }
    }

    /// The user information of the URL as the value of the header field `Authorization` (RFC 7617); `None` if it
    /// contains none.
    pub fn basic_authorization(&self) -> Option<HeaderValue> {
        let (user_info, _) = Parts::of(&self.0).authority.rsplit_once('@')?;
        let mut value =
            HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(percent_decoded(user_info)))).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Replaces the secrets of this URL in another text, such as the error of a library that was given the URL.
    pub fn scrub(&self, text: &str) -> String {
        let mut secrets = Vec::new();
        for url in self.0.split(',').chain([self.0.as_str()]) {
            collect_secrets(url.trim(), &mut secrets);
        }
        secrets.retain(|secret| secret.len() >= SCRUBBED_BYTES_MIN);
        // A longer secret may contain a shorter one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), HIDDEN))
    }
}

impl FromStr for SecretUrl {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A query may contain commas. So may a password, but then neither half looks like an address.
        if self.0.contains('?') {
            return f.write_str(&shown(&self.0));
        }
        let shown: Vec<_> = self.0.split(',').map(|url| shown(url.trim())).collect();
        f.write_str(&shown.join(","))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

struct Parts<'u> {
    scheme: Option<&'u str>,
    /// User information, host and port.
    authority: &'u str,
    /// Path, query and fragment.
    tail: &'u str,
}

impl<'u> Parts<'u> {
    fn of(url: &'u str) -> Self {
        let (scheme, rest) = match url.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest),
            None => (None, url),
        };
        let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        Self { scheme, authority, tail }
    }
}

fn shown(url: &str) -> Cow<'static, str> {
    let Parts { scheme, authority, tail } = Parts::of(url);
    let (user_info, host) = match authority.rsplit_once('@') {
        Some((_, host)) => ("…@", host),
        None => ("", authority),
    };
    let (tail, fragment) = tail.split_once('#').map_or((tail, ""), |(tail, _)| (tail, "#…"));
    let (path, query) = tail.split_once('?').map_or((tail, None), |(path, query)| (path, Some(query)));
    let is_scheme = |scheme: &str| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    // A password with `/` in it ends the authority too early: what follows is not a path.
    let is_trusted = is_host(host, scheme.is_none()) && !path.contains('@') && scheme.is_none_or(is_scheme);
    if !is_trusted {
        return match scheme.filter(|scheme| is_scheme(scheme)) {
            Some(scheme) => format!("{scheme}://{HIDDEN}").into(),
            None => HIDDEN.into(),
        };
    }
    let scheme = scheme.map(|scheme| format!("{scheme}://")).unwrap_or_default();
    let query = query.map(shown_query).unwrap_or_default();
    format!("{scheme}{user_info}{host}{path}{query}{fragment}").into()
}

/// The names of the query, without their values.
fn shown_query(query: &str) -> String {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.[]".contains(&b));
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if is_name(name) => format!("{name}={HIDDEN}"),
        _ => HIDDEN.to_owned(),
    });
    format!("?{}", pairs.collect::<Vec<_>>().join("&"))
}

/// Whether a text is a host, possibly with placeholders, and a port. `needs_port`: otherwise it may be a key that was
/// written where a URL belongs.
fn is_host(text: &str, needs_port: bool) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._{}[]:".contains(&byte);
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_address = host.starts_with('[') || !host.contains(':');
    is_address && host.bytes().all(is_plain) && port.map_or(!needs_port, is_port)
}

fn collect_secrets(url: &str, secrets: &mut Vec<String>) {
    let Parts { authority, tail, .. } = Parts::of(url);
    if let Some((user_info, _)) = authority.rsplit_once('@') {
        secrets.push(user_info.to_owned());
        // Without a password, the user is a token.
        secrets.push(user_info.split_once(':').map_or(user_info, |(_, password)| password).to_owned());
    }
    let (tail, fragment) = tail.split_once('#').unwrap_or((tail, ""));
    let query = tail.split_once('?').map_or("", |(_, query)| query);
    let values = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
    secrets.extend(values.chain([fragment]).map(ToOwned::to_owned));
    let decoded: Vec<_> = secrets.iter().map(|secret| percent_decoded(secret)).collect();
    secrets.extend(decoded.into_iter().filter_map(|decoded| String::from_utf8(decoded).ok()));
}

/// Decodes a part of a URL. Invalid escapes are kept.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.first_chunk::<2>().filter(|_| first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(byte);
            rest = after.get(2..).unwrap_or_default();
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_shows_neither_user_information_nor_values() {
        for (url, expected) in [
            ("https://id.example/certs", "https://id.example/certs"),
            ("https://id.example:8443/{{realm}}/certs", "https://id.example:8443/{{realm}}/certs"),
            ("https://ann:s3cret@id.example/certs", "https://…@id.example/certs"),
            ("https://s3cret@[::1]:8443/", "https://…@[::1]:8443/"),
            ("https://id.example/?key=s3cret&s3cret&x=s3cret@h", "https://id.example/?key=…&…&x=…"),
            ("https://id.example/?key=s3cret,s3cret&a=b", "https://id.example/?key=…&a=…"),
            ("https://id.example/a?s3cret#s3cret", "https://id.example/a?…#…"),
            ("nats://ann:s3cret@a:4222, nats://s3cret@b,c:4222", "nats://…@a:4222,nats://…@b,c:4222"),
            // Characters that end a password too early.
            ("https://ann:s3/cret@id.example/certs", "https://…"),
            ("https://ann:1/s3cret@id.example/certs", "https://…"),
            ("https://ann:s3?cret@id.example/certs", "https://…"),
            ("https://ann:s3#cret@id.example/certs", "https://…"),
            ("nats://ann:s3,cret@a:4222", "nats://…,…@a:4222"),
            // Texts that are no URLs.
            ("", "…"),
            ("s3cret", "…"),
            ("s3.cret", "…"),
            ("localhost:3000/rpc", "localhost:3000/rpc"),
            ("ann:s3cret@localhost:3000", "…@localhost:3000"),
            ("s3cret key://x", "…"),
            ("https://s3cret s3cret/", "https://…"),
        ] {
            let url = SecretUrl::new(url);
            assert_eq!(url.to_string(), expected);
            assert_eq!(format!("{url:?}"), format!("\"{expected}\""));
        }
    }

    #[test]
    fn secrets_are_removed_from_other_texts() {
        let url = SecretUrl::new("https://ann:s%33cret@id.example/certs?key=qu%65ry&a=bc#frag");
        let text = "cannot reach https://ann:s%33cret@id.example?key=query: s3cret qu%65ry, abc, frag";
        assert_eq!(url.scrub(text), "cannot reach https://…@id.example?key=…: … …, abc, …");
        let servers = SecretUrl::new("nats://ann:s3cret@a:4222, nats://t0ken@b");
        assert_eq!(servers.scrub("s3cret and t0ken"), "… and …");
    }

    #[test]
    fn user_information_is_split_off() {
        let url = SecretUrl::new("https://ann:p%40ss%zz@id.example/certs?a=b");
        assert_eq!(url.without_user_info(), "https://id.example/certs?a=b");
        let expected = format!("Basic {}", STANDARD.encode("ann:p@ss%zz"));
        assert_eq!(url.basic_authorization().unwrap(), expected);
        assert_eq!(SecretUrl::new("https://id.example/@x").basic_authorization(), None);
    }
}
