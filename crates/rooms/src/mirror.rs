//! A shard's picture of a room: puts the bodies of frames together.

use std::{rc::Rc, sync::Arc};

use dunlin_protocol::Encoding;

use crate::{CellIndex, Grid, TickUpdate};

/// What a client has: the tick last written to its socket, and the view that it was written for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Base {
    /// The tick; 0 for none.
    pub tick: u32,
    /// The view.
    pub view: CellIndex,
}

/// The part of a frame that is the same for all players with the same view and base.
#[derive(Debug)]
pub struct Body {
    /// As on the wire, behind the player's header: the rest of `data`, then the mirror's tail for the encoding.
    pub bytes: Vec<u8>,
    /// How many of `bytes` belong to `data`: all but the tail.
    pub data_bytes: usize,
    /// The tick after which the world is like this.
    pub tick: u32,
    /// The tick that it builds on; 0 if everything that is seen is in it.
    pub base_tick: u32,
}

/// What a mirror counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorCounters {
    /// Bodies put together.
    pub assemblies: u64,
    /// Of these, those with everything that is seen.
    pub assemblies_full: u64,
    /// Of these, those from a base before the last tick.
    pub assemblies_catch_up: u64,
    /// Bodies that were asked for.
    pub bodies: u64,
}

/// A shard's picture of a room.
#[derive(Debug)]
pub struct Mirror {
    _todo: (),
}

impl Mirror {
    /// Of the world in `keyframe`. `tails`, by [`Encoding::index`], are what stands behind `data` on the wire: each body
    /// ends with them.
    pub fn new(
        grid: Grid,
        ticks_per_second: u32,
        keyframe: Arc<TickUpdate>,
        tails: [&'static [u8]; Encoding::ALL.len()],
    ) -> Self {
        let _ = (grid, ticks_per_second, keyframe, tails);
        todo!()
    }

    /// Takes in the next update, or another keyframe: then nobody's base counts any more.
    pub fn apply(&mut self, update: Arc<TickUpdate>) {
        let _ = update;
        todo!()
    }

    /// The tick after which the world is like this.
    pub fn tick(&self) -> u32 {
        todo!()
    }

    /// The Unix time of that tick.
    pub fn time_us(&self) -> u64 {
        todo!()
    }

    /// The body of the frame that brings a client with this base to the current tick, for this view. Put together once for
    /// all who are alike. `base` has to be what an earlier body of this mirror's room was for.
    pub fn body(&mut self, encoding: Encoding, view: CellIndex, base: Base) -> Rc<Body> {
        let _ = (encoding, view, base);
        todo!()
    }

    /// What it has counted.
    pub fn counters(&self) -> MirrorCounters {
        todo!()
    }
}
