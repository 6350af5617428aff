//! One block of a player's path.

use std::fmt;

use crate::{
    ObjectId, PlayerId, Position,
    binary::{Reader, Unreadable, put_bytes, put_number, put_position},
};

/// Maximum bytes of a block.
pub const PATH_BLOCK_BYTES_MAX: usize = 4_096;

/// Maximum bytes of a user's name in a block; a longer one is truncated.
const USER_BYTES_MAX: usize = 1_024;

/// Maximum bytes of one point: a code, and three numbers of up to 33 bits.
const POINT_BYTES_MAX: usize = 16;

const VERSION: u8 = 1;

/// Maximum change of a velocity's component that a one-byte code can express, in both directions.
const CHANGE_MAX: i64 = 7;
/// The number of possible changes of one component.
const CHANGES: i64 = 2 * CHANGE_MAX + 1;
/// The code of a point in the long form.
const FULL: u8 = 255;

/// Maximum ticks per second of a room.
const TICKS_PER_SECOND_MAX: u32 = 240;

/// A player's position in a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathPoint {
    /// The tick.
    pub tick: u32,
    /// In units from the corner of the map.
    pub position: Position,
}

/// The part of a block that applies to all its points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHeader<'a> {
    /// The player's number in its room.
    pub player: PlayerId,
    /// The object that represents the player.
    pub avatar: Option<ObjectId>,
    /// The player's user; empty for the anonymous user.
    pub user: &'a str,
    /// The room's ticks per second.
    pub ticks_per_second: u32,
    /// Ticks between two points of a moving player.
    pub interval_ticks: u32,
    /// The tick of the first point.
    pub first_tick: u32,
    /// The Unix time of the first point.
    pub first_ms: u64,
}

/// A decoded block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedBlock<'a> {
    /// The part that applies to all its points.
    pub header: BlockHeader<'a>,
    /// At least one, in ascending order of ticks.
    pub points: Vec<PathPoint>,
}

/// The bytes are not a block, or a block of a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableBlock;

/// A block that is being written.
#[derive(Debug, Default)]
pub(super) struct BlockWriter {
    bytes: Vec<u8>,
    interval_ticks: u32,
    last: Option<PathPoint>,
    velocity: (i64, i64),
    points: u32,
}

impl BlockHeader<'_> {
    /// The Unix time of a tick, at the room's rate.
    pub fn time_ms(&self, tick: u32) -> u64 {
        let ticks = u64::from(tick.saturating_sub(self.first_tick));
        self.first_ms.saturating_add(ticks * 1_000 / u64::from(self.ticks_per_second.max(1)))
    }
}

impl BlockWriter {
    /// Starts a block with its first point. The block must be empty.
    pub(super) fn begin(&mut self, header: &BlockHeader<'_>, position: Position) {
        self.clear();
        self.interval_ticks = header.interval_ticks;
        self.bytes.push(VERSION);
        put_number(u64::from(header.player.0), &mut self.bytes);
        put_number(header.avatar.map_or(0, |avatar| u64::from(avatar.0)), &mut self.bytes);
        put_bytes(shortened(header.user).as_bytes(), &mut self.bytes);
        put_number(u64::from(header.ticks_per_second), &mut self.bytes);
        put_number(u64::from(header.interval_ticks), &mut self.bytes);
        put_number(u64::from(header.first_tick), &mut self.bytes);
        put_number(header.first_ms, &mut self.bytes);
        put_position(position, &mut self.bytes);
        self.last = Some(PathPoint { tick: header.first_tick, position });
        self.points = 1;
    }

    /// Appends a point of a later tick. Returns whether it fits.
    pub(super) fn add(&mut self, point: PathPoint) -> bool {
        let Some(last) = self.last else { return false };
        if self.bytes.len() + POINT_BYTES_MAX > PATH_BLOCK_BYTES_MAX {
            return false;
        }
        let way = |to: u32, from: u32| i64::from(to) - i64::from(from);
        let velocity = (way(point.position.x, last.position.x), way(point.position.y, last.position.y));
        let ticks = point.tick - last.tick;
        match code_of(velocity.0 - self.velocity.0, velocity.1 - self.velocity.1) {
            Some(code) if ticks == self.interval_ticks => self.bytes.push(code),
            _ => {
                self.bytes.push(FULL);
                put_number(u64::from(ticks), &mut self.bytes);
                put_number(zigzag(velocity.0), &mut self.bytes);
                put_number(zigzag(velocity.1), &mut self.bytes);
            }
        }
        (self.last, self.velocity) = (Some(point), velocity);
        self.points += 1;
        true
    }

    /// Empties the block, and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.last, self.velocity, self.points) = (None, (0, 0), 0);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn points(&self) -> u32 {
        self.points
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Decodes a block.
///
/// # Errors
/// [`UnreadableBlock`]
pub fn decode_block(bytes: &[u8]) -> Result<DecodedBlock<'_>, UnreadableBlock> {
    let (header, position, mut codes) = header_of(bytes)?;
    let mut last = PathPoint { tick: header.first_tick, position };
    let mut velocity = (0, 0);
    let mut points = Vec::with_capacity(1 + codes.left());
    points.push(last);
    while codes.left() > 0 {
        let code = codes.byte()?;
        let ticks = if code == FULL {
            let ticks = codes.number_of::<u32>()?;
            velocity = (unzigzag(codes.number()?), unzigzag(codes.number()?));
            ticks
        } else {
            let (x, y) = changes_of(code).ok_or(UnreadableBlock)?;
            velocity = (velocity.0 + x, velocity.1 + y);
            header.interval_ticks
        };
        let moved = |from: u32, way: i64| i64::from(from).checked_add(way).and_then(|to| u32::try_from(to).ok());
        let position = Position {
            x: moved(last.position.x, velocity.0).ok_or(UnreadableBlock)?,
            y: moved(last.position.y, velocity.1).ok_or(UnreadableBlock)?,
        };
        let tick = last.tick.checked_add(ticks).filter(|tick| *tick > last.tick).ok_or(UnreadableBlock)?;
        last = PathPoint { tick, position };
        points.push(last);
    }
    Ok(DecodedBlock { header, points })
}

/// Decodes only the header of a block.
///
/// # Errors
/// [`UnreadableBlock`]
pub fn read_header(bytes: &[u8]) -> Result<BlockHeader<'_>, UnreadableBlock> {
    header_of(bytes).map(|(header, ..)| header)
}

fn header_of(bytes: &[u8]) -> Result<(BlockHeader<'_>, Position, Reader<'_>), UnreadableBlock> {
    if bytes.len() > PATH_BLOCK_BYTES_MAX {
        return Err(UnreadableBlock);
    }
    let mut reader = Reader::new(bytes);
    if reader.byte()? != VERSION {
        return Err(UnreadableBlock);
    }
    let player = PlayerId(reader.number_of()?);
    let avatar = Some(ObjectId(reader.number_of()?)).filter(|avatar| avatar.0 != 0);
    let header = BlockHeader {
        player,
        avatar,
        user: reader.text()?,
        ticks_per_second: reader.number_of()?,
        interval_ticks: reader.number_of()?,
        first_tick: reader.number_of()?,
        first_ms: reader.number()?,
    };
    if !(1..=TICKS_PER_SECOND_MAX).contains(&header.ticks_per_second) || header.interval_ticks == 0 {
        return Err(UnreadableBlock);
    }
    let position = reader.position()?;
    Ok((header, position, reader))
}

/// The code of a change of velocity; `None` if the change is too large.
fn code_of(x: i64, y: i64) -> Option<u8> {
    let is_small = |change: i64| (-CHANGE_MAX..=CHANGE_MAX).contains(&change);
    let code = (x + CHANGE_MAX) * CHANGES + y + CHANGE_MAX;
    if is_small(x) && is_small(y) { u8::try_from(code).ok() } else { None }
}

fn changes_of(code: u8) -> Option<(i64, i64)> {
    let code = i64::from(code);
    (code < CHANGES * CHANGES).then_some((code / CHANGES - CHANGE_MAX, code % CHANGES - CHANGE_MAX))
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

fn shortened(user: &str) -> &str {
    &user[..user.floor_char_boundary(USER_BYTES_MAX)]
}

impl From<Unreadable> for UnreadableBlock {
    fn from(_: Unreadable) -> Self {
        Self
    }
}

impl fmt::Display for UnreadableBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes are no block of a path, or one of a later version")
    }
}

impl std::error::Error for UnreadableBlock {}
