//! The cache of the current tick's bodies, and the buffers of earlier ones for reuse.

use std::rc::Rc;

use hashbrown::HashMap;

use super::{Base, HashState, KEPT_BYTES_MAX, SnapshotBody, Zones};
use crate::{CellIndex, SnapshotFormat};

/// Players with the same key share a body. Without a base, the body has the full state of the view.
pub(super) type BodyKey = (SnapshotFormat, CellIndex, Option<Base>, Option<Zones>);

#[derive(Debug, Default)]
pub(super) struct BodyCache {
    current: HashMap<BodyKey, Rc<SnapshotBody>, HashState>,
    /// Bodies of earlier ticks that may still be referenced by outboxes.
    lent: Vec<Rc<SnapshotBody>>,
    /// Bodies without other references.
    free: Vec<Rc<SnapshotBody>>,
    needed: Peak,
}

/// The maximum of recent numbers: of this window and the previous one.
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

    /// A body whose buffer can be reused.
    pub(super) fn take(&mut self) -> Rc<SnapshotBody> {
        self.free.pop().unwrap_or_default()
    }

    /// Drops the current bodies at a new tick. Keeps as many buffers as a tick has needed recently.
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

/// Longer than the fluctuations caused by slow clients and far cells.
const PEAK_TICKS: u32 = 64;
