//! Sessions that wait for results from other threads.

use crate::node::{
    client::Client,
    rig::{Rig, engine_options, net_options},
};

fn rig() -> Rig {
    let mut engine = engine_options();
    engine.client.insecure = false;
    engine.without_namespace.allow_subscribe_for_client = true;
    engine.without_namespace.allow_publish_for_client = true;
    Rig::start(net_options(), engine)
}

#[test]
fn a_token_verified_off_the_shard_connects_its_user() {
    let rig = rig();
    let mut client = Client::open(rig.address());
    // The second command arrives while the first waits, and is answered after it.
    client.send(r#"{"id":1,"connect":{"token":"later:ann"}}"#);
    client.send(r#"{"id":2,"subscribe":{"channel":"news"}}"#);
    let replies = client.read_lines(2);
    assert!(replies[0].starts_with(r#"{"id":1,"connect":{"#), "{}", replies[0]);
    assert!(replies[1].starts_with(r#"{"id":2,"subscribe":{"#), "{}", replies[1]);
}

#[test]
fn a_token_without_available_keys_is_a_temporary_error() {
    let rig = rig();
    let mut client = Client::open(rig.address());
    client.send(r#"{"id":1,"connect":{"token":"later?"}}"#);
    assert_eq!(
        client.read_line(),
        r#"{"id":1,"error":{"code":100,"message":"internal server error","temporary":true}}"#
    );
}

/// Sessions whose tokens are never verified wait. Another session on the same shard does not.
#[test]
fn a_paused_session_delays_no_others() {
    let rig = rig();
    let mut waiting: Vec<_> = (0..50).map(|_| Client::open(rig.address())).collect();
    for client in &mut waiting {
        client.send(r#"{"id":1,"connect":{"token":"never:ann"}}"#);
    }
    let mut client = Client::open(rig.address());
    client.send(r#"{"id":1,"connect":{"token":"user:bob"}}"#);
    assert!(client.read_line().starts_with(r#"{"id":1,"connect":{"#));
    client.send(r#"{"id":2,"subscribe":{"channel":"news"}}"#);
    assert!(client.read_line().starts_with(r#"{"id":2,"subscribe":{"#));
    for id in 3..103 {
        client.send(&format!(r#"{{"id":{id},"publish":{{"channel":"news","data":{id}}}}}"#));
        let mut lines = client.read_lines(2);
        lines.sort();
        assert_eq!(lines[0], format!(r#"{{"id":{id},"publish":{{}}}}"#));
        assert!(lines[1].starts_with(r#"{"push":{"channel":"news","pub":{"#), "{}", lines[1]);
    }
    // The waiting clients may disconnect before they are answered.
    drop(waiting);
    rig.wait_for("the publisher to be alone", 1, |net| u64::from(net.sessions == 1));
}

on_io_uring![
    a_token_verified_off_the_shard_connects_its_user,
    a_token_without_available_keys_is_a_temporary_error,
    a_paused_session_delays_no_others,
];
