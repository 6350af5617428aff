//! Commands about sessions, which every node executes on its own.

use dunlin_engine::{
    api::{ApiRequest, SessionFilter},
    backend::Overrides,
    event::{ServerSubscription, SubscriptionGrant},
    pace::{BytePace, PaceChange, PaceError, UpdatePace},
};
use dunlin_protocol::{Disconnect, Payload, UnsubscribeCode};
use dunlin_token::UnixTime;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::presence::read;
use crate::json_members::{embedded, json_or_base64};

/// An expiry in milliseconds since 1970; `None` for never.
#[derive(Clone, Copy, Debug, Default)]
struct ExpireAt(Option<u64>);

impl Serialize for ExpireAt {
    /// Seconds, with a fraction only if there is one: earlier versions read whole seconds.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ms = self.0.unwrap_or(0);
        if ms.is_multiple_of(1_000) {
            serializer.serialize_u64(ms / 1_000)
        } else {
            serializer.serialize_f64(ms as f64 / 1_000.0)
        }
    }
}

impl<'de> Deserialize<'de> for ExpireAt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let time = UnixTime::deserialize(deserializer)?;
        if time.is_negative() {
            return Err(serde::de::Error::custom("a time before 1970"));
        }
        Ok(Self(time.expiry_ms()))
    }
}

/// The fields that select sessions of a user.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Chosen {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<Box<str>>,
    user: Box<str>,
}

impl Chosen {
    fn new(user: &str, only: &SessionFilter) -> Self {
        let SessionFilter { client, session } = only.clone();
        Self { client, session, user: user.into() }
    }

    fn split(self) -> (Box<str>, SessionFilter) {
        (self.user, SessionFilter { client: self.client, session: self.session })
    }
}

/// Close sessions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DisconnectOrder {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<Box<str>>,
    disconnect: CloseWith,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<Box<str>>,
    user: Box<str>,
    whitelist: Vec<Box<str>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct CloseWith {
    #[serde(deserialize_with = "close_code")]
    code: u16,
    reason: Box<str>,
}

fn close_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    Disconnect::code_for_applications(u32::deserialize(deserializer)?)
        .ok_or_else(|| serde::de::Error::custom("a disconnect code must be from 3000 to 4999"))
}

impl DisconnectOrder {
    /// For the sessions of a user, except those in the whitelist.
    pub fn new(user: &str, only: &SessionFilter, whitelist: &[Box<str>], disconnect: &Disconnect) -> Self {
        let SessionFilter { client, session } = only.clone();
        let disconnect = CloseWith { code: disconnect.code, reason: Box::from(&*disconnect.reason) };
        Self { client, disconnect, session, user: user.into(), whitelist: whitelist.into() }
    }
}

impl From<DisconnectOrder> for ApiRequest {
    fn from(order: DisconnectOrder) -> Self {
        let DisconnectOrder { client, disconnect: CloseWith { code, reason }, session, user, whitelist } = order;
        let disconnect = Disconnect { code, reason: String::from(reason).into() };
        Self::Disconnect { user, only: SessionFilter { client, session }, whitelist, disconnect }
    }
}

/// End subscriptions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnsubscribeOrder {
    /// Empty for all channels.
    channel: Box<str>,
    #[serde(flatten)]
    chosen: Chosen,
}

impl UnsubscribeOrder {
    /// For the sessions of a user.
    pub fn new(channel: &str, user: &str, only: &SessionFilter) -> Self {
        Self { channel: channel.into(), chosen: Chosen::new(user, only) }
    }
}

impl From<UnsubscribeOrder> for ApiRequest {
    fn from(UnsubscribeOrder { channel, chosen }: UnsubscribeOrder) -> Self {
        let (user, only) = chosen.split();
        Self::Unsubscribe { channel, user, only, code: UnsubscribeCode::SERVER }
    }
}

/// Set the expiry of sessions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RefreshOrder {
    #[serde(flatten)]
    chosen: Chosen,
    expired: bool,
    expire_at: ExpireAt,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    info: Option<Box<RawValue>>,
}

impl RefreshOrder {
    /// For the sessions of a user.
    pub fn new(
        user: &str,
        only: &SessionFilter,
        expired: bool,
        expires_at_ms: Option<u64>,
        info: Option<&Payload>,
    ) -> Self {
        let info = info.and_then(embedded).map(ToOwned::to_owned);
        Self { chosen: Chosen::new(user, only), expired, expire_at: ExpireAt(expires_at_ms), info }
    }
}

impl From<RefreshOrder> for ApiRequest {
    fn from(RefreshOrder { chosen, expired, expire_at: ExpireAt(expires_at_ms), info }: RefreshOrder) -> Self {
        let (user, only) = chosen.split();
        let info = info.map(|json| Payload::from_json(Box::<str>::from(json).into_string().into()));
        Self::Refresh { user, only, expired, expires_at_ms, info }
    }
}

/// Change paces.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "PaceBody", into = "PaceBody")]
pub struct PaceOrder {
    user: Box<str>,
    only: SessionFilter,
    change: PaceChange,
}

/// The pace of subscriptions if it has a channel, of sessions otherwise.
#[derive(Serialize, Deserialize)]
struct PaceBody {
    #[serde(flatten)]
    chosen: Chosen,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    channel: Option<Box<str>>,
    per_second_max: Option<f64>,
}

impl PaceOrder {
    /// For the sessions of a user.
    pub fn new(user: &str, only: &SessionFilter, change: &PaceChange) -> Self {
        Self { user: user.into(), only: only.clone(), change: change.clone() }
    }
}

impl From<PaceOrder> for ApiRequest {
    fn from(PaceOrder { user, only, change }: PaceOrder) -> Self {
        Self::SetPace { user, only, change }
    }
}

impl From<PaceOrder> for PaceBody {
    fn from(PaceOrder { user, only, change }: PaceOrder) -> Self {
        let chosen = Chosen::new(&user, &only);
        match change {
            PaceChange::Subscription { channel, pace } => {
                let per_second_max = pace.map(UpdatePace::updates_per_second);
                Self { chosen, channel: Some(channel), per_second_max }
            }
            PaceChange::Session(pace) => {
                let per_second_max = pace.map(|pace| pace.bytes_per_second().into());
                Self { chosen, channel: None, per_second_max }
            }
        }
    }
}

impl TryFrom<PaceBody> for PaceOrder {
    type Error = PaceError;

    fn try_from(PaceBody { chosen, channel, per_second_max }: PaceBody) -> Result<Self, PaceError> {
        let (user, only) = chosen.split();
        let change = match channel {
            Some(channel) => {
                let pace = per_second_max.map(UpdatePace::from_updates_per_second).transpose()?;
                PaceChange::Subscription { channel, pace }
            }
            None => PaceChange::Session(per_second_max.map(BytePace::from_bytes_per_second).transpose()?),
        };
        Ok(Self { user, only, change })
    }
}

/// Subscribe sessions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "SubscribeBody", into = "SubscribeBody")]
pub struct SubscribeOrder {
    user: Box<str>,
    only: SessionFilter,
    subscription: Box<ServerSubscription>,
}

#[derive(Serialize, Deserialize)]
struct SubscribeBody {
    #[serde(flatten)]
    chosen: Chosen,
    channel: Box<str>,
    expire_at: ExpireAt,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    info: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    b64info: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    b64data: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recover_since: Option<Position>,
    r#override: Switches,
}

#[derive(Serialize, Deserialize)]
struct Position {
    epoch: Box<str>,
    offset: u64,
}

#[derive(Serialize, Deserialize)]
struct Switches {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    force_positioning: Option<Switch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    force_push_join_leave: Option<Switch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    force_recovery: Option<Switch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    join_leave: Option<Switch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    presence: Option<Switch>,
}

#[derive(Serialize, Deserialize)]
struct Switch {
    value: bool,
}

impl SubscribeOrder {
    /// For the sessions of a user.
    pub fn new(user: &str, only: &SessionFilter, subscription: &ServerSubscription) -> Self {
        Self { user: user.into(), only: only.clone(), subscription: Box::new(subscription.clone()) }
    }
}

impl From<SubscribeOrder> for ApiRequest {
    fn from(SubscribeOrder { user, only, subscription }: SubscribeOrder) -> Self {
        Self::Subscribe { user, only, subscription }
    }
}

impl From<SubscribeOrder> for SubscribeBody {
    fn from(SubscribeOrder { user, only, subscription }: SubscribeOrder) -> Self {
        let ServerSubscription { channel, grant, recover_since, from_token: _ } = *subscription;
        // An empty text is no payload, as in earlier versions.
        let fields = |payload: Option<&Payload>| {
            let (json, base64) = json_or_base64(payload);
            (json.map(ToOwned::to_owned), base64.filter(|base64| !base64.is_empty()).map(Box::from))
        };
        let (info, b64info) = fields(grant.info.as_ref());
        let (data, b64data) = fields(grant.data.as_ref());
        Self {
            chosen: Chosen::new(&user, &only),
            channel,
            expire_at: ExpireAt(grant.expires_at_ms),
            info,
            b64info,
            data,
            b64data,
            recover_since: recover_since.map(|(offset, epoch)| Position { epoch, offset }),
            r#override: Switches::of(grant.overrides),
        }
    }
}

impl TryFrom<SubscribeBody> for SubscribeOrder {
    type Error = serde::de::value::Error;

    fn try_from(body: SubscribeBody) -> Result<Self, Self::Error> {
        let (user, only) = body.chosen.split();
        let grant = SubscriptionGrant {
            info: read(body.info, body.b64info)?,
            data: read(body.data, body.b64data)?,
            expires_at_ms: body.expire_at.0,
            overrides: body.r#override.into_overrides(),
        };
        let recover_since = body.recover_since.map(|position| (position.offset, position.epoch));
        let subscription = ServerSubscription { channel: body.channel, grant, recover_since, from_token: false };
        Ok(Self { user, only, subscription: Box::new(subscription) })
    }
}

impl Switches {
    fn of(overrides: Overrides) -> Self {
        let switch = |value: Option<bool>| value.map(|value| Switch { value });
        Self {
            force_positioning: switch(overrides.force_positioning),
            force_push_join_leave: switch(overrides.force_push_join_leave),
            force_recovery: switch(overrides.force_recovery),
            join_leave: switch(overrides.join_leave),
            presence: switch(overrides.presence),
        }
    }

    fn into_overrides(self) -> Overrides {
        let value = |switch: Option<Switch>| switch.map(|switch| switch.value);
        Overrides {
            force_positioning: value(self.force_positioning),
            force_push_join_leave: value(self.force_push_join_leave),
            force_recovery: value(self.force_recovery),
            join_leave: value(self.join_leave),
            presence: value(self.presence),
        }
    }
}
