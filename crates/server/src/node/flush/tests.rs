//! A flush over a reactor whose sends end as the test says.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32},
    },
    time::Duration,
};

use bytes::Bytes;
use dunlin_engine::{
    Event, Options, Seed, ShardIdentity, ShardIndex,
    api::ApiRequest,
    backend::PublishHow,
    event::{Ticket, TokenError},
    options,
};
use dunlin_protocol::{Encoding, Payload};
use tokio::sync::mpsc;

use super::{Reactor, SendOutcome, Sent, ShardThread};
use crate::{
    backend::{HeaderPicker, NoBackends},
    net::{Completion, ConnectionKey, Door, HeadLimits, Released, SessionStage, Stage, Waker},
    node::{
        Judged, NetOptions, TokenQuestion, VerifyTokens,
        admission::Gate,
        clock::Clock,
        doorbell::Doorbell,
        peers,
        placement::Loads,
        shard_thread::Shared,
        start::{Ingredients, make},
    },
};

/// Takes everything, but from connections that are broken.
#[derive(Default)]
struct Scripted {
    broken: HashSet<ConnectionKey>,
    taken: HashMap<ConnectionKey, String>,
    results: VecDeque<Sent>,
}

impl Reactor for Scripted {
    const BATCH_MAX: usize = 16;

    fn wait(&mut self, _timeout: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn next(&mut self, _intake: bool) -> Option<Completion<'_>> {
        None
    }

    fn has_more(&self) -> bool {
        false
    }

    fn stop_listening(&mut self) {}

    fn open(&mut self, _connection: ConnectionKey, _stream: TcpStream) -> io::Result<()> {
        Ok(())
    }

    fn pause(&mut self, _connection: ConnectionKey) {}

    fn resume(&mut self, _connection: ConnectionKey) {}

    fn has_unread(&self, _connection: ConnectionKey) -> bool {
        false
    }

    fn takes_bytes(&self, _connection: ConnectionKey) -> bool {
        true
    }

    unsafe fn send<'a>(&mut self, connection: ConnectionKey, slices: impl Iterator<Item = &'a [u8]>) {
        let slices: Vec<&[u8]> = slices.collect();
        if slices.is_empty() {
            return;
        }
        let offered_bytes = slices.iter().map(|slice| slice.len()).sum();
        let is_broken = self.broken.contains(&connection);
        let (written_bytes, outcome) =
            if is_broken { (0, SendOutcome::Broken) } else { (offered_bytes, SendOutcome::All) };
        if !is_broken {
            self.taken.entry(connection).or_default().push_str(&String::from_utf8_lossy(&slices.concat()));
        }
        self.results.push_back(Sent { connection, slices: slices.len(), offered_bytes, written_bytes, outcome });
    }

    fn sent(&mut self) -> Option<Sent> {
        self.results.pop_front()
    }

    fn finish(&mut self, _connection: ConnectionKey) {}

    fn release(&mut self, _connection: ConnectionKey) -> Option<Released> {
        None
    }
}

struct NoTokens;

impl VerifyTokens for NoTokens {
    fn verify_connection(&self, _: &str, _: u64) -> Judged<dunlin_engine::event::ConnectionClaims> {
        Judged::Now(Err(TokenError::Invalid))
    }

    fn verify_subscription(&self, _: &str, _: u64) -> Judged<dunlin_engine::event::SubscriptionClaims> {
        Judged::Now(Err(TokenError::Invalid))
    }

    fn verify_elsewhere(&self, question: TokenQuestion) {
        (question.answer)(question.kind.refused(TokenError::Invalid));
    }
}

/// A shard alone on its node, whose channels have joins and leaves.
fn shard_thread() -> ShardThread<Scripted> {
    let namespace = options::NamespaceOptions {
        allow_subscribe_for_client: true,
        allow_subscribe_for_anonymous: true,
        join_leave: true,
        force_push_join_leave: true,
        ..options::NamespaceOptions::default()
    };
    let client =
        options::ClientOptions { allow_anonymous_connect_without_token: true, ..options::ClientOptions::default() };
    let poll = mio::Poll::new().expect("an epoll instance");
    let waker = mio::Waker::new(poll.registry(), mio::Token(0)).expect("an eventfd");
    let doorbell = Arc::new(Doorbell::new(Arc::new(Waker::Epoll(waker))));
    let net = NetOptions::default();
    let limits = HeadLimits { head_bytes_max: net.head_bytes_max, request_line_bytes_max: net.request_line_bytes_max };
    let (hand_over, _) = mpsc::channel(1);
    make(Ingredients {
        identity: ShardIdentity { index: ShardIndex(0), count: 1 },
        seed: Seed { node: 1, shard: [1; 32] },
        options: Arc::new(Options { client, without_namespace: namespace, ..Options::default() }),
        shared: Arc::new(Shared {
            door: Door { places: Vec::new(), origins: Arc::new(|_, _| true), limits, headers: HeaderPicker::default() },
            gate: Gate::new(&net.admission),
            loads: Loads::new(1, net.shard_imbalance_max),
            net,
            tokens: Arc::new(NoTokens),
            backends: Arc::new(NoBackends::default()),
            hand_over,
            clock: Clock::start(),
            sessions: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
        }),
        reactor: Scripted::default(),
        peers: peers::connect(&[Arc::clone(&doorbell)], 1).remove(0),
        room_links: crate::rooms::RoomLinks::default(),
        doors: Arc::new([]),
        inbox: mpsc::channel(1).1,
        doorbell,
    })
}

fn session(thread: &mut ShardThread<Scripted>) -> ConnectionKey {
    assert!(thread.shared.admit_session());
    thread.sessions += 1;
    let key = thread.connections.insert(Stage::Session(SessionStage::new(Encoding::Json.into(), false)));
    let opened = Event::Opened { session: key, wire: Encoding::Json.into() };
    thread.shard.handle(thread.now, opened, &mut thread.effects);
    for frame in [&br#"{"id":1,"connect":{}}"#[..], br#"{"id":2,"subscribe":{"channel":"room"}}"#] {
        thread.shard.handle(thread.now, Event::Received { session: key, frame }, &mut thread.effects);
    }
    key
}

fn publish(thread: &mut ShardThread<Scripted>) {
    let data = Payload::from_json(Bytes::from_static(b"1"));
    let request = ApiRequest::Publish { channel: "room".into(), data, how: PublishHow::default() };
    thread.shard.handle(thread.now, Event::Api { ticket: Ticket(0), request }, &mut thread.effects);
    // The answer has nobody to go to.
    thread.effects.list.clear();
}

#[test]
fn a_session_that_ends_in_the_middle_of_a_batch_is_told_to_the_others_after_their_writes() {
    let mut thread = shard_thread();
    let (leaver, stayer) = (session(&mut thread), session(&mut thread));
    thread.flush();
    publish(&mut thread);
    thread.reactor.broken.insert(leaver);
    // Both have one frame to write, so both are in one batch; the leave is for a session whose write is not yet told.
    thread.flush();
    thread.perform_effects();
    thread.flush();
    let heard = &thread.reactor.taken[&stayer];
    assert!(heard.contains(r#""leave""#), "{heard}");
    assert!(!thread.shard.has_outgoing(stayer));
    assert_eq!(thread.sessions, 1);
}
