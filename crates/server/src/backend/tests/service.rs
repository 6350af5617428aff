//! A scripted HTTP service, with a thread for each connection.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

/// How the service reacts to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reaction {
    /// Writes this response, and keeps the connection open.
    Answer(String),
    /// Writes these bytes, and closes the connection.
    Raw(String),
    /// Writes these bytes, and then nothing.
    RawThenHang(String),
    /// Does not respond.
    Hang,
    /// Responds with `{}` when the gate is open.
    Gate,
    /// Responds with status 413 to bodies of more bytes, and otherwise with 200.
    UpTo(usize),
}

impl Reaction {
    pub(crate) fn answer(status: &str, body: &str) -> Self {
        Self::Answer(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    }
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    pub(crate) line: String,
    pub(crate) fields: BTreeMap<String, String>,
    pub(crate) body: String,
}

pub(crate) struct Service {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    reaction: Mutex<Reaction>,
    requests: Mutex<Vec<Came>>,
    requests_changed: Condvar,
    gate: (Mutex<bool>, Condvar),
}

impl Service {
    pub(crate) fn start(reaction: Reaction) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let gate = (Mutex::new(false), Condvar::new());
        let reaction = Mutex::new(reaction);
        let shared = Arc::new(Shared { reaction, requests: Mutex::default(), requests_changed: Condvar::new(), gate });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Came> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Waits for the first request.
    pub(crate) fn wait_for_request(&self, timeout: Duration) {
        let requests = self.shared.requests.lock().unwrap();
        let changed = &self.shared.requests_changed;
        let (requests, _) = changed.wait_timeout_while(requests, timeout, |requests| requests.is_empty()).unwrap();
        assert!(!requests.is_empty(), "no request");
    }

    pub(crate) fn react(&self, reaction: Reaction) {
        *self.shared.reaction.lock().unwrap() = reaction;
    }

    pub(crate) fn open_gate(&self) {
        *self.shared.gate.0.lock().unwrap() = true;
        self.shared.gate.1.notify_all();
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    while let Some(came) = receive(&mut stream) {
        let body_bytes = came.body.len();
        shared.requests.lock().unwrap().push(came);
        shared.requests_changed.notify_all();
        let reaction = shared.reaction.lock().unwrap().clone();
        let answer = match reaction {
            Reaction::Answer(text) => text,
            Reaction::Raw(text) => {
                let _ = stream.write_all(text.as_bytes());
                return;
            }
            Reaction::RawThenHang(text) => {
                let _ = stream.write_all(text.as_bytes());
                continue;
            }
            Reaction::Hang => continue,
            Reaction::UpTo(bytes_max) => {
                let status = if body_bytes > bytes_max { "413 Content Too Large" } else { "200 OK" };
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
            }
            Reaction::Gate => {
                let mut open = shared.gate.0.lock().unwrap();
                while !*open {
                    open = shared.gate.1.wait(open).unwrap();
                }
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_owned()
            }
        };
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn receive(stream: &mut TcpStream) -> Option<Came> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4_096];
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
            _ => return None,
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let line = lines.next()?.to_owned();
    let fields: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = fields.get("content-length")?.parse().ok()?;
    while bytes.len() < head_end + 4 + length {
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
            _ => return None,
        }
    }
    let body = String::from_utf8_lossy(&bytes[head_end + 4..]).into_owned();
    Some(Came { line, fields, body })
}
