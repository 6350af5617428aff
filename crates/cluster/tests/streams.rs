//! Streams on real servers.

use dunlin_cluster::{
    links::open_once,
    streams::{StreamFault, ensure, partitions_there},
};
use dunlin_proof::nats::NatsServers;

use crate::links::{PATIENCE, options, terms};

#[tokio::test]
async fn a_stream_is_created_once_and_never_modified() {
    let servers = NatsServers::start(1, "");
    let client = open_once(&options(&servers.urls()).0).await.expect("a server takes the connection");
    assert_eq!(partitions_there(&client, "dn_chat_0").await, Ok(None));
    let mut terms = terms(1);
    let made = ensure(&client, &terms, "first", PATIENCE).await.expect("it is made");
    assert!(made.is_new);
    let found = ensure(&client, &terms, "second", PATIENCE).await.expect("it is there");
    assert!(!found.is_new && found.differences.is_empty(), "{found:?}");
    assert_eq!(found.state.metadata("dunlin.epoch"), Some("first"));
    assert_eq!(partitions_there(&client, "dn_chat_0").await, Ok(Some(1)));

    terms.messages_per_subject_max = 21;
    let found = ensure(&client, &terms, "third", PATIENCE).await.expect("nodes use the stream's value");
    assert_eq!(found.differences.len(), 1, "{found:?}");
    assert_eq!(found.state.shape.messages_per_subject_max, Some(11));

    terms.destination = "dn.elsewhere.>".into();
    let fault = ensure(&client, &terms, "fourth", PATIENCE).await.expect_err("it is somebody else's");
    assert!(matches!(&fault, StreamFault::Different(fields) if fields[0].field == "republish.dest"), "{fault}");

    terms.name = "dn_other_0".into();
    let fault = ensure(&client, &terms, "fifth", PATIENCE).await.expect_err("its subjects are taken");
    assert!(matches!(fault, StreamFault::Overlapping { .. }), "{fault}");
}

#[tokio::test]
async fn two_nodes_that_make_a_stream_at_once_agree() {
    let servers = NatsServers::start(3, "");
    let client = open_once(&options(&servers.urls()).0).await.expect("a server takes the connection");
    let other = open_once(&options(&servers.url(2)).0).await.expect("a server takes the connection");
    let terms = terms(3);
    let (one, two) = tokio::join!(ensure(&client, &terms, "one", PATIENCE), ensure(&other, &terms, "two", PATIENCE));
    let (one, two) = (one.expect("it is there"), two.expect("it is there"));
    assert_eq!(one.state.metadata("dunlin.epoch"), two.state.metadata("dunlin.epoch"));
    assert_eq!(one.state.shape.replicas, 3);
}

#[tokio::test]
async fn too_few_servers_for_the_replicas_are_reported() {
    let servers = NatsServers::start(1, "");
    let client = open_once(&options(&servers.urls()).0).await.expect("a server takes the connection");
    let fault = ensure(&client, &terms(3), "one", std::time::Duration::ZERO).await.expect_err("there is one server");
    assert!(matches!(fault, StreamFault::TooFewServers { replicas: 3, .. }), "{fault}");
}
