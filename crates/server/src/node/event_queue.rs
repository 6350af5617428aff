//! Passes events from other threads to a shard: verified tokens, backend responses, and what the storage and the cluster
//! send.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use dunlin_engine::{Event, ShardIndex, event::ShardEvents};
use dunlin_queues::{CountedReceiver, CountedSender, Refused, declared::SHARD_EVENTS};

use super::shard_waker::ShardWaker;

/// The queues of all shards of a node. They exist before the shards, because the storage and the cluster do.
pub struct ShardQueues {
    queues: Box<[Ends]>,
}

struct Ends {
    sender: EventSender,
    /// Until the shard starts.
    receiver: Mutex<Option<CountedReceiver<Event<'static>>>>,
}

/// The events on their way to a shard. A shard does not take them while a ring to another shard is full.
#[derive(Debug)]
pub(super) struct EventQueue {
    receiver: CountedReceiver<Event<'static>>,
    sender: EventSender,
}

/// The sending side of a shard's queue.
#[derive(Clone, Debug)]
pub(super) struct EventSender {
    sender: CountedSender<Event<'static>>,
    shared: Arc<OfQueue>,
}

#[derive(Debug, Default)]
struct OfQueue {
    /// Set when the shard starts, before it sends any request.
    shard_waker: OnceLock<Arc<ShardWaker>>,
    /// Events that did not fit.
    refused: AtomicU64,
}

impl ShardQueues {
    /// The queues of this number of shards.
    pub fn new(shard_count: u16) -> Arc<Self> {
        let queue = |_| {
            let (sender, receiver) = SHARD_EVENTS.counted_channel();
            Ends { sender: EventSender { sender, shared: Arc::default() }, receiver: Mutex::new(Some(receiver)) }
        };
        Arc::new(Self { queues: (0..shard_count).map(queue).collect() })
    }

    pub(super) fn shard_count(&self) -> u16 {
        u16::try_from(self.queues.len()).unwrap_or(u16::MAX)
    }

    /// The receiving end of a shard's queue.
    ///
    /// # Panics
    /// If there is no such shard, or it has its queue already.
    pub(super) fn take(&self, shard: ShardIndex, shard_waker: Arc<ShardWaker>) -> EventQueue {
        let Ends { sender, receiver } = &self.queues[usize::from(shard.0)];
        let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_first = sender.shared.shard_waker.set(shard_waker).is_ok();
        assert!(is_first, "a shard starts once");
        EventQueue { receiver: receiver.expect("a shard starts once"), sender: sender.clone() }
    }
}

impl fmt::Debug for ShardQueues {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(text, "ShardQueues {{ shards: {} }}", self.queues.len())
    }
}

impl ShardEvents for ShardQueues {
    fn send(&self, to: ShardIndex, event: Event<'static>) -> bool {
        self.queues[usize::from(to.0)].sender.send(event)
    }
}

impl EventQueue {
    pub(super) fn sender(&self) -> EventSender {
        self.sender.clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Event<'static>> {
        self.receiver.try_recv()
    }

    /// Number of events that wait.
    pub(super) fn len(&self) -> u64 {
        self.sender.sender.messages() as u64
    }

    /// Number of events that did not fit.
    pub(super) fn refused(&self) -> u64 {
        self.sender.shared.refused.load(Ordering::Relaxed)
    }
}

impl EventSender {
    /// Sends an event without blocking. It is dropped if the shard has ended. Returns false if the event is a message of
    /// another node that does not fit; see [`Event::for_full_queue`].
    pub(super) fn send(&self, event: Event<'static>) -> bool {
        let bytes = event.queued_bytes();
        if let Err(Refused::Full(event)) = self.sender.try_send(event, bytes) {
            let Some(answer) = event.for_full_queue() else {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                return false;
            };
            let left_bytes = answer.queued_bytes();
            self.shared.refused.fetch_add(u64::from(left_bytes < bytes), Ordering::Relaxed);
            self.sender.send_admitted(answer, left_bytes);
        }
        if let Some(shard_waker) = self.shared.shard_waker.get() {
            shard_waker.wake();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use dunlin_engine::{
        SessionKey,
        backend::{ProxyError, ProxyRequestId, ProxyResponse},
        event::{PeerKey, PeerKeys},
        log::{LoadNumber, LogBusy, LogError, LogPage, LogRecord},
    };
    use dunlin_net::Waker;
    use dunlin_protocol::{Payload, Publication, Tags};

    use super::*;

    const BYTES_MAX: usize = SHARD_EVENTS.bytes_max();
    const MESSAGES_MAX: usize = SHARD_EVENTS.messages.max;

    fn queue() -> EventQueue {
        let waker = Waker::eventfd().expect("an eventfd");
        ShardQueues::new(1).take(ShardIndex(0), Arc::new(ShardWaker::new(Arc::new(waker))))
    }

    fn record(data_bytes: usize) -> LogRecord {
        let data = Payload::from_opaque(vec![b'x'; data_bytes].into());
        let (info, tags, epoch) = (None, Tags::new(), Box::default());
        let publication = Arc::new(Publication { data, info, offset: 1, tags, time_ms: 0, epoch, version: 0 });
        LogRecord { publication, version_epoch: Box::default(), idempotency_key: None }
    }

    /// The event that takes this many bytes in the queue.
    fn of_bytes(bytes: usize, event: impl Fn(usize) -> Event<'static>) -> Event<'static> {
        event(bytes - event(0).queued_bytes())
    }

    fn replicated(bytes: usize) -> Event<'static> {
        of_bytes(bytes, |data| Event::Replicated { channel: "a".into(), record: Box::new(record(data)) })
    }

    fn loaded(bytes: usize) -> Event<'static> {
        of_bytes(bytes, |data| {
            let page = LogPage { records: vec![record(data)], ..LogPage::default() };
            Event::Loaded { channel: "a".into(), load: LoadNumber(7), outcome: Ok(Box::new(page)) }
        })
    }

    #[test]
    fn messages_and_pages_beyond_the_bytes_are_refused() {
        let mut queue = queue();
        let sender = queue.sender();
        assert!(sender.send(replicated(BYTES_MAX - 1_000)));
        assert!(sender.send(replicated(1_000)), "at the limit");
        assert!(!sender.send(replicated(1_000)), "past it");
        assert!(sender.send(loaded(1_000)));
        assert!(sender.send(Event::Interrupted { channel: "a".into() }));
        assert_eq!((queue.len(), queue.refused()), (4, 2));
        assert!(matches!(queue.next(), Some(Event::Replicated { .. })));
        assert!(sender.send(replicated(1_000)), "there is space again");
        let rest: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        let [first, page, interrupted, last] = &rest[..] else { panic!("{rest:?}") };
        assert!(matches!(first, Event::Replicated { .. }) && matches!(last, Event::Replicated { .. }));
        assert!(matches!(
            page,
            Event::Loaded { load: LoadNumber(7), outcome: Err(LogError::Busy(LogBusy::Events)), .. }
        ));
        assert!(matches!(interrupted, Event::Interrupted { .. }));
        assert_eq!((queue.is_empty(), queue.len()), (true, 0));
    }

    #[test]
    fn messages_of_other_nodes_beyond_the_number_are_refused() {
        let mut queue = queue();
        let sender = queue.sender();
        let offer = || sender.send(Event::Trimmed { channel: "a".into(), through: 1 });
        let taken = (0..=MESSAGES_MAX).take_while(|_| offer()).count();
        let event_bytes = Event::Trimmed { channel: "a".into(), through: 1 }.queued_bytes();
        assert_eq!(taken, MESSAGES_MAX.min(BYTES_MAX / event_bytes), "at the limit, and past it");
        assert!(!sender.send(Event::UserSessionsElsewhere { user: "anna".into(), sessions: 1 }));
        assert!(sender.send(Event::Followed { channel: "a".into() }), "an answer");
        assert_eq!(queue.refused(), 2);
        for _ in 0..2 {
            assert!(matches!(queue.next(), Some(Event::Trimmed { .. })));
        }
        assert!(offer(), "there is space again");
    }

    #[test]
    fn keys_beyond_the_bytes_are_an_incomplete_answer() {
        let mut queue = queue();
        let sender = queue.sender();
        let keys = |bytes| {
            of_bytes(bytes, |data| {
                let publication = record(data).publication;
                let found = PeerKeys { keys: vec![PeerKey { publication, age_us: 0 }], is_partial: false };
                Event::KeysAnswered { channel: "a".into(), found }
            })
        };
        sender.send(keys(BYTES_MAX - 1_000));
        sender.send(keys(1_000));
        sender.send(keys(1_000));
        let found: Vec<(usize, bool)> = std::iter::from_fn(|| queue.next())
            .map(|event| match event {
                Event::KeysAnswered { found, .. } => (found.keys.len(), found.is_partial),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, [(1, false), (1, false), (0, true)], "at the limit, and past it");
    }

    #[test]
    fn responses_of_backends_beyond_the_bytes_are_refused() {
        let mut queue = queue();
        let sender = queue.sender();
        let respond = |bytes| {
            let (session, request_id) = (SessionKey { index: 0, generation: 0 }, ProxyRequestId(5));
            sender.send(of_bytes(bytes, |data| {
                let data = Some(Payload::from_opaque(vec![b'x'; data].into()));
                Event::ProxyResponded { session, request_id, outcome: Ok(ProxyResponse::Rpc { data }) }
            }))
        };
        assert!(respond(BYTES_MAX - 1_000) && respond(1_000) && respond(1_000), "each request is answered");
        let mut outcomes = std::iter::from_fn(|| queue.next()).map(|event| match event {
            Event::ProxyResponded { request_id: ProxyRequestId(5), outcome, .. } => outcome.map(drop),
            other => panic!("{other:?}"),
        });
        assert_eq!((outcomes.next(), outcomes.next()), (Some(Ok(())), Some(Ok(()))), "at the limit");
        assert_eq!((outcomes.next(), outcomes.next()), (Some(Err(ProxyError::Busy)), None), "past it");
    }

    #[test]
    fn one_large_message_fits_into_an_empty_queue() {
        assert!(queue().sender().send(replicated(BYTES_MAX + 1)));
    }

    #[test]
    fn events_before_the_start_of_a_shard_wait_for_it() {
        let queues = ShardQueues::new(2);
        assert!(queues.send(ShardIndex(1), Event::Interrupted { channel: "a".into() }));
        let waker = Waker::eventfd().expect("an eventfd");
        let mut queue = queues.take(ShardIndex(1), Arc::new(ShardWaker::new(Arc::new(waker))));
        assert!(matches!(queue.next(), Some(Event::Interrupted { .. })));
    }
}
