//! The deliveries of one turn of the caller.

use crate::{frame::Delivery, names::NamespaceIndex, options::ClientOptions};

use super::Context;

/// The deliveries of the turn. Sessions are written once per turn, so a turn must queue far less than their limits.
#[derive(Default)]
pub(super) struct TurnLoad {
    /// Namespace and time of acceptance of each publication.
    delivered: Vec<(NamespaceIndex, u64)>,
    /// Upper bounds on the bytes and frames queued for one session.
    bytes: usize,
    frames: usize,
}

impl TurnLoad {
    /// Adds a delivery; a publication is measured at the end of the turn.
    pub(super) fn add(&mut self, delivery: &Delivery) {
        self.bytes += delivery.frame_bytes_max();
        self.frames += 1;
        if delivery.publication().is_some() {
            self.delivered.push((delivery.namespace, delivery.accepted_us));
        }
    }

    pub(super) fn takes_more(&self, client: &ClientOptions) -> bool {
        self.bytes <= client.queue_bytes_max / 4 && self.frames <= client.queue_frames_max / 4
    }

    /// Ends the turn: measures the latency of its publications, from acceptance to now.
    pub(super) fn end(&mut self, context: &mut Context) {
        (self.bytes, self.frames) = (0, 0);
        for (namespace, accepted_us) in self.delivered.drain(..) {
            let waited_us = context.now.mono_us.saturating_sub(accepted_us);
            context.count(namespace).publish_to_socket.observe(waited_us);
        }
    }
}
