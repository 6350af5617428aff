//! Tests of backends over real sockets, with every kind of response and failure.

pub(crate) mod service;
mod tls;

use std::{
    collections::BTreeMap,
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

use dunlin_config::{StatusTransform, Transformed};
use dunlin_engine::{
    Wire,
    backend::{ProxyIndex, ProxyRequestId, ProxyRequestKind, ProxyResponse, ProxySession},
};
use hyper::header::{HeaderName, HeaderValue};

use super::*;
use service::{Reaction, Service};

/// Maximum time that a test waits for a condition. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn options(endpoint: &str) -> ProxyOptions {
    ProxyOptions {
        timeout_ms: 30_000,
        requests_max: 64,
        response_bytes_max: 10_000,
        breaker_failures_max: 0,
        ..ProxyOptions::new("rpc.proxy", endpoint.parse().unwrap())
    }
}

struct Rig {
    backends: Backends,
    service: Service,
}

impl Rig {
    fn start(reaction: Reaction, change: impl FnOnce(&mut ProxyOptions)) -> Self {
        let service = Service::start(reaction);
        let mut options = options(&service.endpoint());
        change(&mut options);
        Self { backends: Backends::start(&[options], None).unwrap(), service }
    }

    /// Sends a request for a new client. Returns the receiver of its result.
    fn ask(&self, headers: Option<PickedHeaders>) -> mpsc::Receiver<ProxyResult> {
        static CLIENTS: AtomicU32 = AtomicU32::new(0);
        let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
        self.ask_for(number, headers)
    }

    /// Sends a request for the client with this number.
    fn ask_for(&self, number: u32, headers: Option<PickedHeaders>) -> mpsc::Receiver<ProxyResult> {
        let (sender, receiver) = mpsc::channel();
        let asker = ProxySession {
            client: number.to_string().as_str().into(),
            wire: Wire::WebSocketJson,
            user: None,
            meta: None,
        };
        let kind = ProxyRequestKind::Rpc { method: "m".into(), data: None };
        let request = ProxyRequest { id: ProxyRequestId(7), proxy: ProxyIndex(0), asker, kind };
        let address = Some(number.to_be_bytes().into());
        let answer = Box::new(move |outcome| drop(sender.send(outcome)));
        self.backends.ask(BackendCall { request, headers, address, answer });
        receiver
    }

    fn answer(&self) -> ProxyResult {
        self.ask(None).recv_timeout(PATIENCE).expect("an answer")
    }

    fn count(&self, outcome: CallOutcome) -> u64 {
        self.backends.counts().proxies[0].outcomes[ProxyKind::Rpc as usize][outcome as usize]
    }
}

fn ok(body: &str) -> Reaction {
    Reaction::answer("200 OK", body)
}

#[test]
fn a_result_is_returned() {
    let rig = Rig::start(ok(r#"{"result":{"data":{"year":2026}}}"#), |_| {});
    let outcome = rig.answer();
    let Ok(ProxyResponse::Rpc { data: Some(data) }) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(&data.bytes()[..], br#"{"year":2026}"#);
    let requests = rig.service.requests();
    let body: serde_json::Value = serde_json::from_str(&requests[0].body).unwrap();
    assert_eq!((&*requests[0].line, &body["method"]), ("POST /hook HTTP/1.1", &serde_json::json!("m")));
    assert_eq!(requests[0].fields["content-type"], "application/json");
    assert_eq!(rig.count(CallOutcome::Result), 1);
    let counts = rig.backends.counts();
    assert_eq!((counts.proxies[0].waiting, counts.proxies[0].durations[ProxyKind::Rpc as usize].count()), (0, 1));
}

#[test]
fn invalid_backend_responses_are_failures() {
    let huge = format!(r#"{{"result":{{"data":"{}"}}}}"#, "x".repeat(20_000));
    for (reaction, outcome) in [
        (Reaction::answer("500 Internal Server Error", "{}"), CallOutcome::ServerError),
        (Reaction::answer("503 Service Unavailable", "{}"), CallOutcome::ServerError),
        (Reaction::answer("404 Not Found", ""), CallOutcome::Status),
        (Reaction::answer("204 No Content", ""), CallOutcome::Status),
        (Reaction::answer("302 Found", ""), CallOutcome::Status),
        (ok(""), CallOutcome::NotOurs),
        (ok("{"), CallOutcome::NotOurs),
        (ok("<html>"), CallOutcome::NotOurs),
        (ok(r#"{"result":{"data":1}"#), CallOutcome::NotOurs),
        (ok(r#"{"error":{"code":7}}"#), CallOutcome::NotOurs),
        (ok(&huge), CallOutcome::TooLong),
        (
            Reaction::Raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"result\":".to_owned()),
            CallOutcome::Unreachable,
        ),
        (Reaction::Raw("what is this\r\n\r\n".to_owned()), CallOutcome::Unreachable),
        (Reaction::Raw(String::new()), CallOutcome::Unreachable),
    ] {
        let words = format!("{reaction:?}");
        let rig = Rig::start(reaction, |_| {});
        assert_eq!(rig.answer().err(), Some(ProxyError::Failed), "{words}");
        assert_eq!(rig.count(outcome), 1, "{words}");
    }
}

#[test]
fn backend_response_length_is_limited() {
    let body = |len: usize| format!(r#"{{"result":{{"data":"{}"}}}}"#, "x".repeat(len - 22));
    for (len, outcome) in [(10_000, CallOutcome::Result), (10_001, CallOutcome::TooLong)] {
        assert_eq!(body(len).len(), len);
        let rig = Rig::start(ok(&body(len)), |_| {});
        let _ = rig.answer();
        assert_eq!(rig.count(outcome), 1, "{len}");
    }
}

#[test]
fn an_unreachable_backend_is_a_failure() {
    let rig = Rig::start(ok("{}"), |options| options.endpoint = "http://127.0.0.1:1/hook".parse().unwrap());
    assert_eq!(rig.answer().err(), Some(ProxyError::Failed));
    assert_eq!(rig.count(CallOutcome::Unreachable), 1);
}

#[test]
fn a_call_to_a_hanging_backend_times_out() {
    let rig = Rig::start(Reaction::Hang, |options| options.timeout_ms = 20);
    assert_eq!(rig.answer().err(), Some(ProxyError::Failed));
    assert_eq!(rig.count(CallOutcome::Timeout), 1);
    // A response that begins but never ends also times out.
    let begun = Reaction::RawThenHang("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_owned());
    let rig = Rig::start(begun, |options| options.timeout_ms = 20);
    assert_eq!(rig.answer().err(), Some(ProxyError::Failed));
    assert_eq!(rig.count(CallOutcome::Timeout), 1);
}

#[test]
fn a_hanging_backend_delays_no_other_calls() {
    let (hanging, lively) = (Service::start(Reaction::Hang), Service::start(ok("{}")));
    let proxies = [options(&hanging.endpoint()), options(&lively.endpoint())];
    let backends = Backends::start(&proxies, None).unwrap();
    let (sender, receiver) = mpsc::channel();
    let ask = |proxy: u16| {
        let asker = ProxySession { client: "c".into(), wire: Wire::WebSocketJson, user: None, meta: None };
        let kind = ProxyRequestKind::Rpc { method: "m".into(), data: None };
        let request = ProxyRequest { id: ProxyRequestId(1), proxy: ProxyIndex(proxy), asker, kind };
        let sender = sender.clone();
        let answer = Box::new(move |outcome: ProxyResult| {
            let _ = sender.send((proxy, outcome.is_ok()));
        });
        backends.ask(BackendCall { request, headers: None, address: None, answer });
    };
    for _ in 0..60 {
        ask(0);
    }
    for _ in 0..200 {
        ask(1);
        assert_eq!(receiver.recv_timeout(PATIENCE), Ok((1, true)));
    }
    assert_eq!(backends.counts().proxies[0].waiting, 60, "they still wait");
}

#[test]
fn concurrent_backend_calls_are_limited() {
    let rig = Rig::start(Reaction::Gate, |options| options.requests_max = 2);
    let first = [rig.ask(None), rig.ask(None)];
    assert_eq!(rig.answer().err(), Some(ProxyError::Busy), "one past the limit");
    assert_eq!((rig.count(CallOutcome::Busy), rig.backends.counts().proxies[0].waiting), (1, 2));
    rig.service.open_gate();
    for receiver in first {
        assert!(receiver.recv_timeout(PATIENCE).unwrap().is_ok());
    }
    assert!(rig.answer().is_ok(), "there is room again");
}

#[test]
fn a_failing_backend_opens_the_breaker_until_a_probe_succeeds() {
    let rig = Rig::start(Reaction::answer("500 Oh", ""), |options| {
        options.breaker_failures_max = 3;
        options.breaker_pause_ms = 50;
    });
    for _ in 0..3 {
        assert!(rig.answer().is_err());
    }
    assert_eq!((rig.count(CallOutcome::ServerError), rig.service.requests().len()), (3, 3));
    rig.service.react(ok("{}"));
    // No request is sent until the pause is over. Then one probe is sent, and after its success all requests are
    // admitted.
    let deadline = Instant::now() + PATIENCE;
    while rig.answer().is_err() {
        assert!(Instant::now() < deadline, "the breaker sent no probe");
    }
    assert_eq!((rig.count(CallOutcome::ServerError), rig.count(CallOutcome::Result)), (3, 1));
    assert_eq!(rig.service.requests().len(), 4);
    assert!(rig.answer().is_ok() && !rig.backends.counts().proxies[0].is_open);
}

/// Only failed connections, timeouts and statuses of 500 and above indicate that a backend is down.
#[test]
fn error_replies_do_not_open_the_breaker() {
    let huge = format!(r#"{{"result":{{"data":"{}"}}}}"#, "x".repeat(20_000));
    for (reaction, is_outage) in [
        (Reaction::answer("400 Bad Request", ""), false),
        (Reaction::answer("429 Too Many Requests", ""), false),
        (Reaction::answer("302 Found", ""), false),
        (ok("<html>"), false),
        (ok(&huge), false),
        (ok(r#"{"error":{"code":1000}}"#), false),
        (Reaction::answer("500 Oh", ""), true),
        (Reaction::answer("599 Oh", ""), true),
        (Reaction::Raw(String::new()), true),
        (Reaction::Hang, true),
    ] {
        let words = format!("{reaction:?}");
        let rig = Rig::start(reaction, |options| {
            options.breaker_failures_max = 3;
            options.breaker_pause_ms = 3_600_000;
            options.timeout_ms = 20;
        });
        for _ in 0..3 {
            assert!(rig.answer().is_err(), "{words}");
        }
        assert_eq!(rig.backends.counts().proxies[0].is_open, is_outage, "{words}");
    }
}

#[test]
fn one_client_alone_does_not_open_the_breaker() {
    let rig = Rig::start(Reaction::answer("500 Oh", ""), |options| options.breaker_failures_max = 3);
    for _ in 0..50 {
        assert!(rig.ask_for(7, None).recv_timeout(PATIENCE).unwrap().is_err());
    }
    assert!(!rig.backends.counts().proxies[0].is_open);
    assert_eq!(rig.service.requests().len(), 50);
}

#[test]
fn header_fields_are_passed_on_and_set() {
    let rig = Rig::start(ok("{}"), |options| {
        options.http_headers = vec!["cookie".into(), "x-request-id".into(), "content-type".into()];
        let fixed = |name: &'static str, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
        let fields = [fixed("x-static", "always"), fixed("x-request-id", "ours")];
        options.static_headers = fields.into_iter().collect();
    });
    let field = |name: &str, value: &str| (name.into(), value.as_bytes().into());
    let fields: PickedHeaders = Arc::new([
        field("cookie", "a=b"),
        field("x-request-id", "theirs"),
        field("authorization", "not for this proxy"),
        field("content-type", "text/plain"),
    ]);
    assert!(rig.ask(Some(fields)).recv_timeout(PATIENCE).unwrap().is_ok());
    let fields: BTreeMap<String, String> = rig.service.requests()[0].fields.clone();
    let value = |name: &str| fields.get(name).map(String::as_str);
    assert_eq!((value("cookie"), value("x-static")), (Some("a=b"), Some("always")));
    assert_eq!((value("x-request-id"), value("content-type")), (Some("ours"), Some("application/json")));
    assert_eq!(value("authorization"), None);
}

#[test]
fn a_call_continues_the_trace_of_the_client() {
    const CLIENT: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let (collector, service) = (Service::start(ok("{}")), Service::start(ok("{}")));
    let otlp = crate::otlp::tests::start(&crate::otlp::tests::options(&collector.endpoint()));
    // A field that is forwarded as well gives way.
    let options = ProxyOptions { http_headers: vec!["traceparent".into()], ..options(&service.endpoint()) };
    let rig = Rig { backends: Backends::start(&[options], otlp.tracer().cloned()).unwrap(), service };
    let sent = [("Traceparent", CLIENT), ("tracestate", b"a=1")];
    let fields = rig.backends.wanted_headers().pick(sent).expect("they are kept");
    assert!(rig.ask(Some(fields)).recv_timeout(PATIENCE).unwrap().is_ok());
    assert!(rig.ask(None).recv_timeout(PATIENCE).unwrap().is_ok());
    let requests = rig.service.requests();
    let parent = &requests[0].fields["traceparent"];
    assert!(parent.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && parent.ends_with("-01"), "{parent}");
    assert!(!parent.contains("00f067aa0ba902b7"), "the span is another one: {parent}");
    assert_eq!(requests[0].fields["tracestate"], "a=1");
    let own = &requests[1].fields["traceparent"];
    assert!(own.len() == 55 && !own.contains("4bf92f35"), "a trace of its own: {own}");
}

#[test]
fn statuses_map_to_configured_errors() {
    let to_error = Transformed::Error { code: 1_001, message: "who".into(), temporary: false };
    let to_disconnect = Transformed::Disconnect(dunlin_protocol::Disconnect { code: 4_500, reason: "go".into() });
    let transforms =
        vec![StatusTransform { status: 401, to: to_error }, StatusTransform { status: 403, to: to_disconnect.clone() }];
    let Transformed::Disconnect(disconnect) = to_disconnect else { unreachable!() };
    let refusal = ProxyError::Error { code: 1_001, message: "who".into(), temporary: false };
    for (status, expected, outcome) in [
        ("401 Unauthorized", refusal, CallOutcome::Error),
        ("403 Forbidden", ProxyError::Disconnect(disconnect), CallOutcome::Disconnect),
        ("404 Not Found", ProxyError::Failed, CallOutcome::Status),
    ] {
        let rig = Rig::start(Reaction::answer(status, ""), |options| options.transforms.clone_from(&transforms));
        assert_eq!(rig.answer().err(), Some(expected), "{status}");
        assert_eq!(rig.count(outcome), 1, "{status}");
    }
}

#[test]
fn a_call_to_an_unknown_proxy_fails() {
    let service = Service::start(ok("{}"));
    let rig = Rig { backends: Backends::start(&[], None).unwrap(), service };
    assert_eq!(rig.answer().err(), Some(ProxyError::Failed));
}
