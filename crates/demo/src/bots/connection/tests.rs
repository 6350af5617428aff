use std::{net::TcpListener, time::Instant};

use super::*;

/// A server controlled by the test.
struct Server {
    bot: BotConnection,
    socket: TcpStream,
}

impl Server {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let bot = BotConnection::open(listener.local_addr().expect("bound")).expect("connected");
        let (socket, _) = listener.accept().expect("accepted");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        Self { bot, socket }
    }

    fn expect(&mut self, bytes: usize) -> Vec<u8> {
        let mut received = vec![0; bytes];
        self.socket.read_exact(&mut received).expect("sent by the bot");
        received
    }

    /// The payload of the bot's next frame, whose length must fit in one byte.
    fn frame(&mut self) -> Vec<u8> {
        let head = self.expect(6);
        assert_eq!((head[0], &head[2..]), (0x82, &[0; 4][..]));
        self.expect(usize::from(head[1] & 0x7f))
    }

    /// Sends bytes. The bot reads until it has received `until` bytes or lost the connection.
    fn send(&mut self, bytes: &[u8], until: usize) -> (Vec<(bool, Vec<u8>)>, Option<Lost>) {
        self.socket.write_all(bytes).expect("sent");
        let (mut updates, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(10));
        let mut buffer = [0; 7];
        while Instant::now() < deadline {
            let read = self.bot.read("arena:hunt", "{}", &mut buffer, |news| {
                updates.push(match news {
                    BotUpdate::Snapshot(data) => (true, data.to_vec()),
                    BotUpdate::Event(data) | BotUpdate::Joined(data) => (false, data.to_vec()),
                });
                Ok(())
            });
            if let Err(lost) = read {
                return (updates, Some(lost));
            }
            if updates.len() >= until && self.bot.upgraded && self.bot.unread.is_empty() {
                return (updates, None);
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
fn a_bot_joins_receives_and_sends_inputs() {
    let mut server = Server::new();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.extend(server.expect(1));
    }
    assert!(request.starts_with(b"GET /connection/websocket HTTP/1.1\r\n"));
    assert_eq!(server.send(UPGRADED, 0), (vec![], None));

    let hello = server.frame();
    assert!(hello.windows(10).any(|bytes| bytes == b"arena:hunt"), "{hello:?}");
    let long = vec![7; 300];
    let messages = [publication(&long, 0), publication(b"{}", 9)].concat();
    let (updates, lost) = server.send(&[frame(&messages), frame(&[0])].concat(), 2);
    assert_eq!((updates, lost), (vec![(true, long), (false, b"{}".to_vec())], None));
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
fn a_bot_receives_the_answer_to_its_join() {
    let (mut result, mut message) = (Vec::new(), Vec::new());
    write_number(&mut result, 9, 7);
    write_bytes(&mut result, 11, br#"{"seat_token":"ab"}"#);
    append_command(2, 6, &result, &mut message);
    let (updates, lost) = Server::new().send(&[UPGRADED, &frame(&message)].concat(), 1);
    assert_eq!((updates, lost), (vec![(false, br#"{"seat_token":"ab"}"#.to_vec())], None));
}

#[test]
fn a_refused_bot_reports_the_reason_and_others_are_lost() {
    let refused = {
        let (mut error, mut message) = (Vec::new(), Vec::new());
        write_number(&mut error, 1, 103);
        write_bytes(&mut error, 2, b"permission denied");
        append_command(2, 2, &error, &mut message);
        frame(&message)
    };
    let unsubscribed = {
        let mut message = Vec::new();
        append_command(0, 4, &[7 << 3 | 2, 0], &mut message);
        frame(&message)
    };
    let refusal = |code, message: &str| Lost::Refused { code, message: message.into() };
    for (sent, lost) in [
        ([UPGRADED, &refused].concat(), refusal(103, "permission denied")),
        ([UPGRADED, &unsubscribed].concat(), Lost::Closed),
        ([UPGRADED, &[0x88, 2, 0x0b, 0xb9]].concat(), Lost::Closed),
        ([UPGRADED, &frame(&[9, 9])].concat(), Lost::Closed),
        (b"HTTP/1.1 503 Busy\r\n\r\n".to_vec(), refusal(503, "Busy")),
        (b"220 mail\r\n\r\n".to_vec(), Lost::Closed),
    ] {
        assert_eq!(Server::new().send(&sent, 1).1, Some(lost), "{sent:?}");
    }
}
