//! A NATS client without Dunlin that publishes to the stream of a node. It measures the minimum cost of an acknowledged
//! publication.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dunlin_cluster::links::{LinkCredentials, LinkOptions, NatsClient, NatsHeaders, open_once, parsed_servers};
use dunlin_cluster::names::PartitionNames;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep_until, timeout};

use super::node::PREFIX;
use crate::error::Error;
use crate::latency::Latency;
use crate::payload::{Stamp, write_payload};
use crate::proc;
use crate::report::per_second;

/// Publications without an answer within this time count as lost.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of queued answers.
const QUEUED_MESSAGES_MAX: usize = 1 << 16;
/// Part of the answer to a publication that was not stored.
const ERROR: &[u8] = b"\"error\"";

/// A client on one connection, with its own runtime on the calling thread.
pub struct BareClient {
    runtime: Runtime,
    client: NatsClient,
    subject: String,
    payload_bytes: usize,
    published: u64,
}

/// Publications that were acknowledged in an interval.
#[derive(Debug, Clone, Copy, Default)]
pub struct Acknowledged {
    pub publications: u64,
    pub wall_ns: u64,
}

impl BareClient {
    /// Connects to the server at `url`. `channel` is in the first partition of the channels without a namespace.
    pub fn connect(url: &str, channel: &str, payload_bytes: usize) -> Result<Self, Error> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| no_client(&error))?;
        let client = runtime.block_on(open_once(&link_options(url)?)).map_err(|faults| no_client(&faults))?;
        let subject = PartitionNames::new(PREFIX, "", 0).publish_subject(channel).into_string();
        Ok(BareClient { runtime, client, subject, payload_bytes, published: 0 })
    }

    /// Publishes at times that do not depend on the answers, and measures the time until each acknowledgement.
    pub fn at_rate(&mut self, rate: f64, duration: Duration) -> Result<Latency, Error> {
        let period = Duration::from_secs_f64(1.0 / rate);
        let (mut times, mut asked) = (Latency::default(), FuturesUnordered::new());
        let began = Instant::now();
        let mut sent = 0_u32;
        let (client, subject) = (&self.client, &self.subject);
        self.runtime.block_on(async {
            loop {
                let due = began + period * sent;
                let is_over = due >= began + duration;
                if is_over && asked.is_empty() {
                    return Ok(());
                }
                tokio::select! {
                    () = sleep_until(due.into()), if !is_over => {
                        let payload = payload(self.published + u64::from(sent), self.payload_bytes);
                        sent += 1;
                        asked.push(async move {
                            let asked_at = Instant::now();
                            let answer = timeout(ANSWER_PATIENCE, client.request(subject.clone(), payload)).await;
                            (answer, asked_at.elapsed())
                        });
                    }
                    Some((answer, time)) = asked.next(), if !asked.is_empty() => {
                        match answer {
                            Ok(Ok(message)) => check(&message.payload)?,
                            Ok(Err(error)) => return Err(refused(&error.to_string())),
                            Err(_) => return Err(refused("no answer")),
                        }
                        times.record_ns(time.as_nanos() as u64);
                    }
                }
            }
        })?;
        self.published += u64::from(sent);
        Ok(times)
    }

    /// Publishes with this number of publications in flight. With ids, NATS drops duplicates, as for publications of
    /// nodes.
    pub fn in_window(&mut self, window: u64, has_ids: bool, duration: Duration) -> Result<Acknowledged, Error> {
        let began = Instant::now();
        let (mut sent, mut answered) = (0, 0);
        self.runtime.block_on(async {
            let broken = |error: &dyn std::fmt::Display| refused(&error.to_string());
            let inbox = self.client.new_inbox();
            let mut answers = self.client.subscribe(inbox.clone()).await.map_err(|error| broken(&error))?;
            loop {
                let is_over = began.elapsed() >= duration;
                while !is_over && sent < answered + window {
                    let payload = payload(self.published + sent, self.payload_bytes);
                    let (subject, inbox) = (self.subject.clone(), inbox.clone());
                    let sent_now = if has_ids {
                        let mut headers = NatsHeaders::new();
                        headers.insert("Nats-Msg-Id", format!("bare-{}", self.published + sent));
                        self.client.publish_with_reply_and_headers(subject, inbox, headers, payload).await
                    } else {
                        self.client.publish_with_reply(subject, inbox, payload).await
                    };
                    sent_now.map_err(|error| broken(&error))?;
                    sent += 1;
                }
                if answered == sent {
                    return Ok(());
                }
                let answer = timeout(ANSWER_PATIENCE, answers.next()).await;
                check(&answer.ok().flatten().ok_or_else(|| refused("no answer"))?.payload)?;
                answered += 1;
            }
        })?;
        self.published += sent;
        Ok(Acknowledged { publications: answered, wall_ns: began.elapsed().as_nanos() as u64 })
    }
}

/// Options for a connection to one server.
pub fn link_options(url: &str) -> Result<LinkOptions, Error> {
    Ok(LinkOptions {
        servers: parsed_servers(url).map_err(|error| no_client(&error))?,
        credentials: LinkCredentials::None,
        tls: None,
        name: "bare".into(),
        inbox: "_DN.bare".into(),
        dial_timeout: ANSWER_PATIENCE,
        ack_timeout: ANSWER_PATIENCE,
        read_timeout: ANSWER_PATIENCE,
        messages_max: QUEUED_MESSAGES_MAX,
        messages_bytes_max: 64 << 20,
        report: Arc::new(|_| {}),
    })
}

/// The error of a client that cannot connect.
pub fn no_client(why: &dyn std::fmt::Display) -> Error {
    Error::Nats { did: format!("takes no client: {why}"), remedy: "start again".into() }
}

fn payload(sequence: u64, bytes: usize) -> Bytes {
    let mut payload = Vec::with_capacity(bytes);
    write_payload(&mut payload, Stamp { intended_ns: proc::now_ns(), sequence }, bytes);
    payload.into()
}

fn check(answer: &[u8]) -> Result<(), Error> {
    match memchr::memmem::find(answer, ERROR) {
        None => Ok(()),
        Some(_) => Err(refused(&String::from_utf8_lossy(answer))),
    }
}

fn refused(why: &str) -> Error {
    Error::Nats { did: format!("did not store a publication of the bare client: {why}"), remedy: "start again".into() }
}

impl Acknowledged {
    pub fn per_second(self) -> f64 {
        per_second(self.publications, self.wall_ns)
    }

    pub fn add(&mut self, later: Acknowledged) {
        self.publications += later.publications;
        self.wall_ns += later.wall_ns;
    }
}
