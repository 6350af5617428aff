//! Leases on real servers.

use async_nats::{Client, HeaderMap};
use dunlin_cluster::{core::leases::LeaseChange, links::open_once};
use dunlin_proof::nats::NatsServers;

use crate::{
    links::{PATIENCE, options},
    thread::{ThreadOfNode, cluster_options},
};

/// Shorter than the default, so that the test takes less time.
const SILENCE_TIMEOUT_MS: u64 = 2_000;

/// Stores a lease record of a node.
async fn store_lease(client: &Client, node: &str, status: &str) {
    let mut headers = HeaderMap::new();
    headers.insert("Dn-Lease", status);
    headers.insert("Dn-Node", node);
    headers.insert("Dn-By", "b");
    let request = async_nats::Request::new().headers(headers).timeout(Some(PATIENCE));
    let answer = client.send_request(format!("dn.l.node.{node}"), request).await.expect("the stream stores it");
    let text = String::from_utf8_lossy(&answer.payload);
    assert!(text.contains("\"seq\""), "{text}");
}

/// Reads the newest lease record of a node as text; `None` if no server answers.
async fn lease_of(client: &Client, node: &str) -> Option<String> {
    let subject = format!("$JS.API.DIRECT.GET.dn_LEASE.dn.l.node.{node}");
    let answer = client.request(subject, "".into()).await.ok()?;
    Some(format!("{:?}", answer.headers?))
}

async fn await_lease(client: &Client, node: &str, is_wanted: impl Fn(&str) -> bool) {
    let wait = async { while !lease_of(client, node).await.is_some_and(|lease| is_wanted(&lease)) {} };
    if tokio::time::timeout(PATIENCE, wait).await.is_err() {
        // The leader's last sequence and the lag of each replica tell a node that writes nothing from a replica that is stuck.
        let info = client.request("$JS.API.STREAM.INFO.dn_LEASE", "".into()).await.map(|answer| answer.payload);
        panic!("the lease of {node} does not change: {:?}, {info:?}", lease_of(client, node).await);
    }
}

/// Waits until the stream has a leader, and all its replicas are in step. Servers that are killed before that can leave it
/// without one.
async fn await_in_step(client: &Client) {
    let in_step = async {
        loop {
            let Ok(answer) = client.request("$JS.API.STREAM.INFO.dn_LEASE", "".into()).await else { continue };
            let info: serde_json::Value = serde_json::from_slice(&answer.payload).expect("JSON");
            let replicas = info["cluster"]["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
            let is_current = |replica: &serde_json::Value| {
                replica["current"] == true && replica["offline"] != true && replica["lag"].as_u64().unwrap_or(0) == 0
            };
            if info["cluster"]["leader"].is_string() && replicas.len() == 2 && replicas.iter().all(is_current) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, in_step).await.expect("the replicas catch up");
}

fn takes_leases(urls: &str, node: &str, replicas: u16) -> ThreadOfNode {
    let mut options = cluster_options(urls, node, replicas);
    options.limits.peers.silence_timeout_ms = SILENCE_TIMEOUT_MS;
    let thread = ThreadOfNode::start_with(options);
    thread.announce(node);
    thread
}

#[tokio::test]
async fn the_lease_of_a_lost_node_is_taken() {
    for replicas in [1, 3] {
        let servers = NatsServers::start(replicas.into(), "");
        let client = open_once(&options(&servers.urls()).0).await.expect("a server takes the connection");
        let (a, b) = (takes_leases(&servers.urls(), "a", replicas), takes_leases(&servers.urls(), "b", replicas));
        let begun = a.lease_change();
        assert!(matches!(begun, LeaseChange::Began { term } if term > 0), "{begun:?}");
        // The lease of a node that never renews it.
        store_lease(&client, "ghost", "held").await;
        await_lease(&client, "ghost", |lease| lease.contains("taken")).await;
        while a.state().counters.leases.taken + b.state().counters.leases.taken == 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_node_whose_lease_is_taken_begins_a_higher_term() {
    let servers = NatsServers::start(1, "");
    let client = open_once(&options(&servers.urls()).0).await.expect("a server takes the connection");
    let a = ThreadOfNode::start(&servers.urls(), "a", 1);
    a.announce("a");
    let LeaseChange::Began { term: first } = a.lease_change() else { panic!("its term begins") };
    store_lease(&client, "a", "taken").await;
    assert_eq!(a.lease_change(), LeaseChange::Lost { by: "b".into() });
    let LeaseChange::Began { term: second } = a.lease_change() else { panic!("a term begins") };
    assert!(second > first, "{second} after {first}");
}

#[tokio::test]
async fn a_lease_survives_the_loss_of_each_server() {
    let mut servers = NatsServers::start(3, "");
    let a = ThreadOfNode::start(&servers.urls(), "a", 3);
    a.announce("a");
    let LeaseChange::Began { term } = a.lease_change() else { panic!("its term begins") };
    for index in 0..3 {
        let client = open_once(&options(&servers.urls()).0).await.expect("a server takes the connection");
        await_in_step(&client).await;
        servers.kill(index);
        servers.restart(index);
        let client = open_once(&options(&servers.urls()).0).await.expect("a server takes the connection");
        let before = lease_of(&client, "a").await;
        // The node renews its lease on the servers that are up.
        await_lease(&client, "a", |lease| Some(lease) != before.as_deref()).await;
        let leases = a.state().counters.leases;
        assert_eq!((leases.term, leases.lost), (term, 0));
    }
    let client = open_once(&options(&servers.urls()).0).await.expect("a server takes the connection");
    // Without a leader, nothing can be released.
    await_in_step(&client).await;
    a.stop();
    await_lease(&client, "a", |lease| lease.contains("released")).await;
}
