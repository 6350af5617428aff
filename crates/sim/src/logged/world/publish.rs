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
use dunlin_protocol::{ErrorCode, Payload, Publication};

use crate::logged::ChannelTruth;

use super::{CHANNELS, LoggedWorld, ORDERED_BY_LOG, PendingPublish};

const KEYS: [&str; 3] = ["k0", "k1", "k2"];

impl LoggedWorld<'_> {
    /// Publishes through the API, sometimes with an idempotency key.
    pub(super) fn publish(&mut self) -> Result<(), String> {
        for _ in 0..self.chance.between(1, 5) {
            let channel = *self.chance.pick(&CHANNELS);
            let key = self.chance.percent(25).then(|| *self.chance.pick(&KEYS));
            let data = self.next_data();
            let payload = Payload::from_json(Bytes::from(data.clone()));
            let how = PublishHow { idempotency_key: key.map(Box::from), ..PublishHow::default() };
            let request = ApiRequest::Publish { channel: channel.into(), data: payload, how };
            self.call_api(channel, request, Some(PendingPublish { data, key }))?;
        }
        Ok(())
    }

    fn call_api(
        &mut self,
        channel: &'static str,
        request: ApiRequest,
        publish: Option<PendingPublish>,
    ) -> Result<(), String> {
        self.tickets += 1;
        self.requests.insert(self.tickets, (channel, publish));
        self.handle(self.owner(channel), Event::Api { ticket: Ticket(self.tickets), request })
    }

    pub(super) fn on_api_reply(&mut self, ticket: Ticket, answer: &ApiResult) -> Result<(), String> {
        let (channel, publish) = self.requests.remove(&ticket.0).ok_or("a reply to an unknown request")?;
        let may_reject = self.may_reject();
        match (publish, answer) {
            (Some(publish), Ok(ApiAnswer::Published { offset, .. })) => {
                self.check_acknowledged(channel, publish, *offset)
            }
            (_, Err(ErrorCode::Internal | ErrorCode::TooManyRequests)) if may_reject => {
                self.count("request rejected");
                Ok(())
            }
            (None, Ok(ApiAnswer::History { publications, .. })) => {
                self.count("history");
                self.check_history(channel, publications)
            }
            (None, Ok(ApiAnswer::Done { .. })) => Ok(()),
            (_, answer) => Err(format!("{answer:?}")),
        }
    }

    /// Checks that a history has committed publications without gaps, in either direction.
    fn check_history(&self, channel: &str, publications: &[Arc<Publication>]) -> Result<(), String> {
        let empty = ChannelTruth::default();
        let truth = self.truth.get(channel).unwrap_or(&empty);
        for publication in publications {
            truth.check(channel, publication.offset, publication.data.bytes())?;
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

    /// Checks that an acknowledged publication, or an earlier one with its key, is committed.
    fn check_acknowledged(&mut self, channel: &str, publish: PendingPublish, offset: u64) -> Result<(), String> {
        let PendingPublish { data, key } = publish;
        let known = self.truth.get(channel);
        let Some(committed) = known.and_then(|truth| truth.data.get(&offset)) else {
            return Err(format!("{channel}: {offset} is acknowledged, but not committed"));
        };
        if *committed == data {
            return Ok(());
        }
        let same_key = key.and_then(|key| known?.uses_of(key).iter().find(|known| known.offset == offset));
        let Some(earlier) = same_key else {
            return Err(format!("{channel}: {offset} is another publication"));
        };
        let is_across_crash = earlier.crashes < self.log.crashes();
        self.count(if is_across_crash { "published once across a crash" } else { "published once" });
        Ok(())
    }

    /// Publishes through another node of the cluster.
    pub(super) fn publish_through_other_node(&mut self) {
        let channel = *self.chance.pick(&CHANNELS);
        if !channel.starts_with(ORDERED_BY_LOG) {
            return;
        }
        self.count("published by another node");
        let data = Payload::from_json(self.next_data().into());
        let (tags, epoch) = (Vec::new(), Box::default());
        let publication = Arc::new(Publication { data, info: None, offset: 0, tags, time_ms: 0, epoch });
        let record = LogRecord { publication, version: 0, version_epoch: Box::default(), idempotency_key: None };
        let terms = self.terms(channel);
        self.log.publish_through_other_node(self.now_us, channel, record, terms, &mut self.truth);
    }

    fn terms(&self, channel: &str) -> LogTerms {
        let namespace = channel.split(':').next().unwrap_or_default();
        let options = self.options.namespaces.iter().find(|options| options.name == namespace);
        options.expect("each channel has a namespace").log_terms()
    }

    pub(super) fn request_history(&mut self) -> Result<(), String> {
        let channel = *self.chance.pick(&CHANNELS);
        let query = HistoryQuery { limit: -1, reverse: self.chance.percent(50), ..HistoryQuery::default() };
        self.call_api(channel, ApiRequest::History { channel: channel.into(), query }, None)
    }

    pub(super) fn remove_history(&mut self) -> Result<(), String> {
        if !self.chance.percent(20) {
            return Ok(());
        }
        let channel = *self.chance.pick(&CHANNELS);
        self.call_api(channel, ApiRequest::HistoryRemove { channel: channel.into() }, None)
    }
}
