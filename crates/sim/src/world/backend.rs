//! The application's backend. It responds early, late or with an error, whether or not the session still exists.

use std::cmp::Reverse;

use bytes::Bytes;
use dunlin_engine::{
    Event, SessionKey,
    backend::{
        ConnectResponse, ProxyError, ProxyRequest, ProxyRequestId, ProxyRequestKind, ProxyResponse, ProxyResult,
        PublishHow, PublishResponse, RefreshResponse,
    },
    event::{ServerSubscription, SubscriptionGrant},
};
use dunlin_protocol::{Disconnect, Payload};

use crate::{
    model::number_of,
    plan::{BACKEND_ERROR, KIND_TAG, KINDS, PlannedProxy},
    token::Token,
};

use super::NodeWorld;

/// The disconnect code that the backend returns to close a session.
pub(super) const BACKEND_DISCONNECT: u16 = 4_100;

/// A proxy request without a response.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PendingRequest {
    due_us: u64,
    pub(super) number: u64,
    shard: usize,
    session: SessionKey,
    request_id: ProxyRequestId,
    /// The client id of the session.
    client: String,
    kind: RequestKind,
}

/// The kind of a proxy request, with the data that the response needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RequestKind {
    Session,
    /// Whether the session may continue.
    Expiry,
    Call(String),
    Subscription(String),
    /// The publication's number.
    Publication(u64),
    /// Whether the subscription to this channel may continue.
    SubscriptionExpiry(String),
}

impl PendingRequest {
    /// Whether a command of the client waits for the response.
    pub(super) fn blocks_command(&self) -> bool {
        !matches!(self.kind, RequestKind::Expiry | RequestKind::SubscriptionExpiry(_))
    }
}

impl NodeWorld {
    /// Checks a proxy request and schedules its response.
    pub(super) fn send_proxy_request(
        &mut self,
        shard: usize,
        session: SessionKey,
        request: &ProxyRequest,
    ) -> Result<(), String> {
        let (kind, target, what) = match &request.kind {
            ProxyRequestKind::Connect { .. } => (RequestKind::Session, PlannedProxy::Connect, "proxy connect"),
            ProxyRequestKind::Refresh => (RequestKind::Expiry, PlannedProxy::Refresh, "proxy refresh"),
            ProxyRequestKind::Rpc { method, .. } => {
                (RequestKind::Call((&**method).into()), PlannedProxy::Rpc, "proxy rpc")
            }
            ProxyRequestKind::Subscribe { channel, .. } => {
                (RequestKind::Subscription((&**channel).into()), PlannedProxy::Subscribe, "proxy subscribe")
            }
            ProxyRequestKind::Publish { data, .. } => {
                (RequestKind::Publication(number_of(data.bytes())?), PlannedProxy::Publish, "proxy publish")
            }
            ProxyRequestKind::SubRefresh { channel } => {
                (RequestKind::SubscriptionExpiry((&**channel).into()), PlannedProxy::SubRefresh, "proxy sub_refresh")
            }
            ProxyRequestKind::RoomCall { .. } => return Err(format!("a shard sends a request of a room: {request:?}")),
        };
        if request.proxy != target.proxy() {
            return Err(format!("the request goes to the wrong backend: {request:?}"));
        }
        self.check_sender(shard, session, request)?;
        self.model.count(what);
        let delay_us = match self.harness.chance.below(10) {
            0..6 => self.harness.chance.between(0, 5_000),
            6..9 => self.harness.chance.between(0, 300_000),
            _ => self.harness.chance.between(0, 3_000_000),
        };
        let number = self.harness.steps << 20 | self.proxy_requests.len() as u64;
        let due_us = self.harness.now_us + delay_us;
        let (request_id, client) = (request.id, request.asker.client.to_string());
        self.proxy_requests.push(Reverse(PendingRequest { due_us, number, shard, session, request_id, client, kind }));
        Ok(())
    }

    /// Checks that a proxy request names the right user and client.
    fn check_sender(&self, shard: usize, session: SessionKey, request: &ProxyRequest) -> Result<(), String> {
        let connection = self.find(shard, session).ok_or("a proxy request from a session that is gone")?;
        let client = &self.clients[self.connections[connection].client];
        let user = match request.kind {
            ProxyRequestKind::Connect { .. } => None,
            _ => Some(&*client.profile.user),
        };
        let sender = &request.asker;
        let is_its_own = client.connection == Some(connection) && !client.id.is_empty();
        if sender.user.as_deref() == user && !sender.client.is_empty() && (!is_its_own || *sender.client == client.id) {
            Ok(())
        } else {
            Err(format!("{request:?} should be from user {user:?}, client {}", client.id))
        }
    }

    /// Sends the responses that are due.
    pub(super) fn send_proxy_responses(&mut self) -> Result<(), String> {
        while self.proxy_requests.peek().is_some_and(|Reverse(next)| next.due_us <= self.harness.now_us) {
            let Some(Reverse(due)) = self.proxy_requests.pop() else { break };
            let outcome = self.backend_outcome(&due);
            if self.find(due.shard, due.session).is_none() {
                self.model.count("backend response after the session ended");
            }
            let (session, request_id) = (due.session, due.request_id);
            self.harness.line(|| format!("backend to {session:?} on {}: {outcome:?}", due.shard));
            self.handle(due.shard, Event::ProxyResponded { session, request_id, outcome })?;
        }
        Ok(())
    }

    fn backend_outcome(&mut self, due: &PendingRequest) -> ProxyResult {
        match self.harness.chance.weighted(&[70, 8, 8, 10, 2]) {
            0 => Ok(self.accept(due)),
            1 => Err(ProxyError::Failed),
            2 => Err(ProxyError::Busy),
            3 => Err(ProxyError::Error { code: BACKEND_ERROR, message: "no".into(), temporary: false }),
            _ => {
                self.actions.backend_disconnected = true;
                Err(ProxyError::Disconnect(Disconnect { code: BACKEND_DISCONNECT, reason: "go".into() }))
            }
        }
    }

    fn accept(&mut self, due: &PendingRequest) -> ProxyResponse {
        let unix_s = self.harness.unix_ms() / 1_000;
        let expires_at_s = self.harness.chance.percent(50).then(|| unix_s + self.harness.chance.between(1, 4));
        match &due.kind {
            RequestKind::Session => self.accept_connect(due, expires_at_s),
            RequestKind::Expiry => ProxyResponse::Refresh(self.extend(due, "", expires_at_s)),
            RequestKind::SubscriptionExpiry(channel) => {
                ProxyResponse::SubRefresh(self.extend(due, channel, expires_at_s))
            }
            RequestKind::Call(method) => {
                let data = format!("\"{method}\"").into_bytes();
                ProxyResponse::Rpc { data: Some(Payload::from_json(data.into())) }
            }
            RequestKind::Subscription(channel) => {
                let data = Some(self.issue_token(String::new(), channel, expires_at_s, Vec::new()));
                ProxyResponse::Subscribe(Box::new(SubscriptionGrant {
                    expires_at_ms: expires_at_s.map(|at_s| at_s * 1_000),
                    data,
                    ..SubscriptionGrant::default()
                }))
            }
            RequestKind::Publication(number) => ProxyResponse::Publish(Box::new(self.accept_publish(*number))),
        }
    }

    /// Issues a token with the decision of the backend. The client receives it as data, so that the checks can look it
    /// up.
    fn issue_token(&mut self, user: String, channel: &str, expires_at_s: Option<u64>, subs: Vec<String>) -> Payload {
        let channel = channel.to_owned();
        let token = self.tokens.issue(Token { user, channel, expires_at_s, subs, ..Token::default() });
        Payload::from_json(Bytes::from(format!("\"{token}\"")))
    }

    fn accept_connect(&mut self, due: &PendingRequest, expires_at_s: Option<u64>) -> ProxyResponse {
        let connection = self.find(due.shard, due.session).map(|number| self.connections[number].client);
        let user = connection.map_or_else(String::new, |index| self.clients[index].profile.user.clone());
        let subs = self.plan.server_side(&mut self.harness.chance);
        let subscriptions = subs
            .iter()
            .map(|channel| ServerSubscription { channel: channel.as_str().into(), ..ServerSubscription::default() });
        let subscriptions = subscriptions.collect();
        let data = Some(self.issue_token(user.clone(), "", expires_at_s, subs));
        ProxyResponse::Connect(Box::new(ConnectResponse {
            user,
            expires_at_ms: expires_at_s.map(|at_s| at_s * 1_000),
            data,
            subscriptions,
            ..ConnectResponse::default()
        }))
    }

    /// Decides whether a session, or its subscription to `channel`, may continue. An empty `channel` means the session.
    fn extend(&mut self, due: &PendingRequest, channel: &str, expires_at_s: Option<u64>) -> RefreshResponse {
        let expired = self.harness.chance.percent(25);
        if expired {
            self.actions.expired_by_backend.insert((due.client.clone(), channel.to_owned()));
        }
        self.model.count(if expired { "expired by the backend" } else { "extended by the backend" });
        RefreshResponse { expired, expires_at_ms: expires_at_s.map(|at_s| at_s * 1_000), ..RefreshResponse::default() }
    }

    /// Accepts a publication. The backend may replace its data, add a tag, or skip the history.
    fn accept_publish(&mut self, number: u64) -> PublishResponse {
        let published = &mut self.model.published[number as usize];
        let data = self.harness.chance.percent(30).then(|| {
            published.data = format!(r#"{{"n":{number},"f":"by the backend"}}"#).into_bytes();
            Payload::from_json(Bytes::from(published.data.clone()))
        });
        let mut how = PublishHow { delta: true, ..PublishHow::default() };
        if self.harness.chance.percent(40) {
            let kind = *self.harness.chance.pick(&KINDS);
            published.tags.insert(KIND_TAG.to_owned(), kind.to_owned());
            how.tags = vec![(KIND_TAG.into(), kind.into())];
        }
        if self.harness.chance.percent(10) {
            published.has_offset = false;
            how.skip_history = true;
        }
        PublishResponse { data, how }
    }
}
