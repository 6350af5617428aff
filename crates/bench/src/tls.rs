//! TLS between a started server and the clients of a run. The certificate and its key are part of this program. The key
//! is not a secret: it is used only on loopback, and only these clients trust the certificate.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Error, RootCertStore};

const CERTIFICATE: &str = include_str!("tls/certificate.pem");
const KEY: &str = include_str!("tls/key.pem");

/// Configuration of a server that uses the certificate.
pub fn server_settings() -> [String; 3] {
    [
        "http_server.tls.enabled=true".to_owned(),
        format!("http_server.tls.cert_pem={CERTIFICATE}"),
        format!("http_server.tls.key_pem={KEY}"),
    ]
}

/// The TLS configuration of clients. Each connection makes a full handshake, without resumption.
pub fn client_config() -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes());
    roots.add(certificate.map_err(|error| Error::General(error.to_string()))?)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let mut config = builder.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// A client's side of one connection.
pub fn client(config: Arc<ClientConfig>) -> Result<ClientConnection, Error> {
    let name = ServerName::try_from("localhost").map_err(|error| Error::General(error.to_string()))?;
    ClientConnection::new(config, name)
}
