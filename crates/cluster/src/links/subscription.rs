//! Passes the messages of subscriptions on, within the bounds of the queue for the caller.
//!
//! The client bounds the number of a subscription's messages, and neither their bytes nor the messages of all
//! subscriptions. So its queues must stay short: a task of each subscription empties it whenever it runs, and never waits.
//! What the caller's queue has no space for is dropped, as the client drops what a slow consumer has no space for.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_nats::{Message, Subscriber};
use dunlin_queues::{CountedSender, Refused};
use futures_util::StreamExt;
use tokio::task::unconstrained;

use super::replies::headers_of;
use crate::link::LinkEvent;

/// Whether messages were dropped since the last one that fitted. Shared by the subscriptions of a connection.
#[derive(Clone, Debug, Default)]
pub struct Overflow(Arc<AtomicBool>);

/// Passes on the messages of a subscription until it ends, or the caller is gone.
pub async fn forward(
    mut subscriber: Subscriber,
    events: CountedSender<LinkEvent>,
    overflow: Overflow,
    is_by_wildcard: bool,
) {
    // A task with Tokio's budget would return to the client after 128 messages, and the client may have brought more.
    unconstrained(async {
        while let Some(message) = subscriber.next().await {
            if !overflow.pass_on(delivered(message, is_by_wildcard), &events) {
                return;
            }
        }
    })
    .await;
}

impl Overflow {
    /// Queues a message, or drops it. Returns whether there is a receiver.
    fn pass_on(&self, event: LinkEvent, events: &CountedSender<LinkEvent>) -> bool {
        let bytes = event.bytes();
        match events.try_send(event, bytes) {
            Ok(()) => self.0.store(false, Ordering::Relaxed),
            Err(Refused::Closed(_)) => return false,
            // One report is enough until a message fits again: the caller has not read it yet, because it stands behind
            // everything that fills the queue.
            Err(Refused::Full(_)) if self.0.swap(true, Ordering::Relaxed) => {}
            Err(Refused::Full(_)) => {
                let report = LinkEvent::SlowConsumer;
                let bytes = report.bytes();
                return events.send_admitted(report, bytes);
            }
        }
        true
    }
}

fn delivered(message: Message, is_by_wildcard: bool) -> LinkEvent {
    LinkEvent::Delivered {
        subject: message.subject.as_str().into(),
        reply: message.reply.as_ref().map(|reply| reply.as_str().into()),
        headers: message.headers.as_ref().map(headers_of).unwrap_or_default(),
        payload: message.payload,
        is_by_wildcard,
    }
}

#[cfg(test)]
mod tests {
    use dunlin_queues::{CountedReceiver, declared::LINK_EVENTS};

    use super::*;
    use crate::link::MessageHeaders;

    const OVERHEAD_BYTES: usize = 257;

    fn message(bytes: usize) -> LinkEvent {
        let payload = vec![b'x'; bytes - OVERHEAD_BYTES].into();
        let headers = MessageHeaders::new();
        LinkEvent::Delivered { subject: "a".into(), reply: None, headers, payload, is_by_wildcard: false }
    }

    fn received(events: &mut CountedReceiver<LinkEvent>) -> String {
        std::iter::from_fn(|| events.try_recv())
            .map(|event| match event {
                LinkEvent::Delivered { .. } => 'm',
                LinkEvent::SlowConsumer => 's',
                _ => '?',
            })
            .collect()
    }

    #[test]
    fn messages_beyond_the_bytes_are_dropped_and_reported_once() {
        let (sender, mut events) = LINK_EVENTS.with_messages(100).with_bytes(2_000).counted_channel();
        let overflow = Overflow::default();
        for bytes in [1_000, 1_000] {
            assert!(overflow.pass_on(message(bytes), &sender));
        }
        assert_eq!(received(&mut events), "mm", "at the limit");
        for bytes in [1_000, 1_001, 1_000 - OVERHEAD_BYTES + 300, 900] {
            assert!(overflow.pass_on(message(bytes), &sender));
        }
        assert_eq!(received(&mut events), "ms", "past it, all that follow are dropped, because the report takes space");
        assert!(overflow.pass_on(message(2_000), &sender) && overflow.pass_on(message(300), &sender));
        assert_eq!(received(&mut events), "ms", "a later overflow is reported again");
    }

    #[test]
    fn messages_beyond_the_number_are_dropped_and_reported_once() {
        let (sender, mut events) = LINK_EVENTS.with_messages(2).with_bytes(1 << 20).counted_channel();
        let overflow = Overflow::default();
        for _ in 0..4 {
            assert!(overflow.pass_on(message(300), &sender));
        }
        assert_eq!(received(&mut events), "mms");
        drop(events);
        assert!(!overflow.pass_on(message(300), &sender) || !overflow.pass_on(message(300), &sender));
    }
}
