//! Calls of the HTTP API on a connection that stays open. When a node gives no answer, the next call goes to the next node.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use dunlin_protocol::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Limit of each wait for a node. A log without a leader delays answers by a few seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum size of a response's head and of its body.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;

/// The nodes, of which one is in use.
pub struct ApiClient {
    nodes: Arc<[SocketAddr]>,
    key: Arc<str>,
    current: usize,
    connection: Option<BufReader<TcpStream>>,
}

/// Why there is no result.
#[derive(Debug, PartialEq, Eq)]
pub enum CallError {
    /// There was no answer, or one that says to try again. The call may have been executed, or may be later.
    Unknown,
    /// The node refuses the call: an error code of the API, or an HTTP status.
    Refused { code: u32, message: String },
}

/// The body of an answer.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    result: Value,
    error: Option<AnswerError>,
}

#[derive(Deserialize)]
struct AnswerError {
    code: u32,
    message: String,
}

impl ApiClient {
    /// Connects with the first call.
    pub fn new(nodes: Arc<[SocketAddr]>, key: Arc<str>) -> Self {
        Self { nodes, key, current: 0, connection: None }
    }

    /// Calls a method of the API. Returns its result.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call(&mut self, method: &str, body: &impl Serialize) -> Result<Value, CallError> {
        let (status, answer) = self.exchange(method, body).map_err(|_| {
            self.connection = None;
            self.current = (self.current + 1) % self.nodes.len();
            CallError::Unknown
        })?;
        match status {
            200 => {}
            400..500 => return Err(CallError::Refused { code: status, message: "HTTP status".to_owned() }),
            _ => return Err(CallError::Unknown),
        }
        let answer: Answer = serde_json::from_slice(&answer).map_err(|_| CallError::Unknown)?;
        match answer.error {
            None => Ok(answer.result),
            Some(error) if is_temporary(error.code) => Err(CallError::Unknown),
            Some(AnswerError { code, message }) => Err(CallError::Refused { code, message }),
        }
    }

    /// Sends a request and reads the response: its status and its body.
    fn exchange(&mut self, method: &str, body: &impl Serialize) -> io::Result<(u32, Vec<u8>)> {
        let node = *self.nodes.get(self.current).ok_or(io::ErrorKind::NotFound)?;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => BufReader::new(connect(node)?),
        };
        let (body, key) = (serde_json::to_string(body)?, &self.key);
        let request = format!(
            "POST /api/{method} HTTP/1.1\r\nHost: {node}\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.get_mut().write_all(request.as_bytes())?;
        let (response, is_last) = read_response(&mut connection)?;
        self.connection = Some(connection).filter(|_| !is_last);
        Ok(response)
    }
}

fn connect(node: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&node, PATIENCE)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// The status and the body, and whether the node closes the connection. The API states the length of its responses.
fn read_response(connection: &mut BufReader<TcpStream>) -> io::Result<((u32, Vec<u8>), bool)> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut head = connection.by_ref().take(RESPONSE_BYTES_MAX);
    let (mut status, mut length, mut is_last) = (None, None, false);
    loop {
        let mut line = String::new();
        head.read_line(&mut line)?;
        let line = line.strip_suffix("\r\n").ok_or_else(invalid)?;
        match (status, line.split_once(": ")) {
            (None, _) => {
                status = Some(line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(invalid)?);
            }
            (Some(_), Some((name, value))) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().ok();
            }
            (Some(_), Some((name, value))) if name.eq_ignore_ascii_case("connection") => {
                is_last = value.eq_ignore_ascii_case("close");
            }
            (Some(_), Some(_)) => {}
            (Some(_), None) if line.is_empty() => break,
            (Some(_), None) => return Err(invalid()),
        }
    }
    let length: u64 = length.filter(|length| *length <= RESPONSE_BYTES_MAX).ok_or_else(invalid)?;
    let mut body = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    connection.read_exact(&mut body)?;
    Ok(((status.ok_or_else(invalid)?, body), is_last))
}

fn is_temporary(code: u32) -> bool {
    ErrorCode::ALL.iter().any(|known| *known as u32 == code && known.temporary())
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use serde_json::json;

    use super::*;

    /// A node that answers each connection's first request with one of the responses, and closes it.
    fn node(responses: Vec<&'static str>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for response in responses {
                let (mut socket, _) = listener.accept().expect("a connection");
                let mut request = [0; 4096];
                let _ = socket.read(&mut request);
                let _ = socket.write_all(response.as_bytes());
            }
        });
        address
    }

    fn client(nodes: &[SocketAddr]) -> ApiClient {
        ApiClient::new(nodes.into(), "k".into())
    }

    #[test]
    fn answers_are_results_refusals_or_nothing() {
        let refused = |code, message: &str| Err(CallError::Refused { code, message: message.to_owned() });
        for (response, expected) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 23\r\n\r\n{\"result\":{\"offset\":1}}", Ok(json!({"offset": 1}))),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"error\":{\"code\":102,\"message\":\"unknown channel\"}}",
                refused(102, "unknown channel"),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 49\r\n\r\n{\"error\":{\"code\":100,\"message\":\"internal error\"}}",
                Err(CallError::Unknown),
            ),
            ("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", refused(401, "HTTP status")),
            ("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", Err(CallError::Unknown)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\n{}", Err(CallError::Unknown)),
            ("HTTP/1.1 200 OK\r\n\r\n{}", Err(CallError::Unknown)),
            ("", Err(CallError::Unknown)),
        ] {
            assert_eq!(client(&[node(vec![response])]).call("publish", &json!({})), expected, "{response}");
        }
    }

    #[test]
    fn the_next_node_is_asked_after_one_without_an_answer() {
        let good = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 13\r\n\r\n{\"result\":{}}";
        let mut client = client(&[node(vec![""]), node(vec![good, good])]);
        assert_eq!(client.call("publish", &json!({})), Err(CallError::Unknown));
        for _ in 0..2 {
            assert_eq!(client.call("publish", &json!({})), Ok(json!({})));
        }
        assert_eq!(client.current, 1);
    }
}
