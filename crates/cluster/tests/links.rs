//! Tests of the connections against one and three real servers.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use bytes::Bytes;
use dunlin_cluster::{
    link::{LinkEffect, LinkEvent, LinkName, MessageHeaders, PublishFault, ReadAnswer, ReadFault, RequestNumber},
    links::{ConnectionName, LinkCredentials, LinkOptions, LinkReport, Links, open_once, parsed_servers},
    streams::{StreamTerms, ensure},
};
use dunlin_proof::nats::NatsServers;
use tokio::time::timeout;

pub const PATIENCE: Duration = Duration::from_mins(2);

pub fn options(urls: &str) -> (LinkOptions, Receiver<LinkReport>) {
    let (sender, receiver): (Sender<LinkReport>, _) = channel();
    let options = LinkOptions {
        servers: parsed_servers(urls).expect("these are addresses"),
        credentials: LinkCredentials::None,
        tls: None,
        name: "node-a".into(),
        inbox: "_DN.node-a".into(),
        dial_timeout: Duration::from_secs(1),
        ack_timeout: Duration::from_secs(1),
        read_timeout: Duration::from_secs(2),
        messages_max: 65_536,
        messages_bytes_max: 64 << 20,
        report: Arc::new(move |report| drop(sender.send(report))),
    };
    (options, receiver)
}

pub fn terms(replicas: u16) -> StreamTerms {
    StreamTerms {
        name: "dn_chat_0".into(),
        source: "dn.p.chat.0.>".into(),
        destination: "dn.r.chat.0.>".into(),
        replicas,
        is_in_memory: false,
        messages_per_subject_max: 11,
        age_max_ms: 3_600_000,
        duplicate_window_ms: 120_000,
        partitions: 1,
    }
}

/// Links, and the events that the test has not read yet.
struct Driven {
    links: Links,
    unseen: VecDeque<LinkEvent>,
    reports: Receiver<LinkReport>,
}

impl Driven {
    async fn connected(servers: &NatsServers, replicas: u16) -> Self {
        let (options, reports) = options(&servers.urls());
        let client = open_once(&options).await.expect("a server takes the connection");
        ensure(&client, &terms(replicas), "epoch-1", PATIENCE).await.expect("the stream is made");
        let mut driven = Self { links: Links::start(&options), unseen: VecDeque::new(), reports };
        for link in LinkName::ALL {
            driven.find(|event| matches!(event, LinkEvent::Connected { link: at, .. } if *at == link)).await;
        }
        driven
    }

    /// Takes the first event that matches, and keeps the others.
    async fn find(&mut self, is_wanted: impl Fn(&LinkEvent) -> bool) -> LinkEvent {
        if let Some(index) = self.unseen.iter().position(&is_wanted) {
            return self.unseen.remove(index).expect("it is there");
        }
        loop {
            let event = timeout(PATIENCE, self.links.next()).await.expect("the event arrives").expect("the links run");
            if is_wanted(&event) {
                return event;
            }
            self.unseen.push_back(event);
        }
    }

    fn publish(&mut self, request: u64, channel: &str, body: &str) {
        self.publish_on(LinkName::Publish, request, channel, body);
    }

    fn publish_on(&mut self, link: LinkName, request: u64, channel: &str, body: &str) {
        self.links.perform(LinkEffect::Publish {
            link,
            request: Some(RequestNumber(request)),
            subject: format!("dn.p.chat.0.{channel}").into(),
            headers: MessageHeaders::new().with("Nats-Msg-Id", format!("id-{request}")).with("Dn-Tag", "é=1"),
            payload: Bytes::copy_from_slice(body.as_bytes()),
        });
    }

    async fn acknowledged(&mut self, wanted: u64) -> Result<(u64, bool), PublishFault> {
        let event =
            self.find(|event| matches!(event, LinkEvent::Acknowledged { request, .. } if request.0 == wanted)).await;
        let LinkEvent::Acknowledged { outcome, .. } = event else { unreachable!("an unwanted event") };
        outcome.map(|ack| (ack.sequence, ack.is_duplicate))
    }

    async fn read(&mut self, effect: LinkEffect) -> Result<ReadAnswer, ReadFault> {
        self.links.perform(effect);
        let event = self.find(|event| matches!(event, LinkEvent::Answered { .. })).await;
        let LinkEvent::Answered { outcome, .. } = event else { unreachable!("an unwanted event") };
        outcome
    }

    /// Publishes on the connection of the subscriptions, and retries until the stream acknowledges.
    async fn publish_until_acknowledged(&mut self, first_request: u64, channel: &str) -> u64 {
        for request in first_request.. {
            self.publish_on(LinkName::Live, request, channel, "again");
            match self.acknowledged(request).await {
                Ok((sequence, _)) => return sequence,
                Err(PublishFault::Refused { description, .. }) => panic!("{description}"),
                Err(_) => {}
            }
        }
        unreachable!("there is always a next request")
    }
}

fn subject(channel: &str) -> Box<str> {
    format!("dn.p.chat.0.{channel}").into()
}

fn sequences(answer: &ReadAnswer) -> Vec<u64> {
    answer.messages.iter().map(|message| message.sequence).collect()
}

#[tokio::test]
async fn publications_are_delivered_and_acknowledged() {
    let servers = NatsServers::start(1, "");
    let mut driven = Driven::connected(&servers, 1).await;
    driven.links.perform(LinkEffect::Subscribe { subject: "dn.r.chat.0.a".into() });
    // On the same connection, so the server processes the subscription before the message.
    driven.publish_on(LinkName::Live, 1, "a", "one");
    assert_eq!(driven.acknowledged(1).await, Ok((1, false)));
    let event = driven.find(|event| matches!(event, LinkEvent::Delivered { .. })).await;
    let LinkEvent::Delivered { subject, headers, payload, .. } = event else { unreachable!("an unwanted event") };
    assert_eq!((&*subject, &payload[..]), ("dn.r.chat.0.a", &b"one"[..]));
    assert_eq!(headers.number("Nats-Sequence"), Some(1));
    assert_eq!((headers.number("Nats-Last-Sequence"), headers.get("Dn-Tag")), (Some(0), Some("é=1")));
    driven.publish(1, "a", "one");
    assert_eq!(driven.acknowledged(1).await, Ok((1, true)));
}

#[tokio::test]
async fn reads_return_stored_messages_and_report_missing_ones() {
    let servers = NatsServers::start(1, "");
    let mut driven = Driven::connected(&servers, 1).await;
    let stream: Box<str> = "dn_chat_0".into();
    for request in 1..=30 {
        driven.publish(request, if request % 2 == 0 { "even" } else { "odd" }, "x");
        driven.acknowledged(request).await.expect("it is stored");
    }
    let request = RequestNumber(100);
    // The stream keeps eleven messages per channel. It has evicted the first four odd and the first four even ones.
    let heads = LinkEffect::LastOf {
        request,
        stream: stream.clone(),
        subjects: vec![subject("even"), subject("odd"), subject("none")],
        floor: None,
    };
    let answer = driven.read(heads).await.expect("it is answered");
    assert_eq!((sequences(&answer), answer.up_to_sequence, answer.pending), (vec![29, 30], 30, 0));
    assert_eq!(&*answer.messages[0].subject, "dn.p.chat.0.odd");
    let floor = LinkEffect::LastOf {
        request,
        stream: stream.clone(),
        subjects: vec![subject("even"), subject("odd")],
        floor: Some(30),
    };
    assert_eq!(sequences(&driven.read(floor).await.expect("it is answered")), [30]);
    let none = LinkEffect::LastOf { request, stream: stream.clone(), subjects: vec![subject("none")], floor: None };
    assert_eq!(sequences(&driven.read(none).await.expect("it is answered")), [0; 0]);

    let range = |subject: Option<Box<str>>, from, messages_max| LinkEffect::Range {
        request,
        stream: "dn_chat_0".into(),
        subject,
        from,
        messages_max,
    };
    let answer = driven.read(range(None, 1, 5)).await.expect("it is answered");
    assert_eq!((sequences(&answer), answer.pending), (vec![9, 10, 11, 12, 13], 17));
    let answer = driven.read(range(Some(subject("even")), 25, 20)).await.expect("it is answered");
    assert_eq!((sequences(&answer), answer.pending), (vec![26, 28, 30], 0));
    assert_eq!(sequences(&driven.read(range(None, 31, 5)).await.expect("it is answered")), [0; 0]);

    let known = LinkEffect::Sequences { request, stream: stream.clone(), sequences: vec![30, 2, 15, 99] };
    assert_eq!(sequences(&driven.read(known).await.expect("it is answered")), [15, 30]);

    let since = |time_ms| LinkEffect::FirstSince { request, stream: "dn_chat_0".into(), time_ms };
    let answer = driven.read(since(0)).await.expect("it is answered");
    assert_eq!(sequences(&answer), [9]);
    let answer = driven.read(since(answer.messages[0].time_ms + 86_400_000)).await.expect("it is answered");
    assert_eq!(sequences(&answer), [0; 0]);

    let nowhere = LinkEffect::Range { request, stream: "dn_nowhere_0".into(), subject: None, from: 1, messages_max: 5 };
    assert_eq!(driven.read(nowhere).await, Err(ReadFault::NoResponders));
}

#[tokio::test]
async fn an_answer_that_the_server_truncates_is_read_completely() {
    // The server ends an answer at `max_payload` bytes.
    let servers = NatsServers::start(1, "max_payload: 100KB\n");
    let mut driven = Driven::connected(&servers, 1).await;
    let body = "x".repeat(90_000);
    // Not all at once: a busy machine takes longer than the timeout of an acknowledgement to store 36 MB.
    for first in (1..=400_u64).step_by(20) {
        for request in first..first + 20 {
            driven.publish(request, &format!("c{request}"), &body);
        }
        for request in first..first + 20 {
            driven.acknowledged(request).await.expect("it is stored");
        }
    }
    let request = RequestNumber(1_000);
    // The messages take 36 MB; the server's `max_pending` is 16 MB.
    let all = LinkEffect::Range { request, stream: "dn_chat_0".into(), subject: None, from: 1, messages_max: 1_000 };
    let answer = driven.read(all).await.expect("it is answered");
    assert_eq!((answer.messages.len(), answer.pending), (400, 0));
    let subjects: Vec<_> = (1..=400).map(|number| subject(&format!("c{number}"))).collect();
    let heads = LinkEffect::LastOf { request, stream: "dn_chat_0".into(), subjects, floor: None };
    let answer = driven.read(heads).await.expect("it is answered");
    assert_eq!((answer.messages.len(), answer.up_to_sequence), (400, 400));
    let known = LinkEffect::Sequences { request, stream: "dn_chat_0".into(), sequences: (1..=400).collect() };
    assert_eq!(driven.read(known).await.expect("it is answered").messages.len(), 400);
}

#[tokio::test]
async fn a_stream_is_described() {
    let servers = NatsServers::start(1, "");
    let mut driven = Driven::connected(&servers, 1).await;
    for (request, stream) in [(1, "dn_chat_0"), (2, "dn_nowhere_0")] {
        driven.links.perform(LinkEffect::Describe { request: RequestNumber(request), stream: stream.into() });
    }
    for _ in 0..2 {
        match driven.find(|event| matches!(event, LinkEvent::StreamInfo { .. })).await {
            LinkEvent::StreamInfo { request: RequestNumber(1), outcome: Ok(state) } => {
                assert_eq!((state.last_sequence, state.has_leader), (0, true));
                assert_eq!(state.metadata("dunlin.epoch"), Some("epoch-1"));
                assert_eq!(state.shape.messages_per_subject_max, Some(11));
            }
            LinkEvent::StreamInfo { outcome, .. } => {
                assert!(matches!(outcome, Err(ReadFault::Refused { error_code: 10_059, .. })), "{outcome:?}");
            }
            _ => unreachable!("an unwanted event"),
        }
    }
}

#[tokio::test]
async fn oversized_and_unroutable_messages_are_refused() {
    let servers = NatsServers::start(1, "");
    let mut driven = Driven::connected(&servers, 1).await;
    driven.publish(1, "a", &"x".repeat((1 << 20) + 1));
    assert!(matches!(driven.acknowledged(1).await, Err(PublishFault::Refused { code: 400, .. })));
    driven.links.perform(LinkEffect::Publish {
        link: LinkName::Publish,
        request: Some(RequestNumber(2)),
        subject: "nobody.listens".into(),
        headers: MessageHeaders::new(),
        payload: Bytes::new(),
    });
    assert_eq!(driven.acknowledged(2).await, Err(PublishFault::NoResponders));
    driven.publish(3, "a", "fits");
    assert_eq!(driven.acknowledged(3).await, Ok((1, false)));
}

#[tokio::test]
async fn subscriptions_are_restored_after_a_server_outage() {
    let mut servers = NatsServers::start(1, "");
    let mut driven = Driven::connected(&servers, 1).await;
    driven.links.perform(LinkEffect::Subscribe { subject: "dn.r.chat.0.a".into() });
    driven.publish(1, "a", "one");
    assert_eq!(driven.acknowledged(1).await, Ok((1, false)));
    servers.kill(0);
    for link in LinkName::ALL {
        driven.find(|event| matches!(event, LinkEvent::Disconnected { link: at } if *at == link)).await;
    }
    driven.publish(2, "a", "never sent");
    assert_eq!(driven.acknowledged(2).await, Err(PublishFault::Disconnected));
    let effect = LinkEffect::Range {
        request: RequestNumber(3),
        stream: "dn_chat_0".into(),
        subject: None,
        from: 1,
        messages_max: 5,
    };
    assert_eq!(driven.read(effect).await, Err(ReadFault::Disconnected));
    let failed = async {
        while !driven.reports.try_iter().any(|report| matches!(report, LinkReport::ConnectFailed { .. })) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, failed).await.expect("the failed attempt is reported");
    servers.restart(0);
    for link in LinkName::ALL {
        driven.find(|event| matches!(event, LinkEvent::Connected { link: at, .. } if *at == link)).await;
    }
    // The stream has kept the acknowledged message. The unsent one was discarded.
    assert_eq!(driven.publish_until_acknowledged(10, "a").await, 2);
    let event = driven.find(
        |event| matches!(event, LinkEvent::Delivered { headers, .. } if headers.number("Nats-Sequence") == Some(2)),
    );
    event.await;
}

#[tokio::test]
async fn a_link_moves_to_another_server() {
    let mut servers = NatsServers::start(3, "");
    let mut driven = Driven::connected(&servers, 3).await;
    driven.links.perform(LinkEffect::Subscribe { subject: "dn.r.chat.0.a".into() });
    driven.publish_until_acknowledged(1, "a").await;
    let live = driven.reports.try_iter().find_map(|report| match report {
        LinkReport::Connected { link: ConnectionName::Channels(LinkName::Live), server } => Some(server),
        _ => None,
    });
    servers.kill(servers.index_of(&live.expect("it is connected")).expect("it is one of ours"));
    driven.find(|event| matches!(event, LinkEvent::Disconnected { link: LinkName::Live })).await;
    driven.find(|event| matches!(event, LinkEvent::Connected { link: LinkName::Live, .. })).await;
    let sequence = driven.publish_until_acknowledged(100, "a").await;
    assert!(sequence > 1);
}

#[tokio::test]
async fn wrong_credentials_are_named() {
    let servers = NatsServers::start(1, "authorization { user: ann, password: secret }\n");
    let (mut options, _reports) = options(&servers.urls());
    let faults = open_once(&options).await.expect_err("there are no credentials");
    assert!(faults.to_string().contains("authorization violation"), "{faults}");
    options.credentials = LinkCredentials::Password { user: "ann".into(), password: "secret".into() };
    open_once(&options).await.expect("the credentials are valid");
}
