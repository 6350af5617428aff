//! Requests of the application to the server API, and checks of the replies.

use bytes::Bytes;
use dunlin_engine::{
    Event, Refused,
    api::{ApiAnswer, ApiRequest, ApiResult, HistoryQuery},
    backend::PublishHow,
    event::Ticket,
};
use dunlin_protocol::{ErrorCode, Payload};

use crate::{harness::PromptWorld as _, logged::ChannelTruth};

use super::{CHANNELS, ClusteredWorld, KEYS, PendingPublish};

impl ClusteredWorld {
    /// Publishes through random nodes, sometimes with an idempotency key or a version.
    pub(super) fn publish(&mut self) -> Result<(), String> {
        for _ in 0..self.harness.chance.between(1, 4) {
            let node = self.harness.chance.below(self.nodes.len());
            let channel = *self.harness.chance.pick(&CHANNELS);
            let key = self.harness.chance.percent(20).then(|| *self.harness.chance.pick(&KEYS));
            let data = self.next_data();
            let payload = Payload::from_json(Bytes::from(data.clone()));
            let is_versioned = key.is_none() && self.harness.chance.percent(15);
            let version = if is_versioned { self.published } else { 0 };
            let how = PublishHow { idempotency_key: key.map(Box::from), version, ..PublishHow::default() };
            let request = ApiRequest::Publish { channel: channel.into(), data: payload, how };
            self.call_api(
                node,
                request,
                Some(PendingPublish { channel: channel.to_owned(), data, key, is_versioned, is_broadcast: false }),
            )?;
        }
        Ok(())
    }

    pub(super) fn call_api(
        &mut self,
        node: usize,
        request: ApiRequest,
        publish: Option<PendingPublish>,
    ) -> Result<(), String> {
        self.tickets += 1;
        self.requests.insert(self.tickets, (node, publish));
        self.handle(node, Event::Api { ticket: Ticket(self.tickets), request })
    }

    pub(super) fn on_api_reply(&mut self, ticket: Ticket, answer: &ApiResult) -> Result<(), String> {
        if self.on_query_reply(ticket, answer)? {
            return Ok(());
        }
        // Before the request itself is gone.
        self.review_unanswered_keys();
        let (_, publish) = self.requests.remove(&ticket.0).ok_or("a reply to an unknown request")?;
        match (publish, answer) {
            (Some(publish), Ok(ApiAnswer::Published { offset, .. })) => self.check_acknowledged(publish, *offset),
            (_, Err(Refused { code: ErrorCode::Internal | ErrorCode::TooManyRequests, .. })) if !self.is_calm => {
                self.harness.count("request rejected");
                Ok(())
            }
            (None, Ok(ApiAnswer::History { .. })) => {
                self.harness.count("history");
                Ok(())
            }
            (None, Ok(ApiAnswer::Done { .. })) => Ok(()),
            (_, answer) => Err(format!("{answer:?}")),
        }
    }

    /// Checks that an acknowledged publication is stored, and that each idempotency key has one publication in the
    /// cluster.
    fn check_acknowledged(&mut self, publish: PendingPublish, offset: u64) -> Result<(), String> {
        let PendingPublish { channel, data, key, is_versioned, is_broadcast } = publish;
        if is_broadcast {
            return if offset == 0 { Ok(()) } else { Err(format!("{channel}: a broadcast has the offset {offset}")) };
        }
        if is_versioned {
            self.harness.count("versioned");
        }
        let is_lost = |truth: &ChannelTruth| truth.lost.iter().any(|(lost, _)| *lost == offset);
        if self.truth.get(&channel).is_some_and(is_lost) {
            return Ok(());
        }
        let committed = self.truth.get(&channel).and_then(|truth| truth.data.get(&offset));
        let Some(committed) = committed else {
            return Err(format!("{channel}: {offset} is acknowledged, but not stored"));
        };
        let Some(key) = key else {
            let is_same = is_versioned || *committed == data;
            return if is_same { Ok(()) } else { Err(format!("{channel}: {offset} is another publication")) };
        };
        match self.idempotency.record((channel.clone(), key), offset) {
            Some(earlier) if earlier != offset => {
                Err(format!("{channel}: publications with the key {key} are at {earlier} and at {offset}"))
            }
            Some(_) => {
                self.harness.count("published once");
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn request_history(&mut self) -> Result<(), String> {
        let (node, channel) = (self.harness.chance.below(self.nodes.len()), *self.harness.chance.pick(&CHANNELS));
        let query = HistoryQuery { limit: -1, reverse: self.harness.chance.percent(50), ..HistoryQuery::default() };
        self.call_api(node, ApiRequest::History { channel: channel.into(), query }, None)
    }

    pub(super) fn remove_history(&mut self) -> Result<(), String> {
        if !self.removes_history {
            return Ok(());
        }
        let (node, channel) = (self.harness.chance.below(self.nodes.len()), *self.harness.chance.pick(&CHANNELS));
        self.harness.count("history removed");
        self.call_api(node, ApiRequest::HistoryRemove { channel: channel.into() }, None)
    }
}
