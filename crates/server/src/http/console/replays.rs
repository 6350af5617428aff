//! The recordings that the console shows. Each has a process of its own ([`ReplayProcess`]), which ends when nobody has asked
//! for a while.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use dunlin_config::ReplayOptions;
use dunlin_queues::declared::REPLAY_QUESTIONS;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::sleep_until,
};

use super::{
    random_id, refusal,
    replay_process::{Line, ReplayProcess},
};
use crate::telemetry::api_counters::{ControlCounters, HttpRefusal};

/// Time after which a replay ends that nobody asks. An open page asks every 20 seconds.
const IDLE: Duration = Duration::from_mins(1);

/// All replays of this console.
pub(super) struct Replays {
    options: ReplayOptions,
    counters: Arc<ControlCounters>,
    open: Mutex<HashMap<ReplayId, Arc<OpenReplay>>>,
}

/// Names a replay for the page that has opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ReplayId(u64);

/// Which replay a request is about.
#[derive(Debug, Deserialize)]
pub(super) struct ReplayNamed {
    id: String,
}

/// The ticks that a page asks for.
#[derive(Debug, Deserialize)]
pub(super) struct TicksWanted {
    id: String,
    from: u32,
    count: u32,
}

struct OpenReplay {
    state: Mutex<State>,
    asked: Mutex<Instant>,
    questions: mpsc::Sender<Question>,
    /// The page has closed it.
    closed: Notify,
}

enum State {
    Replaying { tick: u32 },
    Ready(Box<RawValue>),
    Failed(String),
}

struct Question {
    from: u32,
    count: u32,
    answer: oneshot::Sender<Result<Box<RawValue>, String>>,
}

impl Replays {
    pub(super) fn new(options: ReplayOptions, counters: Arc<ControlCounters>) -> Arc<Self> {
        Arc::new(Self { options, counters, open: Mutex::default() })
    }

    /// Opens a recording; returns the response, and what the log says of it.
    pub(super) fn open(self: &Arc<Self>, recording: &Path) -> (Response, String) {
        let refused = |status, why: String| (refusal(status, &why), why);
        let limit = self.options.limit;
        let Ok(id) = random_id().map(ReplayId) else {
            return refused(StatusCode::SERVICE_UNAVAILABLE, "no random bytes".to_owned());
        };
        let (questions, asked) = REPLAY_QUESTIONS.tokio_channel();
        let replay = Arc::new(OpenReplay {
            state: Mutex::new(State::Replaying { tick: 0 }),
            asked: Mutex::new(Instant::now()),
            questions,
            closed: Notify::new(),
        });
        {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if open.len() >= limit {
                self.counters.count_refusal(HttpRefusal::Replays);
                let why = match limit {
                    0 => "this node replays no recordings (admin.replays_limit)".to_owned(),
                    _ => format!("{limit} recordings are open already (admin.replays_limit): close one of them"),
                };
                return refused(StatusCode::SERVICE_UNAVAILABLE, why);
            }
            let process = match ReplayProcess::start(recording, self.options.memory_bytes_max) {
                Ok(process) => process,
                Err(error) => {
                    let why = format!("the replay cannot be started: {error}");
                    return refused(StatusCode::SERVICE_UNAVAILABLE, why);
                }
            };
            open.insert(id, Arc::clone(&replay));
            self.counters.set_replays(open.len());
            tokio::spawn(Arc::clone(self).keep(id, replay, process, asked));
        }
        (found(StatusCode::OK, &json!({ "replay": id.text() }).to_string()), "done".to_owned())
    }

    /// The index of a replay, or how far it is.
    pub(super) fn index(&self, named: &ReplayNamed) -> Response {
        let Some(replay) = self.find(&named.id) else { return gone() };
        match &*replay.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Replaying { tick } => found(StatusCode::ACCEPTED, &json!({ "tick": tick }).to_string()),
            State::Ready(index) => found(StatusCode::OK, index.get()),
            State::Failed(why) => refusal(StatusCode::UNPROCESSABLE_ENTITY, why),
        }
    }

    /// Ticks of a replay.
    pub(super) async fn ticks(&self, wanted: &TicksWanted) -> Response {
        let Some(replay) = self.find(&wanted.id) else { return gone() };
        let (answer, answered) = oneshot::channel();
        let question = Question { from: wanted.from, count: wanted.count, answer };
        if let Err(mpsc::error::TrySendError::Full(_)) = replay.questions.try_send(question) {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "the game is busy: ask again");
        }
        match answered.await {
            Ok(Ok(ticks)) => found(StatusCode::OK, ticks.get()),
            Ok(Err(why)) => refusal(StatusCode::UNPROCESSABLE_ENTITY, &why),
            // The replay was closed meanwhile.
            Err(_) => gone(),
        }
    }

    /// Ends a replay.
    pub(super) fn close(&self, named: &ReplayNamed) -> Response {
        if let Some(replay) = self.find(&named.id) {
            replay.closed.notify_one();
        }
        found(StatusCode::OK, "{}")
    }

    fn find(&self, id: &str) -> Option<Arc<OpenReplay>> {
        let id = u64::from_str_radix(id, 16).map(ReplayId).ok()?;
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let replay = open.get(&id).map(Arc::clone)?;
        *replay.asked.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Some(replay)
    }

    /// Keeps a replay until it is closed, or nobody asks any more.
    async fn keep(
        self: Arc<Self>,
        id: ReplayId,
        replay: Arc<OpenReplay>,
        mut process: ReplayProcess,
        mut asked: mpsc::Receiver<Question>,
    ) {
        tokio::select! {
            () = replay.until_idle() => {}
            () = replay.closed.notified() => {}
            // It has a sender of questions itself.
            () = replay.answer(&mut process, &mut asked) => {}
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&id);
        self.counters.set_replays(open.len());
    }
}

impl OpenReplay {
    async fn until_idle(&self) {
        loop {
            let idle_at = *self.asked.lock().unwrap_or_else(PoisonError::into_inner) + IDLE;
            if idle_at <= Instant::now() {
                return;
            }
            sleep_until(idle_at.into()).await;
        }
    }

    /// Answers questions. Of a replay that has failed, the page is still told why.
    async fn answer(&self, process: &mut ReplayProcess, asked: &mut mpsc::Receiver<Question>) {
        let mut failed = self.first_replay(process).await.err();
        while let Some(Question { from, count, answer }) = asked.recv().await {
            if let Some(why) = &failed {
                let _ = answer.send(Err(why.clone()));
                continue;
            }
            let answered = ask(process, from, count).await;
            if let Err(Unanswered::Ever(why)) = &answered {
                self.set(State::Failed(why.clone()));
                failed = Some(why.clone());
            }
            // The page may have gone meanwhile.
            let _ = answer.send(answered.map_err(|(Unanswered::Now(why) | Unanswered::Ever(why))| why));
        }
    }

    async fn first_replay(&self, process: &mut ReplayProcess) -> Result<(), String> {
        let failed = loop {
            match process.line().await {
                Ok(Line::Tick(tick)) => self.set(State::Replaying { tick }),
                Ok(Line::Index(index)) => {
                    self.set(State::Ready(index));
                    return Ok(());
                }
                Ok(Line::Ticks(_)) => break "the replay has written nonsense".to_owned(),
                Ok(Line::Error(why)) | Err(why) => break why,
            }
        };
        self.set(State::Failed(failed.clone()));
        Err(failed)
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// Why a question has no answer.
enum Unanswered {
    /// Another one may have one.
    Now(String),
    /// The process has ended, or does not return.
    Ever(String),
}

impl ReplayId {
    fn text(self) -> String {
        format!("{:016x}", self.0)
    }
}

async fn ask(process: &mut ReplayProcess, from: u32, count: u32) -> Result<Box<RawValue>, Unanswered> {
    process.ask(from, count).await.map_err(Unanswered::Ever)?;
    match process.line().await {
        Ok(Line::Ticks(ticks)) => Ok(ticks),
        Ok(Line::Error(why)) => Err(Unanswered::Now(why)),
        Ok(Line::Tick(_) | Line::Index(_)) => Err(Unanswered::Ever("the replay has written nonsense".to_owned())),
        Err(why) => Err(Unanswered::Ever(why)),
    }
}

fn found(status: StatusCode, body: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_owned()).into_response()
}

fn gone() -> Response {
    refusal(StatusCode::NOT_FOUND, "this replay has ended: open the recording again")
}
