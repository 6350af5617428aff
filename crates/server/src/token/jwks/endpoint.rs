//! The address of a key set, with places for what the rules of issuer and audience catch.

use hyper::Uri;

use crate::token::{
    Fault,
    rules::{Caught, Rule, Rules},
};

/// An address, perhaps with places such as `{{realm}}`.
#[derive(Clone, Debug)]
pub struct Endpoint {
    text: String,
    names: Vec<Box<str>>,
}

/// Bytes of an address with its places filled.
const URL_BYTES_MAX: usize = 2_048;

impl Endpoint {
    /// Reads an address. Its places have to be named groups of `rules` that catch one of a few fixed words, since they are
    /// filled from tokens which nobody has verified yet; `is_unsafe_allowed` lets groups catch anything, and allows plain
    /// HTTP.
    ///
    /// # Errors
    /// What is wrong, for whoever wrote the configuration.
    pub fn parse(text: &str, rules: &Rules, is_unsafe_allowed: bool) -> Result<Self, String> {
        let names = places(text)?;
        for name in &names {
            let patterns = [&rules.issuer, &rules.audience].into_iter().flatten().filter_map(|rule| match rule {
                Rule::Matches(regex) => Some(regex),
                Rule::Exactly(_) => None,
            });
            let mut groups = patterns.filter(|regex| regex.capture_names().flatten().any(|known| known == &**name));
            let Some(regex) = groups.next() else {
                return Err(format!("has the place {{{{{name}}}}}, which neither regex catches as a named group"));
            };
            if !is_unsafe_allowed && !catches_fixed_words(regex.as_str(), name) {
                return Err(format!(
                    "has the place {{{{{name}}}}}, whose group catches more than a few fixed words, so that a token could \
                     choose where its key is fetched: write the words, as in (?P<{name}>one|two)"
                ));
            }
        }
        let endpoint = Self { text: text.to_owned(), names };
        let filled = endpoint.fill(&endpoint.names.iter().map(|name| (name.clone(), "x".into())).collect());
        let uri: Uri = filled.ok().and_then(|url| url.parse().ok()).ok_or("is not an address")?;
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if is_unsafe_allowed => {}
            Some("http") => {
                return Err("is plain HTTP, so that anybody between could give keys of his own: write https".to_owned());
            }
            _ => return Err("is not an address that begins with https://".to_owned()),
        }
        if uri.host().is_none_or(str::is_empty) { Err("names no host".to_owned()) } else { Ok(endpoint) }
    }

    /// Whether it has places.
    pub(in crate::token) fn has_places(&self) -> bool {
        !self.names.is_empty()
    }

    /// The address for these.
    pub(in crate::token) fn fill(&self, caught: &Caught) -> Result<String, Fault> {
        let mut url = self.text.clone();
        for name in &self.names {
            let value = caught.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value);
            if value.is_empty() || value.contains("..") || !value.bytes().all(is_plain) {
                return Err(Fault::Issuer);
            }
            url = url.replace(&format!("{{{{{name}}}}}"), value);
        }
        if url.len() > URL_BYTES_MAX { Err(Fault::Issuer) } else { Ok(url) }
    }
}

fn places(text: &str) -> Result<Vec<Box<str>>, String> {
    let mut names: Vec<Box<str>> = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once("{{") {
        let (name, behind) = behind.split_once("}}").ok_or("has {{ without }}")?;
        if !names.iter().any(|known| **known == *name) {
            names.push(name.into());
        }
        rest = behind;
    }
    Ok(names)
}

/// What may stand in an address without a meaning of its own (RFC 3986, section 2.3).
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether the group of this name is a list of words, with nothing in it that could match something else.
fn catches_fixed_words(pattern: &str, name: &str) -> bool {
    let openings = [format!("(?P<{name}>"), format!("(?<{name}>")];
    let Some(inside) = openings.iter().find_map(|opening| pattern.split_once(opening.as_str()).map(|(_, rest)| rest))
    else {
        return false;
    };
    let mut bytes = inside.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b')' => return true,
            b'\\' if bytes.next().is_some_and(|escaped| matches!(escaped, b'.' | b'-')) => {}
            b'|' | b'-' | b'_' | b'~' => {}
            _ if byte.is_ascii_alphanumeric() => {}
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    fn rules(issuer: &str) -> Rules {
        Rules { issuer: Some(Rule::Matches(Regex::new(issuer).unwrap())), ..Rules::default() }
    }

    fn parse(text: &str, issuer: &str) -> Result<Endpoint, String> {
        Endpoint::parse(text, &rules(issuer), false)
    }

    #[test]
    fn places_are_filled_with_what_the_issuer_says() {
        let endpoint =
            parse("https://id.example/{{realm}}/certs", "^https://id.example/(?P<realm>one|two-2)$").unwrap();
        let caught = |value: &str| vec![("realm".into(), value.into())];
        assert_eq!(endpoint.fill(&caught("two-2")).unwrap(), "https://id.example/two-2/certs");
        for value in ["", "..", "a/b", "a?b", "a@b", "a%2e", "a#", "x".repeat(3_000).as_str()] {
            assert_eq!(endpoint.fill(&caught(value)), Err(Fault::Issuer), "{value}");
        }
    }

    #[test]
    fn a_token_cannot_choose_where_its_key_is_fetched() {
        let endpoint = "https://{{host}}/certs";
        for (issuer, is_fine) in [
            ("(?P<host>a|b)", true),
            ("(?<host>a|b)", true),
            (r"(?P<host>a\.example|b\.example)", true),
            ("(?P<host>a.example)", false),
            ("(?P<host>.*)", false),
            ("(?P<host>[a-z])", false),
            (r"(?P<host>\w)", false),
            ("(?P<host>a+)", false),
            ("(?P<host>(a|b))", false),
            ("(?P<other>a)", false),
        ] {
            assert_eq!(parse(endpoint, issuer).is_ok(), is_fine, "{issuer}");
        }
        assert!(Endpoint::parse(endpoint, &rules("(?P<host>.*)"), true).is_ok());
    }

    #[test]
    fn an_address_is_https_with_a_host() {
        for (text, is_fine) in [
            ("https://id.example/certs", true),
            ("https://id.example:8443/certs?x=y", true),
            ("http://id.example/certs", false),
            ("ftp://id.example/certs", false),
            ("id.example/certs", false),
            ("/certs", false),
            ("https://", false),
            ("https://{{x", false),
            ("https://id.example/ certs", false),
        ] {
            assert_eq!(parse(text, "x").is_ok(), is_fine, "{text}");
        }
        assert!(Endpoint::parse("http://127.0.0.1:1/certs", &Rules::default(), true).is_ok());
    }
}
