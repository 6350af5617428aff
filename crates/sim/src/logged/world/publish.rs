//! Requests of the application and of other nodes, and checks of the replies.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_engine::{
    Event,
    api::{ApiAnswer, ApiRequest, ApiResult, HistoryQuery},
    backend::PublishHow,
    event::Ticket,
    log::{LogRecord, LogTerms},
};
use dunlin_protocol::{ErrorCode, Payload, Publication, Tags};

use crate::{
    harness::PromptWorld as _,
    logged::{ChannelTruth, SeenKeys, keyed_data},
};

use super::{CHANNELS, LoggedWorld, ORDERED_BY_LOG, PendingRequest};

const KEYS: [&str; 3] = ["k0", "k1", "k2"];

impl LoggedWorld<'_> {
    /// Publishes through the API, sometimes with an idempotency key.
    pub(super) fn publish(&mut self) -> Result<(), String> {
        for _ in 0..self.harness.chance.between(1, 5) {
            let channel = *self.harness.chance.pick(&CHANNELS);
            let key = self.harness.chance.percent(25).then(|| *self.harness.chance.pick(&KEYS));
            let (data, tags) = self.next_keyed_data();
            let payload = Payload::from_json(Bytes::from(data.clone()));
            let how = PublishHow { idempotency_key: key.map(Box::from), tags, ..PublishHow::default() };
            let request = ApiRequest::Publish { channel: channel.into(), data: payload, how };
            self.call_api(channel, request, PendingRequest::Publish { data, key })?;
        }
        Ok(())
    }

    fn call_api(&mut self, channel: &'static str, request: ApiRequest, pending: PendingRequest) -> Result<(), String> {
        self.tickets += 1;
        self.requests.insert(self.tickets, (channel, pending));
        self.handle(self.node.owner(channel), Event::Api { ticket: Ticket(self.tickets), request })
    }

    pub(super) fn on_api_reply(&mut self, ticket: Ticket, answer: &ApiResult) -> Result<(), String> {
        let (channel, pending) = self.requests.remove(&ticket.0).ok_or("a reply to an unknown request")?;
        let may_reject = self.may_reject();
        match (pending, answer) {
            (PendingRequest::Publish { data, key }, Ok(ApiAnswer::Published { offset, .. })) => {
                self.check_acknowledged(channel, &data, key, *offset)
            }
            (pending, Err(ErrorCode::Internal | ErrorCode::TooManyRequests)) if may_reject => {
                self.harness.count("request rejected");
                if let PendingRequest::Remove { .. } = pending {
                    self.note_removed(channel);
                    self.removals -= 1;
                    self.keys_may_be_gone();
                }
                Ok(())
            }
            (PendingRequest::History { query, top }, Ok(ApiAnswer::History { publications, is_cut: false, .. })) => {
                self.harness.count("history");
                self.check_history(channel, publications)?;
                self.check_whole(channel, &query, top, publications)
            }
            (PendingRequest::Remove { through }, Ok(ApiAnswer::Done { .. })) => {
                self.removals -= 1;
                self.harness.count("history removed");
                let gone = self.gone.entry(channel).or_default();
                *gone = through.max(*gone);
                self.keys_may_be_gone();
                Ok(())
            }
            (_, answer) => Err(format!("{answer:?}")),
        }
    }

    /// Checks that a history has committed publications without gaps, in either direction.
    fn check_history(&self, channel: &str, publications: &[Arc<Publication>]) -> Result<(), String> {
        let empty = ChannelTruth::default();
        let truth = self.truth.get(channel).unwrap_or(&empty);
        let gone = self.gone.get(channel).copied().unwrap_or(0);
        for publication in publications {
            truth.check(channel, publication.offset, publication.data.bytes())?;
            if publication.offset <= gone {
                return Err(format!("{channel}: {} is back after its removal was acknowledged", publication.offset));
            }
        }
        let mut offsets: Vec<u64> = publications.iter().map(|publication| publication.offset).collect();
        if offsets.first() > offsets.last() {
            offsets.reverse();
        }
        match offsets.windows(2).find(|pair| truth.next(pair[0]) != Some(pair[1])) {
            Some(pair) => Err(format!("{channel}: {} follows {} in a history, which is a gap", pair[1], pair[0])),
            None => Ok(()),
        }
    }

    /// Checks that a history has everything that was asked for: it begins where it was to begin, and has the requested
    /// number of publications, or all.
    fn check_whole(
        &self,
        channel: &'static str,
        query: &HistoryQuery,
        top: u64,
        publications: &[Arc<Publication>],
    ) -> Result<(), String> {
        // A removal that fails later may have removed from memory what the log keeps.
        if self.removals > 0 && self.log.fails() {
            return Ok(());
        }
        let Some(truth) = self.truth.get(channel) else { return Ok(()) };
        let floor = self.log.kept(channel).0.max(self.removed.get(channel).copied().unwrap_or(0));
        let since = query.since.as_ref().map(|(offset, _)| *offset);
        let is_in_range = |offset: u64| match since {
            Some(since) if query.reverse => offset < since,
            Some(since) => offset > since,
            None => true,
        };
        // Publications that were committed meanwhile may be in the answer.
        let expected = truth.data.keys().copied().filter(|offset| (floor + 1..=top).contains(offset));
        let mut expected: Vec<u64> = expected.filter(|offset| is_in_range(*offset)).collect();
        if query.reverse {
            expected.reverse();
        }
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        if limit == 0 {
            expected.clear();
        }
        let found: Vec<u64> = publications.iter().map(|publication| publication.offset).collect();
        let is_outside = |offset: &u64| !is_in_range(*offset);
        let missing = expected.iter().find(|offset| !found.contains(offset)).filter(|missing| {
            let is_beyond = |last: &u64| if query.reverse { *missing < last } else { *missing > last };
            !(found.len() >= limit && found.last().is_some_and(is_beyond))
        });
        match (missing, found.iter().find(|offset| is_outside(offset))) {
            _ if found.len() > limit => Err(format!("{channel}: more than {limit} publications in a history")),
            (Some(missing), _) => {
                Err(format!("{channel}: {missing} is missing in the history of {query:?}: {found:?}"))
            }
            (None, Some(outside)) => Err(format!("{channel}: {outside} is in the history of {query:?}")),
            (None, None) => Ok(()),
        }
    }

    /// Notes that the present publications of a channel may be missing from now on.
    pub(super) fn note_removed(&mut self, channel: &'static str) {
        let top = self.truth.get(channel).map_or(0, ChannelTruth::top);
        self.removed.insert(channel, top);
    }

    /// Checks that an acknowledged publication, or an earlier one with its key, is committed.
    fn check_acknowledged(
        &mut self,
        channel: &str,
        data: &[u8],
        key: Option<&'static str>,
        offset: u64,
    ) -> Result<(), String> {
        let known = self.truth.get(channel);
        let Some(committed) = known.and_then(|truth| truth.data.get(&offset)) else {
            return Err(format!("{channel}: {offset} is acknowledged, but not committed"));
        };
        if **committed == *data {
            return Ok(());
        }
        let same_key = key.and_then(|key| known?.uses_of(key).iter().find(|known| known.offset == offset));
        let Some(earlier) = same_key else {
            return Err(format!("{channel}: {offset} is another publication"));
        };
        let is_across_crash = earlier.crashes < self.log.crashes();
        self.harness.count(if is_across_crash { "published once across a crash" } else { "published once" });
        Ok(())
    }

    /// Publishes through another node of the cluster.
    pub(super) fn publish_through_other_node(&mut self) {
        let channel = *self.harness.chance.pick(&CHANNELS);
        if !channel.starts_with(ORDERED_BY_LOG) {
            return;
        }
        self.harness.count("published by another node");
        let (data, tags) = self.next_keyed_data();
        let (data, epoch) = (Payload::from_json(data.into()), Box::default());
        let publication = Arc::new(Publication { data, info: None, offset: 0, tags, time_ms: 0, epoch, version: 0 });
        let record = LogRecord { publication, version_epoch: Box::default(), idempotency_key: None };
        let terms = self.terms(channel);
        self.log.publish_through_other_node(self.harness.now_us, channel, record, terms, &mut self.truth);
    }

    fn terms(&self, channel: &str) -> LogTerms {
        let namespace = channel.split(':').next().unwrap_or_default();
        let options = self.node.options.namespaces.iter().find(|options| options.name == namespace);
        options.expect("each channel has a namespace").log_terms()
    }

    fn next_keyed_data(&mut self) -> (Vec<u8>, Tags) {
        self.published += 1;
        keyed_data(self.published)
    }

    /// Keys of publications up to now may be missing in later replies.
    pub(super) fn keys_may_be_gone(&mut self) {
        for truth in self.truth.values_mut() {
            truth.keys_gone_through = truth.top();
        }
    }

    /// Checks a subscribe reply with the newest publications of keys. While a history is being removed, keys may be
    /// missing.
    pub(super) fn check_keys(&mut self, seen: &SeenKeys) -> Result<(), String> {
        let Some(truth) = self.truth.get(&seen.channel) else { return Ok(()) };
        let is_removing = self.removals > 0;
        let (kept_after, _) = self.log.kept(&seen.channel);
        let floor = if is_removing { u64::MAX } else { kept_after.max(truth.keys_gone_through) };
        seen.check(truth, floor)?;
        self.harness.count("newest of keys");
        Ok(())
    }

    pub(super) fn request_history(&mut self) -> Result<(), String> {
        let channel = *self.harness.chance.pick(&CHANNELS);
        // What is stored and not yet known to the node need not be in the answer.
        let top = self.told.get(channel).copied().unwrap_or(0);
        let limit = *self.harness.chance.pick(&[-1, 0, 1, 3, 12]);
        let since = self.harness.chance.percent(60).then(|| (self.harness.chance.between(1, top + 1), Box::default()));
        let query = HistoryQuery { limit, since, reverse: self.harness.chance.percent(50), bytes_max: None };
        let pending = PendingRequest::History { query: query.clone(), top };
        self.call_api(channel, ApiRequest::History { channel: channel.into(), query }, pending)
    }

    pub(super) fn remove_history(&mut self) -> Result<(), String> {
        if !self.harness.chance.percent(20) {
            return Ok(());
        }
        let channel = *self.harness.chance.pick(&CHANNELS);
        self.note_removed(channel);
        self.removals += 1;
        let through = self.told.get(channel).copied().unwrap_or(0);
        let pending = PendingRequest::Remove { through };
        self.call_api(channel, ApiRequest::HistoryRemove { channel: channel.into() }, pending)
    }
}
