//! Reads TLS certificates at the start and when their files change.

use std::{sync::Arc, time::Duration};

use dunlin_config::Config;
use dunlin_net::Certificates;

use super::ServeError;
use crate::telemetry::{api_counters::ControlCounters, events};

/// Interval between two checks of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Reads the certificates, if TLS is enabled.
pub(super) fn read(config: &Config) -> Result<Option<Arc<Certificates>>, ServeError> {
    let Some(files) = config.http_server.tls.clone() else { return Ok(None) };
    let certificates = Certificates::read(files).map_err(ServeError::Tls)?;
    if let Some(path) = certificates.open_key_file() {
        events::OpenKeyFile { path: &path }.emit();
    }
    Ok(Some(Arc::new(certificates)))
}

/// Reloads the certificates, if there are any, when their files change.
pub(super) fn start(certificates: Option<Arc<Certificates>>, counters: &Arc<ControlCounters>) {
    if let Some(certificates) = certificates {
        tokio::spawn(renew(certificates, Arc::clone(counters)));
    }
}

async fn renew(certificates: Arc<Certificates>, counters: Arc<ControlCounters>) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let renewed = certificates.renew();
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
