//! A target with the minimum of the protocol for a scenario: JSON and channels. It delivers with a planted fault.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// What the target does wrong. Publications are counted from 0, over all channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// It delivers every n-th publication to nobody.
    DropEvery(u64),
    /// It delivers this publication after the next one.
    Swap(u64),
    /// It delivers this publication twice.
    Duplicate(u64),
    /// It delivers this publication and all later ones so much later.
    Delay(u64, Duration),
    /// It refuses every n-th publication.
    RefuseEvery(u64),
    /// It delivers this publication also to the subscribers of other channels.
    Leak(u64),
    /// It ends all connections at this publication.
    End(u64),
}

struct State {
    fault: Fault,
    published: u64,
    subscribers: HashMap<String, Vec<TcpStream>>,
    connections: Vec<TcpStream>,
    /// The push that waits for the next publication.
    held: Option<(String, String)>,
}

/// Starts the target.
pub fn start(fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    let state = State { fault, published: 0, subscribers: HashMap::new(), connections: Vec::new(), held: None };
    let state = Arc::new(Mutex::new(state));
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let state = Arc::clone(&state);
            thread::spawn(move || serve(socket, &state));
        }
    });
    address
}

impl State {
    /// Takes a publication. Returns whether it is accepted.
    fn publish(&mut self, channel: &str, data: &Value) -> bool {
        let number = self.published;
        self.published += 1;
        let push = format!(r#"{{"push":{{"channel":"{channel}","pub":{{"data":{data}}}}}}}"#);
        match self.fault {
            Fault::DropEvery(every) if (number + 1).is_multiple_of(every) => return true,
            Fault::RefuseEvery(every) if (number + 1).is_multiple_of(every) => return false,
            Fault::Swap(of) if number == of => {
                self.held = Some((channel.to_owned(), push));
                return true;
            }
            Fault::Delay(of, time) if number == of => thread::sleep(time),
            Fault::End(of) if number == of => {
                for connection in &self.connections {
                    // The client may be gone.
                    let _ = connection.shutdown(std::net::Shutdown::Both);
                }
            }
            _ => {}
        }
        self.deliver(channel, &push);
        if self.fault == Fault::Duplicate(number) {
            self.deliver(channel, &push);
        }
        if self.fault == Fault::Leak(number) {
            for other in self.subscribers.keys().filter(|name| *name != channel).cloned().collect::<Vec<_>>() {
                self.deliver(&other, &push);
            }
        }
        if let Some((channel, push)) = self.held.take() {
            self.deliver(&channel, &push);
        }
        true
    }

    fn deliver(&mut self, channel: &str, push: &str) {
        for subscriber in self.subscribers.get_mut(channel).into_iter().flatten() {
            send(subscriber, push);
        }
    }
}

fn serve(socket: TcpStream, state: &Mutex<State>) {
    let mut writer = socket.try_clone().expect("a socket can be cloned");
    let mut reader = BufReader::new(socket);
    let (mut line, mut is_upgrade) = (String::new(), false);
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        is_upgrade |= line.starts_with("Upgrade:");
    }
    if !is_upgrade {
        // It has no metrics.
        let _ = writer.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    let _ = writer.write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    let mut client = writer.try_clone().expect("a socket can be cloned");
    lock(state).connections.push(client.try_clone().expect("a socket can be cloned"));
    while let Some(frame) = receive(&mut reader) {
        for command in frame.lines() {
            let command: Value = serde_json::from_str(command).expect("a command is JSON");
            answer(&command, &mut client, state);
        }
    }
}

/// Answers under the lock, so that no delivery comes between.
fn answer(command: &Value, client: &mut TcpStream, state: &Mutex<State>) {
    let id = &command["id"];
    let channel = |of: &str| command[of]["channel"].as_str().expect("a command names its channel").to_owned();
    let mut state = lock(state);
    if command.get("publish").is_some() {
        let text = if state.publish(&channel("publish"), &command["publish"]["data"]) {
            format!(r#"{{"id":{id},"publish":{{}}}}"#)
        } else {
            format!(r#"{{"id":{id},"error":{{"code":111,"message":"limit"}}}}"#)
        };
        send(client, &text);
    } else if command.get("subscribe").is_some() {
        let subscriber = client.try_clone().expect("a socket can be cloned");
        state.subscribers.entry(channel("subscribe")).or_default().push(subscriber);
        send(client, &format!(r#"{{"id":{id},"subscribe":{{}}}}"#));
    } else {
        send(client, &format!(r#"{{"id":{id},"connect":{{}}}}"#));
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next frame of a client; none at its end.
pub fn receive(reader: &mut impl Read) -> Option<String> {
    let mut head = [0; 2];
    reader.read_exact(&mut head).ok()?;
    let mut length = usize::from(head[1] & 0x7f);
    if length == 126 {
        let mut long = [0; 2];
        reader.read_exact(&mut long).ok()?;
        length = usize::from(u16::from_be_bytes(long));
    }
    let mut mask = [0; 4];
    reader.read_exact(&mut mask).ok()?;
    let mut payload = vec![0; length];
    reader.read_exact(&mut payload).ok()?;
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    String::from_utf8(payload).ok()
}

/// Sends a text frame.
pub fn send(writer: &mut TcpStream, text: &str) {
    let mut frame = vec![0x81, 126];
    frame.extend_from_slice(&u16::try_from(text.len()).expect("a short frame").to_be_bytes());
    frame.extend_from_slice(text.as_bytes());
    // The client may be gone.
    let _ = writer.write_all(&frame);
}
