//! Tests that run on each reactor.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, TcpListener},
    os::fd::AsRawFd as _,
    sync::Arc,
    time::Instant,
};

use super::*;
use crate::{Epoll, SocketFacts, SocketOptions, Uring, Waker, bind};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A completion, copied so that it can be kept.
#[derive(Debug)]
enum CompletionRecord {
    Woken,
    Accepted(TcpStream),
    Received(ConnectionKey, Vec<u8>),
    Writable(ConnectionKey),
    Ended(ConnectionKey),
}

/// A reactor, and who connects to it.
struct Rig<R> {
    reactor: R,
    waker: Arc<Waker>,
    address: std::net::SocketAddr,
    opened: u32,
}

type Make<R> = fn(TcpListener, usize) -> io::Result<(R, Arc<Waker>)>;

const READ_BYTES_MAX: usize = 16_384;

impl<R: Reactor> Rig<R> {
    fn new(make: Make<R>) -> Self {
        let options = SocketOptions { backlog: 4_096, notsent_lowat_bytes: 16_384 };
        let mut listeners = bind(([127, 0, 0, 1], 0).into(), 1, options).expect("a port");
        let listener = listeners.pop().expect("there is one");
        let address = listener.local_addr().expect("bound");
        let (reactor, waker) = make(listener, READ_BYTES_MAX).expect("a reactor");
        Self { reactor, waker, address, opened: 0 }
    }

    /// One turn, for no longer than `timeout`.
    fn turn(&mut self, timeout: Duration, intake: bool) -> Vec<CompletionRecord> {
        let timeout = if intake && self.reactor.has_more() { Duration::ZERO } else { timeout };
        self.reactor.wait(Some(timeout)).expect("the system works");
        let mut record = Vec::new();
        while let Some(completion) = self.reactor.next(intake) {
            record.push(match completion {
                Completion::Woken => CompletionRecord::Woken,
                Completion::Accepted { stream } => CompletionRecord::Accepted(stream),
                Completion::AcceptFailed { .. } => panic!("there are enough files"),
                Completion::Received { connection, bytes } => CompletionRecord::Received(connection, bytes.to_vec()),
                Completion::Writable { connection } => CompletionRecord::Writable(connection),
                Completion::Ended { connection } => CompletionRecord::Ended(connection),
            });
        }
        record
    }

    /// Runs turns until `take` returns `true` for a completion.
    fn until(&mut self, what: &str, mut take: impl FnMut(&mut R, CompletionRecord) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "waited too long for {what}");
            let mut has_enough = false;
            for record in self.turn(Duration::from_millis(100), true) {
                has_enough |= take(&mut self.reactor, record);
            }
            if has_enough {
                return;
            }
        }
    }

    /// A client, and its connection, opened with this index.
    fn connect(&mut self, index: u32) -> (TcpStream, ConnectionKey) {
        let (client, stream) = self.accept();
        (client, self.open(index, stream).expect("it opens"))
    }

    fn open(&mut self, index: u32, stream: TcpStream) -> io::Result<ConnectionKey> {
        let connection = ConnectionKey { index, generation: self.opened };
        self.opened += 1;
        self.reactor.open(connection, stream).map(|()| connection)
    }

    /// A client, and its accepted socket.
    fn accept(&mut self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.address).expect("it listens");
        client.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut accepted = None;
        self.until("a connection", |_, record| {
            if let CompletionRecord::Accepted(stream) = record {
                accepted = Some(stream);
            }
            accepted.is_some()
        });
        (client, accepted.expect("accepted"))
    }

    /// Turns until this many bytes of the connection have come; all of them.
    fn receive(&mut self, from: ConnectionKey, bytes: usize) -> Vec<u8> {
        let mut all = Vec::new();
        if bytes > 0 {
            self.until("bytes", |_, record| {
                if let CompletionRecord::Received(connection, bytes) = record {
                    assert_eq!(connection, from);
                    all.extend(bytes);
                }
                all.len() >= bytes
            });
        }
        all
    }

    fn send(&mut self, to: ConnectionKey, slices: &[&[u8]]) -> SendCompletion {
        // SAFETY: the slices are borrowed until the result is there.
        unsafe { self.reactor.send(to, slices.iter().copied()) };
        let sent = self.reactor.sent().expect("something was offered");
        assert_eq!(self.reactor.sent(), None);
        assert_eq!(sent.connection, to);
        sent
    }
}

/// Bytes in which neighbours differ.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place % 251) as u8).collect()
}

/// Writes until the socket has been full for a while; how many bytes it took of an endless pattern.
fn fill<R: Reactor>(rig: &mut Rig<R>, client: &mut TcpStream, intake: bool) -> usize {
    client.set_nonblocking(true).expect("a socket");
    let bytes = pattern(251 * 256);
    let (mut written, mut full) = (0, 0);
    while full < 50 {
        match client.write(&bytes[written % 251..]) {
            Ok(length) => (written, full) = (written + length, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => full += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(written < 64 << 20, "nobody feels anything");
        // A reactor that continues to read would do it here.
        for record in rig.turn(Duration::from_millis(1), intake) {
            assert!(!matches!(record, CompletionRecord::Received(..)), "a paused connection was read");
        }
    }
    client.set_nonblocking(false).expect("a socket");
    written
}

fn wakes_from_another_thread<R: Reactor>(make: Make<R>) {
    let mut rig = Rig::new(make);
    for _ in 0..3 {
        let waker = Arc::clone(&rig.waker);
        // Before the wait or during it: both end it.
        let thread = std::thread::spawn(move || waker.wake().expect("an eventfd"));
        rig.until("the call", |_, record| matches!(record, CompletionRecord::Woken));
        thread.join().expect("it wakes");
    }
}

fn reports_bytes_in_order_and_once_a_turn<R: Reactor>(make: Make<R>) {
    let mut rig = Rig::new(make);
    let (client, connection) = rig.connect(0);
    let bytes = pattern(1 << 20);
    let writer = std::thread::spawn({
        let (mut client, bytes) = (client.try_clone().expect("a socket"), bytes.clone());
        move || client.write_all(&bytes).expect("the reactor reads")
    });
    let (mut all, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while all.len() < bytes.len() {
        assert!(Instant::now() < deadline, "{} bytes came", all.len());
        let record = rig.turn(Duration::from_millis(100), true);
        assert!(record.len() <= 1, "reported more than once in a turn");
        for record in record {
            let CompletionRecord::Received(from, bytes) = record else { panic!("{record:?}") };
            assert_eq!(from, connection);
            assert!(bytes.len() <= READ_BYTES_MAX, "more than the limit per turn");
            all.extend(bytes);
        }
    }
    assert!(all == bytes);
    writer.join().expect("it writes");
    client.shutdown(Shutdown::Write).expect("a socket");
    rig.until("the end", |_, record| matches!(record, CompletionRecord::Ended(key) if key == connection));
}

fn reads_stop_without_intake<R: Reactor>(make: Make<R>) {
    let mut rig = Rig::new(make);
    let (mut client, connection) = rig.connect(0);
    let written = fill(&mut rig, &mut client, false);
    let _waits = TcpStream::connect(rig.address).expect("it listens");
    for _ in 0..20 {
        let record = rig.turn(Duration::from_millis(1), false);
        assert!(record.is_empty(), "{record:?}");
    }
    let mut all = Vec::new();
    let mut is_accepted = false;
    rig.until("all that was held back", |_, record| {
        match record {
            CompletionRecord::Accepted(_) => is_accepted = true,
            CompletionRecord::Received(_, bytes) => all.extend(bytes),
            record => panic!("{record:?}"),
        }
        is_accepted && all.len() == written
    });
    assert!(all.iter().zip(pattern(written)).all(|(came, sent)| *came == sent));
    // A last read that filled its buffer leaves the connection readable: only one more read finds the socket empty.
    let deadline = Instant::now() + PATIENCE;
    while rig.reactor.has_unread(connection) {
        assert!(Instant::now() < deadline, "an empty socket counts as unread");
        let record = rig.turn(Duration::from_millis(1), true);
        assert!(record.is_empty(), "{record:?}");
    }
}

fn a_paused_connection_applies_backpressure_and_loses_nothing<R: Reactor>(make: Make<R>) {
    let mut rig = Rig::new(make);
    let (mut client, connection) = rig.connect(0);
    client.write_all(&pattern(100)).expect("a socket");
    assert_eq!(rig.receive(connection, 100), pattern(100));
    rig.reactor.pause(connection);
    let written = fill(&mut rig, &mut client, true);
    rig.reactor.resume(connection);
    let all = rig.receive(connection, written);
    assert_eq!(all.len(), written);
    assert!(all.iter().zip(pattern(written)).all(|(came, sent)| *came == sent));
    // Paused in the middle of what came, and the other end goes meanwhile.
    client.write_all(&pattern(100_000)).expect("the reactor reads");
    drop(client);
    let mut all = Vec::new();
    rig.until("the first bytes", |reactor, record| {
        let CompletionRecord::Received(_, bytes) = record else { panic!("{record:?}") };
        all.extend(bytes);
        reactor.pause(connection);
        true
    });
    for _ in 0..20 {
        let record = rig.turn(Duration::from_millis(1), true);
        assert!(record.is_empty(), "{record:?}");
    }
    rig.reactor.resume(connection);
    rig.until("the end", |_, record| match record {
        CompletionRecord::Received(_, bytes) => {
            all.extend(bytes);
            false
        }
        record => matches!(record, CompletionRecord::Ended(_)),
    });
    assert!(all == pattern(100_000));
}

fn a_released_socket_keeps_its_unread_bytes<R: Reactor>(make: Make<R>) {
    let mut rig = Rig::new(make);
    for (index, received_bytes) in [(0, 0), (1, 1), (2, 40_000)] {
        let (mut client, connection) = rig.connect(index);
        let bytes = pattern(100_000);
        client.write_all(bytes.get(..received_bytes).unwrap_or_default()).expect("a socket");
        let mut all = rig.receive(connection, received_bytes);
        let writer = std::thread::spawn({
            let mut client = client.try_clone().expect("a socket");
            let rest = bytes.get(received_bytes..).unwrap_or_default().to_vec();
            move || client.write_all(&rest).expect("somebody reads")
        });
        // The reactor holds some of the bytes, reported or not.
        rig.reactor.wait(Some(Duration::from_millis(100))).expect("the system works");
        let Released { mut stream, read } = rig.reactor.release(connection).expect("it is there");
        assert!(rig.reactor.release(connection).is_err());
        all.extend(read);
        stream.set_nonblocking(false).expect("a socket");
        let mut rest = vec![0; bytes.len() - all.len()];
        stream.read_exact(&mut rest).expect("the rest");
        all.extend(rest);
        assert!(all == bytes);
        writer.join().expect("it writes");
        stream.write_all(b"still there").expect("a socket");
        drop(stream);
        let mut offered = String::new();
        client.read_to_string(&mut offered).expect("a word and the end");
        assert_eq!(offered, "still there");
    }
}

fn batches_arrive_whole<R: Reactor>(make: Make<R>) {
    const CONNECTIONS: usize = 300;
    let mut rig = Rig::new(make);
    let mut all: Vec<_> = (0..CONNECTIONS as u32).map(|index| rig.connect(index)).collect();
    let large = pattern(10_000);
    let small: Vec<String> = (0..CONNECTIONS).map(|number| format!("to {number} ")).collect();
    // One slice; several that are copied together; several that are not; in batches that go over every bound.
    for part in all.chunks(R::BATCH_MAX) {
        for (_, connection) in part {
            let own = small[connection.index as usize].as_bytes();
            let slices: Vec<&[u8]> = match connection.index % 3 {
                0 => vec![own],
                1 => vec![own, b"and ", &large[..7_000]],
                _ => std::iter::once(own).chain(large.chunks(170)).take(SEND_SLICES_MAX + 5).collect(),
            };
            assert!(rig.reactor.takes_bytes(*connection));
            // SAFETY: all of it is borrowed until the results are there.
            unsafe { rig.reactor.send(*connection, slices.iter().copied()) };
        }
        let mut results = 0;
        while let Some(sent) = rig.reactor.sent() {
            assert_eq!((sent.connection, sent.outcome), (part[results].1, SendOutcome::All));
            assert_eq!(sent.offered_bytes, sent.written_bytes);
            results += 1;
        }
        assert_eq!(results, part.len());
    }
    for (client, connection) in &mut all {
        let mut expected = small[connection.index as usize].clone().into_bytes();
        match connection.index % 3 {
            0 => {}
            1 => {
                expected.extend(b"and ");
                expected.extend(&large[..7_000]);
            }
            _ => expected.extend(large.chunks(170).take(SEND_SLICES_MAX - 1).flatten()),
        }
        rig.reactor.close(*connection);
        // What closes it may be done with the next call.
        rig.reactor.wait(Some(Duration::ZERO)).expect("the system works");
        let mut came = Vec::new();
        client.read_to_end(&mut came).expect("bytes and the end");
        assert!(came == expected, "{connection:?}");
    }
}

fn a_full_socket_is_reported_writable_again<R: Reactor>(make: Make<R>) {
    let mut rig = Rig::new(make);
    let (mut client, connection) = rig.connect(0);
    let bytes = pattern(251 * 4_000);
    let mut written = 0;
    loop {
        let sent = rig.send(connection, &[&bytes[written % 251..]]);
        written += sent.written_bytes;
        if sent.outcome == SendOutcome::Full {
            break;
        }
        assert_eq!(sent.outcome, SendOutcome::All);
    }
    assert!(!rig.reactor.takes_bytes(connection));
    // SAFETY: ignored, and borrowed for long enough anyway.
    unsafe { rig.reactor.send(connection, std::iter::once(&bytes[..])) };
    assert_eq!(rig.reactor.sent(), None);
    let mut came = vec![0; written];
    client.read_exact(&mut came).expect("all that was taken");
    assert!(came.iter().zip(pattern(written)).all(|(came, sent)| *came == sent));
    rig.until("room", |_, record| matches!(record, CompletionRecord::Writable(key) if key == connection));
    assert!(rig.reactor.takes_bytes(connection));
    assert_eq!(rig.send(connection, &[b"more"]).outcome, SendOutcome::All);
}

fn late_bytes_of_a_closed_connection_are_ignored<R: Reactor>(make: Make<R>) {
    let mut rig = Rig::new(make);
    let (mut old_client, old) = rig.connect(0);
    old_client.write_all(b"late").expect("a socket");
    // Read by the reactor and not reported, or still in the socket.
    rig.reactor.wait(Some(Duration::from_millis(50))).expect("the system works");
    rig.reactor.close(old);
    let (mut client, new) = rig.connect(0);
    assert!(!rig.reactor.takes_bytes(old) && rig.reactor.takes_bytes(new));
    client.write_all(b"mine").expect("a socket");
    assert_eq!(rig.receive(new, 4), b"mine");
    let mut rest = Vec::new();
    // A close with bytes unread resets.
    assert!(old_client.read_to_end(&mut rest).is_err() || rest.is_empty());
    rig.reactor.finish(new);
    client.read_to_end(&mut rest).expect("the end");
    client.write_all(b"last words").expect("it is still read from");
    assert_eq!(rig.receive(new, 10), b"last words");
}

fn a_reused_index_has_only_the_bytes_of_its_own_socket<R: Reactor>(make: Make<R>) {
    let mut rig = Rig::new(make);
    let (mut old_client, mut old) = rig.connect(0);
    for round in 0..20_u8 {
        let (mut client, stream) = rig.accept();
        old_client.write_all(&[u8::MAX; 5_000]).expect("a socket");
        // One submission has the end of the old receive, the close, and the first receive of the new socket.
        rig.reactor.close(old);
        let new = rig.open(0, stream).expect("it opens");
        client.write_all(&[round; 3_000]).expect("a socket");
        assert_eq!(rig.receive(new, 3_000), [round; 3_000]);
        assert_eq!(rig.send(new, &[&[round]]).outcome, SendOutcome::All);
        let mut byte = [u8::MAX];
        client.read_exact(&mut byte).expect("a byte");
        assert_eq!(byte, [round]);
        let mut rest = Vec::new();
        assert!(old_client.read_to_end(&mut rest).is_err() || rest.is_empty(), "the old socket is closed once");
        (old_client, old) = (client, new);
    }
}

fn facts_of_a_socket_are_those_of_its_client<R: Reactor>(make: Make<R>) {
    let mut rig = Rig::new(make);
    let all: Vec<_> = (0..3).map(|index| rig.connect(index)).collect();
    for (place, (client, connection)) in all.iter().enumerate() {
        let sent = rig.send(*connection, &[&vec![0; 100 * (place + 1)]]);
        assert_eq!(sent.outcome, SendOutcome::All);
        let socket = rig.reactor.socket(*connection).expect("it is open");
        let facts = SocketFacts::read(socket.as_fd()).expect("TCP");
        assert!(facts.segments.sent > 0, "{facts:?}");
        let peer = socket2::SockRef::from(&socket).peer_addr().expect("connected");
        assert_eq!(peer.as_socket(), client.local_addr().ok());
    }
    let (_, connection) = &all[1];
    rig.reactor.close(*connection);
    assert!(rig.reactor.socket(*connection).is_none());
}

/// Not with `read`: the kernel closes sockets of a ring in work of the thread that has it, and a call of this thread that waits
/// then returns `EINTR`.
fn expect_end(client: &mut TcpStream) {
    assert_eq!(client.read_to_end(&mut Vec::new()).expect("the end"), 0);
}

fn a_dropped_reactor_closes_its_sockets<R: Reactor>(make: Make<R>) {
    let mut rig = Rig::new(make);
    let clients: Vec<_> = (0..10).map(|index| rig.connect(index).0).collect();
    rig.reactor.wait(Some(Duration::ZERO)).expect("the system works");
    drop(rig);
    for mut client in clients {
        expect_end(&mut client);
    }
}

fn a_broken_connection_is_reported<R: Reactor>(make: Make<R>) {
    let mut rig = Rig::new(make);
    let (client, connection) = rig.connect(0);
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("a socket");
    drop(client);
    rig.until("the end", |_, record| matches!(record, CompletionRecord::Ended(_)));
    assert_eq!(rig.send(connection, &[b"hello?"]).outcome, SendOutcome::Broken);
    rig.reactor.close(connection);
    rig.reactor.stop_listening();
    rig.reactor.wait(Some(Duration::ZERO)).expect("the system works");
    let refused = TcpStream::connect(rig.address).expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

fn bytes_of_many_connections_in_a_turn_all_arrive<R: Reactor>(make: Make<R>) {
    const CONNECTIONS: u32 = 1_200;
    let mut rig = Rig::new(make);
    let mut all: Vec<_> = (0..CONNECTIONS).map(|index| rig.connect(index)).collect();
    for round in 0..3 {
        for (client, _) in &mut all {
            client.write_all(&[round; 100]).expect("a socket");
        }
        let mut left = usize::try_from(CONNECTIONS).expect("few") * 100;
        rig.until("everybody", |_, record| {
            let CompletionRecord::Received(_, bytes) = record else { panic!("{record:?}") };
            assert!(bytes.iter().all(|byte| *byte == round));
            left -= bytes.len();
            left == 0
        });
    }
}

/// A reactor whose sockets are in a table, with more places than a test has connections.
fn in_table(listener: TcpListener, read_bytes_max: usize) -> io::Result<(Uring, Arc<Waker>)> {
    let (mut reactor, waker) = Uring::new(listener, read_bytes_max)?;
    reactor.use_table(2_048)?;
    Ok((reactor, waker))
}

macro_rules! on_each {
    ($($name:ident)*) => {
        mod on_epoll {
            $(#[test] fn $name() { super::$name(super::Epoll::new); })*
        }
        mod on_io_uring {
            $(#[test] fn $name() { super::$name(super::Uring::new); })*
        }
        mod in_table_of_io_uring {
            $(#[test] fn $name() { super::$name(super::in_table); })*
        }
    };
}

on_each! {
    wakes_from_another_thread
    reports_bytes_in_order_and_once_a_turn
    reads_stop_without_intake
    a_paused_connection_applies_backpressure_and_loses_nothing
    a_released_socket_keeps_its_unread_bytes
    batches_arrive_whole
    a_full_socket_is_reported_writable_again
    late_bytes_of_a_closed_connection_are_ignored
    a_reused_index_has_only_the_bytes_of_its_own_socket
    facts_of_a_socket_are_those_of_its_client
    a_dropped_reactor_closes_its_sockets
    a_broken_connection_is_reported
    bytes_of_many_connections_in_a_turn_all_arrive
}

#[test]
fn an_exhausted_buffer_ring_is_reported() {
    let mut rig: Rig<Uring> = Rig::new(Uring::new);
    let mut all: Vec<_> = (0..1_000).map(|index| rig.connect(index)).collect();
    for (client, _) in &mut all {
        client.write_all(b"one of very many").expect("a socket");
    }
    // Nothing is reported, so no buffer is returned.
    let deadline = Instant::now() + PATIENCE;
    while rig.reactor.counters().buffers_ran_out == 0 {
        assert!(Instant::now() < deadline, "there are buffers for everybody");
        assert!(rig.turn(Duration::from_millis(10), false).is_empty());
    }
    let mut left = all.len();
    rig.until("everybody", |_, record| {
        assert!(matches!(record, CompletionRecord::Received(_, bytes) if bytes == b"one of very many"));
        left -= 1;
        left == 0
    });
}

const PLACES: u32 = 8;

fn in_small_table(listener: TcpListener, read_bytes_max: usize) -> io::Result<(Uring, Arc<Waker>)> {
    let (mut reactor, waker) = Uring::new(listener, read_bytes_max)?;
    assert_eq!(reactor.use_table(PLACES)?, PLACES);
    Ok((reactor, waker))
}

#[test]
fn a_table_takes_as_many_sockets_as_it_has_places_and_no_more() {
    let mut rig: Rig<Uring> = Rig::new(in_small_table);
    let mut all: Vec<_> = (0..PLACES).map(|index| rig.connect(index)).collect();
    let (mut refused, stream) = rig.accept();
    let error = rig.open(PLACES, stream).expect_err("the table is full");
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
    expect_end(&mut refused);
    for (client, connection) in &mut all {
        client.write_all(b"here").expect("a socket");
        assert_eq!(rig.receive(*connection, 4), b"here");
    }
    // With a free place, the next client is taken.
    let (_, last) = all.pop().expect("there are some");
    rig.reactor.close(last);
    let (mut client, connection) = rig.connect(PLACES - 1);
    client.write_all(b"now").expect("a socket");
    assert_eq!(rig.receive(connection, 3), b"now");
}

#[test]
fn places_of_a_table_are_not_lost() {
    let mut rig: Rig<Uring> = Rig::new(in_small_table);
    for round in 0..3 {
        let mut all: Vec<_> = (0..PLACES).map(|index| rig.connect(index)).collect();
        for (client, connection) in &mut all {
            client.write_all(&[round]).expect("a socket");
            assert_eq!(rig.receive(*connection, 1), [round]);
        }
        for (place, (client, connection)) in (0..).zip(&mut all) {
            // Each way out of the table.
            match place % 3 {
                0 => rig.reactor.close(*connection),
                1 => drop(rig.reactor.release(*connection).expect("it is open")),
                _ => {
                    rig.reactor.finish(*connection);
                    expect_end(client);
                    rig.reactor.close(*connection);
                }
            }
        }
        rig.reactor.wait(Some(Duration::ZERO)).expect("the system works");
        for (client, _) in &mut all {
            expect_end(client);
        }
        for place in 0..PLACES {
            let error = rig.reactor.open_descriptor(place).expect_err("nothing is left there");
            assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        }
    }
}

#[test]
fn a_socket_in_a_table_has_no_descriptor() {
    let mut rig: Rig<Uring> = Rig::new(in_small_table);
    let (_client, stream) = rig.accept();
    let link = |fd: &str| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
    let socket = link(&stream.as_raw_fd().to_string()).expect("it is open");
    rig.open(0, stream).expect("it opens");
    rig.reactor.wait(Some(Duration::ZERO)).expect("the system works");
    let mut open = std::fs::read_dir("/proc/self/fd").expect("the list of descriptors").flatten();
    assert!(!open.any(|fd| link(&fd.file_name().to_string_lossy()) == Some(socket.clone())));
}

#[test]
fn a_socket_in_a_table_needs_no_descriptor_to_end() {
    let mut rig: Rig<Uring> = Rig::new(in_small_table);
    let (mut client, connection) = rig.connect(0);
    rig.reactor.pretends_no_descriptor = true;
    assert!(rig.reactor.socket(connection).is_none());
    let error = rig.reactor.release(connection).expect_err("no descriptor is left");
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    // Nothing has changed.
    client.write_all(b"request").expect("a socket");
    assert_eq!(rig.receive(connection, 7), b"request");
    assert_eq!(rig.send(connection, &[b"refused"]).outcome, SendOutcome::All);
    rig.reactor.finish(connection);
    let mut came = String::new();
    client.read_to_string(&mut came).expect("a word and the end");
    assert_eq!(came, "refused");
    client.write_all(b"goodbye").expect("it is still read from");
    assert_eq!(rig.receive(connection, 7), b"goodbye");
}

/// The kernel's own request for it looks the place up late, and then finds the next socket there.
#[test]
fn the_end_of_a_socket_is_not_that_of_the_next_one_in_its_place() {
    let mut rig: Rig<Uring> = Rig::new(in_small_table);
    for pretends_no_descriptor in [false, true] {
        rig.reactor.pretends_no_descriptor = pretends_no_descriptor;
        for round in 0..20 {
            let (_old_client, old) = rig.connect(0);
            let (mut client, stream) = rig.accept();
            rig.reactor.finish(old);
            rig.reactor.close(old);
            let new = rig.open(0, stream).expect("it opens");
            assert_eq!(rig.send(new, &[&[round]]).outcome, SendOutcome::All);
            let mut byte = [u8::MAX];
            client.read_exact(&mut byte).expect("its sending side is open");
            assert_eq!(byte, [round]);
            rig.reactor.close(new);
        }
    }
}

/// Prints the processor time of a send, with descriptors and in a table. Only the median of many pairs says something.
#[test]
#[ignore = "a measurement, whose result is for people"]
fn cost_of_sends_by_kind_of_socket() {
    const CONNECTIONS: u32 = 1_000;
    const BYTES: usize = 200;
    let bytes = pattern(BYTES);
    let made: [(&str, Make<Uring>); 2] = [("descriptors", Uring::new), ("table", in_table)];
    let mut rigs = made.map(|(name, make)| {
        let mut rig = Rig::new(make);
        let clients: Vec<_> = (0..CONNECTIONS).map(|index| rig.connect(index)).collect();
        (name, rig, clients, Vec::new())
    });
    for _ in 0..101 {
        for (_, rig, clients, took_ns) in &mut rigs {
            let begun_ns = thread_cpu_ns();
            for (_, connection) in clients.iter() {
                // SAFETY: the bytes are borrowed until the results are there.
                unsafe { rig.reactor.send(*connection, std::iter::once(&bytes[..])) };
            }
            while let Some(sent) = rig.reactor.sent() {
                assert_eq!(sent.outcome, SendOutcome::All);
            }
            took_ns.push((thread_cpu_ns() - begun_ns) / u64::from(CONNECTIONS));
            for (client, _) in clients {
                client.read_exact(&mut [0; BYTES]).expect("what was sent");
            }
        }
    }
    let ratios = rigs[0].3.iter().zip(&rigs[1].3).map(|(descriptors, table)| *table as f64 / *descriptors as f64);
    let mut ratios: Vec<_> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    for (name, _, _, mut took_ns) in rigs {
        took_ns.sort_unstable();
        println!("{name}: {} ns", took_ns[took_ns.len() / 2]);
    }
    println!("table / descriptors: {:.3}, half of the pairs {:.3} to {:.3}", ratios[50], ratios[25], ratios[75]);
}

fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("time does not run backwards")
}
