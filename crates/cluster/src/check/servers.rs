//! The servers of `broker.nats.url`: each accepts a connection, is new enough, and accepts messages that are large
//! enough.

use async_nats::ServerInfo;
use tokio::sync::mpsc;

use super::{ClusterOptions, FindingState, Findings};
use crate::{
    link::LinkName,
    links::{ClientNotice, NatsClient, connecting},
    thread::preparation::HEADER_BYTES,
};

/// The first version with direct reads of several subjects.
const VERSION_MIN: (u32, u32) = (2, 11);

/// A server that accepts connections.
pub(super) struct ReachedServer {
    pub client: NatsClient,
    pub notices: mpsc::Receiver<ClientNotice>,
}

/// Connects to each server. Returns the first that accepts the connection.
pub(super) async fn check(options: &ClusterOptions, findings: &mut Findings) -> Option<ReachedServer> {
    let wanted_bytes = options.publication_bytes_max + HEADER_BYTES;
    let mut reached = None;
    let mut versions: Vec<String> = Vec::new();
    for address in &options.links.servers {
        let subject = format!("server {}:{}", address.host(), address.port());
        match connecting::connect(LinkName::Read.into(), address, &options.links).await {
            Ok((client, notices)) => {
                let info = client.server_info();
                judge(&subject, &info, wanted_bytes, findings);
                versions.push(info.version);
                reached.get_or_insert(ReachedServer { client, notices });
            }
            Err(error) => {
                let why = connecting::described(&error);
                let remedy = if connecting::is_refused(&error) {
                    "correct the credentials in `broker.nats.url`, or the certificates in `broker.nats.tls`"
                } else {
                    "start it, or correct `broker.nats.url`"
                };
                findings.add(FindingState::Wrong, subject, format_args!("takes no connection ({why}): {remedy}"));
            }
        }
    }
    versions.sort();
    versions.dedup();
    if versions.len() > 1 {
        let text = format!("they have different versions, {}: use one", versions.join(" and "));
        findings.add(FindingState::Warning, "servers", text);
    }
    reached
}

fn judge(subject: &str, info: &ServerInfo, wanted_bytes: usize, findings: &mut Findings) {
    let ServerInfo { server_name, version, max_payload, .. } = info;
    let is_old = !is_version_supported(version);
    if is_old {
        let (major, minor) = VERSION_MIN;
        let text = format!("has nats-server {version}: nodes need {major}.{minor} or newer");
        findings.add(FindingState::Wrong, subject, text);
    }
    if *max_payload < wanted_bytes {
        let text = format!(
            "has max_payload = {max_payload}, and publications with their headers have up to {wanted_bytes} bytes: raise \
             `max_payload` there, or lower `websocket.message_size_limit`"
        );
        findings.add(FindingState::Wrong, subject, text);
    }
    if !is_old && *max_payload >= wanted_bytes {
        let text = format!("{server_name}, nats-server {version}, max_payload = {max_payload}");
        findings.add(FindingState::Good, subject, text);
    }
}

pub(super) fn is_version_supported(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(|part| part.parse::<u32>().ok());
    matches!((numbers.next().flatten(), numbers.next().flatten()), (Some(major), Some(minor)) if (major, minor) >= VERSION_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for (version, is_supported) in [
            ("2.11.0", true),
            ("2.15.2", true),
            ("v2.100.1-RC.1", true),
            ("3.0.0", true),
            ("2.9.25", false),
            ("2.10.99", false),
            ("1.99", false),
            ("", false),
            ("two", false),
        ] {
            assert_eq!(is_version_supported(version), is_supported, "{version}");
        }
    }

    #[test]
    fn a_server_at_the_limit_is_good_and_below_it_is_wrong() {
        let info = |max_payload: usize, version: &str| ServerInfo {
            max_payload,
            version: version.to_owned(),
            ..ServerInfo::default()
        };
        for (info, states) in [
            (info(1_000, "2.11.0"), vec![FindingState::Good]),
            (info(999, "2.11.0"), vec![FindingState::Wrong]),
            (info(999, "2.10.0"), vec![FindingState::Wrong, FindingState::Wrong]),
        ] {
            let mut findings = Findings::default();
            judge("server a", &info, 1_000, &mut findings);
            assert_eq!(
                findings.all.iter().map(|finding| finding.state).collect::<Vec<_>>(),
                states,
                "{:?}",
                findings.all
            );
        }
    }
}
