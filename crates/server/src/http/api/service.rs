//! The HTTP layer of the server API: authentication, limits, and the format of responses.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::{Path, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use dunlin_config::ApiAccess;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::{
    ApiCommand, ApiError, BinaryPaths, ChannelsWanted, CommandBatch, Executor, JsonResult, Malformed, Method,
    RequestLimits,
    legacy::{self, LegacyReply},
};
use crate::{
    http::{Peer, authorization::authorize},
    telemetry::{
        api_counters::{ControlCounters, HttpRefusal},
        events,
    },
};

/// Access control and limits of requests.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// Who may use the API.
    pub access: ApiAccess,
    /// Maximum length of a body.
    pub request_bytes_max: usize,
    /// Maximum number of concurrent requests.
    pub requests_max: usize,
    /// Timeout for the body, and again for the execution of all commands of the request.
    pub timeout: Duration,
    /// Always report errors as HTTP statuses, even if the request does not ask for it.
    pub transport_errors: bool,
    /// Limits of one request.
    pub limits: RequestLimits,
}

/// The server API.
pub struct Service {
    executor: Executor,
    /// Replaced when the configuration is reloaded.
    options: RwLock<Arc<ApiOptions>>,
    counters: Arc<ControlCounters>,
    /// Of requests that are executed.
    permits: Arc<Semaphore>,
}

/// A request that was refused before it was parsed.
struct Refused {
    reason: HttpRefusal,
    detail: String,
}

impl Service {
    /// The API on top of `executor`.
    pub fn new(executor: Executor, options: ApiOptions, counters: Arc<ControlCounters>) -> Self {
        let permits = Arc::new(Semaphore::new(options.requests_max));
        Self { executor, options: RwLock::new(Arc::new(options)), counters, permits }
    }

    /// The current options.
    pub fn options(&self) -> Arc<ApiOptions> {
        Arc::clone(&self.options.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the options. The limit on concurrent requests does not change.
    pub fn set_options(&self, options: ApiOptions) {
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(options);
    }

    /// Counts and logs a refusal, and returns the response.
    fn refuse(&self, peer: Peer, refused: &Refused) -> Response {
        self.counters.count_refusal(refused.reason);
        events::HttpRefused { reason: refused.reason, peer: peer.0, detail: &refused.detail }.emit();
        match refused.reason {
            HttpRefusal::Unauthorized => StatusCode::UNAUTHORIZED.into_response(),
            HttpRefusal::Origin => plain(StatusCode::FORBIDDEN, format!("Forbidden: {}\n", refused.detail)),
            HttpRefusal::BodyTooLarge => plain(StatusCode::PAYLOAD_TOO_LARGE, "Payload Too Large\n"),
            HttpRefusal::BodyTimeout => plain(StatusCode::REQUEST_TIMEOUT, "Request Timeout\n"),
            HttpRefusal::Busy => {
                let busy = plain(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable\n");
                ([(header::RETRY_AFTER, "1")], busy).into_response()
            }
            _ => plain(StatusCode::BAD_REQUEST, format!("Bad Request: {}\n", refused.detail)),
        }
    }

    /// Checks the key and reads the body.
    async fn admit(&self, request: Request) -> Result<(HeaderMap, Bytes), Refused> {
        let (parts, body) = request.into_parts();
        authorize(&self.options().access, &parts.headers, &parts.uri)
            .map_err(|why| Refused { reason: why.reason(), detail: why.detail().into() })?;
        let most = self.options().request_bytes_max;
        let body = tokio::time::timeout(self.options().timeout, Self::read(body, most)).await;
        let body = body.unwrap_or_else(|_| Err(body_timeout()))?;
        Ok((parts.headers, body))
    }

    /// Reads a body of at most this many bytes.
    async fn read(body: Body, most: usize) -> Result<Bytes, Refused> {
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

    /// A place among the concurrent requests, which is held until the response is complete.
    fn permit(&self) -> Result<OwnedSemaphorePermit, Refused> {
        Arc::clone(&self.permits).try_acquire_owned().map_err(|_| busy())
    }

    fn wants_transport_errors(&self, headers: &HeaderMap) -> bool {
        self.options().transport_errors
            || headers.get("x-centrifugo-error-mode").is_some_and(|mode| mode.as_bytes() == b"transport")
    }

    /// The deadline for a request that is executed from now on.
    fn deadline(&self) -> Instant {
        Instant::now() + self.options().timeout
    }

    /// Waits for the shards until the deadline.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout_at(self.deadline(), work).await.ok()
    }
}

/// A request to the console. It counts as a request of the API until it is dropped.
pub struct AdmittedRequest {
    /// Its body.
    pub body: Bytes,
    peer: Peer,
    _permit: OwnedSemaphorePermit,
}

/// The result of a command that the console has admitted.
pub struct Executed {
    /// The response.
    pub response: Response,
    /// Why the command failed.
    pub error: Option<String>,
}

impl Service {
    /// Admits a request of someone who has signed in, and reads its body; otherwise returns the response.
    ///
    /// # Errors
    /// The response to one request too many, or to a body that is too long, too slow, or not readable.
    #[allow(clippy::result_large_err, reason = "a response is sent at once")]
    pub async fn admit_for_console(&self, peer: Peer, body: Body) -> Result<AdmittedRequest, Response> {
        let permit = self.permit().map_err(|refused| self.refuse(peer, &refused))?;
        let body = self.read_for_console(peer, body, usize::MAX).await?;
        Ok(AdmittedRequest { body, peer, _permit: permit })
    }

    /// Reads the body of a request to the console, of at most this many bytes and not more than the API takes; otherwise
    /// returns the response.
    ///
    /// # Errors
    /// The response to a body that is too long, too slow, or not readable.
    #[allow(clippy::result_large_err, reason = "a response is sent at once")]
    pub async fn read_for_console(&self, peer: Peer, body: Body, bytes_max: usize) -> Result<Bytes, Response> {
        let most = self.options().request_bytes_max.min(bytes_max);
        let read = tokio::time::timeout(self.options().timeout, Self::read(body, most)).await;
        read.unwrap_or_else(|_| Err(body_timeout())).map_err(|refused| self.refuse(peer, &refused))
    }

    /// Executes a command of the console.
    pub async fn execute_admitted(&self, method: Method, request: &AdmittedRequest) -> Executed {
        match outcome(self, method, &request.body).await {
            Ok(outcome) => Executed::of(outcome),
            Err(malformed) => {
                let refused = Refused::from(malformed);
                Executed { error: Some(refused.detail.clone()), response: self.refuse(request.peer, &refused) }
            }
        }
    }

    /// The states of all nodes, for the console.
    pub async fn status(&self, _request: &AdmittedRequest) -> Response {
        Executed::of(self.in_time(self.executor.status()).await.unwrap_or(Err(ApiError::INTERNAL))).response
    }

    /// A page of channels, for the console.
    pub async fn channel_page(&self, wanted: ChannelsWanted, _request: &AdmittedRequest) -> Response {
        Executed::of(self.in_time(self.executor.channel_page(wanted)).await.unwrap_or(Err(ApiError::INTERNAL))).response
    }
}

impl Executed {
    fn of(outcome: JsonResult) -> Self {
        match outcome {
            Ok(result) => Self { response: json(StatusCode::OK, &Envelope::Result(result)), error: None },
            Err(error) => Self { error: Some(error.message().to_owned()), response: failure(error, false) },
        }
    }
}

/// `POST {prefix}/{method}`
pub async fn answer(State(service): State<Arc<Service>>, Path(name): Path<String>, request: Request) -> Response {
    let Some(method) = Method::by_name(&name) else {
        return plain(StatusCode::NOT_FOUND, "404 page not found\n");
    };
    let peer = Peer::of(&request);
    let _permit = match service.permit() {
        Ok(permit) => permit,
        Err(refused) => return service.refuse(peer, &refused),
    };
    let (headers, body) = match service.admit(request).await {
        Ok(admitted) => admitted,
        Err(refused) => return service.refuse(peer, &refused),
    };
    let answered = match method {
        Method::Batch => batch(&service, &body).await,
        Method::RoomPaths if wants_bytes(&headers) => {
            binary(&service, &body, service.wants_transport_errors(&headers)).await
        }
        method => single(&service, method, &body, service.wants_transport_errors(&headers)).await,
    };
    answered.unwrap_or_else(|malformed| service.refuse(peer, &malformed.into()))
}

/// `POST {prefix}` with the method in the body.
pub async fn answer_legacy(State(service): State<Arc<Service>>, request: Request) -> Response {
    let peer = Peer::of(&request);
    let _permit = match service.permit() {
        Ok(permit) => permit,
        Err(refused) => return service.refuse(peer, &refused),
    };
    let commands = match service.admit(request).await {
        Ok((_, body)) => legacy::parse(&body, &service.options().limits),
        Err(refused) => return service.refuse(peer, &refused),
    };
    let commands = match commands {
        Ok(Ok(commands)) => commands,
        Ok(Err(error)) => return json(StatusCode::OK, &LegacyReply::new(0, Err(error))),
        Err(malformed) => return service.refuse(peer, &malformed.into()),
    };
    let mut text = String::new();
    // One deadline for all commands, because there may be a thousand of them.
    let deadline = service.deadline();
    for legacy::LegacyCommand { id, method, command } in commands {
        let outcome = match method {
            Some(_) if Instant::now() >= deadline => Err(ApiError::INTERNAL),
            Some(method) => {
                let answered = tokio::time::timeout_at(deadline, service.executor.run(method, command)).await;
                answered.unwrap_or(Err(ApiError::INTERNAL))
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
    Ok(match outcome(service, method, body).await? {
        Ok(result) => json(StatusCode::OK, &Envelope::Result(result)),
        Err(error) => failure(error, transport_errors),
    })
}

async fn outcome(service: &Service, method: Method, body: &[u8]) -> Result<JsonResult, Malformed> {
    let command = ApiCommand::parse(method, body, &service.options().limits)?;
    let outcome = service.in_time(service.executor.run(method, command)).await;
    Ok(outcome.unwrap_or(Err(ApiError::INTERNAL)))
}

/// Responds with the blocks of paths in binary form. Errors are JSON.
async fn binary(service: &Service, body: &[u8], transport_errors: bool) -> Result<Response, Malformed> {
    let command = ApiCommand::parse(Method::RoomPaths, body, &service.options().limits)?;
    let outcome = service.in_time(service.executor.run_binary(command)).await;
    Ok(match outcome.unwrap_or(Err(ApiError::INTERNAL)) {
        Ok(BinaryPaths { body, more }) => {
            let mut response = ([(header::CONTENT_TYPE, BYTES)], body).into_response();
            if let Some(more) = more.and_then(|more| HeaderValue::try_from(more).ok()) {
                response.headers_mut().insert(MORE, more);
            }
            response
        }
        Err(error) => failure(error, transport_errors),
    })
}

/// The header field with the cursor of a binary response.
const MORE: &str = "dunlin-more";

const BYTES: &str = "application/octet-stream";

fn wants_bytes(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_some_and(|accepted| accepted.as_bytes() == BYTES.as_bytes())
}

fn failure(error: ApiError, transport_errors: bool) -> Response {
    if transport_errors {
        let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return json(status, &error);
    }
    json(StatusCode::OK, &Envelope::Error(error))
}

/// Errors of a batch are always in the body, because there are several results and one status.
async fn batch(service: &Service, body: &[u8]) -> Result<Response, Malformed> {
    let batch = match CommandBatch::parse(body, &service.options().limits)? {
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
    outcome: JsonResult,
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

fn body_timeout() -> Refused {
    Refused { reason: HttpRefusal::BodyTimeout, detail: "the body did not arrive in time".into() }
}

fn busy() -> Refused {
    Refused { reason: HttpRefusal::Busy, detail: "too many concurrent API requests".into() }
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

fn plain(status: StatusCode, text: impl Into<Body>) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text.into()).into_response()
}
