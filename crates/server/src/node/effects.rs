//! Doing what the engine says.

use dunlin_engine::{
    Effect, Event, SessionKey,
    api::{Answer, ApiAnswer},
    backend::BackendQuestion,
    event::Ticket,
};

use super::{
    Judged, ShardReport, TokenKind, TokenQuestion, answers::Answered, inbox::Asker, shard_thread::ShardThread,
};
use crate::{backend::BackendCall, net::Reactor, ring::Sent};

impl<R: Reactor> ShardThread<R> {
    /// Performs all effects, those that come of performing them included. That ends: an answer about a token or a hang-up
    /// leads to messages and replies, never to another of its kind for the same session.
    pub(super) fn perform_effects(&mut self) {
        let mut performing = std::mem::take(&mut self.performing);
        while !self.effects.list.is_empty() {
            std::mem::swap(&mut performing, &mut self.effects.list);
            for effect in performing.drain(..) {
                self.perform(effect);
            }
        }
        self.performing = performing;
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, message } => {
                self.counters.ring_messages += 1;
                let sent = self.peers.send(to, message);
                self.counters.ring_overflowed += u64::from(sent == Sent::Overflow);
            }
            Effect::Authenticate { session, token } => self.authenticate(session, token),
            Effect::AuthorizeSubscription { session, token } => self.authorize(session, token),
            Effect::AskBackend { session, question } => self.ask_backend(session, *question),
            Effect::Pause { session } => {
                if let Some(stage) = self.connections.session_mut(session) {
                    stage.paused = true;
                    self.reactor.pause(session);
                }
            }
            Effect::Resume { session } => {
                if let Some(stage) = self.connections.session_mut(session) {
                    stage.paused = false;
                    if stage.unread.is_empty() && stage.mail.is_none() {
                        self.reactor.resume(session);
                    } else {
                        self.resumed.push(session);
                    }
                }
            }
            Effect::Finish { session } => self.finish_sending(session),
            Effect::HangUp { session } => self.end(session),
            Effect::ToRoom { thread, message } => {
                self.counters.ring_messages += 1;
                let sent = self.room_links.send(thread, message);
                self.counters.ring_overflowed += u64::from(sent == Sent::Overflow);
            }
            Effect::Answer { ticket, answer } => self.answer(ticket, answer),
        }
    }

    fn authenticate(&mut self, session: SessionKey, token: Box<str>) {
        match self.shared.tokens.verify_connection(&token, self.now.unix_ms / 1_000) {
            Judged::Now(outcome) => {
                self.shard.handle(self.now, Event::Authenticated { session, outcome }, &mut self.effects);
            }
            Judged::Elsewhere => self.verify_elsewhere(session, TokenKind::Connection, token),
        }
    }

    fn authorize(&mut self, session: SessionKey, token: Box<str>) {
        match self.shared.tokens.verify_subscription(&token, self.now.unix_ms / 1_000) {
            Judged::Now(outcome) => {
                self.shard.handle(self.now, Event::SubscriptionAuthorized { session, outcome }, &mut self.effects);
            }
            Judged::Elsewhere => self.verify_elsewhere(session, TokenKind::Subscription, token),
        }
    }

    fn verify_elsewhere(&mut self, session: SessionKey, kind: TokenKind, token: Box<str>) {
        let door = self.answers.door();
        let answer = Box::new(move |answer| door.tell(Answered::Token { session, answer }));
        self.shared.tokens.verify_elsewhere(TokenQuestion { kind, token, answer });
    }

    fn ask_backend(&mut self, session: SessionKey, question: BackendQuestion) {
        let (door, id) = (self.answers.door(), question.id);
        let answer = Box::new(move |outcome| door.tell(Answered::Backend { session, question: id, outcome }));
        let headers = self.picked_headers.get(&session.index).cloned();
        self.shared.backends.ask(BackendCall { question, headers, answer });
    }

    /// Whoever does not wait any more gets no answer.
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        match self.tickets.redeem(ticket) {
            Asker::Api(reply) => drop(reply.send(answer)),
            Asker::Report(reply) => {
                let Ok(ApiAnswer::Survey(survey)) = answer else { unreachable!("a survey is what was asked for") };
                let mut net = self.counters.clone();
                net.connections = self.connections.len() as u64;
                net.reactor = self.reactor.counters();
                net.sessions = u64::from(self.sessions);
                net.ring_overflow = (self.peers.overflow_len() + self.room_links.overflow_len()) as u64;
                net.ring_depth = (self.peers.depth() + self.room_links.depth()) as u64;
                let counters = self.shard.counters().clone();
                drop(reply.send(Box::new(ShardReport { shard: self.index, counters, survey: *survey, net })));
            }
        }
    }
}
