//! One client session on a direct socket.

use std::io;

use super::BUFFER_BYTES;
use super::dialogue::{Dialogue, Ended, LoadSessionStage, Observer};
use super::direct::{DirectEvent, DirectKey, DirectSockets, ReceivedBuffer};
use super::outbox::Outbox;
use crate::control::Target;

/// A session. The ring has the buffers, so that idle sessions have none.
pub struct DirectSession {
    key: DirectKey,
    dialogue: Dialogue,
    outbox: Outbox,
    /// The kernel has bytes to send.
    is_sending: bool,
}

impl DirectSession {
    /// Begins to connect. The session is ready when so many commands of the greeting are answered.
    pub fn open(sockets: &mut DirectSockets, number: u32, greeting: Vec<u8>, answers: usize) -> Self {
        let mut dialogue = Dialogue::new(false);
        dialogue.greet_with(greeting, Some(answers));
        DirectSession { key: sockets.open(number), dialogue, outbox: Outbox::default(), is_sending: false }
    }

    pub fn key(&self) -> DirectKey {
        self.key
    }

    pub fn stage(&self) -> LoadSessionStage {
        self.dialogue.stage
    }

    /// Takes what the kernel has done.
    pub fn on_event(
        &mut self,
        event: DirectEvent,
        sockets: &mut DirectSockets,
        target: &Target,
        observer: &mut impl Observer,
    ) -> Result<(), Ended> {
        let failed = |what: &str, errno: i32| Err(format!("{what}: {}", io::Error::from_raw_os_error(errno).kind()));
        match event {
            DirectEvent::NotOpened(errno) => return failed("open", errno),
            DirectEvent::Connected(0) => {
                self.dialogue.connected(target, &mut self.outbox);
                sockets.receive(self.key);
            }
            DirectEvent::Connected(errno) => return failed("connect", errno),
            DirectEvent::Received(received) => {
                let taken = self.take(sockets.bytes(received), target, observer);
                sockets.give_back(received);
                taken?;
                if !received.goes_on {
                    sockets.receive(self.key);
                }
            }
            DirectEvent::ReceiveEnded(0) => return Err("closed without a code".into()),
            // The buffers that were filled are given back by now.
            DirectEvent::ReceiveEnded(libc::ENOBUFS | libc::EINTR | libc::EAGAIN) => sockets.receive(self.key),
            DirectEvent::ReceiveEnded(errno) => return failed("read", errno),
            DirectEvent::Sent(errno @ ..0) => return failed("write", -errno),
            DirectEvent::Sent(_) => self.is_sending = false,
        }
        self.flush(sockets)
    }

    fn take(&mut self, bytes: &[u8], target: &Target, observer: &mut impl Observer) -> Result<(), Ended> {
        let partial = self.dialogue.partial();
        if partial.is_empty() {
            return self.dialogue.take(target, bytes, observer, &mut self.outbox);
        }
        if partial.len() + bytes.len() > BUFFER_BYTES {
            return Err("a frame of the server is too long".into());
        }
        self.dialogue.take_next(target, bytes, observer, &mut self.outbox)
    }

    /// Gives the kernel what is to be sent, if it has nothing of this session.
    fn flush(&mut self, sockets: &mut DirectSockets) -> Result<(), Ended> {
        if self.is_sending {
            return self.outbox.flush(|_| Err(io::ErrorKind::WouldBlock.into()));
        }
        let bytes = self.outbox.take();
        if !bytes.is_empty() {
            self.is_sending = true;
            sockets.send(self.key, bytes);
        }
        Ok(())
    }
}

/// Lets the kernel fill the buffer of an event that no session takes.
pub fn discard(event: DirectEvent, sockets: &mut DirectSockets) {
    if let DirectEvent::Received(received @ ReceivedBuffer { .. }) = event {
        sockets.give_back(received);
    }
}
