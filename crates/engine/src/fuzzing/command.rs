//! Commands as clients write them.

use dunlin_protocol::Encoding;

use super::{CHANNELS, Script};

/// A command that means something.
pub(super) struct Command {
    pub(super) id: u8,
    pub(super) kind: u8,
    pub(super) channel: &'static str,
    pub(super) number: u8,
    pub(super) flag: bool,
}

impl Command {
    pub(super) fn read(script: &mut Script<'_>) -> Self {
        let (kind, channel, number) = (script.next(), script.pick(&CHANNELS), script.next());
        Self { id: number % 16 + 1, kind, channel, number, flag: kind >= 128 }
    }

    pub(super) fn frame(&self, encoding: Encoding) -> Vec<u8> {
        match encoding {
            Encoding::Json => self.json().into_bytes(),
            Encoding::Protobuf => self.protobuf(),
        }
    }

    fn json(&self) -> String {
        let Self { id, channel, number, flag, .. } = self;
        let token = if *flag { "x" } else { "" };
        let request = match self.kind % 12 {
            0 => format!(r#""connect":{{"token":"{token}"}}"#),
            1 | 2 => format!(
                r#""subscribe":{{"channel":"{channel}","token":"{token}","recover":{},"offset":{number},"flag":{number},"join_leave":true}}"#,
                number % 3 == 0
            ),
            3 => format!(r#""unsubscribe":{{"channel":"{channel}"}}"#),
            4 | 5 => format!(r#""publish":{{"channel":"{channel}","data":[{number}]}}"#),
            6 => format!(r#""presence":{{"channel":"{channel}"}}"#),
            7 => format!(r#""presence_stats":{{"channel":"{channel}"}}"#),
            8 => format!(
                r#""history":{{"channel":"{channel}","limit":{number},"since":{{"offset":{number}}},"reverse":{flag}}}"#
            ),
            9 => r#""refresh":{"token":"x"}"#.to_owned(),
            10 => format!(r#""sub_refresh":{{"channel":"{channel}","token":"x"}}"#),
            _ => return "{}".to_owned(),
        };
        format!(r#"{{"id":{id},{request}}}"#)
    }

    /// Field numbers as in `client.proto`; all values here take one byte or two.
    fn protobuf(&self) -> Vec<u8> {
        let Self { id, channel, number, flag, .. } = self;
        let token: &[u8] = if *flag { b"x" } else { b"" };
        let channel = field(1, channel.as_bytes());
        let (request, fields) = match self.kind % 12 {
            0 => (4, field(1, token)),
            1 | 2 => (5, [channel, field(2, token), vec![3 << 3, number % 2, 7 << 3, number % 8, 11 << 3, 1]].concat()),
            3 => (6, channel),
            4 | 5 => (7, [channel, field(2, &[*number; 3])].concat()),
            6 => (8, channel),
            7 => (9, channel),
            8 => (10, [channel, vec![7 << 3, number % 8, 9 << 3, u8::from(*flag)]].concat()),
            9 => (14, field(1, b"x")),
            10 => (15, [channel, field(2, b"x")].concat()),
            _ => return vec![0],
        };
        let command = [vec![1 << 3, *id], field(request, &fields)].concat();
        [vec![command.len() as u8], command].concat()
    }
}

/// A length-delimited field; its content is short.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content].concat()
}
