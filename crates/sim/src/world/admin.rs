//! Requests of operators to the server API, and checks of the replies. Operators also add and remove namespaces and
//! shorten histories: each shard gets the new options at a different time, and other namespaces must not be affected.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_engine::{
    Event, Refused, ShardIndex,
    api::{ApiAnswer, ApiRequest, HistoryQuery, SessionFilter},
    backend::PublishHow,
    event::{ServerSubscription, SubscriptionGrant},
    message::{Notice, ShardMessage},
    options::{Lane, NamespaceOptions},
    pace::{PaceChange, UpdatePace},
};
use dunlin_protocol::{Disconnect, ErrorCode, Payload, UnsubscribeCode};

use crate::{
    checks::check_history,
    client::OperatorAction,
    wire::{ClientPosition, HistoryBody, PublicationBody},
};

use super::NodeWorld;

/// Number of namespaces that are added and removed. Clients do not use them.
const LATE_NAMES: usize = 6;

/// The fewest updates per second of a pace: what waits for a turn arrives before a world is at rest.
const PACE_MIN: f64 = 20.0;

impl NodeWorld {
    /// Runs a random action of an operator.
    pub(super) fn run_operator_action(&mut self) -> Result<(), String> {
        if self.plan.rooms.is_some() && self.harness.chance.percent(6) {
            return self.run_room_operator_action();
        }
        if self.harness.chance.percent(3) {
            return self.reconfigure();
        }
        let channel = self.plan.channel(&mut self.harness.chance).clone();
        match self.harness.chance.weighted(&[60, 15, 8, 2, 3, 4, 4, 3, 1, 3]) {
            0 => self.publish_with_options(&channel),
            1 => (0..self.harness.chance.between(2, 25)).try_for_each(|_| self.publish_with_options(&channel)),
            2 => self.read_history(&channel),
            3 => self.remove_history(&channel),
            4 => self.disconnect(),
            5 => self.unsubscribe(),
            6 => self.subscribe(&channel),
            7 => self.refresh(),
            9 => self.change_pace(&channel),
            _ => self.lose_positions(&channel),
        }
    }

    fn random_channel(&mut self) -> String {
        let channels: Vec<String> = self.plan.all_channels().collect();
        self.harness.chance.pick(&channels).clone()
    }

    pub(super) fn channels_are_few(&self) -> bool {
        self.plan.options.channel.channels_max < 1_000
    }

    /// Records that the API returned `epoch`, and checks that an earlier epoch that is still in use was not replaced.
    pub(super) fn record_epoch(&mut self, channel: &str, epoch: &str) -> Result<(), String> {
        let (now_us, published) = (self.harness.now_us, self.model.published.len() as u64);
        let facts = self.model.channel_mut(channel).ok_or("an unknown channel")?;
        facts.record_use(epoch, now_us);
        if facts.epoch.as_deref() != Some(epoch) {
            facts.epoch_from = published;
        }
        let Some(earlier) = facts.epoch.replace(epoch.to_owned()).filter(|earlier| earlier != epoch) else {
            return Ok(());
        };
        if facts.is_alive(&earlier, now_us) {
            return Err(format!("{channel}: epoch {earlier} is still in use, but became {epoch}"));
        }
        Ok(())
    }

    /// Reads and checks the history of a channel. Returns its epoch and top offset, if it has a history.
    pub(super) fn history(
        &mut self,
        channel: &str,
        limit: i32,
        since: Option<ClientPosition>,
        reverse: bool,
    ) -> Result<Option<(String, u64)>, String> {
        let query = HistoryQuery {
            limit,
            since: since.as_ref().map(|position| (position.offset, position.epoch.as_str().into())),
            reverse,
            bytes_max: None,
        };
        let answer = self.call_api(self.node.owner(channel), ApiRequest::History { channel: channel.into(), query })?;
        let has_stream = self
            .model
            .channel(channel)
            .is_some_and(|facts| facts.rules.as_ref().is_some_and(|rules| rules.history_size > 0));
        let is_stale = || since.as_ref().is_some_and(|position| !position.epoch.is_empty());
        let result = match answer.map_err(|refused| refused.code) {
            Ok(ApiAnswer::History { publications, epoch, offset, .. }) if has_stream => HistoryBody {
                publications: publications.iter().map(|publication| body(publication)).collect(),
                epoch: epoch.into(),
                offset,
            },
            Err(ErrorCode::NotAvailable) if !has_stream => return Ok(None),
            Err(ErrorCode::LimitExceeded) if self.channels_are_few() => return Ok(None),
            Err(ErrorCode::UnrecoverablePosition) if is_stale() => return Ok(None),
            Err(ErrorCode::BadRequest) if reverse && since.is_some_and(|since| since.offset == 0) => return Ok(None),
            other => return Err(format!("unexpected reply to a history request: {other:?}")),
        };
        let asked = (limit, since.as_ref(), reverse);
        let facts = self.model.channel(channel).ok_or("an unknown channel")?;
        let retained = self.model.retained(facts, &result.epoch, result.offset, self.harness.unix_ms());
        let removed = facts.removed.as_ref().filter(|(epoch, _)| *epoch == result.epoch).map_or(0, |(_, top)| *top);
        if result.publications.iter().any(|publication| publication.offset <= removed) {
            return Err(format!("{channel}: publications up to {removed} were removed, but are returned again"));
        }
        check_history(&mut self.model, channel, asked, &result, retained)?;
        self.record_epoch(channel, &result.epoch)?;
        let facts = self.model.channel(channel).ok_or("an unknown channel")?;
        if facts.tops.get(&result.epoch).is_some_and(|&top| top > result.offset) {
            return Err(format!("{channel}: the top offset decreased to {}", result.offset));
        }
        Ok(Some((result.epoch, result.offset)))
    }

    fn read_history(&mut self, channel: &str) -> Result<(), String> {
        let limit = *self.harness.chance.pick(&[0, 1, 3, -1, i32::MAX]);
        let facts = self.model.channel(channel).ok_or("an unknown channel")?;
        let since = facts.epoch.as_ref().map(|epoch| {
            let top = facts.tops.get(epoch).copied().unwrap_or(0);
            ClientPosition { epoch: epoch.clone(), offset: top }
        });
        let since = since.filter(|_| self.harness.chance.percent(50)).map(|position| ClientPosition {
            offset: position.offset.saturating_sub(self.harness.chance.below(8) as u64),
            ..position
        });
        let reverse = self.harness.chance.percent(30);
        self.history(channel, limit, since, reverse).map(|_| ())
    }

    fn remove_history(&mut self, channel: &str) -> Result<(), String> {
        let top = self.history(channel, 0, None, false)?;
        let answer = self.call_api(self.node.owner(channel), ApiRequest::HistoryRemove { channel: channel.into() })?;
        if let Some(facts) = self.model.channel_mut(channel) {
            facts.keys_removed = facts.api_count;
        }
        let Some((epoch, top)) = top else { return Ok(()) };
        if !matches!(answer, Ok(ApiAnswer::Done { .. })) {
            return Err(format!("unexpected reply to a history removal: {answer:?}"));
        }
        let facts = self.model.channel_mut(channel).ok_or("an unknown channel")?;
        facts.removed = Some((epoch, top));
        Ok(())
    }

    fn disconnect(&mut self) -> Result<(), String> {
        let spares = self.harness.chance.percent(20);
        let disconnects = [Disconnect::FORCE_NO_RECONNECT, Disconnect::FORCE_RECONNECT];
        let disconnect = self.harness.chance.pick(&disconnects).clone();
        let action = OperatorAction {
            spared: spares.then(|| self.clients[0].id.clone()).into_iter().collect(),
            ..self.action(String::new(), disconnect.code)
        };
        let request = ApiRequest::Disconnect {
            user: action.user.as_str().into(),
            only: SessionFilter { client: action.client.as_deref().map(Box::from), session: None },
            whitelist: action.spared.iter().map(|spared| spared.as_str().into()).collect(),
            disconnect,
        };
        self.actions.disconnected.push(action);
        self.call_api_on_all_shards(&request)
    }

    fn unsubscribe(&mut self) -> Result<(), String> {
        let channel = if self.harness.chance.percent(20) { String::new() } else { self.random_channel() };
        let code = *self.harness.chance.pick(&[UnsubscribeCode::SERVER, UnsubscribeCode::INSUFFICIENT_STATE]);
        let action = self.action(channel, code.0 as u16);
        let request = ApiRequest::Unsubscribe {
            channel: action.channel.as_str().into(),
            user: action.user.as_str().into(),
            only: SessionFilter { client: action.client.as_deref().map(Box::from), session: None },
            code,
        };
        self.actions.unsubscribed.push(action);
        self.call_api_on_all_shards(&request)
    }

    /// Subscribes a session, or all sessions of its user.
    fn subscribe(&mut self, channel: &str) -> Result<(), String> {
        let expires_at_s =
            self.harness.chance.percent(15).then(|| self.harness.unix_ms() / 1_000 + self.harness.chance.between(1, 4));
        let action = OperatorAction { expires_at_s, ..self.action(channel.to_owned(), 0) };
        let grant =
            SubscriptionGrant { expires_at_ms: expires_at_s.map(|at_s| at_s * 1_000), ..SubscriptionGrant::default() };
        let subscription = ServerSubscription { channel: channel.into(), grant, ..ServerSubscription::default() };
        let request = ApiRequest::Subscribe {
            user: action.user.as_str().into(),
            only: SessionFilter { client: action.client.as_deref().map(Box::from), session: None },
            subscription: Box::new(subscription),
        };
        self.actions.subscribed.push(action);
        self.call_api_on_all_shards(&request)
    }

    /// Sets the expiry of a session, or of all sessions of its user.
    fn refresh(&mut self) -> Result<(), String> {
        let expires_at_s =
            self.harness.chance.percent(60).then(|| self.harness.unix_ms() / 1_000 + self.harness.chance.between(1, 4));
        let expired = self.harness.chance.percent(15);
        let action = self.action(String::new(), Disconnect::EXPIRED.code);
        let request = ApiRequest::Refresh {
            user: action.user.as_str().into(),
            only: SessionFilter { client: action.client.as_deref().map(Box::from), session: None },
            expired,
            expires_at_ms: expires_at_s.map(|at_s| at_s * 1_000),
            info: None,
        };
        if expired {
            self.actions.disconnected.push(action);
            return self.call_api_on_all_shards(&request);
        }
        for index in 0..self.clients.len() {
            let is_live = self.is_live(&self.clients[index]);
            let client = &mut self.clients[index];
            if client.connection.is_some() && action.is_about(&client.profile.user, &client.id) {
                client.expiries_by_api.push(expires_at_s);
                client.latest_expiry_s = client.latest_expiry_s.and_then(|latest| Some(latest.max(expires_at_s?)));
                client.refreshes.0 += usize::from(is_live);
            }
        }
        self.call_api_on_all_shards(&request)
    }

    /// Changes the pace of a user's subscriptions to a channel of the latest lane. In most runs nobody has a pace, because the
    /// publications that paces leave out cannot be told from those that get lost before the last one of their key.
    fn change_pace(&mut self, channel: &str) -> Result<(), String> {
        let is_latest = self.model.channel(channel).is_some_and(|facts| facts.lane() == Lane::Latest);
        if !is_latest || !self.model.has_paces && self.harness.chance.percent(90) {
            return Ok(());
        }
        self.model.has_paces = true;
        self.model.count("pace changed");
        let updates = *self.harness.chance.pick(&[PACE_MIN, 50.0, 1_000.0]);
        let pace = self.harness.chance.percent(80).then(|| UpdatePace::from_updates_per_second(updates));
        let action = self.action(channel.to_owned(), 0);
        let request = ApiRequest::SetPace {
            user: action.user.as_str().into(),
            only: SessionFilter { client: action.client.as_deref().map(Box::from), session: None },
            change: PaceChange::Subscription {
                channel: channel.into(),
                pace: pace.transpose().map_err(|error| error.to_string())?,
            },
        };
        self.call_api_on_all_shards(&request)
    }

    /// Notifies all shards that the stream of a channel lost its position.
    fn lose_positions(&mut self, channel: &str) -> Result<(), String> {
        self.actions.lost.push(channel.to_owned());
        let from = ShardIndex(self.node.owner(channel) as u16);
        for shard in 0..self.node.threads.len() {
            let message = ShardMessage::Notice(Notice::PositionLost { channel: channel.into() });
            self.handle(shard, Event::Message { from, message })?;
        }
        Ok(())
    }

    /// Picks the target of an action: a random session, or all sessions of its user.
    fn action(&mut self, channel: String, code: u16) -> OperatorAction {
        let target = &self.clients[self.harness.chance.below(self.clients.len())];
        let client = self.harness.chance.percent(60).then(|| target.id.clone());
        let api_count = self.model.channel(&channel).map_or(0, |facts| facts.api_count);
        let (user, spared) = (target.profile.user.clone(), Vec::new());
        OperatorAction { user, client, spared, channel, code, api_count, expires_at_s: None }
    }

    fn call_api_on_all_shards(&mut self, request: &ApiRequest) -> Result<(), String> {
        for shard in 0..self.node.threads.len() {
            let answer = self.call_api(shard, request.clone())?;
            if !matches!(answer, Ok(ApiAnswer::Done { .. })) {
                return Err(format!("unexpected reply {answer:?} to {request:?}"));
            }
        }
        Ok(())
    }
}

/// Converts a publication from the API to the type that clients decode.
fn body(publication: &dunlin_protocol::Publication) -> PublicationBody {
    PublicationBody {
        data: publication.data.bytes().to_vec(),
        info: publication.info.as_ref().map(|info| crate::wire::ClientInfoBody {
            user: info.user.to_string(),
            client: info.client.to_string(),
            ..crate::wire::ClientInfoBody::default()
        }),
        offset: publication.offset,
        tags: publication.tags.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        time: publication.time_ms,
        epoch: publication.epoch.to_string(),
        version: publication.version,
        delta: false,
    }
}

impl NodeWorld {
    /// Sends new options to all shards.
    pub(super) fn reconfigure(&mut self) -> Result<(), String> {
        let mut options = (*self.plan.options).clone();
        for _ in 0..self.harness.chance.below(4) {
            let name = format!("late{}", self.harness.chance.below(LATE_NAMES));
            if options.namespaces.iter().all(|known| known.name != name) {
                options.namespaces.push(NamespaceOptions { name, presence: true, ..NamespaceOptions::default() });
            }
        }
        // The order must not matter for the namespaces in use.
        if self.harness.chance.percent(50) {
            options.namespaces.reverse();
        }
        for namespace in &mut options.namespaces {
            if namespace.history_size > 1 && namespace.room.is_none() && self.harness.chance.percent(30) {
                namespace.history_size = self.harness.chance.between(1, namespace.history_size as u64) as usize;
                self.model.limit_history(&namespace.name, namespace.history_size);
            }
        }
        let (next, rejected) = self.running.succeeded_by(&options);
        if !rejected.is_empty() {
            return Err(format!("the changes {rejected:?} were not applied"));
        }
        self.running = Arc::new(next);
        for sockets in &mut self.sockets {
            sockets.reconfigurations.push_back(Arc::clone(&self.running));
        }
        self.model.count("reconfigured");
        self.try_late_namespace()
    }

    /// Publishes to a namespace that may or may not exist. The owner accepts the publication or rejects the channel.
    fn try_late_namespace(&mut self) -> Result<(), String> {
        let channel = format!("late{}:a", self.harness.chance.below(LATE_NAMES));
        let (data, how) = (Payload::from_json(Bytes::from_static(b"1")), PublishHow::default());
        let request = ApiRequest::Publish { channel: channel.as_str().into(), data, how };
        match self.call_api(self.node.owner(&channel), request)? {
            Ok(ApiAnswer::Published { offset: 0, .. }) | Err(Refused { code: ErrorCode::UnknownChannel, .. }) => Ok(()),
            other => Err(format!("unexpected reply to a publication in {channel}: {other:?}")),
        }
    }

    /// Delivers the next options to some shards. Each shard gets all options in order.
    pub(super) fn reconfigure_some(&mut self) -> Result<(), String> {
        for shard in 0..self.node.threads.len() {
            if !self.sockets[shard].reconfigurations.is_empty() && self.harness.chance.percent(20) {
                self.reconfigure_next(shard)?;
            }
        }
        Ok(())
    }

    /// Delivers all options to all shards.
    pub(super) fn reconfigure_all(&mut self) -> Result<(), String> {
        for shard in 0..self.node.threads.len() {
            while !self.sockets[shard].reconfigurations.is_empty() {
                self.reconfigure_next(shard)?;
            }
        }
        Ok(())
    }

    fn reconfigure_next(&mut self, shard: usize) -> Result<(), String> {
        let Some(options) = self.sockets[shard].reconfigurations.pop_front() else { return Ok(()) };
        self.handle(shard, Event::Reconfigured { options }).map(|_| ())
    }
}
