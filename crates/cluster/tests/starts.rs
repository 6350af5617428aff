//! The outcome of a node's start on real servers: each fault names the setting and the remedy.

use std::time::{Duration, Instant};

use dunlin_cluster::{
    links::{LinkReport, open_once},
    thread::{ClusterFault, ClusterOptions},
};
use dunlin_engine::log::LoadQuery;
use dunlin_proof::nats::NatsServers;

use crate::{
    check::{accounts, url_of},
    links::{PATIENCE, options},
    thread::{ThreadOfNode, cluster_options, start_and_stop},
};

/// Options of a node whose start does not retry.
fn impatient(urls: &str) -> ClusterOptions {
    ClusterOptions { start_timeout: Duration::ZERO, ..cluster_options(urls, "a", 1) }
}

fn fault_of(options: ClusterOptions) -> String {
    start_and_stop(options).expect_err("the node does not start").to_string()
}

#[track_caller]
fn assert_names(fault: &str, parts: &[&str]) {
    for part in parts {
        assert!(fault.contains(part), "{part:?} is not in {fault:?}");
    }
}

#[test]
fn wrong_credentials_are_reported_at_start() {
    let servers = NatsServers::start(1, "authorization { user: node, password: secret }");
    let with = |credentials: &str| servers.url(0).replace("nats://", &format!("nats://{credentials}@"));
    start_and_stop(cluster_options(&with("node:secret"), "a", 1)).expect("the credentials are valid");
    for credentials in ["node:other", "nobody:secret", "t0ken"] {
        // The server refuses the credentials, so the start fails without a retry.
        let fault = start_and_stop(cluster_options(&with(credentials), "a", 1)).expect_err("the server refuses them");
        assert!(matches!(&fault, ClusterFault::Connect(faults) if faults.is_refused), "{fault}");
        assert_names(&fault.to_string(), &["authorization violation", "`broker.nats.url`"]);
        assert!(!fault.to_string().contains(credentials), "{fault}");
    }

    let servers = NatsServers::start(1, "authorization { token: s3cret }");
    let with = |token: &str| servers.url(0).replace("nats://", &format!("nats://{token}@"));
    start_and_stop(cluster_options(&with("s3cret"), "a", 1)).expect("the token is valid");
    assert_names(&fault_of(cluster_options(&with("other"), "a", 1)), &["authorization violation"]);
}

#[test]
fn an_account_without_jetstream_is_named() {
    let servers = NatsServers::start(1, "accounts { PLAIN { users: [{ user: node, password: secret }] } }");
    let fault = fault_of(impatient(&url_of(&servers, "node")));
    assert_names(&fault, &["the NATS servers have no JetStream for this account", "enable it with `jetstream {}`"]);
}

#[test]
fn servers_with_a_small_max_payload_are_named() {
    let servers = NatsServers::start(1, "max_payload: 65536");
    // The limit is less than a publication of 64 KiB with its headers.
    let fault = fault_of(impatient(&servers.urls()));
    assert_names(&fault, &["messages of 65536 bytes", "up to 69632", "raise `max_payload`", "`client.queue_max_size`"]);
    let mut fits = impatient(&servers.urls());
    fits.publication_bytes_max -= 4_096;
    start_and_stop(fits).expect("the messages fit");
}

#[test]
fn the_documented_permissions_are_sufficient() {
    let servers = NatsServers::start(1, &accounts());
    let urls = url_of(&servers, "node");
    let (a, b) = (ThreadOfNode::start(&urls, "a", 1), ThreadOfNode::start(&urls, "b", 1));
    a.follow("chat:1");
    b.follow("chat:1");
    a.publish("chat:1", 1);
    let first = a.committed(1).expect("the stream stores it");
    // Another node may receive the publication shortly after the acknowledgement.
    let load = || b.load("chat:1", LoadQuery::after(first - 1, 10)).records.len();
    let deadline = Instant::now() + PATIENCE;
    while load() != 1 {
        assert!(Instant::now() < deadline, "waited too long for the publication");
        std::thread::sleep(Duration::from_millis(1));
    }
    a.announce("one");
    b.announce("two");
    assert_eq!((&*a.changed().0, &*b.changed().0), ("b", "a"));
}

#[test]
fn a_missing_permission_is_named() {
    let servers = NatsServers::start(1, &accounts());
    // The servers do not answer these requests; they only log the violation.
    std::thread::scope(|scope| {
        for user in ["no_info", "no_create"] {
            let options = impatient(&url_of(&servers, user));
            scope.spawn(|| {
                let fault = fault_of(options);
                assert_names(
                    &fault,
                    &["nobody answers for the stream dn_chat_0", "permission", "`dunlin cluster check`"],
                );
            });
        }
    });
    // The node reports permissions that it needs later in its log, in the server's words.
    start_and_stop(cluster_options(&url_of(&servers, "node"), "a", 1)).expect("the stream is made");
    for (user, subject) in [("no_dn", "_DN."), ("no_advisory", "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.dn_chat_0")] {
        let mut options = cluster_options(&url_of(&servers, user), "a", 1);
        let (links, reports) = crate::links::options("nats://127.0.0.1:1");
        options.links.report = links.report;
        let node = ThreadOfNode::start_with(options);
        let named = |text: &str| text.to_lowercase().contains("permissions violation") && text.contains(subject);
        loop {
            match reports
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("{user}: the missing permission is reported"))
            {
                LinkReport::ServerError { text, .. } if named(&text) => break,
                _ => {}
            }
        }
        drop(node);
    }
}

/// Changes a field of the stream, as an operator would.
fn edit_stream(urls: &str, field: &str, value: serde_json::Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = open_once(&options(urls).0).await.expect("a server takes the connection");
        let ask = async |subject: &str, body: String| -> serde_json::Value {
            let answer = client.request(subject.to_owned(), body.into()).await.expect("the server answers");
            serde_json::from_slice(&answer.payload).expect("JSON")
        };
        let mut config = ask("$JS.API.STREAM.INFO.dn_chat_0", String::new()).await["config"].take();
        config[field] = value;
        let answer = ask("$JS.API.STREAM.UPDATE.dn_chat_0", config.to_string()).await;
        assert!(answer.get("error").is_none(), "{answer}");
    });
}

#[test]
fn a_modified_stream_is_reported_with_both_values() {
    let servers = NatsServers::start(1, "");
    let one_part = || ClusterOptions { partitions: 1, ..impatient(&servers.urls()) };
    start_and_stop(one_part()).expect("the stream is made");
    // Nodes use the limit that the stream has.
    edit_stream(&servers.urls(), "max_msgs_per_subject", 21.into());
    let differences = start_and_stop(one_part()).expect("nodes use the stream's limits");
    let found: Vec<String> = differences.iter().map(ToString::to_string).collect();
    assert!(found.len() == 1 && found[0].contains("max_msgs_per_subject = 21, not 11"), "{found:?}");
    edit_stream(&servers.urls(), "max_bytes", 1_000_000.into());
    let fault = fault_of(one_part());
    assert_names(&fault, &["dn_chat_0 has max_bytes = 1000000, not -1", "somebody else", "`broker.nats.prefix`"]);
}

#[test]
fn two_clusters_on_one_prefix_are_named() {
    let servers = NatsServers::start(1, "");
    start_and_stop(ClusterOptions { partitions: 1, ..impatient(&servers.urls()) }).expect("the streams are made");
    // A second cluster with the same prefix and other storage.
    let other = ClusterOptions { is_in_memory: true, ..impatient(&servers.urls()) };
    assert_names(
        &fault_of(other),
        &["dn_chat_0 has storage = \"file\", not \"memory\"", "set another `broker.nats.prefix`"],
    );
    // A cluster with its own prefix starts.
    let apart = ClusterOptions { is_in_memory: true, prefix: "apart".into(), ..impatient(&servers.urls()) };
    start_and_stop(apart).expect("it has streams of its own");
}
