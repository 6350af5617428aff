use dunlin_engine::Now;

use super::*;
use crate::{
    core::{Core, CoreEffect, CoreEvent, CoreLimits, CoreOptions, StreamedNamespace},
    link::{LinkEffect, LinkEvent, StreamShape, StreamState},
};

const NOW: Now = Now { mono_us: 1_000_000, unix_ms: 1_700_000_000_000 };
/// Timeout of a fence, after which it is published again.
const FENCE_TIMEOUT_MS: u64 = 2_000;

/// A core whose servers describe the stream, and never return a fence.
fn core(silence_timeout_ms: u64) -> Core {
    let namespace =
        StreamedNamespace { name: "chat".into(), partitions: 1, history_ttl_ms: 60_000, history_bytes_max: usize::MAX };
    let mut core = Core::new(CoreOptions {
        prefix: "dn".into(),
        node: "n1".into(),
        namespaces: vec![None, Some(namespace)],
        has_leases: false,
        has_room_logs: false,
        creatable: Vec::new(),
        broadcasts: vec![None, None],
        limits: CoreLimits { silence_timeout_ms, ..CoreLimits::default() },
    });
    let mut effects = Vec::new();
    for link in LinkName::ALL {
        core.handle(NOW, CoreEvent::Link(LinkEvent::Connected { link, max_payload: 1 << 20 }), &mut effects);
    }
    let described = effects.into_iter().find_map(|effect| match effect {
        CoreEffect::Link(LinkEffect::Describe { request, .. }) => Some(request),
        _ => None,
    });
    let shape = StreamShape { messages_per_subject_max: Some(11), ..StreamShape::default() };
    let metadata = vec![("dunlin.epoch".into(), "e".into())];
    let state = StreamState { shape, metadata, ..StreamState::default() };
    let request = described.expect("the node asks for the state of its stream");
    core.handle(NOW, CoreEvent::Link(LinkEvent::StreamInfo { request, outcome: Ok(Box::new(state)) }), &mut Vec::new());
    core
}

/// The number of the overdue fence at which the node disconnects from the server.
fn overdue_fences_until_reconnect(silence_timeout_ms: u64) -> Option<u64> {
    let mut core = core(silence_timeout_ms);
    (1..10).find(|fence| {
        let mut effects = Vec::new();
        let now = Now { mono_us: NOW.mono_us + fence * FENCE_TIMEOUT_MS * 1_000, ..NOW };
        core.handle(now, CoreEvent::Woke, &mut effects);
        effects.iter().any(|effect| matches!(effect, CoreEffect::Link(LinkEffect::Reconnect { link: LinkName::Live })))
    })
}

#[test]
fn a_silent_server_is_disconnected_after_the_timeout() {
    // The silence begins with the first overdue fence.
    assert_eq!(overdue_fences_until_reconnect(FENCE_TIMEOUT_MS), Some(2));
    assert_eq!(overdue_fences_until_reconnect(FENCE_TIMEOUT_MS + 1), Some(3));
    assert_eq!(overdue_fences_until_reconnect(CoreLimits::default().silence_timeout_ms), Some(4));
}
