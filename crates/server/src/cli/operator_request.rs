//! Requests to the internal port of a running node.

use std::{
    fmt,
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use dunlin_config::Loaded;
use dunlin_token::Secret;

/// Maximum duration of connecting and of sending.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// A request for the node of this configuration.
pub(super) struct OperatorRequest<'a> {
    pub(super) path: &'static str,
    pub(super) loaded: &'a Loaded,
    /// How long the node may take.
    pub(super) timeout: Duration,
}

/// The response of a node.
pub(super) struct OperatorResponse {
    pub(super) address: SocketAddr,
    pub(super) status: u16,
    pub(super) body: String,
}

/// Why there is no response.
pub(super) enum Unanswered {
    /// The configuration has no internal port.
    NoInternalPort,
    /// The node cannot be reached.
    Unreachable(SocketAddr, io::Error),
    /// The node accepts no key of the configuration.
    UnknownKeys(SocketAddr),
}

impl OperatorRequest<'_> {
    /// Sends the request with each key of the configuration until the node accepts one. The file that the node is about
    /// to read may contain a new key that the node does not know yet.
    pub(super) fn post(&self) -> Result<OperatorResponse, Unanswered> {
        let config = &self.loaded.config;
        let listener = config.http_server.internal.ok_or(Unanswered::NoInternalPort)?;
        let listen = listener.address.or(config.http_server.address);
        let address = SocketAddr::from((reachable(listen), listener.port));
        let keys = self.loaded.api_keys();
        let mut keys: Vec<Option<&Secret>> = keys.iter().map(Some).collect();
        if keys.is_empty() {
            keys.push(None);
        }
        for key in keys {
            let sent = self.send(address, key).map_err(|error| Unanswered::Unreachable(address, error));
            let (status, body) = sent?;
            if status != 401 {
                return Ok(OperatorResponse { address, status, body });
            }
        }
        Err(Unanswered::UnknownKeys(address))
    }

    /// Sends the request; returns the status and the body of the response.
    fn send(&self, address: SocketAddr, key: Option<&Secret>) -> io::Result<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
        let path = self.path;
        let mut request =
            format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n")
                .into_bytes();
        if let Some(key) = key {
            request.extend_from_slice(b"X-API-Key: ");
            request.extend_from_slice(key.reveal());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        stream.write_all(&request)?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("the response is not HTTP"))?;
        Ok((status, body.to_owned()))
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInternalPort => {
                f.write_str("the configuration has no internal port: set `http_server.internal_port`")
            }
            Self::Unreachable(address, error) => write!(f, "{address}: cannot connect to the node: {error}"),
            Self::UnknownKeys(address) => write!(
                f,
                "{address}: the node knows none of the keys in this configuration; set `http_api.previous_key` to the key \
                 that the node was started with"
            ),
        }
    }
}

/// The address at which this machine can reach a node that listens on an address.
pub(super) fn reachable(listen: Option<IpAddr>) -> IpAddr {
    match listen {
        Some(IpAddr::V6(address)) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        Some(address) if !address.is_unspecified() => address,
        _ => Ipv4Addr::LOCALHOST.into(),
    }
}
