//! The cache of the current tick's bodies, and the buffers of earlier ones for reuse.

use std::rc::Rc;

use dunlin_protocol::Encoding;
use hashbrown::HashMap;

use super::{Base, FarCells, HashState, KEPT_BYTES_MAX, SnapshotBody};
use crate::CellIndex;

/// Players with the same key share a body. Without a base, the body holds everything in view.
pub(super) type BodyKey = (Encoding, CellIndex, Option<Base>, Option<FarCells>);

#[derive(Debug, Default)]
pub(super) struct BodyCache {
    current: HashMap<BodyKey, Rc<SnapshotBody>, HashState>,
    /// Of former ticks, still being written to somebody.
    lent: Vec<Rc<SnapshotBody>>,
    /// Nobody else has them.
    free: Vec<Rc<SnapshotBody>>,
    needed: Peak,
}

/// The highest of the last numbers: of this window and the one before.
#[derive(Debug, Default)]
struct Peak {
    ticks: u32,
    now: usize,
    before: usize,
}

impl BodyCache {
    pub(super) fn get(&self, key: &BodyKey) -> Option<Rc<SnapshotBody>> {
        self.current.get(key).cloned()
    }

    pub(super) fn put(&mut self, key: BodyKey, body: &Rc<SnapshotBody>) {
        self.current.insert(key, Rc::clone(body));
    }

    /// A body whose buffer nobody needs any more.
    pub(super) fn take(&mut self) -> Rc<SnapshotBody> {
        self.free.pop().unwrap_or_default()
    }

    /// Forgets the current bodies, since there is another tick. Kept are as many buffers as a tick lately needed.
    pub(super) fn clear(&mut self) {
        let kept = self.needed.with(self.current.len());
        self.lent.extend(self.current.drain().map(|(_, body)| body));
        let is_free = |body: &mut Rc<SnapshotBody>| Rc::get_mut(body).is_some();
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
