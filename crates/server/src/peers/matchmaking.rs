//! What the node that runs the queues of matchmaking asks the others, and what they ask it.

use std::{collections::BTreeMap, sync::Arc};

use dunlin_engine::api::{ApiRequest, PlaceReservation};
use dunlin_matchmaking::{HandedTicket, Initiator, MatchCriteria, OpenFailure, TicketRequest};
use dunlin_rooms::RoomOverrides;
use serde::{Deserialize, Serialize};

use crate::{
    matchmaking::{
        HandedTickets, NamedTicket, RoomSummary, TakenTickets, TicketAnswer, TicketCommand, TicketFault, TicketName,
        TicketRequester, TicketTarget, Verdicts,
    },
    node::SourceNetwork,
};

/// See [`super::Received::MatchTicket`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TicketOrder(OrderBody);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OrderBody {
    Submit(SubmitBody),
    Confirm { ticket: Box<str>, user: Box<str> },
    Cancel(TargetBody),
    Status(TargetBody),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TargetBody {
    Named { ticket: Box<str> },
    OfMember { ticket: Box<str>, user: Box<str> },
    OfUser { namespace: Box<str>, user: Box<str> },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SubmitBody {
    namespace: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initiator: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requester: Option<RequesterBody>,
    #[serde(flatten)]
    wishes: WishesBody,
    users: Vec<Box<str>>,
}

/// What the users of a ticket want.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct WishesBody {
    criteria: BTreeMap<Box<str>, Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    region: Option<Box<str>>,
    skill: i32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RequesterBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<SourceNetwork>,
    user: Box<str>,
}

/// The answer to a [`TicketOrder`], or the name of its [`TicketFault`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TicketReply {
    /// What the client gets.
    Answer(TicketAnswer),
    /// Why not.
    Fault(Box<str>),
}

/// See [`super::Received::MatchHandOver`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandOverOrder {
    /// The id of the node that hands them over, if it is about to leave the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Box<str>>,
    namespace: Box<str>,
    tickets: Vec<HandedBody>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct HandedBody {
    age_ms: u64,
    left_ms: u64,
    #[serde(flatten)]
    wishes: WishesBody,
    ticket: Box<str>,
    /// With whether each has confirmed.
    users: Vec<(Box<str>, bool)>,
}

/// The answer to a [`HandOverOrder`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandOverReply {
    /// The tickets with which the queue goes on. A ticket that is missing stays where it is.
    taken: Vec<Box<str>>,
    /// Tickets that end, because a user of each has another one in the queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    bound: Vec<Box<str>>,
}

/// See [`super::Received::MatchRooms`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatchRoomsQuestion {
    /// The channel after which the page begins; empty for the first page.
    pub after: Box<str>,
    /// Tickets that the node need not remember, with the first page. See [`Verdicts`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    settled: Vec<Box<str>>,
    /// Tickets that are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<Box<str>>,
}

/// The answer to a [`MatchRoomsQuestion`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatchRooms {
    /// In the order of their channels.
    pub rooms: Vec<RoomSummary>,
    /// Whether more rooms follow.
    pub more: bool,
    /// The region of the node; empty if it has none.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub region: Box<str>,
    /// Whether further rooms may be opened there: it does not drain. Older nodes do not say so.
    #[serde(default = "takes_rooms")]
    pub takes_rooms: bool,
    /// With the first page: the tickets that it remembers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<Box<str>>,
}

/// See [`super::Received::OpenRoom`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenRoomOrder {
    /// The channel.
    pub channel: Box<str>,
    /// The parameters as a JSON document; empty for those of the namespace.
    pub params: Box<str>,
}

/// The answer to an [`OpenRoomOrder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoomOpening {
    /// The room is open.
    Opened,
    /// The node opens no more rooms for now.
    Busy,
    /// The room cannot be opened.
    Failed,
}

/// See [`super::Received::ReservePlaces`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReserveOrder {
    channel: Box<str>,
    reservations: Vec<ReservationBody>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ReservationBody {
    number: u64,
    timeout_ms: u32,
    users: Vec<Box<str>>,
}

impl TicketOrder {
    /// Passes a command on.
    pub fn new(command: &TicketCommand) -> Self {
        Self(match command {
            TicketCommand::Submit { namespace, request, requester } => {
                let TicketRequest { initiator, users, criteria, region, skill } = request;
                OrderBody::Submit(SubmitBody {
                    namespace: namespace.clone(),
                    initiator: match initiator {
                        Initiator::Backend => None,
                        Initiator::User(user) => Some((**user).into()),
                    },
                    requester: requester.as_ref().map(|TicketRequester { user, source }| RequesterBody {
                        source: *source,
                        user: (**user).into(),
                    }),
                    wishes: WishesBody::new(criteria, region.as_ref(), *skill),
                    users: boxed(users),
                })
            }
            TicketCommand::Confirm { ticket, user } => {
                OrderBody::Confirm { ticket: ticket.to_string().into(), user: (**user).into() }
            }
            TicketCommand::Cancel(target) => OrderBody::Cancel(TargetBody::new(target)),
            TicketCommand::Status(target) => OrderBody::Status(TargetBody::new(target)),
        })
    }

    /// The command.
    ///
    /// # Errors
    /// [`TicketFault`]: the texts are too long, or the ticket has another name.
    pub fn into_command(self) -> Result<TicketCommand, TicketFault> {
        Ok(match self.0 {
            OrderBody::Submit(SubmitBody { namespace, initiator, requester, wishes, users }) => {
                let (criteria, region, skill) = wishes.parts()?;
                let initiator = initiator.map_or(Initiator::Backend, |user| Initiator::User(user.into()));
                TicketCommand::Submit {
                    namespace,
                    request: TicketRequest { initiator, users: shared(users), criteria, region, skill },
                    requester: requester
                        .map(|RequesterBody { source, user }| TicketRequester { user: user.into(), source }),
                }
            }
            OrderBody::Confirm { ticket, user } => {
                TicketCommand::Confirm { ticket: ticket.parse()?, user: user.into() }
            }
            OrderBody::Cancel(target) => TicketCommand::Cancel(target.target()?),
            OrderBody::Status(target) => TicketCommand::Status(target.target()?),
        })
    }
}

impl TargetBody {
    fn new(target: &TicketTarget) -> Self {
        match target {
            TicketTarget::Named(ticket) => Self::Named { ticket: ticket.to_string().into() },
            TicketTarget::OfMember(ticket, user) => {
                Self::OfMember { ticket: ticket.to_string().into(), user: (**user).into() }
            }
            TicketTarget::OfUser { namespace, user } => {
                Self::OfUser { namespace: namespace.clone(), user: (**user).into() }
            }
        }
    }

    fn target(self) -> Result<TicketTarget, TicketFault> {
        Ok(match self {
            Self::Named { ticket } => TicketTarget::Named(ticket.parse()?),
            Self::OfMember { ticket, user } => TicketTarget::OfMember(ticket.parse()?, user.into()),
            Self::OfUser { namespace, user } => TicketTarget::OfUser { namespace, user: user.into() },
        })
    }
}

impl WishesBody {
    fn new(criteria: &MatchCriteria, region: Option<&Arc<str>>, skill: i32) -> Self {
        let criteria = criteria.pairs().map(|(name, value)| (name.into(), value.into())).collect();
        Self { criteria, region: region.map(|region| (**region).into()), skill }
    }

    fn parts(self) -> Result<(MatchCriteria, Option<Arc<str>>, i32), TicketFault> {
        let criteria = MatchCriteria::new(self.criteria).map_err(TicketFault::Refused)?;
        Ok((criteria, self.region.map(Into::into), self.skill))
    }
}

impl TicketReply {
    /// What a queue answers.
    pub fn new(outcome: Result<TicketAnswer, TicketFault>) -> Self {
        match outcome {
            Ok(answer) => Self::Answer(answer),
            Err(fault) => Self::Fault(fault.name().into()),
        }
    }

    /// What the client gets.
    ///
    /// # Errors
    /// [`TicketFault`]
    pub fn outcome(self) -> Result<TicketAnswer, TicketFault> {
        match self {
            Self::Answer(answer) => Ok(answer),
            Self::Fault(name) => Err(TicketFault::of_name(&name)),
        }
    }
}

impl HandOverOrder {
    /// Hands over tickets of a namespace.
    pub fn new(leaving: Option<Box<str>>, namespace: &str, tickets: &[NamedTicket]) -> Self {
        let tickets = tickets.iter().map(|NamedTicket { name, ticket }| HandedBody {
            age_ms: ticket.age_ms,
            left_ms: ticket.left_ms,
            wishes: WishesBody::new(&ticket.criteria, ticket.region.as_ref(), ticket.skill),
            ticket: name.to_string().into(),
            users: ticket.users.iter().map(|(user, is_confirmed)| ((**user).into(), *is_confirmed)).collect(),
        });
        Self { leaving, namespace: namespace.into(), tickets: tickets.collect() }
    }

    /// The tickets whose texts are within their limits, and the number of the others.
    pub fn into_tickets(self) -> HandedTickets {
        let named = |HandedBody { age_ms, left_ms, wishes, ticket, users }: HandedBody| {
            let name = ticket.parse().ok()?;
            let (criteria, region, skill) = wishes.parts().ok()?;
            let users = users.into_iter().map(|(user, is_confirmed)| (user.into(), is_confirmed)).collect();
            Some(NamedTicket { name, ticket: HandedTicket { users, criteria, region, skill, age_ms, left_ms } })
        };
        let offered = self.tickets.len();
        let tickets: Vec<_> = self.tickets.into_iter().filter_map(named).collect();
        HandedTickets { namespace: self.namespace, unreadable: offered - tickets.len(), tickets }
    }
}

impl HandOverReply {
    /// Names the tickets that were taken, and those that end.
    pub fn new(TakenTickets { taken, bound }: &TakenTickets) -> Self {
        Self { taken: texts(taken), bound: texts(bound) }
    }

    /// Whether a ticket was taken.
    pub fn has_taken(&self, name: TicketName) -> bool {
        is_among(&self.taken, name)
    }

    /// Whether a user of the ticket has another one there.
    pub fn is_bound(&self, name: TicketName) -> bool {
        is_among(&self.bound, name)
    }
}

impl MatchRoomsQuestion {
    /// Asks for the first page, and says what is known of the tickets that the node remembers.
    pub fn first(Verdicts { settled, unknown }: &Verdicts) -> Self {
        Self { after: "".into(), settled: texts(settled), unknown: texts(unknown) }
    }

    /// Asks for the page after a channel.
    pub fn after(channel: &str) -> Self {
        Self { after: channel.into(), settled: Vec::new(), unknown: Vec::new() }
    }

    /// What is known of the tickets that this node remembers.
    pub fn verdicts(&self) -> Verdicts {
        Verdicts { settled: names(&self.settled), unknown: names(&self.unknown) }
    }
}

impl MatchRooms {
    /// A page of rooms.
    pub fn new((rooms, more): (Vec<RoomSummary>, bool), region: Box<str>, takes_rooms: bool) -> Self {
        Self { rooms, more, region, takes_rooms, waiting: Vec::new() }
    }

    /// With the tickets that the node remembers.
    #[must_use]
    pub fn with_waiting(self, waiting: &[TicketName]) -> Self {
        Self { waiting: texts(waiting), ..self }
    }

    /// The tickets that the node remembers.
    pub fn waiting(&self) -> Vec<TicketName> {
        names(&self.waiting)
    }
}

const fn takes_rooms() -> bool {
    true
}

/// A text that is no name is of a ticket that nobody knows.
fn names(texts: &[Box<str>]) -> Vec<TicketName> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

fn is_among(texts: &[Box<str>], name: TicketName) -> bool {
    let name = name.to_string();
    texts.iter().any(|text| **text == *name)
}

fn texts(names: &[TicketName]) -> Vec<Box<str>> {
    names.iter().map(|name| name.to_string().into()).collect()
}

impl OpenRoomOrder {
    /// The settings of the room that differ from those of its namespace.
    pub fn overrides(&self) -> RoomOverrides {
        RoomOverrides { params: self.params.clone(), ..RoomOverrides::default() }
    }
}

impl From<Result<(), OpenFailure>> for RoomOpening {
    fn from(outcome: Result<(), OpenFailure>) -> Self {
        match outcome {
            Ok(()) => Self::Opened,
            Err(OpenFailure::Busy) => Self::Busy,
            Err(OpenFailure::Failed) => Self::Failed,
        }
    }
}

impl From<RoomOpening> for Result<(), OpenFailure> {
    fn from(opening: RoomOpening) -> Self {
        match opening {
            RoomOpening::Opened => Ok(()),
            RoomOpening::Busy => Err(OpenFailure::Busy),
            RoomOpening::Failed => Err(OpenFailure::Failed),
        }
    }
}

impl ReserveOrder {
    /// Reserves places in the room of a channel.
    pub fn new(channel: &str, reservations: &[PlaceReservation]) -> Self {
        let reservations = reservations.iter().map(|PlaceReservation { number, users, timeout_ms }| ReservationBody {
            number: *number,
            timeout_ms: *timeout_ms,
            users: boxed(users),
        });
        Self { channel: channel.into(), reservations: reservations.collect() }
    }

    /// The channel, and what its owner is asked.
    pub(super) fn into_request(self) -> (Box<str>, ApiRequest) {
        let reservations = self.reservations.into_iter().map(|ReservationBody { number, timeout_ms, users }| {
            PlaceReservation { number, users: shared(users), timeout_ms }
        });
        let request = ApiRequest::ReservePlaces { channel: self.channel.clone(), reservations: reservations.collect() };
        (self.channel, request)
    }
}

fn boxed(users: &[Arc<str>]) -> Vec<Box<str>> {
    users.iter().map(|user| (**user).into()).collect()
}

fn shared(users: Vec<Box<str>>) -> Vec<Arc<str>> {
    users.into_iter().map(Into::into).collect()
}
