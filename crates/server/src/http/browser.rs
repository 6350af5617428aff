//! What a request says about the page that sends it. Browsers set these header fields, and pages cannot; programs set none.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::{HeaderMap, header};

/// Which site a request is from. Browsers set it in requests over TLS and to their own machine.
const SITE: &str = "sec-fetch-site";

/// Whether a request is from a page at the address that it names, or from no page.
pub(super) fn is_same_origin(headers: &HeaderMap) -> bool {
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let is_own_origin = |origin: &str| {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let of_origin = origin.split_once("://").map(|(_, of_origin)| of_origin);
        of_origin.zip(host).is_some_and(|(of_origin, host)| of_origin.eq_ignore_ascii_case(host))
    };
    match headers.get(SITE) {
        Some(site) => site.as_bytes() == b"same-origin",
        None => !headers.contains_key(header::ORIGIN) || origin.is_some_and(is_own_origin),
    }
}

/// Whether a request names the node in a way that no other site can. A site may give its own name the address of this node
/// (DNS rebinding), and is then the page's own site for the browser. Without a password, only the name tells.
pub(super) fn is_own_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase();
    name.parse::<IpAddr>().is_ok() || name.ends_with(".localhost") || !(name.is_empty() || name.contains('.'))
}

/// Whether a page of another site sends a request. A backend may name the node as it likes, because it is no page. Over TLS a
/// site cannot take the address of this node, because it has no certificate for its name, so the browser's word is enough.
pub(super) fn is_from_other_site(headers: &HeaderMap) -> bool {
    let is_of_page = headers.contains_key(header::ORIGIN) && !headers.contains_key(SITE);
    !is_same_origin(headers) || (is_of_page && !is_own_host(headers))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields =
            fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        fields.collect()
    }

    #[test]
    fn a_name_that_another_site_can_take_is_not_the_node_s_own() {
        for (host, expected) in [
            ("127.0.0.1:9000", true),
            ("192.0.2.7", true),
            ("[::1]:9000", true),
            ("[2001:db8::1]", true),
            ("localhost:9000", true),
            ("LocalHost", true),
            ("one.localhost:9000", true),
            ("dunlin-1:9000", true),
            ("evil.example:9000", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("evil.example.", false),
            ("localhost.", false),
            ("[evil.example]", false),
            (":9000", false),
            ("", false),
        ] {
            assert_eq!(is_own_host(&headers(&[("host", host)])), expected, "{host}");
        }
        assert!(!is_own_host(&headers(&[])), "a browser names it");
    }

    #[test]
    fn programs_and_the_node_s_own_pages_are_of_no_other_site() {
        let (named, local) = (("host", "dunlin.default.svc.example:8000"), ("host", "localhost:8000"));
        for (fields, expected) in [
            (&[named][..], false),
            (&[local], false),
            (&[], false),
            (&[local, ("origin", "http://localhost:8000")], false),
            (&[local, ("origin", "http://localhost:8000"), ("sec-fetch-site", "same-origin")], false),
            (&[named, ("origin", "https://dunlin.default.svc.example:8000"), ("sec-fetch-site", "same-origin")], false),
            (&[local, ("origin", "http://localhost:3000")], true),
            (&[local, ("origin", "http://evil.example")], true),
            (&[local, ("origin", "null")], true),
            (&[local, ("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")], true),
            (&[local, ("sec-fetch-site", "same-site")], true),
            // The site has given its name the address of this node.
            (&[named, ("origin", "http://dunlin.default.svc.example:8000")], true),
        ] {
            assert_eq!(is_from_other_site(&headers(fields)), expected, "{fields:?}");
        }
    }
}
