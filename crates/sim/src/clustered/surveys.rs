//! Surveys of all nodes of a simulated cluster: the question, the connections that the result must contain, and those
//! that it may contain.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dunlin_engine::api::{ApiAnswer, ApiRequest, ApiResult, SessionFilter};
use dunlin_protocol::Disconnect;
use serde::{Deserialize, Serialize};

/// Pairs of a channel and a client id. All clients are members of the channel without a name.
pub type Membership = BTreeSet<(String, String)>;

/// A question to all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeQuestion {
    Presence { channel: String },
    PresenceStats { channel: String },
    Channels,
    Info,
    Keys { channel: String },
    Disconnect { user: String, client: String },
}

impl NodeQuestion {
    /// Encodes the question as a payload.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("strings are valid JSON").into()
    }

    /// Decodes a question as a request to a node's shard.
    ///
    /// # Errors
    /// If the payload is not a question.
    pub fn request_of(payload: &[u8]) -> Result<ApiRequest, String> {
        Ok(match serde_json::from_slice(payload).map_err(|error| error.to_string())? {
            Self::Presence { channel } => ApiRequest::Presence { channel: channel.into() },
            Self::PresenceStats { channel } => ApiRequest::PresenceStats { channel: channel.into() },
            Self::Channels => ApiRequest::Channels,
            Self::Info => ApiRequest::Survey,
            Self::Keys { channel } => ApiRequest::NewestKeys { channel: channel.into() },
            Self::Disconnect { user, client } => ApiRequest::Disconnect {
                user: user.into(),
                only: SessionFilter { client: Some(client.into()), session: None },
                whitelist: Vec::new(),
                disconnect: Disconnect::FORCE_NO_RECONNECT,
            },
        })
    }
}

/// The reply of one node, or the sum of several replies.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct NodePart {
    clients: Vec<String>,
    by_channel: BTreeMap<String, u32>,
    number: u32,
}

impl NodePart {
    /// Converts the reply of a shard.
    ///
    /// # Errors
    /// If the shard's reply does not belong to a question.
    pub fn of(answer: &ApiResult) -> Result<Self, String> {
        let mut part = Self::default();
        match answer {
            Ok(ApiAnswer::Presence(clients)) => {
                part.clients = clients.iter().map(|info| info.client.to_string()).collect();
            }
            Ok(ApiAnswer::PresenceStats { num_clients, .. }) => part.number = *num_clients,
            Ok(ApiAnswer::Channels(channels)) => {
                part.by_channel = channels.iter().map(|(name, clients)| (name.to_string(), *clients)).collect();
            }
            Ok(ApiAnswer::Survey(survey)) => part.number = survey.sessions,
            Ok(ApiAnswer::Done { sessions }) => part.number = *sessions,
            other => return Err(format!("unexpected reply to a question of a node: {other:?}")),
        }
        Ok(part)
    }

    /// Encodes the reply as a payload.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("strings and numbers are valid JSON").into()
    }

    /// Adds the reply of another node.
    ///
    /// # Errors
    /// If the payload is not a reply.
    pub fn add(&mut self, payload: &[u8]) -> Result<(), String> {
        let Self { clients, by_channel, number } =
            serde_json::from_slice(payload).map_err(|error| error.to_string())?;
        self.clients.extend(clients);
        for (channel, clients) in by_channel {
            *self.by_channel.entry(channel).or_default() += clients;
        }
        self.number += number;
        Ok(())
    }
}

/// A survey without a result.
pub struct RunningSurvey {
    /// The node that asks.
    pub node_index: usize,
    pub question: NodeQuestion,
    /// The deadline of the result.
    pub due_us: u64,
    /// The reply of the asking node itself. The replies of the other nodes are added at the end.
    pub part: NodePart,
    /// Whether no fault may make the result incomplete.
    pub must_be_complete: bool,
    /// Members during the whole survey, on nodes that the asking node must know.
    pub present: Membership,
    /// Members at any time during the survey.
    pub possible: Membership,
}

impl RunningSurvey {
    /// Updates the members after time has passed. `certain` are members now, and `possible` may be members.
    pub fn observe(&mut self, certain: &Membership, possible: &Membership) {
        self.present.retain(|entry| certain.contains(entry));
        self.possible.extend(possible.iter().cloned());
    }

    /// Checks the combined result of all nodes.
    ///
    /// # Errors
    /// If members are missing, or if the result contains clients that were not members.
    pub fn check(&self, is_complete: bool) -> Result<(), String> {
        if self.must_be_complete && !is_complete {
            return Err("is partial without a fault".to_owned());
        }
        let NodePart { clients, by_channel, number } = &self.part;
        match &self.question {
            NodeQuestion::Presence { channel } => self.check_clients(channel, clients, is_complete),
            NodeQuestion::PresenceStats { channel } => self.check_number(channel, *number, is_complete),
            // The answers go to a shard.
            NodeQuestion::Keys { .. } => Ok(()),
            NodeQuestion::Info => self.check_number("", *number, is_complete),
            NodeQuestion::Channels => {
                let known = self.possible.iter().map(|(channel, _)| channel.as_str()).filter(|name| !name.is_empty());
                let names: BTreeSet<&str> = known.chain(by_channel.keys().map(String::as_str)).collect();
                names.into_iter().try_for_each(|name| {
                    self.check_number(name, by_channel.get(name).copied().unwrap_or(0), is_complete)
                })
            }
            NodeQuestion::Disconnect { client, .. } => {
                let is_there = self.present.contains(&(String::new(), client.clone()));
                if is_complete && is_there { Err(format!("leaves {client} connected")) } else { Ok(()) }
            }
        }
    }

    fn check_clients(&self, channel: &str, clients: &[String], is_complete: bool) -> Result<(), String> {
        let seen: BTreeSet<&String> = clients.iter().collect();
        if seen.len() < clients.len() {
            return Err(format!("names a client of {channel} twice: {clients:?}"));
        }
        if let Some(client) =
            seen.iter().find(|client| !self.possible.contains(&(channel.to_owned(), (**client).clone())))
        {
            return Err(format!("names {client}, who was not in {channel}"));
        }
        let mut present = self.present.iter().filter(|(name, _)| name == channel).map(|(_, client)| client);
        match present.find(|client| !seen.contains(client)) {
            Some(client) if is_complete => Err(format!("lacks {client} in {channel}, but is not marked as partial")),
            _ => Ok(()),
        }
    }

    fn check_number(&self, channel: &str, number: u32, is_complete: bool) -> Result<(), String> {
        let count = |who: &Membership| who.iter().filter(|(name, _)| name == channel).count() as u32;
        let (least, most) = (if is_complete { count(&self.present) } else { 0 }, count(&self.possible));
        if (least..=most).contains(&number) {
            return Ok(());
        }
        let mark = if is_complete { "complete" } else { "partial" };
        Err(format!("is {mark} and counts {number} in {channel:?}, expected {least} to {most}"))
    }
}
