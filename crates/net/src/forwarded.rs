//! Determines the client's address of a connection behind proxies.

// This module parses bytes from outside.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

use std::{net::IpAddr, str, sync::Arc};

use super::upgrade::HEAD_FIELDS_MAX;

/// The networks of proxies whose `X-Forwarded-For` header is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Arc<[Network]>,
}

/// Addresses with the same first bits. IPv4 addresses are those of `::ffff:0:0/96`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    bits: u128,
    mask: u128,
}

impl TrustedProxies {
    /// Parses addresses and networks such as `10.0.0.0/8`.
    ///
    /// # Errors
    /// The first text that is neither.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, &'a str> {
        let networks: Result<Vec<_>, _> = texts.into_iter().map(|text| Network::parse(text).ok_or(text)).collect();
        Ok(Self { networks: networks?.into() })
    }

    /// Whether no proxy is trusted.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Whether the address belongs to a trusted proxy.
    pub fn contain(&self, address: IpAddr) -> bool {
        let bits = bits_of(address);
        self.networks.iter().any(|network| bits & network.mask == network.bits)
    }

    /// The address of the client behind `peer`: the rightmost address in `X-Forwarded-For` that does not belong to a
    /// trusted proxy. Entries to its left are ignored, because clients can forge them. For an untrusted `peer` the
    /// result is `peer`. If a trusted proxy wrote an entry that is not an address, the result is that proxy.
    pub fn client(&self, peer: IpAddr, head: &[u8]) -> IpAddr {
        if !self.contain(peer) {
            return peer.to_canonical();
        }
        let mut fields = [httparse::EMPTY_HEADER; HEAD_FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        // If the head cannot be parsed completely, its fields are ignored. The parser returns the first fields, which
        // the client controls: by sending too many, the client could hide those that the proxy appended.
        if !request.parse(head).is_ok_and(|parsed| parsed.is_complete()) {
            return peer.to_canonical();
        }
        let values = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("x-forwarded-for"));
        let mut client = peer;
        for hop in values.rev().flat_map(|field| field.value.rsplit(|byte| *byte == b',')) {
            let Some(address) = address_of(hop) else { break };
            client = address;
            if !self.contain(address) {
                break;
            }
        }
        client.to_canonical()
    }
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let length: u32 = length.map_or(Some(width), |length| length.parse().ok()).filter(|length| *length <= width)?;
        let mask = u128::MAX.checked_shl(width - length).unwrap_or(0);
        // A network with host bits set is invalid.
        let bits = bits_of(address);
        (bits & mask == bits).then_some(Self { bits, mask })
    }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// `192.0.2.1`, `192.0.2.1:443`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:443`.
fn address_of(hop: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(hop).ok()?.trim();
    if let Some(rest) = text.strip_prefix('[') {
        return rest.split_once(']')?.0.parse().ok();
    }
    text.parse().ok().or_else(|| text.split_once(':')?.0.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn client(peer: &str, fields: &str) -> String {
        let trusted = TrustedProxies::parse(["10.0.0.0/8", "192.0.2.1", "fd00::/8"]).unwrap();
        trusted.client(ip(peer), format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes()).to_string()
    }

    #[test]
    fn the_rightmost_untrusted_address_is_the_clients() {
        for (peer, fields, expected) in [
            // A peer that is not trusted may say what it likes.
            ("203.0.113.9", "", "203.0.113.9"),
            ("203.0.113.9", "X-Forwarded-For: 198.51.100.1\r\n", "203.0.113.9"),
            ("203.0.113.9", "X-Forwarded-For: 10.0.0.1\r\n", "203.0.113.9"),
            // One proxy, two, and one that the client invented.
            ("10.1.2.3", "X-Forwarded-For: 198.51.100.1\r\n", "198.51.100.1"),
            ("10.1.2.3", "x-forwarded-for: 198.51.100.1, 192.0.2.1\r\n", "198.51.100.1"),
            ("10.1.2.3", "X-Forwarded-For: 127.0.0.1, 198.51.100.1\r\n", "198.51.100.1"),
            ("10.1.2.3", "X-Forwarded-For: 10.9.9.9, 198.51.100.1, 10.0.0.7\r\n", "198.51.100.1"),
            // In several fields, which count as one (RFC 9110, section 5.3).
            ("10.1.2.3", "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 198.51.100.1\r\n", "198.51.100.1"),
            ("10.1.2.3", "X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-For: 10.0.0.7\r\n", "198.51.100.1"),
            // Nobody but proxies.
            ("10.1.2.3", "", "10.1.2.3"),
            ("10.1.2.3", "X-Forwarded-For: 10.0.0.8, 10.0.0.7\r\n", "10.0.0.8"),
            // Not addresses.
            ("10.1.2.3", "X-Forwarded-For: unknown\r\n", "10.1.2.3"),
            ("10.1.2.3", "X-Forwarded-For: 198.51.100.1, \u{e9}, 10.0.0.7\r\n", "10.0.0.7"),
            ("10.1.2.3", "X-Forwarded-For: \r\n", "10.1.2.3"),
            ("10.1.2.3", "X-Forwarded-For: 198.51.100.1,\r\n", "10.1.2.3"),
            // With ports, in brackets, mapped.
            ("10.1.2.3", "X-Forwarded-For: 198.51.100.1:5000\r\n", "198.51.100.1"),
            ("fd00::1", "X-Forwarded-For: [2001:db8::1]:5000\r\n", "2001:db8::1"),
            ("fd00::1", "X-Forwarded-For: 2001:db8::1\r\n", "2001:db8::1"),
            ("::ffff:10.1.2.3", "X-Forwarded-For: ::ffff:198.51.100.1\r\n", "198.51.100.1"),
            ("::ffff:203.0.113.9", "X-Forwarded-For: 198.51.100.1\r\n", "203.0.113.9"),
        ] {
            assert_eq!(client(peer, fields), expected, "{peer} {fields:?}");
        }
    }

    #[test]
    fn an_unreadable_head_has_no_forwarded_address() {
        let invented = "X-Forwarded-For: 198.51.100.1\r\n";
        let by_the_proxy = "X-Forwarded-For: 203.0.113.9\r\n";
        let many = |count: usize| invented.repeat(count) + by_the_proxy;
        // `Host` is one of the fields.
        assert_eq!(client("10.1.2.3", &many(HEAD_FIELDS_MAX - 2)), "203.0.113.9");
        assert_eq!(client("10.1.2.3", &many(HEAD_FIELDS_MAX - 1)), "10.1.2.3", "the proxy's own is one too many");
        assert_eq!(client("10.1.2.3", &format!("{invented}no field\r\n{by_the_proxy}")), "10.1.2.3");
    }

    #[test]
    fn networks_are_parsed_in_cidr_notation() {
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("192.0.2.128/25", "192.0.2.128", "192.0.2.127"),
            ("fd00::/8", "fdff::1", "fe00::"),
            ("::1", "::1", "::2"),
            ("0.0.0.0/0", "203.0.113.1", "2001:db8::1"),
        ] {
            let trusted = TrustedProxies::parse([text]).unwrap();
            assert!(trusted.contain(ip(inside)) && !trusted.contain(ip(outside)), "{text}");
        }
        for text in ["", "10.0.0.0/33", "10.0.0.1/8", "fd00::/129", "10.0.0.0/", "10.0.0.0/-1", "proxy", "10.0.0.0/8/8"]
        {
            assert_eq!(TrustedProxies::parse(["::1", text]), Err(text));
        }
        assert!(TrustedProxies::default().is_empty());
    }
}
