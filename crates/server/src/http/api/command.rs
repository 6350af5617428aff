//! Typed commands. A value of these types is valid input for the shards.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_protocol::Payload;
use dunlin_token::UnixTime;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{
    ApiCommand, ApiError, Executor, JsonResult, Method,
    body::{Body, Malformed, Params},
    method::BatchCommand,
    wire::{BatchParams, OnlyObject},
};
use crate::telemetry::events::ApiFieldUnknown;

/// What a method does with the parameters of a request. Its row in [`super::Method`] declares the rest.
pub(super) trait Command: Sized + Send {
    /// The parameters as received. Missing ones are empty.
    type Params: Default + DeserializeOwned;

    /// Checks the parameters. The shards believe what passes.
    fn check(params: Self::Params, limits: &RequestLimits) -> Result<Self, ApiError>;

    /// Executes the command, on all nodes of the cluster if it concerns them.
    fn carry_out(self, executor: &Executor) -> impl Future<Output = JsonResult> + Send;
}

/// A command that is large, and so would make all commands large.
impl<C: Command> Command for Box<C> {
    type Params = C::Params;

    fn check(params: C::Params, limits: &RequestLimits) -> Result<Self, ApiError> {
        C::check(params, limits).map(Self::new)
    }

    fn carry_out(self, executor: &Executor) -> impl Future<Output = JsonResult> + Send {
        (*self).carry_out(executor)
    }
}

/// A command, or its error if the command is invalid.
pub type Parsed = Result<ApiCommand, ApiError>;

/// The commands of one request.
#[derive(Debug)]
pub struct CommandBatch {
    /// In order. Unknown commands have no method.
    pub commands: Vec<(Option<Method>, Parsed)>,
    /// The commands may be executed concurrently.
    pub parallel: bool,
}

/// Limits of one request.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// `http_api.broadcast_channels_limit`; requests above it get error 107.
    pub broadcast_channels_max: usize,
    /// Maximum number of commands in a batch, or in a request to the single path.
    pub batch_commands_max: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self { broadcast_channels_max: 1_000, batch_commands_max: 1_000 }
    }
}

impl CommandBatch {
    /// Parses the body of a [`Method::Batch`].
    ///
    /// # Errors
    /// [`Malformed`] if any of the commands is malformed; then none is executed.
    pub fn parse(body: &[u8], limits: &RequestLimits) -> Result<Result<Self, ApiError>, Malformed> {
        let body = Body { method: Method::Batch, bytes: body };
        let Params { params: batch, unknown } = body.parse::<BatchParams>()?;
        warn_of_unknown(body.method, unknown);
        if batch.commands.len() > limits.batch_commands_max {
            let most = limits.batch_commands_max;
            return Ok(Err(ApiError::bad_request(format_args!("at most {most} commands in a batch"))));
        }
        let commands = batch.commands.into_iter().map(|command| batch_command(command, limits)).collect();
        Ok(Ok(Self { commands, parallel: batch.parallel }))
    }
}

fn batch_command(command: Option<OnlyObject<BatchCommand>>, limits: &RequestLimits) -> (Option<Method>, Parsed) {
    match command {
        None => (None, Err(ApiError::bad_request("a command is null"))),
        Some(OnlyObject(command)) => command.check(limits).unwrap_or((None, Err(ApiError::NOT_FOUND))),
    }
}

/// Parses a body and converts it to a command. If a required field is missing, an unknown field is reported as the
/// likely cause.
pub(super) fn parse_as<T: Default + DeserializeOwned>(
    body: Body<'_>,
    make: impl FnOnce(T) -> Parsed,
) -> Result<Parsed, Malformed> {
    let Params { params, unknown } = body.parse()?;
    let parsed = make(params);
    // A field of another object is no other spelling of `channel` or `data`.
    let misspelt = unknown.iter().find(|field| !field.contains('.'));
    if let (Err(error), Some(field)) = (&parsed, misspelt)
        && [ApiError::NO_CHANNEL, ApiError::NO_DATA].contains(error)
    {
        return Ok(Err(ApiError::bad_request(format_args!("unknown field {field:?}"))));
    }
    warn_of_unknown(body.method, unknown);
    Ok(parsed)
}

/// Unknown fields are ignored, as in Centrifugo, so a misspelt option would have no effect and no error.
fn warn_of_unknown(method: Method, fields: Vec<String>) {
    for field in fields {
        ApiFieldUnknown { method, field }.emit();
    }
}

/// The payload in `data` or `b64data`, if any.
pub(super) fn data_of(json: Option<Box<RawValue>>, base64: String) -> Result<Option<Payload>, ApiError> {
    payload_of(json, base64, "b64data")
}

/// The payload in one of two fields, if any. `field` is the name of the second.
pub(super) fn payload_of(
    json: Option<Box<RawValue>>,
    base64: String,
    field: &str,
) -> Result<Option<Payload>, ApiError> {
    if !base64.is_empty() {
        let bytes = STANDARD.decode(base64);
        let bytes = bytes.map_err(|_| ApiError::bad_request(format_args!("{field:?} is not base64")))?;
        return Ok(Some(Payload::from_opaque(bytes.into())));
    }
    Ok(json.map(|json| Payload::from_json(Bytes::from(Box::<str>::from(json).into_string()))))
}

/// A channel name that a request must have.
pub(super) fn named(channel: String) -> Result<Box<str>, ApiError> {
    if channel.is_empty() { Err(ApiError::NO_CHANNEL) } else { Ok(channel.into()) }
}

pub(super) fn some_text(text: String) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into())
}

/// The Unix time in milliseconds of an `expire_at`; `None` for never.
pub(super) fn expiry_of(expire_at: UnixTime) -> Result<Option<u64>, ApiError> {
    if expire_at.is_negative() {
        return Err(ApiError::bad_request("expire_at must be a Unix time in seconds, or 0 for never"));
    }
    Ok(expire_at.expiry_ms())
}

pub(super) fn unsupported(method: Method) -> ApiError {
    refuse(method, method.name())
}

/// Refuses a request with a field that has no effect here.
pub(super) fn refuse(method: Method, field: &'static str) -> ApiError {
    crate::telemetry::events::ApiFieldUnsupported { method, field }.emit();
    ApiError::unsupported(format_args!("{field} is not supported"))
}
