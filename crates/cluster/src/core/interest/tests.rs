use dunlin_engine::Now;

use super::*;
use crate::{
    core::{
        BroadcastNamespace, Core, CoreEvent, CoreLimits, CoreOptions, StreamedNamespace,
        peers::{NodeDescription, PeerEvent},
    },
    link::LinkEvent,
};

const START_US: u64 = 1_000_000;
const SETTLED_MS: u64 = 500;
const TIMEOUT_MS: u64 = 300;
const SHARD: ShardIndex = ShardIndex(7);

/// A node with a complete table of nodes. Namespace 0 has no stream, 1 has one, 2 has a wildcard subscription, 3 is not
/// shared.
struct Rig {
    core: Core,
    now: Now,
    /// The number of the newest check.
    check: Option<u64>,
}

impl Rig {
    fn new() -> Self {
        let shared = |name: &str, is_wide| Some(BroadcastNamespace { name: name.into(), is_wide });
        let streamed = StreamedNamespace {
            name: "chat".into(),
            partitions: 1,
            history_ttl_ms: 1_000,
            history_bytes_max: usize::MAX,
        };
        let core = Core::new(CoreOptions {
            prefix: "dn".into(),
            node: "n1".into(),
            namespaces: vec![None, Some(streamed), None, None],
            has_leases: false,
            has_room_logs: false,
            creatable: Vec::new(),
            broadcasts: vec![shared("", false), shared("chat", false), shared("news", true), None],
            limits: CoreLimits { follow_timeout_ms: TIMEOUT_MS, linger_ms: 20, ..CoreLimits::default() },
        });
        let now = Now { mono_us: START_US, unix_ms: 1_700_000_000_000 };
        let mut rig = Self { core, now, check: None };
        let about = NodeDescription { name: "n1".into(), version: "1".into(), started_ms: 0, session_tag_key: None };
        rig.handle(CoreEvent::Peers(PeerEvent::Announce { about }));
        rig.connect(LinkName::Live);
        rig.connect(LinkName::Publish);
        rig.arrive("dn.n", MessageHeaders::new(), br#"{"v":1,"node":"n1","name":"n1","version":"1","started_ms":0}"#);
        rig
    }

    fn settled() -> Self {
        let mut rig = Self::new();
        rig.wait_us(SETTLED_MS * 1_000);
        rig
    }

    fn connect(&mut self, link: LinkName) {
        self.handle(CoreEvent::Link(LinkEvent::Connected { link, max_payload: 1 << 20 }));
    }

    /// The effects of an event that belong to this protocol: `followed`, `sub`, `unsub` and messages.
    fn handle(&mut self, event: CoreEvent) -> Vec<String> {
        let mut effects = Vec::new();
        self.core.handle(self.now, event, &mut effects);
        effects.into_iter().filter_map(|effect| self.shown(effect)).collect()
    }

    fn shown(&mut self, effect: CoreEffect) -> Option<String> {
        Some(match effect {
            CoreEffect::ToShard { shard: SHARD, event: Event::Followed { channel } } => format!("followed {channel}"),
            CoreEffect::Link(LinkEffect::Subscribe { subject }) => format!("sub {subject}"),
            CoreEffect::Link(LinkEffect::Unsubscribe { subject }) => format!("unsub {subject}"),
            CoreEffect::Link(LinkEffect::Publish { link, subject, headers, .. }) if subject.starts_with("dn.i") => {
                assert_eq!(headers.get(record::NODE), Some("n1"));
                self.check = headers.number(CHECK).or(self.check);
                format!("{} {subject}", link.label())
            }
            _ => return None,
        })
    }

    fn follow(&mut self, namespace: u16, channel: &str) -> Vec<String> {
        self.handle(CoreEvent::Follow { shard: SHARD, channel: channel.into(), namespace })
    }

    fn wait_us(&mut self, us: u64) -> Vec<String> {
        self.now.mono_us += us;
        self.handle(CoreEvent::Woke)
    }

    fn arrive(&mut self, subject: &str, headers: MessageHeaders, payload: &'static [u8]) -> Vec<String> {
        let (subject, payload) = (subject.into(), Bytes::from_static(payload));
        let event = LinkEvent::Delivered { subject, reply: None, headers, payload, is_by_wildcard: false };
        self.handle(CoreEvent::Link(event))
    }

    /// A node answers the newest request.
    fn answer(&mut self, node: &str) -> Vec<String> {
        let subject = format!("dn.i.n1.{}", self.check.expect("a question"));
        self.arrive(&subject, MessageHeaders::new().with(record::NODE, node), b"")
    }

    fn unconfirmed(&self) -> u64 {
        self.core.counters().follows_unconfirmed
    }
}

/// Without the number of the check, which other requests increase as well.
fn unnumbered(shown: &[String]) -> Vec<&str> {
    shown.iter().map(|shown| shown.trim_end_matches(|char: char| char.is_ascii_digit())).collect()
}

#[test]
fn a_follow_is_confirmed_once_all_nodes_have_replied() {
    let mut rig = Rig::settled();
    rig.arrive("dn.n", MessageHeaders::new(), br#"{"v":1,"node":"n2"}"#);
    assert_eq!(rig.follow(0, "typing"), ["sub dn.e.-.typing"]);
    // After the subscription of the channel, and both on one connection.
    assert_eq!(unnumbered(&rig.wait_us(GATHER_US)), ["sub dn.i.n1.", "live dn.i"]);
    assert_eq!(rig.answer("n2"), [""; 0]);
    assert_eq!(rig.answer("n3"), [""; 0], "the node is not known");
    assert_eq!(rig.arrive("dn.i.n1.0", MessageHeaders::new().with(record::NODE, "n1"), b""), [""; 0], "of no check");
    assert_eq!(rig.arrive("dn.i.n1.x", MessageHeaders::new(), b""), [""; 0]);
    assert_eq!(unnumbered(&rig.answer("n1")), ["unsub dn.i.n1.", "followed typing"]);
    assert_eq!(rig.answer("n1"), [""; 0], "the check has ended");
    assert_eq!(rig.unconfirmed(), 0);
    // The channel lingers, and its subscription is still known.
    rig.handle(CoreEvent::Unfollow { channel: "typing".into(), only_user: 0 });
    assert_eq!(rig.follow(0, "typing"), ["followed typing"]);
}

#[test]
fn checks_repeat_until_all_live_nodes_have_replied() {
    let mut rig = Rig::settled();
    rig.arrive("dn.n", MessageHeaders::new(), br#"{"v":1,"node":"n2"}"#);
    rig.follow(0, "typing");
    rig.wait_us(GATHER_US);
    rig.answer("n1");
    assert_eq!(rig.wait_us(PAUSE_MIN_US - 1), [""; 0]);
    assert_eq!(rig.wait_us(1), ["live dn.i"]);
    assert_eq!(rig.wait_us(2 * PAUSE_MIN_US - 1), [""; 0]);
    assert_eq!(rig.wait_us(1), ["live dn.i"]);
    let left = rig.arrive("dn.n", MessageHeaders::new(), br#"{"v":1,"node":"n2","leaving":true}"#);
    assert_eq!(unnumbered(&left), ["unsub dn.i.n1.", "followed typing"]);
}

#[test]
fn concurrent_follows_share_a_check() {
    let mut rig = Rig::settled();
    for channel in ["a", "b"] {
        assert_eq!(rig.follow(0, channel), [format!("sub dn.e.-.{channel}")]);
    }
    assert_eq!(unnumbered(&rig.wait_us(GATHER_US)), ["sub dn.i.n1.", "live dn.i"]);
    assert_eq!(rig.follow(0, "c"), ["sub dn.e.-.c"]);
    assert_eq!(unnumbered(&rig.answer("n1")), ["unsub dn.i.n1.", "followed a", "followed b"]);
    assert_eq!(rig.wait_us(CHECK_INTERVAL_US - 1), [""; 0]);
    assert_eq!(unnumbered(&rig.wait_us(1)), ["sub dn.i.n1.", "live dn.i"]);
    assert_eq!(unnumbered(&rig.answer("n1")), ["unsub dn.i.n1.", "followed c"]);
}

#[test]
fn a_channel_followed_again_during_a_check_waits_for_the_next() {
    let mut rig = Rig::settled();
    rig.arrive("dn.n", MessageHeaders::new(), br#"{"v":1,"node":"n2"}"#);
    rig.follow(0, "typing");
    rig.wait_us(GATHER_US);
    rig.answer("n1");
    rig.handle(CoreEvent::Unfollow { channel: "typing".into(), only_user: 0 });
    assert!(rig.wait_us(20_000).contains(&"unsub dn.e.-.typing".to_owned()));
    assert_eq!(rig.follow(0, "typing"), ["sub dn.e.-.typing"]);
    assert_eq!(unnumbered(&rig.answer("n2")), ["unsub dn.i.n1."]);
    assert_eq!(unnumbered(&rig.wait_us(GATHER_US)), ["sub dn.i.n1.", "live dn.i"]);
    rig.answer("n2");
    assert_eq!(unnumbered(&rig.answer("n1")), ["unsub dn.i.n1.", "followed typing"]);
}

#[test]
fn an_unconfirmed_follow_is_answered_at_the_timeout_and_counted() {
    let mut rig = Rig::settled();
    rig.follow(0, "typing");
    rig.wait_us(GATHER_US);
    let until_us = TIMEOUT_MS * 1_000 - GATHER_US;
    assert!(!rig.wait_us(until_us - 1).contains(&"followed typing".to_owned()));
    assert!(rig.wait_us(1).contains(&"followed typing".to_owned()));
    assert_eq!(rig.unconfirmed(), 1);
    assert_eq!(unnumbered(&rig.wait_us(GATHER_US)), ["unsub dn.i.n1."], "the check ends");
    rig.handle(CoreEvent::Unfollow { channel: "typing".into(), only_user: 0 });
    assert_eq!(rig.follow(0, "typing"), [""; 0], "it is still not confirmed");
}

#[test]
fn a_check_does_not_end_before_node_discovery() {
    let mut rig = Rig::new();
    rig.follow(0, "typing");
    rig.wait_us(GATHER_US);
    assert_eq!(rig.answer("n1"), [""; 0]);
    assert!(!rig.wait_us(100_000).contains(&"followed typing".to_owned()));
    assert!(rig.wait_us(200_000).contains(&"followed typing".to_owned()), "at the timeout");
    rig.follow(0, "other");
    rig.wait_us(50_000);
    rig.answer("n1");
    assert!(rig.wait_us(SETTLED_MS * 1_000 - 351_000).contains(&"followed other".to_owned()));
    assert_eq!(rig.unconfirmed(), 1);
}

#[test]
fn without_a_connection_a_follow_is_answered_at_once_and_counted() {
    let mut rig = Rig::settled();
    rig.follow(0, "checked");
    rig.wait_us(GATHER_US);
    rig.follow(0, "waiting");
    let given_up = rig.handle(CoreEvent::Link(LinkEvent::Disconnected { link: LinkName::Live }));
    assert_eq!(unnumbered(&given_up), ["unsub dn.i.n1.", "followed checked", "followed waiting"]);
    assert_eq!(rig.follow(0, "later"), ["sub dn.e.-.later", "followed later"]);
    assert_eq!(rig.unconfirmed(), 3);
    rig.connect(LinkName::Live);
    assert_eq!(rig.follow(0, "again"), ["sub dn.e.-.again"]);
    let stopped = rig.handle(CoreEvent::Peers(PeerEvent::Depart));
    assert_eq!(stopped, ["followed again"]);
}

#[test]
fn local_channels_are_answered_at_once_and_streams_by_their_page() {
    let mut rig = Rig::settled();
    assert!(!rig.follow(1, "chat:1").contains(&"followed chat:1".to_owned()));
    assert_eq!(rig.follow(3, "own"), ["followed own"]);
    let too_long = "x".repeat(crate::names::TOKEN_BYTES_MAX + 1);
    assert_eq!(rig.follow(0, &too_long), [format!("followed {too_long}")]);
    assert_eq!(rig.unconfirmed(), 0);
}

#[test]
fn a_subscription_with_a_wildcard_is_confirmed_for_all_its_channels() {
    let mut rig = Rig::settled();
    assert_eq!(rig.follow(2, "news:1"), ["sub dn.e.news.*"]);
    assert_eq!(rig.follow(2, "news:2"), [""; 0]);
    rig.wait_us(GATHER_US);
    assert_eq!(unnumbered(&rig.answer("n1")), ["unsub dn.i.n1.", "followed news:", "followed news:"]);
    assert_eq!(rig.follow(2, "news:3"), ["followed news:3"]);
    for channel in ["news:1", "news:2", "news:3"] {
        rig.handle(CoreEvent::Unfollow { channel: channel.into(), only_user: 0 });
    }
    assert_eq!(rig.wait_us(20_000), ["unsub dn.e.news.*"]);
    assert_eq!(rig.follow(2, "news:4"), ["sub dn.e.news.*"], "the new subscription is not confirmed");
}

#[test]
fn interest_checks_are_answered_on_the_broadcast_connection() {
    let mut rig = Rig::settled();
    let question = |node: &str| MessageHeaders::new().with(record::NODE, node).with(CHECK, "5");
    assert_eq!(rig.arrive("dn.i", question("n.2"), b""), ["publish dn.i.n%2E2.5"]);
    let longest = "x".repeat(NODE_BYTES_MAX);
    assert_eq!(rig.arrive("dn.i", question(&longest), b""), [format!("publish dn.i.{longest}.5")]);
    assert_eq!(rig.arrive("dn.i", question(&format!("{longest}x")), b""), [""; 0]);
    for bad in ["", "-1", "x"] {
        let headers = MessageHeaders::new().with(record::NODE, "n2").with(CHECK, bad);
        assert_eq!(rig.arrive("dn.i", headers, b""), [""; 0]);
    }
    assert_eq!(rig.arrive("dn.i", MessageHeaders::new().with(CHECK, "5"), b""), [""; 0]);
    rig.handle(CoreEvent::Link(LinkEvent::Disconnected { link: LinkName::Publish }));
    assert_eq!(rig.arrive("dn.i", question("n2"), b""), [""; 0]);
}
