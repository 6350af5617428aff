//! A request for sessions looks at a bounded number of queued frames, and says of which it did not.

use dunlin_engine::{api::ApiAnswer, insight::FRAMES_EXAMINED_MAX};
use dunlin_protocol::Encoding;
use serde_json::json;

use crate::node::{Node, options, wire};

fn node() -> Node {
    let mut settings = dunlin_engine::Options::default();
    options::permissive(&mut settings);
    options::set(&mut settings, "client.ping_interval_ms=0");
    settings.client.queue_frames_max = 2 * FRAMES_EXAMINED_MAX;
    settings.client.queue_bytes_max = 1 << 30;
    Node::new(1, settings)
}

/// Opens a session whose socket takes nothing.
fn open(node: &mut Node, name: &str) {
    node.open(name, Encoding::Json, 0);
    let commands = [json!({"id": 1, "connect": {}}), json!({"id": 2, "subscribe": {"channel": "news"}})];
    node.receive(name, wire::commands(Encoding::Json, &commands));
    node.client(name).room_bytes = 0;
}

fn publish(node: &mut Node, publications: usize) {
    for _ in 0..publications {
        node.ask_api(&json!({"publish": {"channel": "news", "data": 1}}));
    }
    node.answers.clear();
}

/// Of each session, the frames that are divided by channel, and those that nobody looked at.
fn frames(node: &mut Node) -> Vec<(usize, usize)> {
    node.ask_api(&json!({"sessions": {}}));
    let Some(Ok(ApiAnswer::Sessions(page))) = node.answers.pop() else { panic!("no sessions") };
    let of_session = page.sessions.iter().map(|facts| {
        assert_eq!(facts.are_channels_cut, facts.queue.unexamined_frames > 0);
        (facts.channels.iter().map(|channel| channel.queued.frames).sum(), facts.queue.unexamined_frames)
    });
    of_session.collect()
}

#[test]
fn frames_beyond_those_of_a_request_are_counted() {
    let mut node = node();
    open(&mut node, "first");
    publish(&mut node, FRAMES_EXAMINED_MAX - 10);
    node.wait(5);
    open(&mut node, "second");
    publish(&mut node, 5);
    // The first session has been behind for longer, so its frames come first.
    assert_eq!(frames(&mut node), [(FRAMES_EXAMINED_MAX - 5, 0), (5, 0)], "at the limit");
    publish(&mut node, 1);
    assert_eq!(frames(&mut node), [(FRAMES_EXAMINED_MAX - 4, 0), (4, 2)], "two past it");
    publish(&mut node, 5);
    assert_eq!(frames(&mut node), [(FRAMES_EXAMINED_MAX, 1), (0, 11)]);
}
