//! A spectator of a room of tag, so that the lobby always lists a room with the bots of the game: a room that nobody plays in or
//! watches closes.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    thread::{self, JoinHandle},
};

use super::{
    BUFFER_BYTES, RETRY_MAX, RETRY_MIN, TURN,
    connection::{BotConnection, Lost},
    may_join_later,
};
use crate::{
    reachable_nodes::{Nodes, Refusal},
    retry::Backoff,
};

/// The room. Matchmaking places visitors in it as in any other.
const ROOM: &str = "tag:open";

const JOIN: &str = r#"{"seat":"spectator"}"#;

/// What is refused, in reports.
const WATCHES: &str = "the spectator of a room for the lobby";

/// Watches until the process ends, or until the server refuses it for good; on the next node after each loss, because a node
/// that is gone may have had the room.
///
/// # Errors
/// The thread could not be started.
pub fn start(nodes: Arc<Nodes>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("demo-watcher".to_owned()).spawn(move || {
        let (mut backoff, mut buffer) = (Backoff::new(RETRY_MIN, RETRY_MAX), vec![0; BUFFER_BYTES]);
        for node in nodes.addresses.iter().copied().cycle() {
            match watch(&nodes, node, &mut backoff, &mut buffer) {
                Lost::Closed => nodes.failed(node, &"it closed the connection of a spectator"),
                Lost::Refused { code, message } if !may_join_later(code) => {
                    Refusal { node, code, message }.report(WATCHES, ROOM);
                    return;
                }
                Lost::Refused { .. } => nodes.succeeded(),
            }
            thread::sleep(backoff.pause());
        }
    })
}

/// Watches the room until the connection is lost. After the last round the room closes, and the next spectator opens it again.
fn watch(nodes: &Nodes, node: SocketAddr, backoff: &mut Backoff, buffer: &mut [u8]) -> Lost {
    let Ok(mut connection) = BotConnection::open(node) else { return Lost::Closed };
    loop {
        let read = connection.read(ROOM, JOIN, buffer, |_| {
            // It is in the room.
            backoff.reset();
            nodes.succeeded();
            Ok(())
        });
        match read {
            Ok(()) => thread::sleep(TURN),
            Err(lost) => return lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// Accepts a connection and its handshake; the first message.
    fn greeted(listener: &TcpListener) -> (TcpStream, String) {
        let (mut socket, _) = listener.accept().expect("a connection");
        let mut text = String::new();
        let mut bytes = [0; 4096];
        while !text.ends_with("\r\n\r\n") {
            let length = socket.read(&mut bytes).expect("a handshake");
            text.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
        socket.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").expect("it reads");
        let length = socket.read(&mut bytes).expect("a message");
        (socket, String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    #[test]
    fn it_watches_again_after_the_room_has_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let nodes = Nodes::new(&[listener.local_addr().expect("it is bound")]);
        let _watching = start(Arc::new(nodes)).expect("a thread");
        for _ in 0..2 {
            let (_closed, message) = greeted(&listener);
            assert!(message.contains(ROOM) && message.contains(JOIN), "{message:?}");
        }
    }
}
