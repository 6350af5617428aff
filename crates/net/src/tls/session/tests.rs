use std::io::{Read as _, Write as _};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion,
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    version::{TLS12, TLS13},
};

use super::*;
use crate::{Certificates, TlsFiles};

const CERTIFICATE: &str = include_str!("cert.pem");
const KEY: &str = include_str!("key.pem");

struct Pair {
    client: ClientConnection,
    server: TlsSession,
    /// What the server understood.
    received: Vec<u8>,
    /// What the client understood.
    reported: Vec<u8>,
}

impl Pair {
    fn new(version: &'static SupportedProtocolVersion) -> Self {
        let files = TlsFiles { certificate: CERTIFICATE.to_owned(), key: KEY.to_owned(), client_ca: String::new() };
        let server = TlsSession::new(Certificates::read(files).unwrap().now()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
        Self { client, server, received: Vec::new(), reported: Vec::new() }
    }

    /// Exchanges bytes between client and server in pieces of this size. Returns whether the handshake was completed.
    fn exchange(&mut self, piece_bytes: usize) -> bool {
        let mut shook = false;
        loop {
            let mut sent = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut sent).unwrap();
            }
            for piece in sent.chunks_mut(piece_bytes) {
                match self.server.decrypt(piece, &mut self.received) {
                    Decrypted::Taken { shook: now, .. } => shook |= now,
                    Decrypted::Failed => panic!("the client speaks TLS"),
                }
            }
            let answered = self.answer();
            if sent.is_empty() && !answered {
                return shook;
            }
        }
    }

    /// Gives the client what waits for it. Whether anything did.
    fn answer(&mut self) -> bool {
        let waiting = self.server.waiting().to_vec();
        self.server.wrote(waiting.len());
        let mut rest = &waiting[..];
        while !rest.is_empty() {
            self.client.read_tls(&mut rest).unwrap();
            let room = self.client.process_new_packets().unwrap().plaintext_bytes_to_read();
            let start = self.reported.len();
            self.reported.resize(start + room, 0);
            self.client.reader().read_exact(&mut self.reported[start..]).unwrap();
        }
        !waiting.is_empty()
    }
}

fn for_both(test: impl Fn(Pair)) {
    for version in [&TLS12, &TLS13] {
        test(Pair::new(version));
    }
}

#[test]
fn tls_records_are_read_byte_by_byte() {
    for_both(|mut pair| {
        assert!(pair.exchange(1), "the handshake is done");
        assert!(!pair.exchange(1), "reported only once");
        pair.client.writer().write_all(b"GET / HTTP/1.1").unwrap();
        pair.exchange(1);
        assert_eq!(pair.received, b"GET / HTTP/1.1");
    });
}

#[test]
fn an_idle_tls_session_holds_no_buffers() {
    for_both(|mut pair| {
        pair.exchange(usize::MAX);
        pair.client.writer().write_all(&[7; 10_000]).unwrap();
        pair.exchange(100);
        assert!(pair.server.encrypt(b"an answer"));
        assert!(pair.answer());
        assert_eq!((pair.received.len(), &pair.reported[..]), (10_000, &b"an answer"[..]));
        assert_eq!((pair.server.unread.capacity(), pair.server.waiting_bytes()), (0, 0));
    });
}

#[test]
fn a_partial_record_is_kept_until_it_is_complete() {
    for_both(|mut pair| {
        pair.exchange(usize::MAX);
        pair.client.writer().write_all(b"whole").unwrap();
        let mut sent = Vec::new();
        pair.client.write_tls(&mut sent).unwrap();
        let (first, second) = sent.split_at_mut(9);
        pair.server.decrypt(first, &mut pair.received);
        let long: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
        assert!(pair.server.encrypt(&long) && pair.server.encrypt(b"."));
        pair.answer();
        let read = &pair.reported;
        assert!(read.len() == 100_001 && read.starts_with(&long));
        assert!(pair.received.is_empty());
        pair.server.decrypt(second, &mut pair.received);
        assert_eq!(pair.received, b"whole");
    });
}

#[test]
fn each_side_sends_close_notify() {
    for_both(|mut pair| {
        assert!(!pair.server.encrypt(b"too early"));
        pair.exchange(usize::MAX);
        pair.server.send_close_notify();
        pair.server.send_close_notify();
        pair.answer();
        assert!(matches!(pair.client.reader().read(&mut [0; 1]), Ok(0)), "the client received close_notify");
        pair.client.send_close_notify();
        let mut sent = Vec::new();
        pair.client.write_tls(&mut sent).unwrap();
        let decrypted = pair.server.decrypt(&mut sent, &mut pair.received);
        assert_eq!(decrypted, Decrypted::Taken { shook: false, at_end: true });
    });
    let mut early = Pair::new(&TLS13);
    early.server.send_close_notify();
    assert!(!early.server.has_waiting());
}

#[test]
fn tls_faults_are_reported() {
    let mut pair = Pair::new(&TLS13);
    assert_eq!(pair.server.decrypt(&mut b"GET / HTTP/1.1\r\n\r\n".to_vec(), &mut pair.received), Decrypted::Failed);
    // An alert, and nothing of what came.
    assert_eq!(pair.server.waiting().first(), Some(&21));
    assert!(pair.received.is_empty());

    let mut pair = Pair::new(&TLS13);
    pair.exchange(usize::MAX);
    pair.client.writer().write_all(b"true").unwrap();
    let mut sent = Vec::new();
    pair.client.write_tls(&mut sent).unwrap();
    *sent.last_mut().unwrap() ^= 1;
    assert_eq!(pair.server.decrypt(&mut sent, &mut pair.received), Decrypted::Failed);
    assert!(pair.received.is_empty() && pair.server.has_waiting());
}

/// Numbers that look like chance, the same in every run.
fn draw(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

#[test]
fn damaged_tls_input_fails_without_panic() {
    let (mut chance, mut failed) = (1, 0);
    for round in 0..400 {
        let mut pair = Pair::new(if round % 2 == 0 { &TLS12 } else { &TLS13 });
        if round % 4 >= 2 {
            pair.exchange(usize::MAX);
            pair.client.writer().write_all(b"a record").unwrap();
        }
        let mut sent = Vec::new();
        pair.client.write_tls(&mut sent).unwrap();
        match draw(&mut chance) % 3 {
            0 => sent.truncate(draw(&mut chance) % sent.len()),
            1 => sent.extend_from_within(..draw(&mut chance) % 100 % sent.len()),
            _ => {}
        }
        for _ in 0..draw(&mut chance) % 4 {
            let place = draw(&mut chance) % sent.len().max(1);
            // More often than not where lengths and types are.
            let place = if draw(&mut chance).is_multiple_of(2) { place % 12 } else { place };
            if let Some(byte) = sent.get_mut(place) {
                *byte = draw(&mut chance) as u8;
            }
        }
        let piece_bytes = 1 + draw(&mut chance) % (sent.len() + 1);
        let mut plain = Vec::new();
        for piece in sent.chunks_mut(piece_bytes) {
            failed += u32::from(pair.server.decrypt(piece, &mut plain) == Decrypted::Failed);
            pair.server.encrypt(b"what is to be said meanwhile");
        }
        pair.server.send_close_notify();
        pair.server.encrypt(b"too late");
        pair.server.wrote(pair.server.waiting().len());
    }
    assert!(failed > 50, "{failed} failures");
}
