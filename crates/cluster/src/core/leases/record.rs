//! A lease as a message: names and headers.
//!
//! | header | value |
//! |---|---|
//! | `Dn-Lease` | `held`, `released` by its holder, or `taken` by another node |
//! | `Dn-Node` | the node whose lease it is |
//! | `Dn-By` | of a taken one: the node that has taken it |

use std::borrow::Cow;

use crate::{
    link::MessageHeaders,
    names::{decode_token, encode_token},
    record::{EXPECTED_LAST, MESSAGE_ID, NODE},
};

const LEASE: &str = "Dn-Lease";
const BY: &str = "Dn-By";

/// The names of the stream of leases and of its subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseNames {
    /// The name of the stream.
    pub stream: Box<str>,
    /// The prefix of the subjects of leases; the node's token follows.
    start: Box<str>,
    /// The prefix of the subjects under which the stream republishes.
    live_start: Box<str>,
}

impl LeaseNames {
    /// `prefix` is the setting `broker.nats.prefix`.
    pub fn new(prefix: &str) -> Self {
        Self {
            // The names of the namespaces' streams end with a number.
            stream: format!("{}_LEASE", encode_token(prefix)).into(),
            start: format!("{prefix}.l.node.").into(),
            live_start: format!("{prefix}.lw.node.").into(),
        }
    }

    /// The subject of a node's lease.
    pub fn subject_of(&self, node: &str) -> Box<str> {
        format!("{}{}", self.start, encode_token(node)).into()
    }

    /// The subjects of all leases.
    pub fn all_subjects(&self) -> Box<str> {
        format!("{}*", self.start).into()
    }

    /// All subjects that the stream stores.
    pub fn stored_subjects(&self) -> Box<str> {
        format!("{}>", self.start).into()
    }

    /// All subjects under which it republishes.
    pub fn live_subjects(&self) -> Box<str> {
        format!("{}>", self.live_start).into()
    }

    /// The node whose lease was republished on a subject.
    pub(super) fn node_of_live(&self, subject: &str) -> Option<Box<str>> {
        let token = subject.strip_prefix(&*self.live_start)?;
        decode_token(token).map(Cow::into_owned).map(Into::into)
    }
}

/// The status of a lease in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseStatus {
    Held,
    Released,
    Taken { by: Box<str> },
}

/// A lease as a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseRecord {
    pub(super) node: Box<str>,
    pub(super) status: LeaseStatus,
}

impl LeaseRecord {
    pub(super) fn held(node: &str) -> Self {
        Self { node: node.into(), status: LeaseStatus::Held }
    }

    pub(super) fn released(node: &str) -> Self {
        Self { node: node.into(), status: LeaseStatus::Released }
    }

    pub(super) fn taken(node: &str, by: &str) -> Self {
        Self { node: node.into(), status: LeaseStatus::Taken { by: by.into() } }
    }

    /// Returns `None` for any other message.
    pub(super) fn of(headers: &MessageHeaders) -> Option<Self> {
        let status = match headers.get(LEASE)? {
            "held" => LeaseStatus::Held,
            "released" => LeaseStatus::Released,
            "taken" => LeaseStatus::Taken { by: headers.get(BY)?.into() },
            _ => return None,
        };
        Some(Self { node: headers.get(NODE)?.into(), status })
    }

    pub(super) fn headers(&self, id: &str, expected: u64) -> MessageHeaders {
        let (status, by) = match &self.status {
            LeaseStatus::Held => ("held", None),
            LeaseStatus::Released => ("released", None),
            LeaseStatus::Taken { by } => ("taken", Some(by)),
        };
        let mut headers = MessageHeaders::new()
            .with(LEASE, status)
            .with(NODE, self.node.clone())
            .with(MESSAGE_ID, id)
            .with(EXPECTED_LAST, expected.to_string());
        if let Some(by) = by {
            headers.push(BY, by.clone());
        }
        headers
    }
}
