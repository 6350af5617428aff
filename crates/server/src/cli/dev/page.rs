//! The page of a game during `dunlin dev`: its files, and what the build says.

use std::{
    fs,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;
use tokio::net::TcpListener;

use crate::demo::site::is_to_this_machine;

/// Maximum size of a file of the page.
const FILE_BYTES_MAX: u64 = 64 << 20;

const SCRIPT: &str = include_str!("dev.js");
const SCRIPT_ELEMENT: &str = r#"<script type="module" src="/dunlin-dev/dev.js"></script>"#;

/// What happens to the game.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Phase {
    Building,
    Running,
    /// The last build has failed. The server of the build before goes on.
    Failed,
    /// The server has ended on its own.
    Ended,
}

#[derive(Clone, Debug, Serialize)]
struct Shown {
    phase: Phase,
    text: String,
    /// Another number has the page load itself again.
    version: u64,
}

pub(super) struct Page {
    folder: PathBuf,
    shown: Mutex<Shown>,
}

impl Page {
    pub(super) fn new(folder: PathBuf) -> Self {
        // A page that stays open while `dunlin dev` is started again sees other numbers.
        let version = u64::from(std::process::id()) << 20;
        Self { folder, shown: Mutex::new(Shown { phase: Phase::Building, text: String::new(), version }) }
    }

    pub(super) fn show(&self, phase: Phase, text: &str) {
        let mut shown = self.shown();
        (shown.phase, shown.text) = (phase, text.to_owned());
    }

    pub(super) fn reload(&self) {
        self.shown().version += 1;
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file of the page: its type and its bytes.
    fn file(&self, path: &str) -> Option<(&'static str, Vec<u8>)> {
        let path = path.trim_start_matches('/');
        let path = Path::new(if path.is_empty() { "index.html" } else { path });
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return None;
        }
        // A link may lead out of the folder.
        let (file, folder) = (fs::canonicalize(self.folder.join(path)).ok()?, fs::canonicalize(&self.folder).ok()?);
        let metadata = file.metadata().ok()?;
        if !file.starts_with(folder) || !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
            return None;
        }
        let bytes = fs::read(&file).ok()?;
        let kind = type_of(&file);
        Some((kind, if kind.starts_with("text/html") { with_script(bytes) } else { bytes }))
    }
}

fn type_of(file: &Path) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "wasm" => "application/wasm",
        "mp3" => "audio/mpeg",
        "ogg" => "audio/ogg",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

/// The page with the script that shows errors in it.
fn with_script(page: Vec<u8>) -> Vec<u8> {
    match String::from_utf8(page) {
        Ok(text) if text.contains("</head>") => {
            text.replacen("</head>", &format!("{SCRIPT_ELEMENT}\n</head>"), 1).into_bytes()
        }
        Ok(text) => format!("{text}\n{SCRIPT_ELEMENT}\n").into_bytes(),
        Err(other) => other.into_bytes(),
    }
}

/// Serves the page until the process ends.
pub(super) async fn serve(listener: TcpListener, page: Arc<Page>) {
    // It returns no errors: those of a connection end the connection.
    let _ = axum::serve(listener, router(page)).await;
}

fn router(page: Arc<Page>) -> Router {
    Router::new()
        .route("/dunlin-dev/state", get(state))
        .route("/dunlin-dev/dev.js", get(async || typed("text/javascript; charset=utf-8", SCRIPT)))
        .fallback(get(file))
        .with_state(page)
}

async fn state(State(page): State<Arc<Page>>, headers: HeaderMap) -> Response {
    // Another site may give its name this machine's address, to read what the compiler quotes of the sources.
    if !is_to_this_machine(&headers) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let shown = page.shown().clone();
    ([(header::CACHE_CONTROL, "no-store")], Json(shown)).into_response()
}

async fn file(State(page): State<Arc<Page>>, uri: Uri) -> Response {
    match page.file(uri.path()) {
        Some((kind, bytes)) => typed(kind, bytes),
        None => (StatusCode::NOT_FOUND, format!("there is no file page{}\n", uri.path())).into_response(),
    }
}

fn typed(kind: &'static str, body: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_page_are_served() {
        let folder = std::env::temp_dir().join(format!("dunlin-dev-page-{}", std::process::id()));
        fs::create_dir_all(folder.join("page/deep")).expect("a folder");
        for path in ["page/index.html", "page/game.js", "page/deep/map.png", "secret"] {
            fs::write(folder.join(path), "<head></head>").expect("a file");
        }
        std::os::unix::fs::symlink(folder.join("secret"), folder.join("page/link")).expect("a link");
        let page = Page::new(folder.join("page"));
        let kind = |path: &str| page.file(path).map(|(kind, _)| kind);
        assert_eq!(kind("/"), Some("text/html; charset=utf-8"));
        assert_eq!(kind("/game.js"), Some("text/javascript; charset=utf-8"));
        assert_eq!(kind("/deep/map.png"), Some("image/png"));
        for path in ["/../secret", "/deep/../../secret", "/link", "/deep", "/none", "//etc/passwd"] {
            assert_eq!(kind(path), None, "{path}");
        }
        let (_, index) = page.file("/").expect("the page");
        assert_eq!(index, format!("<head>{SCRIPT_ELEMENT}\n</head>").into_bytes());
        let (_, script) = page.file("/game.js").expect("the script");
        assert_eq!(script, b"<head></head>", "only pages get the script");
        fs::remove_dir_all(folder).expect("it is removed");
    }

    #[tokio::test]
    async fn other_names_of_this_machine_are_refused() {
        let page = Arc::new(Page::new(PathBuf::new()));
        for (host, expected) in [("localhost:3000", StatusCode::OK), ("evil.example:3000", StatusCode::FORBIDDEN)] {
            let headers = HeaderMap::from_iter([(header::HOST, host.parse().expect("a host"))]);
            assert_eq!(state(State(Arc::clone(&page)), headers).await.status(), expected, "{host}");
        }
    }

    #[test]
    fn what_is_shown_is_json() {
        let page = Page::new(PathBuf::new());
        let before = page.shown().version;
        page.show(Phase::Failed, "error: <no>");
        page.reload();
        let json = serde_json::to_value(page.shown().clone()).expect("JSON");
        assert_eq!(json, serde_json::json!({ "phase": "failed", "text": "error: <no>", "version": before + 1 }));
    }
}
