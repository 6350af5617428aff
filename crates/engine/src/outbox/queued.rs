//! What is queued in an outbox, for the server API. Nothing is counted for it while frames are queued.

use std::{cmp::Reverse, sync::Arc};

use hashbrown::HashMap;

use crate::{
    hub::Hub,
    insight::{CHANNELS_MAX, ChannelQueue, LaneFacts, QueueFacts},
    options::Lane,
};

use super::{Outbox, Slot};

/// A queued frame. Times are absolute.
struct Queued {
    bytes: usize,
    replaced: u32,
    since_us: u64,
    newest_us: u64,
}

/// A queue by channel.
pub(crate) struct DividedQueue {
    /// The most bytes first.
    pub(crate) channels: Vec<ChannelQueue>,
    pub(crate) has_more_channels: bool,
    /// Frames that belong to one of these or to others.
    pub(crate) unexamined_frames: usize,
}

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
        let (mut latest, mut replaced) = (LaneFacts::default(), 0);
        for slot in self.latest.iter().flat_map(|lane| &lane.slots) {
            latest.frames += 1;
            latest.bytes += slot.frame.len();
            replaced += u64::from(slot.skipped);
        }
        let reliable = LaneFacts {
            frames: self.queue.len() - usize::from(self.room_parts),
            bytes: self.queued_bytes - self.room_bytes - latest.bytes,
        };
        QueueFacts {
            reliable,
            latest,
            replaced,
            room_bytes: self.room_bytes,
            rooms_due: self.due_seats,
            age_us: self.oldest_us().map_or(0, |oldest_us| now_us.saturating_sub(oldest_us)),
            // The seats know it.
            limited_us: 0,
            unexamined_frames: 0,
        }
    }

    /// The queue by lane and channel: the [`CHANNELS_MAX`] with the most bytes. Looks at no more than `frames_left` frames,
    /// which it decreases.
    pub(crate) fn by_channel(&self, hub: &Hub, now_us: u64, frames_left: &mut usize) -> DividedQueue {
        let of_lanes = self.queue.len() - usize::from(self.room_parts);
        let frames = of_lanes + self.latest.as_ref().map_or(0, |lane| lane.slots.len());
        let examined = frames.min(*frames_left);
        *frames_left -= examined;
        let of_queue = self.queue.iter().skip(usize::from(self.room_parts)).map(|frame| {
            let channel = frame.delivery().map_or("", |delivery| delivery.channel());
            // Pings carry no time.
            let since_us = frame.since_us().unwrap_or(now_us);
            (Lane::Reliable, channel, Queued { bytes: frame.len(), replaced: 0, since_us, newest_us: since_us })
        });
        let of_slots = self.latest.iter().flat_map(|lane| &lane.slots).map(|slot| {
            // A frame that was encoded again has no delivery, but its slot has the channel.
            let Slot { frame, skipped, since_us, .. } = slot;
            let newest_us = frame.since_us().unwrap_or(now_us);
            let queued = Queued { bytes: frame.len(), replaced: *skipped, since_us: *since_us, newest_us };
            (Lane::Latest, &*hub.channel(slot.channel).name, queued)
        });
        let mut sums = HashMap::<(bool, &str), Sums, foldhash::fast::FixedState>::default();
        for (lane, channel, queued) in of_queue.chain(of_slots).take(examined) {
            sums.entry((lane == Lane::Latest, channel)).or_insert(Sums::NONE).add(queued);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_unstable_by_key(|((is_latest, channel), sums)| (Reverse(sums.queued.bytes), *channel, *is_latest));
        let has_more_channels = sums.len() > CHANNELS_MAX;
        let most = sums.into_iter().take(CHANNELS_MAX);
        let channels = most.map(|((is_latest, channel), sums)| ChannelQueue {
            channel: (!channel.is_empty()).then(|| Arc::from(channel)),
            lane: if is_latest { Lane::Latest } else { Lane::Reliable },
            queued: sums.queued,
            replaced: sums.replaced,
            oldest_age_us: now_us.saturating_sub(sums.oldest_us),
            newest_age_us: now_us.saturating_sub(sums.newest_us),
        });
        DividedQueue { channels: channels.collect(), has_more_channels, unexamined_frames: frames - examined }
    }
}

impl Sums {
    const NONE: Self =
        Self { queued: LaneFacts { frames: 0, bytes: 0 }, replaced: 0, oldest_us: u64::MAX, newest_us: 0 };

    fn add(&mut self, Queued { bytes, replaced, since_us, newest_us }: Queued) {
        self.queued.frames += 1;
        self.queued.bytes += bytes;
        self.replaced += u64::from(replaced);
        self.oldest_us = self.oldest_us.min(since_us);
        self.newest_us = self.newest_us.max(newest_us);
    }
}
