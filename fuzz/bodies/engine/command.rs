//! Encodes commands as clients do.

use dunlin_protocol::Encoding;
use dunlin_rooms::wire::{Input, encode_input};

use super::{
    Script,
    options::{CHANNELS, ROOMS},
};

/// A command that means something.
pub(super) struct Command {
    pub(super) id: u8,
    pub(super) kind: u8,
    pub(super) channel: &'static str,
    pub(super) number: u8,
    pub(super) flag: bool,
}

/// Optional fields of a subscription; each is a bit of `number`.
const JSON_EXTRAS: [(u8, &str); 7] = [
    (1, r#","delta":"fossil""#),
    (2, r#","tf":{"op":"or","nodes":[{"key":"k","cmp":"gt","val":"9"},{"key":"k","cmp":"nex"}]}"#),
    (4, r#","tf":{"key":"k","cmp":"sw","val":"1"}"#),
    (8, r#","positioned":true"#),
    (16, r#","recoverable":true,"data":"no""#),
    // With one of them, the parameters of the room that the join opens: those that a client may set, and others.
    (32, r#","data":{"room_params":{"map":1}}"#),
    (64, r#","data":{"room_params":{"map":"longer than the limit","x":2}}"#),
];

impl Command {
    pub(super) fn read(script: &mut Script<'_>) -> Self {
        let (kind, channel, number) = (script.next(), script.pick(&CHANNELS), script.next());
        Self { id: number % 16 + 1, kind, channel, number, flag: kind >= 128 }
    }

    pub(super) fn connect() -> Self {
        Self { id: 1, kind: 0, channel: "", number: 0, flag: false }
    }

    pub(super) fn frame(&self, encoding: Encoding) -> Vec<u8> {
        match encoding {
            Encoding::Json => self.json().into_bytes(),
            Encoding::Protobuf => self.protobuf(),
        }
    }

    /// The connect request of a unidirectional transport.
    pub(super) fn bare_connect(&self) -> Vec<u8> {
        format!("{{{}}}", self.json_connect()).into_bytes()
    }

    fn token(&self) -> &'static str {
        if self.flag { "x" } else { "" }
    }

    fn json_connect(&self) -> String {
        let Self { channel, number, .. } = self;
        format!(
            r#""token":"{}","data":{number},"subs":{{"{channel}":{{"recover":{},"offset":{number}}},"b":{{}}}}"#,
            self.token(),
            number % 2 == 0
        )
    }

    fn json(&self) -> String {
        let Self { id, channel, number, flag, .. } = self;
        let token = self.token();
        let request = match self.kind % 14 {
            0 => format!(r#""connect":{{{}}}"#, self.json_connect()),
            1 | 2 => {
                let extras = JSON_EXTRAS.iter().filter(|(bit, _)| number & bit != 0).map(|(_, text)| *text);
                format!(
                    r#""subscribe":{{"channel":"{channel}","token":"{token}","recover":{},"offset":{},"flag":{number},"join_leave":true{}}}"#,
                    number % 3 == 0,
                    number / 32,
                    extras.collect::<String>()
                )
            }
            3 => format!(r#""unsubscribe":{{"channel":"{channel}"}}"#),
            4 | 5 => format!(r#""publish":{{"channel":"{channel}","data":{}}}"#, self.json_data(channel)),
            6 => format!(r#""presence":{{"channel":"{channel}"}}"#),
            7 => format!(r#""presence_stats":{{"channel":"{channel}"}}"#),
            8 => format!(
                r#""history":{{"channel":"{channel}","limit":{number},"since":{{"offset":{number}}},"reverse":{flag}}}"#
            ),
            9 => r#""refresh":{"token":"x"}"#.to_owned(),
            10 => format!(r#""sub_refresh":{{"channel":"{channel}","token":"{token}"}}"#),
            11 => r#""rpc":{"method":"m","data":[1]}"#.to_owned(),
            12 => return format!(r#"{{"send":{{"data":{}}}}}"#, self.json_data(ROOMS[0])),
            _ => return "{}".to_owned(),
        };
        format!(r#"{{"id":{id},{request}}}"#)
    }

    /// For a room, an input; otherwise data that differs little from the previous one, for deltas.
    fn data(&self, encoding: Encoding, channel: &str) -> Vec<u8> {
        let Self { number, .. } = self;
        if !ROOMS.contains(&channel) {
            return format!(r#"{{"n":{number},"{}":0}}"#, "long".repeat(usize::from(number / 8))).into_bytes();
        }
        let input = Input { number: u32::from(*number), room: "".into(), data: self.input().into() };
        let mut written = Vec::new();
        encode_input(encoding, &input, &mut written);
        written
    }

    fn json_data(&self, channel: &str) -> String {
        String::from_utf8_lossy(&self.data(Encoding::Json, channel)).into_owned()
    }

    fn input(&self) -> &'static [u8] {
        [&b"shout"[..], b"whisper", b"news", b"longer than an input may be"][usize::from(self.number % 4)]
    }

    /// Field numbers as in `client.proto`.
    fn protobuf(&self) -> Vec<u8> {
        let Self { id, channel, number, flag, .. } = self;
        let token = self.token().as_bytes();
        let data = self.data(Encoding::Protobuf, channel);
        let channel = field(1, channel.as_bytes());
        let stream = [3 << 3, number % 2, 7 << 3, number % 8, 9 << 3, number / 2 % 2, 10 << 3, 1, 11 << 3, 1];
        let (request, fields) = match self.kind % 14 {
            0 => {
                let sub = [channel, field(2, &stream)].concat();
                (4, [field(1, token), field(2, &[*number]), field(3, &sub)].concat())
            }
            1 | 2 => {
                let mut fields = [channel, field(2, token), stream.to_vec(), vec![14 << 3, number % 4]].concat();
                if number & 4 != 0 {
                    fields.extend(field(12, b"fossil"));
                }
                if number & 8 != 0 {
                    fields.extend(field(13, &[field(2, b"k"), field(3, b"lt"), field(4, b"7")].concat()));
                }
                (5, fields)
            }
            3 => (6, channel),
            4 | 5 => (7, [channel, field(2, &data)].concat()),
            6 => (8, channel),
            7 => (9, channel),
            8 => (10, [channel, vec![7 << 3, number % 8, 9 << 3, u8::from(*flag)]].concat()),
            9 => (14, field(1, b"x")),
            10 => (15, [channel, field(2, token)].concat()),
            11 => (13, [field(1, &[1]), field(2, b"m")].concat()),
            12 => return whole(&field(12, &field(1, &self.data(Encoding::Protobuf, ROOMS[0])))),
            _ => return vec![0],
        };
        whole(&[vec![1 << 3, *id], field(request, &fields)].concat())
    }
}

/// A message with its length in front.
fn whole(message: &[u8]) -> Vec<u8> {
    [length(message), message.to_vec()].concat()
}

/// A length-delimited field.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [vec![number << 3 | 2], length(content), content.to_vec()].concat()
}

/// A length below 16,384.
fn length(bytes: &[u8]) -> Vec<u8> {
    match bytes.len() {
        short @ ..0x80 => vec![short as u8],
        long => vec![long as u8 | 0x80, (long >> 7) as u8],
    }
}
