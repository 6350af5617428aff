//! `subscription_pace` and `session_pace`: every shard of every node changes the paces of its sessions.

use dunlin_engine::{
    api::ApiRequest,
    pace::{BytePace, PaceChange, PaceError, UpdatePace},
};
use serde::Deserialize;

use super::{
    ApiError, Executor, JsonResult, RequestLimits,
    command::{Command, named},
    session_orders::only,
};
use crate::json_members::empty_if_null;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SubscriptionPaceParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub session: String,
    pub updates_per_second_max: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SessionPaceParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub session: String,
    pub bytes_per_second_max: Option<f64>,
}

/// See [`super::Method::SubscriptionPace`].
#[derive(Clone, Debug)]
pub struct SubscriptionPaceCommand(pub ApiRequest);

/// See [`super::Method::SessionPace`].
#[derive(Clone, Debug)]
pub struct SessionPaceCommand(pub ApiRequest);

impl Command for SubscriptionPaceCommand {
    type Params = SubscriptionPaceParams;

    fn check(params: SubscriptionPaceParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let channel = named(params.channel)?;
        let pace = pace(params.updates_per_second_max, UpdatePace::from_updates_per_second)?;
        let change = PaceChange::Subscription { channel, pace };
        let only = only(params.client, params.session);
        Ok(Self(ApiRequest::SetPace { user: params.user.into(), only, change }))
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().order(self.0).await
    }
}

impl Command for SessionPaceCommand {
    type Params = SessionPaceParams;

    fn check(params: SessionPaceParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let pace = pace(params.bytes_per_second_max, BytePace::from_bytes_per_second)?;
        let (only, change) = (only(params.client, params.session), PaceChange::Session(pace));
        Ok(Self(ApiRequest::SetPace { user: params.user.into(), only, change }))
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().order(self.0).await
    }
}

fn pace<P>(stated: Option<f64>, new: fn(f64) -> Result<P, PaceError>) -> Result<Option<P>, ApiError> {
    stated.map(new).transpose().map_err(|error| ApiError::bad_request(format_args!("{error}")))
}
