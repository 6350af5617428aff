//! `dunlin replay FILE --page`: a page that shows a recording.
//!
//! The game runs on a thread of its own, which answers one question after another: a recording may belong to another build of the
//! game, whose code may panic or take long.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError},
    },
    thread,
};

use axum::{
    Json, Router,
    extract::{Query, Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use dunlin_games::Registry;
use dunlin_queues::declared::REPLAY_QUESTIONS;
use dunlin_rooms::recording::Header;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{
    Failure,
    film::{CHECKPOINT_BYTES_MAX, Film, Ticks},
    make,
};
use crate::{
    cli::page,
    demo::site::{self, Site},
};

/// The files of this page alone.
const PAGE: [(&str, &str); 9] = [
    ("/index.html", include_str!("page/index.html")),
    ("/replay.css", include_str!("page/replay.css")),
    ("/replay.js", include_str!("page/replay.js")),
    ("/player.css", include_str!("page/player.css")),
    ("/player.js", include_str!("page/player.js")),
    ("/film.js", include_str!("page/film.js")),
    ("/map.js", include_str!("page/map.js")),
    ("/why.js", include_str!("page/why.js")),
    ("/timeline.js", include_str!("page/timeline.js")),
];

const PANICKED: &str = "the game has panicked: its message is in the terminal";

struct Question {
    ticks: Ticks,
    answer: oneshot::Sender<Result<Value, String>>,
}

/// What the page's handlers know of the thread with the game.
struct Shared {
    /// The last tick of the first replay.
    tick: AtomicU32,
    /// The index, or why there is none.
    index: OnceLock<Result<Value, String>>,
    questions: SyncSender<Question>,
}

pub(super) fn run(path: &Path, recording: Vec<u8>, port: u16, registry: &Registry) -> Result<(), Failure> {
    let refused = |text: String| Failure::Replay(path.to_owned(), text);
    let header = Header::read(&recording).map_err(|error| refused(error.to_string()))?;
    // What is wrong with the recording's game is said here, not on the page.
    make(&header, registry).map_err(refused)?;
    let files = PAGE.iter().chain(&page::SHARED).map(|(name, text)| (*name, text.as_bytes()));
    let site = Site::private(files, None).map_err(|error| Failure::File("the page".into(), error))?;
    let (questions, asked) = REPLAY_QUESTIONS.std_channel();
    let shared = Arc::new(Shared { tick: AtomicU32::new(0), index: OnceLock::new(), questions });
    let (of_thread, registry) = (Arc::clone(&shared), registry.clone());
    thread::Builder::new()
        .name("replay".to_owned())
        .spawn(move || answer_questions(&recording, &header, &registry, &of_thread, &asked))
        .map_err(Failure::Runtime)?;
    page::serve("replay", SocketAddr::from((Ipv4Addr::LOCALHOST, port)), router(site, shared))
}

fn router(site: Site, shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/index", get(index))
        .route("/ticks", get(ticks))
        .with_state(shared)
        .fallback_service(get(site::answer).with_state(Arc::new(site)))
        .layer(middleware::from_fn(for_this_machine))
}

/// Recordings have names and addresses of players. Another site may give its own name this machine's address, to read them.
async fn for_this_machine(request: Request, next: Next) -> Response {
    if !site::is_to_this_machine(request.headers()) {
        return (StatusCode::FORBIDDEN, "open this page as http://localhost\n").into_response();
    }
    let mut response = next.run(request).await;
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

async fn index(State(shared): State<Arc<Shared>>) -> Response {
    match shared.index.get() {
        None => (StatusCode::ACCEPTED, Json(json!({ "tick": shared.tick.load(Ordering::Relaxed) }))).into_response(),
        Some(Ok(index)) => Json(index).into_response(),
        Some(Err(error)) => refusal(StatusCode::UNPROCESSABLE_ENTITY, error),
    }
}

async fn ticks(State(shared): State<Arc<Shared>>, Query(ticks): Query<Ticks>) -> Response {
    let (answer, answered) = oneshot::channel();
    if let Err(TrySendError::Full(_)) = shared.questions.try_send(Question { ticks, answer }) {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "the game is busy: ask again");
    }
    // The thread drops the question if it has ended.
    match answered.await {
        Ok(Ok(frames)) => Json(frames).into_response(),
        Ok(Err(error)) => refusal(StatusCode::UNPROCESSABLE_ENTITY, &error),
        Err(_) => refusal(StatusCode::INTERNAL_SERVER_ERROR, PANICKED),
    }
}

fn refusal(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}

/// Tells the page if the game panics in the first replay.
struct PanicNote<'a>(&'a Shared);

impl Drop for PanicNote<'_> {
    fn drop(&mut self) {
        // It is set already if there was no panic.
        let _ = self.0.index.set(Err(PANICKED.to_owned()));
    }
}

fn answer_questions(
    recording: &[u8],
    header: &Header,
    registry: &Registry,
    shared: &Shared,
    asked: &Receiver<Question>,
) {
    let _note = PanicNote(shared);
    let new_game = || make(header, registry);
    let progress = |tick| shared.tick.store(tick, Ordering::Relaxed);
    let film = Film::new(recording, header, &new_game, CHECKPOINT_BYTES_MAX, progress);
    let index = film
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|film| serde_json::to_value(&film.index).map_err(|error| error.to_string()));
    // Only this thread sets it.
    let _ = shared.index.set(index);
    for Question { ticks, answer } in asked {
        let Ticks { from, count } = ticks;
        let frames = film.as_ref().map_err(Clone::clone).and_then(|film| film.ticks(from, count, |_| {}));
        // The page may have been closed meanwhile.
        let _ = answer.send(frames);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_the_page_is_in_the_program() {
        page::tests::assert_has_files_of("src/cli/replay/page", &PAGE);
    }
}
