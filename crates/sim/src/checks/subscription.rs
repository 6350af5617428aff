//! A subscription as its client sees it, and the checks of what it receives.
//!
//! - The reliable lane: publications are in order, without duplicates and without gaps.
//! - The latest lane: a subscriber never receives an older publication after a newer one, the tag `skipped` counts every
//!   replaced publication, and the subscriber ends with the newest one.
//! - The newest publication of each key, which the server sends with a subscribe reply: no key may be missing or appear
//!   twice.

use std::collections::BTreeMap;

use dunlin_engine::options::{Lane, NamespaceOptions};
use dunlin_protocol::Encoding;

use crate::{
    model::{ChannelFacts, Model, Publisher},
    rooms::RoomModel,
    wire::{ClientPosition, Filter, PublicationBody},
};

use super::{
    RecoveryLimits,
    difference::DeltaState,
    room::{Seat, event_of},
};

/// Number of keys in the plan. Publications without a key count as one.
const KEYS_OF_PLAN: usize = 4;

/// An upper bound for the bytes of one publication in the cache.
const PUBLICATION_BYTES_MAX: usize = 2_000;

/// A live subscription as its client sees it, with the state that is needed to check the next publication.
#[derive(Debug, Default)]
pub struct Subscription {
    pub channel: String,
    /// Whether the server tracks its position.
    pub positioned: bool,
    /// Whether the client may recover it.
    pub recoverable: bool,
    /// The epoch of its stream.
    pub epoch: String,
    /// The last offset, or `None` if it is not known yet.
    pub offset: Option<u64>,
    /// Number of API publications when the client sent its request. Those are not delivered live.
    pub request_count: u64,
    /// Number of API publications when the client received the reply. Later ones are delivered live.
    pub live_count: u64,
    /// When the client received the reply, in Unix milliseconds.
    pub live_ms: u64,
    /// When it expires according to the last message of the server, in Unix seconds.
    pub expiry_s: Option<u64>,
    /// The latest expiry of all tokens that the client presented for it.
    pub latest_expiry_s: Option<u64>,
    /// Whether the newest publication of each key follows the reply as a push. This is so if an operator subscribed the
    /// client.
    pub newest_follows_reply: bool,
    /// Count of the last API publication that was delivered live.
    pub(super) api_seen: Option<u64>,
    /// Count of the last publication for each key of the latest lane.
    pub(super) keys_seen: BTreeMap<Option<String>, u64>,
    /// Count of the last publication for each publishing session.
    pub(super) sessions_seen: BTreeMap<String, u64>,
    /// Count of the newest API publication in the reply.
    pub(super) recovered_count: u64,
    /// The filter that the client requested.
    pub filter: Option<Filter>,
    /// The number that replaces the channel name on the wire, or 0 if there is none.
    pub number: u64,
    /// The delta state, if the subscription receives deltas.
    pub delta_state: Option<DeltaState>,
    /// The client's seat, if the channel has a room.
    pub seat: Option<Box<Seat>>,
    /// By client id, whether the last join or leave message was a join.
    pub(super) present: BTreeMap<String, bool>,
}

impl Subscription {
    /// The position to recover from.
    pub fn position(&self) -> Option<ClientPosition> {
        let offset = self.offset.filter(|_| self.recoverable)?;
        Some(ClientPosition { epoch: self.epoch.clone(), offset })
    }

    /// Records a join or a leave message.
    ///
    /// # Errors
    /// If a client joins twice without a leave, or leaves twice without a join.
    pub fn record_presence(&mut self, client: &str, comes: bool) -> Result<(), String> {
        match self.present.insert(client.to_owned(), comes) {
            Some(was_there) if was_there == comes => {
                let what = if comes { "joins" } else { "leaves" };
                Err(format!("{client} {what} {} twice in a row", self.channel))
            }
            _ => Ok(()),
        }
    }

    /// Checks and records a publication that was delivered live. Returns its number.
    ///
    /// # Errors
    /// If it is not the next publication for this subscription.
    pub fn publication(&mut self, model: &mut Model, seen: &PublicationBody) -> Result<u64, String> {
        let seen = &self.full_publication(seen)?;
        let epoch = Some(&*self.epoch).filter(|epoch| !epoch.is_empty());
        let number = model.identify(&self.channel, seen, epoch)?;
        self.check_filter(model, number)?;
        let lane = model.channel(&self.channel).ok_or("a publication in an unknown channel")?.lane();
        check_tags(model, number, seen, lane)?;
        match lane {
            Lane::Reliable => self.next_reliable(model, number, seen.offset)?,
            Lane::Latest => self.next_latest(model, number, seen)?,
        }
        Ok(number)
    }

    /// Returns the publication with its full data, whether it was sent as a delta or not.
    ///
    /// # Errors
    /// If a delta has no base or does not apply to it, or if the client did not request deltas.
    pub(super) fn full_publication(&mut self, seen: &PublicationBody) -> Result<PublicationBody, String> {
        let data = match &mut self.delta_state {
            Some(delta_state) => {
                let full = delta_state.apply(seen);
                full.map_err(|error| format!("{}: {error}, at offset {}", self.channel, seen.offset))?
            }
            None if seen.delta => return Err(format!("{}: a delta that the client did not request", self.channel)),
            None => seen.data.clone(),
        };
        Ok(PublicationBody { data, ..seen.clone() })
    }

    /// Checks that a received publication passes the filter.
    pub(super) fn check_filter(&self, model: &mut Model, number: u64) -> Result<(), String> {
        let published = &model.published[number as usize];
        if !published.passes(self.filter.as_ref()) {
            return Err(format!("{}: the filter {:?} rejects {published:?}", self.channel, self.filter));
        }
        if self.filter.is_some() {
            model.count("passed a filter");
        }
        Ok(())
    }

    fn next_reliable(&mut self, model: &mut Model, number: u64, offset: u64) -> Result<(), String> {
        if offset > 0 {
            match self.offset {
                Some(last) if offset <= last => {
                    return Err(format!("{}: offset {offset} comes after {last}", self.channel));
                }
                Some(last) => self.may_skip(model, last, offset)?,
                None if self.positioned => {
                    return Err(format!("{}: an offset arrives, but the position is not known", self.channel));
                }
                None => {}
            }
            self.offset = Some(offset);
        }
        let published = &model.published[number as usize];
        match &published.publisher {
            Publisher::Api => self.next_of_api(model, published.count),
            Publisher::Session(session) => {
                let last = self.sessions_seen.insert(session.clone(), published.count).unwrap_or(0);
                if published.count > last {
                    Ok(())
                } else {
                    Err(format!("{}: publication {} of {session} after {last}", self.channel, published.count))
                }
            }
        }
    }

    /// Checks that the server may send offset `next` directly after `last`.
    pub(super) fn may_skip(&self, model: &mut Model, last: u64, next: u64) -> Result<(), String> {
        let facts = model.channel(&self.channel).ok_or("a publication in an unknown channel")?;
        if let Err(missing) = model.may_skip(facts, self.filter.as_ref(), &self.epoch, last, next) {
            return Err(format!("{}: offset {next} comes after {last}, without {missing}", self.channel));
        }
        if last + 1 < next {
            model.count("skipped by a filter");
        }
        Ok(())
    }

    fn next_of_api(&mut self, model: &Model, count: u64) -> Result<(), String> {
        let facts = model.channel(&self.channel).ok_or("a publication in an unknown channel")?;
        let none_between = |low| model.passing_between(facts, self.filter.as_ref(), low, count) == 0;
        let fits = match self.api_seen {
            Some(last) => count > last && none_between(last),
            None => count > self.request_count.max(self.recovered_count) && none_between(self.live_count),
        };
        if !fits {
            return Err(format!("{}: the API's publication {count} is out of order for {self:?}", self.channel));
        }
        self.api_seen = Some(count);
        Ok(())
    }

    pub(super) fn next_latest(&mut self, model: &Model, number: u64, seen: &PublicationBody) -> Result<(), String> {
        let published = &model.published[number as usize];
        let facts = model.channel(&self.channel).ok_or("a publication in an unknown channel")?;
        if seen.offset > 0 {
            if self.positioned && self.offset.is_none_or(|last| seen.offset <= last) {
                return Err(format!("{}: offset {} after {:?}", self.channel, seen.offset, self.offset));
            }
            self.offset = Some(seen.offset);
        }
        let skipped = match seen.tags.get("skipped") {
            Some(skipped) => skipped.parse().map_err(|_| format!("skipped: {skipped}"))?,
            None => 0,
        };
        let key = lane_key(facts, published.key());
        let last = self.keys_seen.insert(key.clone(), published.count);
        let between = |low: u64| {
            let of_key = facts.by_key.get(&key).map_or(&[][..], Vec::as_slice);
            let between = of_key.iter().filter(|&&count| count > low && count < published.count);
            between.filter(|&&count| self.passes_filter(model, facts, count)).count() as u64
        };
        let (upper, lower) = match last {
            Some(last) if published.count <= last => {
                return Err(format!("{} {key:?}: {} comes after {last}", self.channel, published.count));
            }
            // What a pace leaves out is not tagged.
            Some(last) if model.has_paces => (between(last), 0),
            Some(last) => (between(last), between(last)),
            None if self.newest_follows_reply && published.count <= self.request_count => (0, 0),
            None if published.count <= self.request_count.max(self.recovered_count) => {
                return Err(format!(
                    "{} {key:?}: {} is delivered live, but was published before the subscription",
                    self.channel, published.count
                ));
            }
            None if model.has_paces => (between(self.request_count), 0),
            None => (between(self.request_count), between(self.live_count)),
        };
        if (lower..=upper).contains(&skipped) {
            Ok(())
        } else {
            let count = published.count;
            Err(format!("{} {key:?}: {skipped} skipped before {count}, not {lower} to {upper}", self.channel))
        }
    }

    /// Whether publication number `count` of the API passes the subscriber's filter.
    fn passes_filter(&self, model: &Model, facts: &ChannelFacts, count: u64) -> bool {
        let number = facts.of_api[count as usize - 1];
        model.published[number as usize].passes(self.filter.as_ref())
    }

    /// Checks a publication in a room's channel and records it.
    ///
    /// # Errors
    /// If it differs from what the game recorded, or is not addressed to this client.
    pub fn room_publication(
        &mut self,
        room_model: &mut RoomModel,
        encoding: Encoding,
        seen: &PublicationBody,
    ) -> Result<(), String> {
        let seat = self.seat.as_mut().ok_or("a room's publication without a seat")?;
        if seen.offset == 0 {
            let outcome = seat.snapshot(room_model, encoding, seen);
            return outcome.map_err(|error| format!("{}: {:?}: {error}", self.channel, seat.player));
        }
        let (offset, number) = event_of(seen)?;
        let at = ClientPosition { epoch: self.epoch.clone(), offset };
        if self.offset.is_none_or(|last| offset <= last) || room_model.at(&self.channel, &at) != Some(number) {
            return Err(format!("{}: event {number} at {at:?} after {:?}", self.channel, self.offset));
        }
        self.offset = Some(offset);
        room_model.count("event received");
        if seat.follows_departure(room_model, number) {
            room_model.count("event after a player left");
            return Ok(());
        }
        if seat.is_of_a_later_room(room_model, number) {
            room_model.count("event of a later room");
            return Ok(());
        }
        let next = seat.next_event(room_model).map(|(index, number)| (index + 1, number));
        match next {
            Some((received, next)) if next == number => {
                seat.events_received = received;
                Ok(())
            }
            _ if seat.takes_as_former(room_model, number) => {
                room_model.count("event of a former seat");
                Ok(())
            }
            other => Err(format!(
                "{}: {:?} receives {number}, {:?}, and the next one for it is {other:?}",
                self.channel, seat.player, room_model.events[number as usize]
            )),
        }
    }

    /// Records the recovered publications of a subscribe reply, oldest first.
    ///
    /// # Errors
    /// If a publication is unknown, does not pass the filter, or is at another position than before.
    pub(super) fn recovered(&mut self, model: &mut Model, seen: &[PublicationBody]) -> Result<(), String> {
        for publication in seen {
            if publication.delta {
                model.count("recovered as a delta");
            }
            let publication = &self.full_publication(publication)?;
            let number = model.identify(&self.channel, publication, Some(&self.epoch))?;
            self.check_filter(model, number)?;
            let published = &model.published[number as usize];
            if published.publisher == Publisher::Api {
                self.recovered_count = self.recovered_count.max(published.count);
            }
            self.offset = Some(publication.offset);
        }
        Ok(())
    }

    /// Records the newest publication of each key from a subscribe reply.
    ///
    /// # Errors
    /// If a publication is outdated, a key appears twice, or a key is missing.
    pub(super) fn newest_of_keys(
        &mut self,
        model: &mut Model,
        limits: RecoveryLimits,
        rules: &NamespaceOptions,
        seen: &[PublicationBody],
    ) -> Result<(), String> {
        for publication in seen {
            let number = model.identify(&self.channel, publication, None)?;
            self.check_filter(model, number)?;
            let facts = model.channel(&self.channel).ok_or("an unknown channel")?;
            let published = &model.published[number as usize];
            let key = lane_key(facts, published.key());
            let known = newest_at(facts, key.as_ref(), self.request_count);
            if published.count < known {
                return Err(format!("{} {key:?}: received {}, but {known} is newer", self.channel, published.count));
            }
            if self.keys_seen.insert(key.clone(), published.count).is_some() {
                return Err(format!("{} {key:?}: two publications in the reply", self.channel));
            }
        }
        // If other recoveries use up the byte limit, the server sends none.
        let is_cut = limits.recovery_bytes_max == 0 && seen.is_empty();
        let bytes_max = limits.queue_bytes_max / 2;
        let is_all_kept = rules.cache_keys_max >= KEYS_OF_PLAN
            && bytes_max >= KEYS_OF_PLAN * PUBLICATION_BYTES_MAX
            && !limits.evicts_channels;
        if is_all_kept && !self.newest_follows_reply && !is_cut {
            self.check_keys(model, rules)?;
            model.count("newest of each key");
        }
        Ok(())
    }

    /// Checks that no key is missing whose newest publication passes the filter and has not expired.
    fn check_keys(&self, model: &Model, rules: &NamespaceOptions) -> Result<(), String> {
        let facts = model.channel(&self.channel).ok_or("an unknown channel")?;
        for (key, counts) in &facts.by_key {
            let known = newest_at(facts, key.as_ref(), self.request_count);
            let may_lack = |&count: &u64| {
                let published = &model.published[facts.of_api[count as usize - 1] as usize];
                let is_old = published.accepted_ms + rules.cache_keys_ttl_ms <= self.live_ms;
                !published.passes(self.filter.as_ref()) || is_old
            };
            let is_lacked = known > facts.keys_removed && !self.keys_seen.contains_key(key);
            // The newest one may be a publication that was accepted while the reply was in flight.
            if is_lacked && !counts.iter().filter(|&&count| count >= known).any(may_lack) {
                return Err(format!("{} {key:?}: the newest was {known}, but the reply lacks it", self.channel));
            }
        }
        Ok(())
    }

    /// Checks, when nothing is in flight, that no publication is missing at the end.
    ///
    /// # Errors
    /// If the last publications are missing.
    pub fn check_complete(&self, model: &Model, top: Option<(&str, u64)>) -> Result<(), String> {
        let facts = model.channel(&self.channel).ok_or("a subscription to an unknown channel")?;
        if facts.lane() == Lane::Latest {
            return self.check_newest(model, facts);
        }
        let seen = self.api_seen.unwrap_or(self.live_count);
        let filter = self.filter.as_ref();
        if model.passing_between(facts, filter, seen.max(self.live_count), facts.api_count + 1) > 0 {
            return Err(format!(
                "{}: the last API publication received is {} of {}",
                self.channel, seen, facts.api_count
            ));
        }
        let Some((epoch, top)) = top.filter(|_| self.positioned) else { return Ok(()) };
        let has_all = self.offset.is_some_and(|last| {
            last <= top && (last == top || model.may_skip(facts, filter, epoch, last, top + 1).is_ok())
        });
        if epoch != self.epoch || !has_all {
            return Err(format!(
                "{}: the stream is at {epoch} {top}, the subscriber at {} {:?}",
                self.channel, self.epoch, self.offset
            ));
        }
        Ok(())
    }

    pub(super) fn check_newest(&self, model: &Model, facts: &ChannelFacts) -> Result<(), String> {
        for (key, counts) in &facts.by_key {
            let newest = counts.iter().rev().find(|&&count| self.passes_filter(model, facts, count));
            let newest = newest.copied().unwrap_or(0);
            let seen = self.keys_seen.get(key).copied();
            if newest > self.live_count && seen != Some(newest) {
                return Err(format!(
                    "{} {key:?}: the newest is {newest}, but the subscriber has {seen:?}",
                    self.channel
                ));
            }
        }
        Ok(())
    }
}

/// The key of a publication's slot in the latest lane: the value of the tag if the namespace has a conflation key, and
/// `None` otherwise.
pub fn lane_key(facts: &ChannelFacts, tag: Option<&String>) -> Option<String> {
    let is_keyed = facts.rules.as_ref().is_some_and(|rules| rules.conflation_key.is_some());
    tag.filter(|_| is_keyed).cloned()
}

/// The newest publication with this key among the first `count` API publications, or 0 if there is none.
fn newest_at(facts: &ChannelFacts, key: Option<&String>, count: u64) -> u64 {
    let counts = facts.by_key.get(&key.cloned()).map_or(&[][..], Vec::as_slice);
    counts.iter().rev().find(|&&of_key| of_key <= count).copied().unwrap_or(0)
}

/// Checks that the tags are those of the publication. The latest lane adds one tag.
fn check_tags(model: &Model, number: u64, seen: &PublicationBody, lane: Lane) -> Result<(), String> {
    let given = &model.published[number as usize].tags;
    let mut tags = seen.tags.clone();
    if lane == Lane::Latest {
        tags.remove("skipped");
    }
    if *given == tags { Ok(()) } else { Err(format!("publication {number} has the tags {:?}", seen.tags)) }
}
