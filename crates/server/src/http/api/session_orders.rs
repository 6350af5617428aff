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

/// Declares a command that every shard of every node executes on its sessions. Its parameters have `into_request`, which checks
/// them: the shards believe what passes.
macro_rules! session_order {
    ($(#[$doc:meta])* $command:ident, $params:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $command(pub ApiRequest);

        impl Command for $command {
            type Params = $params;

            fn check(params: $params, _: &RequestLimits) -> Result<Self, ApiError> {
                params.into_request().map(Self)
            }

            async fn carry_out(self, executor: &Executor) -> JsonResult {
                executor.all_nodes().order(self.0).await
            }
        }
    };
}
pub(super) use session_order;

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

session_order! {
    /// See [`super::Method::Disconnect`].
    DisconnectCommand, DisconnectParams
}

session_order! {
    /// See [`super::Method::Unsubscribe`].
    UnsubscribeCommand, UnsubscribeParams
}

session_order! {
    /// See [`super::Method::Subscribe`].
    SubscribeCommand, SubscribeParams
}

session_order! {
    /// See [`super::Method::Refresh`].
    RefreshCommand, RefreshParams
}

impl DisconnectParams {
    fn into_request(self) -> Result<ApiRequest, ApiError> {
        refuse_labels(Method::Disconnect, self.label_filter.is_some(), self.all_users)?;
        let disconnect = match self.disconnect {
            None => Disconnect::FORCE_NO_RECONNECT,
            Some(OnlyObject(CloseWith { code, reason })) => {
                Disconnect { code: close_code(code)?, reason: reason.into() }
            }
        };
        Ok(ApiRequest::Disconnect {
            user: self.user.into(),
            only: only(self.client, self.session),
            whitelist: self.whitelist.into_iter().map(|client| client.0.into()).collect(),
            disconnect,
        })
    }
}

impl UnsubscribeParams {
    fn into_request(self) -> Result<ApiRequest, ApiError> {
        refuse_labels(Method::Unsubscribe, self.label_filter.is_some(), self.all_users)?;
        Ok(ApiRequest::Unsubscribe {
            channel: self.channel.into(),
            user: self.user.into(),
            only: only(self.client, self.session),
            code: UnsubscribeCode::SERVER,
        })
    }
}

impl SubscribeParams {
    fn into_request(self) -> Result<ApiRequest, ApiError> {
        refuse_labels(Method::Subscribe, self.label_filter.is_some(), self.all_users)?;
        let OnlyObject(overrides) = self.r#override.unwrap_or_default();
        let switch = |switch: Option<OnlyObject<Switch>>| switch.map(|OnlyObject(switch)| switch.value);
        let subscription = ServerSubscription {
            channel: named(self.channel)?,
            grant: SubscriptionGrant {
                info: info_of(self.info, self.b64info)?,
                data: data_of(self.data, self.b64data)?,
                expires_at_ms: expiry_of(self.expire_at)?,
                overrides: Overrides {
                    presence: switch(overrides.presence),
                    join_leave: switch(overrides.join_leave),
                    force_push_join_leave: switch(overrides.force_push_join_leave),
                    force_positioning: switch(overrides.force_positioning),
                    force_recovery: switch(overrides.force_recovery),
                },
            },
            recover_since: self.recover_since.map(|OnlyObject(position)| (position.offset, position.epoch.into())),
            from_token: false,
        };
        Ok(ApiRequest::Subscribe {
            user: self.user.into(),
            only: only(self.client, self.session),
            subscription: Box::new(subscription),
        })
    }
}

impl RefreshParams {
    fn into_request(self) -> Result<ApiRequest, ApiError> {
        refuse_labels(Method::Refresh, self.label_filter.is_some(), self.all_users)?;
        Ok(ApiRequest::Refresh {
            user: self.user.into(),
            only: only(self.client, self.session),
            expired: self.expired,
            expires_at_ms: expiry_of(self.expire_at)?,
            info: info_of(self.info, String::new())?,
        })
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
