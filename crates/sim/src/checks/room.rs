//! Checks a client in a room: its replica equals the world, it receives only events that are addressed to it, and each
//! input is applied once.

use dunlin_engine::{options::NamespaceOptions, room::RoomKey};
use dunlin_protocol::Encoding;
use dunlin_rooms::{Band, ObjectId, PlayerId, Replica, SeenObject, Visibility};

use crate::{
    client::Pending,
    model::{Model, Outcome},
    plan::RoomPlan,
    rooms::{InputFault, Join, RoomModel, RoomRecord, Version, between, event_number, has_form},
    wire::{ClientPosition, HistoryBody, PublicationBody, SubscribeBody, SubscribeCommand},
};

use super::{RecoveryLimits, Subscription, recovery::check_flags};

/// Maximum bytes of an event in a reply.
const EVENT_BYTES_MAX: usize = 800;
/// The most ticks for which a cell waits because of the bandwidth limit.
const WAIT_TICKS_MAX: u32 = 12;
/// Ticks after which a snapshot is too old to be a base.
const HISTORY_TICKS: u32 = 16;

/// A seat in a room, as its client sees it.
#[derive(Debug)]
pub struct Seat {
    /// The join that led to it.
    pub join: u64,
    pub room: RoomKey,
    /// The player of the client.
    pub player: PlayerId,
    /// Whether the client asked for the fields of states.
    is_typed: bool,
    /// The client's copy of the world.
    replica: Replica,
    /// Number of the room's events that were received or were addressed to other players.
    pub(super) events_received: usize,
    pub last_number: u32,
    /// Number of inputs that the client has sent.
    pub inputs_sent: u32,
}

/// Which objects a client may see as they were some ticks ago.
struct Lateness<'a> {
    /// The tick from which their states may be.
    from: u32,
    /// Whether the states of all of them are of the same tick.
    is_of_one_tick: bool,
    /// Whether an object, as it is seen and as it is, must be seen as it is.
    is_current: &'a dyn Fn(Option<&SeenObject>, Option<&Version>) -> bool,
    /// Whether another one may be seen as it was then.
    may_be_late: &'a dyn Fn(Option<&Version>) -> bool,
}

/// Checks the reply to a subscribe command that joins a room and returns the resulting subscription.
///
/// # Errors
/// What is wrong with the reply.
pub fn check_join(
    model: &mut Model,
    limits: RecoveryLimits,
    request: &Pending,
    result: &SubscribeBody,
) -> Result<Subscription, String> {
    let SubscribeCommand { channel, recover, .. } = request.subscribe()?;
    let rules = model.channel(channel).and_then(|facts| facts.rules.clone()).ok_or("a room without a namespace")?;
    check_flags(&rules, request, result)?;
    let mut room_model = model.rooms.lock();
    let join = request.join.ok_or("a subscription to a room without a join")?;
    let record = room_model.joins[join as usize].clone();
    let (Some((room, player)), Some(at)) = (room_model.seat_of(join), record.answered_at.clone()) else {
        return Err(format!("join {join} succeeds, but the game recorded {:?}", room_model.joins[join as usize]));
    };
    check_token(
        &mut room_model,
        rules.room.as_ref().is_some_and(|room| room.gives_seat_tokens),
        &record,
        &result.data,
    )?;
    let mut offset = result.offset;
    if let Some(from) = recover.as_ref().filter(|_| result.recovered) {
        let expected: Vec<(u64, u64)> = room_model
            .stream(channel, &at.epoch, from.offset + 1..=at.offset)
            .filter(|(_, event)| room_model.may_recover(*event, &record.user))
            .collect();
        let came: Vec<(u64, u64)> = result.publications.iter().map(event_of).collect::<Result<_, _>>()?;
        // If no event was missed, the server sends the top of the channel as the position.
        let stored = if came.is_empty() { at.offset } else { from.offset };
        if came != expected || stored != result.offset || result.epoch != at.epoch || at.offset < from.offset {
            return Err(format!(
                "{channel}: recovered {came:?} instead of {expected:?} from {from:?} to {at:?}: {}, {}",
                result.epoch, result.offset
            ));
        }
        offset = came.last().map_or(offset, |(offset, _)| *offset);
        room_model.count(if came.is_empty() { "events not missed" } else { "events recovered" });
    } else {
        let must_recover =
            recover.as_ref().is_some_and(|from| must_be_recoverable(&room_model, &rules, limits, &record, from));
        if must_recover || !result.publications.is_empty() || (&*result.epoch, result.offset) != (&*at.epoch, at.offset)
        {
            return Err(format!(
                "{channel}: not recovered from {recover:?} to {at:?}, must recover: {must_recover}: {result:?}"
            ));
        }
    }
    let events_received = record.events_before;
    let seat = Seat {
        join,
        room,
        player,
        is_typed: record.is_typed,
        replica: Replica::default(),
        events_received,
        last_number: 0,
        inputs_sent: 0,
    };
    Ok(Subscription {
        channel: channel.clone(),
        positioned: result.positioned,
        recoverable: result.recoverable,
        epoch: result.epoch.clone(),
        offset: Some(offset),
        seat: Some(Box::new(seat)),
        ..Subscription::default()
    })
}

/// Checks the seat token in a join reply, and whether the reply says correctly that the player was in the room before.
/// Without seat tokens, the reply has no data.
fn check_token(room_model: &mut RoomModel, is_due: bool, join: &Join, data: &[u8]) -> Result<(), String> {
    if !is_due {
        return if data.is_empty() { Ok(()) } else { Err(format!("unexpected data: {data:?}")) };
    }
    let answer = seat_answer(data);
    room_model.count(if join.is_back { "seat: reply says resumed" } else { "seat: reply says new" });
    match answer {
        Some((_, is_back)) if is_back == join.is_back => Ok(()),
        other => Err(format!("{join:?} gets the reply {other:?}")),
    }
}

/// The seat token in a join reply, and whether the player was in the room before.
pub fn seat_answer(data: &[u8]) -> Option<(String, bool)> {
    let answer: serde_json::Value = serde_json::from_slice(data).ok()?;
    Some((answer["seat_token"].as_str()?.to_owned(), answer["seat_resumed"].as_bool()?))
}

/// Whether all events after `from` must have been available when the server replied to `join`.
fn must_be_recoverable(
    room_model: &RoomModel,
    rules: &NamespaceOptions,
    limits: RecoveryLimits,
    join: &Join,
    from: &ClientPosition,
) -> bool {
    let Some(at) = &join.answered_at else { return false };
    let missed: Vec<u64> =
        room_model.stream(&join.channel, &at.epoch, from.offset + 1..=at.offset).map(|(_, event)| event).collect();
    let accepted_ms = |event: &u64| room_model.events[*event as usize].accepted_ms.unwrap_or(0);
    let mut next_ms = join.answered_ms;
    let is_kept = missed.iter().rev().all(|event| {
        let is_kept = accepted_ms(event) + rules.history_ttl_ms > next_ms;
        next_ms = accepted_ms(event);
        is_kept
    });
    let count = missed.len();
    from.epoch == at.epoch
        && at.offset.checked_sub(from.offset) == Some(count as u64)
        && is_kept
        && count <= rules.history_size.min(limits.recovery_publications_max)
        && count * EVENT_BYTES_MAX <= limits.recovery_bytes_max
}

/// The offset and the number of an event.
pub(super) fn event_of(seen: &PublicationBody) -> Result<(u64, u64), String> {
    let number = event_number(&seen.data).filter(|_| seen.info.is_none() && seen.tags.is_empty());
    let (_, number) = number.ok_or_else(|| format!("not an event of the game: {seen:?}"))?;
    Ok((seen.offset, number))
}

impl Seat {
    /// The next event for this player: its index among the events of the room, and its number.
    pub(super) fn next_event(&self, room_model: &RoomModel) -> Option<(usize, u64)> {
        let events = room_model.records[&self.room].events.iter().copied().enumerate().skip(self.events_received);
        let mut mine = events.filter(|(_, event)| room_model.events[*event as usize].players.contains(&self.player));
        mine.next()
    }

    /// Whether a broadcast event was emitted after the player left the room. The session's shard learns from the room
    /// that the player left, and gets the event from the owner. The event may arrive first.
    pub(super) fn follows_departure(&self, room_model: &RoomModel, number: u64) -> bool {
        let event = &room_model.events[number as usize];
        let has_joined = || room_model.records[&self.room].header(self.player, event.tick).is_some();
        event.users.is_none() && event.room == self.room && !event.players.contains(&self.player) && has_joined()
    }

    /// Whether a broadcast event is of a later room of the channel. A seat whose room moves keeps its subscription to the channel until
    /// its join is answered. If the room has ended elsewhere meanwhile, the channel can have another one, whose events for everybody
    /// are for all that are subscribed to the channel. No event for some players is.
    pub(super) fn is_of_a_later_room(&self, room_model: &RoomModel, number: u64) -> bool {
        let event = &room_model.events[number as usize];
        event.users.is_none() && event.room != self.room && room_model.records[&self.room].moves > 0
    }

    /// Whether a broadcast event is for this client although it lacks events for its player: while the room moved, another client has
    /// come back to the seat by its token, and gets those. This one learns so when its own join is answered.
    pub(super) fn takes_as_former(&mut self, room_model: &RoomModel, number: u64) -> bool {
        let (event, record) = (&room_model.events[number as usize], &room_model.records[&self.room]);
        let is_back_elsewhere = |join| {
            room_model.seat_of(join) == Some((self.room, self.player)) && room_model.joins[join as usize].is_back
        };
        let is_former = record.moves > 0 && (self.join + 1..room_model.joins.len() as u64).any(is_back_elsewhere);
        let place = record.events.iter().skip(self.events_received).position(|emitted| *emitted == number);
        let place = place.filter(|_| is_former && event.users.is_none());
        self.events_received += place.map_or(0, |place| place + 1);
        place.is_some()
    }

    /// Applies a snapshot and compares the replica with the world.
    pub(super) fn snapshot(
        &mut self,
        room_model: &mut RoomModel,
        encoding: Encoding,
        seen: &PublicationBody,
    ) -> Result<(), String> {
        if seen.info.is_some() || !seen.tags.is_empty() {
            return Err(format!("a snapshot with fields other than data: {seen:?}"));
        }
        let before = self.replica.tick();
        self.replica.apply(encoding, &seen.data).map_err(|error| {
            format!(
                "after tick {before}: {error}: {}",
                String::from_utf8_lossy(&seen.data).chars().take(400).collect::<String>()
            )
        })?;
        let record = &room_model.records[&self.room];
        let (replica, tick) = (&self.replica, self.replica.tick());
        if tick <= before || tick > record.tick || record.times_us.get(&tick) != Some(&replica.time_us()) {
            return Err(format!("tick {tick} at {} comes after {before}", replica.time_us()));
        }
        let header = record.header(self.player, tick);
        let came = (replica.view(), replica.ack(), replica.avatar().map_or(0, |id| id.0));
        if header.map(|header| (header.view, header.ack, header.avatar)) != Some(came) {
            return Err(format!("tick {tick}: view, ack and avatar are {came:?} instead of {header:?}"));
        }
        if replica.grid() != Some(&record.grid) {
            return Err(format!("tick {tick}: a different grid, {:?}", replica.grid()));
        }
        let checked = if record.is_limited { self.check_limited_world(record) } else { self.check_world(record) };
        checked.map_err(|error| format!("tick {tick} after {before}: {error}"))?;
        self.check_form(record, encoding, &seen.data)
            .map_err(|error| format!("tick {tick} after {before}: {error}"))?;
        if self.replica.has_moved() {
            room_model.count("snapshot: the room has moved");
        }
        room_model.count(match tick - before {
            _ if before == 0 => "snapshot: first",
            1 => "snapshot: next tick",
            2..HISTORY_TICKS => "snapshot: caught up",
            _ => "snapshot: from an expired base",
        });
        room_model.count(match (encoding, self.is_typed) {
            (Encoding::Json, false) => "snapshot in JSON",
            (Encoding::Json, true) => "snapshot in JSON with fields",
            (Encoding::Protobuf, false) => "snapshot in Protobuf",
            (Encoding::Protobuf, true) => "snapshot in Protobuf with fields",
        });
        Ok(())
    }

    /// Checks that the client knows the fields if it asked for them, and that an object in JSON has either its fields or
    /// its state, as its kind demands. In Protobuf, changes without a schema cannot be read. From a room of another node, all
    /// objects in JSON have their states.
    fn check_form(&self, record: &RoomRecord, encoding: Encoding, data: &[u8]) -> Result<(), String> {
        if self.replica.schema().is_empty() == self.is_typed {
            return Err(format!("asked for fields: {}, but got {:?}", self.is_typed, self.replica.schema()));
        }
        if encoding == Encoding::Protobuf {
            return Ok(());
        }
        let snapshot: serde_json::Value = serde_json::from_slice(data).map_err(|error| error.to_string())?;
        let cells = snapshot["cells"].as_array().into_iter().flatten();
        let objects = cells.filter_map(|cell| cell["upserts"].as_array()).chain(snapshot["own"]["objects"].as_array());
        for object in objects.flatten() {
            let id = object["id"].as_u64().and_then(|id| u32::try_from(id).ok()).ok_or("an object without an id")?;
            let seen = self.replica.object(ObjectId(id)).ok_or_else(|| format!("{object} is not in the replica"))?;
            let has_fields = object.get("fields").is_some();
            let may_be_due = has_fields || !record.has_been_elsewhere;
            let is_due = self.is_typed && has_form(seen.kind, &seen.state) && may_be_due;
            if has_fields != is_due || is_due && object.get("state").is_some() {
                return Err(format!("fields are due: {is_due}, but {object} was sent for {seen:?}"));
            }
        }
        Ok(())
    }

    /// Checks that every object in the replica equals the recorded object, and that no visible object is missing.
    fn check_world(&self, record: &RoomRecord) -> Result<(), String> {
        let (view, tick) = (self.replica.view(), self.replica.tick());
        let from = tick - tick % u32::from(record.grid.shape().far_interval_ticks);
        let is_view = |tick| record.header(self.player, tick).is_some_and(|header| header.view == view);
        self.check_objects(
            record,
            &Lateness {
                from,
                is_of_one_tick: (from..=tick).all(is_view),
                is_current: &|_, now| record.band(view, now) == Some(Band::Near),
                may_be_late: &|then| record.band(view, then) == Some(Band::Far),
            },
        )
    }

    /// As [`Seat::check_world`], for a player whose bandwidth is limited: what is nearest is as it is now, and other objects as they
    /// were a short time ago. An object is not seen if it has come from a cell that was sent to one that waits.
    fn check_limited_world(&self, record: &RoomRecord) -> Result<(), String> {
        let (view, tick) = (self.replica.view(), self.replica.tick());
        let interval = u32::from(record.grid.shape().far_interval_ticks);
        let is_near = |seen: &SeenObject| seen.cell.is_some_and(|cell| record.is_nearest_cell(view, cell));
        self.check_objects(
            record,
            &Lateness {
                from: (tick - tick % interval).min(tick.saturating_sub(WAIT_TICKS_MAX)),
                is_of_one_tick: false,
                is_current: &|seen, now| seen.is_some_and(is_near) || record.is_nearest(view, now),
                may_be_late: &|then| record.band(view, then).is_some(),
            },
        )
    }

    fn check_objects(&self, record: &RoomRecord, lateness: &Lateness<'_>) -> Result<(), String> {
        let (view, tick) = (self.replica.view(), self.replica.tick());
        let Lateness { from, is_of_one_tick, is_current, may_be_late } = *lateness;
        let mut seen_count = 0;
        for (id, versions) in record.histories() {
            let now = between(versions, tick, tick).next().flatten();
            let seen = self.replica.object(id);
            seen_count += usize::from(seen.is_some());
            let is_own = now.is_some_and(|now| now.visibility == Visibility::Owner(self.player));
            let is_in_cell_of =
                |seen: &SeenObject, then: Option<&Version>| seen.cell == then.and_then(|then| record.cell(then));
            let is_valid = if is_own {
                seen.is_some_and(|seen| seen.cell.is_none() && is_like(seen, now))
            } else if is_current(seen, now) {
                seen.is_some_and(|seen| is_in_cell_of(seen, now) && is_like(seen, now))
            } else if let Some(seen) = seen {
                between(versions, from, tick)
                    .any(|then| may_be_late(then) && is_in_cell_of(seen, then) && is_like(seen, then))
            } else {
                let has_stayed = |then: Option<&Version>| {
                    then.and_then(|then| record.cell(then)) == now.and_then(|now| record.cell(now))
                };
                !between(versions, from, tick).all(|then| may_be_late(then) && (is_of_one_tick || has_stayed(then)))
            };
            if !is_valid {
                let then: Vec<_> = between(versions, from, tick).collect();
                return Err(format!("from {view:?} {id:?} is seen as {seen:?}, but since tick {from} it was {then:?}"));
            }
        }
        let all = self.replica.objects().count();
        if all == seen_count {
            Ok(())
        } else {
            Err(format!("the replica has {} objects that never existed", all - seen_count))
        }
    }

    /// Whether the server may end the subscription with the unsubscribe code `code`.
    pub fn has_ended(&self, model: &Model, code: u32) -> bool {
        let room_model = model.rooms.lock();
        room_model.ended_with(self.room, code) || room_model.is_removed(self.room, self.player, code)
    }

    /// Checks the final state when nothing is in flight: the replica is at the current tick, all events were received,
    /// and all accepted inputs were applied.
    ///
    /// # Errors
    /// What is missing.
    pub fn check_complete(&self, room_model: &RoomModel) -> Result<(), String> {
        let record = &room_model.records[&self.room];
        if !record.ended.is_empty() || !record.players.contains_key(&self.player) || self.replica.tick() != record.tick
        {
            return Err(format!(
                "{:?} is at tick {} of {}, ended {:?}, players {:?}",
                self.player,
                self.replica.tick(),
                record.tick,
                record.ended,
                record.players
            ));
        }
        if record.is_limited {
            self.check_world(record).map_err(|error| format!("with a limit, at rest: {error}"))?;
        }
        if let Some((_, event)) = self.next_event(room_model) {
            return Err(format!(
                "{:?} did not receive event {event}: {:?}",
                self.player, room_model.events[event as usize]
            ));
        }
        let mine = room_model.inputs.iter().filter(|input| input.join == Some(self.join));
        match mine.filter(|input| input.outcome == Outcome::Accepted).find(|input| !input.applied) {
            Some(lost) => Err(format!("an accepted input is lost: {lost:?}")),
            None => Ok(()),
        }
    }
}

/// Checks a history of a room's channel that `user` reads. It must contain all retained events that the user may read,
/// and no others.
///
/// # Errors
/// If the history differs from the expected one.
pub fn check_room_history(
    room_model: &mut RoomModel,
    (channel, user): (&str, &str),
    (limit, since, reverse): (i32, Option<&ClientPosition>, bool),
    result: &HistoryBody,
) -> Result<(), String> {
    let came: Vec<(u64, u64)> = result.publications.iter().map(event_of).collect::<Result<_, _>>()?;
    let is_requested = |offset: u64| match since {
        Some(since) if reverse => offset < since.offset,
        Some(since) => offset > since.offset,
        None => true,
    };
    let stored = room_model.stream(channel, &result.epoch, 1..=result.offset);
    let mut readable: Vec<(u64, u64)> =
        stored.filter(|(offset, event)| is_requested(*offset) && room_model.may_recover(*event, user)).collect();
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let is_valid = came.len() <= most
        && if reverse {
            readable.reverse();
            readable.starts_with(&came)
        } else if came.len() < most {
            readable.ends_with(&came)
        } else {
            came.is_empty() || readable.windows(came.len()).any(|part| part == came)
        };
    room_model.count("history of a room");
    if is_valid {
        Ok(())
    } else {
        Err(format!("{channel}: history {came:?} for {user:?}, limit {limit}, since {since:?}, readable {readable:?}"))
    }
}

fn is_like(seen: &SeenObject, version: Option<&Version>) -> bool {
    version.is_some_and(|version| {
        seen.position == version.position && seen.kind == version.kind && seen.state == version.state
    })
}

/// Records that an input was accepted, and checks that it may be.
///
/// # Errors
/// If the input had to be rejected.
pub fn accept_input(room_model: &mut RoomModel, number: u64) -> Result<(), String> {
    let (before, from) = room_model.inputs.split_at_mut(number as usize);
    let input = &mut from[0];
    input.outcome = Outcome::Accepted;
    let is_stale = before.iter().any(|earlier| {
        earlier.join == input.join && earlier.outcome == Outcome::Accepted && earlier.number >= input.number
    });
    let must_not =
        input.join.is_none() || is_stale || matches!(input.fault, InputFault::TooLong | InputFault::Malformed);
    if must_not { Err(format!("input {number} is accepted: {input:?}")) } else { Ok(()) }
}

/// Records that an input was rejected with `code`, and checks that it may be. `seat` is the client's current seat.
///
/// # Errors
/// If `code` does not apply, or the input was applied.
pub fn reject_input(
    room_model: &mut RoomModel,
    plan: &RoomPlan,
    number: u64,
    seat: Option<&Seat>,
    code: u32,
) -> Result<(), String> {
    let input = &mut room_model.inputs[number as usize];
    input.outcome = Outcome::Rejected;
    let seat = seat.filter(|seat| Some(seat.join) == input.join);
    let may = match code {
        103 => seat.is_none(),
        107 => matches!(input.fault, InputFault::Stale | InputFault::TooLong | InputFault::Malformed),
        111 => {
            let is_fast = seat.is_none_or(|seat| seat.inputs_sent > plan.limits.inputs_per_second);
            is_fast || plan.limits.inbox_inputs_max < 100
        }
        _ => false,
    };
    if !may || input.applied {
        return Err(format!("input {number} is rejected with {code}: {input:?}"));
    }
    room_model.count(match code {
        103 => "input without a seat",
        107 => "input rejected as invalid",
        _ => "input rejected by the rate limit",
    });
    Ok(())
}
