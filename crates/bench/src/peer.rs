//! What subscribers of other servers send, so that the same load measures them: as much of Socket.IO and of Colyseus as a subscriber
//! needs. The servers in `bench/peers` subscribe each connection that they accept.
//!
//! Socket.IO: Engine.IO 4 over WebSocket alone (`socketio/engine.io-protocol`), with the packets of Socket.IO inside it
//! (`socketio/socket.io-protocol`). Colyseus: the codes of `packages/shared-types/src/Protocol.ts`.

use serde::{Deserialize, Serialize};

use crate::commands;

/// What a server under test speaks, if it does not speak the client protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum PeerProtocol {
    /// Socket.IO 4 over WebSocket
    #[value(name = "socketio")]
    SocketIo,
    /// A room of Colyseus
    Colyseus,
    /// WebSocket messages without a protocol
    Plain,
}

/// What a message that is not a publication asks of the client.
#[derive(Debug, PartialEq, Eq)]
pub enum PeerReaction {
    /// Send these bytes: a complete frame.
    Send(Vec<u8>),
    /// The session is subscribed.
    Ready,
    /// The server refuses the session.
    Refused,
    /// Nothing.
    Nothing,
}

/// Colyseus: the server has a seat for the client; the client has understood it, and wants the state.
const JOIN_ROOM: u8 = 10;
const ERROR: u8 = 11;
const ROOM_STATE: u8 = 14;

impl PeerProtocol {
    /// The path of the server's WebSocket endpoint.
    pub fn path(self) -> &'static str {
        match self {
            PeerProtocol::SocketIo => "/socket.io/?EIO=4&transport=websocket",
            PeerProtocol::Colyseus | PeerProtocol::Plain => "/",
        }
    }

    /// Whether a session is subscribed as soon as its WebSocket is open.
    pub fn is_ready_at_once(self) -> bool {
        self == PeerProtocol::Plain
    }

    pub fn reaction(self, message: &[u8]) -> PeerReaction {
        match (self, message) {
            (PeerProtocol::SocketIo, [b'0', ..]) => PeerReaction::Send(commands::text(b"40")),
            (PeerProtocol::SocketIo, [b'2', ..]) => PeerReaction::Send(commands::text(b"3")),
            (PeerProtocol::SocketIo, [b'4', b'0', ..]) | (PeerProtocol::Colyseus, [ROOM_STATE, ..]) => {
                PeerReaction::Ready
            }
            (PeerProtocol::SocketIo, [b'1', ..] | [b'4', b'1' | b'4', ..]) | (PeerProtocol::Colyseus, [ERROR, ..]) => {
                PeerReaction::Refused
            }
            (PeerProtocol::Colyseus, [JOIN_ROOM, ..]) => PeerReaction::Send(commands::bare(&[JOIN_ROOM])),
            _ => PeerReaction::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_io_session_opens_and_answers_pings() {
        let reaction = |message: &str| PeerProtocol::SocketIo.reaction(message.as_bytes());
        assert_eq!(reaction(r#"0{"sid":"a","pingInterval":25000}"#), PeerReaction::Send(commands::text(b"40")));
        assert_eq!(reaction(r#"40{"sid":"b"}"#), PeerReaction::Ready);
        assert_eq!(reaction("2"), PeerReaction::Send(commands::text(b"3")));
        assert_eq!(reaction(r#"42["publication","x"]"#), PeerReaction::Nothing);
        for refusal in [r#"44{"message":"not allowed"}"#, "41", "1"] {
            assert_eq!(reaction(refusal), PeerReaction::Refused, "{refusal}");
        }
    }

    #[test]
    fn a_colyseus_session_asks_for_the_state() {
        let reaction = |message: &[u8]| PeerProtocol::Colyseus.reaction(message);
        assert_eq!(reaction(&[JOIN_ROOM, 9, 1]), PeerReaction::Send(commands::bare(&[JOIN_ROOM])));
        assert_eq!(reaction(&[ROOM_STATE, 128]), PeerReaction::Ready);
        assert_eq!(reaction(&[15, 128]), PeerReaction::Nothing);
        assert_eq!(reaction(&[ERROR, 0]), PeerReaction::Refused);
        assert_eq!(reaction(&[]), PeerReaction::Nothing);
    }
}
