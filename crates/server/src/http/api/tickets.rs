//! Commands about matchmaking tickets. The backend is responsible for all users of a ticket.

use std::collections::BTreeMap;

use dunlin_matchmaking::MatchRefusal;
use serde::Deserialize;

use super::{ApiError, Executor, JsonResult, RequestLimits, command::Command, result::to_outcome};
use crate::{
    json_members::{Text, empty_if_null},
    matchmaking::{TicketCommand, TicketFault, TicketParams, TicketTarget},
};

/// See [`super::Method::Match`].
#[derive(Clone, Debug)]
pub struct MatchCommand(Box<TicketCommand>);

/// See [`super::Method::MatchCancel`].
#[derive(Clone, Debug)]
pub struct MatchCancelCommand(TicketTarget);

/// See [`super::Method::MatchStatus`].
#[derive(Clone, Debug)]
pub struct MatchStatusCommand(TicketTarget);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MatchParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub namespace: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub users: Vec<Text>,
    #[serde(deserialize_with = "empty_if_null")]
    pub criteria: BTreeMap<String, Text>,
    #[serde(deserialize_with = "empty_if_null")]
    pub region: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub skill: i32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MatchTicketParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub ticket: String,
}

impl Command for MatchCommand {
    type Params = MatchParams;

    fn check(params: MatchParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let MatchParams { namespace, users, criteria, region, skill } = params;
        let params = TicketParams {
            namespace: Some(namespace),
            users: Some(users.into_iter().map(|user| user.0).collect()),
            criteria: Some(criteria.into_iter().map(|(name, value)| (name, value.0)).collect()),
            region: Some(region),
            skill: Some(skill),
        };
        Ok(Self(Box::new(params.into_command()?)))
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        ask(executor, *self.0).await
    }
}

impl Command for MatchCancelCommand {
    type Params = MatchTicketParams;

    fn check(params: MatchTicketParams, _: &RequestLimits) -> Result<Self, ApiError> {
        target(&params).map(Self)
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        ask(executor, TicketCommand::Cancel(self.0)).await
    }
}

impl Command for MatchStatusCommand {
    type Params = MatchTicketParams;

    fn check(params: MatchTicketParams, _: &RequestLimits) -> Result<Self, ApiError> {
        target(&params).map(Self)
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        ask(executor, TicketCommand::Status(self.0)).await
    }
}

async fn ask(executor: &Executor, command: TicketCommand) -> JsonResult {
    let matchmaking = executor.matchmaking().ok_or(TicketFault::NotEnabled)?;
    to_outcome(&matchmaking.ask(command).await?)
}

fn target(body: &MatchTicketParams) -> Result<TicketTarget, ApiError> {
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
            TicketFault::Unreachable | TicketFault::Stopped => Self::internal(fault.why()),
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
