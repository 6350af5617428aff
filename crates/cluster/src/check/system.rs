//! Checks that need a user of the system account: the settings and clocks of all servers.

use async_nats::Client;
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::time::timeout;

use super::{ANSWER_TIMEOUT, AskedAt, FindingState, Findings, clock_finding, servers::is_version_supported, unix_ms};
use crate::{
    links::{LinkOptions, open_once},
    record,
};

/// All servers answer this request.
const QUESTION: &str = "$SYS.REQ.SERVER.PING.JSZ";
/// Maximum number of answers.
const SERVERS_MAX: usize = 256;

pub(super) async fn check(options: Option<&LinkOptions>, findings: &mut Findings) {
    let Some(options) = options else {
        let text = "only a user of the servers' system account can see it: use --system-url, or see that each server's \
                    configuration has `sync_interval: always`";
        return findings.add(FindingState::Unknown, "sync_interval", text);
    };
    let client = match open_once(options).await {
        Ok(client) => client,
        Err(faults) => {
            return findings.add(FindingState::Unknown, "system account", format_args!("{faults}; see --system-url"));
        }
    };
    let before_ms = unix_ms();
    let answers = answers(&client).await;
    if answers.is_empty() {
        let text = "no server answers: use a user of the account that `system_account` names in --system-url";
        return findings.add(FindingState::Unknown, "system account", text);
    }
    for (after_ms, answer) in answers {
        judge(&answer, AskedAt { before_ms, after_ms }, findings);
    }
}

/// The answers of all servers, with their times of arrival.
async fn answers(client: &Client) -> Vec<(u64, Value)> {
    let inbox = client.new_inbox();
    let mut answers = Vec::new();
    let Ok(mut subscriber) = client.subscribe(inbox.clone()).await else { return answers };
    if client.publish_with_reply(QUESTION, inbox, Bytes::from_static(b"{}")).await.is_err() {
        return answers;
    }
    while answers.len() < SERVERS_MAX {
        let Ok(Some(message)) = timeout(ANSWER_TIMEOUT, subscriber.next()).await else { break };
        if let Ok(answer) = serde_json::from_slice::<Value>(&message.payload)
            && answer["server"]["name"].is_string()
        {
            answers.push((unix_ms(), answer));
        }
    }
    answers
}

fn judge(answer: &Value, asked: AskedAt, findings: &mut Findings) {
    let name = answer["server"]["name"].as_str().unwrap_or("a server");
    let version = answer["server"]["ver"].as_str().unwrap_or_default();
    if !is_version_supported(version) {
        findings.add(
            FindingState::Wrong,
            format_args!("server {name}"),
            format_args!("has nats-server {version}, which is too old"),
        );
    }
    if answer["data"]["disabled"].as_bool() == Some(true) {
        let text = "has no JetStream, and keeps no streams";
        findings.add(FindingState::Warning, format_args!("server {name}"), text);
    } else if answer["data"]["config"]["sync_always"].as_bool() == Some(true) {
        findings.add(FindingState::Good, format_args!("sync_interval of {name}"), "always");
    } else {
        let text = "is not `always`: a loss of power of several servers at once can take what was acknowledged. Set \
                    `sync_interval: always` in `jetstream` of its configuration";
        findings.add(FindingState::Warning, format_args!("sync_interval of {name}"), text);
    }
    for (used, limit, setting) in
        [("storage", "max_storage", "max_file_store"), ("memory", "max_memory", "max_memory_store")]
    {
        let data = &answer["data"];
        if let (Some(used), Some(limit)) = (data[used].as_u64(), data["config"][limit].as_u64())
            && let Some((state, text)) = store_finding(used, limit, setting)
        {
            findings.add(state, format_args!("{setting} of {name}"), text);
        }
    }
    if let Some(there_ms) = answer["server"]["time"].as_str().and_then(record::unix_ms) {
        let (state, text) = clock_finding(asked.offset_ms(there_ms));
        findings.add(state, format_args!("clock of {name}"), text);
    }
}

/// A server whose store is full refuses all messages of its streams.
fn store_finding(used: u64, limit: u64, setting: &str) -> Option<(FindingState, String)> {
    let state = match used {
        _ if limit == 0 => return None,
        used if used >= limit => FindingState::Wrong,
        used if used >= limit - limit / 10 => FindingState::Warning,
        _ => return None,
    };
    Some((state, format!("{used} bytes of {limit} are used, and a full store refuses publications: raise `{setting}`")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_full_store_is_wrong() {
        for (used, state) in [
            (0, None),
            (89, None),
            (90, Some(FindingState::Warning)),
            (99, Some(FindingState::Warning)),
            (100, Some(FindingState::Wrong)),
        ] {
            assert_eq!(store_finding(used, 100, "max_file_store").map(|found| found.0), state, "{used}");
        }
        assert_eq!(store_finding(5, 0, "max_memory_store"), None, "it has none");
    }

    #[test]
    fn a_server_that_does_not_sync_is_named() {
        let answer = |version: &str, data: Value| json!({"server": {"name": "n0", "ver": version, "time": "1970-01-01T00:00:10.5Z"}, "data": data});
        let (good, warning, wrong) = (FindingState::Good, FindingState::Warning, FindingState::Wrong);
        for (answer, states) in [
            (answer("2.15.2", json!({"config": {"sync_always": true}})), vec![good, good]),
            (answer("2.15.2", json!({"config": {"sync_interval": 120_000_000_000_u64}})), vec![warning, good]),
            (answer("2.15.2", json!({"disabled": true})), vec![warning, good]),
            (answer("2.9.0", json!({"config": {"sync_always": true}})), vec![wrong, good, good]),
        ] {
            let mut findings = Findings::default();
            judge(&answer, AskedAt { before_ms: 10_000, after_ms: 11_000 }, &mut findings);
            assert_eq!(
                findings.all.iter().map(|finding| finding.state).collect::<Vec<_>>(),
                states,
                "{:?}",
                findings.all
            );
        }
    }
}
