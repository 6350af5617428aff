//! What the connections of players have carried, told to the rooms that are recorded.
//!
//! A player that gets each tick with everything costs nothing but the question whether its room is recorded. Otherwise each
//! frame leaves at most one entry, and all entries of a room leave with its next tick.

use dunlin_rooms::{
    ZONES,
    recording::{Carried, CarriedWait},
};

use super::{LocalRoom, SeatFrame, SeatIndex, Seated, SeatedAt, Seats, ticks_us};
use crate::{
    ShardIndex,
    room::{RoomThreadIndex, SeatCarried, SeatKey, ToRoom},
};

/// What a shard tells a room.
#[derive(Debug)]
pub(super) struct Telling {
    thread: RoomThreadIndex,
    shard: ShardIndex,
    /// Since the last tick.
    told: Vec<SeatCarried>,
}

/// How a frame came to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WroteAt {
    /// How long the session had a frame of a room to send.
    pub(crate) waited_us: u64,
    /// Whether the session has stated how many bytes it takes.
    pub(crate) has_session_pace: bool,
}

impl LocalRoom {
    /// From now on, what its players are sent is told to the thread, from this shard; `None`: to nobody.
    pub(crate) fn tell(&mut self, to: Option<(RoomThreadIndex, ShardIndex)>) {
        match (&self.telling, to) {
            // A keyframe in another form. What was told since the last tick stays.
            (Some(_), Some(_)) => {}
            (_, to) => {
                self.telling = to.map(|(thread, shard)| Box::new(Telling { thread, shard, told: Vec::new() }));
            }
        }
    }

    /// Whether it is told what its players are sent.
    pub(super) fn is_told(&self) -> bool {
        self.telling.is_some()
    }

    /// What was told since the last call.
    pub(crate) fn take_told(&mut self) -> Option<(RoomThreadIndex, ToRoom)> {
        let telling = self.telling.as_mut().filter(|telling| !telling.told.is_empty())?;
        Some((telling.thread, ToRoom::Carried { room: self.key, told: std::mem::take(&mut telling.told) }))
    }

    /// What a player who had `had_tick` was not sent before `tick`.
    fn carried(&self, seated: Seated, had_tick: u32, tick: u32, wrote_at: WroteAt) -> Carried {
        // Before the first frame, there is nothing that a pace or a limit could leave out.
        let first = if had_tick == 0 { seated.due_from_tick } else { had_tick + 1 }.min(tick);
        let paced_until = seated.rests_until_tick.min(seated.due_from_tick).clamp(first, tick);
        let due_from = seated.due_from_tick.clamp(paced_until, tick);
        let (mut paced_ticks, mut limited_ticks) = (paced_until - first, due_from - paced_until);
        if self.frame_bytes_per_second.is_none() {
            // Its pace was another one at that time.
            paced_ticks += std::mem::take(&mut limited_ticks);
        }
        let waited_ticks = tick - due_from;
        let wait = if waited_ticks == 0 { CarriedWait::default() } else { self.wait(waited_ticks, wrote_at) };
        Carried { had_tick, tick, paced_ticks, limited_ticks, waited_ticks, wait, ..Carried::default() }
    }

    /// Ticks that came one after the other have waited for about as long as they take. Without a wait, they came at once.
    fn wait(&self, ticks: u32, wrote_at: WroteAt) -> CarriedWait {
        if wrote_at.waited_us < ticks_us(ticks, self.ticks_per_second()) / 2 {
            CarriedWait::Shard
        } else if wrote_at.has_session_pace {
            CarriedWait::SessionPace
        } else {
            CarriedWait::Connection
        }
    }

    fn note(&mut self, index: SeatIndex, generation: u32, carried: Carried) {
        let telling = self.telling.as_mut().expect("the caller has asked whether the room is recorded");
        let seat = SeatKey { shard: telling.shard, index: index.0, generation };
        telling.told.push(SeatCarried { seat, carried });
    }
}

impl SeatFrame {
    /// How old the zones are that it leaves out for a bandwidth limit.
    fn zone_ages_ticks(&self) -> [u32; ZONES] {
        let Some(body) = &self.body else { return [0; ZONES] };
        let age_ticks = |zone: usize| body.tick.saturating_sub(body.zone_ticks[zone]);
        std::array::from_fn(|zone| if body.is_postponed[zone] { age_ticks(zone) } else { 0 })
    }
}

impl Seats {
    /// The frame that a seat was offered is being written. Its player had `had_tick`, and was seated like this, before.
    #[cold]
    pub(super) fn tell_of_frame(&mut self, before: Seated, had_tick: u32, wrote_at: WroteAt) {
        let Self { seats, rooms, .. } = self;
        let index = before.seat;
        let seat = seats[index.0 as usize].as_deref().expect("a session's seats are taken");
        let SeatedAt { room, .. } = seat.at.expect("only who gets frames is offered one");
        let room = rooms[room as usize].as_mut().expect("a room's place is forgotten with the room");
        let carried = Carried {
            is_sent: true,
            zone_ages_ticks: seat.frame.zone_ages_ticks(),
            ..room.carried(before, had_tick, seat.frame.base_after.tick, wrote_at)
        };
        if carried.is_worth_telling() {
            room.note(index, seat.generation, carried);
        }
    }

    /// A seat is given back. If it is behind, that is told at once: the room forgets the seat with its next tick.
    pub(crate) fn tell_of_leaving(&mut self, index: SeatIndex) -> Option<(RoomThreadIndex, ToRoom)> {
        let Self { seats, rooms, .. } = self;
        let seat = seats[index.0 as usize].as_deref().expect("a seat is given back once");
        let SeatedAt { room, place } = seat.at?;
        let room = rooms[room as usize].as_mut().expect("a room's place is forgotten with the room");
        if !room.is_told() {
            return None;
        }
        // The newest tick would have been sent as well.
        let after = room.tick() + 1;
        // How long it has waited is not asked for: a connection that ends has mostly not taken what it was sent.
        let wrote_at = WroteAt { waited_us: u64::MAX, has_session_pace: false };
        let carried = room.carried(room.seated[place as usize], seat.base.tick, after, wrote_at);
        // A tick that has just come, or that its pace leaves out, it has not missed.
        if carried.limited_ticks > 0 || carried.waited_ticks > 1 {
            room.note(index, seat.generation, carried);
        }
        room.take_told()
    }
}
