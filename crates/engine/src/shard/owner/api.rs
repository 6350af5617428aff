//! Requests of the server API about channels.

use std::sync::Arc;

use dunlin_protocol::ErrorCode;

use crate::{
    api::{ApiAnswer, ApiRequest, ApiResult, Survey},
    event::Ticket,
    log_in_flight::{Draft, HistoryReader, ReplyTo},
    options::NamespaceOptions,
    shard::{HISTORY_OFF, PRESENCE_OFF},
};

use super::{Context, Owner, room_messages::BackendMessage};

impl Owner {
    /// Handles a request, and answers it as soon as possible.
    pub(in crate::shard) fn serve_api(&mut self, context: &mut Context, ticket: Ticket, request: ApiRequest) {
        let answer = match request {
            ApiRequest::Publish { channel, .. } if context.refuses_publication_into_room(&channel) => {
                Err(ErrorCode::NotAvailable)
            }
            ApiRequest::Publish { channel, data, how } => {
                let draft = Draft { data, info: None, how, audience: None, creator: None };
                return self.propose(context, &channel.into(), draft, ReplyTo::Api(ticket));
            }
            ApiRequest::History { channel, query } => {
                match context.require(&channel, NamespaceOptions::has_stream, HISTORY_OFF) {
                    Ok(()) => {
                        let (name, reply_to) = (channel.into(), ReplyTo::Api(ticket));
                        return self.serve_history(context, &name, query, HistoryReader::Server, reply_to);
                    }
                    Err(code) => Err(code),
                }
            }
            ApiRequest::SendToRoom { channel, data } => {
                return self.send_message_to_room(context, ticket, &channel, BackendMessage::Data(data));
            }
            ApiRequest::ChangeListing { channel, change } => {
                let message = BackendMessage::Listing(change);
                return self.send_message_to_room(context, ticket, &channel, message);
            }
            ApiRequest::KickFromRoom { channel, order } => {
                return self.send_message_to_room(context, ticket, &channel, BackendMessage::Kick(order));
            }
            ApiRequest::OpenRoom { channel, overrides } => {
                return self.open_room_by_api(context, ticket, &channel.into(), &overrides);
            }
            ApiRequest::HistoryRemove { channel } => match self.remove_history(context, &channel.into(), ticket) {
                Ok(None) => return,
                Ok(Some(done)) => Ok(done),
                Err(code) => Err(code),
            },
            request => self.carry_out_api(context, request),
        };
        context.answer_api(ticket, answer);
    }

    /// Handles requests that are answered at once.
    fn carry_out_api(&mut self, context: &mut Context, request: ApiRequest) -> ApiResult {
        match request {
            ApiRequest::Presence { channel } => {
                context.require(&channel, |options| options.presence, PRESENCE_OFF)?;
                Ok(ApiAnswer::Presence(self.presence(&channel)))
            }
            ApiRequest::PresenceStats { channel } => {
                context.require(&channel, |options| options.presence, PRESENCE_OFF)?;
                let (num_clients, num_users) = self.presence_stats(&channel);
                Ok(ApiAnswer::PresenceStats { num_clients, num_users })
            }
            ApiRequest::NewestKeys { channel } => Ok(ApiAnswer::NewestKeys(self.keys_for_peer(context, &channel)?)),
            ApiRequest::Channels => Ok(ApiAnswer::Channels(self.subscribed_channels())),
            ApiRequest::CloseRoom { channel } => self.close_room_by_api(context, &channel.into()),
            ApiRequest::ReservePlaces { channel, reservations } => self.reserve_places(context, &channel, reservations),
            request => unreachable!("{request:?} is not about a channel"),
        }
    }

    /// Removes a channel's history, and returns the answer; `None` if the log answers the ticket when it has stored it.
    fn remove_history(
        &mut self,
        context: &mut Context,
        channel: &Arc<str>,
        ticket: Ticket,
    ) -> Result<Option<ApiAnswer>, ErrorCode> {
        context.require(channel, NamespaceOptions::keeps_publications, HISTORY_OFF)?;
        self.remove_keys(context, channel);
        if let Some(stream) = self.channels.named_mut(channel).and_then(|channel| channel.stream.as_mut()) {
            stream.clear();
            if stream.take_answers() {
                self.answers.forget(channel);
            }
        }
        let is_logged = self.trim_log(context, channel, Some(ticket));
        self.count_history(context, channel);
        Ok((!is_logged).then_some(ApiAnswer::Done { sessions: 0 }))
    }

    pub(in crate::shard) fn survey(&self, survey: &mut Survey) {
        survey.cached_bytes = self.cached_bytes as u64;
        survey.channels = self.channels.iter().filter(|channel| channel.subscribers() > 0).count() as u32;
    }

    fn subscribed_channels(&self) -> Vec<(Arc<str>, u32)> {
        let subscribed = self.channels.iter().filter(|channel| channel.subscribers() > 0);
        subscribed.map(|channel| (Arc::clone(&channel.name), channel.subscribers())).collect()
    }
}
impl Context {
    pub(in crate::shard) fn require(
        &self,
        channel: &str,
        has: impl FnOnce(&NamespaceOptions) -> bool,
        off: &'static str,
    ) -> Result<(), ErrorCode> {
        let namespace = self.resolve(channel)?;
        if has(self.namespace(namespace)) {
            return Ok(());
        }
        self.note_refusal_reason(off);
        Err(ErrorCode::NotAvailable)
    }
}
