//! Requests that were sent and not answered yet.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use async_nats::Message;
use tokio::time::Instant;

use super::{
    reads::{DirectRead, ReadProgress},
    replies,
};
use crate::link::{LinkEvent, PublishFault, ReadFault, RequestNumber};

/// A request that was sent.
#[derive(Debug)]
pub enum Awaited {
    Ack,
    Info,
    Read(DirectRead),
}

impl Awaited {
    /// The event that ends the request without an answer.
    pub fn failed(&self, request: RequestNumber, why: Unanswered) -> LinkEvent {
        let (publish_fault, read_fault) = match why {
            Unanswered::TimedOut => (PublishFault::TimedOut, ReadFault::TimedOut),
            Unanswered::Disconnected => (PublishFault::Disconnected, ReadFault::Disconnected),
        };
        match self {
            Self::Ack => LinkEvent::Acknowledged { request, outcome: Err(publish_fault) },
            Self::Info => LinkEvent::StreamInfo { request, outcome: Err(read_fault) },
            Self::Read(_) => LinkEvent::Answered { request, outcome: Err(read_fault) },
        }
    }
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    TimedOut,
    Disconnected,
}

/// The result of an answer.
#[derive(Debug)]
pub enum Answered {
    /// No event yet, or the answer belongs to no request.
    Nothing,
    /// The request has ended.
    Event(Box<LinkEvent>),
    /// A read needs its next part.
    Continue(RequestNumber),
}

/// The requests of one connection.
#[derive(Debug)]
pub struct AwaitedRequests {
    by_number: HashMap<RequestNumber, Awaited>,
    /// All requests of a connection have the same timeout, so the first one expires first. Answered requests stay in
    /// the queue until then.
    deadlines: VecDeque<(Instant, RequestNumber)>,
    timeout: Duration,
}

impl AwaitedRequests {
    pub fn new(timeout: Duration) -> Self {
        Self { by_number: HashMap::new(), deadlines: VecDeque::new(), timeout }
    }

    pub fn insert(&mut self, request: RequestNumber, awaited: Awaited) {
        self.by_number.insert(request, awaited);
        self.deadlines.push_back((Instant::now() + self.timeout, request));
    }

    pub fn reading(&self, request: RequestNumber) -> Option<&DirectRead> {
        match self.by_number.get(&request)? {
            Awaited::Read(reading) => Some(reading),
            Awaited::Ack | Awaited::Info => None,
        }
    }

    /// Handles a message that arrived in the inbox of a request.
    pub fn take(&mut self, request: RequestNumber, message: Message) -> Answered {
        let event = match self.by_number.get_mut(&request) {
            None => return Answered::Nothing,
            Some(Awaited::Ack) => LinkEvent::Acknowledged { request, outcome: replies::ack(&message) },
            Some(Awaited::Info) => LinkEvent::StreamInfo { request, outcome: replies::stream_state(&message) },
            Some(Awaited::Read(reading)) => match reading.take(message) {
                ReadProgress::Waiting => return Answered::Nothing,
                ReadProgress::Continue => return Answered::Continue(request),
                ReadProgress::Done(outcome) => LinkEvent::Answered { request, outcome },
            },
        };
        self.by_number.remove(&request);
        Answered::Event(Box::new(event))
    }

    /// When to call [`Self::expired`] next.
    pub fn deadline(&mut self) -> Option<Instant> {
        while let Some((deadline, request)) = self.deadlines.front() {
            if self.by_number.contains_key(request) {
                return Some(*deadline);
            }
            self.deadlines.pop_front();
        }
        None
    }

    /// Ends a request whose timeout has passed.
    pub fn expired(&mut self, now: Instant) -> Option<LinkEvent> {
        self.deadline().filter(|deadline| *deadline <= now)?;
        let (_, request) = self.deadlines.pop_front()?;
        Some(self.by_number.remove(&request)?.failed(request, Unanswered::TimedOut))
    }

    /// Ends all requests, because the connection is down.
    pub fn disconnected(&mut self) -> Vec<LinkEvent> {
        self.deadlines.clear();
        let mut all: Vec<_> = self.by_number.drain().collect();
        all.sort_by_key(|(request, _)| *request);
        all.into_iter().map(|(request, awaited)| awaited.failed(request, Unanswered::Disconnected)).collect()
    }
}
