//! Metrics of channels and their histories.

use dunlin_engine::counters::ChannelRefusal;

use super::{Page, m, sum};
use crate::node::ShardReport;

pub(super) fn channels(page: &mut Page, shards: &[ShardReport]) {
    page.single(&m::CHANNELS_KEPT, sum(shards, |counters| counters.channels_kept));
    page.family(&m::CHANNELS_REFUSED, |samples| {
        for why in ChannelRefusal::ALL {
            samples.add(&[why.name()], sum(shards, |counters| counters.channels_refused[why as usize]));
        }
    });
    page.single(&m::HISTORY_BYTES, sum(shards, |counters| counters.history_bytes));
}
