//! HTTP around the server API: who may ask, how much, and how the answer is told.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{Path, Query, Request, State},
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::{sync::Semaphore, time::Instant};

use super::{
    ApiError, Batch, Command, Executor, Malformed, Method, Outcome, RequestLimits,
    legacy::{self, LegacyReply},
};
use crate::{
    config::ApiAccess,
    http::Peer,
    telemetry::{
        api_counters::{ControlCounters, HttpRefusal},
        events,
    },
};

/// What requests are measured against.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// Who may ask.
    pub access: ApiAccess,
    /// Bytes of a body.
    pub request_bytes_max: usize,
    /// Requests being answered at the same time.
    pub requests_max: usize,
    /// Time for the body to come, and again for the shards to answer.
    pub timeout: Duration,
    /// Errors are told by the HTTP status, whether the request asks for that or not.
    pub transport_errors: bool,
    /// What one request may hold.
    pub limits: RequestLimits,
}

/// The server API behind its path.
pub struct Service {
    executor: Executor,
    options: ApiOptions,
    counters: Arc<ControlCounters>,
    permits: Semaphore,
}

/// A request that was refused before it was looked into.
struct Refused {
    reason: HttpRefusal,
    detail: String,
}

impl Service {
    /// The API over `executor`.
    pub fn new(executor: Executor, options: ApiOptions, counters: Arc<ControlCounters>) -> Self {
        let permits = Semaphore::new(options.requests_max);
        Self { executor, options, counters, permits }
    }

    /// Counts and tells a refusal, and answers it.
    fn refuse(&self, peer: Peer, refused: &Refused) -> Response {
        self.counters.count_refusal(refused.reason);
        events::HttpRefused { reason: refused.reason, peer: peer.0, detail: &refused.detail }.emit();
        match refused.reason {
            HttpRefusal::Unauthorized => StatusCode::UNAUTHORIZED.into_response(),
            HttpRefusal::BodyTooLarge => plain(StatusCode::PAYLOAD_TOO_LARGE, "Payload Too Large\n"),
            HttpRefusal::BodyTimeout => plain(StatusCode::REQUEST_TIMEOUT, "Request Timeout\n"),
            HttpRefusal::Busy => {
                let busy = plain(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable\n");
                ([(header::RETRY_AFTER, "1")], busy).into_response()
            }
            _ => plain(StatusCode::BAD_REQUEST, "Bad Request\n"),
        }
    }

    /// Checks the key and reads the body.
    async fn admit(&self, request: Request) -> Result<(HeaderMap, Bytes), Refused> {
        let (parts, body) = request.into_parts();
        if !self.options.access.admits(&parts.headers, &parts.uri) {
            return Err(Refused {
                reason: HttpRefusal::Unauthorized,
                detail: "no API key, or not the right one".into(),
            });
        }
        let body = tokio::time::timeout(self.options.timeout, self.read(body)).await;
        let body = body.unwrap_or_else(|_| {
            Err(Refused { reason: HttpRefusal::BodyTimeout, detail: "the body did not come in time".into() })
        })?;
        Ok((parts.headers, body))
    }

    async fn read(&self, body: Body) -> Result<Bytes, Refused> {
        let most = self.options.request_bytes_max;
        let too_large = || Refused { reason: HttpRefusal::BodyTooLarge, detail: format!("more than {most} bytes") };
        if axum::body::HttpBody::size_hint(&body).lower() > most as u64 {
            return Err(too_large());
        }
        match Limited::new(body, most).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
            Err(_) => Err(Refused { reason: HttpRefusal::Malformed, detail: "the body broke off".into() }),
        }
    }

    fn wants_transport_errors(&self, headers: &HeaderMap) -> bool {
        self.options.transport_errors
            || headers.get("x-centrifugo-error-mode").is_some_and(|mode| mode.as_bytes() == b"transport")
    }

    /// Waits for the shards, but not for ever.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout_at(Instant::now() + self.options.timeout, work).await.ok()
    }
}

/// `POST {prefix}/{method}`
pub async fn answer(State(service): State<Arc<Service>>, Path(name): Path<String>, request: Request) -> Response {
    let Some(method) = Method::by_name(&name) else {
        return plain(StatusCode::NOT_FOUND, "404 page not found\n");
    };
    let peer = Peer::of(&request);
    let Ok(_permit) = service.permits.try_acquire() else {
        return service.refuse(peer, &busy());
    };
    let (headers, body) = match service.admit(request).await {
        Ok(admitted) => admitted,
        Err(refused) => return service.refuse(peer, &refused),
    };
    let answered = match method {
        Method::Batch => batch(&service, &body).await,
        method => single(&service, method, &body, service.wants_transport_errors(&headers)).await,
    };
    answered.unwrap_or_else(|malformed| service.refuse(peer, &malformed.into()))
}

/// `POST {prefix}` with the method in the body.
pub async fn answer_legacy(State(service): State<Arc<Service>>, request: Request) -> Response {
    let peer = Peer::of(&request);
    let Ok(_permit) = service.permits.try_acquire() else {
        return service.refuse(peer, &busy());
    };
    let commands = match service.admit(request).await {
        Ok((_, body)) => legacy::parse(&body, &service.options.limits),
        Err(refused) => return service.refuse(peer, &refused),
    };
    let commands = match commands {
        Ok(Ok(commands)) => commands,
        Ok(Err(error)) => return json(StatusCode::OK, &LegacyReply::new(0, Err(error))),
        Err(malformed) => return service.refuse(peer, &malformed.into()),
    };
    let mut text = String::new();
    for legacy::LegacyCommand { id, method, command } in commands {
        let outcome = match method {
            Some(method) => {
                service.in_time(service.executor.run(method, command)).await.unwrap_or(Err(ApiError::INTERNAL))
            }
            None => Err(ApiError::NOT_FOUND),
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&to_json(&LegacyReply::new(id, outcome)));
    }
    json_text(StatusCode::OK, text)
}

async fn single(service: &Service, method: Method, body: &[u8], transport_errors: bool) -> Result<Response, Malformed> {
    let command = Command::parse(method, body, &service.options.limits)?;
    let outcome = service.in_time(service.executor.run(method, command)).await;
    Ok(match outcome.unwrap_or(Err(ApiError::INTERNAL)) {
        Ok(result) => json(StatusCode::OK, &Envelope::Result(result)),
        Err(error) if transport_errors => {
            json(StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &error)
        }
        Err(error) => json(StatusCode::OK, &Envelope::Error(error)),
    })
}

/// Errors of a batch are always told in the body: there are several answers and one status.
async fn batch(service: &Service, body: &[u8]) -> Result<Response, Malformed> {
    let batch = match Batch::parse(body, &service.options.limits)? {
        Ok(batch) => batch,
        Err(error) => return Ok(json(StatusCode::OK, &Envelope::Error(error))),
    };
    Ok(match service.in_time(service.executor.run_batch(batch)).await {
        Some(replies) => {
            let replies = replies.into_iter().map(|(method, outcome)| BatchReply { method, outcome }).collect();
            json(StatusCode::OK, &BatchReplies { replies })
        }
        None => json(StatusCode::OK, &Envelope::Error(ApiError::INTERNAL)),
    })
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Envelope {
    Result(Box<RawValue>),
    Error(ApiError),
}

#[derive(Serialize)]
struct BatchReplies {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    replies: Vec<BatchReply>,
}

/// `{"publish":{…}}` or `{"error":{…}}`
struct BatchReply {
    method: Option<Method>,
    outcome: Outcome,
}

impl Serialize for BatchReply {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        let mut reply = serializer.serialize_map(Some(1))?;
        match (&self.outcome, self.method) {
            (Ok(result), Some(method)) => reply.serialize_entry(method.name(), result)?,
            (Ok(_), None) => {}
            (Err(error), _) => reply.serialize_entry("error", error)?,
        }
        reply.end()
    }
}

impl ApiAccess {
    /// Whether a request carries a key: in `X-API-Key`, otherwise in `Authorization: apikey KEY`, or, if neither is
    /// right, in the query's `api_key`.
    fn admits(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        let keys = match self {
            Self::Nobody => return false,
            Self::Everyone => return true,
            Self::Keys(keys) => keys,
        };
        let is_key = |offered: &[u8]| keys.admit(offered);
        let by_field = match (headers.get("x-api-key"), headers.get(header::AUTHORIZATION)) {
            (Some(value), _) if !value.is_empty() => is_key(value.as_bytes()),
            (_, Some(value)) => authorization_key(value.as_bytes()).is_some_and(is_key),
            _ => false,
        };
        by_field || query_key(uri).is_some_and(|offered| is_key(offered.as_bytes()))
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

fn busy() -> Refused {
    Refused { reason: HttpRefusal::Busy, detail: "as many API requests as may be are being answered".into() }
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Self {
        Self { reason: HttpRefusal::Malformed, detail: malformed.to_string() }
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    json_text(status, to_json(value))
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| unreachable!("answers are made of texts and numbers"))
}

fn json_text(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ApiKeys, Secret};

    #[test]
    fn the_key_and_nothing_else_opens() {
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
            assert_eq!(access.admits(&headers, &uri), expected, "{fields:?} {target}");
            assert!(!ApiAccess::Nobody.admits(&headers, &uri));
            assert!(ApiAccess::Everyone.admits(&headers, &uri));
        }
    }
}
