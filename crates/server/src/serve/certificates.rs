//! What TLS shows: read at the start, and again when it changes or a signal asks for it.

use std::{sync::Arc, time::Duration};

use tokio::signal::unix::Signal;

use super::ServeError;
use crate::{
    config::Config,
    telemetry::{api_counters::ControlCounters, events},
    tls::Certificates,
};

/// Time between two looks at the files.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(10);

/// Reads them, where TLS is on.
pub(super) fn read(config: &Config) -> Result<Option<Arc<Certificates>>, ServeError> {
    let Some(files) = config.http_server.tls.clone() else { return Ok(None) };
    let certificates = Certificates::read(files).map_err(ServeError::Tls)?;
    if let Some(path) = certificates.open_key_file() {
        events::OpenKeyFile { path: &path }.emit();
    }
    Ok(Some(Arc::new(certificates)))
}

/// Reads them again when their files have changed, and whenever a signal asks for it.
pub(super) async fn renew(certificates: Arc<Certificates>, mut hangup: Signal, counters: Arc<ControlCounters>) {
    loop {
        let always = tokio::select! {
            signal = hangup.recv() => signal.is_some(),
            () = tokio::time::sleep(LOOKED_AT_EVERY) => false,
        };
        let renewed = certificates.renew(always);
        if let Ok(false) = renewed {
            continue;
        }
        counters.count_certificates(renewed.is_ok());
        match renewed {
            Ok(_) => events::CertificatesRenewed { error: None }.emit(),
            Err(error) => events::CertificatesRenewed { error: Some(&error) }.emit(),
        }
    }
}
