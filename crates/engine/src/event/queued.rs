//! Events on their way from another thread to a shard.

use std::borrow::Cow;

use dunlin_protocol::{ClientInfo, Disconnect, ErrorCode};

use super::{ClusterPresence, Event, PeerKeys, ShardIndex, TokenError};
use crate::{
    backend::ProxyError,
    log::{LogBusy, LogError, LogRecord},
    room::RoomElsewhere,
};

/// The queues of events from other threads to the shards of a node.
pub trait ShardEvents: Send + Sync {
    /// Queues an event without waiting. Returns false if the queue is full and [`Event::for_full_queue`] leaves nothing
    /// of the event.
    fn send(&self, to: ShardIndex, event: Event<'static>) -> bool;
}

impl Event<'_> {
    /// The bytes that it takes in a queue.
    pub fn queued_bytes(&self) -> usize {
        let of_content = match self {
            Self::Loaded { outcome: Ok(page), .. } => page.records.iter().map(LogRecord::kept_bytes).sum(),
            Self::Replicated { record, .. } => record.kept_bytes(),
            Self::BroadcastReceived { message, .. } => message.kept_bytes(),
            Self::ProxyResponded { outcome: Ok(response), .. } => response.bytes(),
            Self::ProxyResponded { outcome: Err(ProxyError::Error { message, .. }), .. } => message.len(),
            Self::ProxyResponded { outcome: Err(ProxyError::Disconnect(disconnect)), .. } => disconnect.reason.len(),
            Self::Authenticated { outcome: Ok(claims), .. } => claims.bytes(),
            Self::SubscriptionAuthorized { outcome: Ok(claims), .. } => claims.bytes(),
            Self::RoomQueried { found: RoomElsewhere::Open { node, site }, .. } => {
                node.len() + site.as_ref().map_or(0, |site| size_of_val(&**site) + site.node.len())
            }
            Self::KeysAnswered { found, .. } => found.kept_bytes(),
            Self::PeersAnswered { outcome: Ok(ClusterPresence::Clients(clients)), .. } => {
                clients.iter().map(|client| kept_bytes(client)).sum()
            }
            Self::UserSessionsElsewhere { user, .. } => user.len(),
            _ => 0,
        };
        size_of::<Self>() + of_content
    }

    /// What is queued instead if the queue is full. An answer stays, because its request is bounded, but loses its
    /// content. A message of another node is left out; its sender learns it.
    #[must_use]
    pub fn for_full_queue(self) -> Option<Self> {
        Some(match self {
            Self::Replicated { .. }
            | Self::BroadcastReceived { .. }
            | Self::Trimmed { .. }
            | Self::UserSessionsElsewhere { .. } => return None,
            Self::Loaded { channel, load, outcome: Ok(_) } => {
                Self::Loaded { channel, load, outcome: Err(LogError::Busy(LogBusy::Events)) }
            }
            Self::ProxyResponded { session, request_id, outcome: Ok(_) } => {
                Self::ProxyResponded { session, request_id, outcome: Err(ProxyError::Busy) }
            }
            // What the backend decided stays: a client that is to leave must not stay because a queue was full. Its
            // words go, as there is no limit to how many sessions have such an answer.
            Self::ProxyResponded {
                session,
                request_id,
                outcome: Err(ProxyError::Error { code, temporary, message: _ }),
            } => {
                let outcome = Err(ProxyError::Error { code, temporary, message: Box::default() });
                Self::ProxyResponded { session, request_id, outcome }
            }
            Self::ProxyResponded { session, request_id, outcome: Err(ProxyError::Disconnect(disconnect)) } => {
                let disconnect = Disconnect { code: disconnect.code, reason: Cow::Borrowed("") };
                Self::ProxyResponded { session, request_id, outcome: Err(ProxyError::Disconnect(disconnect)) }
            }
            // A token that is verified again later may be accepted.
            Self::Authenticated { session, outcome: Ok(_) } => {
                Self::Authenticated { session, outcome: Err(TokenError::Unavailable) }
            }
            Self::SubscriptionAuthorized { session, outcome: Ok(_) } => {
                Self::SubscriptionAuthorized { session, outcome: Err(TokenError::Unavailable) }
            }
            Self::KeysAnswered { channel, .. } => Self::KeysAnswered { channel, found: PeerKeys::UNKNOWN },
            Self::PeersAnswered { query, outcome: Ok(ClusterPresence::Clients(_)) } => {
                Self::PeersAnswered { query, outcome: Err(ErrorCode::TooManyRequests) }
            }
            answer => answer,
        })
    }
}

fn kept_bytes(client: &ClientInfo) -> usize {
    let ClientInfo { user, client, conn_info, chan_info } = client;
    let infos = [conn_info, chan_info].into_iter().flatten().map(|info| info.bytes().len());
    size_of::<ClientInfo>() + user.len() + client.len() + infos.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use dunlin_protocol::{Payload, Publication, Tags};

    use super::*;
    use crate::{
        SessionKey,
        backend::{ProxyRequestId, ProxyResponse},
        broadcast::BroadcastMessage,
        event::{
            ConnectionClaims, PeerKey, PeerQueryNumber, ServerSubscription, SubscriptionClaims, SubscriptionGrant,
            Ticket,
        },
        log::{LoadNumber, LogPage, ProposalNumber},
    };

    /// As many bytes as [`Event::queued_bytes`] counts at least for a message of another node. A queue of 64 MiB holds
    /// 262,144 of them.
    const EVENT_BYTES_MAX: usize = 256;

    #[test]
    fn an_event_takes_little_space() {
        assert!(size_of::<Event<'static>>() <= EVENT_BYTES_MAX, "{} bytes", size_of::<Event<'static>>());
    }

    #[test]
    fn an_answer_without_content_is_queued_in_any_case() {
        let channel: Arc<str> = "a".into();
        let loaded = Event::Loaded { channel: Arc::clone(&channel), load: LoadNumber(7), outcome: Ok(Box::default()) };
        assert!(matches!(
            loaded.for_full_queue(),
            Some(Event::Loaded { load: LoadNumber(7), outcome: Err(LogError::Busy(LogBusy::Events)), .. })
        ));
        let committed = Event::Committed { channel: Arc::clone(&channel), proposal: ProposalNumber(1), outcome: Ok(2) };
        assert!(matches!(committed.for_full_queue(), Some(Event::Committed { outcome: Ok(2), .. })));
        let trimmed = Event::TrimCommitted { ticket: Ticket(3), outcome: Ok(()) };
        assert!(matches!(trimmed.for_full_queue(), Some(Event::TrimCommitted { outcome: Ok(()), .. })));
        let interrupted = Event::Interrupted { channel: Arc::clone(&channel) };
        assert!(matches!(interrupted.for_full_queue(), Some(Event::Interrupted { .. })));
        let trimmed_elsewhere = Event::Trimmed { channel, through: 4 };
        assert!(trimmed_elsewhere.for_full_queue().is_none(), "a message of another node");
    }

    /// Events with `content`, a text of any length, in all places that have one, and the number of these places.
    fn events_with(content: &str) -> Vec<(&'static str, usize, Event<'static>)> {
        let (session, channel) = (SessionKey { index: 0, generation: 1 }, || Arc::<str>::from("c"));
        let elsewhere = RoomElsewhere::Open { node: content.into(), site: None };
        let payload = || Some(Payload::from_opaque(Bytes::copy_from_slice(content.as_bytes())));
        let grant = || SubscriptionGrant { info: payload(), data: payload(), ..SubscriptionGrant::default() };
        let subscription = || ServerSubscription {
            channel: content.into(),
            grant: grant(),
            recover_since: Some((1, content.into())),
            from_token: true,
        };
        let publication = || {
            Arc::new(Publication {
                data: payload().expect("it has one"),
                info: None,
                offset: 1,
                tags: Tags::default(),
                time_ms: 0,
                epoch: Box::default(),
                version: 0,
            })
        };
        let record = || LogRecord { publication: publication(), version_epoch: "".into(), idempotency_key: None };
        let claims = ConnectionClaims {
            user: content.to_owned(),
            info: payload(),
            meta: payload(),
            subscriptions: vec![subscription()],
            ..ConnectionClaims::default()
        };
        let of_channel = SubscriptionClaims {
            user: content.to_owned(),
            channel: content.to_owned(),
            client: content.to_owned(),
            grant: grant(),
            ..SubscriptionClaims::default()
        };
        let page = LogPage { records: vec![record()], ..LogPage::default() };
        let found = PeerKeys { keys: vec![PeerKey { publication: publication(), age_us: 0 }], is_partial: false };
        let clients = vec![Arc::new(ClientInfo::of_user(content))];
        let error = ProxyError::Error { code: 400, message: content.into(), temporary: false };
        let respond = |outcome| Event::ProxyResponded { session, request_id: ProxyRequestId(1), outcome };
        let disconnect = ProxyError::Disconnect(Disconnect { code: 4000, reason: content.to_owned().into() });
        vec![
            ("claims of a connection", 7, Event::Authenticated { session, outcome: Ok(claims) }),
            ("claims of a subscription", 5, Event::SubscriptionAuthorized { session, outcome: Ok(of_channel) }),
            ("a response", 1, respond(Ok(ProxyResponse::Rpc { data: payload() }))),
            ("a grant", 2, respond(Ok(ProxyResponse::Subscribe(Box::new(grant()))))),
            ("a backend's error", 1, respond(Err(error))),
            ("a backend's disconnect", 1, respond(Err(disconnect))),
            ("a page", 1, Event::Loaded { channel: channel(), load: LoadNumber(1), outcome: Ok(Box::new(page)) }),
            ("a publication", 1, Event::Replicated { channel: channel(), record: Box::new(record()) }),
            (
                "a broadcast",
                1,
                Event::BroadcastReceived { channel: channel(), message: BroadcastMessage::Publication(publication()) },
            ),
            ("keys", 1, Event::KeysAnswered { channel: channel(), found }),
            (
                "presence",
                1,
                Event::PeersAnswered { query: PeerQueryNumber(1), outcome: Ok(ClusterPresence::Clients(clients)) },
            ),
            ("a count", 1, Event::UserSessionsElsewhere { user: content.into(), sessions: 1 }),
            ("a room's node", 1, Event::RoomQueried { channel: channel(), found: elsewhere }),
        ]
    }

    #[test]
    fn each_event_counts_what_it_carries() {
        let events = events_with("").into_iter().zip(events_with(&"x".repeat(1_000)));
        for ((what, places, small), (_, _, large)) in events {
            assert_eq!(large.queued_bytes() - small.queued_bytes(), places * 1_000, "{what}");
        }
    }

    #[test]
    fn no_content_is_kept_in_a_full_queue() {
        for (what, _, event) in events_with(&"x".repeat(1_000)) {
            // The names of nodes are bounded by the configuration.
            if what == "a room's node" {
                continue;
            }
            let bytes = event.for_full_queue().map_or(size_of::<Event<'_>>(), |left| left.queued_bytes());
            assert_eq!(bytes, size_of::<Event<'_>>(), "{what}");
        }
    }

    #[test]
    fn what_a_backend_decided_stays_in_a_full_queue() {
        let session = SessionKey { index: 0, generation: 1 };
        let queued = |outcome| {
            let event = Event::ProxyResponded { session, request_id: ProxyRequestId(1), outcome: Err(outcome) };
            match event.for_full_queue() {
                Some(Event::ProxyResponded { outcome: Err(error), .. }) => error,
                other => panic!("{other:?}"),
            }
        };
        let error = ProxyError::Error { code: 400, message: "no".into(), temporary: true };
        assert_eq!(queued(error), ProxyError::Error { code: 400, message: "".into(), temporary: true });
        let disconnect = ProxyError::Disconnect(Disconnect { code: 4000, reason: "go".into() });
        assert_eq!(queued(disconnect), ProxyError::Disconnect(Disconnect { code: 4000, reason: "".into() }));
    }

    #[test]
    fn presence_counts_its_clients() {
        let client = Arc::new(ClientInfo::of_user("anna"));
        let of = |clients: usize| {
            let clients = vec![Arc::clone(&client); clients];
            let outcome = Ok(ClusterPresence::Clients(clients));
            Event::PeersAnswered { query: PeerQueryNumber(1), outcome }
        };
        assert_eq!(of(3).queued_bytes() - of(0).queued_bytes(), 3 * (size_of::<ClientInfo>() + 4));
        assert!(matches!(
            of(3).for_full_queue(),
            Some(Event::PeersAnswered { outcome: Err(ErrorCode::TooManyRequests), .. })
        ));
    }
}
