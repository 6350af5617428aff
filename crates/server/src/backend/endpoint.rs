//! The HTTP client of one backend.

use std::{error::Error as _, time::Duration};

use bytes::Bytes;
use dunlin_net::{ClientTls, without_roots};
use dunlin_token::SecretUrl;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, Uri,
    body::Incoming,
    header::{self, HeaderMap, HeaderValue},
};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

/// Maximum idle time of a connection to a backend.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Sends requests to one URL over kept-alive connections. It follows no redirect.
pub(crate) struct Endpoint {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: SecretUrl,
    /// The URL without its user information, because the libraries log parts of the URLs that they are given.
    target: Uri,
    /// `user:password@` in the URL becomes the field `Authorization`, unless that is set.
    authorization: Option<HeaderValue>,
}

impl Endpoint {
    /// # Errors
    /// Why a certificate, a key or the URL cannot be used.
    pub(crate) fn new(url: &SecretUrl, tls: Option<&ClientTls>, connections_max: usize) -> Result<Self, String> {
        let target = url.without_user_info().parse::<Uri>();
        let target = target.map_err(|_| format!("{url} is not a URL"))?;
        let authorization = url.basic_authorization();
        let is_plain = target.scheme_str() == Some("http");
        let default_tls = ClientTls::default();
        let tls = tls.unwrap_or(&default_tls);
        let config = if is_plain { without_roots()? } else { tls.client_config()? };
        let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
        let builder = match tls.server_name()? {
            None => builder.enable_http1(),
            Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)).enable_http1(),
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(connections_max)
            .build(builder.build());
        Ok(Self { client, url: url.clone(), target, authorization })
    }

    /// Sends JSON, and returns the head of the response.
    ///
    /// # Errors
    /// Why there is none, without secrets.
    pub(crate) async fn post(&self, headers: HeaderMap, body: Bytes) -> Result<Response<Incoming>, String> {
        self.post_as("application/json", None, headers, body).await
    }

    /// Sends a body of this type, and returns the head of the response. A URL that has no query can get one.
    ///
    /// # Errors
    /// Why there is none, without secrets.
    pub(crate) async fn post_as(
        &self,
        content_type: &'static str,
        query: Option<&str>,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, String> {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        let target = match query {
            None => self.target.clone(),
            Some(query) => {
                let target = format!("{}?{query}", self.target).parse::<Uri>();
                target.map_err(|_| "the URL is too long".to_owned())?
            }
        };
        self.send(target, headers, body).await
    }

    async fn send(&self, target: Uri, mut headers: HeaderMap, body: Bytes) -> Result<Response<Incoming>, String> {
        if let Some(authorization) = &self.authorization {
            headers.entry(header::AUTHORIZATION).or_insert_with(|| authorization.clone());
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = target;
        *request.headers_mut() = headers;
        self.client.request(request).await.map_err(|error| self.url.scrub(&words(&error)))
    }

    /// A text without the secrets of the URL.
    pub(crate) fn scrub(&self, text: &str) -> String {
        self.url.scrub(text)
    }
}

/// The messages of an error and its sources.
fn words(error: &hyper_util::client::legacy::Error) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        text = format!("{text}: {error}");
        behind = error.source();
    }
    text
}
