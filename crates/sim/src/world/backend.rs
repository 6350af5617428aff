//! The application's backend: it answers soon, late, or in the negative, whether the session is still there or not.

use std::cmp::Reverse;

use dunlin_engine::{
    Event, SessionKey,
    backend::{Ask, BackendAnswer, BackendOutcome, BackendQuestion, BackendRefusal, QuestionId},
};
use dunlin_protocol::Disconnect;

use crate::plan::BACKEND_ERROR;

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
    about: About,
}

/// What is asked, as far as the answer depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum About {
    Call,
    Subscription,
    Publication,
}

impl World {
    /// Takes a question.
    pub(super) fn ask_backend(
        &mut self,
        shard: usize,
        session: SessionKey,
        question: &BackendQuestion,
    ) -> Result<(), String> {
        let about = match &question.ask {
            Ask::Rpc { .. } => About::Call,
            Ask::Subscribe { .. } => About::Subscription,
            Ask::Publish { .. } => About::Publication,
            other => return Err(format!("a backend is asked {other:?}, and there is none for it")),
        };
        let delay_us = match self.chance.below(10) {
            0..6 => self.chance.between(0, 5_000),
            6..9 => self.chance.between(0, 300_000),
            _ => self.chance.between(0, 3_000_000),
        };
        let number = self.steps << 20 | self.questions.len() as u64;
        let due_us = self.now_us + delay_us;
        self.questions.push(Reverse(OpenQuestion { due_us, number, shard, session, question: question.id, about }));
        Ok(())
    }

    /// Answers the questions that are due.
    pub(super) fn answer_questions(&mut self) -> Result<(), String> {
        while self.questions.peek().is_some_and(|Reverse(next)| next.due_us <= self.now_us) {
            let Some(Reverse(due)) = self.questions.pop() else { break };
            let outcome = self.backend_outcome(due.about);
            let (session, question) = (due.session, due.question);
            self.trace.line(self.now_us, || format!("backend to {session:?} on {}: {outcome:?}", due.shard));
            self.handle(due.shard, Event::BackendAnswered { session, question, outcome })?;
        }
        Ok(())
    }

    fn backend_outcome(&mut self, about: About) -> BackendOutcome {
        match self.chance.weighted(&[70, 8, 8, 10, 2]) {
            0 => Ok(match about {
                About::Call => BackendAnswer::Rpc { data: None },
                About::Subscription => BackendAnswer::Subscribe(Box::default()),
                About::Publication => BackendAnswer::Publish(Box::default()),
            }),
            1 => Err(BackendRefusal::Failed),
            2 => Err(BackendRefusal::Busy),
            3 => Err(BackendRefusal::Error { code: BACKEND_ERROR, message: "no".into(), temporary: false }),
            _ => {
                self.deeds.backend_disconnected = true;
                Err(BackendRefusal::Disconnect(Disconnect { code: BACKEND_DISCONNECT, reason: "go".into() }))
            }
        }
    }
}
