//! Messages of JSON-RPC 2.0: one JSON object in each line.

use serde_json::{Map, Value, json};

pub(super) const PARSE_ERROR: i64 = -32_700;
pub(super) const INVALID_REQUEST: i64 = -32_600;
pub(super) const METHOD_NOT_FOUND: i64 = -32_601;
pub(super) const INVALID_PARAMS: i64 = -32_602;

/// The id of a request: a text or an integer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Id(Value);

/// A message of the client.
#[derive(Debug)]
pub(super) enum Incoming {
    /// It has to be answered.
    Request(Request),
    /// It must not be answered.
    Notification { method: String, params: Map<String, Value> },
    /// An answer, although this server requests nothing.
    Answer,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: Id,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
}

/// An answer that reports an error of the protocol. Errors of a tool are results, so that a model sees them.
#[derive(Debug)]
pub(super) struct ErrorAnswer {
    /// `None` if the message has none that can be read.
    pub(super) id: Option<Id>,
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Option<Value>,
}

impl Id {
    fn parse(value: &Value) -> Option<Self> {
        let is_id = value.is_string() || value.is_i64() || value.is_u64();
        is_id.then(|| Self(value.clone()))
    }

    /// A text that differs for `1` and `"1"`.
    pub(super) fn key(&self) -> String {
        self.0.to_string()
    }

    /// The id that a `requestId` names.
    pub(super) fn named(params: &Map<String, Value>) -> Option<Self> {
        Self::parse(params.get("requestId")?)
    }
}

impl Incoming {
    /// The message in a line.
    pub(super) fn parse(line: &[u8]) -> Result<Self, ErrorAnswer> {
        let message = serde_json::from_slice(line).map_err(|error| {
            let text = format!("the line is not JSON (column {}): send one JSON object in each line", error.column());
            ErrorAnswer::new(None, PARSE_ERROR, text)
        })?;
        let invalid = |id, text: &str| Err(ErrorAnswer::new(id, INVALID_REQUEST, text.to_owned()));
        let mut message = match message {
            Value::Object(message) => message,
            Value::Array(_) => {
                return invalid(
                    None,
                    "batches are not accepted, as in the protocol since 2025-06-18: send each message in a line",
                );
            }
            _ => return invalid(None, "the message is not an object"),
        };
        let id = message.get("id").map(Id::parse);
        let known = id.clone().flatten();
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return invalid(known, "`jsonrpc` is not \"2.0\"");
        }
        let method = match message.remove("method") {
            Some(Value::String(method)) => method,
            None if message.contains_key("result") || message.contains_key("error") => return Ok(Self::Answer),
            None => return invalid(known, "the message has no `method`"),
            Some(_) => return invalid(known, "`method` is not a text"),
        };
        let params = match message.remove("params") {
            None => Some(Map::new()),
            Some(Value::Object(params)) => Some(params),
            Some(_) => None,
        };
        match (id, params) {
            (None, params) => Ok(Self::Notification { method, params: params.unwrap_or_default() }),
            (Some(None), _) => invalid(None, "`id` is neither a text nor an integer"),
            (Some(id), None) => Err(ErrorAnswer::new(id, INVALID_PARAMS, "`params` is not an object".to_owned())),
            (Some(Some(id)), Some(params)) => Ok(Self::Request(Request { id, method, params })),
        }
    }
}

impl ErrorAnswer {
    pub(super) fn new(id: Option<Id>, code: i64, message: String) -> Self {
        Self { id, code, message, data: None }
    }

    pub(super) fn too_long(bytes_max: usize) -> Self {
        let text = format!("the line is longer than {bytes_max} bytes, the maximum: it was not read");
        Self::new(None, INVALID_REQUEST, text)
    }

    pub(super) fn to_json(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        json!({ "jsonrpc": "2.0", "id": self.id.as_ref().map(|id| &id.0), "error": error })
    }
}

/// The answer with a result.
pub(super) fn answer(id: &Id, result: &Map<String, Value>) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.0, "result": result })
}
