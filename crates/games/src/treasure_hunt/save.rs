//! Saves and restores the state of the hunt that is not part of the world.

use std::collections::BTreeMap;

use dunlin_rooms::{ObjectId, PlayerId, Position, RestoreError};

use super::{
    TreasureHunt,
    clue::Clue,
    player::{Doing, HuntPlayer},
    treasure::Treasure,
};
use crate::{
    looks::Looks,
    saved::Saved,
    saving::{write_length, write_text, write_u32},
    walk::Velocity,
};

impl TreasureHunt {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_length(self.players.len(), out);
        for (id, player) in &self.players {
            write_u32(id.0, out);
            write_player(player, out);
        }
        write_length(self.treasures.buried.len(), out);
        for (id, Treasure { value, shares, is_chest }) in &self.treasures.buried {
            write_u32(id.0, out);
            out.extend_from_slice(&value.to_le_bytes());
            out.extend_from_slice(&[*shares, (*is_chest).into()]);
        }
        write_length(self.treasures.open.len(), out);
        for (until, id) in &self.treasures.open {
            write_u32(*until, out);
            write_u32(id.0, out);
        }
        write_u32(self.clues.next, out);
        out.push(self.clues.lying.is_some().into());
        if let Some(Clue { marker, treasure, position, shares, until }) = self.clues.lying {
            for number in [marker.0, treasure.0, position.x, position.y, until] {
                write_u32(number, out);
            }
            out.push(shares);
        }
        out.push(self.board.changed.into());
        write_u32(self.board.next, out);
    }

    pub(super) fn read(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        let mut saved = Saved::new(saved);
        let players: BTreeMap<PlayerId, HuntPlayer> = saved.list(|saved| Ok((saved.player()?, read_player(saved)?)))?;
        let buried: BTreeMap<ObjectId, Treasure> = saved.list(|saved| {
            let (id, value) = (saved.object()?, saved.u16()?);
            Ok((id, Treasure { value, shares: saved.u8()?, is_chest: saved.flag()? }))
        })?;
        let open = saved.list(|saved| Ok((saved.u32()?, saved.object()?)))?;
        let next_clue = saved.u32()?;
        let lying = if saved.flag()? { Some(read_clue(&mut saved)?) } else { None };
        let (changed, next_board) = (saved.flag()?, saved.u32()?);
        saved.finish()?;

        self.players = players;
        (self.treasures.buried, self.treasures.open) = (buried, open);
        (self.clues.next, self.clues.lying) = (next_clue, lying);
        (self.board.changed, self.board.next) = (changed, next_board);
        Ok(())
    }
}

fn write_player(player: &HuntPlayer, out: &mut Vec<u8>) {
    let HuntPlayer { looks, avatar, tag, purse, score, chests, energy, velocity, doing } = player;
    write_text(&looks.name, out);
    for number in [avatar.0, tag.0, purse.0, *score] {
        write_u32(number, out);
    }
    out.extend_from_slice(&chests.to_le_bytes());
    let (doing, emote, until) = match *doing {
        Doing::Nothing => (0, 0, 0),
        Doing::Digging { until } => (1, 0, until),
        Doing::Waving { emote, until } => (2, emote, until),
    };
    let velocity = [velocity.x.cast_unsigned(), velocity.y.cast_unsigned()];
    out.extend_from_slice(&[looks.colour, *energy, velocity[0], velocity[1], doing, emote]);
    write_u32(until, out);
}

fn read_player(saved: &mut Saved<'_>) -> Result<HuntPlayer, RestoreError> {
    let name = saved.text()?;
    let (avatar, tag, purse) = (saved.object()?, saved.object()?, saved.object()?);
    let (score, chests) = (saved.u32()?, saved.u16()?);
    let [colour, energy, x, y, doing, emote] = saved.bytes()?;
    let until = saved.u32()?;
    let doing = match doing {
        0 => Doing::Nothing,
        1 => Doing::Digging { until },
        2 => Doing::Waving { emote, until },
        _ => return Err(RestoreError),
    };
    let velocity = Velocity { x: x.cast_signed(), y: y.cast_signed() };
    Ok(HuntPlayer { looks: Looks { name, colour }, avatar, tag, purse, score, chests, energy, velocity, doing })
}

fn read_clue(saved: &mut Saved<'_>) -> Result<Clue, RestoreError> {
    let (marker, treasure) = (saved.object()?, saved.object()?);
    let position = Position { x: saved.u32()?, y: saved.u32()? };
    let until = saved.u32()?;
    Ok(Clue { marker, treasure, position, until, shares: saved.u8()? })
}
