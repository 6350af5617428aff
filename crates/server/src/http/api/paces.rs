//! `subscription_pace` and `session_pace`: every shard of every node changes the paces of its sessions.

use dunlin_engine::{
    api::ApiRequest,
    pace::{BytePace, PaceChange, PaceError, UpdatePace},
};
use serde::Deserialize;

use super::{
    ApiError, Executor, JsonResult, RequestLimits,
    command::{Command, named},
    session_orders::{only, session_order},
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

session_order! {
    /// See [`super::Method::SubscriptionPace`].
    SubscriptionPaceCommand, SubscriptionPaceParams
}

session_order! {
    /// See [`super::Method::SessionPace`].
    SessionPaceCommand, SessionPaceParams
}

impl SubscriptionPaceParams {
    fn into_request(self) -> Result<ApiRequest, ApiError> {
        let channel = named(self.channel)?;
        let pace = pace(self.updates_per_second_max, UpdatePace::from_updates_per_second)?;
        let change = PaceChange::Subscription { channel, pace };
        Ok(ApiRequest::SetPace { user: self.user.into(), only: only(self.client, self.session), change })
    }
}

impl SessionPaceParams {
    fn into_request(self) -> Result<ApiRequest, ApiError> {
        let change = PaceChange::Session(pace(self.bytes_per_second_max, BytePace::from_bytes_per_second)?);
        Ok(ApiRequest::SetPace { user: self.user.into(), only: only(self.client, self.session), change })
    }
}

fn pace<P>(stated: Option<f64>, new: fn(f64) -> Result<P, PaceError>) -> Result<Option<P>, ApiError> {
    stated.map(new).transpose().map_err(|error| ApiError::bad_request(format_args!("{error}")))
}
