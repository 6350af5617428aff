//! The application's backend: responds early, late or with a refusal, whether or not the session still exists.

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
    plan::{Asks, BACKEND_ERROR, KIND_TAG, KINDS},
    token::Token,
};

use super::NodeWorld;

/// The code with which the backend has sessions closed.
pub(super) const BACKEND_DISCONNECT: u16 = 4_100;

/// A request that is not answered yet.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OpenQuestion {
    due_us: u64,
    number: u64,
    shard: usize,
    session: SessionKey,
    request_id: ProxyRequestId,
    /// The id of the session.
    client: String,
    about: About,
}

/// What is asked, as far as the answer depends on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum About {
    Session,
    /// The session goes on.
    Expiry,
    Call(String),
    Subscription(String),
    /// The publication's number.
    Publication(u64),
    /// The subscription to this channel goes on.
    SubscriptionExpiry(String),
}

impl OpenQuestion {
    /// Whether a command waits for the answer.
    pub(super) fn is_waited_for(&self) -> bool {
        !matches!(self.about, About::Expiry | About::SubscriptionExpiry(_))
    }
}

impl NodeWorld {
    /// Takes a request.
    pub(super) fn send_proxy_request(
        &mut self,
        shard: usize,
        session: SessionKey,
        request: &ProxyRequest,
    ) -> Result<(), String> {
        let (about, whom, what) = match &request.kind {
            ProxyRequestKind::Connect { .. } => (About::Session, Asks::Connect, "asked to connect"),
            ProxyRequestKind::Refresh => (About::Expiry, Asks::Refresh, "asked to refresh"),
            ProxyRequestKind::Rpc { method, .. } => (About::Call((&**method).into()), Asks::Rpc, "asked about a call"),
            ProxyRequestKind::Subscribe { channel, .. } => {
                (About::Subscription((&**channel).into()), Asks::Subscribe, "asked to subscribe")
            }
            ProxyRequestKind::Publish { data, .. } => {
                (About::Publication(number_of(data.bytes())?), Asks::Publish, "asked to publish")
            }
            ProxyRequestKind::SubRefresh { channel } => {
                (About::SubscriptionExpiry((&**channel).into()), Asks::SubRefresh, "asked to refresh a subscription")
            }
            ProxyRequestKind::RoomCall { .. } => return Err(format!("a shard asks for a room: {request:?}")),
        };
        if request.proxy != whom.proxy() {
            return Err(format!("another backend is asked: {request:?}"));
        }
        self.check_asker(shard, session, request)?;
        self.model.count(what);
        let delay_us = match self.chance.below(10) {
            0..6 => self.chance.between(0, 5_000),
            6..9 => self.chance.between(0, 300_000),
            _ => self.chance.between(0, 3_000_000),
        };
        let number = self.steps << 20 | self.questions.len() as u64;
        let due_us = self.now_us + delay_us;
        let (request_id, client) = (request.id, request.asker.client.to_string());
        self.questions.push(Reverse(OpenQuestion { due_us, number, shard, session, request_id, client, about }));
        Ok(())
    }

    /// The backend is told whose session it is.
    fn check_asker(&self, shard: usize, session: SessionKey, request: &ProxyRequest) -> Result<(), String> {
        let connection = self.find(shard, session).ok_or("a session that is gone asks")?;
        let client = &self.clients[self.connections[connection].client];
        let user = match request.kind {
            ProxyRequestKind::Connect { .. } => None,
            _ => Some(&*client.profile.user),
        };
        let asker = &request.asker;
        let is_its_own = client.connection == Some(connection) && !client.id.is_empty();
        if asker.user.as_deref() == user && !asker.client.is_empty() && (!is_its_own || *asker.client == client.id) {
            Ok(())
        } else {
            Err(format!("{request:?} is about {user:?}, {}", client.id))
        }
    }

    /// Answers the questions that are due.
    pub(super) fn answer_questions(&mut self) -> Result<(), String> {
        while self.questions.peek().is_some_and(|Reverse(next)| next.due_us <= self.now_us) {
            let Some(Reverse(due)) = self.questions.pop() else { break };
            let outcome = self.backend_outcome(&due);
            if self.find(due.shard, due.session).is_none() {
                self.model.count("answered when nobody waited");
            }
            let (session, request_id) = (due.session, due.request_id);
            self.trace.line(self.now_us, || format!("backend to {session:?} on {}: {outcome:?}", due.shard));
            self.handle(due.shard, Event::ProxyResponded { session, request_id, outcome })?;
        }
        Ok(())
    }

    fn backend_outcome(&mut self, due: &OpenQuestion) -> ProxyResult {
        match self.chance.weighted(&[70, 8, 8, 10, 2]) {
            0 => Ok(self.consent(due)),
            1 => Err(ProxyError::Failed),
            2 => Err(ProxyError::Busy),
            3 => Err(ProxyError::Error { code: BACKEND_ERROR, message: "no".into(), temporary: false }),
            _ => {
                self.deeds.backend_disconnected = true;
                Err(ProxyError::Disconnect(Disconnect { code: BACKEND_DISCONNECT, reason: "go".into() }))
            }
        }
    }

    fn consent(&mut self, due: &OpenQuestion) -> ProxyResponse {
        let unix_s = self.unix_ms() / 1_000;
        let expires_at_s = self.chance.percent(50).then(|| unix_s + self.chance.between(1, 4));
        match &due.about {
            About::Session => self.let_in(due, expires_at_s),
            About::Expiry => ProxyResponse::Refresh(self.extend(due, "", expires_at_s)),
            About::SubscriptionExpiry(channel) => ProxyResponse::SubRefresh(self.extend(due, channel, expires_at_s)),
            About::Call(method) => {
                let data = format!("\"{method}\"").into_bytes();
                ProxyResponse::Rpc { data: Some(Payload::from_json(data.into())) }
            }
            About::Subscription(channel) => {
                let data = Some(self.paper(String::new(), channel, expires_at_s, Vec::new()));
                ProxyResponse::Subscribe(Box::new(SubscriptionGrant {
                    expires_at_s,
                    data,
                    ..SubscriptionGrant::default()
                }))
            }
            About::Publication(number) => ProxyResponse::Publish(Box::new(self.let_publish(*number))),
        }
    }

    /// What the backend says, as a token would, and as the client is told it.
    fn paper(&mut self, user: String, channel: &str, expires_at_s: Option<u64>, subs: Vec<String>) -> Payload {
        let channel = channel.to_owned();
        let paper = self.tokens.issue(Token { user, channel, expires_at_s, subs, ..Token::default() });
        Payload::from_json(Bytes::from(format!("\"{paper}\"")))
    }

    fn let_in(&mut self, due: &OpenQuestion, expires_at_s: Option<u64>) -> ProxyResponse {
        let connection = self.find(due.shard, due.session).map(|number| self.connections[number].client);
        let user = connection.map_or_else(String::new, |index| self.clients[index].profile.user.clone());
        let subs = self.plan.server_side(&mut self.chance);
        let subscriptions = subs
            .iter()
            .map(|channel| ServerSubscription { channel: channel.as_str().into(), ..ServerSubscription::default() });
        let subscriptions = subscriptions.collect();
        let data = Some(self.paper(user.clone(), "", expires_at_s, subs));
        ProxyResponse::Connect(Box::new(ConnectResponse {
            user,
            expires_at_s,
            data,
            subscriptions,
            ..ConnectResponse::default()
        }))
    }

    /// Whether a session, or its subscription to `channel`, goes on.
    fn extend(&mut self, due: &OpenQuestion, channel: &str, expires_at_s: Option<u64>) -> RefreshResponse {
        let expired = self.chance.percent(25);
        if expired {
            self.deeds.lapsed.insert((due.client.clone(), channel.to_owned()));
        }
        self.model.count(if expired { "ended by the backend" } else { "extended by the backend" });
        RefreshResponse { expired, expires_at_s, ..RefreshResponse::default() }
    }

    /// A client may publish, if not quite what it wanted.
    fn let_publish(&mut self, number: u64) -> PublishResponse {
        let published = &mut self.model.published[number as usize];
        let data = self.chance.percent(30).then(|| {
            published.data = format!(r#"{{"n":{number},"f":"by the backend"}}"#).into_bytes();
            Payload::from_json(Bytes::from(published.data.clone()))
        });
        let mut how = PublishHow { delta: true, ..PublishHow::default() };
        if self.chance.percent(40) {
            let kind = *self.chance.pick(&KINDS);
            published.tags.insert(KIND_TAG.to_owned(), kind.to_owned());
            how.tags = vec![(KIND_TAG.into(), kind.into())];
        }
        if self.chance.percent(10) {
            published.has_offset = false;
            how.skip_history = true;
        }
        PublishResponse { data, how }
    }
}
