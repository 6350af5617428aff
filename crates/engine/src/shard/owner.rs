//! The owner's side of a channel: it orders, remembers, and tells the shards that listen.

use std::sync::Arc;

use dunlin_protocol::{ClientInfo, ErrorCode};

use crate::{
    Effects, Now, ShardIndex,
    api::HistoryQuery,
    channel::{Audience, OwnedChannel},
    frame::{Delivery, DeliveryBody},
    message::{HistoryPart, NotSubscribed, Notice, Request, ShardMessage, SubscribeOrder, Subscribed, Subscriber},
    names::{NamespaceIndex, namespace_options},
    stream::{Reader, Stream},
};

use super::{Shard, publication::Draft};

impl Shard {
    /// Carries out a request to a channel that this shard owns.
    pub(super) fn serve(&mut self, now: Now, request: Request, effects: &mut Effects) {
        match request {
            Request::Subscribe(order) => self.serve_subscribe(now, order, effects),
            Request::Unsubscribe { channel, shard, subscriber, seat } => {
                if let Some((room, seat)) = seat {
                    self.serve_leave(&channel, room, seat, effects);
                }
                self.serve_unsubscribe(now, &channel, shard, &subscriber, effects);
            }
            Request::Arrive { user, asker } => self.serve_arrival(user, asker, effects),
            Request::Depart { user, shard, session } => self.serve_departure(&user, shard, session),
            Request::Publish { channel, data, info, how, asker } => {
                let draft = Draft { data, info: Some(info), how: *how, audience: None };
                let outcome = self.accept(now, &channel, &draft, effects).map(|_| ());
                self.notify(asker.shard, Notice::Published { asker, outcome }, effects);
            }
            Request::Presence { channel, bytes_max, asker } => {
                let outcome = self.presence_within(&channel, bytes_max);
                self.notify(asker.shard, Notice::Presence { asker, outcome }, effects);
            }
            Request::PresenceStats { channel, asker } => {
                let outcome = Ok(self.presence_stats(&channel));
                self.notify(asker.shard, Notice::PresenceStats { asker, outcome }, effects);
            }
            Request::History { channel, query, reader, asker } => {
                let outcome = self.history(now, &channel, &query, Reader::User(&reader)).map(Box::new);
                self.notify(asker.shard, Notice::History { asker, outcome }, effects);
            }
        }
    }

    pub(super) fn notify(&mut self, to: ShardIndex, notice: Notice, effects: &mut Effects) {
        self.send(to, ShardMessage::Notice(notice), effects);
    }

    fn serve_subscribe(&mut self, now: Now, order: Box<SubscribeOrder>, effects: &mut Effects) {
        if order.join.is_some() {
            return self.serve_join(order, effects);
        }
        let outcome = self.accept_subscription(now, &order).map_err(NotSubscribed::from);
        self.answer_subscription(now, order, outcome, effects);
    }

    /// Tells a session's shard how its subscription stands, and then everybody that it is there.
    pub(super) fn answer_subscription(
        &mut self,
        now: Now,
        order: Box<SubscribeOrder>,
        outcome: Result<Subscribed, NotSubscribed>,
        effects: &mut Effects,
    ) {
        #[cfg(feature = "planted-bugs")]
        let outcome = outcome.map(|mut subscribed| {
            self.lose_first(&mut subscribed);
            subscribed
        });
        let (asker, channel) = (order.asker, Arc::clone(&order.channel));
        let info = order.subscriber.info.clone().filter(|_| order.subscriber.announced);
        let accepted = outcome.is_ok();
        self.notify(asker.shard, Notice::Subscribed { order, outcome: outcome.map(Box::new) }, effects);
        if accepted && let Some(info) = info {
            self.tell_who(now, &channel, DeliveryBody::Join(info), effects);
        }
    }

    pub(super) fn accept_subscription(&mut self, now: Now, order: &SubscribeOrder) -> Result<Subscribed, ErrorCode> {
        let namespace = self.names.resolve(&order.channel)?;
        let options = Arc::clone(&self.options);
        let namespace_options = namespace_options(&options, namespace);
        if order.positioned {
            self.stream(now, &order.channel, namespace)?;
        }
        let channel = self.owned(&order.channel, namespace)?;
        let subscribed = match &channel.stream {
            Some(stream) if order.positioned => {
                let reader = Reader::User(order.join.as_ref().map_or("", |join| &join.user));
                let filter = order.filter.as_deref();
                stream.subscribe(order.recover.as_ref(), reader, filter, namespace_options, &options.client)
            }
            Some(_) | None => Ok(Subscribed::default()),
        };
        let mut subscribed = match subscribed {
            Ok(subscribed) => subscribed,
            Err(code) => {
                self.count(namespace).unrecovered += 1;
                return Err(code);
            }
        };
        channel.add(order.asker.shard, &order.subscriber);
        if order.subscriber.presence
            && let Some(info) = &order.subscriber.info
        {
            channel.enter(info);
        }
        self.encode_missed(namespace, order, &mut subscribed);
        if order.subscriber.class.compact {
            subscribed.channel_number = self.channel_number(&order.channel);
        }
        if subscribed.was_recovering {
            let counters = self.count(namespace);
            *(if subscribed.recovered { &mut counters.recovered } else { &mut counters.unrecovered }) += 1;
        }
        Ok(subscribed)
    }

    /// The number of a channel that is there: its own on the node, above 0. It fits into the protocol's 63 bits, since a shard
    /// would number channels for centuries.
    fn channel_number(&mut self, name: &str) -> u64 {
        let Self { channels, channels_numbered, identity, .. } = self;
        let channel = channels.get_mut(name).expect("a channel with a subscriber is not forgotten");
        if channel.number == 0 {
            channel.number = *channels_numbered * u64::from(identity.count) + u64::from(identity.index.0) + 1;
            *channels_numbered += 1;
        }
        channel.number
    }

    fn serve_unsubscribe(
        &mut self,
        now: Now,
        name: &Arc<str>,
        shard: ShardIndex,
        subscriber: &Subscriber,
        effects: &mut Effects,
    ) {
        let channel = self.channels.get_mut(name).expect("a channel with a subscriber is not forgotten");
        channel.remove(shard, subscriber);
        if let Some(info) = &subscriber.info {
            channel.leave(info);
        }
        if channel.is_forgettable() {
            self.forget_channel(name);
        } else if let Some(info) = subscriber.info.as_ref().filter(|_| subscriber.announced) {
            self.tell_who(now, name, DeliveryBody::Leave(Arc::clone(info)), effects);
        }
    }

    /// Removes a channel of which nothing is left to remember.
    pub(super) fn forget_channel(&mut self, name: &str) {
        if let Some(mut channel) = self.channels.remove(name) {
            if channel.stream.as_mut().is_some_and(|stream| stream.take_answers()) {
                self.answers.forget(name);
            }
            self.timers.abandon(channel.scheduled);
        }
    }

    /// Sends a join or leave to those who get them.
    fn tell_who(&mut self, now: Now, name: &Arc<str>, body: DeliveryBody, effects: &mut Effects) {
        let Ok(namespace) = self.names.resolve(name) else { return };
        let delivery = Delivery::new(Arc::clone(name), namespace, body, now.mono_us);
        self.send_out(delivery, Audience::JoinLeaves, effects);
    }

    /// Encodes a delivery once for each class of frames in use, and sends it once to each shard that listens.
    pub(super) fn send_out(&mut self, mut delivery: Delivery, audience: Audience, effects: &mut Effects) {
        let Some(channel) = self.channels.get(&delivery.channel) else { return };
        delivery = delivery.numbered(channel.number);
        for class in channel.classes(audience) {
            delivery.encode(class, &mut self.scratch);
        }
        let encodes = delivery.encodes();
        if encodes == 0 {
            return;
        }
        self.counters.namespaces[usize::from(delivery.namespace.0)].encodes += encodes as u64;
        let delivery = Arc::new(delivery);
        let Self { channels, local, identity, .. } = self;
        let channel = channels.get(&delivery.channel).expect("found above");
        let players = delivery.audience();
        let has_some = |shard| players.is_none_or(|players| !players.seats_on(shard).is_empty());
        for shard in channel.listening_shards(audience).filter(|shard| has_some(*shard)) {
            let message = ShardMessage::Notice(Notice::Deliver(Arc::clone(&delivery)));
            if shard == identity.index {
                local.push_back(message);
            } else {
                effects.list.push(crate::Effect::Send { to: shard, message });
            }
        }
    }

    /// Who is in a channel.
    pub(super) fn presence(&self, name: &str) -> Vec<Arc<ClientInfo>> {
        self.channels.get(name).map_or_else(Vec::new, OwnedChannel::clients)
    }

    /// The same for a session, unless it would be too much for its socket. A part of it would be taken for all.
    fn presence_within(&mut self, name: &str, bytes_max: usize) -> Result<Vec<Arc<ClientInfo>>, ErrorCode> {
        let Some(channel) = self.channels.get(name) else { return Ok(Vec::new()) };
        if channel.clients_fit(bytes_max) {
            return Ok(channel.clients());
        }
        let namespace = channel.namespace;
        self.count(namespace).presences_refused += 1;
        Err(ErrorCode::LimitExceeded)
    }

    /// How many sessions and distinct users are in a channel.
    pub(super) fn presence_stats(&self, name: &str) -> (u32, u32) {
        self.channels.get(name).map_or((0, 0), OwnedChannel::presence_stats)
    }

    /// Part of a channel's history.
    pub(super) fn history(
        &mut self,
        now: Now,
        name: &Arc<str>,
        query: &HistoryQuery,
        reader: Reader<'_>,
    ) -> Result<HistoryPart, ErrorCode> {
        let namespace = self.names.resolve(name)?;
        let part = self.stream(now, name, namespace)?.history(query, reader)?;
        self.count(namespace).histories_cut += u64::from(part.is_cut);
        Ok(part)
    }

    /// The channel's stream, made on first use; its position is remembered for the namespace's time from now on.
    pub(super) fn stream(
        &mut self,
        now: Now,
        name: &Arc<str>,
        namespace: NamespaceIndex,
    ) -> Result<&mut Stream, ErrorCode> {
        let all_options = Arc::clone(&self.options);
        let options = namespace_options(&all_options, namespace);
        let has_stream = self.owned(name, namespace)?.stream.is_some();
        if !has_stream {
            let stream = Stream::new(self.new_epoch());
            self.owned(name, namespace)?.stream = Some(Box::new(stream));
        }
        let stream = self.owned(name, namespace)?.stream.as_mut().expect("made above");
        stream.meta_until_us = now.after_ms(stream.remembered_ms(options));
        if !has_stream {
            stream.data_until_us = u64::MAX;
            self.schedule_channel(name);
        }
        Ok(self.owned(name, namespace)?.stream.as_deref_mut().expect("made above"))
    }

    /// The channel, made on first use.
    pub(super) fn owned(&mut self, name: &Arc<str>, namespace: NamespaceIndex) -> Result<&mut OwnedChannel, ErrorCode> {
        // Each shard has an equal part of the node's limit.
        let most = self.options.channel.channels_max.div_ceil(usize::from(self.identity.count));
        let is_full = self.channels.len() >= most;
        match self.channels.entry(Arc::clone(name)) {
            hashbrown::hash_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            hashbrown::hash_map::Entry::Vacant(_) if is_full => Err(ErrorCode::LimitExceeded),
            hashbrown::hash_map::Entry::Vacant(entry) => {
                Ok(entry.insert(OwnedChannel::new(Arc::clone(name), namespace)))
            }
        }
    }
}
