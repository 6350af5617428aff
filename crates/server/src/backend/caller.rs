//! The HTTP request.

use std::{error::Error as _, fmt, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dunlin_engine::backend::{BackendOutcome, BackendRefusal};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request, StatusCode,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use hyper_rustls::{ConfigBuilderExt as _, FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};

use super::{AskKind, ClientTls, Outcome, PickedHeaders, ProxyOptions, StatusTransform, Transformed, answer};
use crate::telemetry::events;

/// Time that a connection to a backend may wait for its next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Makes the requests of one proxy, over connections that it keeps open.
pub(super) struct Caller {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Caller {
    /// # Errors
    /// What a certificate or a key is not good for.
    pub(super) fn new(options: &ProxyOptions) -> Result<Self, String> {
        let is_plain = options.endpoint.scheme_str() == Some("http");
        let default_tls = ClientTls::default();
        let tls = options.tls.as_deref().unwrap_or(&default_tls);
        // Without TLS there is nothing to be read of the system's certificates.
        let config = if is_plain { without_roots()? } else { tls_config(tls)? };
        let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
        let builder = if tls.server_name.is_empty() {
            builder.enable_http1()
        } else {
            let name =
                ServerName::try_from(tls.server_name.clone()).map_err(|_| "server_name is no name".to_owned())?;
            builder.with_server_name_resolver(FixedServerNameResolver::new(name)).enable_http1()
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(options.requests_max)
            .build(builder.build());
        Ok(Self { client })
    }

    /// Asks. Takes no longer than the proxy's timeout.
    pub(super) async fn call(
        &self,
        kind: AskKind,
        body: Vec<u8>,
        headers: Option<&PickedHeaders>,
        options: &ProxyOptions,
    ) -> (BackendOutcome, Outcome) {
        let timeout = Duration::from_millis(options.timeout_ms);
        let answered = tokio::time::timeout(timeout, self.exchange(body, headers, options)).await;
        let fault = match answered {
            Ok(Ok(body)) => {
                let (outcome, word) = answer::read(kind, &body);
                if word == Outcome::NotOurs {
                    tell(options, kind, word, "the answer is not in the documented form");
                }
                return (outcome, word);
            }
            Ok(Err(fault)) => fault,
            Err(_) => Fault::Timeout,
        };
        if let Fault::Status(status) = &fault
            && let Some(StatusTransform { to, .. }) =
                options.transforms.iter().find(|one| one.status == status.as_u16())
        {
            return match to.clone() {
                Transformed::Error { code, message, temporary } => answer::error(code.into(), message, temporary),
                Transformed::Disconnect(to) => answer::disconnect(to.code.into(), to.reason.into_owned()),
            };
        }
        tell(options, kind, fault.outcome(), &fault);
        (Err(BackendRefusal::Failed), fault.outcome())
    }

    async fn exchange(
        &self,
        body: Vec<u8>,
        headers: Option<&PickedHeaders>,
        options: &ProxyOptions,
    ) -> Result<Bytes, Fault> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = options.endpoint.clone();
        *request.headers_mut() = header_map(headers, options);
        let response = self.client.request(request).await.map_err(|error| Fault::Unreachable(words(&error)))?;
        if response.status() != StatusCode::OK {
            return Err(Fault::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), options.response_bytes_max).collect().await;
        body.map(http_body_util::Collected::to_bytes).map_err(|error| match error.downcast::<LengthLimitError>() {
            Ok(_) => Fault::TooLong,
            Err(error) => Fault::Unreachable(error.to_string()),
        })
    }
}

/// What the session's request brought, and over it what is always sent.
fn header_map(picked: Option<&PickedHeaders>, options: &ProxyOptions) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in picked.into_iter().flat_map(|fields| fields.iter()) {
        let is_ours = options.http_headers.iter().any(|wanted| wanted == name);
        if let (true, Ok(name), Ok(value)) =
            (is_ours, HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value))
        {
            map.append(name, value);
        }
    }
    for (name, value) in &options.static_headers {
        map.insert(name.clone(), value.clone());
    }
    if let Some(user) = user_info(options) {
        map.entry(header::AUTHORIZATION).or_insert(user);
    }
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    map
}

/// `user:password@` in an address is for the field `Authorization` (RFC 7617), where nothing else is.
fn user_info(options: &ProxyOptions) -> Option<HeaderValue> {
    let (user, _) = options.endpoint.authority()?.as_str().rsplit_once('@')?;
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(user))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Why there is no answer.
#[derive(Debug)]
enum Fault {
    Unreachable(String),
    Status(StatusCode),
    TooLong,
    Timeout,
}

impl Fault {
    const fn outcome(&self) -> Outcome {
        match self {
            Self::Unreachable(_) => Outcome::Unreachable,
            Self::Status(_) => Outcome::Status,
            Self::TooLong => Outcome::TooLong,
            Self::Timeout => Outcome::Timeout,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "it was not reached, or broke off: {why}"),
            Self::Status(status) => write!(f, "the answer has the status {}", status.as_u16()),
            Self::TooLong => f.write_str("the answer is too long"),
            Self::Timeout => f.write_str("it did not answer in time"),
        }
    }
}

fn tell(options: &ProxyOptions, kind: AskKind, outcome: Outcome, why: impl fmt::Display) {
    events::BackendFailed { proxy: &options.label, kind: kind.name(), outcome: outcome.name(), why: &why }.emit();
}

/// What an error says, and what is behind it.
fn words(error: &hyper_util::client::legacy::Error) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        text = format!("{text}: {error}");
        behind = error.source();
    }
    text
}

impl ClientTls {
    /// Whether it can be used.
    ///
    /// # Errors
    /// What is wrong, beginning with the key.
    pub fn check(&self) -> Result<(), String> {
        server_name(self)?;
        tls_config(self).map(drop)
    }
}

fn server_name(tls: &ClientTls) -> Result<Option<ServerName<'static>>, String> {
    if tls.server_name.is_empty() {
        return Ok(None);
    }
    ServerName::try_from(tls.server_name.clone()).map(Some).map_err(|_| "server_name is not a name".to_owned())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn without_roots() -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn tls_config(tls: &ClientTls) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let builder = if tls.insecure_skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider())))
    } else if tls.server_ca_pem.is_empty() {
        builder
            .with_native_roots()
            .map_err(|error| format!("the system has no certificates of authorities: {error}"))?
    } else {
        builder.with_root_certificates(roots(&tls.server_ca_pem)?)
    };
    let Some(key) = &tls.key_pem else { return Ok(builder.with_no_client_auth()) };
    let certificates = certificates(&tls.cert_pem, "cert_pem")?;
    let key = PrivateKeyDer::from_pem_slice(key.reveal()).map_err(|_| "key_pem is no private key".to_owned())?;
    builder.with_client_auth_cert(certificates, key).map_err(|error| format!("key_pem does not fit cert_pem: {error}"))
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

/// Believes whoever shows up with a certificate (`insecure_skip_verify`).
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
