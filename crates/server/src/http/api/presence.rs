//! `presence` and `presence_stats`.

use super::{
    ApiError, Executor, JsonResult, RequestLimits,
    command::{Command, named},
    wire::ChannelParams,
};

/// See [`super::Method::Presence`].
#[derive(Clone, Debug)]
pub struct PresenceCommand {
    /// Channel name, not checked yet.
    pub channel: Box<str>,
}

/// See [`super::Method::PresenceStats`].
#[derive(Clone, Debug)]
pub struct PresenceStatsCommand {
    /// Channel name, not checked yet.
    pub channel: Box<str>,
}

impl Command for PresenceCommand {
    type Params = ChannelParams;

    fn check(params: ChannelParams, _: &RequestLimits) -> Result<Self, ApiError> {
        Ok(Self { channel: named(params.channel)? })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().presence(self.channel).await
    }
}

impl Command for PresenceStatsCommand {
    type Params = ChannelParams;

    fn check(params: ChannelParams, _: &RequestLimits) -> Result<Self, ApiError> {
        Ok(Self { channel: named(params.channel)? })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().presence_stats(self.channel).await
    }
}
