//! Random conversations, cut at random places, decode to the messages that were encoded. The client's encoder is
//! written here from the RFC and shares no code with the crate.

use dunlin_websocket::{MessageKind, WebSocketLimits};
use proptest::{collection::vec, prelude::*};

use crate::fuzzing::{self, Event, pieces, play, play_pausing};

/// A message of a client, and its division into frames.
#[derive(Clone, Debug)]
enum SentItem {
    /// The cut points are taken modulo the length; a control frame goes into each gap that has one.
    Message {
        text: bool,
        payload: Vec<u8>,
        cuts: Vec<(u16, Option<Control>)>,
    },
    Control(Control),
}

/// Whether it is a ping (else a pong), and the payload.
type Control = (bool, Vec<u8>);

fn sent() -> impl Strategy<Value = SentItem> {
    let control = || (any::<bool>(), vec(any::<u8>(), 0..=125));
    let payload = prop_oneof![
        any::<String>().prop_map(|text| (true, text.into_bytes())),
        vec(any::<u8>(), 0..300).prop_map(|bytes| (false, bytes)),
        (65_000_usize..=65_536).prop_map(|len| (true, vec![b'a'; len])),
    ];
    let cuts = vec((any::<u16>(), proptest::option::of(control())), 0..5);
    prop_oneof![
        4 => (payload, cuts).prop_map(|((text, payload), cuts)| SentItem::Message { text, payload, cuts }),
        1 => control().prop_map(SentItem::Control),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_conversation_is_received_as_sent(
        conversation in vec(sent(), 0..6),
        keys in vec(any::<[u8; 4]>(), 1..5),
        piece_lens in vec(any::<u8>(), 1..6),
    ) {
        let mut client = Client { keys, frames: 0, stream: Vec::new(), expected: Vec::new() };
        for sent in conversation {
            client.send(sent);
        }
        let limits = WebSocketLimits::default();
        for played in [
            play([client.stream.as_slice()], &limits),
            play(pieces(&client.stream, &piece_lens), &limits),
            play_pausing(&client.stream, &limits),
        ] {
            prop_assert!(!played.unfinished);
            prop_assert!(played.events == client.expected);
        }
    }

    #[test]
    fn a_damaged_conversation_means_the_same_in_any_pieces(
        conversation in vec(sent(), 1..4),
        keys in vec(any::<[u8; 4]>(), 1..3),
        damage in vec((any::<u16>(), any::<u8>()), 1..4),
        settings in any::<u8>(),
        piece_lens in vec(any::<u8>(), 15),
    ) {
        let mut client = Client { keys, frames: 0, stream: Vec::new(), expected: Vec::new() };
        for sent in conversation {
            client.send(sent);
        }
        for (at, byte) in damage {
            let len = client.stream.len();
            client.stream[usize::from(at) % len] = byte;
        }
        let lens = piece_lens.into_iter().take(usize::from(settings >> 4));
        let data: Vec<u8> = [settings].into_iter().chain(lens).chain(client.stream).collect();
        fuzzing::receiver(&data);
    }

    #[test]
    fn arbitrary_bytes_mean_the_same_in_any_pieces(data in vec(any::<u8>(), 0..200)) {
        fuzzing::receiver(&data);
    }
}

struct Client {
    keys: Vec<[u8; 4]>,
    frames: usize,
    stream: Vec<u8>,
    /// What the server is to hear.
    expected: Vec<Event>,
}

impl Client {
    fn send(&mut self, sent: SentItem) {
        match sent {
            SentItem::Control((ping, payload)) => self.control(ping, payload),
            SentItem::Message { text, payload, cuts } => {
                let mut rest = payload.as_slice();
                let mut opcode = if text { 0x1 } else { 0x2 };
                for (cut, control) in cuts {
                    let (fragment, after) = rest.split_at(usize::from(cut) % (rest.len() + 1));
                    self.frame(opcode, fragment);
                    (opcode, rest) = (0x0, after);
                    if let Some((ping, payload)) = control {
                        self.control(ping, payload);
                    }
                }
                self.frame(0x80 | opcode, rest);
                let kind = if text { MessageKind::Text } else { MessageKind::Binary };
                self.expected.push(Event::Message(kind, payload));
            }
        }
    }

    fn control(&mut self, ping: bool, payload: Vec<u8>) {
        self.frame(if ping { 0x89 } else { 0x8A }, &payload);
        self.expected.push(if ping { Event::Ping(payload) } else { Event::Pong(payload) });
    }

    fn frame(&mut self, first_byte: u8, payload: &[u8]) {
        let key = self.keys[self.frames % self.keys.len()];
        self.frames += 1;
        self.stream.push(first_byte);
        let len = payload.len() as u64;
        let (short, length_bytes) = match len {
            0..126 => (len as u8, 0),
            126..0x1_0000 => (126, 2),
            _ => (127, 8),
        };
        self.stream.push(0x80 | short);
        for place in (0..length_bytes).rev() {
            self.stream.push((len >> (8 * place)) as u8);
        }
        self.stream.extend(key);
        for (index, byte) in payload.iter().enumerate() {
            self.stream.push(byte ^ key[index % 4]);
        }
    }
}
