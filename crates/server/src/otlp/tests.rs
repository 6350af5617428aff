//! Spans and metrics over real sockets, with every kind of response and failure.

use dunlin_config::{MetricsOptions, Sampler, TraceOptions};
use dunlin_protocol::protobuf::wire::{Reader, Value};

use super::{
    span::{Attribute, Span},
    *,
};
use crate::{
    backend::service::{Reaction, Service},
    telemetry::metrics::{Family, MetricKind},
};

/// Maximum time that a test waits for a condition. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_mins(1);

static COUNTER: Family = Family { name: "t_bytes_total", kind: MetricKind::Counter, labels: &["a"], help: "Bytes." };

pub(crate) fn options(endpoint: &str) -> OpenTelemetryOptions {
    let sampler = Sampler { follows_callers: true, ratio: 1.0 };
    let endpoint: dunlin_token::SecretUrl = endpoint.parse().expect("a URL");
    OpenTelemetryOptions {
        traces: Some(TraceOptions { endpoint: endpoint.clone(), api: true, spans_max: 8, sampler }),
        metrics: Some(MetricsOptions { endpoint, interval_ms: 60_000 }),
        timeout_ms: 30_000,
        headers: hyper::HeaderMap::new(),
        tls: None,
        resource: vec![("service.name".to_owned(), "dunlin".to_owned())],
    }
}

pub(crate) fn start(options: &OpenTelemetryOptions) -> Otlp {
    Otlp::start(options, "uid-1", "one").expect("a thread")
}

fn wait_for(otlp: &Otlp, is_so: impl Fn(&OtlpCounts) -> bool) {
    let begun = std::time::Instant::now();
    while !is_so(&otlp.counts()) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", otlp.counts());
        thread::sleep(Duration::from_millis(1));
    }
}

fn spans(counts: &OtlpCounts, outcome: ExportOutcome) -> u64 {
    counts.spans[outcome as usize]
}

fn pushes(counts: &OtlpCounts, signal: Signal, outcome: ExportOutcome) -> u64 {
    counts.pushes[signal as usize][outcome as usize]
}

/// The values of a field of a message.
fn fields(message: &[u8], wanted: u32) -> Vec<Value<'_>> {
    let mut reader = Reader::new(message);
    let mut found = Vec::new();
    while let Some((number, value)) = reader.field().expect("Protobuf") {
        if number == wanted {
            found.push(value);
        }
    }
    found
}

fn inside<'b>(message: &'b [u8], path: &[u32]) -> &'b [u8] {
    path.iter().fold(message, |message, field| fields(message, *field)[0].bytes().expect("a message"))
}

fn caller() -> TraceContext {
    TraceContext { trace_id: [7; 16], span_id: [9; 8], is_sampled: true, state: Some("a=1".into()) }
}

#[test]
fn a_span_continues_the_trace_of_its_parent() {
    let service = Service::start(Reaction::answer("200 OK", ""));
    let otlp = start(&options(&service.endpoint()));
    let tracer = otlp.tracer().expect("traces are sent");
    let mut span = tracer.open("POST /api", SpanKind::Server, Parent::Caller(&caller()));
    assert_eq!((span.context().trace_id, span.context().state.as_deref()), ([7; 16], Some("a=1")));
    assert_ne!(span.context().span_id, [9; 8]);
    span.set("http.response.status_code", 500_i64);
    span.fail("it broke");
    drop(span);
    wait_for(&otlp, |counts| spans(counts, ExportOutcome::Accepted) == 1);
    let requests = service.requests();
    assert_eq!(requests[0].fields["content-type"], "application/x-protobuf");
}

#[test]
fn a_span_is_encoded_as_otlp_has_it() {
    let span = Span {
        context: caller(),
        parent_id: Some([5; 8]),
        name: "POST /api".into(),
        kind: SpanKind::Client,
        began_unix_ns: 1_000,
        ended_unix_ns: 3_000,
        attributes: vec![("text", Attribute::from("")), ("number", Attribute::from(0))],
        error: Some("broken".into()),
    };
    let resource = Resource::new(&[("service.name".to_owned(), "game".to_owned())], "uid-1", "");
    let request = encode::traces(&resource, &[Box::new(span)]);
    let keys: Vec<_> = fields(inside(&request, &[1, 1]), 1)
        .into_iter()
        .map(|attribute| fields(attribute.bytes().unwrap(), 1)[0].text().unwrap())
        .collect();
    assert_eq!(keys, ["service.name", "service.version", "service.instance.id"]);
    let span = inside(&request, &[1, 2, 2]);
    let bytes = |field| fields(span, field)[0].bytes().unwrap();
    assert_eq!((bytes(1), bytes(2), bytes(3), bytes(4)), (&[7; 16][..], &[9; 8][..], &b"a=1"[..], &[5; 8][..]));
    assert_eq!((bytes(5), fields(span, 6)), (&b"POST /api"[..], vec![Value::Varint(3)]));
    assert_eq!((fields(span, 7), fields(span, 8)), (vec![Value::Fixed64(1_000)], vec![Value::Fixed64(3_000)]));
    let attributes: Vec<_> = fields(span, 9).into_iter().map(|attribute| attribute.bytes().unwrap()).collect();
    assert_eq!(fields(inside(attributes[0], &[2]), 1), [Value::Bytes(b"")]);
    assert_eq!(fields(inside(attributes[1], &[2]), 3), [Value::Varint(0)]);
    assert_eq!((inside(span, &[15, 2]), fields(inside(span, &[15]), 3)), (&b"broken"[..], vec![Value::Varint(2)]));
}

#[test]
fn metrics_are_encoded_as_otlp_has_them() {
    static TIMED: Family = Family { name: "t_seconds", kind: MetricKind::Histogram, labels: &[], help: "Time." };
    static GAUGE: Family = Family { name: "t_ratio", kind: MetricKind::Gauge, labels: &[], help: "A share." };
    static UNUSED: Family = Family { name: "t_unused", kind: MetricKind::Gauge, labels: &[], help: "Nothing." };
    let of = |family, value| FamilyPoints { family, points: vec![Point { label_values: vec![], value }] };
    let counter = FamilyPoints {
        family: &COUNTER,
        points: vec![Point { label_values: vec!["x".into()], value: PointValue::Number(Number::Whole(5)) }],
    };
    let exponential = Exponential { scale: 3, offset: -2, counts: vec![1, 0, 2], zero_count: 0, sum: 1.5 };
    let families = [
        counter,
        of(&GAUGE, PointValue::Number(Number::Fraction(0.5))),
        FamilyPoints { family: &UNUSED, points: Vec::new() },
        of(&TIMED, PointValue::Histogram { bounds: vec![0.5], counts: vec![3, 4], sum: 2.5 }),
        of(&TIMED, PointValue::Exponential(exponential)),
    ];
    let resource = Resource::new(&[], "", "");
    let request = encode::metrics(&resource, &families, Duration::from_nanos(77));
    let metrics: Vec<_> =
        fields(inside(&request, &[1, 2]), 2).into_iter().map(|metric| metric.bytes().unwrap()).collect();
    let text = |metric, field| fields(metric, field)[0].text().unwrap();
    assert_eq!(metrics.len(), 4);
    assert_eq!((text(metrics[0], 1), text(metrics[0], 2), text(metrics[0], 3)), ("t_bytes_total", "Bytes.", "By"));
    let sum = inside(metrics[0], &[7]);
    assert_eq!((fields(sum, 2), fields(sum, 3)), (vec![Value::Varint(2)], vec![Value::Varint(1)]));
    let point = inside(sum, &[1]);
    assert_eq!((fields(point, 2), fields(point, 6)), (vec![Value::Fixed64(77)], vec![Value::Fixed64(5)]));
    assert_eq!((inside(point, &[7, 1]), inside(point, &[7, 2, 1])), (&b"a"[..], &b"x"[..]));
    assert_eq!((text(metrics[1], 3), inside(metrics[1], &[5, 1])[0] >> 3), ("1", 2));
    assert_eq!(fields(inside(metrics[1], &[5, 1]), 4), [Value::Fixed64(0.5_f64.to_bits())]);
    let histogram = inside(metrics[2], &[9, 1]);
    assert_eq!((fields(histogram, 4), fields(histogram, 6)[0].bytes().unwrap()[0]), (vec![Value::Fixed64(7)], 3));
    assert_eq!(fields(histogram, 7), [Value::Bytes(&0.5_f64.to_le_bytes())]);
    let point = inside(metrics[3], &[10, 1]);
    assert_eq!((fields(point, 4), fields(point, 6)), (vec![Value::Fixed64(3)], vec![Value::Varint(6)]));
    let buckets = inside(point, &[8]);
    assert_eq!(fields(buckets, 1), [Value::Varint(3)]);
    assert_eq!(fields(buckets, 2), [Value::Varint(1), Value::Varint(0), Value::Varint(2)]);
}

#[test]
fn callers_and_ratios_decide_what_is_recorded() {
    let service = Service::start(Reaction::answer("200 OK", ""));
    let tracer_of = |follows_callers, ratio| {
        let mut options = options(&service.endpoint());
        options.traces.as_mut().unwrap().sampler = Sampler { follows_callers, ratio };
        start(&options)
    };
    let on = caller();
    let off = TraceContext { is_sampled: false, ..caller() };
    for (follows_callers, ratio, parent, expected) in [
        (true, 1.0, Parent::None, true),
        (true, 0.0, Parent::None, false),
        (true, 0.0, Parent::Caller(&on), true),
        (true, 1.0, Parent::Caller(&off), false),
        (false, 0.0, Parent::Caller(&on), false),
        (false, 1.0, Parent::Caller(&off), true),
        // A client cannot have itself recorded, nor hide.
        (true, 0.0, Parent::Client(&on), false),
        (true, 1.0, Parent::Client(&off), true),
        (true, 0.0, Parent::Own(&on), true),
        (true, 1.0, Parent::Own(&off), false),
    ] {
        let otlp = tracer_of(follows_callers, ratio);
        let span = otlp.tracer().unwrap().open("s", SpanKind::Internal, parent);
        assert_eq!(span.context().is_sampled, expected, "{follows_callers} {ratio} {parent:?}");
    }
    // A client chooses its id, which therefore decides nothing: this one would always be chosen.
    let otlp = tracer_of(true, 0.01);
    let chosen = TraceContext { trace_id: *b"chosen\0\0\0\0\0\0\0\0\0\0", ..caller() };
    let tracer = otlp.tracer().unwrap();
    let sampled =
        (0..500).filter(|_| tracer.open("s", SpanKind::Internal, Parent::Client(&chosen)).context().is_sampled);
    assert!(sampled.count() < 100, "five of 500 are expected");
    // The share of the traces with ids that are spread evenly.
    let otlp = tracer_of(false, 0.25);
    let tracer = otlp.tracer().unwrap();
    let sampled = |byte: u8| {
        let trace_id = [byte; 16];
        tracer
            .open("s", SpanKind::Internal, Parent::Caller(&TraceContext { trace_id, ..caller() }))
            .context()
            .is_sampled
    };
    assert_eq!((1..=255).filter(|byte| sampled(*byte)).count(), 63);
}

#[test]
fn a_room_belongs_to_the_newest_request_that_opens_it() {
    let service = Service::start(Reaction::answer("200 OK", ""));
    let otlp = start(&options(&service.endpoint()));
    let tracer = otlp.tracer().unwrap();
    let opened = || tracer.open("room_open", SpanKind::Internal, Parent::None);
    let opening = |span: &OpenSpan| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(traced(span, async { current_opens_room("arena") })).expect("a current span")
    };
    let of_arena = || tracer.room_openers().of("arena").map(|context| context.span_id);
    let (first, second) = (opened(), opened());
    let (is_first, is_second) = (opening(&first), opening(&second));
    drop(is_first);
    assert_eq!(of_arena(), Some(second.context().span_id), "the second one still waits");
    drop(is_second);
    assert_eq!(of_arena(), None);
}

#[test]
fn recoveries_in_a_second_are_limited() {
    let service = Service::start(Reaction::answer("200 OK", ""));
    let tracing = |ratio| {
        let mut options = options(&service.endpoint());
        let traces = options.traces.as_mut().unwrap();
        (traces.sampler.ratio, traces.spans_max) = (ratio, 1_024);
        start(&options)
    };
    let otlp = tracing(1.0);
    let tracer = otlp.tracer().unwrap();
    let limit = u64::from(span::RECOVERIES_PER_SECOND);
    let opened = |now_us| {
        let span = tracer.open_recovery(now_us, || Some(caller()));
        span.is_some_and(|span| span.context().trace_id == [7; 16] && span.context().is_sampled)
    };
    assert!((0..limit).all(|_| opened(5_000_000)), "at the limit");
    assert_eq!(spans(&otlp.counts(), ExportOutcome::Dropped), 0);
    assert!(!opened(5_000_000), "one past it");
    assert_eq!(spans(&otlp.counts(), ExportOutcome::Dropped), 1);
    assert!(opened(5_000_000 + 1_000_000 / limit) && !opened(5_000_000 + 1_000_000 / limit), "one more after a while");
    // Those that are not sampled take no place, and their header fields are not read.
    let otlp = tracing(0.0);
    let unread = || unreachable!("it is not recorded");
    assert!((0..1_000).all(|_| otlp.tracer().unwrap().open_recovery(0, unread).is_none()));
    assert_eq!(spans(&otlp.counts(), ExportOutcome::Dropped), 0);
}

#[test]
fn spans_of_a_batch_are_limited() {
    let service = Service::start(Reaction::answer("200 OK", ""));
    let mut options = options(&service.endpoint());
    options.traces.as_mut().unwrap().spans_max = 1_024;
    let otlp = start(&options);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let opened_of = |commands: u32, caller: TraceContext| {
        let span = otlp.tracer().unwrap().open("batch", SpanKind::Server, Parent::Caller(&caller));
        let work = async { (0..commands).filter(|_| current_child("publish").is_some()).count() };
        (runtime.block_on(traced(&span, work)), spans(&otlp.counts(), ExportOutcome::Dropped))
    };
    assert_eq!(opened_of(span::CHILDREN_MAX, caller()), (64, 0), "at the limit");
    assert_eq!(opened_of(span::CHILDREN_MAX + 1, caller()), (64, 1), "one past it");
    let unrecorded = TraceContext { is_sampled: false, ..caller() };
    assert_eq!(opened_of(100, unrecorded), (0, 1));
}

#[test]
fn spans_beyond_the_queue_are_dropped_and_counted() {
    let service = Service::start(Reaction::Gate);
    let otlp = start(&options(&service.endpoint()));
    let tracer = otlp.tracer().unwrap();
    // The first batch is being sent when the collector has its request.
    drop(tracer.open("first", SpanKind::Internal, Parent::None));
    service.wait_for_request(PATIENCE);
    for _ in 0..8 {
        drop(tracer.open("waits", SpanKind::Internal, Parent::None));
    }
    assert_eq!((otlp.counts().spans_waiting, spans(&otlp.counts(), ExportOutcome::Dropped)), (8, 0), "at the limit");
    drop(tracer.open("too many", SpanKind::Internal, Parent::None));
    assert_eq!((otlp.counts().spans_waiting, spans(&otlp.counts(), ExportOutcome::Dropped)), (8, 1), "one past it");
    service.open_gate();
    wait_for(&otlp, |counts| spans(counts, ExportOutcome::Accepted) == 9);
}

#[test]
fn failures_are_counted() {
    for (reaction, outcome) in [
        (Reaction::answer("400 Bad Request", ""), ExportOutcome::Rejected),
        (Reaction::answer("404 Not Found", ""), ExportOutcome::Rejected),
        (Reaction::answer("500 Oh", ""), ExportOutcome::ServerError),
    ] {
        let words = format!("{reaction:?}");
        let service = Service::start(reaction);
        let otlp = start(&options(&service.endpoint()));
        drop(otlp.tracer().unwrap().open("s", SpanKind::Internal, Parent::None));
        wait_for(&otlp, |counts| spans(counts, outcome) == 1);
        assert_eq!(service.requests().len(), 1, "{words}: the same request would fail again");
    }
}

#[test]
fn a_collector_that_is_busy_gets_the_batch_again() {
    let service = Service::start(Reaction::answer("503 Busy", ""));
    let otlp = start(&options(&service.endpoint()));
    drop(otlp.tracer().unwrap().open("s", SpanKind::Internal, Parent::None));
    wait_for(&otlp, |counts| pushes(counts, Signal::Traces, ExportOutcome::ServerError) == 1);
    service.react(Reaction::answer("200 OK", ""));
    wait_for(&otlp, |counts| spans(counts, ExportOutcome::Accepted) == 1);
    assert_eq!(spans(&otlp.counts(), ExportOutcome::ServerError), 0);
}

#[test]
fn a_collector_can_ask_for_a_longer_pause() {
    let asked = |text: &'static str| {
        let field = (hyper::header::RETRY_AFTER, hyper::header::HeaderValue::from_static(text));
        push::asked_pause(&[field].into_iter().collect()).map(|pause| pause.as_secs())
    };
    assert_eq!((asked("7"), asked("30"), asked("31")), (Some(7), Some(30), Some(30)));
    assert_eq!((asked("Fri, 31 Dec 1999 23:59:59 GMT"), asked("-1"), asked("")), (None, None, None));
}

#[test]
fn newer_metrics_replace_those_that_wait() {
    let service = Service::start(Reaction::Gate);
    let otlp = start(&options(&service.endpoint()));
    let point = Point { label_values: vec!["x".into()], value: PointValue::Number(Number::Whole(5)) };
    let families = [FamilyPoints { family: &COUNTER, points: vec![point] }];
    otlp.put_metrics(&families, Duration::ZERO);
    service.wait_for_request(PATIENCE);
    for _ in 0..3 {
        otlp.put_metrics(&families, Duration::ZERO);
    }
    assert_eq!(pushes(&otlp.counts(), Signal::Metrics, ExportOutcome::Dropped), 2);
    service.open_gate();
    wait_for(&otlp, |counts| pushes(counts, Signal::Metrics, ExportOutcome::Accepted) == 2);
}

#[test]
fn what_a_collector_leaves_out_counts_as_rejected() {
    // partial_success { rejected_spans: 3, error_message: "no" }
    assert_eq!(encode::rejected(b"\x0a\x06\x08\x03\x12\x02no"), 3);
    for nothing in [&b""[..], b"\x0a\x00", b"\x0a\x7f", b"\x08\x03", b"<html>", b"\x0a\x02\x0a\x00"] {
        assert_eq!(encode::rejected(nothing), 0, "{nothing:?}");
    }
}

#[test]
fn the_last_spans_are_sent_at_the_end() {
    let service = Service::start(Reaction::answer("200 OK", ""));
    let otlp = start(&options(&service.endpoint()));
    drop(otlp.tracer().unwrap().open("s", SpanKind::Internal, Parent::None));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(otlp.end(PATIENCE));
    assert_eq!(spans(&otlp.counts(), ExportOutcome::Accepted), 1);
}
