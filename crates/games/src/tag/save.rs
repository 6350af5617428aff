//! Saves and restores the state of the game that is not part of the world.

use std::collections::BTreeMap;

use dunlin_rooms::{Angle, Fixed, ObjectId, RestoreError};

use super::{
    TagGame,
    backend::Results,
    round::Round,
    runner::{Condition, Driver, TagRunner},
    shot::Shot,
};
use crate::{
    looks::Looks,
    saved::Saved,
    saving::{write_length, write_text, write_u32},
    walk::Velocity,
};

impl TagGame {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_length(self.runners.len(), out);
        self.runners.values().for_each(|runner| write_runner(runner, out));
        write_length(self.players.len(), out);
        for (player, id) in &self.players {
            write_u32(player.0, out);
            write_u32(id.0, out);
        }
        write_length(self.spectators.len(), out);
        self.spectators.iter().for_each(|spectator| write_u32(spectator.0, out));
        write_length(self.shots.len(), out);
        for (id, shot) in &self.shots {
            write_u32(id.0, out);
            write_shot(shot, out);
        }
        let Round { number, score_limit, rounds_max: _, next_round_tick, is_changed, next_report_tick } = &self.round;
        for number in [*number, *score_limit, next_round_tick.unwrap_or(0), *next_report_tick] {
            write_u32(number, out);
        }
        out.extend_from_slice(&[next_round_tick.is_some().into(), (*is_changed).into()]);
        self.results.write(out);
    }

    pub(super) fn read(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        let mut saved = Saved::new(saved);
        let runners: BTreeMap<_, _> = saved.list(|saved| read_runner(saved).map(|runner| (runner.avatar, runner)))?;
        let players = saved.list(|saved| Ok((saved.player()?, saved.object()?)))?;
        let spectators = saved.list(Saved::player)?;
        let shots = saved.list(|saved| Ok((saved.object()?, read_shot(saved)?)))?;
        let (number, score_limit, next_round_tick) = (saved.u32()?, saved.u32()?, saved.u32()?);
        let next_report_tick = saved.u32()?;
        let next_round_tick = saved.flag()?.then_some(next_round_tick);
        let is_changed = saved.flag()?;
        let results = Results::read(&mut saved)?;
        saved.finish()?;

        let rounds_max = self.round.rounds_max;
        self.round = Round { number, score_limit, rounds_max, next_round_tick, is_changed, next_report_tick };
        self.results = results;
        self.text_bytes = runners.values().map(super::text_bytes).sum();
        (self.runners, self.players, self.spectators, self.shots) = (runners, players, spectators, shots);
        Ok(())
    }
}

fn write_runner(runner: &TagRunner, out: &mut Vec<u8>) {
    let TagRunner { looks, user, avatar, label, driver, score, velocity, condition, is_away, reloaded_tick } = runner;
    write_text(&looks.name, out);
    write_text(user, out);
    let (driver, player, driver_tick) = match *driver {
        Driver::Bot { next_tick } => (0, 0, next_tick),
        Driver::Player { id, last_input_tick } => (1, id.0, last_input_tick),
    };
    let (condition, until) = match *condition {
        Condition::Running => (0, 0),
        Condition::Tagged { until } => (1, until),
        Condition::Safe { until } => (2, until),
    };
    for number in [avatar.0, label.0, player, driver_tick, *score, until, *reloaded_tick] {
        write_u32(number, out);
    }
    let velocity = [velocity.x.cast_unsigned(), velocity.y.cast_unsigned()];
    out.extend_from_slice(&[looks.colour, velocity[0], velocity[1], driver, condition, (*is_away).into()]);
}

fn read_runner(saved: &mut Saved<'_>) -> Result<TagRunner, RestoreError> {
    let (name, user) = (saved.text()?, saved.text()?);
    let (avatar, label, player) = (saved.object()?, saved.object()?, saved.player()?);
    let (driver_tick, score, until, reloaded_tick) = (saved.u32()?, saved.u32()?, saved.u32()?, saved.u32()?);
    let [colour, x, y, driver, condition] = saved.bytes()?;
    let driver = match driver {
        0 => Driver::Bot { next_tick: driver_tick },
        1 => Driver::Player { id: player, last_input_tick: driver_tick },
        _ => return Err(RestoreError),
    };
    let condition = match condition {
        0 => Condition::Running,
        1 => Condition::Tagged { until },
        2 => Condition::Safe { until },
        _ => return Err(RestoreError),
    };
    let (looks, velocity) = (Looks { name, colour }, Velocity { x: x.cast_signed(), y: y.cast_signed() });
    let is_away = saved.flag()?;
    Ok(TagRunner { looks, user, avatar, label, driver, score, velocity, condition, is_away, reloaded_tick })
}

fn write_shot(shot: &Shot, out: &mut Vec<u8>) {
    let Shot { owner, x, y, angle, lag_ticks, until } = shot;
    for number in [owner.0, angle.to_bits(), *lag_ticks, *until] {
        write_u32(number, out);
    }
    out.extend_from_slice(&x.to_bits().to_le_bytes());
    out.extend_from_slice(&y.to_bits().to_le_bytes());
}

fn read_shot(saved: &mut Saved<'_>) -> Result<Shot, RestoreError> {
    let (owner, angle) = (ObjectId(saved.u32()?), Angle::from_bits(saved.u32()?));
    let (lag_ticks, until) = (saved.u32()?, saved.u32()?);
    let fixed = |saved: &mut Saved<'_>| saved.bytes().map(i64::from_le_bytes).map(Fixed::from_bits);
    Ok(Shot { owner, x: fixed(saved)?, y: fixed(saved)?, angle, lag_ticks, until })
}
