//! The paths of players: points of a tick and a position, encoded in blocks.
//!
//! A [`PathTracker`] observes the players of a room after its ticks and appends a point for each player that has moved.
//! It hands over a block when the block is full, after [`PathTerms::block_ticks`], when the player leaves, and at the
//! end of the room.
//!
//! A block has at most [`PATH_BLOCK_BYTES_MAX`] bytes. *number* is a LEB128 varint, *difference* a zigzag one:
//!
//! - version, 1 (1 byte); numbers: player, object that represents it or 0, length of the user's name; the name;
//! - numbers: ticks per second, ticks between two points of a moving player, first tick, its Unix time in milliseconds,
//!   x, y;
//! - one code for each further point. 0 to 224: the next point of a moving player. Its velocity, the difference to the
//!   point before, changes by `code / 15 - 7` and `code % 15 - 7`; it is 0 at first. 255: number: ticks since the point
//!   before; differences: the new velocity. Other codes are errors.
//!
//! A standing player has no points. Between two points that are further apart than the interval, the player stood at
//! the first.

mod block;
mod tracker;

#[cfg(test)]
mod tests;

pub use block::{
    BlockHeader, DecodedBlock, PATH_BLOCK_BYTES_MAX, PathPoint, UnreadableBlock, decode_block, read_header,
};
pub use tracker::{FinishedBlock, PathTerms, PathTracker};
