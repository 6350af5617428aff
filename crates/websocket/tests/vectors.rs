//! The vectors of `schema/vectors/websocket`, in the format that its README defines.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use dunlin_websocket::{
    MessageKind, Opcode, ReceiveError, WebSocketLimits, close,
    handshake::{self, HandshakeRefusal},
    header,
};

use crate::fuzzing::{Event, Played, play, play_pausing};

/// Longer streams are cut only near their ends and at regular intervals in between.
const CUT_EVERYWHERE_BYTES_MAX: usize = 2_048;

#[test]
fn received_bytes_match_the_vectors() {
    let mut played = 0;
    for file in ["framing.txt", "fragments.txt", "utf8.txt", "close.txt", "limits.txt"] {
        for case in cases(file) {
            check_receive(&case, &format!("{file}, case {}", case.name));
            played += 1;
        }
    }
    assert!(played >= 500, "only {played} cases were found");
}

#[test]
fn written_bytes_match_the_vectors() {
    let cases = cases("send.txt");
    assert!(cases.len() >= 30, "only {} cases were found", cases.len());
    for case in cases {
        let what = case.value("send");
        let mut out = Vec::new();
        match what.split_once(' ').expect("send KIND BYTES") {
            ("close", rest) => {
                let (code, reason) = rest.split_once(' ').expect("send close CODE BYTES");
                let reason = String::from_utf8(bytes(reason)).expect("UTF-8");
                close::append_close(code.parse().expect("a code"), &reason, &mut out);
            }
            ("ping", payload) => header::append_ping(&bytes(payload), &mut out),
            ("pong", payload) => header::append_pong(&bytes(payload), &mut out),
            ("text", payload) => header::append_frame(Opcode::Text, &bytes(payload), &mut out),
            ("binary", payload) => header::append_frame(Opcode::Binary, &bytes(payload), &mut out),
            (other, _) => panic!("{}: {other}?", case.name),
        }
        assert!(out == bytes(case.value("out")), "{}: {:02x?}…", case.name, &out[..out.len().min(12)]);
    }
}

#[test]
fn which_upgrade_requests_are_accepted() {
    let cases = cases("handshake.txt");
    assert!(cases.len() >= 80, "only {} cases were found", cases.len());
    let mut refusals = HashSet::new();
    for case in cases {
        let (method, minor) = case.value("request").split_once(' ').expect("request METHOD MINOR");
        let fields: Vec<(&str, Vec<u8>)> = case.values("field").map(field).collect();
        let fields = fields.iter().map(|(name, value)| (*name, value.as_slice()));
        let offered = ["centrifuge-protobuf", "centrifuge-json"];
        let result = handshake::accept(method, minor.parse().expect("a number"), fields, &offered);
        let outcome = match result {
            Ok(accepted) => match accepted.subprotocol {
                Some(subprotocol) => format!("accept {} {subprotocol}", accepted.accept_key()),
                None => format!("accept {}", accepted.accept_key()),
            },
            Err(refusal) => {
                refusals.insert(refusal);
                format!("refuse {} {}", refusal.name(), refusal.status())
            }
        };
        let (key, value) = case.lines.last().expect("an outcome");
        assert_eq!(outcome, format!("{key} {value}"), "{}", case.name);
    }
    assert_eq!(refusals.len(), HandshakeRefusal::ALL.len(), "a refusal has no case");
}

#[test]
fn every_error_has_a_case() {
    let named: HashSet<String> = ["framing.txt", "fragments.txt", "utf8.txt", "close.txt", "limits.txt"]
        .into_iter()
        .flat_map(cases)
        .flat_map(|case| case.values("error").map(str::to_owned).collect::<Vec<_>>())
        .collect();
    for error in ReceiveError::ALL {
        // The caller's clock finds the one (tests/limits.rs), its inflater the other (tests/deflate.rs).
        if !matches!(error, ReceiveError::MessageOverdue | ReceiveError::DeflateInvalid) {
            let line = format!("{} {}", error.name(), error.close_code());
            assert!(named.contains(&line), "no case has `error {line}`");
        }
    }
}

fn check_receive(case: &Case, at: &str) {
    let stream: Vec<u8> = case.values("in").flat_map(bytes).collect();
    let limits = case.limits();
    let expected = Played {
        events: case.lines.iter().filter_map(|(key, value)| event(key, value)).collect(),
        unfinished: case.lines.iter().any(|(key, _)| key == "unfinished"),
    };
    let check = |played: Played, how: &str| {
        assert!(played == expected, "{at}, {how}:\n{}\nexpected:\n{}", brief(&played), brief(&expected));
    };
    check(play([stream.as_slice()], &limits), "whole");
    check(play(stream.chunks(1), &limits), "byte by byte");
    check(play_pausing(&stream, &limits), "with pauses");
    for cut in cuts(stream.len()) {
        let (front, back) = stream.split_at(cut);
        check(play([front, back], &limits), &format!("cut at {cut}"));
    }
}

fn cuts(len: usize) -> impl Iterator<Item = usize> {
    (0..=len).filter(move |cut| len <= CUT_EVERYWHERE_BYTES_MAX || *cut < 32 || len - cut < 32 || cut % 997 == 0)
}

/// Long payloads make unreadable failures.
fn brief(played: &Played) -> String {
    let mut text: String =
        format!("{:x?} {}", played.events, if played.unfinished { "unfinished" } else { "finished" });
    text.truncate(text.floor_char_boundary(600));
    text
}

struct Case {
    name: String,
    /// The first word of each line, and the rest of it.
    lines: Vec<(String, String)>,
}

impl Case {
    fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(move |(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    fn value(&self, key: &str) -> &str {
        self.values(key).next().unwrap_or_else(|| panic!("{}: no {key}", self.name))
    }

    fn limits(&self) -> WebSocketLimits {
        let mut limits = WebSocketLimits::default();
        for (name, value) in self.values("limit").map(|limit| limit.split_once(' ').expect("limit NAME VALUE")) {
            let value: usize = value.parse().expect("a number");
            match name {
                "frame_bytes_max" => limits.frame_bytes_max = value,
                "message_bytes_max" => limits.message_bytes_max = value,
                "fragments_max" => limits.fragments_max = value as u32,
                _ => panic!("{}: limit {name}?", self.name),
            }
        }
        limits
    }
}

fn cases(file: &str) -> Vec<Case> {
    let path = vectors().join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        if key == "case" {
            assert!(cases.iter().all(|case| case.name != value), "{file}: {value} occurs twice");
            cases.push(Case { name: value.to_owned(), lines: Vec::new() });
        } else {
            let case = cases.last_mut().unwrap_or_else(|| panic!("{file}: {line} before the first case"));
            case.lines.push((key.to_owned(), value.to_owned()));
        }
    }
    cases
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/vectors/websocket")
}

fn event(key: &str, value: &str) -> Option<Event> {
    Some(match key {
        "case" | "limit" | "in" | "unfinished" => return None,
        "text" => Event::Message(MessageKind::Text, bytes(value)),
        "binary" => Event::Message(MessageKind::Binary, bytes(value)),
        "ping" => Event::Ping(bytes(value)),
        "pong" => Event::Pong(bytes(value)),
        "close" if value == "-" => Event::Close(None, String::new()),
        "close" => {
            let (code, reason) = value.split_once(' ').unwrap_or((value, "-"));
            Event::Close(Some(code.parse().expect("a code")), String::from_utf8(bytes(reason)).expect("UTF-8"))
        }
        "error" => {
            let (name, code) = value.split_once(' ').expect("error NAME CODE");
            let error = ReceiveError::ALL.into_iter().find(|error| error.name() == name);
            let error = error.unwrap_or_else(|| panic!("error {name}?"));
            assert_eq!(error.close_code().to_string(), code, "{name}");
            Event::Error(error)
        }
        _ => panic!("{key} {value}?"),
    })
}

fn bytes(text: &str) -> Vec<u8> {
    text.split_ascii_whitespace().filter(|token| *token != "-").flat_map(token).collect()
}

/// `HEX`, `HEX*N`, and each of them with `^KEY` or `^KEY+N` behind it.
fn token(token: &str) -> Vec<u8> {
    let (plain, mask) = token.split_once('^').unwrap_or((token, "00000000"));
    let (key, offset) = mask.split_once('+').unwrap_or((mask, "0"));
    let (digits, count) = plain.split_once('*').unwrap_or((plain, "1"));
    let key = hex(key);
    assert_eq!(key.len(), 4, "{token}");
    let key = key.into_iter().cycle().skip(offset.parse().expect("an offset"));
    hex(digits).repeat(count.parse().expect("a count")).into_iter().zip(key).map(|(byte, mask)| byte ^ mask).collect()
}

fn hex(digits: &str) -> Vec<u8> {
    assert!(digits.len().is_multiple_of(2), "{digits}");
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).expect("hex")).collect()
}

/// `NAME: VALUE`, where `\xNN` is one byte of the value.
fn field(line: &str) -> (&str, Vec<u8>) {
    let (name, value) = line.split_once(':').expect("field NAME: VALUE");
    let value = value.strip_prefix(' ').unwrap_or(value);
    let mut parts = value.split("\\x");
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        out.extend(hex(digits));
        out.extend_from_slice(rest.as_bytes());
    }
    (name, out)
}
