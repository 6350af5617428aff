//! Commands about tickets, their names, and the JSON of their answers.

use std::{borrow::Cow, collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use dunlin_matchmaking::{HandedTicket, Initiator, MatchCriteria, MatchRefusal, TicketId, TicketRequest, TicketStatus};
use serde::{Deserialize, Serialize};

use super::TicketRequester;
use crate::json_members::{texts, texts_by_name};

/// A command about tickets.
#[derive(Clone, Debug)]
pub enum TicketCommand {
    /// Place users in a room.
    Submit {
        /// The namespace of the rooms.
        namespace: Box<str>,
        /// The users, and their requirements.
        request: TicketRequest,
        /// The client's user, which counts toward the limit of its address; `None` for the server API.
        requester: Option<TicketRequester>,
    },
    /// Confirm a ticket for a user.
    Confirm {
        /// The ticket.
        ticket: TicketName,
        /// The user.
        user: Arc<str>,
    },
    /// Cancel a ticket.
    Cancel(TicketTarget),
    /// Return the state of a ticket.
    Status(TicketTarget),
}

/// The ticket that a command selects, and the caller's permission.
#[derive(Clone, Debug)]
pub enum TicketTarget {
    /// The ticket with this name, for the backend.
    Named(TicketName),
    /// The ticket with this name, if the user is a member of it.
    OfMember(TicketName, Arc<str>),
    /// The current ticket of a user.
    OfUser {
        /// The namespace of the rooms.
        namespace: Box<str>,
        /// The user.
        user: Arc<str>,
    },
}

impl TicketCommand {
    /// The bytes of its texts.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Submit { namespace, request, .. } => {
                let users: usize = request.users.iter().map(|user| size_of_val(user) + user.len()).sum();
                namespace.len()
                    + users
                    + request.criteria.bytes()
                    + request.region.as_ref().map_or(0, |name| name.len())
            }
            Self::Confirm { user, .. } => user.len(),
            Self::Cancel(target) | Self::Status(target) => match target {
                TicketTarget::Named(_) => 0,
                TicketTarget::OfMember(_, user) => user.len(),
                TicketTarget::OfUser { namespace, user } => namespace.len() + user.len(),
            },
        }
    }
}

/// The name of a ticket in requests and answers. Tickets of different starts of a node have different names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TicketName {
    /// Differs between two starts of the node.
    pub boot: u32,
    /// The index of the queue.
    pub queue: u16,
    /// The ticket in its queue.
    pub id: TicketId,
}

/// A ticket that a node hands over, with its name, which it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTicket {
    /// Its name.
    pub name: TicketName,
    /// The ticket.
    pub ticket: HandedTicket,
}

/// Tickets of a namespace that a node hands over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedTickets {
    /// The namespace of their rooms.
    pub namespace: Box<str>,
    /// The tickets.
    pub tickets: Vec<NamedTicket>,
    /// Number of further ones, which this version cannot read.
    pub unreadable: usize,
}

/// What a node does with tickets that are handed over to it. Those that are missing here stay where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenTickets {
    /// It goes on with these.
    pub taken: Vec<TicketName>,
    /// A user of each has another ticket here.
    pub bound: Vec<TicketName>,
}

impl NamedTicket {
    /// The bytes of its texts, and its own.
    pub(super) fn bytes(&self) -> usize {
        let HandedTicket { users, criteria, region, .. } = &self.ticket;
        let users: usize = users.iter().map(|user| size_of_val(user) + user.0.len()).sum();
        size_of::<Self>() + users + criteria.bytes() + region.as_ref().map_or(0, |name| name.len())
    }
}

/// The fields of a request for a ticket, of the server API and of clients.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TicketParams {
    /// The namespace of the rooms.
    pub namespace: Option<String>,
    /// The users.
    #[serde(deserialize_with = "texts")]
    pub users: Option<Vec<String>>,
    /// Equal for all tickets of a room.
    #[serde(deserialize_with = "texts_by_name")]
    pub criteria: Option<BTreeMap<String, String>>,
    /// The region in which the users want to play.
    pub region: Option<String>,
    /// The skill of the users.
    pub skill: Option<i32>,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketAnswer {
    /// The ticket; missing if the backend has chosen the room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// Its state.
    pub status: Cow<'static, str>,
    /// The channel of its room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Box<str>>,
    /// The users who have not confirmed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unconfirmed: Vec<Box<str>>,
    /// Why it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'static, str>>,
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketFault {
    /// The matchmaker refuses it.
    Refused(MatchRefusal),
    /// The namespace has no matchmaking.
    NotEnabled,
    /// A field is missing or invalid.
    BadRequest(&'static str),
    /// The user has requested too many tickets.
    RateLimited,
    /// Too many users of the client's address have requested tickets.
    AddressLimited,
    /// Too many requests wait.
    Busy,
    /// The node that runs the queues does not answer, or the ticket is on its way to it.
    Unreachable,
    /// The node stops.
    Stopped,
}

impl TicketFault {
    /// The fault in messages between nodes.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.name(),
            Self::NotEnabled => "not_enabled",
            Self::BadRequest(_) => "bad_request",
            Self::RateLimited => "rate_limited",
            Self::AddressLimited => "address_limited",
            Self::Busy => "busy",
            Self::Unreachable => "unreachable",
            Self::Stopped => "stopped",
        }
    }

    /// The fault with this name. A later version may have others.
    pub fn of_name(name: &str) -> Self {
        let refusal = MatchRefusal::ALL.into_iter().find(|refusal| refusal.name() == name);
        match (refusal, name) {
            (Some(refusal), _) => Self::Refused(refusal),
            (None, "not_enabled") => Self::NotEnabled,
            (None, "bad_request") => Self::BadRequest("the node that runs the queues refuses the request"),
            (None, "rate_limited") => Self::RateLimited,
            (None, "address_limited") => Self::AddressLimited,
            (None, "busy") => Self::Busy,
            (None, "stopped") => Self::Stopped,
            (None, _) => Self::Unreachable,
        }
    }

    /// The reason, for the error message.
    pub const fn why(&self) -> &'static str {
        match self {
            Self::Refused(MatchRefusal::QueueFull) => "too many tickets wait; see room.match.queue_limit",
            Self::Refused(MatchRefusal::UserHasTicket) => "a user has a ticket already",
            Self::Refused(MatchRefusal::Users) => {
                "users must be distinct, with ids of 1 to 255 bytes, and not more than room.match.party_limit"
            }
            Self::Refused(MatchRefusal::Criteria) => {
                "at most 8 criteria, and names, values and region of at most 64 bytes"
            }
            Self::Refused(MatchRefusal::UnknownTicket) => "ticket not found",
            Self::Refused(MatchRefusal::TicketOver) => "the ticket is over",
            Self::NotEnabled => "the namespace has no matchmaking; set room.match.enabled",
            Self::BadRequest(why) => why,
            Self::RateLimited => "too many requests of this user for tickets; see room.match.user_rate_limit",
            Self::AddressLimited => "too many users of this address wait; see room.match.address_users_limit",
            Self::Busy => "too many requests for matchmaking wait",
            Self::Unreachable => "the node that runs the queues does not answer; try again",
            Self::Stopped => "the node stops",
        }
    }
}

impl TicketParams {
    /// The command of the server API. The backend is responsible for all users of the ticket.
    ///
    /// # Errors
    /// [`TicketFault`]
    pub fn into_command(self) -> Result<TicketCommand, TicketFault> {
        let namespace = self.namespace.clone().unwrap_or_default().into();
        Ok(TicketCommand::Submit { namespace, request: self.into_request(Initiator::Backend)?, requester: None })
    }

    pub(super) fn into_request(self, initiator: Initiator) -> Result<TicketRequest, TicketFault> {
        let pairs = self.criteria.unwrap_or_default().into_iter();
        let criteria = MatchCriteria::new(pairs.map(|(name, value)| (name.into(), value.into())));
        Ok(TicketRequest {
            initiator,
            users: self.users.unwrap_or_default().into_iter().map(Arc::from).collect(),
            criteria: criteria.map_err(TicketFault::Refused)?,
            region: self.region.filter(|region| !region.is_empty()).map(Arc::from),
            skill: self.skill.unwrap_or(0),
        })
    }
}

impl TicketAnswer {
    pub(super) fn new(ticket: TicketName, status: TicketStatus) -> Self {
        let answer =
            |status: &'static str| Self { ticket: Some(ticket.to_string()), status: status.into(), ..Self::unnamed() };
        match status {
            TicketStatus::Unconfirmed(users) => {
                let unconfirmed = users.iter().map(|user| Box::from(&**user)).collect();
                Self { unconfirmed, ..answer("unconfirmed") }
            }
            TicketStatus::Waiting => answer("waiting"),
            TicketStatus::Placed(channel) => Self { channel: Some((*channel).into()), ..answer("placed") },
            TicketStatus::Joined(channel) => Self { channel: Some((*channel).into()), ..answer("joined") },
            TicketStatus::Ended(reason) => Self { reason: Some(reason.name().into()), ..answer("ended") },
        }
    }

    /// The answer if the backend has chosen a room.
    pub(super) fn of_backend(channel: Box<str>) -> Self {
        Self { status: "placed".into(), channel: Some(channel), ..Self::unnamed() }
    }

    const fn unnamed() -> Self {
        Self { ticket: None, status: Cow::Borrowed(""), channel: None, unconfirmed: Vec::new(), reason: None }
    }
}

impl fmt::Display for TicketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}.{}.{}", self.boot, self.queue, self.id.0)
    }
}

impl FromStr for TicketName {
    type Err = TicketFault;

    fn from_str(text: &str) -> Result<Self, TicketFault> {
        let parts = || {
            let mut parts = text.split('.');
            let boot = u32::from_str_radix(parts.next()?, 16).ok()?;
            let (queue, id) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            parts.next().is_none().then_some(Self { boot, queue, id: TicketId(id) })
        };
        // No ticket has a name of another format.
        parts().ok_or(TicketFault::Refused(MatchRefusal::UnknownTicket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_names() {
        let refused = MatchRefusal::ALL.map(TicketFault::Refused);
        let others = [
            TicketFault::NotEnabled,
            TicketFault::RateLimited,
            TicketFault::AddressLimited,
            TicketFault::Busy,
            TicketFault::Unreachable,
            TicketFault::Stopped,
        ];
        for fault in refused.into_iter().chain(others) {
            assert_eq!(TicketFault::of_name(fault.name()), fault);
        }
        assert_eq!(TicketFault::of_name("later"), TicketFault::Unreachable);
    }

    #[test]
    fn names_of_tickets_are_read_as_they_are_written() {
        let name = TicketName { boot: 0xbeef, queue: 3, id: TicketId(17) };
        assert_eq!(name.to_string(), "0000beef.3.17");
        assert_eq!("0000beef.3.17".parse(), Ok(name));
        for text in ["", "0000beef", "0000beef.3", "0000beef.3.17.1", "x.3.17", "0000beef.70000.17", "0000beef.3.-1"] {
            assert!(text.parse::<TicketName>().is_err(), "{text}");
        }
    }
}
