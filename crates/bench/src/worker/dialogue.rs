//! What a client says and hears in a session, without its socket: the handshake, the first commands, and the answers to what
//! the server asks.

use super::outbox::Outbox;
use crate::commands::{self, CONNECT_ID, EncodingOption};
use crate::control::{MessageContent, Target};
use crate::peer::{PeerProtocol, PeerReaction};
use crate::wire::{self, Frame, UnstampedMessage, Walk};

/// The stage of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadSessionStage {
    /// The TCP connection is being established.
    Connecting,
    /// The upgrade request is sent.
    Upgrading,
    /// Connect (and subscribe) are sent.
    Greeting,
    /// All commands are answered, and publications can arrive.
    Ready,
}

/// Events of a session for its driver.
pub trait Observer {
    /// A WebSocket frame was received.
    fn frame(&mut self) {}
    /// A message was received. Returns whether it is a publication, which needs no reaction.
    fn message(&mut self, _message: &[u8]) -> bool {
        false
    }
    /// A reply to a command was received after the session was ready.
    fn reply(&mut self, _id: u32, _error: u32) {}
}

/// Why a session ended: the close code or the error.
pub type Ended = String;

/// The state of a session. What it has to send goes to the outbox that its caller gives it.
pub struct Dialogue {
    pub stage: LoadSessionStage,
    /// Whether the session subscribes to the channel of the run.
    subscribes: bool,
    /// Commands of the greeting without an answer.
    answers_left: usize,
    /// Commands that replace the default connect and subscribe.
    greeting: Option<Vec<u8>>,
    /// The beginning of a frame whose rest has not arrived.
    partial: Vec<u8>,
}

impl Dialogue {
    /// A session whose connection is being established.
    pub fn new(subscribes: bool) -> Self {
        Dialogue {
            stage: LoadSessionStage::Connecting,
            subscribes,
            answers_left: 1 + usize::from(subscribes),
            greeting: None,
            partial: Vec::new(),
        }
    }

    /// Sets the commands to send when the WebSocket is open, and their number, if it differs from that of the default ones.
    pub fn greet_with(&mut self, greeting: Vec<u8>, answers: Option<usize>) {
        self.greeting = Some(greeting);
        self.answers_left = answers.unwrap_or(self.answers_left);
    }

    /// The connection is established.
    pub fn connected(&mut self, target: &Target, outbox: &mut Outbox) {
        self.stage = LoadSessionStage::Upgrading;
        outbox.push(&commands::upgrade_request(&target.address.to_string(), &target.path, target.encoding));
    }

    /// The beginning of a frame, which the next bytes continue.
    pub fn partial(&self) -> &[u8] {
        &self.partial
    }

    /// Processes received bytes that begin with those of [`Self::partial`], and keeps those of an incomplete frame.
    pub fn take(
        &mut self,
        target: &Target,
        all: &[u8],
        observer: &mut impl Observer,
        outbox: &mut Outbox,
    ) -> Result<(), Ended> {
        let used = self.consume(target, all, observer, outbox)?;
        let rest = all.get(used..).unwrap_or_default();
        // Most reads end with a frame. An idle session then has no memory for a partial one.
        if rest.is_empty() {
            self.partial = Vec::new();
        } else {
            self.partial.clear();
            self.partial.extend_from_slice(rest);
        }
        Ok(())
    }

    /// Processes received bytes that follow those of [`Self::partial`], and keeps those of an incomplete frame.
    pub fn take_next(
        &mut self,
        target: &Target,
        bytes: &[u8],
        observer: &mut impl Observer,
        outbox: &mut Outbox,
    ) -> Result<(), Ended> {
        // A long frame arrives in many pieces. Each is appended, so none is copied more often than the buffer grows.
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let used = self.consume(target, &all, observer, outbox)?;
        if used < all.len() {
            all.drain(..used);
            self.partial = all;
        }
        Ok(())
    }

    /// Processes the complete frames at the beginning. Returns their number of bytes.
    fn consume(
        &mut self,
        target: &Target,
        all: &[u8],
        observer: &mut impl Observer,
        outbox: &mut Outbox,
    ) -> Result<usize, Ended> {
        let mut used = 0;
        if self.stage == LoadSessionStage::Upgrading {
            match Self::upgraded(all)? {
                Some(head_bytes) => used = head_bytes,
                None => return Ok(0),
            }
            self.stage = match target.content {
                MessageContent::Bare => LoadSessionStage::Ready,
                MessageContent::Peer(peer) if peer.is_ready_at_once() => LoadSessionStage::Ready,
                // The server speaks first.
                MessageContent::Peer(_) => LoadSessionStage::Greeting,
                MessageContent::Protocol => {
                    self.greet(target, outbox);
                    LoadSessionStage::Greeting
                }
            };
        }
        loop {
            match wire::walk(all.get(used..).unwrap_or_default()) {
                Walk::Frame(frame, bytes) => {
                    used += bytes;
                    observer.frame();
                    self.on_frame(target, &frame, observer, outbox)?;
                }
                Walk::Partial { .. } => return Ok(used),
                Walk::Broken(why) => return Err(format!("broken: {why}")),
            }
        }
    }

    /// Sends the first commands.
    fn greet(&mut self, target: &Target, outbox: &mut Outbox) {
        let channel = self.subscribes.then_some(target.channel.as_str());
        let usual = || commands::hello(target.encoding, channel, target.join.as_deref());
        let greeting = self.greeting.take().unwrap_or_else(usual);
        outbox.push(&greeting);
    }

    /// The length of the response head, if it is complete.
    fn upgraded(all: &[u8]) -> Result<Option<usize>, Ended> {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(all) {
            Ok(httparse::Status::Complete(bytes)) => match response.code {
                Some(101) => Ok(Some(bytes)),
                code => Err(format!("upgrade: HTTP {}", code.unwrap_or(0))),
            },
            Ok(httparse::Status::Partial) => Ok(None),
            Err(err) => Err(format!("upgrade: {err}")),
        }
    }

    fn on_frame(
        &mut self,
        target: &Target,
        frame: &Frame<'_>,
        observer: &mut impl Observer,
        outbox: &mut Outbox,
    ) -> Result<(), Ended> {
        match frame {
            Frame::Messages(payload) => self.on_messages(target, payload, observer, outbox)?,
            Frame::Ping(payload) => outbox.push(&commands::websocket_pong(payload)),
            Frame::Pong => {}
            Frame::Close(code) => return Err(code.to_string()),
        }
        Ok(())
    }

    fn on_messages(
        &mut self,
        target: &Target,
        payload: &[u8],
        observer: &mut impl Observer,
        outbox: &mut Outbox,
    ) -> Result<(), Ended> {
        match target.content {
            MessageContent::Bare => {
                observer.message(payload);
            }
            MessageContent::Peer(peer) => {
                if !observer.message(payload) {
                    self.on_peer(peer, payload, outbox)?;
                }
            }
            MessageContent::Protocol => {
                let encoding = target.encoding;
                for message in wire::messages(encoding, payload) {
                    if !observer.message(message) {
                        self.on_answer(encoding, &wire::answer(encoding, message), observer, outbox)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn on_peer(&mut self, peer: PeerProtocol, message: &[u8], outbox: &mut Outbox) -> Result<(), Ended> {
        match peer.reaction(message) {
            PeerReaction::Send(bytes) => outbox.push(&bytes),
            PeerReaction::Ready => self.stage = LoadSessionStage::Ready,
            PeerReaction::Refused => return Err("refused by the server".into()),
            PeerReaction::Nothing => {}
        }
        Ok(())
    }

    fn on_answer(
        &mut self,
        encoding: EncodingOption,
        answer: &UnstampedMessage,
        observer: &mut impl Observer,
        outbox: &mut Outbox,
    ) -> Result<(), Ended> {
        match *answer {
            UnstampedMessage::Ping => outbox.push(&commands::pong(encoding)),
            UnstampedMessage::Reply { id, error } if self.stage == LoadSessionStage::Greeting => match error {
                0 => {
                    self.answers_left = self.answers_left.saturating_sub(1);
                    if self.answers_left == 0 {
                        self.stage = LoadSessionStage::Ready;
                    }
                }
                _ if id == CONNECT_ID => return Err(format!("connect: error {error}")),
                _ => return Err(format!("subscribe: error {error}")),
            },
            UnstampedMessage::Reply { id, error } => observer.reply(id, error),
            UnstampedMessage::Other => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Vec<Vec<u8>>);

    impl Observer for Heard {
        fn message(&mut self, message: &[u8]) -> bool {
            self.0.push(message.to_vec());
            true
        }
    }

    fn target() -> Target {
        Target {
            address: "127.0.0.1:1".parse().expect("an address"),
            path: "/".to_owned(),
            encoding: EncodingOption::Json,
            channel: "bench".to_owned(),
            join: None,
            content: MessageContent::Bare,
            tls: false,
        }
    }

    /// Frames that arrive in pieces of any length are heard as those that arrive in one.
    #[test]
    fn pieces_of_frames_make_the_same_messages() {
        let mut stream = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n".to_vec();
        let messages = [5_usize, 0, 125, 300, 70_000].map(|len| vec![b'm'; len]);
        for message in &messages {
            stream.push(0x82);
            match message.len() {
                len @ 0..126 => stream.push(u8::try_from(len).expect("short")),
                len @ 126..65_536 => {
                    stream.push(126);
                    stream.extend_from_slice(&u16::try_from(len).expect("medium").to_be_bytes());
                }
                len => {
                    stream.push(127);
                    stream.extend_from_slice(&u64::try_from(len).expect("long").to_be_bytes());
                }
            }
            stream.extend_from_slice(message);
        }
        for piece_bytes in [1, 2, 3, 7, 100, 4_096, stream.len()] {
            let (mut dialogue, mut heard, mut outbox) = (Dialogue::new(false), Heard::default(), Outbox::default());
            dialogue.connected(&target(), &mut outbox);
            for piece in stream.chunks(piece_bytes) {
                dialogue.take_next(&target(), piece, &mut heard, &mut outbox).expect("right frames");
            }
            assert!(heard.0 == messages, "pieces of {piece_bytes} bytes");
            assert_eq!(dialogue.partial().len(), 0);
            assert_eq!(dialogue.partial.capacity(), 0, "an idle session has no buffer");
        }
    }
}
