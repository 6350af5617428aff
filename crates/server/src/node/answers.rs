//! What other threads have found out for sessions that wait for it: of what worth a token is, what a backend says.

use std::sync::Arc;

use dunlin_engine::{
    Event, SessionKey,
    backend::{BackendOutcome, QuestionId},
};
use tokio::sync::mpsc;

use super::{TokenAnswer, doorbell::Doorbell};

/// Something found out.
#[derive(Debug)]
pub(super) enum Answered {
    /// What a token is worth.
    Token { session: SessionKey, answer: TokenAnswer },
    /// What a backend says.
    Backend { session: SessionKey, question: QuestionId, outcome: BackendOutcome },
}

/// Answers on their way to a shard. There is one for each question, and the number of questions is bounded by those who are
/// asked, so this needs no bound of its own.
#[derive(Debug)]
pub(super) struct Answers {
    receiver: mpsc::UnboundedReceiver<Answered>,
    door: AnswerDoor,
}

/// Where an answer goes.
#[derive(Clone, Debug)]
pub(super) struct AnswerDoor {
    sender: mpsc::UnboundedSender<Answered>,
    doorbell: Arc<Doorbell>,
}

impl Answers {
    pub(super) fn new(doorbell: Arc<Doorbell>) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { receiver, door: AnswerDoor { sender, doorbell } }
    }

    pub(super) fn door(&self) -> AnswerDoor {
        self.door.clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Answered> {
        self.receiver.try_recv().ok()
    }
}

impl AnswerDoor {
    /// Neither blocks nor waits. Of a shard that has ended nobody wants to know.
    pub(super) fn tell(&self, answered: Answered) {
        if self.sender.send(answered).is_ok() {
            self.doorbell.ring();
        }
    }
}

impl From<Answered> for Event<'static> {
    fn from(answered: Answered) -> Self {
        match answered {
            Answered::Token { session, answer: TokenAnswer::Connection(outcome) } => {
                Self::Authenticated { session, outcome }
            }
            Answered::Token { session, answer: TokenAnswer::Subscription(outcome) } => {
                Self::SubscriptionAuthorized { session, outcome }
            }
            Answered::Backend { session, question, outcome } => Self::BackendAnswered { session, question, outcome },
        }
    }
}
