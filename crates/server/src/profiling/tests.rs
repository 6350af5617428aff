//! Pushes over real sockets, with every kind of response and failure.

use dunlin_config::PyroscopeOptions;
use hyper::header::HeaderValue;

use super::*;
use crate::backend::service::{Reaction, Service};

/// Maximum time that a test waits for a condition. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_mins(1);

fn options(endpoint: &str) -> PyroscopeOptions {
    let mut tenant = HeaderValue::from_static("tenant-7");
    tenant.set_sensitive(true);
    PyroscopeOptions {
        endpoint: endpoint.parse().expect("a URL"),
        application_name: "dunlin".to_owned(),
        tags: vec![("env".to_owned(), "a b".to_owned())],
        interval_ms: 100,
        timeout_ms: 30_000,
        headers: [("x-scope-orgid".parse().expect("a name"), tenant)].into_iter().collect(),
        tls: None,
    }
}

/// The sending half alone, with profiles that were not recorded.
struct Rig {
    shared: Arc<Shared>,
}

impl Rig {
    fn start(options: &PyroscopeOptions) -> Self {
        let shared = Arc::new(Shared::default());
        let pusher = Pusher::new(options, "one", Arc::clone(&shared)).expect("good options");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        thread::spawn(move || runtime.block_on(pusher.run()));
        Self { shared }
    }

    fn put(&self, kind: ProfileKind) {
        self.shared.put(Recorded { kind, pprof: b"profile".to_vec(), from_unix_s: 5, until_unix_s: 20 });
    }

    fn count(&self, kind: ProfileKind, outcome: PushOutcome) -> u64 {
        self.shared.counters.now().of(kind, outcome)
    }

    fn wait_for(&self, kind: ProfileKind, outcome: PushOutcome, count: u64) {
        wait_for(&|| self.shared.counters.now(), |counts| counts.of(kind, outcome) == count);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        self.shared.changed.notify_one();
    }
}

fn wait_for(counts: &dyn Fn() -> ProfileCounts, is_so: impl Fn(&ProfileCounts) -> bool) {
    let begun = Instant::now();
    while !is_so(&counts()) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", counts());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_profile_is_pushed_as_the_server_reads_it() {
    let service = Service::start(Reaction::answer("200 OK", ""));
    let rig = Rig::start(&options(&service.endpoint()));
    rig.put(ProfileKind::Heap);
    rig.wait_for(ProfileKind::Heap, PushOutcome::Taken, 1);
    let came = service.requests().pop().expect("a request");
    let name = "dunlin%7Benv%3Da%20b%2Cnode%3Done%7D";
    let line = format!("POST /hook?format=pprof&name={name}&from=5&until=20&sampleRate=100&spyName=dunlin HTTP/1.1");
    assert_eq!(came.line, line);
    let field = |name: &str| came.fields.get(name).map(String::as_str);
    assert_eq!((field("content-type"), field("x-scope-orgid")), (Some("application/octet-stream"), Some("tenant-7")));
    assert_eq!(came.body, "profile");
}

#[test]
fn of_each_kind_one_profile_waits_for_a_slow_server() {
    let service = Service::start(Reaction::Gate);
    let rig = Rig::start(&options(&service.endpoint()));
    rig.put(ProfileKind::Cpu);
    let begun = Instant::now();
    while service.requests().is_empty() {
        assert!(begun.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    }
    // One is on its way. Of these, the newest of each kind waits.
    for _ in 0..100 {
        rig.put(ProfileKind::Cpu);
        rig.put(ProfileKind::Heap);
    }
    assert_eq!(rig.count(ProfileKind::Cpu, PushOutcome::Replaced), 99);
    assert_eq!(rig.count(ProfileKind::Heap, PushOutcome::Replaced), 99);
    service.open_gate();
    rig.wait_for(ProfileKind::Cpu, PushOutcome::Taken, 2);
    rig.wait_for(ProfileKind::Heap, PushOutcome::Taken, 1);
    assert_eq!(service.requests().len(), 3);
}

#[test]
fn what_a_server_does_not_take_is_counted_and_not_sent_again() {
    let service = Service::start(Reaction::answer("500 Internal Server Error", "broken"));
    let mut options = options(&service.endpoint());
    options.timeout_ms = 200;
    let rig = Rig::start(&options);
    for (reaction, outcome) in [
        (Reaction::answer("500 Internal Server Error", "broken"), PushOutcome::ServerError),
        (Reaction::answer("503 Service Unavailable", ""), PushOutcome::ServerError),
        (Reaction::answer("401 Unauthorized", "no tenant-7 here"), PushOutcome::Refused),
        (Reaction::answer("302 Found", ""), PushOutcome::Refused),
        (Reaction::Raw("no HTTP\r\n\r\n".to_owned()), PushOutcome::Unreachable),
        (Reaction::Raw(String::new()), PushOutcome::Unreachable),
        (Reaction::RawThenHang("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_owned()), PushOutcome::Timeout),
        (Reaction::Hang, PushOutcome::Timeout),
        (Reaction::answer("200 OK", ""), PushOutcome::Taken),
    ] {
        let (before, requests) = (rig.count(ProfileKind::Cpu, outcome), service.requests().len());
        service.react(reaction.clone());
        rig.put(ProfileKind::Cpu);
        rig.wait_for(ProfileKind::Cpu, outcome, before + 1);
        assert_eq!(service.requests().len(), requests + 1, "{reaction:?}");
    }
}

#[test]
fn a_server_that_is_down_is_counted() {
    let free = dunlin_processes::free_address().expect("a free port");
    let rig = Rig::start(&options(&format!("http://{free}/ingest")));
    for count in 1..=3 {
        rig.put(ProfileKind::Heap);
        rig.wait_for(ProfileKind::Heap, PushOutcome::Unreachable, count);
    }
}

/// The only test of this process that records: it has one CPU profile at a time.
#[test]
fn profiles_are_recorded_one_after_the_other_and_operators_come_first() {
    let service = Service::start(Reaction::answer("200 OK", ""));
    let profiling = Profiling::start(&options(&service.endpoint()), "one").expect("threads");
    let counts = || profiling.counts();
    wait_for(&counts, |counts| counts.of(ProfileKind::Cpu, PushOutcome::Taken) >= 2);
    // This program has another allocator.
    wait_for(&counts, |counts| counts.of(ProfileKind::Heap, PushOutcome::NotRecorded) >= 1);
    let profile = cpu_profile_for_operator(Duration::from_millis(300), || false).expect("it comes first");
    assert!(!profile.is_empty());
    wait_for(&counts, |counts| counts.of(ProfileKind::Cpu, PushOutcome::Yielded) >= 1);
    let taken = counts().of(ProfileKind::Cpu, PushOutcome::Taken);
    wait_for(&counts, |counts| counts.of(ProfileKind::Cpu, PushOutcome::Taken) > taken);
}
