use std::{
    net::{SocketAddr, TcpListener},
    time::Instant,
};

use super::*;

/// A server that says what the test wants.
struct Server {
    bot: Connection,
    socket: TcpStream,
}

fn place(address: SocketAddr) -> Place {
    Place { address, path: "/connection/websocket".to_owned() }
}

impl Server {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let bot = Connection::open(&place(listener.local_addr().expect("bound"))).expect("connected");
        let (socket, _) = listener.accept().expect("accepted");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        Self { bot, socket }
    }

    fn expect(&mut self, bytes: usize) -> Vec<u8> {
        let mut received = vec![0; bytes];
        self.socket.read_exact(&mut received).expect("sent by the bot");
        received
    }

    /// The payload of the bot's next frame, which is short.
    fn frame(&mut self) -> Vec<u8> {
        let head = self.expect(6);
        assert_eq!((head[0], &head[2..]), (0x82, &[0; 4][..]));
        self.expect(usize::from(head[1] & 0x7f))
    }

    /// Sends, and lets the bot read until it has heard as much, or is lost.
    fn say(&mut self, bytes: &[u8], until: usize) -> (Vec<(bool, Vec<u8>)>, Option<Lost>) {
        self.socket.write_all(bytes).expect("sent");
        let (mut heard, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(10));
        let mut buffer = [0; 7];
        while Instant::now() < deadline {
            let read = self.bot.read("arena:hunt", "{}", &mut buffer, |news| {
                heard.push(match news {
                    Heard::Snapshot(data) => (true, data.to_vec()),
                    Heard::Event(data) => (false, data.to_vec()),
                });
                Ok(())
            });
            if let Err(lost) = read {
                return (heard, Some(lost));
            }
            if heard.len() >= until && self.bot.upgraded && self.bot.unread.is_empty() {
                return (heard, None);
            }
        }
        panic!("the bot does not hear");
    }
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x82];
    match payload.len() {
        length @ 0..126 => frame.push(length as u8),
        length => {
            frame.push(126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
    }
    [&frame, payload].concat()
}

fn publication(data: &[u8], offset: u64) -> Vec<u8> {
    let (mut publication, mut push, mut message) = (Vec::new(), Vec::new(), Vec::new());
    write_bytes(&mut publication, 4, data);
    write_number(&mut publication, 6, offset);
    write_bytes(&mut push, 2, b"arena:hunt");
    write_bytes(&mut push, 4, &publication);
    append_command(0, 4, &push, &mut message);
    message
}

const UPGRADED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn a_bot_joins_hears_and_sends_inputs() {
    let mut server = Server::new();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.extend(server.expect(1));
    }
    assert!(request.starts_with(b"GET /connection/websocket HTTP/1.1\r\n"));
    assert_eq!(server.say(UPGRADED, 0), (vec![], None));

    let hello = server.frame();
    assert!(hello.windows(10).any(|bytes| bytes == b"arena:hunt"), "{hello:?}");
    let long = vec![7; 300];
    let messages = [publication(&long, 0), publication(b"{}", 9)].concat();
    let (heard, lost) = server.say(&[frame(&messages), frame(&[0])].concat(), 2);
    assert_eq!((heard, lost), (vec![(true, long), (false, b"{}".to_vec())], None));
    assert_eq!(server.frame(), [0], "the answer to a ping");

    assert_eq!(server.bot.input(&[1]), Ok(()));
    let payload = server.frame();
    let mut command = Reader::new(payload.get(1..).expect("a length"));
    let (method, send) = command.field().expect("Protobuf").expect("a field");
    let mut send = Reader::new(send.bytes().expect("a message"));
    let (_, data) = send.field().expect("Protobuf").expect("a field");
    let input = dunlin_rooms::wire::decode_input(Encoding::Protobuf, data.bytes().expect("bytes")).expect("an input");
    assert_eq!((method, input.number, &*input.data), (12, 1, &[1][..]));
}

#[test]
fn a_bot_that_is_refused_says_why_and_others_are_lost() {
    let refused = {
        let (mut error, mut message) = (Vec::new(), Vec::new());
        write_number(&mut error, 1, 103);
        append_command(2, 2, &error, &mut message);
        frame(&message)
    };
    let unsubscribed = {
        let mut message = Vec::new();
        append_command(0, 4, &[7 << 3 | 2, 0], &mut message);
        frame(&message)
    };
    for (said, lost) in [
        ([UPGRADED, &refused].concat(), Lost::Refused(103)),
        ([UPGRADED, &unsubscribed].concat(), Lost::Closed),
        ([UPGRADED, &[0x88, 2, 0x0b, 0xb9]].concat(), Lost::Closed),
        ([UPGRADED, &frame(&[9, 9])].concat(), Lost::Closed),
        (b"HTTP/1.1 503 Busy\r\n\r\n".to_vec(), Lost::Closed),
    ] {
        assert_eq!(Server::new().say(&said, 1).1, Some(lost), "{said:?}");
    }
}
