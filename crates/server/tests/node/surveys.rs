//! Reports of a node while one of its shards is blocked.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, extract::State, http::Request};
use dunlin::{
    http::{
        api::{ApiOptions, Executor, NodeIdentity, OwnNode, RequestLimits, Service, answer_legacy},
        shared_shard_reports::SharedShardReports,
    },
    node::NodeNetOptions,
    telemetry::api_counters::ControlCounters,
};
use dunlin_config::ApiAccess;

use crate::{
    each_reactor,
    node::{
        client::Client,
        rig::{PATIENCE, Rig, engine_options, net_options, release, wait_until},
    },
};

/// Opens a client whose `connect` blocks its shard. A released token stays released for the whole process.
fn stall(rig: &Rig, token: &str) -> Client {
    let mut client = Client::open(rig.address());
    client.send(&format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#));
    client
}

#[test]
fn a_stalled_shard_is_named_and_the_others_report_despite_overflow() {
    let net = NodeNetOptions { shard_count: 2, shard_imbalance_max: 1, ring_messages: 1, ..net_options() };
    let rig = Rig::start(net, engine_options());
    let mut publishers: Vec<_> = (0..8).map(|_| Client::session(rig.address())).collect();
    let token = &format!("stall:survey:{}", each_reactor::current_name());
    let _stalled = stall(&rig, token);
    let survey = || {
        let survey = async { tokio::time::timeout(PATIENCE, rig.node.survey()).await };
        rig.runtime.block_on(survey).expect("a survey has an end")
    };
    wait_until("one shard to stand still", || survey().silent.len() == 1);
    for (number, client) in publishers.iter_mut().enumerate() {
        for id in 2..40 {
            client.send(&format!(r#"{{"id":{id},"publish":{{"channel":"news{number}-{id}","data":{{}}}}}}"#));
        }
    }
    wait_until("the other shard's rings to overflow", || {
        let survey = survey();
        assert_eq!((survey.silent.len(), survey.reports.len()), (1, 1), "one is named, the other reports");
        assert_ne!(survey.silent[0], survey.reports[0].shard);
        survey.reports[0].net.ring_overflow > 0
    });
    // The other shard now reads no input, but still reports.
    let held = survey();
    assert_eq!((held.silent.len(), held.reports.len()), (1, 1));
    assert!(held.reports[0].net.ring_overflow > 0);
    release(token);
    wait_until("both to report", || survey().reports.len() == 2);
}

fn executor(rig: &Rig, age_max: Duration) -> (Executor, Arc<ControlCounters>) {
    let counters = Arc::new(ControlCounters::default());
    let identity = NodeIdentity {
        uid: "u".to_owned(),
        name: "n".to_owned(),
        version: "0",
        reactor: "epoll",
        started: std::time::Instant::now(),
    };
    let surveys = Arc::new(SharedShardReports::new(rig.node.clone(), age_max));
    let own = OwnNode::new(surveys, identity, Arc::clone(&counters));
    (Executor::new(own, Arc::clone(&counters)), counters)
}

#[test]
fn readers_of_the_state_of_a_node_share_a_survey() {
    let net = NodeNetOptions { shard_count: 2, shard_imbalance_max: 1, ..net_options() };
    let rig = Rig::start(net, engine_options());
    let (executor, _) = executor(&rig, Duration::from_hours(1));
    let silent_shards = || {
        let state = rig.runtime.block_on(executor.status()).expect("a state");
        let state: serde_json::Value = serde_json::from_str(state.get()).expect("JSON");
        state["nodes"][0]["silent_shards"].as_array().map(Vec::len)
    };
    assert_eq!(silent_shards(), Some(0));
    let token = &format!("stall:state:{}", each_reactor::current_name());
    let mut stalled = stall(&rig, token);
    wait_until("a shard to stand still", || rig.runtime.block_on(rig.node.survey()).silent.len() == 1);
    assert_eq!(silent_shards(), Some(0), "the shards are not asked again");
    release(token);
    stalled.read_close();
}

/// The clock is paused, and advances only when all tasks are idle.
#[test]
fn a_request_with_a_thousand_commands_has_one_deadline() {
    let rig = Rig::simple();
    let token = &format!("stall:legacy:{}", each_reactor::current_name());
    let mut stalled = stall(&rig, token);
    let timeout = Duration::from_secs(5);
    let options = ApiOptions {
        access: ApiAccess::Everyone,
        request_bytes_max: 1 << 20,
        requests_max: 1,
        timeout,
        transport_errors: false,
        limits: RequestLimits::default(),
    };
    let (executor, counters) = executor(&rig, Duration::ZERO);
    let service = Arc::new(Service::new(executor, options, counters));
    let body = r#"{"method":"presence","params":{"channel":"news"}}"#.repeat(1_000);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let lines = runtime.expect("a runtime").block_on(async {
        let began = tokio::time::Instant::now();
        let request = Request::post("/api").body(Body::from(body)).expect("a request");
        let response = answer_legacy(State(service), request).await;
        assert_eq!(began.elapsed(), timeout);
        axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body")
    });
    let replies: Vec<_> = lines.split(|byte| *byte == b'\n').collect();
    assert_eq!(replies.len(), 1_000);
    assert!(replies.iter().all(|reply| reply.windows(10).any(|part| part == br#""code":100"#)));
    release(token);
    stalled.read_close();
}

on_io_uring![
    a_stalled_shard_is_named_and_the_others_report_despite_overflow,
    readers_of_the_state_of_a_node_share_a_survey,
    a_request_with_a_thousand_commands_has_one_deadline,
];
