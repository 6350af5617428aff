//! `publish` and `broadcast`.

use std::collections::BTreeMap;

use dunlin_engine::{
    api::{ApiAnswer, ApiRequest},
    backend::PublishHow,
};
use dunlin_protocol::{Payload, Tags};
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    ApiError, Executor, JsonResult, RequestLimits,
    command::{Command, data_of, named, some_text},
    execute::QUESTIONS_AT_ONCE,
    result::{is_zero, to_outcome},
};
use crate::json_members::{Text, empty_if_null, raw};

/// See [`super::Method::Publish`].
#[derive(Clone, Debug)]
pub struct PublishCommand {
    /// Channel name, not checked yet.
    pub channel: Box<str>,
    /// The content of the publication.
    pub publication: ApiPublication,
}

/// See [`super::Method::Broadcast`].
#[derive(Clone, Debug)]
pub struct BroadcastCommand {
    /// The channels. An empty name causes an error in the response.
    pub channels: Vec<Box<str>>,
    /// The content of the publications.
    pub publication: ApiPublication,
}

/// The content of a publication.
#[derive(Clone, Debug)]
pub struct ApiPublication {
    /// The application's data.
    pub data: Payload,
    /// Options of the publication.
    pub how: PublishHow,
}

/// Defines the body of a method that publishes.
macro_rules! publish_body {
    ($(#[$doc:meta])* $name:ident, $target:ident: $type:ty) => {
        $(#[$doc])*
        #[derive(Debug, Default, Deserialize)]
        #[serde(default)]
        pub struct $name {
            #[serde(deserialize_with = "empty_if_null")]
            $target: $type,
            #[serde(deserialize_with = "raw")]
            data: Option<Box<RawValue>>,
            #[serde(deserialize_with = "empty_if_null")]
            b64data: String,
            #[serde(deserialize_with = "empty_if_null")]
            skip_history: bool,
            #[serde(deserialize_with = "empty_if_null")]
            tags: BTreeMap<String, Text>,
            #[serde(deserialize_with = "empty_if_null")]
            idempotency_key: String,
            #[serde(deserialize_with = "empty_if_null")]
            delta: bool,
            #[serde(deserialize_with = "empty_if_null")]
            version: u64,
            #[serde(deserialize_with = "empty_if_null")]
            version_epoch: String,
        }

        impl $name {
            /// Splits into the target and the publication.
            pub fn split(self) -> ($type, PublicationFields) {
                let publication = PublicationFields {
                    data: self.data,
                    b64data: self.b64data,
                    skip_history: self.skip_history,
                    tags: self.tags,
                    idempotency_key: self.idempotency_key,
                    delta: self.delta,
                    version: self.version,
                    version_epoch: self.version_epoch,
                };
                (self.$target, publication)
            }
        }
    };
}

publish_body! {
    /// `publish`
    PublishParams, channel: String
}

publish_body! {
    /// `broadcast`
    BroadcastParams, channels: Vec<Text>
}

/// The common fields of `publish` and `broadcast`.
pub struct PublicationFields {
    pub data: Option<Box<RawValue>>,
    pub b64data: String,
    pub skip_history: bool,
    pub tags: BTreeMap<String, Text>,
    pub idempotency_key: String,
    pub delta: bool,
    pub version: u64,
    pub version_epoch: String,
}

#[derive(Serialize)]
pub struct PublishedJson {
    #[serde(skip_serializing_if = "is_zero")]
    pub offset: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub epoch: Box<str>,
}

/// The result of `broadcast`: a response for each channel, in order.
#[derive(Serialize)]
pub struct BroadcastJson {
    pub responses: Vec<ApiResponse>,
}

/// A result or an error.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiResponse {
    Result(Box<RawValue>),
    Error(ApiError),
}

impl Command for PublishCommand {
    type Params = PublishParams;

    fn check(params: PublishParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let (channel, publication) = params.split();
        Ok(Self { channel: named(channel)?, publication: publication_of(publication)? })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        let Self { channel, publication: ApiPublication { data, how } } = self;
        let request = ApiRequest::Publish { channel: channel.clone(), data, how };
        match executor.own().ask(&channel, request).await? {
            ApiAnswer::Published { offset, epoch } => to_outcome(&PublishedJson { offset, epoch }),
            _ => Err(ApiError::INTERNAL),
        }
    }
}

impl Command for BroadcastCommand {
    type Params = BroadcastParams;

    fn check(params: BroadcastParams, limits: &RequestLimits) -> Result<Self, ApiError> {
        let (channels, publication) = params.split();
        if channels.is_empty() {
            return Err(ApiError::NO_CHANNEL);
        }
        if channels.len() > limits.broadcast_channels_max {
            let most = limits.broadcast_channels_max;
            return Err(ApiError::bad_request(format_args!("at most {most} channels in a broadcast")));
        }
        let channels = channels.into_iter().map(|channel| channel.0.into()).collect();
        Ok(Self { channels, publication: publication_of(publication)? })
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        let publication = &self.publication;
        let responses = stream::iter(self.channels).map(|channel| async move {
            if channel.is_empty() {
                return ApiResponse::Error(ApiError::NO_CHANNEL);
            }
            let command = PublishCommand { channel, publication: publication.clone() };
            ApiResponse::from(command.carry_out(executor).await)
        });
        let responses = responses.buffered(QUESTIONS_AT_ONCE).collect().await;
        to_outcome(&BroadcastJson { responses })
    }
}

fn publication_of(body: PublicationFields) -> Result<ApiPublication, ApiError> {
    let data = data_of(body.data, body.b64data)?.ok_or(ApiError::NO_DATA)?;
    let tags: Tags = body.tags.into_iter().map(|(key, value)| (key.into(), value.0.into())).collect();
    let how = PublishHow {
        tags,
        skip_history: body.skip_history,
        idempotency_key: some_text(body.idempotency_key),
        delta: body.delta,
        version: body.version,
        version_epoch: body.version_epoch.into(),
    };
    Ok(ApiPublication { data, how })
}

impl From<JsonResult> for ApiResponse {
    fn from(outcome: JsonResult) -> Self {
        match outcome {
            Ok(result) => Self::Result(result),
            Err(error) => Self::Error(error),
        }
    }
}
