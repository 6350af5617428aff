//! The place where signatures by public keys are checked: a thread of its own, so that no shard waits for one. Sets of keys
//! are fetched there as well.

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::Arc,
    thread,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;

use super::{
    Fault,
    cache::Fingerprint,
    claims::{Claims, Purpose, Said},
    judge::{Judge, Method},
    jwks::{Fetched, JwksOptions, KeySets, LookUp, fetch},
    public_key::PublicKey,
    signed::Signed,
};
use crate::telemetry::events;

/// Questions that are looked at before the fetches get their turn.
const QUESTIONS_PER_TURN: usize = 32;

/// Told what a token is worth, on the thread of the place.
pub(super) type Answer = Box<dyn FnOnce(Result<Arc<Said>, Fault>) + Send>;

/// A token to be judged.
pub(super) struct Question {
    pub(super) purpose: Purpose,
    pub(super) token: Box<str>,
    pub(super) answer: Answer,
}

/// Takes questions. When it is dropped, the thread ends.
#[derive(Debug)]
pub(super) struct Place {
    questions: mpsc::UnboundedSender<Question>,
    judge: Arc<Judge>,
    waiting_max: usize,
}

impl Place {
    /// Starts the thread.
    pub(super) fn start(judge: Arc<Judge>, waiting_max: usize) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Not bounded by itself: what waits is counted from the question to its answer, and bounded by that.
        let (questions, asked) = mpsc::unbounded_channel();
        let desk = Desk {
            judge: Arc::clone(&judge),
            sets: KeySets::default(),
            parked: HashMap::new(),
            woken: Vec::new(),
            fetches: FuturesUnordered::new(),
            started: Instant::now(),
        };
        thread::Builder::new().name("tokens".to_owned()).spawn(move || {
            runtime.block_on(desk.run(asked));
            runtime.shutdown_background();
        })?;
        Ok(Self { questions, judge, waiting_max })
    }

    /// Asks. Never waits: when too many wait already, the answer is [`Fault::Busy`] at once.
    pub(super) fn ask(&self, purpose: Purpose, token: &str, answer: Answer) {
        if !self.judge.counters.admit(self.waiting_max) {
            return answer(Err(Fault::Busy));
        }
        let question = Question { purpose, token: token.into(), answer };
        if let Err(mpsc::error::SendError(question)) = self.questions.send(question) {
            self.judge.counters.dismiss();
            (question.answer)(Err(Fault::Busy));
        }
    }
}

type Fetch = Pin<Box<dyn Future<Output = (String, Arc<JwksOptions>, Option<Fetched>)> + Send>>;

/// What is on the thread.
struct Desk {
    judge: Arc<Judge>,
    sets: KeySets,
    /// Questions that wait for a fetch, by its address.
    parked: HashMap<String, Vec<Question>>,
    /// Questions whose fetch has ended.
    woken: Vec<Question>,
    fetches: FuturesUnordered<Fetch>,
    started: Instant,
}

/// Which key a question needs.
enum Needs {
    Static(PublicKey),
    Named { url: String, key_id: Box<str>, options: Arc<JwksOptions> },
}

impl Desk {
    async fn run(mut self, mut asked: mpsc::UnboundedReceiver<Question>) {
        let mut questions = Vec::with_capacity(QUESTIONS_PER_TURN);
        loop {
            tokio::select! {
                biased;
                Some((url, options, fetched)) = self.fetches.next(), if !self.fetches.is_empty() => {
                    self.sets.fetched(&url, fetched, &options, self.now_ms());
                    self.woken.extend(self.parked.remove(&url).unwrap_or_default());
                }
                () = std::future::ready(()), if !self.woken.is_empty() => {
                    for question in self.woken.split_off(self.woken.len().saturating_sub(QUESTIONS_PER_TURN)) {
                        self.meet(question, true);
                    }
                }
                count = asked.recv_many(&mut questions, QUESTIONS_PER_TURN) => {
                    if count == 0 {
                        return;
                    }
                    for question in questions.drain(..) {
                        self.meet(question, false);
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Answers a question, or parks it until its keys have come. After the fetch that it waited for there is no other.
    fn meet(&mut self, question: Question, has_waited: bool) {
        match self.decide(&question, has_waited) {
            Some(outcome) => {
                self.judge.counters.dismiss();
                (question.answer)(outcome);
            }
            None => match self.needs(&question) {
                Ok(Needs::Named { url, .. }) => self.parked.entry(url).or_default().push(question),
                Ok(Needs::Static(_)) | Err(_) => unreachable!("only a question for a named key is not decided at once"),
            },
        }
    }

    /// `None`: a fetch has to end first.
    fn decide(&mut self, question: &Question, has_waited: bool) -> Option<Result<Arc<Said>, Fault>> {
        let now_s = now_unix_s();
        // The same token may have been judged since it was asked for.
        let fingerprint = Fingerprint::of(question.purpose, &question.token);
        if let Some(known) = self.judge.cache.get(&fingerprint, now_s) {
            return Some(known);
        }
        let verify =
            |key: &PublicKey, again_at_s| self.judge.verify(question.purpose, &question.token, key, now_s, again_at_s);
        let (url, key_id, options) = match self.needs(question) {
            Ok(Needs::Static(key)) => return Some(verify(&key, u64::MAX)),
            Ok(Needs::Named { url, key_id, options }) => (url, key_id, options),
            Err(fault) => return Some(Err(fault)),
        };
        let algorithm = match Signed::parse(&question.token) {
            Ok(signed) => signed.algorithm,
            Err(fault) => return Some(Err(fault)),
        };
        let clock_ms = self.now_ms();
        let found = if has_waited {
            self.sets.settle(&url, &key_id, algorithm, clock_ms)
        } else {
            self.sets.look_up(&url, &key_id, algorithm, clock_ms)
        };
        match found {
            LookUp::Key(key) => {
                let again_at_s = now_s.saturating_add(options.cache_max_ms / 1_000);
                Some(self.judge.verify(question.purpose, &question.token, &key, now_s, again_at_s))
            }
            LookUp::Fault(fault) => Some(Err(fault)),
            LookUp::Wait => None,
            LookUp::Fetch => {
                self.start_fetch(url, options);
                None
            }
        }
    }

    fn needs(&self, question: &Question) -> Result<Needs, Fault> {
        let keys = self.judge.keys(question.purpose);
        let signed = Signed::parse(&question.token)?;
        let (options, key_id) = match keys.method(&signed)? {
            Method::Hmac(_) => return Err(Fault::Algorithm),
            Method::Public(key) => return Ok(Needs::Static(key.clone())),
            Method::KeySet(options, key_id) => (Arc::clone(options), key_id),
        };
        let caught = if options.endpoint.has_places() {
            let json = signed.claims()?;
            Claims::read(&json, question.purpose)?.check(&keys.rules)?
        } else {
            Vec::new()
        };
        Ok(Needs::Named { url: options.endpoint.fill(&caught)?, key_id, options })
    }

    fn start_fetch(&mut self, url: String, options: Arc<JwksOptions>) {
        let judge = Arc::clone(&self.judge);
        self.fetches.push(Box::pin(async move {
            let outcome = fetch(&url, &options).await;
            judge.counters.count_fetch(outcome.is_ok());
            match &outcome {
                Ok(fetched) => events::KeysFetched { url: &url, keys: fetched.keys.len() }.emit(),
                Err(fault) => events::KeysNotFetched { url: &url, why: fault }.emit(),
            }
            (url, options, outcome.ok())
        }));
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

pub(super) fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
