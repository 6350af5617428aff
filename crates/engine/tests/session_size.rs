//! The memory of an idle session with one subscription.

use std::sync::Arc;

use dunlin_engine::{
    Effects, Event, Now, Options, Seed, SessionKey, Shard, ShardIdentity, ShardIndex,
    event::ConnectionClaims,
    options::{ClientOptions, NamespaceOptions},
};
use dunlin_proof::allocations::in_use;
use dunlin_protocol::Encoding;

/// Neither a power of two nor slightly above one, where half the capacity of a table that grows by doubling is unused.
const SESSIONS: u32 = 12_000;

/// The state that each session has of its own.
#[derive(Clone, Copy, Debug)]
enum Own {
    Nothing,
    User,
    UserAndChannel,
}

/// Bytes and blocks in use per session, after it has been idle for long enough to be pinged.
fn cost(own: Own, with_everything: bool) -> (isize, isize) {
    let namespace = NamespaceOptions {
        allow_subscribe_for_client: true,
        allow_subscribe_for_anonymous: true,
        presence: with_everything,
        history_size: if with_everything { 10 } else { 0 },
        history_ttl_ms: 60_000,
        history_meta_ttl_ms: 600_000,
        force_recovery: with_everything,
        ..NamespaceOptions::default()
    };
    let options =
        Arc::new(Options { client: ClientOptions::default(), without_namespace: namespace, ..Options::default() });
    let identity = ShardIdentity { index: ShardIndex(0), count: 1 };
    let mut now = Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 };
    let mut effects = Effects::default();
    let before = in_use();
    let mut shard = Shard::new(identity, options, Seed { node: 7, shard: [3; 32] });
    for index in 0..SESSIONS {
        let session = SessionKey { index, generation: 1 };
        shard.handle(
            now,
            Event::Opened { session, wire: Encoding::Json.into(), source: None, address: None },
            &mut effects,
        );
        let connect = br#"{"id":1,"connect":{"token":"x"}}"#;
        shard.handle(now, Event::Received { session, frame: connect }, &mut effects);
        let user = if matches!(own, Own::Nothing) { String::new() } else { format!("user-{index:08}") };
        let outcome = Ok(ConnectionClaims { user, ..ConnectionClaims::default() });
        shard.handle(now, Event::Authenticated { session, outcome }, &mut effects);
        let channel = if matches!(own, Own::UserAndChannel) { index } else { 0 };
        let subscribe = format!(r#"{{"id":2,"subscribe":{{"channel":"channel-{channel:08}"}}}}"#);
        shard.handle(now, Event::Received { session, frame: subscribe.as_bytes() }, &mut effects);
        write_all(&mut shard, now, &mut effects);
    }
    // Each session is pinged, and the time is too short for a pong timeout.
    for _ in 0..25 {
        now.mono_us += 1_000_000;
        shard.handle(now, Event::Woke, &mut effects);
        for session in effects.dirty.clone() {
            shard.handle(now, Event::Received { session, frame: b"{}" }, &mut effects);
        }
        write_all(&mut shard, now, &mut effects);
    }
    effects = Effects::default();
    let after = in_use();
    assert_eq!(shard.holdings()[0], SESSIONS as usize, "no session has ended");
    drop((shard, effects));
    let sessions = isize::try_from(SESSIONS).expect("a small number");
    ((after.bytes - before.bytes) / sessions, (after.blocks - before.blocks) / sessions)
}

fn write_all(shard: &mut Shard, now: Now, effects: &mut Effects) {
    effects.list.clear();
    for session in std::mem::take(&mut effects.dirty) {
        let bytes = shard.outgoing(session).map(<[u8]>::len).sum();
        shard.handle(now, Event::Wrote { session, bytes }, effects);
    }
}

#[test]
fn an_idle_session_with_one_subscription_stays_small() {
    let cases = [
        (Own::Nothing, false, 700),
        (Own::User, false, 700),
        (Own::User, true, 800),
        (Own::UserAndChannel, false, 1_150),
        (Own::UserAndChannel, true, 1_590),
    ];
    for (own, with_everything, bytes_max) in cases {
        let (bytes, blocks) = cost(own, with_everything);
        let options = if with_everything { "presence, history" } else { "bare channels" };
        println!("own: {own:?}, {options}: {bytes} bytes in {blocks} blocks a session");
        assert!(bytes <= bytes_max, "{own:?}, {options}: {bytes} bytes of {bytes_max}");
    }
}

#[test]
fn an_outbox_returns_the_capacity_of_a_burst_after_the_write() {
    let client = ClientOptions { ping_interval_ms: 0, ..ClientOptions::default() };
    let options = Arc::new(Options { client, ..Options::default() });
    let identity = ShardIdentity { index: ShardIndex(0), count: 1 };
    let now = Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 };
    let mut effects = Effects::default();
    let mut shard = Shard::new(identity, options, Seed { node: 7, shard: [3; 32] });
    let session = SessionKey { index: 0, generation: 1 };
    shard.handle(
        now,
        Event::Opened { session, wire: Encoding::Json.into(), source: None, address: None },
        &mut effects,
    );
    let before = in_use();
    for _ in 0..16_000 {
        shard.handle(now, Event::Pinged { session, payload: b"" }, &mut effects);
    }
    assert!(in_use().bytes - before.bytes > 16_000, "a burst is queued");
    while shard.has_outgoing(session) {
        let bytes = shard.outgoing(session).map(<[u8]>::len).sum();
        shard.handle(now, Event::Wrote { session, bytes }, &mut effects);
    }
    let kept = in_use().bytes - before.bytes;
    assert!(kept < 1_000, "{kept} bytes are kept");
}
