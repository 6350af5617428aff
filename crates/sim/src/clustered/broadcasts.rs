//! What was published without an offset, and what clients have seen of it: never twice by one subscription, and in the
//! order of each publisher.

use std::collections::{BTreeMap, BTreeSet};

use crate::logged::{BroadcastKind, SeenBroadcast};

/// Who has published: the API on a node, or a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BroadcastSource {
    Node(usize),
    /// On a node: a client that moves is another publisher.
    Client {
        number: usize,
        place: usize,
    },
}

/// Something that was published.
#[derive(Clone, Copy, Debug)]
pub struct SentBroadcast {
    /// Rises with each publication.
    pub number: u64,
    pub source: BroadcastSource,
    pub sent_us: u64,
}

/// A subscription: of which client, and which of its own.
type SubscriptionId = (usize, u64);

/// All that was published and seen without an offset.
#[derive(Default)]
pub struct BroadcastTruth {
    sent: BTreeMap<(String, Vec<u8>), SentBroadcast>,
    /// By subscription and source.
    newest: BTreeMap<(SubscriptionId, BroadcastSource), u64>,
    seen: BTreeSet<(SubscriptionId, u64)>,
    /// Since when there is a subscription, and what was published last before.
    since: BTreeMap<SubscriptionId, (u64, u64)>,
    /// By subscription and client id: joins less leaves, since the subscription began.
    here: BTreeMap<(SubscriptionId, String), i32>,
    /// Joins and leaves that a subscription has seen.
    pub announced: BTreeMap<SubscriptionId, (u64, u64)>,
}

impl BroadcastTruth {
    /// Something is published.
    pub fn on_sent(&mut self, channel: &str, data: &[u8], number: u64, source: BroadcastSource, sent_us: u64) {
        self.sent.insert((channel.to_owned(), data.to_vec()), SentBroadcast { number, source, sent_us });
    }

    /// A subscription is there. `published` is the number of the newest publication.
    pub fn on_subscribed(&mut self, client: usize, period: u64, now_us: u64, published: u64) {
        self.since.entry((client, period)).or_insert((now_us, published));
    }

    /// A client has seen something. `is_calm` says that nothing is lost.
    ///
    /// # Errors
    /// If it was not published, or comes twice or out of order.
    pub fn on_seen(&mut self, client: usize, seen: SeenBroadcast, is_calm: bool) -> Result<(), String> {
        let SeenBroadcast { channel, period, what } = seen;
        let subscription = (client, period);
        match what {
            BroadcastKind::Publication(data) => self.check_publication(subscription, &channel, data),
            BroadcastKind::Join(id) => {
                self.announced.entry(subscription).or_default().0 += 1;
                self.check_announced(subscription, &channel, id, 1, is_calm)
            }
            BroadcastKind::Leave(id) => {
                self.announced.entry(subscription).or_default().1 += 1;
                self.check_announced(subscription, &channel, id, -1, is_calm)
            }
        }
    }

    fn check_publication(&mut self, subscription: SubscriptionId, channel: &str, data: Vec<u8>) -> Result<(), String> {
        let text = String::from_utf8_lossy(&data).into_owned();
        let Some(sent) = self.sent.get(&(channel.to_owned(), data)) else {
            return Err(format!("{channel}: {text} is seen and was not published without an offset"));
        };
        let newest = self.newest.entry((subscription, sent.source)).or_default();
        if sent.number <= *newest {
            let (client, newest) = (subscription.0, *newest);
            return Err(format!(
                "{channel}: client {client} sees {text} of {:?} again or behind {newest}",
                sent.source
            ));
        }
        *newest = sent.number;
        self.seen.insert((subscription, sent.number));
        Ok(())
    }

    /// Joins and leaves of a client take turns, where none is lost.
    fn check_announced(
        &mut self,
        subscription: SubscriptionId,
        channel: &str,
        id: String,
        step: i32,
        is_calm: bool,
    ) -> Result<(), String> {
        let here = self.here.entry((subscription, id)).or_default();
        // The first may be a leave: the client was there before the subscription.
        let twice = *here == step;
        *here = step;
        if twice && is_calm {
            return Err(format!("{channel}: client {} sees a join or a leave twice", subscription.0));
        }
        Ok(())
    }

    /// Whether a subscription has seen all that was published in its channel since it was answered, if that was at
    /// `calm_from_us` or later, and otherwise since `settle_us` later.
    ///
    /// # Errors
    /// The first publication that is missing.
    pub fn check_complete(
        &self,
        client: usize,
        period: u64,
        channel: &str,
        (calm_from_us, settle_us): (u64, u64),
    ) -> Result<usize, String> {
        let Some((since_us, published)) = self.since.get(&(client, period)).copied() else { return Ok(0) };
        let must_be_seen = |sent: &&SentBroadcast| {
            let is_later = since_us >= calm_from_us && sent.number > published && sent.sent_us >= since_us;
            is_later || sent.sent_us >= since_us + settle_us
        };
        let of_channel = self.sent.iter().filter(|((of, _), _)| of == channel).map(|(_, sent)| sent);
        let mut complete = 0;
        for sent in of_channel.filter(must_be_seen) {
            if !self.seen.contains(&((client, period), sent.number)) {
                return Err(format!(
                    "{channel}: client {client} has not seen publication {} of {:?} without an offset",
                    sent.number, sent.source
                ));
            }
            complete += 1;
        }
        Ok(complete)
    }

    /// Forgets what was published: what a fault has lost is not missed.
    pub fn forget_sent_before(&mut self, now_us: u64) {
        for sent in self.sent.values_mut().filter(|sent| sent.sent_us < now_us) {
            sent.sent_us = 0;
        }
    }
}
