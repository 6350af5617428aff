//! A service of the operator that takes data: profiles, traces, metrics.

use std::time::Duration;

use bytes::Bytes;
use dunlin_net::ClientTls;
use dunlin_token::SecretUrl;
use http_body_util::{BodyExt as _, Collected, Limited};
use hyper::{header::HeaderMap, http::response::Parts};
use tokio::time::timeout;

use super::Endpoint;

/// How much of a response is read: the reason of a refusal, and so that the connection can be used again.
const RESPONSE_BYTES_MAX: usize = 4_096;

/// The URL that takes one kind of data. The values of its header fields may be secret.
pub(crate) struct PushTarget {
    endpoint: Endpoint,
    headers: HeaderMap,
    timeout: Duration,
}

/// Why there is no response.
pub(crate) enum NoResponse {
    /// It takes too long.
    Timeout,
    /// The connection failed, for this reason.
    Unreachable(String),
}

impl PushTarget {
    /// # Errors
    /// Why the address or a certificate cannot be used.
    pub(crate) fn new(
        url: &SecretUrl,
        tls: Option<&ClientTls>,
        headers: HeaderMap,
        timeout_ms: u64,
    ) -> Result<Self, String> {
        let endpoint = Endpoint::new(url, tls, 1)?;
        Ok(Self { endpoint, headers, timeout: Duration::from_millis(timeout_ms) })
    }

    /// Sends a body of this type, with this query if the URL has none. Returns the head of the response, and the beginning of
    /// its body.
    ///
    /// # Errors
    /// [`NoResponse`]
    pub(crate) async fn post(
        &self,
        content_type: &'static str,
        query: Option<&str>,
        body: Bytes,
    ) -> Result<(Parts, Bytes), NoResponse> {
        let exchanged = timeout(self.timeout, self.exchange(content_type, query, body)).await;
        exchanged.map_err(|_| NoResponse::Timeout)?.map_err(NoResponse::Unreachable)
    }

    async fn exchange(
        &self,
        content_type: &'static str,
        query: Option<&str>,
        body: Bytes,
    ) -> Result<(Parts, Bytes), String> {
        let response = self.endpoint.post_as(content_type, query, self.headers.clone(), body).await?;
        let (head, body) = response.into_parts();
        // The status has decided already. An error only costs the details and the connection.
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
        Ok((head, body.map(Collected::to_bytes).unwrap_or_default()))
    }

    /// A text without what the header fields and the URL keep secret.
    pub(crate) fn scrubbed(&self, text: &str) -> String {
        let secrets = self.headers.values().filter_map(|value| value.to_str().ok()).filter(|value| !value.is_empty());
        let text = secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "…"));
        self.endpoint.scrub(&text)
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn what_a_service_says_is_logged_without_the_secrets() {
        let url: SecretUrl = "http://u:hunter22@localhost/ingest".parse().expect("a URL");
        let fields = [("x-scope-orgid", "tenant-7"), ("x-empty", "")];
        let fields = fields.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let target = PushTarget::new(&url, None, fields.into_iter().collect(), 1_000).expect("it can be used");
        let scrubbed = target.scrubbed("tenant-7 may not, hunter22");
        assert!(
            !scrubbed.contains("tenant-7") && !scrubbed.contains("hunter22") && scrubbed.contains("may not"),
            "{scrubbed}"
        );
    }
}
