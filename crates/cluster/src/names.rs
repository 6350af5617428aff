//! Names in NATS: streams, subjects, and the encoding of a channel's name as one token of a subject.
//!
//! A token contains no dot, wildcard or white space. [`encode_token`] writes such bytes, and the percent sign, as
//! `%XX`; all other characters stay, including those outside ASCII. Tokens that begin with `%_` are reserved for
//! Dunlin: the encoder never produces them.

use std::{borrow::Cow, fmt::Write as _};

/// Maximum bytes of a channel's token. A subject must fit into a control line of 4,096 bytes.
pub const TOKEN_BYTES_MAX: usize = 3 * 255;

/// The token for channels outside all namespaces. The names of namespaces have at least two characters.
const NO_NAMESPACE: &str = "-";

/// The prefix of a fence's token.
const FENCE: &str = "%_f";

/// The token of epoch records.
pub const EPOCH_TOKEN: &str = "%_e";

/// A part of a namespace's channels that share one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionId {
    /// The number of the namespace: 0 for channels outside all namespaces, then in the order of the options.
    pub namespace: u16,
    /// The number of the partition, from 0.
    pub part: u16,
}

/// The partition of a channel, out of `parts`. All nodes must compute the same one, so the hash is part of the format.
pub fn part_of(channel: &str, parts: u16) -> u16 {
    let hash = fnv1a(channel.bytes());
    // The low bits of FNV-1a are weak for short names.
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    u16::try_from(mixed % u64::from(parts.max(1))).unwrap_or(0)
}

/// The FNV-1a hash of bytes, which is the same on all nodes and in all versions.
pub(crate) fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Encodes text as one token of a subject.
pub fn encode_token(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| !(byte <= b' ' || byte == 0x7f || b"%.*>".contains(&byte));
    if text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut token = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match u8::try_from(character) {
            Ok(byte) if !is_plain(byte) => write!(token, "%{byte:02X}").expect("a string takes all text"),
            _ => token.push(character),
        }
    }
    Cow::Owned(token)
}

/// Decodes a token of [`encode_token`]; `None` for any other.
pub fn decode_token(token: &str) -> Option<Cow<'_, str>> {
    if !token.contains('%') {
        return (!token.is_empty()).then_some(Cow::Borrowed(token));
    }
    let mut text = String::with_capacity(token.len());
    let mut rest = token;
    while let Some((before, escaped)) = rest.split_once('%') {
        text.push_str(before);
        let digits = escaped.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        text.push(char::from(u8::from_str_radix(digits, 16).ok()?));
        rest = escaped.get(2..)?;
    }
    text.push_str(rest);
    Some(Cow::Owned(text))
}

/// The names of one partition's stream and subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionNames {
    /// The name of the stream.
    pub stream: Box<str>,
    /// The prefix of the subjects of publications; the channel's token follows.
    publish_prefix: Box<str>,
    /// The prefix of the subjects under which the stream republishes.
    live_prefix: Box<str>,
}

impl PartitionNames {
    /// The names of a partition. `prefix` is the setting `broker.prefix`; `namespace` is empty for channels outside all
    /// namespaces.
    pub fn new(prefix: &str, namespace: &str, part: u16) -> Self {
        let namespace = if namespace.is_empty() { Cow::Borrowed(NO_NAMESPACE) } else { encode_token(namespace) };
        let stream_prefix = encode_token(prefix);
        Self {
            stream: format!("{stream_prefix}_{namespace}_{part}").into(),
            publish_prefix: format!("{prefix}.p.{namespace}.{part}.").into(),
            live_prefix: format!("{prefix}.r.{namespace}.{part}.").into(),
        }
    }

    /// The subject of publications to a channel.
    pub fn publish_subject(&self, channel: &str) -> Box<str> {
        format!("{}{}", self.publish_prefix, encode_token(channel)).into()
    }

    /// The subject under which the channel's stored publications are republished.
    pub fn live_subject(&self, channel: &str) -> Box<str> {
        format!("{}{}", self.live_prefix, encode_token(channel)).into()
    }

    /// The subject of a node's fences.
    pub fn fence_subject(&self, node: &str) -> Box<str> {
        format!("{}{FENCE}-{}", self.publish_prefix, encode_token(node)).into()
    }

    /// The subject under which a node's fences are republished.
    pub fn live_fence_subject(&self, node: &str) -> Box<str> {
        format!("{}{FENCE}-{}", self.live_prefix, encode_token(node)).into()
    }

    /// The subject of epoch records.
    pub fn epoch_subject(&self) -> Box<str> {
        format!("{}{EPOCH_TOKEN}", self.publish_prefix).into()
    }

    /// The subject under which epoch records are republished.
    pub fn live_epoch_subject(&self) -> Box<str> {
        format!("{}{EPOCH_TOKEN}", self.live_prefix).into()
    }

    /// All subjects that the stream stores.
    pub fn stored_subjects(&self) -> Box<str> {
        format!("{}>", self.publish_prefix).into()
    }

    /// All subjects under which it republishes.
    pub fn republished_subjects(&self) -> Box<str> {
        format!("{}>", self.live_prefix).into()
    }

    /// The subject on which the servers announce a new leader of the stream.
    pub fn leader_subject(&self) -> Box<str> {
        format!("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.{}", self.stream).into()
    }

    /// The part of live subjects before the dot and the channel's token.
    pub fn live_prefix(&self) -> &str {
        self.live_prefix.trim_end_matches('.')
    }

    /// The channel's token in the subject of a stored message.
    pub fn stored_token<'a>(&self, subject: &'a str) -> Option<&'a str> {
        subject.strip_prefix(&*self.publish_prefix)
    }
}

/// The subjects of a namespace's broadcasts, which no stream stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroadcastNames {
    /// The prefix before the channel's token, including the dot.
    start: Box<str>,
}

impl BroadcastNames {
    /// The names of a namespace. `prefix` is the setting `broker.prefix`; `namespace` is empty for channels outside all
    /// namespaces.
    pub fn new(prefix: &str, namespace: &str) -> Self {
        let namespace = if namespace.is_empty() { Cow::Borrowed(NO_NAMESPACE) } else { encode_token(namespace) };
        Self { start: format!("{prefix}.e.{namespace}.").into() }
    }

    /// The subject of a channel; `None` if its name is too long for one.
    pub fn subject(&self, channel: &str) -> Option<Box<str>> {
        let token = encode_token(channel);
        (token.len() <= TOKEN_BYTES_MAX).then(|| format!("{}{token}", self.start).into())
    }

    /// The subjects of all channels.
    pub fn all_subjects(&self) -> Box<str> {
        format!("{}*", self.start).into()
    }

    /// The part of subjects before the dot and the channel's token.
    pub fn subject_prefix(&self) -> &str {
        self.start.trim_end_matches('.')
    }
}

/// Whether a subject contains a wildcard.
pub fn has_wildcard(subject: &str) -> bool {
    subject.split('.').any(|token| token == "*" || token == ">")
}

/// Whether a token is a fence's.
pub fn is_fence(token: &str) -> bool {
    token.starts_with(FENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_as_one_token() {
        for name in
            ["plain", "a.b", "*", ">", "50%", "%20", "white space", "tab\tand\nline", "é🐦", "%_f", "\u{7f}", "a:b#c"]
        {
            let token = encode_token(name);
            assert!(!token.bytes().any(|byte| byte <= b' ' || byte == 0x7f || b".*>".contains(&byte)), "{token}");
            assert!(!is_fence(&token), "{token}");
            assert_eq!(decode_token(&token).as_deref(), Some(name));
        }
    }

    #[test]
    fn invalid_tokens_are_refused() {
        for token in ["", "%", "%2", "%zz", "%_f-node", EPOCH_TOKEN, "%é0"] {
            assert_eq!(decode_token(token), None, "{token}");
        }
    }

    #[test]
    fn the_longest_token_fits_into_a_control_line() {
        let names = PartitionNames::new("prefix", "namespace", u16::MAX);
        assert!(names.publish_subject(&"*".repeat(255)).len() < 4_000);
        assert_eq!(encode_token(&"*".repeat(255)).len(), TOKEN_BYTES_MAX);
    }

    #[test]
    fn partitions_are_a_fixed_function_of_the_name() {
        // Other nodes compute them too, also those of other versions.
        let parts: Vec<u16> = ["a", "b", "chat:1", "chat:2", "é"].iter().map(|name| part_of(name, 8)).collect();
        assert_eq!(parts, [4, 3, 5, 6, 6]);
        let mut counts = [0_u32; 8];
        (0..8_000).for_each(|number| counts[usize::from(part_of(&format!("chat:{number}"), 8))] += 1);
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
        assert_eq!(part_of("anything", 1), 0);
    }

    #[test]
    fn namespaces_have_streams_of_their_own() {
        let (none, one) = (PartitionNames::new("dn", "", 0), PartitionNames::new("dn", "chat", 3));
        assert_eq!((&*none.stream, &*one.stream), ("dn_-_0", "dn_chat_3"));
        assert_eq!(&*one.publish_subject("chat:a.b"), "dn.p.chat.3.chat:a%2Eb");
        assert_eq!(one.stored_token("dn.p.chat.3.chat:a%2Eb"), Some("chat:a%2Eb"));
        assert_eq!(one.stored_token("dn.p.chat.4.x"), None);
        assert_eq!(one.live_subject("x").rsplit_once('.'), Some((one.live_prefix(), "x")));
    }

    #[test]
    fn broadcasts_of_a_namespace_share_a_prefix() {
        let (none, one) = (BroadcastNames::new("dn", ""), BroadcastNames::new("dn", "chat"));
        assert_eq!(none.subject("news").as_deref(), Some("dn.e.-.news"));
        assert_eq!(one.subject("chat:a.b").as_deref(), Some("dn.e.chat.chat:a%2Eb"));
        assert_eq!((one.subject_prefix(), &*one.all_subjects()), ("dn.e.chat", "dn.e.chat.*"));
        assert!(has_wildcard(&one.all_subjects()) && has_wildcard("dn.r.chat.0.>"));
        assert!(!has_wildcard("dn.e.chat.chat:a%2Eb") && !has_wildcard("dn.e.chat.%2A"));
    }

    #[test]
    fn a_name_that_is_too_long_for_a_subject_has_none() {
        let names = BroadcastNames::new("dn", "chat");
        assert!(names.subject(&"x".repeat(TOKEN_BYTES_MAX)).is_some());
        assert_eq!(names.subject(&"x".repeat(TOKEN_BYTES_MAX + 1)), None);
    }
}
