//! The nodes' messages with at-most-once delivery, as JSON objects.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_engine::{
    Effect, Event, ShardIndex,
    broadcast::BroadcastMessage,
    event::{PeerKey, PeerKeys},
    owner_of,
};
use dunlin_protocol::{ClientInfo, Payload, Publication};
use serde_json::{Value, json};

use super::{NODE_SEED, Node};

/// A message of a shard to other nodes.
pub fn shown(channel: &str, message: &BroadcastMessage) -> String {
    let client = |info: &ClientInfo| json!({"client": &*info.client, "user": &*info.user});
    let body = match message {
        BroadcastMessage::Publication(publication) => {
            assert_eq!(publication.offset, 0);
            let mut body = json!({"data": String::from_utf8_lossy(publication.data.bytes())});
            if let Some(info) = &publication.info {
                body["info"] = client(info);
            }
            for (name, value) in &publication.tags {
                body["tags"][&**name] = json!(&**value);
            }
            body
        }
        BroadcastMessage::Join(info) => json!({"join": client(info)}),
        BroadcastMessage::Leave(info) => json!({"leave": client(info)}),
    };
    format!("broadcast {channel} {body}")
}

pub fn shown_following(effect: &Effect) -> String {
    match effect {
        Effect::Follow { channel } => format!("follow {channel}"),
        Effect::Unfollow { channel, .. } => format!("unfollow {channel}"),
        other => panic!("{other:?}"),
    }
}

/// Other nodes' messages to the channel arrive from now on.
pub fn followed(node: &mut Node, channel: &str) {
    let ShardIndex(owner) = owner_of(channel, node.shards.len() as u16, NODE_SEED);
    node.handle(owner, Event::Followed { channel: channel.into() });
}

/// Another node has sent `CHANNEL {…}`.
pub fn arrives(node: &mut Node, text: &str) {
    let (channel, body) = text.split_once(' ').expect("a channel and an object");
    let body: Value = serde_json::from_str(body).expect("JSON");
    let client = |value: &Value| {
        let text = |name: &str| value[name].as_str().unwrap_or_default().into();
        Arc::new(ClientInfo { user: text("user"), client: text("client"), conn_info: None, chan_info: None })
    };
    let message = if body["join"].is_object() {
        BroadcastMessage::Join(client(&body["join"]))
    } else if body["leave"].is_object() {
        BroadcastMessage::Leave(client(&body["leave"]))
    } else {
        let info = body["info"].is_object().then(|| client(&body["info"]));
        BroadcastMessage::Publication(Arc::new(Publication { info, ..publication(&body) }))
    };
    let ShardIndex(owner) = owner_of(channel, node.shards.len() as u16, NODE_SEED);
    node.handle(owner, Event::BroadcastReceived { channel: channel.into(), message });
}

pub fn publication(body: &Value) -> Publication {
    let tags = body["tags"].as_object().into_iter().flatten();
    Publication {
        data: Payload::from_json(Bytes::from(body["data"].to_string())),
        info: None,
        offset: body["offset"].as_u64().unwrap_or_default(),
        tags: tags.map(|(name, value)| (name.as_str().into(), value.as_str().unwrap_or_default().into())).collect(),
        time_ms: 0,
        epoch: Box::default(),
        version: 0,
    }
}

/// Other nodes have answered with `CHANNEL {"keys":[{"age_ms":…, …}],"partial":…}`.
pub fn keys_arrive(node: &mut Node, text: &str) {
    let (channel, body) = text.split_once(' ').expect("a channel and an object");
    let body: Value = serde_json::from_str(body).expect("JSON");
    let key = |key: &Value| PeerKey {
        publication: Arc::new(publication(key)),
        age_us: key["age_ms"].as_u64().unwrap_or_default() * 1_000,
    };
    let keys = body["keys"].as_array().into_iter().flatten().map(key).collect();
    let found = PeerKeys { keys, is_partial: body["partial"] == true };
    let ShardIndex(owner) = owner_of(channel, node.shards.len() as u16, NODE_SEED);
    node.handle(owner, Event::KeysAnswered { channel: channel.into(), found });
}
