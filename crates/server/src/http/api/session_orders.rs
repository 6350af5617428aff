//! `disconnect`, `unsubscribe`, `subscribe` and `refresh`: every shard of every node executes them on its sessions.

use dunlin_engine::{
    api::{ApiRequest, SessionFilter},
    backend::Overrides,
    event::{ServerSubscription, SubscriptionGrant},
};
use dunlin_protocol::{Disconnect, Payload, UnsubscribeCode};
use dunlin_token::UnixTime;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    ApiError, Executor, JsonResult, Method, RequestLimits,
    command::{Command, data_of, expiry_of, named, payload_of, refuse, some_text},
    wire::{OnlyObject, PositionParams},
};
use crate::json_members::{Text, empty_if_null};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DisconnectParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    pub disconnect: Option<OnlyObject<CloseWith>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub whitelist: Vec<Text>,
    #[serde(deserialize_with = "empty_if_null")]
    pub session: String,
    pub label_filter: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "empty_if_null")]
    pub all_users: bool,
}

/// The code and the reason of a close.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CloseWith {
    #[serde(deserialize_with = "empty_if_null")]
    pub code: u32,
    #[serde(deserialize_with = "empty_if_null")]
    pub reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UnsubscribeParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub session: String,
    pub label_filter: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "empty_if_null")]
    pub all_users: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SubscribeParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub expire_at: UnixTime,
    pub info: Option<Box<RawValue>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub b64info: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    pub data: Option<Box<RawValue>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub b64data: String,
    pub recover_since: Option<OnlyObject<PositionParams>>,
    pub r#override: Option<OnlyObject<Override>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub session: String,
    pub label_filter: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "empty_if_null")]
    pub all_users: bool,
}

/// The overridden options of a subscription.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Override {
    pub presence: Option<OnlyObject<Switch>>,
    pub join_leave: Option<OnlyObject<Switch>>,
    pub force_push_join_leave: Option<OnlyObject<Switch>>,
    pub force_positioning: Option<OnlyObject<Switch>>,
    pub force_recovery: Option<OnlyObject<Switch>>,
}

/// A boolean that is present.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Switch {
    #[serde(deserialize_with = "empty_if_null")]
    pub value: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RefreshParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub user: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub expired: bool,
    #[serde(deserialize_with = "empty_if_null")]
    pub expire_at: UnixTime,
    pub info: Option<Box<RawValue>>,
    #[serde(deserialize_with = "empty_if_null")]
    pub session: String,
    pub label_filter: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "empty_if_null")]
    pub all_users: bool,
}

/// See [`super::Method::Disconnect`].
#[derive(Clone, Debug)]
pub struct DisconnectCommand(pub ApiRequest);

/// See [`super::Method::Unsubscribe`].
#[derive(Clone, Debug)]
pub struct UnsubscribeCommand(pub ApiRequest);

/// See [`super::Method::Subscribe`].
#[derive(Clone, Debug)]
pub struct SubscribeCommand(pub ApiRequest);

/// See [`super::Method::Refresh`].
#[derive(Clone, Debug)]
pub struct RefreshCommand(pub ApiRequest);

impl Command for DisconnectCommand {
    type Params = DisconnectParams;

    fn check(params: DisconnectParams, _: &RequestLimits) -> Result<Self, ApiError> {
        refuse_labels(Method::Disconnect, params.label_filter.is_some(), params.all_users)?;
        let disconnect = match params.disconnect {
            None => Disconnect::FORCE_NO_RECONNECT,
            Some(OnlyObject(CloseWith { code, reason })) => {
                Disconnect { code: close_code(code)?, reason: reason.into() }
            }
        };
        Ok(Self(ApiRequest::Disconnect {
            user: params.user.into(),
            only: only(params.client, params.session),
            whitelist: params.whitelist.into_iter().map(|client| client.0.into()).collect(),
            disconnect,
        }))
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().order(self.0).await
    }
}

impl Command for UnsubscribeCommand {
    type Params = UnsubscribeParams;

    fn check(params: UnsubscribeParams, _: &RequestLimits) -> Result<Self, ApiError> {
        refuse_labels(Method::Unsubscribe, params.label_filter.is_some(), params.all_users)?;
        Ok(Self(ApiRequest::Unsubscribe {
            channel: params.channel.into(),
            user: params.user.into(),
            only: only(params.client, params.session),
            code: UnsubscribeCode::SERVER,
        }))
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().order(self.0).await
    }
}

impl Command for SubscribeCommand {
    type Params = SubscribeParams;

    fn check(params: SubscribeParams, _: &RequestLimits) -> Result<Self, ApiError> {
        refuse_labels(Method::Subscribe, params.label_filter.is_some(), params.all_users)?;
        let OnlyObject(overrides) = params.r#override.unwrap_or_default();
        let switch = |switch: Option<OnlyObject<Switch>>| switch.map(|OnlyObject(switch)| switch.value);
        let subscription = ServerSubscription {
            channel: named(params.channel)?,
            grant: SubscriptionGrant {
                info: info_of(params.info, params.b64info)?,
                data: data_of(params.data, params.b64data)?,
                expires_at_ms: expiry_of(params.expire_at)?,
                overrides: Overrides {
                    presence: switch(overrides.presence),
                    join_leave: switch(overrides.join_leave),
                    force_push_join_leave: switch(overrides.force_push_join_leave),
                    force_positioning: switch(overrides.force_positioning),
                    force_recovery: switch(overrides.force_recovery),
                },
            },
            recover_since: params.recover_since.map(|OnlyObject(position)| (position.offset, position.epoch.into())),
            from_token: false,
        };
        Ok(Self(ApiRequest::Subscribe {
            user: params.user.into(),
            only: only(params.client, params.session),
            subscription: Box::new(subscription),
        }))
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().order(self.0).await
    }
}

impl Command for RefreshCommand {
    type Params = RefreshParams;

    fn check(params: RefreshParams, _: &RequestLimits) -> Result<Self, ApiError> {
        refuse_labels(Method::Refresh, params.label_filter.is_some(), params.all_users)?;
        Ok(Self(ApiRequest::Refresh {
            user: params.user.into(),
            only: only(params.client, params.session),
            expired: params.expired,
            expires_at_ms: expiry_of(params.expire_at)?,
            info: info_of(params.info, String::new())?,
        }))
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().order(self.0).await
    }
}

fn close_code(code: u32) -> Result<u16, ApiError> {
    Disconnect::code_for_applications(code)
        .ok_or_else(|| ApiError::bad_request("a disconnect code must be from 3000 to 4999"))
}

/// The payload in `info` or `b64info`, if any.
fn info_of(json: Option<Box<RawValue>>, base64: String) -> Result<Option<Payload>, ApiError> {
    payload_of(json, base64, "b64info")
}

/// Rejects filters of sessions: ignoring them would affect other sessions.
fn refuse_labels(method: Method, label_filter: bool, all_users: bool) -> Result<(), ApiError> {
    refuse_fields(method, &[("label_filter", label_filter), ("all_users", all_users)])
}

fn refuse_fields(method: Method, fields: &[(&'static str, bool)]) -> Result<(), ApiError> {
    match fields.iter().find(|(_, set)| *set) {
        Some((field, _)) => Err(refuse(method, field)),
        None => Ok(()),
    }
}

pub(super) fn only(client: String, session: String) -> SessionFilter {
    SessionFilter { client: some_text(client), session: some_text(session) }
}
