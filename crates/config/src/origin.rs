//! Determines which pages may open a WebSocket (`client.allowed_origins`).
//!
//! Browsers send the page's origin with every handshake (RFC 6454, section 7; Fetch standard, "Origin header"), and
//! scripts cannot forge it. So this list prevents foreign pages from using a visitor's credentials.

use std::{fmt, net::IpAddr};

/// Maximum length of an origin: a scheme, a DNS name of at most 253 bytes, a port.
const ORIGIN_BYTES_MAX: usize = 512;

/// The allowed origins. A request without `Origin` is always allowed: it does not come from a page.
#[derive(Clone, Debug, Default)]
pub struct AllowedOrigins {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    /// `*`
    Any,
    /// An origin in its canonical form, or `null`.
    Exact(String),
    /// A pattern in which `*` matches any sequence of characters and `?` one character.
    Glob(String),
}

/// Why a pattern is invalid. The message describes a valid one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPattern(&'static str);

impl AllowedOrigins {
    /// Parses patterns: `*`, an origin such as `https://example.com:8443`, or an origin with `*` and `?`.
    ///
    /// # Errors
    /// The index of an invalid pattern and the reason.
    pub fn parse<'p>(patterns: impl IntoIterator<Item = &'p str>) -> Result<Self, (usize, BadPattern)> {
        let patterns = patterns
            .into_iter()
            .enumerate()
            .map(|(index, pattern)| Pattern::parse(pattern).map_err(|bad| (index, bad)))
            .collect::<Result<_, _>>()?;
        Ok(Self { patterns })
    }

    /// Whether a handshake with this `Origin` header is allowed.
    pub fn allows(&self, origin: Option<&[u8]>) -> bool {
        let Some(origin) = origin else { return true };
        if self.patterns.contains(&Pattern::Any) {
            return true;
        }
        let Some(origin) = canonical(origin) else { return false };
        self.patterns.iter().any(|pattern| match pattern {
            Pattern::Any => true,
            Pattern::Exact(exact) => *exact == origin,
            Pattern::Glob(glob) => glob_matches(glob.as_bytes(), origin.as_bytes()),
        })
    }

    /// Whether no page may connect.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether every page may connect.
    pub fn allows_everything(&self) -> bool {
        self.patterns.contains(&Pattern::Any)
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, BadPattern> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if text.contains(['[', ']', '{', '}', '\\']) && parse_origin(text).is_none() {
            return Err(BadPattern("the only wildcards are * and ?; write alternatives as separate entries"));
        }
        if text.contains(['*', '?']) {
            return if text.chars().all(|c| c.is_ascii_graphic()) {
                Ok(Self::Glob(text.to_ascii_lowercase()))
            } else {
                Err(BadPattern("an origin has no spaces and no characters outside ASCII (write the host in punycode)"))
            };
        }
        canonical(text.as_bytes())
            .map(Self::Exact)
            .ok_or(BadPattern("an origin is scheme://host or scheme://host:port, without a path or a trailing slash"))
    }
}

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The canonical form: lower case and without the default port of the scheme, as browsers write it. `None` if the text
/// is not an origin.
fn canonical(origin: &[u8]) -> Option<String> {
    let text = str::from_utf8(origin).ok()?.to_ascii_lowercase();
    if text == "null" {
        return Some(text);
    }
    let (scheme, host, port) = parse_origin(&text)?;
    let own_port = match scheme {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        _ => None,
    };
    Some(match port.filter(|port| Some(*port) != own_port) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

fn parse_origin(text: &str) -> Option<(&str, &str, Option<u16>)> {
    if text.len() > ORIGIN_BYTES_MAX {
        return None;
    }
    let (scheme, rest) = text.split_once("://")?;
    let scheme_ok = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    let host_end = rest.find(']').map_or(0, |at| at + 1);
    let (host, port) = match rest.get(host_end..)?.rfind(':') {
        Some(at) => {
            let (host, port) = rest.split_at(host_end + at);
            let digits = port.strip_prefix(':')?;
            let digits_ok = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            (host, Some(digits.parse::<u16>().ok().filter(|_| digits_ok)?))
        }
        None => (rest, None),
    };
    let host_ok = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(v6) => matches!(v6.parse(), Ok(IpAddr::V6(_))),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')),
    };
    (scheme_ok && host_ok).then_some((scheme, host, port))
}

/// Whether `text` matches `glob`. The time is at most the product of their lengths: after a mismatch only the last `*`
/// is extended.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut g, mut t) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while let Some(&byte) = text.get(t) {
        match glob.get(g) {
            Some(b'*') => {
                last_star = Some((g, t));
                g += 1;
            }
            Some(&want) if want == byte || want == b'?' => {
                g += 1;
                t += 1;
            }
            _ => {
                let Some((star, taken_to)) = last_star else { return false };
                last_star = Some((star, taken_to + 1));
                g = star + 1;
                t = taken_to + 1;
            }
        }
    }
    glob.get(g..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pattern, origin, whether it matches.
    const CASES: &[(&str, &str, bool)] = &[
        ("https://example.com", "https://example.com", true),
        ("https://example.com", "HTTPS://Example.COM", true),
        ("https://example.com", "https://example.com:443", true),
        ("https://example.com:443", "https://example.com", true),
        ("https://example.com", "http://example.com", false),
        ("https://example.com", "https://example.com:8443", false),
        ("https://example.com", "https://example.com.evil.net", false),
        ("https://example.com", "https://sub.example.com", false),
        ("https://example.com", "null", false),
        ("https://example.com", "", false),
        ("https://example.com", "https://example.com/", false),
        ("http://localhost:3000", "http://localhost:3000", true),
        ("http://[::1]:3000", "http://[::1]:3000", true),
        ("http://[::1]:3000", "http://[::1]", false),
        ("https://*.example.com", "https://a.example.com", true),
        ("https://*.example.com", "https://a.b.example.com", true),
        ("https://*.example.com", "https://example.com", false),
        ("https://*.example.com", "https://a.example.com.evil.net", false),
        // Would fit the text, but is no origin.
        ("https://*.example.com", "https://evil.net/.example.com", false),
        ("https://*.example.com", "https://evil.net?.example.com", false),
        ("https://*.example.com", "https://user@evil.net#.example.com", false),
        ("http://localhost:*", "http://localhost:5173", true),
        ("http://localhost:*", "http://localhost", false),
        ("http://10.0.0.?", "http://10.0.0.7", true),
        ("http://10.0.0.?", "http://10.0.0.77", false),
        ("capacitor://localhost", "capacitor://localhost", true),
        ("null", "null", true),
        ("*", "null", true),
        ("*", "anything at all", true),
    ];

    #[test]
    fn patterns_match_whole_origins() {
        for (pattern, origin, expected) in CASES {
            let allowed = AllowedOrigins::parse([*pattern]).expect("the pattern is valid");
            assert_eq!(allowed.allows(Some(origin.as_bytes())), *expected, "{pattern} against {origin}");
            assert!(allowed.allows(None), "{pattern} against no origin");
        }
    }

    #[test]
    fn an_empty_list_allows_no_page() {
        let none = AllowedOrigins::default();
        assert!(none.allows(None));
        assert!(!none.allows(Some(b"https://example.com")));
        assert!(!none.allows(Some(b"null")));
        assert!(!none.allows(Some(b"")));
        assert!(!none.allows(Some(b"\xff\xfe")));
    }

    #[test]
    fn patterns_that_cannot_match_are_refused() {
        for bad in [
            "",
            "example.com",
            "https://",
            "https://example.com/",
            "https://example.com/path",
            "https://example.com:0x50",
            "https://example.com:99999",
            "https://exa mple.com",
            "https://*.exämple.com",
            "https://{a,b}.example.com",
            "http://[::1",
        ] {
            assert!(AllowedOrigins::parse(["*", bad]).is_err_and(|(index, _)| index == 1), "{bad}");
        }
    }

    #[test]
    fn globs_match_in_polynomial_time() {
        let glob = "*a".repeat(200);
        let text = "b".repeat(ORIGIN_BYTES_MAX);
        assert!(!glob_matches(glob.as_bytes(), text.as_bytes()));
    }
}
