//! Calls of the HTTP API on a connection that stays open. After a call without a result, the next call goes to the next node.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    reachable_nodes::{Nodes, Refusal},
    response::ResponseHead,
    retry::is_temporary,
};

/// Limit of each wait for a node. A log without a leader delays answers by a few seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum size of a response's head and of its body.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;

/// Size of a read.
const BUFFER_BYTES: usize = 4 << 10;

/// The nodes, of which one is in use.
pub struct ApiClient {
    nodes: Arc<Nodes>,
    key: Arc<str>,
    current: usize,
    connection: Option<TcpStream>,
}

/// Why there is no result.
#[derive(Debug, PartialEq, Eq)]
pub enum CallError {
    /// There was no answer, or one that says to try again. The call may have been executed, or may be later.
    Unknown,
    /// The node refuses the call: with an error code of the API, or an HTTP status.
    Refused(Refusal),
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
    message: Box<str>,
}

impl ApiClient {
    /// Connects with the first call.
    pub fn new(nodes: Arc<Nodes>, key: Arc<str>) -> Self {
        Self { nodes, key, current: 0, connection: None }
    }

    /// Calls a method of the API. Returns its result.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call(&mut self, method: &str, body: &impl Serialize) -> Result<Value, CallError> {
        let Some(node) = self.nodes.addresses.get(self.current).copied() else { return Err(CallError::Unknown) };
        match self.exchange(node, method, body) {
            Ok(Answer { result, error: None }) => {
                self.nodes.succeeded();
                Ok(result)
            }
            Ok(Answer { error: Some(AnswerError { code, message }), .. }) if !is_temporary(code) => {
                Err(CallError::Refused(Refusal { node, code, message }))
            }
            Ok(Answer { error: Some(AnswerError { code, message }), .. }) => {
                Err(self.leave(node, &format_args!("{message}, {code}")))
            }
            Err(error) => Err(self.leave(node, &error)),
        }
    }

    /// The next call goes to the next node.
    fn leave(&mut self, node: SocketAddr, why: &dyn std::fmt::Display) -> CallError {
        self.nodes.failed(node, why);
        let next = (self.current + 1) % self.nodes.addresses.len();
        if next != self.current {
            (self.current, self.connection) = (next, None);
        }
        CallError::Unknown
    }

    /// Sends a request and reads the response. A status other than 200 is its error.
    fn exchange(&mut self, node: SocketAddr, method: &str, body: &impl Serialize) -> io::Result<Answer> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(node)?,
        };
        let (body, key) = (serde_json::to_string(body)?, &self.key);
        let request = format!(
            "POST /api/{method} HTTP/1.1\r\nHost: {node}\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(request.as_bytes())?;
        let (head, body) = read_response(&mut connection)?;
        self.connection = Some(connection).filter(|_| !head.is_last);
        match head.status {
            200 => Ok(serde_json::from_slice(&body)?),
            code => Ok(Answer { result: Value::Null, error: Some(AnswerError { code, message: head.reason }) }),
        }
    }
}

fn connect(node: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&node, PATIENCE)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Reads the only response that is expected. The API states the length of its responses.
fn read_response(connection: &mut TcpStream) -> io::Result<(ResponseHead, Vec<u8>)> {
    let mut received = Vec::new();
    let mut buffer = [0; BUFFER_BYTES];
    let head = loop {
        let bytes = connection.read(&mut buffer)?;
        received.extend_from_slice(buffer.get(..bytes).unwrap_or_default());
        if let Some(head) = ResponseHead::parse(&received)? {
            break head;
        }
        if bytes == 0 || received.len() as u64 > RESPONSE_BYTES_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let length = head.body_bytes.filter(|length| *length <= RESPONSE_BYTES_MAX).ok_or(io::ErrorKind::InvalidData)?;
    let mut body = received.split_off(head.bytes);
    let missing = length.checked_sub(body.len() as u64).ok_or(io::ErrorKind::InvalidData)?;
    if connection.take(missing).read_to_end(&mut body)? as u64 != missing {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((head, body))
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
        ApiClient::new(Arc::new(Nodes::new(nodes)), "k".into())
    }

    #[test]
    fn answers_are_results_refusals_or_nothing() {
        type Expected = Result<Value, Option<(u32, &'static str)>>;
        let refused = |code, message: &'static str| -> Expected { Err(Some((code, message))) };
        let unknown: Expected = Err(None);
        for (response, expected) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 23\r\n\r\n{\"result\":{\"offset\":1}}", Ok(json!({"offset": 1}))),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"error\":{\"code\":102,\"message\":\"unknown channel\"}}",
                refused(102, "unknown channel"),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 49\r\n\r\n{\"error\":{\"code\":100,\"message\":\"internal error\"}}",
                unknown.clone(),
            ),
            ("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", refused(401, "Unauthorized")),
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", refused(404, "Not Found")),
            ("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", unknown.clone()),
            ("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n", unknown.clone()),
            ("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", unknown.clone()),
            ("HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\n{}", unknown.clone()),
            ("HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"result\":", unknown.clone()),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{}", unknown.clone()),
            ("HTTP/1.1 200 OK\r\n\r\n{}", unknown.clone()),
            ("220 mail\r\n", unknown.clone()),
            ("", unknown),
        ] {
            let node = node(vec![response]);
            let expected = expected.map_err(|refused| match refused {
                Some((code, message)) => CallError::Refused(Refusal { node, code, message: message.into() }),
                None => CallError::Unknown,
            });
            assert_eq!(client(&[node]).call("publish", &json!({})), expected, "{response}");
        }
    }

    #[test]
    fn the_next_node_is_asked_after_one_without_a_result() {
        let busy = "HTTP/1.1 200 OK\r\nContent-Length: 55\r\n\r\n{\"error\":{\"code\":100,\"message\":\"no leader: try again\"}}";
        let good = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 13\r\n\r\n{\"result\":{}}";
        let mut client = client(&[node(vec![""]), node(vec![busy]), node(vec![good, good])]);
        for _ in 0..2 {
            assert_eq!(client.call("publish", &json!({})), Err(CallError::Unknown));
        }
        for _ in 0..2 {
            assert_eq!(client.call("publish", &json!({})), Ok(json!({})));
        }
        assert_eq!(client.current, 2);
    }
}
