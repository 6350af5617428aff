//! `block_user`, `unblock_user`, `revoke_token` and `invalidate_user_tokens`: rules about who may not connect. Names of
//! methods and fields are those of Centrifugo PRO.

use dunlin_engine::access_rules::{AccessSubject, SubjectKind};
use dunlin_token::UnixTime;
use serde::Deserialize;

use super::{
    ApiError, Executor, JsonResult, Method, RequestLimits,
    command::{Command, expiry_of, refuse},
    result::{EmptyJson, to_outcome},
};
use crate::{
    access_sync::{self, AccessFault, unix_ms},
    json_members::empty_if_null,
    peers::AccessOrder,
};

/// Maximum length of the id of a user or token.
const NAME_BYTES_MAX: usize = 1_024;

/// The maximum of a `ttl`, which is about a hundred years.
const TTL_S_MAX: u64 = 100 * 365 * 24 * 60 * 60;

/// See [`Method::BlockUser`].
#[derive(Clone, Debug)]
pub struct BlockUserCommand(AccessChange);

/// See [`Method::UnblockUser`].
#[derive(Clone, Debug)]
pub struct UnblockUserCommand(AccessSubject);

/// See [`Method::RevokeToken`].
#[derive(Clone, Debug)]
pub struct RevokeTokenCommand(AccessChange);

/// See [`Method::InvalidateUserTokens`].
#[derive(Clone, Debug)]
pub struct InvalidateUserTokensCommand(AccessChange);

/// A new rule.
#[derive(Clone, Debug)]
struct AccessChange {
    subject: AccessSubject,
    before_ms: u64,
    end: RuleEnd,
}

/// When a rule ends.
#[derive(Clone, Copy, Debug)]
enum RuleEnd {
    Never,
    At { unix_ms: u64 },
    After { seconds: u64 },
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct BlockUserParams {
    #[serde(deserialize_with = "empty_if_null")]
    user: String,
    #[serde(deserialize_with = "empty_if_null")]
    expire_at: UnixTime,
    #[serde(deserialize_with = "empty_if_null")]
    ttl: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UnblockUserParams {
    #[serde(deserialize_with = "empty_if_null")]
    user: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RevokeTokenParams {
    #[serde(deserialize_with = "empty_if_null")]
    uid: String,
    #[serde(deserialize_with = "empty_if_null")]
    expire_at: UnixTime,
    #[serde(deserialize_with = "empty_if_null")]
    ttl: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct InvalidateUserTokensParams {
    #[serde(deserialize_with = "empty_if_null")]
    user: String,
    #[serde(deserialize_with = "empty_if_null")]
    issued_before: UnixTime,
    #[serde(deserialize_with = "empty_if_null")]
    channel: String,
    #[serde(deserialize_with = "empty_if_null")]
    expire_at: UnixTime,
    #[serde(deserialize_with = "empty_if_null")]
    ttl: u64,
}

impl Command for BlockUserCommand {
    type Params = BlockUserParams;

    fn check(params: BlockUserParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let subject = subject(SubjectKind::User, "user", &params.user)?;
        Ok(Self(AccessChange { subject, before_ms: u64::MAX, end: RuleEnd::new(params.expire_at, params.ttl)? }))
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        self.0.carry_out(executor).await
    }
}

impl Command for UnblockUserCommand {
    type Params = UnblockUserParams;

    fn check(params: UnblockUserParams, _: &RequestLimits) -> Result<Self, ApiError> {
        subject(SubjectKind::User, "user", &params.user).map(Self)
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        // A node that has no rule may be behind the others: all of them are told.
        AccessChange { subject: self.0, before_ms: 0, end: RuleEnd::Never }.carry_out(executor).await
    }
}

impl Command for RevokeTokenCommand {
    type Params = RevokeTokenParams;

    fn check(params: RevokeTokenParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let subject = subject(SubjectKind::Token, "uid", &params.uid)?;
        Ok(Self(AccessChange { subject, before_ms: u64::MAX, end: RuleEnd::new(params.expire_at, params.ttl)? }))
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        self.0.carry_out(executor).await
    }
}

impl Command for InvalidateUserTokensCommand {
    type Params = InvalidateUserTokensParams;

    fn check(params: InvalidateUserTokensParams, _: &RequestLimits) -> Result<Self, ApiError> {
        if !params.channel.is_empty() {
            return Err(refuse(Method::InvalidateUserTokens, "channel"));
        }
        if params.issued_before.is_negative() {
            return Err(ApiError::bad_request("issued_before must be a Unix time in seconds, or 0 for now"));
        }
        let subject = subject(SubjectKind::TokensOf, "user", &params.user)?;
        // 0 is now, when the command is executed.
        let before_ms = params.issued_before.unix_ms();
        Ok(Self(AccessChange { subject, before_ms, end: RuleEnd::new(params.expire_at, params.ttl)? }))
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        let before_ms = if self.0.before_ms == 0 { unix_ms() } else { self.0.before_ms };
        AccessChange { before_ms, ..self.0 }.carry_out(executor).await
    }
}

impl RuleEnd {
    fn new(expire_at: UnixTime, ttl_s: u64) -> Result<Self, ApiError> {
        match (expiry_of(expire_at)?, ttl_s) {
            (Some(_), 1..) => Err(ApiError::bad_request("give expire_at or ttl, not both")),
            (Some(unix_ms), 0) => Ok(Self::At { unix_ms }),
            (None, 0) => Ok(Self::Never),
            (None, 1..=TTL_S_MAX) => Ok(Self::After { seconds: ttl_s }),
            (None, _) => Err(ApiError::bad_request(format_args!("ttl must be at most {TTL_S_MAX} seconds"))),
        }
    }

    /// The Unix time in milliseconds.
    fn until_ms(self) -> Result<u64, ApiError> {
        match self {
            Self::Never => Ok(u64::MAX),
            Self::After { seconds } => Ok(unix_ms() + seconds * 1_000),
            Self::At { unix_ms: until_ms } if until_ms > unix_ms() => Ok(until_ms),
            Self::At { .. } => Err(ApiError::bad_request("expire_at is not in the future")),
        }
    }
}

impl AccessChange {
    /// This node and all others put the rule in force. The others are also told of a rule that is not stored here, and of the
    /// end of a block that this node has no space to remember.
    async fn carry_out(self, executor: &Executor) -> JsonResult {
        let node = executor.own().node();
        let Self { subject, before_ms, end } = self;
        let (rule, outcome) = access_sync::change(node, subject, before_ms, end.until_ms()?).await;
        match outcome {
            Err(AccessFault::Full) if before_ms > 0 => return Err(AccessFault::Full.into()),
            Err(AccessFault::Stopped) => return Err(AccessFault::Stopped.into()),
            Ok(()) | Err(AccessFault::Full | AccessFault::NotStored(_)) => {}
        }
        let told = executor.all_nodes().tell(&AccessOrder::new(&[rule])).await;
        outcome?;
        told?;
        to_outcome(&EmptyJson {})
    }
}

fn subject(kind: SubjectKind, field: &str, name: &str) -> Result<AccessSubject, ApiError> {
    match name.len() {
        0 => Err(ApiError::bad_request(format_args!("{field} is missing"))),
        1..=NAME_BYTES_MAX => Ok(AccessSubject { kind, name: name.into() }),
        _ => Err(ApiError::bad_request(format_args!("{field} is longer than {NAME_BYTES_MAX} bytes"))),
    }
}
