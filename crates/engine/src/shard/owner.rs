//! The owner of channels: orders publications, keeps history and presence, and notifies the shards with subscribers. It
//! is also the home of users and opens rooms.
//!
//! [`Owner`] takes the requests and events and passes them on to what they concern: the channels ([`channels`]) with their
//! histories ([`histories`]) and logs ([`log_traffic`]); a publication ([`publish`]); a subscription or a read, which may
//! have to wait ([`serving`]); a room ([`rooms`], [`room_directory`]); the homes of users ([`homes`]); and queries to other
//! nodes ([`presence_queries`], [`room_queries`]).

mod channel_table;
mod channels;
mod histories;
mod homes;
mod log_traffic;
mod opening_line;
mod presence_queries;
mod publish;
mod room_directory;
mod room_queries;
mod rooms;
mod serving;

use std::sync::Arc;

use dunlin_protocol::ErrorCode;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

use crate::{
    Effects, Options,
    api::{ApiAnswer, ApiRequest, ApiResult, Survey},
    channel::OwnedChannel,
    event::{PresenceKind, Ticket},
    log_in_flight::{Draft, HistoryReader, ReplyTo},
    message::ShardRequest,
    options::NamespaceOptions,
    refused::Refused,
    token_bucket::RefillRate,
};

use channels::Channels;
use histories::keys_for_peer;
use homes::UserHomes;
use presence_queries::{PresenceCommand, PresenceQueries};
use room_directory::{BackendMessage, NO_PUBLICATIONS, RoomDirectory};
use room_queries::RoomQueries;
use rooms::Rooms;
use serving::{KeyQueries, Serving};

use super::{Context, HISTORY_OFF, PRESENCE_OFF, Seed, ShardIdentity};

/// The channels that a shard owns, the users whose home it is, and the rooms that it has opened.
pub(super) struct Owner {
    pub(super) channels: Channels,
    pub(super) presence_queries: PresenceQueries,
    pub(super) homes: UserHomes,
    key_queries: KeyQueries,
    room_directory: RoomDirectory,
    pub(super) room_queries: RoomQueries,
}

impl Owner {
    pub(super) fn new(identity: ShardIdentity, options: &Options, seed: Seed) -> Self {
        let mut of_epochs = ChaCha8Rng::from_seed(seed.shard);
        of_epochs.set_stream(1);
        Self {
            channels: Channels::new(options, seed.node, of_epochs.next_u64()),
            presence_queries: PresenceQueries::default(),
            homes: UserHomes::new(seed.node),
            key_queries: KeyQueries::default(),
            room_directory: RoomDirectory::new(identity, options),
            room_queries: RoomQueries::default(),
        }
    }

    /// What a request about a channel works with.
    pub(super) fn serving<'s>(&'s mut self, context: &'s mut Context) -> Serving<'s> {
        Serving { context, channels: &mut self.channels, key_queries: &mut self.key_queries }
    }

    /// What a request for a room, or a message of one, works with.
    pub(super) fn rooms<'r>(&'r mut self, context: &'r mut Context) -> Rooms<'r> {
        let Self { channels, room_directory: directory, room_queries: queries, .. } = self;
        Rooms { context, channels, directory, queries }
    }

    /// Handles a request about a channel that this shard owns, or about a user whose home it is.
    pub(super) fn serve(&mut self, context: &mut Context, request: ShardRequest) {
        match request {
            ShardRequest::Subscribe(request) if request.join.is_some() => self.rooms(context).serve_join(request),
            ShardRequest::Subscribe(request) => self.serving(context).subscribe_when_ready(request),
            ShardRequest::Unsubscribe { channel, shard, subscriber, seat } => {
                let key = self.channels.table.find(&channel).expect("a channel with a subscriber is not forgotten");
                if let Some(left) = seat {
                    self.rooms(context).serve_leave(key, left);
                }
                self.channels.serve_unsubscribe(context, key, shard, &subscriber);
            }
            ShardRequest::AbandonJoin { channel, seat, departure } => {
                self.rooms(context).abandon_join(&channel, seat, departure);
            }
            ShardRequest::LeaveRoom { channel, seat } => {
                if let Some(key) = self.channels.table.find(&channel) {
                    self.rooms(context).serve_leave(key, seat);
                }
            }
            ShardRequest::Arrive { user, asker } => self.homes.serve_arrival(context, user, asker),
            ShardRequest::Depart { user, shard, session } => {
                self.homes.serve_departure(context, &user, shard, session);
            }
            ShardRequest::Publish { channel, data, info, how, creator, asker } => {
                let draft = Draft { data, info: Some(info), how: *how, audience: None, creator: Some(creator) };
                self.channels.propose(context, &channel, draft, ReplyTo::Session(asker));
            }
            ShardRequest::ShowAs { channel, info } => {
                if let Some(key) = self.channels.table.find(&channel) {
                    self.channels.table[key].show_as(&info);
                }
            }
            ShardRequest::Presence { channel, bytes_max, asker } => {
                let command = PresenceCommand { kind: PresenceKind::Clients, bytes_max, asker };
                let owned = self.channels.table.named(&channel);
                self.presence_queries.serve(context, channel, owned, command);
            }
            ShardRequest::PresenceStats { channel, asker } => {
                let command = PresenceCommand { kind: PresenceKind::Stats, bytes_max: usize::MAX, asker };
                let owned = self.channels.table.named(&channel);
                self.presence_queries.serve(context, channel, owned, command);
            }
            ShardRequest::History { channel, query, reader, asker } => {
                let reader = HistoryReader::User(reader);
                self.serving(context).serve_history(&channel, query, reader, ReplyTo::Session(asker));
            }
        }
    }

    /// Handles a request of the server API, and answers it as soon as possible.
    pub(super) fn serve_api(&mut self, context: &mut Context, ticket: Ticket, request: ApiRequest) {
        let answer = match request {
            ApiRequest::Publish { channel, .. } if context.is_room(&channel) => {
                Err(Refused::new(ErrorCode::NotAvailable, NO_PUBLICATIONS))
            }
            ApiRequest::Publish { channel, data, how } => {
                let draft = Draft { data, info: None, how, audience: None, creator: None };
                return self.channels.propose(context, &channel.into(), draft, ReplyTo::Api(ticket));
            }
            ApiRequest::History { channel, query } => {
                match context.require(&channel, NamespaceOptions::has_stream, HISTORY_OFF) {
                    Ok(()) => {
                        let (name, reply_to) = (channel.into(), ReplyTo::Api(ticket));
                        return self.serving(context).serve_history(&name, query, HistoryReader::Server, reply_to);
                    }
                    Err(refused) => Err(refused),
                }
            }
            ApiRequest::SendToRoom { channel, data } => {
                return self.rooms(context).send_message_to_room(ticket, &channel, BackendMessage::Data(data));
            }
            ApiRequest::ChangeListing { channel, change } => {
                let message = BackendMessage::Listing(change);
                return self.rooms(context).send_message_to_room(ticket, &channel, message);
            }
            ApiRequest::KickFromRoom { channel, order } => {
                return self.rooms(context).send_message_to_room(ticket, &channel, BackendMessage::Kick(order));
            }
            ApiRequest::OpenRoom { channel, overrides } => {
                return self.rooms(context).open_room_by_api(ticket, &channel.into(), &overrides);
            }
            ApiRequest::HistoryRemove { channel } => {
                match self.channels.remove_history(context, &channel.into(), ticket) {
                    Ok(None) => return,
                    Ok(Some(done)) => Ok(done),
                    Err(refused) => Err(refused),
                }
            }
            request => self.carry_out_api(context, request),
        };
        context.answer_api(ticket, answer);
    }

    /// Handles requests that are answered at once.
    fn carry_out_api(&mut self, context: &mut Context, request: ApiRequest) -> ApiResult {
        match request {
            ApiRequest::Presence { channel } => {
                context.require(&channel, |options| options.presence, PRESENCE_OFF)?;
                let clients = self.channels.table.named(&channel).map_or_else(Vec::new, OwnedChannel::clients);
                Ok(ApiAnswer::Presence(clients))
            }
            ApiRequest::PresenceStats { channel } => {
                context.require(&channel, |options| options.presence, PRESENCE_OFF)?;
                let (num_clients, num_users) =
                    self.channels.table.named(&channel).map_or((0, 0), OwnedChannel::presence_stats);
                Ok(ApiAnswer::PresenceStats { num_clients, num_users })
            }
            ApiRequest::NewestKeys { channel } => {
                context.resolve(&channel)?;
                let keys = self
                    .channels
                    .table
                    .named(&channel)
                    .map_or_else(Vec::new, |channel| keys_for_peer(context, channel));
                Ok(ApiAnswer::NewestKeys(keys))
            }
            ApiRequest::RoomState { channel, wait_ms } => {
                Ok(ApiAnswer::RoomState(self.rooms(context).room_state_for_peer(channel.into(), wait_ms)?))
            }
            ApiRequest::Channels => {
                let subscribed = self.channels.table.iter().filter(|channel| channel.subscribers() > 0);
                let counted = subscribed.map(|channel| (Arc::clone(&channel.name), channel.subscribers()));
                Ok(ApiAnswer::Channels(counted.collect()))
            }
            ApiRequest::CloseRoom { channel } => self.rooms(context).close_room_by_api(&channel),
            ApiRequest::ReservePlaces { channel, reservations } => {
                self.rooms(context).reserve_places(&channel, reservations)
            }
            request => unreachable!("{request:?} is not about a channel"),
        }
    }

    pub(super) fn survey(&self, survey: &mut Survey) {
        survey.cached_bytes = self.channels.histories.key_bytes() as u64;
        survey.channels = self.channels.table.iter().filter(|channel| channel.subscribers() > 0).count() as u32;
    }

    /// Applies the options that do not concern single channels.
    pub(super) fn set_options(&mut self, context: &Context) {
        let options = &context.options;
        self.channels.set_options(options);
        self.room_directory.set_rate(RefillRate::share(options.room_openings.per_second, context.identity.count));
        if !context.has_homes() {
            self.homes.clear();
        }
    }

    /// Moves the pending requests to logs into the effects.
    pub(super) fn take_log_requests(&mut self, effects: &mut Effects) {
        self.channels.log_traffic.take_requests(effects);
    }

    pub(super) fn channel_count(&self) -> usize {
        self.channels.table.len()
    }

    /// Entries of the counts of channels per creator, and channels without subscribers. Both are 0 when all channels
    /// have been dropped.
    pub(super) fn channel_holdings(&self) -> [usize; 2] {
        self.channels.table.holdings()
    }

    /// The number of users with sessions whose home is this shard, if sessions are counted.
    pub(super) fn users_at_home(&self) -> usize {
        self.homes.len()
    }

    /// Bytes of the shard's histories: as counted, and as they are.
    pub(super) fn history_bytes(&self) -> [usize; 2] {
        self.channels.histories.stream_bytes(&self.channels.table)
    }

    pub(super) fn answers_kept(&self) -> [usize; 2] {
        self.channels.histories.answers_kept()
    }

    /// Proposed publications, their bytes, and requests that wait for a page or for other nodes.
    pub(super) fn log_holdings(&self) -> [usize; 3] {
        let [proposals, proposal_bytes, parked] = self.channels.log_traffic.holdings();
        [proposals, proposal_bytes, parked + self.presence_queries.waiting()]
    }

    pub(super) fn cached_bytes(&self) -> usize {
        self.channels.histories.key_bytes()
    }
}
