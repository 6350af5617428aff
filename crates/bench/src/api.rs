//! Reads responses of the HTTP API on a kept-alive connection, which it counts without decoding them, and complete
//! pages.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::error::Error;

const PAGE_PATIENCE: Duration = Duration::from_secs(10);
const PAGE_BYTES_MAX: usize = 64 << 20;
/// A backup may take a while.
const POST_PATIENCE: Duration = Duration::from_mins(2);

/// The body of a page.
pub fn get(address: SocketAddr, path: &str) -> Result<String, Error> {
    // The body of a response to HTTP/1.0 ends with the connection and has no parts.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    body_of_response(address, path, &request, PAGE_PATIENCE)
}

/// The body of the response to a request of the HTTP API.
pub fn post(address: SocketAddr, path: &str, api_key: &str, body: &str) -> Result<String, Error> {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nX-API-Key: {api_key}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    body_of_response(address, path, &request, POST_PATIENCE)
}

fn body_of_response(address: SocketAddr, path: &str, request: &str, patience: Duration) -> Result<String, Error> {
    let ask = || -> io::Result<String> {
        let mut socket = TcpStream::connect_timeout(&address, patience)?;
        socket.write_all(request.as_bytes())?;
        let response = read_to_end(&mut socket, patience)?;
        match response.split_once("\r\n\r\n") {
            Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
            _ => Err(io::Error::other(response.lines().next().unwrap_or("no answer").to_owned())),
        }
    };
    ask().map_err(|source| Error::os(format!("read http://{address}{path}"), source, "check the server's log"))
}

/// Reads until the end of a connection. It takes no longer in total, also if the server sends a byte now and then.
fn read_to_end(socket: &mut TcpStream, patience: Duration) -> io::Result<String> {
    let deadline = Instant::now() + patience;
    let (mut response, mut buffer) = (Vec::new(), [0; 16 << 10]);
    loop {
        let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        socket.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        match socket.read(&mut buffer)? {
            0 => return String::from_utf8(response).map_err(io::Error::other),
            bytes => response.extend_from_slice(buffer.get(..bytes).unwrap_or_default()),
        }
        if response.len() > PAGE_BYTES_MAX {
            return Err(io::Error::other("the response is longer than 64 MiB"));
        }
    }
}

/// Collects received bytes, and splits them into responses.
#[derive(Default)]
pub struct Responses {
    pending: Vec<u8>,
}

/// Maximum length of a response.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

impl Responses {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next response's error: 0 for success, the HTTP status if it is not 200, 1 for an error object in the body.
    pub fn next(&mut self) -> Result<Option<u32>, String> {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        let head_bytes = match response.parse(&self.pending) {
            Ok(httparse::Status::Complete(bytes)) => bytes,
            Ok(httparse::Status::Partial) if self.pending.len() < RESPONSE_BYTES_MAX => return Ok(None),
            Ok(httparse::Status::Partial) => return Err("API response: the head is too long".into()),
            Err(err) => return Err(format!("API response: {err}")),
        };
        let status = u32::from(response.code.unwrap_or(0));
        let length = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
        let body_bytes: usize = length
            .and_then(|header| std::str::from_utf8(header.value).ok()?.trim().parse().ok())
            .filter(|&bytes| bytes < RESPONSE_BYTES_MAX)
            .ok_or("API response: no usable Content-Length")?;
        let Some(body) = self.pending.get(head_bytes..head_bytes + body_bytes) else { return Ok(None) };
        let error = match status {
            200 => u32::from(body.starts_with(br#"{"error""#)),
            status => status,
        };
        self.pending.drain(..head_bytes + body_bytes);
        Ok(Some(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelined_responses_are_counted_however_they_are_cut() {
        let wire = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"result\":{}}\
                     HTTP/1.1 200 OK\r\ncontent-length: 25\r\n\r\n{\"error\":{\"code\":102,  }}\
                     HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
        for cut in 0..wire.len() {
            let mut responses = Responses::default();
            let mut seen = Vec::new();
            for part in [&wire[..cut], &wire[cut..]] {
                responses.push(part);
                while let Some(error) = responses.next().unwrap() {
                    seen.push(error);
                }
            }
            assert_eq!(seen, [0, 1, 401], "cut at {cut}");
        }
    }

    #[test]
    fn a_response_without_length_is_refused() {
        let mut responses = Responses::default();
        responses.push(b"HTTP/1.1 200 OK\r\n\r\n{}");
        assert!(responses.next().is_err());
    }
}
