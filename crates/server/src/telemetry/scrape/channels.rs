//! Metrics of channels and their histories.

use dunlin_engine::counters::ChannelRefusal;

use super::{Page, Scrape, m, per_namespace, sum};
use crate::node::ShardReport;

pub(super) fn channels(page: &mut Page, scrape: &Scrape, shards: &[ShardReport]) {
    page.single(&m::CHANNELS_KEPT, sum(shards, |counters| counters.channels_kept));
    page.single(&m::CHANNELS_EVICTED, sum(shards, |counters| counters.channels_evicted));
    page.family(&m::CHANNELS_REFUSED, |samples| {
        for why in ChannelRefusal::ALL {
            samples.add(&[why.name()], sum(shards, |counters| counters.channels_refused[why as usize]));
        }
    });
    page.single(&m::HISTORY_BYTES, sum(shards, |counters| counters.history_bytes));
    page.family(&m::HISTORY_EVICTED, |samples| {
        per_namespace(samples, scrape, shards, |counters| counters.history_evicted);
    });
    page.family(&m::HISTORY_REFUSED, |samples| {
        per_namespace(samples, scrape, shards, |counters| counters.history_refused);
    });
}
