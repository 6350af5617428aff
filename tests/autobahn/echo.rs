//! An echo server for the Autobahn test suite.
//!
//! It uses the server's handshake, receiver and frame writer; its loop is one thread per connection, unlike the
//! server's. `dunlin-echo PORT` runs until it is stopped.

use std::{
    env,
    error::Error,
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    process::ExitCode,
    thread,
    time::Instant,
};

use dunlin_websocket::{
    MessageKind, Opcode, Received, Receiver, WebSocketLimits, close,
    deflate::{Deflater, Inflater},
    handshake::{self, DeflateOffer},
    header,
};

/// The suite sends messages of up to 16 MiB, and 4 MiB in pieces of 64 bytes.
const LIMITS: WebSocketLimits = WebSocketLimits {
    frame_bytes_max: 32 << 20,
    message_bytes_max: 32 << 20,
    fragments_max: 1 << 20,
    unfinished_age_max_ms: u64::MAX,
    inflated_bytes_max: 32 << 20,
    inflated_ratio_max: usize::MAX,
};
/// A fast level, because the suite checks the compression, not its ratio.
const DEFLATE_LEVEL: u8 = 1;
/// The size of a shard's reads.
const READ_BYTES: usize = 65_536;
const HEAD_BYTES_MAX: usize = 16_384;
const HEAD_FIELDS_MAX: usize = 64;

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dunlin-echo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let port: u16 = env::args().nth(1).ok_or("usage: dunlin-echo PORT")?.parse()?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    println!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || {
            if let Err(error) = echo(stream) {
                eprintln!("dunlin-echo: {error}");
            }
        });
    }
    Ok(())
}

/// Serves one connection from its handshake to its end.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some((mut unread, agreed)) = open(&mut stream)? else { return Ok(()) };
    let began = Instant::now();
    let mut receiver = if agreed.is_some() { Receiver::with_deflate() } else { Receiver::new() };
    let mut inflater = Inflater::default();
    // As in the server, a client that requires a smaller window gets uncompressed messages.
    let mut deflater = agreed.filter(|offer| offer.has_full_window()).map(|_| Deflater::new(DEFLATE_LEVEL));
    let mut buffer = vec![0; READ_BYTES];
    let mut out = Vec::new();
    loop {
        let now_ms = began.elapsed().as_millis() as u64;
        let goes_on = answer(&mut receiver, &mut inflater, deflater.as_mut(), now_ms, &mut unread, &mut out);
        stream.write_all(&out)?;
        out.clear();
        if !goes_on {
            break;
        }
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        unread.clear();
        unread.extend_from_slice(buffer.get(..length).unwrap_or_default());
    }
    // Read until the peer closes; otherwise a reset could discard our last frame.
    stream.shutdown(Shutdown::Write)?;
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Reads and answers the request; `None` if it is refused. Returns the bytes after the request, which begin the frames,
/// and the negotiated compression.
fn open(stream: &mut TcpStream) -> io::Result<Option<(Vec<u8>, Option<DeflateOffer>)>> {
    let mut head = Vec::new();
    let mut piece = [0; 1_024];
    loop {
        let length = stream.read(&mut piece)?;
        head.extend_from_slice(piece.get(..length).unwrap_or_default());
        let mut fields = [httparse::EMPTY_HEADER; HEAD_FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(head_len)) => {
                let fields = request.headers.iter().map(|field| (field.name, field.value));
                let (method, minor) = (request.method.unwrap_or_default(), request.version.unwrap_or_default());
                let mut response = Vec::new();
                let agreed = match handshake::accept(method, minor, fields, &[]) {
                    Ok(mut accepted) => {
                        let agreed = accepted.agree_on_deflate();
                        accepted.append_response(&mut response);
                        Some(agreed)
                    }
                    Err(refusal) => {
                        refusal.append_response(&mut response);
                        None
                    }
                };
                stream.write_all(&response)?;
                return Ok(agreed.map(|agreed| (head.split_off(head_len), agreed)));
            }
            Ok(httparse::Status::Partial) if length > 0 && head.len() <= HEAD_BYTES_MAX => {}
            _ => return Ok(None),
        }
    }
}

/// Answers all complete messages in `unread`. Returns `false` at the end of the connection.
fn answer(
    receiver: &mut Receiver,
    inflater: &mut Inflater,
    mut deflater: Option<&mut Deflater>,
    now_ms: u64,
    unread: &mut [u8],
    out: &mut Vec<u8>,
) -> bool {
    let mut rest = unread;
    loop {
        match receiver.receive(now_ms, &LIMITS, &mut rest) {
            Ok(None) => return true,
            Ok(Some(Received::Message { kind, payload })) => header::append_frame(opcode(kind), &payload, out),
            Ok(Some(Received::Compressed { kind, payload })) => match inflater.inflate(kind, &payload, &LIMITS) {
                Ok(message) => append_message(deflater.as_deref_mut(), opcode(kind), message, out),
                Err(error) => {
                    close::append_close(error.close_code(), error.reason(), out);
                    return false;
                }
            },
            Ok(Some(Received::Ping(payload))) => header::append_pong(&payload, out),
            Ok(Some(Received::Pong(_))) => {}
            Ok(Some(Received::Close { code, .. })) => {
                close::append_close_reply(code, out);
                return false;
            }
            Err(error) => {
                close::append_close(error.close_code(), error.reason(), out);
                return false;
            }
        }
    }
}

/// Appends a message, compressed if that is permitted and shorter.
fn append_message(deflater: Option<&mut Deflater>, opcode: Opcode, message: &[u8], out: &mut Vec<u8>) {
    let mut compressed = Vec::new();
    if !deflater.is_some_and(|deflater| deflater.deflate(message, &mut compressed)) {
        return header::append_frame(opcode, message, out);
    }
    let start = out.len();
    header::append_frame(opcode, &compressed, out);
    if let Some(first) = out.get_mut(start) {
        *first |= header::COMPRESSED_BIT;
    }
}

const fn opcode(kind: MessageKind) -> Opcode {
    match kind {
        MessageKind::Text => Opcode::Text,
        MessageKind::Binary => Opcode::Binary,
    }
}
