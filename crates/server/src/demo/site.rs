//! Static files at `/`, all loaded at the start, so that no request can name a file outside the directory: those of the
//! demo, and those of the commands that serve a page.

use std::{collections::BTreeMap, fs, io, path::Path, sync::Arc};

use axum::{
    body::Bytes,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest as _, Sha256};

/// Maximum number of files.
const FILES_MAX: usize = 1_000;

/// Maximum total size of the files.
const BYTES_MAX: usize = 64 << 20;

/// Maximum nesting depth of directories.
const DEPTH_MAX: usize = 8;

/// The Content-Security-Policy: only the site's own files, and a WebSocket to its own origin.
const POLICY: &str =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'";

/// Files by path.
#[derive(Clone, Debug)]
pub struct Site {
    files: BTreeMap<String, File>,
    bytes: usize,
    policy: HeaderValue,
    /// Whether only requests to names of this machine are answered.
    is_private: bool,
}

impl Default for Site {
    fn default() -> Self {
        Self { files: BTreeMap::new(), bytes: 0, policy: HeaderValue::from_static(POLICY), is_private: false }
    }
}

#[derive(Clone, Debug)]
struct File {
    bytes: Bytes,
    content_type: &'static str,
    etag: HeaderValue,
}

/// Checks whether the pages in `dir` can be served.
///
/// # Errors
/// The reason.
pub fn check(dir: &Path) -> Result<(), String> {
    let shown = dir.display();
    match Site::load(dir) {
        Err(error) => Err(format!("cannot serve the pages in {shown}: {error}")),
        Ok(site) if !site.has_index() => Err(format!("{shown} contains no index.html: build the pages")),
        Ok(_) => Ok(()),
    }
}

impl Site {
    /// Loads the files of `dir` and its subdirectories, except links and names that begin with a dot.
    ///
    /// # Errors
    /// A file or directory cannot be read, or the site exceeds a limit.
    pub fn load(dir: &Path) -> io::Result<Self> {
        let mut site = Self::default();
        site.add_dir(dir, "/", 0)?;
        Ok(site)
    }

    /// A site of these paths and files, which answers only requests to names of this machine: another site may give its
    /// own name this machine's address, to read what is in a file. Its pages may connect to `server` as well, an origin.
    ///
    /// # Errors
    /// The site exceeds a limit, or `server` is no text for a header.
    pub fn private<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>, server: Option<&str>) -> io::Result<Self> {
        let mut site = Self { is_private: true, ..Self::default() };
        if let Some(server) = server {
            site.policy = HeaderValue::try_from(format!("{POLICY} {server}")).map_err(io::Error::other)?;
        }
        for (path, bytes) in files {
            site.add_file(path.to_owned(), bytes.to_vec())?;
        }
        Ok(site)
    }

    /// Whether there is an `index.html` at `/`.
    pub fn has_index(&self) -> bool {
        self.file("/").is_some()
    }

    fn add_dir(&mut self, dir: &Path, prefix: &str, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(io::Error::other("the directories are nested too deeply"));
        }
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let Some(name) = entry.file_name().to_str().filter(|name| !name.starts_with('.')).map(str::to_owned) else {
                continue;
            };
            if kind.is_dir() {
                self.add_dir(&entry.path(), &format!("{prefix}{name}/"), depth + 1)?;
            } else if kind.is_file() {
                self.add_file(format!("{prefix}{name}"), fs::read(entry.path())?)?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: String, bytes: Vec<u8>) -> io::Result<()> {
        self.bytes += bytes.len();
        if self.bytes > BYTES_MAX || self.files.len() == FILES_MAX {
            return Err(io::Error::other("the site is too large"));
        }
        let content_type = content_type(&path);
        let digest = Sha256::digest(&bytes);
        let tag = digest.first_chunk().copied().map_or(0, u64::from_be_bytes);
        let etag = HeaderValue::try_from(format!("\"{tag:016x}\"")).map_err(io::Error::other)?;
        self.files.insert(path, File { bytes: bytes.into(), content_type, etag });
        Ok(())
    }

    fn file(&self, path: &str) -> Option<&File> {
        if path.ends_with('/') { self.files.get(&format!("{path}index.html")) } else { self.files.get(path) }
    }
}

/// Handles a request for a file.
pub async fn answer(State(site): State<Arc<Site>>, request: Request) -> Response {
    let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    if site.is_private && !is_to_this_machine(request.headers()) {
        return (StatusCode::FORBIDDEN, plain, "open this page as http://localhost\n").into_response();
    }
    let Some(file) = site.file(request.uri().path()) else {
        return (StatusCode::NOT_FOUND, plain, "404 page not found\n").into_response();
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::ETAG, file.etag.clone());
    // The names contain no hash, so browsers must revalidate. Usually they receive 304. A private file may have a secret.
    let caching = if site.is_private { "no-store" } else { "no-cache" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(header::CONTENT_SECURITY_POLICY, site.policy.clone());
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if request.headers().get(header::IF_NONE_MATCH).is_some_and(|tags| names(tags, &file.etag)) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    (headers, file.bytes.clone()).into_response()
}

/// Whether a request names this machine.
pub(crate) fn is_to_this_machine(headers: &HeaderMap) -> bool {
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).is_some_and(is_this_machine)
}

/// Whether a host, with or without a port, is a name of this machine that no other site can take.
pub(crate) fn is_this_machine(host: &str) -> bool {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let name = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a list of entity tags contains this one, by weak comparison (RFC 9110, section 13.1.2).
fn names(tags: &HeaderValue, etag: &HeaderValue) -> bool {
    let tags = tags.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    tags.map(|tag| tag.strip_prefix(b"W/").unwrap_or(tag)).any(|tag| tag == b"*" || tag == etag.as_bytes())
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, routing::get};

    use super::*;

    fn site() -> Site {
        let mut site = Site::default();
        for (path, text) in [("/index.html", "<p>"), ("/app.js", "1"), ("/deep/index.html", "deep")] {
            site.add_file(path.to_owned(), text.into()).expect("small");
        }
        site
    }

    fn ask(target: &str, field: Option<(&'static str, &str)>) -> Response {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut router: Router = Router::new().fallback_service(get(answer).with_state(Arc::new(site())));
        let mut request = Request::builder().uri(target);
        if let Some((name, value)) = field {
            request = request.header(name, value);
        }
        let service = hyper_util::service::TowerToHyperService::new(std::mem::take(&mut router));
        let request = request.body(Body::empty()).expect("a request");
        runtime.block_on(hyper::service::Service::call(&service, request)).expect("answered")
    }

    #[test]
    fn only_files_of_the_site_are_served() {
        for (target, expected) in [
            ("/", Some("text/html; charset=utf-8")),
            ("/?encoding=protobuf", Some("text/html; charset=utf-8")),
            ("/index.html", Some("text/html; charset=utf-8")),
            ("/app.js", Some("text/javascript; charset=utf-8")),
            ("/deep/", Some("text/html; charset=utf-8")),
            ("/deep", None),
            ("/app.js/", None),
            ("/../app.js", None),
            ("/deep/../app.js", None),
            ("/%2e%2e/app.js", None),
            ("//app.js", None),
            ("/.built-from", None),
            ("/etc/passwd", None),
        ] {
            let response = ask(target, None);
            let status = if expected.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
            assert_eq!(response.status(), status, "{target}");
            if let Some(expected) = expected {
                assert_eq!(response.headers()[header::CONTENT_TYPE], expected, "{target}");
                assert_eq!(response.headers()[header::CACHE_CONTROL], "no-cache", "{target}");
                assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], POLICY, "{target}");
            }
        }
    }

    #[test]
    fn cached_files_are_not_sent_again() {
        let etag = ask("/app.js", None).headers()[header::ETAG].to_str().expect("text").to_owned();
        for (tags, status) in [
            (etag.clone(), StatusCode::NOT_MODIFIED),
            (format!("\"x\", W/{etag}"), StatusCode::NOT_MODIFIED),
            ("*".to_owned(), StatusCode::NOT_MODIFIED),
            ("\"x\"".to_owned(), StatusCode::OK),
        ] {
            assert_eq!(ask("/app.js", Some(("if-none-match", &tags))).status(), status, "{tags}");
        }
    }

    #[test]
    fn a_private_site_answers_to_names_of_this_machine() {
        let files = [("/index.html", &b"<p>"[..])];
        let site = Arc::new(Site::private(files, Some("wss://example.com:8443")).expect("small"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let ask = |host: Option<&str>| {
            let request = host.map_or_else(Request::builder, |host| Request::builder().header(header::HOST, host));
            let request = request.uri("/").body(Body::empty()).expect("a request");
            runtime.block_on(answer(State(Arc::clone(&site)), request))
        };
        for (host, status) in [
            (Some("localhost:3000"), StatusCode::OK),
            (Some("LocalHost"), StatusCode::OK),
            (Some("127.0.0.1:1"), StatusCode::OK),
            (Some("[::1]:1"), StatusCode::OK),
            (Some("[::1]"), StatusCode::OK),
            (Some("evil.example:3000"), StatusCode::FORBIDDEN),
            (Some("localhost.evil.example"), StatusCode::FORBIDDEN),
            (Some(""), StatusCode::FORBIDDEN),
            (None, StatusCode::FORBIDDEN),
        ] {
            assert_eq!(ask(host).status(), status, "{host:?}");
        }
        let response = ask(Some("localhost"));
        assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], format!("{POLICY} wss://example.com:8443"));
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    }

    #[test]
    fn files_and_bytes_of_a_site_are_limited() {
        let mut site = Site::default();
        for index in 0..FILES_MAX {
            site.add_file(format!("/{index}"), Vec::new()).expect("not too many");
        }
        assert!(site.add_file("/more".to_owned(), Vec::new()).is_err());
        assert!(Site::default().add_file("/large".to_owned(), vec![0; BYTES_MAX]).is_ok());
        assert!(Site::default().add_file("/larger".to_owned(), vec![0; BYTES_MAX + 1]).is_err());
    }
}
