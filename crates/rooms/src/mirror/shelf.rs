//! The bodies of the current tick, and the buffers of former ones.

use std::rc::Rc;

use dunlin_protocol::Encoding;
use hashbrown::HashMap;

use super::{Base, Body, HashState, KEPT_BYTES_MAX};
use crate::CellIndex;

/// What bodies that are alike have in common. Without a base: everything that is seen.
pub(super) type Likeness = (Encoding, CellIndex, Option<Base>);

#[derive(Debug, Default)]
pub(super) struct Shelf {
    current: HashMap<Likeness, Rc<Body>, HashState>,
    /// Of former ticks, still being written to somebody.
    lent: Vec<Rc<Body>>,
    /// Nobody else has them.
    free: Vec<Rc<Body>>,
    needed: Peak,
}

/// The highest of the last numbers: of this window and the one before.
#[derive(Debug, Default)]
struct Peak {
    ticks: u32,
    now: usize,
    before: usize,
}

impl Shelf {
    pub(super) fn get(&self, likeness: &Likeness) -> Option<Rc<Body>> {
        self.current.get(likeness).cloned()
    }

    pub(super) fn put(&mut self, likeness: Likeness, body: &Rc<Body>) {
        self.current.insert(likeness, Rc::clone(body));
    }

    /// A body whose buffer nobody needs any more.
    pub(super) fn take(&mut self) -> Rc<Body> {
        self.free.pop().unwrap_or_else(|| Rc::new(Body { bytes: Vec::new(), data_bytes: 0, tick: 0, base_tick: 0 }))
    }

    /// Forgets the current bodies, since there is another tick. Kept are as many buffers as a tick lately needed.
    pub(super) fn clear(&mut self) {
        let kept = self.needed.with(self.current.len());
        self.lent.extend(self.current.drain().map(|(_, body)| body));
        let is_free = |body: &mut Rc<Body>| Rc::get_mut(body).is_some();
        self.free.extend(self.lent.extract_if(.., is_free).filter(|body| body.bytes.capacity() <= KEPT_BYTES_MAX));
        self.free.truncate(kept);
    }
}

impl Peak {
    fn with(&mut self, number: usize) -> usize {
        if self.ticks >= PEAK_TICKS {
            *self = Self { ticks: 0, now: 0, before: self.now };
        }
        self.ticks += 1;
        self.now = self.now.max(number);
        self.now.max(self.before)
    }
}

/// Longer than slow clients and far cells make the need go up and down.
const PEAK_TICKS: u32 = 64;
