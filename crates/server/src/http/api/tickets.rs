//! Commands about matchmaking tickets. The backend is responsible for all users of a ticket.

use dunlin_matchmaking::MatchRefusal;

use super::{ApiCommand, ApiError, Parsed, wire};
use crate::matchmaking::{TicketCommand, TicketFault, TicketParams, TicketTarget};

pub(super) fn submit(body: wire::MatchParams) -> Parsed {
    let wire::MatchParams { namespace, users, criteria, region, skill } = body;
    let params = TicketParams {
        namespace: Some(namespace),
        users: Some(users.into_iter().map(|user| user.0).collect()),
        criteria: Some(criteria.into_iter().map(|(name, value)| (name, value.0)).collect()),
        region: Some(region),
        skill: Some(skill),
    };
    Ok(ApiCommand::Ticket(Box::new(params.into_command()?)))
}

pub(super) fn cancel(body: &wire::MatchTicketParams) -> Parsed {
    Ok(ApiCommand::Ticket(Box::new(TicketCommand::Cancel(target(body)?))))
}

pub(super) fn status(body: &wire::MatchTicketParams) -> Parsed {
    Ok(ApiCommand::Ticket(Box::new(TicketCommand::Status(target(body)?))))
}

fn target(body: &wire::MatchTicketParams) -> Result<TicketTarget, ApiError> {
    if body.ticket.is_empty() {
        return Err(ApiError::bad_request("ticket is missing"));
    }
    Ok(TicketTarget::Named(body.ticket.parse::<crate::matchmaking::TicketName>()?))
}

impl From<TicketFault> for ApiError {
    fn from(fault: TicketFault) -> Self {
        match fault {
            TicketFault::Refused(MatchRefusal::UserHasTicket | MatchRefusal::TicketOver) => Self::conflict(fault.why()),
            TicketFault::Refused(MatchRefusal::UnknownTicket) => Self::NOT_FOUND,
            TicketFault::Refused(MatchRefusal::Users | MatchRefusal::Criteria) | TicketFault::BadRequest(_) => {
                Self::bad_request(fault.why())
            }
            TicketFault::NotEnabled => Self::unsupported(fault.why()),
            TicketFault::Refused(MatchRefusal::QueueFull)
            | TicketFault::RateLimited
            | TicketFault::AddressLimited
            | TicketFault::Busy => Self::too_many_requests(fault.why()),
            TicketFault::Stopped => Self::internal(fault.why()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_too_many_requests() {
        for fault in [TicketFault::Refused(MatchRefusal::QueueFull), TicketFault::Busy] {
            let error = ApiError::from(fault);
            assert_eq!((error.code(), error.http_status()), (111, 429), "{}", error.message());
        }
    }
}
