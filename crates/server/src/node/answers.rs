//! Passes results from other threads to a shard: verified tokens, backend responses, and results of the storage and of
//! the cluster.

use std::sync::Arc;

use dunlin_engine::{
    Event, SessionKey,
    backend::{ProxyRequestId, ProxyResult},
    broadcast::BroadcastMessage,
    event::{ClusterPresence, PeerQueryNumber, Ticket},
    log::{LoadNumber, LogError, LogPage, LogRecord, ProposalNumber},
};
use dunlin_protocol::ErrorCode;
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
    Broadcasted { channel: Arc<str>, message: BroadcastMessage },
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
}

/// Results on their way to a shard. There is one per request, and the receivers of requests limit their number, so the
/// channel needs no bound of its own. Publications of other nodes arrive at the rate at which this node's NATS
/// connection reads them.
#[derive(Debug)]
pub(super) struct Answers {
    receiver: mpsc::UnboundedReceiver<Answered>,
    sender: AnswerSender,
}

/// The sending side of a shard's results.
#[derive(Clone, Debug)]
pub(super) struct AnswerSender {
    sender: mpsc::UnboundedSender<Answered>,
    shard_waker: Arc<ShardWaker>,
}

impl Answers {
    pub(super) fn new(shard_waker: Arc<ShardWaker>) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { receiver, sender: AnswerSender { sender, shard_waker } }
    }

    pub(super) fn sender(&self) -> AnswerSender {
        self.sender.clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Answered> {
        self.receiver.try_recv().ok()
    }
}

impl AnswerSender {
    /// Sends a result without blocking. It is dropped if the shard has ended.
    pub(super) fn send_answer(&self, answered: Answered) {
        if self.sender.send(answered).is_ok() {
            self.shard_waker.wake();
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
            Answered::Broadcasted { channel, message } => Self::Broadcasted { channel, message },
            Answered::Trimmed { channel, through } => Self::Trimmed { channel, through },
            Answered::TrimCommitted { ticket, outcome } => Self::TrimCommitted { ticket, outcome },
            Answered::Interrupted { channel } => Self::Interrupted { channel },
            Answered::UserSessionsElsewhere { user, sessions } => Self::UserSessionsElsewhere { user, sessions },
            Answered::Peers { query, outcome } => Self::PeersAnswered { query, outcome },
        }
    }
}
