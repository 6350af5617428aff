//! Renewal of certificates while the node runs.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::json;

use crate::{
    each_reactor,
    http::server::{PATIENCE, Server, handshake, metric_on, request},
};

const FIRST: (&str, &str) =
    (include_str!("../../../net/src/tls/session/cert.pem"), include_str!("../../../net/src/tls/session/key.pem"));
const NEXT: (&str, &str) = (include_str!("tls/next_cert.pem"), include_str!("tls/next_key.pem"));

type Secure = StreamOwned<ClientConnection, TcpStream>;

/// The files of a node's certificate and key.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn new(pair: (&str, &str)) -> Self {
        let folder =
            std::env::temp_dir().join(format!("dunlin-tls-{}-{}", each_reactor::current_name(), std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary directory");
        let files = Self { folder };
        files.write(pair);
        files
    }

    fn write(&self, (certificate, key): (&str, &str)) {
        for (name, text) in [("cert.pem", certificate), ("key.pem", key)] {
            fs::write(self.path(name), text).expect("a temporary file");
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")
}

fn connect(server: &Server) -> Secure {
    let mut roots = RootCertStore::empty();
    for (certificate, _) in [FIRST, NEXT] {
        roots.add(der(certificate)).expect("a certificate");
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = TcpStream::connect(server.address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("a client"), stream)
}

fn read_until(client: &mut Secure, end: &str) -> String {
    let (mut read, mut piece) = (String::new(), [0; 16_384]);
    while read.is_empty() || !read.contains(end) {
        let length = client.read(&mut piece).expect("it answers");
        assert!(length > 0, "ended with {read:?}");
        read.push_str(&String::from_utf8_lossy(&piece[..length]));
    }
    read
}

/// The metrics page, and the certificate of its connection.
fn look(server: &Server) -> (String, CertificateDer<'static>) {
    let mut client = connect(server);
    client.write_all(request("GET", "/metrics", "").as_bytes()).expect("written");
    let mut page = read_until(&mut client, "\r\n\r\n");
    let length = page.to_ascii_lowercase().split_once("content-length: ").map(|(_, rest)| rest.to_owned());
    let length = length.and_then(|rest| rest.lines().next()?.parse::<usize>().ok()).expect("a length");
    let head_bytes = page.find("\r\n\r\n").expect("a head") + 4;
    while page.len() < head_bytes + length {
        page.push_str(&read_until(&mut client, ""));
    }
    let shown = client.conn.peer_certificates().and_then(|chain| chain.first()).expect("a certificate");
    (page, shown.clone().into_owned())
}

fn reloads(page: &str, outcome: &str) -> f64 {
    metric_on(page, &format!("dunlin_tls_certificate_reloads_total{{outcome=\"{outcome}\"}}"))
}

#[test]
fn a_renewed_certificate_is_used_and_a_bad_one_is_ignored() {
    let files = Files::new(FIRST);
    let mut server = Server::start(&json!({ "http_server": { "tls": {
        "enabled": true, "cert_pem": files.path("cert.pem"), "key_pem": files.path("key.pem"),
    } } }));
    let mut session = connect(&server);
    session.write_all(handshake("").as_bytes()).expect("written");
    read_until(&mut session, "\r\n\r\n");
    let (page, shown) = look(&server);
    assert_eq!((shown, reloads(&page, "renewed"), reloads(&page, "failed")), (der(FIRST.0), 0.0, 0.0));

    files.write(NEXT);
    server.signal("HUP");
    server.logged("certificates reloaded; new connections use them");
    let (page, shown) = look(&server);
    // The node also checks the files by itself, so it may have reloaded them more than once, or failed between the
    // writes of the two files.
    let renewed = reloads(&page, "renewed");
    let mut failed = reloads(&page, "failed");
    assert!(shown == der(NEXT.0) && renewed >= 1.0);

    // A file that is not PEM, and a key of another certificate.
    for pair in [("no certificate", NEXT.1), (FIRST.0, NEXT.1)] {
        files.write(pair);
        server.signal("HUP");
        let log_line = server.logged("failed to reload certificates; the old ones stay in use");
        assert!(log_line["error"].as_str().is_some_and(|error| !error.is_empty()), "{log_line}");
        let (page, shown) = look(&server);
        assert_eq!((shown, reloads(&page, "renewed")), (der(NEXT.0), renewed));
        assert!(reloads(&page, "failed") > failed);
        failed = reloads(&page, "failed");
    }

    // The existing session continues with its negotiated keys.
    let text = br#"{"id":1,"connect":{}}"#;
    session.write_all(&[&[0x81, 0x80 | text.len() as u8, 0, 0, 0, 0], &text[..]].concat()).expect("written");
    read_until(&mut session, r#"{"id":1,"connect""#);
}

on_io_uring![a_renewed_certificate_is_used_and_a_bad_one_is_ignored,];
