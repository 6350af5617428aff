//! The fields of checkpoints and log records, and the steps in them.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_protocol::{ClientInfo, Encoding, Payload};
use dunlin_rooms::{
    CallId, ListingChange, PlayerId, RoomOptions,
    recording::{put_role, read_role},
};

use super::{
    super::{AwayTerms, NotRestored, Step, runner::visitor_of},
    CHECKPOINT_VERSION, call_outcome,
};
use crate::{
    ShardIndex,
    api::{KickOrder, KickTarget},
    room::{SeatClaim, SeatKey, SeatToken},
};

pub(super) fn put_step(step: &Step, out: &mut Vec<u8>) {
    match step {
        Step::Join { seat, info, address, is_spectator, format, data, claim } => {
            out.push(if claim.keeps_returned { 9 } else { 6 });
            put_seat(*seat, out);
            let visitor = visitor_of(info, *address, *is_spectator);
            put_bytes(visitor.user.as_bytes(), out);
            put_bytes(visitor.client.as_bytes(), out);
            put_bytes(visitor.info, out);
            put_role(*is_spectator, *address, out);
            // A client that comes back after a restart says again whether it reads fields.
            out.extend_from_slice(&[claim.is_one_per_user.into(), format.encoding().index() as u8]);
            put_bytes(data, out);
            put_token(claim.given, out);
            put_token(claim.returned, out);
        }
        Step::Leave { seat } => {
            out.push(2);
            put_seat(*seat, out);
        }
        Step::Input { seat, number, data } => {
            out.push(3);
            put_seat(*seat, out);
            put_number((*number).into(), out);
            put_bytes(data, out);
        }
        Step::Away { seat, stay } => {
            out.push(if stay.is_some() { 7 } else { 4 });
            put_seat(*seat, out);
            if let Some(AwayTerms { grace_ticks, per_user_max }) = stay {
                put_number((*grace_ticks).into(), out);
                put_number((*per_user_max).into(), out);
            }
        }
        Step::AllAway { grace_ticks } => {
            out.push(5);
            put_number((*grace_ticks).into(), out);
        }
        Step::ChangeListing { id, change } => {
            out.push(16);
            put_number(*id, out);
            let mut written = Vec::new();
            change.write(&mut written);
            put_bytes(&written, out);
        }
        Step::Kick { id, order, seats } => {
            out.push(17);
            put_number(*id, out);
            put_kick(order, seats, out);
        }
        Step::Answer { call, outcome } => {
            out.push(32);
            put_number(call.0.into(), out);
            call_outcome::put(outcome, out);
        }
        Step::Message { id, data } => {
            out.push(8);
            put_number(*id, out);
            put_bytes(data, out);
        }
    }
}

fn put_kick(order: &KickOrder, seats: &[SeatKey], out: &mut Vec<u8>) {
    put_number(seats.len() as u64, out);
    for seat in seats {
        put_seat(*seat, out);
    }
    match &order.target {
        KickTarget::User(user) => {
            out.push(0);
            put_bytes(user.as_bytes(), out);
        }
        KickTarget::Client(client) => {
            out.push(1);
            put_bytes(client.as_bytes(), out);
        }
        KickTarget::Player(player) => {
            out.push(2);
            put_number(player.0.into(), out);
        }
    }
    put_bytes(order.reason.as_bytes(), out);
}

pub(super) fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

pub(super) fn put_seat(seat: SeatKey, out: &mut Vec<u8>) {
    for number in [seat.shard.0.into(), seat.index.into(), seat.generation.into()] {
        put_number(number, out);
    }
}

pub(super) fn put_token(token: Option<SeatToken>, out: &mut Vec<u8>) {
    out.push(token.is_some().into());
    if let Some(SeatToken(token)) = token {
        out.extend_from_slice(&token.to_le_bytes());
    }
}

pub(super) fn put_options(options: &RoomOptions, out: &mut Vec<u8>) {
    put_number(options.ticks_per_second.into(), out);
    for limit in [
        options.objects_max,
        options.state_bytes_max,
        options.players_max,
        options.events_per_tick_max,
        options.event_bytes_max,
        options.spectators_max,
        options.metadata_bytes_max,
        options.calls_max,
        options.call_bytes_max,
    ] {
        put_number(limit as u64, out);
    }
}

/// Reads the fields that the functions above wrote.
pub(super) struct RecordReader<'a>(pub(super) &'a [u8]);

impl<'a> RecordReader<'a> {
    pub(super) fn versioned(bytes: &'a [u8]) -> Result<(u8, Self), NotRestored> {
        let mut reader = Self(bytes);
        match reader.byte()? {
            version @ 1..=CHECKPOINT_VERSION => Ok((version, reader)),
            0 => Err(NotRestored::Malformed),
            version => Err(NotRestored::NewerVersion(version)),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], NotRestored> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(NotRestored::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], NotRestored> {
        let (array, rest) = self.0.split_first_chunk().ok_or(NotRestored::Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    pub(super) fn byte(&mut self) -> Result<u8, NotRestored> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn flag(&mut self) -> Result<bool, NotRestored> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(NotRestored::Malformed),
        }
    }

    pub(super) fn number(&mut self) -> Result<u64, NotRestored> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(NotRestored::Malformed)
    }

    pub(super) fn number_of<T: TryFrom<u64>>(&mut self) -> Result<T, NotRestored> {
        T::try_from(self.number()?).map_err(|_| NotRestored::Malformed)
    }

    /// The number of elements that follow, each of at least one byte.
    pub(super) fn count(&mut self) -> Result<usize, NotRestored> {
        self.number_of().ok().filter(|count| *count <= self.0.len()).ok_or(NotRestored::Malformed)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], NotRestored> {
        let count = self.count()?;
        self.take(count)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, NotRestored> {
        std::str::from_utf8(self.bytes()?).map_err(|_| NotRestored::Malformed)
    }

    pub(super) fn seat(&mut self) -> Result<SeatKey, NotRestored> {
        let shard = ShardIndex(self.number_of()?);
        Ok(SeatKey { shard, index: self.number_of()?, generation: self.number_of()? })
    }

    fn encoding(&mut self) -> Result<Encoding, NotRestored> {
        Encoding::ALL.get(usize::from(self.byte()?)).copied().ok_or(NotRestored::Malformed)
    }

    /// The client info that the game receives. It is read as the connection's info, whether it came from there or from
    /// the subscription.
    fn client_info(&mut self) -> Result<Arc<ClientInfo>, NotRestored> {
        let (user, client) = (Arc::from(self.text()?), Arc::from(self.text()?));
        let info = self.bytes()?;
        let conn_info = (!info.is_empty()).then(|| Payload::from_opaque(Bytes::copy_from_slice(info)));
        Ok(Arc::new(ClientInfo { user, client, conn_info, chan_info: None }))
    }

    pub(super) fn token(&mut self) -> Result<Option<SeatToken>, NotRestored> {
        let is_there = self.flag()?;
        is_there.then(|| Ok(SeatToken(u128::from_le_bytes(self.array()?)))).transpose()
    }

    pub(super) fn options(&mut self, version: u8) -> Result<RoomOptions, NotRestored> {
        Ok(RoomOptions {
            ticks_per_second: self.number_of()?,
            objects_max: self.number_of()?,
            state_bytes_max: self.number_of()?,
            players_max: self.number_of()?,
            events_per_tick_max: self.number_of()?,
            event_bytes_max: self.number_of()?,
            spectators_max: if version >= 2 { self.number_of()? } else { 0 },
            metadata_bytes_max: if version >= 2 { self.number_of()? } else { 0 },
            calls_max: if version >= 2 { self.number_of()? } else { 0 },
            call_bytes_max: if version >= 2 { self.number_of()? } else { 0 },
        })
    }

    fn kick_order(&mut self) -> Result<KickOrder, NotRestored> {
        let target = match self.byte()? {
            0 => KickTarget::User(self.text()?.into()),
            1 => KickTarget::Client(self.text()?.into()),
            2 => KickTarget::Player(PlayerId(self.number_of()?)),
            _ => return Err(NotRestored::Malformed),
        };
        Ok(KickOrder { target, reason: self.text()?.into() })
    }

    pub(super) fn step(&mut self) -> Result<Step, NotRestored> {
        Ok(match self.byte()? {
            // Version 1.
            1 => Step::Join {
                seat: self.seat()?,
                info: Arc::new(ClientInfo::of_user(self.text()?)),
                address: None,
                is_spectator: false,
                format: self.encoding()?.into(),
                data: Bytes::copy_from_slice(self.bytes()?),
                claim: SeatClaim { given: self.token()?, returned: self.token()?, ..SeatClaim::default() },
            },
            // Before version 3, joins did not keep the returned token.
            kind @ (6 | 9) => {
                let (seat, info) = (self.seat()?, self.client_info()?);
                let role = read_role(|count| self.take(count))?;
                let ((is_spectator, address), is_one_per_user) = (role.ok_or(NotRestored::Malformed)?, self.flag()?);
                let format = self.encoding()?.into();
                let data = Bytes::copy_from_slice(self.bytes()?);
                let (given, returned) = (self.token()?, self.token()?);
                let claim = SeatClaim { given, returned, is_one_per_user, keeps_returned: kind == 9 };
                Step::Join { seat, info, address, is_spectator, format, data, claim }
            }
            2 => Step::Leave { seat: self.seat()? },
            3 => Step::Input {
                seat: self.seat()?,
                number: self.number_of()?,
                data: Bytes::copy_from_slice(self.bytes()?),
            },
            4 => Step::Away { seat: self.seat()?, stay: None },
            7 => {
                let seat = self.seat()?;
                let stay = AwayTerms { grace_ticks: self.number_of()?, per_user_max: self.number_of()? };
                Step::Away { seat, stay: Some(stay) }
            }
            5 => Step::AllAway { grace_ticks: self.number_of()? },
            16 => {
                let (id, written) = (self.number()?, self.bytes()?);
                Step::ChangeListing { id, change: ListingChange::read(written).ok_or(NotRestored::Malformed)?.into() }
            }
            17 => {
                let id = self.number()?;
                let seats = (0..self.count()?).map(|_| self.seat()).collect::<Result<_, _>>()?;
                Step::Kick { id, seats, order: self.kick_order()?.into() }
            }
            32 => Step::Answer { call: CallId(self.number_of()?), outcome: call_outcome::read(self)? },
            8 => Step::Message { id: self.number()?, data: Bytes::copy_from_slice(self.bytes()?) },
            _ => return Err(NotRestored::Malformed),
        })
    }
}
