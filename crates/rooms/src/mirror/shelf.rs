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

    /// Forgets the current bodies, since there is another tick. Kept are as many buffers as that tick needed.
    pub(super) fn clear(&mut self) {
        let needed = self.current.len();
        self.lent.extend(self.current.drain().map(|(_, body)| body));
        let is_free = |body: &mut Rc<Body>| Rc::get_mut(body).is_some();
        self.free.extend(self.lent.extract_if(.., is_free).filter(|body| body.bytes.capacity() <= KEPT_BYTES_MAX));
        self.free.truncate(needed.max(FREE_MIN));
    }
}

/// Buffers that are kept even if the last tick needed fewer.
const FREE_MIN: usize = 4;
