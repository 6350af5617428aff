//! The application's backend: it answers soon, late, or in the negative, whether the session is still there or not.

use std::cmp::Reverse;

use bytes::Bytes;
use dunlin_engine::{
    Event, SessionKey,
    backend::{
        Ask, BackendAnswer, BackendOutcome, BackendQuestion, BackendRefusal, ConnectAnswer, PublishAnswer, PublishHow,
        QuestionId, RefreshAnswer, SubscribeAnswer,
    },
    event::ServerSubscription,
};
use dunlin_protocol::{Disconnect, Payload};

use crate::{
    model::number_of,
    plan::{Asks, BACKEND_ERROR, KIND_TAG, KINDS},
    token::Token,
};

use super::World;

/// The code with which the backend has sessions closed.
pub(super) const BACKEND_DISCONNECT: u16 = 4_100;

/// A question that is not answered yet.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OpenQuestion {
    due_us: u64,
    number: u64,
    shard: usize,
    session: SessionKey,
    question: QuestionId,
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
    /// The method.
    Call(String),
    /// The channel.
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

impl World {
    /// Takes a question.
    pub(super) fn ask_backend(
        &mut self,
        shard: usize,
        session: SessionKey,
        question: &BackendQuestion,
    ) -> Result<(), String> {
        let (about, whom, what) = match &question.ask {
            Ask::Connect { .. } => (About::Session, Asks::Connect, "asked to connect"),
            Ask::Refresh => (About::Expiry, Asks::Refresh, "asked to refresh"),
            Ask::Rpc { method, .. } => (About::Call((&**method).into()), Asks::Rpc, "asked about a call"),
            Ask::Subscribe { channel, .. } => {
                (About::Subscription((&**channel).into()), Asks::Subscribe, "asked to subscribe")
            }
            Ask::Publish { data, .. } => {
                (About::Publication(number_of(data.bytes())?), Asks::Publish, "asked to publish")
            }
            Ask::SubRefresh { channel } => {
                (About::SubscriptionExpiry((&**channel).into()), Asks::SubRefresh, "asked to refresh a subscription")
            }
        };
        if question.proxy != whom.proxy() {
            return Err(format!("another backend is asked: {question:?}"));
        }
        self.check_asker(shard, session, question)?;
        self.model.count(what);
        let delay_us = match self.chance.below(10) {
            0..6 => self.chance.between(0, 5_000),
            6..9 => self.chance.between(0, 300_000),
            _ => self.chance.between(0, 3_000_000),
        };
        let number = self.steps << 20 | self.questions.len() as u64;
        let due_us = self.now_us + delay_us;
        let (question, client) = (question.id, question.asker.client.to_string());
        self.questions.push(Reverse(OpenQuestion { due_us, number, shard, session, question, client, about }));
        Ok(())
    }

    /// The backend is told whose session it is.
    fn check_asker(&self, shard: usize, session: SessionKey, question: &BackendQuestion) -> Result<(), String> {
        let connection = self.find(shard, session).ok_or("a session that is gone asks")?;
        let client = &self.clients[self.connections[connection].client];
        let user = match question.ask {
            Ask::Connect { .. } => None,
            _ => Some(&*client.profile.user),
        };
        let asker = &question.asker;
        let is_its_own = client.connection == Some(connection) && !client.id.is_empty();
        if asker.user.as_deref() == user && !asker.client.is_empty() && (!is_its_own || *asker.client == client.id) {
            Ok(())
        } else {
            Err(format!("{question:?} is about {user:?}, {}", client.id))
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
            let (session, question) = (due.session, due.question);
            self.trace.line(self.now_us, || format!("backend to {session:?} on {}: {outcome:?}", due.shard));
            self.handle(due.shard, Event::BackendAnswered { session, question, outcome })?;
        }
        Ok(())
    }

    fn backend_outcome(&mut self, due: &OpenQuestion) -> BackendOutcome {
        match self.chance.weighted(&[70, 8, 8, 10, 2]) {
            0 => Ok(self.consent(due)),
            1 => Err(BackendRefusal::Failed),
            2 => Err(BackendRefusal::Busy),
            3 => Err(BackendRefusal::Error { code: BACKEND_ERROR, message: "no".into(), temporary: false }),
            _ => {
                self.deeds.backend_disconnected = true;
                Err(BackendRefusal::Disconnect(Disconnect { code: BACKEND_DISCONNECT, reason: "go".into() }))
            }
        }
    }

    fn consent(&mut self, due: &OpenQuestion) -> BackendAnswer {
        let unix_s = self.unix_ms() / 1_000;
        let expires_at_s = self.chance.percent(50).then(|| unix_s + self.chance.between(1, 4));
        match &due.about {
            About::Session => self.let_in(due, expires_at_s),
            About::Expiry => BackendAnswer::Refresh(self.extend(due, "", expires_at_s)),
            About::SubscriptionExpiry(channel) => BackendAnswer::SubRefresh(self.extend(due, channel, expires_at_s)),
            About::Call(method) => {
                let data = format!("\"{method}\"").into_bytes();
                BackendAnswer::Rpc { data: Some(Payload::from_json(data.into())) }
            }
            About::Subscription(channel) => {
                let data = Some(self.paper(String::new(), channel, expires_at_s, Vec::new()));
                BackendAnswer::Subscribe(Box::new(SubscribeAnswer { expires_at_s, data, ..SubscribeAnswer::default() }))
            }
            About::Publication(number) => BackendAnswer::Publish(Box::new(self.let_publish(*number))),
        }
    }

    /// What the backend says, as a token would, and as the client is told it.
    fn paper(&mut self, user: String, channel: &str, expires_at_s: Option<u64>, subs: Vec<String>) -> Payload {
        let channel = channel.to_owned();
        let paper = self.tokens.issue(Token { user, channel, expires_at_s, subs, ..Token::default() });
        Payload::from_json(Bytes::from(format!("\"{paper}\"")))
    }

    fn let_in(&mut self, due: &OpenQuestion, expires_at_s: Option<u64>) -> BackendAnswer {
        let connection = self.find(due.shard, due.session).map(|number| self.connections[number].client);
        let user = connection.map_or_else(String::new, |index| self.clients[index].profile.user.clone());
        let subs = self.plan.server_side(&mut self.chance);
        let subscriptions = subs
            .iter()
            .map(|channel| ServerSubscription { channel: channel.as_str().into(), ..ServerSubscription::default() });
        let subscriptions = subscriptions.collect();
        let data = Some(self.paper(user.clone(), "", expires_at_s, subs));
        BackendAnswer::Connect(Box::new(ConnectAnswer {
            user,
            expires_at_s,
            data,
            subscriptions,
            ..ConnectAnswer::default()
        }))
    }

    /// Whether a session, or its subscription to `channel`, goes on.
    fn extend(&mut self, due: &OpenQuestion, channel: &str, expires_at_s: Option<u64>) -> RefreshAnswer {
        let expired = self.chance.percent(25);
        if expired {
            self.deeds.lapsed.insert((due.client.clone(), channel.to_owned()));
        }
        self.model.count(if expired { "ended by the backend" } else { "extended by the backend" });
        RefreshAnswer { expired, expires_at_s, ..RefreshAnswer::default() }
    }

    /// A client may publish, if not quite what it wanted.
    fn let_publish(&mut self, number: u64) -> PublishAnswer {
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
        PublishAnswer { data, how }
    }
}
