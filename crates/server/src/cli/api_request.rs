//! Requests to the server API of a running node, at the port and with the key of its configuration.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use dunlin_config::{Config, Loaded};
use dunlin_net::ClientTls;
use dunlin_token::Secret;
use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// Maximum duration of connecting and of sending.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// A request for the node of this configuration.
pub(super) struct ApiRequest<'a> {
    pub(super) method: &'static str,
    pub(super) params: Value,
    pub(super) loaded: &'a Loaded,
    /// How long the node may take.
    pub(super) timeout: Duration,
}

/// The result of a request.
pub(super) struct ApiReply {
    pub(super) address: SocketAddr,
    pub(super) result: Box<RawValue>,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<ErrorOfApi>,
}

#[derive(Deserialize)]
struct ErrorOfApi {
    code: u32,
    message: String,
}

impl ApiRequest<'_> {
    /// Sends the request with each key of the configuration until the node accepts one. The error is for human readers.
    pub(super) fn send(&self) -> Result<ApiReply, String> {
        let config = &self.loaded.config;
        let (address, is_tls) = place(config)?;
        let keys = self.loaded.api_keys();
        let mut keys: Vec<Option<&Secret>> = keys.iter().map(Some).collect();
        if keys.is_empty() {
            keys.push(None);
        }
        for key in keys {
            let sent = self.exchange(address, is_tls, key);
            let (status, body) = sent.map_err(|error| format!("{address}: cannot reach the node: {error}"))?;
            match status {
                401 => {}
                200 => {
                    return result_of(&body)
                        .map_err(|why| format!("{address}: {why}"))
                        .map(|result| ApiReply { address, result });
                }
                404 => {
                    let why = "this port has no server API with this method: is it the port of a dunlin node of this version?";
                    return Err(format!("{address}: {why}"));
                }
                status => return Err(format!("{address}: the node responded with status {status}")),
            }
        }
        Err(format!(
            "{address}: the node knows none of the keys in this configuration: set `http_api.key`, or the variable \
             DUNLIN_HTTP_API_KEY for this command"
        ))
    }

    fn exchange(&self, address: SocketAddr, is_tls: bool, key: Option<&Secret>) -> io::Result<(u16, String)> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
        if !is_tls {
            return self.exchange_on(stream, address, key);
        }
        // The name in the certificate is that of the public address, and this connection stays on the machine or goes to an
        // address of the configuration.
        let tls = ClientTls { insecure_skip_verify: true, ..ClientTls::default() };
        let config = Arc::new(tls.client_config().map_err(io::Error::other)?);
        let connection = ClientConnection::new(config, ServerName::from(address.ip())).map_err(io::Error::other)?;
        self.exchange_on(StreamOwned::new(connection, stream), address, key)
    }

    fn exchange_on(
        &self,
        mut stream: impl Read + Write,
        address: SocketAddr,
        key: Option<&Secret>,
    ) -> io::Result<(u16, String)> {
        let (method, body) = (self.method, self.params.to_string());
        let length = body.len();
        let mut request = format!(
            "POST /api/{method} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\
             Content-Type: application/json\r\n"
        )
        .into_bytes();
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
        let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        // A TLS peer may close the connection without a farewell, after the whole response.
        let (head, body) = match (read, answer.split_once("\r\n\r\n")) {
            (_, Some(parts)) => parts,
            (Err(error), None) => return Err(error),
            (Ok(_), None) => (&*answer, ""),
        };
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("the response is not HTTP"))?;
        Ok((status, body.to_owned()))
    }
}

fn result_of(body: &str) -> Result<Box<RawValue>, String> {
    match serde_json::from_str(body) {
        Ok(Answer { result: Some(result), .. }) => Ok(result),
        Ok(Answer { error: Some(ErrorOfApi { code, message }), .. }) => Err(format!("error {code}: {message}")),
        Ok(_) | Err(_) => Err("the answer is not one of the server API".to_owned()),
    }
}

/// Where this machine reaches the API, and whether with TLS.
fn place(config: &Config) -> Result<(SocketAddr, bool), String> {
    let server = &config.http_server;
    let (address, port, is_tls) = match server.internal {
        Some(listener) => (listener.address.or(server.address), listener.port, false),
        None => (server.address, server.port, server.tls.is_some()),
    };
    if port == 0 {
        return Err(
            "the port in the configuration is 0, so the node takes any free one: set `http_server.port`".to_owned()
        );
    }
    let address: IpAddr = match address {
        Some(IpAddr::V6(address)) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        Some(address) if !address.is_unspecified() => address,
        _ => Ipv4Addr::LOCALHOST.into(),
    };
    Ok((SocketAddr::new(address, port), is_tls))
}
