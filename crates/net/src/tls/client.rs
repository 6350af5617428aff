//! The client side of TLS: trusted authorities and the client's own certificate.

use std::{fmt, sync::Arc};

use hyper_rustls::ConfigBuilderExt as _;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};

/// TLS options of a client (`http.tls`).
#[derive(Clone, Default)]
pub struct ClientTls {
    /// PEM certificates of the trusted authorities; empty for those of the system.
    pub server_ca_pem: String,
    /// The client's certificate as PEM; empty for none.
    pub cert_pem: String,
    /// The certificate's key as PEM; empty for none.
    pub key_pem: String,
    /// The expected name in the server's certificate; empty for the endpoint's host name.
    pub server_name: String,
    /// Accept any certificate. For development only.
    pub insecure_skip_verify: bool,
}

impl ClientTls {
    /// Checks whether the options are valid.
    ///
    /// # Errors
    /// A message that begins with the invalid key.
    pub fn check(&self) -> Result<(), String> {
        self.server_name()?;
        // The system's authorities are some hundred files, and no part of the settings.
        self.configured(SystemRoots::Unread).map(drop)
    }

    /// The expected name in the server's certificate; `None` for the endpoint's host name.
    ///
    /// # Errors
    /// A message that begins with the invalid key.
    pub fn server_name(&self) -> Result<Option<ServerName<'static>>, String> {
        if self.server_name.is_empty() {
            return Ok(None);
        }
        ServerName::try_from(self.server_name.clone())
            .map(Some)
            .map_err(|_| "server_name is not a valid host name".to_owned())
    }

    /// The TLS configuration of connections. The caller applies [`Self::server_name`].
    ///
    /// # Errors
    /// A message that begins with the invalid key.
    pub fn client_config(&self) -> Result<ClientConfig, String> {
        self.configured(SystemRoots::Read)
    }

    fn configured(&self, system_roots: SystemRoots) -> Result<ClientConfig, String> {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        let builder = if self.insecure_skip_verify {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider())))
        } else if self.server_ca_pem.is_empty() {
            match system_roots {
                SystemRoots::Read => builder
                    .with_native_roots()
                    .map_err(|error| format!("cannot read the system's certificate authorities: {error}"))?,
                SystemRoots::Unread => builder.with_root_certificates(RootCertStore::empty()),
            }
        } else {
            builder.with_root_certificates(roots(&self.server_ca_pem)?)
        };
        if self.key_pem.is_empty() {
            return Ok(builder.with_no_client_auth());
        }
        let certificates = certificates(&self.cert_pem, "cert_pem")?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes());
        let key = key.map_err(|_| "key_pem contains no private key".to_owned())?;
        builder
            .with_client_auth_cert(certificates, key)
            .map_err(|error| format!("key_pem does not match cert_pem: {error}"))
    }
}

/// Whether a configuration without authorities of its own gets those of the system.
#[derive(Clone, Copy)]
enum SystemRoots {
    Read,
    Unread,
}

impl fmt::Debug for ClientTls {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("server_ca_pem", &self.server_ca_pem)
            .field("cert_pem", &self.cert_pem)
            .field("server_name", &self.server_name)
            .field("insecure_skip_verify", &self.insecure_skip_verify)
            .finish_non_exhaustive()
    }
}

/// A configuration for connections without TLS; the system's certificates are not read.
///
/// # Errors
/// The error of the TLS library.
pub fn without_roots() -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn roots(pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "server_ca_pem")? {
        roots.add(certificate).map_err(|error| format!("server_ca_pem: {error}"))?;
    }
    Ok(roots)
}

fn certificates(pem: &str, key: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let certificates = certificates.map_err(|error| format!("{key}: {error}"))?;
    if certificates.is_empty() { Err(format!("{key} holds no certificate")) } else { Ok(certificates) }
}

/// Accepts any certificate (`insecure_skip_verify`).
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
