//! The URL of a key set, with placeholders for values that the rules of issuer and audience capture.

use hyper::Uri;

use crate::{
    SecretUrl, TokenFault,
    rules::{Caught, Rule, Rules},
};

/// A URL, possibly with placeholders such as `{{realm}}`.
#[derive(Clone, Debug)]
pub struct Endpoint {
    text: SecretUrl,
    names: Vec<Box<str>>,
}

/// Maximum length of a URL after substitution.
const URL_BYTES_MAX: usize = 2_048;

impl Endpoint {
    /// Parses a URL. Placeholders are filled from tokens that are not verified yet. So each must be a named group of
    /// `rules` that matches one of a few fixed words. `is_unsafe_allowed` permits groups that match anything, and plain
    /// HTTP.
    ///
    /// # Errors
    /// A message for the author of the configuration.
    pub fn parse(text: &str, rules: &Rules, is_unsafe_allowed: bool) -> Result<Self, String> {
        let names = places(text)?;
        let shown = SecretUrl::new(text).to_string();
        // In user information or a query, the braces may belong to a key.
        let placeholder = |name: &str| {
            let placeholder = format!("{{{{{name}}}}}");
            if shown.contains(&placeholder) { placeholder } else { "{{…}}".to_owned() }
        };
        for name in &names {
            let patterns = [&rules.issuer, &rules.audience].into_iter().flatten().filter_map(|rule| match rule {
                Rule::Matches(regex) => Some(regex),
                Rule::Exactly(_) => None,
            });
            let mut groups = patterns.filter(|regex| regex.capture_names().flatten().any(|known| known == &**name));
            let Some(regex) = groups.next() else {
                return Err(format!(
                    "contains the placeholder {}, but neither `issuer_regex` nor `audience_regex` has a group with this \
                     name",
                    placeholder(name)
                ));
            };
            if !is_unsafe_allowed && !catches_fixed_words(regex.as_str(), name) {
                return Err(format!(
                    "has the place {}, whose group catches more than a few fixed words, so that a token could choose where \
                     its key is fetched: write the words, as in (?P<{name}>one|two)",
                    placeholder(name)
                ));
            }
        }
        let endpoint = Self { text: SecretUrl::new(text), names };
        let filled = endpoint.fill(&endpoint.names.iter().map(|name| (name.clone(), "x".into())).collect());
        let uri: Uri = filled
            .ok()
            .and_then(|url| url.reveal().parse().ok())
            .ok_or("is not a URL: write one that begins with https://")?;
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if is_unsafe_allowed => {}
            Some("http") => {
                return Err(
                    "uses plain HTTP, so an attacker on the network could replace the keys: use https, or for keys on this \
                     machine or in development set `insecure_skip_jwks_endpoint_safety_check` to true".to_owned()
                );
            }
            _ => return Err("is not an address that begins with https://".to_owned()),
        }
        if uri.host().is_none_or(str::is_empty) { Err("names no host".to_owned()) } else { Ok(endpoint) }
    }

    /// Whether the URL contains placeholders.
    pub(crate) fn has_places(&self) -> bool {
        !self.names.is_empty()
    }

    /// The URL for these captured values.
    pub(crate) fn fill(&self, caught: &Caught) -> Result<SecretUrl, TokenFault> {
        let mut url = self.text.reveal().to_owned();
        for name in &self.names {
            let value = caught.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value);
            if value.is_empty() || value.contains("..") || !value.bytes().all(is_plain) {
                return Err(TokenFault::Issuer);
            }
            url = url.replace(&format!("{{{{{name}}}}}"), value);
        }
        if url.len() > URL_BYTES_MAX { Err(TokenFault::Issuer) } else { Ok(SecretUrl::new(url)) }
    }
}

fn places(text: &str) -> Result<Vec<Box<str>>, String> {
    let mut names: Vec<Box<str>> = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once("{{") {
        let (name, behind) = behind.split_once("}}").ok_or("contains {{ without }}")?;
        if !names.iter().any(|known| **known == *name) {
            names.push(name.into());
        }
        rest = behind;
    }
    Ok(names)
}

/// Whether a byte has no special meaning in a URL (RFC 3986, section 2.3).
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether the group with this name matches only a list of fixed words.
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
    fn placeholders_are_filled_with_the_issuer() {
        let endpoint =
            parse("https://id.example/{{realm}}/certs", "^https://id.example/(?P<realm>one|two-2)$").unwrap();
        let caught = |value: &str| vec![("realm".into(), value.into())];
        assert_eq!(endpoint.fill(&caught("two-2")).unwrap().reveal(), "https://id.example/two-2/certs");
        for value in ["", "..", "a/b", "a?b", "a@b", "a%2e", "a#", "x".repeat(3_000).as_str()] {
            assert_eq!(endpoint.fill(&caught(value)), Err(TokenFault::Issuer), "{value}");
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
