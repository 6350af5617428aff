//! The pages that answer loads: from the window in memory, or from messages that were read.

use dunlin_engine::{
    Now,
    log::{LoadQuery, LogPage, LogRecord},
};

use crate::record;

use super::{channel::FollowedChannel, partition::Partition, read::Read};

/// The pages of one channel at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages<'a> {
    partition: &'a Partition,
    channel: &'a FollowedChannel,
    now: Now,
}

impl<'a> Pages<'a> {
    pub(super) const fn new(partition: &'a Partition, channel: &'a FollowedChannel, now: Now) -> Self {
        Self { partition, channel, now }
    }

    /// The page of a query that the window answers.
    pub(super) fn of_window(self, query: LoadQuery) -> LogPage {
        let mut page = self.empty();
        let window = &self.channel.window;
        page.through = self.channel.position;
        if self.is_expired() {
            page.floor = self.channel.position;
            return page;
        }
        if let Some(after) = query.after {
            page.floor = after;
            page.records = window.behind(after).take(query.publications_max).map(|one| one.record.clone()).collect();
            if page.records.len() == query.publications_max {
                page.through = page.records.last().map_or(page.through, offset);
            }
        } else {
            let (publications, _) = self.channel.newest_in_window(query);
            let below = window.below(query.below);
            page.records = below.clone().skip(below.len() - publications).map(|one| one.record.clone()).collect();
            page.through = page.through.min(query.below.saturating_sub(1));
            let floor = window.floor().max(page.records.first().map_or(0, offset).saturating_sub(1));
            page.floor = floor.min(page.through);
            page.has_more_below = true;
        }
        page
    }

    /// The page of a read. It reaches as far as the read: messages delivered in the meantime may be missing from it,
    /// and messages that have not been delivered are not in it.
    pub(super) fn of_read(self, read: &Read, floor: u64) -> LogPage {
        let mut page = self.empty();
        let last_read = read.messages.list.last().map_or(0, |message| message.sequence);
        let reached = if read.ended_early() { last_read } else { last_read.max(read.position) };
        let reached = reached.min(self.channel.position);
        page.through = reached.min(read.below().saturating_sub(1));
        page.top = reached;
        if self.is_expired() {
            page.floor = page.through;
            return page;
        }
        page.floor = floor.min(page.through);
        let publications = read.messages.list.iter().filter(|message| record::purged_through(message).is_none());
        let is_in_page = |record: &LogRecord| (page.floor + 1..=page.through).contains(&offset(record));
        page.records = publications.map(record::decode).filter(is_in_page).collect();
        let after = read.query().filter(|query| query.after.is_some());
        let Some(query) = after else {
            // If a purge has removed what was left out, there is nothing below.
            let left_out = read.messages.left_out;
            page.has_more_below = left_out > 0 && page.floor == left_out;
            return page;
        };
        if page.records.len() > query.publications_max {
            page.records.truncate(query.publications_max);
            page.through = page.records.last().map_or(page.through, offset);
        }
        page
    }

    /// A page without publications after `after`, if the channel was compared up to there. A position beyond that is
    /// not from this stream.
    pub(super) fn ahead(self, after: u64, compared: u64) -> LogPage {
        let mut page = self.empty();
        page.through = page.top.max(compared);
        page.top = page.through;
        page.floor = after.min(page.through);
        page
    }

    fn empty(self) -> LogPage {
        let newest = self.channel.window.newest();
        LogPage {
            epoch: self.partition.current_epoch().into(),
            top: self.channel.position,
            version: newest.map_or(0, |newest| newest.version),
            version_epoch: newest.map(|newest| newest.version_epoch.clone()).unwrap_or_default(),
            ..LogPage::default()
        }
    }

    /// Whether the history has expired: it expires as a whole, some time after its newest publication.
    fn is_expired(self) -> bool {
        let newest_ms = self.channel.window.newest().map_or(0, |newest| newest.time_ms);
        newest_ms > 0 && self.now.unix_ms > newest_ms.saturating_add(self.partition.history.ttl_ms)
    }
}

pub(super) fn offset(record: &LogRecord) -> u64 {
    record.publication.offset
}
