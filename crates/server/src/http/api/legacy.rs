//! The API at a single path: `{"method":"publish","params":{…}}`, with several commands one after another, whose `id`s
//! are returned. Centrifugo keeps it for old programs, and so does Dunlin.

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;

use super::{ApiCommand, ApiError, JsonResult, Malformed, Method, Parsed, RequestLimits, wire::OnlyObject};

/// A command of the single-path form.
pub struct LegacyCommand {
    /// Returned with the reply.
    pub id: u32,
    /// The method; `None` for an unknown number.
    pub method: Option<Method>,
    /// Its parameters.
    pub command: Parsed,
}

/// The reply to a [`LegacyCommand`].
#[derive(Serialize)]
pub struct LegacyReply {
    #[serde(skip_serializing_if = "is_zero")]
    id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ApiError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(default)]
    id: Option<u32>,
    #[serde(default)]
    method: Option<WireMethod>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

struct WireMethod(Option<Method>);

/// Parses all commands of a body.
///
/// # Errors
/// [`Malformed`] if a command is malformed; then none is executed. Invalid parameters lead to an error reply.
pub fn parse(body: &[u8], limits: &RequestLimits) -> Result<Result<Vec<LegacyCommand>, ApiError>, Malformed> {
    let mut commands = Vec::new();
    let mut wires = serde_json::Deserializer::from_slice(body).into_iter::<OnlyObject<Wire<'_>>>();
    loop {
        let begin = wires.byte_offset();
        let Some(wire) = wires.next() else { break };
        let OnlyObject(wire) = wire.map_err(|error| Malformed::of::<Wire<'_>>(&body[begin..], &error))?;
        if commands.len() == limits.batch_commands_max {
            let most = limits.batch_commands_max;
            return Ok(Err(ApiError::bad_request(format_args!("at most {most} commands in a request"))));
        }
        commands.push(wire.command(limits));
    }
    if commands.is_empty() {
        return Err(Malformed::empty());
    }
    Ok(Ok(commands))
}

impl LegacyReply {
    /// The reply to command `id`.
    pub fn new(id: u32, outcome: JsonResult) -> Self {
        let (error, result) = match outcome {
            Ok(result) => (None, Some(result)),
            Err(error) => (Some(error), None),
        };
        Self { id, error, result }
    }
}

impl Wire<'_> {
    fn command(self, limits: &RequestLimits) -> LegacyCommand {
        // The first method has number 0, which is also the default of an absent field.
        let method = self.method.map_or(Some(Method::Publish), |method| method.0);
        let command = match (method, self.params) {
            (Some(method), Some(params)) => ApiCommand::parse(method, params.get().as_bytes(), limits)
                .unwrap_or_else(|malformed| Err(ApiError::bad_request(malformed))),
            (Some(_), None) => Err(ApiError::bad_request("params is missing")),
            (None, _) => Err(ApiError::NOT_FOUND),
        };
        LegacyCommand { id: self.id.unwrap_or(0), method, command }
    }
}

impl<'de> Deserialize<'de> for WireMethod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum NameOrNumber {
            Name(String),
            Number(i64),
        }

        match NameOrNumber::deserialize(deserializer)? {
            NameOrNumber::Name(name) => match Method::by_legacy_name(&name) {
                Some(method) => Ok(Self(Some(method))),
                None => Err(de::Error::custom("no such method")),
            },
            NameOrNumber::Number(number) => Ok(Self(Method::by_legacy_number(number))),
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use dunlin_proof::members::{members, sample};

    use super::*;

    fn methods(body: &str) -> Vec<(u32, Option<Method>, bool)> {
        let commands = parse(body.as_bytes(), &RequestLimits::default()).expect("well formed").expect("few");
        commands.iter().map(|command| (command.id, command.method, command.command.is_ok())).collect()
    }

    #[test]
    fn legacy_methods_are_parsed_by_name_number_and_batch() {
        assert_eq!(methods(r#"{"method":"info","params":{}}"#), [(0, Some(Method::Info), true)]);
        assert_eq!(
            methods(r#"{"id":7,"method":"PRESENCE_STATS","params":{"channel":"c"}}"#),
            [(7, Some(Method::PresenceStats), true)]
        );
        assert_eq!(methods(r#"{"method":9,"params":{}}"#), [(0, Some(Method::Info), true)]);
        assert_eq!(methods(r#"{"method":1234,"params":{}}"#), [(0, None, false)]);
        assert_eq!(methods(r#"{"method":"info"}"#), [(0, Some(Method::Info), false)], "no parameters at all");
        assert_eq!(
            methods("{\"method\":\"info\",\"params\":{}}\n{\"params\":{\"channel\":\"a\",\"data\":1}}"),
            [(0, Some(Method::Info), true), (0, Some(Method::Publish), true)]
        );
    }

    #[test]
    fn malformed_legacy_commands_are_refused() {
        for body in ["", "  ", "[]", "1", r#"{"method":"nothing"}"#, r#"{"method":"batch"}"#, r#"{"id":-1}"#, "{} x"] {
            assert!(parse(body.as_bytes(), &RequestLimits::default()).is_err(), "{body}");
        }
    }

    #[test]
    fn legacy_commands_per_batch_are_limited() {
        let limits = RequestLimits { batch_commands_max: 3, ..RequestLimits::default() };
        let body = |count: usize| r#"{"method":"info","params":{}}"#.repeat(count);
        assert!(parse(body(3).as_bytes(), &limits).expect("well formed").is_ok());
        assert!(parse(body(4).as_bytes(), &limits).expect("well formed").is_err());
    }

    #[test]
    fn null_is_absent_in_every_member() {
        for member in members(&sample::<Wire<'_>>()) {
            assert_eq!(methods(&member.null.to_string()), methods(&member.absent.to_string()), "{}", member.path);
        }
    }
}
