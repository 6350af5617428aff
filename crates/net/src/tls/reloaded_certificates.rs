//! The node's certificate chain and private key, read from the configured sources and reloaded when the files change.

use std::{
    fmt, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::SystemTime,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

/// Maximum length of a file with PEM text. Certificate chains are much shorter.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The sources of certificates and keys. Each is a file's path, PEM text, or base64-encoded PEM text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The node's certificate, followed by its intermediate certificates.
    pub certificate: String,
    /// The private key of the certificate.
    pub key: String,
    /// The certificate authorities for client certificates; empty if clients need no certificate.
    pub client_ca: String,
}

/// Why certificates cannot be used.
#[derive(Debug)]
pub enum TlsError {
    /// A file cannot be read.
    File {
        /// The file's path.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The value contains no PEM block of the expected kind.
    Pem {
        /// The expected kind.
        what: &'static str,
    },
    /// The key does not belong to the certificate.
    OtherKey,
    /// rustls rejects the combination.
    Unfit(rustls::Error),
    /// The authorities for client certificates cannot be used.
    ClientCa(String),
}

/// The current certificates. All threads share them and fetch the current state once per connection.
#[derive(Debug)]
pub struct Certificates {
    now: RwLock<Arc<ServerConfig>>,
    source: Mutex<CertificateSource>,
}

/// The source of certificates.
#[derive(Debug)]
struct CertificateSource {
    files: TlsFiles,
    /// Modification times of the files that are in use.
    changed: Vec<Option<SystemTime>>,
}

impl Certificates {
    /// Reads certificates from these sources.
    ///
    /// # Errors
    /// [`TlsError`]
    pub fn read(files: TlsFiles) -> Result<Self, TlsError> {
        let changed = files.changed();
        let now = RwLock::new(Arc::new(files.server_config()?));
        Ok(Self { now, source: Mutex::new(CertificateSource { files, changed }) })
    }

    /// The TLS configuration for a new connection.
    pub fn now(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Uses the certificates and sources of `other` from now on.
    pub fn replace(&self, other: Self) {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        *source = other.source.into_inner().unwrap_or_else(PoisonError::into_inner);
        let now = other.now.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Reads the files again if one of them has changed. Returns whether the certificates changed. Existing connections
    /// keep their certificates. After an error the previous certificates stay in use.
    ///
    /// # Errors
    /// [`TlsError`], reported once per change.
    pub fn renew(&self) -> Result<bool, TlsError> {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = source.files.changed();
        if source.changed == changed {
            return Ok(false);
        }
        source.changed = changed;
        let config = Arc::new(source.files.server_config()?);
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(true)
    }

    /// The key's file, if users other than its owner can read it.
    pub fn open_key_file(&self) -> Option<PathBuf> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = path_of(&self.source.lock().unwrap_or_else(PoisonError::into_inner).files.key)?;
        let mode = fs::metadata(&path).ok()?.permissions().mode();
        (mode & 0o077 != 0).then_some(path)
    }
}

impl TlsFiles {
    /// Checks whether a node can start with these sources.
    ///
    /// # Errors
    /// The invalid configuration key and the reason.
    pub fn check(&self) -> Result<(), (&'static str, TlsError)> {
        certificates(&self.certificate, "certificate").map_err(|error| ("cert_pem", error))?;
        let key = key_pem(&self.key)
            .and_then(|pem| PrivateKeyDer::from_pem_slice(&pem).map_err(|_| TlsError::Pem { what: "key" }));
        key.map_err(|error| ("key_pem", error))?;
        if !self.client_ca.is_empty() {
            certificates(&self.client_ca, "client CA").map_err(|error| ("client_ca_pem", error))?;
        }
        self.server_config().map(drop).map_err(|error| match error {
            TlsError::Unfit(rustls::Error::InconsistentKeys(_)) => ("key_pem", TlsError::OtherKey),
            TlsError::ClientCa(_) => ("client_ca_pem", error),
            _ => ("cert_pem", error),
        })
    }

    fn server_config(&self) -> Result<ServerConfig, TlsError> {
        let chain = certificates(&self.certificate, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(&key_pem(&self.key)?).map_err(|_| TlsError::Pem { what: "key" })?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(TlsError::Unfit)?;
        let builder = if self.client_ca.is_empty() {
            builder.with_no_client_auth()
        } else {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(&self.client_ca, "client CA")? {
                roots.add(certificate).map_err(TlsError::Unfit)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| TlsError::ClientCa(error.to_string()))?)
        };
        let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Unfit)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Data received before the handshake is complete could be a replay.
        config.max_early_data_size = 0;
        Ok(config)
    }

    fn changed(&self) -> Vec<Option<SystemTime>> {
        [&self.certificate, &self.key, &self.client_ca]
            .into_iter()
            .map(|value| fs::metadata(path_of(value)?).ok()?.modified().ok())
            .collect()
    }
}

fn certificates(value: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = pem(value)?;
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(|_| TlsError::Pem { what })?;
    if chain.is_empty() { Err(TlsError::Pem { what }) } else { Ok(chain) }
}

/// The PEM text of a value.
fn pem(value: &str) -> Result<Vec<u8>, TlsError> {
    if is_pem(value.as_bytes()) {
        return Ok(value.as_bytes().to_vec());
    }
    if let Ok(decoded) = STANDARD.decode(value.trim())
        && is_pem(&decoded)
    {
        return Ok(decoded);
    }
    let path = PathBuf::from(value);
    let mut text = Vec::new();
    let read = fs::File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text));
    match read {
        Ok(_) if text.len() as u64 > FILE_BYTES_MAX => {
            let source = io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes"));
            Err(TlsError::File { path, source })
        }
        Ok(_) => Ok(text),
        Err(source) => Err(TlsError::File { path, source }),
    }
}

/// The PEM text of a private key. An error names the file only if the value is plainly a path: the value may be a key in
/// another format.
fn key_pem(value: &str) -> Result<Vec<u8>, TlsError> {
    let is_path = value.starts_with(['/', '.']) || Path::new(value).extension().is_some();
    pem(value).map_err(|error| match error {
        TlsError::File { source, .. } if !is_path => TlsError::File { path: "…".into(), source },
        error => error,
    })
}

/// The path, if the value is one.
fn path_of(value: &str) -> Option<PathBuf> {
    let is_text = is_pem(value.as_bytes()) || STANDARD.decode(value.trim()).is_ok_and(|decoded| is_pem(&decoded));
    (!value.is_empty() && !is_text).then(|| PathBuf::from(value))
}

fn is_pem(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"-----BEGIN").is_some()
}

impl fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsFiles").finish_non_exhaustive()
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, source } => write!(f, "cannot read the file {}: {source}", path.display()),
            Self::Pem { what } => write!(f, "the {what} is not in PEM format"),
            Self::OtherKey => f.write_str("does not match the certificate in `cert_pem`"),
            Self::Unfit(error) => error.fmt(f),
            Self::ClientCa(error) => f.write_str(error),
        }
    }
}

impl std::error::Error for TlsError {}
