//! Tests of flushes, with a reactor whose results the test determines.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    net::{TcpListener, TcpStream},
    sync::{Arc, atomic::AtomicBool},
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
use dunlin_net::{Acceptor, Completion, ConnectionKey, HeadLimits, HeaderPicker, Released, SocketDescriptor, Waker};
use dunlin_protocol::{Encoding, Payload};
use dunlin_token::{Judged, TokenRequest, VerifyTokens};
use tokio::sync::mpsc;

use super::{Reactor, SendCompletion, SendOutcome};
use crate::{
    backend::NoBackends,
    node::{
        Admitted, Adoption, NodeNetOptions, ShardQueues,
        admission::Gate,
        clock::Clock,
        inbox::Inbox,
        peers,
        placement::Loads,
        shard_thread::{ShardThread, Shared},
        shard_waker::ShardWaker,
        start::{ShardSetup, make},
    },
};

/// A reactor that accepts all bytes, except for broken connections.
#[derive(Default)]
struct Scripted {
    broken: HashSet<ConnectionKey>,
    taken: HashMap<ConnectionKey, String>,
    results: VecDeque<SendCompletion>,
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

    fn socket(&mut self, _connection: ConnectionKey) -> Option<SocketDescriptor<'_>> {
        None
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
        self.results.push_back(SendCompletion {
            connection,
            slices: slices.len(),
            offered_bytes,
            written_bytes,
            outcome,
        });
    }

    fn sent(&mut self) -> Option<SendCompletion> {
        self.results.pop_front()
    }

    fn finish(&mut self, _connection: ConnectionKey) {}

    fn release(&mut self, _connection: ConnectionKey) -> io::Result<Released> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn close(&mut self, _connection: ConnectionKey) {}
}

struct NoTokens;

impl VerifyTokens for NoTokens {
    fn verify_connection(&self, _: &str, _: u64) -> Judged<dunlin_engine::event::ConnectionClaims> {
        Judged::Now(Err(TokenError::Invalid))
    }

    fn verify_subscription(&self, _: &str, _: u64) -> Judged<dunlin_engine::event::SubscriptionClaims> {
        Judged::Now(Err(TokenError::Invalid))
    }

    fn verify_elsewhere(&self, question: TokenRequest) {
        (question.answer)(question.kind.refused(TokenError::Invalid));
    }
}

/// The only shard of a node, with joins and leaves enabled.
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
    let shard_waker = Arc::new(ShardWaker::new(Arc::new(Waker::eventfd().expect("an eventfd"))));
    let net = NodeNetOptions::default();
    let limits = HeadLimits { head_bytes_max: net.head_bytes_max, request_line_bytes_max: net.request_line_bytes_max };
    let (hand_over, _) = mpsc::channel(1);
    let events = ShardQueues::new(1).take(ShardIndex(0), Arc::clone(&shard_waker));
    make(ShardSetup {
        identity: ShardIdentity { index: ShardIndex(0), count: 1 },
        seed: Seed { node: 1, shard: [1; 32] },
        options: Arc::new(Options { client, without_namespace: namespace, ..Options::default() }),
        shared: Arc::new(Shared {
            acceptor: Acceptor {
                places: Vec::new(),
                origins: Arc::new(|_, _| true),
                limits,
                headers: HeaderPicker::default(),
            },
            gate: Gate::new(&net.admission, 0),
            loads: Loads::new(1, net.shard_imbalance_max, u32::MAX),
            net,
            tokens: Arc::new(NoTokens),
            backends: Arc::new(NoBackends::default()),
            webhooks: None,
            tracer: None,
            storage: None,
            cluster: None,
            hand_over,
            clock: Clock::start(),
            stopping: AtomicBool::new(false),
        }),
        reactor: Scripted::default(),
        peers: peers::connect(&[Arc::clone(&shard_waker)], &dunlin_queues::declared::SHARD_RING).remove(0),
        room_links: crate::rooms::RoomLinks::default(),
        shard_handles: Arc::new([]),
        inbox: Inbox::new(mpsc::channel(1).1, mpsc::channel(1).1, events, shard_waker),
    })
}

/// A session that the control thread passes to the shard.
fn session(thread: &mut ShardThread<Scripted>) -> ConnectionKey {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let stream = TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
    let adoption = Adoption {
        wire: Encoding::Json.into(),
        inflates: false,
        response: Vec::new(),
        request: None,
        read: Vec::new(),
        headers: None,
        tls: None,
        admitted: Admitted::new(&thread.shared, None, b"").expect("no limit"),
    };
    // Nothing has ended yet, so the table is filled in order.
    let index = thread.clients.counters().sessions as u32;
    let key = ConnectionKey { index, generation: 0 };
    thread.shared.loads.enter(0);
    thread.clients.adopt(stream, adoption, &mut thread.engine);
    for frame in [&br#"{"id":1,"connect":{}}"#[..], br#"{"id":2,"subscribe":{"channel":"room"}}"#] {
        thread.engine.handle(Event::Received { session: key, frame });
    }
    key
}

fn publish(thread: &mut ShardThread<Scripted>) {
    publish_json(thread, "1");
}

fn publish_json(thread: &mut ShardThread<Scripted>, json: &str) {
    let data = Payload::from_json(Bytes::copy_from_slice(json.as_bytes()));
    let request = ApiRequest::Publish { channel: "room".into(), data, how: PublishHow::default() };
    thread.engine.handle(Event::Api { ticket: Ticket(0), request });
    // Discard the answer, because the test has no requester.
    drop(thread.engine.take_effects());
}

#[test]
fn leaves_of_a_batch_are_sent_after_its_writes() {
    let mut thread = shard_thread();
    let (leaver, stayer) = (session(&mut thread), session(&mut thread));
    thread.clients.sockets.flush(&mut thread.engine);
    publish(&mut thread);
    thread.clients.sockets.reactor.broken.insert(leaver);
    // Both sessions have one frame to write, so both are in one batch. The leave is for a session whose write the
    // engine has not processed yet.
    thread.clients.sockets.flush(&mut thread.engine);
    thread.perform_effects();
    thread.clients.sockets.flush(&mut thread.engine);
    let received = &thread.clients.sockets.reactor.taken[&stayer];
    assert!(received.contains(r#""leave""#), "{received}");
    assert!(!thread.engine.has_outgoing(stayer));
    assert_eq!(thread.clients.counters().sessions, 1);
}

#[test]
fn a_session_is_written_on_after_a_small_write_that_its_pace_limits() {
    let mut thread = shard_thread();
    let paced = session(&mut thread);
    let frame = br#"{"id":3,"rpc":{"method":"dunlin.session_pace","data":{"bytes_per_second_max":1000}}}"#;
    thread.engine.handle(Event::Received { session: paced, frame });
    thread.clients.sockets.flush(&mut thread.engine);
    assert!(!thread.engine.has_outgoing(paced));
    // The first frame uses up the bytes of a second, so the write has one slice, and the second frame is left.
    publish_json(&mut thread, &format!("\"{}\"", "a".repeat(1_500)));
    publish_json(&mut thread, "\"second\"");
    thread.clients.sockets.flush(&mut thread.engine);
    thread.clients.sockets.flush(&mut thread.engine);
    assert!(thread.clients.sockets.reactor.taken[&paced].contains("second"));
    assert!(!thread.engine.has_outgoing(paced));
    publish_json(&mut thread, "\"third\"");
    thread.clients.sockets.flush(&mut thread.engine);
    assert!(thread.clients.sockets.reactor.taken[&paced].contains("third"));
}
