//! TLS on the shards, over real sockets, with a rustls client.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
};

use dunlin::node::NodeNetOptions;
use dunlin_net::{Certificates, TlsFiles};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};

use crate::node::{
    client::{TEXT, frame, upgrade_request},
    rig::{PATIENCE, Rig, engine_options, net_options, wait_until},
};

const CERTIFICATE: &str = include_str!("../../../net/src/tls/session/cert.pem");
const KEY: &str = include_str!("../../../net/src/tls/session/key.pem");

const CLIENT_CA: &str = include_str!("tls/client_ca.pem");
const CLIENT_CERTIFICATE: &str = include_str!("tls/client_cert.pem");
const CLIENT_KEY: &str = include_str!("tls/client_key.pem");

fn rig() -> Rig {
    rig_asking_for("")
}

/// Starts a node whose clients need a certificate of this authority.
fn rig_asking_for(client_ca: &str) -> Rig {
    let files = TlsFiles { certificate: CERTIFICATE.to_owned(), key: KEY.to_owned(), client_ca: client_ca.to_owned() };
    let certificates = Some(Arc::new(Certificates::read(files).expect("they are good")));
    Rig::start(NodeNetOptions { certificates, ..net_options() }, engine_options())
}

type Secure = StreamOwned<ClientConnection, TcpStream>;

fn connect(rig: &Rig, versions: &[&'static rustls::SupportedProtocolVersion]) -> Secure {
    connect_with(rig, versions, None)
}

/// Connects a client, with a certificate if one is given.
fn connect_with(
    rig: &Rig,
    versions: &[&'static rustls::SupportedProtocolVersion],
    own: Option<(&str, &str)>,
) -> Secure {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).expect("PEM")).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM")];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            config.with_client_auth_cert(chain, key).expect("they fit")
        }
    };
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    let stream = TcpStream::connect(rig.address()).expect("the node listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    StreamOwned::new(connection, stream)
}

/// Reads until `end` has arrived.
fn read_until(stream: &mut Secure, read: &mut Vec<u8>, end: &[u8]) {
    let mut piece = [0; 16_384];
    while !read.windows(end.len()).any(|window| window == end) {
        let length = stream.read(&mut piece).expect("the node answers");
        assert!(length > 0, "ended with {:?}", String::from_utf8_lossy(read));
        read.extend_from_slice(&piece[..length]);
    }
}

#[test]
fn a_websocket_over_both_versions() {
    let rig = rig();
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let mut client = connect(&rig, &[version]);
        client.write_all(upgrade_request("").as_bytes()).expect("written");
        let mut read = Vec::new();
        read_until(&mut client, &mut read, b"\r\n\r\n");
        client.write_all(&frame(TEXT, br#"{"id":1,"connect":{}}"#)).expect("written");
        client.write_all(&frame(TEXT, br#"{"id":2,"subscribe":{"channel":"news"}}"#)).expect("written");
        read_until(&mut client, &mut read, br#"{"id":2,"subscribe""#);
        // More than fits in the socket's buffer, so the rest is sent later.
        let data = "x".repeat(60_000);
        for _ in 0..10 {
            rig.publish("news", &format!("{data:?}")).expect("published");
        }
        rig.publish("news", r#""the last""#).expect("published");
        read_until(&mut client, &mut read, b"the last");
        assert!(read.len() > 600_000);
    }
    assert_eq!(rig.count(|counters| counters.tls_handshakes), 2);
}

#[test]
fn plaintext_on_a_tls_port_closes_the_connection() {
    let rig = rig();
    for bytes in [&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff, 0, 0], &[0; 100]] {
        let mut stream = TcpStream::connect(rig.address()).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.write_all(bytes).expect("written");
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"HTTP"), "nothing is said in the clear");
    }
    wait_until("the connections are gone", || rig.count(|counters| counters.connections) == 0);
    assert!(rig.count(|counters| counters.tls_failures) >= 2);
}

#[test]
fn http_requests_are_handed_over_with_their_tls_session() {
    let mut rig = rig();
    let mut client = connect(&rig, &[&rustls::version::TLS13]);
    client.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").expect("written");
    let handed_over = rig.runtime.block_on(rig.handed_over.recv()).expect("a connection");
    assert!(handed_over.head.starts_with(b"GET /health"));
    let mut tls = handed_over.tls.expect("it goes with the socket");
    // The end of the handshake may still be pending; the response follows it.
    tls.encrypt(b"HTTP/1.1 204 No Content\r\n\r\n");
    let stream = handed_over.stream;
    stream.set_nonblocking(false).expect("a test may block");
    (&stream).write_all(tls.waiting()).expect("written");
    let mut read = Vec::new();
    read_until(&mut client, &mut read, b"204 No Content\r\n\r\n");
}

#[test]
fn client_certificates_are_verified_against_the_authority() {
    let rig = rig_asking_for(CLIENT_CA);
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let mut client = connect_with(&rig, &[version], Some((CLIENT_CERTIFICATE, CLIENT_KEY)));
        client.write_all(upgrade_request("").as_bytes()).expect("written");
        read_until(&mut client, &mut Vec::new(), b"\r\n\r\n");
        // No certificate, and a self-signed one.
        for own in [None, Some((CERTIFICATE, KEY))] {
            let mut client = connect_with(&rig, &[version], own);
            let _ = client.write_all(upgrade_request("").as_bytes());
            let refused = client.read(&mut [0; 1]);
            assert!(matches!(refused, Ok(0) | Err(_)), "it is not let in");
        }
    }
    rig.wait_for("the failures", 4, |counters| counters.tls_failures);
    assert_eq!(rig.count(|counters| counters.upgraded), 2);
    wait_until("those who were not let in are gone", || rig.count(|counters| counters.connections) == 0);
}

on_io_uring![
    a_websocket_over_both_versions,
    plaintext_on_a_tls_port_closes_the_connection,
    http_requests_are_handed_over_with_their_tls_session,
    client_certificates_are_verified_against_the_authority,
];
