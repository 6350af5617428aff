//! What is queued in an outbox, for the server API. Nothing is counted for it while frames are queued.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::{
    frame::FrameRef,
    hub::Hub,
    insight::{ChannelQueue, LaneFacts, QueueFacts},
    options::Lane,
};

use super::Outbox;

/// The sums of one lane and channel. Times are absolute.
#[derive(Clone, Copy)]
struct Sums {
    queued: LaneFacts,
    replaced: u64,
    oldest_us: u64,
    newest_us: u64,
}

impl Outbox {
    /// What is queued.
    pub(crate) fn facts(&self, now_us: u64) -> QueueFacts {
        let slots = || self.latest.iter().flat_map(|lane| &lane.slots);
        let reliable_frames = self.queue.len() - usize::from(self.room_parts);
        QueueFacts {
            reliable: LaneFacts { frames: reliable_frames, bytes: self.reliable_bytes() },
            latest: LaneFacts { frames: slots().count(), bytes: slots().map(|slot| slot.frame.len()).sum() },
            replaced: slots().map(|slot| u64::from(slot.skipped)).sum(),
            room_bytes: self.room_bytes,
            rooms_due: self.due_seats,
            age_us: self.oldest_us().map_or(0, |oldest_us| now_us.saturating_sub(oldest_us)),
        }
    }

    /// The queue by lane and channel, in any order. Looks at no more than `frames_left` frames, which it decreases;
    /// returns whether that was enough.
    pub(crate) fn by_channel(&self, hub: &Hub, now_us: u64, frames_left: &mut usize) -> (Vec<ChannelQueue>, bool) {
        let frames = self.queue.len() + self.latest.as_ref().map_or(0, |lane| lane.slots.len());
        let examined = frames.min(*frames_left);
        *frames_left -= examined;
        let of_queue = self.queue.iter().skip(usize::from(self.room_parts)).map(|frame| {
            let channel = frame.delivery().map_or("", |delivery| delivery.channel());
            (Lane::Reliable, channel, frame, 0)
        });
        let of_slots = self.latest.iter().flat_map(|lane| &lane.slots).map(|slot| {
            // A frame that was encoded again has no delivery, but its slot has the channel.
            (Lane::Latest, &*hub.channel(slot.channel).name, &slot.frame, slot.skipped)
        });
        let mut sums = HashMap::<(bool, &str), Sums, foldhash::fast::FixedState>::default();
        for (lane, channel, frame, replaced) in of_queue.chain(of_slots).take(examined) {
            let entry = sums.entry((lane == Lane::Latest, channel)).or_insert(Sums::NONE);
            entry.add(frame, replaced, now_us);
        }
        let channels = sums.into_iter().map(|((is_latest, channel), sums)| ChannelQueue {
            channel: (!channel.is_empty()).then(|| Arc::from(channel)),
            lane: if is_latest { Lane::Latest } else { Lane::Reliable },
            queued: sums.queued,
            replaced: sums.replaced,
            oldest_age_us: now_us.saturating_sub(sums.oldest_us),
            newest_age_us: now_us.saturating_sub(sums.newest_us),
        });
        (channels.collect(), examined == frames)
    }
}

impl Sums {
    const NONE: Self =
        Self { queued: LaneFacts { frames: 0, bytes: 0 }, replaced: 0, oldest_us: u64::MAX, newest_us: 0 };

    fn add(&mut self, frame: &FrameRef, replaced: u32, now_us: u64) {
        self.queued.frames += 1;
        self.queued.bytes += frame.len();
        self.replaced += u64::from(replaced);
        // Pings carry no time.
        let since_us = frame.since_us().unwrap_or(now_us);
        self.oldest_us = self.oldest_us.min(since_us);
        self.newest_us = self.newest_us.max(since_us);
    }
}
