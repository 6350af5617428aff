//! Passes results from other threads to a shard: verified tokens, backend responses, and results of the storage and of
//! the cluster.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use dunlin_engine::{
    Event, SessionKey,
    backend::{ProxyError, ProxyRequestId, ProxyResult},
    broadcast::BroadcastMessage,
    event::{ClusterPresence, PeerKeys, PeerQueryNumber, Ticket},
    log::{LoadNumber, LogError, LogPage, LogRecord, ProposalNumber},
    room::RoomElsewhere,
};
use dunlin_protocol::ErrorCode;
use dunlin_queues::declared::SHARD_ANSWERS;
use dunlin_token::TokenAnswer;
use tokio::sync::mpsc;

use super::shard_waker::ShardWaker;

/// A result from another thread.
#[derive(Debug)]
pub(super) enum Answered {
    /// The result of a token verification.
    Token { session: SessionKey, answer: TokenAnswer },
    /// The result of a backend request.
    Backend { session: SessionKey, request_id: ProxyRequestId, outcome: ProxyResult },
    /// The result of storing a publication.
    Committed { channel: Arc<str>, proposal: ProposalNumber, outcome: Result<u64, LogError> },
    /// The result of reading a part of a channel.
    Loaded { channel: Arc<str>, load: LoadNumber, outcome: Result<Box<LogPage>, LogError> },
    /// A publication of another node.
    Replicated { channel: Arc<str>, record: Box<LogRecord> },
    /// The node now receives the broadcasts of other nodes in this channel.
    Followed { channel: Arc<str> },
    /// A broadcast of another node.
    BroadcastReceived { channel: Arc<str>, message: BroadcastMessage },
    /// A node has removed the history of a channel.
    Trimmed { channel: Arc<str>, through: u64 },
    /// The result of a removal of stored publications.
    TrimCommitted { ticket: Ticket, outcome: Result<(), LogError> },
    /// A channel has a gap that cannot be filled.
    Interrupted { channel: Arc<str> },
    /// The number of sessions of a user on other nodes.
    UserSessionsElsewhere { user: Arc<str>, sessions: u32 },
    /// The presence of a channel on all nodes.
    Peers { query: PeerQueryNumber, outcome: Result<ClusterPresence, ErrorCode> },
    /// The newest publications of a channel's keys on other nodes.
    Keys { channel: Arc<str>, found: PeerKeys },
    /// Whether another node has the room of a channel.
    Room { channel: Arc<str>, found: RoomElsewhere },
}

/// Maximum bytes of publications, pages and responses on their way to a shard. A shard does not take them while a ring to
/// another shard is full.
const BYTES_MAX: usize = SHARD_ANSWERS.bytes_max();

/// Messages of other nodes count at least this much. So their bytes bound their number, and shards count only one of the
/// two.
const MESSAGE_BYTES_MIN: usize = BYTES_MAX / SHARD_ANSWERS.messages.max;

/// Results on their way to a shard. There is one per request, and the receivers of requests limit their number. Pages,
/// responses of backends and messages of other nodes are limited here, by their bytes.
#[derive(Debug)]
pub(super) struct Answers {
    receiver: mpsc::UnboundedReceiver<(Answered, usize)>,
    sender: AnswerSender,
}

/// The sending side of a shard's results.
#[derive(Clone, Debug)]
pub(super) struct AnswerSender {
    sender: mpsc::UnboundedSender<(Answered, usize)>,
    queued_bytes: Arc<AtomicUsize>,
    shard_waker: Arc<ShardWaker>,
}

/// The queue of a shard has no space for a message of another node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

impl Answers {
    pub(super) fn new(shard_waker: Arc<ShardWaker>) -> Self {
        let (sender, receiver) = SHARD_ANSWERS.admitted_channel();
        Self { receiver, sender: AnswerSender { sender, queued_bytes: Arc::default(), shard_waker } }
    }

    pub(super) fn sender(&self) -> AnswerSender {
        self.sender.clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Answered> {
        let (answered, bytes) = self.receiver.try_recv().ok()?;
        self.sender.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Some(answered)
    }
}

impl AnswerSender {
    /// Sends the result of a request without blocking. It is dropped if the shard has ended. A page or a response that does
    /// not fit is replaced by a temporary error, and keys by an incomplete answer.
    pub(super) fn send_answer(&self, answered: Answered) {
        let refused = match &answered {
            Answered::Loaded { channel, load, outcome: Ok(_) } => {
                Some(Answered::Loaded { channel: Arc::clone(channel), load: *load, outcome: Err(LogError::Busy) })
            }
            Answered::Keys { channel, .. } => {
                Some(Answered::Keys { channel: Arc::clone(channel), found: PeerKeys::UNKNOWN })
            }
            Answered::Backend { session, request_id, outcome: Ok(_) } => {
                let (session, request_id) = (*session, *request_id);
                Some(Answered::Backend { session, request_id, outcome: Err(ProxyError::Busy) })
            }
            _ => None,
        };
        if let (Err(QueueFull), Some(refused)) = (self.send_message(answered), refused) {
            self.send(refused, 0);
        }
    }

    /// Sends a message of another node without blocking.
    ///
    /// # Errors
    /// Too many bytes are queued. The message is dropped.
    pub(super) fn send_message(&self, answered: Answered) -> Result<(), QueueFull> {
        let bytes = answered.bytes();
        // One message fits into an empty queue, of whatever size.
        let queued = self.queued_bytes.load(Ordering::Relaxed);
        if bytes > 0 && queued > 0 && queued + bytes > BYTES_MAX {
            return Err(QueueFull);
        }
        self.send(answered, bytes);
        Ok(())
    }

    fn send(&self, answered: Answered, bytes: usize) {
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.sender.send((answered, bytes)).is_ok() {
            self.shard_waker.wake();
        }
    }
}

impl Answered {
    /// The bytes of its publications, or of the response.
    fn bytes(&self) -> usize {
        match self {
            Self::Loaded { outcome: Ok(page), .. } => page.records.iter().map(LogRecord::kept_bytes).sum(),
            Self::Replicated { record, .. } => record.kept_bytes().max(MESSAGE_BYTES_MIN),
            Self::BroadcastReceived { message, .. } => message.kept_bytes().max(MESSAGE_BYTES_MIN),
            Self::Backend { outcome: Ok(response), .. } => response.bytes(),
            Self::Keys { found, .. } => found.kept_bytes(),
            _ => 0,
        }
    }
}

impl From<Answered> for Event<'static> {
    fn from(answered: Answered) -> Self {
        match answered {
            Answered::Token { session, answer: TokenAnswer::Connection(outcome) } => {
                Self::Authenticated { session, outcome }
            }
            Answered::Token { session, answer: TokenAnswer::Subscription(outcome) } => {
                Self::SubscriptionAuthorized { session, outcome }
            }
            Answered::Backend { session, request_id, outcome } => Self::ProxyResponded { session, request_id, outcome },
            Answered::Committed { channel, proposal, outcome } => Self::Committed { channel, proposal, outcome },
            Answered::Loaded { channel, load, outcome } => Self::Loaded { channel, load, outcome },
            Answered::Replicated { channel, record } => Self::Replicated { channel, record },
            Answered::Followed { channel } => Self::Followed { channel },
            Answered::BroadcastReceived { channel, message } => Self::BroadcastReceived { channel, message },
            Answered::Trimmed { channel, through } => Self::Trimmed { channel, through },
            Answered::TrimCommitted { ticket, outcome } => Self::TrimCommitted { ticket, outcome },
            Answered::Interrupted { channel } => Self::Interrupted { channel },
            Answered::UserSessionsElsewhere { user, sessions } => Self::UserSessionsElsewhere { user, sessions },
            Answered::Peers { query, outcome } => Self::PeersAnswered { query, outcome },
            Answered::Keys { channel, found } => Self::KeysAnswered { channel, found },
            Answered::Room { channel, found } => Self::RoomQueried { channel, found },
        }
    }
}

#[cfg(test)]
mod tests {
    use dunlin_engine::{backend::ProxyResponse, event::PeerKey};
    use dunlin_net::Waker;
    use dunlin_protocol::{Payload, Publication, Tags};

    use super::*;

    fn answers() -> Answers {
        let waker = Waker::eventfd().expect("an eventfd");
        Answers::new(Arc::new(ShardWaker::new(Arc::new(waker))))
    }

    fn record(data_bytes: usize) -> LogRecord {
        let data = Payload::from_opaque(vec![b'x'; data_bytes].into());
        let (info, tags, epoch) = (None, Tags::new(), Box::default());
        let publication = Arc::new(Publication { data, info, offset: 1, tags, time_ms: 0, epoch, version: 0 });
        LogRecord { publication, version_epoch: Box::default(), idempotency_key: None }
    }

    fn replicated(bytes: usize) -> Answered {
        let overhead = record(0).kept_bytes();
        Answered::Replicated { channel: "a".into(), record: Box::new(record(bytes - overhead)) }
    }

    fn loaded(bytes: usize) -> Answered {
        let records = vec![record(bytes - record(0).kept_bytes())];
        let page = LogPage { records, ..LogPage::default() };
        Answered::Loaded { channel: "a".into(), load: LoadNumber(7), outcome: Ok(Box::new(page)) }
    }

    #[test]
    fn messages_and_pages_beyond_the_bytes_are_refused() {
        let mut answers = answers();
        let sender = answers.sender();
        assert_eq!(sender.send_message(replicated(BYTES_MAX - 1_000)), Ok(()));
        assert_eq!(sender.send_message(replicated(1_000)), Ok(()), "at the limit");
        assert_eq!(sender.send_message(replicated(1_000)), Err(QueueFull), "past it");
        sender.send_answer(loaded(1_000));
        sender.send_answer(Answered::Interrupted { channel: "a".into() });
        assert!(matches!(answers.next(), Some(Answered::Replicated { .. })));
        assert_eq!(sender.send_message(replicated(1_000)), Ok(()), "there is space again");
        let rest: Vec<_> = std::iter::from_fn(|| answers.next()).collect();
        let [first, page, interrupted, last] = &rest[..] else { panic!("{rest:?}") };
        assert!(matches!(first, Answered::Replicated { .. }) && matches!(last, Answered::Replicated { .. }));
        assert!(matches!(page, Answered::Loaded { load: LoadNumber(7), outcome: Err(LogError::Busy), .. }));
        assert!(matches!(interrupted, Answered::Interrupted { .. }));
    }

    #[test]
    fn keys_beyond_the_bytes_are_an_incomplete_answer() {
        let mut answers = answers();
        let sender = answers.sender();
        let keys = |bytes: usize| {
            let publication = record(bytes - record(0).kept_bytes()).publication;
            let found = PeerKeys { keys: vec![PeerKey { publication, age_us: 0 }], is_partial: false };
            Answered::Keys { channel: "a".into(), found }
        };
        sender.send_answer(keys(BYTES_MAX - 1_000));
        sender.send_answer(keys(1_000));
        sender.send_answer(keys(1_000));
        let found: Vec<(usize, bool)> = std::iter::from_fn(|| answers.next())
            .map(|answered| match answered {
                Answered::Keys { found, .. } => (found.keys.len(), found.is_partial),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, [(1, false), (1, false), (0, true)], "at the limit, and past it");
    }

    #[test]
    fn responses_of_backends_beyond_the_bytes_are_refused() {
        let mut answers = answers();
        let sender = answers.sender();
        let respond = |bytes| {
            let data = Some(Payload::from_opaque(vec![b'x'; bytes].into()));
            let (session, request_id) = (SessionKey { index: 0, generation: 0 }, ProxyRequestId(5));
            sender.send_answer(Answered::Backend { session, request_id, outcome: Ok(ProxyResponse::Rpc { data }) });
        };
        respond(BYTES_MAX - 1_000);
        respond(1_000);
        respond(1);
        let mut outcomes = std::iter::from_fn(|| answers.next()).map(|answered| match answered {
            Answered::Backend { request_id: ProxyRequestId(5), outcome, .. } => outcome.map(drop),
            other => panic!("{other:?}"),
        });
        assert_eq!((outcomes.next(), outcomes.next()), (Some(Ok(())), Some(Ok(()))), "at the limit");
        assert_eq!((outcomes.next(), outcomes.next()), (Some(Err(ProxyError::Busy)), None), "past it");
    }

    #[test]
    fn one_large_message_fits_into_an_empty_queue() {
        let answers = answers();
        assert_eq!(answers.sender().send_message(replicated(BYTES_MAX + 1)), Ok(()));
    }
}
