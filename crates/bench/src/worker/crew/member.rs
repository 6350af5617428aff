//! A client of a crew, and its connection.

use std::collections::HashMap;

use mio::{Interest, Poll, Token};

use super::api_link::ApiLink;
use super::bot::Bot;
use super::checks::Inbox;
use super::publishing::Awaited;
use crate::commands;
use crate::control::Target;
use crate::scenario::crew_commands::CrewRole;
use crate::worker::dialogue::{Ended, LoadSessionStage};
use crate::worker::direct::DirectSockets;
use crate::worker::direct_session::DirectSession;
use crate::worker::session::Session;

pub struct Member {
    pub link: Link,
    pub is_ready: bool,
    /// When it should have begun to connect.
    pub intended_ns: u64,
    pub inbox: Inbox,
    /// The player, if the crew is in a room.
    pub bot: Option<Box<Bot>>,
    /// Publications without an answer, by the command's id.
    pub awaited: HashMap<u32, Awaited>,
    next_id: u32,
}

pub enum Link {
    Session(Box<Session>),
    /// A session that only receives.
    Direct(Box<DirectSession>),
    Api(Box<ApiLink>),
    /// Not open, or ended.
    Closed,
}

impl Member {
    pub fn new(link: Link, intended_ns: u64, bot: Option<Box<Bot>>) -> Self {
        let (inbox, awaited) = (Inbox::default(), HashMap::new());
        Member { link, is_ready: false, intended_ns, inbox, bot, awaited, next_id: 0 }
    }

    /// Whether its connection has come far enough to be used.
    pub fn is_open(&self) -> bool {
        match &self.link {
            Link::Session(session) => session.stage() == LoadSessionStage::Ready,
            Link::Direct(session) => session.stage() == LoadSessionStage::Ready,
            Link::Api(link) => link.is_connected(),
            Link::Closed => false,
        }
    }

    /// Publications and inputs that nothing has answered.
    pub fn unanswered(&self) -> u64 {
        match &self.link {
            Link::Session(_) => (self.awaited.len() + self.bot.as_ref().map_or(0, |bot| bot.waiting())) as u64,
            Link::Api(link) => link.awaited() as u64,
            Link::Direct(_) | Link::Closed => 0,
        }
    }

    /// Sends a publication into a channel.
    pub fn publish(
        &mut self,
        role: &CrewRole,
        channel: &str,
        publication: Awaited,
        payload: &[u8],
    ) -> Result<(), Ended> {
        match &mut self.link {
            Link::Session(session) => {
                self.next_id += 1;
                // Ids differ from those of connect and subscribe.
                let id = self.next_id | 1 << 30;
                self.awaited.insert(id, publication);
                session.send(&commands::publish(role.target.encoding, id, channel, payload))
            }
            Link::Api(link) => {
                let host = role.operators.to_string();
                link.send(publication, &commands::api_publish(&host, &role.api_key, channel, payload))
            }
            Link::Direct(_) => unreachable!("profiles with publishers on direct sockets are refused"),
            Link::Closed => Ok(()),
        }
    }

    /// Sends as much of what is left as the kernel accepts.
    pub fn flush(&mut self) -> Result<(), Ended> {
        match &mut self.link {
            Link::Session(session) => session.flush(),
            Link::Api(link) => link.flush(),
            // The ring waits for the socket.
            Link::Direct(_) | Link::Closed => Ok(()),
        }
    }

    /// Whether there are bytes that the kernel has not accepted yet.
    pub fn is_blocked(&self) -> bool {
        match &self.link {
            Link::Session(session) => session.is_blocked(),
            Link::Api(link) => link.is_blocked(),
            Link::Direct(_) | Link::Closed => false,
        }
    }

    /// Ends the connection. Returns what it has received.
    pub fn close(&mut self, direct: Option<&mut DirectSockets>) -> Inbox {
        if let (Link::Direct(session), Some(sockets)) = (&self.link, direct) {
            sockets.close(session.key());
        }
        // Dropping any other socket closes it, which also takes it out of the poll.
        self.link = Link::Closed;
        self.is_ready = false;
        self.awaited = HashMap::new();
        std::mem::take(&mut self.inbox)
    }
}

/// The socket of a session has become writable: it is connected, or has failed.
pub fn connected(session: &mut Session, target: &Target, poll: &Poll, number: usize) -> Result<(), Ended> {
    session.connected(target)?;
    // From now on, wait only for readable data.
    let reregistered = poll.registry().reregister(session.socket(), Token(number), Interest::READABLE);
    reregistered.map_err(|err| format!("register: {err}"))
}
