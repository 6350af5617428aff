//! Bugs between the shards of a node, and between a shard and its caller, which tests plant to verify that the checks find
//! them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use dunlin_engine::{
    Event, Options, SessionKey,
    message::{Notice, ShardMessage, ShardRequest, Subscribed, SubscriptionRequest},
};
use dunlin_protocol::{EncodedPublications, Encoding};

/// A bug between the shards of a node, or between a shard and its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFlaw {
    /// A recovery lacks the first missed publication, and claims to be complete.
    RecoveryLosesFirst,
    /// A new subscriber is not sent the newest publication of the oldest key.
    KeyMissing,
    /// A recovery is answered with the encoded answer of another one that ended at the same publication.
    AnswerOfAnother,
    /// An owner is not notified of a session that ends before the owner's answer arrives.
    LateAnswerLeaks,
    /// A channel stores only the newest idempotency key.
    OneKeyRemembered,
    /// A session that waits for an owner's answer is listed twice when it has arrived.
    ListedTwice,
    /// The close frame of a slow session cuts off the frame that is partly written.
    SlowCloseCutsFrame,
}

/// What an encoded answer depends on, except where it begins: channel, epoch, last offset, encoding, and whether it has
/// patches.
type AnswerEnd = (Arc<str>, Box<str>, u64, Encoding, bool);

/// The planted bug, if any.
#[derive(Default)]
pub(super) struct NodeSeam {
    pub(super) flaw: Option<NodeFlaw>,
    /// The first encoded answer with each end.
    answers: HashMap<AnswerEnd, Arc<EncodedPublications>>,
    /// The session whose subscription the current event answers, and whether it is gone.
    answered: Option<(SessionKey, bool)>,
    /// Connections whose last write ended within a frame.
    cut: BTreeSet<usize>,
}

impl NodeSeam {
    /// What a shard receives of an event. `is_gone` tells whether a session of the shard is gone.
    pub(super) fn receive<'e>(&mut self, event: Event<'e>, is_gone: impl Fn(SessionKey) -> bool) -> Event<'e> {
        self.answered = match &event {
            Event::Message { message: ShardMessage::Notice(Notice::Subscribed { request, .. }), .. } => {
                let session = request.asker.session;
                Some((session, is_gone(session)))
            }
            _ => None,
        };
        match (self.flaw, event) {
            (Some(NodeFlaw::OneKeyRemembered), Event::Reconfigured { options }) => {
                let mut options = Options::clone(&options);
                options.channel.idempotent_results_max = 1;
                Event::Reconfigured { options: Arc::new(options) }
            }
            (_, event) => event,
        }
    }

    /// Changes the list of sessions with something to write.
    pub(super) fn list(&self, dirty: &mut Vec<SessionKey>) {
        if let (Some(NodeFlaw::ListedTwice), Some((session, _))) = (self.flaw, self.answered)
            && dirty.contains(&session)
        {
            dirty.push(session);
        }
    }

    /// A write to a connection has ended, within a frame or behind one.
    pub(super) fn note_cut(&mut self, connection: usize, is_cut: bool) {
        self.cut.remove(&connection);
        if is_cut && self.flaw == Some(NodeFlaw::SlowCloseCutsFrame) {
            self.cut.insert(connection);
        }
    }

    /// How many of the first `bytes` bytes of a write do not reach the connection.
    pub(super) fn lose(&mut self, connection: usize, is_slow: bool, bytes: usize) -> usize {
        if is_slow && self.cut.remove(&connection) { bytes } else { 0 }
    }

    /// What other shards receive of a message.
    pub(super) fn pass(&mut self, mut message: ShardMessage) -> Option<ShardMessage> {
        let Some(flaw) = self.flaw else { return Some(message) };
        match &mut message {
            ShardMessage::Request(ShardRequest::Unsubscribe { .. })
                if flaw == NodeFlaw::LateAnswerLeaks && self.answered.is_some_and(|(_, is_gone)| is_gone) =>
            {
                return None;
            }
            ShardMessage::Notice(Notice::Subscribed { request, outcome: Ok(subscribed) })
                if !subscribed.publications.is_empty() =>
            {
                self.spoil(flaw, request, subscribed);
            }
            _ => {}
        }
        Some(message)
    }

    fn spoil(&mut self, flaw: NodeFlaw, request: &SubscriptionRequest, subscribed: &mut Subscribed) {
        match flaw {
            NodeFlaw::RecoveryLosesFirst if subscribed.recovered => lose_first(subscribed),
            NodeFlaw::KeyMissing if !subscribed.recovered => lose_first(subscribed),
            NodeFlaw::AnswerOfAnother => {
                let (Some(encoded), Some(last)) = (&subscribed.encoded, subscribed.publications.last()) else { return };
                let class = request.subscriber.class;
                let end = (
                    Arc::clone(&request.channel),
                    subscribed.epoch.clone(),
                    last.offset,
                    class.wire.encoding(),
                    class.delta,
                );
                let first = self.answers.entry(end).or_insert_with(|| Arc::clone(encoded));
                subscribed.encoded = Some(Arc::clone(first));
            }
            _ => {}
        }
    }
}

fn lose_first(subscribed: &mut Subscribed) {
    subscribed.publications.remove(0);
    if !subscribed.patches.is_empty() {
        subscribed.patches.remove(0);
    }
    // The shared encoding still contains it.
    subscribed.encoded = None;
}
