//! A backend that answers over HTTP.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use serde_json::Value;

/// Starts a backend that passes the JSON body of each request to `answer`, and responds with the result, or never if
/// the result is `None`. It serves until the process ends. Returns its URL.
pub fn start_backend(answer: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || answer_all(stream, &*answer));
        }
    });
    url
}

fn answer_all(mut stream: TcpStream, answer: &dyn Fn(&Value) -> Option<Value>) {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4_096]);
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((_, body)) = text.split_once("\r\n\r\n") else { continue };
        let Ok(body) = serde_json::from_str::<Value>(body) else { continue };
        bytes.clear();
        let Some(answer) = answer(&body) else { continue };
        let answer = answer.to_string();
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}
