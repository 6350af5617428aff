//! Request bodies as received. Unknown fields are ignored; missing fields and `null` are empty.

use serde::Deserialize;

use super::method::BatchCommand;
pub use crate::json_members::OnlyObject;
use crate::json_members::empty_if_null;

/// The parameters of commands about one channel.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ChannelParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
}

/// A position in a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PositionParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub offset: u64,
    #[serde(deserialize_with = "empty_if_null")]
    pub epoch: String,
}

/// Parameters that are ignored: of unsupported methods, and of methods without any.
#[derive(Debug, Default, Deserialize)]
pub struct NoParams {}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct BatchParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub commands: Vec<Option<OnlyObject<BatchCommand>>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub parallel: bool,
}
