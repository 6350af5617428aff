//! What a shard asks of other threads for its engine: the verification of tokens, backends, and the log of a channel.

use std::{net::IpAddr, sync::Arc};

use dunlin_engine::{
    Event, SessionKey, ShardIndex,
    backend::ProxyRequest,
    broadcast::BroadcastMessage,
    event::{PeerKeys, PeerQueryNumber, PresenceKind, Ticket},
    log::{LoadNumber, LoadQuery, LogError, LogTerms},
    room::RoomElsewhere,
};
use dunlin_net::PickedHeaders;
use dunlin_protocol::ErrorCode;
use dunlin_storage::{EntriesDone, StoreRequest};
use dunlin_token::{Judged, TokenAnswer, TokenKind, TokenRequest};

use super::{cluster::NodeCluster, event_queue::EventSender, shard_thread::Shared, storage::NodeStorage};
use crate::{backend::BackendCall, peers::QuestionKind};

/// The services of one shard. A method returns the answer if it is known at once. Others arrive in the shard's queue of
/// events.
pub(super) struct Services {
    index: ShardIndex,
    shared: Arc<Shared>,
    log: ChannelLog,
    answers: EventSender,
}

/// Where the publications of channels with a log are.
enum ChannelLog {
    /// In streams, which several nodes share.
    Cluster(Arc<NodeCluster>),
    /// On the disk of this node. So no other node publishes into these channels.
    Storage(Arc<NodeStorage>),
    None,
}

impl Services {
    pub(super) fn new(index: ShardIndex, shared: Arc<Shared>, answers: EventSender) -> Self {
        let log = match (&shared.cluster, &shared.storage) {
            (Some(cluster), _) => ChannelLog::Cluster(Arc::clone(cluster)),
            (None, Some(storage)) => ChannelLog::Storage(Arc::clone(storage)),
            (None, None) => ChannelLog::None,
        };
        Self { index, shared, log, answers }
    }

    pub(super) fn authenticate(&self, session: SessionKey, token: Box<str>, unix_ms: u64) -> Option<Event<'static>> {
        match self.shared.tokens.verify_connection(&token, unix_ms) {
            Judged::Now(outcome) => Some(Event::Authenticated { session, outcome }),
            Judged::Elsewhere => self.verify_elsewhere(session, TokenKind::Connection, token),
        }
    }

    pub(super) fn authorize(&self, session: SessionKey, token: Box<str>, unix_ms: u64) -> Option<Event<'static>> {
        match self.shared.tokens.verify_subscription(&token, unix_ms) {
            Judged::Now(outcome) => Some(Event::SubscriptionAuthorized { session, outcome }),
            Judged::Elsewhere => self.verify_elsewhere(session, TokenKind::Subscription, token),
        }
    }

    fn verify_elsewhere(&self, session: SessionKey, kind: TokenKind, token: Box<str>) -> Option<Event<'static>> {
        let answers = self.answers.clone();
        let answer = Box::new(move |answer| {
            answers.send(match answer {
                TokenAnswer::Connection(outcome) => Event::Authenticated { session, outcome },
                TokenAnswer::Subscription(outcome) => Event::SubscriptionAuthorized { session, outcome },
            });
        });
        self.shared.tokens.verify_elsewhere(TokenRequest { kind, token, answer });
        None
    }

    /// Sends a request of a session, whose client has this address and sent these header fields, to its backend.
    pub(super) fn ask_backend(
        &self,
        session: SessionKey,
        request: ProxyRequest,
        headers: Option<PickedHeaders>,
        address: Option<IpAddr>,
    ) {
        let (answers, request_id) = (self.answers.clone(), request.id);
        let answer = Box::new(move |outcome| {
            answers.send(Event::ProxyResponded { session, request_id, outcome });
        });
        self.shared.backends.ask(BackendCall { request, headers, address, answer });
    }

    pub(super) fn propose(&self, request: StoreRequest) -> Option<Event<'static>> {
        let (channel, proposal) = (Arc::clone(&request.channel), request.proposal);
        let stored = match &self.log {
            ChannelLog::Cluster(cluster) => cluster.propose(self.index, request.channel, proposal, request.record),
            ChannelLog::Storage(storage) => storage.store(request),
            ChannelLog::None => Err(LogError::Unavailable),
        };
        stored.err().map(|error| Event::Committed { channel, proposal, outcome: Err(error) })
    }

    pub(super) fn load(
        &self,
        channel: Arc<str>,
        load: LoadNumber,
        query: LoadQuery,
        terms: LogTerms,
    ) -> Option<Event<'static>> {
        let queued = match &self.log {
            ChannelLog::Cluster(cluster) => cluster.load(self.index, Arc::clone(&channel), load, query),
            ChannelLog::Storage(storage) => storage.load(self.index, Arc::clone(&channel), load, query, terms),
            ChannelLog::None => Err(LogError::Unavailable),
        };
        queued.err().map(|error| Event::Loaded { channel, load, outcome: Err(error) })
    }

    pub(super) fn trim(&self, channel: Arc<str>, through: u64, ticket: Option<Ticket>) -> Option<Event<'static>> {
        let queued = match &self.log {
            ChannelLog::Cluster(cluster) => cluster.trim(self.index, channel, ticket),
            ChannelLog::Storage(storage) => {
                storage.trim(channel, through, ticket.map(|ticket| self.trim_committed(ticket)));
                Ok(())
            }
            ChannelLog::None => Err(LogError::Unavailable),
        };
        let error = queued.err()?;
        ticket.map(|ticket| Event::TrimCommitted { ticket, outcome: Err(error) })
    }

    fn trim_committed(&self, ticket: Ticket) -> EntriesDone {
        let answers = self.answers.clone();
        Box::new(move |outcome| {
            let outcome = outcome.map_err(|_| LogError::Broken);
            answers.send(Event::TrimCommitted { ticket, outcome });
        })
    }

    pub(super) fn follow(&self, channel: Arc<str>) -> Option<Event<'static>> {
        let ChannelLog::Cluster(cluster) = &self.log else { return None };
        let followed = cluster.follow(self.index, Arc::clone(&channel));
        // After an error, the cluster's thread has ended and will not send this event.
        followed.err().map(|_| Event::Followed { channel })
    }

    pub(super) fn unfollow(&self, channel: Arc<str>, only_user: u64) {
        if let ChannelLog::Cluster(cluster) = &self.log {
            cluster.unfollow(channel, only_user);
        }
    }

    pub(super) fn broadcast(&self, channel: Arc<str>, message: BroadcastMessage) {
        if let ChannelLog::Cluster(cluster) = &self.log {
            cluster.broadcast(channel, message);
        }
    }

    pub(super) fn share_user_sessions(&self, user: Arc<str>, sessions: u32) {
        if let ChannelLog::Cluster(cluster) = &self.log {
            cluster.share_user_sessions(user, sessions);
        }
    }

    pub(super) fn query_peers(
        &self,
        query: PeerQueryNumber,
        channel: Arc<str>,
        kind: PresenceKind,
    ) -> Option<Event<'static>> {
        let asked = self.ask_about(channel, QuestionKind::Presence { query, kind });
        asked.err().map(|code| Event::PeersAnswered { query, outcome: Err(code) })
    }

    pub(super) fn query_keys(&self, channel: Arc<str>) -> Option<Event<'static>> {
        let asked = self.ask_about(Arc::clone(&channel), QuestionKind::Keys);
        asked.err().map(|_| Event::KeysAnswered { channel, found: PeerKeys::UNKNOWN })
    }

    pub(super) fn query_room(&self, channel: Arc<str>) -> Option<Event<'static>> {
        let asked = self.ask_about(Arc::clone(&channel), QuestionKind::Room);
        asked.err().map(|_| Event::RoomQueried { channel, found: RoomElsewhere::Unanswered })
    }

    fn ask_about(&self, channel: Arc<str>, kind: QuestionKind) -> Result<(), ErrorCode> {
        match &self.log {
            ChannelLog::Cluster(cluster) => cluster.ask_about(self.index, channel, kind),
            ChannelLog::Storage(_) | ChannelLog::None => Err(ErrorCode::Internal),
        }
    }
}
