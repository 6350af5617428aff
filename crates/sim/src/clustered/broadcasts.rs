//! The reference model of broadcasts, which are publications without an offset. A subscription receives each broadcast
//! at most once, and in the order of its publisher.

use std::collections::{BTreeMap, BTreeSet};

use crate::logged::{BroadcastKind, SeenBroadcast};

/// The publisher of a broadcast: the API on a node, or a client. Its messages have an order as long as the node runs: a late
/// one of a node that crashed may arrive behind those of its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BroadcastSource {
    Node { run: u64 },
    Client { number: usize, run: u64 },
}

/// A broadcast that was published.
#[derive(Clone, Copy, Debug)]
pub struct SentBroadcast {
    /// Increases with each publication.
    pub number: u64,
    pub source: BroadcastSource,
    pub sent_us: u64,
}

/// A subscription: the client and the number of its subscription.
type SubscriptionId = (usize, u64);

/// All broadcasts that were published and received.
#[derive(Default)]
pub struct BroadcastModel {
    sent: BTreeMap<(String, Vec<u8>), SentBroadcast>,
    /// The newest received broadcast, by subscription and source.
    newest: BTreeMap<(SubscriptionId, BroadcastSource), u64>,
    seen: BTreeSet<(SubscriptionId, u64)>,
    /// When each subscription started, and the number of the last publication before.
    since: BTreeMap<SubscriptionId, (u64, u64)>,
    /// By subscription and client id: 1 if the last message was a join, and -1 if it was a leave.
    here: BTreeMap<(SubscriptionId, String), i32>,
    /// The number of joins and leaves that each subscription received.
    pub announced: BTreeMap<SubscriptionId, (u64, u64)>,
}

impl BroadcastModel {
    /// Records a broadcast.
    pub fn on_sent(&mut self, channel: &str, data: &[u8], number: u64, source: BroadcastSource, sent_us: u64) {
        self.sent.insert((channel.to_owned(), data.to_vec()), SentBroadcast { number, source, sent_us });
    }

    /// Records the start of a subscription. `published` is the number of the newest publication.
    pub fn on_subscribed(&mut self, client: usize, period: u64, now_us: u64, published: u64) {
        self.since.entry((client, period)).or_insert((now_us, published));
    }

    /// Checks and records a message that a client received. If `is_calm` is set, no message may be lost.
    ///
    /// # Errors
    /// If it was not published, or is duplicated or out of order.
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
            return Err(format!("{channel}: {text} is received, but was not published without an offset"));
        };
        let newest = self.newest.entry((subscription, sent.source)).or_default();
        if sent.number <= *newest {
            let (client, newest) = (subscription.0, *newest);
            return Err(format!(
                "{channel}: client {client} receives {text} of {:?} again or after {newest}",
                sent.source
            ));
        }
        *newest = sent.number;
        self.seen.insert((subscription, sent.number));
        Ok(())
    }

    /// Checks that joins and leaves of a client alternate if none is lost.
    fn check_announced(
        &mut self,
        subscription: SubscriptionId,
        channel: &str,
        id: String,
        step: i32,
        is_calm: bool,
    ) -> Result<(), String> {
        let here = self.here.entry((subscription, id)).or_default();
        // The first message may be a leave, because the client may have joined before the subscription started.
        let twice = *here == step;
        *here = step;
        if twice && is_calm {
            return Err(format!("{channel}: client {} receives two joins or two leaves in a row", subscription.0));
        }
        Ok(())
    }

    /// Checks that a subscription received all broadcasts of its channel, and returns their number. If the subscription
    /// started at `calm_from_us` or later, all broadcasts since then count. Otherwise only those count that were sent
    /// `settle_us` later.
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
                    "{channel}: client {client} did not receive broadcast {} of {:?}",
                    sent.number, sent.source
                ));
            }
            complete += 1;
        }
        Ok(complete)
    }

    /// Excludes earlier broadcasts from [`check_complete`](Self::check_complete), because faults may have lost them.
    pub fn forget_sent_before(&mut self, now_us: u64) {
        for sent in self.sent.values_mut().filter(|sent| sent.sent_us < now_us) {
            sent.sent_us = 0;
        }
    }
}
