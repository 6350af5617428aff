//! The console for operators: a page, and what it asks. The page's requests have a cookie of a sign-in and a header
//! field that a page of another site cannot set. What it asks of channels, sessions and rooms are methods of the server
//! API, in process.

mod actions;
mod console_access;
mod page;
mod peer_recording;
mod recording_lists;
mod replay_process;
mod replays;
mod sign_in_attempts;
mod sign_in_cookies;

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use axum::{
    extract::{Path, Query, Request, State},
    http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{MethodRouter, any, get},
};
use dunlin_config::ReplayOptions;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    Peer,
    api::{AdmittedRequest, ChannelsWanted, Executed, Method, Service},
    browser::{is_own_host, is_same_origin},
    upgrade_behind_proxy::head_of,
};
use crate::{
    cli::replayed_bytes_max,
    node::{Node, SourceNetwork},
    peers::{self, PeerAnswers, RecordingsQuestion},
    recordings::{NO_SUCH_RECORDING, OwnRecordings},
    serve::Reloader,
    telemetry::{
        api_counters::{ControlCounters, HttpRefusal},
        console_events::{ConsoleAction, ConsoleSignIn, ConsoleSignInRefused},
        log_tail::{LogTail, TailPart},
    },
};

use actions::Kind;
use console_access::Access;
use peer_recording::PeerRecording;
use replays::{RecordingSource, ReplayNamed, Replays, TicksWanted};
use sign_in_attempts::TooMany;
use sign_in_cookies::{Role, SignIn, cookie_attributes};

pub use console_access::ConsoleAccess;

/// The name of the cookie.
const COOKIE: &str = "dunlin_console";

/// The header field of the page's requests. A page of another site could set it only with the permission of a
/// preflight, which is never given.
const FROM_PAGE: &str = "x-dunlin-console";

/// Maximum length of the body of a sign-in, which strangers send.
const SIGN_IN_BYTES_MAX: usize = 4_096;

/// What the console uses of the node.
pub struct ConsoleParts {
    /// Executes commands.
    pub service: Arc<Service>,
    /// Knows the configuration.
    pub reloader: Arc<Reloader>,
    /// Knows addresses behind proxies.
    pub node: Node,
    /// Counts refused requests.
    pub counters: Arc<ControlCounters>,
    /// The newest lines of the log; `None` without a log.
    pub log: Option<Arc<LogTail>>,
    /// Whether the port has TLS.
    pub has_tls: bool,
    /// The recordings of rooms of this node.
    pub recordings: Arc<OwnRecordings>,
    /// How recordings are replayed.
    pub replays: ReplayOptions,
}

/// The console of one port.
pub struct Console {
    path: String,
    access: Arc<ConsoleAccess>,
    parts: ConsoleParts,
    replays: Arc<Replays>,
}

/// Who sends a request.
#[derive(Clone, Copy)]
struct Asker {
    role: Role,
    /// `None` if nobody has to sign in.
    sign_in: Option<SignIn>,
    address: Option<IpAddr>,
}

impl Console {
    /// The console at this path.
    pub fn new(path: &str, access: Arc<ConsoleAccess>, parts: ConsoleParts) -> Self {
        let replays = Replays::new(parts.replays, Arc::clone(&parts.counters));
        let path = path.trim_end_matches('/').to_owned();
        Self { path, access, parts, replays }
    }

    /// Its path, without a slash at the end.
    pub const fn path(&self) -> &String {
        &self.path
    }

    /// The endpoints by path. `literal` makes a pattern of a path.
    pub fn endpoints(self, literal: fn(&str) -> String) -> Vec<(String, MethodRouter)> {
        let console = Arc::new(self);
        let path = literal(&console.path);
        let below = path.trim_end_matches('/').to_owned();
        let mut endpoints = Vec::new();
        if path != "/" {
            endpoints.push((path, get(to_page).with_state(Arc::clone(&console))));
        }
        for file in &page::FILES {
            let answer = get(move |headers: HeaderMap| async move { file.answer(&headers) });
            endpoints.push((format!("{below}/{}", file.name), answer));
        }
        endpoints.push((format!("{below}/data/{{name}}"), any(data).with_state(Arc::clone(&console))));
        endpoints.push((format!("{below}/data/api/{{method}}"), any(command).with_state(console)));
        endpoints
    }

    /// The address of the client, which a trusted proxy may have forwarded.
    fn address_of(&self, request: &Request) -> Option<IpAddr> {
        Peer::of(request).0.map(|peer| self.parts.node.client_of(peer.ip(), &head_of(request)))
    }

    /// Who sends a request; otherwise the response.
    #[allow(clippy::result_large_err, reason = "a response is sent at once")]
    fn admit(&self, request: &Request) -> Result<Asker, Response> {
        if !is_from_page(request.headers()) {
            self.parts.counters.count_refusal(HttpRefusal::Origin);
            return Err(refusal(StatusCode::FORBIDDEN, "the request is not from the console's page"));
        }
        let access = self.access.now();
        if matches!(*access, Access::Everyone) && !is_own_host(request.headers()) {
            self.parts.counters.count_refusal(HttpRefusal::Origin);
            let why =
                "with admin.insecure, the console is reached by an IP address, localhost, or a name without a dot";
            return Err(refusal(StatusCode::FORBIDDEN, why));
        }
        self.asker(&access, request).ok_or_else(|| refusal(StatusCode::UNAUTHORIZED, "sign in"))
    }

    fn asker(&self, access: &Access, request: &Request) -> Option<Asker> {
        let address = self.address_of(request);
        match access {
            Access::Everyone => Some(Asker { role: Role::Operator, sign_in: None, address }),
            Access::SignedIn(rules) => {
                let found = cookies(request.headers()).find_map(|cookie| rules.sign_ins.find(cookie, now_s()));
                found.map(|sign_in| Asker { role: sign_in.role, sign_in: Some(sign_in), address })
            }
        }
    }

    async fn sign_in(&self, request: Request) -> Response {
        let access = self.access.now();
        let Access::SignedIn(rules) = &*access else {
            return refusal(StatusCode::BAD_REQUEST, "nobody has to sign in");
        };
        let (peer, address, cookie_suffix) =
            (Peer::of(&request), self.address_of(&request), self.cookie_suffix(&request));
        let body = match self.parts.service.read_for_console(peer, request.into_body(), SIGN_IN_BYTES_MAX).await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        let Ok(SignInBody { password }) = serde_json::from_slice(&body) else {
            return refusal(StatusCode::BAD_REQUEST, "the body has no password");
        };
        let refuse = |too_many: bool, status: StatusCode, why: &str| {
            self.parts.counters.count_refusal(HttpRefusal::SignIn);
            ConsoleSignInRefused { too_many, address }.emit();
            refusal(status, why)
        };
        let judge = || rules.role_of(password.as_bytes());
        match self.access.attempts().judge(address.map(SourceNetwork::of), Instant::now(), judge) {
            Err(TooMany) => refuse(true, StatusCode::TOO_MANY_REQUESTS, "too many wrong passwords: wait a minute"),
            Ok(None) => refuse(false, StatusCode::FORBIDDEN, "wrong password"),
            Ok(Some(role)) => {
                let Ok(id) = random_id() else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
                let (sign_in, cookie) = rules.sign_ins.open(role, now_s(), id);
                ConsoleSignIn { begins: true, role: role.name(), sign_in: &sign_in, address }.emit();
                let max_age = rules.sign_ins.lifetime_s();
                with_cookie(answer(&described(Some(sign_in))), &format!("{cookie}; Max-Age={max_age}{cookie_suffix}"))
            }
        }
    }

    /// After a restart of the node, sign-ins of before are what it knows addresses by. The page asks this once, when it is
    /// opened.
    fn know(&self, asker: Asker) {
        if let (Some(_), Some(address)) = (asker.sign_in, asker.address) {
            self.access.attempts().know(SourceNetwork::of(address), Instant::now());
        }
    }

    fn sign_out(&self, asker: Asker, cookie_suffix: &str) -> Response {
        if let (Access::SignedIn(rules), Some(sign_in)) = (&*self.access.now(), asker.sign_in) {
            rules.sign_ins.sign_out(sign_in, now_s());
            self.replays.close_all_of(sign_in);
            ConsoleSignIn { begins: false, role: asker.role.name(), sign_in: &sign_in, address: asker.address }.emit();
        }
        with_cookie(answer(&described(None)), &format!("; Max-Age=0{cookie_suffix}"))
    }

    /// A proxy may say that it has TLS: who says so wrongly only loses the cookie.
    fn cookie_suffix(&self, request: &Request) -> String {
        let proxied = request.headers().get("x-forwarded-proto").is_some_and(|scheme| scheme.as_bytes() == b"https");
        cookie_attributes(&self.path, self.parts.has_tls || proxied)
    }

    #[allow(clippy::result_large_err, reason = "a response is sent at once")]
    async fn admitted(&self, request: Request) -> Result<AdmittedRequest, Response> {
        self.parts.service.admit_for_console(Peer::of(&request), request.into_body()).await
    }

    /// Executes a command, and logs it if it changes something.
    async fn execute(&self, asker: Asker, method: Method, request: Request) -> Response {
        let Some(kind) = actions::kind_of(method) else {
            return refusal(StatusCode::NOT_FOUND, "the console does not offer this method");
        };
        if !actions::may(asker.role, kind) {
            return refusal(StatusCode::FORBIDDEN, "this sign-in may only look");
        }
        let request = match self.admitted(request).await {
            Ok(request) => request,
            Err(refused) => return refused,
        };
        if kind == Kind::Reads {
            return self.parts.service.execute_admitted(method, &request).await.response;
        }
        let (service, target) = (Arc::clone(&self.parts.service), actions::target_of(&request.body));
        // On a separate task, so that an action is logged also if the page has gone meanwhile.
        let acting = tokio::spawn(async move {
            let Executed { response, error } = service.execute_admitted(method, &request).await;
            let sign_in: &dyn std::fmt::Display = asker.sign_in.as_ref().map_or(&"none" as _, |sign_in| sign_in as _);
            let outcome = error.as_deref().unwrap_or("done");
            let Asker { role, address, .. } = asker;
            let action = method.name();
            ConsoleAction { action, target: &target, role: role.name(), sign_in, address, outcome: &outcome }.emit();
            response
        });
        acting.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
    }

    async fn channels(&self, request: &AdmittedRequest) -> Response {
        match serde_json::from_slice::<ChannelsWanted>(&request.body) {
            Ok(wanted) => self.parts.service.channel_page(wanted, request).await,
            Err(_) => refusal(StatusCode::BAD_REQUEST, "the body does not say which channels"),
        }
    }

    async fn configuration(&self) -> Response {
        answer(&self.parts.reloader.shown().await)
    }

    fn log_lines(&self, LogQuery { run, since }: &LogQuery) -> Response {
        let Some(log) = &self.parts.log else {
            return answer(&json!({ "run": "", "lines": [], "next": 0, "missed": 0 }));
        };
        let TailPart { run, lines, next, missed } = log.since(run.as_deref(), since.unwrap_or(0));
        answer(&json!({ "run": run, "lines": lines, "next": next, "missed": missed }))
    }
}

#[derive(Deserialize)]
struct SignInBody {
    password: String,
}

#[derive(Deserialize)]
struct LogQuery {
    /// The run of the process that the number is of.
    run: Option<String>,
    since: Option<u64>,
}

/// `GET {prefix}`: the page's files are named relative to `{prefix}/`.
async fn to_page(State(console): State<Arc<Console>>) -> Response {
    let last = console.path.rsplit('/').next().unwrap_or_default();
    let location = format!("{last}/");
    page::guarded((StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, location)]).into_response())
}

/// `{prefix}/data/{name}`
async fn data(State(console): State<Arc<Console>>, Path(name): Path<String>, request: Request) -> Response {
    page::guarded(console.data(&name, request).await)
}

/// `POST {prefix}/data/api/{method}`
async fn command(State(console): State<Arc<Console>>, Path(name): Path<String>, request: Request) -> Response {
    page::guarded(match (console.admit(&request), Method::by_name(&name)) {
        (Err(refused), _) => refused,
        (Ok(_), _) if request.method() != HttpMethod::POST => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        (Ok(_), None) => refusal(StatusCode::NOT_FOUND, "there is no such method"),
        (Ok(asker), Some(method)) => console.execute(asker, method, request).await,
    })
}

impl Console {
    async fn data(&self, name: &str, request: Request) -> Response {
        let is_post = request.method() == HttpMethod::POST;
        let asker = match (self.admit(&request), name) {
            // This is for those who have not signed in.
            (Err(refused), "sign_in") if refused.status() == StatusCode::UNAUTHORIZED => None,
            (Err(refused), _) => return refused,
            (Ok(asker), _) => Some(asker),
        };
        match (name, is_post, asker) {
            ("sign_in", false, None) => answer(&described(None)),
            ("sign_in", false, Some(asker)) => {
                self.know(asker);
                answer(&asker.described())
            }
            ("sign_in", true, _) => self.sign_in(request).await,
            ("sign_out", true, Some(asker)) => self.sign_out(asker, &self.cookie_suffix(&request)),
            ("status", false, Some(_)) => match self.admitted(request).await {
                Ok(request) => self.parts.service.status(&request).await,
                Err(refused) => refused,
            },
            ("configuration", false, Some(_)) => self.configuration().await,
            ("log", false, Some(_)) => match Query::<LogQuery>::try_from_uri(request.uri()) {
                Ok(Query(query)) => self.log_lines(&query),
                Err(_) => refusal(StatusCode::BAD_REQUEST, "`since` is a number"),
            },
            ("channels", true, Some(_)) => match self.admitted(request).await {
                Ok(request) => self.channels(&request).await,
                Err(refused) => refused,
            },
            ("recordings" | "replay" | "replay_touch" | "replay_ticks" | "replay_close", _, Some(asker)) => {
                self.recorded(asker, name, request).await
            }
            _ => refusal(StatusCode::NOT_FOUND, "there is nothing here"),
        }
    }

    /// Recordings of rooms: lists them, opens one, and answers about those that are open.
    async fn recorded(&self, asker: Asker, name: &str, request: Request) -> Response {
        let (is_post, uri) = (request.method() == HttpMethod::POST, request.uri().clone());
        let body = match self.admitted(request).await {
            Ok(request) => request,
            Err(refused) => return refused,
        };
        let answered = match (name, is_post) {
            ("recordings", true) => match of_body(&body) {
                Ok(wanted) => Ok(self.recordings(wanted).await),
                Err(refused) => Err(refused),
            },
            ("replay", true) => match of_body(&body) {
                Ok(wanted) => Ok(self.open_recording(asker, wanted).await),
                Err(refused) => Err(refused),
            },
            ("replay", false) => of_query(&uri).map(|named: ReplayNamed| self.replays.index(&named)),
            ("replay_touch", false) => of_query(&uri).map(|named: ReplayNamed| self.replays.touch(&named)),
            ("replay_ticks", false) => match of_query::<TicksWanted>(&uri) {
                Ok(wanted) => Ok(self.replays.ticks(&wanted).await),
                Err(refused) => Err(refused),
            },
            ("replay_close", true) => of_body(&body).map(|named: ReplayNamed| self.replays.close(&named)),
            _ => Err(StatusCode::METHOD_NOT_ALLOWED.into_response()),
        };
        answered.unwrap_or_else(|refused| refused)
    }

    /// The recordings of all nodes.
    async fn recordings(&self, wanted: RecordingsQuestion) -> Response {
        let own = self.parts.recordings.list(wanted.clone());
        let others = async {
            match self.parts.node.cluster() {
                Some(cluster) => peers::ask_all(cluster, &wanted).await,
                None => Ok(PeerAnswers::ALONE),
            }
        };
        match tokio::join!(own, others) {
            (Some(own), others) => answer(&json!(recording_lists::merged(own, others))),
            (None, _) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }

    /// A recording has what players have sent, and maybe their addresses: the log says who has opened it.
    async fn open_recording(&self, asker: Asker, wanted: RecordingWanted) -> Response {
        let (response, outcome) = match self.source_of(&wanted).await {
            Ok(source) => self.replays.open(source, asker.sign_in),
            Err((status, why)) => (refusal(status, &why), why),
        };
        let sign_in: &dyn std::fmt::Display = asker.sign_in.as_ref().map_or(&"none" as _, |sign_in| sign_in as _);
        let RecordingWanted { file, node } = wanted;
        let of_node = if node.is_empty() { String::new() } else { format!(" node={}", Value::from(node)) };
        let (target, Asker { role, address, .. }) = (format!("file={}{of_node}", Value::from(file)), asker);
        let (action, target) = ("replay", target.as_str());
        ConsoleAction { action, target, role: role.name(), sign_in, address, outcome: &outcome }.emit();
        response
    }

    /// Where a recording is; otherwise why it is not replayed.
    async fn source_of(&self, wanted: &RecordingWanted) -> Result<RecordingSource, (StatusCode, String)> {
        let RecordingWanted { file, node } = wanted;
        if node.is_empty() || self.parts.recordings.node().is_called(node) {
            let found = self.parts.recordings.find(file).await;
            return found.map(RecordingSource::File).ok_or((StatusCode::NOT_FOUND, NO_SUCH_RECORDING.to_owned()));
        }
        let opened = PeerRecording::open(&self.parts.node, node, file).await;
        let recording = opened.map_err(|why| (StatusCode::NOT_FOUND, why))?;
        let bytes_max = replayed_bytes_max(self.parts.replays.memory_bytes_max);
        if recording.bytes() > bytes_max {
            let why = format!("the recording is larger than {bytes_max} bytes, a quarter of admin.replay_memory_limit");
            return Err((StatusCode::UNPROCESSABLE_ENTITY, why));
        }
        Ok(RecordingSource::Peer(recording))
    }
}

#[derive(Deserialize)]
struct RecordingWanted {
    file: String,
    /// The id or the name of the node that has it; empty for this one.
    #[serde(default)]
    node: String,
}

#[allow(clippy::result_large_err, reason = "a response is sent at once")]
fn of_body<T: DeserializeOwned>(request: &AdmittedRequest) -> Result<T, Response> {
    let read = serde_json::from_slice(&request.body);
    read.map_err(|_| refusal(StatusCode::BAD_REQUEST, "the body does not say what is wanted"))
}

#[allow(clippy::result_large_err, reason = "a response is sent at once")]
fn of_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Response> {
    let read = Query::try_from_uri(uri).map(|Query(wanted)| wanted);
    read.map_err(|_| refusal(StatusCode::BAD_REQUEST, "the address does not say what is wanted"))
}

impl Asker {
    fn described(&self) -> Value {
        match self.sign_in {
            Some(sign_in) => described(Some(sign_in)),
            None => json!({ "role": self.role, "ends_at_s": null, "version": env!("CARGO_PKG_VERSION") }),
        }
    }
}

/// A sign-in, as the page sees it.
fn described(sign_in: Option<SignIn>) -> Value {
    match sign_in {
        Some(SignIn { role, ends_at_s, .. }) => {
            json!({ "role": role, "ends_at_s": ends_at_s, "version": env!("CARGO_PKG_VERSION") })
        }
        // The version is not for strangers.
        None => json!({ "role": null }),
    }
}

/// Whether the console's page sent a request. Browsers say which site a request is from, and set `Origin`.
fn is_from_page(headers: &HeaderMap) -> bool {
    headers.get(FROM_PAGE).is_some_and(|value| value.as_bytes() == b"1") && is_same_origin(headers)
}

/// The values of the console's cookies in a request.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let fields = headers.get_all(header::COOKIE).into_iter().filter_map(|field| field.to_str().ok());
    let pairs = fields.flat_map(|field| field.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

fn with_cookie(mut response: Response, value: &str) -> Response {
    if let Ok(cookie) = HeaderValue::try_from(format!("{COOKIE}={value}")) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn answer(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

fn refusal(status: StatusCode, why: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], json!({ "refused": why }).to_string()).into_response()
}

fn random_id() -> Result<u64, getrandom::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields =
            fields.iter().map(|(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_static(value)));
        fields.collect()
    }

    #[test]
    fn only_the_console_s_page_is_answered() {
        let own = (FROM_PAGE, "1");
        let host = ("host", "console.example:9000");
        for (fields, expected) in [
            (&[own, host][..], true),
            (&[own, host, ("sec-fetch-site", "same-origin")], true),
            (&[own, host, ("origin", "http://console.example:9000")], true),
            (&[own, host, ("origin", "https://CONSOLE.example:9000")], true),
            (&[host, ("sec-fetch-site", "same-origin")], false),
            (&[(FROM_PAGE, "0"), host], false),
            (&[own, host, ("sec-fetch-site", "cross-site")], false),
            (&[own, host, ("sec-fetch-site", "same-site")], false),
            (&[own, host, ("sec-fetch-site", "none")], false),
            (&[own, host, ("origin", "http://evil.example")], false),
            (&[own, host, ("origin", "null")], false),
            (&[own, ("origin", "http://console.example:9000")], false),
        ] {
            assert_eq!(is_from_page(&headers(fields)), expected, "{fields:?}");
        }
    }

    #[test]
    fn the_console_s_cookie_is_found_among_others() {
        let found =
            |cookie: &'static str| cookies(&headers(&[("cookie", cookie)])).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(found("a=b; dunlin_console=x.y; c=d"), ["x.y"]);
        assert_eq!(found("dunlin_console=1;dunlin_console=2"), ["1", "2"]);
        for none in ["", "a=b", "xdunlin_console=1", "dunlin_console"] {
            assert_eq!(found(none), [""; 0], "{none}");
        }
    }
}
