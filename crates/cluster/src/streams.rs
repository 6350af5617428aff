//! The stream of a partition: its required configuration, which is applied if it is missing, and compared if it exists.
//!
//! An existing stream is never changed: messages lost under other limits could not be distinguished from messages that
//! never existed. A [`StreamDifference`] names each differing field, both values and the remedy.

use std::{collections::BTreeMap, fmt, time::Duration};

use async_nats::{Client, RequestErrorKind};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::link::StreamState;

/// The layout of subjects and headers. Nodes only work together with the same layout.
const LAYOUT: &str = "1";
const ERROR_STREAM_NOT_FOUND: u64 = 10_059;
const ERROR_STREAM_EXISTS: u64 = 10_058;
const ERRORS_JETSTREAM_OFF: [u64; 2] = [10_039, 10_076];
const ERROR_NO_META_LEADER: u64 = 10_008;
/// The errors of a server without a cluster, and of a cluster that lacks peers.
const ERRORS_TOO_FEW_SERVERS: [u64; 2] = [10_074, 10_005];
const ERRORS_RESOURCES: [u64; 3] = [10_047, 10_028, 10_023];
const ERROR_SUBJECTS_OVERLAP: u64 = 10_065;

/// Timeout of one request. Nobody answers during an election, and a longer wait would outlast it.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between attempts while servers elect a leader.
const PAUSE: Duration = Duration::from_millis(100);

/// The required configuration of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamTerms {
    /// The stream's name.
    pub name: Box<str>,
    /// The subjects that it stores.
    pub source: Box<str>,
    /// The subjects to which it republishes what it has stored; empty if it does not.
    pub destination: Box<str>,
    /// The number of replicas.
    pub replicas: u16,
    /// Whether it is stored only in the servers' memory, for tests.
    pub is_in_memory: bool,
    /// Maximum number of messages that are kept per subject; `u64::MAX` for all.
    pub messages_per_subject_max: u64,
    /// How long messages are kept; 0 for ever.
    pub age_max_ms: u64,
    /// How long duplicates are detected by their ids.
    pub duplicate_window_ms: u64,
    /// The number of partitions of the namespace.
    pub partitions: u16,
}

/// A field of an existing stream with another value than required or configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamDifference {
    /// The stream.
    pub stream: Box<str>,
    /// The field, as `nats stream info` names it.
    pub field: &'static str,
    /// The actual value.
    pub there: String,
    /// The required or configured value.
    pub wanted: String,
    /// Whether Dunlin can work with the actual value.
    pub is_tolerable: bool,
}

impl fmt::Display for StreamDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, field, there, wanted, is_tolerable } = self;
        write!(f, "the stream {stream} has {field} = {there}, not {wanted}: ")?;
        if *is_tolerable {
            write!(f, "nodes use the stream's value; change it with `nats stream edit {stream}`, or the configuration")
        } else {
            write!(
                f,
                "somebody else made or changed it; set another `broker.nats.prefix`, or remove the stream with \
                 `nats stream rm {stream}`, which deletes its channels' histories"
            )
        }
    }
}

/// A stream that exists.
#[derive(Clone, Debug)]
pub struct EnsuredStream {
    /// The stream's state.
    pub state: Box<StreamState>,
    /// Whether this call created it.
    pub is_new: bool,
    /// The differences, which are all tolerable.
    pub differences: Vec<StreamDifference>,
}

/// Why a stream cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamFault {
    /// These fields differ.
    Different(Vec<StreamDifference>),
    /// The account or the servers have no `JetStream`.
    JetStreamOff {
        /// The server's text.
        text: String,
    },
    /// There are fewer servers than replicas.
    TooFewServers {
        /// The stream.
        stream: Box<str>,
        /// The required number of replicas.
        replicas: u16,
        /// The server's text.
        text: String,
    },
    /// The servers have no space for it.
    NoRoom {
        /// The stream.
        stream: Box<str>,
        /// The server's text.
        text: String,
    },
    /// Another stream stores the same subjects.
    Overlapping {
        /// The stream.
        stream: Box<str>,
        /// The subjects.
        source: Box<str>,
    },
    /// The server refuses for another reason.
    Refused {
        /// The stream.
        stream: Box<str>,
        /// NATS's code.
        error_code: u64,
        /// The server's text.
        text: String,
    },
    /// No answer in time: there is no leader, or the user lacks the permission.
    Silent {
        /// The stream.
        stream: Box<str>,
    },
    /// The answer cannot be parsed.
    Malformed {
        /// The stream.
        stream: Box<str>,
    },
}

impl fmt::Display for StreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Different(differences) => {
                for (index, difference) in differences.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "; " };
                    write!(f, "{separator}{difference}")?;
                }
                Ok(())
            }
            Self::JetStreamOff { text } => {
                write!(
                    f,
                    "the NATS servers have no JetStream for this account ({text}): enable it with `jetstream {{}}`"
                )
            }
            Self::TooFewServers { stream, replicas, text } => write!(
                f,
                "the stream {stream} needs {replicas} servers ({text}): start them, or set `broker.nats.jetstream.replicas`"
            ),
            Self::NoRoom { stream, text } => {
                write!(f, "the NATS servers have no room for the stream {stream} ({text}): raise `max_file_store`")
            }
            Self::Overlapping { stream, source } => write!(
                f,
                "another stream stores {source}, which the stream {stream} must have for itself: set another `broker.nats.prefix`"
            ),
            Self::Refused { stream, error_code, text } => {
                write!(f, "the NATS servers refuse the stream {stream}: {text} ({error_code})")
            }
            Self::Silent { stream } => write!(
                f,
                "nobody answers for the stream {stream}: the NATS servers have no leader, or the user lacks a permission for \
                 `$JS.API.>`; `dunlin cluster check` names it"
            ),
            Self::Malformed { stream } => write!(f, "the answer about the stream {stream} is no state of a stream"),
        }
    }
}

impl std::error::Error for StreamFault {}

impl StreamFault {
    /// Whether servers that start or elect a leader end it.
    pub(crate) const fn can_pass(&self) -> bool {
        matches!(self, Self::Silent { .. } | Self::TooFewServers { .. } | Self::JetStreamOff { .. })
    }
}

#[derive(Deserialize)]
struct ApiError {
    err_code: u64,
    #[serde(default)]
    description: String,
}

#[derive(Serialize)]
struct StreamConfig<'a> {
    name: &'a str,
    subjects: [&'a str; 1],
    retention: &'static str,
    discard: &'static str,
    storage: &'static str,
    num_replicas: u16,
    max_msgs: i64,
    max_bytes: i64,
    max_msg_size: i32,
    max_consumers: i32,
    max_msgs_per_subject: i64,
    max_age: u64,
    duplicate_window: u64,
    allow_direct: bool,
    allow_rollup_hdrs: bool,
    deny_delete: bool,
    deny_purge: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    republish: Option<Republish<'a>>,
    metadata: BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
struct Republish<'a> {
    src: &'a str,
    dest: &'a str,
}

/// Creates the stream if it is missing, with this epoch; otherwise compares it. While the servers have no leader,
/// retries until `patience` has passed.
///
/// # Errors
/// See [`StreamFault`].
pub async fn ensure(
    client: &Client,
    terms: &StreamTerms,
    epoch: &str,
    patience: Duration,
) -> Result<EnsuredStream, StreamFault> {
    let give_up = tokio::time::Instant::now() + patience;
    loop {
        let fault = match ensure_once(client, terms, epoch).await {
            Err(fault) if fault.can_pass() => fault,
            outcome => return outcome,
        };
        if tokio::time::Instant::now() >= give_up {
            return Err(fault);
        }
        sleep(PAUSE).await;
    }
}

async fn ensure_once(client: &Client, terms: &StreamTerms, epoch: &str) -> Result<EnsuredStream, StreamFault> {
    if let Some(info) = info(client, &terms.name).await? {
        return compared(terms, &info);
    }
    let (subject, body) = creation(terms, epoch);
    match ask(client, &terms.name, subject, body).await? {
        Ok(info) => {
            let state = state_of(terms, &info)?;
            Ok(EnsuredStream { state, is_new: true, differences: Vec::new() })
        }
        // Another node has created it first.
        Err(error) if error.err_code == ERROR_STREAM_EXISTS => {
            let info = info(client, &terms.name).await?;
            compared(terms, &info.ok_or_else(|| StreamFault::Silent { stream: terms.name.clone() })?)
        }
        Err(error) => Err(refused(terms, error)),
    }
}

/// The subject and the body of the request that creates a stream.
pub(crate) fn creation(terms: &StreamTerms, epoch: &str) -> (String, Bytes) {
    let body = serde_json::to_vec(&config(terms, epoch)).unwrap_or_default();
    (format!("$JS.API.STREAM.CREATE.{}", terms.name), body.into())
}

/// The subject and the body of the request that deletes the messages of a subject with sequences below a number.
pub(crate) fn purge(stream: &str, subject: &str, below: u64) -> (String, Bytes) {
    let body = serde_json::json!({ "filter": subject, "seq": below }).to_string();
    (format!("$JS.API.STREAM.PURGE.{stream}"), body.into())
}

/// The number of partitions of a namespace, from its first stream; `None` if the stream does not exist or does not
/// state it.
///
/// # Errors
/// See [`StreamFault`].
pub async fn partitions_there(client: &Client, stream: &str) -> Result<Option<u16>, StreamFault> {
    let info = info(client, stream).await?;
    Ok(info
        .and_then(|info| info["config"]["metadata"]["dunlin.parts"].as_str()?.parse().ok())
        .filter(|parts| *parts > 0))
}

pub(crate) async fn info(client: &Client, stream: &str) -> Result<Option<Value>, StreamFault> {
    match ask(client, stream, format!("$JS.API.STREAM.INFO.{stream}"), Bytes::new()).await? {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.err_code == ERROR_STREAM_NOT_FOUND => Ok(None),
        Err(error) if ERRORS_JETSTREAM_OFF.contains(&error.err_code) => {
            Err(StreamFault::JetStreamOff { text: error.description })
        }
        Err(error) if error.err_code == ERROR_NO_META_LEADER => Err(StreamFault::Silent { stream: stream.into() }),
        Err(error) => {
            Err(StreamFault::Refused { stream: stream.into(), error_code: error.err_code, text: error.description })
        }
    }
}

async fn ask(
    client: &Client,
    stream: &str,
    subject: String,
    body: Bytes,
) -> Result<Result<Value, ApiError>, StreamFault> {
    let silent = || StreamFault::Silent { stream: stream.into() };
    let answer = timeout(ATTEMPT_TIMEOUT, client.request(subject, body)).await.map_err(|_| silent())?;
    let message = answer.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => StreamFault::JetStreamOff { text: "nobody listens to its API".to_owned() },
        _ => silent(),
    })?;
    let mut answer: Value =
        serde_json::from_slice(&message.payload).map_err(|_| StreamFault::Malformed { stream: stream.into() })?;
    match answer.get_mut("error") {
        Some(error) => match serde_json::from_value(error.take()) {
            Ok(error) => Ok(Err(error)),
            Err(_) => Err(StreamFault::Malformed { stream: stream.into() }),
        },
        None => Ok(Ok(answer)),
    }
}

fn refused(terms: &StreamTerms, error: ApiError) -> StreamFault {
    let (stream, text, error_code) = (terms.name.clone(), error.description, error.err_code);
    match error_code {
        ERROR_NO_META_LEADER => StreamFault::Silent { stream },
        code if ERRORS_TOO_FEW_SERVERS.contains(&code) => {
            StreamFault::TooFewServers { stream, replicas: terms.replicas, text }
        }
        ERROR_SUBJECTS_OVERLAP => StreamFault::Overlapping { stream, source: terms.source.clone() },
        code if ERRORS_RESOURCES.contains(&code) => StreamFault::NoRoom { stream, text },
        code if ERRORS_JETSTREAM_OFF.contains(&code) => StreamFault::JetStreamOff { text },
        _ => StreamFault::Refused { stream, error_code, text },
    }
}

fn config<'a>(terms: &'a StreamTerms, epoch: &str) -> StreamConfig<'a> {
    StreamConfig {
        name: &terms.name,
        subjects: [&terms.source],
        retention: "limits",
        discard: "old",
        storage: if terms.is_in_memory { "memory" } else { "file" },
        num_replicas: terms.replicas,
        max_msgs: -1,
        max_bytes: -1,
        max_msg_size: -1,
        max_consumers: -1,
        max_msgs_per_subject: i64::try_from(terms.messages_per_subject_max).unwrap_or(-1),
        max_age: terms.age_max_ms.saturating_mul(1_000_000),
        duplicate_window: terms.duplicate_window_ms.saturating_mul(1_000_000),
        allow_direct: true,
        allow_rollup_hdrs: true,
        deny_delete: true,
        deny_purge: false,
        republish: Some(Republish { src: &terms.source, dest: &terms.destination })
            .filter(|_| !terms.destination.is_empty()),
        metadata: BTreeMap::from([
            ("dunlin.epoch", epoch.to_owned()),
            ("dunlin.parts", terms.partitions.to_string()),
            ("dunlin.v", LAYOUT.to_owned()),
            // Nodes prove completeness with these values, even after the limits have been raised.
            ("dunlin.kept", terms.messages_per_subject_max.to_string()),
            ("dunlin.age_ms", terms.age_max_ms.to_string()),
        ]),
    }
}

fn compared(terms: &StreamTerms, info: &Value) -> Result<EnsuredStream, StreamFault> {
    let differences = differences(terms, &info["config"]);
    if differences.iter().any(|difference| !difference.is_tolerable) {
        return Err(StreamFault::Different(differences.into_iter().filter(|d| !d.is_tolerable).collect()));
    }
    Ok(EnsuredStream { state: state_of(terms, info)?, is_new: false, differences })
}

fn state_of(terms: &StreamTerms, info: &Value) -> Result<Box<StreamState>, StreamFault> {
    let malformed = || StreamFault::Malformed { stream: terms.name.clone() };
    let body = serde_json::to_vec(info).map_err(|_| malformed())?;
    crate::links::stream_state_of(&body.into()).map_err(|_| malformed())
}

pub(crate) fn differences(terms: &StreamTerms, there: &Value) -> Vec<StreamDifference> {
    // Any epoch is accepted, but it must not be empty.
    let epoch = there["metadata"]["dunlin.epoch"].as_str().unwrap_or_default();
    let wanted =
        serde_json::to_value(config(terms, if epoch.is_empty() { "a text" } else { epoch })).unwrap_or_default();
    let mut found = Vec::new();
    let mut compare = |field: &'static str, there: &Value, wanted: &Value, is_tolerable: bool| {
        if there != wanted {
            let (there, wanted) = (there.to_string(), wanted.to_string());
            found.push(StreamDifference { stream: terms.name.clone(), field, there, wanted, is_tolerable });
        }
    };
    for field in ["subjects", "retention", "discard", "storage", "max_msgs", "max_bytes", "max_msg_size"] {
        compare(field, &there[field], &wanted[field], false);
    }
    for field in ["allow_direct", "allow_rollup_hdrs", "deny_delete"] {
        compare(field, &there[field], &wanted[field], false);
    }
    for field in ["num_replicas", "max_msgs_per_subject", "max_age", "duplicate_window"] {
        compare(field, &there[field], &wanted[field], true);
    }
    compare("republish.src", &there["republish"]["src"], &wanted["republish"]["src"], false);
    compare("republish.dest", &there["republish"]["dest"], &wanted["republish"]["dest"], false);
    for (field, key) in [
        ("metadata dunlin.epoch", "dunlin.epoch"),
        ("metadata dunlin.parts", "dunlin.parts"),
        ("metadata dunlin.v", "dunlin.v"),
    ] {
        compare(field, &there["metadata"][key], &wanted["metadata"][key], false);
    }
    for field in ["allow_msg_ttl", "sealed", "no_ack"] {
        let is_off = there[field].as_bool().is_none_or(|is_on| !is_on);
        compare(field, &Value::Bool(!is_off), &Value::Bool(false), false);
    }
    for field in [
        "republish.headers_only",
        "mirror",
        "sources",
        "subject_transform",
        "subject_delete_marker_ttl",
        "persist_mode",
    ] {
        let value = field.split('.').fold(there, |value, part| &value[part]);
        let is_default = value.is_null() || value == &Value::Bool(false) || value == "default" || value == "";
        if !is_default {
            compare(field, value, &Value::Null, false);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> StreamTerms {
        StreamTerms {
            name: "dn_chat_0".into(),
            source: "dn.p.chat.0.>".into(),
            destination: "dn.r.chat.0.>".into(),
            replicas: 3,
            is_in_memory: false,
            messages_per_subject_max: 11,
            age_max_ms: 60_000,
            duplicate_window_ms: 300_000,
            partitions: 4,
        }
    }

    #[test]
    fn a_stream_created_by_dunlin_has_no_difference() {
        let there = serde_json::to_value(config(&terms(), "x7")).expect("it is JSON");
        assert_eq!(differences(&terms(), &there), []);
    }

    #[test]
    fn each_changed_field_is_named_with_both_values() {
        for (field, value, is_tolerable) in [
            ("subjects", serde_json::json!(["dn.p.>"]), false),
            ("max_bytes", serde_json::json!(1_000), false),
            ("storage", serde_json::json!("memory"), false),
            ("deny_delete", serde_json::json!(false), false),
            ("max_msgs_per_subject", serde_json::json!(5), true),
            ("num_replicas", serde_json::json!(1), true),
            ("mirror", serde_json::json!({"name": "o"}), false),
            ("persist_mode", serde_json::json!("async"), false),
            ("allow_msg_ttl", serde_json::json!(true), false),
        ] {
            let mut there = serde_json::to_value(config(&terms(), "x7")).expect("it is JSON");
            there[field] = value.clone();
            let found = differences(&terms(), &there);
            assert_eq!(found.len(), 1, "{field}: {found:?}");
            assert_eq!((found[0].field, found[0].is_tolerable), (field, is_tolerable));
            assert!(found[0].to_string().contains(&value.to_string()), "{}", found[0]);
        }
    }

    #[test]
    fn a_stream_without_dunlins_metadata_is_foreign() {
        let mut there = serde_json::to_value(config(&terms(), "x7")).expect("it is JSON");
        there["metadata"] = serde_json::json!({});
        let found = differences(&terms(), &there);
        assert_eq!(found.iter().filter(|difference| !difference.is_tolerable).count(), 3, "{found:?}");
    }
}
