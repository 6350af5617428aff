//! Performs the effects that the engine returns.

use std::sync::Arc;

use dunlin_engine::{
    Effect, Event, SessionKey,
    api::{ApiAnswer, ApiResult},
    backend::ProxyRequest,
    event::{PeerKeys, PeerQueryNumber, PresenceKind, Ticket},
    log::{LoadNumber, LoadQuery, LogError, LogTerms},
    room::RoomElsewhere,
};
use dunlin_net::Reactor;
use dunlin_protocol::ErrorCode;
use dunlin_storage::{EntriesDone, StoreRequest};
use dunlin_token::{Judged, TokenAnswer, TokenKind, TokenRequest};

use super::{ShardReport, inbox::Asker, shard_thread::ShardThread};
use crate::{backend::BackendCall, peers::QuestionKind, ring::SentTo};

impl<R: Reactor> ShardThread<R> {
    /// Performs all effects, including those that result from performing them. This terminates: a token result or a
    /// hang-up causes messages and replies, but no further effect of its kind for the same session.
    pub(super) fn perform_effects(&mut self) {
        while let Some(mut effects) = self.engine.take_effects() {
            for effect in effects.drain(..) {
                self.perform(effect);
            }
            self.engine.performed(effects);
        }
        self.engine.log_records(self.index);
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, message } => {
                self.counters.ring_messages += 1;
                let sent = self.peers.send(to, message);
                self.counters.ring_overflowed += u64::from(sent == SentTo::Overflow);
            }
            Effect::Authenticate { session, token } => self.authenticate(session, token),
            Effect::AuthorizeSubscription { session, token } => self.authorize(session, token),
            Effect::SendProxyRequest { session, request } => self.send_proxy_request(session, *request),
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
            Effect::Recall { session } => self.engine.recall_later(session),
            Effect::Finish { session } => self.finish(session),
            Effect::HangUp { session } => self.end(session),
            Effect::ToRoom { thread, message } => {
                self.counters.ring_messages += 1;
                let sent = self.room_links.send(thread, message);
                self.counters.ring_overflowed += u64::from(sent == SentTo::Overflow);
            }
            Effect::Propose { channel, proposal, record, begins, terms } => {
                self.propose(StoreRequest { shard: self.index, channel, proposal, record, begins, terms });
            }
            Effect::Load { channel, load, query, terms } => self.load(channel, load, query, terms),
            Effect::Trim { channel, through, ticket } => self.trim(channel, through, ticket),
            // If the channel is stored on disk, no other node publishes into it.
            Effect::Follow { channel } => self.follow_channel(channel),
            Effect::Unfollow { channel, only_user } => {
                if let Some(cluster) = &self.shared.cluster {
                    cluster.unfollow(channel, only_user);
                }
            }
            Effect::Broadcast { channel, message } => {
                if let Some(cluster) = &self.shared.cluster {
                    cluster.broadcast(channel, message);
                }
            }
            Effect::ShareUserSessions { user, sessions } => {
                if let Some(cluster) = &self.shared.cluster {
                    cluster.share_user_sessions(user, sessions);
                }
            }
            Effect::QueryPeers { query, channel, kind } => self.query_peers(query, channel, kind),
            Effect::QueryKeys { channel } => self.query_keys(channel),
            Effect::QueryRoom { channel } => self.query_room(channel),
            Effect::Answer { ticket, answer } => self.answer(ticket, answer),
        }
    }

    /// Shuts down the sending side of a session's socket, and keeps reading for a short time.
    fn finish(&mut self, session: SessionKey) {
        self.finish_sending(session);
        // With TLS, encrypted bytes may be left. This method is called again when they are sent.
        if self.has_secure_waiting(session) {
            return;
        }
        if let Some(stage) = self.connections.session_mut(session)
            && !std::mem::replace(&mut stage.finished, true)
        {
            let due_us = self.engine.now().mono_us + self.shared.net.linger_timeout_ms * 1_000;
            self.linger_deadlines.set(due_us, session);
        }
    }

    fn propose(&mut self, request: StoreRequest) {
        let (channel, proposal) = (Arc::clone(&request.channel), request.proposal);
        let stored = match (&self.shared.cluster, &self.shared.storage) {
            (Some(cluster), _) => cluster.propose(self.index, request.channel, proposal, request.record),
            (None, Some(storage)) => storage.store(request),
            (None, None) => Err(LogError::Unavailable),
        };
        if let Err(error) = stored {
            let event = Event::Committed { channel, proposal, outcome: Err(error) };
            self.engine.handle(event);
        }
    }

    fn load(&mut self, channel: Arc<str>, load: LoadNumber, query: LoadQuery, terms: LogTerms) {
        let queued = match (&self.shared.cluster, &self.shared.storage) {
            (Some(cluster), _) => cluster.load(self.index, Arc::clone(&channel), load, query),
            (None, Some(storage)) => storage.load(self.index, Arc::clone(&channel), load, query, terms),
            (None, None) => Err(LogError::Unavailable),
        };
        if let Err(error) = queued {
            let event = Event::Loaded { channel, load, outcome: Err(error) };
            self.engine.handle(event);
        }
    }

    fn trim(&mut self, channel: Arc<str>, through: u64, ticket: Option<Ticket>) {
        let outcome = match (&self.shared.cluster, &self.shared.storage) {
            (Some(cluster), _) => match cluster.trim(self.index, channel, ticket) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            (None, Some(storage)) => {
                let sender = self.events.sender();
                storage.trim(
                    channel,
                    through,
                    ticket.map(|ticket| -> EntriesDone {
                        Box::new(move |outcome| {
                            let outcome = outcome.map_err(|_| LogError::Broken);
                            sender.send(Event::TrimCommitted { ticket, outcome });
                        })
                    }),
                );
                return;
            }
            (None, None) => Err(LogError::Unavailable),
        };
        if let Some(ticket) = ticket {
            self.engine.handle(Event::TrimCommitted { ticket, outcome });
        }
    }

    fn follow_channel(&mut self, channel: Arc<str>) {
        if let Some(cluster) = &self.shared.cluster
            && cluster.follow(self.index, Arc::clone(&channel)).is_err()
        {
            // The cluster's thread has ended and will not send this event.
            self.engine.handle(Event::Followed { channel });
        }
    }

    fn query_peers(&mut self, query: PeerQueryNumber, channel: Arc<str>, kind: PresenceKind) {
        let asked = match &self.shared.cluster {
            Some(cluster) => cluster.ask_about(self.index, channel, QuestionKind::Presence { query, kind }),
            None => Err(ErrorCode::Internal),
        };
        if let Err(code) = asked {
            let event = Event::PeersAnswered { query, outcome: Err(code) };
            self.engine.handle(event);
        }
    }

    fn query_keys(&mut self, channel: Arc<str>) {
        let asked = match &self.shared.cluster {
            Some(cluster) => cluster.ask_about(self.index, Arc::clone(&channel), QuestionKind::Keys),
            None => Err(ErrorCode::Internal),
        };
        if asked.is_err() {
            let event = Event::KeysAnswered { channel, found: PeerKeys::UNKNOWN };
            self.engine.handle(event);
        }
    }

    fn query_room(&mut self, channel: Arc<str>) {
        let asked = match &self.shared.cluster {
            Some(cluster) => cluster.ask_about(self.index, Arc::clone(&channel), QuestionKind::Room),
            None => Err(ErrorCode::Internal),
        };
        if asked.is_err() {
            let event = Event::RoomQueried { channel, found: RoomElsewhere::Unanswered };
            self.engine.handle(event);
        }
    }

    fn authenticate(&mut self, session: SessionKey, token: Box<str>) {
        match self.shared.tokens.verify_connection(&token, self.engine.now().unix_ms) {
            Judged::Now(outcome) => {
                self.engine.handle(Event::Authenticated { session, outcome });
            }
            Judged::Elsewhere => self.verify_elsewhere(session, TokenKind::Connection, token),
        }
    }

    fn authorize(&mut self, session: SessionKey, token: Box<str>) {
        match self.shared.tokens.verify_subscription(&token, self.engine.now().unix_ms) {
            Judged::Now(outcome) => {
                self.engine.handle(Event::SubscriptionAuthorized { session, outcome });
            }
            Judged::Elsewhere => self.verify_elsewhere(session, TokenKind::Subscription, token),
        }
    }

    fn verify_elsewhere(&mut self, session: SessionKey, kind: TokenKind, token: Box<str>) {
        let sender = self.events.sender();
        let answer = Box::new(move |answer| {
            sender.send(match answer {
                TokenAnswer::Connection(outcome) => Event::Authenticated { session, outcome },
                TokenAnswer::Subscription(outcome) => Event::SubscriptionAuthorized { session, outcome },
            });
        });
        self.shared.tokens.verify_elsewhere(TokenRequest { kind, token, answer });
    }

    fn send_proxy_request(&mut self, session: SessionKey, request: ProxyRequest) {
        let (sender, request_id) = (self.events.sender(), request.id);
        let answer = Box::new(move |outcome| {
            sender.send(Event::ProxyResponded { session, request_id, outcome });
        });
        let headers = self.picked_headers.get(&session.index).cloned();
        let address = self.entrants.address(session);
        self.shared.backends.ask(BackendCall { request, headers, address, answer });
    }

    /// Passes a result to its requester, unless that has stopped waiting.
    fn answer(&mut self, ticket: Ticket, answer: ApiResult) {
        match self.tickets.redeem(ticket) {
            Asker::Api(reply) => drop(reply.send(answer)),
            Asker::Report(reply) => {
                let Ok(ApiAnswer::Survey(survey)) = answer else { unreachable!("a survey is what was asked for") };
                let mut net = self.counters.clone();
                net.connections = self.connections.len() as u64;
                net.reactor = self.reactor.counters();
                net.busy_ppm = self.busy_window.busy_ppm(self.engine.now().mono_us, self.counters.busy_us);
                net.sessions = u64::from(self.sessions);
                net.ring_overflow = (self.peers.overflow_len() + self.room_links.overflow_len()) as u64;
                net.ring_depth = (self.peers.depth() + self.room_links.depth()) as u64;
                net.events_queued = self.events.len();
                net.events_refused = self.events.refused();
                let counters = self.engine.counters().clone();
                drop(reply.send(Box::new(ShardReport { shard: self.index, counters, survey: *survey, net })));
            }
        }
    }
}
