//! Key sets fetched over HTTPS.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::Arc,
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};

use crate::{
    each_reactor,
    http::server::{Client, Server, handshake},
};

const CERTIFICATE: &str = include_str!("../../../net/src/tls/session/cert.pem");
const KEY: &str = include_str!("../../../net/src/tls/session/key.pem");
const STRANGER: &str = include_str!("tls/next_cert.pem");

/// Serves a key set over HTTPS as `localhost`. Returns the port.
fn serve(set: String) -> u16 {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).expect("PEM");
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they fit");
    let config = Arc::new(config);
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a server");
            let mut stream = StreamOwned::new(connection, stream);
            if stream.read(&mut [0; 4_096]).is_ok_and(|length| length > 0) {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/jwk-set+json\r\nConnection: close\r\n";
                let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{set}", set.len());
            }
        }
    });
    port
}

/// Starts a node that trusts only this authority, and verifies tokens with the key set at the port.
fn start(port: u16, authority: &str) -> Server {
    let folder = std::env::temp_dir().join(format!(
        "dunlin-jwks-{}-{}-{port}",
        each_reactor::current_name(),
        std::process::id()
    ));
    fs::create_dir_all(&folder).expect("a temporary directory");
    let path = folder.join("authority.pem");
    fs::write(&path, authority).expect("a temporary file");
    // The file is read at each fetch, so it is kept until the test ends.
    let settings = json!({ "client": { "token": {
        "jwks_public_endpoint": format!("https://localhost:{port}/keys"),
        // Skips the check that the address is public, because this machine has no public address.
        "insecure_skip_jwks_endpoint_safety_check": true,
    } } });
    Server::start_with(&settings, &[("SSL_CERT_FILE", &path.to_string_lossy())])
}

fn connect(server: &Server, token: &str) -> Value {
    let mut client: Client = server.connect();
    client.send(handshake(""));
    assert_eq!(client.answer().status, 101);
    let command = json!({ "id": 1, "connect": { "token": token } }).to_string();
    let [high, low] = u16::try_from(command.len()).expect("a short command").to_be_bytes();
    client.send([&[0x81, 0xfe, high, low, 0, 0, 0, 0], command.as_bytes()].concat());
    serde_json::from_slice(&client.frame().1).expect("JSON")
}

#[test]
fn keys_are_fetched_over_verified_https_only() {
    let key = Ed25519KeyPair::generate().expect("a key");
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let x = encode(key.public_key().as_ref());
    let set = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": "a", "x": x }] });
    let port = serve(set.to_string());
    let signed = format!("{}.{}", encode(br#"{"alg":"EdDSA","kid":"a"}"#), encode(br#"{"sub":"ann"}"#));
    let token = format!("{signed}.{}", encode(key.sign(signed.as_bytes()).as_ref()));

    let reply = connect(&start(port, CERTIFICATE), &token);
    assert!(reply["connect"]["client"].is_string(), "{reply}");
    // The host's certificate is from an untrusted authority, so the node cannot verify the token.
    let reply = connect(&start(port, STRANGER), &token);
    assert_eq!(reply["error"]["code"], 100, "{reply}");
}

on_io_uring![keys_are_fetched_over_verified_https_only,];
