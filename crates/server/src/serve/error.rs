//! Why a node does not start, or stops on its own.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use dunlin_net::TlsError;
use dunlin_storage::StorageError;

use crate::{
    backend::BackendError, http::PathTaken, node::StartError, otlp::OtlpError, profiling::ProfilingError,
    webhooks::WebhookError,
};

/// Why a node could not run.
#[derive(Debug)]
pub enum ServeError {
    /// The log file cannot be written.
    Log {
        /// The file, if it is one.
        path: Option<PathBuf>,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The control thread could not be started.
    Runtime(io::Error),
    /// The storage could not be opened.
    Storage(StorageError),
    /// The node cannot be part of its cluster.
    Cluster(String),
    /// The shards could not be started.
    Start(StartError),
    /// The backends cannot be used.
    Backends(BackendError),
    /// The webhooks cannot be used.
    Webhooks(WebhookError),
    /// Profiles cannot be pushed.
    Profiling(ProfilingError),
    /// Traces and metrics cannot be sent.
    Otlp(OtlpError),
    /// TLS could not be set up.
    Tls(TlsError),
    /// Two endpoints have the same path.
    Path(PathTaken),
    /// The demo pages cannot be read.
    Site {
        /// Their directory.
        dir: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file for the process id cannot be written.
    PidFile {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The shards have stopped on their own.
    NodeLost,
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log { path, source } => {
                write!(f, "cannot write the log to {}: {source}", path.as_deref().unwrap_or(Path::new("-")).display())
            }
            Self::Runtime(source) => write!(f, "cannot start the control thread: {source}"),
            Self::Storage(error) => error.fmt(f),
            Self::Cluster(why) => write!(f, "cannot join the cluster: {why}"),
            Self::Start(error) => error.fmt(f),
            Self::Tls(error) => write!(f, "cannot set up TLS: {error}"),
            Self::Backends(error) => error.fmt(f),
            Self::Webhooks(error) => error.fmt(f),
            Self::Profiling(error) => error.fmt(f),
            Self::Otlp(error) => error.fmt(f),
            Self::Path(PathTaken(path)) => write!(f, "two endpoints have the same path {path}"),
            Self::Site { dir, source } => write!(f, "cannot serve the pages in {}: {source}", dir.display()),
            Self::PidFile { path, source } => write!(f, "cannot write the process id to {}: {source}", path.display()),
            Self::NodeLost => f.write_str("the shards have stopped"),
        }
    }
}

impl std::error::Error for ServeError {}
