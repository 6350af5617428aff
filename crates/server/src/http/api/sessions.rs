//! `sessions` and `explain`: list sessions in pages, those that have been behind for longest first, and say why.

use std::net::IpAddr;

use dunlin_engine::insight::{SessionPlace, SessionsQuery};
use serde::Deserialize;

use super::{
    ApiError, Executor, JsonResult, RequestLimits,
    command::Command,
    own_node::OwnNode,
    paging::{self, PageLimit},
};
use crate::{
    insight::{Judged, NodeJson, SessionJson},
    json_members::empty_if_null,
    node::{NodeSessions, REPORT_TIMEOUT, ShardSessions},
    peers::{Description, ListedSession, MissingPart, Sessions, SessionsQuestion},
};

/// Default and maximum number of sessions in a reply of `sessions`.
const LISTED_DEFAULT: usize = 100;
const LISTED_MAX: usize = 1_000;
/// Default and maximum number of sessions in a reply of `explain`.
const EXPLAINED_DEFAULT: usize = 10;
const EXPLAINED_MAX: usize = 100;

/// The sessions that a request selects.
#[derive(Clone, Debug, Default)]
pub struct SessionsWanted {
    pub(super) query: SessionsQuery,
    /// Whether their queues are divided by channel.
    pub(super) is_explained: bool,
}

/// See [`super::Method::Sessions`].
#[derive(Clone, Debug)]
pub struct ListCommand(pub(super) SessionsWanted);

/// See [`super::Method::Explain`].
#[derive(Clone, Debug)]
pub struct ExplainCommand(pub(super) SessionsWanted);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SessionsParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    /// An empty id means the anonymous user.
    pub user: Option<String>,
    #[serde(deserialize_with = "empty_if_null")]
    pub address: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    pub limit: Option<u64>,
    #[serde(deserialize_with = "empty_if_null")]
    pub cursor: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExplainParams {
    #[serde(deserialize_with = "empty_if_null")]
    pub client: String,
    /// An empty id means the anonymous user.
    pub user: Option<String>,
    #[serde(deserialize_with = "empty_if_null")]
    pub address: String,
    #[serde(deserialize_with = "empty_if_null")]
    pub channel: String,
    pub slowest: Option<u64>,
}

impl Command for ListCommand {
    type Params = SessionsParams;

    fn check(params: SessionsParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let SessionsParams { client, user, address, channel, limit, cursor } = params;
        let after = paging::after(&cursor, place_of)?;
        let sessions_max = paging::entries_max("limit", limit, LISTED_DEFAULT, LISTED_MAX)?;
        let filter = Filter { client, user, address, channel };
        let query = SessionsQuery { after, sessions_max, ..filter.to_query()? };
        Ok(Self(SessionsWanted { query, is_explained: false }))
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().sessions(&self.0).await
    }
}

impl Command for ExplainCommand {
    type Params = ExplainParams;

    fn check(params: ExplainParams, _: &RequestLimits) -> Result<Self, ApiError> {
        let ExplainParams { client, user, address, channel, slowest } = params;
        let sessions_max = paging::entries_max("slowest", slowest, EXPLAINED_DEFAULT, EXPLAINED_MAX)?;
        let filter = Filter { client, user, address, channel };
        let query = SessionsQuery { sessions_max, ..filter.to_query()? };
        Ok(Self(SessionsWanted { query, is_explained: true }))
    }

    async fn carry_out(self, executor: &Executor) -> JsonResult {
        executor.all_nodes().sessions(&self.0).await
    }
}

/// The fields that both methods have.
struct Filter {
    client: String,
    user: Option<String>,
    address: String,
    channel: String,
}

impl Filter {
    fn to_query(&self) -> Result<SessionsQuery, ApiError> {
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        let address = match &*self.address {
            "" => None,
            address => Some(parsed(address)?),
        };
        Ok(SessionsQuery {
            client: some(&self.client),
            user: self.user.as_deref().map(Into::into),
            address,
            channel: some(&self.channel),
            ..SessionsQuery::default()
        })
    }
}

/// Sessions have the address in this form, also if an IPv4 client is connected to an IPv6 socket.
fn parsed(address: &str) -> Result<IpAddr, ApiError> {
    let address = address.parse::<IpAddr>().map_err(|_| ApiError::bad_request("address is not an IP address"))?;
    Ok(address.to_canonical())
}

impl SessionsWanted {
    /// The question to other nodes for the same sessions.
    pub(super) fn to_question(&self) -> SessionsQuestion {
        let SessionsQuery { client, user, address, channel, after, sessions_max } = &self.query;
        SessionsQuestion {
            address: address.map(|address| address.to_string().into()),
            channel: channel.clone(),
            client: client.clone(),
            cursor: after.as_ref().map(cursor_of).unwrap_or_default().into(),
            explained: self.is_explained,
            limit: *sessions_max,
            user: user.clone(),
        }
    }

    /// The sessions that another node asks for.
    pub(super) fn of_question(question: SessionsQuestion) -> Result<Self, ApiError> {
        let SessionsQuestion { address, channel, client, cursor, explained, limit, user } = question;
        let after = paging::after(&cursor, place_of)?;
        let address = address.map(|address| parsed(&address)).transpose()?;
        let sessions_max = limit.clamp(1, LISTED_MAX);
        let query = SessionsQuery { client, user, address, channel, after, sessions_max };
        Ok(Self { query, is_explained: explained })
    }
}

/// The cursor after a place.
pub(super) fn cursor_of(place: &SessionPlace) -> String {
    paging::cursor(place.behind_since_us, &place.client)
}

fn place_of(cursor: &str) -> Option<SessionPlace> {
    paging::place(cursor, |behind_since_us, client| {
        Some(SessionPlace { behind_since_us: behind_since_us.parse().ok()?, client: client.into() })
    })
}

/// The sessions of this node.
pub(super) async fn of_own_node(own: &OwnNode, wanted: &SessionsWanted) -> Result<Sessions, ApiError> {
    let node = NodeJson { uid: &own.identity().uid, name: &own.identity().name };
    let NodeSessions { shards, silent } = own.node().sessions(wanted.query.clone()).await;
    let mut more = shards.iter().any(|shard| shard.page.has_more);
    let mut found = Vec::new();
    for ShardSessions { shard, page, sockets, turns } in &shards {
        for (facts, socket) in page.sessions.iter().zip(sockets) {
            let judged = Judged { facts, socket, turns: *turns };
            found.push(((facts.behind_since_us, &facts.info.client), judged, shard.0, page.limits));
        }
    }
    found.sort_unstable_by_key(|(place, ..)| *place);
    let mut limit = PageLimit::new(wanted.query.sessions_max);
    let mut sessions = Vec::with_capacity(found.len().min(wanted.query.sessions_max));
    for ((behind_since_us, client), judged, shard, bounds) in found {
        let described = SessionJson::new(judged, (node, shard), bounds, wanted.is_explained);
        let session = Description::new(&described).ok_or(ApiError::INTERNAL)?;
        if !limit.takes(session.json().len()) {
            more = true;
            break;
        }
        sessions.push(ListedSession { behind_since_us, client: (**client).into(), session });
    }
    let name = if node.name.is_empty() { node.uid } else { node.name };
    let missing = silent.iter().map(|shard| MissingPart {
        node: name.into(),
        why: format!("shard {} did not answer within {} ms", shard.0, REPORT_TIMEOUT.as_millis()),
    });
    Ok(Sessions { sessions, more, missing: missing.collect() })
}

#[cfg(test)]
mod tests;
