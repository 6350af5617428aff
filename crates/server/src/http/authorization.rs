//! Who may use the server API: requests with its key. With `http_api.insecure`, all requests but those of other sites' pages.

use axum::{
    extract::Query,
    http::{HeaderMap, Uri, header},
};
use dunlin_config::ApiAccess;
use serde::Deserialize;

use super::browser::is_from_other_site;
use crate::telemetry::api_counters::HttpRefusal;

/// Why a request may not use the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unauthorized {
    /// It has no key, or a wrong one.
    Key,
    /// It needs no key, and is from a page of another site, which a browser has opened.
    OtherSite,
}

/// Checks that a request may use the API. The key is in `X-API-Key`, in `Authorization: apikey KEY`, or in the query
/// parameter `api_key`, checked in this order.
///
/// # Errors
/// [`Unauthorized`]
pub(crate) fn authorize(access: &ApiAccess, headers: &HeaderMap, uri: &Uri) -> Result<(), Unauthorized> {
    let keys = match access {
        ApiAccess::Nobody => return Err(Unauthorized::Key),
        ApiAccess::Everyone if is_from_other_site(headers) => return Err(Unauthorized::OtherSite),
        ApiAccess::Everyone => return Ok(()),
        ApiAccess::Keys(keys) => keys,
    };
    let is_key = |offered: &[u8]| keys.admit(offered);
    let by_field = match (headers.get("x-api-key"), headers.get(header::AUTHORIZATION)) {
        (Some(value), _) if !value.is_empty() => is_key(value.as_bytes()),
        (_, Some(value)) => authorization_key(value.as_bytes()).is_some_and(is_key),
        _ => false,
    };
    let is_authorized = by_field || query_key(uri).is_some_and(|offered| is_key(offered.as_bytes()));
    if is_authorized { Ok(()) } else { Err(Unauthorized::Key) }
}

impl Unauthorized {
    /// What it is counted as.
    pub(crate) const fn reason(self) -> HttpRefusal {
        match self {
            Self::Key => HttpRefusal::Unauthorized,
            Self::OtherSite => HttpRefusal::Origin,
        }
    }

    /// The reason, for the log, and for the response where a key would not help.
    pub(crate) const fn detail(self) -> &'static str {
        match self {
            Self::Key => "missing or wrong API key",
            Self::OtherSite => "with http_api.insecure, pages of other sites may not use the API",
        }
    }
}

fn authorization_key(value: &[u8]) -> Option<&[u8]> {
    let mut words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (scheme, key) = (words.next()?, words.next()?);
    (scheme.eq_ignore_ascii_case(b"apikey") && words.next().is_none()).then_some(key)
}

fn query_key(uri: &Uri) -> Option<String> {
    #[derive(Deserialize)]
    struct Fields {
        api_key: String,
    }

    Query::<Fields>::try_from_uri(uri).ok().map(|Query(fields)| fields.api_key)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use dunlin_config::ApiKeys;
    use dunlin_token::Secret;

    use super::*;

    #[test]
    fn only_the_api_key_is_accepted() {
        let secrets = ["k3y", "before"].map(|key| Secret::new(key).expect("not empty"));
        let access = ApiAccess::Keys(ApiKeys::new(&secrets));
        let cases = [
            (&[("x-api-key", "k3y")][..], "/api/info", true),
            (&[("x-api-key", "before")], "/api/info", true),
            (&[("x-api-key", "k3ybefore")], "/api/info", false),
            (&[("x-api-key", "k3Y")], "/api/info", false),
            (&[("x-api-key", "k3y ")], "/api/info", false),
            (&[("authorization", "apikey k3y")], "/api/info", true),
            (&[("authorization", "ApiKey   k3y")], "/api/info", true),
            (&[("authorization", "bearer k3y")], "/api/info", false),
            (&[("authorization", "apikey k3y k3y")], "/api/info", false),
            (&[("authorization", "k3y")], "/api/info", false),
            (&[("x-api-key", "wrong"), ("authorization", "apikey k3y")], "/api/info", false),
            (&[("x-api-key", ""), ("authorization", "apikey k3y")], "/api/info", true),
            (&[], "/api/info?api_key=k3y", true),
            (&[], "/api/info?a=b&api_key=%6b3y", true),
            (&[], "/api/info?api_key=k3", false),
            (&[], "/api/info?api_key=k3y&api_key=k3y", false),
            (&[("x-api-key", "wrong")], "/api/info?api_key=k3y", true),
            (&[], "/api/info?api_key=", false),
            (&[], "/api/info", false),
        ];
        for (fields, target, expected) in cases {
            let headers = fields
                .iter()
                .map(|(name, value)| {
                    (header::HeaderName::from_static(name), value.parse::<HeaderValue>().expect("a value"))
                })
                .collect();
            let uri = target.parse().expect("a target");
            assert_eq!(authorize(&access, &headers, &uri).is_ok(), expected, "{fields:?} {target}");
            assert_eq!(authorize(&ApiAccess::Nobody, &headers, &uri), Err(Unauthorized::Key));
            assert_eq!(authorize(&ApiAccess::Everyone, &headers, &uri), Ok(()));
        }
    }

    #[test]
    fn a_page_of_another_site_needs_the_key() {
        let access = ApiAccess::Keys(ApiKeys::new([&Secret::new("k3y").expect("not empty")]));
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost:8000"));
        headers.insert(header::ORIGIN, HeaderValue::from_static("http://evil.example"));
        let uri = "/api/publish?api_key=k3y".parse().expect("a target");
        assert_eq!(authorize(&ApiAccess::Everyone, &headers, &uri), Err(Unauthorized::OtherSite));
        assert_eq!(Unauthorized::OtherSite.reason(), HttpRefusal::Origin, "a key is not what it lacks");
        assert_eq!(authorize(&access, &headers, &uri), Ok(()));
    }
}
