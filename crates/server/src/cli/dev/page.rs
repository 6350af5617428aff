//! The page of a game during `dunlin dev`: its files, and what the build says.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Json, Router, extract,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;
use tokio::net::TcpListener;

use super::lifecycle::Shown;
use crate::demo::site::is_to_this_machine;

/// Maximum size of a file of the page.
const FILE_BYTES_MAX: u64 = 64 << 20;

const SCRIPT: &str = include_str!("dev.js");
const SCRIPT_ELEMENT: &str = r#"<script type="module" src="/dunlin-dev/dev.js"></script>"#;

/// What the script of the page reads.
#[derive(Clone, Debug, Serialize)]
struct State {
    phase: &'static str,
    title: &'static str,
    text: String,
    /// Another number has the page load itself again.
    version: u64,
}

pub(super) struct Page {
    folder: PathBuf,
    state: Mutex<State>,
}

impl Page {
    pub(super) fn new(folder: PathBuf) -> Self {
        // A page that stays open while `dunlin dev` is started again sees other numbers.
        let version = u64::from(std::process::id()) << 20;
        let state = State { phase: "building", title: "", text: String::new(), version };
        Self { folder, state: Mutex::new(state) }
    }

    pub(super) fn show(&self, shown: Shown<'_>) {
        let mut state = self.state();
        (state.phase, state.title, state.text) = (shown.phase, shown.title, shown.text.to_owned());
    }

    pub(super) fn reload(&self) {
        self.state().version += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file of the page, by the path of its address.
    fn file(&self, path: &str) -> File {
        self.found(path).unwrap_or(File::Missing)
    }

    fn found(&self, path: &str) -> Option<File> {
        let path = decoded(path)?;
        let path = path.trim_start_matches('/');
        let path = Path::new(if path.is_empty() { "index.html" } else { path });
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return None;
        }
        // A link may lead out of the folder.
        let (file, folder) = (fs::canonicalize(self.folder.join(path)).ok()?, fs::canonicalize(&self.folder).ok()?);
        let metadata = file.metadata().ok()?;
        if !file.starts_with(folder) || !metadata.is_file() {
            return None;
        }
        if metadata.len() > FILE_BYTES_MAX {
            return Some(File::Unreadable(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        let kind = type_of(&file);
        let with_script = |bytes| if kind.starts_with("text/html") { with_script(bytes) } else { bytes };
        match fs::read(&file) {
            Ok(bytes) => Some(File::Found(kind, with_script(bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(File::Unreadable(error.to_string())),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum File {
    /// Its type and its bytes.
    Found(&'static str, Vec<u8>),
    Missing,
    /// Why it cannot be served.
    Unreadable(String),
}

/// A path in which browsers have written bytes as `%` and two digits; `None` if it is not text.
fn decoded(path: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(path.len()), path.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        let digit = |at: usize| Some(char::from(*after.get(at)?).to_digit(16)? as u8);
        if let (b'%', Some(high), Some(low)) = (byte, digit(0), digit(1)) {
            bytes.push(high << 4 | low);
            rest = &after[2..];
        } else {
            bytes.push(*byte);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
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

async fn state(extract::State(page): extract::State<Arc<Page>>, headers: HeaderMap) -> Response {
    // Another site may give its name this machine's address, to read what the compiler quotes of the sources.
    if !is_to_this_machine(&headers) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let state = page.state().clone();
    ([(header::CACHE_CONTROL, "no-store")], Json(state)).into_response()
}

async fn file(extract::State(page): extract::State<Arc<Page>>, uri: Uri) -> Response {
    let path = uri.path();
    match page.file(path) {
        File::Found(kind, bytes) => typed(kind, bytes),
        File::Missing => (StatusCode::NOT_FOUND, format!("there is no file page{path}\n")).into_response(),
        File::Unreadable(why) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("page{path} cannot be served: {why}\n")).into_response()
        }
    }
}

fn typed(kind: &'static str, body: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")], body).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_files_of_the_page_are_served() {
        let folder = std::env::temp_dir().join(format!("dunlin-dev-page-{}", std::process::id()));
        fs::create_dir_all(folder.join("page/deep")).expect("a folder");
        for path in ["page/index.html", "page/game.js", "page/deep/map.png", "page/a map é%20.svg", "secret"] {
            fs::write(folder.join(path), "<head></head>").expect("a file");
        }
        std::os::unix::fs::symlink(folder.join("secret"), folder.join("page/link")).expect("a link");
        let page = Page::new(folder.join("page"));
        let kind = |path: &str| match page.file(path) {
            File::Found(kind, _) => Some(kind),
            File::Missing => None,
            File::Unreadable(why) => panic!("{path}: {why}"),
        };
        assert_eq!(kind("/"), Some("text/html; charset=utf-8"));
        assert_eq!(kind("/game.js"), Some("text/javascript; charset=utf-8"));
        assert_eq!(kind("/deep/map.png"), Some("image/png"));
        assert_eq!(kind("/a%20map%20%C3%a9%2520.svg"), Some("image/svg+xml"));
        let others = ["/../secret", "/deep/../../secret", "/link", "/deep", "/none", "//etc/passwd"];
        for path in others.into_iter().chain(["/%2e%2e/secret", "/..%2fsecret", "/%2Fetc/passwd", "/%ff", "/%00", "/%"])
        {
            assert_eq!(kind(path), None, "{path}");
        }
        let index = format!("<head>{SCRIPT_ELEMENT}\n</head>").into_bytes();
        assert_eq!(page.file("/"), File::Found("text/html; charset=utf-8", index));
        let script = File::Found("text/javascript; charset=utf-8", b"<head></head>".to_vec());
        assert_eq!(page.file("/game.js"), script, "only pages get the script");
        fs::remove_dir_all(folder).expect("it is removed");
    }

    #[test]
    fn a_file_has_a_maximum_size() {
        let folder = std::env::temp_dir().join(format!("dunlin-dev-page-size-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let file = fs::File::create(folder.join("map.bin")).expect("a file");
        let page = Page::new(folder.clone());
        // The file system stores no zeros.
        file.set_len(FILE_BYTES_MAX).expect("a size");
        assert!(matches!(page.file("/map.bin"), File::Found(_, bytes) if bytes.len() as u64 == FILE_BYTES_MAX));
        file.set_len(FILE_BYTES_MAX + 1).expect("a size");
        assert_eq!(page.file("/map.bin"), File::Unreadable("it has more than 67108864 bytes".into()));
        fs::remove_dir_all(folder).expect("it is removed");
    }

    #[tokio::test]
    async fn other_names_of_this_machine_are_refused() {
        let page = Arc::new(Page::new(PathBuf::new()));
        for (host, expected) in [("localhost:3000", StatusCode::OK), ("evil.example:3000", StatusCode::FORBIDDEN)] {
            let headers = HeaderMap::from_iter([(header::HOST, host.parse().expect("a host"))]);
            assert_eq!(state(extract::State(Arc::clone(&page)), headers).await.status(), expected, "{host}");
        }
    }

    #[test]
    fn what_is_shown_is_json() {
        let page = Page::new(PathBuf::new());
        let before = page.state().version;
        page.show(Shown { phase: "failed", title: "No.", text: "error: <no>" });
        page.reload();
        let json = serde_json::to_value(page.state().clone()).expect("JSON");
        let expected = json!({ "phase": "failed", "title": "No.", "text": "error: <no>", "version": before + 1 });
        assert_eq!(json, expected);
    }
}
