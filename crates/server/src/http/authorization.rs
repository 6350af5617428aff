//! Who may use the server API: the check of the API key.

use axum::{
    extract::Query,
    http::{HeaderMap, Uri, header},
};
use dunlin_config::ApiAccess;
use serde::Deserialize;

/// Whether a request may use the API. The key is in `X-API-Key`, in `Authorization: apikey KEY`, or in the query
/// parameter `api_key`, checked in this order.
pub(crate) fn is_authorized(access: &ApiAccess, headers: &HeaderMap, uri: &Uri) -> bool {
    let keys = match access {
        ApiAccess::Nobody => return false,
        ApiAccess::Everyone => return true,
        ApiAccess::Keys(keys) => keys,
    };
    let is_key = |offered: &[u8]| keys.admit(offered);
    let by_field = match (headers.get("x-api-key"), headers.get(header::AUTHORIZATION)) {
        (Some(value), _) if !value.is_empty() => is_key(value.as_bytes()),
        (_, Some(value)) => authorization_key(value.as_bytes()).is_some_and(is_key),
        _ => false,
    };
    by_field || query_key(uri).is_some_and(|offered| is_key(offered.as_bytes()))
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
                    (header::HeaderName::from_static(name), value.parse::<axum::http::HeaderValue>().expect("a value"))
                })
                .collect();
            let uri = target.parse().expect("a target");
            assert_eq!(is_authorized(&access, &headers, &uri), expected, "{fields:?} {target}");
            assert!(!is_authorized(&ApiAccess::Nobody, &headers, &uri));
            assert!(is_authorized(&ApiAccess::Everyone, &headers, &uri));
        }
    }
}
