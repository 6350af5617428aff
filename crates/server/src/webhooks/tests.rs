//! Webhooks over real sockets, with every kind of response and failure.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use dunlin_config::WebhookKey;
use dunlin_engine::lifecycle::{Lifecycle, LifecycleKind};
use hyper::header::HeaderMap;
use serde_json::Value;

use super::*;
use crate::backend::service::{Came, Reaction, Service};

/// Maximum time that a test waits for a condition. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(30);

struct Rig {
    webhooks: Webhooks,
    service: Service,
}

fn options(endpoint: &str) -> WebhookOptions {
    WebhookOptions {
        endpoint: endpoint.parse().expect("a URL"),
        kinds: LifecycleKind::ALL.into_iter().collect(),
        keys: vec![WebhookKey::parse("whsec_bm8gc2VjcmV0IGlzIGluIHRoZSB0ZXN0cyBvZiBEdW5saW4=").expect("a key")],
        timeout_ms: 30_000,
        batch_events_max: 3,
        batch_wait_ms: 1,
        queue_events_max: 1_000,
        queue_bytes_max: 1 << 20,
        retry_timeout_ms: 60_000,
        retry_delay_ms_max: 2,
        static_headers: HeaderMap::new(),
        tls: None,
    }
}

impl Rig {
    fn start(reaction: Reaction, change: impl FnOnce(&mut WebhookOptions)) -> Self {
        Self::start_as(false, reaction, change)
    }

    fn start_as(is_clustered: bool, reaction: Reaction, change: impl FnOnce(&mut WebhookOptions)) -> Self {
        let service = Service::start(reaction);
        let mut options = options(&service.endpoint());
        change(&mut options);
        Self { webhooks: Webhooks::start(&options, "node", is_clustered).expect("a thread"), service }
    }

    /// Sends events about the channels with these numbers.
    fn push(&self, channels: std::ops::Range<u32>) {
        for channel in channels {
            let what = Lifecycle::Occupied { channel: channel.to_string().as_str().into() };
            self.webhooks.push(Happened { event: LifecycleEvent { unix_ms: 5, what }, traffic: None });
        }
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&WebhookCounts) -> bool) -> WebhookCounts {
        let begun = Instant::now();
        loop {
            let counts = self.webhooks.counts();
            if is_so(&counts) {
                return counts;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: {counts:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait_for_taken(&self, events: u64) -> WebhookCounts {
        self.wait_for("events are taken", |counts| counts.taken == events && counts.waiting == 0)
    }

    fn flush(&self, timeout: Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(self.webhooks.flush(timeout));
    }
}

/// The ids and channels of a request's events.
fn events_of(came: &Came) -> Vec<(String, u32)> {
    let body: Value = serde_json::from_str(&came.body).expect("JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let events = body["events"].as_array().expect("a list").iter();
    events.map(|event| (text(&event["id"]), text(&event["channel"]).parse().expect("a number"))).collect()
}

/// What the backend has after it has dropped repetitions by id.
fn received(service: &Service) -> Vec<u32> {
    let mut by_id = BTreeMap::new();
    for (id, channel) in service.requests().iter().flat_map(events_of) {
        assert_eq!(*by_id.entry(id).or_insert(channel), channel, "an id belongs to one event");
    }
    let mut channels: Vec<_> = by_id.into_values().collect();
    channels.sort_unstable();
    channels
}

fn lost(counts: &WebhookCounts, why: EventLoss) -> u64 {
    counts.lost[why as usize]
}

#[test]
fn events_arrive_in_order_in_signed_batches() {
    let rig = Rig::start(Reaction::answer("204 No Content", ""), |options| options.batch_wait_ms = 60_000);
    rig.push(0..9);
    let counts = rig.wait_for_taken(9);
    assert_eq!((counts.lost, counts.oldest_age_ms), ([0; 5], 0));
    let requests = rig.service.requests();
    assert_eq!(requests.len(), 3, "a full batch does not wait");
    let channels: Vec<_> = requests.iter().flat_map(events_of).map(|(_, channel)| channel).collect();
    assert_eq!(channels, (0..9).collect::<Vec<_>>());
    for came in &requests {
        assert!(came.line.starts_with("POST /hook "), "{}", came.line);
        assert!(came.fields["webhook-signature"].starts_with("v1,") && came.fields.contains_key("webhook-timestamp"));
    }
    assert_ne!(requests[0].fields["webhook-id"], requests[1].fields["webhook-id"]);
}

#[test]
fn events_are_sent_again_until_the_backend_takes_them() {
    let bad = [
        Reaction::answer("500 Internal Server Error", "no"),
        Reaction::answer("404 Not Found", ""),
        Reaction::answer("429 Too Many Requests", ""),
        // A redirect is not followed.
        Reaction::Answer("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n".to_owned()),
        Reaction::Raw("HTTP/1.1 503 Unavailable\r\nContent-Length: 100\r\n\r\nshort".to_owned()),
        Reaction::Raw("this is no HTTP".to_owned()),
        Reaction::Raw(String::new()),
        Reaction::RawThenHang("HTTP/1.1 20".to_owned()),
        Reaction::Hang,
    ];
    for reaction in bad {
        let shown = format!("{reaction:?}");
        let rig = Rig::start(reaction, |options| options.timeout_ms = 200);
        rig.push(0..5);
        let failed = rig.wait_for(&shown, |counts| counts.requests.iter().sum::<u64>() >= 2);
        assert_eq!((failed.taken, failed.lost), (0, [0; 5]), "{shown}");
        rig.service.react(Reaction::answer("200 OK", "{}"));
        rig.wait_for_taken(5);
        assert_eq!(received(&rig.service), [0, 1, 2, 3, 4], "{shown}");
        let requests = rig.service.requests();
        assert!(requests.iter().all(|came| came.line.starts_with("POST /hook ")), "{shown}");
        assert_eq!(requests[0].body, requests[1].body, "{shown}: an attempt has the same body");
        assert_eq!(requests[0].fields["webhook-id"], requests[1].fields["webhook-id"], "{shown}");
    }
}

#[test]
fn the_status_decides_whatever_the_rest_of_the_response_is() {
    for rest in ["Content-Length: 100\r\n\r\nshort", "Transfer-Encoding: chunked\r\n\r\nZZ\r\n"] {
        let rig = Rig::start(Reaction::Raw(format!("HTTP/1.1 200 OK\r\n{rest}")), |_| ());
        rig.push(0..7);
        rig.wait_for_taken(7);
        assert_eq!(received(&rig.service), (0..7).collect::<Vec<_>>(), "{rest}");
    }
}

#[test]
fn what_the_backend_refuses_is_not_sent_again() {
    for status in ["400 Bad Request", "422 Unprocessable Content"] {
        let rig = Rig::start(Reaction::answer(status, ""), |_| ());
        rig.push(0..3);
        let counts = rig.wait_for(status, |counts| lost(counts, EventLoss::Refused) == 3);
        assert_eq!((counts.requests[RequestOutcome::Refused as usize], rig.service.requests().len()), (1, 1));
        rig.service.react(Reaction::answer("200 OK", ""));
        rig.push(3..6);
        rig.wait_for_taken(3);
        let body: Value = serde_json::from_str(&rig.service.requests()[1].body).expect("JSON");
        assert_eq!(body["lost"], 3, "the backend learns that it does not have all");
    }
}

/// The bytes of the body with these events, with numbers of one digit.
fn body_bytes(events: usize) -> usize {
    let one = r#"{"id":"node-0","type":"occupied","time_ms":5,"channel":"0"}"#.len();
    r#"{"node":"node","lost":0,"events":[]}"#.len() + events * (one + 1) - 1
}

#[test]
fn a_batch_that_is_too_large_is_sent_in_halves() {
    let rig = Rig::start(Reaction::UpTo(body_bytes(2)), |options| {
        (options.batch_events_max, options.batch_wait_ms) = (7, 60_000);
    });
    rig.push(0..7);
    let counts = rig.wait_for_taken(7);
    assert_eq!(counts.lost, [0; 5]);
    // 7 are too many; 3, of which 1 and 2 fit; 4, of which 2 and 2 fit.
    let requests = [RequestOutcome::TooLarge, RequestOutcome::Taken].map(|outcome| counts.requests[outcome as usize]);
    assert_eq!(requests, [3, 4]);
    let by_request: Vec<Vec<u32>> = rig
        .service
        .requests()
        .iter()
        .map(|came| events_of(came).into_iter().map(|(_, channel)| channel).collect())
        .collect();
    let all: Vec<u32> = (0..7).collect();
    assert_eq!(by_request, [&all[..], &all[..3], &all[..1], &all[1..3], &all[3..], &all[3..5], &all[5..]]);
    let ids: BTreeSet<_> = rig.service.requests().iter().map(|came| came.fields["webhook-id"].clone()).collect();
    assert_eq!(ids.len(), 7, "each part is a message of its own");
    assert_eq!(received(&rig.service), all);
}

#[test]
fn only_an_event_that_is_too_large_alone_is_lost() {
    let rig = Rig::start(Reaction::UpTo(body_bytes(1)), |options| {
        (options.batch_events_max, options.batch_wait_ms) = (3, 60_000);
    });
    let long = "9".repeat(100);
    rig.push(0..1);
    for channel in [&*long, "2"] {
        let what = Lifecycle::Occupied { channel: channel.into() };
        rig.webhooks.push(Happened { event: LifecycleEvent { unix_ms: 5, what }, traffic: None });
    }
    let counts = rig.wait_for_taken(2);
    assert_eq!((lost(&counts, EventLoss::Refused), counts.lost.iter().sum::<u64>()), (1, 1));
    let last = rig.service.requests().pop().expect("a request");
    assert_eq!(events_of(&last), [("node-2".to_owned(), 2)]);
}

#[test]
fn channels_whose_state_was_told_in_vain_are_told_again_in_a_cluster() {
    let refused = Reaction::answer("500 Internal Server Error", "");
    let rig = Rig::start_as(true, refused, |options| options.retry_timeout_ms = 20);
    rig.webhooks.tell("a".into(), ChannelState::Occupied, 0);
    rig.webhooks.tell("b".into(), ChannelState::Vacated, 0);
    rig.wait_for("they are given up", |counts| lost(counts, EventLoss::Expired) == 2);
    let shared = rig.webhooks.channels.as_ref().expect("a cluster");
    let mut given_up = shared.take_given_up();
    let begun = Instant::now();
    while given_up.len() < 2 && begun.elapsed() < PATIENCE {
        given_up.extend(shared.take_given_up());
    }
    assert_eq!(given_up.into_keys().collect::<BTreeSet<_>>(), ["a".into(), "b".into()].into());

    let rig = Rig::start_as(true, Reaction::answer("400 Bad Request", ""), |_| ());
    rig.webhooks.tell("a".into(), ChannelState::Occupied, 0);
    rig.wait_for("it is refused", |counts| lost(counts, EventLoss::Refused) == 1 && counts.waiting == 0);
    let shared = rig.webhooks.channels.as_ref().expect("a cluster");
    assert_eq!(shared.take_given_up(), BTreeMap::new(), "the backend would refuse it again");
}

#[test]
fn events_of_the_cluster_take_half_of_the_queue() {
    for by_bytes in [false, true] {
        let bytes = {
            let event = LifecycleEvent { unix_ms: 0, what: Lifecycle::Occupied { channel: "x".into() } };
            event.kept_bytes() + size_of::<Option<Traffic>>()
        };
        let rig = Rig::start_as(true, Reaction::Hang, |options| {
            options.batch_events_max = 1;
            (options.queue_events_max, options.queue_bytes_max) =
                if by_bytes { (1_000, 10 * bytes) } else { (10, 1 << 20) };
        });
        rig.webhooks.tell("x".into(), ChannelState::Occupied, 0);
        rig.wait_for("a request is in progress", |counts| counts.waiting == 1 && counts.waiting_bytes == 0);
        for told in 0..5 {
            assert!(rig.webhooks.has_space_for_channels(), "{told} of 5");
            rig.webhooks.tell("x".into(), ChannelState::Occupied, 0);
        }
        assert!(!rig.webhooks.has_space_for_channels(), "one past the limit");
        assert_eq!(rig.webhooks.counts().lost, [0; 5]);
    }
}

#[test]
fn what_the_reporter_has_not_told_waits_and_is_lost_with_the_node() {
    let rig = Rig::start_as(true, Reaction::Hang, |_| ());
    let shared = rig.webhooks.channels.as_ref().expect("a cluster");
    assert_eq!(rig.webhooks.behind_ms(), 0);
    shared.set_untold(7, 60_000);
    let behind_ms = rig.webhooks.behind_ms();
    assert!((60_000..120_000).contains(&behind_ms), "{behind_ms}");
    assert_eq!(rig.webhooks.counts().waiting, 7);
    rig.flush(Duration::from_millis(50));
    assert_eq!(lost(&rig.webhooks.counts(), EventLoss::Shutdown), 7);
}

/// The reporter may tell an old change behind new ones.
#[test]
fn the_age_of_what_the_backend_has_not_taken_counts_the_queue() {
    let rig = Rig::start_as(true, Reaction::Hang, |options| {
        (options.batch_events_max, options.queue_events_max) = (1, 1);
    });
    rig.webhooks.tell("new".into(), ChannelState::Occupied, 0);
    rig.wait_for("a request is in progress", |counts| counts.waiting == 1 && counts.waiting_bytes == 0);
    rig.webhooks.tell("old".into(), ChannelState::Occupied, 600_000);
    rig.webhooks.tell("refused".into(), ChannelState::Occupied, 900_000);
    assert_eq!(lost(&rig.webhooks.counts(), EventLoss::QueueFull), 1);
    let behind_ms = rig.webhooks.behind_ms();
    assert!((600_000..700_000).contains(&behind_ms), "{behind_ms}");

    let rig = Rig::start_as(true, Reaction::answer("204 No Content", ""), |_| ());
    for age_ms in [600_000, 700_000, 600_000] {
        rig.webhooks.tell("old".into(), ChannelState::Occupied, age_ms);
    }
    rig.wait_for("nothing is behind", |counts| counts.taken == 3 && rig.webhooks.behind_ms() == 0);
}

#[test]
fn channels_beyond_the_limit_of_the_cluster_are_counted_as_lost() {
    let rig = Rig::start_as(true, Reaction::Hang, |_| ());
    rig.webhooks.count_ignored(3);
    assert_eq!(lost(&rig.webhooks.counts(), EventLoss::ChannelLimit), 3);
}

#[test]
fn events_are_given_up_after_the_retry_timeout() {
    let rig = Rig::start(Reaction::answer("500 Internal Server Error", ""), |options| options.retry_timeout_ms = 20);
    rig.push(0..3);
    let counts = rig.wait_for("they are given up", |counts| lost(counts, EventLoss::Expired) == 3);
    assert_eq!((counts.taken, counts.waiting), (0, 0));
}

#[test]
fn the_queue_is_bounded_in_events_and_in_bytes() {
    let in_flight = 3;
    let of_one = |rig: &Rig| {
        rig.push(0..1);
        rig.wait_for("one waits", |counts| counts.waiting_bytes > 0).waiting_bytes
    };
    let rig = Rig::start(Reaction::Hang, |options| options.queue_events_max = 10);
    rig.push(0..in_flight);
    rig.wait_for("a request is in progress", |counts| {
        counts.waiting == u64::from(in_flight) && counts.waiting_bytes == 0
    });
    rig.push(0..10);
    let full = rig.webhooks.counts();
    assert_eq!((lost(&full, EventLoss::QueueFull), full.waiting), (0, 13), "at the limit");
    rig.push(0..1);
    let over = rig.webhooks.counts();
    assert_eq!((lost(&over, EventLoss::QueueFull), over.waiting), (1, 13), "one past it");

    let rig = Rig::start(Reaction::Hang, |_| ());
    rig.push(0..in_flight);
    rig.wait_for("a request is in progress", |counts| {
        counts.waiting == u64::from(in_flight) && counts.waiting_bytes == 0
    });
    let bytes = of_one(&rig);
    let rig = Rig::start(Reaction::Hang, |options| options.queue_bytes_max = 4 * bytes as usize);
    rig.push(0..in_flight);
    rig.wait_for("a request is in progress", |counts| {
        counts.waiting == u64::from(in_flight) && counts.waiting_bytes == 0
    });
    rig.push(0..4);
    assert_eq!(lost(&rig.webhooks.counts(), EventLoss::QueueFull), 0, "at the limit");
    rig.push(0..1);
    assert_eq!(lost(&rig.webhooks.counts(), EventLoss::QueueFull), 1, "one past it");
}

#[test]
fn a_shutdown_sends_what_waits_and_does_not_wait_for_ever() {
    let rig = Rig::start(Reaction::answer("200 OK", ""), |options| options.batch_wait_ms = 60_000);
    rig.push(0..100);
    rig.flush(PATIENCE);
    let counts = rig.webhooks.counts();
    assert_eq!((counts.taken, counts.lost, counts.waiting), (100, [0; 5], 0));

    let rig = Rig::start(Reaction::Hang, |_| ());
    rig.push(0..100);
    rig.flush(Duration::from_millis(50));
    let counts = rig.webhooks.counts();
    assert_eq!((counts.taken, lost(&counts, EventLoss::Shutdown)), (0, 100));
}
