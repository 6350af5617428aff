//! `history` and `history_remove`.

use dunlin_engine::api::{ApiAnswer, ApiRequest, HistoryQuery};
use serde::{Deserialize, Serialize};

use super::{
    ApiError, Executor, JsonResult, RequestLimits,
    command::{Command, named},
    result::{EmptyJson, PublicationJson, to_outcome},
    wire::{ChannelParams, OnlyObject, PositionParams},
};
use crate::json_members::empty_if_null;

/// See [`super::Method::History`].
#[derive(Clone, Debug)]
pub struct HistoryCommand {
    /// Channel name, not checked yet.
    pub channel: Box<str>,
    /// The requested part of the history.
    pub query: HistoryQuery,
}

/// See [`super::Method::HistoryRemove`].
#[derive(Clone, Debug)]
pub struct HistoryRemoveCommand {
    /// Channel name, not checked yet.
    pub channel: Box<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HistoryParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub limit: i32,
    pub since: Option<OnlyObject<PositionParams>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub reverse: bool,
}

#[derive(Serialize)]
pub struct HistoryJson<'a> {
    pub publications: Vec<PublicationJson<'a>>,
    pub epoch: &'a str,
    pub offset: u64,
    /// Whether the publications end before `limit`, at the limit on the bytes of an answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

impl Command for HistoryCommand {
    type Params = HistoryParams;

    fn check(params: HistoryParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let since = params.since.map(|OnlyObject(position)| (position.offset, position.epoch.into()));
        let query = HistoryQuery { limit: params.limit, since, reverse: params.reverse, bytes_max: None };
        Ok(Self { channel: named(params.channel)?, query })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        let request = ApiRequest::History { channel: self.channel.clone(), query: self.query };
        let ApiAnswer::History { publications, epoch, offset, is_cut } =
            executor.own().ask(&self.channel, request).await?
        else {
            return Err(ApiError::INTERNAL);
        };
        let publications = publications.iter().map(|publication| PublicationJson::new(publication)).collect();
        to_outcome(&HistoryJson { publications, epoch: &epoch, offset, truncated: is_cut })
    }
}

impl Command for HistoryRemoveCommand {
    type Params = ChannelParams;

    fn check(params: ChannelParams, _: &RequestLimits) -> Result<Self, ApiError> {
        Ok(Self { channel: named(params.channel)? })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        let request = ApiRequest::HistoryRemove { channel: self.channel.clone() };
        executor.own().ask(&self.channel, request).await?;
        to_outcome(&EmptyJson {})
    }
}
