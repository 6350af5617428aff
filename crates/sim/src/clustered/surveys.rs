//! Questions to all nodes of a simulated cluster: what was asked, who has to be in the answer, and who may be.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dunlin_engine::api::{ApiAnswer, ApiRequest, ApiResult, SessionFilter};
use dunlin_protocol::Disconnect;
use serde::{Deserialize, Serialize};

/// Channels and the clients in them, by the ids of their connections. All connections are in the channel without a name.
pub type Attendance = BTreeSet<(String, String)>;

/// What every node is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeQuestion {
    Presence { channel: String },
    PresenceStats { channel: String },
    Channels,
    Info,
    Disconnect { user: String, client: String },
}

impl NodeQuestion {
    /// As nodes send it to each other.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("texts are JSON").into()
    }

    /// The request to a node's shard.
    ///
    /// # Errors
    /// If this is no question.
    pub fn request_of(payload: &[u8]) -> Result<ApiRequest, String> {
        Ok(match serde_json::from_slice(payload).map_err(|error| error.to_string())? {
            Self::Presence { channel } => ApiRequest::Presence { channel: channel.into() },
            Self::PresenceStats { channel } => ApiRequest::PresenceStats { channel: channel.into() },
            Self::Channels => ApiRequest::Channels,
            Self::Info => ApiRequest::Survey,
            Self::Disconnect { user, client } => ApiRequest::Disconnect {
                user: user.into(),
                only: SessionFilter { client: Some(client.into()), session: None },
                whitelist: Vec::new(),
                disconnect: Disconnect::FORCE_NO_RECONNECT,
            },
        })
    }
}

/// What one node answers, or several together.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct NodePart {
    clients: Vec<String>,
    by_channel: BTreeMap<String, u32>,
    number: u32,
}

impl NodePart {
    /// A shard's answer.
    ///
    /// # Errors
    /// If it is none to such a question.
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
            other => return Err(format!("{other:?} answers a node's question")),
        }
        Ok(part)
    }

    /// As nodes send it to each other.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("texts and numbers are JSON").into()
    }

    /// Adds what another node has sent.
    ///
    /// # Errors
    /// If it is no answer.
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

/// A question to all nodes that is not answered.
pub struct RunningQuestion {
    /// The node that asks.
    pub place: usize,
    pub question: NodeQuestion,
    /// Its answer has to be there by then.
    pub due_us: u64,
    /// What the asking node itself answers.
    pub part: NodePart,
    /// Nothing is in the way of a complete answer.
    pub must_be_complete: bool,
    /// Who was there all the time, on nodes that the asking one has to know.
    pub present: Attendance,
    /// Who was there at any time.
    pub possible: Attendance,
}

impl RunningQuestion {
    /// Time has passed, and now these clients are where they surely are, and where they may be.
    pub fn observe(&mut self, certain: &Attendance, possible: &Attendance) {
        self.present.retain(|entry| certain.contains(entry));
        self.possible.extend(possible.iter().cloned());
    }

    /// Whether the answer of all nodes together is right.
    ///
    /// # Errors
    /// What is missing in it, or should not be there.
    pub fn check(&self, is_complete: bool) -> Result<(), String> {
        if self.must_be_complete && !is_complete {
            return Err("is partial, and nothing was in its way".to_owned());
        }
        let NodePart { clients, by_channel, number } = &self.part;
        match &self.question {
            NodeQuestion::Presence { channel } => self.check_clients(channel, clients, is_complete),
            NodeQuestion::PresenceStats { channel } => self.check_number(channel, *number, is_complete),
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
            Some(client) if is_complete => Err(format!("lacks {client} in {channel}, and is not marked as partial")),
            _ => Ok(()),
        }
    }

    fn check_number(&self, channel: &str, number: u32, is_complete: bool) -> Result<(), String> {
        let count = |who: &Attendance| who.iter().filter(|(name, _)| name == channel).count() as u32;
        let (least, most) = (if is_complete { count(&self.present) } else { 0 }, count(&self.possible));
        if (least..=most).contains(&number) {
            return Ok(());
        }
        let mark = if is_complete { "complete" } else { "partial" };
        Err(format!("is {mark}, and counts {number} in {channel:?}, where there were {least} to {most}"))
    }
}
