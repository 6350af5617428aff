use bytes::Bytes;
use dunlin_engine::Now;
use dunlin_protocol::{ClientInfo, Payload, Publication};

use super::*;
use crate::{
    core::{Core, CoreEvent, CoreLimits, StreamedNamespace},
    link::{LinkEvent, LinkName},
};

const LINGER_MS: u64 = 200;
const WIDE_MIN: usize = 3;
const MAX_PAYLOAD: usize = 8_192;

/// A core whose namespace 0 has no stream, 1 has one and joins, 2 has one and no joins, and 3 is not shared.
struct Rig {
    core: Core,
    now: Now,
}

impl Rig {
    fn new() -> Self {
        let shared = |name: &str, is_wide| Some(BroadcastNamespace { name: name.into(), is_wide });
        let streamed = |name: &str| {
            Some(StreamedNamespace {
                name: name.into(),
                partitions: 1,
                history_ttl_ms: 1_000,
                history_bytes_max: usize::MAX,
            })
        };
        let options = CoreOptions {
            prefix: "dn".into(),
            node: "n1".into(),
            namespaces: vec![None, streamed("chat"), streamed("news"), None],
            has_leases: false,
            has_room_logs: false,
            creatable: Vec::new(),
            broadcasts: vec![shared("", false), shared("chat", false), shared("news", true), None],
            limits: CoreLimits { linger_ms: LINGER_MS, wide_channels_min: WIDE_MIN, ..CoreLimits::default() },
        };
        let mut rig = Self { core: Core::new(options), now: Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 } };
        rig.handle(CoreEvent::Link(LinkEvent::Connected { link: LinkName::Publish, max_payload: MAX_PAYLOAD }));
        rig
    }

    fn handle(&mut self, event: CoreEvent) -> Vec<CoreEffect> {
        let mut effects = Vec::new();
        self.core.handle(self.now, event, &mut effects);
        effects
    }

    /// The broadcast subjects that are subscribed (`+`) and unsubscribed (`-`).
    fn subscriptions(&mut self, event: CoreEvent) -> Vec<String> {
        let shown = |effect| match effect {
            CoreEffect::Link(LinkEffect::Subscribe { subject }) => Some(format!("+{subject}")),
            CoreEffect::Link(LinkEffect::Unsubscribe { subject }) => Some(format!("-{subject}")),
            _ => None,
        };
        let all = self.handle(event).into_iter().filter_map(shown);
        all.filter(|shown| shown[1..].starts_with("dn.e.")).collect()
    }

    fn follow(&mut self, namespace: u16, channel: &str) -> Vec<String> {
        self.subscriptions(CoreEvent::Follow { shard: ShardIndex(7), channel: channel.into(), namespace })
    }

    fn unfollow(&mut self, channel: &str) -> Vec<String> {
        self.subscriptions(CoreEvent::Unfollow { channel: channel.into(), only_user: 0 })
    }

    fn wait(&mut self, ms: u64) -> Vec<String> {
        self.now.mono_us += ms * 1_000;
        self.subscriptions(CoreEvent::Woke)
    }

    fn broadcast(&mut self, namespace: u16, channel: &str, message: BroadcastMessage) -> Option<LinkEffect> {
        let mut effects = self.handle(CoreEvent::Broadcast { channel: channel.into(), namespace, message });
        match effects.pop() {
            Some(CoreEffect::Link(effect)) => Some(effect),
            None => None,
            Some(other) => panic!("{other:?}"),
        }
    }

    /// Delivers a message of NATS. Returns the channel and the message that are passed on.
    fn arrive(
        &mut self,
        subject: &str,
        headers: MessageHeaders,
        data: &[u8],
        is_by_wildcard: bool,
    ) -> Option<(String, BroadcastMessage)> {
        let payload = Bytes::copy_from_slice(data);
        let event = LinkEvent::Delivered { subject: subject.into(), reply: None, headers, payload, is_by_wildcard };
        let mut effects = self.handle(CoreEvent::Link(event));
        match effects.pop()? {
            CoreEffect::ToShard { shard: ShardIndex(7), event: Event::BroadcastReceived { channel, message } } => {
                Some((channel.as_ref().to_owned(), message))
            }
            other => panic!("{other:?}"),
        }
    }

    fn dropped(&self, why: BroadcastDrop) -> u64 {
        self.core.counters().broadcasts_dropped[why as usize]
    }
}

fn publication(data_bytes: usize) -> BroadcastMessage {
    BroadcastMessage::Publication(Arc::new(Publication {
        data: Payload::from_opaque(Bytes::from(vec![b'x'; data_bytes])),
        info: None,
        offset: 0,
        tags: vec![("k".into(), "v".into())],
        time_ms: 0,
        epoch: Box::default(),
        version: 0,
    }))
}

fn client() -> Arc<ClientInfo> {
    let conn_info = Some(Payload::from_json(Bytes::from_static(b"{\"n\": 1}")));
    Arc::new(ClientInfo { user: "u 1".into(), client: "c1".into(), conn_info, chan_info: None })
}

fn of_node(node: &str) -> MessageHeaders {
    MessageHeaders::new().with(record::NODE, node)
}

#[test]
fn broadcasts_are_delivered_by_receivers_and_not_by_the_sender() {
    let mut rig = Rig::new();
    rig.follow(1, "chat:1");
    for message in [publication(3), BroadcastMessage::Join(client()), BroadcastMessage::Leave(client())] {
        let Some(LinkEffect::Publish { link: LinkName::Publish, request: None, subject, mut headers, payload }) =
            rig.broadcast(1, "chat:1", message.clone())
        else {
            panic!("nothing is sent")
        };
        assert_eq!((&*subject, headers.get(record::NODE)), ("dn.e.chat.chat:1", Some("n1")));
        assert_eq!(rig.arrive(&subject, headers.clone(), &payload, false), None, "the node's own message");
        let others = headers.iter().filter(|(name, _)| *name != record::NODE);
        headers = others.fold(of_node("n2"), |headers, (name, value)| headers.with(name, value));
        assert_eq!(rig.arrive(&subject, headers, &payload, false), Some(("chat:1".to_owned(), message)));
    }
    let counters = rig.core.counters();
    assert_eq!((counters.broadcasts_sent, counters.broadcasts_received), (3, 3));
    assert_eq!(counters.broadcasts_dropped, [0; 5]);
}

#[test]
fn a_subscription_lingers_after_the_unfollow() {
    let mut rig = Rig::new();
    assert_eq!(rig.follow(0, "typing"), ["+dn.e.-.typing"]);
    assert_eq!(rig.follow(0, "typing"), [""; 0]);
    assert_eq!(rig.unfollow("typing"), [""; 0]);
    assert_eq!(rig.wait(LINGER_MS - 1), [""; 0]);
    assert_eq!(rig.arrive("dn.e.-.typing", of_node("n2"), b"1", false), None, "the channel is not followed");
    assert_eq!(rig.follow(0, "typing"), [""; 0]);
    assert_eq!(rig.wait(LINGER_MS), [""; 0]);
    assert!(rig.arrive("dn.e.-.typing", of_node("n2"), b"1", false).is_some());
    assert_eq!(rig.unfollow("typing"), [""; 0]);
    assert_eq!(rig.wait(LINGER_MS), ["-dn.e.-.typing"]);
    assert_eq!(rig.core.counters().broadcast_channels, 0);
    assert_eq!(rig.follow(3, "secret"), [""; 0], "the namespace is not shared");
}

#[test]
fn past_the_channel_limit_one_wildcard_subscription_is_used() {
    let mut rig = Rig::new();
    assert_eq!(rig.follow(0, "a"), ["+dn.e.-.a"]);
    assert_eq!(rig.follow(0, "b"), ["+dn.e.-.b"]);
    assert_eq!(rig.follow(0, "c"), ["+dn.e.-.*"]);
    assert_eq!(rig.follow(0, "d"), [""; 0]);
    // Each channel uses one kind of subscription, and the copy from the other kind is ignored.
    for (subject, is_wide) in [("dn.e.-.a", false), ("dn.e.-.d", true)] {
        assert!(rig.arrive(subject, of_node("n2"), b"1", is_wide).is_some());
        assert!(rig.arrive(subject, of_node("n2"), b"1", !is_wide).is_none());
    }
    rig.unfollow("a");
    rig.unfollow("c");
    assert_eq!(rig.wait(LINGER_MS), ["-dn.e.-.a"]);
    rig.unfollow("d");
    assert_eq!(rig.wait(LINGER_MS), ["-dn.e.-.*"]);
    assert_eq!(rig.follow(0, "e"), ["+dn.e.-.e"]);
}

#[test]
fn rare_broadcasts_use_one_wildcard_subscription() {
    let mut rig = Rig::new();
    assert_eq!(rig.follow(2, "news:1"), ["+dn.e.news.*"]);
    assert_eq!(rig.follow(2, "news:2"), [""; 0]);
    assert!(rig.arrive("dn.e.news.news:2", of_node("n2"), b"1", true).is_some());
    assert!(rig.arrive("dn.e.news.news:3", of_node("n2"), b"1", true).is_none());
}

#[test]
fn broadcasts_that_cannot_be_sent_are_dropped_and_counted() {
    let mut rig = Rig::new();
    let own_bytes = of_node("n1").with(record::NUMBER, "1").with("Dn-Tag", "k=v").bytes();
    let fits = MAX_PAYLOAD - HEADER_BYTES - own_bytes;
    assert!(rig.broadcast(0, "typing", publication(fits)).is_some());
    assert_eq!(rig.dropped(BroadcastDrop::TooLarge), 0);
    assert!(rig.broadcast(0, "typing", publication(fits + 1)).is_none());
    assert_eq!(rig.dropped(BroadcastDrop::TooLarge), 1);
    assert!(rig.broadcast(0, &"x".repeat(crate::names::TOKEN_BYTES_MAX + 1), publication(1)).is_none());
    assert_eq!(rig.dropped(BroadcastDrop::TooLarge), 2);
    rig.handle(CoreEvent::Link(LinkEvent::Disconnected { link: LinkName::Publish }));
    assert!(rig.broadcast(0, "typing", publication(1)).is_none());
    assert_eq!(rig.dropped(BroadcastDrop::Disconnected), 1);
    assert_eq!(rig.core.counters().broadcasts_sent, 1);
}

#[test]
fn foreign_messages_are_dropped_and_counted() {
    let mut rig = Rig::new();
    rig.follow(0, "typing");
    let bad = [
        MessageHeaders::new(),
        of_node("n2").with("Dn-Op", "purge"),
        of_node("n2").with("Dn-Op", "join"),
        of_node("n2").with("Dn-Op", "leave").with("Dn-Client", "%zz"),
    ];
    for (number, headers) in (1..).zip(bad) {
        assert_eq!(rig.arrive("dn.e.-.typing", headers, b"1", false), None);
        assert_eq!(rig.dropped(BroadcastDrop::Malformed), number);
    }
    assert_eq!(rig.arrive("dn.e.-.%zz", of_node("n2"), b"1", false), None);
    assert_eq!(rig.dropped(BroadcastDrop::Malformed), 5);
    assert_eq!(rig.arrive("dn.e.other.typing", of_node("n2"), b"1", false), None);
    // Data that is marked as JSON but is not valid JSON is kept as plain bytes.
    let (_, message) = rig.arrive("dn.e.-.typing", of_node("n2").with("Dn-Json", "1"), b"{", false).unwrap();
    let BroadcastMessage::Publication(publication) = message else { panic!("{message:?}") };
    assert!(!publication.data.is_known_json());
}

fn numbered(node: &str, number: u64) -> MessageHeaders {
    of_node(node).with(record::NUMBER, number.to_string())
}

#[test]
fn a_broadcast_behind_a_newer_one_of_its_node_is_dropped_and_counted() {
    let mut rig = Rig::new();
    rig.follow(0, "prices");
    rig.follow(0, "other");
    let mut is_passed_on = |channel: &str, headers| {
        let subject = format!("dn.e.-.{channel}");
        rig.arrive(&subject, headers, b"1", false).is_some()
    };
    assert!(is_passed_on("prices", numbered("n2", 5)));
    // What a paused server held back, and a copy.
    assert!(!is_passed_on("prices", numbered("n2", 4)) && !is_passed_on("prices", numbered("n2", 5)));
    // Another channel has its own subscription, and another node or start its own numbers.
    assert!(is_passed_on("other", numbered("n2", 4)));
    assert!(is_passed_on("prices", numbered("n3", 1)) && is_passed_on("prices", numbered("n2", 6)));
    // An earlier version sends no numbers.
    assert!(is_passed_on("prices", of_node("n2")) && is_passed_on("prices", of_node("n2")));
    assert_eq!(rig.dropped(BroadcastDrop::Late), 2);
}

#[test]
fn the_node_that_was_silent_for_longest_is_forgotten_at_the_limit() {
    let mut received = ReceivedNumbers::default();
    assert!(received.take("a", 9, 2) && received.take("b", 9, 2) && received.take("a", 10, 2));
    assert!(!received.take("b", 9, 2), "two nodes are kept");
    assert!(received.take("c", 1, 2) && !received.take("a", 10, 2));
    assert!(received.take("b", 9, 2), "the third one displaced it");
}

#[test]
fn the_broadcasts_of_a_node_are_numbered() {
    let mut rig = Rig::new();
    let mut number = |channel: &str| match rig.broadcast(0, channel, publication(1)) {
        Some(LinkEffect::Publish { headers, .. }) => headers.number(record::NUMBER),
        other => panic!("{other:?}"),
    };
    assert_eq!(["a", "b", "a"].map(&mut number), [Some(1), Some(2), Some(3)]);
}
