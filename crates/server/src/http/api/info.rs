//! `info`: describes the nodes.

use super::{ApiError, Executor, JsonResult, RequestLimits, command::Command, wire::NoParams};

/// See [`super::Method::Info`].
#[derive(Clone, Debug)]
pub struct InfoCommand;

impl Command for InfoCommand {
    type Params = NoParams;

    fn check(_: NoParams, _: &RequestLimits) -> Result<Self, ApiError> {
        Ok(Self)
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().info().await
    }
}
