//! Calls of the server API of a running node, with the address and the keys of its configuration.

use std::{
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

/// Where the node serves its API.
struct Place {
    address: SocketAddr,
    has_tls: bool,
    prefix: String,
}

/// Calls a method of the API. Returns `result` of its answer.
pub(super) fn call(loaded: &Loaded, method: &str, body: &Value) -> Result<Value, Failure> {
    let place = place(&loaded.config)?;
    let failed = |text: String| Failure::Api(format!("{}: {text}", place.address));
    let keys = loaded.api_keys();
    let keys: Vec<_> = match loaded.config.http_api.access {
        ApiAccess::Nobody => {
            return Err(Failure::Usage(
                "the configuration has no `http_api.key`, so the node serves no API".to_owned(),
            ));
        }
        ApiAccess::Everyone => vec![None],
        ApiAccess::Keys(_) => keys.iter().map(Some).collect(),
    };
    for key in keys {
        let stream = place.connect().map_err(|error| failed(format!("cannot reach the node: {error}")))?;
        let answer = place.post(stream, method, key, &body.to_string());
        let unanswered = |error| failed(format!("no answer, so the node may have done what it was asked: {error}"));
        let (status, text) = answer.map_err(unanswered)?;
        // A node that has not reloaded its configuration knows the previous key only.
        if status != 401 {
            return result(status, &text).map_err(failed);
        }
    }
    Err(failed("the node knows none of the keys in this configuration".to_owned()))
}

fn place(config: &Config) -> Result<Place, Failure> {
    let unusable = |text: &str| Failure::Usage(text.to_owned());
    let prefix = config.http_api.handler_prefix.clone();
    let prefix = prefix.ok_or_else(|| unusable("the node serves no API: `http_api.disabled` is true"))?;
    let server = &config.http_server;
    let (listen, port, has_tls) = match server.internal.filter(|_| !config.http_api.external) {
        Some(listener) => (listener.address.or(server.address), listener.port, false),
        None => (server.address, server.port, server.tls.is_some()),
    };
    if port == 0 {
        return Err(unusable("`http_server.port` is 0, so the node takes any free port: set it, or an internal port"));
    }
    Ok(Place { address: SocketAddr::new(reachable(listen), port), has_tls, prefix })
}

trait Duplex: Read + Write {}

impl<T: Read + Write> Duplex for T {}

impl Place {
    /// Returns the status and the body of the response.
    fn post(
        &self,
        mut stream: Box<dyn Duplex>,
        method: &str,
        key: Option<&Secret>,
        body: &str,
    ) -> io::Result<(u16, String)> {
        let (address, path, length) = (self.address, self.prefix.trim_end_matches('/'), body.len());
        let head = format!(
            "POST {path}/{method} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
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
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("the response is not HTTP"))?;
        Ok((status, body.to_owned()))
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

/// The result in a response, or what is wrong in words.
fn result(status: u16, body: &str) -> Result<Value, String> {
    let answer: Value = serde_json::from_str(body).unwrap_or_default();
    // With `http_api.error_mode: transport`, the body is the error itself.
    let error = if answer["error"].is_object() { &answer["error"] } else { &answer };
    match (&answer["result"], error["code"].as_u64()) {
        (result, _) if result.is_object() => Ok(result.clone()),
        (_, Some(code)) => {
            let message = error["message"].as_str().unwrap_or_default();
            Err(format!("error {code}: {}", Outside(message)))
        }
        (_, None) if status == 404 => Err("this port has no server API: is it the port of a dunlin node?".to_owned()),
        (_, None) => Err(format!("the node responded with status {status}: {}", Outside(body.trim()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_a_result_or_says_what_is_wrong() {
        for (status, body, expected) in [
            (200, r#"{"result":{"offset":3}}"#, Ok(serde_json::json!({ "offset": 3 }))),
            (200, r#"{"result":{}}"#, Ok(serde_json::json!({}))),
            (200, r#"{"error":{"code":102,"message":"unknown channel"}}"#, Err("error 102: unknown channel")),
            (404, r#"{"code":102,"message":"unknown channel"}"#, Err("error 102: unknown channel")),
            (404, "not found", Err("this port has no server API: is it the port of a dunlin node?")),
            (502, "\u{1b}[2J", Err("the node responded with status 502: \\u{1b}[2J")),
            (503, "busy\n", Err("the node responded with status 503: busy")),
        ] {
            assert_eq!(result(status, body), expected.map_err(str::to_owned), "{status} {body}");
        }
    }
}
