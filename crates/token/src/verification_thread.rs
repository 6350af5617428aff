//! The verification thread: verifies public-key signatures and fetches key sets, so that no shard waits for either.

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::Arc,
    thread,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use dunlin_queues::{AdmittedReceiver, AdmittedSender, Queue, declared::TOKENS};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;

use super::{
    SecretUrl, TokenEvent, TokenFault, TokenKind,
    cache::Fingerprint,
    claims::{Claims, VerifiedClaims},
    jwks::{Fetched, JwksOptions, KeySets, LookUp, fetch},
    jws::Signed,
    public_key::PublicKey,
    verify::{Judge, Method},
};

/// Requests that are processed before the fetches are polled again.
const QUESTIONS_PER_TURN: usize = 32;

/// Called with the result on the verification thread.
pub(super) type Answer = Box<dyn FnOnce(Result<Arc<VerifiedClaims>, TokenFault>) + Send>;

/// A token to verify.
pub(super) struct Question {
    pub(super) kind: TokenKind,
    pub(super) token: Box<str>,
    pub(super) answer: Answer,
}

/// The sending side of the verification thread. The thread ends when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    questions: AdmittedSender<Question>,
    judge: Arc<Judge>,
    queue: Queue,
}

impl Place {
    /// Starts the thread.
    pub(super) fn start(judge: Arc<Judge>, waiting_max: usize) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // A token holds its place until the result is known.
        let queue = TOKENS.with_messages(waiting_max);
        let (questions, asked) = queue.admitted_channel();
        let verification = VerificationState {
            judge: Arc::clone(&judge),
            sets: KeySets::default(),
            parked: HashMap::new(),
            woken: Vec::new(),
            fetches: FuturesUnordered::new(),
            started: Instant::now(),
        };
        thread::Builder::new().name("tokens".to_owned()).spawn(move || {
            runtime.block_on(verification.run(asked));
            runtime.shutdown_background();
        })?;
        Ok(Self { questions, judge, queue })
    }

    /// Requests a verification. Never blocks: if too many tokens wait, the result is [`TokenFault::Busy`] at once.
    pub(super) fn ask(&self, kind: TokenKind, token: &str, answer: Answer) {
        if !self.judge.counters.admit(token.len(), &self.queue) {
            return answer(Err(TokenFault::Busy));
        }
        let question = Question { kind, token: token.into(), answer };
        if let Err(mpsc::error::SendError(question)) = self.questions.send(question) {
            self.judge.counters.dismiss(question.token.len());
            (question.answer)(Err(TokenFault::Busy));
        }
    }
}

type Fetch = Pin<Box<dyn Future<Output = (SecretUrl, Arc<JwksOptions>, Option<Fetched>)> + Send>>;

/// The state of the verification thread.
struct VerificationState {
    judge: Arc<Judge>,
    sets: KeySets,
    /// Requests that wait for a fetch, by URL.
    parked: HashMap<SecretUrl, Vec<Question>>,
    /// Requests whose fetch has ended.
    woken: Vec<Question>,
    fetches: FuturesUnordered<Fetch>,
    started: Instant,
}

/// The next step of a request.
enum Decision {
    Answer(Result<Arc<VerifiedClaims>, TokenFault>),
    /// Wait for the fetch from this URL.
    Wait(SecretUrl),
}

/// The key that a request needs.
enum Needs {
    Static(PublicKey),
    Named { url: SecretUrl, key_id: Box<str>, options: Arc<JwksOptions> },
}

impl VerificationState {
    async fn run(mut self, mut asked: AdmittedReceiver<Question>) {
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

    /// Completes a request, or parks it until its keys are fetched. After that fetch there is no second one.
    fn meet(&mut self, question: Question, has_waited: bool) {
        match self.decide(&question, has_waited) {
            Decision::Answer(outcome) => {
                self.judge.counters.dismiss(question.token.len());
                (question.answer)(outcome);
            }
            Decision::Wait(url) => self.parked.entry(url).or_default().push(question),
        }
    }

    fn decide(&mut self, question: &Question, has_waited: bool) -> Decision {
        let now_unix_ms = now_unix_ms();
        // The same token may have been verified since the request was sent.
        let fingerprint = Fingerprint::of(question.kind, &question.token);
        if let Some(known) = self.judge.cache.get(&fingerprint, now_unix_ms) {
            return Decision::Answer(known);
        }
        let verify = |key: &PublicKey, again_at_ms| {
            self.judge.verify(question.kind, &question.token, key, now_unix_ms, again_at_ms)
        };
        let (url, key_id, options) = match self.needs(question) {
            Ok(Needs::Static(key)) => return Decision::Answer(verify(&key, u64::MAX)),
            Ok(Needs::Named { url, key_id, options }) => (url, key_id, options),
            Err(fault) => return Decision::Answer(Err(fault)),
        };
        let algorithm = match Signed::parse(&question.token) {
            Ok(signed) => signed.algorithm,
            Err(fault) => return Decision::Answer(Err(fault)),
        };
        let clock_ms = self.now_ms();
        let found = if has_waited {
            self.sets.settle(&url, &key_id, algorithm, clock_ms)
        } else {
            self.sets.look_up(&url, &key_id, algorithm, clock_ms)
        };
        match found {
            LookUp::Key(key) => {
                let again_at_ms = now_unix_ms.saturating_add(options.cache_max_ms);
                let outcome = self.judge.verify(question.kind, &question.token, &key, now_unix_ms, again_at_ms);
                Decision::Answer(outcome)
            }
            LookUp::Fault(fault) => Decision::Answer(Err(fault)),
            LookUp::Wait => Decision::Wait(url),
            LookUp::Fetch => {
                self.start_fetch(url.clone(), options);
                Decision::Wait(url)
            }
        }
    }

    fn needs(&self, question: &Question) -> Result<Needs, TokenFault> {
        let ring = self.judge.ring();
        let keys = ring.keys(question.kind);
        let signed = Signed::parse(&question.token)?;
        let (options, key_id) = match keys.method(&signed)? {
            Method::Hmac(_) => return Err(TokenFault::Algorithm),
            Method::Public(key) => return Ok(Needs::Static(key.clone())),
            Method::KeySet(options, key_id) => (Arc::clone(options), key_id),
        };
        let caught = if options.endpoint.has_places() {
            let json = signed.claims()?;
            Claims::read(&json, question.kind)?.check(&keys.rules)?
        } else {
            Vec::new()
        };
        Ok(Needs::Named { url: options.endpoint.fill(&caught)?, key_id, options })
    }

    fn start_fetch(&mut self, url: SecretUrl, options: Arc<JwksOptions>) {
        let judge = Arc::clone(&self.judge);
        self.fetches.push(Box::pin(async move {
            let outcome = fetch(&url, &options).await;
            judge.counters.count_fetch(outcome.is_ok());
            (judge.on_event)(match &outcome {
                Ok(fetched) => TokenEvent::KeysFetched { url: &url, keys: fetched.keys.len() },
                Err(fault) => TokenEvent::KeysNotFetched { url: &url, why: fault },
            });
            (url, options, outcome.ok())
        }));
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

pub(super) fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
