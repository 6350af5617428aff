//! What a node shows its clients: a chain of certificates and its key, read from where the configuration says, and read
//! again when they change.

use std::{
    fmt, fs, io,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::SystemTime,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

/// Where certificates and keys are: each a file's path, PEM text, or that in base64.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The node's certificate, and those that lead to a root.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// Who vouches for clients; empty where clients need no certificate.
    pub client_ca: String,
}

/// Why a node has nothing to show.
#[derive(Debug)]
pub enum TlsError {
    /// A file cannot be read.
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What was read is no PEM of this.
    Pem {
        /// Of what.
        what: &'static str,
    },
    /// It does not fit together.
    Unfit(rustls::Error),
    /// The certificates that vouch for clients cannot be used.
    ClientCa(String),
}

/// What a node shows, now. Shared by all its threads, which ask once for each connection.
#[derive(Debug)]
pub struct Certificates {
    files: TlsFiles,
    now: RwLock<Arc<ServerConfig>>,
    /// When the files that are now in use were changed last.
    changed: RwLock<Vec<Option<SystemTime>>>,
}

impl Certificates {
    /// Reads them.
    ///
    /// # Errors
    /// [`TlsError`]
    pub fn read(files: TlsFiles) -> Result<Self, TlsError> {
        let changed = files.changed();
        let now = RwLock::new(Arc::new(files.server_config()?));
        Ok(Self { files, now, changed: RwLock::new(changed) })
    }

    /// What to show a new connection.
    pub fn now(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads them again, if `always` or if one of the files has changed. Returns whether there is something new; connections
    /// that are there keep what they were shown. After an error what was shown before is still shown.
    ///
    /// # Errors
    /// [`TlsError`]; told once for each change.
    pub fn renew(&self, always: bool) -> Result<bool, TlsError> {
        let changed = self.files.changed();
        let mut known = self.changed.write().unwrap_or_else(PoisonError::into_inner);
        if !always && *known == changed {
            return Ok(false);
        }
        *known = changed;
        let config = Arc::new(self.files.server_config()?);
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(true)
    }

    /// The key's file, if others than its owner may read it.
    pub fn open_key_file(&self) -> Option<PathBuf> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = path_of(&self.files.key)?;
        let mode = fs::metadata(&path).ok()?.permissions().mode();
        (mode & 0o077 != 0).then_some(path)
    }
}

impl TlsFiles {
    fn server_config(&self) -> Result<ServerConfig, TlsError> {
        let chain = certificates(&self.certificate, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(&pem(&self.key)?).map_err(|_| TlsError::Pem { what: "key" })?;
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
        // What comes before the handshake is done could be somebody's replay.
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

/// The PEM text that a value stands for.
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
    fs::read(&path).map_err(|source| TlsError::File { path, source })
}

/// The file that a value names.
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
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Pem { what } => write!(f, "the {what} is not PEM"),
            Self::Unfit(error) => error.fmt(f),
            Self::ClientCa(error) => f.write_str(error),
        }
    }
}

impl std::error::Error for TlsError {}
