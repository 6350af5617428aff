//! Backends with TLS. The certificate is for `backend.example`, signed by an authority that only these tests use.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    thread,
};

use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use dunlin_net::ClientTls;

use super::*;

const AUTHORITY: &str = include_str!("tls/authority.pem");
const CERTIFICATE: &str = include_str!("tls/certificate.pem");
const KEY: &str = include_str!("tls/key.pem");

/// Starts an HTTPS service that responds with `{}`, and optionally requires a client certificate. Returns its port.
fn serve(asks_for_certificate: bool) -> u16 {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.unwrap();
    let builder = if asks_for_certificate {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(AUTHORITY.as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let config = Arc::new(builder.with_single_cert(vec![certificate], key).unwrap());
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
            let mut request = [0; 4_096];
            if stream.read(&mut request).is_ok_and(|count| count > 0) {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
            }
        }
    });
    port
}

fn ask(port: u16, tls: ClientTls) -> Option<ProxyError> {
    let mut options = options(&format!("https://127.0.0.1:{port}/hook"));
    options.tls = Some(Arc::new(tls));
    let rig = Rig { backends: Backends::start(&[options], None).unwrap(), service: Service::start(Reaction::Hang) };
    rig.answer().err()
}

fn trusting() -> ClientTls {
    let (server_ca_pem, server_name) = (AUTHORITY.to_owned(), "backend.example".to_owned());
    ClientTls { server_ca_pem, server_name, ..ClientTls::default() }
}

#[test]
fn the_backends_certificate_is_verified_for_authority_and_name() {
    let port = serve(false);
    assert_eq!(ask(port, trusting()), None);
    for (what, tls) in [
        ("another name", ClientTls { server_name: "other.example".to_owned(), ..trusting() }),
        ("the address's own name", ClientTls { server_name: String::new(), ..trusting() }),
    ] {
        assert_eq!(ask(port, tls), Some(ProxyError::Failed), "{what}");
    }
    assert_eq!(ask(port, ClientTls { insecure_skip_verify: true, ..ClientTls::default() }), None);
}

#[test]
fn the_client_certificate_is_sent_on_request() {
    let port = serve(true);
    assert_eq!(ask(port, trusting()), Some(ProxyError::Failed));
    let (cert_pem, key_pem) = (CERTIFICATE.to_owned(), KEY.to_owned());
    assert_eq!(ask(port, ClientTls { cert_pem, key_pem, ..trusting() }), None);
}

#[test]
fn an_invalid_certificate_is_reported_before_any_request() {
    for tls in [
        ClientTls { server_ca_pem: "x".to_owned(), ..ClientTls::default() },
        ClientTls { server_name: "not a name".to_owned(), ..trusting() },
        ClientTls { cert_pem: CERTIFICATE.to_owned(), key_pem: "x".to_owned(), ..trusting() },
        ClientTls { cert_pem: String::new(), key_pem: KEY.to_owned(), ..trusting() },
    ] {
        assert!(tls.check().is_err(), "{tls:?}");
    }
    assert_eq!(trusting().check(), Ok(()));
}
