//! A publication from one session to another, over two shards.

use std::sync::Arc;

use dunlin_engine::{
    Effect, Effects, Event, Now, Options, Seed, SessionKey, Shard, ShardIdentity, ShardIndex,
    options::{ClientOptions, NamespaceOptions},
};
use dunlin_protocol::Encoding;

struct Node {
    shards: Vec<Shard>,
    sent: Vec<Vec<String>>,
}

impl Node {
    fn new(count: u16) -> Self {
        let namespace = NamespaceOptions {
            allow_subscribe_for_client: true,
            allow_subscribe_for_anonymous: true,
            allow_publish_for_client: true,
            allow_publish_for_anonymous: true,
            history_size: 10,
            history_ttl_ms: 60_000,
            history_meta_ttl_ms: 600_000,
            force_recovery: true,
            ..NamespaceOptions::default()
        };
        let client = ClientOptions { allow_anonymous_connect_without_token: true, ..ClientOptions::default() };
        let options = Arc::new(Options { client, without_namespace: namespace, ..Options::default() });
        let shards = (0..count)
            .map(|index| {
                let identity = ShardIdentity { index: ShardIndex(index), count };
                Shard::new(identity, Arc::clone(&options), Seed { node: 7, shard: [index as u8; 32] })
            })
            .collect();
        Self { shards, sent: vec![Vec::new(); usize::from(count)] }
    }

    fn handle(&mut self, shard: u16, event: Event<'_>) {
        let now = Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 };
        let mut effects = Effects::default();
        self.shards[usize::from(shard)].handle(now, event, &mut effects);
        for key in effects.dirty {
            let written: Vec<u8> = self.shards[usize::from(shard)].outgoing(key).flatten().copied().collect();
            self.sent[usize::from(shard)].push(String::from_utf8_lossy(&written).into_owned());
            self.handle(shard, Event::Wrote { session: key, bytes: written.len() });
        }
        for effect in effects.list {
            if let Effect::Send { to, message } = effect {
                self.handle(to.0, Event::Message { from: ShardIndex(shard), message });
            }
        }
    }

    fn say(&mut self, shard: u16, frame: &str) {
        let session = SessionKey { index: 0, generation: 1 };
        self.handle(shard, Event::Received { session, frame: frame.as_bytes() });
    }
}

#[test]
fn a_publication_reaches_a_subscriber_on_another_shard() {
    let mut node = Node::new(2);
    for shard in 0..2 {
        let session = SessionKey { index: 0, generation: 1 };
        node.handle(shard, Event::Opened { session, encoding: Encoding::Json });
        node.say(shard, r#"{"id":1,"connect":{}}"#);
        node.say(shard, r#"{"id":2,"subscribe":{"channel":"news"}}"#);
    }
    node.say(0, r#"{"id":3,"publish":{"channel":"news","data":{"hello":"world"}}}"#);
    for shard in 0..2 {
        let sent = node.sent[shard].concat();
        assert!(sent.contains(r#""data":{"hello":"world"}"#), "shard {shard} sent {sent}");
        assert!(sent.contains(r#""offset":1"#), "shard {shard} sent {sent}");
        assert!(sent.contains(r#""recoverable":true"#), "shard {shard} sent {sent}");
    }
    assert!(node.sent[0].concat().contains(r#""id":3,"publish":{}"#));
    for shard in 0..2 {
        node.handle(shard, Event::Gone { session: SessionKey { index: 0, generation: 1 } });
    }
    assert_eq!(node.shards.iter().map(|shard| shard.holdings()[0] + shard.holdings()[1]).sum::<usize>(), 0);
}
