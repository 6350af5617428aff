//! Checks a client in a room: it sees the world as it is, receives only its own events, and its inputs count once.

use dunlin_engine::{options::NamespaceOptions, room::RoomKey};
use dunlin_protocol::Encoding;
use dunlin_rooms::{Band, PlayerId, Replica, SeenObject, Visibility};

use crate::{
    client::Pending,
    model::{Fate, Model},
    plan::RoomPlan,
    rooms::{InputFault, Join, Life, Pages, Version, between, event_number},
    wire::{ClientCommand, ClientPosition, HistoryBody, PublicationBody, SubscribeBody},
};

use super::{RecoveryLimits, Subscription, recovery::check_flags};

/// Bytes that an event takes in a reply, at the most.
const EVENT_BYTES_MAX: usize = 800;
/// Ticks after which no base counts any more.
const HISTORY_TICKS: u32 = 16;

/// A place in a room, as its client knows it.
#[derive(Debug)]
pub struct Seat {
    /// The join that led to it.
    pub join: u64,
    pub room: RoomKey,
    /// Who the client is there.
    pub player: PlayerId,
    /// What it sees.
    replica: Replica,
    /// How many of the room's events are heard, or were for others.
    events_received: usize,
    /// The highest number of its inputs.
    pub last_number: u32,
    /// How many inputs it has sent.
    pub inputs_sent: u32,
}

/// Judges the answer to a subscribe command that joins a room; returns the subscription that it makes.
///
/// # Errors
/// What about the answer is not true.
pub fn check_join(
    model: &mut Model,
    limits: RecoveryLimits,
    asked: &Pending,
    result: &SubscribeBody,
) -> Result<Subscription, String> {
    let ClientCommand::Subscribe { channel, recover, .. } = &asked.command else {
        return Err("no subscribe command".to_owned());
    };
    let rules = model.channel(channel).and_then(|facts| facts.rules.clone()).ok_or("a room without a namespace")?;
    check_flags(&rules, asked, result)?;
    let mut pages = model.rooms.pages();
    let join = asked.join.ok_or("a subscription to a room without a join")?;
    let record = pages.joins[join as usize].clone();
    let (Some((room, player)), Some(at)) = (pages.seat_of(join), record.answered_at.clone()) else {
        return Err(format!("join {join} succeeds, and the game says {:?}", pages.joins[join as usize]));
    };
    check_token(&mut pages, rules.room.as_ref().is_some_and(|room| room.gives_seat_tokens), &record, &result.data)?;
    let mut offset = result.offset;
    if let Some(from) = recover.as_ref().filter(|_| result.recovered) {
        let expected: Vec<(u64, u64)> = pages
            .stream(channel, &at.epoch, from.offset + 1..=at.offset)
            .filter(|(_, event)| pages.may_recover(*event, &record.user))
            .collect();
        let came: Vec<(u64, u64)> = result.publications.iter().map(event_of).collect::<Result<_, _>>()?;
        // Who has nothing to hear is told where the others are.
        let stored = if came.is_empty() { at.offset } else { from.offset };
        if came != expected || stored != result.offset || result.epoch != at.epoch || at.offset < from.offset {
            return Err(format!(
                "{channel}: recovered {came:?} instead of {expected:?} from {from:?} to {at:?}: {}, {}",
                result.epoch, result.offset
            ));
        }
        offset = came.last().map_or(offset, |(offset, _)| *offset);
        pages.count(if came.is_empty() { "events not missed" } else { "events recovered" });
    } else {
        let is_sure = recover.as_ref().is_some_and(|from| could_recover(&pages, &rules, limits, &record, from));
        if is_sure || !result.publications.is_empty() || (&*result.epoch, result.offset) != (&*at.epoch, at.offset) {
            return Err(format!("{channel}: from {recover:?} it is at {at:?}, sure {is_sure}: {result:?}"));
        }
    }
    let events_received = record.events_before;
    let seat =
        Seat { join, room, player, replica: Replica::default(), events_received, last_number: 0, inputs_sent: 0 };
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

/// The answer has a seat token, and says whether the player was in the room before, where players are kept.
fn check_token(pages: &mut Pages, is_due: bool, join: &Join, data: &[u8]) -> Result<(), String> {
    if !is_due {
        return if data.is_empty() { Ok(()) } else { Err(format!("data that nobody gave: {data:?}")) };
    }
    let answer = seat_answer(data);
    pages.count(if join.is_back { "seat: told to be back" } else { "seat: told to be new" });
    match answer {
        Some((_, is_back)) if is_back == join.is_back => Ok(()),
        other => Err(format!("{join:?} is answered with {other:?}")),
    }
}

/// The seat token in the answer to a join, and whether the player was in the room before.
pub fn seat_answer(data: &[u8]) -> Option<(String, bool)> {
    let answer: serde_json::Value = serde_json::from_slice(data).ok()?;
    Some((answer["seat_token"].as_str()?.to_owned(), answer["seat_resumed"].as_bool()?))
}

/// Whether everything that was missed since `from` was there beyond doubt when `join` was answered.
fn could_recover(
    pages: &Pages,
    rules: &NamespaceOptions,
    limits: RecoveryLimits,
    join: &Join,
    from: &ClientPosition,
) -> bool {
    let Some(at) = &join.answered_at else { return false };
    let missed: Vec<u64> =
        pages.stream(&join.channel, &at.epoch, from.offset + 1..=at.offset).map(|(_, event)| event).collect();
    let accepted_ms = |event: &u64| pages.events[*event as usize].accepted_ms.unwrap_or(0);
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

/// Offset and number of an event.
fn event_of(seen: &PublicationBody) -> Result<(u64, u64), String> {
    let number = event_number(&seen.data).filter(|_| seen.info.is_none() && seen.tags.is_empty());
    let (_, number) = number.ok_or_else(|| format!("no event of the game: {seen:?}"))?;
    Ok((seen.offset, number))
}

impl Subscription {
    /// Takes in a publication of a room.
    ///
    /// # Errors
    /// If it is not true, or not for this client.
    pub fn of_room(&mut self, pages: &mut Pages, encoding: Encoding, seen: &PublicationBody) -> Result<(), String> {
        let seat = self.seat.as_mut().ok_or("a room's publication without a seat")?;
        if seen.offset == 0 {
            let outcome = seat.snapshot(pages, encoding, seen);
            return outcome.map_err(|error| format!("{}: {:?}: {error}", self.channel, seat.player));
        }
        let (offset, number) = event_of(seen)?;
        let at = ClientPosition { epoch: self.epoch.clone(), offset };
        if self.offset.is_none_or(|last| offset <= last) || pages.at(&self.channel, &at) != Some(number) {
            return Err(format!("{}: event {number} at {at:?} after {:?}", self.channel, self.offset));
        }
        self.offset = Some(offset);
        pages.count("event heard");
        if seat.is_behind_its_end(pages, number) {
            pages.count("event behind the end of a player");
            return Ok(());
        }
        let next = seat.next_event(pages).map(|(place, number)| (place + 1, number));
        match next {
            Some((received, next)) if next == number => {
                seat.events_received = received;
                Ok(())
            }
            other => Err(format!(
                "{}: {:?} receives {number}, {:?}, and the next one for it is {other:?}",
                self.channel, seat.player, pages.events[number as usize]
            )),
        }
    }
}

impl Seat {
    /// The next event that is for this player: its place among the room's, and its number.
    fn next_event(&self, pages: &Pages) -> Option<(usize, u64)> {
        let events = pages.lives[&self.room].events.iter().copied().enumerate().skip(self.events_received);
        let mut mine = events.filter(|(_, event)| pages.events[*event as usize].players.contains(&self.player));
        mine.next()
    }

    /// Whether an event for everybody was emitted when the player had left the room. Its shard learns from the room that the
    /// player has left, and of the event from the owner, which may come first.
    fn is_behind_its_end(&self, pages: &Pages, number: u64) -> bool {
        let event = &pages.events[number as usize];
        let has_joined = || pages.lives[&self.room].header(self.player, event.tick).is_some();
        event.users.is_none() && event.room == self.room && !event.players.contains(&self.player) && has_joined()
    }

    /// A snapshot has come: the replica is the world, as far as it is seen.
    fn snapshot(&mut self, pages: &mut Pages, encoding: Encoding, seen: &PublicationBody) -> Result<(), String> {
        if seen.info.is_some() || !seen.tags.is_empty() {
            return Err(format!("a snapshot with more than data: {seen:?}"));
        }
        let before = self.replica.tick();
        self.replica.apply(encoding, &seen.data).map_err(|error| {
            format!(
                "after tick {before}: {error}: {}",
                String::from_utf8_lossy(&seen.data).chars().take(400).collect::<String>()
            )
        })?;
        let life = &pages.lives[&self.room];
        let (replica, tick) = (&self.replica, self.replica.tick());
        if tick <= before || tick > life.tick || life.times_us.get(&tick) != Some(&replica.time_us()) {
            return Err(format!("tick {tick} at {} comes after {before}", replica.time_us()));
        }
        let header = life.header(self.player, tick);
        let came = (replica.view(), replica.ack(), replica.avatar().map_or(0, |id| id.0));
        if header.map(|header| (header.view, header.ack, header.avatar)) != Some(came) {
            return Err(format!("tick {tick}: view, ack and avatar are {came:?} instead of {header:?}"));
        }
        if replica.grid() != Some(&life.grid) {
            return Err(format!("tick {tick}: another map, {:?}", replica.grid()));
        }
        self.check_world(life).map_err(|error| format!("tick {tick} after {before}: {error}"))?;
        pages.count(match tick - before {
            _ if before == 0 => "snapshot: first",
            1 => "snapshot: next tick",
            2..HISTORY_TICKS => "snapshot: caught up",
            _ => "snapshot: from far behind",
        });
        pages.count(if encoding == Encoding::Json { "snapshot in JSON" } else { "snapshot in Protobuf" });
        Ok(())
    }

    /// Every object that is seen is as it was, and none is missing.
    fn check_world(&self, life: &Life) -> Result<(), String> {
        let (view, tick) = (self.replica.view(), self.replica.tick());
        let interval = u32::from(life.grid.shape().far_interval_ticks);
        // What is far may be as it was at any tick from here on.
        let far_from = tick - tick % interval;
        let is_view = |tick| life.header(self.player, tick).is_some_and(|header| header.view == view);
        // If nothing came into view, all that is far is as it was at one and the same tick.
        let is_steady = (far_from..=tick).all(is_view);
        let mut seen_count = 0;
        for (id, versions) in life.histories() {
            let now = between(versions, tick, tick).next().flatten();
            let seen = self.replica.object(id);
            seen_count += usize::from(seen.is_some());
            let is_own = now.is_some_and(|now| now.visibility == Visibility::Owner(self.player));
            let is_true = if is_own {
                seen.is_some_and(|seen| seen.cell.is_none() && is_like(seen, now))
            } else if life.band(view, now) == Some(Band::Near) {
                seen.is_some_and(|seen| seen.cell == now.and_then(|now| life.cell(now)) && is_like(seen, now))
            } else if let Some(seen) = seen {
                between(versions, far_from, tick).any(|then| {
                    let is_far = life.band(view, then) == Some(Band::Far);
                    is_far && seen.cell == then.and_then(|then| life.cell(then)) && is_like(seen, then)
                })
            } else {
                let stays = |then: Option<&Version>| {
                    let is_here =
                        is_steady || then.and_then(|then| life.cell(then)) == now.and_then(|now| life.cell(now));
                    is_here && life.band(view, then) == Some(Band::Far)
                };
                !between(versions, far_from, tick).all(stays)
            };
            if !is_true {
                let then: Vec<_> = between(versions, far_from, tick).collect();
                return Err(format!("from {view:?} {id:?} is seen as {seen:?}; since {far_from} it was {then:?}"));
            }
        }
        let all = self.replica.objects().count();
        if all == seen_count { Ok(()) } else { Err(format!("{} objects that never were", all - seen_count)) }
    }

    /// Whether its client may be told with `code` that it is out.
    pub fn has_ended(&self, model: &Model, code: u32) -> bool {
        let pages = model.rooms.pages();
        pages.ended_with(self.room, code) || pages.is_removed(self.room, self.player, code)
    }

    /// Everything has come to rest: the client sees the world as it is, has heard everything, and its inputs have counted.
    ///
    /// # Errors
    /// What is missing.
    pub fn check_complete(&self, pages: &Pages) -> Result<(), String> {
        let life = &pages.lives[&self.room];
        if !life.ended.is_empty() || !life.players.contains_key(&self.player) || self.replica.tick() != life.tick {
            return Err(format!(
                "{:?} is at tick {} of {}, ended {:?}, players {:?}",
                self.player,
                self.replica.tick(),
                life.tick,
                life.ended,
                life.players
            ));
        }
        if let Some((_, event)) = self.next_event(pages) {
            return Err(format!("{:?} did not hear {event}: {:?}", self.player, pages.events[event as usize]));
        }
        let mine = pages.inputs.iter().filter(|input| input.join == Some(self.join));
        match mine.filter(|input| input.fate == Fate::Accepted).find(|input| !input.applied) {
            Some(lost) => Err(format!("an accepted input is lost: {lost:?}")),
            None => Ok(()),
        }
    }
}

/// Judges a history of a room's channel that `user` reads: what is for others is not in it, all else is that is remembered.
///
/// # Errors
/// What is wrong with it.
pub fn check_room_history(
    pages: &mut Pages,
    (channel, user): (&str, &str),
    (limit, since, reverse): (i32, Option<&ClientPosition>, bool),
    result: &HistoryBody,
) -> Result<(), String> {
    let came: Vec<(u64, u64)> = result.publications.iter().map(event_of).collect::<Result<_, _>>()?;
    let is_asked = |offset: u64| match since {
        Some(since) if reverse => offset < since.offset,
        Some(since) => offset > since.offset,
        None => true,
    };
    let stored = pages.stream(channel, &result.epoch, 1..=result.offset);
    let mut readable: Vec<(u64, u64)> =
        stored.filter(|(offset, event)| is_asked(*offset) && pages.may_recover(*event, user)).collect();
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let is_true = came.len() <= most
        && if reverse {
            readable.reverse();
            readable.starts_with(&came)
        } else if came.len() < most {
            readable.ends_with(&came)
        } else {
            came.is_empty() || readable.windows(came.len()).any(|part| part == came)
        };
    pages.count("history of a room");
    if is_true {
        Ok(())
    } else {
        Err(format!("{channel}: a history of {came:?} for {user:?}, limit {limit}, since {since:?}, of {readable:?}"))
    }
}

fn is_like(seen: &SeenObject, version: Option<&Version>) -> bool {
    version.is_some_and(|version| {
        seen.position == version.position && seen.kind == version.kind && seen.state == version.state
    })
}

/// Whether an input's publish command may have succeeded.
///
/// # Errors
/// If it must not.
pub fn accept_input(pages: &mut Pages, number: u64) -> Result<(), String> {
    let (before, from) = pages.inputs.split_at_mut(number as usize);
    let input = &mut from[0];
    input.fate = Fate::Accepted;
    let is_stale = before
        .iter()
        .any(|earlier| earlier.join == input.join && earlier.fate == Fate::Accepted && earlier.number >= input.number);
    let must_not =
        input.join.is_none() || is_stale || matches!(input.fault, InputFault::TooLong | InputFault::Malformed);
    if must_not { Err(format!("input {number} is accepted: {input:?}")) } else { Ok(()) }
}

/// Whether an input may be refused with `code`; `seat` is the one that the client has now.
///
/// # Errors
/// If it must not.
pub fn refuse_input(
    pages: &mut Pages,
    plan: &RoomPlan,
    number: u64,
    seat: Option<&Seat>,
    code: u32,
) -> Result<(), String> {
    let input = &mut pages.inputs[number as usize];
    input.fate = Fate::Refused;
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
        return Err(format!("input {number} is refused with {code}: {input:?}"));
    }
    pages.count(match code {
        103 => "input of nobody",
        107 => "input refused as bad",
        _ => "input refused as too fast",
    });
    Ok(())
}
