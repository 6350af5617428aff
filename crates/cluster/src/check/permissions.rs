//! The permissions of the nodes' user to publish and subscribe. A server reports a forbidden subject as an error on the
//! connection. The probes are chosen so that an allowed one has no effect.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use tokio::time::timeout;

use super::{ANSWER_TIMEOUT, ClusterOptions, FindingState, Findings, servers::ReachedServer};
use crate::{core::room_logs::RoomLogNames, links::ClientNotice, names::PartitionNames};

/// Time to wait for errors after the last answer.
const NOTICES_TIMEOUT: Duration = Duration::from_millis(300);
/// A token that no channel has.
const PROBE: &str = "%_check";
/// The stream refuses a message with this header, because it expects another stream.
const EXPECTED_STREAM: (&str, &str) = ("Nats-Expected-Stream", "-");

/// A subject that a node uses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Probe {
    is_publish: bool,
    subject: String,
}

pub(super) async fn check(server: &mut ReachedServer, options: &ClusterOptions, findings: &mut Findings) {
    let probes = probes(options);
    let mut subscribers = Vec::new();
    for probe in &probes {
        // A lost connection is reported with the streams.
        if probe.is_publish {
            let headers = HeaderMap::from_iter([(
                EXPECTED_STREAM.0.parse().unwrap_or_else(|_| unreachable!("a constant")),
                EXPECTED_STREAM.1.parse().unwrap_or_else(|_| unreachable!("a constant")),
            )]);
            let inbox = server.client.new_inbox();
            let _ =
                server.client.publish_with_reply_and_headers(probe.subject.clone(), inbox, headers, Bytes::new()).await;
        } else if let Ok(subscriber) = server.client.subscribe(probe.subject.clone()).await {
            subscribers.push(subscriber);
        }
    }
    // The server answers in order: its errors arrive before this answer or its timeout.
    let name = &first_names(options).next().map_or_else(|| "-".into(), |names| names.stream);
    let _ = timeout(ANSWER_TIMEOUT, server.client.request(format!("$JS.API.STREAM.INFO.{name}"), Bytes::new())).await;
    let mut refused = Vec::new();
    while let Ok(Some(notice)) = timeout(NOTICES_TIMEOUT, server.notices.recv()).await {
        if let ClientNotice::Error(text) = notice {
            refused.extend(refused_probe(&text));
        }
    }
    drop(subscribers);
    judge(&probes, &refused, &options.prefix, findings);
}

fn judge(probes: &[Probe], refused: &[Probe], prefix: &str, findings: &mut Findings) {
    let mut count = 0;
    let is_inbox = |subject: &str| subject.starts_with("_INBOX.");
    for probe in probes.iter().filter(|probe| refused.contains(probe)) {
        count += 1;
        add_refused(probe, prefix, findings);
    }
    // The client's own inbox has a random name.
    for probe in refused.iter().filter(|probe| is_inbox(&probe.subject) && !probes.contains(probe)) {
        count += 1;
        add_refused(probe, prefix, findings);
    }
    if count == 0 {
        let text = format!("the user may use all {} kinds of subjects that a node needs", probes.len());
        findings.add(FindingState::Good, "permissions", text);
    }
}

fn add_refused(probe: &Probe, prefix: &str, findings: &mut Findings) {
    let action = if probe.is_publish { "publish" } else { "subscribe" };
    let pattern = pattern_of(&probe.subject, prefix);
    let text = format!(
        "the user may not {action} to {}: add \"{pattern}\" to `{action}` of its permissions in the servers' configuration",
        probe.subject
    );
    findings.add(FindingState::Wrong, "permissions", text);
}

/// The entry of the documented permissions that allows a subject.
fn pattern_of(subject: &str, prefix: &str) -> String {
    let patterns = ["$JS.API.STREAM.INFO.", "$JS.API.STREAM.CREATE.", "$JS.API.STREAM.PURGE.", "$JS.API.DIRECT.GET."];
    if subject.starts_with(&format!("{prefix}.")) {
        return format!("{prefix}.>");
    }
    if let Some(start) = patterns.iter().find(|start| subject.starts_with(**start)) {
        let has_more = subject[start.len()..].contains('.');
        return format!("{start}*{}", if has_more { ".>" } else { "" });
    }
    match subject.split_once('.') {
        Some((first @ ("_DN" | "_INBOX"), _)) => format!("{first}.>"),
        _ => match subject.rsplit_once('.') {
            Some((start, _)) => format!("{start}.>"),
            None => subject.to_owned(),
        },
    }
}

fn first_names(options: &ClusterOptions) -> impl Iterator<Item = PartitionNames> + '_ {
    options.namespaces.iter().flatten().map(|namespace| PartitionNames::new(&options.prefix, &namespace.name, 0))
}

fn probes(options: &ClusterOptions) -> Vec<Probe> {
    let mut probes = Vec::new();
    let mut add = |is_publish: bool, subject: String| probes.push(Probe { is_publish, subject });
    add(true, format!("{}.{PROBE}", options.prefix));
    add(false, format!("{}.{PROBE}.>", options.prefix));
    add(false, format!("{}.>", options.links.inbox));
    for names in first_names(options) {
        let stream = &names.stream;
        // The subjects of publications and of their republications.
        add(true, format!("{}{PROBE}", names.stored_subjects().trim_end_matches('>')));
        add(false, format!("{}{PROBE}.>", names.republished_subjects().trim_end_matches('>')));
        add(false, names.leader_subject().into());
        add(true, format!("$JS.API.STREAM.INFO.{stream}"));
        // Without a body, the server refuses it as an invalid stream configuration.
        add(true, format!("$JS.API.STREAM.CREATE.{stream}"));
        add(true, format!("$JS.API.DIRECT.GET.{stream}"));
        add(true, format!("$JS.API.DIRECT.GET.{stream}.{}.{PROBE}", options.prefix));
    }
    if options.keeps_rooms {
        // Without a body, the server would delete everything.
        let stream = RoomLogNames::new(&options.prefix).stream;
        add(true, format!("$JS.API.STREAM.PURGE.{stream}{PROBE}"));
    }
    probes
}

/// The subject in a server's error: `Permissions Violation for Publish to "dn.x"`.
fn refused_probe(text: &str) -> Option<Probe> {
    let (_, what) = text.split_once("Permissions Violation for ")?;
    let (action, rest) = what.split_once(" to \"")?;
    let (subject, _) = rest.split_once('"')?;
    let is_publish = match action {
        "Publish" => true,
        "Subscription" => false,
        _ => return None,
    };
    Some(Probe { is_publish, subject: subject.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_subject_is_parsed_from_the_servers_error() {
        for (text, expected) in [
            (
                r#"nats: Permissions Violation for Publish to "dn.p.chat.0.%_check""#,
                Some((true, "dn.p.chat.0.%_check")),
            ),
            (r#"Permissions Violation for Subscription to "_DN.a.>""#, Some((false, "_DN.a.>"))),
            (r#"Permissions Violation for Subscription to "a" using queue "q""#, Some((false, "a"))),
            ("Permissions Violation for Publish to nothing", None),
            ("Slow Consumer", None),
        ] {
            let expected = expected.map(|(is_publish, subject)| Probe { is_publish, subject: subject.to_owned() });
            assert_eq!(refused_probe(text), expected, "{text}");
        }
    }

    #[test]
    fn the_remedy_is_an_entry_of_the_documentation() {
        let documented = include_str!("../../../../docs/clustering.md").replace("PREFIX", "dn");
        for subject in [
            "dn.p.chat.0.%_check",
            "_DN.node.>",
            "_INBOX.x.*",
            "$JS.API.STREAM.INFO.dn_chat_0",
            "$JS.API.STREAM.CREATE.dn_chat_0",
            "$JS.API.DIRECT.GET.dn_chat_0",
            "$JS.API.DIRECT.GET.dn_chat_0.dn.%_check",
            "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.dn_chat_0",
        ] {
            let pattern = format!("\"{}\"", pattern_of(subject, "dn"));
            assert!(documented.contains(&pattern), "{subject}: {pattern}");
        }
    }

    #[test]
    fn each_refused_subject_is_a_finding() {
        let probe = |is_publish, subject: &str| Probe { is_publish, subject: subject.to_owned() };
        let probes = [probe(true, "dn.%_check"), probe(false, "_DN.a.>")];
        for (refused, states) in [
            (vec![], vec![FindingState::Good]),
            (vec![probe(false, "_DN.a.>")], vec![FindingState::Wrong]),
            (vec![probe(false, "_INBOX.q.*"), probe(true, "dn.%_check")], vec![FindingState::Wrong; 2]),
            // A subject of another user of the same connection.
            (vec![probe(true, "elsewhere")], vec![FindingState::Good]),
        ] {
            let mut findings = Findings::default();
            judge(&probes, &refused, "dn", &mut findings);
            assert_eq!(findings.all.iter().map(|finding| finding.state).collect::<Vec<_>>(), states, "{refused:?}");
        }
    }
}
