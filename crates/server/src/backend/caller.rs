//! Sends an HTTP request to a backend.

use std::{fmt, net::IpAddr, time::Duration};

use bytes::Bytes;
use dunlin_config::{ProxyOptions, StatusTransform, Transformed};
use dunlin_engine::backend::{ProxyError, ProxyResult};
use dunlin_net::PickedField;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::{
    StatusCode,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use super::{CallOutcome, Endpoint, ProxyKind, answer};
use crate::{
    otlp::{TRACE_HEADERS, TraceContext},
    telemetry::events,
};

/// Sends the requests of one proxy.
pub(super) struct Caller(Endpoint);

impl Caller {
    /// # Errors
    /// Why a certificate, a key or the URL cannot be used.
    pub(super) fn new(options: &ProxyOptions) -> Result<Self, String> {
        Endpoint::new(&options.endpoint, options.tls.as_deref(), options.requests_max).map(Self)
    }

    /// Sends a request. Returns within the proxy's timeout.
    pub(super) async fn call(
        &self,
        kind: ProxyKind,
        body: Vec<u8>,
        fields: RequestFields<'_>,
        options: &ProxyOptions,
    ) -> (ProxyResult, CallOutcome) {
        let timeout = Duration::from_millis(options.timeout_ms);
        let answered = tokio::time::timeout(timeout, self.exchange(body, fields, options)).await;
        let fault = match answered {
            Ok(Ok(body)) => {
                let (outcome, word) = answer::read(kind, &body);
                if word == CallOutcome::NotOurs {
                    log_failure(options, kind, word, "the response does not have the documented format");
                }
                return (outcome, word);
            }
            Ok(Err(fault)) => fault,
            Err(_) => Fault::Timeout,
        };
        if let Fault::Status(status) = &fault
            && let Some(StatusTransform { to, .. }) =
                options.transforms.iter().find(|one| one.status == status.as_u16())
        {
            return match to.clone() {
                Transformed::Error { code, message, temporary } => answer::error(code.into(), message, temporary),
                Transformed::Disconnect(to) => answer::disconnect(to.code.into(), to.reason.into_owned()),
            };
        }
        log_failure(options, kind, fault.outcome(), &fault);
        (Err(ProxyError::Failed), fault.outcome())
    }

    async fn exchange(&self, body: Vec<u8>, fields: RequestFields<'_>, options: &ProxyOptions) -> Result<Bytes, Fault> {
        let Self(endpoint) = self;
        let response = endpoint.post(header_map(fields, options), Bytes::from(body)).await;
        let response = response.map_err(Fault::Unreachable)?;
        if response.status() != StatusCode::OK {
            return Err(Fault::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), options.response_bytes_max).collect().await;
        body.map(http_body_util::Collected::to_bytes).map_err(|error| match error.downcast::<LengthLimitError>() {
            Ok(_) => Fault::TooLong,
            Err(error) => Fault::Unreachable(endpoint.scrub(&error.to_string())),
        })
    }
}

/// The parts of a request's header that come from the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestFields<'f> {
    /// Header fields of the session's own request.
    pub(super) picked: Option<&'f [PickedField]>,
    /// The client's address.
    pub(super) address: Option<IpAddr>,
    /// The span of the request; `None` if it is not traced.
    pub(super) trace: Option<&'f TraceContext>,
}

/// Header fields that contain the client's address.
const ADDRESS_FIELDS: [&str; 2] = ["x-real-ip", "x-forwarded-for"];

/// The forwarded fields, overridden by the static ones.
fn header_map(fields: RequestFields<'_>, options: &ProxyOptions) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields.picked.into_iter().flatten() {
        let is_ours = options.http_headers.iter().any(|wanted| wanted == name);
        if let (true, Ok(name), Ok(value)) =
            (is_ours, HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value))
        {
            map.append(name, value);
        }
    }
    if let Some(address) = fields.address
        && let Ok(value) = HeaderValue::from_str(&address.to_canonical().to_string())
    {
        for name in
            ADDRESS_FIELDS.into_iter().filter(|name| options.http_headers.iter().any(|wanted| **wanted == **name))
        {
            // If trusted proxies are configured, only their values are used. Otherwise the origin of the field is
            // unknown, so a forwarded value is kept.
            if options.trusts_proxies || !map.contains_key(name) {
                map.insert(HeaderName::from_static(name), value.clone());
            }
        }
    }
    for (name, value) in &options.static_headers {
        map.insert(name.clone(), value.clone());
    }
    if let Some(trace) = fields.trace {
        let state = trace.state.as_deref().map(HeaderValue::from_str);
        for (name, value) in TRACE_HEADERS.into_iter().zip([Some(HeaderValue::from_str(&trace.traceparent())), state]) {
            match value {
                Some(Ok(value)) => drop(map.insert(HeaderName::from_static(name), value)),
                _ => drop(map.remove(name)),
            }
        }
    }
    map
}

/// Why a request failed.
#[derive(Debug)]
enum Fault {
    Unreachable(String),
    Status(StatusCode),
    TooLong,
    Timeout,
}

impl Fault {
    fn outcome(&self) -> CallOutcome {
        match self {
            Self::Unreachable(_) => CallOutcome::Unreachable,
            Self::Status(status) if status.is_server_error() => CallOutcome::ServerError,
            Self::Status(_) => CallOutcome::Status,
            Self::TooLong => CallOutcome::TooLong,
            Self::Timeout => CallOutcome::Timeout,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "the connection failed: {why}"),
            Self::Status(status) => write!(f, "the response has status {}", status.as_u16()),
            Self::TooLong => f.write_str("the response is too long"),
            Self::Timeout => f.write_str("no response in time"),
        }
    }
}

fn log_failure(options: &ProxyOptions, kind: ProxyKind, outcome: CallOutcome, why: impl fmt::Display) {
    events::BackendFailed { proxy: &options.label, kind: kind.name(), outcome: outcome.name(), why: &why }.emit();
}
