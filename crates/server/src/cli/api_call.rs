//! Requests to a running node, with the address and the keys of its configuration: calls of the server API, and the page
//! of metrics.

use std::{
    fmt,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use dunlin_config::{ApiAccess, Config, Loaded};
use dunlin_net::ClientTls;
use dunlin_token::Secret;
use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};
use serde_json::Value;

use super::{Failure, operator_request::reachable};
use crate::telemetry::log::Outside;

/// Maximum duration of each step. Longer than `http_api.timeout` by default.
const TIMEOUT: Duration = Duration::from_secs(15);

const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Where the node answers.
struct Place {
    address: SocketAddr,
    /// The setting that the port is from.
    setting: &'static str,
    has_tls: bool,
}

/// A request.
struct Request<'a> {
    verb: &'static str,
    path: &'a str,
    key: Option<&'a Secret>,
    body: &'a str,
}

/// Why there is no result.
#[derive(Debug)]
pub(super) enum ApiFailure {
    /// With this configuration, a node does not answer such requests.
    NotServed(&'static str),
    /// Nobody accepts connections at this address, whose port is from this setting.
    Unreachable(SocketAddr, &'static str, io::Error),
    /// The node was reached and has not answered.
    Unanswered(SocketAddr, io::Error),
    /// The node accepts no key of the configuration.
    UnknownKeys(SocketAddr),
    /// The API answered with an error: its code and its message.
    Refused(SocketAddr, u64, String),
    /// The answer is not one of the API.
    NoResult(SocketAddr, String),
}

/// Calls a method of the API. Returns `result` of its answer.
pub(super) fn call(loaded: &Loaded, method: &str, body: &Value) -> Result<Value, ApiFailure> {
    let (config, keys) = (&loaded.config, loaded.api_keys());
    let prefix = config.http_api.handler_prefix.as_ref();
    let prefix = prefix
        .ok_or(ApiFailure::NotServed("the node serves no API: `http_api.disabled` is true"))?
        .trim_end_matches('/');
    let place = place(config, config.http_api.external)?;
    let keys: Vec<_> = match config.http_api.access {
        ApiAccess::Nobody => {
            let why = "the configuration has no `http_api.key`, so the node serves no API";
            return Err(ApiFailure::NotServed(why));
        }
        ApiAccess::Everyone => vec![None],
        ApiAccess::Keys(_) => keys.iter().map(Some).collect(),
    };
    let (path, body) = (format!("{prefix}/{method}"), body.to_string());
    for key in keys {
        let (status, text) = place.ask(&Request { verb: "POST", path: &path, key, body: &body })?;
        // A node that has not reloaded its configuration knows the previous key only.
        if status != 401 {
            return result(place.address, status, &text);
        }
    }
    Err(ApiFailure::UnknownKeys(place.address))
}

/// The page of metrics of a running node.
pub(super) fn metrics_page(loaded: &Loaded) -> Result<String, ApiFailure> {
    let path = loaded.config.prometheus_prefix.as_deref();
    let path = path.ok_or(ApiFailure::NotServed("the node serves no metrics: set `prometheus.enabled` to true"))?;
    let place = place(&loaded.config, false)?;
    match place.ask(&Request { verb: "GET", path, key: None, body: "" })? {
        (200, page) => Ok(page),
        (status, text) => Err(ApiFailure::NoResult(
            place.address,
            format!("the node responded with status {status}: {}", Outside(text.trim())),
        )),
    }
}

/// Where the node answers operators, or with `external` applications.
fn place(config: &Config, external: bool) -> Result<Place, ApiFailure> {
    let server = &config.http_server;
    let (listen, port, setting, has_tls) = match server.internal.filter(|_| !external) {
        Some(listener) => (listener.address.or(server.address), listener.port, "http_server.internal_port", false),
        None => (server.address, server.port, "http_server.port", server.tls.is_some()),
    };
    if port == 0 {
        let why = "`http_server.port` is 0, so the node takes any free port: set it, or an internal port";
        return Err(ApiFailure::NotServed(why));
    }
    Ok(Place { address: SocketAddr::new(reachable(listen), port), setting, has_tls })
}

impl From<ApiFailure> for Failure {
    fn from(failure: ApiFailure) -> Self {
        match failure {
            ApiFailure::NotServed(why) => Self::Usage(why.to_owned()),
            other => Self::Api(other.to_string()),
        }
    }
}

impl fmt::Display for ApiFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotServed(why) => f.write_str(why),
            Self::Unreachable(address, setting, error) => {
                write!(f, "{address} (`{setting}`): cannot reach the node: {error}")
            }
            Self::Unanswered(address, error) => {
                write!(f, "{address}: no answer, so the node may have done what it was asked: {error}")
            }
            Self::UnknownKeys(address) => write!(f, "{address}: the node knows none of the keys in this configuration"),
            Self::Refused(address, code, message) => write!(f, "{address}: error {code}: {}", Outside(message)),
            Self::NoResult(address, text) => write!(f, "{address}: {text}"),
        }
    }
}

trait Duplex: Read + Write {}

impl<T: Read + Write> Duplex for T {}

impl Place {
    /// Sends a request. Returns the status and the body of the response.
    fn ask(&self, request: &Request<'_>) -> Result<(u16, String), ApiFailure> {
        let stream = self.connect().map_err(|error| ApiFailure::Unreachable(self.address, self.setting, error))?;
        self.send(stream, request).map_err(|error| ApiFailure::Unanswered(self.address, error))
    }

    fn send(&self, mut stream: Box<dyn Duplex>, request: &Request<'_>) -> io::Result<(u16, String)> {
        let Request { verb, path, key, body } = request;
        let (address, length) = (self.address, body.len());
        let head = format!(
            "{verb} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n"
        );
        let mut request = head.into_bytes();
        if let Some(key) = key {
            request.extend_from_slice(b"X-API-Key: ");
            request.extend_from_slice(key.reveal());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body.as_bytes());
        stream.write_all(&request)?;
        stream.flush()?;
        let mut answer = Vec::new();
        match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer) {
            // The end of TCP without an end of TLS.
            Err(error) if error.kind() != ErrorKind::UnexpectedEof || answer.is_empty() => return Err(error),
            _ => {}
        }
        response(&answer)
    }

    fn connect(&self) -> io::Result<Box<dyn Duplex>> {
        let stream = TcpStream::connect_timeout(&self.address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        if !self.has_tls {
            return Ok(Box::new(stream));
        }
        // On an address of this machine, the name in the node's certificate does not match.
        let tls = ClientTls { insecure_skip_verify: true, ..ClientTls::default() };
        let config = tls.client_config().map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::new(config), ServerName::from(self.address.ip()));
        Ok(Box::new(StreamOwned::new(connection.map_err(io::Error::other)?, stream)))
    }
}

/// The status and the body of a response. A body that broke off, or has more than is read of it, is an error: half a page of
/// metrics looks like a whole one.
fn response(answer: &[u8]) -> io::Result<(u16, String)> {
    let head_length = answer.windows(4).position(|part| part == b"\r\n\r\n").unwrap_or(answer.len());
    let (head, rest) = answer.split_at(head_length);
    let (head, body) = (String::from_utf8_lossy(head), rest.get(4..).unwrap_or_default());
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("the response is not HTTP"))?;
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    match length.and_then(|(_, length)| length.trim().parse::<usize>().ok()) {
        Some(length) if body.len() < length => {
            Err(io::Error::other(format!("{} of {length} bytes of the answer were read", body.len())))
        }
        _ => Ok((status, String::from_utf8_lossy(body).into_owned())),
    }
}

/// The result in a response of the API, or what is wrong.
fn result(address: SocketAddr, status: u16, body: &str) -> Result<Value, ApiFailure> {
    let answer: Value = serde_json::from_str(body).unwrap_or_default();
    // With `http_api.error_mode: transport`, the body is the error itself.
    let error = if answer["error"].is_object() { &answer["error"] } else { &answer };
    let text = match (&answer["result"], error["code"].as_u64()) {
        (result, _) if result.is_object() => return Ok(result.clone()),
        (_, Some(code)) => {
            let message = error["message"].as_str().unwrap_or_default();
            return Err(ApiFailure::Refused(address, code, message.to_owned()));
        }
        (_, None) if status == 404 => "this port has no server API: is it the port of a dunlin node?".to_owned(),
        (_, None) => format!("the node responded with status {status}: {}", Outside(body.trim())),
    };
    Err(ApiFailure::NoResult(address, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_that_broke_off_is_an_error() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na 1", Ok((200, "a 1"))),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\na ", Err("2 of 3 bytes of the answer were read")),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n", Err("0 of 3 bytes of the answer were read")),
            ("HTTP/1.1 204 No Content\r\n\r\n", Ok((204, ""))),
            ("HTTP/1.1 200 OK\r\n\r\na\r\n\r\nb", Ok((200, "a\r\n\r\nb"))),
            ("hello\r\n", Err("the response is not HTTP")),
            ("", Err("the response is not HTTP")),
        ] {
            let found = response(answer.as_bytes()).map_err(|error| error.to_string());
            let expected = expected.map(|(status, body)| (status, body.to_owned())).map_err(str::to_owned);
            assert_eq!(found, expected, "{answer}");
        }
    }

    #[test]
    fn a_response_has_a_result_or_says_what_is_wrong() {
        let address = SocketAddr::from(([127, 0, 0, 1], 8000));
        for (status, body, expected) in [
            (200, r#"{"result":{"offset":3}}"#, Ok(serde_json::json!({ "offset": 3 }))),
            (200, r#"{"result":{}}"#, Ok(serde_json::json!({}))),
            (200, r#"{"error":{"code":102,"message":"unknown channel"}}"#, Err("error 102: unknown channel")),
            (404, r#"{"code":102,"message":"unknown channel"}"#, Err("error 102: unknown channel")),
            (200, "{\"error\":{\"code\":400,\"message\":\"\\u001b[2J\"}}", Err("error 400: \\u{1b}[2J")),
            (404, "not found", Err("this port has no server API: is it the port of a dunlin node?")),
            (502, "\u{1b}[2J", Err("the node responded with status 502: \\u{1b}[2J")),
            (503, "busy\n", Err("the node responded with status 503: busy")),
        ] {
            let expected = expected.map_err(|text| format!("{address}: {text}"));
            assert_eq!(result(address, status, body).map_err(|why| why.to_string()), expected, "{status} {body}");
        }
    }
}
