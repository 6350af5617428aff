//! `channels`: lists the channels with subscribers.

use serde::Deserialize;

use super::{ApiError, Executor, JsonResult, RequestLimits, command::Command, glob::Glob};
use crate::json_members::empty_if_null;

/// See [`super::Method::Channels`].
#[derive(Clone, Debug)]
pub struct ChannelsCommand {
    /// The pattern of channel names; `None` for all channels.
    pattern: Option<Glob>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ChannelsParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub pattern: String,
}

impl Command for ChannelsCommand {
    type Params = ChannelsParams;

    fn check(params: ChannelsParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let pattern = (!params.pattern.is_empty()).then(|| Glob::compile(&params.pattern));
        Ok(Self { pattern: pattern.transpose().map_err(ApiError::bad_request)? })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().channels(self.pattern).await
    }
}
