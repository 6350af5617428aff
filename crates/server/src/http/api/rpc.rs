//! `rpc`: calls a method of an extension. There are none.

use std::convert::Infallible;

use serde::Deserialize;

use super::{ApiError, Executor, JsonResult, RequestLimits, command::Command};
use crate::json_members::empty_if_null;

/// See [`super::Method::Rpc`]. Every method is unknown, so no value exists.
#[derive(Clone, Debug)]
pub struct RpcCommand(Infallible);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RpcParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub method: String,
}

impl Command for RpcCommand {
    type Params = RpcParams;

    fn check(params: RpcParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let is_unnamed = params.method.is_empty();
        Err(if is_unnamed { ApiError::bad_request("no method is named") } else { ApiError::NOT_FOUND })
    }

    async fn carry_out(self, _: &Executor) -> JsonResult {
        match self.0 {}
    }
}
