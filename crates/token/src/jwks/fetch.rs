//! Fetching a key set.

use std::{fmt, io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, StatusCode, Uri, header, http::uri::Authority};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use rustls::pki_types::ServerName;

use super::{Fetched, JwksOptions, parse, private_addresses::is_public};
use crate::SecretUrl;

/// Why a fetch failed.
#[derive(Debug)]
pub(crate) enum FetchFault {
    /// The host name could not be resolved.
    Name(io::Error),
    /// All addresses of the host are private.
    Private,
    /// The system's certificate authorities could not be read.
    Roots(io::Error),
    /// The request failed.
    Request(String),
    /// The status was not 200.
    Status(u16),
    /// The answer is too long, or broke off.
    Body,
    /// The answer is not a set of keys.
    NotKeys,
    /// It took too long.
    Timeout,
}

/// Fetches the set at `url`. Redirections are not followed. User information of the URL is sent as credentials.
pub(crate) async fn fetch(url: &SecretUrl, options: &JwksOptions) -> Result<Fetched, FetchFault> {
    let timeout = Duration::from_millis(options.timeout_ms);
    let fetched = tokio::time::timeout(timeout, fetch_now(url, options)).await.unwrap_or(Err(FetchFault::Timeout));
    fetched.map_err(|fault| match fault {
        // The libraries' texts may quote the URL.
        FetchFault::Request(text) => FetchFault::Request(url.scrub(&text)),
        fault => fault,
    })
}

async fn fetch_now(url: &SecretUrl, options: &JwksOptions) -> Result<Fetched, FetchFault> {
    let uri = url.without_user_info().parse::<Uri>();
    let uri = uri.map_err(|_| FetchFault::Request("the URL is invalid".to_owned()))?;
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let is_https = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let address = resolve(&host, port, options.is_unsafe_allowed).await?;

    // The connection goes to the very address that was looked at, whatever the name leads to a moment later.
    let authority = uri.authority().map(Authority::to_string).unwrap_or_default();
    let target = format!("{}://{address}{}", uri.scheme_str().unwrap_or("https"), path_of(&uri));
    let mut request = Request::get(target);
    if let Some(credentials) = url.basic_authorization() {
        request = request.header(header::AUTHORIZATION, credentials);
    }
    let request = request
        .header(header::HOST, authority)
        .header(header::ACCEPT, "application/jwk-set+json, application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|error| FetchFault::Request(error.to_string()))?;
    let connector = HttpsConnectorBuilder::new().with_native_roots().map_err(FetchFault::Roots)?;
    let connector = if options.is_unsafe_allowed { connector.https_or_http() } else { connector.https_only() };
    let name = ServerName::try_from(host).map_err(|_| FetchFault::Request("the host name is invalid".to_owned()))?;
    let connector = connector.with_server_name_resolver(FixedServerNameResolver::new(name)).enable_http1().build();
    let client: Client<_, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);

    let response = client.request(request).await.map_err(|error| FetchFault::Request(chain(&error)))?;
    if response.status() != StatusCode::OK {
        return Err(FetchFault::Status(response.status().as_u16()));
    }
    let cache_control = response.headers().get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
    let max_age_ms = cache_control.and_then(max_age_ms);
    let body = Limited::new(response.into_body(), options.response_bytes_max).collect().await;
    let body = body.map_err(|_| FetchFault::Body)?.to_bytes();
    Ok(Fetched { keys: parse(&body).ok_or(FetchFault::NotKeys)?, max_age_ms })
}

async fn resolve(host: &str, port: u16, is_unsafe_allowed: bool) -> Result<SocketAddr, FetchFault> {
    let mut addresses = tokio::net::lookup_host((host, port)).await.map_err(FetchFault::Name)?;
    addresses.find(|address| is_unsafe_allowed || is_public(address.ip())).ok_or(FetchFault::Private)
}

fn path_of(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |path| path.as_str())
}

/// The messages of an error and its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        text = format!("{text}: {error}");
        behind = error.source();
    }
    text
}

/// `max-age` of `Cache-Control` (RFC 9111, section 5.2.2.1).
fn max_age_ms(cache_control: &str) -> Option<u64> {
    let mut directives = cache_control.split(',').map(str::trim);
    let age = directives.find_map(|directive| {
        let (name, value) = directive.split_once('=')?;
        name.trim().eq_ignore_ascii_case("max-age").then(|| value.trim().trim_matches('"').to_owned())
    })?;
    age.parse::<u64>().ok().map(|age_s| age_s.saturating_mul(1_000))
}

impl fmt::Display for FetchFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => write!(f, "the host name cannot be resolved: {error}"),
            Self::Private => f.write_str(
                "the host is in a private network; to allow that, set \
                         insecure_skip_jwks_endpoint_safety_check",
            ),
            Self::Roots(error) => write!(f, "cannot read the system's certificate authorities: {error}"),
            Self::Request(text) => write!(f, "the request failed: {text}"),
            Self::Status(status) => write!(f, "the response has status {status}"),
            Self::Body => f.write_str("the response is too long or incomplete"),
            Self::NotKeys => f.write_str("the response is not a key set"),
            Self::Timeout => f.write_str("timeout"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_is_read_from_the_header() {
        for (text, expected) in [
            ("max-age=300", Some(300_000)),
            ("public, Max-Age=\"5\", must-revalidate", Some(5_000)),
            ("no-store", None),
            ("max-age=", None),
            ("max-age=-1", None),
            ("s-maxage=9", None),
            ("max-age=18446744073709551615", Some(u64::MAX)),
        ] {
            assert_eq!(max_age_ms(text), expected, "{text}");
        }
    }
}
