//! The recordings that the console shows. Each has a process of its own ([`ReplayProcess`]), which ends when nobody has asked
//! for a while.
//!
//! An answer that is not there at once is asked for again: until then, the page is told how far the replay is.

use std::{
    collections::{HashMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use dunlin_config::ReplayOptions;
use dunlin_queues::declared::REPLAY_QUESTIONS;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{sleep_until, timeout},
};

use super::{
    peer_recording::PeerRecording,
    random_id, refusal,
    replay_process::{Line, ReplayInput, ReplayProcess},
    sign_in_cookies::SignIn,
};
use crate::telemetry::api_counters::{ControlCounters, HttpRefusal};

/// Time after which a replay ends that nobody asks. An open page asks every 20 seconds.
const IDLE: Duration = Duration::from_mins(1);

/// Time after which a request for ticks is told how far the replay is.
const TICKS_WAIT: Duration = Duration::from_secs(1);

/// Maximum answers of a replay that wait until they are asked for again: the piece that the page shows, and the next one, of two
/// pages. Of further ones, the oldest is forgotten.
const PENDING_MAX: usize = 4;

/// Where a recording is.
pub(super) enum RecordingSource {
    File(PathBuf),
    Peer(PeerRecording),
}

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
#[derive(Clone, Debug, Deserialize)]
pub(super) struct TicksWanted {
    id: String,
    from: u32,
    count: u32,
}

struct OpenReplay {
    /// Who has opened it; `None` if nobody has to sign in.
    sign_in: Option<SignIn>,
    state: Mutex<State>,
    asked: Mutex<Instant>,
    questions: mpsc::Sender<Question>,
    /// Those that were not there in time.
    pending: Mutex<VecDeque<PendingAnswer>>,
    /// The page has closed it.
    closed: Notify,
}

enum State {
    /// The recording comes from another node.
    Fetching {
        fetched: u64,
        bytes: u64,
    },
    Replaying {
        tick: u32,
    },
    /// The index, and the tick that a later replay has reached.
    Ready {
        index: Bytes,
        tick: u32,
    },
    Failed(String),
}

struct Question {
    from: u32,
    count: u32,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Bytes, String>;

struct PendingAnswer {
    from: u32,
    count: u32,
    answered: oneshot::Receiver<Answer>,
}

impl Replays {
    pub(super) fn new(options: ReplayOptions, counters: Arc<ControlCounters>) -> Arc<Self> {
        Arc::new(Self { options, counters, open: Mutex::default() })
    }

    /// Opens a recording; returns the response, and what the log says of it.
    pub(super) fn open(self: &Arc<Self>, source: RecordingSource, sign_in: Option<SignIn>) -> (Response, String) {
        let refused = |status, why: String| (refusal(status, &why), why);
        let Ok(id) = random_id().map(ReplayId) else {
            return refused(StatusCode::SERVICE_UNAVAILABLE, "no random bytes".to_owned());
        };
        let (questions, asked) = REPLAY_QUESTIONS.tokio_channel();
        let replay = Arc::new(OpenReplay::new(sign_in, questions));
        {
            let mut open = lock(&self.open);
            if let Some(why) = self.no_place(&open, sign_in) {
                self.counters.count_refusal(HttpRefusal::Replays);
                return refused(StatusCode::SERVICE_UNAVAILABLE, why);
            }
            let input = match &source {
                RecordingSource::File(path) => ReplayInput::File(path),
                RecordingSource::Peer(recording) => ReplayInput::Bytes(recording.bytes()),
            };
            let process = match ReplayProcess::start(input, self.options.memory_bytes_max) {
                Ok(process) => process,
                Err(error) => {
                    let why = format!("the replay cannot be started: {error}");
                    return refused(StatusCode::SERVICE_UNAVAILABLE, why);
                }
            };
            open.insert(id, Arc::clone(&replay));
            self.counters.set_replays(open.len());
            let peer = match source {
                RecordingSource::File(_) => None,
                RecordingSource::Peer(recording) => Some(recording),
            };
            tokio::spawn(Arc::clone(self).keep(id, replay, process, (asked, peer)));
        }
        (found(StatusCode::OK, json!({ "replay": id.text() }).to_string()), "done".to_owned())
    }

    /// Why no other recording may be opened; `None` if one may be.
    fn no_place(&self, open: &HashMap<ReplayId, Arc<OpenReplay>>, sign_in: Option<SignIn>) -> Option<String> {
        let (limit, own_limit) = (self.options.limit, self.options.sign_in_limit);
        let own = open.values().filter(|replay| sign_in.is_some() && replay.sign_in == sign_in).count();
        if limit == 0 {
            Some("this node replays no recordings (admin.replays_limit)".to_owned())
        } else if open.len() >= limit {
            Some(format!("{limit} recordings are open already (admin.replays_limit): close one of them"))
        } else if own >= own_limit && sign_in.is_some() {
            Some(format!(
                "your limit of {own_limit} open recordings is reached (admin.sign_in_replays_limit): close one of them"
            ))
        } else {
            None
        }
    }

    /// The index of a replay, or how far it is.
    pub(super) fn index(&self, named: &ReplayNamed) -> Response {
        let Some(replay) = self.find(&named.id) else { return gone() };
        match &*lock(&replay.state) {
            State::Fetching { fetched, bytes } => {
                found(StatusCode::ACCEPTED, json!({ "fetched": fetched, "bytes": bytes }).to_string())
            }
            State::Replaying { tick } => found(StatusCode::ACCEPTED, json!({ "tick": tick }).to_string()),
            State::Ready { index, .. } => found(StatusCode::OK, index.clone()),
            State::Failed(why) => refusal(StatusCode::UNPROCESSABLE_ENTITY, why),
        }
    }

    /// Keeps a replay open whose page asks for nothing.
    pub(super) fn touch(&self, named: &ReplayNamed) -> Response {
        self.find(&named.id).map_or_else(gone, |_| found(StatusCode::OK, "{}"))
    }

    /// Ticks of a replay; or how far it is, and the page asks again.
    pub(super) async fn ticks(&self, wanted: &TicksWanted) -> Response {
        match self.find(&wanted.id) {
            Some(replay) => replay.ticks(wanted.from, wanted.count).await,
            None => gone(),
        }
    }

    /// Ends a replay.
    pub(super) fn close(&self, named: &ReplayNamed) -> Response {
        if let Some(replay) = self.find(&named.id) {
            replay.closed.notify_one();
        }
        found(StatusCode::OK, "{}")
    }

    /// Ends all replays of somebody who signs out.
    pub(super) fn close_all_of(&self, sign_in: SignIn) {
        let open = lock(&self.open);
        open.values().filter(|replay| replay.sign_in == Some(sign_in)).for_each(|replay| replay.closed.notify_one());
    }

    fn find(&self, id: &str) -> Option<Arc<OpenReplay>> {
        let id = u64::from_str_radix(id, 16).map(ReplayId).ok()?;
        let replay = lock(&self.open).get(&id).map(Arc::clone)?;
        *lock(&replay.asked) = Instant::now();
        Some(replay)
    }

    /// Keeps a replay until it is closed, or nobody asks any more.
    async fn keep(
        self: Arc<Self>,
        id: ReplayId,
        replay: Arc<OpenReplay>,
        mut process: ReplayProcess,
        (mut asked, peer): (mpsc::Receiver<Question>, Option<PeerRecording>),
    ) {
        tokio::select! {
            () = replay.until_idle() => {}
            () = replay.closed.notified() => {}
            // It has a sender of questions itself.
            () = replay.answer(&mut process, &mut asked, peer) => {}
        }
        let mut open = lock(&self.open);
        open.remove(&id);
        self.counters.set_replays(open.len());
    }
}

impl OpenReplay {
    fn new(sign_in: Option<SignIn>, questions: mpsc::Sender<Question>) -> Self {
        Self {
            sign_in,
            state: Mutex::new(State::Replaying { tick: 0 }),
            asked: Mutex::new(Instant::now()),
            questions,
            pending: Mutex::default(),
            closed: Notify::new(),
        }
    }

    async fn until_idle(&self) {
        loop {
            let idle_at = *lock(&self.asked) + IDLE;
            if idle_at <= Instant::now() {
                return;
            }
            sleep_until(idle_at.into()).await;
        }
    }

    /// Answers questions. Of a replay that has failed, the page is still told why.
    async fn answer(
        &self,
        process: &mut ReplayProcess,
        asked: &mut mpsc::Receiver<Question>,
        peer: Option<PeerRecording>,
    ) {
        let mut failed = self.first_replay(process, peer).await.err();
        while let Some(Question { from, count, answer }) = asked.recv().await {
            if let Some(why) = &failed {
                let _ = answer.send(Err(why.clone()));
                continue;
            }
            let answered = self.ask(process, from, count).await;
            if let Err(Unanswered::Ever(why)) = &answered {
                self.set(State::Failed(why.clone()));
                failed = Some(why.clone());
            }
            // The page may have gone meanwhile.
            let _ = answer.send(answered.map_err(|(Unanswered::Now(why) | Unanswered::Ever(why))| why));
        }
    }

    async fn first_replay(&self, process: &mut ReplayProcess, peer: Option<PeerRecording>) -> Result<(), String> {
        let replayed = match peer {
            Some(peer) => match self.fetch(process, peer).await {
                Ok(()) => self.index(process).await,
                Err(why) => Err(why),
            },
            None => self.index(process).await,
        };
        if let Err(why) = &replayed {
            self.set(State::Failed(why.clone()));
        }
        replayed
    }

    /// Gives the process a recording of another node, one part after the other.
    async fn fetch(&self, process: &mut ReplayProcess, mut peer: PeerRecording) -> Result<(), String> {
        let bytes = peer.bytes();
        while let Some(part) = peer.next_part().await? {
            process.feed(&part).await?;
            self.set(State::Fetching { fetched: peer.fetched(), bytes });
        }
        self.set(State::Replaying { tick: 0 });
        Ok(())
    }

    async fn index(&self, process: &mut ReplayProcess) -> Result<(), String> {
        loop {
            match process.line().await {
                Ok(Line::Tick(tick)) => self.set(State::Replaying { tick }),
                Ok(Line::Index(index)) => {
                    self.set(State::Ready { index: bytes_of(index), tick: 0 });
                    return Ok(());
                }
                Ok(Line::Ticks(_)) => return Err(NONSENSE.to_owned()),
                Ok(Line::Error(why)) | Err(why) => return Err(why),
            }
        }
    }

    async fn ask(&self, process: &mut ReplayProcess, from: u32, count: u32) -> Result<Bytes, Unanswered> {
        process.ask(from, count).await.map_err(Unanswered::Ever)?;
        loop {
            match process.line().await {
                // What comes before these ticks is replayed.
                Ok(Line::Tick(reached)) => {
                    if let State::Ready { tick, .. } = &mut *lock(&self.state) {
                        *tick = reached;
                    }
                }
                Ok(Line::Ticks(ticks)) => return Ok(bytes_of(ticks)),
                Ok(Line::Error(why)) => return Err(Unanswered::Now(why)),
                Ok(Line::Index(_)) => return Err(Unanswered::Ever(NONSENSE.to_owned())),
                Err(why) => return Err(Unanswered::Ever(why)),
            }
        }
    }

    /// Answers a request for ticks. If they are not there in time, they are kept until they are asked for again.
    async fn ticks(&self, from: u32, count: u32) -> Response {
        let Some(mut answered) = self.take_pending(from, count).or_else(|| self.question(from, count)) else {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "the game is busy: ask again");
        };
        match timeout(TICKS_WAIT, &mut answered).await {
            Ok(Ok(Ok(ticks))) => found(StatusCode::OK, ticks),
            Ok(Ok(Err(why))) => refusal(StatusCode::UNPROCESSABLE_ENTITY, &why),
            // The replay was closed meanwhile.
            Ok(Err(_)) => gone(),
            Err(_) => {
                self.keep_pending(PendingAnswer { from, count, answered });
                found(StatusCode::ACCEPTED, json!({ "tick": self.tick() }).to_string())
            }
        }
    }

    /// Asks for ticks; `None` if too many questions wait.
    fn question(&self, from: u32, count: u32) -> Option<oneshot::Receiver<Answer>> {
        let (answer, answered) = oneshot::channel();
        let sent = self.questions.try_send(Question { from, count, answer });
        (!matches!(sent, Err(mpsc::error::TrySendError::Full(_)))).then_some(answered)
    }

    fn take_pending(&self, from: u32, count: u32) -> Option<oneshot::Receiver<Answer>> {
        let mut pending = lock(&self.pending);
        let place = pending.iter().position(|answer| (answer.from, answer.count) == (from, count))?;
        pending.remove(place).map(|answer| answer.answered)
    }

    fn keep_pending(&self, answer: PendingAnswer) {
        let mut pending = lock(&self.pending);
        if pending.len() >= PENDING_MAX {
            pending.pop_front();
        }
        pending.push_back(answer);
    }

    /// How far the replay is.
    fn tick(&self) -> u32 {
        match &*lock(&self.state) {
            State::Replaying { tick } | State::Ready { tick, .. } => *tick,
            State::Fetching { .. } | State::Failed(_) => 0,
        }
    }

    fn set(&self, state: State) {
        *lock(&self.state) = state;
    }
}

const NONSENSE: &str = "the replay has written nonsense";

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

/// The text, which is not copied.
fn bytes_of(json: Box<RawValue>) -> Bytes {
    Bytes::from(Box::<str>::from(json).into_boxed_bytes())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn found(status: StatusCode, body: impl Into<Body>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

fn gone() -> Response {
    refusal(StatusCode::NOT_FOUND, "this replay has ended: open the recording again")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SIGN_INS: usize = 3;

    fn sign_in(id: u64) -> SignIn {
        SignIn::for_test(id)
    }

    fn replay(sign_in: Option<SignIn>) -> (Arc<OpenReplay>, mpsc::Receiver<Question>) {
        let (questions, asked) = REPLAY_QUESTIONS.tokio_channel();
        (Arc::new(OpenReplay::new(sign_in, questions)), asked)
    }

    async fn body_of(response: Response) -> (u16, String) {
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
        (status, String::from_utf8(body.to_vec()).expect("a text"))
    }

    #[test]
    fn each_sign_in_has_its_share_of_the_places() {
        let options = ReplayOptions { limit: SIGN_INS * 2 - 1, sign_in_limit: 2, memory_bytes_max: 1 };
        let replays = Replays::new(options, Arc::default());
        let mut open = HashMap::new();
        let mut opens = |by: Option<SignIn>| {
            let refused = replays.no_place(&open, by);
            if refused.is_none() {
                open.insert(ReplayId(open.len() as u64), replay(by).0);
            }
            refused
        };
        assert_eq!([opens(Some(sign_in(1))), opens(Some(sign_in(1)))], [None, None]);
        let why = "your limit of 2 open recordings is reached (admin.sign_in_replays_limit): close one of them";
        assert_eq!(opens(Some(sign_in(1))).as_deref(), Some(why));
        assert_eq!(opens(Some(sign_in(2))), None, "others have theirs");
        assert_eq!([opens(None), opens(None)], [None, None], "who has not signed in is nobody in particular");
        let why = "5 recordings are open already (admin.replays_limit): close one of them";
        assert_eq!(opens(Some(sign_in(3))).as_deref(), Some(why));
    }

    /// The process waits in the middle of an answer until the test opens the gate.
    #[tokio::test]
    async fn an_answer_that_takes_long_says_how_far_it_is_and_is_there_when_it_is_asked_for_again() {
        let gate = std::env::temp_dir().join(format!("dunlin-replay-gate-{}", std::process::id()));
        let _ = fs::remove_file(&gate);
        let script = format!(
            r#"mkfifo {gate}; echo '{{"tick":7}}'; echo '{{"index":{{"ticks":900}}}}'; read q; echo '{{"tick":850}}'; read g < {gate}
            echo '{{"tick":860}}'; echo '{{"ticks":[1]}}'; read q; echo '{{"error":"no"}}'"#,
            gate = gate.display()
        );
        let mut process = ReplayProcess::of_script(&script).expect("a shell");
        let (replay, mut asked) = replay(None);
        let answering = tokio::spawn({
            let replay = Arc::clone(&replay);
            async move { replay.answer(&mut process, &mut asked, None).await }
        });
        while !matches!(&*lock(&replay.state), State::Ready { .. }) {
            tokio::task::yield_now().await;
        }
        assert_eq!(body_of(replay.ticks(880, 2).await).await, (202, r#"{"tick":850}"#.to_owned()));
        // It is not asked for a second time: the shell would answer with an error.
        assert_eq!(body_of(replay.ticks(880, 2).await).await, (202, r#"{"tick":850}"#.to_owned()));
        fs::write(&gate, "open\n").expect("the shell reads it");
        assert_eq!(body_of(replay.ticks(880, 2).await).await, (200, "[1]".to_owned()));
        assert_eq!(body_of(replay.ticks(880, 2).await).await, (422, r#"{"refused":"no"}"#.to_owned()), "it is gone");
        answering.abort();
        fs::remove_file(&gate).expect("the shell has made it");
    }

    #[test]
    fn as_many_answers_are_kept_as_may_be_and_of_one_more_the_oldest_is_forgotten() {
        let (replay, _asked) = replay(None);
        let keep = |from| replay.keep_pending(PendingAnswer { from, count: 1, answered: oneshot::channel().1 });
        (0..PENDING_MAX as u32).for_each(keep);
        assert!(replay.take_pending(0, 1).is_some() && replay.take_pending(1, 2).is_none());
        (7..9).for_each(keep);
        let kept: Vec<u32> = lock(&replay.pending).iter().map(|answer| answer.from).collect();
        assert_eq!(kept, [2, 3, 7, 8]);
    }
}
