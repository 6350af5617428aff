//! Opens rooms for the server API, whose requests wait until the world is created.

use std::{collections::BTreeMap, sync::Arc};

use dunlin_protocol::ErrorCode;
use dunlin_rooms::{Refusal, RoomOverrides};

use crate::{
    api::{ApiAnswer, ApiResult},
    event::Ticket,
    message::SubscriptionRequest,
    options::RoomLimits,
    room::{Opening, RoomKey, RoomRefusal},
};

use super::{Context, Owner, room_messages::METADATA_TOO_LONG};

const IS_OPEN: &str = "the room is open already, and only a room that is closed is opened with options";
const PARAMS_TOO_LONG: &str = "params is longer than room.params_size_limit";
const NO_SUCH_PLAYERS_MAX: &str = "max_players must be from 1 to room.max_players";
const TOO_MANY: &str = "room.messages_limit requests wait for the room";
const NOT_MADE: &str =
    "the room was closed, or failed, before its world was made: if it failed, the log of the server has the reason";

/// The requests that wait until the world of a room is created, by the number of the room.
#[derive(Debug, Default)]
pub(super) struct WaitingOpenings(BTreeMap<u64, Vec<Ticket>>);

/// Why a room cannot be opened with these overrides.
fn why_unusable(limits: &RoomLimits, overrides: &RoomOverrides) -> Option<(RoomRefusal, &'static str)> {
    let listing = &overrides.listing;
    let metadata_bytes = listing.metadata.as_ref().map_or(0, |metadata| metadata.len());
    let is_possible = |max: u32| usize::try_from(max).is_ok_and(|max| (1..=limits.players_max).contains(&max));
    if overrides.params.len() > limits.params_bytes_max {
        Some((RoomRefusal::Params, PARAMS_TOO_LONG))
    } else if metadata_bytes > limits.metadata_bytes_max {
        Some((RoomRefusal::Listing, METADATA_TOO_LONG))
    } else if !listing.players_max.is_none_or(is_possible) {
        Some((RoomRefusal::Listing, NO_SUCH_PLAYERS_MAX))
    } else {
        None
    }
}

impl Owner {
    /// Opens a room. The request is answered by [`Owner::answer_openings`] if its world is not created yet.
    pub(super) fn open_room_by_api(
        &mut self,
        context: &mut Context,
        ticket: Ticket,
        channel: &Arc<str>,
        overrides: &RoomOverrides,
    ) {
        if let Some(answer) = self.try_open_room(context, ticket, channel, overrides).transpose() {
            context.answer_api(ticket, answer);
        }
    }

    /// The answer, if known already.
    fn try_open_room(
        &mut self,
        context: &mut Context,
        ticket: Ticket,
        channel: &Arc<str>,
        overrides: &RoomOverrides,
    ) -> Result<Option<ApiAnswer>, ErrorCode> {
        let namespace = context.resolve(channel)?;
        let limits = context.namespace(namespace).room.as_ref();
        // A namespace without rooms is refused by the next step.
        let unusable = limits.and_then(|limits| why_unusable(limits, overrides));
        let waiting_max = limits.map_or(0, |limits| limits.messages_max);
        if let Some((refusal, why)) = unusable {
            context.count(namespace).rooms.refused[refusal as usize] += 1;
            context.note_refusal_reason(why);
            return Err(refusal.code());
        }
        let (room, is_new) = self.room_to_join(context, channel, Opening::Reserved, overrides)?;
        let (key, is_made, players) = (room.key, room.is_made, room.players);
        if !is_new && !overrides.is_empty() {
            context.note_refusal_reason(IS_OPEN);
            return Err(ErrorCode::BadRequest);
        }
        if is_made {
            return Ok(Some(ApiAnswer::Done { sessions: players }));
        }
        let waiting = self.waiting_openings.0.entry(key.number).or_default();
        if waiting.len() >= waiting_max {
            context.note_refusal_reason(TOO_MANY);
            return Err(ErrorCode::TooManyRequests);
        }
        waiting.push(ticket);
        Ok(None)
    }

    /// The world of a room is created, or will never be.
    pub(super) fn answer_openings(
        &mut self,
        context: &mut Context,
        key: RoomKey,
        outcome: &Result<u32, Option<Refusal>>,
    ) {
        for ticket in self.waiting_openings.0.remove(&key.number).unwrap_or_default() {
            let answer: ApiResult = match outcome {
                Ok(players) => Ok(ApiAnswer::Done { sessions: *players }),
                Err(Some(refusal)) => Ok(ApiAnswer::NotOpened(refusal.clone())),
                Err(None) => {
                    context.note_refusal_reason(NOT_MADE);
                    Err(ErrorCode::Internal)
                }
            };
            context.answer_api(ticket, answer);
        }
    }

    /// The overrides for a room that a join opens.
    ///
    /// # Errors
    /// The client may not open a room with these parameters.
    pub(super) fn overrides_of_join(
        &self,
        context: &Context,
        request: &SubscriptionRequest,
    ) -> Result<RoomOverrides, Refusal> {
        let is_open = self.channels.named(&request.channel).is_some_and(|channel| channel.room.is_some());
        let namespace = context.names.resolve(&request.channel).ok();
        let limits = namespace.and_then(|namespace| context.namespace(namespace).room.as_ref());
        match (&request.join, limits) {
            (Some(join), Some(limits)) if !is_open => {
                RoomOverrides::of_join_data(&join.data, &limits.join_params, limits.params_bytes_max)
            }
            _ => Ok(RoomOverrides::default()),
        }
    }
}
