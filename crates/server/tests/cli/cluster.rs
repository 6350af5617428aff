//! `dunlin cluster check` against a real NATS server. `crates/cluster/tests/check.rs` tests the findings.

use dunlin_proof::nats::NatsServers;
use serde_json::Value;

use super::{Folder, dunlin, stderr, stdout};

fn config(url: &str) -> String {
    format!(
        r#"{{"broker": {{"enabled": true, "type": "nats", "nats": {{"url": "{url}", "jetstream": {{"replicas": 1}}}}}},
            "channel": {{"namespaces": [{{"name": "chat", "history_size": 10, "history_ttl": "1h"}}]}}}}"#
    )
}

#[test]
fn the_servers_of_a_cluster_are_checked() {
    let folder = Folder::new("cluster-check");
    let servers = NatsServers::start(1, "authorization { user: node, password: secret }");
    let url = servers.url(0);
    let good = folder.file("good.json", &config(&url.replace("nats://", "nats://node:secret@")));
    let output = dunlin(&folder, &["cluster", "check", "-c", &good]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    for line in [
        "good     permissions: ",
        "warning  stream centrifugo_chat_0: does not exist",
        "warning  stream centrifugo_LEASE: does not exist",
        "unknown  sync_interval: ",
        "0 wrong, 2 warnings, 1 unknown",
    ] {
        assert!(stdout(&output).lines().any(|found| found.starts_with(line)), "{line}: {}", stdout(&output));
    }
    assert!(!stdout(&output).contains("secret"), "{}", stdout(&output));

    let output = dunlin(&folder, &["cluster", "check", "-c", &good, "--json"]);
    let report: Value = serde_json::from_str(stdout(&output)).expect("JSON");
    assert_eq!(
        (&report["wrong"], &report["warnings"], &report["unknown"]),
        (&0.into(), &2.into(), &1.into()),
        "{report}"
    );

    let wrong = folder.file("wrong.json", &config(&url.replace("nats://", "nats://node:other@")));
    let output = dunlin(&folder, &["cluster", "check", "-c", &wrong]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("correct the credentials in `broker.nats.url`"), "{}", stdout(&output));
    assert!(stderr(&output).contains("1 wrong: nodes do not work with these NATS servers"), "{}", stderr(&output));
}

#[test]
fn cluster_check_without_a_cluster_is_an_error() {
    let folder = Folder::new("cluster-none");
    let file = folder.file("own.json", "{}");
    let output = dunlin(&folder, &["cluster", "check", "-c", &file]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("there is no cluster: name a configuration with `broker.enabled`"),
        "{}",
        stderr(&output)
    );
    let output = dunlin(&folder, &["cluster", "check", "-c", &file, "--system-url", "http://a"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}
